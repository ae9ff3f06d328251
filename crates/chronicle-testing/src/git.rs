//! Random work with real git, and what git says of a repository.
//!
//! Every command runs away from anybody's settings and at a time that never changes, so that the
//! same work makes the same commits.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

use crate::dice::Dice;

/// Whether there is a git to work with.
pub fn is_there() -> bool {
    Command::new("git").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether a directory is the top of a repository.
pub fn is_repository(directory: &Path) -> bool {
    directory.join(".git").is_dir()
}

/// Makes a repository of a directory.
pub fn init(directory: &Path) -> io::Result<()> {
    run(directory, &["init", "-q", "-b", "main"]).and_then(succeeded)
}

/// One thing that people and agents do with a repository, told in words.
pub fn step(directory: &Path, dice: &mut Dice) -> io::Result<String> {
    let branch = format!("branch{}", dice.below(4));
    let message = format!("commit {}", dice.below(1000));
    let commands: &[&[&str]] = match dice.below(15) {
        0..=4 => &[&["add", "-A"], &["commit", "-q", "--allow-empty", "-m", &message]],
        5 => &[&["add", "-A"]],
        6 => &[&["checkout", "-q", "-b", &branch]],
        7 => &[&["checkout", "-q", "-f", &branch]],
        8 => &[&["reset", "-q", "--hard"]],
        9 => &[&["reset", "-q", "--hard", "HEAD~1"]],
        10 => &[&["stash", "push", "-q"]],
        11 => &[&["stash", "pop", "-q"]],
        12 => &[&["stash", "push", "-q"], &["stash", "pop", "-q"]],
        13 => &[&["checkout", "-q", "--detach"]],
        _ => &[&["gc", "-q", "--prune=now"]],
    };
    for command in commands {
        run(directory, command).and_then(succeeded)?;
    }
    Ok(commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && git "))
}

/// What git says of a repository: its state, HEAD, branches and stash.
pub fn facts(directory: &Path) -> String {
    let questions: [&[&str]; 5] = [
        // The branch is what `git symbolic-ref HEAD` says, also where it has no commit yet.
        &["status", "--porcelain", "--branch"],
        &["rev-parse", "HEAD"],
        &["stash", "list"],
        &["for-each-ref"],
        &["ls-files", "--stage"],
    ];
    let mut facts = String::new();
    for words in questions {
        let output = run(directory, words).expect("git was there before");
        let said = String::from_utf8_lossy(&output.stdout);
        facts.push_str(&format!("{}: {}; ", words[0], said.trim_end().replace('\n', ", ")));
    }
    facts
}

/// What is broken in a repository.
pub fn trouble(directory: &Path) -> Option<String> {
    let output = run(directory, &["fsck", "--no-dangling"]).expect("git was there before");
    let said = succeeded(output).err()?.to_string();
    // Git knows the empty tree without having it, and misses it all the same.
    let empty = |line: &&str| line.starts_with("notice: ") || line.ends_with(EMPTY_TREE);
    let real: Vec<_> = said.lines().filter(|line| !empty(line)).collect();
    (!real.is_empty()).then(|| real.join(", "))
}

/// The name of the tree with nothing in it.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Runs git in a repository, away from anybody's settings.
pub fn run(directory: &Path, words: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("git");
    command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]).args(words);
    command.current_dir(directory).env_clear().env("HOME", directory);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    // A question must not write, and nobody's repository above may answer it.
    command.env("GIT_OPTIONAL_LOCKS", "0");
    if words[0] != "init" {
        command.env("GIT_DIR", ".git");
    }
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "A").env(format!("GIT_{who}_EMAIL"), "a@b.c");
        command.env(format!("GIT_{who}_DATE"), "2020-01-01T00:00:00Z");
    }
    command.output()
}

fn succeeded(output: Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = [&output.stdout[..], &output.stderr].concat();
    Err(io::Error::other(String::from_utf8_lossy(&said).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_happens_and_leaves_a_sound_repository() {
        if !is_there() {
            crate::shared::skip("git::every_step_happens", "needs git");
            return;
        }
        let holder = tempfile::tempdir().unwrap();
        init(holder.path()).unwrap();
        let (mut dice, mut told) = (Dice::new(3), String::new());
        for number in 0..80 {
            if dice.chance(40) {
                std::fs::write(holder.path().join("file"), format!("{number}\n")).unwrap();
            }
            told += &step(holder.path(), &mut dice).unwrap_or_default();
        }
        assert_eq!(trouble(holder.path()), None);
        assert!(facts(holder.path()).contains("rev-parse: "));
        for word in ["commit", "-b", "-f", "HEAD~1", "push", "pop", "--detach", "gc"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
    }
}
