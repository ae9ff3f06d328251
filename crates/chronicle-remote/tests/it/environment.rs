//! What the environment decides, which only a process of its own can have: credentials, and TLS.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_remote::{Bucket, BucketOptions, Patience};
use chronicle_testing::shared::skip;

use crate::server::Server;

/// Set for the child alone: what it opens.
const URL: &str = "CHRONICLE_REMOTE_TEST_URL";

/// Does nothing but in a child, where it says what became of asking for a key.
#[test]
fn child_asks_for_a_key() {
    let Ok(url) = std::env::var(URL) else { return };
    let patience = Patience { attempts: 2, ..Server::patience() };
    let options = BucketOptions { patience, ..BucketOptions::from_environment() };
    let found = Bucket::open(&url, &options).and_then(|bucket| bucket.get("k"));
    match found {
        Ok(bytes) => println!("found {}", String::from_utf8(bytes).unwrap()),
        Err(error) => println!("{}: {error}", error.code()),
    }
}

/// What the child says with this environment and no other.
fn child(url: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "environment::child_asks_for_a_key", "--nocapture"])
        .env_clear()
        .env(URL, url)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn usual_variables_say_where_and_with_which_credentials() {
    let server = Server::start();
    server.bucket().put("k", &b"content"[..]).unwrap();
    let endpoint = server.endpoint();
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_REGION", "eu-north-1"),
        ("AWS_ACCESS_KEY_ID", "from-the-environment"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_SESSION_TOKEN", "a-token"),
    ];
    let said = child("s3://bucket/prefix", &variables);
    assert!(said.contains("found content"), "{said}");
    let [signed, token] = server.signed();
    assert!(signed.contains("Credential=from-the-environment/"), "{signed}");
    assert!(signed.contains("/eu-north-1/s3/"), "{signed}");
    assert_eq!(token, "a-token");
}

#[test]
fn environment_without_credentials_is_said_at_once() {
    let server = Server::start();
    let said = child("s3://bucket/prefix", &[("AWS_ENDPOINT_URL", &server.endpoint())]);
    assert!(said.contains("remote_credentials: "), "{said}");
    assert!(said.contains("there are none"), "{said}");
    assert_eq!(server.seen(), [""; 0]);
}

#[test]
fn environment_does_not_allow_to_speak_unencrypted_to_others() {
    let variables = [
        ("AWS_ENDPOINT_URL", "http://s3.example.org"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "access"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let said = child("s3://bucket/prefix", &variables);
    assert!(said.contains("remote_usage: ") && said.contains("not encrypted"), "{said}");
}

/// A server with a certificate that a new authority signed, ended with the test.
struct Encrypted {
    process: Child,
    port: u16,
}

impl Encrypted {
    fn start(program: &Path, certificates: &Path) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string(), "-s", "-c"])
            .arg(certificates.join("server.pem"))
            .arg("-k")
            .arg(certificates.join("server.key"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (server, begun) = (Self { process, port }, Instant::now());
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "moto does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes an authority and a server's certificate signed by it; false without openssl.
fn make_certificates(directory: &Path) -> bool {
    let script = "set -e
        new='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        openssl req -x509 $new -keyout ca.key -out ca.pem -days 2 -subj /CN=authority
        openssl req $new -keyout server.key -out server.csr -subj /CN=localhost
        echo subjectAltName=DNS:localhost,IP:127.0.0.1 > names
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
          -extfile names -out server.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(directory).output();
    made.is_ok_and(|output| output.status.success())
}

/// An answer that only the server can have given, and none where nobody vouches for it.
#[test]
fn encrypted_server_is_spoken_to_only_if_it_is_vouched_for() {
    let test = "encrypted_server_is_spoken_to_only_if_it_is_vouched_for";
    let Some(program) = chronicle_testing::moto::program() else {
        return skip(test, "moto is not installed");
    };
    let directory = tempfile::tempdir().unwrap();
    if !make_certificates(directory.path()) {
        return skip(test, "no certificates without openssl");
    }
    let server = Encrypted::start(&program, directory.path());
    let (endpoint, authority) =
        (format!("https://localhost:{}", server.port), directory.path().join("ca.pem"));
    let mut variables = vec![
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "access"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let said = child("s3://nowhere/prefix", &variables);
    assert!(said.contains("remote_unavailable: ") && said.contains("certificate"), "{said}");
    variables.push(("SSL_CERT_FILE", authority.to_str().unwrap()));
    let said = child("s3://nowhere/prefix", &variables);
    assert!(said.contains("remote_bucket_missing: "), "{said}");
}
