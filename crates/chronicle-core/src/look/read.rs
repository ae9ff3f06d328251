//! Reads one candidate: its entry, and its content into the store.
//!
//! What changes while it is read is read again and then unknown; what cannot be read is unknown;
//! neither stops the look. Fifos, sockets and devices are named and never opened.

use std::fs::File;
use std::io::Read;

use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;

use super::names::check_lengths;
use super::{Candidate, Examined};
use crate::clock::Clock;
use crate::entry::{self, Entry, Meta, Special, SpecialKind, Symlink, Why};
use crate::error::{Error, Result};
use crate::fs::{self, Directory, Roots, Stat};
use crate::id::{ObjectId, Time};
use crate::known::{Known, Part, Signature};
use crate::path::WorkspacePath;
use crate::placeholder::Placeholder;
use crate::secret::{Class, SecretRules};
use crate::store::{Cloned, Intake};

/// How often something that changes meanwhile is read.
const ATTEMPTS: u32 = 3;
/// Content up to this size is read into memory at once.
const AT_ONCE: u64 = 4 << 20;
/// Two touches within this time may leave the same time stamp.
const TICK_NS: i64 = 20_000_000;
/// The same where the file system keeps whole seconds or pairs of them.
const COARSE_TICK_NS: i64 = 2_000_000_000;

/// What failed while a candidate was read.
enum Failure {
    /// The candidate, or the way to it.
    Here(Error),
    /// The store; that is never a statement about the candidate.
    Store(Error),
}

type Outcome<T> = std::result::Result<T, Failure>;

/// One thread that reads candidates.
pub(super) struct Reader<'a, 's> {
    roots: &'a Roots,
    intake: &'a Intake<'s>,
    clock: &'a dyn Clock,
    /// The last directory: neighbouring candidates mostly share it.
    last: Option<(WorkspacePath, Directory<'a>)>,
    buffer: Vec<u8>,
    /// How many bytes of content were read.
    pub(super) bytes: u64,
}

impl<'a, 's> Reader<'a, 's> {
    pub(super) fn new(roots: &'a Roots, intake: &'a Intake<'s>, clock: &'a dyn Clock) -> Self {
        Self { roots, intake, clock, last: None, buffer: Vec::new(), bytes: 0 }
    }

    /// Reads one candidate; errors are only those that are not about the candidate.
    pub(super) fn examine(&mut self, candidate: &Candidate) -> Result<Examined> {
        let mut stat = candidate.stat;
        for attempt in 0..ATTEMPTS {
            match self.attempt(candidate, attempt == 0, &mut stat) {
                Ok(Some(examined)) => return Ok(examined),
                Ok(None) => {}
                Err(error) => return Ok(unknown(candidate.part, why_unknown(error)?, stat)),
            }
        }
        Ok(unknown(candidate.part, Why::Changing, stat))
    }

    /// One reading; `None` if the candidate changed meanwhile.
    fn attempt(
        &mut self,
        candidate: &Candidate,
        is_first: bool,
        last_stat: &mut Option<Stat>,
    ) -> Outcome<Option<Examined>> {
        let (path, start) = (&candidate.path, self.clock.now());
        let Some((directory, name)) = self.directory_of(path)? else {
            return Ok(Some(absent(candidate.part)));
        };
        // Whether a file is still what the look saw is asked of the open file, so that its name need not be asked again.
        let seen = candidate.stat.filter(|stat| is_first && stat.kind() == FileType::RegularFile);
        let found = seen.map_or_else(|| fs::lstat_at(&directory, name), |stat| Ok(Some(stat)));
        let found =
            found.map_err(|error| Failure::Here(self.roots.failure(error, "read", path)))?;
        let examined = match found {
            None => Ok(Some(absent(candidate.part))),
            Some(stat) if candidate.filtered => {
                Ok(Some(unknown(candidate.part, Why::Filtered, Some(stat))))
            }
            Some(stat) => {
                *last_stat = Some(stat);
                self.read(&Spot { candidate, directory: &directory, name, stat, start })
            }
        };
        if name != b"."
            && let Some(parent) = path.parent()
        {
            self.last = Some((parent, directory));
        }
        examined
    }

    /// The directory that holds a path, the last one again where it is the same.
    fn directory_of<'p>(
        &mut self,
        path: &'p WorkspacePath,
    ) -> Outcome<Option<(Directory<'a>, &'p [u8])>> {
        if let Some((last, directory)) = self.last.take()
            && path.parent().is_some_and(|parent| parent == last)
        {
            return Ok(Some((directory, path.name())));
        }
        self.roots.parent(path).map_err(Failure::Here)
    }

