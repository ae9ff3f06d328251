//! From a request to an answer: who asks, which route, the work on a thread, what goes back.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronicle_core::{Error, Home, Workspace, WorkspaceId};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use crate::access::{Access, By, Caller, Right};
use crate::answer::{self, Answer, Answered, Content, Part};
use crate::answers::{Answers, Known};
use crate::call::{Call, workspace_id};
use crate::events::{self, Heads};
use crate::gate::{Door, Gate, OWN_HEADER, protect};
use crate::health::Verifying;
use crate::page;
use crate::problem::Problem;
use crate::route::{PREFIX, Route, Run, Said};
use crate::routes::ROUTES;

/// The largest request: paths and words.
const REQUEST_MOST: usize = 1 << 20;
/// How long a client may take to send it.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// How many requests work at once; the next ones wait.
const CALLS_MOST: usize = 6;

/// Everything that requests share.
pub(crate) struct Site {
    home: Home,
    directory: PathBuf,
    off: bool,
    access: Access,
    gate: Gate,
    answers: Answers,
    heads: Heads,
    verifying: Verifying,
    working: Semaphore,
}

/// What makes a site.
pub(crate) struct Ground {
    pub(crate) home: Home,
    pub(crate) directory: PathBuf,
    pub(crate) off: bool,
    pub(crate) access: Access,
    pub(crate) address: SocketAddr,
    pub(crate) hosts: Vec<String>,
    pub(crate) answers: PathBuf,
}

