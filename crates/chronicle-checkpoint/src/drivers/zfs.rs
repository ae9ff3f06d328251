//! ZFS: a dataset is kept as a snapshot of it.
//!
//! **Untested on real ZFS.** What is tested is which command lines are run, against lines that were written
//! down from its manual; so this driver is never chosen by itself, only by name. A restore puts a clone of the
//! snapshot beside and exchanges the datasets by renaming them; `zfs rollback` would destroy what is newer. The
//! dataset that stood there stays, under another name, since snapshots of later checkpoints may be its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{directory, kept, postgres};
use crate::driver::{
    Aside, Capture, Captured, Deadline, Driver, End, Fit, Restoration, Site, Staged,
};
use crate::error::{Error, Problem, Result};
use crate::part::{Parameters, Part, PartKind};
use crate::programs::{self, Program};
use crate::tree::Tree;

const NAME: &str = "zfs";
const VERSION: u32 = 1;
/// What `statfs` calls the file system.
const MAGIC: i64 = 0x2fc1_2fc1;
const PATIENCE: Duration = Duration::from_secs(120);
/// The snapshot's own name, behind the dataset's.
const SNAPSHOT: &str = "snapshot";
const DATASET: &str = "dataset";
const MANIFEST: &str = "manifest";
const WORDS: &str = "the ZFS driver was never run on real ZFS";

/// Datasets as snapshots. Untested on real ZFS.
#[derive(Debug, Clone, Copy, Default)]
pub struct Zfs;

/// One call of the program `zfs`.
type Line = Vec<String>;

/// Which lines do what; nothing here runs anything.
mod lines {
    use super::Line;

    fn line(words: &[&str]) -> Line {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The datasets and where they are mounted.
    pub(super) fn list() -> Line {
        line(&["list", "-H", "-p", "-t", "filesystem", "-o", "name,mountpoint"])
    }

    /// Every snapshot.
    pub(super) fn list_snapshots() -> Line {
        line(&["list", "-H", "-p", "-t", "snapshot", "-o", "name"])
    }

    /// The snapshot of a checkpoint.
    pub(super) fn snapshot(dataset: &str, name: &str) -> Line {
        line(&["snapshot", &format!("{dataset}@{name}")])
    }

    /// A clone of a snapshot, mounted nowhere yet.
    pub(super) fn stage(snapshot: &str, new: &str) -> Vec<Line> {
        let options = ["clone", "-o", "canmount=noauto", "-o", "mountpoint=none"];
        vec![line(&[&options[..], &[snapshot, new]].concat())]
    }

    /// What is still to be done so that the new dataset has the name and place of the old one.
    pub(super) fn swap(
        dataset: &str,
        at: &str,
        [new, old]: [&str; 2],
        has: [bool; 2],
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        let [has_new, has_old] = has;
        if !has_old {
            lines.push(line(&["unmount", dataset]));
            lines.push(line(&["rename", dataset, old]));
        }
        if has_new {
            lines.push(line(&["set", "mountpoint=none", old]));
            lines.push(line(&["rename", new, dataset]));
        }
        // The snapshots up to this one are the new dataset's from now on.
        lines.push(line(&["promote", dataset]));
        lines.push(line(&["set", &format!("mountpoint={at}"), dataset]));
        lines.push(line(&["set", "canmount=on", dataset]));
        lines.push(line(&["mount", dataset]));
        lines
    }

    /// The way back from anywhere in there.
    pub(super) fn swap_back(
        dataset: &str,
        at: &str,
        names: [&str; 2],
        has: [bool; 2],
    ) -> Vec<Line> {
        let ([new, old], [has_new, has_old]) = (names, has);
        let mut lines = Vec::new();
        if has_old {
            if !has_new {
                lines.push(line(&["unmount", dataset]));
                lines.push(line(&["set", "mountpoint=none", dataset]));
                lines.push(line(&["rename", dataset, new]));
            }
            lines.push(line(&["rename", old, dataset]));
            lines.push(line(&["promote", dataset]));
            lines.push(line(&["set", &format!("mountpoint={at}"), dataset]));
            lines.push(line(&["mount", dataset]));
        }
        lines
    }

    /// A dataset or a snapshot goes, if nothing depends on it.
    pub(super) fn destroy(name: &str) -> Line {
        line(&["destroy", name])
    }
}

fn run(line: &Line) -> Result<String> {
    let output = Program::new("zfs", PATIENCE).args(line).run()?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn run_all(lines: &[Line]) -> Result<()> {
    lines.iter().try_for_each(|line| run(line).map(drop))
}

/// The dataset that is mounted at a path, of what `zfs list` says.
fn dataset_at(listed: &str, path: &Path) -> Option<String> {
    let mut lines = listed.lines().filter_map(|line| line.split_once('\t'));
    lines.find(|(_, at)| Path::new(at) == path).map(|(name, _)| name.to_owned())
}

/// A snapshot by its own name, whichever dataset it belongs to by now.
fn snapshot_named<'l>(listed: &'l str, dataset: &str, name: &str) -> Option<&'l str> {
    let fits = |line: &&str| {
        line.split_once('@').is_some_and(|(of, it)| it == name && of.starts_with(dataset))
    };
    listed.lines().find(fits)
}

