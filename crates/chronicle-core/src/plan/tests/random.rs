//! Random histories against the rules.

use super::*;

/// A small generator of numbers: the same seed, the same history.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.below(items.len())].clone())
    }
}

/// Does random work in a tree that is always well formed.
struct Worker<'w> {
    world: &'w mut World,
    random: Random,
    /// Only below this directory.
    top: WorkspacePath,
}

impl Worker<'_> {
    /// A time that never comes again.
    fn time(&self) -> i64 {
        i64::try_from(self.world.changes.len()).unwrap() + 1
    }

    fn directories(&self) -> Vec<WorkspacePath> {
        let all = self.world.state.iter().filter(|(path, _)| path.is_within(&self.top));
        all.filter(|(_, entry)| entry.is_directory()).map(|(path, _)| path.clone()).collect()
    }

    fn things(&self) -> Vec<WorkspacePath> {
        let all = self.world.within(&self.top);
        all.into_iter().filter(|path| *path != self.top).collect()
    }

    fn new_path(&mut self) -> Option<WorkspacePath> {
        let directories = self.directories();
        let name = [b"a", b"b", b"c", b"d", b"e"][self.random.below(5)];
        let path = self.random.pick(&directories)?.join(name);
        (path.depth() < 5).then_some(path)
    }

    /// The directory of a path notices that it changed.
    fn touch_parent(&mut self, author: &str, path: &WorkspacePath) {
        let Some(parent) = path.parent() else { return };
        let already = self.world.changes.iter().rev();
        let mut already = already.take_while(|past| past.at.seq.0 == self.world.seq);
        if already.any(|past| past.change.path == parent) {
            return;
        }
        if let Some(Entry::Directory(meta)) = self.world.state.get(&parent).cloned() {
            let entry = Entry::Directory(Meta { mtime_ns: self.time(), ..meta });
            self.world.change(author, parent, entry, None, false);
        }
    }

    fn text(&mut self) -> String {
        (0..self.random.below(9)).map(|_| char::from(b'a' + self.random.below(5) as u8)).collect()
    }

    /// One record of work.
    fn work(&mut self, author: &str) {
        self.world.begin();
        let meta = Meta { mtime_ns: self.time(), ..Meta::default() };
        let things = self.things();
        match self.random.below(10) {
            0..=3 => {
                let Some(path) = self.new_path() else { return };
                if self.world.state.get(&path).is_none_or(|entry| !entry.is_directory()) {
                    let text = self.text();
                    let entry = self.world.value(&format!("{text}x"), meta);
                    self.world.change(author, path.clone(), entry, None, false);
                    self.touch_parent(author, &path);
                }
            }
            4..=5 => {
                let Some(path) = self.new_path() else { return };
                if !self.world.state.contains_key(&path) {
                    self.world.change(author, path.clone(), Entry::Directory(meta), None, false);
                    self.touch_parent(author, &path);
                }
            }
            6 => {
                let Some(path) = self.random.pick(&things) else { return };
                self.world.step(author, &format!("-{path}"));
                self.touch_parent(author, &path);
            }
            7 => {
                let Some(path) = self.random.pick(&things) else { return };
                let mut entry = self.world.state[&path].clone();
                entry.meta_mut().unwrap().mode = 1 + self.random.below(7) as u32;
                if entry != self.world.state[&path] {
                    self.world.change(author, path, entry, None, false);
                }
            }
            _ => {
                let (Some(old), Some(new)) = (self.random.pick(&things), self.new_path()) else {
                    return;
                };
                if !new.is_within(&old) && !self.world.state.contains_key(&new) {
                    self.world.rename(author, &new, &old);
                    self.touch_parent(author, &new);
                    self.touch_parent(author, &old);
                }
            }
        }
    }
}

