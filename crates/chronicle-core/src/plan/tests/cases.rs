//! One test per rule.

use super::*;

#[test]
fn nothing_changed_is_nothing_to_do() {
    check("a=1", "");
    check("a=1 | agent a=2 | rewind a=1", "");
}

#[test]
fn dropped_changes_go_back_to_the_moment() {
    check("a=1 b=1 | agent a=2 -b c=1", "a=1; b=1; -c");
    check("a=1 | agent a=2 | agent a=3 | agent -a", "a=1");
    check("a=1,m=6,t=1 | agent a=1,m=7,t=2", "a=1,m=6,t=1");
    check("d/,t=1 | agent d/,t=2 d/x=1", "d/,t=1; -d/x");
    check("a=@x | agent a=1", "a=@x");
    check("d/ d/x=1 | agent -d | agent d=2", "d/; d/x=1");
    check("d=1 | agent -d | agent d/ d/x=2", "d=1; -d/x");
}

#[test]
fn kept_changes_stay_and_are_listed() {
    check("a=1 b=1 | agent a=2 | person b=2", "a=1; keep b");
    check("a=1 | agent b=1 | person c=1", "-b; keep c");
    check("a=1 | person -a", "keep a");
    check("a=1 | agent a=2 | person a=2,t=5", "a=1,t=5");
    check("a=1 | person a=2 | person a=1", "");
    check("a=1 | person a=2 | agent a=3", "a=2; keep a");
    check("a=1 | person a=2 | agent -a", "a=2; keep a");
    check("a=1 b=1 | other a=2 | shared b=2", "keep a; keep b shared");
}

#[test]
fn the_reason_names_the_authors() {
    let reason = |case: &str| {
        World::new(case).draft(Selection::All, OnConflict::Stop).keep[0].reason.clone()
    };
    assert_eq!(reason("a=1 | person a=2"), "changed by a person");
    assert_eq!(
        reason("a=1 | other a=2 | person a=3 | other a=4"),
        "changed by session b and a person"
    );
    assert_eq!(reason("a=1 | shared a=2"), "shared: may have been changed by a or a person");
}

#[test]
fn text_far_apart_merges() {
    check("a=abcdefgh | agent a=Xbcdefgh | person a=XbcdefgY", "a=abcdefgY merged; keep a");
    check("a=abcdefgh | person a=abcdefgY | agent a=XbcdefgY", "a=abcdefgY; keep a");
    check(
        "a=abcdefgh | agent a=Xbcdefgh | person a=XbcdefgY | agent a=XbcZefgY | person a=XWcZefgY",
        "conflict a content",
    );
    check(
        "a=abcdefghi | agent a=abcdeXghi | person a=YbcdeXghi | agent a=YbcdeXZhi | person a=YbcdeXZhW",
        "a=YbcdefghW merged; keep a",
    );
}

#[test]
fn consecutive_kept_changes_count_as_one() {
    check("a=abc | agent a=aXc | person a=aYc | agent a=aZc | person a=aZcW", "conflict a content");
    check("a=abcde | agent a=aXcde | person a=aYcde | person a=aXcdZ", "a=abcdZ merged; keep a");
    check("a=1 | agent a=2 | person a=3 | person a=2", "a=1");
    check("a=1 | agent a=2 | person -a | person a=2", "a=1");
}

#[test]
fn merged_text_takes_the_time_of_the_kept_change() {
    check("a=abcde,t=1 | agent a=Xbcde,t=2 | person a=XbcdY,t=3", "a=abcdY,t=3 merged; keep a");
    check("a=1,t=1 | agent a=2,t=2 | person a=2,t=2,m=7", "a=1,m=7,t=1 merged; keep a");
}

