//! Several authors, and every kind of taking back, against the model of the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use chronicle_core::{OnConflict, RewindKind, RewindRequest, WorkspacePath};

use super::child::Said;
use super::world::World;
use super::{Case, Result, rewind_to};
use crate::dice::Dice;
use crate::rules::{DIRECTORIES, Model, Outcome, Planned, State, Turn};
use crate::tree;

/// Several authors, and every kind of taking back, against the model of the rules.
pub fn rules(case: Case, renames: bool) -> Result {
    // Another world than the one without renames, whose first steps would be the same.
    let mut dice = Dice::new(case.seed ^ u64::from(renames) << 32);
    let mut play = Play { world: World::new(case), model: Model::new(renames) };
    for directory in DIRECTORIES {
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
    world: World,
    model: Model,
}

impl Play {
    fn step(&mut self, dice: &mut Dice) -> Result {
        match dice.below(14) {
            0..=2 => self.person(dice),
            3..=4 => self.turn(dice),
            5..=6 => self.two_turns(dice),
            7 => self.world.reopen(),
            _ => self.take_something_back(dice),
        }
    }

    fn take_something_back(&mut self, dice: &mut Dice) -> Result {
        match dice.below(6) {
            0..=1 => self.rewind(dice, false),
            2 => self.rewind(dice, true),
            3 => self.rewind_one_file(dice),
            4 => self.undo(dice),
            _ => self.redo(dice),
        }
    }

    fn person(&mut self, dice: &mut Dice) -> Result {
        self.edits(dice, 2);
        if dice.chance(50) {
            self.settle()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result {
        if self.world.settle()? {
            self.model.look();
        }
        Ok(())
    }

    /// Looks, as the model has done already.
    fn look(&mut self) -> Result {
        while !self.world.settle()? {}
        Ok(())
    }

    fn turn(&mut self, dice: &mut Dice) -> Result {
        let session = if dice.chance(60) { "A" } else { "B" };
        let key = self.turn_start(session)?;
        for _ in 0..dice.between(1, 2) {
            self.edits(dice, 2);
            if dice.chance(40) {
                self.settle()?;
            }
        }
        self.turn_end(&key, session)
    }

    fn turn_start(&mut self, session: &'static str) -> Result<String> {
        let key = format!("k{}", self.model.turns().len() + 1);
        let number = self.world.turn_start(&key, session)?;
        self.model.turn_start(number, session);
        Ok(key)
    }

    fn turn_end(&mut self, key: &str, session: &'static str) -> Result {
        self.world.turn_end(key, session)?;
        self.model.turn_end(session);
        Ok(())
    }

    /// Two turns that overlap: what changes while both are open may be of either.
    fn two_turns(&mut self, dice: &mut Dice) -> Result {
        let (first, second) = if dice.chance(50) { ("A", "B") } else { ("B", "A") };
        let first = (self.turn_start(first)?, first);
        if dice.chance(50) {
            self.edits(dice, 2);
        }
        let second = (self.turn_start(second)?, second);
        for _ in 0..dice.between(1, 2) {
            self.work_of_two(dice, &first, &second)?;
        }
        if dice.chance(20) {
            self.take_something_back(dice)?;
        }
        let (sooner, later) = if dice.chance(50) { (first, second) } else { (second, first) };
        self.turn_end(&sooner.0, sooner.1)?;
        if dice.chance(50) {
            self.edits(dice, 2);
        }
        if dice.chance(20) {
            self.take_something_back(dice)?;
        }
        self.turn_end(&later.0, later.1)
    }

    /// Changes that nobody announced, and perhaps one that an edit tool did.
    fn work_of_two(
        &mut self,
        dice: &mut Dice,
        first: &(String, &'static str),
        second: &(String, &'static str),
    ) -> Result {
        if dice.chance(40) {
            let (key, session) = if dice.chance(50) { first } else { second };
            let file = self.model.announce(dice, session);
            if let Some((file, path)) = file {
                self.world.name_path(path.as_bytes(), session, key)?;
                let before = self.model.file(file).clone();
                self.model.edit_announced(file, session);
                self.act(file, before, dice.chance(50));
            }
        }
        self.edits(dice, 2);
        if dice.chance(50) {
            self.settle()?;
        }
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

    /// One of the turns that have ended, if any has.
    fn ended_turn(&self, dice: &mut Dice) -> Option<Turn> {
        let ended: Vec<_> = self.model.turns().iter().filter(|turn| turn.end.is_some()).collect();
        dice.pick_any(&ended).map(|turn| (*turn).clone())
    }

    /// Rewinds to a turn or the start; what unsettled work there is belongs to who works now.
    fn rewind(&mut self, dice: &mut Dice, exact: bool) -> Result {
        self.model.look();
        let Some(turn) = self.ended_turn(dice) else { return self.look() };
        let whole = dice.chance(30);
        let target = if whole { "start".to_owned() } else { format!("turn:{}", turn.number) };
        let moment = if whole { self.model.start() } else { turn.end.clone() };
        let moment = moment.expect("BUG: this turn has ended");
        let all = whole || dice.chance(20);
        let sessions: &[&str] = if all { &["A", "B"] } else { &[turn.session] };
        let shared = !exact && dice.chance(30);
        let request = RewindRequest {
            all_sessions: all && !whole,
            take_shared: shared,
            ..rewind_to(&target, exact)
        };
        if whole && !exact && self.model.would_hit_another(&moment) {
            return self.expect_refusal(&request, "other_session");
        }
        let outcome = self.model.rewind(&moment, (!exact).then_some((sessions, shared)), None);
        self.take_back(dice, &request, outcome)
    }

    fn rewind_one_file(&mut self, dice: &mut Dice) -> Result {
        self.model.look();
        let Some(turn) = self.ended_turn(dice) else { return self.look() };
        let standing: Vec<_> = self.model.standing().into_values().collect();
        let Some((file, state)) = dice.pick_any(&standing).cloned() else { return self.look() };
        let moment = turn.end.as_ref().expect("BUG: the turn has ended");
        if !self.model.stayed(file, moment) {
            return self.look();
        }
        let outcome = self.model.rewind(moment, Some((&[turn.session], false)), Some(file));
        let path = WorkspacePath::new(state.path).expect("BUG: the model's paths are plain");
        let target = format!("turn:{}", turn.number);
        let request = RewindRequest { paths: vec![path], ..rewind_to(&target, false) };
        self.take_back(dice, &request, outcome)
    }

    fn undo(&mut self, dice: &mut Dice) -> Result {
        self.model.look();
        if dice.chance(50) {
            let request = RewindRequest::new(RewindKind::Undo { what: None });
            return match self.model.undo_newest() {
                Some(outcome) => self.take_back(dice, &request, outcome),
                None => self.expect_refusal(&request, "nothing_to_do"),
            };
        }
        let turn = dice.pick(self.model.turns()).clone();
        let what = Some(format!("turn:{}", turn.number));
        if !self.model.has_live_changes(&turn) {
            return self.look();
        }
        let outcome = self.model.undo(&turn);
        self.take_back(dice, &RewindRequest::new(RewindKind::Undo { what }), outcome)
    }

    fn redo(&mut self, dice: &mut Dice) -> Result {
        self.model.look();
        let request = RewindRequest::new(RewindKind::Redo);
        match self.model.redo() {
            Some(outcome) => self.take_back(dice, &request, outcome),
            None => self.expect_refusal(&request, "nothing_to_do"),
        }
    }

    /// A rewind that must be refused, with nothing changed.
    fn expect_refusal(&mut self, request: &RewindRequest, code: &str) -> Result {
        match self.world.rewind(request)? {
            Err(refused) if refused.code == code => self.compare("after a refusal"),
            other => self.world.fail(&format!("wanted {code}, got {other:?}")),
        }
    }

    fn take_back(&mut self, dice: &mut Dice, request: &RewindRequest, outcome: Outcome) -> Result {
        let redo = request.kind == RewindKind::Redo;
        match outcome {
            Outcome::Open => self.look(),
            Outcome::Done(planned) => self.do_planned(request, planned),
            Outcome::Conflict { keep_mine, replace } => {
                self.expect_refusal(request, "conflict")?;
                let (on_conflict, planned) = if dice.chance(50) {
                    (OnConflict::KeepMine, keep_mine)
                } else {
                    (OnConflict::Replace, replace)
                };
                let request = RewindRequest { on_conflict, ..request.clone() };
                match planned {
                    _ if redo || dice.chance(30) => Ok(()),
                    Some(planned) => self.do_planned(&request, planned),
                    None => self.do_unplanned(&request),
                }
            }
        }
    }

    /// A rewind of which the model says what comes of it.
    fn do_planned(&mut self, request: &RewindRequest, planned: Planned) -> Result {
        let done = self.world.rewind_done(request)?;
        if let Some(said) = &done.said {
            self.check_report(said, &planned, request.on_conflict)?;
        }
        // A rewind that changes nothing is no record, and nothing to redo.
        if done.recorded {
            self.model.rewound(planned, request.kind == RewindKind::Redo);
        }
        self.compare("after the rewind")
    }

    /// What stays is listed, and makes the rewind a partial one.
    fn check_report(&self, said: &Said, planned: &Planned, on_conflict: OnConflict) -> Result {
        let partial = !planned.shared.is_empty() || on_conflict == OnConflict::KeepMine;
        if said.left.is_empty() && said.shared == planned.shared && said.partial == partial {
            return Ok(());
        }
        let want = &planned.shared;
        self.world.fail(&format!("wanted {want:?} as shared, partial: {partial}, got {said:?}"))
    }

    /// A rewind with a choice of which the model does not say what comes of it: only what the plan
    /// names may change, and redo brings back exactly what was.
    fn do_unplanned(&mut self, request: &RewindRequest) -> Result {
        let before = self.world.describe();
        let done = self.world.rewind_done(request)?;
        if let Some(said) = &done.said {
            let (want, got) = (self.wanted(), texts(&self.world.top()));
            let differing = different(&want, &got);
            if let Some(path) = differing.iter().find(|path| !said.touched.contains(**path)) {
                return self.world.fail(&format!("{path} changed, and the plan says {said:?}"));
            }
        }
        if done.recorded {
            self.world.rewind_whole(&RewindRequest::new(RewindKind::Redo))?;
        }
        self.world.expect(&before, "redo after a choice in a conflict")
    }

    fn wanted(&self) -> Texts {
        let standing = self.model.standing().into_iter();
        standing.map(|(path, (file, state))| (path, (state.mode, state.text(file)))).collect()
    }

    fn compare(&self, what: &str) -> Result {
        let (want, got) = (self.wanted(), texts(&self.world.top()));
        let line = |path: &&str| {
            format!("{path}: want {}, got {}", show(want.get(*path)), show(got.get(*path)))
        };
        let lines: Vec<_> = different(&want, &got).iter().map(line).collect();
        if lines.is_empty() {
            return Ok(());
        }
        self.world.fail(&format!("{what}:\n  {}", lines.join("\n  ")))
    }
}

/// Mode and text of files by their paths.
type Texts = BTreeMap<String, (u32, String)>;

fn different<'t>(one: &'t Texts, other: &'t Texts) -> BTreeSet<&'t str> {
    let paths = one.keys().chain(other.keys()).map(|path| &path[..]);
    paths.filter(|path| one.get(*path) != other.get(*path)).collect()
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
fn texts(top: &Path) -> Texts {
    let mut found = BTreeMap::new();
    for directory in DIRECTORIES {
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
