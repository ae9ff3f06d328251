//! Decides whose a change is; pure.
//!
//! A path that an action named beforehand is that action's. Anything else that appeared while
//! exactly one session's window was open is that session's; while several were open it is shared;
//! while none was open it is a person's. What an agent left running in the background may have
//! made anything that no window explains. Where processes tell more, `by_process` decides instead.

use crate::entry::{Author, Evidence};
use crate::id::{ObjectId, SnapshotId, TransactionId};
use crate::path::WorkspacePath;
use crate::record::Labels;

/// The session of whoever does not say which session it is.
pub(crate) const DEFAULT_SESSION: &str = "default";

/// An action that was announced and has no outcome yet.
#[derive(Debug, Clone)]
pub(crate) struct Announced {
    pub(crate) id: SnapshotId,
    /// The paths it named; empty for one of which nobody knows what it will touch.
    pub(crate) paths: Vec<WorkspacePath>,
    pub(crate) labels: Labels,
    /// Those of them where nothing stood before.
    pub(crate) absent: Vec<WorkspacePath>,
    /// The contents that it was told would be safe.
    pub(crate) objects: Vec<ObjectId>,
    /// The process that announced it still runs it, so that only it may end it.
    pub(crate) alive: bool,
}

/// A time during which a session may change anything.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) session: String,
    /// What a change in this window is labelled with.
    pub(crate) labels: Labels,
    /// The announced action whose window this is, if it is one's.
    pub(crate) action: Option<SnapshotId>,
}

/// What is open at the moment of a look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Openings {
    pub(crate) announced: Vec<Announced>,
    pub(crate) windows: Vec<Window>,
    pub(crate) transaction: Option<TransactionId>,
    /// Whose that is; everybody's where nobody is named.
    pub(crate) transaction_of: Vec<String>,
    /// The sessions that left something running.
    pub(crate) background: Vec<String>,
    /// The turns that hooks opened.
    pub(crate) turns: Vec<Labels>,
}

/// The name of a person among several who could have made a change.
pub(crate) const PERSON: &str = "person";

/// Which record a change goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Group {
    /// The outcome of this announced action, by its place in `Openings::announced`.
    Action(usize),
    /// What this window saw, by its place in `Openings::windows`.
    Window(usize),
    /// What a call wrote a moment after its end.
    Late(SnapshotId),
    /// What nobody's call explains but a session's turn may, by its place in `Openings::turns`.
    Turn(usize),
    /// What a session made after this turn, the last it had, had ended.
    Past(u64),
    /// What several windows saw.
    Shared,
    /// What nobody's window saw.
    External,
}

/// Whose a change of this path is, how that is known, and where it is recorded.
pub(crate) fn attribute(path: &WorkspacePath, open: &Openings) -> (Group, Author, Evidence) {
    let names = |announced: &Announced| announced.paths.iter().any(|named| path.is_within(named));
    if let Some(index) = open.announced.iter().rposition(names) {
        let session = session_of(&open.announced[index].labels);
        return (Group::Action(index), Author::Session(session), Evidence::Named);
    }
    let mut sessions: Vec<&str> = open.windows.iter().map(|window| &window.session[..]).collect();
    // What a session left running is no stranger to its own windows.
    let strangers = open
        .background
        .iter()
        .filter(|left| !open.windows.iter().any(|window| is_within_session(&window.session, left)));
    sessions.extend(strangers.map(|session| &session[..]));
    if open.windows.is_empty() && !sessions.is_empty() {
        sessions.push(PERSON);
    }
    sessions.sort_unstable();
    sessions.dedup();
    match sessions[..] {
        [] => (Group::External, Author::Person, Evidence::Outside),
        [one] => {
            // The innermost window: an action within a turn rather than the turn.
            let window = open.windows.len() - 1;
            let announced = open.windows[window]
                .action
                .and_then(|id| open.announced.iter().position(|announced| announced.id == id));
            let group = announced.map_or(Group::Window(window), Group::Action);
            (group, Author::Session(one.to_owned()), Evidence::Window)
        }
        _ => {
            let keys = sessions.iter().map(|key| (*key).to_owned()).collect();
            (shared_group(open, &sessions), Author::Shared(keys), Evidence::Window)
        }
    }
}

