//! Turns, transactions and runs: what groups actions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use super::attribute::{base_session, session_of, takes};
use super::effects::Called;
use super::outcomes::Closing;
use super::views::timestamp;
use super::{PATIENCE, Workspace, key};
use crate::catalog::{Batch, Durability, LocalState, Log, Open};
use crate::codec;
use crate::error::{Error, Result, Stop};
use crate::home::private_directory;
use crate::id::{Seq, SnapshotId, Time, TransactionId};
use crate::lock::Lock;
use crate::record::{Kind, Labels, Record};
use crate::shell::CommandLine;
use crate::view::{SCHEMA, SnapshotMetadata, Transaction, TurnView};

/// The session of commands that `chronicle run` started outside a turn.
pub(super) const RUN_SESSION: &str = "run";

/// Names a turn.
#[derive(Debug, Clone, Default)]
pub struct TurnRequest {
    /// The agent's own name for the turn.
    pub key: Option<String>,
    /// The session's key.
    pub session: Option<String>,
    /// The prompt; its first line is kept.
    pub prompt: Option<String>,
    /// Which agent.
    pub agent: Option<String>,
    /// An agent's hook tells of it: not the turn is the window, but each of its calls.
    pub by_hook: bool,
}

impl TurnRequest {
    /// Which announced actions a look at the turn's beginning or end closes.
    fn closing(&self) -> Closing<'_> {
        match &self.session {
            Some(session) if self.by_hook => Closing::Of(session),
            _ => Closing::Ended,
        }
    }
}

/// A command that is running; give it back when it has ended.
#[must_use = "a run that never ends stays open"]
#[derive(Debug)]
pub struct RunTicket {
    snapshot: SnapshotId,
    summary: String,
    turn: Option<TurnRequest>,
    /// How many turns came before this one.
    earlier: u32,
    /// When a look last found that something had changed in this turn.
    changed: Option<Time>,
    /// Held for as long as the command runs, so that others see that it does.
    _alive: Lock,
}

impl RunTicket {
    /// How many turns the run was until now.
    pub fn turns(&self) -> u32 {
        self.earlier + 1
    }
}

impl Workspace {
    /// Starts a turn, after recording what was done before it.
    pub fn turn_start(&mut self, request: &TurnRequest) -> Result<TurnView> {
        let _lock = self.lock(PATIENCE)?;
        self.turn_start_locked(request)
    }

    pub(super) fn turn_start_locked(&mut self, request: &TurnRequest) -> Result<TurnView> {
        let same = |turn: &Labels| turn.session == request.session && turn.turn_key == request.key;
        let open = self.open_turns()?;
        if request.key.is_some()
            && let Some(turn) = open.iter().find(|turn| same(turn))
        {
            return self.turn_view(turn.turn.unwrap_or(0));
        }
        self.settle_closing(&self.openings()?, &request.closing())?;
        let mut batch = Batch::default();
        // A session has one turn at a time: its next prompt ends the one before.
        for turn in open.iter().filter(|turn| turn.session == request.session) {
            self.add_turn_end(&mut batch, turn);
        }
        let number = self.next_turn()?;
        let labels = Labels {
            turn: Some(number),
            turn_key: request.key.clone(),
            session: request.session.clone(),
            agent: request.agent.clone(),
            prompt: request.prompt.as_deref().map(first_line),
            by_hook: request.by_hook,
            ..Labels::default()
        };
        batch.opens.push((Open::Turn, number.to_be_bytes().to_vec(), batch.records.len()));
        let ends = !batch.closes.is_empty();
        batch.records.push(self.record(Kind::TurnStart, labels));
        if ends {
            self.commit_with_head(batch, Durability::PowerCut)?;
        } else {
            self.commit_batch(batch, Durability::PowerCut)?;
        }
        self.turn_view(number)
    }

    /// Ends a turn, after recording what was done in it.
    pub fn turn_end(&mut self, request: &TurnRequest) -> Result<TurnView> {
        let _lock = self.lock(PATIENCE)?;
        self.turn_end_locked(request)
    }

