//! What sessions want of the workspace, done one after the other on its thread.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronicle_core::replica::{Admission, Place, Verdict, Version, Write, stays_home};
use chronicle_core::{
    ContentStorage, Error, ObjectId, ReplicaId, ReplicaNews, Result, Workspace, WorkspaceId,
    WorkspacePath, WriteBack,
};

use super::super::clock;
use super::super::given::Giving;
use super::super::incoming::Incoming;
use super::super::metrics::Metrics;
use super::super::rules::{RuleFile, text};
use super::super::syncing::Syncing;
use super::super::tokens::Right;
use super::follow::{Following, Source, contents_of};
use super::peers::Peer;
use super::pushes::Pushes;
use crate::filter::Filters;
use crate::host::{Effect, Event, TakeWrites, WritesTaken};
use crate::shared::{SharedLog, Taken};
use crate::wire::{Direction, Run, Wanted};

/// How often what is known of a replica is written down, at most.
const NOTED_EVERY: Duration = Duration::from_secs(1);

/// The workspace, for the sessions of its replicas.
pub(super) struct HostWork {
    workspace: Workspace,
    /// The log that it shares with other hosts, if it does.
    following: Option<Following>,
    pub(super) filters: Arc<Filters>,
    pushes: Pushes,
    giving: Giving,
    /// Contents that peers have sent, by their numbers.
    incoming: HashMap<u64, Incoming>,
    below: PathBuf,
    noted: HashMap<ReplicaId, Noted>,
    syncing: Syncing,
}

/// What was last written down of a replica.
struct Noted {
    at: Duration,
    place: Option<Place>,
    sent: u64,
    received: u64,
}

impl HostWork {
    pub(super) fn new(
        workspace: Workspace,
        home: &chronicle_core::Home,
        shared: Option<SharedLog>,
    ) -> Self {
        let own = home.path().join("workspaces").join(workspace.id().hex());
        let below = own.join("incoming");
        Incoming::clean(&below);
        Self {
            workspace,
            following: shared.map(Following::new),
            filters: Arc::default(),
            pushes: Pushes::default(),
            giving: Giving::default(),
            incoming: HashMap::new(),
            below,
            noted: HashMap::new(),
            syncing: Syncing::default(),
        }
    }

    /// The workspace that replicas are replicas of.
    pub(super) fn id(&self) -> WorkspaceId {
        self.following.as_ref().map_or(self.workspace.id(), |it| it.shared.workspace())
    }

    /// The workspace of this machine, for which tokens and rules are.
    pub(super) fn own_id(&self) -> WorkspaceId {
        self.workspace.id()
    }

    pub(super) fn is_following(&self) -> bool {
        self.following.is_some()
    }

    /// Whether the file system takes names for the same that differ in case; those that this program is made for do not.
    pub(super) fn folds_names(&self) -> bool {
        false
    }

    pub(super) fn place(&self) -> Result<Place> {
        match &self.following {
            Some(following) => Ok(following.shared.place()),
            None => Ok(self.workspace.replica_place()?.head),
        }
    }

    /// Brings what changed on the disk into the log; says whether anything did.
    pub(super) fn look(&mut self) -> Result<bool> {
        Ok(self.workspace.settle()?.changes > 0)
    }

    /// Reads what other hosts committed to the shared log, and commits what was done here.
    pub(super) fn follow(&mut self) -> Result<()> {
        match &mut self.following {
            Some(following) => following.exchange(&mut self.workspace, &self.filters),
            None => Ok(()),
        }
    }

    /// Has what came from other hosts synced, meanwhile.
    pub(super) fn sync_on(&mut self) -> Result<()> {
        self.syncing.go_on(&mut self.workspace)
    }

    /// Makes sure that nobody is shown less than another host has shown him.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        match &mut self.following {
            Some(following) => following.shared.read_on().map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn rules(&self, file: &RuleFile) -> Result<(Vec<u8>, Vec<u8>)> {
        let settings = self.workspace.current_settings()?.replication;
        let path = file.path().to_owned();
        let added = file.read().map_err(|source| Error::Io { action: "read", path, source })?;
        let of = |direction| text(&settings, &added, direction);
        Ok((of(Direction::Push), of(Direction::WriteBack)))
    }

