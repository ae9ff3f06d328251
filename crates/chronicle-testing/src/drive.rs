//! Drives a real workspace through the library and compares it with what must stand there.
//!
//! Three properties: exact rewinds of any work, the rules among several authors, and filters that
//! never cost a file. Each is a function of a seed; a failure tells the whole story of its case.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chronicle_core::{
    Error, Home, InitOptions, RewindKind, RewindReport, RewindRequest, SnapshotRequest, Stop,
    TurnRequest, Workspace, WorkspacePath,
};

use crate::dice::Dice;
use crate::rules::{Model, Outcome, State, Turn};
use crate::tree::{self, Options, Tree};
use crate::work::{Menu, Random};

/// What went wrong in one case, with everything that led to it.
pub type Story = String;

type Result<T = (), E = Story> = std::result::Result<T, E>;

/// A real workspace with its history, and the tale of what was done to it.
struct World {
    holder: tempfile::TempDir,
    workspace: Option<Workspace>,
    tale: Vec<String>,
}

impl World {
    fn new() -> Self {
        let holder = tempfile::Builder::new()
            .prefix("chronicle-case-")
            .tempdir()
            .expect("a scratch directory can be made");
        fs::create_dir(holder.path().join("ws")).expect("the workspace can be made");
        Self { holder, workspace: None, tale: Vec::new() }
    }

    fn top(&self) -> PathBuf {
        self.holder.path().join("ws")
    }

    fn home(&self) -> Home {
        Home::at(&self.holder.path().join("home"))
    }

    fn tell(&mut self, line: impl Into<String>) {
        self.tale.push(line.into());
    }

    /// A failure with the whole tale.
    fn fail<T>(&self, seed: u64, what: &str) -> Result<T> {
        Err(format!("seed {seed}: {what}\nwhat was done:\n  {}", self.tale.join("\n  ")))
    }

    fn init(&mut self) -> Result {
        self.tell("init");
        let (workspace, _) = Workspace::init(&self.home(), &self.top(), &InitOptions::default())
            .map_err(|error| self.broken("init", &error))?;
        self.workspace = Some(workspace);
        Ok(())
    }

    /// Closes and opens the workspace, as the next process would.
    fn reopen(&mut self) -> Result {
        self.tell("reopen");
        self.workspace = None;
        let workspace = Workspace::open(&self.home(), &self.top())
            .map_err(|error| self.broken("open", &error))?;
        self.workspace = Some(workspace);
        Ok(())
    }

    fn broken(&self, what: &str, error: &Error) -> Story {
        let mut causes = format!("{what} failed ({}): {error}", error.code());
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            causes.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        format!("{causes}\nwhat was done:\n  {}", self.tale.join("\n  "))
    }

    fn inner(&mut self) -> &mut Workspace {
        self.workspace.as_mut().expect("BUG: the workspace is used before init")
    }

    fn settle(&mut self) -> Result {
        self.tell("settle");
        let settled = self.inner().settle();
        settled.map(drop).map_err(|error| self.broken("settle", &error))
    }

    fn turn_start(&mut self, key: &str, session: &str) -> Result<u64> {
        self.tell(format!("turn start {key} of {session}"));
        let request = turn_request(key, session);
        let turn = self.inner().turn_start(&request);
        turn.map(|turn| turn.number).map_err(|error| self.broken("turn start", &error))
    }

    fn turn_end(&mut self, key: &str, session: &str) -> Result {
        self.tell(format!("turn end {key}"));
        let request = turn_request(key, session);
        let turn = self.inner().turn_end(&request);
        turn.map(drop).map_err(|error| self.broken("turn end", &error))
    }

