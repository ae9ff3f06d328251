//! Turns a plan's work into steps and puts them in an order in which each can be done.
//!
//! Removals come before directories are made, directories before what they hold, and the attributes
//! of directories last. It looks at the disk and changes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use crate::entry::{Entry, Meta, Special, SpecialKind};
use crate::error::{Context, Result};
use crate::path::WorkspacePath;

use super::check;
use super::directories::{Directories, Seen};
use super::links::Links;
use super::script::{Base, Expected, Place, Rest, Script, Slot, Step};
use super::volumes::Volumes;
use super::{Task, Work};

/// The longest name that file systems take.
const NAME_MAX: usize = 255;

/// Draws the steps; entries are not staged yet.
pub(super) fn draw(
    directories: &mut Directories<'_>,
    work: &Work,
    seen: &[Option<Seen>],
) -> Result<Script> {
    let links = Links::decide(directories, work, seen)?;
    let mut outline = Outline {
        work,
        seen,
        links,
        directories,
        tasks: work.tasks.iter().enumerate().map(|(index, task)| (&task.path, index)).collect(),
        volumes: Volumes::default(),
        touched: BTreeSet::new(),
        made: HashSet::new(),
        removed: HashSet::new(),
        finished: HashSet::new(),
        numbers: 0,
        phases: Phases::default(),
        problems: Vec::new(),
    };
    outline.draw_moves()?;
    let mut order: Vec<_> = (0..work.tasks.len()).collect();
    order.sort_unstable_by_key(|index| &work.tasks[*index].path);
    for index in order {
        outline.draw_task(index)?;
    }
    outline.draw_directories()?;
    let (problems, holders) = (outline.problems, outline.volumes.into_holders());
    Ok(Script {
        id: work.id,
        touch: work.touch,
        holders,
        steps: outline.phases.in_order(),
        problems,
    })
}

/// The steps by what must come before what.
#[derive(Default)]
struct Phases {
    unlock: Vec<Step>,
    remove: Vec<Step>,
    move_out: Vec<Step>,
    /// Directories that hold nothing that moves: what moves may need their place.
    empty: Vec<Step>,
    make: Vec<Step>,
    moves: Vec<Step>,
    /// Directories inside what moves.
    make_inside: Vec<Step>,
    /// Directories that held something that moved.
    empty_late: Vec<Step>,
    place: Vec<Step>,
    change: Vec<Step>,
    finish: Vec<Step>,
}

impl Phases {
    fn in_order(mut self) -> Vec<Step> {
        // Children have greater paths than their parents, so going down is deepest first.
        for phase in [&mut self.empty, &mut self.empty_late, &mut self.finish] {
            phase.sort_by(|a, b| b.path().cmp(a.path()));
        }
        [
            self.unlock,
            self.remove,
            self.move_out,
            self.empty,
            self.make,
            self.moves,
            self.make_inside,
            self.empty_late,
            self.place,
            self.change,
            self.finish,
        ]
        .concat()
    }
}

struct Outline<'a, 'r> {
    work: &'a Work,
    seen: &'a [Option<Seen>],
    links: Links,
    directories: &'a mut Directories<'r>,
    tasks: HashMap<&'a WorkspacePath, usize>,
    volumes: Volumes,
    /// Directories in which names come or go.
    touched: BTreeSet<WorkspacePath>,
    /// Directories that the rewind makes.
    made: HashSet<WorkspacePath>,
    /// Directories that the rewind removes.
    removed: HashSet<WorkspacePath>,
    /// Directories that get attributes of their own in the end.
    finished: HashSet<WorkspacePath>,
    numbers: u64,
    phases: Phases,
    problems: Vec<(WorkspacePath, String)>,
}

