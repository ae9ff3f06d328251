//! What a mount writes down, and how it comes into the log.
//!
//! The mount holds a [`MountLog`]: intents, outcomes and versions that are about to go become notes in a
//! journal. Whoever takes the workspace's lock first records the versions, in order; looking at what was
//! touched is for the mount's own [`fold`](Workspace::fold), or for any look at everything.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::capture::{Found, Look};
use super::outcomes::Closing;
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, DirectoryUpdate, Durability, LocalState};
use crate::entry::{Entry, Why};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::journal::{self, Folded, Journal, Note};
use crate::known::{Known, Part};
use crate::lock::Lock;
use crate::path::WorkspacePath;
use crate::process::Process;
use crate::watch::{Touched, Witnessed, Written};

pub use crate::journal::Deed;

/// How long a mount that seems to live is waited for: it may be dying.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// Notes that wait to be written together.
const WAITING_MOST: usize = 256;

/// The most content that waits in one note.
const ROWS_MOST: usize = 1 << 20;

/// What bringing a journal into the log found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoldReport {
    /// Paths that changed.
    pub changes: u64,
    /// Everything was looked at, not only what was touched.
    pub everywhere: bool,
}

/// What became of a version that is about to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedAs {
    /// It is in the log already.
    Known,
    /// It is in the journal.
    Noted,
    /// It is too much for the journal: [`Workspace::record_now`] must take it in.
    TooMuch,
}

/// The journal of one mount, for all its threads.
pub struct MountLog {
    state: Mutex<Writing>,
    _lock: Lock,
}

struct Writing {
    journal: Journal,
    /// Notes that nobody needs before the next look: they are written with those that somebody does.
    waiting: Vec<Note>,
    /// The number of the next intent.
    next: u64,
    /// Processes that have a number already.
    known: HashMap<Process, u32>,
}

impl Writing {
    /// Adds notes behind those that wait.
    fn add(&mut self, notes: Vec<Note>) -> Result<()> {
        let waited = self.waiting.len();
        self.waiting.extend(notes);
        let added = self.journal.add(&self.waiting);
        // What could not be noted does not happen.
        self.waiting.truncate(if added.is_ok() { 0 } else { waited });
        added
    }

    /// Adds notes when others are added, or when somebody wants to read them.
    fn add_later(&mut self, notes: impl Iterator<Item = Note>) -> Result<()> {
        self.waiting.extend(notes);
        if self.waiting.len() < WAITING_MOST { Ok(()) } else { self.add(Vec::new()) }
    }
}

impl MountLog {
    fn writing(&self) -> MutexGuard<'_, Writing> {
        // What a thread left that panicked is whole: notes are added at once.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The number of a process, given with those above it: itself first.
    pub fn who(&self, line: &[Process]) -> Result<u32> {
        let mut writing = self.writing();
        let Some(process) = line.first() else { return Ok(0) };
        if let Some(number) = writing.known.get(process) {
            return Ok(*number);
        }
        let number = u32::try_from(writing.known.len() + 1).unwrap_or(0);
        writing.add(vec![Note::Who { number, name: process.name(), line: line.to_vec() }])?;
        writing.known.insert(process.clone(), number);
        Ok(number)
    }

    /// Something is about to happen to these paths; the number is for telling what came of it.
    pub fn intend(&self, who: u32, deeds: &[(Deed, Vec<WorkspacePath>)]) -> Result<Vec<u64>> {
        let mut writing = self.writing();
        let first = writing.next;
        let notes: Vec<_> = (first..)
            .zip(deeds)
            .map(|(number, (deed, paths))| {
                let (deed, paths) = (*deed, paths.clone());
                Note::Intent { number, who, deed, paths }
            })
            .collect();
        writing.add(notes)?;
        writing.next += deeds.len() as u64;
        Ok((first..writing.next).collect())
    }

    /// What came of it: 0, or the number of an error.
    pub fn outcome(&self, numbers: &[u64], errno: u32) -> Result<()> {
        let notes = numbers.iter().map(|number| Note::Outcome { number: *number, errno });
        self.writing().add_later(notes)
    }

    /// Nobody has these open for writing any more.
    pub fn closed(&self, who: u32, paths: Vec<WorkspacePath>) -> Result<()> {
        self.writing().add_later([Note::Closed { who, paths }].into_iter())
    }