/// The datasets of one restore: the new one and the old one.
fn names(dataset: &str, id: &str) -> [String; 2] {
    [format!("{dataset}-chronicle-new-{id}"), format!("{dataset}-chronicle-old-{id}")]
}

struct Snapshot<'s> {
    part: Part,
    site: Site<'s>,
    dataset: String,
    name: String,
    kept: bool,
    made: bool,
}

impl Capture for Snapshot<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("freezing a dataset")
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        limit.check("taking a snapshot")?;
        let line = lines::snapshot(&self.dataset, &self.name);
        Program::new("zfs", limit.left()).args(&line).run()?;
        self.made = true;
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        let place = self.part.path.join(".zfs/snapshot").join(&self.name);
        let tree = Tree::hash(&place, &kept::admits(self.part.kind))?;
        let manifest = self.site.contents.put(&tree.encode())?;
        let mut captured = Captured {
            driver: NAME.to_owned(),
            version: VERSION,
            absent: false,
            digest: tree.digest(),
            bytes: tree.bytes(),
            parameters: Parameters::from([
                (SNAPSHOT.to_owned(), self.name.clone()),
                (DATASET.to_owned(), self.dataset.clone()),
                (MANIFEST.to_owned(), manifest.hex()),
            ]),
            objects: vec![manifest],
            notes: vec![WORDS.to_owned()],
            ..directory::absent()
        };
        if self.part.kind == PartKind::Postgres {
            postgres::note(&mut captured, &place);
        }
        self.kept = true;
        Ok(captured)
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if self.made && !self.kept {
            let _ = run(&lines::destroy(&format!("{}@{}", self.dataset, self.name)));
        }
    }
}

fn noted<'c>(captured: &'c Captured, name: &str) -> Result<&'c str> {
    let plain = |text: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "/_-.:".contains(c);
        !text.is_empty() && !text.starts_with('-') && text.chars().all(allowed)
    };
    let text = captured.parameters.get(name).map(String::as_str).filter(plain);
    text.ok_or_else(|| {
        let why = format!("the lock does not name the {name} of ZFS");
        let next = "Restore another checkpoint: chronicle checkpoint list";
        Problem::new("zfs_unnamed", why, next).into()
    })
}

/// The dataset, the snapshot with whichever dataset it belongs to, and where that shows its files.
fn find(captured: &Captured) -> Result<(String, String, PathBuf)> {
    let (dataset, name) = (noted(captured, DATASET)?, noted(captured, SNAPSHOT)?);
    let listed = run(&lines::list_snapshots())?;
    let gone = || {
        let why = format!("the snapshot {dataset}@{name} is not there any more");
        let next = "Restore another checkpoint: chronicle checkpoint list";
        Error::from(Problem::new("zfs_snapshot_missing", why, next))
    };
    let full = snapshot_named(&listed, dataset, name).ok_or_else(gone)?;
    let owner = full.split('@').next().unwrap_or(dataset);
    let mounted = run(&lines::list())?;
    let mut at = mounted.lines().filter_map(|line| line.split_once('\t'));
    let at = at.find(|(it, _)| *it == owner).map(|(_, at)| PathBuf::from(at)).ok_or_else(gone)?;
    Ok((dataset.to_owned(), full.to_owned(), at.join(".zfs/snapshot").join(name)))
}