    pub(super) fn turn_end_locked(&mut self, request: &TurnRequest) -> Result<TurnView> {
        let fits = |turn: &&Labels| {
            let same =
                |given: &Option<String>, has: &Option<String>| given.is_none() || given == has;
            same(&request.session, &turn.session) && same(&request.key, &turn.turn_key)
        };
        let open = self.open_turns()?;
        let Some(turn) = open.iter().rev().find(fits) else {
            return self.already_ended(request);
        };
        self.settle_closing(&self.openings()?, &request.closing())?;
        let mut batch = Batch::default();
        self.add_turn_end(&mut batch, turn);
        self.commit_with_head(batch, Durability::PowerCut)?;
        self.turn_view(turn.turn.unwrap_or(0))
    }

    /// Ending a turn twice is no mistake; ending one that never was is.
    fn already_ended(&self, request: &TurnRequest) -> Result<TurnView> {
        let ended = self.turns()?.into_iter().rev().find(|turn| {
            request.key.is_some() && turn.key == request.key && turn.session == request.session
        });
        ended.ok_or_else(|| {
            let key = request.key.as_deref().unwrap_or("");
            Error::UnknownTarget(format!("open turn {key}").trim_end().to_owned())
        })
    }

    pub(super) fn add_turn_end(&self, batch: &mut Batch, turn: &Labels) {
        let labels = Labels { prompt: None, ..turn.clone() };
        let number = turn.turn.unwrap_or(0);
        batch.records.push(self.record(Kind::TurnEnd, labels));
        batch.closes.push((Open::Turn, number.to_be_bytes().to_vec()));
    }

    /// The labels of the turns that are open, oldest first.
    pub(super) fn open_turns(&self) -> Result<Vec<Labels>> {
        let open = self.catalog.open_things(Open::Turn)?;
        open.iter().map(|(_, seq)| Ok(self.read_header(*seq)?.labels)).collect()
    }

    /// The header of one record, without its changes.
    pub(super) fn read_header(&self, seq: Seq) -> Result<Record> {
        let sealed = self.catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
        if sealed.leaf.is_empty() {
            return Err(self.pruned_record(seq));
        }
        codec::decode_header(&sealed.leaf).map_err(|source| Error::Record { seq, source })
    }

    /// The number of the next turn.
    pub(super) fn next_turn(&self) -> Result<u64> {
        let starts = self.catalog.of_kind(Kind::TurnStart)?;
        let Some(last) = starts.last() else { return Ok(1) };
        Ok(self.read_header(*last)?.labels.turn.unwrap_or(0) + 1)
    }

    pub(super) fn turn_view(&self, number: u64) -> Result<TurnView> {
        let unknown = || Error::UnknownTarget(format!("turn:{number}"));
        let start = self.turn_start_seq(number)?.ok_or_else(unknown)?;
        let mut turn = opened(self.read_header(start)?);
        let key = number.to_be_bytes();
        if self.catalog.open_things(Open::Turn)?.iter().any(|(open, _)| open[..] == key) {
            return Ok(turn);
        }
        for seq in self.catalog.of_kind(Kind::TurnEnd)?.into_iter().filter(|seq| *seq > start) {
            let record = self.read_header(seq)?;
            if record.labels.turn == Some(number) {
                ended(&mut turn, &record);
                break;
            }
        }
        Ok(turn)
    }

