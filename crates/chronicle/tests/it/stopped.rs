//! A process is stopped in the middle of its work, others go on beside it, and it is let go or killed.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::retention::with_days;
use crate::scenes::{add_more, fill, world, wreck};
use crate::support::{Cli, done};
use chronicle_testing::env::Env;

/// Where a capture has taken content in that no record names yet.
const IN_MID_CAPTURE: [&str; 6] = [
    "store_after_object_rename",
    "store_after_pack_data",
    "store_after_pack_rename",
    "store_after_index_rename",
    "capture_before_commit",
    "catalog_before_commit",
];

/// A process that stopped itself at a failpoint; killed if the test fails.
pub(crate) struct Stopped(Option<Child>);

impl Stopped {
    /// Starts a command and waits until it has stopped.
    pub(crate) fn at(point: &str, mut command: Command) -> Self {
        command.env("CHRONICLE_FAILPOINT", format!("stop:{point}"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stopped = Self(Some(child));
        let deadline = Instant::now() + Duration::from_secs(60);
        while stopped.state() != 'T' {
            assert!(stopped.state() != 'Z' && Instant::now() < deadline, "{point} is not passed");
            std::thread::sleep(Duration::from_millis(5));
        }
        stopped
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    /// The letter that the kernel gives for what the process does.
    fn state(&self) -> char {
        let stat = format!("/proc/{}/stat", self.pid().as_raw_pid());
        let text = fs::read_to_string(stat).unwrap();
        text.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    /// Lets it go on, and waits for its end.
    pub(crate) fn go_on(mut self) -> Output {
        kill_process(self.pid(), Signal::CONT).unwrap();
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(env: &Env, words: &[&str]) -> Command {
    let mut command = env.command();
    command.args(words);
    command
}

/// A workspace with much that is not recorded yet.
fn edited() -> Env {
    let env = world();
    fill(&env);
    env.ok(&["init"]);
    wreck(&env);
    add_more(&env);
    env
}

#[test]
fn a_stopped_holder_keeps_the_lock_and_a_killed_one_frees_it() {
    let env = edited();
    let holder = Stopped::at("capture_before_commit", command(&env, &["settle"]));
    let begun = Instant::now();
    let refused = env.run(&["--json", "settle"]).code(11);
    assert!(refused.stderr().contains("\"busy\""), "{}", refused.story());
    assert!(begun.elapsed() < Duration::from_secs(30), "it waits without end");
    assert_eq!(holder.state(), 'T', "nothing wakes it");
    // Who only reads waits for nobody.
    env.ok(&["log"]);
    env.ok(&["verify", "--deep"]);
    drop(holder);
    let begun = Instant::now();
    env.ok(&["settle"]);
    assert!(begun.elapsed() < Duration::from_secs(8), "a dead holder is waited for");
    env.ok(&["verify", "--deep"]);
}

#[test]
fn who_waits_for_a_stopped_holder_goes_on_with_it() {
    let env = edited();
    let holder = Stopped::at("capture_before_commit", command(&env, &["settle"]));
    let words: [&[&str]; 3] =
        [&["settle"], &["prune"], &["snapshot", "--action", "write_file", "--path", "f1"]];
    let start = |words: &&[&str]| {
        let mut command = command(&env, words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut waiting: Vec<Child> = words.iter().map(start).collect();
    std::thread::sleep(Duration::from_secs(1));
    for child in &mut waiting {
        assert!(child.try_wait().unwrap().is_none(), "somebody went past the lock");
    }
    assert!(holder.go_on().status.success());
    for child in waiting {
        done(child.wait_with_output().unwrap()).ok();
    }
    env.ok(&["verify", "--deep"]);
}

#[test]
fn garbage_collection_beside_a_stopped_capture_takes_nothing_that_it_needs() {
    for point in IN_MID_CAPTURE {
        let env = edited();
        let holder = Stopped::at(point, command(&env, &["settle"]));
        // Something that nothing needs, so that there is something to take away.
        let stray = env.home().join("store/objects/00");
        fs::create_dir_all(&stray).unwrap();
        let stray = stray.join(format!("{:064}", 0));
        fs::write(&stray, [0; 9]).unwrap();
        let mut collector = command(&env, &["gc"]);
        let collector = collector.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        assert!(stray.exists(), "{point}: it does not wait for the capture");
        assert!(holder.go_on().status.success(), "{point}");
        done(collector.wait_with_output().unwrap()).ok();
        assert!(!stray.exists(), "{point}: nothing was collected");
        env.ok(&["verify", "--deep"]);
        must_come_back(&env, point);
        env.ok(&["gc"]);
        env.ok(&["verify", "--deep"]);
    }
}

/// Everything that was captured is still there.
fn must_come_back(env: &Env, point: &str) {
    let present = chronicle_testing::tree::describe(&env.workspace());
    fs::remove_dir_all(env.path("more")).unwrap();
    fs::remove_file(env.path("large")).unwrap();
    env.ok(&["settle"]);
    env.ok(&["undo", "--yes", &last_snapshot(env)]);
    let now = chronicle_testing::tree::describe(&env.workspace());
    chronicle_testing::tree::assert_same(&present, &now, point);
}

fn last_snapshot(env: &Env) -> String {
    let log = env.ok(&["log", "--json", "--limit", "1"]);
    let newest: serde_json::Value = serde_json::from_str(log.trim()).unwrap();
    newest["id"].as_str().unwrap().to_owned()
}

/// Two workspaces share a store: one is captured, the other is pruned beside it.
#[test]
fn a_prune_beside_a_stopped_capture_of_another_workspace_leaves_both_whole() {
    let cli = with_days(50);
    let other = cli.root().with_file_name("other");
    fs::create_dir(&other).unwrap();
    let there = |words: &[&str]| {
        let mut command = cli.command(words);
        command.current_dir(&other);
        command
    };
    done(there(&["init"]).output().unwrap()).ok();
    for number in 0..100 {
        fs::write(other.join(format!("new{number}")), format!("{number}\n").repeat(30)).unwrap();
    }
    // The same content as in what the prune lets go: it must not go.
    let old = old_content(&cli);
    fs::write(other.join("old"), old).unwrap();
    let holder = Stopped::at("capture_before_commit", there(&["settle"]));
    let mut pruner = cli.command(["prune"]);
    let pruner = pruner.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(holder.go_on().status.success());
    done(pruner.wait_with_output().unwrap()).ok();
    done(there(&["verify", "--deep"]).output().unwrap()).ok();
    cli.call(["verify", "--deep"]).ok();
    cli.call(["gc"]).ok();
    done(there(&["verify", "--deep"]).output().unwrap()).ok();
}

/// What the oldest turn wrote.
fn old_content(cli: &Cli) -> String {
    let read = cli.call(["cat", "daily", "--at", "turn:2"]).ok();
    read.stdout
}