    fn read(&mut self, spot: &Spot<'_>) -> Outcome<Option<Examined>> {
        let special = |kind| {
            let meta = spot.meta(&spot.stat, Vec::new());
            Ok(Some(spot.done(Entry::Special(Special { kind, meta }), &spot.stat)))
        };
        match spot.stat.kind() {
            FileType::RegularFile => self.file(spot),
            FileType::Directory => self.directory(spot).map(Some),
            FileType::Symlink => self.symlink(spot),
            FileType::Fifo => special(SpecialKind::Fifo),
            FileType::Socket => special(SpecialKind::Socket),
            FileType::BlockDevice => special(SpecialKind::Block),
            FileType::CharacterDevice => special(SpecialKind::Character),
            FileType::Unknown => Err(self.failure(spot, Errno::IO)),
        }
    }

    fn file(&mut self, spot: &Spot<'_>) -> Outcome<Option<Examined>> {
        let class = self.class_by_name(spot);
        if class == Some(Class::Never) {
            return Ok(Some(unknown(spot.candidate.part, Why::Secret, Some(spot.stat))));
        }
        let file = match fs::open_file_at(spot.directory, spot.name) {
            Ok(file) => file,
            // Something else stands there by now.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(self.failure(spot, error)),
        };
        if !self.is_unchanged(spot, &file)? {
            return Ok(None);
        }
        let size = spot.stat.signature.size;
        let cloned = self.clone(spot, &file, class)?;
        let streamed = match size > AT_ONCE && cloned.is_none() {
            true => Some(self.stream(spot, &file, class == Some(Class::Secret))?),
            false => None,
        };
        if cloned.is_none() && streamed.is_none() && !self.fill(spot, &file)? {
            return Ok(None);
        }
        let xattrs = fs::xattrs(&file).map_err(|error| self.failure(spot, error))?;
        let sparse = is_sparse(&file, &spot.stat);
        // Content in memory is taken only once it is known to be whole.
        if !self.is_unchanged(spot, &file)? {
            return Ok(None);
        }
        let pending = cloned.is_some();
        let (object, secret) = match (cloned, streamed) {
            (Some(cloned), _) => (self.intake.keep_clone(cloned, size).map_err(not_taken)?, false),
            (_, Some((_, length))) if length != size => return Ok(None),
            (_, Some((object, _))) => (object, class == Some(Class::Secret)),
            (None, None) => self.take(spot, &self.buffer[..size as usize], class)?,
        };
        self.bytes += size;
        let meta = spot.meta(&spot.stat, xattrs);
        let file = entry::File { object, secret, pending, size, sparse, link: None, meta };
        Ok(Some(spot.done(Entry::File(file), &spot.stat)))
    }

    /// Clones a file that need not be read now. A secret is never cloned, since a clone is not sealed;
    /// and what is only looked at again, because it was read within the tick of its last touch, is
    /// mostly the same, which only reading tells.
    fn clone(&self, spot: &Spot<'_>, file: &File, class: Option<Class>) -> Outcome<Option<Cloned>> {
        let Spot { candidate, stat, .. } = spot;
        let again = candidate.was.as_ref().is_some_and(|was| was.signature == Some(stat.signature));
        if class == Some(Class::Secret) || candidate.part != Part::Ordinary || again {
            return Ok(None);
        }
        self.intake.clone_file(file, stat.dev, stat.signature.size).map_err(Failure::Store)
    }

    /// What the rules say of a path; a repository's own files go into its bundle, which is plain.
    fn class_by_name(&self, spot: &Spot<'_>) -> Option<Class> {
        match (self.intake.rules(), spot.candidate.part) {
            (Some(rules), Part::Ordinary) => rules.by_name(&spot.candidate.path),
            _ => Some(Class::Plain),
        }
    }

    /// Takes in what is in memory, and says whether it is secret.
    fn take(
        &self,
        spot: &Spot<'_>,
        bytes: &[u8],
        class: Option<Class>,
    ) -> Outcome<(ObjectId, bool)> {
        let class = class.unwrap_or_else(|| SecretRules::by_content(bytes));
        let secret = class == Class::Secret;
        let taken = match secret {
            true => self.intake.take_secret(bytes),
            false => self.intake.take_version(bytes, spot.earlier()),
        };
        Ok((taken.map_err(not_taken)?, secret))
    }