    fn name_path(&mut self, path: &[u8], session: &str, key: &str) -> Result {
        self.tell(format!("snapshot of {}", path.escape_ascii()));
        let path = WorkspacePath::new(path).expect("BUG: a listed path is plain");
        let request = SnapshotRequest {
            action: "write_file".to_owned(),
            paths: vec![path],
            session: Some(session.to_owned()),
            turn_key: Some(key.to_owned()),
            ..SnapshotRequest::default()
        };
        let snapshot = self.inner().snapshot(&request);
        snapshot.map(drop).map_err(|error| self.broken("snapshot", &error))
    }

    fn rewind(&mut self, request: &RewindRequest) -> std::result::Result<RewindReport, Error> {
        self.tell(tell_rewind(request));
        self.inner().rewind(request, &mut |_| true)
    }

    /// A rewind that must do everything that it was asked for.
    fn rewind_whole(&mut self, request: &RewindRequest) -> Result<RewindReport> {
        let report = self.rewind(request).map_err(|error| self.broken("rewind", &error))?;
        let left = report.unexpected.iter().map(|left| format!("{}: {}", left.path, left.reason));
        let left: Vec<_> = left.collect();
        if report.partial || !left.is_empty() {
            return Err(format!(
                "rewind did only a part: {left:?}, unknown {:?}, shared {:?}\nwhat was done:\n  {}",
                report.plan.unknown,
                report.plan.shared,
                self.tale.join("\n  ")
            ));
        }
        Ok(report)
    }

    fn verify(&mut self) -> Result {
        self.tell("verify");
        let verified = self.inner().verify(true, &|_, _| {});
        verified.map(drop).map_err(|error| self.broken("verify", &error))
    }

    fn describe(&self) -> Tree {
        tree::describe_with(&self.top(), &Options { all_times: true, ..Options::default() })
    }

    fn expect(&self, seed: u64, want: &Tree, what: &str) -> Result {
        self.expect_same(seed, want, &self.describe(), what)
    }

    fn expect_same(&self, seed: u64, want: &Tree, got: &Tree, what: &str) -> Result {
        let lines = tree::differences(want, got);
        if lines.is_empty() {
            return Ok(());
        }
        self.fail(seed, &format!("{what}:\n  {}", lines.join("\n  ")))
    }
}

fn turn_request(key: &str, session: &str) -> TurnRequest {
    TurnRequest {
        key: Some(key.to_owned()),
        session: Some(session.to_owned()),
        prompt: Some(format!("do {key}")),
        ..TurnRequest::default()
    }
}

fn rewind_to(target: &str, exact: bool) -> RewindRequest {
    RewindRequest { exact, ..RewindRequest::new(RewindKind::Rewind { target: target.to_owned() }) }
}

fn tell_rewind(request: &RewindRequest) -> String {
    let what = match &request.kind {
        RewindKind::Rewind { target } => format!("rewind {target}"),
        RewindKind::Rollback { id } => format!("rollback {id}"),
        RewindKind::Undo { what } => format!("undo {}", what.as_deref().unwrap_or("")),
        RewindKind::Redo => "redo".to_owned(),
        RewindKind::Plan { id } => format!("apply plan {id}"),
    };
    let exact = if request.exact { " --exact" } else { "" };
    let paths: Vec<_> = request.paths.iter().map(ToString::to_string).collect();
    format!("{what}{exact} {}", paths.join(" "))
}

/// Any work, then exact rewinds to any turn, by part and whole, and back again.
pub fn exact(seed: u64, menu: Menu) -> Result {
    let mut dice = Dice::new(seed);
    let mut world = World::new();
    // Rules that are there at the beginning are accepted, and what they hide cannot come back.
    let quiet = Menu { filters: false, ..menu };
    let count = dice.between(5, 25);
    let mut work = Random::new(&world.top(), dice.roll(), quiet);
    do_work(&mut world, &mut work, count);
    world.init()?;
    let mut work = Random::new(&world.top(), dice.roll(), menu);
    let states = play_turns(&mut world, &mut work, &mut dice)?;
    for _ in 0..dice.between(1, 3) {
        there_and_back(seed, &mut world, &mut dice, &states)?;
    }
    if !menu.moves && !menu.links {
        part_there_and_back(seed, &mut world, &mut dice, &states)?;
    }
    unrecorded_work_comes_back(seed, &mut world, &mut work, &states)?;
    world.verify()
}

