//! What a mount writes down, and how it comes into the log.
//!
//! The mount holds a [`MountLog`]: intents, outcomes and versions that are about to go become notes in a
//! journal. Whoever takes the workspace's lock first records the versions, in order; looking at what was
//! touched is for the mount's own [`fold`](Workspace::fold), or for any look at everything.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
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
use crate::repository::is_repository;
use crate::watch::{Touched, Witnessed, Written};

pub use crate::journal::Deed;

/// How long a mount that seems to live is waited for: it may be dying.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// Notes that wait to be written together.
const WAITING_MOST: usize = 256;

/// Processes that keep their numbers when a new journal is begun.
const PROCESSES_MOST: usize = 4096;

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
    lasting: Lasting,
}

/// What is said again in a new journal, since it is not over.
#[derive(Default)]
struct Lasting {
    /// Processes in the order of their numbers.
    who: VecDeque<Note>,
    /// Intents without an outcome.
    pending: BTreeMap<u64, Note>,
    /// What is open for writing, and the intent to open it.
    open: HashMap<WorkspacePath, Note>,
}

impl Lasting {
    fn intend(&mut self, note: &Note) {
        let Note::Intent { number, who, deed, paths } = note else { return };
        for path in paths {
            let opens = || Note::Intent {
                number: *number,
                who: *who,
                deed: Deed::Opens,
                paths: vec![path.clone()],
            };
            match deed {
                Deed::Opens => drop(self.open.insert(path.clone(), opens())),
                _ => drop(self.open.remove(path)),
            }
        }
        self.pending.insert(*number, note.clone());
    }

    fn notes(&self) -> Vec<Note> {
        let notes = self.who.iter().chain(self.open.values()).chain(self.pending.values());
        notes.cloned().collect()
    }
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

    /// Goes on in a new journal if the present one is long, and says there again what is not over.
    fn turn(&mut self) -> Result<()> {
        let Some(mut next) = self.journal.next()? else { return Ok(()) };
        next.add(&self.lasting.notes())?;
        failpoint::hit("mount_after_turn");
        self.journal = next;
        Ok(())
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
        let last = writing.lasting.who.back();
        let number = last.map_or(1, |last| match last {
            Note::Who { number, .. } => number.wrapping_add(1).max(1),
            _ => 0,
        });
        let note = Note::Who { number, name: process.name(), line: line.to_vec() };
        writing.add(vec![note.clone()])?;
        writing.known.insert(process.clone(), number);
        writing.lasting.who.push_back(note);
        if writing.lasting.who.len() > PROCESSES_MOST
            && let Some(Note::Who { line, .. }) = writing.lasting.who.pop_front()
            && let Some(process) = line.first()
        {
            writing.known.remove(process);
        }
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
        notes.iter().for_each(|note| writing.lasting.intend(note));
        let added = writing.add(notes);
        if added.is_err() {
            (0..deeds.len())
                .for_each(|at| _ = writing.lasting.pending.remove(&(first + at as u64)));
        }
        added?;
        writing.next += deeds.len() as u64;
        Ok((first..writing.next).collect())
    }

    /// What came of it: 0, or the number of an error.
    pub fn outcome(&self, numbers: &[u64], errno: u32) -> Result<()> {
        let notes = numbers.iter().map(|number| Note::Outcome { number: *number, errno });
        let mut writing = self.writing();
        numbers.iter().for_each(|number| _ = writing.lasting.pending.remove(number));
        writing.add_later(notes)
    }

    /// Nobody has these open for writing any more.
    pub fn closed(&self, who: u32, paths: Vec<WorkspacePath>) -> Result<()> {
        let mut writing = self.writing();
        paths.iter().for_each(|path| _ = writing.lasting.open.remove(path));
        writing.add_later([Note::Closed { who, paths }].into_iter())
    }

