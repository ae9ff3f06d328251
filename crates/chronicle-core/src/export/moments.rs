//! Which moments of a history become commits; pure.

use std::collections::{BTreeMap, HashSet};

use super::words::Commit;
use crate::id::{Seq, SnapshotId, Time};
use crate::record::{Kind, Labels, Record};

/// Who did what no agent did.
const PERSON: &str = "person";

/// A moment that becomes a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) commit: Commit,
    /// It is a commit only if the tree differs.
    pub(crate) only_if_changed: bool,
}

/// Reads the headers of a log in order, and says which moments become commits.
///
/// A turn is one, at its end. What a look found outside of turns is one of its own, and never grows:
/// a commit that is there must stay the same when more is recorded.
#[derive(Default)]
pub(crate) struct Moments {
    open: BTreeMap<u64, Turn>,
    /// What may have changed something while a turn was open, since the last commit.
    pending: Vec<Record>,
    points: Vec<Point>,
    /// The last moment that became one.
    last: Seq,
}

/// A turn that has not ended yet.
struct Turn {
    labels: Labels,
    began: Time,
    actions: Vec<(String, String)>,
    seen: HashSet<SnapshotId>,
}

impl Moments {
    /// Begins with what stood there at the beginning.
    pub(crate) fn new(seq: Seq, time: Time, adopted: bool) -> Self {
        let subject = match adopted {
            true => "The workspace when it was adopted",
            false => "The workspace where its history begins",
        };
        let labels = Labels { summary: Some(subject.to_owned()), ..Labels::default() };
        let commit = Commit { actions: Vec::new(), ..outside(seq, time, &labels) };
        let commit = Commit { subject: subject.to_owned(), ..commit };
        let points = vec![Point { commit, only_if_changed: false }];
        Self { points, last: seq, ..Self::default() }
    }

    /// Reads one header.
    pub(crate) fn read(&mut self, record: Record) {
        match record.kind {
            Kind::TurnStart => self.start(record),
            Kind::TurnEnd => self.end(&record),
            Kind::Intent => self.note(&record.labels),
            Kind::Effect => self.note_effect(record.labels),
            Kind::Outcome | Kind::Rewind => {
                self.note(&record.labels);
                self.pending.push(record);
                self.close_pending();
            }
            _ => {}
        }
    }

    /// The moments, oldest first, and the turns that are still open.
    pub(crate) fn finish(self) -> (Vec<Point>, Vec<u64>) {
        (self.points, self.open.into_keys().collect())
    }

    fn start(&mut self, record: Record) {
        let number = record.labels.turn.unwrap_or(0);
        let (labels, began) = (record.labels, record.time);
        self.open.insert(number, Turn { labels, began, actions: Vec::new(), seen: HashSet::new() });
    }

    /// Remembers an action for the message of its turn.
    fn note(&mut self, labels: &Labels) {
        let turn = labels.turn.and_then(|number| self.open.get_mut(&number));
        if let (Some(turn), Some(action)) = (turn, action(labels))
            && labels.snapshot.is_none_or(|id| turn.seen.insert(id))
        {
            turn.actions.push(action);
        }
    }

    /// What was done outside is told besides the action that did it.
    fn note_effect(&mut self, labels: Labels) {
        let turn = labels.turn.and_then(|number| self.open.get_mut(&number));
        if let (Some(turn), Some(what)) = (turn, labels.summary) {
            turn.actions.push(("effect".to_owned(), what));
        }
    }

    fn end(&mut self, record: &Record) {
        let number = record.labels.turn.unwrap_or(0);
        let Some(turn) = self.open.remove(&number) else { return };
        // An inferred end is the last event of the turn; nothing goes back behind a commit.
        let seq = record.labels.target.unwrap_or(record.seq).max(self.last);
        let Labels { session, agent, prompt, .. } = turn.labels;
        let author = agent.clone().or_else(|| session.clone());
        let commit = Commit {
            subject: prompt.unwrap_or_default(),
            actions: turn.actions,
            author: author.unwrap_or_else(|| "agent".to_owned()),
            began: turn.began,
            ended: record.time,
            seq,
            turn: Some(number),
            session,
            agent,
        };
        self.add(Point { commit, only_if_changed: false });
        self.close_pending();
    }

