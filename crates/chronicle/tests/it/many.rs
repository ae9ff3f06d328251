//! Thirty-two processes append, another takes back, another prunes, another collects garbage, and any
//! of them is killed at any time: nothing is lost that was acknowledged.
//!
//! Each process is this test binary, run anew with a role. `CHRONICLE_MANY_ROUNDS` is how many snapshots
//! each worker appends, at least 200, `CHRONICLE_MANY_SEEDS` how often the whole is done.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

mod checks;
mod roles;

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_core::KeySource;
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::setting;

use checks::Left;
use roles::{Place, Role};

const WORKERS: usize = 32;
/// How long nobody is killed, in milliseconds: at least, and at most.
const PEACE: (usize, usize) = (5, 500);
/// A deadlock must not look like work.
const LONGEST: Duration = Duration::from_secs(900);
const TEST: &str = "many::nothing_acknowledged_is_lost_however_many_are_killed";
const ROLE: &str = "CHRONICLE_MANY_ROLE";
/// The secret with which all of them sign.
const SECRET: &str = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=";

/// What is done to the store that was left behind, one after the other.
const AFTERWARDS: &[fn(&Left)] =
    &[Left::is_sound, Left::goes_back, Left::is_pruned, Left::is_healed];

#[test]
fn nothing_acknowledged_is_lost_however_many_are_killed() {
    if let Ok(role) = std::env::var(ROLE) {
        return Role::parse(&role).play(&Place::from_env());
    }
    let rounds = usize::try_from(setting("CHRONICLE_MANY_ROUNDS", 200)).unwrap();
    for seed in 0..setting("CHRONICLE_MANY_SEEDS", 1) {
        let left = Left::new(seed);
        Crowd::new(&left, seed, rounds).work();
        AFTERWARDS.iter().for_each(|step| step(&left));
    }
}

/// The processes at work on one workspace.
struct Crowd<'l> {
    place: &'l Place,
    dice: Dice,
    rounds: usize,
    /// The processes, in the order of their roles.
    children: Vec<(Role, Option<Child>)>,
    killed: usize,
}

impl<'l> Crowd<'l> {
    fn new(left: &'l Left, seed: u64, rounds: usize) -> Self {
        let children = Role::all(WORKERS).into_iter().map(|role| (role, None)).collect();
        Self { place: &left.place, dice: Dice::new(seed), rounds, children, killed: 0 }
    }

    /// Lets everybody work, and kills at random, until every worker has appended what it should.
    fn work(mut self) {
        let begun = Instant::now();
        for at in 0..self.children.len() {
            self.start(at);
        }
        while !self.is_done() {
            assert!(begun.elapsed() < LONGEST, "nobody gets on: a deadlock");
            std::thread::sleep(Duration::from_millis(self.dice.between(PEACE.0, PEACE.1) as u64));
            self.start_again();
            self.kill_one();
        }
        fs::write(self.place.notes.join("stop"), "").unwrap();
        for at in 0..self.children.len() {
            self.wait(at);
        }
        assert!(self.killed > 0, "nobody was killed");
    }

    fn is_done(&self) -> bool {
        let workers = self.children.iter().filter(|(role, _)| matches!(role, Role::Worker(_)));
        let appended = workers.map(|(role, _)| self.place.acknowledged(*role).len());
        appended.into_iter().all(|count| count >= self.rounds)
    }

    fn start(&mut self, at: usize) {
        let (role, child) = &mut self.children[at];
        let errors = self.place.notes.join(format!("{role}.stderr"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(ROLE, role.to_string());
        command.envs(self.place.variables()).env("CHRONICLE_MANY_ROUNDS", self.rounds.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(errors).unwrap());
        *child = Some(command.spawn().unwrap());
    }

    /// Starts those that were killed, and workers that ended while the others still work: they would
    /// have nothing left to do but to be killed.
    fn start_again(&mut self) {
        for at in 0..self.children.len() {
            let (role, child) = &mut self.children[at];
            let Some(status) = child.as_mut().unwrap().try_wait().unwrap() else { continue };
            let role = *role;
            assert!(status.success() || was_killed(status), "{}", self.place.story(role, status));
            if !status.success() || !matches!(role, Role::Worker(_)) {
                self.start(at);
            }
        }
    }

    /// Kills one of them, if it still runs: those that work longer are not killed more often.
    fn kill_one(&mut self) {
        let at = self.dice.below(self.children.len());
        let child = self.children[at].1.as_mut().unwrap();
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            self.killed += 1;
        }
    }

    /// Waits for one that was told to stop.
    fn wait(&mut self, at: usize) {
        let (role, child) = &mut self.children[at];
        let status = child.as_mut().unwrap().wait().unwrap();
        let role = *role;
        assert!(status.success() || was_killed(status), "{}", self.place.story(role, status));
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        for child in self.children.iter_mut().filter_map(|(_, child)| child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn was_killed(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

fn key() -> KeySource {
    KeySource::Secret(SECRET.to_owned())
}