    /// Writes what waits, so that whoever folds finds it, and keeps short what he has to read the next time.
    pub fn flush(&self) -> Result<()> {
        let mut writing = self.writing();
        if !writing.waiting.is_empty() {
            writing.add(Vec::new())?;
        }
        writing.turn()
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

    /// Removes journals that are in the log.
    pub fn tidy(&self, workspace: &Workspace) -> Result<()> {
        let folded = workspace.folded()?;
        let number = self.writing().journal.number;
        for (older, path) in journal::list(&workspace.mount_directory())? {
            if older < number.min(folded.number) {
                std::fs::remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(())
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
        let lasting = Lasting::default();
        let writing = Writing { journal, waiting, next: 1, known, lasting };
        Ok(MountLog { state: Mutex::new(writing), _lock: lock })
    }

    /// Whether a path is part of a repository's metadata, which has one value: of one that is known, or of one that
    /// stands there. A directory that is only called like one is none.
    pub fn is_in_repository(&self, path: &WorkspacePath) -> Result<bool> {
        let above = std::iter::successors(Some(path.clone()), WorkspacePath::parent);
        for directory in above.filter(|above| matches!(above.name(), b".git" | b".jj")) {
            let known = self.catalog.known(&directory)?.map(|known| known.entry);
            if matches!(known, Some(Entry::Repository(_))) {
                return Ok(true);
            }
            let has = |name: &[u8]| {
                self.roots.lstat(&directory.join(name)).is_ok_and(|stat| stat.is_some())
            };
            if is_repository(directory.name(), &has).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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
        let _lock = self.lock_before_folding(patience)?;
        self.keep_within_budget()?;
        let mut journals = Journals::read(self)?;
        if journals.upto == journals.before && !open_too {
            return Ok(FoldReport::default());
        }
        self.record_saved(&mut journals)?;
        let touched = journals.touched(open_too);
        self.seen.replace(Some(std::mem::take(&mut journals.seen)));
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
        let late = Journals::saved_behind(self, &journals.upto)?;
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
        self.record_saved(&mut Journals::read(self)?)
    }

    /// Records the versions that these journals have and the log has not, in order.
    fn record_saved(&mut self, journals: &mut Journals) -> Result<()> {
        self.seen.replace(Some(std::mem::take(&mut journals.seen)));
        let done = self.record_saved_of(journals);
        journals.seen = self.seen.replace(None).unwrap_or_default();
        done
    }

    fn record_saved_of(&mut self, journals: &Journals) -> Result<()> {
        let mut folded = journals.before;
        let (mut group, mut emptied) = (Vec::<Version<'_>>::new(), Emptied::default());
        let mut grouped = HashSet::new();
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
                if !grouped.insert(path) {
                    // This note is not among them, and must be met again if we die here.
                    let upto = Folded { saved: before, ..folded };
                    self.record_versions(&group, journals, &upto)?;
                    group.clear();
                    grouped = HashSet::from([path]);
                }
                group.push(version);
            }
        }
        if group.is_empty() { Ok(()) } else { self.record_versions(&group, journals, &folded) }
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
    /// Who touched what since the last look, and what each is called.
    seen: (Witnessed, Vec<String>),
    /// Where something was touched since the last look, and whether with everything below.
    touched: BTreeMap<WorkspacePath, bool>,
    /// What is open for writing.
    open: HashSet<WorkspacePath>,
    /// What the mount saw made.
    made: HashSet<WorkspacePath>,
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
        let mut journals = Self {
            notes: Vec::new(),
            before,
            upto,
            seen: Default::default(),
            touched: BTreeMap::new(),
            open: HashSet::new(),
            made: HashSet::new(),
        };
        journals.walk(&notes);
        journals.notes = notes;
        Ok(journals)
    }

    /// Gathers from all notes what is asked of them, in one walk.
    fn walk(&mut self, notes: &[(u64, u64, Note)]) {
        let (mut lines, mut intents) = (Lines::default(), HashMap::new());
        for (journal, behind, note) in notes {
            let new = *journal > self.before.number || *behind > self.before.looked;
            match note {
                Note::Who { number, name, line } => {
                    lines.add((*journal, *number), line, &mut self.seen.0);
                    self.seen.1.push(name.clone());
                }
                Note::Intent { number, who, deed, paths } => {
                    intents.insert((*journal, *number), (*who, *deed, paths));
                    self.open_or_made(*deed, paths);
                    if new {
                        self.touch(lines.get(*journal, *who), paths, Some(*deed));
                    }
                }
                Note::Outcome { number, .. } if new => {
                    if let Some((who, deed, paths)) = intents.get(&(*journal, *number)) {
                        self.touch(lines.get(*journal, *who), paths, Some(*deed));
                    }
                }
                Note::Closed { who, paths } => {
                    paths.iter().for_each(|path| _ = self.open.remove(path));
                    if new {
                        self.touch(lines.get(*journal, *who), paths, None);
                    }
                }
                Note::Saved { path, .. } if new => {
                    self.touched.entry(path.clone()).or_default();
                }
                Note::Outcome { .. } | Note::Saved { .. } => {}
            }
        }
    }

    fn open_or_made(&mut self, deed: Deed, paths: &[WorkspacePath]) {
        for path in paths {
            match deed {
                Deed::Opens => _ = self.open.insert(path.clone()),
                _ => _ = self.open.remove(path),
            }
        }
        if matches!(deed, Deed::Creates | Deed::CreatesDirectory) {
            self.made.extend(paths.iter().cloned());
        }
    }

    /// Somebody did something to these paths, or closed them.
    fn touch(&mut self, writer: Option<usize>, paths: &[WorkspacePath], deed: Option<Deed>) {
        for path in paths {
            let written = self.seen.0.paths.entry(path.clone());
            let written = written.or_insert(Written { writers: Vec::new(), moved: false });
            written.moved |= deed.is_some_and(Deed::moves);
            if !written.writers.contains(&writer) {
                written.writers.push(writer);
            }
            *self.touched.entry(path.clone()).or_default() |= deed.is_some_and(Deed::is_whole);
        }
    }

    /// Where it is to be looked. What is open for writing is left out, or all of it is in.
    fn touched(&mut self, open_too: bool) -> Vec<Touched> {
        let mut touched = std::mem::take(&mut self.touched);
        for path in &self.open {
            if open_too {
                touched.entry(path.clone()).or_default();
            } else {
                touched.remove(path);
            }
        }
        touched.into_iter().map(|(path, whole)| Touched { path, whole }).collect()
    }

    /// The paths of versions that were saved behind a place.
    fn saved_behind(workspace: &Workspace, place: &Folded) -> Result<HashSet<WorkspacePath>> {
        let mut late = HashSet::new();
        for (number, path) in journal::list(&workspace.mount_directory())? {
            let notes = match number.cmp(&place.number) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal if place.saved > 0 => {
                    journal::notes_in(&journal::bytes_behind(&path, place.saved)?)
                }
                _ => journal::read(&journal::bytes_of(&path)?),
            };
            late.extend(notes.into_iter().filter_map(|(_, note)| match note {
                Note::Saved { path, .. } => Some(path),
                _ => None,
            }));
        }
        Ok(late)
    }

    /// Whether it is proven that nothing stood at a path that nobody knows: its directory was listed, or the
    /// mount saw it made, or something above it.
    fn was_absent(&self, workspace: &Workspace, path: &WorkspacePath) -> Result<bool> {
        let parent = path.parent().unwrap_or_default();
        if workspace.catalog.known_directory(&parent)?.is_some_and(|known| known.listed.is_some()) {
            return Ok(true);
        }
        let above = std::iter::successors(Some(path.clone()), WorkspacePath::parent);
        Ok(above.into_iter().any(|above| self.made.contains(&above)))
    }
}

/// Which number means which line of processes. A new journal says some of them again.
#[derive(Default)]
struct Lines {
    by_number: HashMap<(u64, u32), usize>,
    known: HashMap<Vec<Process>, usize>,
}

impl Lines {
    fn add(&mut self, number: (u64, u32), line: &[Process], seen: &mut Witnessed) {
        let at = *self.known.entry(line.to_vec()).or_insert_with(|| {
            seen.lines.push(line.to_vec());
            seen.lines.len() - 1
        });
        self.by_number.insert(number, at);
    }

    fn get(&self, journal: u64, who: u32) -> Option<usize> {
        self.by_number.get(&(journal, who)).copied()
    }
}
