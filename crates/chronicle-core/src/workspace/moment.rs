//! Targets: the words by which people name a moment, and the position they mean.

use jiff::{SignedDuration, Timestamp};

use super::Workspace;
use super::attribute::{DEFAULT_SESSION, session_of};
use crate::catalog::Log;
use crate::error::{Error, Result};
use crate::id::{Seq, SnapshotId, Time};
use crate::record::Kind;

/// The shortest part of an id that names it.
const PART_MIN: usize = 6;

/// A moment: the state just after this record, and whose work lies after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// The state just after this record.
    pub(super) seq: Seq,
    /// In words, for people.
    pub(super) words: String,
    /// The session whose turn or action it names, if it names one.
    pub(super) session: Option<String>,
    /// When.
    pub(super) time: Time,
}

/// Whether a part of an id, as people type it, fits an id in hexadecimal.
pub(super) fn fits(hex: &str, part: &str) -> bool {
    let part: String = part.chars().filter(|c| *c != '-').collect::<String>().to_lowercase();
    part.len() >= PART_MIN && part.chars().all(|c| c.is_ascii_hexdigit()) && hex.contains(&part)
}

/// Which side of a thing is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Usual,
    Before,
    After,
}

impl Workspace {
    /// The moment that a target names, in words.
    pub fn resolve(&self, target: &str) -> Result<String> {
        Ok(self.moment(target)?.words)
    }

    /// The moment that a target names, if it can still be reached.
    pub(super) fn moment(&self, target: &str) -> Result<Moment> {
        let moment = self.named_moment(target)?;
        self.refuse_pruned(&moment)?;
        Ok(moment)
    }

    fn named_moment(&self, target: &str) -> Result<Moment> {
        let (side, name) = match target.split_once(':') {
            Some(("before", rest)) => (Side::Before, rest),
            Some(("after", rest)) => (Side::After, rest),
            _ => (Side::Usual, target),
        };
        let unknown = || Error::UnknownTarget(target.to_owned());
        if let Some(number) = name.strip_prefix("turn:") {
            return self.turn_moment(number, side)?.ok_or_else(unknown);
        }
        if let Some(number) = name.strip_prefix("seq:") {
            let seq = number.parse().map(Seq).map_err(|_| unknown())?;
            return self.seq_moment(seq, side)?.ok_or_else(unknown);
        }
        if name == "start" {
            return self.start_moment();
        }
        if let Some(moment) = self.pin_moment(name)? {
            return Ok(moment);
        }
        if let Some(moment) = self.checkpoint_moment(name)? {
            return Ok(moment);
        }
        if let Some(moment) = self.time_moment(name)? {
            return Ok(moment);
        }
        let id = self.find_snapshot(name).map_err(|error| match error {
            Error::UnknownTarget(_) => unknown(),
            error => error,
        })?;
        self.snapshot_moment(&id, side)
    }

    fn at(&self, seq: Seq, words: String, session: Option<String>) -> Result<Moment> {
        // Of a record that was dropped only the place is left.
        let time = match self.catalog.last_whole(seq)? {
            Some(whole) => self.read_header(whole)?.time,
            None => Time(0),
        };
        Ok(Moment { seq, words, session, time })
    }

    fn turn_moment(&self, number: &str, side: Side) -> Result<Option<Moment>> {
        let Ok(number) = number.parse::<i64>() else { return Ok(None) };
        let turn = if number < 0 {
            let turns = self.turns()?;
            let mut ended: Vec<_> =
                turns.into_iter().filter(|turn| turn.end_seq.is_some()).collect();
            ended.sort_by_key(|turn| turn.end_seq);
            let back = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
            ended.len().checked_sub(back).map(|index| ended.swap_remove(index))
        } else {
            match self.turn_view(number.unsigned_abs()) {
                Err(Error::UnknownTarget(_)) => None,
                found => Some(found?),
            }
        };
        let Some(turn) = turn else {
            let first = self.turns()?.first().map_or(0, |turn| turn.number);
            let gone = number > 0 && number.unsigned_abs() < first;
            return if gone { Err(self.gone(format!("turn {number}"))?) } else { Ok(None) };
        };
        let prompt =
            turn.prompt.as_deref().map(|prompt| format!(" ({prompt})")).unwrap_or_default();
        let (seq, word) = match (side, turn.end_seq) {
            (Side::Before, _) => (turn.start_seq, "before"),
            (_, Some(end)) => (end, "after"),
            (_, None) => return Ok(None),
        };
        let words = format!("just {word} turn {}{prompt}", turn.number);
        let session = turn.session.clone().unwrap_or_else(|| DEFAULT_SESSION.to_owned());
        self.at(Seq(seq), words, Some(session)).map(Some)
    }

    fn seq_moment(&self, seq: Seq, side: Side) -> Result<Option<Moment>> {
        if seq > self.catalog.head()?.seq || seq.0 == 0 {
            return Ok(None);
        }
        let (at, word) =
            if side == Side::Before { (Seq(seq.0 - 1), "before") } else { (seq, "after") };
        self.at(at, format!("just {word} record {seq}"), None).map(Some)
    }

