//! What the screen asks for and what it is answered; the worker does the rest.

use chronicle_core::{
    ChangesOf, Entry, EntryView, Error, FileSpan, FileVersion, GrepMatch, LineStat, Outline,
    PlanView, RewindReport, RewindRequest, Seq, Stretch, StretchView, WorkspacePath,
};

use crate::doc::Doc;

/// Names one screen, so that answers for one that was left are not shown on another.
pub(crate) type ScreenId = u64;

/// What the worker is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Outline {
        filter: Option<String>,
    },
    Stretches {
        generation: u64,
        wanted: Vec<Stretch>,
    },
    Files {
        screen: ScreenId,
        of: ChangesOf,
    },
    Versions {
        screen: ScreenId,
        path: WorkspacePath,
    },
    Counts {
        screen: ScreenId,
        wanted: Vec<(usize, FileSpan)>,
    },
    Patch {
        screen: ScreenId,
        index: usize,
        span: Box<FileSpan>,
    },
    Compare {
        screen: ScreenId,
        index: usize,
        before: Box<EntryView>,
        after: Box<EntryView>,
    },
    Directory {
        screen: ScreenId,
        moment: Seq,
        path: WorkspacePath,
    },
    Content {
        screen: ScreenId,
        moment: Seq,
        path: WorkspacePath,
    },
    Grep {
        screen: ScreenId,
        pattern: String,
        glob: Option<String>,
    },
    /// With the number of the question: only the last one's answer counts.
    Plan {
        screen: ScreenId,
        serial: u64,
        request: Box<RewindRequest>,
    },
    Apply {
        screen: ScreenId,
        plan: String,
    },
    TakeBack {
        screen: ScreenId,
        id: String,
    },
}

/// Which thread does it, so that what is quick never waits for what is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What every screen needs.
    Look,
    /// Contents and patches.
    Read,
    /// Searching everything.
    Search,
    /// Plans and taking back.
    Change,
}

impl Request {
    /// The thread that does it.
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Outline { filter: Some(_) } | Self::Grep { .. } => Lane::Search,
            Self::Outline { .. }
            | Self::Stretches { .. }
            | Self::Files { .. }
            | Self::Directory { .. } => Lane::Look,
            Self::Counts { .. }
            | Self::Versions { .. }
            | Self::Patch { .. }
            | Self::Compare { .. }
            | Self::Content { .. } => Lane::Read,
            Self::Plan { .. } | Self::Apply { .. } | Self::TakeBack { .. } => Lane::Change,
        }
    }

    /// What makes an earlier request useless when this one comes: a word for its kind, and the screen.
    pub(crate) fn replaces(&self) -> Option<(&'static str, ScreenId)> {
        match self {
            Self::Outline { filter } => {
                Some((if filter.is_some() { "filter" } else { "outline" }, 0))
            }
            Self::Patch { screen, .. } | Self::Compare { screen, .. } => Some(("patch", *screen)),
            Self::Grep { screen, .. } => Some(("grep", *screen)),
            Self::Plan { screen, .. } => Some(("plan", *screen)),
            Self::Directory { screen, .. } => Some(("directory", *screen)),
            _ => None,
        }
    }

    /// The screen it is for; the timeline is 0.
    pub(crate) fn screen(&self) -> ScreenId {
        match self {
            Self::Outline { .. } | Self::Stretches { .. } => 0,
            Self::Files { screen, .. }
            | Self::Versions { screen, .. }
            | Self::Counts { screen, .. }
            | Self::Patch { screen, .. }
            | Self::Compare { screen, .. }
            | Self::Directory { screen, .. }
            | Self::Content { screen, .. }
            | Self::Grep { screen, .. }
            | Self::Plan { screen, .. }
            | Self::Apply { screen, .. }
            | Self::TakeBack { screen, .. } => *screen,
        }
    }

    /// Whether it changes the workspace: such a request is never given up half-way.
    pub(crate) fn changes_something(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::TakeBack { .. })
    }
}

/// Why something could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// In words, with its causes.
    pub(crate) words: String,
    /// A stable word for it.
    pub(crate) code: &'static str,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut words = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(because) = cause {
            words.push_str(": ");
            words.push_str(&because.to_string());
            cause = because.source();
        }
        Self { words, code: error.code() }
    }
}

/// An answer or why there is none.
pub(crate) type Answered<T> = Result<T, Failure>;

/// What the worker answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// The log has a new last record.
    Head(u64),
    Outline(Option<String>, Answered<Outline>),
    Stretches(u64, Vec<Stretch>, Answered<Vec<StretchView>>),
    Files(ScreenId, Answered<Vec<FileSpan>>),
    Versions(ScreenId, Answered<(Vec<FileVersion>, bool)>),
    Counts(ScreenId, Vec<(usize, Option<LineStat>)>),
    Doc(ScreenId, usize, Answered<Doc>),
    Directory(ScreenId, WorkspacePath, Answered<Vec<(Vec<u8>, Entry)>>),
    Grep(ScreenId, Answered<(Vec<GrepMatch>, bool)>),
    Plan(ScreenId, u64, Answered<Box<PlanView>>),
    Applied(ScreenId, Answered<Box<RewindReport>>),
}
