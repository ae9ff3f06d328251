//! The server: sockets that listen, connections that are brought to the thread of their workspace.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronicle_core::WorkspaceId;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::connection::{INBOX_MOST, first_frame, start_reading, start_writing};
use super::host::{Arrival, Came, HostHandle, HostOptions, SharedSlot, start};
use super::link::{self, Receiver, Room, Sender, Stream};
use super::metrics::{self, Metrics, Trace};
use super::tls::Identity;
use super::tokens::Tokens;
use super::unix::{Door, Visitor};
use super::websocket::{self, Hosts};
use crate::limits::{FRAME_MAX, Limits};
use crate::wire::{Frame, Hello, Refused, RefusedCode, Versions};

/// Bytes that frames under way may take together.
const ROOM: usize = 96 << 20;
/// Connections that have not said who they are; further ones wait to be accepted.
const STRANGERS_MOST: usize = 256;
/// How long the first frame may take.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// How long replicas may take to read their goodbyes.
const LAST_PATIENCE: Duration = Duration::from_secs(3);
/// The pause after an accept that failed: no descriptor is left, or the like.
const PAUSE: Duration = Duration::from_millis(50);

/// What a server is started with.
pub struct ServerOptions {
    /// The home of all workspaces.
    pub home: chronicle_core::Home,
    /// The roots of the workspaces that are served.
    pub roots: Vec<PathBuf>,
    /// Where a Unix socket is to listen.
    pub socket: Option<PathBuf>,
    /// Other users that may connect to it.
    pub allow_uids: Vec<u32>,
    /// Where WebSockets are accepted.
    pub websocket: Option<SocketAddr>,
    /// Further names of this server.
    pub hosts: Vec<String>,
    /// What it shows over TLS.
    pub identity: Option<Identity>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where events are written down.
    pub trace: Trace,
    /// What sessions allow.
    pub limits: Arc<Limits>,
    /// The logs that are shared with other hosts, one for each root, or none.
    pub shared: Vec<SharedSlot>,
}

/// Why a server could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The runtime could not start.
    #[error("Could not start the server")]
    Runtime(#[source] io::Error),
    /// An address is taken, or may not be.
    #[error("Could not listen at {0}")]
    Listen(String, #[source] io::Error),
    /// A workspace cannot be served.
    #[error(transparent)]
    Workspace(#[from] chronicle_core::Error),
}

/// Where a server listens, once it does.
#[derive(Debug, Clone, Default)]
pub struct Listening {
    /// The workspaces.
    pub workspaces: Vec<WorkspaceId>,
    /// Where WebSockets are accepted.
    pub websocket: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// Tells a server or a replica to end.
#[derive(Clone)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn stopped(&self) {
        let mut receiver = self.0.subscribe();
        // The sender is held here, so that waiting cannot fail.
        let _ = receiver.wait_for(|stop| *stop).await;
    }
}

/// Serves until it is told to stop; `ready` is told where.
pub fn serve(
    options: ServerOptions,
    stop: &Stop,
    ready: impl FnOnce(&Listening),
) -> Result<(), ServerError> {
    // A log that no thread took has a runtime of its own inside, which must not end within this one.
    let _kept = options.shared.clone();
    let runtime =
        Builder::new_current_thread().enable_all().build().map_err(ServerError::Runtime)?;
    let served = runtime.block_on(async {
        let (server, doors) = Server::open(options, &Handle::current()).await?;
        ready(&doors.listening);
        let server = Arc::new(server);
        doors.start(&server);
        stop.stopped().await;
        server.end().await;
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}

struct Server {
    hosts: HashMap<WorkspaceId, HostHandle>,
    tokens: Tokens,
    metrics: Arc<Metrics>,
    room: Room,
    strangers: Arc<Semaphore>,
    numbers: AtomicU64,
    identity: Option<Identity>,
    names: Option<Hosts>,
}

/// What listens.
#[derive(Default)]
struct Doors {
    unix: Option<Door>,
    websocket: Option<TcpListener>,
    metrics: Option<TcpListener>,
    listening: Listening,
}

impl Server {
    async fn open(options: ServerOptions, runtime: &Handle) -> Result<(Self, Doors), ServerError> {
        let metrics = Arc::new(Metrics::default());
        let mut doors = Doors::open(&options).await?;
        let mut hosts = HashMap::new();
        for (number, root) in options.roots.iter().enumerate() {
            let host = HostOptions {
                home: options.home.clone(),
                root: root.clone(),
                limits: Arc::clone(&options.limits),
                metrics: Arc::clone(&metrics),
                trace: options.trace.clone(),
                shared: options.shared.get(number).cloned(),
            };
            let handle = start(host, runtime)?;
            doors.listening.workspaces.push(handle.workspace);
            hosts.insert(handle.workspace, handle);
        }
        let names = doors.listening.websocket.map(|address| Hosts::new(address, &options.hosts));
        let server = Self {
            hosts,
            tokens: Tokens::of(&options.home),
            metrics,
            room: Room::new(ROOM),
            strangers: Arc::new(Semaphore::new(STRANGERS_MOST)),
            numbers: AtomicU64::new(1),
            identity: options.identity,
            names,
        };
        Ok((server, doors))
    }

    async fn end(&self) {
        for host in self.hosts.values() {
            host.stop().await;
        }
        for host in self.hosts.values() {
            let _ = timeout(LAST_PATIENCE, host.ended()).await;
        }
        // What was said last is still on its way out.
        tokio::time::sleep(PAUSE).await;
    }

    /// Hears somebody's first word and brings him to the workspace that he means.
    async fn welcome(self: &Arc<Self>, (mut from, to): (Receiver, Sender), came: Came) {
        let outbox = start_writing(to, Arc::clone(&self.metrics));
        let first = timeout(FIRST_PATIENCE, first_frame(&mut from)).await;
        let first = match first {
            Ok(Ok(Some(first))) => first,
            Ok(Err(_)) => {
                Metrics::add(&self.metrics.violations, 1);
                outbox.send(&refused(RefusedCode::Protocol, "That is no frame of this protocol"));
                return;
            }
            _ => return,
        };
        let Some(host) = self.host_of(&first, came) else {
            Metrics::add(&self.metrics.refused, 1);
            let words =
                "A token is needed, or the workspace is not served here: see chronicle serve";
            outbox.send(&refused(RefusedCode::Workspace, words));
            return;
        };
        let peer = self.numbers.fetch_add(1, Ordering::Relaxed);
        if !host.arrive(Arrival { peer, first, outbox, came }).await {
            return;
        }
        let (reader, metrics) = (host.clone(), Arc::clone(&self.metrics));
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&metrics));
        let reading = start_reading(from, INBOX_MOST, metrics, move |delivery| {
            let (host, _counted) = (reader.clone(), &counted);
            async move { host.deliver(peer, delivery).await }
        });
        host.reading(peer, reading).await;
    }

    /// The workspace that a first word is for: the named one, that of its token, or the only one.
    fn host_of(&self, first: &Frame, came: Came) -> Option<&HostHandle> {
        let any = || self.hosts.values().next();
        let Frame::Hello(hello) = first else { return any() };
        if let Some(workspace) = hello.workspace {
            // A stranger must not learn which workspaces there are: his token decides.
            return self.hosts.get(&workspace).or_else(|| self.by_token(hello)).or_else(any);
        }
        match came {
            Came::Socket(Visitor::Owner) if hello.token.is_empty() => {
                any().filter(|_| self.hosts.len() == 1)
            }
            _ => self.by_token(hello).or_else(any),
        }
    }

    fn by_token(&self, hello: &Hello) -> Option<&HostHandle> {
        let has = |host: &&HostHandle| {
            self.tokens.find(host.own, &hello.token).is_ok_and(|row| row.is_some())
        };
        self.hosts.values().find(has)
    }

    /// Shakes hands over TLS and WebSocket.
    async fn shake(&self, stream: Stream) -> io::Result<(Receiver, Sender)> {
        let shaking = async {
            let stream = match &self.identity {
                Some(identity) => identity.accept(stream).await?,
                None => stream,
            };
            let names = self.names.as_ref().expect("BUG: only with names is anybody accepted");
            websocket::accept(stream, names, FRAME_MAX).await
        };
        let socket = timeout(websocket::HANDSHAKE_PATIENCE, shaking).await;
        let socket = socket.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(link::of_websocket(socket, &self.room))
    }
}

/// Counts a connection for as long as it is read from.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refused(code: RefusedCode, words: &str) -> Frame {
    Frame::Refused(Refused { code, versions: Versions::OURS, words: words.to_owned() })
}

