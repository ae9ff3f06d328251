//! Capture: what changed is found, attributed and committed. The only path into the log.

use std::collections::{HashMap, HashSet};

use super::attribute::{Announced, DEFAULT_SESSION, Openings, Window, base_session, session_of};
use super::look_around::is_news;
use super::outcomes::Closing;
use super::views::why_text;
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, DirectoryUpdate, Durability, LocalState, Log, Open};
use crate::entry::{Author, Change, Entry, Evidence, MovedFrom, Why};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::filter::is_narrower;
use crate::id::{Seq, SnapshotId};
use crate::known::{Known, Part};
use crate::look::Candidate;
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels, Record};
use crate::repository::Bundle;
use crate::store::{Row, StoreLock, compressed};
use crate::view::{KeptView, SnapshotMetadata};

/// What an agent's harness says it is about to do.
#[derive(Debug, Clone, Default)]
pub struct SnapshotRequest {
    /// The kind of action: `write_file`, `delete_file`, `move_file`, ...
    pub action: String,
    /// The paths that the action will touch.
    pub paths: Vec<WorkspacePath>,
    /// Where a move or copy goes.
    pub to: Option<WorkspacePath>,
    /// The action in words; made from the others where it is missing.
    pub summary: Option<String>,
    /// The agent's tool.
    pub tool: Option<String>,
    /// The agent's own name for the call.
    pub call_id: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// The agent's own name for the turn.
    pub turn_key: Option<String>,
    /// Which agent.
    pub agent: Option<String>,
    /// The transaction it belongs to.
    pub transaction: Option<String>,
}

/// What a settle recorded.
#[derive(Debug, Clone, Default, serde::Serialize, schemars::JsonSchema)]
pub struct SettleReport {
    /// The snapshots that got an outcome.
    pub snapshots: Vec<SnapshotMetadata>,
    /// How many paths changed.
    pub changes: u64,
    /// Whether everything could be seen.
    pub complete: bool,
    /// What could not be seen, and why.
    pub problems: Vec<KeptView>,
    /// Whether the watcher said where to look; otherwise everything was looked at.
    pub watched: bool,
}

/// One path that is not what it was known as.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) path: WorkspacePath,
    pub(super) before: Entry,
    pub(super) after: Entry,
    pub(super) from: Option<MovedFrom>,
    pub(super) neutral: bool,
}

/// What a look found, not yet committed.
#[derive(Default)]
pub(super) struct Look {
    pub(super) found: Vec<Found>,
    pub(super) known: Vec<DirectoryUpdate>,
    pub(super) rows: Vec<Row>,
    /// Held until the commit, so that nothing that was taken in is swept before.
    pub(super) hold: Option<StoreLock>,
    /// What could not be seen.
    pub(super) problems: Vec<KeptView>,
    /// What happened to repositories, in words.
    pub(super) moves: Vec<String>,
    /// It saw everything, wherever it is.
    pub(super) everywhere: bool,
    /// Named paths that are what they are known as.
    pub(super) current: HashMap<WorkspacePath, Entry>,
    /// Where it could not see.
    pub(super) blind: Vec<WorkspacePath>,
    /// It looked only where the watcher saw something touched.
    pub(super) watched: bool,
    /// The watcher says that nothing at all was touched.
    pub(super) untouched: bool,
    /// Where the next look goes on, to be recorded with this one.
    pub(super) bookmark: Option<Vec<u8>>,
    /// Up to where the journal of a mount is recorded with it.
    pub(super) journal: Option<Vec<u8>>,
}

impl Look {
    /// Adds what a look at some paths found besides; what both found counts once.
    pub(super) fn absorb(&mut self, other: Self) {
        let seen: HashSet<_> = self.found.iter().map(|found| found.path.clone()).collect();
        self.found.extend(other.found.into_iter().filter(|found| !seen.contains(&found.path)));
        self.known.extend(other.known);
        self.rows.extend(other.rows);
        self.problems.extend(other.problems);
        self.current.extend(other.current);
        self.hold = self.hold.take().or(other.hold);
    }
}

