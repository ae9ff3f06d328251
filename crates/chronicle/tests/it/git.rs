//! Git beside agents' hooks: what an agent did to a repository goes back with its turn, what a person did
//! to it stays.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::hooks::{Talk, check_author};
use crate::support::Cli;

/// Runs git in a directory of the workspace.
#[track_caller]
fn git_in(cli: &Cli, directory: impl AsRef<Path>, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=me", "-c", "user.email=me@example.org"])
        .args(["-c", "init.defaultBranch=main", "-c", "advice.detachedHead=false"])
        .args(words)
        .current_dir(cli.root().join(directory))
        .env("HOME", cli.root())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is there");
    assert!(output.status.success(), "git {words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[track_caller]
fn git(cli: &Cli, words: &[&str]) -> String {
    git_in(cli, "", words)
}

/// What git says of a repository: where HEAD is, the branches, what is changed.
fn state(cli: &Cli) -> [String; 3] {
    [
        git(cli, &["symbolic-ref", "-q", "HEAD"]),
        git(cli, &["for-each-ref", "refs/heads"]),
        git(cli, &["status", "--porcelain"]),
    ]
}

/// A repository with two branches that have grown apart, on the one called `feature`.
fn forked() -> Cli {
    let cli = Cli::new();
    cli.write("a", "1\n");
    git(&cli, &["init", "-q"]);
    git(&cli, &["add", "-A"]);
    git(&cli, &["commit", "-qm", "first"]);
    git(&cli, &["checkout", "-qb", "feature"]);
    for name in ["one", "two"] {
        cli.write(name, "feature\n");
        git(&cli, &["add", "-A"]);
        git(&cli, &["commit", "-qm", name]);
    }
    git(&cli, &["checkout", "-q", "main"]);
    cli.write("a", "main\n");
    git(&cli, &["commit", "-qam", "on main"]);
    git(&cli, &["checkout", "-q", "feature"]);
    cli
}

#[test]
fn git_inside_a_call_goes_back_and_a_persons_between_turns_stays() {
    let cli = Cli::new();
    cli.write("a", "1\n");
    cli.write("b", "1\n");
    git(&cli, &["init", "-q"]);
    git(&cli, &["add", "-A"]);
    git(&cli, &["commit", "-qm", "first"]);
    cli.call(["init"]).ok();
    let head = git(&cli, &["rev-parse", "HEAD"]);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "a", "2\n");
    talk.stop();
    // The person puts everything away and takes it out again, with work of their own.
    cli.write("b", "mine\n");
    git(&cli, &["stash", "-q"]);
    talk.prompt("k2");
    talk.stop();
    git(&cli, &["stash", "pop", "-q"]);
    talk.prompt("k3");
    talk.shell("c2", || {
        git(&cli, &["checkout", "-qb", "feature"]);
        git(&cli, &["commit", "-qam", "everything"]);
        git(&cli, &["reset", "-q", "--hard", "HEAD~1"]);
    });
    talk.stop();
    assert_eq!(cli.read("b").as_deref(), Some("1\n"), "the agent's reset took it");
    // The person's stash touched the same paths a moment ago, so only the person can say whose it is.
    cli.call(["undo", "turn:3", "--yes"]).exits(4);
    cli.call(["undo", "turn:3", "--shared", "take", "--yes"]).ok();
    assert_eq!(git(&cli, &["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(git(&cli, &["rev-parse", "HEAD"]), head);
    let read = |name: &str| cli.read(name).expect("it is back");
    assert_eq!((&read("a")[..], &read("b")[..]), ("2\n", "mine\n"));
    // What came back by the stash has its author again, so that it goes with its session's work.
    cli.call(["rewind", "before:turn:1", "--git", "keep", "--yes"]).ok();
    assert_eq!((&read("a")[..], &read("b")[..]), ("1\n", "mine\n"));
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn a_rebase_by_the_agent_goes_back_and_its_commits_are_named() {
    let cli = forked();
    cli.write("mine", "not committed\n");
    cli.call(["init"]).ok();
    let before = state(&cli);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("c1", || drop(git(&cli, &["rebase", "-q", "main"])));
    talk.stop();
    let after = state(&cli);
    let new = git(&cli, &["rev-parse", "HEAD"]);
    assert_eq!(cli.read("a").as_deref(), Some("main\n"));
    let plan = cli.call(["undo", "turn:1", "--dry-run", "--json"]).ok().json();
    let words = plan["git"].to_string();
    assert!(words.contains(&format!("commit {} leaves feature", &new[..10])), "{plan:#}");
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(state(&cli), before);
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(state(&cli), after);
    git(&cli, &["fsck", "--strict"]);
}

/// A rebase that stops leaves its notes in the repository; they go back with it.
#[test]
fn a_rebase_that_the_agent_left_in_the_middle_goes_back() {
    let cli = forked();
    cli.write("a", "feature\n");
    git(&cli, &["commit", "-qam", "conflicts"]);
    cli.call(["init"]).ok();
    let before = state(&cli);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("c1", || {
        let script = "git -c user.name=me -c user.email=me@example.org rebase -q main";
        let ran = Command::new("sh").args(["-c", script]).current_dir(cli.root()).output();
        assert!(!ran.expect("sh is there").status.success(), "it must stop");
    });
    talk.stop();
    assert!(cli.root().join(".git/rebase-merge").exists());
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(state(&cli), before);
    assert!(!cli.root().join(".git/rebase-merge").exists(), "git would think that it goes on");
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn a_rebase_by_a_person_between_turns_stays() {
    let cli = forked();
    cli.call(["init"]).ok();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "three", "agent\n");
    talk.shell("c2", || {
        git(&cli, &["add", "-A"]);
        git(&cli, &["commit", "-qm", "by the agent"]);
    });
    talk.stop();
    git(&cli, &["rebase", "-q", "main"]);
    talk.prompt("k2");
    talk.edit("c3", "two", "agent\n");
    talk.stop();
    let rebased = state(&cli);
    // The agent's commit and the person's rebase are one value, so only the person can say.
    for words in [["rewind", "before:turn:1"], ["undo", "turn:1"]] {
        let asked = cli.call([&words[..], &["--yes", "--json"]].concat()).exits(3);
        assert!(asked.error()["message"].to_string().contains(".git"), "{}", asked.stderr);
    }
    assert_eq!(state(&cli), rebased, "nothing happened");
    cli.call(["rewind", "before:turn:1", "--git", "keep", "--yes"]).ok();
    assert_eq!(state(&cli)[..2], rebased[..2]);
    assert_eq!((cli.read("three"), cli.read("two").as_deref()), (None, Some("feature\n")));
    assert_eq!(cli.read("a").as_deref(), Some("main\n"), "what the rebase brought stays");
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn on_another_branch_a_rewind_asks_first() {
    let cli = forked();
    cli.call(["init"]).ok();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "new", "agent\n");
    talk.stop();
    git(&cli, &["checkout", "-q", "main"]);
    let asked = cli.call(["rewind", "before:turn:1", "--yes", "--json"]).exits(3);
    assert_eq!(asked.error()["code"], "repository_moved", "{}", asked.stderr);
    assert_eq!(cli.read("new").as_deref(), Some("agent\n"), "nothing happened");
    cli.call(["rewind", "before:turn:1", "--git", "keep", "--yes"]).ok();
    assert_eq!((cli.read("new"), cli.read("a").as_deref()), (None, Some("main\n")));
    assert_eq!(state(&cli)[0], "refs/heads/main");
    // To take back the turn and nothing else it does not matter where the person is now.
    cli.call(["redo", "--yes"]).ok();
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!((cli.read("new"), cli.read("a").as_deref()), (None, Some("main\n")));
}

/// A repository on `main`, one commit behind its remote.
fn behind_its_remote() -> Cli {
    let cli = forked();
    let remote = cli.root().with_file_name("remote.git");
    let remote = remote.to_str().expect("text");
    git(&cli, &["checkout", "-q", "main"]);
    git(&cli, &["clone", "-q", "--bare", ".", remote]);
    git(&cli, &["remote", "add", "origin", remote]);
    git(&cli, &["fetch", "-q"]);
    git(&cli, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&cli, &["branch", "-q", "-u", "origin/main"]);
    cli.write("mine", "not committed\n");
    cli.call(["init"]).ok();
    cli
}

#[test]
fn a_pull_by_the_agent_is_one_snapshot_and_goes_back() {
    let cli = behind_its_remote();
    let before = state(&cli);
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("c1", || drop(git(&cli, &["pull", "-q", "--ff-only"])));
    talk.stop();
    assert_eq!(cli.read("a").as_deref(), Some("main\n"));
    let log = cli.call(["log", "--json", "--turn", "1"]).ok().json_lines();
    assert_eq!(log.len(), 1, "{log:#?}");
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(state(&cli), before);
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn a_pull_by_a_person_between_turns_stays() {
    let cli = behind_its_remote();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "one", "agent\n");
    talk.stop();
    git(&cli, &["pull", "-q", "--ff-only"]);
    talk.prompt("k2");
    talk.edit("c2", "a", "main and agent\n");
    talk.stop();
    let pulled = state(&cli);
    let clean = |state: &[String; 3]| state[..2].to_vec();
    cli.call(["rewind", "before:turn:1", "--yes"]).ok();
    assert_eq!(clean(&state(&cli)), clean(&pulled));
    assert_eq!(state(&cli)[2], "?? mine", "as if the agent had never been there");
    assert_eq!((cli.read("a").as_deref(), cli.read("one")), (Some("main\n"), None));
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn undo_of_a_turn_follows_what_a_stash_brought_back() {
    let cli = forked();
    cli.write("one", "1\n2\n3\n4\n5\n");
    cli.write("mine", "0\n");
    git(&cli, &["add", "-A"]);
    git(&cli, &["commit", "-qm", "long"]);
    cli.call(["init"]).ok();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "one", "first\n2\n3\n4\n5\n");
    talk.edit("c2", "a", "first\n");
    talk.stop();
    talk.prompt("k2");
    talk.edit("c3", "one", "first\n2\n3\n4\nsecond\n");
    talk.stop();
    cli.write("mine", "person\n");
    let read = |name: &str| cli.read(name).unwrap_or_default();
    let there = || (read("one"), read("a"), read("mine"));
    let all = there();
    for _ in 0..2 {
        git(&cli, &["stash", "-q"]);
        cli.call(["settle"]).ok();
        assert_eq!(read("a"), "1\n");
        git(&cli, &["stash", "pop", "-q"]);
        cli.call(["settle"]).ok();
        assert_eq!(there(), all);
    }
    check_author(&cli, "a", "s", "returned");
    // The first turn alone goes, though what came back last is the second turn's file.
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(there(), ("1\n2\n3\n4\nsecond\n".into(), "1\n".into(), "person\n".into()));
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(there(), all);
    cli.call(["undo", "turn:2", "--yes"]).ok();
    assert_eq!(read("one"), "first\n2\n3\n4\n5\n");
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(there(), ("1\n2\n3\n4\n5\n".into(), "1\n".into(), "person\n".into()));
    cli.call(["undo"]).exits(3);
    cli.call(["redo", "--yes"]).ok();
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(there(), all);
    // One action alone.
    let log = cli.call(["log", "--json", "--path", "a"]).ok().json_lines();
    let edit = log.iter().find(|one| one["call_id"] == "c2").expect("the edit");
    cli.call(["undo", edit["id"].as_str().expect("an id"), "--yes"]).ok();
    assert_eq!(there(), (all.0, "1\n".into(), all.2));
}

/// A turn was taken back while its work lay in a stash: what the pop brings is still that turn's.
#[test]
fn what_lay_in_a_stash_during_a_rewind_can_still_be_undone() {
    let cli = forked();
    cli.call(["init"]).ok();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "a", "agent\n");
    talk.stop();
    git(&cli, &["stash", "-q"]);
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));
    git(&cli, &["stash", "pop", "-q"]);
    assert_eq!(cli.read("a").as_deref(), Some("agent\n"));
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(cli.read("a").as_deref(), Some("1\n"));
}

#[test]
fn a_stash_across_turns_keeps_every_author() {
    let cli = forked();
    cli.call(["init"]).ok();
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.edit("c1", "one", "agent\n");
    talk.stop();
    cli.write("two", "person\n");
    cli.call(["settle"]).ok();
    // Away before the second turn, and back by the agent itself in the third.
    git(&cli, &["stash", "-q"]);
    talk.prompt("k2");
    talk.edit("c2", "new", "agent\n");
    talk.stop();
    check_author(&cli, "one", "person", "outside");
    talk.prompt("k3");
    talk.shell("c3", || drop(git(&cli, &["stash", "pop", "-q"])));
    talk.stop();
    let read = |name: &str| cli.read(name);
    assert_eq!(
        (read("one").as_deref(), read("two").as_deref()),
        (Some("agent\n"), Some("person\n"))
    );
    // The person's stash is a minute old, so the paths could be theirs.
    cli.call(["undo", "turn:3", "--shared", "take", "--yes"]).ok();
    assert_eq!(
        (read("one").as_deref(), read("two").as_deref()),
        (Some("feature\n"), Some("feature\n"))
    );
    assert_eq!(git(&cli, &["stash", "list"]).lines().count(), 1, "the stash is there again");
    assert_eq!(read("new").as_deref(), Some("agent\n"), "another turn's");
    git(&cli, &["stash", "pop", "-q"]);
    assert_eq!(
        (read("one").as_deref(), read("two").as_deref()),
        (Some("agent\n"), Some("person\n"))
    );
}

/// The same conversation, but its agent works in another directory.
fn said_in(talk: &Talk<'_>, directory: &Path, event: &str, mut fields: Value) {
    fields["cwd"] = json!(directory);
    let said = talk.send(event, fields).ok();
    assert_eq!((&said.stdout[..], &said.stderr[..]), ("", ""), "{event}");
}

/// A whole turn of one edit in another directory.
fn turn_in(talk: &Talk<'_>, directory: &Path, key: &str, path: &str, content: &str) {
    let prompt = json!({"prompt": key, "prompt_id": key});
    said_in(talk, directory, "UserPromptSubmit", prompt);
    let call = json!({
        "tool_name": "Edit", "tool_use_id": key, "tool_input": {"file_path": directory.join(path)},
    });
    said_in(talk, directory, "PreToolUse", call.clone());
    std::fs::write(directory.join(path), content).expect("edit");
    said_in(talk, directory, "PostToolUse", call);
    said_in(talk, directory, "PostToolBatch", json!({"tool_calls": []}));
    said_in(talk, directory, "Stop", json!({}));
}

fn at(directory: &Path, words: &[&str]) -> Vec<String> {
    let place = ["-C".to_owned(), directory.to_str().expect("text").to_owned()];
    place.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

#[test]
fn a_linked_worktree_inside_is_a_workspace_of_its_own() {
    let cli = forked();
    cli.call(["init"]).ok();
    let inner = cli.root().join("trees/side");
    let talk = Talk::new(&cli, "claude-code", "outer");
    talk.prompt("k1");
    talk.edit("c1", "one", "outer agent\n");
    talk.shell("c2", || drop(git(&cli, &["worktree", "add", "-q", "-b", "side", "trees/side"])));
    talk.stop();
    // Until somebody works in it, it is protected with everything else.
    check_author(&cli, "trees/side/a", "outer", "window");
    let status = cli.call(at(&inner, &["status"]));
    assert_ne!(status.status, 0, "{}", status.stdout);
    let other = Talk::new(&cli, "claude-code", "inner");
    turn_in(&other, &inner, "k2", "a", "inner agent\n");
    let status = cli.call(at(&inner, &["status", "--json"])).ok().json();
    assert_eq!(status["workspace"], json!(inner), "{status:#}");
    // What happens in the one is no news to the other.
    let outer = cli.call(["settle", "--json"]).ok().stdout + &cli.call(["log"]).ok().stdout;
    assert!(!outer.contains("inner agent") && !outer.contains("k2"), "{outer}");
    cli.call(at(&inner, &["undo", "--yes"])).ok();
    assert_eq!(cli.read("trees/side/a").as_deref(), Some("1\n"));
    cli.call(at(&inner, &["redo", "--yes"])).ok();
    // The turn that made the worktree goes back without touching what was done in it.
    for words in [&["undo", "turn:1", "--yes"][..], &["rewind", "start", "--exact", "--yes"]] {
        cli.call(words).ok();
        assert_eq!(cli.read("one").as_deref(), Some("feature\n"));
        assert_eq!(cli.read("trees/side/a").as_deref(), Some("inner agent\n"));
        cli.call(["redo", "--yes"]).ok();
        assert_eq!(cli.read("one").as_deref(), Some("outer agent\n"));
    }
    cli.call(at(&inner, &["verify"])).ok();
    cli.call(["verify"]).ok();
    git(&cli, &["fsck", "--strict"]);
}

#[test]
fn a_worktree_that_nobody_adopted_goes_and_comes_with_its_turn() {
    let cli = forked();
    git(&cli, &["worktree", "add", "-q", "-b", "old", "trees/old"]);
    cli.write("trees/old/one", "not committed\n");
    git_in(&cli, "trees/old", &["add", "one"]);
    cli.call(["init"]).ok();
    let before = (state(&cli), git_in(&cli, "trees/old", &["status", "--porcelain"]));
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("c1", || {
        git(&cli, &["worktree", "add", "-q", "-b", "new", "trees/new"]);
        git(&cli, &["worktree", "remove", "--force", "trees/old"]);
        git(&cli, &["branch", "-q", "-D", "old"]);
    });
    talk.stop();
    cli.call(["undo", "--yes"]).ok();
    assert!(!cli.root().join("trees/new").exists());
    let now = (state(&cli), git_in(&cli, "trees/old", &["status", "--porcelain"]));
    assert_eq!(now, before);
    assert_eq!(git_in(&cli, "trees/old", &["symbolic-ref", "HEAD"]), "refs/heads/old");
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(git_in(&cli, "trees/new", &["status", "--porcelain"]), "");
    assert_eq!(git_in(&cli, "trees/new", &["symbolic-ref", "HEAD"]), "refs/heads/new");
    assert!(!cli.root().join("trees/old").exists());
}

#[test]
fn a_worktree_beside_stays_when_the_turn_that_made_it_goes_back() {
    let cli = forked();
    cli.call(["init"]).ok();
    let before = state(&cli);
    let beside = cli.root().with_file_name("beside");
    let name = beside.to_str().expect("text");
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("c1", || drop(git(&cli, &["worktree", "add", "-q", "-b", "side", name])));
    talk.stop();
    let other = Talk::new(&cli, "claude-code", "t");
    turn_in(&other, &beside, "k2", "a", "beside\n");
    cli.call(["undo", "turn:1", "--yes"]).ok();
    assert_eq!(state(&cli), before, "its branch goes, as it came");
    assert_eq!(std::fs::read_to_string(beside.join("a")).expect("its files stay"), "beside\n");
    cli.call(["redo", "--yes"]).ok();
    assert_eq!(git_in(&cli, &beside, &["status", "--porcelain"]), "M a");
    cli.call(at(&beside, &["undo", "--yes"])).ok();
    assert_eq!(git_in(&cli, &beside, &["status", "--porcelain"]), "");
}