    /// Writes what waits, so that whoever folds finds it.
    pub fn flush(&self) -> Result<()> {
        let mut writing = self.writing();
        if writing.waiting.is_empty() { Ok(()) } else { writing.add(Vec::new()) }
    }

    /// Makes everything that was noted durable.
    pub fn sync(&self) -> Result<()> {
        let mut writing = self.writing();
        if !writing.waiting.is_empty() {
            writing.add(Vec::new())?;
        }
        writing.journal.sync()
    }

    /// Notes what stands at a path, if the log does not have it.
    pub fn save(&self, workspace: &Workspace, path: &WorkspacePath) -> Result<SavedAs> {
        let look = workspace.look_at(std::slice::from_ref(path))?;
        let mut notes = Vec::new();
        let mut kept: HashSet<_> = HashSet::new();
        for found in look.found.iter().filter(|found| !found.neutral && found.after.is_present()) {
            if let Entry::Unknown(why) = found.after {
                let why = super::views::why_text(why);
                return Err(Error::NotCaptured { path: found.path.clone(), why });
            }
            let rows: Vec<_> = look
                .rows
                .iter()
                .filter(|row| found.after.object() == Some(row.id) && kept.insert(row.id))
                .map(|row| (row.id, row.stored.clone()))
                .collect();
            // A clone and a repository need more than a note.
            let short = rows.iter().map(|(_, stored)| stored.len()).sum::<usize>() < ROWS_MOST;
            let plain = match &found.after {
                Entry::File(file) => !file.pending,
                Entry::Repository(_) => false,
                _ => true,
            };
            if !plain || !short {
                return Ok(SavedAs::TooMuch);
            }
            notes.push(Note::Saved { path: found.path.clone(), entry: found.after.clone(), rows });
        }
        if notes.is_empty() {
            return Ok(SavedAs::Known);
        }
        self.writing().add(notes)?;
        failpoint::hit("mount_after_save");
        Ok(SavedAs::Noted)
    }

