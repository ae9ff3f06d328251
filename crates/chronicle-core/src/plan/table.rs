//! One row for every path that a plan is about, and how rows are found.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::entry::{Author, Change, Entry, Evidence, Meta, Why};
use crate::path::WorkspacePath;

use super::{PastChange, Role};

static ABSENT: Entry = Entry::Absent;

/// The number of a row.
pub(super) type RowId = usize;

/// Everything about one path while a plan is made.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// The path.
    pub(super) path: WorkspacePath,
    /// What stood there at the moment that the plan goes to.
    pub(super) then: &'a Entry,
    /// What stands there now.
    pub(super) now: &'a Entry,
    /// What stood there after the changes that were folded so far.
    pub(super) current: &'a Entry,
    /// What the plan puts there, without `pending`.
    pub(super) planned: Cow<'a, Entry>,
    /// Kept changes that were not yet merged into `planned`.
    pub(super) pending: Option<Pending<'a>>,
    /// The first merge that failed.
    pub(super) clash: Option<Box<Clash<'a>>>,
    /// Whose kept changes are in it.
    pub(super) kept_by: Vec<&'a Author>,
    /// The path at which the last kept change was made, where that is another one.
    pub(super) kept_at: Option<RowId>,
    /// The path from which kept changes moved it here.
    pub(super) origin: Option<RowId>,
    /// What became of the last change here.
    pub(super) last_role: Option<Role>,
    /// The directory that stood here last.
    pub(super) directory: Option<&'a Meta>,
    /// Part of a repository that is only ever brought back.
    pub(super) neutral: bool,
    /// A merge made something that was on neither side.
    pub(super) mixed: bool,
}

/// Consecutive kept changes, as one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending<'a> {
    /// What stood there before the first.
    pub(super) base: &'a Entry,
    /// What stood there after the last.
    pub(super) theirs: &'a Entry,
}

/// Kept changes that do not fit.
#[derive(Debug, Clone)]
pub(super) struct Clash<'a> {
    /// What both sides changed.
    pub(super) what: &'static str,
    /// The kept changes.
    pub(super) kept: Pending<'a>,
    /// What the plan had there.
    pub(super) ours: Entry,
}

/// All rows, found by path or by the directory they are below.
#[derive(Debug, Default)]
pub(super) struct Table<'a> {
    /// The rows, in the order in which they were first needed.
    pub(super) rows: Vec<Row<'a>>,
    index: BTreeMap<Vec<u8>, RowId>,
}

impl<'a> Table<'a> {
    /// The rows of all changed paths, with their state at the beginning and at the end.
    pub(super) fn new(changes: &'a [PastChange]) -> Self {
        let mut table = Self::default();
        for PastChange { change, .. } in changes {
            let then = state_before(change);
            let id = table.find(&change.path).unwrap_or_else(|| {
                table.add(change.path.clone(), Row { current: &change.before, ..Row::at(then) })
            });
            let row = &mut table.rows[id];
            row.now = &change.after;
            row.neutral |= change.neutral;
            for entry in [&change.before, &change.after] {
                if let Entry::Directory(meta) = entry {
                    row.directory = Some(meta);
                }
            }
        }
        table.reveal(changes);
        table.empty_what_had_no_directory();
        table
    }

    /// Where a directory was not, nothing was below it either, whenever that was first seen.
    fn empty_what_had_no_directory(&mut self) {
        for id in 0..self.rows.len() {
            if *self.rows[id].then == ABSENT {
                continue;
            }
            let above = self.rows[id].path.ancestors().find_map(|path| self.find(&path));
            let none = above.is_some_and(|above| {
                let then = self.rows[above].then;
                !then.is_directory() && !then.is_unknown()
            });
            if none {
                self.rows[id].then = &ABSENT;
                self.rows[id].planned = Cow::Borrowed(&ABSENT);
            }
        }
    }

    /// A file that nobody knew and that then turned up elsewhere had been at its old place with
    /// the content it has at the new one.
    fn reveal(&mut self, changes: &'a [PastChange]) {
        for PastChange { change, .. } in changes {
            let Some(from) = &change.from else { continue };
            let known = matches!(change.after, Entry::File(_) | Entry::Symlink(_));
            if let Some(id) = self.find(&from.path).filter(|_| known)
                && self.rows[id].then.is_unknown()
            {
                self.rows[id].then = &change.after;
                self.rows[id].planned = Cow::Borrowed(&change.after);
            }
        }
    }

    fn add(&mut self, path: WorkspacePath, row: Row<'a>) -> RowId {
        self.index.insert(path.as_bytes().to_vec(), self.rows.len());
        self.rows.push(Row { path, ..row });
        self.rows.len() - 1
    }

    /// The row of a path.
    pub(super) fn find(&self, path: &WorkspacePath) -> Option<RowId> {
        self.index.get(path.as_bytes()).copied()
    }

    /// The row of a path; one that never changed and is needed all the same has nothing there.
    pub(super) fn find_or_add(&mut self, path: &WorkspacePath) -> RowId {
        match self.find(path) {
            Some(id) => id,
            None => self.add(path.clone(), Row::at(&ABSENT)),
        }
    }

    /// The row of the directory that holds a path.
    pub(super) fn parent(&self, path: &WorkspacePath) -> Option<RowId> {
        let bytes = path.as_bytes();
        match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(0) => None,
            Some(end) => self.index.get(&bytes[..end]).copied(),
            None if path.is_root() => None,
            None => self.index.get(&[][..]).copied(),
        }
    }

    /// The rows of everything below a path, in the order of the paths.
    pub(super) fn below(&self, path: &WorkspacePath) -> Vec<RowId> {
        let bound = |end: u8| [path.as_bytes(), &[end]].concat();
        self.index.range(bound(b'/')..bound(b'/' + 1)).map(|(_, id)| *id).collect()
    }

    /// All rows, in the order of the paths.
    pub(super) fn ordered(&self) -> Vec<RowId> {
        self.index.values().copied().collect()
    }
}

impl<'a> Row<'a> {
    /// A row with the same thing there then and now.
    fn at(entry: &'a Entry) -> Self {
        Self {
            path: WorkspacePath::root(),
            then: entry,
            now: entry,
            current: entry,
            planned: Cow::Borrowed(entry),
            pending: None,
            clash: None,
            kept_by: Vec::new(),
            kept_at: None,
            origin: None,
            last_role: None,
            directory: None,
            neutral: false,
            mixed: false,
        }
    }

    /// What the plan puts there once pending changes are in: whether anything does.
    pub(super) fn will_be_present(&self) -> bool {
        self.pending.map_or(&*self.planned, |pending| pending.theirs).is_present()
    }
}

/// Whether a change only says that something was seen for the first time, or again.
pub(super) fn is_sighting(change: &Change) -> bool {
    let unmade = change.author == Author::Person || change.evidence == Evidence::Outside;
    change.before.is_unknown() && change.after.is_present() && unmade
}

/// What stood at a path before a change that is the first one after a moment.
///
/// What is first seen where nobody had looked was there already. What could not be read, or was
/// being written, may have been something else.
pub(crate) fn state_before(change: &Change) -> &Entry {
    match change.before {
        Entry::Unknown(Why::NotSeen | Why::Filtered | Why::Unmounted) if is_sighting(change) => {
            &change.after
        }
        _ => &change.before,
    }
}