/// A world with a random beginning, then random work by these authors.
fn history(seed: u64, steps: usize, authors: &[&str]) -> World {
    let mut world = World::new("./ a/ b/ a/a=abcdefgh b/b=abcdefgh c=x");
    let mut random = Random(seed);
    for _ in 0..12 {
        let seed = random.0 ^ random.below(1 << 30) as u64;
        Worker { world: &mut world, random: Random(seed), top: path(".") }.work("agent");
    }
    world.then = world.state.clone();
    world.changes.clear();
    for _ in 0..steps {
        let author = authors[random.below(authors.len())];
        let seed = random.0 ^ random.below(1 << 30) as u64;
        Worker { world: &mut world, random: Random(seed), top: path(".") }.work(author);
    }
    world
}

fn assert_well_formed(state: &BTreeMap<WorkspacePath, Entry>, seed: u64) {
    for path in state.keys() {
        if let Some(parent) = path.parent() {
            let held = state.get(&parent).is_some_and(Entry::is_directory);
            assert!(held, "seed {seed}: {path} lies in no directory");
        }
    }
}

fn all(world: &World, on_conflict: OnConflict) -> Draft {
    world.draft(Selection::All, on_conflict)
}

#[test]
fn keeping_nothing_leads_exactly_to_the_moment() {
    for seed in 0..400 {
        let world = history(seed, 25, &["agent", "rewind"]);
        let draft = all(&world, OnConflict::Stop);
        assert_eq!(world.after(&draft), world.then, "seed {seed}");
        assert!(draft.keep.is_empty() && draft.conflicts.is_empty() && draft.unknown.is_empty());
        assert!(draft.goals.is_sorted_by(|a, b| a.path < b.path), "ordered by path");
    }
}

#[test]
fn keeping_everything_changes_nothing() {
    for seed in 0..400 {
        let world = history(seed, 25, &["person", "other"]);
        let draft = all(&world, OnConflict::Stop);
        let words = world.words(&Draft { keep: Vec::new(), ..draft });
        assert_eq!(words, "", "seed {seed}");
    }
}

#[test]
fn whatever_is_kept_the_result_is_a_tree_and_conflicts_are_decided() {
    for seed in 0..600 {
        let world = history(seed, 20, &["agent", "person", "other"]);
        for on_conflict in [OnConflict::Stop, OnConflict::KeepMine, OnConflict::Replace] {
            let draft = all(&world, on_conflict);
            let after = world.after(&draft);
            assert_well_formed(&after, seed);
            assert_eq!(draft, all(&world, on_conflict), "seed {seed}: the same again");
            for conflict in &draft.conflicts {
                let side = match on_conflict {
                    OnConflict::Replace => continue,
                    _ => &world.state,
                };
                assert_eq!(after.get(&conflict.path), side.get(&conflict.path), "seed {seed}");
            }
        }
    }
}

#[test]
fn what_a_person_made_last_is_never_lost_without_a_conflict() {
    for seed in 0..600 {
        let mut world = history(seed, 15, &["agent", "person"]);
        world.begin();
        world.step("person", "mine=zzz");
        let draft = all(&world, OnConflict::Stop);
        if draft.conflicts.is_empty() {
            let mine = world.value("zzz", Meta::default());
            let objects: Vec<_> = world.after(&draft).values().filter_map(Entry::object).collect();
            assert!(objects.contains(&mine.object().unwrap()), "seed {seed}");
        }
    }
}

#[test]
fn what_only_others_touched_stays_exactly_as_it_is() {
    for seed in 0..1500 {
        let world = history(seed, 10, &["agent", "person", "other"]);
        if world.changes.iter().any(|past| past.change.from.is_some()) {
            continue;
        }
        let after = world.after(&all(&world, OnConflict::KeepMine));
        let mut touched: BTreeMap<&WorkspacePath, Vec<Role>> = BTreeMap::new();
        for past in &world.changes {
            touched.entry(&past.change.path).or_default().push(past.role);
        }
        for (path, roles) in touched {
            // A directory that others deleted is made again if what was taken from it comes back.
            let holds = after.keys().any(|other| other != path && other.is_within(path));
            if roles.iter().all(|role| *role == Role::Keep) && !holds {
                assert_eq!(after.get(path), world.state.get(path), "seed {seed}: {path}");
            }
        }
    }
}