fn do_work(world: &mut World, work: &mut Random, count: usize) {
    for line in work.steps(count).into_iter().filter(|line| !line.starts_with("refused")) {
        world.tell(line);
    }
}

/// Two to four turns with a person's work between; the states at `start` and after each turn.
fn play_turns(world: &mut World, work: &mut Random, dice: &mut Dice) -> Result<Vec<Tree>> {
    let mut states = Vec::new();
    for number in 1..=dice.between(2, 4) {
        if dice.chance(50) {
            do_work(world, work, 2);
        }
        let (key, session) = (format!("k{number}"), if dice.chance(70) { "A" } else { "B" });
        world.turn_start(&key, session)?;
        if states.is_empty() {
            states.push(world.describe());
        }
        for _ in 0..dice.between(1, 3) {
            if dice.chance(30)
                && let Some(path) = work.any_path()
            {
                world.name_path(&path, session, &key)?;
            }
            let count = dice.between(1, 4);
            do_work(world, work, count);
            if dice.chance(60) {
                world.settle()?;
            }
        }
        world.turn_end(&key, session)?;
        states.push(world.describe());
        if dice.chance(20) {
            world.reopen()?;
        }
    }
    Ok(states)
}

fn target_of(turn: usize) -> String {
    if turn == 0 { "start".to_owned() } else { format!("turn:{turn}") }
}

fn there_and_back(seed: u64, world: &mut World, dice: &mut Dice, states: &[Tree]) -> Result {
    let (last, turn) = (world.describe(), dice.below(states.len()));
    let request = rewind_to(&target_of(turn), true);
    world.tell(format!("plan only: {}", tell_rewind(&request)));
    let planned = world.inner().plan(&request).map(drop);
    planned.map_err(|error| world.broken("plan", &error))?;
    world.expect(seed, &last, "a plan changed something")?;
    let report = world.rewind_whole(&request)?;
    world.expect(seed, &states[turn], "after the rewind")?;
    if dice.chance(20) {
        world.reopen()?;
    }
    if report.id.is_some() {
        world.rewind_whole(&RewindRequest::new(RewindKind::Redo))?;
    }
    world.expect(seed, &last, "after the redo")
}

/// Only one name at the top goes back; everything beside it stays.
fn part_there_and_back(seed: u64, world: &mut World, dice: &mut Dice, states: &[Tree]) -> Result {
    let (last, turn) = (world.describe(), dice.below(states.len()));
    let tops =
        states[turn].nodes.keys().chain(last.nodes.keys()).filter(|path| !path.contains(&b'/'));
    let tops: Vec<_> = tops.cloned().collect();
    let Some(top) = dice.pick_any(&tops) else {
        return Ok(());
    };
    let path = WorkspacePath::new(top.clone()).expect("BUG: a listed path is plain");
    let request = RewindRequest { paths: vec![path], ..rewind_to(&target_of(turn), true) };
    let report = world.rewind_whole(&request)?;
    let got = world.describe();
    world.expect_same(seed, &states[turn].part(top), &got.part(top), "the chosen part")?;
    world.expect_same(seed, &last.without(top), &got.without(top), "beside the chosen part")?;
    if report.id.is_some() {
        world.rewind_whole(&RewindRequest::new(RewindKind::Redo))?;
    }
    world.expect(seed, &last, "after the redo of a part")
}

fn unrecorded_work_comes_back(
    seed: u64,
    world: &mut World,
    work: &mut Random,
    states: &[Tree],
) -> Result {
    do_work(world, work, 3);
    let now = world.describe();
    let report = world.rewind_whole(&rewind_to("start", true))?;
    world.expect(seed, &states[0], "rewind over unrecorded work")?;
    if report.id.is_some() {
        world.rewind_whole(&RewindRequest::new(RewindKind::Redo))?;
    }
    world.expect(seed, &now, "redo brings unrecorded work back")
}

