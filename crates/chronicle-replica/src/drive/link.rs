//! One connection as frames in and frames out, whatever carries them.
//!
//! On a stream a frame is its length and its body (`wire`); over a WebSocket each binary message is one
//! body. A length is checked before anything is allocated for it, and what a peer only announces takes no
//! room until it arrives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Bytes, Error as WebSocketError, Message};

use crate::wire::frame_length;

/// The longest body of a peer that has not shown who it is.
pub const STRANGER_MOST: usize = 4 << 10;
/// How long a frame may take to arrive once it has begun, and to leave.
const FRAME_PATIENCE: Duration = Duration::from_secs(30);
/// How much is read at once of a body that is announced to be longer.
const STEP: usize = 64 << 10;
/// What one permit of the room for frames stands for.
const ROOM_UNIT: usize = 1 << 10;

/// What bytes come and go through.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A stream of any kind.
pub type Stream = Box<dyn Io>;

/// Bytes that all frames under way may take together, so that no number of peers takes more.
#[derive(Clone)]
pub struct Room(Arc<Semaphore>);

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes / ROOM_UNIT)))
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.0).acquire_many_owned(units).await;
        permit.expect("the semaphore is never closed")
    }
}

/// A frame that came, and its part of the room until it is dropped.
pub struct Arrived {
    /// Its body.
    pub body: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// The half that receives.
pub struct Receiver {
    from: From,
    room: Room,
    /// The longest body that is taken.
    most: usize,
}

enum From {
    Stream(ReadHalf<Stream>),
    WebSocket(SplitStream<WebSocketStream<Stream>>),
}

/// The half that sends.
pub enum Sender {
    /// On a stream.
    Stream(WriteHalf<Stream>),
    /// Over a WebSocket.
    WebSocket(SplitSink<WebSocketStream<Stream>, Message>),
}

/// The two halves of a stream.
pub fn of_stream(stream: Stream, room: &Room) -> (Receiver, Sender) {
    let (from, to) = tokio::io::split(stream);
    let from = From::Stream(from);
    (Receiver { from, room: room.clone(), most: STRANGER_MOST }, Sender::Stream(to))
}

/// The two halves of a WebSocket whose handshake is done.
pub fn of_websocket(socket: WebSocketStream<Stream>, room: &Room) -> (Receiver, Sender) {
    let (to, from) = socket.split();
    let from = From::WebSocket(from);
    (Receiver { from, room: room.clone(), most: STRANGER_MOST }, Sender::WebSocket(to))
}

impl Receiver {
    /// Takes longer frames from now on: the peer has shown who it is.
    pub fn allow(&mut self, most: usize) {
        self.most = most;
    }

    /// The next frame; `None` when the peer has closed the connection.
    pub async fn receive(&mut self) -> io::Result<Option<Arrived>> {
        match &mut self.from {
            From::Stream(from) => receive_on_stream(from, &self.room, self.most).await,
            From::WebSocket(from) => receive_message(from, &self.room, self.most).await,
        }
    }
}

async fn receive_on_stream(
    from: &mut ReadHalf<Stream>,
    room: &Room,
    most: usize,
) -> io::Result<Option<Arrived>> {
    let mut length = [0; 4];
    // Between frames a peer may be quiet for as long as its heartbeats let it.
    match from.read(&mut length[..1]).await? {
        0 => return Ok(None),
        _ => patient(from.read_exact(&mut length[1..])).await?,
    };
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let length = frame_length(length).map_err(invalid)?;
    if length > most {
        return Err(too_long(length, most));
    }
    let taken = patient(async { Ok(room.take(length).await) }).await?;
    let mut body = Vec::with_capacity(length.min(STEP));
    let rest = async {
        while body.len() < length {
            let step = (length - body.len()).min(STEP);
            body.reserve_exact(step.max((body.len() / 2).min(length - body.len())));
            let read = (&mut *from).take(step as u64).read_buf(&mut body).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    };
    patient(rest).await?;
    Ok(Some(Arrived { body, _room: taken }))
}

async fn receive_message(
    from: &mut SplitStream<WebSocketStream<Stream>>,
    room: &Room,
    most: usize,
) -> io::Result<Option<Arrived>> {
    loop {
        let message = match from.next().await {
            None | Some(Err(WebSocketError::ConnectionClosed)) => return Ok(None),
            Some(message) => message.map_err(websocket_error)?,
        };
        match message {
            Message::Binary(bytes) if bytes.is_empty() || bytes.len() > most => {
                return Err(too_long(bytes.len(), most));
            }
            Message::Binary(bytes) => {
                let taken = patient(async { Ok(room.take(bytes.len()).await) }).await?;
                return Ok(Some(Arrived { body: bytes.into(), _room: taken }));
            }
            Message::Close(_) => return Ok(None),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Text(_) | Message::Frame(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "only frames are spoken"));
            }
        }
    }
}

impl Sender {
    /// Sends a frame as `wire` encodes it; given up if the peer takes too long to read it.
    pub async fn send(&mut self, frame: Bytes) -> io::Result<()> {
        match self {
            Self::Stream(to) => patient(to.write_all(&frame)).await,
            Self::WebSocket(to) => {
                // A message has its own length.
                let message = Message::Binary(frame.slice(4..));
                patient(async { to.send(message).await.map_err(websocket_error) }).await
            }
        }
    }

    /// Says goodbye to the transport.
    pub async fn close(&mut self) {
        let closing = async {
            match self {
                Self::Stream(to) => to.shutdown().await,
                Self::WebSocket(to) => to.close().await.map_err(websocket_error),
            }
        };
        // Whoever does not wait for it misses nothing.
        let _ = timeout(Duration::from_secs(1), closing).await;
    }
}

async fn patient<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(FRAME_PATIENCE, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn too_long(length: usize, most: usize) -> io::Error {
    let words = format!("a frame of {length} bytes, where at most {most} are taken");
    io::Error::new(io::ErrorKind::InvalidData, words)
}

fn websocket_error(error: WebSocketError) -> io::Error {
    match error {
        WebSocketError::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}
