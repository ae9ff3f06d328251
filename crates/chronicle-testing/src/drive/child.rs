//! One operation on a workspace, done here or by a process that dies in the middle of it.
//!
//! The process is the test binary itself, told by one variable which world to work in. What it
//! shall do lies in a file of that world, and what came of it goes into another.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use chronicle_core::{
    Error, GitChoice, Home, OnConflict, RewindKind, RewindReport, RewindRequest, SnapshotRequest,
    TurnRequest, Workspace, WorkspacePath,
};

/// Names the world to a process that does one operation and no test.
const WORLD: &str = "CHRONICLE_TEST_WORLD";

/// Something that is done to a workspace through the library.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// Only opens it, which finishes what another process left.
    Open,
    /// Records what changed.
    Settle,
    /// Starts a turn.
    TurnStart { key: String, session: String },
    /// Ends a turn.
    TurnEnd { key: String, session: String },
    /// Announces an action on one path.
    Snapshot { path: WorkspacePath, key: String, session: String },
    /// Takes back, or brings back.
    Rewind(Box<RewindRequest>),
}

/// What came of an operation that was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// The number of the turn.
    pub(super) turn: u64,
    /// It is in the log.
    pub(super) recorded: bool,
    /// What the report says; nobody heard it where the process died.
    pub(super) said: Option<Said>,
}

/// What the report of a rewind says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Something was left that the person should look at.
    pub(super) partial: bool,
    /// What could not be done, or was not known, or was moved aside.
    pub(super) left: BTreeSet<String>,
    /// What stays because several could have made it.
    pub(super) shared: BTreeSet<String>,
    /// The paths that were written or deleted.
    pub(super) touched: BTreeSet<String>,
}

/// Why an operation was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The stable word for the kind of error.
    pub(super) code: String,
    /// The error and its causes.
    pub(super) words: String,
}

/// What came of an operation.
pub(super) type Answer = Result<Done, Refused>;

/// How a process ended.
pub(super) enum End {
    /// It never passed the point at which it should have died.
    Survived(Answer),
    /// It was killed.
    Died,
}

impl Operation {
    /// Does it in this process.
    pub(super) fn perform(&self, workspace: &mut Workspace) -> Answer {
        let done = match self {
            Self::Open => Ok(Done::default()),
            Self::Settle => workspace.settle().map(|_| Done { recorded: true, ..Done::default() }),
            Self::TurnStart { key, session } => {
                let turn = workspace.turn_start(&turn_request(key, session));
                turn.map(|turn| Done { turn: turn.number, ..Done::default() })
            }
            Self::TurnEnd { key, session } => {
                let turn = workspace.turn_end(&turn_request(key, session));
                turn.map(|turn| Done { turn: turn.number, ..Done::default() })
            }
            Self::Snapshot { path, key, session } => {
                let request = snapshot_request(path, key, session);
                workspace.snapshot(&request).map(|_| Done::default())
            }
            Self::Rewind(request) => workspace.rewind(request, &mut |_| true).map(|report| Done {
                recorded: report.id.is_some(),
                said: Some(Said::of(&report)),
                ..Done::default()
            }),
        };
        done.map_err(|error| Refused::of(&error))
    }

    /// In words.
    pub(super) fn tell(&self) -> String {
        match self {
            Self::Open => "open".to_owned(),
            Self::Settle => "settle".to_owned(),
            Self::TurnStart { key, session } => format!("turn start {key} of {session}"),
            Self::TurnEnd { key, .. } => format!("turn end {key}"),
            Self::Snapshot { path, session, .. } => format!("snapshot of {path} by {session}"),
            Self::Rewind(request) => tell_rewind(request),
        }
    }

    /// The fields of the file in which a process finds it.
    fn fields(&self) -> Vec<Vec<u8>> {
        let text = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        match self {
            Self::Open => text(&["open"]),
            Self::Settle => text(&["settle"]),
            Self::TurnStart { key, session } => text(&["turn start", key, session]),
            Self::TurnEnd { key, session } => text(&["turn end", key, session]),
            Self::Snapshot { path, key, session } => {
                let mut fields: Vec<_> = text(&["snapshot", key, session]);
                fields.push(path.as_bytes().to_vec());
                fields
            }
            Self::Rewind(request) => rewind_fields(request),
        }
    }

    fn from_fields(fields: &[Vec<u8>]) -> Self {
        let words: Vec<_> = fields.iter().map(|field| String::from_utf8_lossy(field)).collect();
        let text = |at: usize| words[at].clone().into_owned();
        match &*words[0] {
            "open" => Self::Open,
            "settle" => Self::Settle,
            "turn start" => Self::TurnStart { key: text(1), session: text(2) },
            "turn end" => Self::TurnEnd { key: text(1), session: text(2) },
            "snapshot" => {
                Self::Snapshot { key: text(1), session: text(2), path: plain(&fields[3]) }
            }
            kind => {
                let kind = match kind {
                    "rewind" => RewindKind::Rewind { target: text(1) },
                    "undo" => RewindKind::Undo { what: Some(text(1)).filter(|w| !w.is_empty()) },
                    "redo" => RewindKind::Redo,
                    other => panic!("BUG: no operation is called {other}"),
                };
                let mut request = with_flags(kind, &words[2]);
                request.paths = fields[3..].iter().map(|path| plain(path)).collect();
                Self::Rewind(Box::new(request))
            }
        }
    }
}

