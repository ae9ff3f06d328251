//! Exact rewinds: every byte, mode and time of any work, by part and whole, and back again.

use std::fs;

use chronicle_core::{GitChoice, RewindKind, RewindRequest, WorkspacePath};

use super::child::tell_rewind;
use super::world::World;
use super::{Case, Result, rewind_to};
use crate::dice::Dice;
use crate::tree::Tree;
use crate::work::{Menu, Random};

/// Any work, then exact rewinds to any turn, by part and whole, and back again.
pub fn exact(case: Case, menu: Menu) -> Result {
    let mut dice = Dice::new(case.seed);
    let mut world = World::new(case).with_git(menu.git);
    // Rules that are there at the beginning are accepted, and what they hide cannot come back.
    let quiet = Menu { filters: false, ..menu };
    let count = dice.between(5, 25);
    let mut work = Random::new(&world.top(), dice.roll(), quiet);
    world.work(&mut work, count);
    world.init()?;
    let work = Random::new(&world.top(), dice.roll(), menu);
    // Under `--exact` a repository that a person touched stays, unless it is said that it goes.
    let alone = menu.git && dice.chance(50);
    let git = (menu.git && !alone).then_some(GitChoice::Restore);
    let mut trial = Trial { world, dice, work, states: Vec::new(), git };
    trial.play_turns(alone)?;
    for _ in 0..trial.dice.between(1, 3) {
        trial.there_and_back()?;
    }
    if !menu.moves && !menu.links {
        trial.part_there_and_back()?;
    }
    if !alone {
        trial.unrecorded_work_comes_back()?;
    }
    trial.world.verify()
}

/// A workspace, and what stood in it at `start` and after each turn.
struct Trial {
    world: World,
    dice: Dice,
    work: Random,
    states: Vec<Tree>,
    /// What is said of repositories.
    git: Option<GitChoice>,
}

impl Trial {
    /// Two to four turns with a person's work between, unless the agents are alone.
    fn play_turns(&mut self, alone: bool) -> Result {
        for number in 1..=self.dice.between(2, 4) {
            if self.dice.chance(50) && !alone {
                self.world.work(&mut self.work, 2);
            }
            let session = if self.dice.chance(70) { "A" } else { "B" };
            self.play_turn(&format!("k{number}"), session)?;
            if self.dice.chance(20) {
                self.world.reopen()?;
            }
        }
        Ok(())
    }

    fn play_turn(&mut self, key: &str, session: &str) -> Result {
        self.world.turn_start(key, session)?;
        if self.states.is_empty() {
            self.states.push(self.world.describe());
        }
        for _ in 0..self.dice.between(1, 3) {
            if self.dice.chance(30)
                && let Some(path) = self.work.any_path()
            {
                self.world.name_path(&path, session, key)?;
            }
            let count = self.dice.between(1, 4);
            self.world.work(&mut self.work, count);
            if self.dice.chance(60) {
                self.world.settle()?;
            }
        }
        self.world.turn_end(key, session)?;
        self.states.push(self.world.describe());
        Ok(())
    }

    fn request(&self, turn: usize) -> RewindRequest {
        let target = if turn == 0 { "start".to_owned() } else { format!("turn:{turn}") };
        RewindRequest { git: self.git, ..rewind_to(&target, true) }
    }

    fn redo(&mut self) -> Result {
        let request = RewindRequest { git: self.git, ..RewindRequest::new(RewindKind::Redo) };
        self.world.rewind_whole(&request).map(drop)
    }

    fn there_and_back(&mut self) -> Result {
        let (last, turn) = (self.world.describe(), self.dice.below(self.states.len()));
        let request = self.request(turn);
        self.world.tell(format!("plan only: {}", tell_rewind(&request)));
        let planned = self.world.inner().plan(&request).map(drop);
        planned.map_err(|error| self.world.broken("plan", &error))?;
        self.world.expect(&last, "a plan changed something")?;
        let done = self.world.rewind_whole(&request)?;
        self.world.expect(&self.states[turn], "after the rewind")?;
        self.world.expect_sound(&self.states[turn], "after the rewind")?;
        if self.dice.chance(20) {
            self.world.reopen()?;
        }
        if done.recorded {
            self.redo()?;
        }
        self.world.expect(&last, "after the redo")?;
        self.world.expect_sound(&last, "after the redo")
    }

    /// Only one name at the top goes back; everything beside it stays.
    fn part_there_and_back(&mut self) -> Result {
        let (last, turn) = (self.world.describe(), self.dice.below(self.states.len()));
        let then = &self.states[turn];
        let tops = then.nodes.keys().chain(last.nodes.keys()).filter(|path| !path.contains(&b'/'));
        let tops: Vec<_> = tops.cloned().collect();
        let Some(top) = self.dice.pick_any(&tops) else {
            return Ok(());
        };
        let path = WorkspacePath::new(top.clone()).expect("BUG: a listed path is plain");
        let request = RewindRequest { paths: vec![path], ..self.request(turn) };
        let done = self.world.rewind_whole(&request)?;
        let got = self.world.describe();
        self.world.expect_same(&then.part(top), &got.part(top), "the chosen part")?;
        self.world.expect_same(&last.without(top), &got.without(top), "beside the chosen part")?;
        if done.recorded {
            self.redo()?;
        }
        self.world.expect(&last, "after the redo of a part")
    }

    fn unrecorded_work_comes_back(&mut self) -> Result {
        self.world.work(&mut self.work, 3);
        let now = self.world.describe();
        let done = self.world.rewind_whole(&self.request(0))?;
        self.world.expect(&self.states[0], "rewind over unrecorded work")?;
        if done.recorded {
            self.redo()?;
        }
        self.world.expect(&now, "redo brings unrecorded work back")
    }
}

/// A filter that is accepted and later lifted: what it hid is never touched by a rewind to then.
pub fn filters(case: Case) -> Result {
    let mut dice = Dice::new(case.seed);
    let mut world = World::new(case);
    let (seen, hidden) = (world.top().join("seen"), world.top().join("hidden"));
    for (path, rule) in [(&seen, ""), (&hidden, "hidden/\n")] {
        fs::create_dir(path).expect("a directory can be made");
        fs::write(world.top().join(".chronicleignore"), rule).expect("a filter can be written");
    }
    let menu = Menu { filters: false, ..Menu::ALL };
    let mut work = Random::new(&seen, dice.roll(), menu);
    let mut behind = Random::new(&hidden, dice.roll(), menu);
    world.work(&mut work, 8);
    world.init()?;
    world.tell("accept hidden/");
    world.inner().accept_config().map_err(|error| world.broken("accept", &error))?;
    let (mut states, lifted) = (Vec::new(), dice.between(1, 3));
    for number in 1..=4 {
        let key = format!("k{number}");
        world.turn_start(&key, "A")?;
        world.work(&mut work, 4);
        if number <= lifted {
            world.work(&mut behind, 4);
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
    world.rewind_done(&rewind_to(&format!("turn:{turn}"), true))?;
    let (got, want) = (world.describe(), &states[turn - 1]);
    world.expect_same(&want.part(b"seen"), &got.part(b"seen"), "what was seen goes back")?;
    if turn < lifted {
        let (want, got) = (before.part(b"hidden"), got.part(b"hidden"));
        world.expect_same(&want, &got, "what was hidden then stays")?;
    }
    world.verify()
}