/// Several authors, and every kind of taking back, against the model of the rules.
pub fn rules(seed: u64, renames: bool) -> Result {
    let mut dice = Dice::new(seed);
    let mut play = Play { seed, world: World::new(), model: Model::new(renames) };
    for directory in ["shared", "person", "a", "b"] {
        let path = play.world.top().join(directory);
        fs::create_dir(&path).expect("a directory can be made");
        fs::write(path.join("keep"), "keep\n").expect("a file can be written");
    }
    for (file, state) in play.model.standing().into_values() {
        play.put(file, &state, false);
    }
    play.world.init()?;
    play.turn(&mut dice)?;
    for _ in 0..dice.between(6, 16) {
        play.step(&mut dice)?;
    }
    play.world.verify()
}

/// A model and a workspace that must agree.
struct Play {
    seed: u64,
    world: World,
    model: Model,
}

impl Play {
    fn step(&mut self, dice: &mut Dice) -> Result {
        match dice.below(12) {
            0..=2 => self.person(dice),
            3..=5 => self.turn(dice),
            6 => self.rewind(dice, false),
            7 => self.rewind(dice, true),
            8 => self.rewind_one_file(dice),
            9 => self.undo(dice),
            10 => self.redo(),
            _ => self.world.reopen(),
        }
    }

    fn person(&mut self, dice: &mut Dice) -> Result {
        self.edits(dice, 2);
        if dice.chance(50) {
            self.world.settle()?;
            self.model.look();
        }
        Ok(())
    }

    fn turn(&mut self, dice: &mut Dice) -> Result {
        let session = if dice.chance(60) { "A" } else { "B" };
        let key = format!("k{}", self.model.turns().len() + 1);
        let number = self.world.turn_start(&key, session)?;
        self.model.turn_start(number, session);
        for _ in 0..dice.between(1, 2) {
            self.edits(dice, 2);
            if dice.chance(40) {
                self.world.settle()?;
                self.model.look();
            }
        }
        self.world.turn_end(&key, session)?;
        self.model.turn_end();
        Ok(())
    }

    fn edits(&mut self, dice: &mut Dice, most: usize) {
        for _ in 0..dice.between(1, most) {
            let before: Vec<_> = self.model.standing().into_values().collect();
            let file = self.model.edit(dice);
            let before = before.into_iter().find(|(number, _)| *number == file);
            // Only the inode shows a move: a file that is written anew and moved between two looks
            // is another file.
            let in_place = dice.chance(50) || self.model.may_move(file);
            self.act(file, before.map(|(_, state)| state), in_place);
        }
    }

    /// Does to the disk what the model did to itself.
    fn act(&mut self, file: usize, before: Option<State>, in_place: bool) {
        let after = self.model.file(file).clone();
        let who = format!("{:?}", self.model.author());
        self.world.tell(format!("{who}: file {file} from {before:?} to {after:?}"));
        let real = |state: &State| self.world.top().join(&state.path);
        match (before, after) {
            (Some(before), None) => fs::remove_file(real(&before)).expect("a file can be removed"),
            (Some(before), Some(after)) if before.path != after.path => {
                fs::rename(real(&before), real(&after)).expect("a file can be moved");
            }
            (_, Some(after)) => self.put(file, &after, in_place),
            (None, None) => {}
        }
    }

    /// Writes a file: over itself, or as a new one renamed into place.
    fn put(&self, file: usize, state: &State, in_place: bool) {
        let path = self.world.top().join(&state.path);
        let written = if in_place { path.clone() } else { path.with_extension("new") };
        fs::write(&written, state.text(file)).expect("a file can be written");
        fs::set_permissions(&written, fs::Permissions::from_mode(state.mode))
            .expect("a mode can be set");
        fs::rename(&written, &path).expect("a file can be renamed");
    }