#[test]
fn contents_that_merging_made_are_given_along() {
    let world = World::new("a=abcde | agent a=Xbcde | person a=XbcdY");
    let draft = world.draft(Selection::All, OnConflict::Stop);
    assert_eq!(
        draft.merged,
        [(draft.goals[0].then.object().unwrap(), b"a\nb\nc\nd\nY\n".to_vec())]
    );
}

#[test]
fn conflicts_stop_or_stay_or_are_replaced() {
    check_conflict(
        "a=1 b=1 | agent a=2 b=2 | person a=3",
        "b=1; conflict a content",
        "b=1; keep a conflict; conflict a content",
        "a=1; b=1; conflict a content",
    );
    check("a=!1 | agent a=!2 | person a=!3", "conflict a content");
    check("a=1,m=1 | agent a=1,m=2 | person a=1,m=3", "conflict a mode");
    check("a=1 | agent a=@x | person a=@y", "conflict a kind");
    check("a=@x | agent a=@y | person a=@z", "conflict a content");
}

#[test]
fn both_sides_of_a_conflict_are_given() {
    let world = World::new("a=1 | agent a=2 | person a=3");
    let conflict = &world.draft(Selection::All, OnConflict::Stop).conflicts[0];
    let shown =
        [&conflict.base, &conflict.mine, &conflict.then].map(|it| world.show(&path("a"), it));
    assert_eq!(shown, ["a=2", "a=3", "a=1"]);
}

#[test]
fn a_kept_deletion_wins() {
    check("a=1 | agent a=2 | person -a", "keep a");
    check("a=1 | agent a=2 | person a=3 | agent a=4 | person -a", "keep a");
    check("a=1 | person -a | agent a=2", "-a; keep a");
    check("d/ d/x=1 | agent d/x=2 | person -d", "keep d; keep d/x");
}

#[test]
fn work_on_what_goes_is_a_conflict() {
    check_conflict(
        "| agent a=1 | person a=2",
        "conflict a kind",
        "keep a conflict; conflict a kind",
        "-a; conflict a kind",
    );
    check("| agent a=1 | person a=1,t=9", "-a");
    check("| agent d/ | person d/,t=9", "-d");
    check("| agent d/ | person d/,m=7", "conflict d kind");
}

#[test]
fn making_what_is_there_in_the_plan_conflicts_unless_it_is_the_same() {
    check("a=1 | agent -a | person a=2", "conflict a content");
    check("a=1 | agent -a | person a=1,t=4", "");
    check("a=1 | agent -a | person a/", "conflict a kind");
}

#[test]
fn repositories_are_never_merged() {
    check("g=git:1 | agent g=git:2", "g=git:1");
    check("g=git:1 | person g=git:2", "keep g");
    check_conflict(
        "g=git:1 | agent g=git:2 | person g=git:3",
        "conflict g repository",
        "keep g conflict; conflict g repository",
        "g=git:1; conflict g repository",
    );
    check("g=git:1 | person g=git:2 | agent g=git:3", "g=git:2; keep g");
}

#[test]
fn what_was_first_seen_later_was_there_all_along() {
    check("a=? | person a=1", "");
    check("a=? | person a=1 | agent a=2", "a=1");
    check("a=? | person a=1 | agent -a", "a=1");
    check("a=? | gone a=1 | agent a=2", "a=1");
    check("a=? | person a=1 | person a=2", "keep a");
}

#[test]
fn what_is_seen_again_belongs_to_the_change_that_hid_it() {
    check("| agent a=? | person a=1", "-a");
    check("a=1 | agent a=? | person a=2", "a=1");
    check("a=1 | person a=? | person a=2", "keep a");
}

#[test]
fn what_was_unknown_then_is_left_alone() {
    check("a=? | agent a=1", "unknown a");
    check("a=? | agent -a", "unknown a");
    check("a=? | agent -a | agent a=?", "");
    check("a=? | person -a", "keep a");
    check("a=? | agent a=1 | person a=2", "unknown a");
    check("a=?? | person a=1", "keep a");
    check("a=?? | gone a=1", "unknown a");
}