impl Doors {
    async fn open(options: &ServerOptions) -> Result<Self, ServerError> {
        let mut doors = Self::default();
        if let Some(path) = &options.socket {
            let failed = |error| ServerError::Listen(path.display().to_string(), error);
            doors.unix = Some(Door::open(path, &options.allow_uids).map_err(failed)?);
        }
        if let Some(address) = options.websocket {
            let (listener, bound) = listen(address).await?;
            (doors.websocket, doors.listening.websocket) = (Some(listener), Some(bound));
        }
        if let Some(address) = options.metrics {
            let (listener, bound) = listen(address).await?;
            (doors.metrics, doors.listening.metrics) = (Some(listener), Some(bound));
        }
        Ok(doors)
    }

    fn start(self, server: &Arc<Server>) {
        if let Some(door) = self.unix {
            tokio::spawn(accept_on_socket(door, Arc::clone(server)));
        }
        if let Some(listener) = self.websocket {
            tokio::spawn(accept_websockets(listener, Arc::clone(server)));
        }
        if let Some(listener) = self.metrics {
            tokio::spawn(metrics::serve(listener, Arc::clone(&server.metrics)));
        }
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |error| ServerError::Listen(address.to_string(), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn accept_on_socket(door: Door, server: Arc<Server>) {
    loop {
        let Ok(place) = Arc::clone(&server.strangers).acquire_owned().await else { return };
        let Ok((stream, visitor)) = door.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            let halves = link::of_stream(Box::new(stream), &server.room);
            server.welcome(halves, Came::Socket(visitor)).await;
            drop(place);
        });
    }
}

async fn accept_websockets(listener: TcpListener, server: Arc<Server>) {
    loop {
        let Ok(place) = Arc::clone(&server.strangers).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // A frame is sent whole, and waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            match server.shake(Box::new(stream)).await {
                Ok(halves) => server.welcome(halves, Came::WebSocket).await,
                Err(_) => Metrics::add(&server.metrics.refused, 1),
            }
            drop(place);
        });
    }
}
