//! How a tool says no: code, message, causes and hint, as the command's JSON has them.
//!
//! Hints name tools and arguments instead of verbs and options: it is a model that reads them.

use std::error::Error as _;

use chronicle_core::{Error, SCHEMA, Stop};
use serde_json::{Value, json};

/// A call that failed or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// A stable word.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// Arguments that make no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message)
    }

    /// The same with a next step.
    pub(crate) fn hinted(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The object, shaped like an error of the command.
    pub(crate) fn value(&self) -> Value {
        let Self { code, message, causes, hint } = self;
        json!({
            "schema": SCHEMA, "code": code, "message": message, "causes": causes, "hint": hint,
        })
    }

    /// The lines for people.
    pub(crate) fn text(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!("\nCaused by: {cause}"));
        let hint = self.hint.iter().map(|hint| format!("\nHint: {hint}"));
        let rest: String = causes.chain(hint).collect();
        format!("Error ({}): {}{rest}", self.code, self.message)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let first = error.source();
        let causes = std::iter::successors(first, |cause| (*cause).source());
        Self {
            code: error.code(),
            causes: causes.map(ToString::to_string).collect(),
            hint: hint(&error).map(str::to_owned),
            message: error.to_string(),
        }
    }
}

/// The next step, where there is one to name.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::NoWorkspace(_) => "Nothing is protected here. Ask the person to run: chronicle init",
        Error::RootReplaced(_) => "Ask the person: the directory was replaced, moved or unmounted",
        Error::UnknownTarget(_) => {
            "Call list_snapshots or list_turns. A moment is a snapshot id, turn:N, start, seq:N, a \
             span like 2h, an RFC 3339 time or a pin; before:X and after:X say it outright"
        }
        Error::NoContent { .. } => "Name a moment at which the path had content",
        Error::Ambiguous { .. } => "Give more of the id",
        Error::Secret(_) => "Secrets are shown to the person alone, with: chronicle cat PATH",
        Error::OutsideRoots(_) => "Name a path in the workspace",
        Error::ThroughSymlink(_) => "Name the real path behind the link",
        Error::InvalidPath(_) => "Give the path without '.', '..' or doubled slashes",
        Error::Busy(_) => "Somebody else is working on the workspace: try again in a moment",
        Error::Stopped(stop) => return stop_hint(stop),
        Error::Corrupt { .. } | Error::Missing(_) | Error::Record { .. } => {
            "Call verify with deep to see the damage; other content is not affected"
        }
        Error::Tampered { .. } => "Tell the person: the history was changed behind its back",
        Error::Moved { .. } => "Somebody recorded at the same time: call it again",
        Error::NoSpace(_) => "Nothing was lost: the disk is full; tell the person",
        _ => return None,
    })
}

fn stop_hint(stop: &Stop) -> Option<&'static str> {
    Some(match stop {
        Stop::Conflict(_) => {
            "Somebody else changed the same lines. Preview with on_conflict keep-mine to keep \
             their work, or with paths to leave these paths out; only a person may replace it"
        }
        Stop::PlanOutdated(_) => "Call preview again and look at the new plan",
        Stop::RepositoryMoved(_) => {
            "Preview with git keep to leave the repository as it is; only a person may bring it back"
        }
        Stop::OtherSession(_) => "Preview only your own session's work",
        Stop::ActiveTransaction(_) => "The transaction must end first; ask the person",
        Stop::Nothing(_) => "Call list_turns or list_snapshots to see what happened",
        // Only a person forgets.
        Stop::StillThere(_)
        | Stop::NeededElsewhere(_)
        | Stop::ForeignRef(_)
        | Stop::Diverged(_) => return None,
        Stop::NotAllowed(_) => "Only a person may do that; ask for it",
        Stop::NeedsOperator(_) => "Only the operator may allow that; ask for it",
        Stop::NeedsPlan | Stop::NotConfirmed(_) => "Nothing was changed; call preview again",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_fields_of_the_commands_errors() {
        let refusal = Refusal::from(Error::Stopped(Stop::Nothing("undo")));
        let value = refusal.value();
        assert_eq!(value["code"], "nothing_to_do");
        assert_eq!(value["message"], "Nothing to undo");
        assert!(value["hint"].is_string() && value["causes"].is_array());
        assert!(refusal.text().starts_with("Error (nothing_to_do): Nothing to undo\nHint: "));
    }
}
