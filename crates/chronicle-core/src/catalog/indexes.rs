//! The tables that follow from the records, so that nobody has to read all of them: which belong to
//! which snapshot, which changed something in which directory, and what stands for merged ones.
//!
//! The log is found by them: a row that is gone hides a snapshot of a history that is whole.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};

use super::sum::{self, Line, Sum};
use super::{Catalog, OF_SNAPSHOT, body, clones, state};
use crate::codec;
use crate::entry::{Author, Change};
use crate::error::{Error, Finding, Result};
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::record::{Kind, Record};

/// One line of `touched`: directory, whether an agent was among it, record.
type Touched = (Vec<u8>, i64, i64);

/// What follows from the records.
#[derive(Default)]
pub(super) struct Derived {
    touched: BTreeSet<Touched>,
    by_id: BTreeSet<(Vec<u8>, i64)>,
    /// By the last record of a run: its first, the prune, where in it, how many.
    merged: BTreeMap<i64, [i64; 4]>,
    /// By the name of a clone: its content, and the record that says so.
    resolved: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
}

fn is_by_agent(changes: &[Change]) -> bool {
    let agents = |change: &Change| matches!(change.author, Author::Session(_) | Author::Shared(_));
    changes.iter().any(agents)
}

/// The directories of these changes; neighbours in one directory name it once.
fn directories_of(changes: &[Change]) -> impl Iterator<Item = WorkspacePath> {
    let mut last: Option<WorkspacePath> = None;
    changes.iter().filter_map(move |change| {
        let directory = change.path.parent().unwrap_or_default();
        let is_new = last.as_ref() != Some(&directory);
        last = Some(directory.clone());
        is_new.then_some(directory)
    })
}

/// Remembers in which directories a record changed something, a moved entry in both; tells the sum of
/// the rows.
pub(super) fn insert_touched(
    connection: &Connection,
    directories: &mut state::Directories<'_>,
    seq: Seq,
    changes: &[Change],
) -> rusqlite::Result<Sum> {
    let (by_agent, mut inserted) = (is_by_agent(changes), Sum::default());
    let sql = "INSERT OR IGNORE INTO touched (directory, seq, by_agent) VALUES (?1, ?2, ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    for directory in directories_of(changes) {
        let id = directories.id(&directory)?;
        let seq = seq.0.cast_signed();
        // The same directory may come again, behind others.
        if statement.execute(params![id, seq, by_agent])? > 0 {
            inserted.add(&Line::Touched { directory: directory.as_bytes(), by_agent, seq });
        }
    }
    Ok(inserted)
}

impl Catalog {
    /// Makes sure, once, that the past is found by rows that were written so.
    ///
    /// It reads all of them, which no hook has the time for.
    pub(crate) fn trust_indexes(&self) -> Result<()> {
        if self.trusted.get() {
            return Ok(());
        }
        let holds = {
            let _one_moment = self.reading()?;
            sum::holds(&self.connection).map_err(|e| self.error(e))?
        };
        if !holds {
            self.check_pages()?;
            if let Some(seq) = self.misfits()?.into_iter().min() {
                return Err(misfit(seq));
            }
        }
        self.trusted.set(true);
        Ok(())
    }

    /// Compares the tables with the records that they follow from: of which records rows are wrong.
    pub(crate) fn misfits(&self) -> Result<Vec<Seq>> {
        let _one_moment = self.reading()?;
        self.misfits_with(&derive(&self.connection)?)
    }

