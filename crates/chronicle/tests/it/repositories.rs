//! Repositories inside a workspace: whole or not at all, and never over a person's work.

use std::process::Command;

use crate::support::Cli;

fn git(cli: &Cli, directory: &str, words: &[&str]) -> String {
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(words)
        .current_dir(cli.root().join(directory))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git runs");
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// A repository with one commit, a dirty file, a staged one and an ignored one, and another
/// repository inside it.
fn world() -> Cli {
    let cli = Cli::new();
    cli.write("a.txt", "one\n");
    cli.write(".gitignore", ".env\n");
    git(&cli, "", &["init", "-q"]);
    git(&cli, "", &["add", "."]);
    git(&cli, "", &["commit", "-qm", "first"]);
    cli.write("a.txt", "dirty\n");
    cli.write("staged.txt", "staged\n");
    git(&cli, "", &["add", "staged.txt"]);
    cli.write(".env", "SECRET=1\n");
    cli.write("nested/n.txt", "nested\n");
    git(&cli, "nested", &["init", "-q"]);
    git(&cli, "nested", &["add", "."]);
    git(&cli, "nested", &["commit", "-qm", "inner"]);
    cli.write("nested/n.txt", "nested and dirty\n");
    cli.call(["init"]).ok();
    cli
}

fn state(cli: &Cli) -> [String; 4] {
    [
        git(cli, "", &["status", "--porcelain"]),
        git(cli, "", &["rev-parse", "HEAD"]),
        git(cli, "", &["branch", "--list"]),
        git(cli, "nested", &["status", "--porcelain"]),
    ]
}

#[test]
fn the_worst_that_git_can_do_comes_back() {
    let cli = world();
    let before = state(&cli);
    let worst = "git reset -q --hard && git clean -fdxq && rm -rf nested && git checkout -q -b evil \
                 && git -c user.name=t -c user.email=t@e commit -q --allow-empty -m evil";
    cli.call(["run", "--", "sh", "-c", worst]).ok();
    assert_eq!(cli.read(".env"), None);
    cli.call(["rewind", "start"]).ok();
    assert_eq!(state(&cli), before);
    assert_eq!(cli.read(".env").as_deref(), Some("SECRET=1\n"));
    assert_eq!(cli.read("nested/n.txt").as_deref(), Some("nested and dirty\n"));
    git(&cli, "nested", &["fsck", "--strict"]);
    git(&cli, "", &["fsck", "--strict"]);
    cli.call(["redo"]).ok();
    assert_eq!(git(&cli, "", &["branch", "--show-current"]), "evil");
}

#[test]
fn looking_at_a_repository_is_no_change() {
    let cli = world();
    git(&cli, "", &["status"]);
    cli.call(["changed"]).exits(0);
}

#[test]
fn a_commit_of_a_person_is_not_taken_back_with_the_agents_files() {
    let cli = world();
    cli.turn("A", "edit", || cli.write("agent.txt", "agent\n"));
    git(&cli, "", &["commit", "-qam", "by hand"]);
    let head = git(&cli, "", &["rev-parse", "HEAD"]);
    cli.call(["rewind", "start"]).ok();
    assert_eq!(cli.read("agent.txt"), None);
    assert_eq!(git(&cli, "", &["rev-parse", "HEAD"]), head);
}

#[test]
fn where_both_touched_the_repository_the_person_decides() {
    let cli = world();
    cli.turn("A", "commit", || {
        git(&cli, "", &["commit", "-qam", "by the agent"]);
    });
    git(&cli, "", &["tag", "mine"]);
    let before = state(&cli);
    cli.call(["rewind", "start"]).exits(3);
    assert_eq!(state(&cli), before);
    cli.call(["rewind", "start", "--git", "keep"]).ok();
    assert_eq!(state(&cli)[1], before[1], "HEAD stays");
    cli.call(["redo"]).ok();
    cli.call(["rewind", "start", "--git", "restore"]).ok();
    assert_ne!(state(&cli)[1], before[1], "HEAD goes back");
}

#[test]
fn a_repository_that_git_is_writing_is_busy() {
    let cli = world();
    cli.turn("A", "commit", || {
        git(&cli, "", &["commit", "-qam", "by the agent"]);
    });
    cli.write(".git/index.lock", "");
    cli.call(["rewind", "start"]).exits(11);
}

#[test]
fn stash_and_pop_make_no_strangers() {
    let cli = world();
    cli.turn("A", "edit", || cli.write("a.txt", "agent\n"));
    git(&cli, "", &["stash", "-q"]);
    cli.call(["settle"]).ok();
    git(&cli, "", &["stash", "pop", "-q"]);
    cli.call(["rewind", "start", "--git", "keep"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("dirty\n"));
}

/// Packing refs changes no value, so nothing is recorded; the packed file then stood outside of what
/// a rewind removes, and the branch that it held outlived its own undoing.
#[test]
fn a_branch_goes_back_though_its_ref_was_packed_meanwhile() {
    let cli = world();
    let before = state(&cli);
    cli.turn("A", "branch", || {
        git(&cli, "", &["checkout", "-qb", "side"]);
        git(&cli, "", &["commit", "-qam", "by the agent"]);
    });
    let after = state(&cli);
    cli.turn("A", "pack", || {
        git(&cli, "", &["pack-refs", "--all"]);
    });
    cli.call(["rewind", "start"]).ok();
    assert_eq!(state(&cli), before);
    cli.call(["redo"]).ok();
    assert_eq!(state(&cli), after);
}
