//! What a failed request means: ask again, or tell.

use std::path::PathBuf;

use chronicle_core::Error;
use postgres::error::SqlState;

/// Why something was not done.
pub(crate) enum Fault {
    /// The link or the server went away, or another was in the way: it may be tried again.
    Passing(postgres::Error),
    /// It will not be done.
    Final(Error),
    /// The server refuses, in its words.
    Refused(postgres::Error),
}

/// What the server says while it goes, comes, or has chosen somebody else.
const PASSING: [SqlState; 10] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::TOO_MANY_CONNECTIONS,
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    SqlState::LOCK_NOT_AVAILABLE,
    SqlState::UNIQUE_VIOLATION,
    SqlState::DUPLICATE_SCHEMA,
];

impl From<postgres::Error> for Fault {
    fn from(error: postgres::Error) -> Self {
        match error.code() {
            None => Self::Passing(error),
            Some(code) if PASSING.contains(code) || code.code().starts_with("08") => {
                Self::Passing(error)
            }
            Some(_) => Self::Refused(error),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

/// The error for people: which log, and the whole story.
pub(crate) fn unusable(shown: &str, error: &postgres::Error) -> Error {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        words = format!("{words}: {next}");
        cause = next.source();
    }
    let source = std::io::Error::other(words);
    Error::Io { action: "use the shared log", path: PathBuf::from(shown), source }
}
