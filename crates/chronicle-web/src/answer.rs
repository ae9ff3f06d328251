//! What goes back to a client: bodies of a known length, and those that are made while they go.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::problem::Problem;

/// The body of every answer.
pub(crate) type Answered = Response<BoxBody<Bytes, io::Error>>;

/// How many pieces of a body wait for a client that is slow.
const PIECES_WAITING: usize = 8;
/// How large a piece is.
const PIECE: usize = 64 << 10;

/// What a handler gives back.
pub(crate) enum Answer {
    /// A value, as JSON.
    Json(Vec<u8>),
    /// Done, and there is nothing to say.
    Nothing,
    /// Done, with this cookie.
    Cookie(String, Vec<u8>),
    /// A file's content.
    Content(Content),
}

/// Writes something, once, on whatever thread that is done.
type Writes = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// A file's content, written while it is sent.
pub(crate) struct Content {
    /// How long all of it is.
    pub(crate) size: u64,
    /// Names the content, where that is known.
    pub(crate) hash: Option<String>,
    /// Writes all of it.
    pub(crate) write: Writes,
}

impl Answer {
    /// A value of ours as JSON.
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Problem> {
        let failed = |error: serde_json::Error| {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", error.to_string())
        };
        serde_json::to_vec(value).map(Self::Json).map_err(failed)
    }
}

/// A whole body.
pub(crate) fn full(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answered {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A refusal.
pub(crate) fn problem(problem: &Problem) -> Answered {
    let mut response = full(problem.status, "application/problem+json", problem.body());
    let headers = response.headers_mut();
    match problem.status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    if let Some(allow) =
        problem.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok())
    {
        headers.insert(header::ALLOW, allow);
    }
    response
}

/// A body that somebody makes on another thread or task.
pub(crate) struct Channel(mpsc::Receiver<io::Result<Bytes>>);

/// Where that body is made.
pub(crate) type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// A body, and the end into which it is put.
pub(crate) fn channel() -> (Pieces, BoxBody<Bytes, io::Error>) {
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    (sender, Channel(receiver).boxed())
}

impl Body for Channel {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A part of what is written, sent in pieces from a thread that may block.
pub(crate) struct Part {
    pieces: Pieces,
    waiting: Vec<u8>,
    skip: u64,
    left: u64,
}

impl Part {
    pub(crate) fn new(pieces: Pieces, range: &std::ops::Range<u64>) -> Self {
        let left = range.end - range.start;
        Self { pieces, waiting: Vec::with_capacity(PIECE), skip: range.start, left }
    }

    fn send(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.waiting, Vec::with_capacity(PIECE));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads on");
        self.pieces.blocking_send(Ok(piece.into())).map_err(gone)
    }

    /// Sends the rest; a body that ends too early is said to be broken.
    pub(crate) fn finish(mut self, written: io::Result<()>) {
        if self.send().is_ok() && self.left > 0 {
            let why = written.err().unwrap_or_else(|| io::Error::other("the content is shorter"));
            let _ = self.pieces.blocking_send(Err(why));
        }
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            // Everything that was asked for is there: the rest need not be read.
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "enough"));
        }
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        let rest = &bytes[usize::try_from(skipped).unwrap_or(bytes.len())..];
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = &rest[..rest.len().min(most)];
        self.left -= wanted.len() as u64;
        self.waiting.extend_from_slice(wanted);
        if self.waiting.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