    fn start_moment(&self) -> Result<Moment> {
        let first = self.catalog.of_kind(Kind::TurnStart)?.first().copied();
        match first {
            Some(seq) if self.read_header(seq)?.labels.turn != Some(1) => {
                Err(self.gone("the start of the first turn".to_owned())?)
            }
            Some(seq) => self.at(seq, "the start of the first turn".to_owned(), None),
            None => self.at(self.baseline_end()?, "the beginning of the history".to_owned(), None),
        }
    }

    /// Says that something lies before the history begins.
    fn gone(&self, what: String) -> Result<Error> {
        Ok(Error::Pruned { what, nearest: vec![format!("seq:{}", self.beginning()?)] })
    }

    pub(super) fn pin_moment(&self, name: &str) -> Result<Option<Moment>> {
        for seq in self.catalog.of_kind(Kind::Pin)?.into_iter().rev() {
            let labels = self.read_header(seq)?.labels;
            if let (Some(pinned), Some(target)) = (labels.name, labels.target)
                && pinned == name
            {
                return self.at(target, format!("the pinned moment {name}"), None).map(Some);
            }
        }
        Ok(None)
    }

    fn checkpoint_moment(&self, name: &str) -> Result<Option<Moment>> {
        let all = self.checkpoints()?;
        let Some(found) = all.iter().rev().find(|it| it.name.as_deref() == Some(name)) else {
            return Ok(None);
        };
        let words = format!("the moment of checkpoint {name} ({})", found.id.short());
        self.at(found.moment, words, None).map(Some)
    }

    fn time_moment(&self, text: &str) -> Result<Option<Moment>> {
        let Some(time) = parse_time(text, self.now()) else { return Ok(None) };
        let mut low = 0;
        let mut high = self.catalog.head()?.seq.0;
        while low < high {
            let middle = (low + high).div_ceil(2);
            let Some(whole) = self.catalog.last_whole(Seq(middle))? else { break };
            if self.read_header(whole)?.time <= time {
                low = middle;
            } else {
                high = whole.0 - 1;
            }
        }
        if low == 0 {
            return Err(Error::UnknownTarget(format!(
                "{text}, which is before the history begins"
            )));
        }
        let words = format!("{} (record {low})", super::views::timestamp(time));
        Ok(Some(Moment { seq: Seq(low), words, session: None, time }))
    }

    /// The snapshot that a part of an id names.
    pub(super) fn find_snapshot(&self, text: &str) -> Result<SnapshotId> {
        let mut all = self.catalog.snapshots()?;
        all.retain(|id| fits(&id.hex(), text));
        match all[..] {
            [id] => Ok(id),
            [] => Err(Error::UnknownTarget(text.to_owned())),
            _ => Err(Error::Ambiguous {
                given: text.to_owned(),
                candidates: all.iter().take(8).map(SnapshotId::short).collect(),
            }),
        }
    }

    fn snapshot_moment(&self, id: &SnapshotId, side: Side) -> Result<Moment> {
        let seqs = self.catalog.of_snapshot(id)?;
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else {
            return Err(Error::UnknownTarget(id.to_string()));
        };
        let header = self.read_header(*first)?;
        let labels = header.labels;
        if let (Kind::Checkpoint, Some(target)) = (header.kind, labels.target) {
            return self.at(target, format!("the moment of checkpoint {}", id.short()), None);
        }
        let by_agent = !matches!(labels.action.as_deref(), Some("external" | "init"));
        let session = by_agent.then(|| session_of(&labels));
        let summary = labels.summary.unwrap_or_default();
        let (seq, word) = match side {
            Side::After => (*last, "after"),
            Side::Usual | Side::Before => (Seq(first.0 - 1), "before"),
        };
        self.at(seq, format!("just {word} {} ({summary})", id.short()), session)
    }
}

/// A time by the clock (RFC 3339) or a span back from now (`90s`, `10m`, `2h`, `3d`, `1w`).
pub(super) fn parse_time(text: &str, now: Time) -> Option<Time> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return i64::try_from(timestamp.as_nanosecond()).ok().map(Time);
    }
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let count: i64 = text[..text.len() - 1].parse().ok().filter(|count| *count >= 0)?;
    let span = SignedDuration::from_secs(count.checked_mul(seconds)?);
    now.0.checked_sub(i64::try_from(span.as_nanos()).ok()?).map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spans_back_or_by_the_clock() {
        let now = Time(1_000_000_000_000_000_000);
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse_time(text, now), expected.map(Time), "{text}");
        };
        check("2h", Some(now.0 - 7_200_000_000_000));
        check("90s", Some(now.0 - 90_000_000_000));
        check("1970-01-01T00:00:01Z", Some(1_000_000_000));
        check("h", None);
        check("-2h", None);
        check("9999999999999999w", None);
        check("abcdef", None);
    }

    #[test]
    fn six_digits_name_an_id_and_five_do_not() {
        let hex = "0190aabbccddeeff00112233445566aa";
        assert!(fits(hex, "445566aa"));
        assert!(fits(hex, "00112233-4455"));
        assert!(!fits(hex, "566aa"));
        assert!(!fits(hex, "445567aa"));
    }
}
