//! A scripted model: answers the agents' clients on loopback as the services would, from a script.
//!
//! It keeps no state of a conversation. Whatever a client asks besides (a title, a count of tokens,
//! a list of models) gets something harmless, and every request is remembered for the transcript.

mod dialect;
mod http;
mod script;

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use dialect::Dialect;
use http::{Request, Response};
pub use script::{Call, Heard, PLAN, Reply, Script, Turn};

/// A client that stops in the middle of a request must not hold a thread for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// As much of a result as the transcript shows.
const SHOWN: usize = 600;

/// A model that listens until it is dropped.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    ended: AtomicBool,
    exchanges: Mutex<Vec<Exchange>>,
}

/// One request and what was answered.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The method and the path.
    pub request: String,
    /// The tools that the client offered.
    pub tools: Vec<String>,
    /// What the request said last.
    pub last: Option<Heard>,
    /// Everything that it said, as it came.
    pub body: Value,
    /// The answer; `None` for what is not for a model.
    pub reply: Option<Reply>,
}

impl Model {
    /// Listens on a free port of loopback.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback is free");
        let address = listener.local_addr().expect("the port has a number");
        let shared = Arc::new(Shared {
            script,
            ended: AtomicBool::new(false),
            exchanges: Mutex::new(Vec::new()),
        });
        let listening = Some(thread::spawn({
            let shared = Arc::clone(&shared);
            move || listen(&listener, &shared)
        }));
        Self { address, shared, listening }
    }

    /// Where clients find it, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that was asked so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges().clone()
    }

    /// Everything that was asked so far, for a failure's message.
    pub fn transcript(&self) -> String {
        let mut text = String::new();
        for exchange in self.exchanges() {
            let Exchange { request, tools, last, reply, .. } = exchange;
            writeln!(text, "{request} with {} tools", tools.len()).expect("text grows");
            match last {
                Some(Heard::Text(words)) => show(&mut text, "heard", &words),
                Some(Heard::Result(words)) => show(&mut text, "result", &words),
                None => {}
            }
            match reply {
                Some(Reply::Text(words)) => show(&mut text, "said", &words),
                Some(Reply::Calls(calls)) => {
                    for (id, call) in calls {
                        show(&mut text, "called", &format!("{} {id} {}", call.tool, call.input));
                    }
                }
                None => {}
            }
        }
        text
    }
}

fn show(text: &mut String, label: &str, words: &str) {
    let short: String = words.chars().take(SHOWN).collect();
    writeln!(text, "  {label}: {}", short.replace('\n', "\n          ")).expect("text grows");
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // The listener looks at the flag when somebody comes.
        drop(TcpStream::connect(self.address));
        if let Some(listening) = self.listening.take() {
            drop(listening.join());
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // A client that hangs up in the middle is no concern of the model.
        thread::spawn(move || drop(serve(&stream, &shared)));
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    match http::read(stream)? {
        Some(request) => http::write(stream, &shared.answer(&request)),
        None => Ok(()),
    }
}

impl Shared {
    fn exchanges(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request) -> Response {
        let path = request.target.split('?').next().unwrap_or_default();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let dialect = Dialect::of(path).filter(|_| request.method == "POST");
        let (tools, heard) = dialect
            .map_or_else(Default::default, |dialect| (dialect.tools(&body), dialect.heard(&body)));
        let reply = dialect.map(|_| self.reply(&tools, &heard));
        let response = match (dialect, &reply) {
            (Some(dialect), Some(reply)) => {
                let streams = dialect.streams(path, &body);
                let kind = if streams { "text/event-stream" } else { "application/json" };
                Response { status: "200 OK", kind, body: dialect.write(reply, streams) }
            }
            _ => aside(path),
        };
        let name = format!("{} {}", request.method, request.target);
        let last = heard.last().cloned();
        self.exchanges().push(Exchange { request: name, tools, last, body, reply });
        response
    }

    /// A request without tools is the client's own (a title, a summary) and no part of the script.
    fn reply(&self, tools: &[String], heard: &[Heard]) -> Reply {
        if tools.is_empty() {
            return Reply::Text("A scripted conversation".to_owned());
        }
        self.script.reply(heard)
    }
}

/// What clients ask besides answers: how many tokens, and anything else.
fn aside(path: &str) -> Response {
    let kind = "application/json";
    if path.ends_with("count_tokens") || path.ends_with("countTokens") {
        let body = json!({"input_tokens": 1, "totalTokens": 1}).to_string();
        return Response { status: "200 OK", kind, body };
    }
    Response { status: "404 Not Found", kind, body: json!({"error": "not scripted"}).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn ask(model: &Model, request: &str) -> String {
        let mut stream = TcpStream::connect(model.address).expect("connect");
        stream.write_all(request.as_bytes()).expect("send");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("receive");
        answer
    }

    fn post(path: &str, body: &Value) -> String {
        let body = body.to_string();
        format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    fn model() -> Model {
        let steps = vec![vec![Call::new("Bash", json!({"command": "true"}))]];
        let turn = Turn { prompt: "do it".to_owned(), steps, ending: "all done".to_owned() };
        Model::start(Script { turns: vec![turn] })
    }

    #[test]
    fn a_client_is_led_through_the_script_and_the_transcript_tells_it() {
        let model = model();
        let mut messages = vec![json!({"role": "user", "content": "do it"})];
        let body = |messages: &[Value]| json!({"stream": true, "tools": [{"name": "Bash"}], "messages": messages});
        let answer = ask(&model, &post("/v1/messages?beta=true", &body(&messages)));
        assert!(answer.contains("text/event-stream") && answer.contains("tool_use"), "{answer}");
        let result = json!({"type": "tool_result", "content": "nothing printed"});
        messages.push(json!({"role": "user", "content": [result]}));
        let answer = ask(&model, &post("/v1/messages", &body(&messages)));
        assert!(answer.contains("all done"), "{answer}");
        let transcript = model.transcript();
        for part in ["POST /v1/messages", "called: Bash", "result: nothing", "said: all done"] {
            assert!(transcript.contains(part), "{part:?} is not in {transcript}");
        }
    }

    #[test]
    fn what_is_not_for_the_model_gets_something_harmless() {
        let model = model();
        let title = json!({"messages": [{"role": "user", "content": "title for: do it"}]});
        assert!(ask(&model, &post("/v1/messages", &title)).contains("A scripted conversation"));
        let counted = ask(&model, &post("/v1/messages/count_tokens", &json!({})));
        assert!(counted.contains(r#""input_tokens":1"#), "{counted}");
        assert!(ask(&model, "GET /v1/models HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn a_body_in_chunks_is_read_whole() {
        let model = model();
        let body = json!({"tools": [{"name": "Bash"}], "messages": [{"role": "user", "content": "do it"}]})
            .to_string();
        let (front, back) = body.split_at(7);
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
             7\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n",
            back.len()
        );
        assert!(ask(&model, &request).contains("tool_use"));
    }
}
