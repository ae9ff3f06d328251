//! What a request means: the moment it goes to, and whose work after it goes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Workspace;
use super::attribute::{DEFAULT_SESSION, PERSON, is_within_session, session_of};
use super::before::ROOT_LOST;
use super::moment::Moment;
use super::rewind::{RewindKind, RewindRequest};
use super::roles::{Returning, Rule};
use crate::entry::Author;
use crate::error::{Error, Result, Stop};
use crate::id::{Seq, SnapshotId, TransactionId};
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Kind, Labels};

/// The changes of a turn; with those that a person could have made, the path and who could have.
pub(super) type TurnChanges = BTreeMap<ChangeRef, Option<(WorkspacePath, Vec<String>)>>;

/// A request with its words resolved.
pub(super) struct Resolved {
    pub(super) action: &'static str,
    pub(super) moment: Moment,
    pub(super) rule: Rule,
    /// Only these paths, besides the ones the request names.
    pub(super) paths: Option<Vec<WorkspacePath>>,
    pub(super) redoes: Option<Seq>,
    pub(super) transaction: Option<TransactionId>,
    /// What stays because a person could have made it too.
    pub(super) shared: Vec<(WorkspacePath, Vec<String>)>,
}

impl Workspace {
    pub(super) fn resolve_request(&self, request: &RewindRequest) -> Result<Resolved> {
        let resolved = self.resolve_kind(request)?;
        self.refuse_pruned(&resolved.moment)?;
        Ok(resolved)
    }

    fn resolve_kind(&self, request: &RewindRequest) -> Result<Resolved> {
        match &request.kind {
            RewindKind::Rewind { target } => self.resolve_rewind(request, target),
            RewindKind::Rollback { id } => self.resolve_rollback(request, id),
            RewindKind::Undo { what } => self.resolve_undo(what.as_deref(), request.take_shared),
            RewindKind::Redo => self.resolve_redo(),
            RewindKind::Plan { id } => Err(Error::UnknownTarget(id.clone())),
        }
    }

    fn resolve_rewind(&self, request: &RewindRequest, target: &str) -> Result<Resolved> {
        let moment = self.moment(target)?;
        let sessions = match (&request.session, request.all_sessions) {
            (Some(session), _) => Some(vec![session.clone()]),
            (None, true) => None,
            (None, false) => moment.session.clone().map(|session| vec![session]),
        };
        let rule = if request.exact {
            Rule::Exact
        } else {
            Rule::Others { sessions, also: HashSet::new(), take_shared: request.take_shared }
        };
        Ok(Resolved {
            action: "rewind",
            moment,
            rule,
            paths: None,
            redoes: None,
            transaction: None,
            shared: Vec::new(),
        })
    }

    fn resolve_rollback(&self, request: &RewindRequest, id: &str) -> Result<Resolved> {
        let snapshot = match self.find_snapshot(id) {
            Err(Error::UnknownTarget(_)) => return self.resolve_transaction(id),
            snapshot => snapshot?,
        };
        let first = self.first_header(&snapshot)?;
        if first.kind == Kind::Rewind {
            return self.resolve_undo(Some(id), request.take_shared);
        }
        let moment = self.moment(&format!("before:{}", snapshot.hex()))?;
        let (mut paths, mut also) = (BTreeSet::new(), HashSet::new());
        for seq in self.catalog.of_snapshot(&snapshot)? {
            let record = self.read_record(seq)?;
            for (index, change) in record.changes.iter().enumerate() {
                paths.insert(change.path.clone());
                also.insert(ChangeRef { seq, index: u32::try_from(index).unwrap_or(u32::MAX) });
            }
        }
        let rule = if request.exact {
            Rule::Exact
        } else {
            let sessions = Some(vec![session_of(&first.labels)]);
            Rule::Others { sessions, also, take_shared: request.take_shared }
        };
        let paths = Some(paths.into_iter().collect());
        Ok(Resolved {
            action: "rollback",
            moment,
            rule,
            paths,
            redoes: None,
            transaction: None,
            shared: Vec::new(),
        })
    }

    fn resolve_transaction(&self, id: &str) -> Result<Resolved> {
        let id = self.find_transaction(id)?;
        let (mut start, mut refs) = (Seq(0), HashSet::new());
        for seq in self.catalog.of_kind(Kind::TransactionStart)? {
            if self.read_header(seq)?.labels.transaction == Some(id) {
                start = seq;
            }
        }
        let dead = self.taken_back(None)?;
        let mut returning = Returning::default();
        self.for_each_change(start, &mut |record, at, change| {
            let is_one = record.labels.transaction == Some(id);
            if returning.sees(&change, is_one) && !dead.contains(&at) {
                refs.insert(at);
            }
            Ok(())
        })?;
        let time = self.read_header(start)?.time;
        let words = format!("just before transaction {}", id.short());
        let moment = Moment { seq: start, words, session: None, time };
        let (moment, rule) = self.without(moment, refs)?;
        let transaction = Some(id);
        Ok(Resolved {
            action: "rollback",
            moment,
            rule,
            paths: None,
            redoes: None,
            transaction,
            shared: Vec::new(),
        })
    }

