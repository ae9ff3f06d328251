//! The standalone example over HTTP: save, write, compare, roll back.

use serde_json::json;

use crate::support::World;

#[test]
fn a_harness_without_hooks_saves_writes_compares_and_rolls_back() {
    let world = World::new();
    let turn = json!({ "session": "demo", "prompt": "make it loud\nsecond line", "key": "t1" });
    let started = world.post("turns", &turn).ok();
    assert_eq!(started["prompt"], "make it loud");
    assert_eq!(
        world.post("turns", &turn).ok()["number"],
        started["number"],
        "a key opens one turn"
    );
    let body =
        json!({ "action": "write_file", "paths": ["a.txt"], "session": "demo", "tool": "Write" });
    let snapshot = world.post_with("snapshots", &body, &[("Idempotency-Key", "s1")]).ok();
    let again = world.post_with("snapshots", &body, &[("Idempotency-Key", "s1")]).ok();
    assert_eq!(snapshot["id"], again["id"]);
    assert_eq!(snapshot["files_backed_up"], json!(["a.txt"]));
    world.write("a.txt", "ONE\nTWO\nTHREE\n");
    assert_eq!(world.post("settle", &json!(null)).ok()["changes"], 1);
    let id = snapshot["id"].as_str().unwrap();
    assert_eq!(world.get(&format!("diff?of={id}")).ok()["insertions"], 3);
    assert_eq!(world.get(&format!("snapshots/{id}")).ok()["tool"], "Write");
    let plan = world.post("plans", &json!({ "kind": "rollback", "target": id })).ok();
    let path = format!("plans/{}/apply", plan["plan_id"].as_str().unwrap());
    assert_eq!(world.post(&path, &json!(null)).ok()["changed"], 1);
    assert_eq!(world.read("a.txt").unwrap(), "one\ntwo\nthree\n");
    let ended = world.post("turns/end", &json!({ "session": "demo" })).ok();
    assert!(ended["end_seq"].is_u64(), "{ended}");
    assert_eq!(world.get("timeline?tool=Write").ok()["entries"].as_array().unwrap().len(), 1);
    world.post("snapshots", &json!({ "action": "write_file" })).refused(400, "usage");
    world.post("turns/end", &json!({ "session": "nobody" })).refused(404, "unknown_target");
}

#[test]
fn a_verification_runs_beside_everything_else() {
    let world = World::new();
    assert_eq!(world.get("verify").ok()["state"], "never");
    world.post("verify", &json!({ "deep": true })).ok();
    for _ in 0..200 {
        let state = world.get("verify").ok();
        if state["state"] == "verified" {
            assert!(state["report"]["objects_read"].as_u64().unwrap() > 0);
            assert_eq!(world.get("health").ok()["verification"]["state"], "verified");
            return;
        }
        assert_eq!(state["state"], "running");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("it did not end");
}