#[test]
fn what_is_unknown_now_is_left_alone() {
    check("| agent a=?", "unknown a");
    check("a=1 | agent a=?", "unknown a");
    check("a=1 | person a=?", "");
    check("d=1 | agent d=?", "unknown d");
}

#[test]
fn neutral_things_only_come_back() {
    check("g=git:1 ~g/o=1 | agent ~g/o=2", "");
    check("g=git:1 ~g/o=1 | agent -g/o ~g/p=1", "g/o=1");
    check("g=git:1 | agent ~g/o=1 | person ~g/o=2", "");
}

#[test]
fn parts_of_a_repository_go_and_come_with_the_whole() {
    check("| agent g=git:1 ~g/o=1 ~g/d/ ~g/d/p=1", "-g; -g/d; -g/d/p; -g/o");
    check("g=git:1 g/o=1 | agent ~-g/o -g", "g=git:1; g/o=1");
    check("g=git:1 g/o=1 | person ~-g/o -g", "keep g");
    check("| agent g=git:1 ~g/o=1 g/u=?", "keep g holds unknown; unknown g/u");
    check("| person g=git:1 | agent ~g/o=1", "keep g");
}

#[test]
fn kept_changes_follow_what_a_dropped_change_moved() {
    check("a=1 | agent b<a | person b=2", "a=2; -b; keep a");
    check("a=abcde | agent b<a | agent b=Xbcde | person b=XbcdY", "a=abcdY merged; -b; keep a");
    check("a=1 | agent b<a | agent c<b | person c=2", "a=2; -c; keep a");
    check("a=1 | agent b<a | person -b", "keep a");
    check("a=1 | agent b<a | agent a<b | person a=2", "keep a");
    check("a=1 | agent b<a | agent -b | person b=2", "a=1; keep b");
    check("d/ d/x=1 | agent e<d | person e/x=2", "d/; d/x=2; -e; -e/x; keep d/x");
    check("d/ d/x=1 | agent e<d | person e/n=2", "d/; d/n=2; d/x=1; -e; -e/n; -e/x; keep d/n");
    check(
        "d/ d/s/ d/s/x=1 | agent e<d | agent f<e/s | person f/x=2",
        "d/; d/s/; d/s/x=2; -e; -f; -f/x; keep d/s/x",
    );
}

#[test]
fn kept_moves_take_the_planned_thing_along() {
    check("a=1 | agent a=2 | person b<a", "b=1; keep b");
    check("a=1 | person b<a", "keep b");
    check("a=1 | person b<a | agent b=2", "b=1; keep b");
    check("a=abcde | agent a=Xbcde | person b<a | person b=XbcdY", "b=abcdY merged; keep b");
    check("a=1 | agent b<a | person c<b", "keep c");
    check("a=1 | agent b<a | agent b=2 | person c<b | person c=2,m=7", "c=1,m=7 merged; keep c");
    check("d/ d/x=1 | agent d/x=2 | person e<d", "e/x=1; keep e; keep e/x");
    check("| agent a=1 | person b<a", "-b");
    check("| agent d/ d/x=1 | person e<d | person e/y=1", "-e/x; keep e holds kept; keep e/y");
}

#[test]
fn a_kept_move_of_a_directory_takes_along_what_only_the_plan_has() {
    check("d/ d/x=1 d/y=1 | agent -d/y | person e<d", "e/y=1; keep e; keep e/x");
    check("d/ d/y=1 | agent z<d/y | person e<d", "e/y=1; -z; keep e");
    check("d/ d/y=1 | agent z<d/y | person e<d | person z=2", "e/y=2; -z; keep e; keep e/y");
}

