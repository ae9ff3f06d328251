//! Applies the kept changes to the state at a moment, in order, three-way, through renames.
//!
//! Knows nothing of directories that must hold what is planned, nor of what stands there now:
//! that is `settle`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::entry::{Author, Entry};
use crate::error::Result;
use crate::merge::{Contents, Merged, merge_entries};
use crate::path::WorkspacePath;

use super::places::Places;
use super::table::{Clash, Pending, RowId, Table, is_sighting, state_before};
use super::{PastChange, Role};

/// The planned state, before it is fitted to what stands there now.
pub(super) struct Folded<'a> {
    /// Every path that the plan is about.
    pub(super) table: Table<'a>,
    /// Where things are in the plan.
    pub(super) places: Places,
}

/// Folds all changes.
pub(super) fn fold<'a>(
    changes: &'a [PastChange],
    contents: &mut Contents<'_>,
) -> Result<Folded<'a>> {
    let mut fold = Fold { table: Table::new(changes), places: Places::default(), contents };
    for record in changes.chunk_by(|a, b| a.at.seq == b.at.seq) {
        fold.record(record)?;
    }
    for row in 0..fold.table.rows.len() {
        fold.flush(row)?;
    }
    Ok(Folded { table: fold.table, places: fold.places })
}

struct Fold<'a, 'c, 's> {
    table: Table<'a>,
    places: Places,
    contents: &'c mut Contents<'s>,
}

/// A move that a record shows, with where it starts in the plan.
struct Rename<'a> {
    past: &'a PastChange,
    source: RowId,
    source_place: WorkspacePath,
}

/// What a kept move takes from one place in the plan to another.
struct Carried<'a> {
    planned: Cow<'a, Entry>,
    pending: Option<Pending<'a>>,
    clash: Option<Box<Clash<'a>>>,
    kept_by: Vec<&'a Author>,
    kept_at: Option<RowId>,
    origin: RowId,
    mixed: bool,
}

impl<'a> Fold<'a, '_, '_> {
    fn record(&mut self, record: &'a [PastChange]) -> Result<()> {
        let renames = self.renames(record);
        if renames.is_empty() {
            return record.iter().try_for_each(|past| {
                let place = self.places.of(&past.change.path);
                self.change(past, &place)
            });
        }
        // What stood before the record has the place it had then; what is new in it has the place
        // that the record's moves give to its directory.
        let moved: HashSet<_> = renames.iter().map(|rename| &rename.past.change.path).collect();
        let consumed: HashSet<_> = renames.iter().map(|rename| rename.source).collect();
        let old_places: HashMap<_, _> = record
            .iter()
            .filter(|past| past.change.before != Entry::Absent)
            .map(|past| (&past.change.path, self.places.of(&past.change.path)))
            .collect();
        self.apply_renames(&renames, &old_places)?;
        for past in record.iter().filter(|past| !moved.contains(&past.change.path)) {
            let path = &past.change.path;
            let row = self.table.find_or_add(path);
            if consumed.contains(&row) {
                self.table.rows[row].current = &past.change.after;
                self.table.rows[row].last_role = Some(past.role);
                continue;
            }
            let place = old_places.get(path).cloned().unwrap_or_else(|| self.places.of(path));
            self.change(past, &place)?;
        }
        Ok(())
    }

    /// Folds one change that is not a move, at its place in the plan.
    fn change(&mut self, past: &'a PastChange, place: &WorkspacePath) -> Result<()> {
        let change = &past.change;
        let id = self.table.find_or_add(&change.path);
        if self.table.rows[id].neutral {
            return Ok(());
        }
        let place = if *place == change.path { id } else { self.table.find_or_add(place) };
        let row = &mut self.table.rows[id];
        let role = match row.last_role {
            // A sighting changes nothing: it tells what the change before it had made, or, if it
            // is the first, what stood there all along.
            Some(role) if is_sighting(change) => Some(role),
            None if !std::ptr::eq(state_before(change), &change.before) => None,
            _ => Some(past.role),
        };
        row.current = &change.after;
        row.last_role = role.or(row.last_role);
        match role {
            Some(Role::Keep) => {
                self.keep(place, id, &change.before, past);
            }
            Some(Role::Drop) => self.flush(place)?,
            None => {}
        }
        let replaced = change.before.is_present() && change.before.kind() != change.after.kind();
        if change.after == Entry::Absent || replaced && past.role == Role::Drop {
            self.places.leave(&change.path);
        }
        Ok(())
    }

