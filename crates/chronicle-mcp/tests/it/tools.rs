//! What a client learns about the tools before it calls one.

use serde_json::{Value, json};

use crate::support::{World, misfits, talk};

const LOOKING: [&str; 10] = [
    "status",
    "list_turns",
    "list_snapshots",
    "show",
    "diff",
    "search",
    "file_history",
    "read_version",
    "preview",
    "verify",
];
const TAKING_BACK: [&str; 4] = ["rewind", "undo", "rollback", "redo"];

#[test]
fn hints_say_what_is_true() {
    talk(&World::new(), &["s"], async |client| {
        let tools = client.tools().await;
        assert_eq!(tools.as_object().unwrap().len(), LOOKING.len() + TAKING_BACK.len() + 1);
        let hint = |name: &str, hint: &str| tools[name]["annotations"][hint].clone();
        for name in LOOKING {
            assert_eq!(hint(name, "readOnlyHint"), true, "{name}");
            assert_eq!(hint(name, "destructiveHint"), false, "{name}");
        }
        for name in TAKING_BACK {
            assert_eq!(hint(name, "readOnlyHint"), false, "{name}");
            assert_eq!(hint(name, "destructiveHint"), true, "{name}");
            assert_eq!(tools[name]["inputSchema"]["required"], json!(["plan_id"]));
        }
        assert_eq!(hint("pin", "readOnlyHint"), false);
        assert_eq!(hint("pin", "destructiveHint"), false);
        for name in LOOKING.iter().chain(&TAKING_BACK).chain(&["pin"]) {
            assert_eq!(hint(name, "openWorldHint"), false, "{name}");
            assert_eq!(tools[name]["outputSchema"]["type"], "object", "{name}");
            assert_eq!(tools[name]["inputSchema"]["additionalProperties"], false, "{name}");
        }
    });
}

/// Every argument that a schema promises is read, and no other: the shapes are written by hand.
#[test]
fn every_promised_argument_is_accepted_and_no_other() {
    talk(&World::new(), &["s"], async |client| {
        let tools = client.tools().await;
        for (name, tool) in tools.as_object().unwrap() {
            for (argument, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
                let value = sample(schema);
                let called = client.call(name, json!({ argument: value })).await;
                let text = called.text();
                assert!(!text.contains("unknown field"), "{name} {argument}: {text}");
                assert!(!text.contains("invalid type"), "{name} {argument}: {text}");
            }
            let error = client.call(name, json!({ "surprise": 1 })).await.refused("usage");
            assert!(error["message"].as_str().unwrap().contains("`surprise`"), "{name}: {error}");
        }
    });
}

fn sample(schema: &Value) -> Value {
    match schema["type"].as_str().unwrap() {
        "string" => schema["enum"].get(0).cloned().unwrap_or_else(|| "x".into()),
        "integer" => 1.into(),
        "boolean" => true.into(),
        "array" => json!(["x"]),
        other => panic!("{other} is no kind of argument"),
    }
}

#[test]
fn every_answer_fits_its_output_schema() {
    let world = World::new();
    world.turn("s", &[("a.txt", "one\n2\nthree\n"), ("c.txt", "new\n")]);
    world.person("b.txt", "beta\n");
    world.begin("s");
    world.write("a.txt", "one\n2\nthree\nfour\n");
    talk(&world, &["s"], async |client| {
        let tools = client.tools().await;
        let listed = client.call("list_snapshots", json!({})).await.ok();
        let id = listed["snapshots"][0]["id"].clone();
        let calls = [
            ("status", json!({})),
            ("list_turns", json!({})),
            ("list_snapshots", json!({ "limit": 1 })),
            ("show", json!({ "id": id, "patch": true })),
            ("diff", json!({ "from": "start", "patch": true })),
            ("search", json!({ "pattern": "two|2" })),
            ("file_history", json!({ "path": "a.txt" })),
            ("read_version", json!({ "path": "a.txt", "at": "start" })),
            ("verify", json!({ "deep": true })),
            ("pin", json!({ "target": "start", "name": "good" })),
        ];
        for (name, arguments) in calls {
            let called = client.call(name, arguments).await;
            assert!(!called.text().is_empty(), "{name}");
            let found = misfits(&called.ok(), &tools[name]["outputSchema"], name);
            assert!(found.is_empty(), "{found:#?}");
        }
        for (action, target) in [("undo", None), ("redo", None), ("rewind", Some("start"))] {
            let (id, plan) = client.preview(json!({ "action": action, "target": target })).await;
            let found = misfits(&plan, &tools["preview"]["outputSchema"], "preview");
            assert!(found.is_empty(), "{found:#?}");
            let done = client.call(action, json!({ "plan_id": id })).await.ok();
            let found = misfits(&done, &tools[action]["outputSchema"], action);
            assert!(found.is_empty(), "{found:#?}");
        }
    });
}
