//! The model against cases that can be checked by hand.

use super::*;

/// Puts a value into the present author's slot of a file.
fn put(model: &mut Model, file: usize, value: u32) {
    let me = number_of(model.author());
    model.files[file].as_mut().unwrap().slots[me] = value;
}

fn turn(model: &mut Model, number: u64, session: &'static str, value: u32) {
    model.turn_start(number, session);
    put(model, 0, value);
    model.turn_end(session);
}

#[track_caller]
fn done(outcome: Outcome) -> Planned {
    match outcome {
        Outcome::Done(planned) => planned,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(outcome: Outcome, expected: [u32; SLOTS]) {
    assert_eq!(done(outcome).states[0].as_ref().unwrap().slots, expected);
}

fn three_authors() -> Model {
    let mut model = Model::new(true);
    turn(&mut model, 1, "A", 1);
    put(&mut model, 0, 10);
    turn(&mut model, 2, "B", 2);
    turn(&mut model, 3, "A", 3);
    model
}

#[test]
fn a_rewind_takes_back_its_sessions_and_keeps_the_others() {
    let model = three_authors();
    let start = model.start().unwrap();
    check(model.rewind(&start, Some((&["A"], false)), None), [10, 0, 2, 0]);
    check(model.rewind(&start, Some((&["A", "B"], false)), None), [10, 0, 0, 0]);
    check(model.rewind(&start, None, None), [0, 0, 0, 0]);
    let first = model.turns()[0].end.clone().unwrap();
    check(model.rewind(&first, Some((&["A"], false)), None), [10, 1, 2, 0]);
}

#[test]
fn undo_of_a_middle_turn_keeps_what_came_later() {
    let model = three_authors();
    check(model.undo(&model.turns()[1]), [10, 3, 0, 0]);
    let stacked = model.undo(&model.turns()[0]);
    assert!(matches!(stacked, Outcome::Conflict { .. }), "3 stands on 1");
}

#[test]
fn in_a_conflict_the_kept_work_stays_or_goes() {
    let model = three_authors();
    let Outcome::Conflict { keep_mine, replace } = model.undo(&model.turns()[0]) else {
        panic!("3 stands on 1");
    };
    let (kept, replaced) = (keep_mine.unwrap(), replace.unwrap());
    assert_eq!((&kept.states, kept.live), (&model.known, vec![true; 4]));
    assert_eq!(replaced.states[0].as_ref().unwrap().slots, [0; SLOTS]);
    assert_eq!(replaced.live, [false; 4]);
}

#[test]
fn redo_brings_back_and_merges_what_was_done_since() {
    let mut model = three_authors();
    let planned = done(model.rewind(&model.start().unwrap(), None, None));
    model.rewound(planned, false);
    assert!(model.undo_newest().is_none());
    turn(&mut model, 4, "B", 4);
    let over = model.redo().unwrap();
    assert!(matches!(over, Outcome::Conflict { .. }), "B wrote over what B had");
    let mut model = three_authors();
    let planned = done(model.undo(&model.turns()[1].clone()));
    model.rewound(planned, false);
    put(&mut model, 0, 11);
    model.look();
    check(model.redo().unwrap(), [11, 3, 2, 0]);
}

/// Turns 1 of A and 2 of B overlap; 5 was put while both were open.
fn two_at_once() -> Model {
    let mut model = Model::new(true);
    model.turn_start(1, "A");
    put(&mut model, 0, 1);
    model.turn_start(2, "B");
    put(&mut model, 0, 5);
    model.turn_end("A");
    put(&mut model, 0, 2);
    model.turn_end("B");
    model
}

#[test]
fn what_two_may_have_done_stays_until_both_go_or_it_is_asked_for() {
    let mut model = two_at_once();
    let start = model.start().unwrap();
    check(model.rewind(&start, Some((&["A"], false)), None), [0, 0, 2, 5]);
    check(model.rewind(&start, Some((&["A"], true)), None), [0, 0, 2, 0]);
    let of_a = done(model.rewind(&start, Some((&["A"], false)), None));
    assert_eq!(of_a.shared, BTreeSet::from(["shared/0.txt".to_owned()]));
    let of_both = done(model.rewind(&start, Some((&["A", "B"], false)), None));
    assert_eq!(of_both.shared, BTreeSet::new());
    assert_eq!(of_both.states[0].as_ref().unwrap().slots, [0; SLOTS]);
    for expected in [[0, 1, 0, 5], [0, 0, 0, 5]] {
        let planned = done(model.undo_newest().unwrap());
        assert_eq!(planned.states[0].as_ref().unwrap().slots, expected);
        model.rewound(planned, false);
    }
}

#[test]
fn undo_comes_to_shared_work_when_no_turn_has_any_left() {
    let mut model = Model::new(true);
    model.turn_start(1, "A");
    model.turn_start(2, "B");
    put(&mut model, 0, 5);
    model.look();
    put(&mut model, 0, 6);
    model.turn_end("A");
    model.turn_end("B");
    let planned = done(model.undo_newest().unwrap());
    assert_eq!(planned.states[0].as_ref().unwrap().slots, [0, 0, 0, 5]);
    model.rewound(planned, false);
    check(model.undo_newest().unwrap(), [0, 0, 0, 0]);
}

#[test]
fn an_announced_write_is_its_sessions_though_two_are_at_work() {
    let mut model = Model::new(true);
    model.turn_start(1, "A");
    model.turn_start(2, "B");
    model.edit_announced(0, "B");
    model.turn_end("A");
    assert!(model.has_live_changes(&model.turns()[1]));
    assert!(!model.has_live_changes(&model.turns()[0]));
}

#[test]
fn what_is_not_text_is_not_merged() {
    let mut model = Model::new(true);
    for (number, session, value) in [(1, "A", 1), (2, "B", 2)] {
        model.turn_start(number, session);
        put(&mut model, BINARY, value);
        model.turn_end(session);
    }
    let outcome = model.rewind(&model.start().unwrap(), Some((&["A"], false)), None);
    assert!(matches!(outcome, Outcome::Conflict { .. }));
}

#[test]
fn random_histories_stay_consistent() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut model = Model::new(true);
        for number in 1..6 {
            for _ in 0..dice.below(3) {
                model.edit(&mut dice);
            }
            let session = if dice.chance(50) { "A" } else { "B" };
            model.turn_start(number, session);
            for _ in 0..3 {
                model.edit(&mut dice);
            }
            model.turn_end(session);
        }
        let end = model.now();
        let planned = done(model.rewind(&model.start().unwrap(), None, None));
        model.rewound(planned, false);
        let again = done(model.redo().unwrap());
        assert_eq!(again.states, end.states, "seed {seed}");
    }
}
