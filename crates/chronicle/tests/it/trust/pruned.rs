//! What was pruned and what is missing never look alike, to either verifier.

use chronicle_testing::dice::Dice;

use super::attacker::Copy;
use super::{TRIALS, check_found, check_stranger};
use crate::retention::with_days;
use crate::support::Cli;

const PRUNE: &str = "SELECT max(seq) FROM record WHERE kind = 12";

/// Sixty days of work that was pruned, and signed.
struct Aged {
    cli: Cli,
    prune: u64,
    whole: Vec<u64>,
}

impl Aged {
    fn new() -> Self {
        let cli = with_days(60);
        // Signed from here on; a turn's end would prune behind our back.
        cli.call(["head"]).ok();
        cli.call(["prune"]).ok();
        let copy = Copy::of(&cli, &cli.home(), cli.home().with_file_name("count"));
        let catalog = copy.catalog();
        let prune = copy.number(PRUNE);
        let sql = "SELECT seq FROM record WHERE length(body) > 0 AND kind = 2 ORDER BY seq";
        let mut statement = catalog.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
        let whole = rows.map(|row| row.unwrap().cast_unsigned()).collect();
        drop(statement);
        Self { cli, prune, whole }
    }

    /// Does an attack on copies, at several places; both verifiers must find the same.
    #[track_caller]
    fn attack(&self, name: &str, attack: impl Fn(&Copy<'_>, &mut Dice) -> (&'static str, u64)) {
        for seed in 0..TRIALS {
            let to = self.cli.home().with_file_name(format!("{name}-{seed}"));
            let copy = Copy::of(&self.cli, &self.cli.home(), to);
            let found = Some(attack(&copy, &mut Dice::new(seed)));
            check_found(&copy.call(&["verify", "--json"], None), found);
            check_stranger(&copy.stranger(&[]), found);
        }
    }
}

#[test]
fn what_was_pruned_verifies_and_what_is_missing_does_not() {
    let aged = Aged::new();
    let copy = Copy::of(&aged.cli, &aged.cli.home(), aged.cli.home().with_file_name("good"));
    let gone = copy.number("SELECT count(*) FROM record WHERE length(leaf) = 0");
    let merged = copy.number("SELECT count(*) FROM merged");
    assert!(gone > 20 && merged > 2, "{gone} dropped, {merged} merged");
    copy.call(&["verify", "--deep"], None).ok();
    let said = copy.stranger(&[]).ok();
    assert!(said.stdout.contains(&format!("{gone} of them were pruned")), "{said:?}");

    aged.attack("emptied", |copy, dice| {
        let seq = *dice.pick(&aged.whole);
        copy.sql(&format!("UPDATE record SET leaf = x'', body = x'' WHERE seq = {seq}"));
        ("deleted", seq)
    });
    aged.attack("body-gone", |copy, dice| {
        let seq = *dice.pick(&aged.whole);
        copy.sql(&format!("UPDATE record SET body = x'' WHERE seq = {seq}"));
        ("edited", seq)
    });
    aged.attack("table-gone", |copy, _| {
        copy.sql(&format!("UPDATE record SET body = x'' WHERE seq = {}", aged.prune));
        ("edited", aged.prune)
    });
    aged.attack("unbound", |copy, dice| {
        let count = copy.number("SELECT count(*) FROM merged") as usize;
        let nth = dice.below(count);
        let seq = copy.number(&format!("SELECT seq FROM merged ORDER BY seq LIMIT 1 OFFSET {nth}"));
        copy.sql(&format!("DELETE FROM merged WHERE seq = {seq}"));
        ("edited", seq)
    });
    // Whoever says that it was a prune must have signed that.
    aged.attack("unsigned", |copy, _| {
        copy.sql(&format!("DELETE FROM head WHERE size >= {}", aged.prune));
        ("unsigned", aged.prune)
    });
    // Without the prune nothing vouches for what it took.
    aged.attack("prune-gone", |copy, _| {
        let first = copy.number("SELECT min(seq) FROM record WHERE length(leaf) = 0");
        copy.sql(&format!("UPDATE record SET leaf = x'', body = x'' WHERE seq = {}", aged.prune));
        ("deleted", first)
    });
}