    /// Adds a kept change to those that wait at a place.
    fn keep(&mut self, place: RowId, id: RowId, base: &'a Entry, past: &'a PastChange) {
        let row = &mut self.table.rows[place];
        let theirs = &past.change.after;
        row.pending = match row.pending {
            Some(pending) => Some(Pending { theirs, ..pending }),
            None => Some(Pending { base, theirs }),
        };
        row.kept_at = Some(id);
        if !row.kept_by.contains(&&past.change.author) {
            row.kept_by.push(&past.change.author);
        }
    }

    /// Merges the kept changes that wait at a place into what is planned there.
    fn flush(&mut self, id: RowId) -> Result<()> {
        let row = &mut self.table.rows[id];
        let Some(pending) = row.pending.take() else { return Ok(()) };
        let gone = *pending.theirs == Entry::Absent;
        if row.clash.is_some() && !gone {
            return Ok(());
        }
        match merge_entries(pending.base, &row.planned, pending.theirs, self.contents)? {
            Merged::Ours => {}
            Merged::Theirs => row.planned = Cow::Borrowed(pending.theirs),
            Merged::Mixed(entry) => {
                let only_time =
                    entry.same_but_time(pending.theirs) || entry.same_but_time(&row.planned);
                row.mixed |= !only_time;
                row.planned = Cow::Owned(entry);
            }
            Merged::Conflict(what) => {
                let ours = row.planned.clone().into_owned();
                row.clash = Some(Box::new(Clash { what, kept: pending, ours }));
            }
        }
        if gone {
            row.clash = None;
        }
        Ok(())
    }

