//! What every request must pass: the name it was sent to, and the page it was sent from.
//!
//! A name that was bound anew to this address is refused by `Host`; another page by `Origin` and by
//! what browsers say of where a request comes from.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, header};

use crate::problem::Problem;

/// The header that a page of another origin cannot send without being asked for it first.
pub(crate) const OWN_HEADER: &str = "x-chronicle";

/// Through which door a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// TCP: whoever reaches the address.
    Net,
    /// The Unix socket: the owner.
    Socket,
}

/// The names under which this server may be called.
pub(crate) struct Gate {
    hosts: Vec<String>,
}

impl Gate {
    /// The address itself, `localhost` where it is loopback, and what else was said.
    pub(crate) fn new(address: SocketAddr, named: &[String]) -> Self {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() || address.ip().is_unspecified() {
            hosts.extend([format!("localhost:{port}"), format!("127.0.0.1:{port}")]);
        }
        for name in named {
            hosts.extend([
                name.to_ascii_lowercase(),
                format!("{}:{port}", name.to_ascii_lowercase()),
            ]);
        }
        Self { hosts }
    }

    /// Refuses what was sent to another name or from another page.
    pub(crate) fn pass(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
        let known = |host: &HeaderValue| {
            let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
            self.hosts.contains(&host)
        };
        if !matches!(hosts[..], [host] if known(host)) {
            return Err(Problem::not_allowed("This server is not called by that name").hinted(
                "Use the address that chronicle web printed, or name it with: --host NAME",
            ));
        }
        if headers.get_all(header::ORIGIN).iter().any(|origin| !self.is_own(origin)) {
            return Err(Problem::not_allowed("Another page sent this request"));
        }
        match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            // A link on another page may lead to ours; nothing else of ours is for other pages.
            Some(_) if headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate") => {
                Ok(())
            }
            Some(_) => Err(Problem::not_allowed("Another page sent this request")),
        }
    }

    fn is_own(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default();
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| self.hosts.iter().any(|known| known == host))
    }
}

/// Puts what keeps a page harmless on every answer.
pub(crate) fn protect(headers: &mut HeaderMap) {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                  connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    let more = [
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ];
    for (name, value) in more {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;

    fn check(pairs: &[(&'static str, &'static str)], passes: bool) {
        let gate = Gate::new("127.0.0.1:8080".parse().unwrap(), &["box.example".to_owned()]);
        let headers = pairs.iter().map(|(name, value)| {
            (name.parse::<header::HeaderName>().unwrap(), HeaderValue::from_static(value))
        });
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| _ = map.append(name, value));
        assert_eq!(gate.pass(&map).is_ok(), passes, "{pairs:?}");
    }

    #[test]
    fn only_our_own_names_and_pages_pass() {
        check(&[("host", "127.0.0.1:8080")], true);
        check(&[("host", "LOCALHOST:8080")], true);
        check(&[("host", "box.example:8080")], true);
        check(&[("host", "evil.example:8080")], false);
        check(&[("host", "127.0.0.1:8081")], false);
        check(&[], false);
        check(&[("host", "127.0.0.1:8080"), ("host", "localhost:8080")], false);
        let own = ("host", "127.0.0.1:8080");
        check(&[own, ("origin", "http://127.0.0.1:8080")], true);
        check(&[own, ("origin", "http://127.0.0.1:9999")], false);
        check(&[own, ("origin", "null")], false);
        check(&[own, ("sec-fetch-site", "same-origin")], true);
        check(&[own, ("sec-fetch-site", "same-site")], false);
        check(&[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true);
        check(&[own, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], false);
    }
}
