//! Runs the server until it is told to end: the only place that makes a runtime.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::Home;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::access::{Access, Right};
use crate::gate::Door;
use crate::site::{Ground, Site};
use crate::token;

/// How many connections are served at once; the next ones wait.
const CONNECTIONS_MOST: usize = 96;
/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// How long after an error of the system the next client is asked for.
const PAUSE: Duration = Duration::from_millis(50);
/// How many threads work that block; streams of content take one each.
const THREADS_MOST: usize = 24;

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where history lies.
    pub home: Home,
    /// The directory whose workspace the page opens with.
    pub directory: PathBuf,
    /// Whether nothing may be changed or recorded (`CHRONICLE=off`).
    pub off: bool,
    /// Whether nobody gets more than the right to look.
    pub read_only: bool,
    /// The address; port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// Other machines may reach it: said by a person who knows what that means.
    pub exposed: bool,
    /// Further names by which it may be called.
    pub hosts: Vec<String>,
    /// A Unix socket for the owner's programs.
    pub socket: Option<PathBuf>,
}

/// What clients need to know.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The address that is listened on.
    pub address: Option<SocketAddr>,
    /// The page, with a code in its fragment that lets one browser in, once.
    pub link: Option<String>,
    /// The socket.
    pub socket: Option<PathBuf>,
    /// The file with the token for looking.
    pub look_token: PathBuf,
    /// The file with the token for taking back.
    pub rewind_token: PathBuf,
}

/// Why the server could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines could reach the address.
    #[error("{0} is not a loopback address: other machines could reach the server, without TLS")]
    NotLoopback(SocketAddr),
    /// Neither an address nor a socket was given.
    #[error("There is nowhere to listen")]
    Nowhere,
    /// The runtime could not start.
    #[error("Could not start the server")]
    Runtime(#[source] std::io::Error),
    /// The address or the socket is taken, or may not be.
    #[error("Could not listen on {0}")]
    Listen(String, #[source] std::io::Error),
    /// A token's file is not there and cannot be made, or is open to others.
    #[error("Could not use the tokens in {}", .0.display())]
    Token(PathBuf, #[source] std::io::Error),
}

/// Serves until the process ends; `ready` is told where. Whatever is under way then is finished or
/// discarded by whoever opens the workspace next, as after any other end.
pub fn serve(options: Options, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    if let Some(address) = options.listen
        && !address.ip().is_loopback()
        && !options.exposed
    {
        return Err(ServeError::NotLoopback(address));
    }
    runtime()?.block_on(listen(options, ready))
}

/// One thread for the conversations, and some for the work.
fn runtime() -> Result<Runtime, ServeError> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(THREADS_MOST);
    builder.build().map_err(ServeError::Runtime)
}

async fn listen(options: Options, ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    let home = token::directory(&options.home);
    let failed = |source| ServeError::Token(home.clone(), source);
    token::make_directory(&options.home).map_err(failed)?;
    let (look_token, rewind_token) = (home.join("look-token"), home.join("rewind-token"));
    let look = token::read_or_make(&look_token).map_err(failed)?;
    let rewind = token::read_or_make(&rewind_token).map_err(failed)?;
    let net = bind(options.listen).await?;
    let socket = options.socket.as_deref().map(bind_socket).transpose()?;
    if net.is_none() && socket.is_none() {
        return Err(ServeError::Nowhere);
    }
    let unused = SocketAddr::from(([127, 0, 0, 1], 0));
    let address = net.as_ref().and_then(|net| net.local_addr().ok());
    let most = if options.read_only { Right::Look } else { Right::Rewind };
    let access = Access::new(&look, &rewind, most, address.map_or(0, |address| address.port()));
    let code = access.link().map_err(failed)?;
    let site = Arc::new(Site::new(Ground {
        home: options.home,
        directory: options.directory,
        off: options.off,
        access,
        address: address.unwrap_or(unused),
        hosts: options.hosts,
        answers: home.join("answers"),
    }));
    ready(&Ready {
        address,
        link: address.map(|address| format!("http://{address}/#code={code}")),
        socket: options.socket.clone(),
        look_token,
        rewind_token,
    });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MOST));
    tokio::select! {
        () = accept_net(net, &site, &places) => {}
        () = accept_socket(socket, &site, &places) => {}
    }
    Ok(())
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |source| ServeError::Listen(address.to_string(), source);
    TcpListener::bind(address).await.map(Some).map_err(failed)
}

/// Listens on a socket for its owner alone; one that nobody listens on any more is replaced.
fn bind_socket(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Listen(path.display().to_string(), source);
    if let Ok(found) = std::fs::symlink_metadata(path) {
        let own = found.uid() == rustix::process::geteuid().as_raw();
        let dead =
            found.file_type().is_socket() && std::os::unix::net::UnixStream::connect(path).is_err();
        if !own || !dead {
            return Err(failed(std::io::Error::other("something is there already")));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = bound.map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

async fn accept_net(listener: Option<TcpListener>, site: &Arc<Site>, places: &Arc<Semaphore>) {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let site = Arc::clone(site);
                tokio::spawn(async move {
                    converse(stream, site, Door::Net).await;
                    drop(place);
                });
            }
            // A client that went away, or no descriptor left: neither is the end.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn accept_socket(listener: Option<UnixListener>, site: &Arc<Site>, places: &Arc<Semaphore>) {
    let Some(listener) = listener else { return std::future::pending().await };
    let own = rustix::process::geteuid().as_raw();
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return };
        match listener.accept().await {
            // The mode of the socket keeps others out, but for those who open any file.
            Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| peer.uid() == own) => {
                let site = Arc::clone(site);
                tokio::spawn(async move {
                    converse(stream, site, Door::Socket).await;
                    drop(place);
                });
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>, door: Door) {
    let service = hyper::service::service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, std::convert::Infallible>(site.answer(request, door).await) }
    });
    let conversation = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // A broken connection is its client's trouble; there is nobody to tell.
    let _ = conversation.await;
}