    fn close_pending(&mut self) {
        if !self.open.is_empty() {
            return;
        }
        for record in std::mem::take(&mut self.pending) {
            if record.seq > self.last {
                let commit = outside(record.seq, record.time, &record.labels);
                self.add(Point { commit, only_if_changed: true });
            }
        }
    }

    fn add(&mut self, point: Point) {
        self.last = point.commit.seq;
        self.pending.retain(|record| record.seq > point.commit.seq);
        self.points.push(point);
    }
}

fn action(labels: &Labels) -> Option<(String, String)> {
    let tool = labels.tool.clone().or_else(|| labels.action.clone())?;
    Some((tool, labels.summary.clone().unwrap_or_default()))
}

/// What was done in no turn.
fn outside(seq: Seq, time: Time, labels: &Labels) -> Commit {
    let author = labels.agent.clone().or_else(|| labels.session.clone());
    Commit {
        subject: String::new(),
        actions: action(labels).into_iter().collect(),
        author: author.unwrap_or_else(|| PERSON.to_owned()),
        began: time,
        ended: time,
        seq,
        turn: labels.turn,
        session: labels.session.clone(),
        agent: labels.agent.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Epoch, WorkspaceId};

    /// `"+1 o -1"` is a turn with an outcome in it; `-1@3` ended with the third record.
    fn records(text: &str) -> Vec<Record> {
        let record = |(index, word): (usize, &str)| {
            let (word, target) = match word.split_once('@') {
                Some((word, at)) => (word, Some(Seq(at.parse().unwrap()))),
                None => (word, None),
            };
            let kind = match &word[..1] {
                "+" => Kind::TurnStart,
                "-" => Kind::TurnEnd,
                "o" => Kind::Outcome,
                _ => Kind::Pin,
            };
            let labels = Labels { turn: word[1..].parse().ok(), target, ..Labels::default() };
            Record {
                seq: Seq(index as u64 + 1),
                workspace: WorkspaceId([0; 16]),
                epoch: Epoch([0; 16]),
                time: Time(0),
                kind,
                labels,
                changes: Vec::new(),
            }
        };
        text.split_whitespace().enumerate().map(record).collect()
    }

    fn told(text: &str) -> String {
        let mut moments = Moments::new(Seq(0), Time(0), true);
        records(text).into_iter().for_each(|record| moments.read(record));
        let tell = |point: &Point| match point.commit.turn {
            Some(turn) if !point.only_if_changed => format!("turn{turn}@{}", point.commit.seq),
            _ => format!("@{}", point.commit.seq),
        };
        moments.finish().0.iter().map(tell).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_turn_is_one_commit_and_each_look_outside_of_turns_is_one() {
        assert_eq!(told("o +1 o1 o -1 o o"), "@0 @1 turn1@5 @6 @7");
    }

    #[test]
    fn turns_at_once_are_one_commit_each_in_the_order_of_their_ends() {
        assert_eq!(told("+1 +2 o1 o2 -1 o2 -2"), "@0 turn1@5 turn2@7");
    }

    #[test]
    fn an_inferred_end_gives_back_what_came_after_it() {
        assert_eq!(told("+1 o1 o o -1@2 o"), "@0 turn1@2 @3 @4 @6");
        assert_eq!(told("+1 +2 o1 o2 -2 -1@3 o"), "@0 turn2@5 turn1@5 @7");
    }

    #[test]
    fn an_open_turn_waits() {
        assert_eq!(told("o +1 o1 o"), "@0 @1");
    }

    #[test]
    fn more_history_only_adds() {
        let words = "o +1 o1 +2 o -1@3 o2 p o -2 o +3 o3 -3@12 +4 +5 -5 o -4@16 o";
        let all: Vec<_> = words.split_whitespace().collect();
        let whole = told(words);
        for end in 0..all.len() {
            let part = told(&all[..end].join(" "));
            assert!(whole.starts_with(&part), "{part} is not how {whole} begins");
        }
    }
}
