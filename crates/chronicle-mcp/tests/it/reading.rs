//! The tools that look.

use serde_json::json;

use crate::support::{World, talk};

#[test]
fn turns_and_snapshots_are_listed_newest_first_and_by_session() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    world.turn("t", &[("b.txt", "2\n")]);
    talk(&world, &["s"], async |client| {
        let turns = client.call("list_turns", json!({})).await.ok();
        assert_eq!(turns["turns"][0]["number"], 2);
        assert_eq!(turns["turns"][0]["own"], false);
        assert_eq!(turns["turns"][1]["own"], true);
        assert_eq!(turns["cut"], false);
        let own = client.call("list_turns", json!({ "session": "s" })).await.ok();
        assert_eq!(own["turns"].as_array().unwrap().len(), 1);
        let snapshots = client.call("list_snapshots", json!({ "session": "t" })).await.ok();
        assert_eq!(snapshots["snapshots"][0]["changes"][0]["path"], "b.txt");
        let touched = client.call("list_snapshots", json!({ "path": "a.txt", "turn": 1 })).await;
        assert!(touched.text().contains("turn:1"), "{}", touched.text());
        assert_eq!(touched.ok()["snapshots"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn what_was_deleted_is_found_shown_and_read() {
    let world = World::new();
    let request = world.begin("s");
    std::fs::remove_file(world.directory().join("a.txt")).unwrap();
    world.open().turn_end(&request).unwrap();
    talk(&world, &["s"], async |client| {
        let found = client.call("search", json!({ "pattern": "^two$" })).await.ok();
        assert_eq!(found["matches"][0]["path"], "a.txt");
        assert_eq!(found["matches"][0]["present"], false);
        let id = found["matches"][0]["removed_by"].clone();
        let shown = client.call("show", json!({ "id": id, "patch": true })).await;
        assert!(shown.text().contains("-two"), "{}", shown.text());
        assert!(shown.ok()["patch"].as_str().unwrap().contains("-two"));
        let version = json!({ "path": "a.txt", "at": id });
        let read = client.call("read_version", version).await.ok();
        assert_eq!(read["content"], "one\ntwo\nthree\n");
        let history = client.call("file_history", json!({ "path": "a.txt" })).await.ok();
        assert_eq!(history["versions"][0]["change"]["change_type"], "deleted");
        let gone = client.call("read_version", json!({ "path": "a.txt" })).await;
        gone.refused("no_content");
    });
}

#[test]
fn status_and_diff_see_what_nobody_recorded_yet() {
    let world = World::new();
    world.turn("s", &[("c.txt", "c\n")]);
    world.write("b.txt", "beta\n");
    talk(&world, &["s"], async |client| {
        let status = client.call("status", json!({})).await.ok();
        assert_eq!(status["changes"][0]["path"], "b.txt");
        assert_eq!(status["own_sessions"], json!(["s"]));
        let diff = client.call("diff", json!({ "from": "start", "patch": true })).await.ok();
        assert_eq!(diff["files_changed"], 2);
        assert!(diff["changes"][0]["patch"].as_str().unwrap().contains("+beta"));
        let some = json!({ "from": "start", "paths": ["c.txt"] });
        assert_eq!(client.call("diff", some).await.ok()["files_changed"], 1);
    });
}

#[test]
fn a_pinned_moment_can_be_named() {
    let world = World::new();
    talk(&world, &[], async |client| {
        let pinned = client.call("pin", json!({ "target": "start", "name": "good" })).await.ok();
        assert_eq!(pinned["name"], "good");
        let read = json!({ "path": "b.txt", "at": "good" });
        assert_eq!(client.call("read_version", read).await.ok()["content"], "alpha\n");
        client.call("pin", json!({ "target": "start", "name": "now" })).await.refused("usage");
    });
}