    /// The same, and makes the tables anew.
    pub(crate) fn rederive(&mut self) -> Result<Vec<Seq>> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|e| self.error(e))?;
        let wrong = self.rederive_now();
        let end = if wrong.is_ok() { "COMMIT" } else { "ROLLBACK" };
        self.connection.execute_batch(end).map_err(|e| self.error(e))?;
        wrong
    }

    fn rederive_now(&self) -> Result<Vec<Seq>> {
        let derived = derive(&self.connection)?;
        let wrong = self.misfits_with(&derived)?;
        let renew = || {
            if !wrong.is_empty() {
                write(&self.connection, &derived)?;
            }
            sum::renew(&self.connection)
        };
        renew().map_err(|e| self.error(e))?;
        Ok(wrong)
    }

    fn misfits_with(&self, derived: &Derived) -> Result<Vec<Seq>> {
        let stored = stored(&self.connection).map_err(|e| self.error(e))?;
        let touched = derived.touched.symmetric_difference(&stored.touched).map(|line| line.2);
        let by_id = derived.by_id.symmetric_difference(&stored.by_id).map(|line| line.1);
        let differ = |seq: &i64| derived.merged.get(seq) != stored.merged.get(seq);
        let merged = derived.merged.keys().chain(stored.merged.keys());
        let merged = merged.filter(|seq| differ(seq)).copied();
        let names = derived.resolved.keys().chain(stored.resolved.keys());
        let resolved = names.filter_map(|name| {
            let (said, kept) = (derived.resolved.get(name), stored.resolved.get(name));
            (said != kept).then(|| said.or(kept).map_or(0, |(_, seq)| *seq))
        });
        Ok(touched
            .chain(by_id)
            .chain(merged)
            .chain(resolved)
            .map(|seq| Seq(seq.cast_unsigned()))
            .collect())
    }
}

/// Makes the tables anew, whatever they hold.
pub(super) fn write_derived(connection: &Connection) -> Result<()> {
    let derived = derive(connection)?;
    let written = write(connection, &derived).and_then(|()| sum::renew(connection));
    let at = |source| Error::Catalog { path: connection.path().unwrap_or_default().into(), source };
    written.map_err(at)
}

/// What a row that does not follow from its record is called.
pub(crate) fn misfit(seq: Seq) -> Error {
    let why = "an index over the records does not say what they say".to_owned();
    Error::Tampered { seq, finding: Finding::IndexEdited, why }
}

/// What is wanted of the changes of each record that counts as having some, by its position.
pub(super) type OfRecords<T> = BTreeMap<i64, T>;

/// Where a record changed something, and whether an agent was among it.
type Places = (bool, BTreeSet<Vec<u8>>);

fn places(changes: &[Change]) -> Places {
    let directories = directories_of(changes).map(|path| path.as_bytes().to_vec());
    (is_by_agent(changes), directories.collect())
}

/// Reads all records: what follows from them but `touched`, and what is taken of their changes.
pub(super) fn read<T>(
    connection: &Connection,
    take: &dyn Fn(&[Change]) -> T,
) -> Result<(Derived, OfRecords<T>)> {
    let (mut derived, mut taken) = (Derived::default(), OfRecords::new());
    let mut each = |seq: i64, leaf: &[u8], body: &[u8]| -> Result<()> {
        let record = open(seq, leaf, body)?;
        if let Some(id) = &record.labels.snapshot {
            derived.by_id.insert((id.0.to_vec(), seq));
        }
        match record.kind {
            Kind::Prune => merge(&mut derived, &mut taken, &record, take),
            Kind::Resolve => {
                let pairs = clones::resolutions(&record.changes);
                derived.resolved.extend(
                    pairs.map(|(name, object)| (name.0.to_vec(), (object.0.to_vec(), seq))),
                );
            }
            Kind::Intent | Kind::Forget => {}
            _ => drop(taken.insert(seq, take(&record.changes))),
        }
        Ok(())
    };
    let at = |source| Error::Catalog { path: connection.path().unwrap_or_default().into(), source };
    let sql = "SELECT seq, leaf, body, packed FROM record WHERE leaf != x'' ORDER BY seq";
    let mut statement = connection.prepare(sql).map_err(at)?;
    let mut rows = statement.query([]).map_err(at)?;
    while let Some(row) = rows.next().map_err(at)? {
        let bytes = |n| row.get_ref(n).map(|value| value.as_bytes().unwrap_or_default());
        let packed = row.get(3).unwrap_or_default();
        let body = body::unpack(bytes(2).map_err(at)?, packed);
        each(row.get(0).map_err(at)?, bytes(1).map_err(at)?, &body)?;
    }
    Ok((derived, taken))
}

