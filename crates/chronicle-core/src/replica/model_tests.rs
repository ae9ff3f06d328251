//! The decisions against a model: a map of paths that refuses what a file system would refuse.

use std::collections::{BTreeMap, BTreeSet};

use chronicle_testing::dice::Dice;

use super::*;
use crate::codec::{Decoder, Encoder};

const CASES: u64 = 4000;

/// A tree in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Model(BTreeMap<WorkspacePath, Version>);

impl Model {
    fn get(&self, path: &WorkspacePath) -> Version {
        match path.is_root() {
            true => Version::Directory { mode: 0o755 },
            false => self.0.get(path).cloned().unwrap_or(Version::Absent),
        }
    }

    fn below(&self, path: &WorkspacePath) -> Vec<WorkspacePath> {
        self.0.keys().filter(|other| other.is_within(path) && *other != path).cloned().collect()
    }

    /// Writes as a file system would.
    fn put(&mut self, path: &WorkspacePath, version: &Version) {
        let parent = path.parent().unwrap();
        assert!(
            !version.is_present() || self.get(&parent).is_directory(),
            "{path}: {parent} is no directory"
        );
        if !version.is_directory() {
            assert_eq!(self.below(path), [], "{path} is not empty");
        }
        match version {
            Version::Absent => self.0.remove(path),
            _ => self.0.insert(path.clone(), version.clone()),
        };
    }

    fn step(&mut self, step: &Step) {
        assert!(self.get(&step.path).same_value(&step.expect), "{} is not expected", step.path);
        self.put(&step.path, &step.put);
    }

    #[track_caller]
    fn assert_tree(&self) {
        for path in self.0.keys() {
            assert!(self.get(&path.parent().unwrap()).is_directory(), "{path} hangs in the air");
        }
    }
}

impl Standing for Model {
    fn at(&self, path: &WorkspacePath) -> Stand {
        Stand { version: Some(self.get(path)), seq: Seq(1) }
    }

    fn children(&self, directory: &WorkspacePath) -> Vec<WorkspacePath> {
        let is_child = |path: &&WorkspacePath| path.parent().as_ref() == Some(directory);
        self.0.keys().filter(is_child).cloned().collect()
    }
}