impl Workspace {
    /// Captures what an action is about to touch, before it starts.
    ///
    /// The named paths belong to this action until the next settle.
    pub fn snapshot(&mut self, request: &SnapshotRequest) -> Result<SnapshotMetadata> {
        let mut paths = request.paths.clone();
        paths.extend(request.to.clone());
        if paths.is_empty() {
            return Err(Error::Usage("A snapshot needs at least one path".to_owned()));
        }
        let _lock = self.lock_in_haste(PATIENCE)?;
        // Mostly nothing is taken in, and then nobody waits for room to be made.
        let mut look = match self.look_and_hold(&paths) {
            Err(Error::OverBudget { .. }) => {
                self.keep_within_budget()?;
                self.look_and_hold(&paths)?
            }
            looked => looked?,
        };
        let reading = self.catalog.held();
        let fresh = !look.rows.is_empty() || !look.found.is_empty();
        let current = std::mem::take(&mut look.current);
        let mut batch = Batch::default();
        if fresh || !look.known.is_empty() {
            self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
        }
        let intent = self.intent(request, &paths, &batch, &current)?;
        let id = intent.labels.snapshot.expect("an intent has an id");
        if request.transaction.is_some() {
            self.note_transaction(&intent.labels, &mut batch)?;
        }
        batch.opens.push((Open::Intent, id.0.to_vec(), batch.records.len()));
        batch.records.push(intent);
        failpoint::hit("capture_before_commit");
        let durability = if fresh { Durability::PowerCut } else { Durability::ProcessDeath };
        let mut intent = batch.records.last().expect("the intent was just added").clone();
        let before = self.catalog.head()?;
        drop(reading);
        let appended = self.catalog.apply(batch, before, durability)?;
        failpoint::hit("capture_after_commit");
        intent.seq = appended.last.seq;
        self.intent_view(&intent, (appended.previous, appended.last.link))
    }

    /// Looks at some paths, and goes on to hold the moment of the catalog at which it did.
    fn look_and_hold(&self, paths: &[WorkspacePath]) -> Result<Look> {
        self.catalog.begin_reading()?;
        self.look_at(paths).inspect_err(|_| self.catalog.end_reading())
    }

    /// Whether a path is still what is known of it, so that its content is in the store already.
    ///
    /// Costs one look-up and one `lstat`.
    pub fn is_unchanged(&self, path: &WorkspacePath) -> Result<bool> {
        let (was, stat) = (self.catalog.known(path)?, self.roots.lstat(path)?);
        let part = was.as_ref().map_or(Part::Ordinary, |was| was.part);
        let candidate = Candidate { path: path.clone(), stat, was, part, filtered: false };
        Ok(candidate.is_current() || !is_news(&candidate))
    }

    /// Records what changed since the last look, and closes the actions that were announced.
    pub fn settle(&mut self) -> Result<SettleReport> {
        let _lock = self.lock(PATIENCE)?;
        self.settle_locked()
    }

    /// The same, for one who holds the lock already.
    pub(super) fn settle_locked(&mut self) -> Result<SettleReport> {
        let open = self.openings()?;
        self.settle_closing(&open, &Closing::Ended)
    }

    /// The same after a look at everything, whatever the watcher says: it cannot see writes through a
    /// mapping, nor through a name outside the workspace.
    pub(super) fn settle_fully(&mut self) -> Result<SettleReport> {
        let (look, open) = (self.full_look()?, self.openings()?);
        self.settle_with(look, &open, &Closing::Ended)
    }

    /// Records what changed, and closes some of the actions that were announced.
    pub(super) fn settle_closing(
        &mut self,
        open: &Openings,
        closing: &Closing<'_>,
    ) -> Result<SettleReport> {
        self.keep_within_budget()?;
        let look = self.look_for_changes()?;
        self.settle_with(look, open, closing)
    }

    pub(super) fn settle_with(
        &mut self,
        mut look: Look,
        open: &Openings,
        closing: &Closing<'_>,
    ) -> Result<SettleReport> {
        self.look_into_filtered(open, &mut look)?;
        let problems = look.problems.clone();
        let mut batch = Batch::default();
        let (watched, untouched) = (look.watched, look.untouched);
        let snapshots = self.add_outcomes(look, open, &mut batch, closing)?;
        if !untouched {
            self.accept_wider_rules(&mut batch)?;
            self.accept_wider_settings(&mut batch)?;
        }
        self.compress_befores(open, &mut batch)?;
        let visible = batch.records.iter().flat_map(|record| &record.changes);
        let changes = visible.filter(|change| change.is_visible()).count() as u64;
        let remembered = !batch.state.is_empty() || !batch.local.is_empty();
        if !batch.records.is_empty() || !batch.known.is_empty() || remembered {
            failpoint::hit("capture_before_commit");
            let quiet = batch.records.is_empty();
            let durability = if quiet { Durability::ProcessDeath } else { Durability::PowerCut };
            self.commit_batch(batch, durability)?;
            failpoint::hit("capture_after_commit");
        }
        let snapshots = snapshots.iter().map(|id| self.metadata(id)).collect::<Result<_>>()?;
        let complete = problems.is_empty();
        Ok(SettleReport { snapshots, changes, complete, problems, watched })
    }