fn plain(path: &[u8]) -> WorkspacePath {
    WorkspacePath::new(path).expect("BUG: a listed path is plain")
}

fn turn_request(key: &str, session: &str) -> TurnRequest {
    TurnRequest {
        key: Some(key.to_owned()),
        session: Some(session.to_owned()),
        prompt: Some(format!("do {key}")),
        ..TurnRequest::default()
    }
}

fn snapshot_request(path: &WorkspacePath, key: &str, session: &str) -> SnapshotRequest {
    SnapshotRequest {
        action: "write_file".to_owned(),
        paths: vec![path.clone()],
        session: Some(session.to_owned()),
        turn_key: Some(key.to_owned()),
        ..SnapshotRequest::default()
    }
}

/// The flags of a request by their words.
fn flags(request: &RewindRequest) -> Vec<(&'static str, bool)> {
    vec![
        ("exact", request.exact),
        ("all-sessions", request.all_sessions),
        ("take-shared", request.take_shared),
        ("keep-mine", request.on_conflict == OnConflict::KeepMine),
        ("replace", request.on_conflict == OnConflict::Replace),
        ("git-keep", request.git == Some(GitChoice::Keep)),
        ("git-restore", request.git == Some(GitChoice::Restore)),
    ]
}

fn flag_words(request: &RewindRequest) -> String {
    let set = flags(request).into_iter().filter(|(_, set)| *set).map(|(word, _)| word);
    set.collect::<Vec<_>>().join(" ")
}

fn with_flags(kind: RewindKind, words: &str) -> RewindRequest {
    let has = |word: &str| words.split(' ').any(|other| other == word);
    let on_conflict = match () {
        () if has("keep-mine") => OnConflict::KeepMine,
        () if has("replace") => OnConflict::Replace,
        () => OnConflict::Stop,
    };
    let git = match () {
        () if has("git-keep") => Some(GitChoice::Keep),
        () if has("git-restore") => Some(GitChoice::Restore),
        () => None,
    };
    RewindRequest {
        exact: has("exact"),
        all_sessions: has("all-sessions"),
        take_shared: has("take-shared"),
        on_conflict,
        git,
        ..RewindRequest::new(kind)
    }
}

fn rewind_words(kind: &RewindKind) -> (&'static str, &str) {
    match kind {
        RewindKind::Rewind { target } => ("rewind", target),
        RewindKind::Undo { what } => ("undo", what.as_deref().unwrap_or("")),
        RewindKind::Redo => ("redo", ""),
        RewindKind::Rollback { .. } | RewindKind::Plan { .. } => {
            panic!("BUG: the plays have no such rewind")
        }
    }
}

fn rewind_fields(request: &RewindRequest) -> Vec<Vec<u8>> {
    let ((word, target), flags) = (rewind_words(&request.kind), flag_words(request));
    let mut fields: Vec<_> =
        [word, target, &flags].iter().map(|text| text.as_bytes().to_vec()).collect();
    fields.extend(request.paths.iter().map(|path| path.as_bytes().to_vec()));
    fields
}

/// A rewind in words.
pub(super) fn tell_rewind(request: &RewindRequest) -> String {
    let (word, target) = rewind_words(&request.kind);
    let paths: Vec<_> = request.paths.iter().map(ToString::to_string).collect();
    format!("{word} {target} {} {}", flag_words(request), paths.join(" "))
}

impl Said {
    fn of(report: &RewindReport) -> Self {
        let plan = &report.plan;
        let unexpected = report.unexpected.iter().chain(&plan.unknown);
        let unexpected = unexpected.map(|left| format!("{}: {}", left.path, left.reason));
        let aside = report.aside.iter().map(|(from, to)| format!("{from}: aside as {to}"));
        let steps = plan.write.iter().chain(&plan.delete).chain(&plan.merge);
        Self {
            partial: report.partial,
            left: unexpected.chain(aside).collect(),
            shared: plan.shared.iter().map(|kept| kept.path.clone()).collect(),
            touched: steps.map(|step| step.path.clone()).collect(),
        }
    }

    fn fields(&self) -> Vec<Vec<u8>> {
        let lists = [("left", &self.left), ("shared", &self.shared), ("touched", &self.touched)];
        let all = lists.into_iter().flat_map(|(word, list)| {
            list.iter().flat_map(move |item| [word.as_bytes().to_vec(), item.as_bytes().to_vec()])
        });
        all.collect()
    }

