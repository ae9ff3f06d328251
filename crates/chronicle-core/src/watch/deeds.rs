//! Makes out where a process wrote: from the kernel's handle of a directory to a path below the
//! roots, through the tree of watched directories, or, where one is too new for that, by opening it.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use super::fanotify::Name;
use super::handle::DirectoryHandle;
use super::keeper::Keeper;
use super::places::{Place, join};
use super::witness::{Deed, Witness};
use super::{Witnessed, Written};
use crate::fs;
use crate::path::WorkspacePath;

/// A root, and where it really is.
pub(super) struct Top {
    pub(super) place: Place,
    pub(super) prefix: WorkspacePath,
    /// Its path without symbolic links; empty where nobody can tell.
    pub(super) real: Vec<u8>,
}

/// Where a directory is.
enum Spot {
    /// Below a root.
    Here(Vec<u8>),
    /// Elsewhere, or kept out by a filter.
    Elsewhere,
    /// Nowhere any more, and it was never one of ours.
    Gone,
    /// It cannot be told.
    Unclear,
}

impl Keeper<'_> {
    /// Takes in who wrote where, as far as it was told by now.
    ///
    /// Always before the events of the watches: what is written in between then counts as later than
    /// its touch, and is told once more, rather than as earlier and not at all.
    pub(super) fn take_deeds(&mut self) {
        let Some(mut witness) = self.witness.take() else { return };
        match witness.take() {
            Some(deeds) => deeds.iter().for_each(|deed| self.note(&mut witness, deed)),
            None => witness.writers.overrun(),
        }
        // What was done in a directory is told before its end is.
        self.places.forget_departed();
        self.witness = Some(witness);
    }

    /// Who wrote since a number was given out, for a look that has read the disk.
    pub(super) fn written_since(&mut self, counter: u64) -> Option<Witnessed> {
        self.take_deeds();
        let witness = self.witness.as_ref()?;
        witness.writers.since(counter, &witness.boot)
    }

    fn note(&self, witness: &mut Witness, deed: &Deed) {
        let (at, from) = (
            self.spot(witness, &deed.at),
            deed.from.as_ref().map(|from| (from, self.spot(witness, from))),
        );
        if matches!(at, Spot::Unclear) || matches!(from, Some((_, Spot::Unclear))) {
            return witness.writers.overrun();
        }
        let to = self.named_in(witness, &at, &deed.at, deed);
        let Some((from, spot)) = from else {
            if let Some(path) = to {
                witness.writers.wrote(&path, deed.line.as_ref());
            }
            return;
        };
        let from = self.named_in(witness, &spot, from, deed);
        let line = deed.line.as_ref();
        if deed.of_directory {
            // Meanwhile somebody else's may have been taken for nobody's business.
            witness.ignore_nothing();
            let both = from.iter().chain(&to);
            return both.for_each(|path| witness.writers.moved_directory(path, line));
        }
        match (from, to) {
            (Some(from), Some(to)) => witness.writers.renamed(&from, &to, line),
            (one, other) => {
                one.iter().chain(&other).for_each(|path| witness.writers.wrote(path, line));
            }
        }
    }

    /// The path of a name; where names came or went, their directory was written to as well.
    fn named_in(
        &self,
        witness: &mut Witness,
        spot: &Spot,
        name: &Name,
        deed: &Deed,
    ) -> Option<Vec<u8>> {
        let Spot::Here(directory) = spot else { return None };
        let Some(name) = &name.name else { return Some(directory.clone()) };
        if deed.of_structure {
            witness.writers.wrote(directory, deed.line.as_ref());
        }
        Some(join(directory, name))
    }

    fn spot(&self, witness: &Witness, name: &Name) -> Spot {
        let spot = match self.places.by_handle(&name.directory) {
            Some(place) if self.places.is_kept_out(place) => Spot::Elsewhere,
            Some(place) => self.places.path(place).map_or(Spot::Unclear, Spot::Here),
            None => match self.places.departed(&name.directory) {
                Some(path) => Spot::Here(path.to_vec()),
                None => self.found(witness, &name.directory),
            },
        };
        if matches!(spot, Spot::Elsewhere) {
            witness.ignore(&name.directory);
        }
        spot
    }

    /// Looks for a directory that is not watched, or not yet.
    fn found(&self, witness: &Witness, handle: &DirectoryHandle) -> Spot {
        let Some(base) = witness.base(handle.file_system) else { return Spot::Elsewhere };
        let directory = match handle.open(base) {
            Ok(directory) => directory,
            Err(Errno::STALE) => return Spot::Gone,
            Err(_) => return Spot::Unclear,
        };
        let Ok(link) = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
        else {
            return Spot::Unclear;
        };
        let Ok(stat) = fs::stat_of(&directory) else { return Spot::Unclear };
        if stat.nlink == 0 {
            return Spot::Gone;
        }
        let Some((top, path)) = self.below_a_top(&link) else { return Spot::Elsewhere };
        if self.is_below_kept_out(top.place, &link, &top.real) {
            return Spot::Elsewhere;
        }
        // The text may have been of another mount, or be old by now: only what is there counts.
        let root = self.scope.roots.root_of(&path).ok();
        let there = root
            .and_then(|root| fs::open_directory_at(root.handle().ok()?, root.below(&path)).ok());
        let same = there.and_then(|there| fs::stat_of(&there).ok()).is_some_and(|there| {
            (there.dev, there.signature.ino) == (stat.dev, stat.signature.ino)
        });
        match fs::stat_of(&directory) {
            _ if same => Spot::Here(path.as_bytes().to_vec()),
            Ok(stat) if stat.nlink == 0 => Spot::Gone,
            _ => Spot::Unclear,
        }
    }

    fn below_a_top(&self, real: &Path) -> Option<(&Top, WorkspacePath)> {
        self.tops.iter().filter(|top| !top.real.is_empty()).find_map(|top| {
            let below =
                real.strip_prefix(Path::new(std::ffi::OsStr::from_bytes(&top.real))).ok()?;
            let below = below.as_os_str().as_bytes();
            let path = if below.is_empty() {
                top.prefix.as_bytes().to_vec()
            } else {
                join(top.prefix.as_bytes(), below)
            };
            Some((top, WorkspacePath::new(path).ok()?))
        })
    }

    fn is_below_kept_out(&self, top: Place, real: &Path, top_real: &[u8]) -> bool {
        let top_real = Path::new(std::ffi::OsStr::from_bytes(top_real));
        let mut place = top;
        for name in real.strip_prefix(top_real).into_iter().flat_map(Path::iter) {
            match self.places.child(place, name.as_bytes()) {
                Some(child) if self.places.is_kept_out(child) => return true,
                Some(child) => place = child,
                None => return false,
            }
        }
        false
    }
}

impl Witnessed {
    /// About how many bytes it takes to tell.
    pub(super) fn size(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| 2 + 12 * line.len()).sum();
        let path = |(path, written): (&WorkspacePath, &Written)| {
            path.as_bytes().len() + 8 + 3 * written.writers.len()
        };
        lines + self.paths.iter().map(path).sum::<usize>()
    }
}
