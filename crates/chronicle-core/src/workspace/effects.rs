//! What was called that nothing here can take back: recorded with its call, and told before a rewind.
//!
//! That it was called is known, not what became of it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::resolve::Resolved;
use super::roles::Rule;
use super::views::timestamp;
use super::{PATIENCE, Workspace};
use crate::catalog::{Batch, Durability, Log};
use crate::codec;
use crate::error::{Error, Result};
use crate::id::{Seq, SnapshotId};
use crate::record::{Kind, Labels, Record};
use crate::shell::{CommandLine, Matched, match_tool};
use crate::view::EffectView;

/// The actions of the records: outside, and in data beside the files.
const OUTSIDE: &str = "effect";
const DATA: &str = "data_effect";

/// A checkpoint that the settings want before something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointWanted {
    /// Why, in words.
    pub reason: String,
    /// How long it may take.
    pub limit: Duration,
    /// It is due for the number of turns, and has been since this one began.
    pub due: Option<u64>,
}

/// A call as the rules see it.
pub(super) struct Called<'c> {
    pub(super) tool: &'c str,
    pub(super) line: Option<CommandLine<'c>>,
}

impl Workspace {
    /// What was called after a moment and cannot be taken back, the oldest first: what a rewind, or a
    /// checkpoint's restore, to that moment goes back over.
    pub fn effects_since(&self, moment: Seq) -> Result<Vec<EffectView>> {
        let mut seqs = self.catalog.of_kind(Kind::Effect)?;
        seqs.retain(|seq| *seq > moment);
        seqs.into_iter().map(|seq| Ok(effect_view(&self.read_header(seq)?))).collect()
    }

    /// Those that a plan goes back over: since what comes or goes began, and those of the same turns.
    pub(super) fn effects_across(
        &self,
        resolved: &Resolved,
        labels: &Labels,
    ) -> Result<Vec<EffectView>> {
        let all = self.effects_since(Seq(0))?;
        if all.is_empty() {
            return Ok(all);
        }
        let (since, turns) = match resolved.rule {
            Rule::Live { .. } => self.span_of(labels)?,
            _ => (resolved.moment.seq, BTreeSet::new()),
        };
        let is_across = |effect: &EffectView| {
            effect.seq > since.0 || effect.turn.is_some_and(|turn| turns.contains(&turn))
        };
        Ok(all.into_iter().filter(is_across).collect())
    }

    /// The moment before the first action whose changes come or go, and the turns of all of them.
    fn span_of(&self, labels: &Labels) -> Result<(Seq, BTreeSet<u64>)> {
        let refs = labels.taken_back.iter().chain(&labels.brought_back);
        let seqs: BTreeSet<Seq> = refs.map(|at| at.seq).collect();
        let (mut first, mut turns) = (self.catalog.head()?.seq, BTreeSet::new());
        for seq in seqs {
            first = first.min(Seq(seq.0.saturating_sub(1)));
            let sealed = self.catalog.record(seq)?.filter(|sealed| !sealed.leaf.is_empty());
            let Some(sealed) = sealed else { continue };
            let header = codec::decode_header(&sealed.leaf);
            let labels = header.map_err(|source| Error::Record { seq, source })?.labels;
            turns.extend(labels.turn);
            let begun = match &labels.snapshot {
                Some(id) => self.catalog.of_snapshot(id)?.first().copied(),
                None => None,
            };
            first = first.min(begun.map_or(first, |begun| Seq(begun.0.saturating_sub(1))));
        }
        Ok((first, turns))
    }

