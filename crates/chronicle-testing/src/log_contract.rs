//! What every log promises, wherever its records lie.

use chronicle_core::{
    Epoch, Error, Head, Kind, Labels, Log, Record, Seq, Time, WorkspaceId, open_next,
};

/// The workspace of the records that the contract writes.
pub const WORKSPACE: WorkspaceId = WorkspaceId([1; 16]);

/// A record that says no more than a name.
pub fn record(name: &str) -> Record {
    Record {
        seq: Seq(0),
        workspace: WORKSPACE,
        epoch: Epoch([2; 16]),
        time: Time(5),
        kind: Kind::Pin,
        labels: Labels { name: Some(name.to_owned()), ..Labels::default() },
        changes: Vec::new(),
    }
}

/// The names that a log says, in order, with every link recomputed.
#[track_caller]
pub fn names(log: &dyn Log) -> Vec<String> {
    let (mut head, mut names) = (Head::EMPTY, Vec::new());
    loop {
        let read = log.read(head.seq, 7).expect("the log reads");
        if read.is_empty() {
            break;
        }
        for sealed in read {
            let opened = open_next(&sealed, head).expect("it follows");
            names.push(opened.labels.name.expect("a name"));
            head = Head { seq: sealed.seq, link: sealed.link };
        }
    }
    assert_eq!(log.head().expect("a head"), head, "the head is the last record");
    names
}

/// Everything that an empty log must keep.
pub fn check(log: &mut dyn Log) {
    begins_empty_and_counts_without_gaps(log);
    takes_nothing_under_another_head(log);
    takes_a_key_once(log);
    reads_any_stretch(log);
}

fn begins_empty_and_counts_without_gaps(log: &mut dyn Log) {
    assert_eq!(log.head().expect("a head"), Head::EMPTY);
    assert_eq!(log.read(Seq(0), 10).expect("nothing"), []);
    let two = log.commit(vec![record("a"), record("b")], Head::EMPTY, None).expect("committed");
    assert_eq!((two.seq, log.head().expect("a head")), (Seq(2), two));
    assert_eq!(names(log), ["a", "b"]);
}

fn takes_nothing_under_another_head(log: &mut dyn Log) {
    let head = log.head().expect("a head");
    let stale = log.commit(vec![record("x")], Head::EMPTY, None);
    assert!(
        matches!(stale, Err(Error::Moved { expected: Seq(0), found }) if found == head.seq),
        "{stale:?}"
    );
    // The same number with another link is another history.
    let forked = Head { link: chronicle_core::LinkHash([9; 32]), ..head };
    let refused = log.commit(vec![record("x")], forked, Some(b"fork"));
    assert!(matches!(refused, Err(Error::Moved { .. })), "{refused:?}");
    assert_eq!(log.head().expect("a head"), head, "and nothing was written");
    assert_eq!(names(log), ["a", "b"]);
}

fn takes_a_key_once(log: &mut dyn Log) {
    let two = log.head().expect("a head");
    let three = log.commit(vec![record("c")], two, Some(b"key")).expect("committed");
    assert_eq!(log.commit(vec![record("c")], two, Some(b"key")).expect("again"), three);
    let four = log.commit(vec![record("d")], three, Some(b"other")).expect("committed");
    // However much later, and whatever is given with it.
    assert_eq!(log.commit(vec![record("z")], four, Some(b"key")).expect("again"), three);
    assert_eq!((four.seq, log.head().expect("a head")), (Seq(4), four));
    assert_eq!(names(log), ["a", "b", "c", "d"]);
}

fn reads_any_stretch(log: &dyn Log) {
    let all = log.read(Seq(0), 100).expect("everything");
    assert_eq!(all.iter().map(|sealed| sealed.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(log.read(Seq(1), 2).expect("a part"), all[1..3]);
    assert_eq!(log.read(Seq(4), 2).expect("the end"), []);
}
