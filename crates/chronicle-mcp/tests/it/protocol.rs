//! Whatever a client sends, it gets an answer that a model can read, and the server lives on.

use chronicle_mcp::Server;
use serde_json::json;

use crate::support::{Client, World, talk, talk_to};

#[test]
fn bad_calls_are_tool_errors_with_words() {
    talk(&World::new(), &["s"], async |client| {
        let error = client.call("format_disk", json!({})).await.refused("usage");
        assert!(error["hint"].as_str().unwrap().contains("list_turns"), "{error}");
        client.call("search", json!({ "pattern": "(" })).await.refused("usage");
        client.call("search", json!({ "pattern": 7 })).await.refused("usage");
        client.call("show", json!({ "id": "ffffffffffff" })).await.refused("unknown_target");
        client.call("list_turns", json!({ "limit": -1 })).await.refused("usage");
        client.call("list_turns", json!({ "limit": null })).await.ok();
        let odd = json!({ "path": "a\u{0}b" });
        let called = client.call("file_history", odd).await;
        assert_eq!(called.0["isError"], true);
        client.call("diff", json!({ "from": "\u{1b}[2J" })).await.refused("unknown_target");
    });
}

#[test]
fn what_is_no_message_does_not_end_the_conversation() {
    talk(&World::new(), &["s"], async |client| {
        for line in ["", "{", "not json", "[]", "42", "{\"jsonrpc\":\"2.0\",\"id\":1}", "\u{0}"] {
            client.send_line(line).await;
        }
        client.call("status", json!({})).await.ok();
    });
}

#[test]
fn arguments_may_be_missing_altogether() {
    talk(&World::new(), &["s"], async |client| {
        let answer = client.request("tools/call", json!({ "name": "list_turns" })).await;
        assert_eq!(answer["result"]["isError"], false, "{answer:#}");
    });
}

#[test]
fn where_nothing_is_protected_every_call_says_so() {
    let world = World::new();
    let mut options = world.options(&["s"]);
    options.directory = world.directory().parent().unwrap().to_owned();
    talk_to(options, async |client| {
        for tool in ["status", "list_turns", "verify"] {
            let error = client.call(tool, json!({})).await.refused("no_workspace");
            assert!(error["hint"].as_str().unwrap().contains("chronicle init"));
        }
    });
}

#[test]
fn a_long_call_reports_its_progress_to_a_client_that_asks() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n"), ("b.txt", "2\n")]);
    talk(&world, &["s"], async |client| {
        let params = json!({
            "name": "verify", "arguments": { "deep": true }, "_meta": { "progressToken": "p" },
        });
        let mut told = 0;
        // The last step may end before it could be told, so one call may tell nothing.
        for _ in 0..20 {
            let answer = client.request("tools/call", params.clone()).await;
            assert_eq!(answer["result"]["isError"], false, "{answer:#}");
            let progress = |notice: &&serde_json::Value| {
                notice["method"] == "notifications/progress"
                    && notice["params"]["progressToken"] == "p"
                    && notice["params"]["total"].is_number()
            };
            told = client.notices.iter().filter(progress).count();
            if told > 0 {
                break;
            }
        }
        assert!(told > 0, "nothing was told");
    });
}

#[test]
fn a_cancelled_call_leaves_the_server_ready() {
    let world = World::new();
    talk(&world, &["s"], async |client| {
        let params = json!({ "name": "verify", "arguments": { "deep": true } });
        let id = client.send("tools/call", params).await;
        client.notify("notifications/cancelled", json!({ "requestId": id })).await;
        client.call("status", json!({})).await.ok();
    });
}

#[test]
fn calls_may_come_all_at_once() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    talk(&world, &["s"], async |client| {
        let mut ids = Vec::new();
        for _ in 0..20 {
            let params = json!({ "name": "list_snapshots", "arguments": {} });
            ids.push(client.send("tools/call", params).await);
        }
        let mut open = ids.len();
        while open > 0 {
            let line = client.next_message().await;
            assert_eq!(line["result"]["isError"], false, "{line:#}");
            open -= 1;
        }
    });
}

/// The newest revision of the protocol has no handshake: each request says who asks.
#[test]
fn a_client_without_a_handshake_is_answered() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::silent(Server::new(world.options(&["s"])));
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let found = client.request("server/discover", json!({ "_meta": meta })).await;
        assert!(found["result"]["capabilities"]["tools"].is_object(), "{found:#}");
        let call = json!({ "name": "status", "arguments": {}, "_meta": meta });
        let answer = client.request("tools/call", call).await;
        assert_eq!(answer["result"]["isError"], false, "{answer:#}");
    });
}
