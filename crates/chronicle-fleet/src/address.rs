//! Where the server is, how it is reached, and what of that people may see.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::{Error, Result};
use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long connecting may take, and how long a link may be dead before it is given up.
const LINK: Duration = Duration::from_secs(5);
/// What each session is set to: a host that is stopped in the middle of a commit must not hold up the others.
const SESSION: &str = "set idle_in_transaction_session_timeout = '5s'; set statement_timeout = '30s'; \
     set lock_timeout = '10s'; set client_min_messages = warning; \
     select set_config('synchronous_commit', 'on', false) \
     where current_setting('synchronous_commit') = 'off'";

/// A PostgreSQL server and a database there, as a URL names them.
#[derive(Clone)]
pub struct Address {
    config: Config,
    shown: String,
}

impl Address {
    /// Reads `postgres://USER@HOST:PORT/DATABASE`. A password may come from `password` instead, so that no list of
    /// processes shows it. Other machines are reached over TLS, unless the URL says `sslmode=disable`.
    pub fn parse(url: &str, password: Option<&str>) -> Result<Self> {
        let wrong = |why: &str| Error::Usage(format!("The address of the shared log {why}"));
        if !is_address(url) {
            return Err(wrong("does not begin with postgres://"));
        }
        let mut config: Config = url
            .parse()
            .map_err(|error: postgres::Error| wrong(&format!("makes no sense: {error}")))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("names no host"));
        }
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        if config.get_ssl_mode() == SslMode::Prefer {
            let near = config.get_hosts().iter().all(is_near);
            config.ssl_mode(if near { SslMode::Disable } else { SslMode::Require });
        }
        config.connect_timeout(LINK).tcp_user_timeout(LINK).keepalives_idle(LINK);
        config.application_name("chronicle");
        let shown = shown(&config);
        Ok(Self { config, shown })
    }

    /// The address without user and password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn connect(&self) -> std::result::Result<Client, postgres::Error> {
        let mut client = match self.config.get_ssl_mode() {
            SslMode::Disable => self.config.connect(NoTls)?,
            _ => self.config.connect(connector())?,
        };
        client.batch_execute(SESSION)?;
        Ok(client)
    }
}

/// Whether a text is meant to be such an address.
fn is_address(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Whether nobody is on the way to it but this machine.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

fn shown(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let hosts: Vec<_> = config.get_hosts().iter().map(host).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", hosts.join(","))
}

/// TLS that believes whom this machine believes.
fn connector() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be read vouches for nobody.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("BUG: ring knows the usual versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
    use super::*;

    #[test]
    fn nobody_sees_a_password_and_other_machines_are_reached_over_tls() {
        let far = Address::parse("postgres://me:word@db.example:5433/fleet", None).unwrap();
        assert_eq!(far.shown(), "postgres://db.example/fleet");
        assert_eq!(far.config.get_ssl_mode(), SslMode::Require);
        let near = Address::parse("postgresql://me@127.0.0.1/fleet", Some("word")).unwrap();
        assert_eq!(near.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(near.config.get_password(), Some(&b"word"[..]));
        let said = Address::parse("postgres://me@db.example/f?sslmode=disable", None).unwrap();
        assert_eq!(said.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for url in ["mysql://me:word@h/d", "postgres://", "postgres://me:word@h:port/d", ""] {
            let refused = Address::parse(url, None).map(|_| ()).unwrap_err().to_string();
            assert!(!refused.contains("word"), "{refused}");
        }
    }
}
