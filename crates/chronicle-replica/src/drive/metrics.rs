//! What a server or a replica counts, as text for Prometheus and as lines of a trace.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections for metrics that are answered at once.
const SCRAPES_MOST: usize = 8;
const SCRAPE_PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request.
const HEAD_MOST: usize = 8 << 10;

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections that are open.
    pub connections: AtomicI64,
    /// Connections that were taken in since the start.
    pub accepted: AtomicU64,
    /// Connections that were refused: no token, no such workspace, not our protocol.
    pub refused: AtomicU64,
    /// Links given up because the peer broke the protocol or a limit.
    pub violations: AtomicU64,
    /// Frames received.
    pub frames_in: AtomicU64,
    /// Frames sent.
    pub frames_out: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Looks that found something and put it into the log.
    pub recorded: AtomicU64,
    /// Writes of replicas that were taken.
    pub writes_accepted: AtomicU64,
    /// Writes of replicas that were not.
    pub writes_rejected: AtomicU64,
    /// Workspaces in use.
    pub workspaces: AtomicI64,
}

impl Metrics {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    /// All of it in the text format of Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut tell = |name: &str, kind: &str, help: &str, value: i128| {
            let _ = write!(
                text,
                "# HELP chronicle_replica_{name} {help}\n# TYPE chronicle_replica_{name} {kind}\n\
                 chronicle_replica_{name} {value}\n"
            );
        };
        let count = |counter: &AtomicU64| i128::from(counter.load(Ordering::Relaxed));
        let level = |gauge: &AtomicI64| i128::from(gauge.load(Ordering::Relaxed));
        tell("connections", "gauge", "Connections that are open.", level(&self.connections));
        tell("workspaces", "gauge", "Workspaces in use.", level(&self.workspaces));
        tell("accepted_total", "counter", "Connections taken in.", count(&self.accepted));
        tell("refused_total", "counter", "Connections refused.", count(&self.refused));
        let help = "Links given up because the peer broke the protocol or a limit.";
        tell("violations_total", "counter", help, count(&self.violations));
        tell("frames_received_total", "counter", "Frames received.", count(&self.frames_in));
        tell("frames_sent_total", "counter", "Frames sent.", count(&self.frames_out));
        tell("bytes_received_total", "counter", "Bytes received.", count(&self.bytes_in));
        tell("bytes_sent_total", "counter", "Bytes sent.", count(&self.bytes_out));
        tell(
            "looks_recorded_total",
            "counter",
            "Looks that found something.",
            count(&self.recorded),
        );
        let help = "Writes of replicas that were taken.";
        tell("writes_accepted_total", "counter", help, count(&self.writes_accepted));
        let help = "Writes of replicas that became conflicts.";
        tell("writes_rejected_total", "counter", help, count(&self.writes_rejected));
        text
    }
}

/// Answers every request with the metrics, for as long as it is polled.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let places = Arc::new(Semaphore::new(SCRAPES_MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let text = metrics.text();
        tokio::spawn(async move {
            // A client that does not listen is its own trouble.
            let _ = timeout(SCRAPE_PATIENCE, answer(stream, text)).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, text: String) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= HEAD_MOST || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let known = [&b"GET /metrics "[..], b"GET / "].iter().any(|line| head.starts_with(line));
    let (status, body) = if known { ("200 OK", &text[..]) } else { ("404 Not Found", "") };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Where events are written down, one line of JSON each; or nowhere.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    file: Option<Arc<Mutex<File>>>,
    #[cfg(any(feature = "otel", test))]
    collector: Option<Arc<super::otlp::Exporter>>,
}

impl Trace {
    /// Appends to a file that only its owner reads.
    pub fn to(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file: Some(Arc::new(Mutex::new(file))), ..Self::default() })
    }

    /// The same trace, also sent as OpenTelemetry spans to the collector at this URL.
    #[cfg(any(feature = "otel", test))]
    pub fn and_to_collector(mut self, url: &str, service: &str) -> io::Result<Self> {
        let endpoint = super::otlp::Endpoint::parse(url).map_err(io::Error::other)?;
        self.collector = Some(Arc::new(super::otlp::Exporter::start(endpoint, service)?));
        Ok(self)
    }

    /// Whether anybody reads it.
    pub fn is_on(&self) -> bool {
        #[cfg(any(feature = "otel", test))]
        if self.collector.is_some() {
            return true;
        }
        self.file.is_some()
    }

    /// Writes one event down, with the time and what belongs to it.
    pub fn event(&self, name: &str, now_ns: i64, fields: Value) {
        #[cfg(any(feature = "otel", test))]
        if let Some(collector) = &self.collector {
            collector.event(name, now_ns, &fields);
        }
        let Some(file) = &self.file else { return };
        let mut line = json!({ "time_ns": now_ns, "event": name });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields);
        }
        let text = format!("{line}\n");
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A trace that cannot be written must not stop what it tells of.
        let _ = file.write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_text_that_prometheus_reads() {
        let metrics = Metrics::default();
        Metrics::add(&metrics.frames_in, 3);
        metrics.connections.store(2, Ordering::Relaxed);
        let text = metrics.text();
        for line in text.lines() {
            let value = line.rsplit(' ').next().unwrap_or_default();
            let is_sample = line.starts_with("chronicle_replica_") && value.parse::<i64>().is_ok();
            assert!(
                line.starts_with("# HELP ") || line.starts_with("# TYPE ") || is_sample,
                "{line}"
            );
        }
        assert!(text.contains("chronicle_replica_frames_received_total 3\n"));
        assert!(text.contains("chronicle_replica_connections 2\n"));
    }

    #[test]
    fn a_trace_is_one_object_per_line() {
        let holder = tempfile::tempdir().expect("a directory");
        let path = holder.path().join("trace");
        let trace = Trace::to(&path).expect("opened");
        trace.event("connected", 5, json!({ "peer": "a\nb" }));
        trace.event("closed", 6, json!({}));
        let text = std::fs::read_to_string(&path).expect("read");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines[0]["peer"], "a\nb");
        assert_eq!((lines.len(), &lines[1]["event"]), (2, &json!("closed")));
    }
}