impl<'a> Outline<'a, '_> {
    fn draw_moves(&mut self) -> Result<()> {
        let mut moves: Vec<_> = self.work.moves.iter().collect();
        let straight = are_apart(&moves);
        // What lies deeper leaves first and arrives last.
        moves.sort_by(|a, b| b.0.cmp(&a.0));
        let mut arrivals = Vec::new();
        for (from, to) in moves {
            let Some(seen) = self.directories.look_at(from)? else { continue };
            let (ino, slot) = (seen.ino(), self.slot(from)?);
            if self.slot(to)?.stage != slot.stage {
                self.problem(from, "it lies on another volume than where it was");
                continue;
            }
            self.touch(from);
            self.touch(to);
            let (from, to) = (from.clone(), to.clone());
            arrivals.push(if straight {
                Step::Move { from, to, ino }
            } else {
                self.phases.move_out.push(Step::MoveOut { from: from.clone(), ino, slot });
                Step::MoveIn { from, to, ino, slot }
            });
        }
        arrivals.sort_by(|a, b| a.path().cmp(b.path()));
        self.phases.moves = arrivals;
        Ok(())
    }

    fn draw_task(&mut self, index: usize) -> Result<()> {
        let (task, seen) = (&self.work.tasks[index], self.seen[index].as_ref());
        let (now, then) = (&task.now.entry, &task.then);
        if now == then && !now.is_unknown() && !is_placeholder(now, seen) {
            return Ok(());
        }
        if let Some(why) = self.hindrance(task, seen) {
            self.problem(&task.path, why);
            return Ok(());
        }
        let seen = match (now, seen) {
            (Entry::Unknown(_), Some(seen)) => {
                self.set_aside(task, seen);
                None
            }
            (_, seen) => seen,
        };
        match (seen, then.is_directory()) {
            (None, _) => {}
            (Some(seen), true) if seen.is_directory() => {
                self.finish(task, Base::Kept(seen.ino()));
                return Ok(());
            }
            (Some(seen), _) if seen.is_directory() => self.remove_directory(task, seen),
            (Some(seen), false) if then.is_present() => return self.replace(index, task, seen),
            (Some(seen), _) => self.remove(task, seen)?,
        }
        if then.is_directory() {
            self.make(task)
        } else if then.is_present() {
            self.place(task, None)
        } else {
            Ok(())
        }
    }

    /// Why a task cannot be done at all.
    fn hindrance(&self, task: &Task, seen: Option<&Seen>) -> Option<&'static str> {
        let made_anew = !task.now.entry.same_content(&task.then);
        let stays = task.then.is_directory() && seen.is_some_and(Seen::is_directory);
        if self.directories.is_top(&task.path) && !stays {
            return Some("the root itself is neither made nor removed");
        }
        match (&task.now.entry, &task.then) {
            (_, Entry::Unknown(_)) => Some("what stood there is not known"),
            (_, Entry::Special(Special { kind: SpecialKind::Socket, .. })) if made_anew => {
                Some("a socket cannot be brought back")
            }
            (_, Entry::Special(Special { kind, .. }))
                if made_anew && *kind != SpecialKind::Fifo =>
            {
                Some("a device cannot be brought back")
            }
            (Entry::Unknown(_), _) if seen.is_some() && !task.aside => {
                Some("what stands there is not in the store")
            }
            _ => None,
        }
    }

    fn remove(&mut self, task: &Task, seen: &Seen) -> Result<()> {
        let (path, slot) = (task.path.clone(), self.slot(&task.path)?);
        self.touch(&task.path);
        self.phases.remove.push(Step::Remove { path, expected: Expected::of(seen), slot });
        Ok(())
    }

    fn set_aside(&mut self, task: &Task, seen: &Seen) {
        self.touch(&task.path);
        let (path, to) = (task.path.clone(), self.kept_name(&task.path));
        self.phases.remove.push(Step::SetAside { path, ino: seen.ino(), to });
    }

    fn remove_directory(&mut self, task: &Task, seen: &Seen) {
        self.touch(&task.path);
        self.removed.insert(task.path.clone());
        let path = task.path.clone();
        let rest = match path.parent().and_then(|parent| self.task(&parent)) {
            Some(parent) if parent.aside && goes(parent) => Rest::WithParent,
            _ if task.aside => Rest::Aside(self.kept_name(&path)),
            _ => Rest::Stays,
        };
        let holds_moving = self.work.moves.iter().any(|(from, _)| from.is_within(&path));
        let step = Step::RemoveDirectory { path, ino: seen.ino(), mode: seen.permissions(), rest };
        if holds_moving {
            self.phases.empty_late.push(step);
        } else {
            self.phases.empty.push(step);
        }
    }

    fn make(&mut self, task: &Task) -> Result<()> {
        let inside = self.work.moves.iter().any(|(_, to)| task.path.is_within(to));
        let step = self.new_place(task, None)?;
        self.made.insert(task.path.clone());
        if inside {
            self.phases.make_inside.push(step);
        } else {
            self.phases.make.push(step);
        }
        self.finish(task, Base::Made);
        Ok(())
    }

    fn place(&mut self, task: &Task, expected: Option<Expected>) -> Result<()> {
        let step = self.new_place(task, expected)?;
        self.phases.place.push(step);
        Ok(())
    }

    fn new_place(&mut self, task: &Task, expected: Option<Expected>) -> Result<Step> {
        self.touch(&task.path);
        let slot = self.slot(&task.path)?;
        let keeper = self.links.keeper(&task.then);
        Ok(Step::Place(Box::new(Place {
            path: task.path.clone(),
            then: task.then.clone(),
            slot,
            ino: keeper.map_or(0, |(_, ino)| *ino),
            expected,
            link_from: keeper.map(|(path, _)| path.clone()),
        })))
    }

    /// One thing that is no directory takes the place of another, or only changes attributes.
    fn replace(&mut self, index: usize, task: &Task, seen: &Seen) -> Result<()> {
        let stays = match &task.now.entry {
            // Its mode is part of what a placeholder says.
            now if is_placeholder(now, Some(seen)) => false,
            Entry::File(_) => self.links.keeps(index),
            now => now.same_content(&task.then),
        };
        if !stays {
            return self.place(task, Some(Expected::of(seen)));
        }
        if let (Some(now), Some(meta)) = (task.now.entry.meta(), task.then.meta())
            && now != meta
        {
            let (path, expected) = (task.path.clone(), Expected::of(seen));
            let (meta, remove) = (meta.clone(), superfluous(now, meta));
            self.phases.change.push(Step::Change { path, expected, meta, remove });
        }
        Ok(())
    }

    fn finish(&mut self, task: &Task, base: Base) {
        let meta = task.then.meta().expect("BUG: a directory has attributes").clone();
        let remove = match (&base, task.now.entry.meta()) {
            (Base::Kept(_), Some(now)) => superfluous(now, &meta),
            _ => Vec::new(),
        };
        self.finished.insert(task.path.clone());
        self.phases.finish.push(Step::Finish { path: task.path.clone(), meta, remove, base });
    }

    /// Looks after every directory in which names come or go: that it is there, that it may be
    /// changed, and that it looks untouched in the end.
    fn draw_directories(&mut self) -> Result<()> {
        let mut missing = Vec::new();
        for path in std::mem::take(&mut self.touched) {
            match self.directories.look_at(&path)?.filter(Seen::is_directory) {
                Some(seen) => self.draw_directory(path, &seen)?,
                None if self.will_be(&path) => {}
                None => missing.push(path),
            }
        }
        check::outdated(missing)
    }

    fn will_be(&self, path: &WorkspacePath) -> bool {
        self.made.contains(path) || self.work.moves.iter().any(|(_, to)| path.is_within(to))
    }

    fn draw_directory(&mut self, path: WorkspacePath, seen: &Seen) -> Result<()> {
        let unlocked = self.unlock(&path, seen)?;
        if !self.finished.contains(&path) && !self.removed.contains(&path) {
            let mode = unlocked.then(|| seen.permissions());
            let (ino, mtime_ns) = (seen.ino(), seen.signature.mtime_ns);
            let path = self.after_moves(path);
            self.phases.finish.push(Step::Settle { path, ino, mode, mtime_ns });
        }
        Ok(())
    }

    /// Makes sure that names in a directory can be changed, if need be by giving its owner the
    /// right for the time being.
    fn unlock(&mut self, path: &WorkspacePath, seen: &Seen) -> Result<bool> {
        let directory = self.directories.open(path).at("open", path.as_path())?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(&*directory, c".", access, AtFlags::EACCESS) {
            _ if seen.immutable => Err(Errno::PERM).at("write to", path.as_path()),
            Ok(()) => Ok(false),
            Err(Errno::ACCESS) if seen.signature.uid == rustix::process::geteuid().as_raw() => {
                let (path, mode) = (path.clone(), seen.permissions() | 0o300);
                self.phases.unlock.push(Step::Unlock { path, ino: seen.ino(), mode });
                Ok(true)
            }
            Err(error) => Err(error).at("write to", path.as_path()),
        }
    }

    /// Where a directory is once everything has moved.
    fn after_moves(&self, path: WorkspacePath) -> WorkspacePath {
        let moved = self.work.moves.iter().find_map(|(from, to)| path.rebase(from, to));
        moved.unwrap_or(path)
    }

    fn task(&self, path: &WorkspacePath) -> Option<&'a Task> {
        self.tasks.get(path).map(|index| &self.work.tasks[*index])
    }

    fn touch(&mut self, path: &WorkspacePath) {
        self.touched.extend(path.parent());
    }

    /// A new place in the staging directory of a path's volume.
    fn slot(&mut self, path: &WorkspacePath) -> Result<Slot> {
        let parent = path.parent().unwrap_or_default();
        let stage = self.volumes.stage_of(self.directories, &parent)?;
        self.numbers += 1;
        Ok(Slot { stage, lane: 0, number: self.numbers })
    }

    /// The name beside it under which something is kept; the same each time it is asked.
    fn kept_name(&self, path: &WorkspacePath) -> WorkspacePath {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.work.id.0).update(path.as_bytes());
        let suffix = format!(".kept-{}", &hasher.finalize().to_hex()[..6]);
        let name = path.name();
        let mut name = name[..name.len().min(NAME_MAX - suffix.len())].to_vec();
        name.extend_from_slice(suffix.as_bytes());
        path.parent().unwrap_or_default().join(&name)
    }

    fn problem(&mut self, path: &WorkspacePath, why: &str) {
        self.problems.push((path.clone(), why.to_owned()));
    }
}

/// Whether a link stands for a file whose content is not here.
fn is_placeholder(now: &Entry, seen: Option<&Seen>) -> bool {
    matches!(now, Entry::File(_)) && seen.is_some_and(|seen| seen.kind().is_symlink())
}

/// Whether a task removes a directory.
fn goes(task: &Task) -> bool {
    task.now.entry.is_directory() && !task.then.is_directory()
}

/// The extended attributes that are there and should not be.
fn superfluous(now: &Meta, then: &Meta) -> Vec<Vec<u8>> {
    let wanted: HashSet<_> = then.xattrs.iter().map(|(name, _)| name).collect();
    let names = now.xattrs.iter().map(|(name, _)| name);
    names.filter(|name| !wanted.contains(name)).cloned().collect()
}

/// Whether no end of a move lies at, above or below an end of another, so that each can be done in
/// one step and in any order.
fn are_apart(moves: &[&(WorkspacePath, WorkspacePath)]) -> bool {
    let mut ends = HashSet::new();
    let distinct = moves.iter().all(|(from, to)| ends.insert(from) && ends.insert(to));
    distinct && ends.iter().all(|end| !end.ancestors().any(|above| ends.contains(&above)))
}
