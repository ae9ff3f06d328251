//! Decides which history may go: a pure function of the history, the rules and a time that the
//! clock cannot rush.
//!
//! Three things come out: a moment before which everything goes, neighbouring records that become
//! one, and nothing else. Every moment that is kept can still be reached exactly, because what is
//! merged lies between two kept moments and is the work of one author in one session.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::entry::Author;
use crate::id::{Seq, SnapshotId, Time, TransactionId};
use crate::record::Kind;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// What a pause between two records counts at most.
///
/// Less than the youngest age that is ever collected, so that a clock that jumps by years between
/// two records makes nothing old that is recent.
const LONGEST_PAUSE: i64 = 12 * HOUR;

/// How long history is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What is older goes; `None`: nothing goes for its age.
    pub max_age_days: Option<u32>,
    /// More snapshots than this do not stay; `None`: nothing goes for its number.
    pub max_snapshots: Option<u64>,
    /// The newest so many turns stay whole.
    pub turns: u32,
    /// Behind what stays whole, one moment an hour stays for so many hours.
    pub hours: u32,
    /// One moment a day stays for so many days.
    pub days: u32,
    /// One moment a week stays for so many weeks.
    pub weeks: u32,
    /// Nothing younger goes, whatever the other rules say.
    pub min_age_hours: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_age_days: Some(30),
            max_snapshots: None,
            turns: 50,
            hours: 48,
            days: 30,
            weeks: 52,
            min_age_hours: 24,
        }
    }
}

/// The smallest minimum age: a session with an event within a day is recent.
const MIN_AGE_HOURS: u32 = 24;

impl Policy {
    /// The rules in words, for the record of what they did.
    pub fn words(&self) -> String {
        let limit = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
        format!(
            "max_age_days={} max_snapshots={} turns={} hours={} days={} weeks={} min_age_hours={}",
            limit(self.max_age_days.map(u64::from)),
            limit(self.max_snapshots),
            self.turns,
            self.hours,
            self.days,
            self.weeks,
            self.min_age_hours
        )
    }

    /// Whether these rules let anything go that the others keep.
    pub fn is_shorter_than(&self, other: &Self) -> bool {
        let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        most(self.max_age_days.map(u64::from)) < most(other.max_age_days.map(u64::from))
            || most(self.max_snapshots) < most(other.max_snapshots)
            || self.turns < other.turns
            || self.hours < other.hours
            || self.days < other.days
            || self.weeks < other.weeks
            || self.min_age_hours < other.min_age_hours
    }

    fn is_too_old(&self, age: i64) -> bool {
        self.max_age_days.is_some_and(|days| age >= i64::from(days) * DAY)
    }

    fn min_age(&self) -> i64 {
        i64::from(self.min_age_hours.max(MIN_AGE_HOURS)) * HOUR
    }
}

/// A record as retention sees it.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) seq: Seq,
    pub(crate) kind: Kind,
    pub(crate) time: Time,
    pub(crate) snapshot: Option<SnapshotId>,
    pub(crate) session: Option<String>,
    pub(crate) transaction: Option<TransactionId>,
    pub(crate) maker: Maker,
}

/// Whose changes a record holds, as far as it may become one with its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Maker {
    /// It holds none.
    Nobody,
    /// All are this author's.
    One(Author),
    /// It must stay as it is: several authors, a move, something unknown, or a rewind names it.
    Fixed,
}

/// What must stay besides what the rules keep.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protected {
    /// Moments with a name.
    pub(crate) pins: Vec<Seq>,
    /// From these records on everything stays: what is open, and what a redo needs.
    pub(crate) whole: Vec<Seq>,
}

/// What goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Decision {
    /// Everything up to this record goes.
    pub(crate) until: Option<Seq>,
    /// Neighbours that become one, from the first to the last.
    pub(crate) runs: Vec<(Seq, Seq)>,
}