    /// What an action named inside a directory that a filter keeps out: the walk does not go there.
    fn look_into_filtered(&self, open: &Openings, look: &mut Look) -> Result<()> {
        // Most looks have nothing announced, and a filter is dear to make.
        if open.announced.iter().all(|announced| announced.paths.is_empty()) {
            return Ok(());
        }
        let filter = self.filter()?;
        let named = open.announced.iter().flat_map(|announced| &announced.paths);
        let hidden: Vec<_> = named.filter(|path| filter.covers(path, false)).cloned().collect();
        if hidden.is_empty() {
            return Ok(());
        }
        look.absorb(self.look_at(&hidden)?);
        Ok(())
    }

    /// Compresses what was kept as it was while an action waited to start.
    fn compress_befores(&self, open: &Openings, batch: &mut Batch) -> Result<()> {
        let ending = open.announced.iter().filter(|announced| !announced.alive);
        for id in ending.flat_map(|announced| &announced.objects) {
            let stored = self.catalog.object(id)?;
            if let Some(stored) = stored.and_then(|stored| compressed(&stored)) {
                batch.smaller.push(Row { id: *id, stored, base: None });
            }
        }
        Ok(())
    }

    /// Rules that keep out less than the accepted ones need nobody's leave, and are the accepted
    /// ones from now on: what they let in stays in.
    fn accept_wider_rules(&self, batch: &mut Batch) -> Result<()> {
        let (accepted, current) = (self.accepted_rules()?, self.current_rules());
        if accepted != current && !is_narrower(&accepted, &current) {
            batch.state.push((key::ACCEPTED_FILTER, Some(current.ignore)));
        }
        Ok(())
    }

