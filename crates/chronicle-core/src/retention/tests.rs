use super::*;

/// A history that is written down in few words.
#[derive(Default)]
struct History(Vec<Past>);

impl History {
    fn add(&mut self, kind: Kind, hours: i64, session: &str) -> Seq {
        let seq = Seq(self.0.len() as u64 + 1);
        let maker = match kind {
            Kind::Outcome => Maker::One(Author::Session(session.to_owned())),
            _ => Maker::Nobody,
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&seq.0.to_be_bytes());
        self.0.push(Past {
            seq,
            kind,
            time: Time(hours * HOUR),
            snapshot: (kind == Kind::Outcome).then_some(SnapshotId(id)),
            session: Some(session.to_owned()),
            transaction: None,
            maker,
        });
        seq
    }

    fn turn(&mut self, hours: i64, session: &str, actions: usize) {
        self.add(Kind::TurnStart, hours, session);
        for _ in 0..actions {
            self.add(Kind::Outcome, hours, session);
        }
        self.add(Kind::TurnEnd, hours, session);
    }

    fn decide(&self, policy: &Policy, now_hours: i64) -> Decision {
        decide(&self.0, &Protected::default(), policy, Time(now_hours * HOUR), Seq(0))
    }
}

fn few_turns(turns: u32) -> Policy {
    Policy { turns, ..Policy::default() }
}

/// One turn of three actions every six hours, for so many days.
fn days(days: i64) -> History {
    let mut history = History::default();
    history.add(Kind::Genesis, 0, "");
    for six_hours in 0..days * 4 {
        history.turn(six_hours * 6, &format!("s{six_hours}"), 3);
    }
    history
}

#[test]
fn a_month_stays_and_what_is_older_goes() {
    let history = days(40);
    let decision = history.decide(&few_turns(10), 40 * 24);
    let until = decision.until.unwrap();
    let first_kept = history.0.iter().find(|record| record.seq > until).unwrap();
    let age = 40 * 24 * HOUR - first_kept.time.0;
    assert!((29 * DAY..=31 * DAY).contains(&age), "{} hours", age / HOUR);
    assert_eq!(history.decide(&Policy { max_age_days: None, ..few_turns(10) }, 960).until, None);
}

#[test]
fn the_newest_turns_stay_whole() {
    let history = days(40);
    let starts: Vec<_> = history.0.iter().filter(|r| r.kind == Kind::TurnStart).collect();
    for turns in [8, 50, 120] {
        let whole = starts[starts.len() - turns].seq;
        let decision = history.decide(&few_turns(u32::try_from(turns).unwrap()), 40 * 24);
        assert!(decision.until.is_none_or(|until| until < whole));
        assert!(decision.runs.iter().all(|(_, last)| *last < whole), "{turns}");
    }
}

#[test]
fn old_turns_become_one_change_a_day() {
    let history = days(20);
    let decision = history.decide(&Policy { hours: 48, ..few_turns(4) }, 20 * 24);
    assert_eq!(decision.until, None);
    assert!(decision.runs.len() > 20);
    for (first, last) in &decision.runs {
        let of = |seq: &Seq| &history.0[usize::try_from(seq.0).unwrap() - 1];
        assert_eq!(of(first).session, of(last).session);
        assert_eq!(of(last).kind, Kind::Outcome);
        assert_eq!(of(first).time.0 / DAY, of(last).time.0 / DAY);
    }
}

#[test]
fn a_clock_that_jumps_collects_nothing_recent() {
    let mut history = days(3);
    for hours in [0, 10 * 365 * 24, -10 * 365 * 24] {
        let decision = history.decide(&few_turns(1), 72 + hours);
        assert_eq!(decision.until, None, "{hours}");
    }
    // The same when records were written while the clock was wrong, and after it was put right.
    history.turn(10 * 365 * 24, "late", 1);
    history.turn(73, "s-right", 1);
    let decision = history.decide(&few_turns(1), 73);
    assert_eq!(decision.until, None);
    let age = |seq: Seq| 73 * HOUR - history.0[usize::try_from(seq.0).unwrap() - 1].time.0;
    assert!(decision.runs.iter().all(|(_, last)| age(*last) >= 12 * HOUR));
}

