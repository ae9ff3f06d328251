//! A real S3 server on this machine: moto, which `./test` installs from PyPI.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shared::skip;

/// How long the server may take to come up, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// A running server with a bucket named `bucket`, ended with the test.
#[derive(Debug)]
pub struct Moto {
    process: Child,
    /// Where it listens on loopback.
    pub port: u16,
}

impl Moto {
    /// Starts one; `None`, and a word about it, where it is not installed.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            skip(test, "moto is not installed");
            return None;
        };
        // Somebody else may take a port between finding it free and serving on it.
        (0..5).find_map(|_| Self::try_start(&program)).or_else(|| panic!("moto does not come up"))
    }

    fn try_start(program: &Path) -> Option<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        let process = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto starts");
        let mut moto = Self { process, port };
        let begun = Instant::now();
        while begun.elapsed() < START && moto.is_running() {
            if moto.make_bucket() {
                // Who answered may be another that has the port, and then this one has just ended.
                std::thread::sleep(Duration::from_millis(100));
                return moto.is_running().then_some(moto);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }

    fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("its state").is_none()
    }

    /// By hand, since making buckets is nothing that we do.
    fn make_bucket(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let request = "PUT /bucket HTTP/1.1\r\nHost: localhost\r\nAuthorization: AWS4-HMAC-SHA256 \
                       Credential=access/20261116/us-east-1/s3/aws4_request\r\n\
                       Content-Length: 0\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// The server's address.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The server's program, if it is installed.
pub fn program() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = top.join("target/tools/moto/bin/moto_server");
    program.exists().then_some(program)
}
