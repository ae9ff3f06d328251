//! Where a bucket is and with which credentials: from a URL, the environment and explicit options.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::ClientOptions;
use object_store::{BackoffConfig, RetryConfig, StaticCredentialProvider};

use crate::answer::Noting;
use crate::bucket::check_key;
use crate::error::{Cause, Failure};
use crate::patience::Patience;

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How to reach a bucket; what is `None` is taken from the environment if that is asked for.
#[derive(Clone, Default)]
pub struct BucketOptions {
    /// The server, such as `https://s3.example.org`; without one it is AWS.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// The public half of the credentials; with it, none of them is taken from the environment.
    pub access_key: Option<String>,
    /// The secret half.
    pub secret_key: Option<String>,
    /// The token of credentials that expire.
    pub session_token: Option<String>,
    /// Takes what is missing above from the usual `AWS_*` variables.
    pub environment: bool,
    /// Sends requests unencrypted to a server that is not this machine.
    pub allow_http: bool,
    /// Asks the machine that this one runs on for credentials, where there are no others.
    pub instance_credentials: bool,
    /// How long to try.
    pub patience: Patience,
}

impl std::fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, region, .. } = self;
        f.debug_struct("BucketOptions").field("endpoint", endpoint).field("region", region).finish()
    }
}

impl BucketOptions {
    /// Everything from the usual `AWS_*` variables.
    pub fn from_environment() -> Self {
        Self { environment: true, ..Self::default() }
    }

    pub(crate) fn connect(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, Failure> {
        // An application that chose another provider keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = self.builder().with_bucket_name(bucket);
        self.check(&builder)?;
        let endpoint = endpoint(&builder).unwrap_or_default();
        // Every bound is the attempt's, which knows how many bytes it moves.
        let client = ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT)
            .with_allow_http(self.allow_http || is_loopback(&endpoint));
        let once = RetryConfig {
            max_retries: 0,
            retry_timeout: Duration::ZERO,
            backoff: BackoffConfig::default(),
        };
        let store = builder
            .with_client_options(client)
            .with_retry(once)
            .with_http_connector(Noting::default())
            // Not every server has the request that deletes many.
            .with_disable_bulk_delete(true)
            .build();
        let store = store.map_err(|error| Failure::new(Cause::Usage, error.to_string()))?;
        Ok(Arc::new(store))
    }

    fn builder(&self) -> AmazonS3Builder {
        let builder = match self.environment {
            true => AmazonS3Builder::from_env(),
            false => AmazonS3Builder::new(),
        };
        let explicit = [
            (AmazonS3ConfigKey::S3Endpoint, &self.endpoint),
            (AmazonS3ConfigKey::Region, &self.region),
        ];
        let builder = explicit.into_iter().fold(builder, |builder, (name, value)| match value {
            Some(value) => builder.with_config(name, value),
            None => builder,
        });
        match &self.access_key {
            Some(key_id) => builder.with_credentials(Arc::new(self.own_credentials(key_id))),
            None => builder,
        }
    }

    /// Explicit credentials are taken whole: a token from the environment belongs to another key.
    fn own_credentials(&self, key_id: &str) -> StaticCredentialProvider<AwsCredential> {
        StaticCredentialProvider::new(AwsCredential {
            key_id: key_id.to_owned(),
            secret_key: self.secret_key.clone().unwrap_or_default(),
            token: self.session_token.clone(),
        })
    }

    /// Says at once what would else be said by a server, or only after waiting for one.
    fn check(&self, builder: &AmazonS3Builder) -> Result<(), Failure> {
        let endpoint = endpoint(builder).unwrap_or_default();
        let plain = endpoint.starts_with("http://");
        if plain && !self.allow_http && !is_loopback(&endpoint) {
            let why = format!("{endpoint} is not encrypted and not this machine");
            return Err(Failure::new(Cause::Usage, why));
        }
        let sources = [
            AmazonS3ConfigKey::AccessKeyId,
            AmazonS3ConfigKey::WebIdentityTokenFile,
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ];
        if self.access_key.is_some() != self.secret_key.is_some() {
            return Err(Failure::new(Cause::Credentials, "one half of them is not there"));
        }
        let has_source = self.access_key.is_some()
            || sources.iter().any(|source| builder.get_config_value(source).is_some());
        if !has_source && !self.instance_credentials {
            return Err(Failure::new(Cause::Credentials, "there are none"));
        }
        Ok(())
    }
}

fn endpoint(builder: &AmazonS3Builder) -> Option<String> {
    let value = |name| builder.get_config_value(&name);
    value(AmazonS3ConfigKey::S3Endpoint).or_else(|| value(AmazonS3ConfigKey::Endpoint))
}

fn is_loopback(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<std::net::IpAddr>();
    // Whoever hides a host behind a name for a user means no good.
    !authority.contains('@')
        && (host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}

/// The bucket and the prefix of `s3://bucket/prefix`.
pub(crate) fn parse_url(url: &str) -> Result<(String, String), Failure> {
    let usage = |why: &str| Failure::new(Cause::Usage, why);
    let rest = url.strip_prefix("s3://").ok_or_else(|| usage("a URL begins with s3://"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(good) {
        return Err(usage("a bucket has 3 to 63 letters, digits, dots and hyphens"));
    }
    if !prefix.is_empty() {
        check_key(prefix)?;
    }
    Ok((bucket.to_owned(), prefix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_a_bucket_and_a_prefix() {
        let parsed = |url| parse_url(url).ok();
        let expected = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(parsed("s3://bucket"), expected("bucket", ""));
        assert_eq!(parsed("s3://bucket/"), expected("bucket", ""));
        assert_eq!(parsed("s3://bucket/a/b/"), expected("bucket", "a/b"));
        for bad in
            ["bucket", "s3://", "s3://b", "s3://bu cket", "s3://bucket/../a", "s3://bucket//a"]
        {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_this_machine_is_spoken_to_unencrypted() {
        let yes = ["http://localhost:9000", "http://127.0.0.1", "http://[::1]:9000/x"];
        assert!(yes.into_iter().all(is_loopback));
        let no = [
            "http://example.org",
            "http://localhost.example.org",
            "http://localhost@example.org",
            "http://127.0.0.1.example.org",
            "https://localhost",
        ];
        assert!(!no.into_iter().any(is_loopback));
        let options = BucketOptions {
            endpoint: Some("http://example.org".to_owned()),
            access_key: Some("a".to_owned()),
            secret_key: Some("b".to_owned()),
            ..BucketOptions::default()
        };
        assert_eq!(
            options.connect("bucket").err().map(|failure| failure.cause),
            Some(Cause::Usage)
        );
        let told = BucketOptions { allow_http: true, ..options };
        assert!(told.connect("bucket").is_ok());
    }

    #[test]
    fn no_credentials_are_said_before_anything_is_sent() {
        let failure = BucketOptions::default().connect("bucket").err();
        assert_eq!(failure.map(|failure| failure.cause), Some(Cause::Credentials));
        let half = BucketOptions { access_key: Some("a".to_owned()), ..BucketOptions::default() };
        let failure = half.connect("bucket").err();
        assert_eq!(failure.map(|failure| failure.cause), Some(Cause::Credentials));
    }
}