#[test]
fn a_part_of_the_tree_goes_back_alone() {
    for seed in 0..300 {
        let world = history(seed, 20, &["agent"]);
        let selection = Selection::Paths(vec![path("a")]);
        let after = world.after(&world.draft(selection, OnConflict::Stop));
        assert_well_formed(&after, seed);
        let below = |state: &BTreeMap<WorkspacePath, Entry>| -> Vec<_> {
            let inside = state.iter().filter(|(it, _)| it.is_within(&path("a")));
            inside.map(|(path, entry)| (path.clone(), entry.clone())).collect()
        };
        assert_eq!(below(&after), below(&world.then), "seed {seed}");
    }
}

/// Work of two authors in two directories, in an order that the third seed gives.
fn side_by_side(agent: u64, person: u64, order: u64) -> World {
    let mut world = World::new("./ p/ q/ p/a=abc q/a=abc");
    let mut order = Random(order);
    let (mut seeds, mut left) = ([Random(agent), Random(person)], [12, 12]);
    while left != [0, 0] {
        let side = if left[0] == 0 || left[1] > 0 && order.below(2) == 1 { 1 } else { 0 };
        left[side] -= 1;
        let top = path(["p", "q"][side]);
        let seed = seeds[side].0 ^ seeds[side].below(1 << 30) as u64;
        let mut worker = Worker { world: &mut world, random: Random(seed), top };
        worker.work(["agent", "person"][side]);
    }
    world
}

#[test]
fn work_elsewhere_is_untouched_and_its_order_does_not_matter() {
    for seed in 0..150 {
        let after = |order| {
            let world = side_by_side(seed, seed + 1000, order);
            let draft = all(&world, OnConflict::Stop);
            assert!(draft.conflicts.is_empty() && draft.unknown.is_empty(), "seed {seed}");
            assert!(draft.goals.iter().all(|goal| goal.path.is_within(&path("p"))), "seed {seed}");
            let after = world.after(&draft);
            for (path, entry) in &world.then {
                assert!(path.is_within(&self::path("q")) || after.get(path) == Some(entry));
            }
            let shape = |(path, entry): (WorkspacePath, Entry)| (path, entry.object());
            after.into_iter().map(shape).collect::<Vec<_>>()
        };
        assert_eq!(after(1), after(2), "seed {seed}");
    }
}

#[test]
fn kept_text_far_away_survives_whatever_the_agent_did() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let base: Vec<u8> = (0..30).map(|line| b'A' + line).collect();
        let show = |text: &[u8]| format!("f={}", String::from_utf8_lossy(text));
        let mut world = World::new(&show(&base));
        let (mut text, mut expected) = (base.clone(), base);
        for _ in 0..10 {
            let (author, line) = match random.below(2) {
                0 => ("agent", random.below(10)),
                _ => ("person", 20 + random.below(10)),
            };
            let letter = b'a' + random.below(26) as u8;
            text[line] = letter;
            if author == "person" {
                expected[line] = letter;
            }
            world.begin();
            world.step(author, &show(&text));
        }
        let draft = all(&world, OnConflict::Stop);
        let after = world.after(&draft);
        assert_eq!(world.show(&path("f"), &after[&path("f")]), show(&expected), "seed {seed}");
    }
}

#[test]
fn many_changes_are_planned_in_time_that_grows_with_their_number() {
    let mut world = World::new("./");
    world.begin();
    for directory in 0..100 {
        world.step("agent", &format!("d{directory}/"));
        for file in 0..100 {
            world.step("agent", &format!("d{directory}/f{file}=a"));
        }
    }
    world.begin();
    for directory in 0..100 {
        let (new, old) = (path(&format!("e{directory}")), path(&format!("d{directory}")));
        let files = (0..100).map(|file| old.join(format!("f{file}").as_bytes()));
        for from in std::iter::once(old.clone()).chain(files) {
            let entry = world.state[&from].clone();
            world.change("agent", from.clone(), Entry::Absent, None, false);
            let to = from.rebase(&old, &new).unwrap();
            world.change("agent", to, entry, Some(from), false);
        }
    }
    let draft = all(&world, OnConflict::Stop);
    assert_eq!(draft.goals.len(), 100 * 101);
    assert!(draft.goals.iter().all(|goal| goal.then == Entry::Absent));
}
