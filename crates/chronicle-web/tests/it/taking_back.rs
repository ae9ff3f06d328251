//! A plan first, then exactly that plan, and nothing twice.

use serde_json::{Value, json};

use crate::support::World;

fn plan(world: &World, body: &Value) -> Value {
    world.post("plans", body).ok()
}

fn apply(world: &World, plan: &Value) -> Value {
    world.post(&format!("plans/{}/apply", plan["plan_id"].as_str().unwrap()), &json!(null)).ok()
}

#[test]
fn some_files_of_a_turn_go_back_and_come_again() {
    let world = World::new();
    let files: Vec<_> = (1..=5).map(|n| (format!("f{n}.txt"), format!("{n}\n"))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (&path[..], &text[..])).collect();
    world.turn("s", "five", &files);
    let whole = plan(&world, &json!({ "kind": "undo", "target": "turn:1" }));
    assert_eq!(whole["delete"].as_array().unwrap().len(), 5);
    let two =
        plan(&world, &json!({ "kind": "undo", "target": "turn:1", "paths": ["f1.txt", "f2.txt"] }));
    assert!(world.read("f1.txt").is_some(), "a plan changes nothing");
    let done = apply(&world, &two);
    assert_eq!((&done["changed"], &done["partial"]), (&2.into(), &false.into()));
    assert_eq!((world.read("f1.txt"), world.read("f3.txt")), (None, Some("3\n".to_owned())));
    let timeline = world.get("timeline").ok();
    assert_eq!(timeline["entries"][0]["kind"], "rewind");
    assert_eq!(timeline["entries"][1]["taken_back"], 2);
    apply(&world, &plan(&world, &json!({ "kind": "redo" })));
    assert_eq!(world.read("f1.txt").unwrap(), "1\n");
}

#[test]
fn hunks_are_chosen_by_the_numbers_that_the_plan_shows() {
    let world = World::new();
    let lines = |change: &dyn Fn(u32) -> String| (1..=40).map(change).collect::<String>();
    world.write("c.txt", &lines(&|n| format!("{n}\n")));
    world.open().settle().unwrap();
    let changed =
        lines(&|n| if n == 3 || n == 30 { format!("changed {n}\n") } else { format!("{n}\n") });
    world.turn("s", "two places", &[("c.txt", &changed)]);
    let whole = plan(&world, &json!({ "kind": "undo", "target": "turn:1" }));
    let id = whole["plan_id"].as_str().unwrap();
    let file = world.get(&format!("plans/{id}/file?path=c.txt")).ok();
    assert_eq!(file["hunks"].as_array().unwrap().len(), 2);
    assert_eq!(file["hunks"][1]["number"], 2);
    let body = json!({ "kind": "undo", "target": "turn:1", "hunks": [{ "path": "c.txt", "numbers": [2] }] });
    apply(&world, &plan(&world, &body));
    let now = world.read("c.txt").unwrap();
    assert!(now.contains("changed 3\n") && now.contains("\n30\n"), "{now}");
    world.get(&format!("plans/{id}/file?path=a.txt")).refused(404, "unknown_target");
    world.get("plans/abcdefabcdef/file?path=a.txt").refused(404, "unknown_target");
    let bad = json!({ "kind": "undo", "target": "turn:1", "hunks": [{ "path": "c.txt", "numbers": [0] }] });
    world.post("plans", &bad).refused(400, "usage");
}

#[test]
fn a_retry_is_answered_the_same_and_does_nothing_twice() {
    let world = World::new();
    world.turn("s", "p", &[("a.txt", "changed\n")]);
    let made = plan(&world, &json!({ "kind": "rewind", "target": "before:turn:1" }));
    let path = format!("plans/{}/apply", made["plan_id"].as_str().unwrap());
    let key = [("Idempotency-Key", "retry-1")];
    let first = world.post_with(&path, &json!(null), &key);
    assert_eq!(first.header("idempotency-replayed"), None);
    let records = world.get("timeline").ok()["head_seq"].clone();
    world.write("a.txt", "and on\n");
    let again = world.post_with(&path, &json!(null), &key);
    assert_eq!(again.header("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!(again.body, first.body);
    assert_eq!(world.read("a.txt").unwrap(), "and on\n");
    assert_eq!(world.get("timeline").ok()["head_seq"], records);
    // Without the key, or after the answer was lost for good, the plan still counts once.
    world.post(&path, &json!(null)).refused(409, "plan_outdated");
    let other = plan(&world, &json!({ "kind": "rewind", "target": "start" }));
    let other = format!("plans/{}/apply", other["plan_id"].as_str().unwrap());
    world.post_with(&other, &json!(null), &key).refused(400, "usage");
}

#[test]
fn a_conflict_stops_until_somebody_chooses_a_side() {
    let world = World::new();
    world.turn("s", "p", &[("a.txt", "one\nagent\nthree\n")]);
    world.write("a.txt", "one\nperson\nthree\n");
    world.open().settle().unwrap();
    let body = json!({ "kind": "undo", "target": "turn:1" });
    let made = plan(&world, &body);
    assert_eq!(made["conflict"][0]["path"], "a.txt");
    let id = made["plan_id"].as_str().unwrap();
    let sides = world.get(&format!("plans/{id}/file?path=a.txt")).ok();
    assert!(sides["hunks"][0]["lines"].to_string().contains("person"), "{sides}");
    world.post(&format!("plans/{id}/apply"), &json!(null)).refused(409, "conflict");
    assert_eq!(world.read("a.txt").unwrap(), "one\nperson\nthree\n");
    let body = json!({ "kind": "undo", "target": "turn:1", "on_conflict": "replace" });
    apply(&world, &plan(&world, &body));
    assert_eq!(world.read("a.txt").unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn a_plan_that_does_not_hold_any_more_is_refused() {
    let world = World::new();
    world.turn("s", "p", &[("a.txt", "changed\n")]);
    let made = plan(&world, &json!({ "kind": "rewind", "target": "before:turn:1" }));
    world.write("b.txt", "meanwhile\n");
    world.turn("s", "q", &[("a.txt", "changed again\n")]);
    let path = format!("plans/{}/apply", made["plan_id"].as_str().unwrap());
    world.post(&path, &json!(null)).refused(409, "plan_outdated");
    assert_eq!(world.read("a.txt").unwrap(), "changed again\n");
    world.post("plans", &json!({ "kind": "rewind" })).refused(400, "usage");
    world
        .post("plans", &json!({ "kind": "rewind", "target": "nothing" }))
        .refused(404, "unknown_target");
    world.post("plans", &json!({ "kind": "other" })).refused(400, "usage");
    world.post("plans", &json!({ "kind": "undo", "more": 1 })).refused(400, "usage");
}