    fn from_fields(partial: bool, fields: &[Vec<u8>]) -> Self {
        let list = |word: &str| {
            let pairs = fields.chunks(2).filter(|pair| pair[0] == word.as_bytes());
            pairs.map(|pair| String::from_utf8_lossy(&pair[1]).into_owned()).collect()
        };
        Self { partial, left: list("left"), shared: list("shared"), touched: list("touched") }
    }
}

impl Refused {
    pub(super) fn of(error: &Error) -> Self {
        let mut words = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            words.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self { code: error.code().to_owned(), words }
    }
}

fn answer_fields(answer: &Answer) -> Vec<Vec<u8>> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    match answer {
        Err(refused) => vec![bytes("refused"), bytes(&refused.code), bytes(&refused.words)],
        Ok(done) => {
            let heard = match &done.said {
                None => "nothing",
                Some(said) if said.partial => "partial",
                Some(_) => "whole",
            };
            let recorded = if done.recorded { "recorded" } else { "" };
            let mut fields =
                vec![bytes("done"), bytes(&done.turn.to_string()), bytes(recorded), bytes(heard)];
            fields.extend(done.said.iter().flat_map(Said::fields));
            fields
        }
    }
}

fn answer_from(fields: &[Vec<u8>]) -> Answer {
    let text = |at: usize| String::from_utf8_lossy(&fields[at]).into_owned();
    if text(0) == "refused" {
        return Err(Refused { code: text(1), words: text(2) });
    }
    let heard = text(3);
    let said = (heard != "nothing").then(|| Said::from_fields(heard == "partial", &fields[4..]));
    let turn = text(1).parse().expect("BUG: a turn's number is a number");
    Ok(Done { turn, recorded: text(2) == "recorded", said })
}

/// Writes fields, which never hold a NUL byte.
fn write(path: &Path, fields: &[Vec<u8>]) {
    fs::write(path, fields.join(&0)).expect("a world's files can be written");
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).expect("a world's files can be read");
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Does the operation that another process asked this one for; says whether there was one.
///
/// The one test that is run for it calls this first, and returns if it did.
pub fn obey() -> bool {
    let Some(world) = std::env::var_os(WORLD) else {
        return false;
    };
    let world = Path::new(&world);
    let operation = Operation::from_fields(&read(&world.join("operation")));
    let home = Home::at(&world.join("home"));
    let answer = match Workspace::open(&home, &world.join("ws")) {
        Ok(mut workspace) => operation.perform(&mut workspace),
        Err(error) => Err(Refused::of(&error)),
    };
    write(&world.join("answer"), &answer_fields(&answer));
    true
}

/// Has another process do an operation and die at a failpoint, if it passes it.
pub(super) fn send(
    world: &Path,
    test: &str,
    operation: &Operation,
    point: &str,
) -> Result<End, String> {
    write(&world.join("operation"), &operation.fields());
    let output = Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args(["--exact", test, "--test-threads=1"])
        .env(WORLD, world)
        .env("CHRONICLE_FAILPOINT", point)
        .stdin(Stdio::null())
        .output()
        .expect("the test binary can be run");
    match output.status.signal() {
        Some(9) => Ok(End::Died),
        None if output.status.success() => {
            Ok(End::Survived(answer_from(&read(&world.join("answer")))))
        }
        _ => Err(format!(
            "a process that should do {operation:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_survives_the_way_to_another_process() {
        let path = WorkspacePath::new(&b"new\nline/\xff"[..]).unwrap();
        let turn = ("k1".to_owned(), "A".to_owned());
        let request = RewindRequest {
            paths: vec![path.clone()],
            exact: true,
            take_shared: true,
            on_conflict: OnConflict::Replace,
            git: Some(GitChoice::Restore),
            ..RewindRequest::new(RewindKind::Undo { what: None })
        };
        for operation in [
            Operation::Open,
            Operation::Settle,
            Operation::TurnStart { key: turn.0.clone(), session: turn.1.clone() },
            Operation::TurnEnd { key: turn.0.clone(), session: turn.1.clone() },
            Operation::Snapshot { path, key: turn.0, session: turn.1 },
            Operation::Rewind(Box::new(request)),
        ] {
            let again = Operation::from_fields(&operation.fields());
            assert_eq!(format!("{again:?}"), format!("{operation:?}"));
        }
    }

    #[test]
    fn an_answer_survives_the_way_back() {
        let said = Said {
            partial: true,
            left: BTreeSet::from(["a: gone".to_owned()]),
            shared: BTreeSet::new(),
            touched: BTreeSet::from(["b".to_owned(), "c".to_owned()]),
        };
        for answer in [
            Ok(Done { turn: 3, recorded: true, said: Some(said) }),
            Ok(Done::default()),
            Err(Refused { code: "conflict".into(), words: "1 path is in conflict: a".into() }),
        ] {
            assert_eq!(answer_from(&answer_fields(&answer)), answer);
        }
    }
}
