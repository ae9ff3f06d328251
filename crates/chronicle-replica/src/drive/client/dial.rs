//! Reaching the host.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use chronicle_core::WorkspaceId;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::super::connection::first_frame;
use super::super::link::{self, Receiver, Room, Sender, Stream};
use super::super::server::Stop;
use super::super::tls::Trust;
use super::super::unix;
use super::super::websocket::{self, Url};
use crate::limits::FRAME_MAX;
use crate::wire::{Frame, Goodbye, Hello, ReplicaId, Versions, encode};

/// How long connecting may take, handshakes included.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where the host is.
#[derive(Clone)]
pub enum Target {
    /// At a Unix socket of this machine.
    Socket(PathBuf),
    /// At a URL.
    WebSocket {
        /// Which.
        url: Url,
        /// Whom to believe.
        trust: Option<Trust>,
    },
}

impl Target {
    /// What people call it.
    pub fn words(&self) -> String {
        match self {
            Self::Socket(path) => path.display().to_string(),
            Self::WebSocket { url, .. } => url.text.clone(),
        }
    }

    /// Connects to it.
    pub(super) async fn dial(&self, room: &Room) -> io::Result<(Receiver, Sender)> {
        let dialing = async {
            match self {
                Self::Socket(path) => {
                    let stream = unix::connect(path).await?;
                    Ok(link::of_stream(Box::new(stream), room))
                }
                Self::WebSocket { url, trust } => {
                    let stream = TcpStream::connect((&url.host[..], url.port)).await?;
                    // A frame is sent whole, and waiting for more would only delay it.
                    let _ = stream.set_nodelay(true);
                    let mut stream: Stream = Box::new(stream);
                    if let Some(trust) = trust {
                        stream = trust.connect(&url.host, stream).await?;
                    }
                    let socket = websocket::connect(&url.text, stream, FRAME_MAX).await?;
                    Ok(link::of_websocket(socket, room))
                }
            }
        };
        timeout(PATIENCE, dialing).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// What a host said to a first word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It serves this workspace, and lets us in.
    Workspace(WorkspaceId),
    /// It does not let us in, with these words.
    Refused(String),
    /// It cannot be reached, or does not speak our protocol.
    Failed(String),
    /// Somebody stopped it.
    Stopped,
}

/// Asks a host which workspace it serves, before there is a replica.
pub fn ask(
    target: &Target,
    token: &[u8],
    name: &str,
    workspace: Option<WorkspaceId>,
    stop: &Stop,
) -> Asked {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Asked::Failed(error.to_string()),
    };
    let hello = Hello {
        versions: Versions::OURS,
        features: 0,
        token: token.to_vec(),
        workspace,
        replica: ReplicaId(chronicle_core::ReplicaId::random().0),
        name: name.to_owned(),
        place: None,
        answered: 0,
        folds_names: false,
    };
    let asking = async {
        let (mut from, mut to) = target.dial(&Room::new(1 << 20)).await?;
        to.send(encode(&Frame::Hello(hello)).into()).await?;
        let first = timeout(PATIENCE, first_frame(&mut from)).await;
        let first = first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        to.send(encode(&Frame::Goodbye(Goodbye { words: String::new() })).into()).await?;
        to.close().await;
        Ok::<_, io::Error>(first)
    };
    runtime.block_on(async {
        tokio::select! {
            () = stop.stopped() => Asked::Stopped,
            first = asking => match first {
                Ok(Some(Frame::Welcome(welcome))) => Asked::Workspace(welcome.workspace),
                Ok(Some(Frame::Refused(refused))) => Asked::Refused(refused.words),
                Ok(_) => Asked::Failed("it does not speak this protocol".to_owned()),
                Err(error) => Asked::Failed(error.to_string()),
            },
        }
    })
}