#[test]
fn junk_does_not_push_good_history_out() {
    let mut history = days(2);
    let before = history.0.len() as u64;
    for _ in 0..10_000 {
        history.add(Kind::Outcome, 48, "junk");
    }
    let policy = Policy { max_snapshots: Some(50), turns: 0, ..Policy::default() };
    let decision = history.decide(&policy, 48);
    let kept_from = decision.until.map_or(0, |until| until.0);
    let young = history.0.iter().find(|record| record.time.0 > 24 * HOUR).unwrap().seq.0;
    assert!(kept_from < young && young < before, "{kept_from} {young}");
}

#[test]
fn what_is_pinned_open_or_named_by_a_rewind_stays() {
    let mut history = days(40);
    let pin = Seq(7);
    let protected = Protected { pins: vec![pin], whole: vec![Seq(300)] };
    let decided =
        |history: &History| decide(&history.0, &protected, &few_turns(2), Time(40 * DAY), Seq(0));
    let decision = decided(&history);
    assert_eq!(decision.until, Some(pin));
    assert!(decision.runs.iter().all(|(first, last)| *first > pin && *last < Seq(300)));
    let (first, last) = decision.runs[0];
    let at = usize::try_from(first.0).unwrap();
    assert_eq!(history.0[at].kind, Kind::Outcome);
    history.0[at].maker = Maker::Fixed;
    assert!(!decided(&history).runs.contains(&(first, last)));
}

#[test]
fn authors_sessions_and_transactions_do_not_mix() {
    let mut history = History::default();
    history.add(Kind::Genesis, 0, "");
    for n in 0..6 {
        history.add(Kind::Outcome, 1, if n % 2 == 0 { "a" } else { "b" });
    }
    let later = history.0.len();
    for _ in 0..4 {
        history.add(Kind::Outcome, 1, "c");
    }
    history.0[later + 2].maker = Maker::One(Author::Person);
    history.0[later + 3].transaction = Some(TransactionId([1; 16]));
    for day in 2..12 {
        history.turn(day * 24, "later", 1);
    }
    let decision = history.decide(&few_turns(2), 12 * 24);
    let expected = (Seq(later as u64 + 1), Seq(later as u64 + 2));
    assert_eq!(decision.runs.iter().filter(|run| run.0 < Seq(12)).collect::<Vec<_>>(), [&expected]);
}

#[test]
fn thinning_again_changes_nothing() {
    let mut history = days(25);
    let policy = few_turns(4);
    let decision = history.decide(&policy, 25 * 24);
    assert!(!decision.runs.is_empty());
    history.0.retain(|record| {
        let inside = decision.runs.iter().any(|(first, last)| {
            *first <= record.seq && record.seq < *last && record.kind == Kind::Outcome
        });
        !inside
    });
    assert_eq!(history.decide(&policy, 25 * 24), Decision::default());
}

#[test]
fn junk_of_one_session_does_not_push_out_what_others_did() {
    let mut history = days(10);
    let good = history.0.last().unwrap().seq;
    for _ in 0..5000 {
        history.turn(10 * 24, "junk", 2);
    }
    let policy = Policy { max_snapshots: Some(400), turns: 1, ..Policy::default() };
    let now = 10 * 24 + 30;
    // A day and more later, so that nothing stays for being young.
    let decision = decide(&history.0, &Protected::default(), &policy, Time(now * HOUR), Seq(0));
    assert_eq!(decision.until.filter(|until| *until > Seq(1)), None, "of {good}");
    // Without the others' work the limit holds for a session too, once there was time to see it.
    let week = Policy { max_snapshots: Some(40), turns: 1, ..Policy::default() };
    let old = days(20);
    assert!(old.decide(&week, 20 * 24).until.unwrap() > Seq(100));
}