    /// Rewinds to a turn or the start; what unsettled work there is counts as a person's.
    fn rewind(&mut self, dice: &mut Dice, exact: bool) -> Result {
        self.model.look();
        let turns = self.model.turns();
        let turn = turns[dice.below(turns.len())].clone();
        let whole = dice.chance(30);
        let target = if whole { "start".to_owned() } else { format!("turn:{}", turn.number) };
        let moment = if whole { self.model.start() } else { turn.end.clone() };
        let moment = moment.expect("BUG: every turn of this play has ended");
        let all = whole || dice.chance(20);
        let sessions: &[&str] = if all { &["A", "B"] } else { &[turn.session] };
        let outcome = self.model.rewind(&moment, (!exact).then_some(sessions), None);
        let request = RewindRequest { all_sessions: all && !whole, ..rewind_to(&target, exact) };
        self.take_back(&request, outcome, false)
    }

    fn rewind_one_file(&mut self, dice: &mut Dice) -> Result {
        self.model.look();
        let turns = self.model.turns();
        let turn: Turn = turns[dice.below(turns.len())].clone();
        let standing: Vec<_> = self.model.standing().into_values().collect();
        let Some((file, state)) = dice.pick_any(&standing).cloned() else {
            return Ok(());
        };
        if !self.model.stayed(file, turn.end.as_ref().expect("BUG: the turn has ended")) {
            return Ok(());
        }
        let moment = turn.end.as_ref().expect("BUG: the turn has ended");
        let outcome = self.model.rewind(moment, Some(&[turn.session]), Some(file));
        let path = WorkspacePath::new(state.path).expect("BUG: the model's paths are plain");
        let target = format!("turn:{}", turn.number);
        let request = RewindRequest { paths: vec![path], ..rewind_to(&target, false) };
        self.take_back(&request, outcome, false)
    }

    fn undo(&mut self, dice: &mut Dice) -> Result {
        self.model.look();
        let bare = dice.chance(50);
        let turns = self.model.turns();
        let turn = if bare {
            self.model.newest_live_turn().cloned()
        } else {
            Some(turns[dice.below(turns.len())].clone())
        };
        let what = if bare { None } else { turn.as_ref().map(|t| format!("turn:{}", t.number)) };
        let request = RewindRequest::new(RewindKind::Undo { what });
        match turn {
            Some(turn) if self.model.has_live_changes(&turn) => {
                let outcome = self.model.undo(&turn);
                self.take_back(&request, outcome, false)
            }
            Some(_) => Ok(()),
            None => self.expect_nothing_to_do(&request),
        }
    }

    fn redo(&mut self) -> Result {
        self.model.look();
        let request = RewindRequest::new(RewindKind::Redo);
        match self.model.redo() {
            Some(outcome) => self.take_back(&request, outcome, true),
            None => self.expect_nothing_to_do(&request),
        }
    }

    fn expect_nothing_to_do(&mut self, request: &RewindRequest) -> Result {
        match self.world.rewind(request) {
            Err(Error::Stopped(Stop::Nothing(_))) => self.compare("after nothing was to do"),
            other => self.world.fail(self.seed, &format!("wanted nothing to do, got {other:?}")),
        }
    }

    fn take_back(&mut self, request: &RewindRequest, outcome: Outcome, redo: bool) -> Result {
        match outcome {
            Outcome::Open => Ok(()),
            Outcome::Conflict => match self.world.rewind(request) {
                Err(Error::Stopped(Stop::Conflict(_))) => {
                    self.compare("after a conflict, with nothing changed")
                }
                Ok(report) => {
                    let plan = format!("{:?}", report.plan);
                    self.world.fail(self.seed, &format!("wanted a conflict, got {plan}"))
                }
                Err(error) => Err(self.world.broken("rewind into a conflict", &error)),
            },
            Outcome::Done(states, live) => {
                let report = self.world.rewind_whole(request)?;
                // A rewind that changes nothing is no record, and nothing to redo.
                if report.id.is_some() {
                    self.model.rewound(states, live, redo);
                }
                self.compare("after the rewind")
            }
        }
    }

