//! Preview first, then take back; and everything that is refused on the way.

use serde_json::json;

use crate::support::{World, talk, talk_to};

#[test]
fn a_previewed_undo_takes_back_the_turn_and_keeps_a_persons_work() {
    let world = World::new();
    world.turn("s", &[("a.txt", "one\n2\nthree\n"), ("c.txt", "new\n")]);
    world.person("b.txt", "beta\n");
    talk(&world, &["s"], async |client| {
        let (id, plan) = client.preview(json!({ "action": "undo" })).await;
        assert_eq!(plan["authors"], json!(["s"]));
        assert_eq!(plan["can_apply"], true);
        assert_eq!(world.read("a.txt").unwrap(), "one\n2\nthree\n", "a preview changes nothing");
        let done = client.call("undo", json!({ "plan_id": id })).await;
        assert!(done.text().contains("read them again"), "{}", done.text());
        assert_eq!(done.ok()["changed"], 2);
        assert_eq!(world.read("a.txt").unwrap(), "one\ntwo\nthree\n");
        assert_eq!(world.read("c.txt"), None);
        assert_eq!(world.read("b.txt").unwrap(), "beta\n");
        let (id, _) = client.preview(json!({ "action": "redo" })).await;
        client.call("redo", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("c.txt").unwrap(), "new\n");
    });
}

#[test]
fn the_turn_in_which_it_is_asked_can_be_taken_back() {
    let world = World::new();
    world.begin("s");
    world.write("a.txt", "wrecked\n");
    talk(&world, &["s"], async |client| {
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        client.call("undo", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("a.txt").unwrap(), "one\ntwo\nthree\n");
    });
}

#[test]
fn rewind_and_rollback_go_by_their_plans_too() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    world.turn("s", &[("a.txt", "2\n"), ("b.txt", "2\n")]);
    talk(&world, &["s"], async |client| {
        let rewind = json!({ "action": "rewind", "target": "turn:1", "paths": ["a.txt"] });
        let (id, _) = client.preview(rewind).await;
        client.call("rewind", json!({ "plan_id": id })).await.ok();
        assert_eq!((world.read("a.txt").unwrap(), world.read("b.txt").unwrap()), pair("1", "2"));
        let listed = client.call("list_snapshots", json!({ "turn": 2 })).await.ok();
        let snapshots = listed["snapshots"].as_array().unwrap().clone();
        let made = snapshots.iter().find(|snapshot| snapshot["action_type"] == "shell").unwrap();
        let rollback = json!({ "action": "rollback", "target": made["id"] });
        let (id, _) = client.preview(rollback).await;
        client.call("rollback", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("b.txt").unwrap(), "alpha\n");
    });
}

fn pair(a: &str, b: &str) -> (String, String) {
    (format!("{a}\n"), format!("{b}\n"))
}

#[test]
fn without_a_preview_nothing_is_taken_back() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    talk(&world, &["s"], async |client| {
        for tool in ["rewind", "undo", "rollback", "redo"] {
            let error = client.call(tool, json!({})).await.refused("not_previewed");
            assert!(error["hint"].as_str().unwrap().contains("preview"), "{error}");
            let made_up = json!({ "plan_id": "019a0000-0000-7000-8000-000000000000" });
            client.call(tool, made_up).await.refused("not_previewed");
        }
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        let error = client.call("rewind", json!({ "plan_id": id })).await.refused("not_previewed");
        assert!(error["hint"].as_str().unwrap().contains("undo"), "{error}");
        assert_eq!(world.read("a.txt").unwrap(), "1\n");
        client.call("undo", json!({ "plan_id": id })).await.ok();
        client.call("undo", json!({ "plan_id": id })).await.refused("not_previewed");
    });
}

/// A plan that another process made is a plan that this model did not look at.
#[test]
fn a_plan_of_another_process_is_no_preview() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    let mut plan = String::new();
    talk(&world, &["s"], async |client| {
        plan = client.preview(json!({ "action": "undo" })).await.0;
    });
    talk(&world, &["s"], async |client| {
        client.call("undo", json!({ "plan_id": plan })).await.refused("not_previewed");
    });
    assert_eq!(world.read("a.txt").unwrap(), "1\n");
}

#[test]
fn a_plan_that_no_longer_holds_is_refused() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    talk(&world, &["s"], async |client| {
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        world.write("a.txt", "meanwhile\n");
        let error = client.call("undo", json!({ "plan_id": id })).await.refused("plan_outdated");
        assert!(error["hint"].as_str().unwrap().contains("preview"), "{error}");
        assert_eq!(world.read("a.txt").unwrap(), "meanwhile\n");
    });
}

#[test]
fn a_conflict_with_a_person_stops_and_their_work_can_be_kept() {
    let world = World::new();
    world.turn("s", &[("a.txt", "one\n2\nthree\n"), ("c.txt", "c\n")]);
    world.person("a.txt", "one\nzwei\nthree\n");
    talk(&world, &["s"], async |client| {
        let (id, plan) = client.preview(json!({ "action": "undo" })).await;
        assert_eq!(plan["conflict"][0]["path"], "a.txt");
        client.call("undo", json!({ "plan_id": id })).await.refused("conflict");
        let replace = json!({ "action": "undo", "on_conflict": "replace" });
        client.call("preview", replace).await.refused("not_allowed");
        let keep = json!({ "action": "undo", "on_conflict": "keep-mine" });
        let (id, _) = client.preview(keep).await;
        client.call("undo", json!({ "plan_id": id })).await.ok();
        assert_eq!(world.read("a.txt").unwrap(), "one\nzwei\nthree\n");
        assert_eq!(world.read("c.txt"), None);
    });
}

#[test]
fn nothing_is_changed_while_chronicle_is_off() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    let mut options = world.options(&["s"]);
    options.off = true;
    talk_to(options, async |client| {
        let (id, _) = client.preview(json!({ "action": "undo" })).await;
        client.call("undo", json!({ "plan_id": id })).await.refused("off");
        client.call("pin", json!({ "target": "start", "name": "x" })).await.refused("off");
        assert_eq!(world.read("a.txt").unwrap(), "1\n");
    });
}

#[test]
fn arguments_that_make_no_sense_together_are_explained() {
    let world = World::new();
    talk(&world, &["s"], async |client| {
        client.call("preview", json!({ "action": "rewind" })).await.refused("usage");
        client.call("preview", json!({ "action": "rollback" })).await.refused("usage");
        let redo = json!({ "action": "redo", "target": "turn:1" });
        client.call("preview", redo).await.refused("usage");
        client.call("preview", json!({ "action": "redo" })).await.refused("nothing_to_do");
        client.call("preview", json!({ "action": "undo" })).await.refused("nothing_to_do");
        let far = json!({ "action": "rewind", "target": "turn:99" });
        client.call("preview", far).await.refused("unknown_target");
        let outside = json!({ "action": "rewind", "target": "start", "paths": ["/etc/passwd"] });
        client.call("preview", outside).await.refused("outside_roots");
    });
}