impl Tree for Model {
    fn nodes(&self, directory: &WorkspacePath) -> Vec<Node> {
        let node = |path: WorkspacePath| {
            let version = self.get(&path);
            let below = version.is_directory().then(|| digest(&self.nodes(&path)));
            Node { name: path.name().to_vec(), version, below }
        };
        self.children(directory).into_iter().map(node).collect()
    }
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

fn version(dice: &mut Dice) -> Version {
    match dice.below(8) {
        0..=2 => file(dice.below(4)),
        3..=5 => Version::Directory { mode: 0o755 },
        6 => Version::Symlink { target: b"x".to_vec() },
        _ => Version::Directory { mode: 0o700 },
    }
}

fn file(content: usize) -> Version {
    let object = ObjectId::of(&[content as u8]);
    Version::File { object, size: 1, mode: 0o644, mtime_ns: content as i64 }
}

fn any_path(dice: &mut Dice) -> WorkspacePath {
    let names: Vec<_> = (0..dice.between(1, 3)).map(|_| *dice.pick(&["a", "b", "c"])).collect();
    path(&names.join("/"))
}

/// Random work on a tree, as a log would tell it.
fn work(dice: &mut Dice, tree: &mut Model, steps: usize) -> Vec<Vec<LocalChange>> {
    let mut records = Vec::new();
    for _ in 0..steps {
        let before = tree.clone();
        let mut from = BTreeMap::new();
        let (one, other) = (any_path(dice), any_path(dice));
        match dice.below(4) {
            0 => remove(tree, &one),
            1 if tree.get(&one).is_present()
                && !other.is_within(&one)
                && !one.is_within(&other)
                && tree.get(&other.parent().unwrap()).is_directory() =>
            {
                remove(tree, &other);
                move_to(tree, &one, &other, &mut from);
            }
            _ if tree.get(&one.parent().unwrap()).is_directory() => {
                let version = version(dice);
                if !version.is_directory() {
                    remove(tree, &one);
                }
                tree.put(&one, &version);
            }
            _ => {}
        }
        tree.assert_tree();
        records.push(difference(&before, tree, &from));
    }
    records
}

fn remove(tree: &mut Model, path: &WorkspacePath) {
    tree.0.retain(|other, _| !other.is_within(path));
}

fn move_to(
    tree: &mut Model,
    from: &WorkspacePath,
    to: &WorkspacePath,
    moved: &mut BTreeMap<WorkspacePath, WorkspacePath>,
) {
    for path in tree.below(from).into_iter().chain([from.clone()]) {
        let new = path.rebase(from, to).unwrap();
        let version = tree.0.remove(&path).unwrap();
        tree.0.insert(new.clone(), version);
        moved.insert(new, path);
    }
}

fn difference(
    before: &Model,
    after: &Model,
    from: &BTreeMap<WorkspacePath, WorkspacePath>,
) -> Vec<LocalChange> {
    let paths: BTreeSet<_> = before.0.keys().chain(after.0.keys()).collect();
    let change = |path: &&WorkspacePath| LocalChange {
        path: (*path).clone(),
        before: Some(before.get(path)),
        after: Some(after.get(path)),
        from: from.get(*path).cloned(),
    };
    paths.iter().filter(|path| before.get(path) != after.get(path)).map(change).collect()
}

fn everything(_: &WorkspacePath, _: bool) -> Admission {
    Admission::Allowed
}

const RULES: Rules<'static> = Rules { admit: &everything, folds: false };

fn random_writes(dice: &mut Dice, base: &Model) -> Vec<Write> {
    let mut tree = base.clone();
    let mut fold = Fold::new(usize::MAX);
    let steps = dice.between(1, 6);
    work(dice, &mut tree, steps).iter().for_each(|record| assert!(fold.add(record)));
    fold.finish(Seq(0))
}

#[test]
fn folded_writes_come_to_what_the_log_says_in_every_part() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let mut start = Model::default();
        work(dice, &mut start, 8);
        let mut end = start.clone();
        let mut fold = Fold::new(usize::MAX);
        work(dice, &mut end, 8).iter().for_each(|record| assert!(fold.add(record)));
        let writes = fold.finish(Seq(0));
        let limit = dice.between(1, 5);
        let mut tree = start.clone();
        for part in parts(&writes, limit) {
            let batch = &writes[part.start..part.end];
            let whole = batch.len() <= limit || batch[0].group != 0;
            assert!(whole, "seed {seed}: a part is too large");
            let judged = judge(&tree, batch, &RULES);
            let taken = judged.decisions.iter().all(|decision| *decision == Decision::Take);
            assert!(taken, "seed {seed}: {batch:?} {judged:?}");
            judged.steps.iter().for_each(|step| tree.step(step));
            tree.assert_tree();
        }
        assert_eq!(tree, end, "seed {seed}");
    }
}

#[test]
fn a_host_takes_what_was_made_on_what_stands_there_and_whole_groups_only() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let mut base = Model::default();
        work(dice, &mut base, 10);
        let writes = random_writes(dice, &base);
        let mut host = base.clone();
        let steps = dice.below(5);
        work(dice, &mut host, steps);
        let judged = judge(&host, &writes, &RULES);
        let before = host.clone();
        judged.steps.iter().for_each(|step| host.step(step));
        host.assert_tree();
        check_verdicts(seed, &before, &host, &writes, &judged.decisions);
    }
}

fn check_verdicts(
    seed: u64,
    before: &Model,
    host: &Model,
    writes: &[Write],
    decisions: &[Decision],
) {
    let mut groups: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    let mut touched = BTreeSet::new();
    for (write, decision) in writes.iter().zip(decisions) {
        let taken = !matches!(decision, Decision::Reject { .. });
        let now = host.get(&write.path);
        if taken {
            assert!(now.same_value(&write.after), "seed {seed}: {write:?} is not there");
            touched.insert(&write.path);
        } else {
            assert_eq!(now, before.get(&write.path), "seed {seed}: a rejected write did something");
        }
        groups.entry(write.group).or_default().push(taken);
    }
    for (group, taken) in groups.iter().filter(|(group, _)| **group != 0) {
        assert!(taken.iter().all(|one| *one == taken[0]), "seed {seed}: group {group} was split");
    }
    for path in before.0.keys().chain(host.0.keys()).filter(|path| !touched.contains(path)) {
        assert_eq!(before.get(path), host.get(path), "seed {seed}: {path} was nobody's write");
    }
}