/// Decides what goes.
///
/// The history is in order and has only what is still there; `earlier` is the last record that went
/// before.
pub(crate) fn decide(
    past: &[Past],
    protected: &Protected,
    policy: &Policy,
    now: Time,
    earlier: Seq,
) -> Decision {
    let ages = ages(past, now);
    let whole_from = whole_from(past, &ages, protected, policy);
    let old = past.partition_point(|record| record.seq < whole_from);
    let limit = snapshot_limit(past, &ages, policy);
    let mut points = points(&past[..old], &ages, policy, limit);
    // The history begins just before the first record that need not go.
    let first = past[..old].iter().zip(&ages).position(|(record, age)| {
        record.seq >= limit && !policy.is_too_old(*age) && span_for(*age, policy).is_some()
    });
    points.extend(first.map(|at| at.checked_sub(1).map_or(earlier, |before| past[before].seq)));
    points.extend(protected.pins.iter().filter(|seq| **seq < whole_from));
    let last = past[..old].last().map(|record| record.seq);
    points.extend(last);
    let Some(first) = points.first().copied() else { return Decision::default() };
    let mut runs = Vec::new();
    let mut begin = first;
    for end in points.into_iter().skip(1) {
        let of = |seq: Seq| past.partition_point(|record| record.seq <= seq);
        runs.extend(runs_of(&past[of(begin)..of(end)]));
        begin = end;
    }
    let until = (first > earlier && past.iter().any(|record| goes(record, first))).then_some(first);
    Decision { until, runs }
}

/// Whether a record goes when everything up to a moment does.
pub(crate) fn goes(record: &Past, until: Seq) -> bool {
    record.seq <= until && !is_lasting(record.kind)
}

/// What says for ever how the history came to be what it is.
pub(crate) fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Genesis
            | Kind::Prune
            | Kind::Forget
            | Kind::Effect
            | Kind::Checkpoint
            | Kind::Resolve
            | Kind::Operator
    )
}

/// How old each record is, by a time that passes only while something happens.
///
/// Records that are gone may have had pauses of their own, so that a gap in the numbers may be
/// that much longer.
fn ages(past: &[Past], now: Time) -> Vec<i64> {
    let mut ages = vec![0; past.len()];
    let Some(last) = past.last() else { return ages };
    let mut age = (now.0.saturating_sub(last.time.0)).clamp(0, LONGEST_PAUSE);
    for at in (0..past.len()).rev() {
        if let Some(next) = past.get(at + 1) {
            let steps = i64::try_from(next.seq.0 - past[at].seq.0).unwrap_or(i64::MAX);
            let pause = next.time.0.saturating_sub(past[at].time.0);
            age = age.saturating_add(pause.clamp(0, LONGEST_PAUSE.saturating_mul(steps)));
        }
        ages[at] = age;
    }
    ages
}

/// The first record of what stays whole.
fn whole_from(past: &[Past], ages: &[i64], protected: &Protected, policy: &Policy) -> Seq {
    let end = past.last().map_or(Seq(0), |last| last.seq.next());
    let mut from = protected.whole.iter().copied().min().unwrap_or(end).min(end);
    let turns = past.iter().filter(|record| record.kind == Kind::TurnStart);
    let starts: Vec<Seq> = turns.map(|record| record.seq).collect();
    if policy.turns > 0 {
        let newest = starts.len().saturating_sub(policy.turns as usize);
        from = from.min(starts.get(newest).copied().unwrap_or(end));
    }
    let young = past.iter().zip(ages).find(|(_, age)| **age < policy.min_age());
    from = from.min(young.map_or(end, |(record, _)| record.seq));
    let recent: HashSet<&str> = past
        .iter()
        .zip(ages)
        .filter(|(_, age)| **age < DAY)
        .filter_map(|(record, _)| record.session.as_deref())
        .collect();
    let of_recent = |record: &&Past| record.session.as_deref().is_some_and(|s| recent.contains(s));
    let first =
        past.iter().zip(ages).find(|(record, age)| of_recent(record) && !policy.is_too_old(**age));
    from.min(first.map_or(end, |(record, _)| record.seq))
}

