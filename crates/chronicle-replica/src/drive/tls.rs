//! TLS for WebSockets: a certificate and its key from files, the roots of the system or one that was named.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::link::Stream;

/// What a server shows to its clients.
#[derive(Clone)]
pub struct Identity(TlsAcceptor);

impl Identity {
    /// Reads a certificate with its chain, and its key, both PEM.
    pub fn read(certificate: &Path, key: &Path) -> io::Result<Self> {
        // A key that everybody can read is nobody's.
        if std::fs::metadata(key)?.mode() & 0o007 != 0 {
            let words = format!("everybody can read {}: make it 0600", key.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
        }
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(io::Error::other)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The server's half of the handshake.
    pub async fn accept(&self, stream: Stream) -> io::Result<Stream> {
        Ok(Box::new(self.0.accept(stream).await?))
    }
}

/// Whom a client believes.
#[derive(Clone)]
pub struct Trust(TlsConnector);

impl Trust {
    /// The system's roots, or only the certificates in a file.
    pub fn read(only: Option<&Path>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let found = match only {
            Some(file) => certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(found);
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// The client's half of the handshake with a server of that name.
    pub async fn connect(&self, host: &str, stream: Stream) -> io::Result<Stream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(self.0.connect(name, stream).await?))
    }
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(io::Error::other)?;
    if found.is_empty() {
        let words = format!("{} holds no certificate", file.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(found)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