    /// The record with which a turn starts. Numbers rise with positions, so few records are read.
    pub(super) fn turn_start_seq(&self, number: u64) -> Result<Option<Seq>> {
        let starts = self.catalog.of_kind(Kind::TurnStart)?;
        let (mut low, mut high) = (0, starts.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.read_header(starts[middle])?.labels.turn.unwrap_or(0).cmp(&number) {
                std::cmp::Ordering::Equal => return Ok(Some(starts[middle])),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// All turns, oldest first.
    pub fn turns(&self) -> Result<Vec<TurnView>> {
        let mut turns: Vec<TurnView> = Vec::new();
        for seq in self.catalog.of_kind(Kind::TurnStart)? {
            turns.push(opened(self.read_header(seq)?));
        }
        // Of two with one number, which nothing makes, the first counts.
        let mut places = HashMap::new();
        for (place, turn) in turns.iter().enumerate() {
            places.entry(turn.number).or_insert(place);
        }
        for seq in self.catalog.of_kind(Kind::TurnEnd)? {
            let record = self.read_header(seq)?;
            let number = record.labels.turn.unwrap_or(0);
            if let Some(turn) = places.get(&number).map(|place| &mut turns[*place]) {
                ended(turn, &record);
            }
        }
        Ok(turns)
    }

    /// Starts a transaction: what is done from now on is one.
    pub fn begin(&mut self) -> Result<Transaction> {
        let _lock = self.lock(PATIENCE)?;
        if let Some(active) = self.active_transaction()? {
            return Err(Error::Stopped(Stop::ActiveTransaction(active.short())));
        }
        self.settle_locked()?;
        let id = TransactionId::new(self.now());
        let mut labels = Labels { transaction: Some(id), ..Labels::default() };
        self.join_turn(&mut labels)?;
        let mut batch = Batch::default();
        batch.opens.push((Open::Transaction, id.0.to_vec(), 0));
        let of = labels.turn.map(|_| base_session(&labels).as_bytes().to_vec());
        batch.state.push((key::TRANSACTION_OF, of));
        batch.records.push(self.record(Kind::TransactionStart, labels));
        self.commit_batch(batch, Durability::PowerCut)?;
        self.transaction(&id)
    }

    /// Ends a transaction and keeps what was done in it.
    pub fn commit(&mut self, id: Option<&str>) -> Result<Transaction> {
        let _lock = self.lock(PATIENCE)?;
        let active = self.active_transaction()?;
        let id = match id {
            Some(text) => self.find_transaction(text)?,
            None => active.ok_or(Error::Stopped(Stop::Nothing("commit")))?,
        };
        if active != Some(id) {
            let ended = self.transaction(&id)?;
            return match ended.status.as_str() {
                "rolled_back" => Err(Error::Stopped(Stop::Nothing("commit"))),
                _ => Ok(ended),
            };
        }
        self.settle_locked()?;
        self.end_transaction(id, false)?;
        self.transaction(&id)
    }

    pub(super) fn end_transaction(&mut self, id: TransactionId, rolled_back: bool) -> Result<()> {
        let labels = Labels { transaction: Some(id), rolled_back, ..Labels::default() };
        let mut batch = Batch::default();
        batch.records.push(self.record(Kind::TransactionEnd, labels));
        batch.closes.push((Open::Transaction, id.0.to_vec()));
        self.commit_batch(batch, Durability::PowerCut).map(drop)
    }

    pub(super) fn active_transaction(&self) -> Result<Option<TransactionId>> {
        let open = self.catalog.open_things(Open::Transaction)?;
        Ok(open.first().and_then(|(id, _)| TransactionId::from_slice(id)))
    }

    /// The active transaction, if what these labels tell of is part of it.
    ///
    /// It is the session's that began it in a turn or named it in an action. Until anybody did, all that is done is part of it.
    pub(super) fn transaction_of(&self, labels: &Labels) -> Result<Option<TransactionId>> {
        let Some(active) = self.active_transaction()? else { return Ok(None) };
        Ok(takes(&self.transaction_sessions()?, labels).then_some(active))
    }

    pub(super) fn transaction_sessions(&self) -> Result<Vec<String>> {
        let lines = self.catalog.state(key::TRANSACTION_OF)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect())
    }

    pub(super) fn active_transaction_labels(&self) -> Result<Option<Labels>> {
        let open = self.catalog.open_things(Open::Transaction)?;
        open.first().map(|(_, seq)| Ok(self.read_header(*seq)?.labels)).transpose()
    }

    /// The transaction that a part of an id names.
    pub(super) fn find_transaction(&self, text: &str) -> Result<TransactionId> {
        let mut fits = Vec::new();
        for seq in self.catalog.of_kind(Kind::TransactionStart)? {
            let id = self.read_header(seq)?.labels.transaction;
            fits.extend(id.filter(|id| super::moment::fits(&id.hex(), text)));
        }
        match fits[..] {
            [id] => Ok(id),
            [] => Err(Error::UnknownTarget(text.to_owned())),
            _ => Err(Error::Ambiguous {
                given: text.to_owned(),
                candidates: fits.iter().map(TransactionId::short).collect(),
            }),
        }
    }

    /// A transaction with its snapshots.
    pub fn transaction(&self, id: &TransactionId) -> Result<Transaction> {
        let mut view = Transaction {
            schema: SCHEMA,
            id: id.to_string(),
            status: "active".to_owned(),
            started_at: String::new(),
            finished_at: None,
            snapshots: Vec::new(),
        };
        let mut after = Seq(0);
        for seq in self.catalog.of_kind(Kind::TransactionStart)? {
            let record = self.read_header(seq)?;
            if record.labels.transaction == Some(*id) {
                view.started_at = timestamp(record.time);
                after = seq;
            }
        }
        let mut snapshots = Vec::new();
        self.for_each_header(after, &mut |record| {
            if record.labels.transaction != Some(*id) {
                return Ok(true);
            }
            if record.kind == Kind::TransactionEnd {
                let rolled_back = record.labels.rolled_back;
                view.status = if rolled_back { "rolled_back" } else { "committed" }.to_owned();
                view.finished_at = Some(timestamp(record.time));
                return Ok(false);
            }
            snapshots.extend(record.labels.snapshot.map(|id| id.to_string()));
            Ok(true)
        })?;
        snapshots.dedup();
        view.snapshots = snapshots;
        Ok(view)
    }

    /// Announces a command of which nobody knows what it will touch.
    ///
    /// Outside a turn, the run is a turn of its own.
    pub fn run_start(&mut self, summary: &str) -> Result<RunTicket> {
        self.run_start_of(summary, &[], None)
    }

    /// The same for a command whose words are known, and what became of a checkpoint before it.
    pub fn run_start_of(
        &mut self,
        summary: &str,
        command: &[String],
        checkpoint: Option<&String>,
    ) -> Result<RunTicket> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        self.run_start_locked(summary, command, checkpoint)
    }

    fn run_start_locked(
        &mut self,
        summary: &str,
        command: &[String],
        checkpoint: Option<&String>,
    ) -> Result<RunTicket> {
        let turn = match &self.open_turns()?[..] {
            [_] => {
                self.settle_locked()?;
                None
            }
            _ => {
                let id = SnapshotId::new(self.now());
                let request = TurnRequest {
                    key: Some(format!("run-{}", id.short())),
                    session: Some(RUN_SESSION.to_owned()),
                    prompt: Some(summary.to_owned()),
                    agent: None,
                    by_hook: false,
                };
                self.turn_start_locked(&request)?;
                Some(request)
            }
        };
        let snapshot = SnapshotId::new(self.now());
        let mut labels = Labels {
            snapshot: Some(snapshot),
            action: Some("shell".to_owned()),
            summary: Some(format!("shell: {summary}")),
            tool: Some("run".to_owned()),
            session: turn.as_ref().and_then(|turn| turn.session.clone()),
            turn_key: turn.as_ref().and_then(|turn| turn.key.clone()),
            ..Labels::default()
        };
        self.join_turn(&mut labels)?;
        labels.session = Some(session_of(&labels));
        labels.transaction = self.transaction_of(&labels)?;
        let alive = Lock::take(&self.call_file(&snapshot)?, PATIENCE)?;
        let mut batch = Batch::default();
        batch.opens.push((Open::Intent, snapshot.0.to_vec(), 0));
        batch.records.push(self.record(Kind::Intent, labels.clone()));
        let called = Called { tool: "run", line: Some(CommandLine::of_words(command)) };
        self.add_effects(&mut batch, &called, &labels, checkpoint)?;
        self.commit_batch(batch, Durability::PowerCut)?;
        let summary = summary.to_owned();
        Ok(RunTicket { snapshot, summary, turn, earlier: 0, changed: None, _alive: alive })
    }

    /// Looks while a command runs. After so long without a change, what it does next is a turn of
    /// its own: of a conversation without hooks, the pauses tell where one exchange ends.
    pub fn run_look(&mut self, ticket: &mut RunTicket, pause: Duration) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let settled = self.settle_closing(&self.openings()?, &Closing::Nobody)?;
        let now = self.now();
        if settled.changes > 0 {
            ticket.changed = Some(now);
            return Ok(());
        }
        let pause = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
        let paused = ticket.changed.is_some_and(|changed| now.0 - changed.0 >= pause);
        if !paused || ticket.turn.is_none() {
            return Ok(());
        }
        let (summary, earlier) = (ticket.summary.clone(), ticket.turns());
        self.run_end_locked(ticket)?;
        *ticket = RunTicket { earlier, ..self.run_start_locked(&summary, &[], None)? };
        Ok(())
    }

