//! An agent's calls, as its hooks tell of them: what is about to be done, and that it was done.
//!
//! A call that names its paths owns those; of any other nobody knows what it will touch, so that
//! it is a window: what changes while it is open is its own, unless somebody else's is open too.

use std::collections::BTreeSet;

use super::attribute::{Announced, Openings};
use super::capture::Look;
use super::effects::{Called, CheckpointWanted};
use super::outcomes::Closing;
use super::{PATIENCE, Workspace};
use crate::catalog::{Batch, Durability, Local, Open};
use crate::codec::{Decoder, Encoder};
use crate::error::Result;
use crate::failpoint;
use crate::id::{SnapshotId, Time};
use crate::path::WorkspacePath;
use crate::process::Process;
use crate::record::{Kind, Labels};
use crate::shell::CommandLine;
use crate::view::SnapshotMetadata;

/// For how long after its end a path that a call wrote may still be written by it.
const GRACE_NS: i64 = 2_000_000_000;
/// The same for the paths that a call named, where the agent runs formatters until its batch ends
/// and tells of that: a batch that is never told of must not hold them for longer.
const BATCH_GRACE_NS: i64 = 10_000_000_000;
/// The most paths of an ended call that are remembered for that.
const GRACE_PATHS: usize = 256;

/// For how long a call is believed to run whose agent is not known.
const UNKNOWN_AGENT_NS: i64 = 3600 * 1_000_000_000;

/// A tool call of an agent.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The session's key.
    pub session: String,
    /// Which agent.
    pub agent: String,
    /// Which of the session's sub-agents.
    pub sub_agent: Option<String>,
    /// The agent's own name for the turn.
    pub turn_key: Option<String>,
    /// The agent's tool.
    pub tool: String,
    /// The agent's own name for the call.
    pub call_id: Option<String>,
    /// The kind of action.
    pub action: String,
    /// The call in words.
    pub summary: String,
    /// The command line, where it is a shell.
    pub command: Option<String>,
    /// The checkpoint that was made before it, or why none was, in words.
    pub checkpoint: Option<String>,
    /// What it will touch; empty where nobody knows.
    pub paths: Vec<WorkspacePath>,
    /// The agent's process.
    pub process: Option<Process>,
    /// Its tools run below that process, and nothing that a person does.
    pub tools_below: bool,
    /// This agent does not always tell that a call has ended: the next one says so.
    pub ends_earlier: bool,
}

/// What came of a call that is about to start.
#[derive(Debug, Clone)]
pub enum CallStart {
    /// It is recorded, and may begin.
    Recorded(Box<SnapshotMetadata>),
    /// Nothing is recorded yet: the settings want a checkpoint first.
    CheckpointFirst(CheckpointWanted),
}

/// What becomes of a call when its agent says that it has ended.
#[derive(Debug, Clone, Default)]
pub struct CallEnd {
    /// The agent's own hooks may write what it named once more, until its batch ends.
    pub until_batch: bool,
    /// The agent says that it left a task running.
    pub task: bool,
    /// Processes that the call left running.
    pub left: Vec<Process>,
}

/// An ended call whose paths may still be written to.
pub(super) struct Grace {
    pub(super) id: SnapshotId,
    pub(super) until: Time,
    pub(super) paths: Vec<WorkspacePath>,
}

