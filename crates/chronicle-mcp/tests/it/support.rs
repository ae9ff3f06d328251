//! A scratch world, a client that speaks raw lines, and a reader of JSON Schema.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronicle_core::{Home, InitOptions, TurnRequest, Workspace};
use chronicle_mcp::{GivenSessions, Options, Server};
use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

/// A home and an adopted workspace; gone when dropped.
pub struct World {
    holder: tempfile::TempDir,
}

impl World {
    /// A workspace with `a.txt` and `b.txt`.
    pub fn new() -> Self {
        let world = Self { holder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(world.directory()).unwrap();
        world.write("a.txt", "one\ntwo\nthree\n");
        world.write("b.txt", "alpha\n");
        Workspace::init(&world.home(), &world.directory(), &InitOptions::default()).unwrap();
        world
    }

    pub fn home(&self) -> Home {
        Home::at(&self.holder.path().join("home"))
    }

    pub fn directory(&self) -> PathBuf {
        self.holder.path().join("ws")
    }

    pub fn open(&self) -> Workspace {
        Workspace::open(&self.home(), &self.directory()).unwrap()
    }

    pub fn write(&self, path: &str, content: &str) {
        std::fs::write(self.directory().join(path), content).unwrap();
    }

    pub fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.directory().join(path)).ok()
    }

    /// One turn of a session in which some files are written.
    pub fn turn(&self, session: &str, files: &[(&str, &str)]) -> u64 {
        let request = self.begin(session);
        files.iter().for_each(|(path, content)| self.write(path, content));
        self.open().turn_end(&request).unwrap().number
    }

    /// Opens a turn of a session.
    pub fn begin(&self, session: &str) -> TurnRequest {
        let prompt = Some(format!("work of {session}"));
        let session = Some(session.to_owned());
        let request = TurnRequest { session, prompt, ..TurnRequest::default() };
        self.open().turn_start(&request).unwrap();
        request
    }

    /// A person's save, recorded as such.
    pub fn person(&self, path: &str, content: &str) {
        self.write(path, content);
        self.open().settle().unwrap();
    }

    pub fn options(&self, sessions: &[&str]) -> Options {
        let sessions = sessions.iter().map(|&key| key.to_owned()).collect();
        let who = Arc::new(GivenSessions::new(sessions).unwrap());
        Options { home: self.home(), directory: self.directory(), who, off: false }
    }
}

/// Runs a test that talks to a server of this world whose model has these sessions.
pub fn talk(world: &World, sessions: &[&str], test: impl AsyncFnOnce(&mut Client)) {
    talk_to(world.options(sessions), test);
}

/// Runs a test that talks to a server with these options.
pub fn talk_to(options: Options, test: impl AsyncFnOnce(&mut Client)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = Client::connect(Server::new(options)).await;
        test(&mut client).await;
    });
}

/// What a call gave back.
pub struct Called(pub Value);

impl Called {
    /// The structured content of a call that must have gone well.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.0["isError"], false, "{:#}", self.0);
        self.0["structuredContent"].clone()
    }

    /// The error object of a call that must have been refused with this code.
    #[track_caller]
    pub fn refused(self, code: &str) -> Value {
        assert_eq!(self.0["isError"], true, "{:#}", self.0);
        assert!(self.0.get("structuredContent").is_none(), "{:#}", self.0);
        let error: Value = serde_json::from_str(self.0["content"][1]["text"].as_str().unwrap())
            .expect("the second block is the error as JSON");
        assert_eq!(error["code"], code, "{error:#}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
        error
    }

    pub fn text(&self) -> String {
        self.0["content"][0]["text"].as_str().unwrap().to_owned()
    }
}

/// A client over a pipe, one JSON-RPC message per line.
pub struct Client {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    next: u64,
    /// What came besides the answers that were waited for.
    pub notices: Vec<Value>,
}

impl Client {
    /// A client that has not said anything yet.
    pub fn silent(server: Server) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let running = server.serve(theirs).await.unwrap();
            running.waiting().await.unwrap();
        });
        let (reader, writer) = tokio::io::split(ours);
        let lines = BufReader::new(reader).lines();
        Self { lines, writer, next: 0, notices: Vec::new() }
    }

    pub async fn connect(server: Server) -> Self {
        let mut client = Self::silent(server);
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "0" },
        });
        let answer = client.request("initialize", hello).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "chronicle", "{answer:#}");
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    pub async fn send_line(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send_line(&message.to_string()).await;
    }

    /// Sends a request and tells its id.
    pub async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_line(&message.to_string()).await;
        id
    }

    pub async fn next_message(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("the server went away");
        serde_json::from_str(&line).unwrap()
    }

    /// The answer to a request.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next_message().await;
            if message["id"] == id {
                return message;
            }
            self.notices.push(message);
        }
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub async fn call(&mut self, name: &str, arguments: Value) -> Called {
        let params = json!({ "name": name, "arguments": arguments });
        let answer = self.request("tools/call", params).await;
        assert!(answer.get("error").is_none(), "a protocol error: {answer:#}");
        Called(answer["result"].clone())
    }

    /// Every tool by its name.
    pub async fn tools(&mut self) -> Value {
        let answer = self.request("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools.map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool.clone())).collect()
    }

    /// A preview that must succeed: the plan's id and the plan.
    pub async fn preview(&mut self, arguments: Value) -> (String, Value) {
        let plan = self.call("preview", arguments).await.ok();
        (plan["plan_id"].as_str().unwrap().to_owned(), plan)
    }
}

/// Everything in a value that its schema does not say; nothing if it fits exactly.
///
/// Stricter than JSON Schema: a field that no shape names counts too, so that none is forgotten.
pub fn misfits(value: &Value, schema: &Value, place: &str) -> Vec<String> {
    if let Some(choices) = schema["anyOf"].as_array() {
        let found: Vec<_> = choices.iter().map(|schema| misfits(value, schema, place)).collect();
        return found.into_iter().min_by_key(Vec::len).unwrap();
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if schema["type"] != kind {
        return vec![format!("{place} is {kind}, not {}", schema["type"])];
    }
    let mut found = Vec::new();
    for item in value.as_array().into_iter().flatten() {
        found.extend(misfits(item, &schema["items"], &format!("{place}[]")));
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        for (name, item) in fields {
            let place = format!("{place}.{name}");
            match properties.get(name) {
                Some(schema) => found.extend(misfits(item, schema, &place)),
                None => found.push(format!("{place} is in no shape")),
            }
        }
        let required = schema["required"].as_array().unwrap().iter();
        let missing = required.filter(|name| !fields.contains_key(name.as_str().unwrap()));
        found.extend(missing.map(|name| format!("{place} lacks {name}")));
    }
    found
}

/// The file with the token of a world's HTTP server.
pub fn token(home: &Path) -> String {
    std::fs::read_to_string(home.join("mcp-token")).unwrap().trim().to_owned()
}
