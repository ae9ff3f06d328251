//! How a command fails: its exit status, its words, and the next step for the person.

use std::error::Error as StdError;
use std::fmt::Write as _;

use chronicle_core::{Error, Finding, Stop};
use chronicle_remote::RemoteError;
use serde::Serialize;

use crate::render::printable;

/// The class of a failure: the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It failed.
    Failed,
    /// The words make no sense.
    Usage,
    /// It stopped before it changed anything.
    Stopped,
    /// `changed` and `grep` failed, where 1 is an answer.
    NoAnswer,
    /// No workspace was adopted here.
    NoWorkspace,
    /// Somebody else holds the workspace.
    Busy,
    /// History or content is not what it should be.
    Verification,
    /// A command cannot be isolated here.
    NotIsolated,
    /// `run` itself failed, not its command.
    Run,
    /// The person interrupted.
    Cancelled,
}

impl Kind {
    /// The exit status.
    pub(crate) fn exit(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Stopped => 3,
            Self::NoAnswer => 5,
            Self::NoWorkspace => 10,
            Self::Busy => 11,
            Self::Verification => 12,
            Self::NotIsolated => 13,
            Self::Run => 125,
            Self::Cancelled => 130,
        }
    }
}

/// A failure as the person sees it.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) kind: Kind,
    /// A stable word for what failed, for scripts.
    pub(crate) code: &'static str,
    pub(crate) error: Box<dyn StdError + Send + Sync>,
    pub(crate) hints: Vec<String>,
}

/// What a command gives back: its exit status, or how it failed.
pub(crate) type Outcome = Result<u8, CommandError>;

impl CommandError {
    /// Words that make no sense together.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, code: "usage", error: message.into().into(), hints: Vec::new() }
    }

    /// Something the operating system refused.
    pub(crate) fn io(message: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        let error = WithCause { message: message.into(), source: source.into() };
        Self { kind: Kind::Failed, code: "io", error: error.into(), hints: Vec::new() }
    }

    /// A failure with a word of its own.
    pub(crate) fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, code, error: message.into().into(), hints: Vec::new() }
    }

    /// The same failure, of another class.
    pub(crate) fn of(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds a next step.
    pub(crate) fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Gives a plain failure the status that means failure where 1 is an answer.
    pub(crate) fn where_one_is_an_answer(self) -> Self {
        if self.kind == Kind::Failed { self.of(Kind::NoAnswer) } else { self }
    }

    /// The words of an error that goes on to somebody else.
    pub(crate) fn from_ref(error: &Error) -> String {
        RemoteError::of(error).map_or_else(|| error.to_string(), ToString::to_string)
    }

    /// What verification found, and the first bad record.
    fn finding(&self) -> Option<(&'static str, Option<u64>)> {
        match self.error.downcast_ref::<Error>()? {
            Error::Tampered { seq, finding, .. } => Some((finding.word(), Some(seq.0))),
            _ if self.kind == Kind::Verification => Some((self.code, None)),
            _ => None,
        }
    }

    fn causes(&self) -> Vec<String> {
        let first = self.error.source();
        std::iter::successors(first, |error| (*error).source()).map(ToString::to_string).collect()
    }

    /// The lines for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("Error: {}\n", printable(&self.error.to_string()));
        for cause in self.causes() {
            let _ = writeln!(text, "Caused by: {}", printable(&cause));
        }
        for hint in &self.hints {
            let _ = writeln!(text, "Hint: {hint}");
        }
        text
    }

    /// The one line for scripts.
    pub(crate) fn json(&self) -> String {
        let line = ErrorLine {
            schema: chronicle_core::SCHEMA,
            code: self.code,
            exit: self.kind.exit(),
            message: self.error.to_string(),
            causes: self.causes(),
            hint: (!self.hints.is_empty()).then(|| self.hints.join("; ")),
            finding: self.finding().map(|found| found.0),
            seq: self.finding().and_then(|found| found.1),
        };
        serde_json::to_string(&line).expect("BUG: an error line is plain data") + "\n"
    }
}

/// An error in JSON.
#[derive(Serialize)]
struct ErrorLine {
    schema: u32,
    code: &'static str,
    exit: u8,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

/// Words of ours about an error of the operating system.
#[derive(Debug)]
struct WithCause {
    message: String,
    source: std::io::Error,
}

impl std::fmt::Display for WithCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for WithCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        if let Some(remote) = RemoteError::of(&error) {
            let (code, hints) = (remote.code(), Vec::new());
            return Self { kind: Kind::Failed, code, error: error.into(), hints };
        }
        let hints = hint(&error).map(str::to_owned).into_iter().collect();
        Self { kind: kind(&error), code: error.code(), error: error.into(), hints }
    }
}