impl Workspace {
    /// Captures what a call could destroy, before it starts.
    pub fn call_start(&mut self, call: &Call) -> Result<SnapshotMetadata> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        self.call_start_locked(call)
    }

    /// The same, but for a call before which the settings want a checkpoint.
    pub fn call_begin(&mut self, call: &Call) -> Result<CallStart> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        match self.wants_checkpoint(&call.called())? {
            Some(wanted) => Ok(CallStart::CheckpointFirst(wanted)),
            None => Ok(CallStart::Recorded(Box::new(self.call_start_locked(call)?))),
        }
    }

    fn call_start_locked(&mut self, call: &Call) -> Result<SnapshotMetadata> {
        self.keep_within_budget()?;
        let open = self.openings()?;
        let earlier = if call.ends_earlier { self.earlier(&open, call) } else { Vec::new() };
        let everywhere = call.paths.is_empty() || !named_only(&open, &earlier);
        let mut look = match everywhere {
            true => self.look_for_changes()?,
            false => self.look_at(&call.paths)?,
        };
        if everywhere && !call.paths.is_empty() {
            // Filters keep out nothing that a call names.
            look.absorb(self.look_at(&call.paths)?);
        }
        let fresh = !look.rows.is_empty() || !look.found.is_empty();
        let current = std::mem::take(&mut look.current);
        let mut batch = Batch::default();
        self.add_outcomes(look, &open, &mut batch, &Closing::These(&earlier))?;
        let mut labels = self.labels_of(call)?;
        self.ensure_turn(&mut batch, &mut labels)?;
        let intent = self.intent_of(labels, &call.paths, &batch, &current)?;
        let id = intent.labels.snapshot.expect("an intent has an id");
        batch.opens.push((Open::Intent, id.0.to_vec(), batch.records.len()));
        let labels = intent.labels.clone();
        batch.records.push(intent);
        let intents = batch.records.len();
        self.add_effects(&mut batch, &call.called(), &labels, call.checkpoint.as_ref())?;
        let marked = batch.records.len() > intents;
        self.remember_process(&mut batch, call)?;
        failpoint::hit("capture_before_commit");
        // What happens outside cannot be looked for again after a power cut.
        let durable = fresh || marked;
        let durability = if durable { Durability::PowerCut } else { Durability::ProcessDeath };
        if marked {
            self.commit_batch(batch, durability)?;
            failpoint::hit("capture_after_commit");
            return self.metadata(&id);
        }
        self.commit_call(batch, durability)
    }

    /// Records what a call did.
    pub fn call_end(&mut self, call: &Call, end: &CallEnd) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let mut open = self.openings()?;
        let id = match self.find_call(&open, call) {
            Some(id) => id,
            // It was never told of: it began before anybody listened.
            None => self.announce_late(&mut open, call)?,
        };
        let look = match call.paths.is_empty() {
            true => self.look_for_changes()?,
            false => self.look_at(&call.paths)?,
        };
        let written = self.written(&look, &open, id);
        let durable = !look.found.is_empty();
        let ids = [id];
        let mut batch = Batch::default();
        self.add_outcomes(look, &open, &mut batch, &Closing::These(&ids))?;
        let formats = end.until_batch && !call.paths.is_empty();
        let grace = if formats { BATCH_GRACE_NS } else { GRACE_NS };
        let until = Time(self.now().0 + grace);
        batch.local.push((Local::Ended, id.0.to_vec(), Some(encode_grace(until, &written))));
        self.remember_left(&mut batch, call, end)?;
        self.finish_call(batch, durable)
    }

    /// Records what was written once more after the calls of a batch, and ends those of them that
    /// nobody said had ended.
    pub fn batch_end(
        &mut self,
        session: &str,
        sub_agent: Option<&str>,
        calls: &[String],
    ) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let open = self.openings()?;
        let of_agent = |labels: &Labels| {
            labels.by_hook && is_of(labels, session) && labels.sub_agent.as_deref() == sub_agent
        };
        let unended = open.announced.iter().filter(|announced| {
            let labels = &announced.labels;
            of_agent(labels) && labels.call_id.as_ref().is_some_and(|id| calls.contains(id))
        });
        let ids: Vec<_> = unended.map(|announced| announced.id).collect();
        let mut ended = Vec::new();
        for grace in self.graces()?.0 {
            if of_agent(&self.first_header(&grace.id)?.labels) {
                ended.push(grace);
            }
        }
        self.close_calls(&open, &ids, &ended)
    }

    /// Records what was done until now and ends these calls, and the grace of those that had ended.
    fn close_calls(&mut self, open: &Openings, ids: &[SnapshotId], ended: &[Grace]) -> Result<()> {
        if ids.is_empty() && ended.is_empty() {
            return Ok(());
        }
        let look = match named_only(open, ids) {
            true => {
                let named = open.announced.iter().filter(|one| ids.contains(&one.id));
                let named = named.flat_map(|one| one.paths.iter());
                let written = ended.iter().flat_map(|grace| grace.paths.iter());
                let paths: BTreeSet<_> = named.chain(written).cloned().collect();
                self.look_at(&Vec::from_iter(paths))?
            }
            false => self.look_for_changes()?,
        };
        let durable = !look.found.is_empty();
        let mut batch = Batch::default();
        self.add_outcomes(look, open, &mut batch, &Closing::These(ids))?;
        for grace in ended {
            batch.local.push((Local::Ended, grace.id.0.to_vec(), None));
        }
        self.finish_call(batch, durable)
    }

    fn labels_of(&self, call: &Call) -> Result<Labels> {
        let mut labels = Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(call.action.clone()),
            summary: Some(call.summary.clone()),
            tool: Some(call.tool.clone()),
            call_id: call.call_id.clone(),
            session: Some(call.session.clone()),
            agent: Some(call.agent.clone()),
            sub_agent: call.sub_agent.clone(),
            turn_key: call.turn_key.clone(),
            by_hook: true,
            ..Labels::default()
        };
        labels.transaction = self.transaction_of(&labels)?;
        Ok(labels)
    }

    /// Puts a call into its session's turn, which starts here if nobody told of its prompt.
    fn ensure_turn(&self, batch: &mut Batch, labels: &mut Labels) -> Result<()> {
        let turns = self.open_turns()?;
        let same = |turn: &&Labels| turn.session == labels.session;
        if let Some(turn) = turns.iter().rev().find(same) {
            labels.turn = turn.turn;
            labels.turn_key = turn.turn_key.clone().or_else(|| labels.turn_key.take());
            return Ok(());
        }
        let number = self.next_turn()?;
        let turn = Labels {
            turn: Some(number),
            turn_key: labels.turn_key.clone(),
            session: labels.session.clone(),
            agent: labels.agent.clone(),
            by_hook: true,
            ..Labels::default()
        };
        batch.opens.push((Open::Turn, number.to_be_bytes().to_vec(), batch.records.len()));
        batch.records.push(self.record(Kind::TurnStart, turn));
        labels.turn = Some(number);
        Ok(())
    }

    /// The calls of the same agent that must have ended, since it has begun another.
    fn earlier(&self, open: &Openings, call: &Call) -> Vec<SnapshotId> {
        let same = |announced: &&Announced| {
            announced.labels.by_hook
                && is_of(&announced.labels, &call.session)
                && announced.labels.sub_agent == call.sub_agent
        };
        open.announced.iter().filter(same).map(|announced| announced.id).collect()
    }

    /// The open call that an end belongs to: by its id, or the oldest of the same tool and paths.
    fn find_call(&self, open: &Openings, call: &Call) -> Option<SnapshotId> {
        let same = |announced: &&Announced| {
            let labels = &announced.labels;
            let by_id = call.call_id.is_some() && labels.call_id == call.call_id;
            let by_words = call.call_id.is_none()
                && labels.tool.as_ref() == Some(&call.tool)
                && labels.summary.as_ref() == Some(&call.summary);
            labels.by_hook && is_of(labels, &call.session) && (by_id || by_words)
        };
        open.announced.iter().find(same).map(|announced| announced.id)
    }

    /// Lets a call count from now that nobody announced: only what it names can be told to be its.
    fn announce_late(&self, open: &mut Openings, call: &Call) -> Result<SnapshotId> {
        let mut labels = self.labels_of(call)?;
        let turns = self.open_turns()?;
        let same = |turn: &&Labels| turn.session == labels.session;
        labels.turn = turns.iter().rev().find(same).and_then(|turn| turn.turn);
        let id = labels.snapshot.expect("the labels of a call have an id");
        open.announced.push(Announced {
            id,
            paths: call.paths.clone(),
            labels,
            absent: Vec::new(),
            objects: Vec::new(),
            alive: false,
        });
        Ok(id)
    }

    /// The paths that a look found to be a call's.
    fn written(&self, look: &Look, open: &Openings, id: SnapshotId) -> Vec<WorkspacePath> {
        let named = open.announced.iter().find(|announced| announced.id == id);
        let mut paths = named.map_or_else(Vec::new, |announced| announced.paths.clone());
        if paths.is_empty() {
            paths.extend(look.found.iter().take(GRACE_PATHS).map(|found| found.path.clone()));
        }
        paths
    }

    fn remember_process(&self, batch: &mut Batch, call: &Call) -> Result<()> {
        let known = self.session(&call.session)?;
        let told = known.as_ref().map(|known| (&known.process, known.tools_below));
        if let Some(process) = &call.process
            && told != Some((&call.process, call.tools_below))
        {
            let known = self.session_or_new(&call.session)?;
            let session = known.led_by(process, call.tools_below);
            self.remember(batch, &call.session, &session);
        }
        Ok(())
    }

    /// Remembers what a call left running.
    fn remember_left(&self, batch: &mut Batch, call: &Call, end: &CallEnd) -> Result<()> {
        let known = self.session_or_new(&call.session)?;
        let mut session = known.clone();
        for process in &end.left {
            if !session.background.contains(process) {
                session.background.push(process.clone());
            }
        }
        session.task |= end.task;
        if session != known {
            self.remember(batch, &call.session, &session);
        }
        Ok(())
    }

    /// Whether the agent of an open call still lives; where that is not known, for an hour.
    pub(super) fn call_runs(&self, labels: &Labels, since: Time) -> Result<bool> {
        let session = match &labels.session {
            Some(key) => self.session(key)?,
            None => None,
        };
        Ok(match session.and_then(|session| session.process) {
            Some(process) => process.is_alive(),
            None => self.now().0 - since.0 < UNKNOWN_AGENT_NS,
        })
    }

    /// The calls that ended a moment ago, and those of which too long ago to matter.
    pub(super) fn graces(&self) -> Result<(Vec<Grace>, Vec<SnapshotId>)> {
        let now = self.now();
        let (mut graces, mut past) = (Vec::new(), Vec::new());
        for (key, value) in self.catalog.locals(Local::Ended)? {
            let Some(id) = SnapshotId::from_slice(&key) else { continue };
            match decode_grace(&value) {
                // None lasts longer: the clock was set back.
                Some((until, paths)) if until.0 - now.0 <= BATCH_GRACE_NS => {
                    if until < now {
                        past.push(id);
                    }
                    graces.push(Grace { id, until, paths });
                }
                _ => past.push(id),
            }
        }
        Ok((graces, past))
    }

    fn commit_call(&mut self, batch: Batch, durability: Durability) -> Result<SnapshotMetadata> {
        let mut intent = batch.records.last().expect("a call was just added").clone();
        let appended = self.commit_appended(batch, durability)?;
        failpoint::hit("capture_after_commit");
        intent.seq = appended.last.seq;
        self.intent_view(&intent, (appended.previous, appended.last.link))
    }

    fn finish_call(&mut self, batch: Batch, durable: bool) -> Result<()> {
        failpoint::hit("capture_before_commit");
        let durability = if durable { Durability::PowerCut } else { Durability::ProcessDeath };
        self.commit_batch(batch, durability)?;
        failpoint::hit("capture_after_commit");
        Ok(())
    }
}

impl Call {
    /// The call as the rules for commands see it.
    fn called(&self) -> Called<'_> {
        Called { tool: &self.tool, line: self.command.as_deref().map(CommandLine::read) }
    }
}

/// Whether all of these calls name what they touch.
fn named_only(open: &Openings, ids: &[SnapshotId]) -> bool {
    open.announced.iter().filter(|one| ids.contains(&one.id)).all(|one| !one.paths.is_empty())
}

fn is_of(labels: &Labels, session: &str) -> bool {
    labels.session.as_deref() == Some(session)
}

fn encode_grace(until: Time, paths: &[WorkspacePath]) -> Vec<u8> {
    let mut out = Encoder::default();
    out.signed(until.0);
    out.int(paths.len() as u64);
    paths.iter().for_each(|path| out.bytes(path.as_bytes()));
    out.0
}

fn decode_grace(bytes: &[u8]) -> Option<(Time, Vec<WorkspacePath>)> {
    let mut input = Decoder(bytes);
    let until = Time(input.signed().ok()?);
    let count = input.count().ok()?;
    let paths: Vec<_> = (0..count).map_while(|_| input.path().ok()).collect();
    Some((until, paths))
}
