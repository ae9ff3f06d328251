//! A model takes back its own session's work and nobody else's, however it names it.

use serde_json::{Value, json};

use crate::support::{World, talk};

/// Two sessions and a person, each with a file of its own.
fn crowd() -> World {
    let world = World::new();
    world.turn("s", &[("s.txt", "s\n")]);
    world.turn("t", &[("t.txt", "t\n")]);
    world.person("b.txt", "person\n");
    world
}

#[test]
fn another_sessions_turn_is_refused_whatever_it_is_called() {
    let world = crowd();
    talk(&world, &["s"], async |client| {
        let listed = client.call("list_snapshots", json!({ "turn": 2 })).await.ok();
        let id = listed["snapshots"][0]["id"].clone();
        for (action, target) in [
            ("undo", json!("turn:2")),
            ("undo", json!("turn:-1")),
            ("undo", id.clone()),
            ("rollback", id.clone()),
            ("rewind", json!("turn:2")),
            ("rewind", json!("before:turn:2")),
            ("rewind", id),
        ] {
            let arguments = json!({ "action": action, "target": target });
            let error = client.call("preview", arguments).await.refused("other_session");
            assert!(error["hint"].as_str().unwrap().contains("person"), "{error}");
        }
        let named = json!({ "action": "rewind", "target": "start", "session": "t" });
        client.call("preview", named).await.refused("other_session");
        for flag in ["exact", "all_sessions", "take_shared", "recreate_root"] {
            let arguments = json!({ "action": "rewind", "target": "start", flag: true });
            client.call("preview", arguments).await.refused("not_allowed");
        }
    });
}

#[test]
fn a_bare_undo_is_the_newest_turn_of_ones_own() {
    let world = crowd();
    talk(&world, &["s"], async |client| {
        let (id, plan) = client.preview(json!({ "action": "undo" })).await;
        assert_eq!(plan["authors"], json!(["s"]));
        client.call("undo", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("s.txt"), None);
        assert_eq!(world.read("t.txt").unwrap(), "t\n");
        client.call("preview", json!({ "action": "undo" })).await.refused("nothing_to_do");
    });
}

#[test]
fn going_back_to_a_mere_moment_takes_only_ones_own() {
    let world = crowd();
    talk(&world, &["s"], async |client| {
        let (id, _) = client.preview(json!({ "action": "rewind", "target": "start" })).await;
        client.call("rewind", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("s.txt"), None);
        assert_eq!(world.read("t.txt").unwrap(), "t\n");
        assert_eq!(world.read("b.txt").unwrap(), "person\n");
    });
}

#[test]
fn a_persons_work_is_refused_by_its_snapshot() {
    let world = crowd();
    talk(&world, &["s"], async |client| {
        let listed = client.call("list_snapshots", json!({ "path": "b.txt" })).await.ok();
        let found = |snapshot: &&Value| snapshot["action_type"] == "external";
        let id = listed["snapshots"].as_array().unwrap().iter().find(found).unwrap()["id"].clone();
        for action in ["undo", "rollback"] {
            let arguments = json!({ "action": action, "target": id });
            let error = client.call("preview", arguments).await.refused("other_session");
            assert!(error["message"].as_str().unwrap().contains("person"), "{error}");
        }
    });
}

/// Bringing back is touching too: what another session's rewind took away stays away.
#[test]
fn redo_of_anothers_undo_is_refused() {
    let world = crowd();
    talk(&world, &["t"], async |client| {
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        client.call("undo", json!({ "plan_id": id })).await.ok();
    });
    assert_eq!(world.read("t.txt"), None);
    talk(&world, &["s"], async |client| {
        client.call("preview", json!({ "action": "redo" })).await.refused("other_session");
    });
    talk(&world, &["t"], async |client| {
        let (id, _) = client.preview(json!({ "action": "redo" })).await;
        client.call("redo", json!({ "plan_id": id })).await.ok();
    });
    assert_eq!(world.read("t.txt").unwrap(), "t\n");
}