    fn resolve_undo(&self, what: Option<&str>, take_shared: bool) -> Result<Resolved> {
        let Some(what) = what else { return self.resolve_bare_undo(take_shared) };
        if let Some(number) = what.strip_prefix("turn:") {
            let moment = self.moment(&format!("before:turn:{number}"))?;
            let number = self.read_header(moment.seq)?.labels.turn;
            return self.resolve_without_turn(moment, number, take_shared);
        }
        let snapshot = self.find_snapshot(what)?;
        let first = self.first_header(&snapshot)?;
        if first.kind == Kind::Rewind {
            return self.resolve_bringing_back(first.seq, "undo");
        }
        let moment = self.moment(&format!("before:{}", snapshot.hex()))?;
        let dead = self.taken_back(None)?;
        let (mut refs, mut returning) = (HashSet::new(), Returning::default());
        self.for_each_change(Seq(first.seq.0 - 1), &mut |record, at, change| {
            let is_one = record.labels.snapshot == Some(snapshot);
            if returning.sees(&change, is_one) && !dead.contains(&at) {
                refs.insert(at);
            }
            Ok(())
        })?;
        self.resolve_without(moment, refs)
    }

    /// The newest agent turn with live changes; without turns, the newest action.
    fn resolve_bare_undo(&self, take_shared: bool) -> Result<Resolved> {
        for turn in self.turns()?.iter().rev() {
            let changes = self.live_changes_of_turn(Some(turn.number))?;
            if !changes.is_empty() {
                let moment = self.moment(&format!("before:turn:{}", turn.number))?;
                return self.resolve_without_turn(moment, Some(turn.number), take_shared);
            }
        }
        let dead = self.taken_back(None)?;
        let mut newest: Option<SnapshotId> = None;
        self.for_each_change(self.baseline_end()?, &mut |record, at, change| {
            let agents = matches!(change.author, Author::Session(_) | Author::Shared(_));
            if agents && !dead.contains(&at) && change.is_visible() {
                newest = record.labels.snapshot;
            }
            Ok(())
        })?;
        match newest {
            Some(id) => self.resolve_undo(Some(&id.hex()), take_shared),
            None => Err(Error::Stopped(Stop::Nothing("undo"))),
        }
    }

    /// The changes of a turn that are in effect, also where somebody else brought back what it made; of
    /// each that a person could have made too, the path and who could have. Empty if there is nothing to see of them.
    pub(super) fn live_changes_of_turn(&self, number: Option<u64>) -> Result<TurnChanges> {
        let dead = self.taken_back(None)?;
        let (mut refs, mut visible) = (TurnChanges::new(), false);
        let mut returning = Returning::default();
        let start =
            self.turns()?.iter().find(|turn| Some(turn.number) == number).map(|t| t.start_seq);
        self.for_each_change(Seq(start.unwrap_or(0)), &mut |record, at, change| {
            let of_turn = record.kind == Kind::Outcome && record.labels.turn == number;
            let of_turn = returning.sees(&change, of_turn && change.author != Author::Person);
            if of_turn && !dead.contains(&at) {
                visible |= change.is_visible();
                let doubt = match &change.author {
                    Author::Shared(keys) if keys.iter().any(|key| key == PERSON) => {
                        change.is_visible().then(|| (change.path.clone(), keys.clone()))
                    }
                    _ => None,
                };
                refs.insert(at, doubt);
            }
            Ok(())
        })?;
        Ok(if visible { refs } else { TurnChanges::new() })
    }

    /// Leaves a turn out, but for what somebody else could have made, unless that is to go too.
    fn resolve_without_turn(
        &self,
        moment: Moment,
        number: Option<u64>,
        take_shared: bool,
    ) -> Result<Resolved> {
        let (mut refs, mut shared) = (HashSet::new(), Vec::new());
        for (at, doubt) in self.live_changes_of_turn(number)? {
            match doubt.filter(|_| !take_shared) {
                Some(doubt) => shared.push(doubt),
                None => drop(refs.insert(at)),
            }
        }
        for (at, doubt) in self.shared_during_turn(number)? {
            match take_shared {
                true => drop(refs.insert(at)),
                false => shared.extend(doubt),
            }
        }
        Ok(Resolved { shared, ..self.resolve_without(moment, refs)? })
    }

