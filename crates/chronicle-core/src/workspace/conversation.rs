//! The conversation beside the files: prompts and stops make turns, and an agent is told what was
//! taken back behind its back.

use std::collections::{BTreeSet, HashMap};

use super::attribute::is_within_session;
use super::sessions::Session;
use super::{PATIENCE, TurnRequest, Workspace};
use crate::catalog::{Batch, Durability, Log};
use crate::entry::Author;
use crate::error::Result;
use crate::id::{Seq, Time};
use crate::process::Process;
use crate::record::{ChangeRef, Kind, Labels, Record};

/// After so long without an event and without an open call, a turn has ended.
const IDLE_NS: i64 = 600 * 1_000_000_000;
/// How many paths are named to an agent one by one.
const NAMED: usize = 20;

/// A prompt, as an agent's hook tells of it.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// The session's key.
    pub session: String,
    /// Which agent.
    pub agent: String,
    /// The agent's own name for the turn.
    pub turn_key: Option<String>,
    /// The prompt; its first line is kept.
    pub text: Option<String>,
    /// The agent's process.
    pub process: Option<Process>,
    /// Its tools run below that process, and nothing that a person does.
    pub tools_below: bool,
}

/// What was done to a session's work since it was last told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// For the agent, in words.
    pub text: String,
    /// The last rewind that it speaks of.
    upto: Seq,
}

impl Workspace {
    /// Starts the turn of a prompt; what was done before it is recorded first.
    pub fn prompt(&mut self, prompt: &Prompt) -> Result<u64> {
        let _lock = self.lock(PATIENCE)?;
        let known = self.session(&prompt.session)?;
        let told = known.as_ref().map(|known| (&known.process, known.tools_below));
        let led = prompt.process.is_some() && told != Some((&prompt.process, prompt.tools_below));
        if known.is_none() || led {
            let mut session = self.session_or_new(&prompt.session)?;
            if let Some(process) = &prompt.process {
                session = session.led_by(process, prompt.tools_below);
            }
            let mut batch = Batch::default();
            self.remember(&mut batch, &prompt.session, &session);
            self.commit_batch(batch, Durability::ProcessDeath)?;
        }
        let turn = self.turn_start_locked(&TurnRequest {
            key: prompt.turn_key.clone(),
            session: Some(prompt.session.clone()),
            prompt: prompt.text.clone(),
            agent: Some(prompt.agent.clone()),
            by_hook: true,
        })?;
        Ok(turn.number)
    }

