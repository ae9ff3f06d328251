//! How a request fails: `application/problem+json` with the words of the command's errors.

use std::error::Error as _;

use chronicle_core::{Error, SCHEMA, Stop};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

/// A request that failed or was refused.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// Which methods there are, where another one was used.
    pub(crate) allow: Option<String>,
}

/// What a client reads (RFC 9457), with the fields of the command's errors.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemView {
    /// `urn:chronicle:error:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// What went wrong, with the thing it went wrong with.
    title: String,
    /// The status of the answer.
    status: u16,
    /// The causes in one line, nearest first.
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    /// The version of this shape.
    schema: u32,
    /// A stable word: that of the command, or one of `docs/web.md`.
    code: String,
    /// The causes, nearest first.
    causes: Vec<String>,
    /// The next step.
    hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let (causes, hint, allow) = (Vec::new(), None, None);
        Self { status, code, message: message.into(), causes, hint, allow }
    }

    /// Words that make no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "usage", message)
    }

    /// The same with a next step.
    pub(crate) fn hinted(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Nobody showed who asks.
    pub(crate) fn unknown_caller() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Who asks is not known").hinted(
            "Open the link that chronicle web printed, or send a token: Authorization: Bearer TOKEN",
        )
    }

    /// The one who asks may not do that.
    pub(crate) fn not_allowed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_allowed", message)
    }

    /// The body of the answer.
    pub(crate) fn body(&self) -> Vec<u8> {
        let view = ProblemView {
            kind: format!("urn:chronicle:error:{}", self.code),
            title: self.message.clone(),
            status: self.status.as_u16(),
            detail: self.causes.join(": "),
            schema: SCHEMA,
            code: self.code.to_owned(),
            causes: self.causes.clone(),
            hint: self.hint.clone(),
        };
        serde_json::to_vec(&view).unwrap_or_default()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        Self {
            status: status(&error),
            code: error.code(),
            causes: causes.map(ToString::to_string).collect(),
            hint: hint(&error).map(str::to_owned),
            message: error.to_string(),
            allow: None,
        }
    }
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::NoWorkspace(_)
        | Error::UnknownTarget(_)
        | Error::NoContent { .. }
        | Error::NoIsolatedRun(_) => StatusCode::NOT_FOUND,
        Error::Pruned { .. } => StatusCode::GONE,
        Error::Usage(_)
        | Error::Ambiguous { .. }
        | Error::InvalidPath(_)
        | Error::OutsideRoots(_)
        | Error::ThroughSymlink(_) => StatusCode::BAD_REQUEST,
        Error::Secret(_) | Error::Stopped(Stop::NotAllowed(_) | Stop::NeedsOperator(_)) => {
            StatusCode::FORBIDDEN
        }
        Error::Stopped(_)
        | Error::Moved { .. }
        | Error::RootReplaced(_)
        | Error::InIsolation(_)
        | Error::NotCaptured { .. } => StatusCode::CONFLICT,
        Error::Busy(_) | Error::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Error::NoSpace(_) | Error::OverBudget { .. } => StatusCode::INSUFFICIENT_STORAGE,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            StatusCode::CONFLICT
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The next step, where there is one to name.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::NoWorkspace(_) => "Adopt the directory with: chronicle init",
        Error::RootReplaced(_) => "Mount or move the directory back",
        Error::UnknownTarget(_) => {
            "A moment is a snapshot id, turn:N, start, seq:N, a span like 2h, an RFC 3339 time or a \
             pin; before:X and after:X say it outright"
        }
        Error::Pruned { .. } => "Choose a younger moment",
        Error::Ambiguous { .. } => "Give more of the id",
        Error::Secret(_) => "Secrets are shown to the person alone, with: chronicle cat PATH",
        Error::OutsideRoots(_) => "Name a path in the workspace",
        Error::ThroughSymlink(_) => "Name the real path behind the link",
        Error::Busy(_) => "Somebody else works on the workspace: try again in a moment",
        Error::Stopped(Stop::Conflict(_)) => {
            "Plan again with on_conflict keep_mine or replace, or leave these paths out"
        }
        Error::Stopped(Stop::PlanOutdated(_)) => {
            "Something changed since the plan was made, or it was applied already: plan again"
        }
        Error::Stopped(Stop::RepositoryMoved(_)) => "Plan again with git keep or git restore",
        Error::Stopped(Stop::OtherSession(_)) => "Plan again with session or all_sessions",
        Error::Stopped(Stop::ActiveTransaction(_)) => "End the transaction first",
        Error::Corrupt { .. } | Error::Missing(_) | Error::Record { .. } => {
            "See all damage, and put right what can be, with: chronicle doctor"
        }
        Error::Tampered { .. } => "Keep the history as it is, and look at: chronicle verify",
        Error::NoSpace(_) | Error::OverBudget { .. } => {
            "Nothing was lost: free some space, or prune, and ask again"
        }
        Error::Moved { .. } => "Somebody recorded at the same time: ask again",
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_commands_words() {
        let problem = Problem::from(Error::Stopped(Stop::Nothing("undo")));
        assert_eq!(problem.status, StatusCode::CONFLICT);
        let value: serde_json::Value = serde_json::from_slice(&problem.body()).unwrap();
        assert_eq!(value["code"], "nothing_to_do");
        assert_eq!(value["type"], "urn:chronicle:error:nothing_to_do");
        assert_eq!(value["status"], 409);
        assert_eq!(value["title"], "Nothing to undo");
    }
}
