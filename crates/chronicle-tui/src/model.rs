//! Everything that is on the screen, as a value.

use std::collections::{BTreeMap, HashMap, HashSet};

use chronicle_core::{
    Entry, EntryView, FileSpan, GrepMatch, LineStat, Outline, PlanView, RewindReport,
    RewindRequest, Seq, SnapshotBrief, Stretch, StretchView, WorkspacePath,
};

use crate::doc::DocView;
use crate::list::List;
use crate::request::ScreenId;
use crate::theme::Theme;

/// From how many columns on a list and what it shows stand side by side.
pub(crate) const WIDE: u16 = 110;

/// The whole state.
pub(crate) struct Model {
    pub(crate) theme: Theme,
    /// Columns and rows.
    pub(crate) size: (u16, u16),
    /// Seconds since 1970.
    pub(crate) now: i64,
    /// The workspace, for people.
    pub(crate) root: String,
    /// Whether changing anything is switched off.
    pub(crate) off: bool,
    pub(crate) timeline: Timeline,
    /// What was opened from there, the newest last.
    pub(crate) stack: Vec<Screen>,
    pub(crate) popup: Option<Popup>,
    /// What there is to say.
    pub(crate) notice: Option<Notice>,
    /// Whether the mouse is ours.
    pub(crate) mouse: bool,
    /// Whether a rewind is being applied.
    pub(crate) applying: bool,
    next_screen: ScreenId,
}

/// Something to say in the last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) words: String,
    pub(crate) is_error: bool,
}

/// What can be opened.
pub(crate) enum Screen {
    Changes(Changes),
    Tree(Tree),
    Content(Content),
    Search(Search),
    Rewind(Box<Rewind>),
}

/// What lies over a screen.
pub(crate) enum Popup {
    Help { top: usize },
    Menu(Menu),
    Input(Input),
    Confirm(Confirm),
}

/// The log, newest first.
#[derive(Default)]
pub(crate) struct Timeline {
    pub(crate) outline: Option<Outline>,
    pub(crate) failed: Option<String>,
    /// Only what touched such a path.
    pub(crate) filter: Option<String>,
    pub(crate) filtering: bool,
    /// Grows with every new outline; what was read for an older one is read again when it is seen.
    pub(crate) generation: u64,
    pub(crate) views: HashMap<Seq, (u64, StretchView)>,
    pub(crate) asked: HashMap<Seq, u64>,
    /// Those that are not open or closed as they would be by themselves.
    pub(crate) toggled: HashSet<Seq>,
    pub(crate) rows: Vec<Row>,
    pub(crate) list: List,
}

/// One row of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// The stretch of this number.
    Stretch(usize),
    /// Below it, the snapshot of this number, newest first.
    Snapshot(usize, usize),
}

impl Timeline {
    /// The stretches that are listed.
    pub(crate) fn stretches(&self) -> &[Stretch] {
        self.outline.as_ref().map_or(&[], |outline| &outline.stretches)
    }

    /// Whether what a stretch holds is listed below it: of the newest, unless told otherwise.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        let Some(stretch) = self.stretches().get(index) else { return false };
        self.toggled.contains(&stretch.first) != (index == 0)
    }

    /// What is known of a stretch.
    pub(crate) fn view(&self, index: usize) -> Option<&StretchView> {
        let stretch = self.stretches().get(index)?;
        self.views.get(&stretch.first).map(|(_, view)| view)
    }

    /// One snapshot of a stretch, counted from the newest.
    pub(crate) fn snapshot(&self, index: usize, below: usize) -> Option<&SnapshotBrief> {
        let snapshots = &self.view(index)?.snapshots;
        snapshots.len().checked_sub(below + 1).and_then(|at| snapshots.get(at))
    }

    /// The row that is chosen.
    pub(crate) fn chosen(&self) -> Option<Row> {
        self.rows.get(self.list.selected).copied()
    }
}

/// Where the keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Focus {
    #[default]
    List,
    Doc,
}

/// A list of changes and the patch of the chosen one: files of a turn, or versions of a file.
pub(crate) struct Changes {
    pub(crate) id: ScreenId,
    pub(crate) title: String,
    pub(crate) of: Of,
    pub(crate) rows: Vec<ChangeRow>,
    /// The rows that the filter leaves.
    pub(crate) shown: Vec<usize>,
    pub(crate) filter: String,
    pub(crate) loading: bool,
    pub(crate) failed: Option<String>,
    pub(crate) more: bool,
    pub(crate) list: List,
    pub(crate) focus: Focus,
    pub(crate) counts: HashMap<usize, Option<LineStat>>,
    pub(crate) asked: HashSet<usize>,
    pub(crate) doc: ShownDoc,
}

/// Whose changes are listed.
#[derive(Debug, Clone)]
pub(crate) enum Of {
    /// Files, the state after them, and what takes them back.
    Files { after: Seq, menu: Vec<Choice> },
    /// Versions of a file.
    Versions,
}

/// One change in a list.
#[derive(Debug, Clone)]
pub(crate) struct ChangeRow {
    pub(crate) span: FileSpan,
    /// The path as text.
    pub(crate) name: String,
    pub(crate) before: EntryView,
    pub(crate) after: EntryView,
    pub(crate) version: Option<VersionFacts>,
}

/// What put a version there.
#[derive(Debug, Clone)]
pub(crate) struct VersionFacts {
    pub(crate) seq: Seq,
    pub(crate) seconds: i64,
    pub(crate) turn: Option<u64>,
    pub(crate) summary: String,
}

/// The document beside a list: which row it belongs to, and what came of asking for it.
#[derive(Default)]
pub(crate) struct ShownDoc {
    pub(crate) wanted: Option<usize>,
    pub(crate) view: Option<DocView>,
    pub(crate) failed: Option<String>,
}