    /// The moves that a record shows and that are really moves: the source is gone by them.
    fn renames(&mut self, record: &'a [PastChange]) -> Vec<Rename<'a>> {
        if record.iter().all(|past| past.change.from.is_none()) {
            return Vec::new();
        }
        let changed: HashMap<_, _> = record.iter().map(|past| (&past.change.path, past)).collect();
        let mut taken = HashSet::new();
        let mut renames = Vec::new();
        for past in record {
            let Some(from) = &past.change.from else { continue };
            let Some(source) = self.table.find(&from.path) else { continue };
            let row = &self.table.rows[source];
            if row.neutral || past.change.neutral || from.path == past.change.path {
                continue;
            }
            let source_place = match changed.get(&from.path) {
                Some(other) if other.change.after == Entry::Absent => self.places.of(&from.path),
                Some(other) if other.change.from.is_some() => self.places.of(&from.path),
                None if *row.current == Entry::Absent => self.places.of_deleted(&from.path),
                // The source is still there: a copy, or something else was put in its place.
                _ => continue,
            };
            let late = !changed.contains_key(&from.path);
            let place = self.table.find_or_add(&source_place);
            let waiting = self.table.rows[place].pending.is_some();
            if (!late || past.role == Role::Drop || waiting) && taken.insert(source) {
                renames.push(Rename { past, source, source_place });
            }
        }
        renames
    }

    fn apply_renames(
        &mut self,
        renames: &[Rename<'a>],
        old_places: &HashMap<&WorkspacePath, WorkspacePath>,
    ) -> Result<()> {
        for rename in renames {
            let place = self.table.find_or_add(&rename.source_place);
            if rename.past.role == Role::Drop {
                self.flush(place)?;
                if let Some(replaced) = old_places.get(&rename.past.change.path) {
                    let replaced = self.table.find_or_add(replaced);
                    self.flush(replaced)?;
                }
            }
            self.places.leave(&self.table.rows[rename.source].path);
        }
        for rename in renames {
            let path = &rename.past.change.path;
            match rename.past.role {
                Role::Drop => self.places.set(path, rename.source_place.clone()),
                Role::Keep => self.places.forget(path),
            }
        }
        self.carry(renames, old_places)?;
        for rename in renames {
            let id = self.table.find_or_add(&rename.past.change.path);
            let row = &mut self.table.rows[id];
            row.current = &rename.past.change.after;
            row.last_role = Some(rename.past.role);
        }
        Ok(())
    }

    /// Moves what kept renames move: all is taken up first, so that two things may swap places.
    fn carry(
        &mut self,
        renames: &[Rename<'a>],
        old_places: &HashMap<&WorkspacePath, WorkspacePath>,
    ) -> Result<()> {
        let kept = || renames.iter().filter(|rename| rename.past.role == Role::Keep);
        let sources: HashSet<_> = renames.iter().map(|rename| &rename.source_place).collect();
        let mut loads = Vec::new();
        for rename in kept() {
            let target = self.places.of_new(&rename.past.change.path);
            let base = self.table.rows[rename.source].current;
            let place = self.table.find_or_add(&rename.source_place);
            let id = self.table.find_or_add(&rename.past.change.path);
            self.keep(place, id, base, rename.past);
            loads.push((target, self.take_up(place)));
        }
        loads.extend(self.forgotten_below(renames, &sources)?);
        for rename in kept() {
            if let Some(replaced) = old_places.get(&rename.past.change.path)
                && !sources.contains(replaced)
            {
                let replaced = self.table.find_or_add(replaced);
                self.take_up(replaced);
            }
        }
        for (target, load) in loads {
            let target = self.table.find_or_add(&target);
            self.set_down(target, load);
        }
        Ok(())
    }

    /// What a kept move of a directory moves in the plan only: a dropped change had deleted it, or
    /// moved it elsewhere, so that the record's own changes do not name it.
    fn forgotten_below(
        &mut self,
        renames: &[Rename<'a>],
        sources: &HashSet<&WorkspacePath>,
    ) -> Result<Vec<(WorkspacePath, Carried<'a>)>> {
        let mut loads = Vec::new();
        for rename in renames.iter().filter(|rename| rename.past.role == Role::Keep) {
            let change = &rename.past.change;
            let inner = || rename.source_place.parent().is_some_and(|it| sources.contains(&it));
            if !change.after.is_directory() || inner() {
                continue;
            }
            let target = self.places.of_new(&change.path);
            for id in self.table.below(&rename.source_place) {
                let row = &self.table.rows[id];
                let Some(goes_to) = row.path.rebase(&rename.source_place, &target) else {
                    continue;
                };
                let occupied = self
                    .table
                    .find(&goes_to)
                    .is_some_and(|other| self.table.rows[other].will_be_present());
                if row.neutral || !row.will_be_present() || occupied {
                    continue;
                }
                self.flush(id)?;
                let left = self.table.rows[id].path.clone();
                self.places.shift(&left, &goes_to);
                loads.push((goes_to, self.take_up(id)));
            }
        }
        Ok(loads)
    }

    fn take_up(&mut self, id: RowId) -> Carried<'a> {
        let row = &mut self.table.rows[id];
        Carried {
            planned: std::mem::replace(&mut row.planned, Cow::Owned(Entry::Absent)),
            pending: row.pending.take(),
            clash: row.clash.take(),
            kept_by: std::mem::take(&mut row.kept_by),
            kept_at: row.kept_at.take(),
            origin: row.origin.take().unwrap_or(id),
            mixed: std::mem::take(&mut row.mixed),
        }
    }

    fn set_down(&mut self, id: RowId, load: Carried<'a>) {
        let row = &mut self.table.rows[id];
        row.planned = load.planned;
        row.pending = load.pending;
        row.clash = load.clash;
        row.kept_by = load.kept_by;
        row.kept_at = load.kept_at;
        row.origin = (load.origin != id).then_some(load.origin);
        row.mixed = load.mixed;
    }
}