    pub(super) fn set_filters(&mut self, filters: Arc<Filters>) {
        self.filters = filters;
        self.pushes.forget();
    }

    /// What has been offered so far, as a number.
    pub(super) fn offers(&self) -> u64 {
        self.pushes.now()
    }

    /// A peer is gone, and with it what it sent and nothing names.
    pub(super) fn forget(&mut self, number: u64, peer: &Peer) {
        self.incoming.remove(&number);
        // Who never acknowledged anything was not a replica yet.
        if let Some(replica) = peer.replica.filter(|_| peer.place.is_some()) {
            self.note(replica, peer, true);
        }
    }

    /// Writes down how far a replica is; not each time, since it costs a commit.
    pub(super) fn note(&mut self, replica: ReplicaId, peer: &Peer, now: bool) {
        let at = clock::now();
        let noted = self.noted.entry(replica);
        let first = Noted { at: Duration::ZERO, place: None, sent: 0, received: 0 };
        let noted = noted.or_insert(first);
        let sent = peer.outbox.sent();
        if !now && at.saturating_sub(noted.at) < NOTED_EVERY {
            return;
        }
        // Counters of a link begin anew with each.
        let more = |whole: u64, before: u64| if whole < before { whole } else { whole - before };
        let news = ReplicaNews {
            name: Some(peer.name.clone()),
            // A place in the shared log is none in the own one.
            acknowledged: peer
                .place
                .filter(|place| self.following.is_none() && noted.place != Some(*place)),
            sent: more(sent, noted.sent),
            received: more(peer.received, noted.received),
            conflicts: None,
        };
        *noted = Noted { at, place: peer.place, sent, received: peer.received };
        // It is for people and for retention; the next one tells more.
        let _ = self.workspace.note_replica(&replica, &news);
    }

    /// What sessions want that concerns the workspace.
    pub(super) fn carry_out(&mut self, number: u64, peer: &Peer, effect: Effect) -> Vec<Event> {
        match effect {
            Effect::ReadLog(wanted) => {
                let view = View { own: &self.filters, peer: &peer.filters, bare: peer.bare };
                let following = self.following.as_ref();
                let mut source = Source { workspace: &mut self.workspace, following };
                let read = self.pushes.read(&mut source, &wanted, &view, peer.class());
                vec![Event::LogRead(read)]
            }
            Effect::ReadTree(paths) => {
                let view = View { own: &self.filters, peer: &peer.filters, bare: peer.bare };
                let following = self.following.as_ref();
                let source = Source { workspace: &mut self.workspace, following };
                let read = |path| {
                    let tree = self.pushes.tree(&source, path, &view, peer.class());
                    Event::TreeRead(tree)
                };
                paths.into_iter().map(read).collect()
            }
            Effect::ReadContent { run, offered } => {
                let bytes = self.read_content(peer, &run, offered);
                vec![Event::ContentRead(run, bytes)]
            }
            Effect::ReadManifest { wanted, offered } => {
                let manifest = self.read_manifest(peer, &wanted, offered);
                vec![Event::ManifestRead(wanted, manifest)]
            }
            Effect::Lacking { id, objects, base } => {
                let objects = self.lacking(number, peer, objects, base);
                vec![Event::Lacking { id, objects }]
            }
            Effect::PutContent { object, bytes } => {
                let kept = self.incoming(number).keep(&object, bytes).is_ok();
                vec![Event::ContentPut(object, kept)]
            }
            Effect::PutPieces { object, size, pieces } => {
                let kept = self.put_pieces(number, &object, size, &pieces);
                vec![Event::ContentPut(object, kept.unwrap_or(false))]
            }
            _ => Vec::new(),
        }
    }

    fn incoming(&mut self, number: u64) -> &Incoming {
        let below = &self.below;
        self.incoming.entry(number).or_insert_with(|| Incoming::new(below, number))
    }