    /// Goes on with a new journal if the present one is long and all of it is in the log, and removes old
    /// ones. Says whether it did: then processes have no numbers any more.
    pub fn tidy(&self, workspace: &Workspace) -> Result<bool> {
        let folded = workspace.folded()?;
        let mut writing = self.writing();
        let next = writing.journal.next(&folded)?;
        let turned = next.is_some();
        if let Some(next) = next {
            writing.journal = next;
            writing.known.clear();
        }
        let number = writing.journal.number;
        drop(writing);
        for (older, path) in journal::list(&workspace.mount_directory())? {
            if older < number.min(folded.number) {
                std::fs::remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(turned)
    }
}

impl Workspace {
    fn mount_directory(&self) -> PathBuf {
        self.directory().join(journal::DIRECTORY)
    }

    fn folded(&self) -> Result<Folded> {
        let bytes = self.catalog.state(key::MOUNTED)?;
        Ok(bytes.and_then(|bytes| Folded::decode(&bytes)).unwrap_or_default())
    }

    /// Whether a mount of this workspace is running.
    pub fn is_mounted(&self) -> Result<bool> {
        let lock = self.mount_directory().join("lock");
        Ok(lock.exists() && Lock::try_take(&lock)?.is_none())
    }

    /// Begins to write down what a mount sees. Everything that stands there is recorded first.
    pub fn begin_mount(&mut self) -> Result<MountLog> {
        let directory = self.mount_directory();
        crate::home::private_directory(&directory)?;
        // One that was killed lets go a moment after it is dead.
        let lives = self.mount_place()?.is_some_and(|place| place.process.is_alive());
        let patience = if lives { SHORT_PATIENCE } else { PATIENCE };
        let lock = Lock::take(&directory.join("lock"), patience)
            .map_err(|_| Error::Busy("this workspace is mounted already".to_owned()))?;
        self.settle()?;
        let journal = Journal::begin(&directory)?;
        let (waiting, known) = (Vec::new(), HashMap::new());
        let writing = Writing { journal, waiting, next: 1, known };
        Ok(MountLog { state: Mutex::new(writing), _lock: lock })
    }

    /// Reads the settings again, for one who never takes the lock.
    pub fn read_settings_anew(&mut self) {
        self.held.take();
    }

    /// Whether a filter keeps a path out, so that no version of it is kept.
    pub fn is_kept_out(&self, path: &WorkspacePath, directory: bool) -> Result<bool> {
        Ok(self.filter()?.covers(path, directory))
    }

    /// Records what stands at some paths, at once.
    pub fn record_now(&mut self, paths: &[WorkspacePath], durable: bool) -> Result<()> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        self.keep_within_budget()?;
        let look = self.look_at(paths)?;
        if let Some(found) = look.found.iter().find(|found| paths.contains(&found.path))
            && let Entry::Unknown(why) = found.after
            && why.is_failure()
        {
            let why = super::views::why_text(why);
            return Err(Error::NotCaptured { path: found.path.clone(), why });
        }
        let mut batch = Batch::default();
        self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
        let durability = if durable { Durability::PowerCut } else { Durability::ProcessDeath };
        self.commit_batch(batch, durability).map(drop)
    }

    /// Brings what a mount wrote down into the log: the versions that went, then what stands where something
    /// was touched. What is still open for writing is left for later unless it is asked for.
    pub fn fold(&mut self, open_too: bool, patience: Duration) -> Result<FoldReport> {
        let _lock = self.lock_in_haste(patience)?;
        self.keep_within_budget()?;
        let journals = Journals::read(self)?;
        if journals.upto == self.folded()? && !open_too {
            return Ok(FoldReport::default());
        }
        // Some may have been saved since the lock was taken.
        self.record_saved(&journals)?;
        let touched = journals.touched(open_too);
        self.seen.replace(Some(journals.seen_with_names()));
        let looked = match self.look_at_touched(&touched, &[]) {
            Ok(Some(look)) => Ok(look),
            Ok(None) => self.look(),
            Err(error) => Err(error),
        };
        let folded = looked.and_then(|look| self.fold_look(look, &journals));
        self.seen.replace(None);
        folded
    }

    fn fold_look(&mut self, mut look: Look, journals: &Journals) -> Result<FoldReport> {
        // A version that went meanwhile comes first, when it is recorded.
        let late = Journals::read(self)?.saved_after(&journals.upto);
        look.found.retain(|found| !late.contains(&found.path));
        for update in &mut look.known {
            update.names.retain(|(name, _)| !late.contains(&update.path.join(name)));
        }
        look.journal = Some(journals.upto.encode());
        let everywhere = look.everywhere;
        let open = self.openings()?;
        let report = self.settle_with(look, &open, &Closing::Nobody)?;
        failpoint::hit("mount_after_fold");
        Ok(FoldReport { changes: report.changes, everywhere })
    }

    /// Records the versions that a mount saved before they went; needs the lock.
    pub(super) fn fold_versions(&mut self) -> Result<()> {
        // Nearly nobody has a mount.
        if !self.mount_directory().exists() {
            return Ok(());
        }
        self.record_saved(&Journals::read(self)?)
    }

    /// Records the versions that these journals have and the log has not, in order.
    fn record_saved(&mut self, journals: &Journals) -> Result<()> {
        let mut folded = self.folded()?;
        let (mut group, mut emptied) = (Vec::<Version<'_>>::new(), Emptied::default());
        self.seen.replace(Some(journals.seen_with_names()));
        let mut fold = |workspace: &mut Self| -> Result<()> {
            for (number, behind, note) in &journals.notes {
                if folded.number < *number {
                    folded = Folded { number: *number, saved: 0, looked: 0 };
                }
                let before = folded.saved;
                folded.saved = folded.saved.max(*behind);
                let (path, entry, rows): (_, _, &[_]) = match note {
                    Note::Saved { path, entry, rows } => (path, entry, rows),
                    _ => {
                        emptied.note(*number, note);
                        continue;
                    }
                };
                let gone = emptied.take(path).then_some((path, &Entry::Absent, &[][..]));
                if *behind <= before {
                    continue;
                }
                for version in gone.into_iter().chain([(path, entry, rows)]) {
                    if group.iter().any(|(before, ..)| *before == path) {
                        // This note is not among them, and must be met again if we die here.
                        let upto = Folded { saved: before, ..folded };
                        workspace.record_versions(&group, journals, &upto)?;
                        group.clear();
                    }
                    group.push(version);
                }
            }
            if group.is_empty() {
                Ok(())
            } else {
                workspace.record_versions(&group, journals, &folded)
            }
        };
        let done = fold(self);
        self.seen.replace(None);
        done
    }

    /// Records versions of different paths.
    fn record_versions(
        &mut self,
        versions: &[Version<'_>],
        journals: &Journals,
        folded: &Folded,
    ) -> Result<()> {
        let mut look = Look { hold: Some(self.store.hold()?), ..Look::default() };
        look.journal = Some(folded.encode());
        for (path, entry, rows) in versions {
            let before = match self.catalog.known(path)? {
                Some(known) => known.entry,
                None if journals.was_absent(self, path)? => Entry::Absent,
                None => Entry::Unknown(Why::NotSeen),
            };
            look.rows.extend(journal::rows(rows));
            // What went with a directory is for the look to tell.
            let went_whole = **entry == Entry::Absent && before.is_directory();
            if before == **entry || went_whole {
                continue;
            }
            let (path, after) = ((*path).clone(), (*entry).clone());
            let (signature, racy, part) = (None, true, Part::Ordinary);
            let known = Known { entry: after.clone(), signature, racy, part };
            if let Some(parent) = path.parent() {
                let known = Some(known).filter(|known| known.entry.is_present());
                let names = vec![(path.name().to_vec(), known)];
                look.known.push(DirectoryUpdate {
                    path: parent,
                    names,
                    ..DirectoryUpdate::default()
                });
            }
            look.found.push(Found { path, before, after, from: None, neutral: false });
        }
        let mut batch = Batch::default();
        self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
        self.commit_batch(batch, Durability::ProcessDeath).map(drop)
    }
}

/// A path, what stood there, and the contents it needs.
type Version<'n> = (&'n WorkspacePath, &'n Entry, &'n [(crate::id::ObjectId, Vec<u8>)]);

/// The paths at which nothing was left since they were last saved.
#[derive(Default)]
struct Emptied<'n> {
    intents: HashMap<(u64, u64), &'n [WorkspacePath]>,
    paths: HashSet<&'n WorkspacePath>,
}

impl<'n> Emptied<'n> {
    fn note(&mut self, journal: u64, note: &'n Note) {
        match note {
            Note::Intent { number, deed, paths, .. } if deed.empties() => {
                self.intents.insert((journal, *number), paths);
            }
            Note::Outcome { number, errno: 0 } => {
                self.paths.extend(self.intents.remove(&(journal, *number)).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn take(&mut self, path: &WorkspacePath) -> bool {
        self.paths.remove(path)
    }
}

/// The notes of all journals that are not in the log, and those before them that they need.
struct Journals {
    /// Which journal, the place behind the note, and the note.
    notes: Vec<(u64, u64, Note)>,
    /// Up to where it was looked before.
    before: Folded,
    /// The end of what was read.
    upto: Folded,
}

impl Journals {
    fn read(workspace: &Workspace) -> Result<Self> {
        let before = workspace.folded()?;
        let (mut notes, mut upto) = (Vec::new(), before);
        for (number, path) in journal::list(&workspace.mount_directory())? {
            if number < before.number {
                continue;
            }
            let found = journal::read(&journal::bytes_of(&path)?);
            let end = found.last().map_or(0, |(behind, _)| *behind);
            upto = Folded { number, saved: end, looked: end };
            notes.extend(found.into_iter().map(|(behind, note)| (number, behind, note)));
        }
        Ok(Self { notes, before, upto })
    }

    fn is_new(&self, number: u64, behind: u64) -> bool {
        number > self.before.number || behind > self.before.looked
    }

    /// Where something was touched since the last look.
    fn touched(&self, open_too: bool) -> Vec<Touched> {
        let mut touched: BTreeMap<&WorkspacePath, bool> = BTreeMap::new();
        let mut intents = HashMap::new();
        let mut open: HashMap<&WorkspacePath, usize> = HashMap::new();
        for (journal, behind, note) in &self.notes {
            let new = self.is_new(*journal, *behind);
            match note {
                Note::Intent { number, deed, paths, .. } => {
                    intents.insert((*journal, *number), (*deed, paths));
                    for path in paths {
                        match deed {
                            Deed::Opens => *open.entry(path).or_default() += 1,
                            _ => drop(open.remove(path)),
                        }
                    }
                    if new {
                        touch_all(&mut touched, paths, deed.is_whole());
                    }
                }
                Note::Outcome { number, .. } if new => {
                    if let Some((deed, paths)) = intents.get(&(*journal, *number)) {
                        touch_all(&mut touched, paths, deed.is_whole());
                    }
                }
                Note::Closed { paths, .. } => {
                    for path in paths {
                        open.remove(path);
                    }
                    if new {
                        touch_all(&mut touched, paths, false);
                    }
                }
                Note::Saved { path, .. } if new => {
                    touch_all(&mut touched, std::slice::from_ref(path), false);
                }
                _ => {}
            }
        }
        if open_too {
            touched.extend(
                open.keys()
                    .filter(|path| !touched.contains_key(**path))
                    .map(|path| (*path, false))
                    .collect::<Vec<_>>(),
            );
        } else {
            touched.retain(|path, _| !open.contains_key(path));
        }
        let touched = touched.into_iter();
        touched.map(|(path, whole)| Touched { path: path.clone(), whole }).collect()
    }

    /// Who touched what since the last look, and what each is called.
    fn seen_with_names(&self) -> (Witnessed, Vec<String>) {
        let name = |(_, _, note): &(u64, u64, Note)| match note {
            Note::Who { name, .. } => Some(name.clone()),
            _ => None,
        };
        (self.seen(), self.notes.iter().filter_map(name).collect())
    }

    /// Who touched what since the last look.
    fn seen(&self) -> Witnessed {
        let mut seen = Witnessed::default();
        let (mut lines, mut intents) = (HashMap::new(), HashMap::new());
        for (journal, behind, note) in &self.notes {
            let mut wrote = |who: u32, paths: &[WorkspacePath], moved: bool| {
                let writer = lines.get(&(*journal, who)).copied();
                for path in paths {
                    let written = seen.paths.entry(path.clone());
                    let written = written.or_insert(Written { writers: Vec::new(), moved: false });
                    written.moved |= moved;
                    if !written.writers.contains(&writer) {
                        written.writers.push(writer);
                    }
                }
            };
            let new = self.is_new(*journal, *behind);
            match note {
                Note::Who { number, line, .. } => {
                    lines.insert((*journal, *number), seen.lines.len());
                    seen.lines.push(line.clone());
                }
                Note::Intent { number, who, deed, paths } => {
                    intents.insert((*journal, *number), (*who, *deed, paths));
                    if new {
                        wrote(*who, paths, deed.moves());
                    }
                }
                Note::Outcome { number, .. } if new => {
                    if let Some((who, deed, paths)) = intents.get(&(*journal, *number)) {
                        wrote(*who, paths, deed.moves());
                    }
                }
                Note::Closed { who, paths } if new => wrote(*who, paths, false),
                _ => {}
            }
        }
        seen
    }

    /// The paths of versions that were saved behind a place.
    fn saved_after(&self, place: &Folded) -> HashSet<WorkspacePath> {
        let late = |(number, behind, _): &&(u64, u64, Note)| {
            *number > place.number || *number == place.number && *behind > place.saved
        };
        let path = |(_, _, note): &(u64, u64, Note)| match note {
            Note::Saved { path, .. } => Some(path.clone()),
            _ => None,
        };
        self.notes.iter().filter(late).filter_map(path).collect()
    }

    /// Whether it is proven that nothing stood at a path that nobody knows: its directory was listed, or the
    /// mount saw it made, or something above it.
    fn was_absent(&self, workspace: &Workspace, path: &WorkspacePath) -> Result<bool> {
        let parent = path.parent().unwrap_or_default();
        if workspace.catalog.known_directory(&parent)?.is_some_and(|known| known.listed.is_some()) {
            return Ok(true);
        }
        let made = |note: &Note| match note {
            Note::Intent { deed: Deed::Creates | Deed::CreatesDirectory, paths, .. } => {
                paths.iter().any(|made| path.is_within(made))
            }
            _ => false,
        };
        Ok(self.notes.iter().any(|(_, _, note)| made(note)))
    }
}

fn touch_all<'n>(
    touched: &mut BTreeMap<&'n WorkspacePath, bool>,
    paths: &'n [WorkspacePath],
    whole: bool,
) {
    for path in paths {
        *touched.entry(path).or_default() |= whole;
    }
}
