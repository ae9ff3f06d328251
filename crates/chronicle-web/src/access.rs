//! Who asks, and what that one may do.
//!
//! Three ways in: a token in a header (programs), a cookie (the page), and the Unix socket, whose
//! peer the kernel names. Only hashes are compared, so that the time it takes says nothing.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::Serialize;

use crate::token;

/// How long a link can be opened.
const LINK_LIFE: Duration = Duration::from_secs(15 * 60);
/// How long a browser stays signed in.
const SESSION_LIFE: Duration = Duration::from_secs(24 * 3600);
/// How many browsers are signed in at once; the oldest gives way.
const SESSIONS_MOST: usize = 64;
/// How long one that was wrong has to wait, all of them together.
const WRONG_PAUSE: Duration = Duration::from_millis(300);

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// See everything but secrets.
    Look,
    /// Record, and take back.
    Rewind,
}

/// By what somebody showed who he is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A token in a header, which no other page can send.
    Token,
    /// A cookie, which a browser sends by itself.
    Cookie,
    /// The socket.
    Socket,
}

/// Somebody who is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) right: Right,
    pub(crate) by: By,
}

/// A secret that holds for a while.
struct Held {
    secret: blake3::Hash,
    right: Right,
    until: Instant,
}

/// The secrets that count.
pub(crate) struct Access {
    look: blake3::Hash,
    rewind: blake3::Hash,
    /// The most that anybody may do.
    most: Right,
    cookie: String,
    links: Mutex<Vec<Held>>,
    sessions: Mutex<Vec<Held>>,
}

fn hash(secret: &str) -> blake3::Hash {
    blake3::hash(secret.as_bytes())
}

fn held(list: &Mutex<Vec<Held>>) -> MutexGuard<'_, Vec<Held>> {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|held| held.until > Instant::now());
    list
}

impl Access {
    /// The tokens of a home; `port` keeps the cookies of several servers apart.
    pub(crate) fn new(look: &str, rewind: &str, most: Right, port: u16) -> Self {
        Self {
            look: hash(look),
            rewind: hash(rewind),
            most,
            cookie: format!("chronicle_{port}"),
            links: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    /// A secret that lets one browser in, once.
    pub(crate) fn link(&self) -> io::Result<String> {
        let code = token::random()?;
        let until = Instant::now() + LINK_LIFE;
        held(&self.links).push(Held { secret: hash(&code), right: self.most, until });
        Ok(code)
    }

    /// Exchanges the code of a link, or a token, for a session: the cookie, and what it may do.
    pub(crate) fn sign_in(&self, secret: &str) -> io::Result<Option<(String, Right)>> {
        let given = hash(secret);
        let mut links = held(&self.links);
        let link = links.iter().position(|held| held.secret == given);
        let right = match link {
            Some(index) => Some(links.remove(index).right),
            None => self.token_right(secret),
        };
        drop(links);
        let Some(right) = right else {
            std::thread::sleep(WRONG_PAUSE);
            return Ok(None);
        };
        let session = token::random()?;
        let until = Instant::now() + SESSION_LIFE;
        let mut sessions = held(&self.sessions);
        if sessions.len() >= SESSIONS_MOST {
            sessions.remove(0);
        }
        sessions.push(Held { secret: hash(&session), right, until });
        Ok(Some((self.set_cookie(&session, SESSION_LIFE), right)))
    }

    /// Forgets a session; the cookie that makes the browser forget it too.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) -> String {
        if let Some(session) = self.session(headers) {
            held(&self.sessions).retain(|held| held.secret != hash(session));
        }
        self.set_cookie("", Duration::ZERO)
    }

    fn set_cookie(&self, value: &str, life: Duration) -> String {
        let (name, seconds) = (&self.cookie, life.as_secs());
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict")
    }

    fn session<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut pairs =
            cookies.flat_map(|line| line.split("; ")).filter_map(|it| it.split_once('='));
        pairs.find(|(name, _)| *name == self.cookie).map(|(_, value)| value)
    }

    fn token_right(&self, token: &str) -> Option<Right> {
        let given = hash(token);
        let rights = [(self.rewind, Right::Rewind), (self.look, Right::Look)];
        let right = rights.into_iter().find(|(secret, _)| *secret == given)?.1;
        Some(right.min(self.most))
    }

    /// Who sent these headers, over TCP.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            let token = given.to_str().ok()?.strip_prefix("Bearer ")?;
            return self.token_right(token).map(|right| Caller { right, by: By::Token });
        }
        let given = hash(self.session(headers)?);
        let sessions = held(&self.sessions);
        let found = sessions.iter().find(|held| held.secret == given)?;
        Some(Caller { right: found.right, by: By::Cookie })
    }

    /// Who is at the other end of the socket: the owner himself.
    pub(crate) fn owner(&self) -> Caller {
        Caller { right: self.most, by: By::Socket }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_link_opens_once_and_a_token_has_its_right() {
        let access = Access::new("look-secret", "rewind-secret", Right::Rewind, 80);
        let code = access.link().unwrap();
        let (cookie, right) = access.sign_in(&code).unwrap().unwrap();
        assert_eq!(right, Right::Rewind);
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        assert!(access.sign_in(&code).unwrap().is_none());
        let headers = with(header::COOKIE, &format!("x=1; {}", cookie.split(';').next().unwrap()));
        assert_eq!(access.caller(&headers).unwrap().by, By::Cookie);
        access.sign_out(&headers);
        assert!(access.caller(&headers).is_none());
        let caller = |token: &str| access.caller(&with(header::AUTHORIZATION, token));
        assert_eq!(caller("Bearer look-secret").unwrap().right, Right::Look);
        assert_eq!(caller("Bearer rewind-secret").unwrap().right, Right::Rewind);
        assert!(caller("Bearer other").is_none() && caller("rewind-secret").is_none());
    }

    #[test]
    fn a_server_for_looking_gives_nobody_more() {
        let access = Access::new("l", "r", Right::Look, 80);
        let headers = with(header::AUTHORIZATION, "Bearer r");
        assert_eq!(access.caller(&headers).unwrap().right, Right::Look);
        assert_eq!(access.owner().right, Right::Look);
    }
}
