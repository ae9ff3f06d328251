//! Who gets in, and what every answer says to browsers.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use chronicle_web::{Options, ServeError, serve};
use serde_json::json;

use crate::support::{World, receive};

#[test]
fn nothing_is_told_to_who_is_not_known() {
    let world = World::new();
    let workspaces = "/api/v1/workspaces";
    let refused = world.ask("GET", workspaces, &[], "");
    assert_eq!(refused.header("www-authenticate").as_deref(), Some("Bearer"));
    refused.refused(401, "unauthorized");
    world.ask("GET", workspaces, &[("Authorization", "Bearer x")], "").refused(401, "unauthorized");
    world.ask("GET", workspaces, &[("Cookie", "chronicle=x")], "").refused(401, "unauthorized");
}

#[test]
fn names_and_pages_that_are_not_ours_are_refused() {
    let world = World::new();
    let ask = |host: &str| {
        world.raw(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    let port = world.address().port();
    assert_eq!(ask(&format!("localhost:{port}")).status, 200);
    ask(&format!("evil.example:{port}")).refused(403, "not_allowed");
    ask("127.0.0.1").refused(403, "not_allowed");
    world.ask("GET", "/", &[("Origin", "https://evil.example")], "").refused(403, "not_allowed");
    let site = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")];
    world.ask("GET", "/api/v1/session", &site, "").refused(403, "not_allowed");
}

#[test]
fn a_link_counts_once_and_its_cookie_is_only_for_our_own_page() {
    let world = World::new();
    let link = world.ready.link.clone().unwrap();
    let (address, code) = link.split_once("/#code=").unwrap();
    assert_eq!(address, format!("http://{}", world.address()));
    let body = json!({ "code": code }).to_string();
    world.ask("POST", "/api/v1/session", &[], &body).refused(403, "not_allowed");
    let own = ("X-Chronicle", "1");
    let signed_in = world.ask("POST", "/api/v1/session", &[own], &body);
    let cookie = signed_in.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert_eq!(signed_in.ok()["right"], "rewind");
    world.ask("POST", "/api/v1/session", &[own], &body).refused(401, "unauthorized");

    let cookie = cookie.split(';').next().unwrap();
    let known = world.ask("GET", "/api/v1/workspaces", &[("Cookie", cookie)], "").ok();
    assert_eq!(known["workspaces"][0]["id"], world.id);
    assert_eq!(known["workspaces"][0]["here"], true);
    let settle = format!("/api/v1/workspaces/{}/settle", world.id);
    world.ask("POST", &settle, &[("Cookie", cookie)], "").refused(403, "not_allowed");
    world.ask("POST", &settle, &[("Cookie", cookie), own], "").ok();
    let foreign = [("Cookie", cookie), own, ("Origin", "http://127.0.0.1:1")];
    world.ask("POST", &settle, &foreign, "").refused(403, "not_allowed");
    assert_eq!(world.ask("DELETE", "/api/v1/session", &[("Cookie", cookie), own], "").status, 204);
    world.ask("POST", &settle, &[("Cookie", cookie), own], "").refused(401, "unauthorized");
}

#[test]
fn who_may_look_changes_nothing() {
    let world = World::new();
    world.write("a.txt", "changed\n");
    let bearer = format!("Bearer {}", world.token(&world.ready.look_token));
    let bearer = [("Authorization", &bearer[..])];
    let at = |rest: &str| format!("/api/v1/workspaces/{}/{rest}", world.id);
    let plan = json!({ "kind": "undo" }).to_string();
    for (path, body) in [
        ("plans", &plan[..]),
        ("settle", ""),
        ("turns", "{}"),
        ("snapshots", "{}"),
        ("verify", "{}"),
        ("plans/abcdef/apply", ""),
    ] {
        world.ask("POST", &at(path), &bearer, body).refused(403, "not_allowed");
    }
    assert_eq!(world.read("a.txt").unwrap(), "changed\n");
    let read_only = World::with(|options| options.read_only = true);
    read_only.post("settle", &json!(null)).refused(403, "not_allowed");
    let off = World::with(|options| options.off = true);
    off.post("settle", &json!(null)).refused(409, "off");
    assert_eq!(off.get("timeline").status, 200);
}

#[test]
fn every_answer_keeps_browsers_from_harm() {
    let world = World::new();
    let answers = [
        world.ask("GET", "/", &[], ""),
        world.ask("GET", "/nothing", &[], ""),
        world.get("timeline"),
        world.get("content?path=a.txt"),
    ];
    for answer in answers {
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options").as_deref(), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy").as_deref(), Some("no-referrer"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let page = world.ask("GET", "/", &[], "");
    let tag = page.header("etag").unwrap();
    let text = String::from_utf8(page.body).unwrap();
    assert!(!text.contains("<style") && !text.contains("onclick") && !text.contains("style="));
    assert_eq!(world.ask("GET", "/", &[("If-None-Match", &tag)], "").status, 304);
    assert_eq!(world.ask("GET", "/js/main.js", &[], "").status, 200);
}

#[test]
fn the_socket_is_its_owners_and_needs_no_token() {
    let world = World::new();
    let path = world.ready.socket.clone().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(path).unwrap();
    stream
        .write_all(b"GET /api/v1/session HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(receive(&mut stream).ok()["right"], "rewind");
}

#[test]
fn other_machines_are_kept_out_unless_somebody_says_so() {
    let holder = tempfile::tempdir().unwrap();
    let options = Options {
        home: chronicle_core::Home::at(holder.path()),
        directory: holder.path().to_owned(),
        off: false,
        read_only: false,
        listen: Some("0.0.0.0:0".parse().unwrap()),
        exposed: false,
        hosts: Vec::new(),
        socket: None,
    };
    assert!(matches!(serve(options, |_| ()), Err(ServeError::NotLoopback(_))));
}

#[test]
fn requests_that_are_too_large_or_odd_are_refused() {
    let world = World::new();
    let large = json!({ "kind": "undo", "target": "x".repeat(2 << 20) });
    world.post("plans", &large).refused(413, "too_large");
    world.get("timeline?nothing=1").refused(400, "usage");
    world.get("timeline?limit=0").refused(400, "usage");
    world.get("timeline?limit=1&limit=2").refused(400, "usage");
    world.get("text?path=%ff").refused(400, "usage");
    world.get("text?path=..%2f..%2fetc%2fpasswd").refused(400, "outside_roots");
    world.get("nothing").refused(404, "not_found");
    let bearer = format!("Bearer {}", world.token(&world.ready.look_token));
    let gone = world.ask(
        "DELETE",
        &format!("/api/v1/workspaces/{}/timeline", world.id),
        &[("Authorization", &bearer)],
        "",
    );
    assert_eq!(gone.header("allow").as_deref(), Some("GET"));
    gone.refused(405, "method_not_allowed");
    let other = format!("/api/v1/workspaces/{}/timeline", "0".repeat(32));
    world.ask("GET", &other, &[("Authorization", &bearer)], "").refused(404, "no_workspace");
}
