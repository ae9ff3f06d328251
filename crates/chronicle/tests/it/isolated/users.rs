//! The same as a user without privileges, in a user namespace in which he is himself.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use chronicle_testing::env::{Env, Ran};
use chronicle_testing::shared::{is_root, skip};
use chronicle_testing::tree::{assert_same, describe};

use super::{WRECK, left};
use crate::scenes::{fill, world};

/// Nobody's own number.
const USER: u32 = 61_234;

/// A world that belongs to a user without privileges, and a copy of the command that he can reach.
fn users() -> Option<Env> {
    let env = world();
    if !is_root() {
        skip("isolated::users", "becoming another user needs root");
        return None;
    }
    fill(&env);
    let binary = env.base().join("chronicle");
    env.copy_binary(&binary);
    give(env.base());
    fs::set_permissions(env.base(), fs::Permissions::from_mode(0o755)).unwrap();
    let env = env.with_binary(binary);
    let _ = call(&env, &["init"]).code(0);
    let ran = call(&env, &["run", "--isolated", "--", "true"]);
    if ran.output.status.code() == Some(13) {
        skip("isolated::users", ran.stderr().lines().next().unwrap_or("refused"));
        return None;
    }
    let _ = ran.code(0);
    Some(env)
}

fn give(path: &Path) {
    lchown(path, Some(USER), Some(USER)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path()));
    }
}

fn call(env: &Env, words: &[&str]) -> Ran {
    env.run_with(words, |command| {
        command.uid(USER).gid(USER);
    })
}

#[test]
fn without_privileges_it_works_the_same() {
    let Some(env) = users() else { return };
    let before = describe(&env.workspace());
    let text = format!("id -u; {WRECK}");
    let ran = call(&env, &["run", "--isolated", "--", "sh", "-ec", &text]).code(0);
    assert_eq!(ran.stdout(), format!("{USER}\n"));
    assert_same(&before, &describe(&env.workspace()), "an isolated run");
    let _ = call(&env, &["isolated", "diff", "--patch"]).code(0);
    let _ = call(&env, &["isolated", "commit"]).code(0);
    assert_eq!(env.read("f1").as_deref(), Some("other\n"));
    assert_eq!((env.read("f3"), env.read("deep/er/file")), (None, None));
    assert_eq!(fs::metadata(env.path("new/dir/file")).unwrap().uid(), USER);
    let after = describe(&env.workspace());
    let _ = call(&env, &["undo", "--yes"]).code(0);
    assert_same(&before, &describe(&env.workspace()), "an undo");
    let _ = call(&env, &["redo", "--yes"]).code(0);
    assert_same(&after, &describe(&env.workspace()), "a redo");
    let _ = call(&env, &["verify", "--deep"]).code(0);
    assert_eq!(left(&env).len(), 0);
}

#[test]
fn what_keeps_its_owner_out_stops_a_commit_and_not_a_discard() {
    let Some(env) = users() else { return };
    for text in ["echo y > unread; chmod 0 unread", "mkdir -p a/b; echo x > a/b/f; chmod 0 a/b a"] {
        let before = describe(&env.workspace());
        let _ = call(&env, &["run", "--isolated", "--", "sh", "-ec", text]).code(0);
        let ran = call(&env, &["isolated", "commit"]).code(1);
        assert!(ran.stderr().contains("Error:"), "{}", ran.story());
        assert_same(&before, &describe(&env.workspace()), "a commit that was stopped");
        let _ = call(&env, &["isolated", "discard"]).code(0);
        assert_eq!(left(&env).len(), 0);
    }
}

/// Where the kernel gives no user namespaces, it is said, with what to do instead.
#[test]
fn without_user_namespaces_nothing_runs() {
    let Some(env) = users() else { return };
    let limit = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec {} --json run --isolated -- touch n",
        env.binary().display()
    );
    let mut shell = std::process::Command::new("unshare");
    shell.args(["--user", "--map-root-user", "sh", "-c", &limit]).uid(USER).gid(USER);
    shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    shell.env("HOME", env.base()).env("CHRONICLE_HOME", env.home()).env("CHRONICLE_WATCH", "off");
    let done = shell.current_dir(env.workspace()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.contains("max_user_namespaces") || said.contains("unshare:") {
        return skip("isolated::users", "the limit of namespaces cannot be set here");
    }
    assert_eq!(done.status.code(), Some(13), "{said}");
    assert!(said.contains("namespaces are not allowed here"), "{said}");
    assert!(said.contains("chronicle run -- CMD"), "{said}");
    assert_eq!((env.read("n"), left(&env).len()), (None, 0));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let Some(env) = users() else { return };
    lchown(env.workspace(), Some(0), Some(0)).unwrap();
    let _ = call(&env, &["settle"]).code(0);
    let ran = call(&env, &["run", "--isolated", "--", "true"]).code(13);
    assert!(ran.stderr().contains("belongs to another user"), "{}", ran.story());
}