    /// Whether an object may be given: it was offered, or stands at the path that is named and goes to this replica.
    fn may_give(&self, peer: &Peer, wanted: &Wanted, offered: bool) -> bool {
        if offered {
            return true;
        }
        let view = View { own: &self.filters, peer: &peer.filters, bare: peer.bare };
        let stands = || {
            if let Some(following) = &self.following {
                return following.shared.at(&wanted.path)?.object();
            }
            let last = self.workspace.last_position().ok()?;
            let entry = self.workspace.entry_just_after(last, &wanted.path).ok()?;
            Version::of(&entry)?.object()
        };
        view.passes(&wanted.path, false) && stands() == Some(wanted.object)
    }

    fn read_content(&mut self, peer: &Peer, run: &Run, offered: bool) -> Option<Vec<u8>> {
        if !self.may_give(peer, &run.wanted, offered) {
            return None;
        }
        let contents = contents_of(&self.workspace, self.following.as_ref()).ok()?;
        let bytes = self.giving.run(&contents, run).ok()?;
        // Who may have all of it by asking may name it as its own.
        self.pushes.give(peer.class(), run.wanted.object);
        Some(bytes)
    }

    fn read_manifest(
        &mut self,
        peer: &Peer,
        wanted: &Wanted,
        offered: bool,
    ) -> Option<(u64, Vec<chronicle_core::Piece>)> {
        if !self.may_give(peer, wanted, offered) {
            return None;
        }
        let contents = contents_of(&self.workspace, self.following.as_ref()).ok()?;
        self.giving.manifest(&contents, &wanted.object).ok()
    }

    /// What a replica must send though the store may have it: only what was given to it is believed to be its own.
    fn lacking(
        &mut self,
        number: u64,
        peer: &Peer,
        mut objects: Vec<ObjectId>,
        base: Option<ObjectId>,
    ) -> Vec<ObjectId> {
        let following = self.following.as_ref();
        let Ok(contents) = contents_of(&self.workspace, following) else { return objects };
        let contents = &contents;
        let came = self.incoming.get(&number);
        let own: HashSet<_> = match base.filter(|base| self.pushes.gave(base, peer)) {
            Some(base) => self.giving.manifest(contents, &base).map(|(_, pieces)| pieces),
            None => Ok(Vec::new()),
        }
        .unwrap_or_default()
        .into_iter()
        .map(|piece| piece.id)
        .collect();
        objects.retain(|object| {
            let came = came.is_some_and(|came| came.exists(object).unwrap_or(false));
            let gave = own.contains(object) || self.pushes.gave(object, peer);
            !(came || gave && self.giving.has(contents, object).unwrap_or(false))
        });
        objects
    }

    fn put_pieces(
        &mut self,
        number: u64,
        object: &ObjectId,
        size: u64,
        pieces: &[chronicle_core::Piece],
    ) -> Result<bool> {
        let below = &self.below;
        let came = self.incoming.entry(number).or_insert_with(|| Incoming::new(below, number));
        let contents = &contents_of(&self.workspace, self.following.as_ref())?;
        let giving = &mut self.giving;
        let parts = pieces.iter().map(|piece| match came.exists(&piece.id)? {
            true => came.get(&piece.id),
            false => giving.piece(contents, &piece.id),
        });
        let made = came.assemble(object, size, parts)?;
        // The whole is here; what it was made of takes room twice.
        for piece in pieces {
            came.delete(&piece.id)?;
        }
        Ok(made)
    }

