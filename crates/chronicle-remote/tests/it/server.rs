//! A server that speaks enough S3 and fails on command.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use chronicle_remote::{Bucket, BucketOptions, Patience};
use futures_util::{Stream, StreamExt};
use http::HeaderMap;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::wire::{Asked, BUCKET, Body, about_object, answer, error, full, header, listing};

/// Keys in one page of a listing: few, so that every test sees several pages.
const PAGE: usize = 5;

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The connection ends in the middle of the answer.
    Cut,
    /// The request is carried out, and the connection ends without an answer.
    LoseAnswer,
    /// The body ends early, and the length says otherwise.
    Truncate,
    /// The body is shorter, and so is the length, though all of the range is said to be there.
    Short,
    /// One byte of the body is another.
    Flip,
    /// The answer says that it is longer than anything.
    Huge,
    /// No answer ever.
    Stall,
    /// An error with this status and code, and nothing done.
    Error(u16, &'static str),
    /// The same, and yet it was done.
    ErrorAfterwards(u16, &'static str),
    /// 429 with so many seconds to wait.
    Throttle(u64),
}

struct Rule {
    method: &'static str,
    /// What the key must contain.
    part: &'static str,
    fault: Fault,
    /// How many requests that fit are let through first.
    spared: usize,
    left: usize,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    uploads: HashMap<String, BTreeMap<u32, Bytes>>,
    rules: Vec<Rule>,
    seen: Vec<String>,
    /// What the last request was signed with, and its token.
    signed: [String; 2],
    ignores_conditions: bool,
}

pub struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (stop, stopped) = oneshot::channel();
        let (say, said) = std::sync::mpsc::channel();
        let served = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
                say.send(listener.local_addr().unwrap().port()).unwrap();
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port: said.recv().unwrap(), state, stop: Some(stop), thread: Some(thread) }
    }

    /// A server that overwrites although it was told not to, as some do.
    pub fn ignoring_conditions() -> Self {
        let server = Self::start();
        server.state.lock().unwrap().ignores_conditions = true;
        server
    }

    pub fn patience() -> Patience {
        Patience {
            attempts: 4,
            first_pause: Duration::from_millis(4),
            longest_pause: Duration::from_millis(20),
            total: Duration::from_secs(20),
            request: Duration::from_secs(5),
        }
    }

    pub fn bucket(&self) -> Bucket {
        self.bucket_at("prefix", Self::patience())
    }

    pub fn bucket_at(&self, prefix: &str, patience: Patience) -> Bucket {
        let options = BucketOptions {
            endpoint: Some(self.endpoint()),
            region: Some("us-east-1".to_owned()),
            access_key: Some("access".to_owned()),
            secret_key: Some("secret".to_owned()),
            patience,
            ..BucketOptions::default()
        };
        Bucket::open(&format!("s3://{BUCKET}/{prefix}"), &options).unwrap()
    }

    /// Lets requests of this method about keys with this part fail so many times.
    pub fn fail(&self, method: &'static str, part: &'static str, fault: Fault, times: usize) {
        let rule = Rule { method, part, fault, spared: 0, left: times };
        self.state.lock().unwrap().rules.push(rule);
    }

    /// The same for whatever is asked for by this method, after so many requests went well.
    pub fn fail_after(&self, spared: usize, method: &'static str, fault: Fault, times: usize) {
        let rule = Rule { method, part: "", fault, spared, left: times };
        self.state.lock().unwrap().rules.push(rule);
    }

    /// Forgets what was asked and lets nothing fail.
    pub fn calm(&self) {
        let mut state = self.state.lock().unwrap();
        state.rules.clear();
        state.seen.clear();
    }

    /// Takes everything away, as a bucket that was deleted and made anew.
    pub fn empty(&self) {
        self.state.lock().unwrap().objects.clear();
    }

    /// How many requests of this method came about keys with this part.
    pub fn count(&self, method: &str, part: &str) -> usize {
        let begin = format!("{method} ");
        let fits = |line: &&String| line.starts_with(&begin) && line.contains(part);
        self.state.lock().unwrap().seen.iter().filter(fits).count()
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What the last request was signed with, and its token.
    pub fn signed(&self) -> [String; 2] {
        self.state.lock().unwrap().signed.clone()
    }

    /// Every request that came, as method and key.
    pub fn seen(&self) -> Vec<String> {
        self.state.lock().unwrap().seen.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let service = service_fn(|request| respond(request, &state));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    state: &Mutex<State>,
) -> Result<Response<Body>, io::Error> {
    let uri = request.uri();
    let asked = Asked::new(request.method().as_str(), uri.path(), uri.query().unwrap_or_default());
    let given = request.headers().clone();
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let text = |name| given.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    state.lock().unwrap().signed = ["authorization", "x-amz-security-token"].map(text);
    let fault = state.lock().unwrap().next_fault(&asked);
    match fault {
        Some(Fault::Error(status, code)) => return Ok(error(status, code)),
        Some(Fault::Throttle(seconds)) => return Ok(throttled(seconds)),
        Some(Fault::Stall) => std::future::pending().await,
        _ => {}
    }
    let done = state.lock().unwrap().carry_out(&asked, &given, body);
    match fault {
        Some(Fault::LoseAnswer) => Err(io::Error::other("told to")),
        Some(Fault::ErrorAfterwards(status, code)) => Ok(error(status, code)),
        Some(fault) => spoil(done, fault).await,
        None => Ok(done),
    }
}

fn throttled(seconds: u64) -> Response<Body> {
    header(error(429, "TooManyRequests"), "retry-after", &seconds.to_string())
}

/// The answer as the fault leaves it.
async fn spoil(done: Response<Body>, fault: Fault) -> Result<Response<Body>, io::Error> {
    let (parts, body) = done.into_parts();
    let mut bytes = body.collect().await?.to_bytes().to_vec();
    let (length, half) = (bytes.len(), bytes.len() / 2);
    let rebuilt = |body: Body| Response::from_parts(parts, body);
    let said = |response, length: u64| header(response, "content-length", &length.to_string());
    Ok(match fault {
        Fault::Flip => {
            bytes[half] ^= 1;
            rebuilt(full(bytes))
        }
        Fault::Short => {
            bytes.truncate(half);
            said(rebuilt(full(bytes)), half as u64)
        }
        Fault::Huge => said(rebuilt(pieces(vec![Ok(bytes)])), 1 << 40),
        Fault::Truncate => {
            bytes.truncate(half);
            said(rebuilt(pieces(vec![Ok(bytes)])), length as u64)
        }
        _ => {
            bytes.truncate(half);
            let broken = vec![Ok(bytes), Err(io::Error::other("told to"))];
            said(rebuilt(pieces(broken)), length as u64)
        }
    })
}

/// A body of which the sender does not know the length beforehand.
fn pieces(pieces: Vec<io::Result<Vec<u8>>>) -> Body {
    let frames = pieces.into_iter().map(|piece| piece.map(|bytes| Frame::data(bytes.into())));
    let frames = futures_util::stream::iter(frames);
    // With a rest in between, so that what comes before a failure is really sent.
    let slow = frames.then(|frame| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        frame
    });
    BodyExt::boxed(StreamBody::new(Box::pin(slow) as std::pin::Pin<Box<dyn Frames>>))
}