#[test]
fn two_things_may_swap_places() {
    let swap = |author: &str| {
        let mut world = World::new("a=1 b=2");
        world.begin();
        let entry = |name: &str| world.state[&path(name)].clone();
        let (one, two) = (entry("a"), entry("b"));
        world.change(author, path("a"), two, Some(path("b")), false);
        world.change(author, path("b"), one, Some(path("a")), false);
        world
    };
    let words = |world: &World| world.words(&world.draft(Selection::All, OnConflict::Stop));
    assert_eq!(words(&swap("agent")), "a=1; b=2");
    assert_eq!(words(&swap("person")), "keep a; keep b");
    let mut world = swap("agent");
    world.begin();
    world.step("person", "a=3");
    assert_eq!(words(&world), "a=1; b=3; keep b");
}

#[test]
fn a_move_may_be_seen_in_two_records() {
    let late = |first: &str, second: &str| {
        let mut world = World::new("a=1");
        let entry = world.state[&path("a")].clone();
        world.begin();
        world.step(first, "-a");
        world.begin();
        world.change(second, path("b"), entry, Some(path("a")), false);
        world.begin();
        world.step("person", "b=2");
        world.words(&world.draft(Selection::All, OnConflict::Stop))
    };
    assert_eq!(late("agent", "agent"), "a=2; -b; keep a");
    assert_eq!(late("person", "person"), "keep b");
}

#[test]
fn a_copy_is_not_a_move() {
    let mut world = World::new("a=1");
    let entry = world.state[&path("a")].clone();
    world.begin();
    world.change("agent", path("b"), entry, Some(path("a")), false);
    world.step("agent", "a=2");
    world.begin();
    world.step("person", "a=3");
    assert_eq!(
        world.words(&world.draft(Selection::All, OnConflict::Stop)),
        "-b; conflict a content"
    );
}

#[test]
fn conflicts_of_moved_things_are_decided_where_they_are() {
    check_conflict(
        "a=1 | agent b<a | agent b=2 | person b=3",
        "conflict b content",
        "keep b conflict; conflict b content",
        "a=1; -b; conflict b content",
    );
    check_conflict(
        "a=1 | agent a=2 | person b<a | person b=3",
        "conflict b content",
        "keep b conflict; conflict b content",
        "a=1; -b; conflict b content",
    );
}

#[test]
fn unknown_things_that_were_moved_are_moved_back() {
    check("n=? | agent m<n", "move m>n");
    check("n=? | agent m<n | agent k<m", "move k>n");
    check("n=? | person m<n", "");
    check("n=? | agent m<n | agent -m", "unknown n");
    check("d/ d/n=? d/x=1 | agent e<d", "d/; d/x=1; -e; -e/x; move e/n>d/n");
    check("n=? | agent m<n | agent m/x=1 | person m/y=1", "move m>n");
}

#[test]
fn unknown_things_that_were_moved_back_are_moved_again() {
    check("n=? | person m<n | agent n<m", "move n>m");
    check("n=? | person m<n | agent n<m | person m<n | agent n<m", "move n>m");
    check("d/ d/n=? | person e<d | agent d<e", "-d; e/; move d/n>e/n; keep e");
    // What was captured since, and what cannot be moved, stays where it is.
    check("n=? | person m<n | agent n<m | gone n=1", "unknown m; unknown n");
    check("n=? | person m<n | agent n<m | agent m=1", "unknown m; unknown n");
}

#[test]
fn directories_stay_for_what_they_hold() {
    check("| agent d/ d/x=1 | person d/y=1", "-d/x; keep d holds kept; keep d/y");
    check("| agent d/ d/e/ | person d/e/y=1", "keep d holds kept; keep d/e holds kept; keep d/e/y");
    check("| agent d/ d/u=?", "keep d holds unknown; unknown d/u");
    check("| agent d/,m=7 | person d/y=1 | agent -d", "d/,m=7; d/y=1; keep d/y");
    check("n=? n/x=1 | agent -n/x -n", "n/,m=493; n/x=1; unknown n");
    check("n=? n/s/x=1 | agent -n/s/x -n", "n/,m=493; n/s/,m=493; n/s/x=1; unknown n");
}