    /// Adds what a call does outside, by the rules that hold, behind its intent.
    pub(super) fn add_effects(
        &self,
        batch: &mut Batch,
        called: &Called<'_>,
        of: &Labels,
        note: Option<&String>,
    ) -> Result<()> {
        let settings = self.effect_settings()?;
        let mut seen: Vec<String> = Vec::new();
        for (action, rules) in [OUTSIDE, DATA].into_iter().zip(settings.rules()) {
            let mut found = called.line.as_ref().map_or_else(Vec::new, |line| line.matches(&rules));
            found.extend(match_tool(called.tool, &rules));
            for one in found.into_iter().filter(|one| !seen.contains(&one.what)).collect::<Vec<_>>()
            {
                seen.push(one.what.clone());
                let labels = effect_labels(of, action, one, note);
                batch.records.push(self.record(Kind::Effect, labels));
            }
        }
        Ok(())
    }

    /// Records what a command does outside that is no call of its own: one that runs isolated.
    pub fn record_effects(&mut self, command: &[String]) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        let mut labels = Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            tool: Some("run".to_owned()),
            ..Labels::default()
        };
        self.join_turn(&mut labels)?;
        let called = Called { tool: "run", line: Some(CommandLine::of_words(command)) };
        let mut batch = Batch::default();
        self.add_effects(&mut batch, &called, &labels, None)?;
        match batch.records.is_empty() {
            true => Ok(()),
            false => self.commit_batch(batch, Durability::PowerCut).map(drop),
        }
    }

    /// The checkpoint that the settings want before a command is run.
    pub fn run_wants_checkpoint(&self, command: &[String]) -> Result<Option<CheckpointWanted>> {
        let called = Called { tool: "run", line: Some(CommandLine::of_words(command)) };
        self.wants_checkpoint(&called)
    }

    /// The same for a call.
    pub(super) fn wants_checkpoint(&self, called: &Called<'_>) -> Result<Option<CheckpointWanted>> {
        let settings = self.checkpoint_settings()?;
        let when = &settings.when;
        let rules = when.rules(!settings.part.is_empty());
        let found = called.line.as_ref().and_then(|line| line.matches(&rules).into_iter().next());
        let limit = when.limit();
        if let Some(found) = found.or_else(|| match_tool(called.tool, &rules)) {
            let reason = format!("before {}", found.what);
            return Ok(Some(CheckpointWanted { reason, limit, due: None }));
        }
        let Some(every) = when.every_turns else { return Ok(None) };
        let last = self.checkpoints()?.last().map(|made| made.seq);
        let turns = self.catalog.of_kind(Kind::TurnStart)?;
        let since = turns.iter().filter(|seq| last.is_none_or(|last| **seq > last)).count();
        if last.is_some() && since < every as usize {
            return Ok(None);
        }
        let (reason, due) = (format!("every {every} turns"), Some(turns.len() as u64));
        Ok(Some(CheckpointWanted { reason, limit, due }))
    }
}

fn effect_labels(of: &Labels, action: &str, found: Matched, note: Option<&String>) -> Labels {
    Labels {
        snapshot: of.snapshot,
        action: Some(action.to_owned()),
        summary: Some(found.what),
        policy: Some(found.rule),
        note: note.cloned(),
        tool: of.tool.clone(),
        call_id: of.call_id.clone(),
        session: of.session.clone(),
        agent: of.agent.clone(),
        sub_agent: of.sub_agent.clone(),
        turn: of.turn,
        turn_key: of.turn_key.clone(),
        transaction: of.transaction,
        by_hook: of.by_hook,
        ..Labels::default()
    }
}

/// An effect as callers see it.
pub(super) fn effect_view(record: &Record) -> EffectView {
    let labels = record.labels.clone();
    let kind = if labels.action.as_deref() == Some(DATA) { "data" } else { "outside" };
    EffectView {
        seq: record.seq.0,
        timestamp: timestamp(record.time),
        kind: kind.to_owned(),
        what: labels.summary.unwrap_or_default(),
        rule: labels.policy.unwrap_or_default(),
        note: labels.note,
        snapshot: labels.snapshot.map(|id| id.to_string()),
        turn: labels.turn,
        session: labels.session,
        agent: labels.agent,
        tool: labels.tool,
    }
}