    fn compare(&self, what: &str) -> Result {
        let mut want = BTreeMap::new();
        for (path, (file, state)) in self.model.standing() {
            want.insert(path, (state.mode, state.text(file)));
        }
        let got = texts(&self.world.top());
        let paths: std::collections::BTreeSet<_> = want.keys().chain(got.keys()).collect();
        let lines: Vec<_> = paths
            .into_iter()
            .filter(|path| want.get(*path) != got.get(*path))
            .map(|path| {
                format!("{path}: want {}, got {}", show(want.get(path)), show(got.get(path)))
            })
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.world.fail(self.seed, &format!("{what}:\n  {}", lines.join("\n  ")))
    }
}

/// The slots of a text and its mode, for a message.
fn show(text: Option<&(u32, String)>) -> String {
    let Some((mode, text)) = text else {
        return "nothing".to_owned();
    };
    let slots: Vec<_> = text.lines().filter(|line| line.starts_with("slot")).collect();
    format!("{mode:o} {}", slots.join(", "))
}

/// Mode and text of every file but the `keep`s.
fn texts(top: &Path) -> BTreeMap<String, (u32, String)> {
    let mut found = BTreeMap::new();
    for directory in ["shared", "person", "a", "b"] {
        for name in tree::names(&top.join(directory)) {
            let name = String::from_utf8_lossy(&name).into_owned();
            let path = format!("{directory}/{name}");
            if name == "keep" {
                continue;
            }
            let meta = fs::metadata(top.join(&path)).expect("a listed file can be read");
            let text = fs::read_to_string(top.join(&path)).expect("a listed file can be read");
            found.insert(path, (meta.permissions().mode() & 0o7777, text));
        }
    }
    found
}

/// A filter that is accepted and later lifted: what it hid is never touched by a rewind to then.
pub fn filters(seed: u64) -> Result {
    let mut dice = Dice::new(seed);
    let mut world = World::new();
    let (seen, hidden) = (world.top().join("seen"), world.top().join("hidden"));
    for (path, rule) in [(&seen, ""), (&hidden, "hidden/\n")] {
        fs::create_dir(path).expect("a directory can be made");
        fs::write(world.top().join(".chronicleignore"), rule).expect("a filter can be written");
    }
    let menu = Menu { filters: false, ..Menu::ALL };
    let mut work = Random::new(&seen, dice.roll(), menu);
    let mut behind = Random::new(&hidden, dice.roll(), menu);
    do_work(&mut world, &mut work, 8);
    world.init()?;
    world.tell("accept hidden/");
    world.inner().accept_config().map_err(|error| world.broken("accept", &error))?;
    let (mut states, lifted) = (Vec::new(), dice.between(1, 3));
    for number in 1..=4 {
        let key = format!("k{number}");
        world.turn_start(&key, "A")?;
        do_work(&mut world, &mut work, 4);
        if number <= lifted {
            do_work(&mut world, &mut behind, 4);
        }
        if number == lifted {
            world.tell("lift the filter");
            fs::remove_file(world.top().join(".chronicleignore")).expect("a filter can go");
        }
        world.turn_end(&key, "A")?;
        states.push(world.describe());
    }
    let turn = dice.between(1, 3);
    let before = world.describe();
    world
        .rewind(&rewind_to(&format!("turn:{turn}"), true))
        .map_err(|e| world.broken("rewind", &e))?;
    let (got, want) = (world.describe(), &states[turn - 1]);
    world.expect_same(seed, &want.part(b"seen"), &got.part(b"seen"), "what was seen goes back")?;
    if turn < lifted {
        let (want, got) = (before.part(b"hidden"), got.part(b"hidden"));
        world.expect_same(seed, &want, &got, "what was hidden then stays")?;
    }
    world.verify()
}