impl From<chronicle_checkpoint::Error> for CommandError {
    fn from(error: chronicle_checkpoint::Error) -> Self {
        use chronicle_checkpoint::Error as Checkpoint;
        let (kind, next) = match &error {
            Checkpoint::Core(_) => {
                let Checkpoint::Core(error) = error else { unreachable!("BUG: it was one") };
                return error.into();
            }
            Checkpoint::Busy => (Kind::Busy, vec!["Try again when it is done".to_owned()]),
            Checkpoint::Gate(problems) => {
                (Kind::Stopped, problems.iter().map(|problem| problem.next.clone()).collect())
            }
            Checkpoint::Refused(problem) => (Kind::Stopped, vec![problem.next.clone()]),
            Checkpoint::Declared(_) => (Kind::Stopped, Vec::new()),
            Checkpoint::Unknown(_) => {
                (Kind::Failed, vec!["See them with: chronicle checkpoint list".to_owned()])
            }
            Checkpoint::FreezeLimit(_) => {
                let more =
                    "Give it longer with --limit, or stop more with a command in [checkpoint]";
                (Kind::Stopped, vec![more.to_owned()])
            }
            Checkpoint::TakenBack(_) => (Kind::Stopped, Vec::new()),
            _ => (Kind::Failed, Vec::new()),
        };
        let mut hints: Vec<String> = next.into_iter().filter(|hint| !hint.is_empty()).collect();
        hints.dedup();
        Self { kind, code: error.code(), error: error.into(), hints }
    }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::NoWorkspace(_) => Kind::NoWorkspace,
        Error::Usage(_) => Kind::Usage,
        Error::Busy(_) => Kind::Busy,
        Error::Stopped(_) => Kind::Stopped,
        Error::Tampered { .. } => Kind::Verification,
        Error::Cancelled => Kind::Cancelled,
        Error::NotIsolated { .. } => Kind::NotIsolated,
        _ => Kind::Failed,
    }
}

/// The next step, where there is one to name.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::NoWorkspace(_) => {
            "Adopt the directory with: chronicle init, or name a workspace with: chronicle -C DIR"
        }
        Error::CannotAdopt { .. } => "Choose another directory, or use the workspace that is there",
        Error::RootReplaced(_) => {
            "Mount or move the directory back; to write history into a new or empty one: \
             chronicle rewind TARGET --recreate-root"
        }
        Error::UnknownTarget(_) => {
            "See the moments with: chronicle log (an id, turn:N, start, seq:N, 2h, RFC 3339, a pin)"
        }
        Error::NoContent { .. } => "See when it had content with: chronicle history PATH",
        Error::Pruned { .. } => "See what is left with: chronicle log",
        Error::Settings { .. } => "Correct the file; until then what was accepted before holds",
        Error::OverBudget { .. } => {
            "Nothing was lost, and nothing was saved. Free room with: chronicle prune and chronicle gc, \
             with chronicle bucket evict, or set a larger budget in config.toml of the home"
        }
        Error::Ambiguous { .. } => "Give more of the id",
        Error::OutsideRoots(_) => "Protect it too with: chronicle roots add PATH",
        Error::ThroughSymlink(_) => "Name the real path behind the link",
        Error::InvalidPath(_) => "Give the path without '.', '..' or doubled slashes",
        Error::NotCaptured { .. } => {
            "Let the action wait: what it would destroy is not saved. Make the file readable and quiet"
        }
        Error::Busy(_) => {
            "Try again when it is done, or add --wait to rewind, rollback, undo and redo"
        }
        Error::Stopped(stop) => return stop_hint(stop),
        Error::Corrupt { .. } | Error::Missing(_) | Error::Record { .. } => {
            "See all damage, and put right what can be, with: chronicle doctor; other content is not affected"
        }
        Error::Tampered { finding: Finding::IndexEdited, .. } => {
            "The records are whole: make the index anew with: chronicle doctor"
        }
        Error::Tampered { .. } => "Keep the history as it is, and compare it with a copy you trust",
        Error::Key(_) => {
            "See how heads stand with: chronicle status; docs/security.md tells of keys"
        }
        Error::SecretKey(_) => {
            "Put the key back, or name its file with CHRONICLE_SECRET_KEY_FILE; docs/security.md tells \
             of secrets"
        }
        Error::Witness { .. } => "See how witnesses stand with: chronicle witness list",
        Error::Export { .. } => {
            "No ref was moved. Name the top of a git repository that you may write to with: --git REPO"
        }
        Error::NotIsolated { .. } => {
            "Run it on the workspace itself, where everything it does can be taken back, with: chronicle run -- CMD"
        }
        Error::NoIsolatedRun(_) => "See the runs with: chronicle isolated list",
        Error::InIsolation(_) => {
            "Nothing is recorded here: the run itself is. Decide about it from outside with: chronicle isolated"
        }
        Error::Moved { .. } => "Somebody recorded at the same time: run the command again",
        Error::Newer { .. } => "Use the newer chronicle that wrote it",
        Error::Catalog { .. } if error.is_damage() => {
            "The catalog is damaged: keep a copy of the home before anything else, then check the disk"
        }
        Error::Catalog { .. } => {
            "Check the disk and the rights of the file, then see what can be put right with: chronicle doctor"
        }
        Error::NoSpace(_) => "Nothing was lost: free some space and run the command again",
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            "Check the rights of the path, or run as its owner"
        }
        Error::Cancelled => "Run the command again: it goes on where it stopped",
        _ => return None,
    })
}