#[test]
fn a_batch_that_nothing_stands_against_is_taken_whole_and_again() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let mut host = Model::default();
        work(dice, &mut host, 10);
        let writes = random_writes(dice, &host);
        judge(&host, &writes, &RULES).steps.iter().for_each(|step| host.step(step));
        let again = judge(&host, &writes, &RULES);
        assert_eq!(again.steps, [], "seed {seed}");
        let stands = |decision: &Decision| matches!(decision, Decision::Stands(_));
        assert!(again.decisions.iter().all(stands), "seed {seed}: {again:?}");
    }
}

#[test]
fn a_push_brings_the_replica_to_the_host_except_for_writes_under_way() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let mut base = Model::default();
        work(dice, &mut base, 10);
        let (mut host, mut replica) = (base.clone(), base.clone());
        let mut fold = Fold::new(usize::MAX);
        work(dice, &mut replica, 3).iter().for_each(|record| assert!(fold.add(record)));
        let pending = if dice.chance(50) { fold.finish(Seq(0)) } else { vec![] };
        let replica = if pending.is_empty() { base.clone() } else { replica };
        let steps = dice.below(6);
        work(dice, &mut host, steps);
        let items = items(&base, &host);
        let (mut after, received) =
            (replica.clone(), receive(&replica, &pending, &items, Seq(2), false));
        received.steps.iter().for_each(|step| after.step(step));
        after.assert_tree();
        let again = receive(&after, &pending, &items, Seq(2), false);
        assert_eq!(again.steps, [], "seed {seed}: not idempotent");
        if pending.is_empty() {
            assert_eq!(without_times(&after), without_times(&host), "seed {seed}");
        }
        check_left(seed, &replica, &after, &pending, &received);
    }
}

fn items(base: &Model, host: &Model) -> Vec<Item> {
    let changes = difference(base, host, &BTreeMap::new());
    let item = |change: LocalChange| Item {
        path: change.path,
        seq: Seq(2),
        version: change.after.unwrap(),
    };
    changes.into_iter().map(item).collect()
}

fn without_times(model: &Model) -> BTreeMap<&WorkspacePath, ObjectId> {
    model.0.iter().map(|(path, version)| (path, version.hash())).collect()
}

fn check_left(seed: u64, before: &Model, after: &Model, pending: &[Write], received: &Received) {
    for left in &received.left {
        let path = &left.item.path;
        assert_eq!(before.get(path), after.get(path), "seed {seed}: {path} was not left alone");
        let waits = |path: &WorkspacePath| pending.iter().any(|write| write.path.is_within(path));
        assert!(waits(path), "seed {seed}: {path} is left alone for nothing");
    }
}