    /// Judges a batch, does what is taken, and commits that with the answer.
    pub(super) fn take_writes(
        &mut self,
        number: u64,
        peer: &Peer,
        taken: TakeWrites,
        metrics: &Metrics,
    ) -> WritesTaken {
        let Some(replica) = peer.replica else {
            return WritesTaken::Failed("The replica was not let in".to_owned());
        };
        let writes = match self.unpack(number, &taken) {
            Ok(writes) => writes,
            Err(error) => return WritesTaken::Failed(error.to_string()),
        };
        let lost: HashSet<&WorkspacePath> = writes
            .iter()
            .filter(|write| write.after.object().is_some_and(|it| taken.missing.contains(&it)))
            .map(|write| &write.path)
            .collect();
        let (own, theirs) = (Arc::clone(&self.filters), &peer.filters);
        let admit = |path: &WorkspacePath, is_directory: bool| {
            if peer.right != Some(Right::WriteBack) || stays_home(path) || lost.contains(path) {
                return Admission::NotAllowed;
            }
            let filtered = |filters: &Filters| filters.write_back.is_filtered(path, is_directory);
            if filtered(&own) || filtered(theirs) {
                Admission::Filtered
            } else {
                Admission::Allowed
            }
        };
        let request = WriteBack {
            replica,
            name: &peer.name,
            batch: taken.batch,
            writes: &writes,
            admit: &admit,
            folds: peer.folds,
        };
        let answer = match &mut self.following {
            None => self.workspace.take_writes(&request, &self.incoming[&number]).map(|answer| {
                match answer.verdicts.len() == writes.len() {
                    true => Taken::Answered(answer.verdicts),
                    false => Taken::Renumber(answer.batch),
                }
            }),
            Some(following) => {
                following.take_writes(&mut self.workspace, &request, &self.incoming[&number])
            }
        };
        match answer {
            Ok(Taken::Renumber(last)) => WritesTaken::Renumber { batch: taken.batch, last },
            Ok(Taken::Answered(verdicts)) => {
                self.incoming.remove(&number);
                let verdicts = self.hide(peer, &writes, verdicts);
                count(metrics, &verdicts);
                WritesTaken::Answered { batch: taken.batch, verdicts }
            }
            Err(error) => match self.last_batch(replica) {
                // Also the number of another batch that was answered: this one was resumed from a copy of before.
                Some(last) if last >= taken.batch => {
                    WritesTaken::Renumber { batch: taken.batch, last }
                }
                _ => WritesTaken::Failed(error.to_string()),
            },
        }
    }

    /// The writes of a batch; what came inside of them is kept with what came before.
    fn unpack(&mut self, number: u64, taken: &TakeWrites) -> Result<Vec<Write>> {
        let incoming = self.incoming(number);
        for sent in &taken.writes {
            if let (Some(object), Some(bytes)) = (sent.write.after.object(), &sent.inline) {
                incoming.keep(&object, bytes.clone())?;
            }
        }
        Ok(taken.writes.iter().map(|sent| sent.write.clone()).collect())
    }

    fn last_batch(&self, replica: ReplicaId) -> Option<u64> {
        let rows = self.workspace.replicas().ok()?;
        rows.iter().find(|row| row.id == replica).map(|row| row.batch)
    }

    /// What stands at a path that is not pushed to this replica is not told by a rejection either.
    fn hide(&self, peer: &Peer, writes: &[Write], mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
        let view = View { own: &self.filters, peer: &peer.filters, bare: peer.bare };
        for (write, verdict) in writes.iter().zip(&mut verdicts) {
            if let Verdict::Rejected { theirs, .. } = verdict
                && !view.passes(&write.path, false)
            {
                *theirs = None;
            }
        }
        verdicts
    }
}

fn count(metrics: &Metrics, verdicts: &[Verdict]) {
    let accepted = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Accepted(_)));
    let accepted = accepted.count() as u64;
    Metrics::add(&metrics.writes_accepted, accepted);
    Metrics::add(&metrics.writes_rejected, verdicts.len() as u64 - accepted);
}

/// What goes to one replica.
pub(super) struct View<'f> {
    pub(super) own: &'f Filters,
    pub(super) peer: &'f Filters,
    /// Whether contents stay here until somebody asks for them.
    pub(super) bare: bool,
}

impl View<'_> {
    pub(super) fn passes(&self, path: &WorkspacePath, is_directory: bool) -> bool {
        let filtered = |filters: &Filters| filters.push.is_filtered(path, is_directory);
        !stays_home(path) && !filtered(self.own) && !filtered(self.peer)
    }
}