/// Tells the work that nobody waits for it any more.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Site {
    pub(crate) fn new(ground: Ground) -> Self {
        Self {
            home: ground.home,
            directory: ground.directory,
            off: ground.off,
            access: ground.access,
            gate: Gate::new(ground.address, &ground.hosts),
            answers: Answers::new(ground.answers),
            heads: Heads::default(),
            verifying: Verifying::default(),
            working: Semaphore::new(CALLS_MOST),
        }
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    pub(crate) fn verifying(&self) -> &Verifying {
        &self.verifying
    }

    /// The workspace in which the server was started.
    pub(crate) fn here(&self) -> Option<WorkspaceId> {
        Workspace::open(&self.home, &self.directory).ok().map(|workspace| workspace.id())
    }

    /// Opens a workspace of the home by its id.
    pub(crate) fn open(&self, id: &str) -> Result<Workspace, Problem> {
        let wanted = workspace_id(id).ok_or_else(|| {
            Problem::usage("A workspace is named by its id: 32 hexadecimal digits")
        })?;
        let all = self.home.workspaces()?;
        match all.into_iter().find(|(id, _)| *id == wanted) {
            Some((_, root)) => Ok(Workspace::open(&self.home, &root)?),
            None => Err(Error::NoWorkspace(PathBuf::from(id)).into()),
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        door: Door,
    ) -> Answered {
        let bodiless = request.method() == Method::HEAD;
        let answered = self.refuse_or_answer(request, door, bodiless).await;
        let mut response = answered.unwrap_or_else(|problem| answer::problem(&problem));
        protect(response.headers_mut());
        if bodiless {
            let (parts, _) = response.into_parts();
            response = answer::full(parts.status, "", Vec::new());
            *response.headers_mut() = parts.headers;
        }
        response
    }

    async fn refuse_or_answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        door: Door,
        bodiless: bool,
    ) -> Result<Answered, Problem> {
        if door == Door::Net {
            self.gate.pass(request.headers())?;
        }
        let Some(below) = request.uri().path().strip_prefix(PREFIX) else {
            return page::answer(&request);
        };
        let method = if bodiless { &Method::GET } else { request.method() };
        let (route, mut said) = find(method, below)?;
        let caller = match door {
            Door::Socket => Some(self.access.owner()),
            Door::Net => self.access.caller(request.headers()),
        };
        self.admit(route, caller, request.headers())?;
        route.read_query(request.uri().query().unwrap_or_default(), &mut said)?;
        if let Run::Events = route.run {
            let workspace = said.remove("workspace").unwrap_or_default();
            let mut response = events::stream(self, workspace).await?;
            no_store(response.headers_mut());
            return Ok(response);
        }
        let (parts, body) = request.into_parts();
        let body = self.read_body(route, &parts.headers, body).await?;
        self.work(route, said, body, parts.headers, caller).await
    }

    /// Lets somebody in who may do this, and whom no other page can have sent.
    fn admit(
        &self,
        route: &Route,
        caller: Option<Caller>,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        let changes = route.method != Method::GET;
        let from_page = caller.is_none_or(|caller| caller.by == By::Cookie);
        if changes && from_page && !headers.contains_key(OWN_HEADER) {
            return Err(Problem::not_allowed("A page that changes something says so")
                .hinted("Send the header X-Chronicle: 1, or a token"));
        }
        let Some(right) = route.right else { return Ok(()) };
        let caller = caller.ok_or_else(Problem::unknown_caller)?;
        if caller.right < right {
            return Err(Problem::not_allowed("This needs the right to rewind")
                .hinted("Use the rewind token, or start chronicle web without --read-only"));
        }
        if changes && right == Right::Rewind && self.off {
            let words = "Chronicle is off (CHRONICLE=off): nothing was done";
            return Err(Problem::new(StatusCode::CONFLICT, "off", words));
        }
        Ok(())
    }

    async fn read_body(
        &self,
        route: &Route,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Vec<u8>, Problem> {
        let too_large = || {
            let words = format!("A request has at most {REQUEST_MOST} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", words)
        };
        let read =
            tokio::time::timeout(REQUEST_PATIENCE, Limited::new(body, REQUEST_MOST).collect());
        let read = read.await.map_err(|_| Problem::usage("The request did not come to its end"))?;
        let bytes = read.map_err(|_| too_large())?.to_bytes().to_vec();
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let json = kind.is_some_and(|kind| kind.split(';').next() == Some("application/json"));
        if route.takes.is_some() && !bytes.is_empty() && !json {
            let words = "The body must be application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", words));
        }
        Ok(bytes)
    }

    async fn work(
        self: &Arc<Self>,
        route: &'static Route,
        said: Said,
        body: Vec<u8>,
        headers: HeaderMap,
        caller: Option<Caller>,
    ) -> Result<Answered, Problem> {
        let Run::Blocking(run) = route.run else { return Err(no_such_route()) };
        let busy = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "The server ends");
        let place = self.working.acquire().await.map_err(busy)?;
        let gone = Gone(Arc::default());
        let (site, flag, range) = (Arc::clone(self), Arc::clone(&gone.0), headers.clone());
        let worked = tokio::task::spawn_blocking(move || {
            let (said, body, headers) = (&said, &body[..], &headers);
            let call = Call { site: &site, said, body, headers, caller, gone: &flag };
            once(&call, route, run)
        });
        let failed = |_| {
            let words = "The request ended without an answer";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", words)
        };
        let (answer, replayed) = worked.await.map_err(failed)??;
        drop((place, gone));
        let mut response = respond(answer, &range)?;
        if replayed {
            let replayed = HeaderValue::from_static("true");
            response.headers_mut().insert("idempotency-replayed", replayed);
        }
        no_store(response.headers_mut());
        Ok(response)
    }
}

/// Does it, or repeats what was answered to the same key before.
fn once(
    call: &Call<'_>,
    route: &Route,
    run: fn(&Call<'_>) -> Result<Answer, Problem>,
) -> Result<(Answer, bool), Problem> {
    let key = call.headers.get("idempotency-key").filter(|_| route.method != Method::GET);
    let Some(key) = key else { return Ok((run(call)?, false)) };
    let key = key.to_str().map_err(|_| Problem::usage("Idempotency-Key must be plain text"))?;
    let scope = format!("{}\0{}", route.id, call.text("workspace").unwrap_or_default());
    let request = format!("{:?}\0{}", call.said, String::from_utf8_lossy(call.body));
    match call.site.answers.begin(key, &scope, request.as_bytes())? {
        Known::Answered(body) => Ok((Answer::Json(body), true)),
        Known::New(turn) => {
            let answer = run(call)?;
            if let Answer::Json(body) = &answer {
                turn.answered(body);
            }
            Ok((answer, false))
        }
    }
}

fn no_such_route() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", "There is nothing here")
        .hinted("See /api/v1/openapi.json")
}

