//! The same over WebSocket, with tokens, with and without TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::scene::{Host, Replica, Running, wait_until, wait_until_equal};

/// Serves over WebSocket and says where.
fn serve(host: &Host, more: &[&str]) -> (Running, String) {
    let mut arguments = vec!["serve", "--json", "--ws", "127.0.0.1:0"];
    arguments.extend(more);
    let mut running = Running::start(host.cli.command(arguments).stdout(Stdio::piped()));
    let mut out = running.0.stdout.take().expect("piped");
    let mut line = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).expect("read") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let told: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    let url = told["websocket"].as_str().expect("a URL").to_owned();
    (running, url)
}

fn token(host: &Host, name: &str, right: &str) -> PathBuf {
    let file = host.cli.home().join(format!("{name}.token"));
    let path = file.to_str().expect("text").to_owned();
    host.cli.call(["token", "create", name, "--right", right, "--file", &path]).ok();
    file
}

fn connect(replica: &Replica, url: &str, token: Option<&Path>, more: &[&str]) -> Command {
    let root = replica.root();
    let mut arguments = vec!["connect", "--ws", url];
    if let Some(token) = token {
        arguments.extend(["--token-file", token.to_str().expect("text")]);
    }
    arguments.extend(more);
    arguments.push(root.to_str().expect("text"));
    replica.cli.command(arguments)
}

#[track_caller]
fn once(replica: &Replica, url: &str, token: Option<&Path>, more: &[&str]) -> (bool, String) {
    let more: Vec<_> = more.iter().copied().chain(["--once"]).collect();
    let output = connect(replica, url, token, &more).output().expect("started");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Also with a token that may only read: fetching is reading.
#[test]
fn a_lazy_replica_fetches_over_websocket_too() {
    let large = "0123456789".repeat(300_000);
    let host = Host::new(&[("a.txt", "one\n"), ("d/large", &large)]);
    let (_serving, url) = serve(&host, &[]);
    let reader = token(&host, "reader", "read");
    let replica = Replica::of(&host);
    let mut command = connect(&replica, &url, Some(&reader), &["--lazy"]);
    let running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let is_link =
        |at: &str| replica.root().join(at).symlink_metadata().is_ok_and(|found| found.is_symlink());
    wait_until("the tree is there", || is_link("a.txt") && is_link("d/large"));
    replica.cli.call(["fetch", "d"]).ok();
    assert!(is_link("a.txt") && !is_link("d/large"));
    replica.cli.call(["fetch"]).ok();
    wait_until_equal(&[&host.cli.root(), &replica.root()]);
    assert!(running.end().success());
    let refused = replica.cli.call(["fetch"]).ok();
    assert!(refused.stderr.contains("Already here"), "{}", refused.stderr);
}

#[test]
fn a_token_lets_in_with_its_right_and_only_while_it_is_known() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let (_serving, url) = serve(&host, &[]);
    let (writer, reader) = (token(&host, "writer", "write-back"), token(&host, "reader", "read"));
    let (first, second) = (Replica::of(&host), Replica::of(&host));
    assert!(!once(&first, &url, None, &[]).0, "no token");
    let wrong = host.cli.home().join("wrong.token");
    fs::write(&wrong, "chronicle_0000\n").expect("written");
    let (let_in, words) = once(&first, &url, Some(&wrong), &[]);
    assert!(!let_in && words.contains("token"), "{words}");
    let (let_in, words) = once(&first, &url, Some(&writer), &[]);
    assert!(let_in, "{words}");
    first.cli.write("b.txt", "two\n");
    assert!(once(&first, &url, Some(&writer), &[]).0);
    assert_eq!(host.cli.read("b.txt").as_deref(), Some("two\n"));
    assert!(once(&second, &url, Some(&reader), &[]).0);
    assert_eq!(second.cli.read("b.txt").as_deref(), Some("two\n"));
    second.cli.write("c.txt", "three\n");
    assert!(once(&second, &url, Some(&reader), &[]).0);
    assert!(!host.cli.root().join("c.txt").exists(), "it may only read");
    host.cli.call(["token", "revoke", "writer"]).ok();
    assert!(!once(&first, &url, Some(&writer), &[]).0, "revoked");
}

#[test]
fn revoking_dismisses_who_is_connected() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let (_serving, url) = serve(&host, &[]);
    let writer = token(&host, "writer", "write-back");
    let replica = Replica::of(&host);
    let _connected =
        Running::start(connect(&replica, &url, Some(&writer), &[]).stderr(Stdio::null()));
    wait_until_equal(&[&host.cli.root(), &replica.root()]);
    host.cli.call(["token", "revoke", "writer"]).ok();
    wait_until("nothing arrives any more", || {
        let name = format!("probe-{}", fs::read_dir(host.cli.root()).expect("listed").count());
        host.cli.write(&name, "x\n");
        std::thread::sleep(std::time::Duration::from_millis(300));
        !replica.root().join(&name).exists()
    });
}

/// What a browser's page could send, and what a rebound name would.
#[test]
fn foreign_origins_and_names_are_refused() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let (_serving, url) = serve(&host, &[]);
    let address = url.strip_prefix("ws://").expect("plain");
    let ask = |host: &str, more: &str, path: &str| {
        let mut stream = TcpStream::connect(address).expect("connected");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("answered");
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert_eq!(ask(address, "", "/replica"), "HTTP/1.1 101");
    assert_eq!(ask("evil.example", "", "/replica"), "HTTP/1.1 403");
    assert_eq!(ask(address, "Origin: http://evil.example\r\n", "/replica"), "HTTP/1.1 403");
    assert_eq!(ask(address, "Origin: null\r\n", "/replica"), "HTTP/1.1 403");
    assert_eq!(ask(address, "", "/replica?token=x"), "HTTP/1.1 400");
}

#[test]
fn over_tls_only_who_is_believed_is_spoken_to() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let (certificate, key) = (host.cli.home().join("cert.pem"), host.cli.home().join("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: openssl makes no certificate here");
        return;
    }
    let paths = [&certificate, &key].map(|path| path.to_str().expect("text"));
    let (_serving, url) = serve(&host, &["--tls-cert", paths[0], "--tls-key", paths[1]]);
    assert!(url.starts_with("wss://"));
    let (writer, replica) = (token(&host, "writer", "write-back"), Replica::of(&host));
    let (let_in, words) = once(&replica, &url, Some(&writer), &[]);
    assert!(!let_in, "nobody vouches for it: {words}");
    let (let_in, words) = once(&replica, &url, Some(&writer), &["--ca", paths[0]]);
    assert!(let_in, "{words}");
    assert_eq!(replica.cli.read("a.txt").as_deref(), Some("one\n"));
}

#[test]
fn other_machines_are_not_let_in_without_tls_by_accident() {
    let host = Host::new(&[("a.txt", "one\n")]);
    host.cli.call(["serve", "--ws", "0.0.0.0:0"]).exits(2);
    host.cli.call(["serve", "--ws", "127.0.0.1:0", "--metrics", "0.0.0.0:0"]).exits(2);
}
