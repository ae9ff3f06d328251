//! What was forgotten on purpose and what was edited never look alike, to either verifier.

use super::attacker::Copy;
use super::{check_found, check_stranger};
use crate::support::Cli;

const FORGET: &str = "SELECT max(seq) FROM record WHERE kind = 13";
/// The first record whose body has sixteen zero bytes for a salt at its beginning.
const REDACTED: &str = "SELECT min(seq) FROM record WHERE substr(body, 1, 16) = zeroblob(16)";
/// The first record that has them anywhere.
const FIRST: &str = "SELECT min(seq) FROM record WHERE instr(body, zeroblob(16)) > 0";

/// A signed history in which a file was forgotten.
fn forgotten() -> Cli {
    let cli = Cli::adopted(&[("a.txt", "0\n")]);
    cli.turn("s", "make it", || cli.write("wrong", "what should not be kept\n"));
    cli.turn("s", "change it", || cli.write("wrong", "nor this\n"));
    cli.turn("s", "remove it", || std::fs::remove_file(cli.root().join("wrong")).unwrap());
    cli.call(["forget", "wrong", "--yes"]).ok();
    cli
}

#[track_caller]
fn check(cli: &Cli, name: &str, attack: impl Fn(&Copy<'_>) -> Option<(&'static str, u64)>) {
    let copy = Copy::of(cli, &cli.home(), cli.home().with_file_name(name));
    let found = attack(&copy);
    check_found(&copy.call(&["verify", "--json"], None), found);
    check_stranger(&copy.stranger(&[]), found);
}

#[test]
fn what_was_forgotten_verifies_and_what_was_edited_does_not() {
    let cli = forgotten();
    check(&cli, "good", |_| None);
    // A change that says something else than the forget does.
    check(&cli, "edited", |copy| {
        let seq = copy.number(REDACTED);
        let mut row = copy.row(seq);
        // Behind salt and length comes the path, with its own length.
        row.4[18] ^= 1;
        copy.put(seq, &row);
        Some(("edited", seq))
    });
    // Another record made to look forgotten, which no forget names.
    check(&cli, "pretended", |copy| {
        let first = copy.number(
            "SELECT min(seq) FROM record WHERE length(body) > 0
             AND substr(body, 1, 16) != zeroblob(16) AND kind != 13",
        );
        let mut pretended = copy.row(first);
        pretended.4[..16].fill(0);
        copy.put(first, &pretended);
        Some(("edited", first))
    });
    // What the forget says in the place of others, edited together with them.
    check(&cli, "both", |copy| {
        let forget = copy.number(FORGET);
        for seq in 1..=forget {
            let mut row = copy.row(seq);
            for at in 5..row.4.len() {
                if row.4[at - 5..at] == *b"wrong" {
                    row.4[at - 1] = b'G';
                }
            }
            copy.put(seq, &row);
        }
        Some(("edited", forget))
    });
    check(&cli, "dropped", |copy| {
        let forget = copy.number(FORGET);
        copy.sql(&format!("UPDATE record SET body = x'' WHERE seq = {forget}"));
        Some(("edited", copy.number(FIRST)))
    });
}