#[test]
fn a_resync_finds_exactly_what_differs() {
    for seed in 0..CASES {
        let dice = &mut Dice::new(seed);
        let mut base = Model::default();
        work(dice, &mut base, 12);
        let (mut mine, mut theirs) = (base.clone(), base.clone());
        let steps = (dice.below(4), dice.below(4));
        work(dice, &mut mine, steps.0);
        work(dice, &mut theirs, steps.1);
        let mut found = BTreeMap::new();
        let mut ask = vec![WorkspacePath::root()];
        if digest(&mine.nodes(&ask[0])) == digest(&theirs.nodes(&ask[0])) {
            ask.clear();
        }
        while !ask.is_empty() {
            let list = |path: WorkspacePath| Listing { nodes: theirs.nodes(&path), path };
            let listings: Vec<_> = ask.into_iter().map(list).collect();
            let step = resync_step(&mine, &listings, Seq(3));
            found.extend(step.items.into_iter().map(|item| (item.path, item.version.hash())));
            ask = step.ask;
        }
        let differs = |item: &Item| !mine.get(&item.path).same_value(&item.version);
        let expected = items(&mine, &theirs).into_iter().filter(differs);
        let expected: BTreeMap<_, _> =
            expected.map(|item| (item.path, item.version.hash())).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

/// `"a=1 d/ l>x"`: files with their content, directories, links.
fn model(text: &str) -> Model {
    let mut model = Model::default();
    for word in text.split_whitespace() {
        let (name, version) = parse(word);
        model.0.insert(name, version);
    }
    model
}

fn parse(word: &str) -> (WorkspacePath, Version) {
    match word.split_once('=') {
        Some((name, "-")) => (path(name), Version::Absent),
        Some((name, "d")) => (path(name), Version::Directory { mode: 0o755 }),
        Some((name, content)) => (path(name), file(content.parse().unwrap())),
        None => (path(word.trim_end_matches('/')), Version::Directory { mode: 0o755 }),
    }
}

/// `"a:1>2 b:->d@1"`: a write from one version to another, in group 1.
fn writes(text: &str) -> Vec<Write> {
    let write = |word: &str| {
        let (word, group) = word.split_once('@').unwrap_or((word, "0"));
        let (name, values) = word.split_once(':').unwrap();
        let (base, after) = values.split_once('>').unwrap();
        let value = |value: &str| parse(&format!("{name}={value}")).1;
        let group = group.parse().unwrap();
        Write { path: path(name), base: value(base), after: value(after), seen: Seq(0), group }
    };
    text.split_whitespace().map(write).collect()
}

#[track_caller]
fn check_with(host: &str, batch: &str, expected: &str, rules: &Rules<'_>) {
    let judged = judge(&model(host), &writes(batch), rules);
    let word = |decision: &Decision| match decision {
        Decision::Take => "take",
        Decision::Stands(_) => "stands",
        Decision::Reject { reason, .. } => reason.code(),
    };
    let words: Vec<_> = judged.decisions.iter().map(word).collect();
    assert_eq!(words.join(" "), expected, "{host} | {batch}");
    let mut tree = model(host);
    judged.steps.iter().for_each(|step| tree.step(step));
    tree.assert_tree();
}

#[track_caller]
fn check(host: &str, batch: &str, expected: &str) {
    check_with(host, batch, expected, &RULES);
}

#[test]
fn values_decide() {
    check("a=1", "a:1>2", "take");
    check("a=2", "a:1>2", "stands");
    check("a=3", "a:1>2", "changed");
    check("", "a:->1", "take");
    check("a=2", "a:->1", "changed");
    check("a=1", "a:1>2 a:2>3", "take take");
    check("a=9", "a:1>2 a:9>3", "changed take");
}

#[test]
fn a_group_is_taken_or_rejected_as_a_whole() {
    check("a=1 b=2", "a:1>-@1 b:->1@1", "group changed");
    check("a=1", "a:1>-@1 b:->1@1", "take take");
    check("a=1 b=2", "c:->1@2 a:1>-@1 c/x:->1 b:->1@1 d:->1@2", "take group parent changed take");
    check("x/ x/y=1", "n:->d@1 n/m:->1 x:d>-@1", "group parent not_empty");
}

#[test]
fn parents_are_directories_and_what_goes_is_empty() {
    check("", "d/x:->1", "parent");
    check("", "d/x:->1 d:->d", "take take");
    check("d=1", "d/x:->1", "parent");
    check("d/ d/x=1", "d:d>-", "not_empty");
    check("d/ d/x=1", "d:d>- d/x:1>-", "take take");
    check("d/ d/x=1 d/y=2", "d:d>- d/x:1>-", "not_empty take");
    check("d/ d/x=1", "d:d>2 d/x:1>-", "take take");
    check("d=2", "d:2>d d/x:->1", "take take");
    check("d/ d/x=3", "d:d>- d/x:1>-", "not_empty changed");
    check("d/ d/e/ d/e/x=1", "d:d>- d/e:d>- d/e/x:1>-", "take take take");
}

#[test]
fn what_stays_home_or_is_filtered_is_not_taken() {
    check("", ".git:->d .git/config:->1 a/.GIT:->1", "not_allowed not_allowed not_allowed");
    let admit = |path: &WorkspacePath, _: bool| match path.as_bytes() {
        b"secret" => Admission::NotAllowed,
        b"out" => Admission::Filtered,
        _ => Admission::Allowed,
    };
    check_with(
        "",
        "secret:->1 out:->1 a:->1",
        "not_allowed filtered take",
        &Rules { admit: &admit, folds: false },
    );
}

#[test]
fn names_fold_only_where_asked() {
    let folds = Rules { folds: true, ..RULES };
    check("a=1", "A:->1", "take");
    check_with("a=1", "A:->1", "folded", &folds);
    check_with("a=1", "A:->1@1 a:1>-@1", "take take", &folds);
    check_with("", "b:->1 B:->1", "take folded", &folds);
    check_with("d/", "d/x:->1 D:->d", "take folded", &folds);
}

#[test]
fn what_is_not_known_is_neither_written_nor_built_upon() {
    struct Half;
    impl Standing for Half {
        fn at(&self, path: &WorkspacePath) -> Stand {
            let version = (path.as_bytes() != b"u").then_some(Version::Absent);
            Stand { version, seq: Seq(4) }
        }
        fn children(&self, _: &WorkspacePath) -> Vec<WorkspacePath> {
            vec![]
        }
    }
    let judged = judge(&Half, &writes("u:->1 u/x:->1"), &RULES);
    for decision in judged.decisions {
        let Decision::Reject { reason, .. } = decision else { panic!("{decision:?}") };
        assert_eq!(reason, Rejection::Unknown);
    }
    let item = Item { path: path("u/x"), seq: Seq(1), version: file(1) };
    let received = receive(&Half, &[], &[item], Seq(1), false);
    assert_eq!((received.steps.len(), received.left.len()), (0, 1));
}

#[test]
fn a_batch_made_to_cost_time_is_cut_off() {
    // Each group loses its second member only when the one before it is gone.
    let mut batch = String::from("x:9>1@1 ");
    for number in 1..2000 {
        batch += &format!("d{number}:->d@{number} d{number}/x:->1@{} ", number + 1);
    }
    let judged = judge(&model(""), &writes(&batch), &RULES);
    assert!(judged.steps.is_empty());
}

#[test]
fn mutated_listings() {
    let encode = |listing: &Listing| {
        let mut out = Encoder::default();
        listing.encode(&mut out);
        out.0
    };
    let tree = model("a=1 d/ d/x=2");
    let list = |path: WorkspacePath| Listing { nodes: tree.nodes(&path), path };
    let samples = [encode(&list(WorkspacePath::root())), encode(&list(path("d")))];
    crate::fuzz::target("replica-listing", &samples, |input| {
        let mut rest = Decoder(input);
        let Ok(listing) = Listing::decode(&mut rest) else { return false };
        assert_eq!(encode(&listing), input[..input.len() - rest.0.len()], "not canonical");
        for node in &listing.nodes {
            let whole = listing.path.join(&node.name);
            assert!(WorkspacePath::new(whole.as_bytes()).is_ok(), "{whole:?} is no path");
        }
        true
    });
}

#[test]
fn what_was_left_alone_counts_if_it_is_newer_than_the_answer() {
    let item = |seq| Item { path: path("a"), seq: Seq(seq), version: file(1) };
    let accepted = Verdict::Accepted(Seq(5));
    assert_eq!(host_shows(&accepted, &file(2), None), Some(file(2)));
    assert_eq!(host_shows(&accepted, &file(2), Some(&item(4))), Some(file(2)));
    assert_eq!(host_shows(&accepted, &file(2), Some(&item(9))), Some(file(1)));
    let rejected = Verdict::Rejected { reason: Rejection::Filtered, theirs: None, seq: Seq(0) };
    assert_eq!(host_shows(&rejected, &file(2), None), None);
    assert_eq!(host_shows(&rejected, &file(2), Some(&item(3))), Some(file(1)));
}