trait Frames: Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync {}

impl<T: Stream<Item = io::Result<Frame<Bytes>>> + Send + Sync> Frames for T {}

impl State {
    fn next_fault(&mut self, asked: &Asked) -> Option<Fault> {
        self.seen.push(format!("{} {}", asked.method, asked.key));
        let fits = |rule: &&mut Rule| {
            rule.left > 0 && rule.method == asked.method && asked.key.contains(rule.part)
        };
        let rule = self.rules.iter_mut().find(fits)?;
        if rule.spared > 0 {
            rule.spared -= 1;
            return None;
        }
        rule.left -= 1;
        Some(rule.fault)
    }

    fn carry_out(&mut self, asked: &Asked, given: &HeaderMap, body: Bytes) -> Response<Body> {
        match (asked.method.as_str(), asked.query("uploadId")) {
            ("PUT", Some(upload)) => self.put_part(asked, upload, body),
            ("POST", Some(upload)) => self.complete(asked, upload),
            ("DELETE", Some(upload)) => {
                self.uploads.remove(upload);
                answer(204, full(""))
            }
            ("POST", None) => self.begin_upload(),
            ("PUT", None) => self.put(asked, given, body),
            ("DELETE", None) => {
                self.objects.remove(&asked.key);
                answer(204, full(""))
            }
            ("GET", None) if asked.key.is_empty() => self.list(asked),
            ("GET", None) => self.get(asked, given),
            ("HEAD", None) => self.head(asked),
            other => panic!("nobody asks for {other:?}"),
        }
    }

