//! Btrfs: a part that is a subvolume of its own is kept as a read-only snapshot of it.
//!
//! The snapshot is the kernel's: whatever reached the file system before it, all files of one subvolume at
//! one instant. Two subvolumes are two instants, so the freeze spans them; a cluster counts only if its
//! write-ahead log and tablespaces lie in the same subvolume, and then it recovers as from a power cut.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::kept::{self, Copy};
use super::postgres;
use super::reflink::clone::{Cloning, clone_tree};
use crate::driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged,
};
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::{self, Exchange, exists};
use crate::part::{Part, PartKind};
use crate::programs::{self, Program};

/// What `statfs` calls the file system.
const MAGIC: i64 = 0x9123_683E;
/// The inode of the top of every subvolume.
const TOP: u64 = 256;
/// How long the program may take outside a freeze.
const PATIENCE: Duration = Duration::from_secs(120);

/// Keeps subvolumes as snapshots.
#[derive(Debug, Clone, Copy, Default)]
pub struct Btrfs;

struct Snapshot<'s> {
    part: Part,
    copy: Copy<'s>,
    schemas: Option<String>,
    made: bool,
}

impl Driver for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn version(&self) -> u32 {
        1
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        Ok(match obstacle(part)? {
            Some(why) => Fit::Not(why),
            None => Fit::Fits { rank: 0, why: "the kernel snapshots its subvolume".to_owned() },
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        if let Some(why) = obstacle(part)? {
            return Err(Problem::new("not_a_subvolume", why, "Use another driver").into());
        }
        let copy = Copy::new(part, site, remove)?;
        let schemas = match part.kind {
            PartKind::Postgres => postgres::schemas(part)?,
            _ => None,
        };
        kept::write_out(&part.path)?;
        Ok(Box::new(Snapshot { part: part.clone(), copy, schemas, made: false }))
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        kept::is_known(captured, self.version())?;
        kept::verify(captured, site)?;
        let place = kept::place(captured)?;
        if is_subvolume(&place)? && !is_read_only(&place)? {
            let why = format!("the snapshot {} was made writable", place.display());
            let next = "Restore another checkpoint: chronicle checkpoint list";
            return Err(Problem::new("snapshot_writable", why, next).into());
        }
        Ok(())
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        let mut problems = kept::gate(restoration)?;
        let target = &restoration.part.path;
        // A subvolume has a device of its own and can be exchanged all the same.
        if exists(target)? && is_subvolume(target)? && !is_mount_point(target) {
            problems.retain(|problem| problem.code != "mount_point");
        }
        Ok(problems)
    }

    fn halt(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::halt(restoration),
            _ => Ok(()),
        }
    }

    fn resume(&self, restoration: &Restoration<'_>) -> Result<()> {
        match restoration.part.kind {
            PartKind::Postgres => postgres::resume(restoration),
            _ => Ok(()),
        }
    }

    fn restore(&self, restoration: &Restoration<'_>) -> Result<Staged> {
        let exchange = exchange_of(restoration);
        let (from, to) = (kept::place(restoration.captured)?, exchange.new_place());
        if exists(to)? {
            remove(to)?;
        }
        let parent = to.parent().unwrap_or(Path::new("/"));
        match is_subvolume(&from)? && kept::share_blocks(parent, parent_of(&from)) {
            true => {
                btrfs(&["subvolume", "snapshot"]).arg(&from).arg(to).run()?;
                for name in ["postmaster.pid", "postmaster.opts"] {
                    if restoration.part.kind == PartKind::Postgres {
                        exchange::remove(&to.join(name))?;
                    }
                }
            }
            false => {
                let admits = kept::admits(restoration.part.kind);
                clone_tree(&from, to, Cloning { fuzzy: false, may_copy: true, admits: &admits })?;
            }
        }
        let top = File::open(to).at("open", to)?;
        // What was removed above is not in the time of the directory that was captured.
        let time = fs::metadata(&from).and_then(|about| about.modified()).at("examine", &from)?;
        top.set_modified(time).at("set the time of", to)?;
        rustix::fs::syncfs(&top).at("sync", to)?;
        exchange.stage()
    }

    fn swap(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        exchange_of(restoration).swap(staged)
    }

    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        exchange_of(restoration).swap_back(staged)
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        let manifest = kept::manifest(restoration.captured, &restoration.site)?;
        kept::compare(&manifest, &restoration.part.path, "restored directory")
    }

    fn clear(
        &self,
        restoration: &Restoration<'_>,
        _staged: &Staged,
        end: End,
    ) -> Result<Vec<Aside>> {
        kept::clear(&exchange_of(restoration), restoration, end, remove)
    }

    fn discard(&self, captured: &Captured, _site: &Site<'_>) -> Result<()> {
        remove(&kept::place(captured)?)
    }
}

impl Capture for Snapshot<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("freezing a subvolume")
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("taking a snapshot")?;
        let program = Program::new("btrfs", limit.left()).args(["subvolume", "snapshot", "-r"]);
        program.arg(&self.part.path).arg(&self.copy.place).run()?;
        self.made = true;
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        assert!(self.made, "BUG: captured without a boundary");
        let mut captured = self.copy.keep("btrfs", 1)?;
        if self.part.kind != PartKind::Postgres {
            return Ok(captured);
        }
        postgres::note(&mut captured, &self.copy.place);
        postgres::note_schemas(&mut captured, &self.part, self.schemas.take())?;
        if !writes_in_place(&self.part.path) {
            captured.notes.push(format!(
                "{} is not written in place: chattr +C on an empty data directory spares a database \
                 that Btrfs scatters it",
                self.part.path.display()
            ));
        }
        Ok(captured)
    }
}

