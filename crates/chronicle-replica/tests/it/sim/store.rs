//! What a side keeps: the shipped log, the known state and contents, over a disk that forgets.
//!
//! It does what a workspace does, in its order: record what people did, decide, make the plan durable, write, sync,
//! record. A crash may come between any two of these; opening again rolls a plan forward.

use std::collections::BTreeMap;

use chronicle_core::replica::{
    LocalChange, Node, Owner, Stand, Standing, Step, Tree as Hashed, Version, digest,
};
use chronicle_core::{
    Author, Change, Entry, Epoch, Evidence, Kind, Labels, Log, MemoryLog, ObjectId, Record, Seq,
    Time, WorkspaceId, WorkspacePath,
};
use chronicle_testing::dice::Dice;

use super::disk::{self, Disk, Tree};

/// Where a crash comes, counted in steps from here; none if it does not.
pub struct Fuse(pub Option<usize>);

/// The node is down.
#[derive(Debug)]
pub struct Crashed;

impl Fuse {
    pub fn step(&mut self) -> Result<(), Crashed> {
        match &mut self.0 {
            Some(0) => Err(Crashed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// One record, as far as replication needs it.
#[derive(Debug, Clone)]
pub struct Row {
    pub seq: Seq,
    pub changes: Vec<LocalChange>,
    /// It came from the host.
    pub pushed: bool,
}

/// Steps that will be done, whatever happens, and what is recorded with them.
#[derive(Debug, Clone)]
pub struct Plan<N> {
    steps: Vec<Step>,
    pushed: bool,
    note: N,
}

#[derive(Debug)]
pub struct Store<N> {
    pub disk: Disk,
    pub epoch: Epoch,
    log: MemoryLog,
    pub rows: Vec<Row>,
    pub known: Tree,
    /// The last record of each path.
    pub last: BTreeMap<WorkspacePath, Seq>,
    contents: BTreeMap<ObjectId, Vec<u8>>,
    /// Contents that a crash would lose.
    staged: BTreeMap<ObjectId, Vec<u8>>,
    plan: Option<Plan<N>>,
    /// What else a commit keeps.
    pub durable: N,
    /// Records before what is recorded is on the disk.
    pub careless: bool,
    /// Renames that people made since the last look.
    pub moves: Vec<(WorkspacePath, WorkspacePath)>,
}

impl<N: Clone> Store<N> {
    pub fn new(epoch: Epoch, durable: N) -> Self {
        Self {
            disk: Disk::default(),
            epoch,
            log: MemoryLog::default(),
            rows: Vec::new(),
            known: Tree::new(),
            last: BTreeMap::new(),
            contents: BTreeMap::new(),
            staged: BTreeMap::new(),
            plan: None,
            durable,
            careless: false,
            moves: Vec::new(),
        }
    }

    pub fn head(&self) -> Seq {
        self.log.head().expect("memory").seq
    }

    pub fn content(&self, object: &ObjectId) -> Option<&Vec<u8>> {
        self.staged.get(object).or_else(|| self.contents.get(object))
    }

    pub fn stage(&mut self, object: ObjectId, bytes: Vec<u8>) {
        self.staged.insert(object, bytes);
    }

    /// Takes in what people wrote, as a look would read it.
    pub fn keep(&mut self, bytes: Vec<u8>) -> ObjectId {
        let object = ObjectId::of(&bytes);
        self.contents.insert(object, bytes);
        object
    }

    /// Records what people did since the last look; answers whether there was anything.
    pub fn look(&mut self) -> bool {
        let paths = disk::differing(&self.known, &self.disk.live);
        let moves = std::mem::take(&mut self.moves);
        if paths.is_empty() {
            return false;
        }
        let changes: Vec<_> = paths.iter().map(|path| self.change(path, &moves)).collect();
        self.commit(changes, false);
        true
    }

    fn change(
        &self,
        path: &WorkspacePath,
        moves: &[(WorkspacePath, WorkspacePath)],
    ) -> LocalChange {
        let (before, after) = (disk::at(&self.known, path), disk::at(&self.disk.live, path));
        let moved = moves.iter().rev().find(|(_, to)| to == path && after.is_present());
        let from = moved.map(|(from, _)| from.clone());
        LocalChange { path: path.clone(), before: Some(before), after: Some(after), from }
    }

    /// The commit point of everything: the record, the known state, and whatever else is durable.
    fn commit(&mut self, changes: Vec<LocalChange>, pushed: bool) {
        let record = Record {
            seq: Seq(0),
            workspace: WorkspaceId([1; 16]),
            epoch: self.epoch,
            time: Time(0),
            kind: Kind::Outcome,
            labels: Labels::default(),
            changes: changes.iter().map(as_change).collect(),
        };
        let expected = self.log.head().expect("memory");
        let head = self.log.commit(vec![record], expected, None).expect("nobody else appends");
        for change in &changes {
            let after = change.after.clone().expect("all is known here");
            disk::set(&mut self.known, &change.path, &after);
            self.last.insert(change.path.clone(), head.seq);
        }
        self.rows.push(Row { seq: head.seq, changes, pushed });
    }

    /// Does steps so that either all of them count or none: plan, write, sync, record.
    pub fn carry_out(
        &mut self,
        steps: Vec<Step>,
        pushed: bool,
        note: N,
        fuse: &mut Fuse,
    ) -> Result<(), Crashed> {
        fuse.step()?;
        // One sync of the file system before the commit point; what people wrote goes with it.
        self.contents.append(&mut self.staged);
        self.disk.sync();
        fuse.step()?;
        self.plan = Some(Plan { steps, pushed, note });
        self.roll_forward(fuse)
    }

    fn roll_forward(&mut self, fuse: &mut Fuse) -> Result<(), Crashed> {
        let Some(plan) = self.plan.clone() else { return Ok(()) };
        fuse.step()?;
        for step in &plan.steps {
            self.disk.put(&step.path, &step.put, false);
            fuse.step()?;
        }
        if !self.careless {
            self.disk.sync();
        }
        fuse.step()?;
        let change = |step: &Step| LocalChange {
            path: step.path.clone(),
            before: Some(disk::at(&self.known, &step.path)),
            after: Some(step.put.clone()),
            from: None,
        };
        let changes: Vec<_> = plan.steps.iter().map(change).collect();
        // One transaction: the record, what else is durable, and that the plan is done.
        if !changes.is_empty() {
            self.commit(changes, plan.pushed);
        }
        self.durable = plan.note;
        self.plan = None;
        fuse.step()
    }

    /// The power is gone and comes back. Answers where people's own work was lost.
    pub fn crash(&mut self, dice: &mut Dice) -> Vec<(WorkspacePath, Version)> {
        self.staged.clear();
        self.moves.clear();
        let lost = self.disk.crash(dice);
        let now = |path: WorkspacePath| {
            let version = disk::at(&self.disk.live, &path);
            (path, version)
        };
        lost.into_iter().map(now).collect()
    }

    /// What the next process does first.
    pub fn open(&mut self) {
        self.roll_forward(&mut Fuse(None)).expect("no fuse");
    }

    /// A host that was lost and came back from a copy, as it was at some record, in a life of its own.
    pub fn restored(&self, at: Seq, epoch: Epoch, durable: N) -> Self {
        let mut store = Self::new(epoch, durable);
        store.contents = self.contents.clone();
        store.careless = self.careless;
        for row in self.rows.iter().filter(|row| row.seq <= at) {
            store.commit(row.changes.clone(), row.pushed);
        }
        store.disk = Disk::with(store.known.clone());
        store
    }
}

fn as_change(change: &LocalChange) -> Change {
    let entry = |version: &Option<Version>| match version {
        Some(version) => version.entry(&Entry::Absent, Owner { uid: 0, gid: 0 }, Time(0)),
        None => Entry::Absent,
    };
    Change {
        path: change.path.clone(),
        before: entry(&change.before),
        after: entry(&change.after),
        from: None,
        author: Author::Person,
        evidence: Evidence::Outside,
        neutral: false,
    }
}

impl<N> Standing for Store<N> {
    fn at(&self, path: &WorkspacePath) -> Stand {
        let seq = self.last.get(path).copied().unwrap_or(Seq(0));
        Stand { version: Some(disk::at(&self.known, path)), seq }
    }

    fn children(&self, directory: &WorkspacePath) -> Vec<WorkspacePath> {
        disk::children(&self.known, directory)
    }
}

impl<N> Hashed for Store<N> {
    fn nodes(&self, directory: &WorkspacePath) -> Vec<Node> {
        nodes(&self.known, directory)
    }
}

/// What a directory of a tree holds, hashed all the way down.
pub fn nodes(tree: &Tree, directory: &WorkspacePath) -> Vec<Node> {
    let node = |path: WorkspacePath| {
        let version = disk::at(tree, &path);
        let below = version.is_directory().then(|| digest(&nodes(tree, &path)));
        Node { name: path.name().to_vec(), version, below }
    };
    let mut nodes: Vec<_> = disk::children(tree, directory).into_iter().map(node).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}