    /// Whether an open file is the one that was looked at, and still as it was.
    fn is_unchanged(&self, spot: &Spot<'_>, file: &File) -> Outcome<bool> {
        let now = fs::stat_of(file).map_err(|error| self.failure(spot, error))?;
        Ok(now.dev == spot.stat.dev && now.signature == spot.stat.signature)
    }

    /// Reads a file into the buffer; false if it does not have the length that it had.
    fn fill(&mut self, spot: &Spot<'_>, file: &File) -> Outcome<bool> {
        let size = spot.stat.signature.size as usize;
        // One byte more than there should be shows both the end and a file that grew.
        if self.buffer.len() <= size {
            self.buffer.resize(size + 1, 0);
        }
        let mut filled = 0;
        while filled < size {
            match rustix::io::read(file, &mut self.buffer[filled..=size]) {
                Ok(0) => return Ok(false),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failure(spot, error)),
            }
        }
        Ok(filled == size)
    }

    fn stream(&self, spot: &Spot<'_>, file: &File, secret: bool) -> Outcome<(ObjectId, u64)> {
        let limit = spot.stat.signature.size + 1;
        let mut source = Source { file: file.take(limit), failed: None };
        let taken = match secret {
            true => self.intake.take_secret_stream(&mut source),
            false => self.intake.take_stream(&mut source),
        };
        match source.failed {
            Some(error) => Err(self.failure(spot, error)),
            None => taken.map_err(not_taken),
        }
    }

    /// A directory's own entry. It needs no second look: a change in between makes it racy.
    fn directory(&self, spot: &Spot<'_>) -> Outcome<Examined> {
        let found = fs::open_directory_at(spot.directory, spot.name).and_then(|directory| {
            check_lengths(&directory, &spot.candidate.path)?;
            let xattrs = fs::xattrs(&directory)?;
            Ok((xattrs, fs::stat_of(&directory)?))
        });
        let (xattrs, stat) = match found {
            Ok(found) => found,
            // Its attributes can be read only with its names; the rest `lstat` has told. Where nobody ever saw
            // what it holds it is not known: made anew, it would be an empty directory and look like all of it.
            Err(Errno::ACCESS | Errno::NAMETOOLONG) if spot.was_directory() => {
                (spot.last_xattrs(), spot.stat)
            }
            Err(error) => return Err(self.failure(spot, error)),
        };
        Ok(spot.done(Entry::Directory(spot.meta(&stat, xattrs)), &stat))
    }

    fn symlink(&self, spot: &Spot<'_>) -> Outcome<Option<Examined>> {
        let target = match fs::read_link_at(spot.directory, spot.name) {
            Ok(target) => target,
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(error) => return Err(self.failure(spot, error)),
        };
        let after = fs::lstat_at(spot.directory, spot.name);
        let after = after.map_err(|error| self.failure(spot, error))?;
        if after.is_none_or(|after| after.signature != spot.stat.signature) {
            return Ok(None);
        }
        let meta = spot.meta(&spot.stat, Vec::new());
        let Some(stands_for) = self.roots.placeholder(&target) else {
            return Ok(Some(spot.done(Entry::Symlink(Symlink { target, meta }), &spot.stat)));
        };
        let mut examined = spot.done(placeholder_entry(&stands_for, meta), &spot.stat);
        // What a link says never changes; another one is another inode.
        examined.known.racy = false;
        Ok(Some(examined))
    }

    fn failure(&self, spot: &Spot<'_>, error: Errno) -> Failure {
        Failure::Here(self.roots.failure(error, "read", &spot.candidate.path))
    }
}

/// One reading of one candidate.
struct Spot<'s> {
    candidate: &'s Candidate,
    directory: &'s Directory<'s>,
    name: &'s [u8],
    stat: Stat,
    /// When reading began.
    start: Time,
}