    /// What was found in effect while a turn ran that its session may have made, or another: it is in no turn. Each with
    /// its path and who could have, where there is something to see of it.
    fn shared_during_turn(&self, number: Option<u64>) -> Result<TurnChanges> {
        let mut found = TurnChanges::new();
        let turns = self.turns()?;
        let Some(turn) = turns.iter().find(|turn| Some(turn.number) == number) else {
            return Ok(found);
        };
        let session = turn.session.as_deref().unwrap_or(DEFAULT_SESSION);
        let end = Seq(turn.end_seq.unwrap_or(u64::MAX));
        let dead = self.taken_back(None)?;
        self.for_each_change(Seq(turn.start_seq), &mut |record, at, change| {
            let Author::Shared(keys) = &change.author else { return Ok(()) };
            let may_be = keys.iter().any(|key| is_within_session(key, session));
            if may_be && record.labels.turn.is_none() && at.seq <= end && !dead.contains(&at) {
                let doubt = change.is_visible().then(|| (change.path.clone(), keys.clone()));
                found.insert(at, doubt);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn resolve_redo(&self) -> Result<Resolved> {
        let seq = self.redoable()?.pop().ok_or(Error::Stopped(Stop::Nothing("redo")))?;
        self.resolve_bringing_back(seq, "redo")
    }

    /// The state in which a rewind had not been: what it took back is in effect again.
    fn resolve_bringing_back(&self, seq: Seq, action: &'static str) -> Result<Resolved> {
        let first = self.read_header(seq)?;
        let snapshot = first.labels.snapshot.ok_or(Error::Stopped(Stop::Nothing("redo")))?;
        let mut dead = self.taken_back(None)?;
        for at in &first.labels.taken_back {
            dead.remove(at);
        }
        dead.extend(first.labels.brought_back);
        let summary = first.labels.summary.unwrap_or_default();
        let words = format!("just before {} ({summary})", snapshot.short());
        let seq_before = self.base_for(Seq(seq.0 - 1), &dead)?;
        let moment = Moment { seq: seq_before, words, session: None, time: first.time };
        let (rule, redoes) = (Rule::Live { dead }, Some(seq));
        Ok(Resolved {
            action,
            moment,
            rule,
            paths: None,
            redoes,
            transaction: None,
            shared: Vec::new(),
        })
    }

    fn resolve_without(&self, moment: Moment, refs: HashSet<ChangeRef>) -> Result<Resolved> {
        if refs.is_empty() {
            return Err(Error::Stopped(Stop::Nothing("undo")));
        }
        let (moment, rule) = self.without(moment, refs)?;
        Ok(Resolved {
            action: "undo",
            moment,
            rule,
            paths: None,
            redoes: None,
            transaction: None,
            shared: Vec::new(),
        })
    }

    /// The rule and the moment that leave everything in effect but these changes.
    fn without(&self, moment: Moment, refs: HashSet<ChangeRef>) -> Result<(Moment, Rule)> {
        let mut dead = self.taken_back(None)?;
        dead.extend(refs);
        let seq = self.base_for(moment.seq, &dead)?;
        Ok((Moment { seq, ..moment }, Rule::Live { dead }))
    }

    /// The last moment up to another one at which just those changes were in effect that shall be.
    ///
    /// A rewind since then may have taken back, or brought back, something older; the state must
    /// then be put together from before that.
    fn base_for(&self, mut moment: Seq, dead: &HashSet<ChangeRef>) -> Result<Seq> {
        loop {
            let then = self.taken_back(Some(moment))?;
            let differing = then.symmetric_difference(dead).map(|at| at.seq);
            match differing.filter(|seq| *seq <= moment).min() {
                Some(seq) => moment = Seq(seq.0 - 1),
                None => return Ok(moment),
            }
        }
    }

    /// The rewinds that were not redone yet, oldest first: the first record of each.
    pub(super) fn redoable(&self) -> Result<Vec<Seq>> {
        let (mut rewinds, mut redoing, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for seq in self.catalog.of_kind(Kind::Rewind)? {
            let labels = self.read_header(seq)?.labels;
            if !seen.insert(labels.snapshot) {
                continue;
            }
            redoing.extend(labels.redoes.map(|of| (seq, of)));
            let redo = labels.action.as_deref() == Some("redo");
            if !redo && !self.fills_new_root(&labels)? {
                rewinds.push(seq);
            }
        }
        let redone = redone(&redoing);
        rewinds.retain(|seq| !redone.contains(seq));
        Ok(rewinds)
    }

    /// Whether a rewind took back that the root was lost: nobody wants to lose it again.
    fn fills_new_root(&self, labels: &Labels) -> Result<bool> {
        let Some(at) = labels.taken_back.first() else { return Ok(false) };
        let sealed = self.catalog.record(at.seq)?;
        // One that was pruned away is old, and was none of these, or counts no more.
        let Some(sealed) = sealed.filter(|sealed| !sealed.leaf.is_empty()) else {
            return Ok(false);
        };
        let header = crate::codec::decode_header(&sealed.leaf);
        let header = header.map_err(|source| Error::Record { seq: at.seq, source })?;
        Ok(header.labels.action.as_deref() == Some(ROOT_LOST))
    }
}

/// Of the rewinds that took another one back, each with that other: which are taken back themselves, newest first, so that
/// one that was brought back counts again.
fn redone(redoing: &[(Seq, Seq)]) -> HashSet<Seq> {
    let mut redone = HashSet::new();
    for (seq, of) in redoing.iter().rev() {
        if !redone.contains(seq) {
            redone.insert(*of);
        }
    }
    redone
}
