//! The same frames over WebSocket: who may ask, and how much is taken.
//!
//! A page in somebody's browser can reach a server on loopback, and a name can be bound to its address; so
//! whoever sends an `Origin` is refused, and a `Host` must be one of ours. Tokens are in the first frame and
//! never in a URL, where they would be logged.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::link::Stream;

/// The path that is asked for.
pub const PATH: &str = "/replica";
/// How long the handshakes of TLS and WebSocket may take together.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Which names of this server a client may have used.
#[derive(Debug, Clone)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// The address itself, the names of loopback if it is that, and further ones.
    pub fn new(address: SocketAddr, further: &[String]) -> Self {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() {
            hosts.push(format!("localhost:{port}"));
        }
        for name in further {
            hosts.push(name.to_ascii_lowercase());
            hosts.push(format!("{}:{port}", name.to_ascii_lowercase()));
        }
        Self(hosts)
    }

    /// Why a request is refused, if it is.
    fn refuses(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        if headers.contains_key(header::ORIGIN) {
            return Some((StatusCode::FORBIDDEN, "No page of a browser has business here\n"));
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.map(str::to_ascii_lowercase);
        if !host.is_some_and(|host| self.0.contains(&host)) {
            return Some((StatusCode::FORBIDDEN, "This server has another name\n"));
        }
        if request.uri().query().is_some() {
            return Some((StatusCode::BAD_REQUEST, "Nothing is told in a URL\n"));
        }
        (request.uri().path() != PATH)
            .then_some((StatusCode::NOT_FOUND, "There is only /replica\n"))
    }
}

/// Takes little for a connection that is idle, and never more than one frame for one that is not.
fn config(most: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .max_write_buffer_size(most + (64 << 10))
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
}

/// The server's half of the handshake.
pub async fn accept(
    stream: Stream,
    hosts: &Hosts,
    most: usize,
) -> io::Result<WebSocketStream<Stream>> {
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let check = |request: &Request, response: Response| match hosts.refuses(request) {
        None => Ok(response),
        Some((status, words)) => {
            let mut refusal = ErrorResponse::new(Some(words.to_owned()));
            *refusal.status_mut() = status;
            Err(refusal)
        }
    };
    let shaking =
        tokio_tungstenite::accept_hdr_async_with_config(stream, check, Some(config(most)));
    let shaken = timeout(HANDSHAKE_PATIENCE, shaking).await;
    shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(io::Error::other)
}

/// The client's half of it, on a stream that leads to the server already.
pub async fn connect(
    url: &str,
    stream: Stream,
    most: usize,
) -> io::Result<WebSocketStream<Stream>> {
    let request = url.into_client_request().map_err(io::Error::other)?;
    let shaking = tokio_tungstenite::client_async_with_config(request, stream, Some(config(most)));
    let shaken = timeout(HANDSHAKE_PATIENCE, shaking).await;
    let (socket, _) =
        shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(io::Error::other)?;
    Ok(socket)
}

/// A URL of a host: `ws://name[:port]` or `wss://name[:port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether TLS is spoken.
    pub secure: bool,
    /// The name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The whole of it, with the path that is asked for.
    pub text: String,
}

impl Url {
    /// Reads one; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (secure, rest) = match text.split_once("://") {
            Some(("ws", rest)) => (false, rest),
            Some(("wss", rest)) => (true, rest),
            _ => return Err(format!("{text:?} begins with neither ws:// nor wss://")),
        };
        if rest.contains(['?', '#', '@']) {
            return Err("Nothing secret belongs into a URL: give the token in a file".to_owned());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() && format!("/{path}") != PATH {
            return Err(format!("Only {PATH} is served, and not /{path}"));
        }
        let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(format!("{text:?} names no host"));
        }
        let port = match port {
            None if secure => 443,
            None => 80,
            Some(port) => port.parse().map_err(|_| format!("{port:?} is no port"))?,
        };
        let scheme = if secure { "wss" } else { "ws" };
        let text = format!("{scheme}://{authority}{PATH}");
        Ok(Self { secure, host: host.to_owned(), port, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, secure: bool, host: &str, port: u16) {
        let url = Url::parse(text).expect(text);
        assert_eq!((url.secure, &url.host[..], url.port), (secure, host, port));
        assert!(url.text.ends_with(PATH), "{}", url.text);
    }

    #[test]
    fn urls_name_a_host_and_nothing_secret() {
        check("ws://localhost:7", false, "localhost", 7);
        check("wss://a.example", true, "a.example", 443);
        check("ws://[::1]:9/replica", false, "::1", 9);
        check("ws://10.0.0.1/", false, "10.0.0.1", 80);
        for bad in [
            "http://a",
            "ws://",
            "ws://a:b",
            "ws://a:70000",
            "ws://a/other",
            "wss://u:p@a",
            "ws://a?token=x",
        ] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }

    #[track_caller]
    fn asked(headers: &[(&str, &str)], uri: &str) -> Option<u16> {
        let address = "127.0.0.1:99".parse().expect("an address");
        let hosts = Hosts::new(address, &["Build.example".to_owned()]);
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        hosts.refuses(&request).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn foreign_pages_and_names_are_refused() {
        assert_eq!(asked(&[("host", "127.0.0.1:99")], "/replica"), None);
        assert_eq!(asked(&[("host", "LOCALHOST:99")], "/replica"), None);
        assert_eq!(asked(&[("host", "build.example")], "/replica"), None);
        assert_eq!(asked(&[("host", "evil.example:99")], "/replica"), Some(403));
        assert_eq!(asked(&[], "/replica"), Some(403));
        assert_eq!(asked(&[("host", "127.0.0.1:99")], "/other"), Some(404));
        assert_eq!(asked(&[("host", "127.0.0.1:99")], "/replica?token=1"), Some(400));
        for origin in ["null", "http://evil.example", "http://127.0.0.1:99"] {
            let headers = [("host", "127.0.0.1:99"), ("origin", origin)];
            assert_eq!(asked(&headers, "/replica"), Some(403));
        }
    }
}
