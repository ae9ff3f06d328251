//! Fits the planned state to what stands there now: conflicts, the unknown, repositories, and the
//! directories that everything planned needs.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::entry::{Author, Entry, Meta, Why};
use crate::path::WorkspacePath;

use super::fold::Folded;
use super::places::Places;
use super::selection::selected_rows;
use super::table::{Row, RowId, Table};
use super::{Conflict, Draft, Goal, Kept, KeptCause, Move, OnConflict, Selection};

/// Makes the draft.
pub(super) fn settle(folded: Folded<'_>, selection: &Selection, on_conflict: OnConflict) -> Draft {
    let Folded { mut table, places } = folded;
    add_missing_ancestors(&mut table);
    let selected = selected_rows(&table, &places, selection);
    let fates = table.rows.iter().zip(selected).map(|(row, selected)| Fate::of(row, selected));
    let fates = fates.collect();
    let mut settle = Settle { table: &table, places: &places, on_conflict, fates };
    let order = table.ordered();
    let moves = settle.moves();
    let mut conflicts = settle.conflicts();
    settle.neutral();
    for id in order.iter().rev() {
        conflicts.extend(settle.fit(*id));
        settle.claim(*id);
    }
    for id in &order {
        settle.give_way(*id);
    }
    conflicts.sort_by(|a, b| a.path.cmp(&b.path));
    settle.collect(&order, moves, conflicts)
}

/// Adds rows for directories that never changed because they lay below something unknown, and that
/// must be made anew for what comes back below them.
fn add_missing_ancestors(table: &mut Table<'_>) {
    let mut done = HashSet::new();
    for id in 0..table.rows.len() {
        let row = &table.rows[id];
        let may_come_back = row.planned.is_present() || *row.then != Entry::Absent;
        if row.now.is_present() || !may_come_back {
            continue;
        }
        let mut missing = Vec::new();
        for ancestor in row.path.ancestors() {
            let Some(found) = table.find(&ancestor) else {
                missing.push(ancestor);
                continue;
            };
            if is_open(table.rows[found].now) {
                break;
            }
            for path in missing.drain(..) {
                table.find_or_add(&path);
            }
            if !done.insert(found) {
                break;
            }
        }
    }
}

/// Whether something may stand below this.
fn is_open(entry: &Entry) -> bool {
    entry.is_directory() || entry.is_unknown()
}

/// How much a directory is needed by what lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Nothing is below it.
    None,
    /// Only something that is not known.
    Unknown,
    /// This row.
    Known(RowId),
}

/// What becomes of a path.
#[derive(Debug)]
struct Fate<'a> {
    /// What will stand there.
    entry: Cow<'a, Entry>,
    /// It stays because something is not known.
    left: Option<Why>,
    /// Why it stays, if the plan wanted something else.
    cause: Option<KeptCause>,
    /// Unknown things below it go aside.
    aside: bool,
    /// The plan may change it.
    selected: bool,
    /// What lies below it.
    need: Need,
    /// It goes with a move.
    moved: Moved,
    /// A conflict was reported for it.
    reported: bool,
}

/// What a move does to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    No,
    /// It goes away, or comes, with what holds it.
    Along,
    /// It is what comes.
    Arrives,
}

impl<'a> Fate<'a> {
    fn of(row: &Row<'a>, selected: bool) -> Self {
        let mut fate = Self {
            entry: Cow::Borrowed(row.now),
            left: None,
            cause: None,
            aside: false,
            selected,
            need: Need::None,
            moved: Moved::No,
            reported: false,
        };
        if selected && !row.neutral {
            fate.become_entry(row.planned.clone(), row.now);
        }
        fate
    }

    /// Makes it another entry, unless one of the two is not known.
    fn become_entry(&mut self, entry: Cow<'a, Entry>, now: &'a Entry) {
        self.left = match (&*entry, now) {
            (Entry::Unknown(_), Entry::Unknown(_)) => None,
            (Entry::Unknown(why), _) | (_, Entry::Unknown(why)) => Some(*why),
            _ => None,
        };
        let known = !entry.is_unknown() && !now.is_unknown();
        self.entry = if known { entry } else { Cow::Borrowed(now) };
    }

    fn stay(&mut self, now: &'a Entry, cause: Option<KeptCause>) {
        (self.entry, self.cause, self.left) = (Cow::Borrowed(now), cause, None);
    }
}