    /// Records everything that a command did, as one snapshot.
    pub fn run_end(&mut self, ticket: RunTicket) -> Result<SnapshotMetadata> {
        let _lock = self.lock(PATIENCE)?;
        self.run_end_locked(&ticket)?;
        self.metadata(&ticket.snapshot)
    }

    fn run_end_locked(&mut self, ticket: &RunTicket) -> Result<()> {
        // Its lock is still held, but without its file nobody believes that it runs.
        let _ = std::fs::remove_file(self.call_file(&ticket.snapshot)?);
        self.settle_locked()?;
        if let Some(turn) = &ticket.turn {
            self.turn_end_locked(turn)?;
        }
        Ok(())
    }

    /// The file whose lock says that a call still runs.
    fn call_file(&self, id: &SnapshotId) -> Result<PathBuf> {
        let calls = self.directory().join("calls");
        private_directory(&calls)?;
        Ok(calls.join(id.hex()))
    }

    /// Whether the process that announced a call still runs it.
    pub(super) fn call_is_alive(&self, id: &SnapshotId) -> Result<bool> {
        let file = self.directory().join("calls").join(id.hex());
        Ok(file.exists() && Lock::try_take(&file)?.is_none())
    }

    /// Calls back with the header of every record after a position until told to stop.
    pub(super) fn for_each_header(
        &self,
        mut after: Seq,
        visit: &mut dyn FnMut(Record) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let records = self.catalog.read(after, 256)?;
            let Some(last) = records.last() else { return Ok(()) };
            after = last.seq;
            for sealed in records.iter().filter(|sealed| !sealed.leaf.is_empty()) {
                let seq = sealed.seq;
                let header = codec::decode_header(&sealed.leaf)
                    .map_err(|source| Error::Record { seq, source })?;
                if !visit(header)? {
                    return Ok(());
                }
            }
        }
    }
}

/// A turn by the record with which it starts.
fn opened(record: Record) -> TurnView {
    TurnView {
        number: record.labels.turn.unwrap_or(0),
        key: record.labels.turn_key,
        session: record.labels.session,
        prompt: record.labels.prompt,
        started_at: timestamp(record.time),
        ended_at: None,
        start_seq: record.seq.0,
        end_seq: None,
    }
}

/// Adds the record with which it ends.
fn ended(turn: &mut TurnView, record: &Record) {
    turn.ended_at = Some(timestamp(record.time));
    // An inferred end is the last event that was seen of the turn.
    turn.end_seq = Some(record.labels.target.unwrap_or(record.seq).0);
}

fn first_line(prompt: &str) -> String {
    prompt.lines().next().unwrap_or("").chars().take(500).collect()
}