fn stop_hint(stop: &Stop) -> Option<&'static str> {
    Some(match stop {
        Stop::Conflict(_) => {
            "Keep the work that is there with: --on-conflict keep-mine, or take the target's with: \
             --on-conflict replace"
        }
        Stop::PlanOutdated(_) => "Make a new plan with: --dry-run",
        Stop::RepositoryMoved(_) => {
            "Leave the repository as it is with: --git keep, or bring it back too with: \
             --git restore"
        }
        Stop::OtherSession(_) => {
            "Name the session with: --session K, or take all agents' changes with: --all-sessions"
        }
        Stop::ActiveTransaction(_) => {
            "End it with: chronicle commit, or take it back with: chronicle rollback ID"
        }
        Stop::Nothing(_) => "See what happened with: chronicle log",
        Stop::NeedsPlan => "Look first with: --dry-run, then apply exactly that with: --plan ID",
        Stop::NeedsOperator(_) => {
            "Ask the operator for a grant (chronicle operator grant ACT --key FILE), then: chronicle operator use FILE"
        }
        Stop::NotAllowed(_) => "Ask the person to run the command in a terminal of their own",
        Stop::StillThere(_) => {
            "Change or remove the file first, or name it in chronicle.toml under [secrets] never and run: \
             chronicle config accept"
        }
        Stop::Diverged(_) => {
            "Nothing was sent. If this home was put back to an older copy, take the rest over with: chronicle pull"
        }
        Stop::ForeignRef(_) => {
            "Nothing was overwritten. Export under another name: chronicle export --git REPO NAME"
        }
        Stop::NeededElsewhere(_) => "Forget it in those workspaces first, or purge them",
        Stop::NotConfirmed(_) => "Look at the plan with: --dry-run, or go ahead with: --yes",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: Error, exit: u8, code: &str) {
        let error = CommandError::from(error);
        assert_eq!((error.kind.exit(), error.code), (exit, code));
    }

    #[test]
    fn the_class_of_a_failure_is_its_exit_status() {
        check(Error::NoWorkspace("/x".into()), 10, "no_workspace");
        check(Error::Busy("a run".into()), 11, "busy");
        check(Error::Usage("no".into()), 2, "usage");
        check(Error::Stopped(Stop::Nothing("redo")), 3, "nothing_to_do");
        check(Error::UnknownTarget("x".into()), 1, "unknown_target");
        check(Error::Cancelled, 130, "cancelled");
    }

    #[test]
    fn only_a_plain_failure_changes_where_one_is_an_answer() {
        let exit = |error| CommandError::from(error).where_one_is_an_answer().kind.exit();
        assert_eq!(exit(Error::UnknownTarget("x".into())), 5);
        assert_eq!(exit(Error::NoWorkspace("/x".into())), 10);
    }

    #[test]
    fn people_get_causes_and_a_hint_scripts_one_line() {
        let error =
            CommandError::io("Could not write", std::io::Error::other("no luck")).hinted("Try");
        assert_eq!(error.text(), "Error: Could not write\nCaused by: no luck\nHint: Try\n");
        let value: serde_json::Value = serde_json::from_str(&error.json()).expect("JSON");
        assert_eq!(value["causes"][0], "no luck");
        assert_eq!(value["exit"], 1);
        assert_eq!(error.json().lines().count(), 1);
    }
}