/// The first record that may stay when only so many snapshots may.
///
/// Within a week one session counts for at most half of them: junk does not push out what others
/// did before somebody had time to notice.
fn snapshot_limit(past: &[Past], ages: &[i64], policy: &Policy) -> Seq {
    let Some(most) = policy.max_snapshots else { return Seq(0) };
    let (mut seen, mut counted) = (HashSet::new(), 0);
    let mut of_session: HashMap<&str, u64> = HashMap::new();
    for (record, age) in past.iter().zip(ages).rev() {
        let Some(id) = record.snapshot else { continue };
        if !seen.insert(id) {
            continue;
        }
        let own = of_session.entry(record.session.as_deref().unwrap_or_default()).or_default();
        *own += 1;
        if *age < WEEK && *own > most.div_ceil(2) && record.session.is_some() {
            continue;
        }
        counted += 1;
        if counted > most {
            return record.seq.next();
        }
    }
    Seq(0)
}

/// The moments that stay among old records: the last of each hour, day or week, by its age; the end
/// of a turn rather than another record.
fn points(old: &[Past], ages: &[i64], policy: &Policy, limit: Seq) -> BTreeSet<Seq> {
    let mut chosen: HashMap<(i64, i64), (bool, Seq)> = HashMap::new();
    for (record, age) in old.iter().zip(ages) {
        let stays = record.kind != Kind::Intent && record.seq >= limit && !policy.is_too_old(*age);
        let Some(span) = span_for(*age, policy).filter(|_| stays) else { continue };
        let candidate = (record.kind == Kind::TurnEnd, record.seq);
        let bucket = chosen.entry((span, record.time.0.div_euclid(span))).or_insert(candidate);
        *bucket = (*bucket).max(candidate);
    }
    chosen.into_values().map(|(_, seq)| seq).collect()
}

/// How far apart moments of an age stay.
fn span_for(age: i64, policy: &Policy) -> Option<i64> {
    let within = |count: u32, span: i64| age < i64::from(count).saturating_mul(span);
    if within(policy.hours, HOUR) {
        Some(HOUR)
    } else if within(policy.days, DAY) {
        Some(DAY)
    } else if within(policy.weeks, WEEK) {
        Some(WEEK)
    } else {
        None
    }
}

/// The neighbours between two kept moments that can become one.
fn runs_of(between: &[Past]) -> Vec<(Seq, Seq)> {
    let outcomes = between.iter().filter(|record| record.kind == Kind::Outcome);
    let ended: HashSet<_> = outcomes.filter_map(|record| record.snapshot).collect();
    let mut runs = Vec::new();
    let mut run: Option<Run> = None;
    for record in between {
        let joined = match record.kind {
            Kind::TurnStart | Kind::TurnEnd | Kind::Pin => continue,
            Kind::Outcome => record.maker != Maker::Fixed,
            // Without its outcome, an announced action must stay announced.
            Kind::Intent => record.snapshot.is_some_and(|id| ended.contains(&id)),
            _ => false,
        };
        run = match run.take() {
            Some(mut run) if joined && run.admits(record) => {
                run.add(record);
                Some(run)
            }
            before => {
                runs.extend(before.and_then(Run::finish));
                joined.then(|| Run::of(record))
            }
        };
    }
    runs.extend(run.and_then(Run::finish));
    runs
}

/// Neighbours of one author, session and transaction.
struct Run<'a> {
    first: &'a Past,
    author: Option<&'a Author>,
    /// The last outcome with changes, how many outcomes there are, and how many up to that one.
    last: Option<(Seq, usize)>,
    outcomes: usize,
}

impl<'a> Run<'a> {
    fn of(record: &'a Past) -> Self {
        let mut run = Self { first: record, author: None, last: None, outcomes: 0 };
        run.add(record);
        run
    }

    fn admits(&self, record: &Past) -> bool {
        let same_author = match (&record.maker, self.author) {
            (Maker::One(author), Some(own)) if record.kind == Kind::Outcome => author == own,
            _ => true,
        };
        same_author
            && record.session == self.first.session
            && record.transaction == self.first.transaction
    }

    fn add(&mut self, record: &'a Past) {
        if record.kind != Kind::Outcome {
            return;
        }
        self.outcomes += 1;
        if let Maker::One(author) = &record.maker {
            self.author = Some(author);
            self.last = Some((record.seq, self.outcomes));
        }
    }

    fn finish(self) -> Option<(Seq, Seq)> {
        let (last, outcomes) = self.last?;
        (outcomes > 1).then_some((self.first.seq, last))
    }
}

#[cfg(test)]
mod tests;