impl Spot<'_> {
    fn was_directory(&self) -> bool {
        self.candidate.was.as_ref().is_some_and(|was| was.entry.is_directory())
    }

    fn meta(&self, stat: &Stat, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Meta {
        let Signature { mode, uid, gid, mtime_ns, .. } = stat.signature;
        Meta { mode: mode & 0o7777, uid, gid, mtime_ns, xattrs }
    }

    /// The content that stood here before, if what stands here now may be kept against it.
    fn earlier(&self) -> Option<ObjectId> {
        match self.candidate.was.as_ref().map(|was| &was.entry) {
            Some(Entry::File(file)) if !file.secret && !file.pending && file.size <= AT_ONCE => {
                Some(file.object)
            }
            _ => None,
        }
    }

    fn done(&self, entry: Entry, stat: &Stat) -> Examined {
        let racy = is_racy(&stat.signature, self.start);
        let (signature, part) = (Some(stat.signature), self.candidate.part);
        let known = Known { entry, signature, racy, part };
        Examined { known, nlink: stat.nlink, dev: stat.dev }
    }

    fn last_xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let meta = self.candidate.was.as_ref().and_then(|was| was.entry.meta());
        meta.map_or_else(Vec::new, |meta| meta.xattrs.clone())
    }
}

/// The file that a placeholder stands for, with the owner and the time of the link.
fn placeholder_entry(stands_for: &Placeholder, meta: Meta) -> Entry {
    let Placeholder { object, size, mode } = *stands_for;
    let (secret, pending, sparse, link) = (false, false, false, None);
    let meta = Meta { mode, ..meta };
    Entry::File(entry::File { object, secret, pending, size, sparse, link, meta })
}

/// A file that remembers its own failure, to tell it from a failure of the store.
struct Source<'f> {
    file: std::io::Take<&'f File>,
    failed: Option<Errno>,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.file.read(buffer).inspect_err(|error| {
            if error.kind() != std::io::ErrorKind::Interrupted {
                self.failed = Some(Errno::from_io_error(error).unwrap_or(Errno::IO));
            }
        })
    }
}

/// A secret without its key is not taken, and says so; whatever else fails is the store.
fn not_taken(error: Error) -> Failure {
    match error {
        Error::SecretKey(_) => Failure::Here(error),
        other => Failure::Store(other),
    }
}

fn absent(part: Part) -> Examined {
    let known = Known { entry: Entry::Absent, signature: None, racy: false, part };
    Examined { known, nlink: 0, dev: 0 }
}

fn unknown(part: Part, why: Why, stat: Option<Stat>) -> Examined {
    let signature = stat.map(|stat| stat.signature);
    let known = Known { entry: Entry::Unknown(why), signature, racy: false, part };
    let (nlink, dev) = stat.map_or((0, 0), |stat| (stat.nlink, stat.dev));
    Examined { known, nlink, dev }
}

/// Why a candidate is unknown after a failure; a failure that is not about it stays an error.
fn why_unknown(failure: Failure) -> Result<Why> {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    match failure {
        Failure::Here(Error::ThroughSymlink(_)) => Ok(Why::Changing),
        Failure::Here(Error::SecretKey(_)) => Ok(Why::NoKey),
        Failure::Here(Error::Io { source, .. })
            if !lacking.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            Ok(Why::Unreadable)
        }
        Failure::Here(error) | Failure::Store(error) => Err(error),
    }
}

/// Whether a file has holes. Fewer blocks than bytes may also mean compression.
fn is_sparse(file: &File, stat: &Stat) -> bool {
    let size = stat.signature.size;
    stat.blocks.saturating_mul(512) < size
        && rustix::fs::seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size)
}

/// Whether a change right after this reading could leave the same signature.
pub(crate) fn is_racy(signature: &Signature, start: Time) -> bool {
    let is_whole = |time: i64| time % 1_000_000_000 == 0;
    let coarse = is_whole(signature.ctime_ns) && is_whole(signature.mtime_ns);
    let margin = if coarse { COARSE_TICK_NS } else { TICK_NS };
    signature.ctime_ns.saturating_add(margin) >= start.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ctime_ns: i64, mtime_ns: i64, start: i64, expected: bool) {
        let (size, ino, mode, uid, gid) = (0, 0, 0, 0, 0);
        let signature = Signature { size, mtime_ns, ctime_ns, ino, mode, uid, gid };
        assert_eq!(is_racy(&signature, Time(start)), expected);
    }

    #[test]
    fn a_touch_is_racy_until_the_clock_has_clearly_moved_on() {
        check(1_500_000_000, 1, 1_520_000_000, true);
        check(1_500_000_000, 1, 1_520_000_001, false);
        check(9_500_000_000, 1, 1_000_000_000, true);
    }

    #[test]
    fn coarse_time_stamps_are_racy_for_two_seconds() {
        check(1_000_000_000, 1_000_000_000, 3_000_000_000, true);
        check(1_000_000_000, 1_000_000_000, 3_000_000_001, false);
        check(1_000_000_000, 1_000_000_001, 1_030_000_000, false);
    }
}
