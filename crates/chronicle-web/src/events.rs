//! The live end of the log: whoever listens is told when records are added.
//!
//! One task for each workspace asks where the log ends, only while somebody listens; a stream says
//! nothing but that, and the client reads what is new as it reads everything.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chronicle_core::{SCHEMA, Workspace, WorkspaceId};
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::answer::{Answered, Pieces, channel};
use crate::problem::Problem;
use crate::site::Site;

/// How often the end of a log is asked for.
const PERIOD: Duration = Duration::from_millis(250);
/// How often a stream on which nothing happens says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many streams there are at once.
const STREAMS_MOST: usize = 32;

/// Where each log ends, for those that are listened to.
pub(crate) struct Heads {
    known: Mutex<HashMap<WorkspaceId, watch::Sender<u64>>>,
    places: Arc<Semaphore>,
}

impl Default for Heads {
    fn default() -> Self {
        Self { known: Mutex::default(), places: Arc::new(Semaphore::new(STREAMS_MOST)) }
    }
}

impl Heads {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<WorkspaceId, watch::Sender<u64>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a log that nobody listens to.
    fn is_over(&self, id: WorkspaceId, head: &watch::Sender<u64>) -> bool {
        let mut known = self.known();
        let over = head.receiver_count() == 0;
        if over {
            known.remove(&id);
        }
        over
    }
}

/// Opens a stream.
pub(crate) async fn stream(site: &Arc<Site>, workspace: String) -> Result<Answered, Problem> {
    let place = Arc::clone(&site.heads().places).try_acquire_owned().map_err(|_| {
        let words = format!("There are {STREAMS_MOST} streams already");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", words)
            .hinted("Close another page, or ask for the timeline now and then instead")
    })?;
    let opening = Arc::clone(site);
    let opened = tokio::task::spawn_blocking(move || {
        let workspace = opening.open(&workspace)?;
        let head = workspace.last_position()?.0;
        Ok::<_, Problem>((workspace, head))
    });
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", "The call ended");
    let (workspace, head) = opened.await.map_err(failed)??;
    let heads = listen(site, workspace, head);
    let (pieces, body) = channel();
    tokio::spawn(tell(heads, pieces, place));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn listen(site: &Arc<Site>, workspace: Workspace, head: u64) -> watch::Receiver<u64> {
    let id = workspace.id();
    let mut known = site.heads().known();
    if let Some(sender) = known.get(&id) {
        return sender.subscribe();
    }
    let (sender, receiver) = watch::channel(head);
    known.insert(id, sender.clone());
    drop(known);
    tokio::spawn(follow(Arc::clone(site), workspace, sender));
    receiver
}

/// Asks where a log ends for as long as somebody listens.
async fn follow(site: Arc<Site>, mut workspace: Workspace, head: watch::Sender<u64>) {
    let id = workspace.id();
    loop {
        tokio::time::sleep(PERIOD).await;
        if site.heads().is_over(id, &head) {
            return;
        }
        let asked = tokio::task::spawn_blocking(move || {
            let found = workspace.last_position();
            (workspace, found)
        });
        let Ok((back, found)) = asked.await else { break };
        workspace = back;
        let Ok(found) = found else { break };
        head.send_if_modified(|known| std::mem::replace(known, found.0) != found.0);
    }
    site.heads().known().remove(&id);
}

/// Tells one client, until it or the log goes away.
async fn tell(mut heads: watch::Receiver<u64>, pieces: Pieces, _place: OwnedSemaphorePermit) {
    loop {
        let head = *heads.borrow_and_update();
        let data = format!("{{\"schema\":{SCHEMA},\"head_seq\":{head}}}");
        if !send(&pieces, format!("id: {head}\nevent: head\ndata: {data}\n\n")).await {
            return;
        }
        loop {
            tokio::select! {
                changed = heads.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = pieces.closed() => return,
                () = tokio::time::sleep(HEARTBEAT) => {
                    if !send(&pieces, ": here\n\n".to_owned()).await {
                        return;
                    }
                }
            }
        }
    }
}

async fn send(pieces: &Pieces, text: String) -> bool {
    let piece: io::Result<Bytes> = Ok(text.into());
    pieces.send(piece).await.is_ok()
}