    fn put(&mut self, asked: &Asked, given: &HeaderMap, body: Bytes) -> Response<Body> {
        let only_new = given.contains_key("if-none-match") && !self.ignores_conditions;
        if only_new && self.objects.contains_key(&asked.key) {
            return error(412, "PreconditionFailed");
        }
        self.objects.insert(asked.key.clone(), body);
        about_object(answer(200, full("")))
    }

    fn begin_upload(&mut self) -> Response<Body> {
        let id = self.seen.len().to_string();
        self.uploads.insert(id.clone(), BTreeMap::new());
        let result = "InitiateMultipartUploadResult";
        answer(200, full(format!("<{result}><UploadId>{id}</UploadId></{result}>")))
    }

    fn put_part(&mut self, asked: &Asked, upload: &str, body: Bytes) -> Response<Body> {
        let number = asked.query("partNumber").unwrap().parse().unwrap();
        let Some(parts) = self.uploads.get_mut(upload) else { return error(404, "NoSuchUpload") };
        parts.insert(number, body);
        about_object(answer(200, full("")))
    }

    fn complete(&mut self, asked: &Asked, upload: &str) -> Response<Body> {
        let Some(parts) = self.uploads.remove(upload) else { return error(404, "NoSuchUpload") };
        let bytes: Vec<u8> = parts.into_values().flatten().collect();
        self.objects.insert(asked.key.clone(), bytes.into());
        let result = "CompleteMultipartUploadResult";
        answer(200, full(format!("<{result}><ETag>&quot;tag&quot;</ETag></{result}>")))
    }

    fn get(&self, asked: &Asked, given: &HeaderMap) -> Response<Body> {
        let Some(bytes) = self.objects.get(&asked.key) else { return error(404, "NoSuchKey") };
        let Some(range) = given.get("range") else {
            return about_object(answer(200, full(bytes.clone())));
        };
        let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let first: usize = first.parse().unwrap();
        let end = (last.parse::<usize>().unwrap() + 1).min(bytes.len());
        if first >= end {
            return error(416, "InvalidRange");
        }
        let response = about_object(answer(206, full(bytes.slice(first..end))));
        header(response, "content-range", &format!("bytes {first}-{}/{}", end - 1, bytes.len()))
    }

    fn head(&self, asked: &Asked) -> Response<Body> {
        match self.objects.get(&asked.key) {
            Some(bytes) => {
                let response = about_object(answer(200, full("")));
                header(response, "content-length", &bytes.len().to_string())
            }
            None => answer(404, full("")),
        }
    }

    fn list(&self, asked: &Asked) -> Response<Body> {
        let prefix = asked.query("prefix").unwrap_or_default();
        let after = asked.query("continuation-token").or(asked.query("start-after"));
        let after = after.unwrap_or_default();
        let fits = |key: &&String| key.starts_with(prefix) && key.as_str() > after;
        let mut keys: Vec<_> = self.objects.keys().filter(fits).take(PAGE + 1).collect();
        let more = keys.len() > PAGE;
        keys.truncate(PAGE);
        let page: Vec<_> =
            keys.iter().map(|key| (String::clone(key), self.objects[*key].len())).collect();
        listing(&page, keys.last().filter(|_| more).map(|key| key.as_str()))
    }
}