/// The directories and files at a moment.
pub(crate) struct Tree {
    pub(crate) id: ScreenId,
    pub(crate) moment: Seq,
    pub(crate) words: String,
    pub(crate) path: WorkspacePath,
    pub(crate) rows: Vec<TreeRow>,
    pub(crate) shown: Vec<usize>,
    pub(crate) filter: String,
    pub(crate) loading: bool,
    pub(crate) failed: Option<String>,
    pub(crate) list: List,
    /// The directory that was left, to be chosen again.
    pub(crate) came_from: Option<Vec<u8>>,
}

/// One name in a directory.
pub(crate) struct TreeRow {
    pub(crate) bytes: Vec<u8>,
    pub(crate) name: String,
    pub(crate) entry: Entry,
    pub(crate) view: EntryView,
}

/// A file's content at a moment.
pub(crate) struct Content {
    pub(crate) id: ScreenId,
    pub(crate) title: String,
    pub(crate) view: Option<DocView>,
    pub(crate) failed: Option<String>,
}

/// A pattern in every version of every file.
pub(crate) struct Search {
    pub(crate) id: ScreenId,
    pub(crate) pattern: String,
    pub(crate) glob: String,
    pub(crate) running: bool,
    pub(crate) failed: Option<String>,
    pub(crate) found: Vec<GrepMatch>,
    pub(crate) more: bool,
    pub(crate) list: List,
}

/// Taking back: the plan, what of it is wanted, and what came of it.
pub(crate) struct Rewind {
    pub(crate) id: ScreenId,
    /// What is taken back, in words.
    pub(crate) words: String,
    pub(crate) request: RewindRequest,
    pub(crate) plan: Option<PlanView>,
    pub(crate) planning: bool,
    /// The number of the plan that was asked for last: one of an earlier choice must not be shown.
    pub(crate) serial: u64,
    pub(crate) failed: Option<String>,
    pub(crate) rows: Vec<PlanRow>,
    /// The paths that are left alone, as they are shown.
    pub(crate) left_out: HashSet<String>,
    pub(crate) report: Option<RewindReport>,
    /// Whether what is reported took a rewind back.
    pub(crate) taken_back: bool,
    pub(crate) list: List,
    pub(crate) focus: Focus,
    pub(crate) doc: ShownDoc,
}

/// One path of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanRow {
    pub(crate) verb: &'static str,
    pub(crate) name: String,
    /// The exact path, if it can be chosen.
    pub(crate) path: Option<WorkspacePath>,
    /// What stands there now and what will.
    pub(crate) sides: Option<(EntryView, EntryView)>,
    pub(crate) note: String,
}

/// What can be taken back, by one key each.
#[derive(Debug, Clone)]
pub(crate) struct Menu {
    pub(crate) title: String,
    pub(crate) choices: Vec<Choice>,
    pub(crate) selected: usize,
}

/// One thing that can be taken back.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) words: String,
    pub(crate) request: RewindRequest,
}

/// A line that is typed.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) asks: Asks,
    pub(crate) text: String,
}

/// What a typed line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    TimelineFilter,
    ListFilter,
    Pattern,
    Glob,
}

/// The last question before something changes.
#[derive(Debug, Clone)]
pub(crate) struct Confirm {
    pub(crate) screen: ScreenId,
    pub(crate) plan: String,
    pub(crate) lines: Vec<String>,
}

impl Model {
    /// The state before anything is known.
    pub(crate) fn new(root: String, theme: Theme, size: (u16, u16), now: i64, off: bool) -> Self {
        Self {
            theme,
            size,
            now,
            root,
            off,
            timeline: Timeline::default(),
            stack: Vec::new(),
            popup: None,
            notice: None,
            mouse: true,
            applying: false,
            next_screen: 0,
        }
    }

    /// A name for a new screen.
    pub(crate) fn new_screen(&mut self) -> ScreenId {
        self.next_screen += 1;
        self.next_screen
    }

    /// The rows between the title and the last line.
    pub(crate) fn body_height(&self) -> usize {
        usize::from(self.size.1).saturating_sub(2)
    }

    /// Whether a list and its document stand side by side.
    pub(crate) fn is_wide(&self) -> bool {
        self.size.0 >= WIDE
    }

    /// The open screen of a name.
    pub(crate) fn screen(&mut self, id: ScreenId) -> Option<&mut Screen> {
        self.stack.iter_mut().find(|screen| screen.id() == id)
    }
}

impl Screen {
    /// Its name.
    pub(crate) fn id(&self) -> ScreenId {
        match self {
            Self::Changes(it) => it.id,
            Self::Tree(it) => it.id,
            Self::Content(it) => it.id,
            Self::Search(it) => it.id,
            Self::Rewind(it) => it.id,
        }
    }
}

impl Rewind {
    /// Whether a row is wanted.
    pub(crate) fn is_chosen(&self, row: &PlanRow) -> bool {
        row.path.is_some() && !self.left_out.contains(&row.name)
    }

    /// The chosen paths; empty if that is all of them.
    pub(crate) fn chosen_paths(&self) -> Vec<WorkspacePath> {
        if self.left_out.is_empty() {
            return Vec::new();
        }
        let chosen = self.rows.iter().filter(|row| self.is_chosen(row));
        chosen.filter_map(|row| row.path.clone()).collect()
    }

    /// What became of each path, as far as it is not simply done.
    pub(crate) fn troubles(&self) -> BTreeMap<&str, &str> {
        let left = self.report.iter().flat_map(|report| &report.unexpected);
        left.map(|it| (it.path.as_str(), it.reason.as_str())).collect()
    }
}
