//! Events of a trace as OpenTelemetry spans, sent to a collector as OTLP over HTTP, in JSON.
//!
//! Sending is done by a thread of its own and never holds up what it tells of: what the collector does not take is
//! dropped, and counted in what is sent next.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use chronicle_core::to_hex;
use serde_json::{Value, json};

/// Spans that wait to be sent; more are dropped.
const WAITING_MOST: usize = 4096;
/// Spans in one request.
const BATCH: usize = 512;
/// How long spans are gathered.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer of a collector that is read.
const ANSWER_MOST: u64 = 64 << 10;

/// Where spans go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `name:port`.
    authority: String,
    path: String,
}

impl Endpoint {
    /// Reads a URL as `OTEL_EXPORTER_OTLP_ENDPOINT` has it: `http://127.0.0.1:4318`.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!(
                "{url:?} does not begin with http://: TLS is the collector's, beside this host"
            ));
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !plain(rest) {
            return Err(format!("{url:?} names no collector"));
        }
        // A port behind the last bracket or the only colon; 80 where there is none.
        let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let base = path.trim_end_matches('/');
        let path =
            if base.is_empty() { "/v1/traces".to_owned() } else { format!("/{base}/v1/traces") };
        Ok(Self { authority, path })
    }

    fn post(&self, body: &str) -> io::Result<()> {
        let mut last = io::Error::other("its name stands for no address");
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return self.talk(stream, body),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn talk(&self, mut stream: TcpStream, body: &str) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Self { authority, path } = self;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MOST).read_to_end(&mut answer)?;
        match answer.starts_with(b"HTTP/1.1 2") || answer.starts_with(b"HTTP/1.0 2") {
            true => Ok(()),
            false => Err(io::Error::other("it did not take the spans")),
        }
    }
}

/// What goes to a collector; everything that waits is sent when the last one is dropped.
#[derive(Debug)]
pub(super) struct Exporter {
    to: Option<SyncSender<Value>>,
    dropped: Arc<AtomicU64>,
    sending: Mutex<Option<JoinHandle<()>>>,
    ids: Ids,
}

impl Exporter {
    /// Starts to send, under this service's name.
    pub(super) fn start(endpoint: Endpoint, service: &str) -> io::Result<Self> {
        let (to, from) = sync_channel(WAITING_MOST);
        let dropped = Arc::new(AtomicU64::new(0));
        let (service, lost) = (service.to_owned(), Arc::clone(&dropped));
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let sending = thread.spawn(move || send_all(&from, &endpoint, &service, &lost))?;
        let sending = Mutex::new(Some(sending));
        Ok(Self { to: Some(to), dropped, sending, ids: Ids::random() })
    }

    /// Sends an event, if there is room for it.
    pub(super) fn event(&self, name: &str, now_ns: i64, fields: &Value) {
        let span = self.ids.span(name, now_ns, fields);
        if self.to.as_ref().is_none_or(|to| to.try_send(span).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.to.take());
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner).take();
        sending.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn send_all(from: &Receiver<Value>, endpoint: &Endpoint, service: &str, dropped: &AtomicU64) {
    while let Ok(first) = from.recv() {
        let (mut spans, mut open) = (vec![first], true);
        while open && spans.len() < BATCH {
            match from.recv_timeout(GATHER) {
                Ok(span) => spans.push(span),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        }
        let (count, lost) = (spans.len() as u64, dropped.swap(0, Ordering::Relaxed));
        if endpoint.post(&request(service, lost, spans).to_string()).is_err() {
            dropped.fetch_add(count + lost, Ordering::Relaxed);
        }
    }
}

/// One request as OTLP has it.
fn request(service: &str, dropped: u64, spans: Vec<Value>) -> Value {
    let mut resource = vec![
        attribute("service.name", &json!(service)),
        attribute("service.version", &json!(env!("CARGO_PKG_VERSION"))),
        attribute("process.pid", &json!(std::process::id())),
    ];
    if dropped > 0 {
        resource.push(attribute("chronicle.dropped_spans", &json!(dropped)));
    }
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "chronicle" }, "spans": spans }],
    }] })
}

/// A field as OTLP has it: its kind is the name of its value, and integers are text.
fn attribute(key: &str, value: &Value) -> Value {
    let value = match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    };
    json!({ "key": key, "value": value })
}

/// Where the ids of a process come from.
#[derive(Debug)]
struct Ids {
    secret: [u8; 32],
    next: AtomicU64,
}