/// Where it is recorded what several could have made: in the turn of the one session that is among
/// them, with its sub-agents, else in none.
pub(super) fn shared_group(open: &Openings, keys: &[&str]) -> Group {
    let mut agents = keys.iter().filter(|key| **key != PERSON);
    let root = |key: &&&str| key.split('/').next().unwrap_or_default().to_owned();
    let Some(first) = agents.next() else { return Group::Shared };
    let session = root(&first);
    if agents.any(|key| root(&key) != session) {
        return Group::Shared;
    }
    let of_session = |turn: &Labels| turn.session.as_deref() == Some(&session[..]);
    match open.turns.iter().rposition(of_session) {
        Some(turn) => Group::Turn(turn),
        None => Group::Shared,
    }
}

/// The session that labels name, or the one of whoever names none; a sub-agent is one of its own
/// within its session.
pub(crate) fn session_of(labels: &Labels) -> String {
    let session = base_session(labels);
    match &labels.sub_agent {
        Some(sub_agent) => format!("{session}/{sub_agent}"),
        None => session.to_owned(),
    }
}

/// The session that labels name, whoever of it acts.
pub(crate) fn base_session(labels: &Labels) -> &str {
    labels.session.as_deref().unwrap_or(DEFAULT_SESSION)
}

/// Whether what labels tell of is part of a transaction of these sessions.
pub(crate) fn takes(sessions: &[String], labels: &Labels) -> bool {
    sessions.is_empty() || sessions.iter().any(|session| session == base_session(labels))
}

/// Whether an author's key is a session's, or one of its sub-agents'.
pub(crate) fn is_within_session(key: &str, session: &str) -> bool {
    key.strip_prefix(session).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Time;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    fn window(session: &str) -> Window {
        Window { session: session.to_owned(), labels: Labels::default(), action: None }
    }

    fn announced(session: &str, paths: &[&str]) -> Announced {
        let labels = Labels { session: Some(session.to_owned()), ..Labels::default() };
        let paths = paths.iter().map(|text| path(text)).collect();
        Announced {
            id: SnapshotId::new(Time(0)),
            paths,
            labels,
            absent: Vec::new(),
            objects: Vec::new(),
            alive: false,
        }
    }

    #[test]
    fn outside_every_window_it_is_a_persons() {
        let found = attribute(&path("a"), &Openings::default());
        assert_eq!(found, (Group::External, Author::Person, Evidence::Outside));
    }

    #[test]
    fn one_window_owns_what_it_saw_and_two_share_it() {
        let one = Openings {
            windows: vec![window("s")],
            announced: vec![],
            transaction: None,
            transaction_of: vec![],
            background: vec![],
            turns: vec![],
        };
        assert_eq!(attribute(&path("a"), &one).1, Author::Session("s".into()));
        let two = Openings {
            windows: vec![window("s"), window("t")],
            announced: vec![],
            transaction: None,
            transaction_of: vec![],
            background: vec![],
            turns: vec![],
        };
        assert_eq!(attribute(&path("a"), &two).1, Author::Shared(vec!["s".into(), "t".into()]));
    }

    #[test]
    fn a_named_path_is_its_actions_whoevers_windows_are_open() {
        let open = Openings {
            transaction: None,
            transaction_of: vec![],
            background: vec![],
            turns: vec![],
            windows: vec![window("s"), window("t")],
            announced: vec![announced("s", &["d"]), announced("t", &["d/b"])],
        };
        assert_eq!(attribute(&path("d/a"), &open).0, Group::Action(0));
        assert_eq!(attribute(&path("d/b"), &open).0, Group::Action(1));
        assert_eq!(attribute(&path("e"), &open).0, Group::Shared);
    }
}
