//! Exporting history to a git repository: one commit per turn, under a ref of its own.

use std::collections::HashSet;
use std::path::PathBuf;

use super::{PATIENCE, Workspace};
use crate::catalog::{LocalState, Log};
use crate::codec;
use crate::error::{Error, Result, Stop};
use crate::export::{Import, Leaf, Moments, Point, Step, Target, Tree, position};
use crate::failpoint;
use crate::id::{Seq, Time};
use crate::known::Part;
use crate::path::WorkspacePath;
use crate::record::Kind;
use crate::store::ContentStorage;
use crate::view::{ExportReport, SCHEMA};

/// Where to export to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRequest {
    /// The git repository.
    pub repository: PathBuf,
    /// The ref, whole or what follows `refs/chronicle/`.
    pub name: String,
    /// Only say what would be written.
    pub dry_run: bool,
}

/// What is exported: the tree at the first moment, and the moments.
struct Plan {
    start: Seq,
    head: Seq,
    tree: Tree,
    points: Vec<Point>,
    open_turns: Vec<u64>,
}

impl Workspace {
    /// Writes the history as commits into a git repository.
    ///
    /// The ref moves last and in one step, and only on from what an earlier export made.
    pub fn export(&mut self, request: &ExportRequest) -> Result<ExportReport> {
        let target = Target::new(&request.repository, &request.name)?;
        let previous = target.tip()?;
        let reached = self.reached(&target, previous.as_deref())?;
        let Plan { start, head, mut tree, points, open_turns } = self.plan_export()?;
        let mut import = match request.dry_run {
            true => None,
            false => Some(target.import()?),
        };
        let (mut commits, mut new_commits) = (0, 0);
        self.walk(start, head, &points, &mut tree, &mut |point, step| {
            if point.only_if_changed && step.is_empty() {
                return Ok(());
            }
            commits += 1;
            new_commits += u64::from(reached.is_none_or(|seq| point.commit.seq > seq));
            import.as_mut().map_or(Ok(()), |import| self.write_commit(import, point, step))
        })?;
        let commit = import.map(Import::finish).transpose()?;
        self.refuse_rewritten(head)?;
        if let Some(commit) = &commit {
            publish(&target, previous.as_deref(), commit)?;
        }
        Ok(ExportReport {
            schema: SCHEMA,
            dry_run: request.dry_run,
            repository: target.repository().display().to_string(),
            git_ref: target.name().to_owned(),
            commit,
            previous,
            commits,
            new_commits,
            left_out: tree.left_out(),
            open_turns,
        })
    }

    /// The moment up to which an earlier export of this log went; refuses anybody else's ref.
    fn reached(&self, target: &Target, tip: Option<&str>) -> Result<Option<Seq>> {
        let Some(tip) = tip else { return Ok(None) };
        let message = target.message(tip)?.unwrap_or_default();
        match position(&message) {
            Some((log, seq)) if log == self.log_name() => Ok(Some(seq)),
            _ => Err(Error::Stopped(Stop::ForeignRef(target.name().to_owned()))),
        }
    }

    /// Looks first, then reads what stood there at the beginning, and which moments follow.
    fn plan_export(&mut self) -> Result<Plan> {
        let _lock = self.lock(PATIENCE)?;
        self.settle_locked()?;
        let (start, head) = (self.oldest()?, self.catalog.head()?.seq);
        let tree = self.tree_at(start)?;
        let time = match self.catalog.last_whole(start)? {
            Some(whole) => self.read_header(whole)?.time,
            None => Time(0),
        };
        let mut moments = Moments::new(start, time, self.beginning()? == Seq(0));
        self.for_each_header(start, &mut |record| {
            moments.read(record);
            Ok(true)
        })?;
        let (mut points, open_turns) = moments.finish();
        // Of a moment inside what became one change nothing is left.
        let ranges = self.pruned_ranges()?;
        points.retain(|point| {
            let seq = point.commit.seq;
            !ranges.iter().any(|range| range.holds(seq) && seq < range.last)
        });
        Ok(Plan { start, head, tree, points, open_turns })
    }

    /// The state at a moment: what is known now, but for what changed since.
    fn tree_at(&self, moment: Seq) -> Result<Tree> {
        let mut tree = Tree::new(self.secret_rules()?);
        for top in self.tops() {
            for (path, known) in self.catalog.known_below(&top)? {
                if known.part == Part::Ordinary {
                    tree.put(&path, &known.entry);
                }
            }
        }
        let mut seen: HashSet<WorkspacePath> = HashSet::new();
        self.for_each_change(moment, &mut |_, _, change| {
            if !change.neutral && seen.insert(change.path.clone()) {
                tree.put(&change.path, &change.before);
            }
            Ok(())
        })?;
        Ok(tree)
    }

    /// Goes through the log once and stops at every moment that becomes a commit.
    fn walk(
        &self,
        start: Seq,
        head: Seq,
        points: &[Point],
        tree: &mut Tree,
        visit: &mut dyn FnMut(&Point, &Step) -> Result<()>,
    ) -> Result<()> {
        let (mut points, mut after) = (points.iter().peekable(), start);
        loop {
            let records = self.catalog.read(after, 64)?;
            let ends = records.last().is_none_or(|last| last.seq >= head);
            for sealed in records.iter().filter(|sealed| sealed.seq <= head) {
                while let Some(point) = points.next_if(|point| point.commit.seq < sealed.seq) {
                    visit(point, &tree.step())?;
                }
                after = sealed.seq;
                if !codec::holds_changes(&sealed.leaf) {
                    continue;
                }
                for change in self.open_sealed(sealed)?.changes {
                    if !change.neutral {
                        tree.put(&change.path, &change.after);
                    }
                }
            }
            if ends {
                break;
            }
        }
        points.try_for_each(|point| visit(point, &tree.step()))
    }

    /// Refuses what was read while somebody pruned or forgot some of it.
    fn refuse_rewritten(&self, head: Seq) -> Result<()> {
        for kind in [Kind::Prune, Kind::Forget] {
            if let Some(found) = self.catalog.of_kind(kind)?.into_iter().find(|seq| *seq > head) {
                return Err(Error::Moved { expected: head, found });
            }
        }
        Ok(())
    }

    fn write_commit(&self, import: &mut Import<'_>, point: &Point, step: &Step) -> Result<()> {
        let objects = self.objects()?;
        for (_, leaf) in &step.written {
            if let Leaf::File { object, size, .. } = leaf
                && !import.has(object)
            {
                import.blob(object, *size, &mut objects.reader(object)?)?;
            }
        }
        import.commit(&point.commit, &self.log_name(), step)?;
        if cfg!(feature = "failpoints") {
            import.flush()?;
        }
        failpoint::hit("export_after_commit");
        Ok(())
    }
}

/// Lets everybody see the commits, if they go on from those that were there.
fn publish(target: &Target, previous: Option<&str>, commit: &str) -> Result<()> {
    if let Some(previous) = previous
        && !target.goes_on(previous, commit)?
    {
        return Err(Error::Stopped(Stop::ForeignRef(target.name().to_owned())));
    }
    failpoint::hit("export_before_ref");
    match previous == Some(commit) {
        true => Ok(()),
        false => target.move_ref(previous, commit),
    }
}
