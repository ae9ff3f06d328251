//! Streamable HTTP on loopback: who may connect, and what every request must show.
//!
//! Three things stand between a page in the owner's browser and the tools: the bearer token, a
//! `Host` that must be this loopback address (a name rebound to it is refused), and the refusal of
//! every request with an `Origin`, since no browser has business here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::Service as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::server::Server;

/// The one path that is served.
pub(crate) const PATH: &str = "/mcp";
/// How many connections are served at once; the next ones wait.
const CONNECTIONS_MOST: usize = 32;
/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// The largest request: arguments are small.
const REQUEST_MOST: usize = 1 << 20;

/// An address that others than this machine could reach.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a loopback address: the server would be open to other machines")]
pub struct NotLoopback(pub SocketAddr);

/// Refuses every address but loopback.
pub fn loopback(address: SocketAddr) -> Result<SocketAddr, NotLoopback> {
    if address.ip().is_loopback() { Ok(address) } else { Err(NotLoopback(address)) }
}

type Answered = Response<BoxBody<Bytes, Infallible>>;
type Inner = TowerToHyperService<StreamableHttpService<Server, NeverSessionManager>>;

/// What every request passes through.
struct Gate {
    inner: Inner,
    token: blake3::Hash,
}

impl Gate {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answered, Infallible> {
        if !self.knows_token(&request) {
            let mut refused = refused(StatusCode::UNAUTHORIZED, "A bearer token is needed\n");
            let challenge = header::HeaderValue::from_static("Bearer");
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            return Ok(refused);
        }
        if request.uri().path() != PATH {
            return Ok(refused(StatusCode::NOT_FOUND, "There is only /mcp\n"));
        }
        self.inner.call(request).await
    }

    /// Compares hashes, so that the time it takes says nothing about the token.
    fn knows_token<B>(&self, request: &Request<B>) -> bool {
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        given.is_some_and(|token| blake3::hash(token) == self.token)
    }
}

fn refused(status: StatusCode, words: &'static str) -> Answered {
    let mut response = Response::new(Full::new(Bytes::from_static(words.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

/// Answers requests for as long as it is polled.
///
/// Without sessions of the protocol: nothing here needs them, so no client can pile them up.
pub(crate) async fn serve(
    server: Server,
    listener: TcpListener,
    token: &str,
) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let hosts = [address.to_string(), format!("localhost:{}", address.port())];
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .enforce_origin_validation()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(REQUEST_MOST);
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
    let token = blake3::hash(token.as_bytes());
    let gate = Arc::new(Gate { inner: TowerToHyperService::new(service), token });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            // A client that went away, or no descriptor left: neither is the end.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            converse(stream, gate).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, gate: Arc<Gate>) {
    let service = hyper::service::service_fn(move |request| {
        let gate = Arc::clone(&gate);
        async move { gate.answer(request).await }
    });
    let conversation = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // A broken connection is its client's trouble; there is nobody to tell.
    let _ = conversation.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_served() {
        for good in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8080"] {
            assert!(loopback(good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:80", "192.168.1.2:80", "[::]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(loopback(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
