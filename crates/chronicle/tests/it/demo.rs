//! The first thing that a newcomer sees must hold what it claims.

use std::time::Instant;

use crate::support::{Cli, listing};

#[test]
fn the_demo_holds_is_quick_and_leaves_nothing() {
    let cli = Cli::new();
    let temporary = cli.root().join("temporary");
    std::fs::create_dir(&temporary).expect("make a directory");
    let started = Instant::now();
    let done = cli.command(["demo"]).env("TMPDIR", &temporary).output().expect("start");
    let done = crate::support::done(done).ok();
    assert!(started.elapsed().as_secs() < 10);
    assert!(done.stdout.contains("Everything holds"), "{}", done.stdout);
    assert!(!done.stdout.contains("FAILS"), "{}", done.stdout);
    assert!(listing(&temporary).is_empty());
    assert!(!cli.home().exists(), "the demo has a history of its own");
}

#[test]
fn the_demo_can_be_kept() {
    let cli = Cli::new();
    let done = cli.command(["demo", "--keep"]).env("TMPDIR", cli.root()).output().expect("start");
    crate::support::done(done).ok();
    assert!(listing(&cli.root()).iter().any(|path| path.ends_with("workspace/README.md")));
}
