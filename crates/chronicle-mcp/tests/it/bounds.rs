//! No answer grows with the workspace: what is cut says so.

use serde_json::json;

use crate::support::{World, talk};

#[test]
fn lists_say_when_they_were_cut() {
    let world = World::new();
    for round in 0..4 {
        world.turn("s", &[("a.txt", &format!("round {round}\n"))]);
    }
    talk(&world, &["s"], async |client| {
        for (tool, arguments, field) in [
            ("list_turns", json!({ "limit": 3 }), "turns"),
            ("list_snapshots", json!({ "limit": 3 }), "snapshots"),
            ("search", json!({ "pattern": "round", "limit": 3 }), "matches"),
            ("file_history", json!({ "path": "a.txt", "limit": 3 }), "versions"),
        ] {
            let called = client.call(tool, arguments).await;
            assert!(called.text().contains("There are more"), "{tool}: {}", called.text());
            let answer = called.ok();
            assert_eq!(answer[field].as_array().unwrap().len(), 3, "{tool}");
            assert_eq!(answer["cut"], true, "{tool}");
            let partial = if tool == "search" { json!(true) } else { json!(null) };
            assert_eq!(answer["partial"], partial, "{tool}");
        }
        let all = json!({ "pattern": "round", "limit": 4 });
        let whole = client.call("search", all).await.ok();
        assert_eq!((&whole["partial"], &whole["total"]), (&json!(false), &json!(4)));
        let whole = client.call("list_turns", json!({ "limit": 4 })).await.ok();
        assert_eq!(whole["cut"], false);
    });
}

#[test]
fn a_snapshot_of_many_files_and_its_plan_are_cut() {
    let world = World::new();
    let names: Vec<_> = (0..300).map(|n| format!("f{n:03}")).collect();
    let files: Vec<_> = names.iter().map(|name| (&name[..], "x\n")).collect();
    world.turn("s", &files);
    talk(&world, &["s"], async |client| {
        let listed = client.call("list_snapshots", json!({ "turn": 1 })).await.ok();
        let snapshot = &listed["snapshots"][0];
        assert_eq!(snapshot["changes"].as_array().unwrap().len(), 10);
        assert_eq!(snapshot["left_off"]["changes"], 290);
        let shown = client.call("show", json!({ "id": snapshot["id"] })).await.ok();
        assert_eq!(shown["left_off"]["changes"], 100);
        let diff = client.call("diff", json!({})).await.ok();
        assert_eq!((&diff["cut"], &diff["files_changed"]), (&json!(true), &json!(300)));
        assert_eq!((&diff["partial"], &diff["insertions"]), (&json!(true), &json!(200)));
        let (id, plan) = client.preview(json!({ "action": "undo" })).await;
        assert_eq!(plan["left_off"]["delete"], 200);
        let done = client.call("undo", json!({ "plan_id": id })).await.ok();
        assert_eq!(done["changed"], 300, "a plan that is shown in part is applied whole");
        assert_eq!(done["plan"]["left_off"]["delete"], 200);
    });
}

#[test]
fn patches_and_contents_are_cut_at_a_stated_size() {
    let world = World::new();
    let long: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    world.turn("s", &[("a.txt", &long), ("long.txt", &long)]);
    talk(&world, &["s"], async |client| {
        let diff = client.call("diff", json!({ "patch": true })).await.ok();
        let patches = diff["changes"].as_array().unwrap().iter();
        let length: usize = patches.map(|change| change["patch"].as_str().unwrap().len()).sum();
        assert_eq!(length, 32 << 10);
        assert_eq!(diff["changes"][1]["patch_cut"], true);
        assert_eq!(diff["partial"], true, "the second patch was not made");
        let id = client.call("list_snapshots", json!({})).await.ok()["snapshots"][0]["id"].clone();
        let shown = client.call("show", json!({ "id": id, "patch": true })).await.ok();
        assert_eq!(shown["patch_cut"], true);
        let mut read = String::new();
        let mut offset = json!(0);
        while !offset.is_null() {
            let arguments = json!({ "path": "long.txt", "at": "turn:1", "offset": offset });
            let part = client.call("read_version", arguments).await.ok();
            let content = part["content"].as_str().unwrap();
            assert!(content.len() <= 32 << 10);
            read.push_str(content);
            offset = part["next_offset"].clone();
        }
        assert!(read == long, "the parts make the whole");
    });
}
