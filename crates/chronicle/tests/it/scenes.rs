//! Small worlds that the tests of faults share.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use chronicle_testing::dice::Dice;
use chronicle_testing::env::Env;

/// A world without a watcher, which would do things of its own.
pub(crate) fn world() -> Env {
    Env::new(env!("CARGO_BIN_EXE_chronicle")).with_variable("CHRONICLE_WATCH", "off")
}

/// Every kind of entry, few of each.
pub(crate) fn fill(env: &Env) {
    for number in 1..=4 {
        env.write(format!("f{number}"), format!("file {number}\n").repeat(20));
    }
    env.write("deep/er/file", "text\n");
    env.write("script", "#!/bin/sh\n");
    fs::set_permissions(env.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(env.path("empty")).unwrap();
    symlink("f1", env.path("link")).unwrap();
    fs::hard_link(env.path("f2"), env.path("f2-too")).unwrap();
}

/// Every kind of change, few of each.
pub(crate) fn wreck(env: &Env) {
    env.write("f1", "other\n");
    fs::remove_file(env.path("f3")).unwrap();
    fs::rename(env.path("f4"), env.path("moved")).unwrap();
    change_kinds(env);
}

/// What is made, moved, replaced by another kind, unlinked and given another mode.
pub(crate) fn change_kinds(env: &Env) {
    env.write("new/dir/file", "new\n");
    fs::rename(env.path("deep"), env.path("shallow")).unwrap();
    fs::remove_dir(env.path("empty")).unwrap();
    env.write("empty", "a file now\n");
    fs::remove_file(env.path("link")).unwrap();
    fs::create_dir(env.path("link")).unwrap();
    fs::remove_file(env.path("f2-too")).unwrap();
    fs::set_permissions(env.path("script"), fs::Permissions::from_mode(0o600)).unwrap();
}

/// Enough small files for a pack, and one for a file of its own.
pub(crate) fn add_more(env: &Env) {
    for number in 0..80 {
        env.write(format!("more/{number}"), format!("more {number}\n").repeat(9));
    }
    env.write("large", Dice::new(3).bytes((4 << 20) + 100_000));
}