struct Settle<'a, 't> {
    table: &'t Table<'a>,
    places: &'t Places,
    on_conflict: OnConflict,
    fates: Vec<Fate<'a>>,
}

impl<'a> Settle<'a, '_> {
    fn row(&self, id: RowId) -> &Row<'a> {
        &self.table.rows[id]
    }

    /// Finds what goes back by moving it: what the plan wants at its place is not known, and
    /// nothing stands there now. Where it cannot be moved it stays: nothing else has its content.
    fn moves(&mut self) -> Vec<Move> {
        let mut moves: Vec<Move> = Vec::new();
        for (path, place) in self.places.all() {
            let (Some(from), Some(to)) = (self.table.find(&path), self.table.find(place)) else {
                continue;
            };
            let Entry::Unknown(why) = *self.row(to).planned else { continue };
            let vacated = *self.row(to).now == Entry::Absent;
            let now = self.row(from).now;
            let leaves = *now != Entry::Absent && *self.row(from).planned == Entry::Absent;
            let wanted = self.fates[from].selected && self.fates[from].moved == Moved::No;
            if !leaves || !wanted {
                continue;
            }
            if !vacated || !is_open(now) {
                self.fates[from].stay(now, None);
                self.fates[from].left = Some(why);
            } else {
                self.mark_moved(from, &path);
                self.mark_moved(to, place);
                self.fates[to].moved = Moved::Arrives;
                moves.push(Move { from: path, to: place.clone() });
            }
        }
        moves
    }

    fn mark_moved(&mut self, id: RowId, path: &WorkspacePath) {
        for id in self.table.below(path).into_iter().chain([id]) {
            let now = self.row(id).now;
            self.fates[id].stay(now, None);
            self.fates[id].moved = Moved::Along;
        }
    }

    /// Reports what could not be merged, and decides what becomes of it.
    fn conflicts(&mut self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for id in 0..self.table.rows.len() {
            let table = self.table;
            let row = &table.rows[id];
            let Some(clash) = &row.clash else { continue };
            if !self.fates[id].selected || self.fates[id].moved != Moved::No {
                continue;
            }
            let at = self.where_kept_work_is(id);
            for related in self.decided_with(id, at) {
                self.decide(related, related == at);
            }
            self.fates[id].reported = true;
            conflicts.push(Conflict {
                path: self.row(at).path.clone(),
                what: clash.what,
                base: clash.kept.base.clone(),
                mine: clash.kept.theirs.clone(),
                then: clash.ours.clone(),
            });
        }
        conflicts
    }

    /// The paths that a conflict at a place decides about: the kept work's own path stays with it,
    /// and what a kept change moved away from its origin goes back there.
    fn decided_with(&self, id: RowId, at: RowId) -> Vec<RowId> {
        let origin = self.row(id).origin.filter(|origin| self.row(*origin).kept_by.is_empty());
        let other = if self.on_conflict == OnConflict::Replace { origin } else { Some(at) };
        other.into_iter().filter(|other| *other != id).chain([id]).collect()
    }

    /// The row of the path at which the kept work of a place is now.
    fn where_kept_work_is(&self, id: RowId) -> RowId {
        let moved = self.places.path_of(&self.row(id).path).and_then(|path| self.table.find(path));
        let there = |id: &RowId| *self.row(*id).now != Entry::Absent;
        moved.into_iter().chain(self.row(id).kept_at).find(there).unwrap_or(id)
    }

    /// Decides what becomes of a path in conflict.
    fn decide(&mut self, id: RowId, names_it: bool) {
        let row = &self.table.rows[id];
        let fate = &mut self.fates[id];
        match self.on_conflict {
            OnConflict::Replace => fate.become_entry(Cow::Borrowed(row.then), row.now),
            OnConflict::KeepMine if names_it => fate.stay(row.now, Some(KeptCause::Conflict)),
            OnConflict::KeepMine | OnConflict::Stop => fate.stay(row.now, None),
        }
    }

    /// Brings back what is missing of repositories; nothing of them goes but with the whole.
    fn neutral(&mut self) {
        for id in 0..self.table.rows.len() {
            let row = &self.table.rows[id];
            let fate = &self.fates[id];
            if !row.neutral || !fate.selected || fate.moved != Moved::No {
                continue;
            }
            let unit = self.unit_of(&row.path);
            let unit_goes = unit.is_some_and(|unit| *self.fates[unit].entry == Entry::Absent);
            let unit_is_new = unit.is_some_and(|unit| *self.row(unit).then == Entry::Absent);
            let (missing, new) = (*row.now == Entry::Absent, *row.then == Entry::Absent);
            if missing && !unit_goes || !missing && new && unit_goes && unit_is_new {
                self.fates[id].become_entry(Cow::Borrowed(row.then), row.now);
            }
        }
    }

    /// The row of the repository that a path is in.
    fn unit_of(&self, path: &WorkspacePath) -> Option<RowId> {
        let is_unit = |id: &RowId| {
            let row = self.row(*id);
            [row.then, row.now].iter().any(|entry| matches!(entry, Entry::Repository(_)))
        };
        path.ancestors().filter_map(|ancestor| self.table.find(&ancestor)).find(is_unit)
    }

    /// Makes a path hold what lies below it, deepest first; a conflict if it cannot.
    fn fit(&mut self, id: RowId) -> Option<Conflict> {
        let row = &self.table.rows[id];
        let (need, now) = (self.fates[id].need, row.now);
        if need == Need::None || self.fates[id].moved != Moved::No {
            return None;
        }
        if let (Need::Known(_), false) = (need, is_open(&self.fates[id].entry) || row.neutral) {
            self.include(id);
        }
        let made = self.make_directory(id, need);
        let fate = &mut self.fates[id];
        match (&*fate.entry, need) {
            (entry, _) if is_open(entry) => {}
            (Entry::Absent, Need::Unknown) if now.is_directory() => {
                fate.stay(now, Some(KeptCause::HoldsUnknown));
            }
            (Entry::Absent, Need::Known(_)) if now.is_directory() => {
                fate.stay(now, Some(KeptCause::HoldsKept));
            }
            (Entry::Absent, Need::Known(_)) if !fate.reported => fate.entry = Cow::Owned(made),
            (Entry::Absent, _) => {}
            (_, Need::Known(_)) => return self.clash_of_kinds(id),
            _ => fate.aside = now.is_directory(),
        }
        None
    }

    /// Takes a directory into the selection because something selected needs it.
    fn include(&mut self, id: RowId) {
        let row = &self.table.rows[id];
        let fate = &mut self.fates[id];
        if !fate.selected && row.clash.is_none() {
            fate.selected = true;
            fate.become_entry(row.planned.clone(), row.now);
        }
    }

    /// The directory to make at a path: the last that stood there, or one like what it holds.
    fn make_directory(&self, id: RowId, need: Need) -> Entry {
        let child = match need {
            Need::Known(child) => self.fates[child].entry.meta().cloned().unwrap_or_default(),
            _ => Meta::default(),
        };
        let plain = || Meta { mode: 0o755, xattrs: Vec::new(), ..child };
        Entry::Directory(self.row(id).directory.cloned().unwrap_or_else(plain))
    }

    /// Something kept lies below what must become no directory.
    fn clash_of_kinds(&mut self, id: RowId) -> Option<Conflict> {
        let row = &self.table.rows[id];
        if std::mem::replace(&mut self.fates[id].reported, true) {
            return None;
        }
        let then = self.fates[id].entry.clone().into_owned();
        self.decide(id, true);
        let (path, base, mine) = (row.path.clone(), row.then.clone(), row.now.clone());
        Some(Conflict { path, what: "kind", base, mine, then })
    }

    /// Tells the directory that holds a path whether it is needed.
    fn claim(&mut self, id: RowId) {
        let fate = &self.fates[id];
        let weak = fate.left.is_some() && *fate.entry == *self.row(id).now
            || fate.entry.is_unknown()
            || fate.cause == Some(KeptCause::HoldsUnknown);
        let need = match (fate.moved, &*fate.entry) {
            (Moved::Arrives, _) => Need::Known(id),
            (Moved::Along, _) | (_, Entry::Absent) => Need::None,
            _ if weak => Need::Unknown,
            _ => Need::Known(id),
        };
        if let Some(parent) = self.table.parent(&self.row(id).path) {
            let held = &mut self.fates[parent].need;
            *held = need.max(*held);
        }
    }

    /// Lets a path go whose directory goes after all, highest first.
    fn give_way(&mut self, id: RowId) {
        let row = &self.table.rows[id];
        let Some(parent) = self.table.parent(&row.path) else { return };
        self.stay_with_unit(id);
        let (open, aside) = (is_open(&self.fates[parent].entry), self.fates[parent].aside);
        let fate = &mut self.fates[id];
        let stays_unknown = fate.left.is_some() || fate.entry.is_unknown();
        if open || *fate.entry == Entry::Absent || stays_unknown || fate.moved != Moved::No {
            return;
        }
        fate.cause = None;
        fate.aside = aside && fate.need == Need::Unknown && row.now.is_directory();
        fate.entry = Cow::Owned(Entry::Absent);
    }

    /// Keeps a repository's parts where the repository had to stay.
    fn stay_with_unit(&mut self, id: RowId) {
        let row = &self.table.rows[id];
        if row.neutral
            && *self.fates[id].entry == Entry::Absent
            && self.unit_of(&row.path).is_some_and(|unit| self.fates[unit].entry.is_present())
        {
            self.fates[id].stay(row.now, None);
        }
    }

    /// What the plan takes from one path to another by writing here and deleting there.
    fn renames(&self) -> Vec<Move> {
        let goes = |id: RowId| {
            let (fate, row) = (&self.fates[id], self.row(id));
            let free = fate.selected && fate.moved == Moved::No && !row.neutral;
            free && *fate.entry != *row.now
        };
        let all = self.places.all().into_iter().filter(|(path, place)| {
            let rows = self.table.find(path).zip(self.table.find(place));
            rows.is_some_and(|(from, to)| {
                let (now, then) = (self.row(from).now, &self.fates[to].entry);
                goes(from) && goes(to) && then.is_present() && now.kind() == then.kind()
            })
        });
        all.map(|(from, to)| Move { from, to: to.clone() }).collect()
    }

    fn collect(self, order: &[RowId], moves: Vec<Move>, conflicts: Vec<Conflict>) -> Draft {
        let renames = self.renames();
        let mut draft = Draft { moves, renames, conflicts, ..Draft::default() };
        let mut fates: Vec<_> = self.fates.into_iter().map(Some).collect();
        for id in order {
            let (row, fate) = (&self.table.rows[*id], fates[*id].take());
            let fate = fate.expect("every row is listed once");
            if fate.moved != Moved::No || !fate.selected {
                continue;
            }
            draft.keep.extend(kept(row, &fate));
            draft.unknown.extend(fate.left.map(|why| (row.path.clone(), why)));
            if *fate.entry != *row.now {
                let merged = row.mixed && *fate.entry == *row.planned;
                draft.goals.push(Goal {
                    path: row.path.clone(),
                    now: row.now.clone(),
                    then: fate.entry.into_owned(),
                    merged,
                    aside: fate.aside,
                });
            }
        }
        draft
    }
}

