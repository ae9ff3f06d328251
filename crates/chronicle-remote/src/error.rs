//! Why something in a bucket could not be done, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use chronicle_core::Error;

/// The kinds of failure that a caller may branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// What was asked for makes no sense.
    Usage,
    /// The key is not in the bucket.
    Missing,
    /// The bucket itself is not there.
    NoBucket,
    /// The credentials were valid once.
    Expired,
    /// The clock here and the one of the server are too far apart.
    ClockSkew,
    /// The credentials are unknown, wrong, or not there at all.
    Credentials,
    /// The credentials are good and do not allow this.
    Denied,
    /// The server could not be reached, or could not answer, for as long as was waited.
    Unavailable,
    /// Somebody else was writing the same key all the time.
    Conflict,
    /// The server did not accept the request.
    Refused,
    /// What was read is not what was written.
    Damaged,
    /// More bytes than anything of ours has.
    TooLong,
    /// The place is sealed with another key, or sealed and no key was given, or not sealed.
    Key,
    /// A newer program wrote this.
    Newer,
}

impl Cause {
    /// A stable word for the kind, for JSON and scripts.
    pub fn code(self) -> &'static str {
        match self {
            Self::Usage => "remote_usage",
            Self::Missing => "remote_missing",
            Self::NoBucket => "remote_bucket_missing",
            Self::Expired => "remote_credentials_expired",
            Self::ClockSkew => "remote_clock_skew",
            Self::Credentials => "remote_credentials",
            Self::Denied => "remote_denied",
            Self::Unavailable => "remote_unavailable",
            Self::Conflict => "remote_conflict",
            Self::Refused => "remote_refused",
            Self::Damaged => "remote_damaged",
            Self::TooLong => "remote_too_long",
            Self::Key => "remote_key",
            Self::Newer => "remote_newer_format",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Usage => "that cannot be asked for",
            Self::Missing => "it is not in the bucket",
            Self::NoBucket => "the bucket does not exist",
            Self::Expired => "the credentials have expired",
            Self::ClockSkew => "the clock of this machine and that of the server differ too much",
            Self::Credentials => "the credentials are not accepted",
            Self::Denied => "the credentials do not allow it",
            Self::Unavailable => "the server cannot be reached or does not answer",
            Self::Conflict => "somebody else is writing it",
            Self::Refused => "the server refused",
            Self::Damaged => "it is not what was written",
            Self::TooLong => "it is longer than anything that is kept here",
            Self::Key => "the key is not the one of this place",
            Self::Newer => "a newer program wrote it",
        }
    }

    fn next_step(self) -> &'static str {
        match self {
            Self::Usage => "correct it",
            Self::Missing => "check the URL, or push it again",
            Self::NoBucket => "create the bucket, or correct its name",
            Self::Expired => "get new credentials and try again",
            Self::ClockSkew => "set the clock and try again",
            Self::Credentials => "check the access key, the secret key and the session token",
            Self::Denied => "allow reading, writing, listing and deleting below the prefix",
            Self::Unavailable => "check the endpoint and the network, and try again later",
            Self::Conflict => "try again",
            Self::Refused => "check the endpoint and the region",
            Self::Damaged => "run verify, and push again what is still here",
            Self::TooLong => "check that nothing else writes below the prefix",
            Self::Key => "give the key that the place was made with, or choose another prefix",
            Self::Newer => "use a newer program",
        }
    }
}

/// What could not be done in a bucket.
#[derive(Debug)]
pub struct RemoteError {
    /// The kind.
    pub cause: Cause,
    /// What was tried, as a verb.
    pub action: &'static str,
    /// The place, as a URL.
    pub place: String,
    /// The key below the place; empty if it was about the place as a whole.
    pub key: String,
    /// What the server or the connection said; may be empty.
    pub detail: String,
}

impl RemoteError {
    /// A stable word for the kind, for JSON and scripts.
    pub fn code(&self) -> &'static str {
        self.cause.code()
    }

    /// What a person can do about it.
    pub fn next_step(&self) -> &'static str {
        self.cause.next_step()
    }

    /// The error of a bucket that an error of the core carries, if it carries one.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Io { source, .. } => source.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self.cause {
            Cause::Usage => io::ErrorKind::InvalidInput,
            Cause::Missing | Cause::NoBucket => io::ErrorKind::NotFound,
            Cause::Expired | Cause::ClockSkew | Cause::Credentials | Cause::Denied => {
                io::ErrorKind::PermissionDenied
            }
            Cause::Damaged | Cause::Key => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Could not {} {}", self.action, self.place)?;
        if !self.key.is_empty() {
            write!(f, "/{}", self.key)?;
        }
        write!(f, ": {}", self.cause.words())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        write!(f, "; {}", self.next_step())
    }
}

impl std::error::Error for RemoteError {}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        let path = PathBuf::from(&error.place);
        Self::Io { action: "use", path, source: io::Error::new(error.kind(), error) }
    }
}

/// The result of what is done in a bucket.
pub type Result<T, E = RemoteError> = std::result::Result<T, E>;

/// Why one attempt failed; what it was about is added by who made it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_thing_the_cause_and_the_next_step() {
        let error = RemoteError {
            cause: Cause::Expired,
            action: "read",
            place: "s3://bucket/prefix".to_owned(),
            key: "format".to_owned(),
            detail: "ExpiredToken".to_owned(),
        };
        let expected = "Could not read s3://bucket/prefix/format: the credentials have expired \
                        (ExpiredToken); get new credentials and try again";
        assert_eq!(error.to_string(), expected);
        let error = Error::from(error);
        assert_eq!(RemoteError::of(&error).unwrap().code(), "remote_credentials_expired");
        assert_eq!(error.to_string(), "Could not use s3://bucket/prefix");
    }
}
