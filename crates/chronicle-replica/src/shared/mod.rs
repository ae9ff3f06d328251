//! One log for several hosts.
//!
//! The shared log is the master: what it says stands. A host follows it as a replica follows a host, and takes a write
//! only by committing it there, on the head that it has judged the write against. If another host was first, it reads
//! what came and judges again. Contents are in the shared place before a record names them.

mod contents;
mod tree;

use std::sync::Arc;

use chronicle_core::replica::{
    Item, Judged, Place, Rules, Standing, Verdict, Version, Write, encode_write, judge, resync_step,
};
use chronicle_core::{
    Clock, ContentStorage, Encoder, Error, Finding, HashedTree, Head, Log, ObjectId, ReplicaId,
    Result, Seq, SystemClock, WorkspaceId, WorkspacePath,
};

pub use contents::{Nearest, SharedContents};
use tree::{Before, SharedTree};

/// Records that are read at a time.
const RECORDS: usize = 64;
/// How often a batch is judged anew because another host was first.
const TRIES: usize = 64;

/// A batch of writes for the shared log.
pub struct Asked<'a> {
    /// Whose: a sandbox's, or the host's own.
    pub replica: ReplicaId,
    /// Its name: in this name they are recorded.
    pub name: &'a str,
    /// The number of the batch.
    pub batch: u64,
    /// The writes.
    pub writes: &'a [Write],
    /// What besides values decides.
    pub rules: Rules<'a>,
}

impl Asked<'_> {
    /// What tells these writes from others under the same number.
    fn digest(&self) -> ObjectId {
        let mut out = Encoder::default();
        self.writes.iter().for_each(|write| encode_write(&mut out, write));
        ObjectId::of(&out.0)
    }

    /// One batch is committed once, whoever commits it.
    fn key(&self) -> Vec<u8> {
        let number = self.batch.to_le_bytes();
        [&self.replica.0[..], &number[..], &self.digest().0[..]].concat()
    }
}

/// What became of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// One verdict for each write.
    Answered(Vec<Verdict>),
    /// The number was used for other writes; the last one was this.
    Renumber(u64),
}

/// The log that a host shares with others, as far as it was read.
pub struct SharedLog {
    workspace: WorkspaceId,
    log: Box<dyn Log + Send>,
    contents: Arc<dyn SharedContents>,
    tree: SharedTree,
}

impl SharedLog {
    /// Reads a log from its beginning, every byte checked; one that is empty is begun if `begin` says so.
    pub fn open(
        workspace: WorkspaceId,
        log: Box<dyn Log + Send>,
        contents: Arc<dyn SharedContents>,
        begin: bool,
    ) -> Result<Self> {
        let mut shared = Self { workspace, log, contents, tree: SharedTree::new(workspace) };
        shared.read_on()?;
        if !shared.tree.is_begun() && begin {
            let genesis = shared.tree.genesis(SystemClock.now());
            match shared.log.commit(vec![genesis], Head::EMPTY, None) {
                Ok(_) | Err(Error::Moved { .. }) => {}
                Err(error) => return Err(error),
            }
            shared.read_on()?;
        }
        if !shared.tree.is_begun() {
            let id = workspace.hex();
            return Err(Error::Usage(format!("The shared log has no workspace {id}")));
        }
        Ok(shared)
    }

    /// The workspace whose log it is.
    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// Up to where it was read.
    pub fn place(&self) -> Place {
        self.tree.place()
    }

    /// Where contents are that its records name.
    pub fn contents(&self) -> &dyn ContentStorage {
        self.contents.storage()
    }

    /// Reads what others have committed; says whether there was anything.
    pub fn read_on(&mut self) -> Result<bool> {
        let (end, begun) = (self.log.head()?, self.tree.head());
        while self.tree.head().seq < end.seq {
            let read = self.log.read(self.tree.head().seq, RECORDS)?;
            if read.is_empty() {
                return cut_off(self.tree.head().seq);
            }
            read.iter().try_for_each(|sealed| self.tree.add(sealed))?;
        }
        // Whoever has read further than the log goes has read what is gone from it.
        if end.seq < begun.seq || end.seq == begun.seq && end.link != begun.link {
            return cut_off(end.seq);
        }
        Ok(self.tree.head() != begun)
    }

    /// What stands at a path.
    pub fn at(&self, path: &WorkspacePath) -> Option<Version> {
        self.tree.at(path).version
    }

    /// What stands at the paths that changed after a record, or everywhere; `None` if that is too long ago.
    pub fn changes(
        &self,
        after: Option<Seq>,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Option<Vec<Item>> {
        self.tree.changes(after, passes)
    }

    /// The whole tree, hashed.
    pub fn hashed(&self, passes: &dyn Fn(&WorkspacePath, bool) -> bool) -> HashedTree {
        self.tree.hashed(passes)
    }

    /// What differs from an own tree, as a push would say it.
    pub fn differences(
        &self,
        own: &HashedTree,
        passes: &dyn Fn(&WorkspacePath, bool) -> bool,
    ) -> Vec<Item> {
        let theirs = self.hashed(passes);
        let (mut items, mut open) = (Vec::new(), vec![WorkspacePath::root()]);
        while let Some(path) = open.pop() {
            let step = resync_step(own, &[theirs.listing(&path)], self.place().seq);
            items.extend(step.items);
            open.extend(step.ask);
        }
        items.sort_by(|a, b| a.path.cmp(&b.path));
        items
    }

    /// Takes a batch: judged against what the log says, its contents kept, committed on the head that it was judged
    /// against. Everything that is answered is in the log. One that was answered is answered again, by whichever host.
    pub fn take(&mut self, asked: &Asked<'_>, given: &dyn ContentStorage) -> Result<Taken> {
        for _ in 0..TRIES {
            self.read_on()?;
            match self.tree.before(asked) {
                Before::New => {}
                Before::Answered(verdicts) => return Ok(Taken::Answered(verdicts)),
                Before::Used(last) => return Ok(Taken::Renumber(last)),
            }
            let judged = judge(&self.tree, asked.writes, &asked.rules);
            if judged.steps.is_empty() {
                return Ok(Taken::Answered(self.tree.verdicts(judged)));
            }
            self.commit(asked, &judged, given)?;
        }
        Err(Error::Busy("other hosts write to the shared log all the time".to_owned()))
    }

    /// Contents, then records. What became of it is read from the log.
    fn commit(
        &mut self,
        asked: &Asked<'_>,
        judged: &Judged,
        given: &dyn ContentStorage,
    ) -> Result<()> {
        let mut needed: Vec<_> = judged
            .steps
            .iter()
            .filter_map(|step| match step.put {
                Version::File { object, size, .. } => Some((object, size)),
                _ => None,
            })
            .collect();
        needed.sort();
        needed.dedup();
        self.contents.keep(&needed, given)?;
        let records = self.tree.records(asked, judged, SystemClock.now());
        match self.log.commit(records, self.tree.head(), Some(&asked.key())) {
            Ok(_) | Err(Error::Moved { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn cut_off<T>(seq: Seq) -> Result<T> {
    let why = "the shared log does not hold what was read from it before".to_owned();
    Err(Error::Tampered { seq, finding: Finding::RolledBack, why })
}
