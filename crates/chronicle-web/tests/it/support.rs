//! A scratch world with a server, and a client that writes every byte of its requests itself.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use chronicle_core::{Home, InitOptions, KeySource, TurnRequest, Workspace};
use chronicle_web::{Options, Ready, serve};
use serde_json::Value;

/// A home, an adopted workspace, and a server for them; the files are gone when dropped.
pub struct World {
    holder: tempfile::TempDir,
    pub ready: Ready,
    pub id: String,
}

/// An answer.
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem of a request that must have been refused so.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type").as_deref(), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        problem
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, it)| it.to_owned())
            .next()
    }
}

impl World {
    /// A workspace with `a.txt`, `b.txt` and `.env`, which is secret.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let holder = tempfile::tempdir().unwrap();
        let directory = holder.path().join("ws");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(directory.join("b.txt"), "alpha\n").unwrap();
        fs::write(directory.join(".env"), "TOKEN=hunter2-hunter2\n").unwrap();
        let home = home(holder.path());
        let (workspace, _) = Workspace::init(&home, &directory, &InitOptions::default()).unwrap();
        let mut options = Options {
            home,
            directory,
            off: false,
            read_only: false,
            listen: Some("127.0.0.1:0".parse().unwrap()),
            exposed: false,
            hosts: Vec::new(),
            socket: Some(holder.path().join("socket")),
        };
        change(&mut options);
        let (told, heard) = mpsc::channel();
        std::thread::spawn(move || {
            serve(options, |ready| told.send(ready.clone()).unwrap()).unwrap();
        });
        let ready = heard.recv_timeout(Duration::from_secs(20)).unwrap();
        Self { holder, ready, id: workspace.id().hex() }
    }

    pub fn directory(&self) -> PathBuf {
        self.holder.path().join("ws")
    }

    pub fn open(&self) -> Workspace {
        Workspace::open(&home(self.holder.path()), &self.directory()).unwrap()
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.directory().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.directory().join(path)).ok()
    }

    /// One turn of a session in which some files are written.
    pub fn turn(&self, session: &str, prompt: &str, files: &[(&str, &str)]) -> u64 {
        let request = TurnRequest {
            session: Some(session.to_owned()),
            prompt: Some(prompt.to_owned()),
            ..TurnRequest::default()
        };
        let mut workspace = self.open();
        workspace.turn_start(&request).unwrap();
        files.iter().for_each(|(path, content)| self.write(path, content));
        workspace.turn_end(&request).unwrap().number
    }

    pub fn address(&self) -> SocketAddr {
        self.ready.address.unwrap()
    }

    pub fn token(&self, path: &Path) -> String {
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Sends a request as it is, and reads everything.
    pub fn raw(&self, request: &str) -> Got {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        receive(&mut stream)
    }

    /// A request with a token and further headers.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let address = self.address();
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            ));
        }
        self.raw(&format!("{text}\r\n{body}"))
    }

    fn bearer(&self, path: &Path) -> String {
        format!("Bearer {}", self.token(path))
    }

    /// Asks about the workspace with the token for looking.
    pub fn get(&self, path: &str) -> Got {
        let bearer = self.bearer(&self.ready.look_token);
        let path = format!("/api/v1/workspaces/{}/{path}", self.id);
        self.ask("GET", &path, &[("Authorization", &bearer)], "")
    }

    /// Changes something with the token for that.
    pub fn post(&self, path: &str, body: &Value) -> Got {
        self.post_with(path, body, &[])
    }

    pub fn post_with(&self, path: &str, body: &Value, more: &[(&str, &str)]) -> Got {
        let bearer = self.bearer(&self.ready.rewind_token);
        let mut headers = vec![("Authorization", &bearer[..])];
        headers.extend(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let path = format!("/api/v1/workspaces/{}/{path}", self.id);
        self.ask("POST", &path, &headers, &body)
    }
}

/// A home with a key for secrets.
fn home(holder: &Path) -> Home {
    let key = KeySource::File(holder.join("secret.key"));
    Home::at(&holder.join("home")).with_secret_key(key)
}

pub fn receive(stream: &mut impl Read) -> Got {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Got { status, head, body: bytes[end + 4..].to_vec() }
}