fn find(method: &Method, path: &str) -> Result<(&'static Route, Said), Problem> {
    let fits = ROUTES.iter().filter_map(|route| Some((route, route.matches(path)?)));
    let mut there: Vec<_> = fits.collect();
    // `turns/end` is no turn: what names more of the path itself counts.
    let least = there.iter().map(|(_, said)| said.len()).min().ok_or_else(no_such_route)?;
    there.retain(|(_, said)| said.len() == least);
    if let Some(at) = there.iter().position(|(route, _)| route.method == *method) {
        return Ok(there.swap_remove(at));
    }
    let methods: Vec<_> = there.iter().map(|(route, _)| route.method.as_str()).collect();
    let words = format!("{method} is not possible here");
    let mut problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words);
    problem.allow = Some(methods.join(", "));
    Err(problem)
}

fn no_store(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn respond(answer: Answer, asked: &HeaderMap) -> Result<Answered, Problem> {
    Ok(match answer {
        Answer::Json(body) => answer::full(StatusCode::OK, "application/json", body),
        Answer::Nothing => nothing(),
        Answer::Cookie(cookie, body) => {
            let mut response = match body.is_empty() {
                true => nothing(),
                false => answer::full(StatusCode::OK, "application/json", body),
            };
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Answer::Content(content) => stream(content, asked)?,
    })
}

fn nothing() -> Answered {
    let mut response = answer::full(StatusCode::NO_CONTENT, "", Vec::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

/// Sends a file's content, or the part that was asked for, while it is read.
fn stream(content: Content, asked: &HeaderMap) -> Result<Answered, Problem> {
    let range = asked.get(header::RANGE).and_then(|range| range.to_str().ok());
    let part = match range.map(|range| read_range(range, content.size)) {
        None | Some(Asked::Other) => None,
        Some(Asked::Part(part)) => Some(part),
        Some(Asked::Outside) => {
            let words = format!("The content has {} bytes", content.size);
            return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "usage", words));
        }
    };
    let status = if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let whole = 0..content.size;
    let sent = part.clone().unwrap_or(whole);
    let (pieces, body) = answer::channel();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::ACCEPT_RANGES, "bytes"),
        // Opened by itself it is nobody's page.
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox; frame-ancestors 'none'"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(sent.end - sent.start));
    if let Some(part) = &part {
        let words = format!("bytes {}-{}/{}", part.start, part.end - 1, content.size);
        headers.extend(HeaderValue::from_str(&words).map(|it| (header::CONTENT_RANGE, it)));
    }
    let tag = content.hash.and_then(|hash| HeaderValue::from_str(&format!("\"{hash}\"")).ok());
    headers.extend(tag.map(|tag| (header::ETAG, tag)));
    tokio::task::spawn_blocking(move || {
        let mut out = Part::new(pieces, &sent);
        let written = (content.write)(&mut out);
        out.finish(written);
    });
    Ok(response)
}

/// What a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Part(std::ops::Range<u64>),
    Outside,
    /// Several parts, or something else: all of it is sent.
    Other,
}

fn read_range(text: &str, size: u64) -> Asked {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'))
    else {
        return Asked::Other;
    };
    let part = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if last >= first => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return Asked::Other,
    };
    if part.start < part.end { Asked::Part(part) } else { Asked::Outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        assert_eq!(read_range("bytes=0-3", 10), Asked::Part(0..4));
        assert_eq!(read_range("bytes=8-99", 10), Asked::Part(8..10));
        assert_eq!(read_range("bytes=5-", 10), Asked::Part(5..10));
        assert_eq!(read_range("bytes=-2", 10), Asked::Part(8..10));
        assert_eq!(read_range("bytes=10-", 10), Asked::Outside);
        assert_eq!(read_range("bytes=-0", 10), Asked::Outside);
        for other in ["bytes=3-1", "bytes=a-b", "lines=0-1", "bytes=0-1,3-4", ""] {
            assert_eq!(read_range(other, 10), Asked::Other, "{other}");
        }
    }
}