#[test]
fn what_must_become_no_directory_conflicts_with_kept_work_in_it() {
    check_conflict(
        "d=1 | agent -d | agent d/ d/x=1 | person d/y=1",
        "-d/x; keep d/y; conflict d kind",
        "-d/x; keep d conflict; keep d/y; conflict d kind",
        "d=1; -d/x; -d/y; conflict d kind",
    );
    check("d=1 | agent -d | agent d/ d/s/ d/s/u=?", "d=1 aside; -d/s aside; unknown d/s/u");
}

#[test]
fn a_kept_file_in_the_place_of_a_directory_conflicts() {
    check_conflict(
        "d/ d/x=1 | agent -d | person d=2",
        "conflict d kind",
        "keep d conflict; conflict d kind",
        "d/; d/x=1; conflict d kind",
    );
}

#[test]
fn only_selected_paths_change() {
    check_paths("a=1 b=1 d/ d/x=1 | agent a=2 b=2 d/x=2", "a d", "a=1; d/x=1");
    check_paths("a=1 ab=1 | agent a=2 ab=2", "a", "a=1");
    check_paths("a=1 b=1 | agent a=2 b=2", ".", "a=1; b=1");
    check_paths("a=1 b=1 | agent a=2 b=2 | person a=3", "b", "b=1");
    check_paths("a=? b=1 | agent a=2 b=2", "b", "b=1");
    check_paths("d/ d/x=1 d/y=1 | agent -d", "d/x", "d/; d/x=1");
    check_paths("d/ d/x=1 | agent -d | agent d=1", "d/x", "d/; d/x=1");
    check_paths("| agent d/ d/x=1 d/y=1", "d/x", "-d/x");
}

#[test]
fn a_moved_thing_is_selected_by_either_path() {
    for name in ["a", "b"] {
        check_paths("a=1 z=1 | agent b<a | agent z=2", name, "a=1; -b");
        check_paths("a=1 | agent a=2 | person b<a", name, "b=1; keep b");
    }
    for name in ["d", "e"] {
        check_paths(
            "d/ d/x=1 z=1 | agent e<d | agent e/n=1 z=2",
            name,
            "d/; d/x=1; -e; -e/n; -e/x",
        );
    }
    check_paths("d/ d/x=1 d/y=1 | agent e<d", "e/x", "d/; d/x=1; -e/x");
}

#[test]
fn chosen_hunks_go_back_alone() {
    let case = "a=abcdefghijklm,m=1,t=1 b=1 | agent a=XbcdefghijklY,m=2,t=2 b=2";
    let hunks = |hunks: &[usize]| Selection::Hunks(vec![(path("a"), hunks.to_vec())]);
    let check = |chosen: &[usize], expected: &str| {
        check_with(case, hunks(chosen), OnConflict::Stop, expected);
    };
    check(&[0], "a=abcdefghijklY,m=2,t=1 merged");
    check(&[1], "a=Xbcdefghijklm,m=2,t=1 merged");
    check(&[0, 1], "a=abcdefghijklm,m=2,t=1 merged");
    check(&[], "");
    let refused = |case: &str, selection| {
        World::new(case).try_draft(selection, OnConflict::Stop).unwrap_err().code()
    };
    assert_eq!(refused(case, hunks(&[2])), "usage");
    assert_eq!(refused("a=!1 | agent a=!2", hunks(&[0])), "usage");
    assert_eq!(refused("b=1 | agent b=2", hunks(&[0])), "usage");
}

#[test]
fn a_missing_content_is_an_error_and_no_conflict() {
    let world = World::new("a=1 | agent a=2 | person a=3");
    world.objects.borrow_mut().clear();
    let error = world.try_draft(Selection::All, OnConflict::Stop).unwrap_err();
    assert_eq!(error.code(), "missing_object");
}