/// What is said of a path on which work stays.
fn kept(row: &Row<'_>, fate: &Fate<'_>) -> Option<Kept> {
    let shared = row.kept_by.iter().any(|author| matches!(author, Author::Shared(_)));
    let others_work = !row.kept_by.is_empty()
        && fate.left.is_none()
        && !fate.entry.is_unknown()
        && *fate.entry == *row.planned
        && !fate.entry.same_but_time(row.then);
    let (cause, reason) = match fate.cause {
        Some(KeptCause::Conflict) => (KeptCause::Conflict, "conflict: kept as it is".to_owned()),
        Some(KeptCause::HoldsUnknown) => {
            (KeptCause::HoldsUnknown, "holds something unknown".to_owned())
        }
        Some(cause) => (cause, "holds kept work".to_owned()),
        None if !others_work => return None,
        None if shared => (KeptCause::Shared, authors_words(&row.kept_by)),
        None => (KeptCause::Others, authors_words(&row.kept_by)),
    };
    Some(Kept { path: row.path.clone(), reason, cause })
}

/// Whose work it is, in words.
fn authors_words(authors: &[&Author]) -> String {
    let word = |author: &&Author| match author {
        Author::Person => "a person".to_owned(),
        Author::Session(key) => format!("session {key}"),
        Author::Chronicle => "chronicle".to_owned(),
        Author::Shared(keys) if keys.iter().any(|key| key == "person") => keys.join(" or "),
        Author::Shared(keys) => format!("{} or a person", keys.join(" or ")),
    };
    let words: Vec<_> = authors.iter().map(word).collect();
    let shared = authors.iter().any(|author| matches!(author, Author::Shared(_)));
    let verb = if shared { "shared: may have been changed by" } else { "changed by" };
    format!("{verb} {}", words.join(" and "))
}