/// Why a part cannot be snapshotted as a subvolume.
fn obstacle(part: &Part) -> Result<Option<String>> {
    if !matches!(part.kind, PartKind::Directory | PartKind::Postgres) {
        return Ok(Some(format!(
            "only whole directories are snapshotted, and it is {}",
            part.kind
        )));
    }
    let shown = part.path.display();
    let Ok(statfs) = rustix::fs::statfs(&part.path) else {
        return Ok(Some(format!("{shown} is not there")));
    };
    if statfs.f_type != MAGIC {
        return Ok(Some(format!("{shown} is not on Btrfs")));
    }
    if programs::find("btrfs", &[]).is_none() {
        return Ok(Some("the program btrfs is not installed (package btrfs-progs)".to_owned()));
    }
    if !is_subvolume(&part.path)? {
        return Ok(Some(format!(
            "{shown} is no subvolume of its own: make one with `btrfs subvolume create` and `chattr +C`, \
             and move everything into it while nothing runs"
        )));
    }
    if part.kind == PartKind::Postgres
        && let Some(outside) = outside(&part.path)?
    {
        return Ok(Some(format!(
            "{} leads outside: data directory, write-ahead log and tablespaces must be in one subvolume, \
             since two are two instants",
            outside.display()
        )));
    }
    Ok(nested(&part.path)?.map(|path| {
        format!("{} is a subvolume or mount of its own, which no snapshot holds", path.display())
    }))
}

/// What of a cluster leads out of its data directory.
pub(super) fn outside(data: &Path) -> Result<Option<PathBuf>> {
    let top = fs::canonicalize(data).at("examine", data)?;
    let mut links = vec![data.join("pg_wal")];
    let spaces = data.join("pg_tblspc");
    if exists(&spaces)? {
        for item in fs::read_dir(&spaces).at("list", &spaces)? {
            links.push(item.at("list", &spaces)?.path());
        }
    }
    for link in links {
        if exists(&link)? && !fs::canonicalize(&link).at("examine", &link)?.starts_with(&top) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// The first directory below that belongs to another device, as a subvolume inside does.
fn nested(top: &Path) -> Result<Option<PathBuf>> {
    let device = fs::metadata(top).at("examine", top)?.dev();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for item in fs::read_dir(&directory).at("list", &directory)? {
            let item = item.at("list", &directory)?;
            if !item.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            match fs::symlink_metadata(item.path()) {
                Ok(about) if about.dev() != device => return Ok(Some(item.path())),
                Ok(about) if about.is_dir() => left.push(item.path()),
                _ => {}
            }
        }
    }
    Ok(None)
}

fn is_subvolume(path: &Path) -> Result<bool> {
    let about = fs::symlink_metadata(path).at("examine", path)?;
    let on_btrfs = rustix::fs::statfs(path).is_ok_and(|statfs| statfs.f_type == MAGIC);
    Ok(on_btrfs && about.is_dir() && about.ino() == TOP)
}

/// Whether something is mounted at a path, which then cannot be exchanged.
fn is_mount_point(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = path.to_string_lossy();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&at))
}

fn is_read_only(path: &Path) -> Result<bool> {
    let said = btrfs(&["property", "get", "-ts"]).arg(path).arg("ro").run()?;
    Ok(said.starts_with(b"ro=true"))
}

fn writes_in_place(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|top| ioctl_getflags(&top).is_ok_and(|flags| flags.contains(IFlags::NOCOW)))
}

/// Makes a subvolume in which files are written in place, as databases want it; snapshots of it still
/// share blocks until they are written to.
pub fn make_data_directory(path: &Path) -> Result<()> {
    btrfs(&["subvolume", "create"]).arg(path).run()?;
    let top = File::open(path).at("open", path)?;
    let flags = ioctl_getflags(&top).at("examine", path)?;
    ioctl_setflags(&top, flags | IFlags::NOCOW).at("chattr +C", path)
}

fn btrfs(words: &[&str]) -> Program {
    Program::new("btrfs", PATIENCE).args(words)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn exchange_of(restoration: &Restoration<'_>) -> Exchange {
    Exchange::at(&restoration.part.path, restoration.site.id).identified_by(identity)
}

/// Every subvolume's top has the same inode; its tree has a number that is never given out again.
fn identity(path: &Path) -> Result<String> {
    if !is_subvolume(path)? {
        return exchange::inode(path);
    }
    let said = btrfs(&["inspect-internal", "rootid"]).arg(path).run()?;
    let number = String::from_utf8_lossy(&said).trim().to_owned();
    match number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty() {
        true => Ok(format!("subvolume {number}")),
        false => Err(Error::Program { program: "btrfs".to_owned(), why: number }),
    }
}

/// Removes a subvolume, or a directory in its place; nothing there is no error.
fn remove(path: &Path) -> Result<()> {
    if !exists(path)? {
        return Ok(());
    }
    if !is_subvolume(path)? {
        return exchange::remove(path);
    }
    let deleted = btrfs(&["subvolume", "delete", "--commit-after"]).arg(path).run();
    let Err(denied) = deleted else { return Ok(()) };
    // Who may make a snapshot may not always delete one as a whole, but can empty it.
    btrfs(&["property", "set", "-f", "-ts"]).arg(path).args(["ro", "false"]).run()?;
    fs::remove_dir_all(path).map_err(|_| denied)
}
