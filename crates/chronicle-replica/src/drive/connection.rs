//! The tasks of one connection: one that reads, one that writes, and bounded queues between them and whoever
//! decides.
//!
//! A peer that does not read fills its outbox and is given up; one that writes faster than it is served
//! waits, since only so many of its frames are taken at a time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::Bytes;

use super::link::{Arrived, Receiver, Sender};
use super::metrics::Metrics;
use crate::limits::FRAME_MAX;
use crate::wire::{Frame, decode, encode};

/// Bytes that may wait for a peer that does not read; the sessions ask for far less at a time.
const OUTBOX_MOST: usize = 64 << 20;
/// Frames of one peer that wait to be handled.
pub const INBOX_MOST: usize = 8;

/// A frame that came, with the room it takes and its place in the queue until it is handled.
pub struct Delivery {
    /// The frame.
    pub frame: Frame,
    /// How long it was on the wire.
    pub length: usize,
    _taken: (Arrived, OwnedSemaphorePermit),
}

/// Where frames for one peer are put.
#[derive(Clone)]
pub struct Outbox {
    to: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
}

impl Outbox {
    /// Puts a frame into the queue; false if the peer is gone or has not read for too long.
    pub fn send(&self, frame: &Frame) -> bool {
        self.send_bytes(Bytes::from(encode(frame)))
    }

    /// The same with a frame that is encoded already, so that many peers share its bytes.
    pub fn send_bytes(&self, bytes: Bytes) -> bool {
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let waiting = self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        waiting <= OUTBOX_MOST && self.to.send(bytes).is_ok()
    }

    /// Bytes that were put into it.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Starts to write: what is put into the outbox goes out until it is dropped, then the link is closed.
pub fn start_writing(mut to: Sender, metrics: Arc<Metrics>) -> Outbox {
    let (queue, mut frames) = mpsc::unbounded_channel::<Bytes>();
    let waiting = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox { to: queue, waiting: Arc::clone(&waiting), sent: Arc::default() };
    tokio::spawn(async move {
        while let Some(frame) = frames.recv().await {
            let length = frame.len();
            // The reading half notices that the link is gone, and tells.
            if to.send(frame).await.is_err() {
                break;
            }
            waiting.fetch_sub(length, Ordering::Relaxed);
            Metrics::add(&metrics.frames_out, 1);
            Metrics::add(&metrics.bytes_out, length as u64);
        }
        to.close().await;
    });
    outbox
}

/// Reads one frame of a stranger, who may send only a short one.
pub async fn first_frame(from: &mut Receiver) -> io::Result<Option<Frame>> {
    match from.receive().await? {
        Some(arrived) => decode(&arrived.body).map(Some).map_err(invalid),
        None => Ok(None),
    }
}

/// Starts to read: every frame, then `None` at the end, is given to `deliver`, which may wait; so many wait to be handled.
pub fn start_reading<F>(
    mut from: Receiver,
    most: usize,
    metrics: Arc<Metrics>,
    mut deliver: impl FnMut(Result<Delivery, io::Error>) -> F + Send + 'static,
) -> AbortHandle
where
    F: Future<Output = bool> + Send,
{
    from.allow(FRAME_MAX);
    let places = Arc::new(Semaphore::new(most));
    let task = tokio::spawn(async move {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("the semaphore is never closed");
            let delivery = match from.receive().await {
                Ok(Some(arrived)) => decoded(arrived, place, &metrics),
                Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(error),
            };
            let over = delivery.is_err();
            if !deliver(delivery).await || over {
                return;
            }
        }
    });
    task.abort_handle()
}

fn decoded(
    mut arrived: Arrived,
    place: OwnedSemaphorePermit,
    metrics: &Metrics,
) -> io::Result<Delivery> {
    let length = arrived.body.len();
    Metrics::add(&metrics.frames_in, 1);
    Metrics::add(&metrics.bytes_in, length as u64);
    let frame = decode(&arrived.body).map_err(invalid)?;
    // What was decoded takes its place.
    arrived.body = Vec::new();
    Ok(Delivery { frame, length, _taken: (arrived, place) })
}

/// Whether a link was given up because the peer broke the rules, and not because it was cut.
pub fn is_violation(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