    /// Ends a session's turn, if it has one. `task`: the agent says that something runs on.
    pub fn stop(&mut self, session: &str, task: bool) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let known = self.session(session)?;
        if let Some(known) = known.filter(|known| known.task != task) {
            let mut batch = Batch::default();
            self.remember(&mut batch, session, &Session { task, ..known });
            self.commit_batch(batch, Durability::ProcessDeath)?;
        }
        let open = self.open_turns()?;
        if !open.iter().any(|turn| turn.session.as_deref() == Some(session)) {
            return Ok(());
        }
        let session = Some(session.to_owned());
        let request = TurnRequest { session, by_hook: true, ..TurnRequest::default() };
        self.turn_end_locked(&request).map(drop)
    }

    /// Those of a session's turns, by the agent's names for them, whose changes are still in effect:
    /// their numbers and some of the paths.
    pub fn live_turns(&self, session: &str, keys: &[String]) -> Result<Vec<(u64, Vec<String>)>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut live = Vec::new();
        for turn in self.turns()? {
            let named = turn.key.as_ref().is_some_and(|key| keys.contains(key));
            if turn.session.as_deref() != Some(session) || !named {
                continue;
            }
            let mut paths = BTreeSet::new();
            for at in self.live_changes_of_turn(Some(turn.number))?.into_keys() {
                let record = self.read_record(at.seq)?;
                let change = record.changes.get(at.index as usize);
                let visible = change.filter(|change| change.is_visible());
                paths.extend(visible.map(|change| change.path.to_string()));
            }
            if !paths.is_empty() {
                live.push((turn.number, paths.into_iter().take(NAMED).collect()));
            }
        }
        Ok(live)
    }

    /// Ends the turns of agents that have died or fallen silent; needs the lock.
    pub(super) fn end_silent_turns(&mut self) -> Result<()> {
        let turns = self.open_turns()?;
        let mut batch = Batch::default();
        for turn in turns.iter().filter(|turn| turn.by_hook) {
            if let Some(last) = self.silent_since(turn)? {
                let ended = Labels { target: Some(last), ..turn.clone() };
                self.add_turn_end(&mut batch, &ended);
            }
        }
        if batch.records.is_empty() {
            return Ok(());
        }
        // What such an agent did last is recorded as its own before its turn ends.
        self.settle_locked()?;
        self.commit_with_head(batch, Durability::PowerCut).map(drop)
    }

    /// The last event of a turn whose agent is dead, or has been idle for long; `None` if it goes on.
    fn silent_since(&self, turn: &Labels) -> Result<Option<Seq>> {
        let key = turn.session.as_deref().unwrap_or_default();
        let process = self.session(key)?.and_then(|session| session.process);
        let dead = process.is_some_and(|process| !process.is_alive());
        let open = self.openings()?;
        let of_turn = |labels: &Labels| labels.session == turn.session;
        let calls = open.announced.iter().any(|call| call.alive && of_turn(&call.labels));
        if calls && !dead {
            return Ok(None);
        }
        let last = self.last_event(turn)?;
        let idle = self.now().0 - last.time.0 > IDLE_NS;
        Ok((dead || idle).then_some(last.seq))
    }

    /// The newest record of a turn.
    fn last_event(&self, turn: &Labels) -> Result<Record> {
        let mut seq = self.catalog.head()?.seq;
        loop {
            let record = self.read_header(seq)?;
            if record.labels.turn == turn.turn || seq.0 <= 1 {
                return Ok(record);
            }
            seq = Seq(seq.0 - 1);
        }
    }

    /// What a session's agent does not know yet: which of its work was taken back or brought back.
    pub fn news(&self, session: &str) -> Result<Option<News>> {
        let rewinds = self.catalog.of_kind(Kind::Rewind)?;
        let Some(newest) = rewinds.last() else { return Ok(None) };
        let told = self.session_or_new(session)?.told;
        if *newest <= told {
            return Ok(None);
        }
        let mut texts = Vec::new();
        let mut records = HashMap::new();
        for seq in rewinds.iter().filter(|seq| **seq > told) {
            let rewind = self.read_record(*seq)?;
            if self.concerns(&rewind, session, &mut records)? {
                texts.push(words(&rewind));
            }
        }
        if texts.is_empty() {
            return Ok(None);
        }
        Ok(Some(News { text: texts.join("\n"), upto: *newest }))
    }

    /// Remembers that a session's agent was told.
    pub fn told(&mut self, session: &str, news: &News) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let mut known = self.session_or_new(session)?;
        known.told = known.told.max(news.upto);
        let mut batch = Batch::default();
        self.remember(&mut batch, session, &known);
        self.commit_batch(batch, Durability::ProcessDeath).map(drop)
    }

    /// Whether a rewind took back or brought back anything that a session made.
    pub(super) fn concerns(
        &self,
        rewind: &Record,
        session: &str,
        records: &mut HashMap<Seq, Record>,
    ) -> Result<bool> {
        let refs = rewind.labels.taken_back.iter().chain(&rewind.labels.brought_back);
        for ChangeRef { seq, index } in refs {
            if !records.contains_key(seq) {
                // What is long gone concerns nobody.
                let Some(record) = self.read_kept(*seq)? else { continue };
                records.insert(*seq, record);
            }
            let change = records[seq].changes.get(*index as usize);
            let of_session = |author: &Author| match author {
                Author::Session(key) => is_within_session(key, session),
                Author::Shared(keys) => keys.iter().any(|key| is_within_session(key, session)),
                _ => false,
            };
            if change.is_some_and(|change| of_session(&change.author)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What an agent must know of a rewind.
fn words(rewind: &Record) -> String {
    let labels = &rewind.labels;
    let what = labels.summary.as_deref().unwrap_or("rewind");
    let back = if labels.taken_back.is_empty() { "brought back" } else { "taken back" };
    let when = super::views::timestamp(Time(rewind.time.0));
    let visible = rewind.changes.iter().filter(|change| change.is_visible());
    let paths: BTreeSet<String> = visible.map(|change| change.path.to_string()).collect();
    let mut text = format!("Chronicle: work of this conversation was {back} at {when} ({what}).");
    if !paths.is_empty() {
        let named: Vec<_> = paths.iter().take(NAMED).cloned().collect();
        text.push_str(&format!(" Files that changed by it: {}", named.join(", ")));
        if paths.len() > NAMED {
            text.push_str(&format!(" and {} more", paths.len() - NAMED));
        }
        text.push('.');
    }
    if let Some(kept) = &labels.note {
        text.push_str(&format!(" Kept as they are: {kept}."));
    }
    text.push_str(
        " What you remember of these files is stale: read them again before you use them. \
         Do not do that work again unless you are asked to.",
    );
    text
}