    /// The intent of a request: what is announced, with what stands there now.
    fn intent(
        &self,
        request: &SnapshotRequest,
        paths: &[WorkspacePath],
        batch: &Batch,
        current: &HashMap<WorkspacePath, Entry>,
    ) -> Result<Record> {
        let summary = request.summary.clone().unwrap_or_else(|| {
            let names: Vec<_> = paths.iter().map(ToString::to_string).collect();
            format!("{}: {}", request.action, names.join(" -> "))
        });
        let mut labels = Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(request.action.clone()),
            summary: Some(summary),
            tool: request.tool.clone(),
            call_id: request.call_id.clone(),
            session: request.session.clone(),
            agent: request.agent.clone(),
            turn_key: request.turn_key.clone(),
            ..Labels::default()
        };
        self.join_turn(&mut labels)?;
        labels.transaction = match &request.transaction {
            Some(text) => Some(self.find_transaction(text)?),
            None => self.transaction_of(&labels)?,
        };
        self.intent_of(labels, paths, batch, current)
    }

    /// The intent of an action that is known by its labels.
    pub(super) fn intent_of(
        &self,
        labels: Labels,
        paths: &[WorkspacePath],
        batch: &Batch,
        current: &HashMap<WorkspacePath, Entry>,
    ) -> Result<Record> {
        let mut record = self.record(Kind::Intent, labels);
        let news = news_by_path(batch);
        for path in paths {
            let before = match news.get(path) {
                Some(known) => known.as_ref().map_or(Entry::Absent, |known| known.entry.clone()),
                None if current.contains_key(path) => current[path].clone(),
                None => self.catalog.known(path)?.map_or(Entry::Absent, |known| known.entry),
            };
            // Before first: an action that could destroy what is not saved must not start.
            if let Entry::Unknown(why) = before
                && why.is_failure()
            {
                return Err(Error::NotCaptured { path: path.clone(), why: why_text(why) });
            }
            record.changes.push(Change {
                path: path.clone(),
                before,
                after: Entry::Unknown(Why::NotSeen),
                from: None,
                author: Author::Session(session_of(&record.labels)),
                evidence: Evidence::Named,
                neutral: false,
            });
        }
        Ok(record)
    }

    /// Puts an action into its open turn, if there is exactly one it can belong to.
    pub(super) fn join_turn(&self, labels: &mut Labels) -> Result<()> {
        let mut turns = self.open_turns()?;
        if let Some(session) = &labels.session {
            turns.retain(|turn| turn.session.as_ref() == Some(session));
        }
        if let Some(turn_key) = &labels.turn_key {
            turns.retain(|turn| turn.turn_key.as_ref() == Some(turn_key));
        }
        if let [turn] = &turns[..] {
            labels.turn = turn.turn;
            labels.turn_key = turn.turn_key.clone();
            labels.session = labels.session.take().or_else(|| turn.session.clone());
        }
        Ok(())
    }

    /// What is open now: announced actions and windows.
    pub(super) fn openings(&self) -> Result<Openings> {
        let mut open = Openings::default();
        let (by_hook, by_command): (Vec<_>, Vec<_>) =
            self.open_turns()?.into_iter().partition(|turn| turn.by_hook);
        open.turns = by_hook;
        for labels in by_command {
            let session = session_of(&labels);
            open.windows.push(Window { session, labels, action: None });
        }
        for (_, seq) in self.catalog.open_things(Open::Intent)? {
            let record = self.read_record(seq)?;
            let Some(id) = record.labels.snapshot else { continue };
            let objects =
                record.changes.iter().filter_map(|change| change.before.object()).collect();
            let nothing = record.changes.iter().filter(|change| change.before == Entry::Absent);
            let absent = nothing.map(|change| change.path.clone()).collect();
            let paths: Vec<_> = record.changes.into_iter().map(|change| change.path).collect();
            if paths.is_empty() {
                let (session, labels) = (session_of(&record.labels), record.labels.clone());
                open.windows.push(Window { session, labels, action: Some(id) });
            }
            let alive = match record.labels.by_hook {
                true => self.call_runs(&record.labels, record.time)?,
                false => paths.is_empty() && self.call_is_alive(&id)?,
            };
            let labels = record.labels;
            open.announced.push(Announced { id, paths, labels, absent, objects, alive });
        }
        for (key, session) in self.sessions()? {
            if session.runs_on() {
                open.background.push(key);
            }
        }
        let transaction = self.active_transaction_labels()?;
        open.transaction = transaction.as_ref().and_then(|labels| labels.transaction);
        if open.transaction.is_some() {
            open.transaction_of = self.transaction_sessions()?;
        }
        if open.windows.is_empty()
            && let Some(labels) = transaction
        {
            let session = DEFAULT_SESSION.to_owned();
            open.windows.push(Window { session, labels, action: None });
        }
        Ok(open)
    }

    pub(super) fn bundle(&self, id: &crate::id::ObjectId) -> Result<Bundle> {
        use crate::store::ContentStorage;
        let bytes = self.objects()?.get(id)?;
        Bundle::decode(&bytes)
            .map_err(|error| Error::Corrupt { object: *id, why: error.to_string() })
    }

    /// Decodes one record of the log.
    pub(super) fn read_record(&self, seq: Seq) -> Result<Record> {
        let sealed = self.catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
        self.open_sealed(&sealed)
    }

    /// The end of the first capture: what is older is only what stood there at the beginning.
    pub(super) fn baseline_end(&self) -> Result<Seq> {
        let bytes = self.catalog.state(key::BASELINE)?.unwrap_or_default();
        Ok(Seq(bytes.try_into().map_or(0, u64::from_le_bytes)))
    }

    /// An action that names the active transaction makes it its session's.
    fn note_transaction(&self, labels: &Labels, batch: &mut Batch) -> Result<()> {
        let active = self.active_transaction()?;
        if active.is_none() || labels.transaction != active {
            return Ok(());
        }
        let mut sessions = self.transaction_sessions()?;
        let session = base_session(labels);
        if !sessions.iter().any(|known| known == session) {
            sessions.push(session.to_owned());
            batch.state.push((key::TRANSACTION_OF, Some(sessions.join("\n").into_bytes())));
        }
        Ok(())
    }
}

fn news_by_path(batch: &Batch) -> HashMap<WorkspacePath, Option<Known>> {
    let mut news = HashMap::new();
    for update in &batch.known {
        for (name, known) in &update.names {
            news.insert(update.path.join(name), known.clone());
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use crate::store::ContentStorage;
    use crate::workspace::init::InitOptions;

    #[test]
    fn what_was_kept_in_haste_is_compressed_when_the_action_ends() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("work");
        std::fs::create_dir(&top).unwrap();
        let home = Home::at(&place.path().join("home"));
        let (mut workspace, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
        let content = "the same line\n".repeat(600);
        std::fs::write(top.join("f"), &content).unwrap();
        let id = crate::id::ObjectId::of(content.as_bytes());
        let paths = vec![WorkspacePath::new("f").unwrap()];
        workspace.snapshot(&SnapshotRequest { paths, ..SnapshotRequest::default() }).unwrap();
        let stored = |workspace: &Workspace| workspace.catalog.object(&id).unwrap().unwrap().len();
        assert!(stored(&workspace) > content.len());
        workspace.settle().unwrap();
        assert!(stored(&workspace) < content.len() / 4);
        assert_eq!(workspace.objects().unwrap().get(&id).unwrap(), content.as_bytes());
        assert_eq!(workspace.verify(true, &|_, _| {}).unwrap().objects_read, 1);
    }
}