fn manifest(captured: &Captured, site: &Site<'_>) -> Result<Tree> {
    directory::load(captured, site.contents)
}

/// Which of the two datasets of a restore there are.
fn standing(names: [&str; 2]) -> Result<[bool; 2]> {
    let listed = run(&lines::list())?;
    Ok(names.map(|name| listed.lines().any(|line| line.split('\t').next() == Some(name))))
}

impl Driver for Zfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn detect(&self, part: &Part) -> Result<Fit> {
        if !matches!(part.kind, PartKind::Directory | PartKind::Postgres) {
            return Ok(Fit::Not(format!("only datasets are snapshotted, and it is {}", part.kind)));
        }
        let on_zfs = rustix::fs::statfs(&part.path).is_ok_and(|it| it.f_type == MAGIC);
        if !on_zfs || programs::find("zfs", &[]).is_none() {
            return Ok(Fit::Not(format!("{} is not on ZFS", part.path.display())));
        }
        Ok(match dataset_at(&run(&lines::list())?, &part.path) {
            // Behind every driver that was tried where it is to run.
            Some(_) => Fit::Fits { rank: 90, why: WORDS.to_owned() },
            None => Fit::Not(format!("{} is no dataset of its own", part.path.display())),
        })
    }

    fn prepare<'s>(&'s self, part: &Part, site: &Site<'s>) -> Result<Box<dyn Capture + 's>> {
        let dataset = dataset_at(&run(&lines::list())?, &part.path).ok_or_else(|| {
            Error::Declared(format!("{} is no dataset of its own", part.path.display()))
        })?;
        let name = format!("chronicle-{}", site.id);
        let (part, site) = (part.clone(), *site);
        Ok(Box::new(Snapshot { part, site, dataset, name, kept: false, made: false }))
    }

    fn verify(&self, captured: &Captured, site: &Site<'_>) -> Result<()> {
        kept::is_known(captured, VERSION)?;
        let expected = manifest(captured, site)?;
        kept::compare(&expected, &find(captured)?.2, "snapshot")
    }

    fn gate(&self, restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
        let mut problems = kept::gate(restoration)?;
        problems.retain(|problem| problem.code != "mount_point");
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
        let (dataset, snapshot, _) = find(restoration.captured)?;
        let [new, old] = names(&dataset, restoration.site.id);
        if !standing([&new, &old])?[0] {
            run_all(&lines::stage(&snapshot, &new))?;
        }
        Ok(Staged::from([(DATASET.to_owned(), dataset)]))
    }

    fn swap(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        let Some(dataset) = staged.get(DATASET) else { return Ok(()) };
        let [new, old] = names(dataset, restoration.site.id);
        let has = standing([&new, &old])?;
        let at = restoration.part.path.display().to_string();
        run_all(&lines::swap(dataset, &at, [&new, &old], has))
    }

    fn swap_back(&self, restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
        let Some(dataset) = staged.get(DATASET) else { return Ok(()) };
        let [new, old] = names(dataset, restoration.site.id);
        let has = standing([&new, &old])?;
        let at = restoration.part.path.display().to_string();
        run_all(&lines::swap_back(dataset, &at, [&new, &old], has))
    }

    fn check(&self, restoration: &Restoration<'_>) -> Result<()> {
        let manifest = manifest(restoration.captured, &restoration.site)?;
        kept::compare(&manifest, &restoration.part.path, "restored dataset")
    }

    fn clear(
        &self,
        restoration: &Restoration<'_>,
        staged: &Staged,
        end: End,
    ) -> Result<Vec<Aside>> {
        let Some(dataset) = staged.get(DATASET) else { return Ok(Vec::new()) };
        let [new, old] = names(dataset, restoration.site.id);
        let [has_new, has_old] = standing([&new, &old])?;
        if has_new && end == End::Old {
            run(&lines::destroy(&new))?;
        }
        let why = "snapshots of later checkpoints may be its own";
        let aside = Aside { at: old, why: why.to_owned() };
        Ok(if has_old { vec![aside] } else { Vec::new() })
    }

    fn discard(&self, captured: &Captured, _site: &Site<'_>) -> Result<()> {
        let (dataset, name) = (noted(captured, DATASET)?, noted(captured, SNAPSHOT)?);
        match snapshot_named(&run(&lines::list_snapshots())?, dataset, name) {
            Some(full) => run(&lines::destroy(full)).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("zfs {}\n", line.join(" "))).collect()
    }

    /// Written down from the manual pages of OpenZFS 2.1; nobody has run them.
    #[test]
    fn the_lines_are_those_that_were_written_down() {
        let one = |line| shown(&[line]);
        assert_eq!(one(lines::list()), "zfs list -H -p -t filesystem -o name,mountpoint\n");
        assert_eq!(one(lines::list_snapshots()), "zfs list -H -p -t snapshot -o name\n");
        let line = lines::snapshot("tank/db", "chronicle-c1");
        assert_eq!(one(line), "zfs snapshot tank/db@chronicle-c1\n");
        let [new, old] = names("tank/db", "r1");
        let both = [&new[..], &old[..]];
        assert_eq!(
            shown(&lines::stage("tank/db@chronicle-c1", &new)),
            "zfs clone -o canmount=noauto -o mountpoint=none tank/db@chronicle-c1 \
             tank/db-chronicle-new-r1\n"
        );
        let end = "zfs promote tank/db\nzfs set mountpoint=/srv/db tank/db\n\
                   zfs set canmount=on tank/db\nzfs mount tank/db\n";
        let rest = format!(
            "zfs set mountpoint=none tank/db-chronicle-old-r1\n\
             zfs rename tank/db-chronicle-new-r1 tank/db\n{end}"
        );
        let all = lines::swap("tank/db", "/srv/db", both, [true, false]);
        let begin = "zfs unmount tank/db\nzfs rename tank/db tank/db-chronicle-old-r1\n";
        assert_eq!(shown(&all), format!("{begin}{rest}"));
        let half = lines::swap("tank/db", "/srv/db", both, [true, true]);
        assert_eq!(shown(&half), rest, "what was done before a crash is not done again");
        assert_eq!(shown(&lines::swap("tank/db", "/srv/db", both, [false, true])), end);
        let back = lines::swap_back("tank/db", "/srv/db", both, [false, true]);
        assert_eq!(
            shown(&back),
            "zfs unmount tank/db\nzfs set mountpoint=none tank/db\n\
             zfs rename tank/db tank/db-chronicle-new-r1\n\
             zfs rename tank/db-chronicle-old-r1 tank/db\nzfs promote tank/db\n\
             zfs set mountpoint=/srv/db tank/db\nzfs mount tank/db\n"
        );
        assert_eq!(shown(&lines::swap_back("tank/db", "/srv/db", both, [true, false])), "");
        assert_eq!(
            one(lines::destroy("tank/db@chronicle-c1")),
            "zfs destroy tank/db@chronicle-c1\n"
        );
    }

    #[test]
    fn datasets_and_snapshots_are_found_in_what_zfs_lists() {
        let listed = "tank\t/tank\ntank/db\t/srv/db\ntank/x\tnone\n";
        assert_eq!(dataset_at(listed, Path::new("/srv/db")).as_deref(), Some("tank/db"));
        assert_eq!(dataset_at(listed, Path::new("/srv")), None);
        let listed = "tank/db@chronicle-c1\ntank/db-chronicle-old-r1@chronicle-c2\n";
        let found = |name| snapshot_named(listed, "tank/db", name);
        assert_eq!(found("chronicle-c1"), Some("tank/db@chronicle-c1"));
        assert_eq!(found("chronicle-c2"), Some("tank/db-chronicle-old-r1@chronicle-c2"));
        assert_eq!(found("chronicle-c3"), None);
    }

    #[test]
    fn names_that_could_be_something_else_are_refused() {
        let mut captured = directory::absent();
        for (name, good) in [("tank/db", true), ("-rf", false), ("a b", false), ("", false)] {
            captured.parameters.insert(DATASET.to_owned(), name.to_owned());
            assert_eq!(noted(&captured, DATASET).is_ok(), good, "{name}");
        }
    }
}