/// Everything that follows from the records.
fn derive(connection: &Connection) -> Result<Derived> {
    let (mut derived, places) = read(connection, &places)?;
    for (seq, (by_agent, directories)) in places {
        let line = |directory| (directory, i64::from(by_agent), seq);
        derived.touched.extend(directories.into_iter().map(line));
    }
    Ok(derived)
}

/// A record with its changes; one whose changes were merged has none.
fn open(seq: i64, leaf: &[u8], body: &[u8]) -> Result<Record> {
    let opened = if body.is_empty() { codec::decode_header(leaf) } else { codec::open(leaf, body) };
    opened.map_err(|source| Error::Record { seq: Seq(seq.cast_unsigned()), source })
}

/// What a prune says counts from there on.
fn merge<T>(
    derived: &mut Derived,
    taken: &mut OfRecords<T>,
    prune: &Record,
    take: &dyn Fn(&[Change]) -> T,
) {
    let mut start = 0;
    for range in &prune.labels.pruned {
        let (first, last) = (range.first.0.cast_signed(), range.last.0.cast_signed());
        let before: Vec<i64> = derived.merged.range(first..=last).map(|(seq, _)| *seq).collect();
        for seq in before {
            derived.merged.remove(&seq);
            taken.remove(&seq);
        }
        let Some(count) = range.merged else { continue };
        let line = [first, prune.seq.0.cast_signed(), start as i64, i64::from(count)];
        derived.merged.insert(last, line);
        // All that an emptied prune merged was merged again by a later one.
        let slice = prune.changes.get(start..start + count as usize).unwrap_or_default();
        taken.insert(last, take(slice));
        start += count as usize;
    }
}

fn stored(connection: &Connection) -> rusqlite::Result<Derived> {
    let mut stored = Derived::default();
    // A directory that is not there is no row of its own, but one that belongs nowhere.
    let sql = "SELECT coalesce(path, x'00'), by_agent, seq FROM touched
               LEFT JOIN directory ON id = directory";
    let mut statement = connection.prepare(sql)?;
    let line = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    stored.touched = statement.query_map([], line)?.collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare("SELECT id, seq FROM by_id WHERE kind = ?1")?;
    let line = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    stored.by_id = statement.query_map([OF_SNAPSHOT], line)?.collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare("SELECT seq, first, prune, start, count FROM merged")?;
    let line = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))
    };
    stored.merged = statement.query_map([], line)?.collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare("SELECT name, object, seq FROM resolved")?;
    let line = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
    stored.resolved = statement.query_map([], line)?.collect::<rusqlite::Result<_>>()?;
    Ok(stored)
}

fn write(connection: &Connection, derived: &Derived) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM touched", [])?;
    connection.execute("DELETE FROM by_id WHERE kind = ?1", [OF_SNAPSHOT])?;
    connection.execute("DELETE FROM merged", [])?;
    connection.execute("DELETE FROM resolved", [])?;
    for (name, (object, seq)) in &derived.resolved {
        clones::insert_resolved(connection, name, object, *seq)?;
    }
    let mut directories = state::Directories::new(connection);
    let sql = "INSERT INTO touched (directory, by_agent, seq) VALUES (?1, ?2, ?3)";
    let mut insert = connection.prepare(sql)?;
    for (directory, by_agent, seq) in &derived.touched {
        let Ok(path) = WorkspacePath::new(directory.clone()) else { continue };
        insert.execute(params![directories.id(&path)?, by_agent, seq])?;
    }
    for (id, seq) in &derived.by_id {
        super::insert_by_id(connection, OF_SNAPSHOT, id, *seq)?;
    }
    let sql = "INSERT INTO merged (seq, first, prune, start, count) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = connection.prepare(sql)?;
    for (seq, [first, prune, start, count]) in &derived.merged {
        insert.execute([seq, first, prune, start, count])?;
    }
    Ok(())
}