/// After a person undid another session's turn, a rewind to just after that turn would bring it
/// back, though the rewind is limited to one's own work.
#[test]
fn a_rewind_does_not_bring_back_what_a_person_undid() {
    let world = World::new();
    world.turn("t", &[("t.txt", "t\n")]);
    world.open().pin("turn:1", "good").unwrap();
    let undo = chronicle_core::RewindKind::Undo { what: Some("turn:1".to_owned()) };
    let request = chronicle_core::RewindRequest::new(undo);
    world.open().rewind(&request, &mut |_| true).unwrap();
    world.turn("s", &[("s.txt", "s\n")]);
    talk(&world, &["s"], async |client| {
        let arguments = json!({ "action": "rewind", "target": "good" });
        client.call("preview", arguments).await.refused("other_session");
    });
}

#[test]
fn work_that_could_be_anothers_is_left_alone() {
    let world = World::new();
    let (one, two) = (world.begin("s"), world.begin("t"));
    world.write("a.txt", "whose?\n");
    world.open().turn_end(&one).unwrap();
    world.open().turn_end(&two).unwrap();
    talk(&world, &["s"], async |client| {
        client.call("preview", json!({ "action": "undo" })).await.refused("nothing_to_do");
        let listed = client.call("list_snapshots", json!({ "path": "a.txt" })).await.ok();
        let id = listed["snapshots"][0]["id"].clone();
        let arguments = json!({ "action": "undo", "target": id });
        client.call("preview", arguments).await.refused("other_session");
    });
}

#[test]
fn without_a_session_one_can_look_and_preview_but_not_take_back() {
    let world = crowd();
    talk(&world, &[], async |client| {
        let called = client.call("preview", json!({ "action": "undo", "target": "turn:1" })).await;
        assert!(called.text().contains("only the person"), "{}", called.text());
        let plan = called.ok();
        assert_eq!(plan["can_apply"], false);
        let arguments = json!({ "plan_id": plan["plan_id"] });
        let error = client.call("undo", arguments).await.refused("unknown_session");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("hooks") && hint.contains("--session"), "{hint}");
        assert_eq!(world.read("s.txt").unwrap(), "s\n");
    });
}

#[test]
fn a_model_with_two_sessions_owns_both() {
    let world = crowd();
    talk(&world, &["s", "t"], async |client| {
        let (_, plan) = client.preview(json!({ "action": "undo" })).await;
        assert_eq!(plan["authors"], json!(["t"]), "the newest turn");
        let (_, plan) = client.preview(json!({ "action": "undo", "session": "s" })).await;
        assert_eq!(plan["authors"], json!(["s"]));
    });
}

/// A rewind by hunks takes back no whole change, so it is an edit of whoever made it; a rewind to
/// before it would undo that edit without any session's change going or coming.
#[test]
fn a_persons_rewind_by_hunks_is_not_the_models_to_take_back() {
    let world = World::new();
    let lines = |first: &str, last: &str| {
        let middle: String = (0..20).map(|n| format!("line {n}\n")).collect();
        format!("{first}\n{middle}{last}\n")
    };
    world.person("a.txt", &lines("a", "z"));
    world.turn("s", &[("a.txt", &lines("A", "Z"))]);
    world.open().pin("turn:1", "good").unwrap();
    let target = "before:turn:1".to_owned();
    let kind = chronicle_core::RewindKind::Rewind { target };
    let mut request = chronicle_core::RewindRequest::new(kind);
    request.hunks = vec![(chronicle_core::WorkspacePath::new("a.txt").unwrap(), vec![0])];
    world.open().rewind(&request, &mut |_| true).unwrap();
    assert_eq!(world.read("a.txt").unwrap(), lines("a", "Z"));
    world.turn("s", &[("c.txt", "c\n")]);
    talk(&world, &["s"], async |client| {
        let arguments = json!({ "action": "rewind", "target": "good" });
        client.call("preview", arguments).await.refused("other_session");
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        client.call("undo", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("a.txt").unwrap(), lines("a", "Z"));
        assert_eq!(world.read("c.txt"), None);
    });
}