impl Ids {
    fn random() -> Self {
        let mut secret = [0; 32];
        // Only tells processes apart; what the kernel does not give stays zero.
        let _ = rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty());
        Self { secret, next: AtomicU64::new(0) }
    }

    fn id(&self, what: &str, number: u64) -> [u8; 32] {
        let bytes = [what.as_bytes(), &number.to_le_bytes()].concat();
        *blake3::keyed_hash(&self.secret, &bytes).as_bytes()
    }

    /// An event as a span: one trace for each connection, one for all that belongs to none. What says for how
    /// many seconds it went on began that long ago.
    fn span(&self, name: &str, now_ns: i64, fields: &Value) -> Value {
        let trace = self.id("trace", fields["peer"].as_u64().map_or(0, |peer| peer + 1));
        let span = self.id("span", self.next.fetch_add(1, Ordering::Relaxed));
        let seconds = fields["seconds"].as_f64().filter(|seconds| (0.0..1e9).contains(seconds));
        let began = now_ns.saturating_sub(seconds.map_or(0, |seconds| (seconds * 1e9) as i64));
        let attributes: Vec<_> = fields
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| attribute(&format!("chronicle.{key}"), value))
            .collect();
        let failed = ["refused", "trouble", "lost"].contains(&name);
        json!({
            "traceId": to_hex(&trace[..16]),
            "spanId": to_hex(&span[..8]),
            "name": format!("chronicle.{name}"),
            "kind": 1,
            "startTimeUnixNano": began.to_string(),
            "endTimeUnixNano": now_ns.to_string(),
            "attributes": attributes,
            "status": { "code": if failed { 2 } else { 0 } },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// Takes one request in, answers it, and gives its first line and its body.
    fn take(listener: &TcpListener, status: &str) -> (String, Value) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
        reader.read_line(&mut first).unwrap();
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        (first, serde_json::from_slice(&body).unwrap())
    }

    fn spans(request: &Value) -> &Vec<Value> {
        request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
    }

    #[test]
    fn a_collector_gets_every_event_as_a_span() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (said_no, wait) = std::sync::mpsc::channel();
        let collector = std::thread::spawn(move || {
            let refused = take(&listener, "503 Service Unavailable");
            said_no.send(()).unwrap();
            (refused, take(&listener, "200 OK"))
        });
        let exporter = Exporter::start(Endpoint::parse(&url).unwrap(), "serve").unwrap();
        exporter.event("admitted", 5_000_000_000, &json!({ "peer": 7, "name": "a\"b" }));
        wait.recv().unwrap();
        let closed = json!({ "peer": 7, "seconds": 1.5, "why": "done" });
        exporter.event("closed", 6_500_000_000, &closed);
        exporter.event("trouble", 7, &json!({ "what": "x" }));
        drop(exporter);
        let ((_, refused), (line, taken)) = collector.join().unwrap();
        assert_eq!(line.trim(), "POST /v1/traces HTTP/1.1");
        let (first, second) = (&spans(&refused)[0], &spans(&taken)[0]);
        assert_eq!(first["traceId"], second["traceId"]);
        assert_ne!(first["spanId"], second["spanId"]);
        assert_eq!(second["startTimeUnixNano"], "5000000000");
        assert_eq!(second["endTimeUnixNano"], "6500000000");
        assert_eq!(spans(&taken)[1]["status"]["code"], 2);
        assert_ne!(spans(&taken)[1]["traceId"], second["traceId"]);
        let resource = taken["resourceSpans"][0]["resource"]["attributes"].as_array().unwrap();
        let lost = json!({ "key": "chronicle.dropped_spans", "value": { "intValue": "1" } });
        assert!(resource.contains(&lost), "{taken}");
        let name = json!({ "key": "service.name", "value": { "stringValue": "serve" } });
        assert!(resource.contains(&name), "{taken}");
    }

    #[test]
    fn a_collector_that_is_not_there_holds_nothing_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base/", listener.local_addr().unwrap());
        drop(listener);
        let exporter = Exporter::start(Endpoint::parse(&url).unwrap(), "serve").unwrap();
        // Whether they wait or are tried in vain: sooner or later some are dropped, and nobody has waited for that.
        let dropped = || exporter.dropped.load(Ordering::Relaxed) > 0;
        assert!((0..1000 * WAITING_MOST).any(|n| {
            exporter.event("applied", n as i64, &json!({}));
            dropped()
        }));
        drop(exporter);
    }

    #[test]
    fn only_a_plain_url_is_a_collector() {
        let parse = |url: &str| Endpoint::parse(url).ok().map(|it| (it.authority, it.path));
        let is = |authority: &str, path: &str| Some((authority.to_owned(), path.to_owned()));
        assert_eq!(parse("http://localhost:4318"), is("localhost:4318", "/v1/traces"));
        assert_eq!(parse("http://[::1]:4318/otlp/"), is("[::1]:4318", "/otlp/v1/traces"));
        assert_eq!(parse("http://collector"), is("collector:80", "/v1/traces"));
        for wrong in ["https://x:4318", "x:4318", "http://", "http://a b", "http://u:p@x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
