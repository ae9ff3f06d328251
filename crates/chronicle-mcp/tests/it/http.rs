//! HTTP on loopback: who is let in, and that it answers those who are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use chronicle_mcp::{ServeError, serve_http};
use serde_json::{Value, json};

use crate::support::{World, token};

/// A server in a thread of its own, which ends with the process.
fn start(world: &World) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    let options = world.options(&["s"]);
    std::thread::spawn(move || {
        let any = "127.0.0.1:0".parse().unwrap();
        serve_http(options, any, |url, _| sender.send(url.to_owned()).unwrap()).unwrap();
    });
    let url = receiver.recv().unwrap();
    url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().parse().unwrap()
}

/// The status of a request, and the rest of the answer.
fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
    let body = body.to_string();
    let mut request = format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("Content-Type: application/json\r\nConnection: close\r\n");
    request.push_str("Accept: application/json, text/event-stream\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all((request + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn call(name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// The result of a call over HTTP.
fn result(address: SocketAddr, bearer: &str, message: &Value) -> Value {
    let host = address.to_string();
    let headers = [("Host", &host[..]), ("Authorization", bearer)];
    let (status, answer) = post(address, "/mcp", &headers, message);
    assert_eq!(status, 200, "{answer}");
    let start = answer.find("{\"jsonrpc\"").unwrap_or_else(|| panic!("{answer}"));
    let mut values = serde_json::Deserializer::from_str(&answer[start..]).into_iter::<Value>();
    values.next().unwrap().unwrap()["result"].clone()
}

#[test]
fn a_client_with_the_token_previews_and_takes_back() {
    let world = World::new();
    world.turn("s", &[("a.txt", "1\n")]);
    let address = start(&world);
    let bearer = format!("Bearer {}", token(world.home().path()));
    let hello = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "0" },
        },
    });
    assert_eq!(result(address, &bearer, &hello)["serverInfo"]["name"], "chronicle");
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(result(address, &bearer, &list)["tools"].as_array().unwrap().len(), 15);
    let plan = result(address, &bearer, &call("preview", json!({ "action": "undo" })));
    let id = plan["structuredContent"]["plan_id"].clone();
    let done = result(address, &bearer, &call("undo", json!({ "plan_id": id })));
    assert_eq!(done["isError"], false, "{done:#}");
    assert_eq!(world.read("a.txt").unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn without_the_token_or_from_elsewhere_nobody_is_let_in() {
    let world = World::new();
    let address = start(&world);
    let bearer = format!("Bearer {}", token(world.home().path()));
    let host = address.to_string();
    let rebound = format!("attacker.example:{}", address.port());
    let other_port = "127.0.0.1:1".to_owned();
    let status =
        |headers: &[(&str, &str)]| post(address, "/mcp", headers, &call("status", json!({}))).0;
    assert_eq!(status(&[("Host", &host)]), 401);
    assert_eq!(status(&[("Host", &host), ("Authorization", "Bearer no")]), 401);
    assert_eq!(status(&[("Host", &host), ("Authorization", &bearer[7..])]), 401);
    assert_eq!(status(&[("Host", &rebound), ("Authorization", &bearer)]), 403);
    assert_eq!(status(&[("Host", &other_port), ("Authorization", &bearer)]), 403);
    for origin in ["http://attacker.example", "null", &format!("http://{host}")] {
        let headers = [("Host", &host[..]), ("Authorization", &bearer), ("Origin", origin)];
        assert_eq!(status(&headers), 403, "{origin}");
    }
    let headers = [("Host", &host[..]), ("Authorization", &bearer)];
    assert_eq!(post(address, "/other", &headers, &json!({})).0, 404);
    let large = json!({ "x": "x".repeat(2 << 20) });
    assert_eq!(post(address, "/mcp", &headers, &large).0, 413);
    assert_eq!(status(&headers), 200);
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let world = World::new();
    let address = "0.0.0.0:0".parse().unwrap();
    let refused = serve_http(world.options(&["s"]), address, |_, _| panic!("it served"));
    assert!(matches!(refused, Err(ServeError::NotLoopback(_))));
}
