//! The figures of isolated runs: work on a layer beside a bare overlay, and the look at what it changed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use chronicle_core::{Home, InitOptions, Workspace};

use crate::measure::{Result, chronicle, median, micros, run};
use crate::rows::Row;
use crate::trees;

/// Files that are unpacked, as many as a middling project has.
const FILES: usize = 7000;
const ROUNDS: usize = 7;
/// Files of the tree in which few are changed, and how many are.
const TREE: usize = 100_000;
const CHANGED: usize = 10;

/// Measures both; needs root, to mount by hand.
pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let mut rows = unpacking(scratch)?;
    rows.extend(looking(scratch)?);
    Ok(rows)
}

/// Unpacks the same archive isolated, on an overlay mounted by hand, and in a plain directory.
fn unpacking(scratch: &Path) -> Result<Vec<Row>> {
    let (source, archive) = (scratch.join("source"), scratch.join("source.tar"));
    trees::make(&source, FILES)?;
    run(Command::new("tar").arg("cf").arg(&archive).arg("-C").arg(&source).arg("."), &[0])?;
    let (top, home) = (scratch.join("unpacked"), scratch.join("home-overlay"));
    fs::create_dir(&top)?;
    drop(Workspace::init(&Home::at(&home), &top, &InitOptions::default())?);
    let unpack = format!("tar xf {}", archive.display());
    let (mut ours, mut bare, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let words = ["run", "--isolated", "--", "sh", "-c", &unpack];
        ours.push(quiet(|| Ok(run(&mut chronicle(&home, &top, &words)?, &[0])?.seconds))?);
        run(&mut chronicle(&home, &top, &["isolated", "discard"])?, &[0])?;
        let layer = scratch.join(format!("layer{round}"));
        bare.push(quiet(|| by_hand(&layer, &top, &unpack))?);
        fs::remove_dir_all(&layer)?;
        let plain = scratch.join(format!("plain{round}"));
        fs::create_dir(&plain)?;
        let mut command = Command::new("sh");
        command.args(["-c", &unpack]).current_dir(&plain);
        native.push(quiet(|| Ok(run(&mut command, &[0])?.seconds))?);
        fs::remove_dir_all(&plain)?;
    }
    for used in [&source, &top, &home] {
        fs::remove_dir_all(used)?;
    }
    let (ours, bare, native) = (median(ours) * 1e3, median(bare) * 1e3, median(native) * 1e3);
    let row = |what: &str, limit, beside, bound| Row {
        what: what.to_owned(),
        ours,
        limit,
        unit: "ms",
        beside,
        bound,
    };
    Ok(vec![
        row("unpacking 7000 files in `run --isolated`", bare, "on an overlay mounted by hand", 1.1),
        row("the same", native, "in a plain directory, where nothing is unmounted", 2.5),
    ])
}

/// Lets what earlier rounds wrote reach the disk before one is measured.
fn quiet<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    run(&mut Command::new("sync"), &[0])?;
    work()
}

/// What a person would do: a mount namespace, an overlay in it, and the work.
fn by_hand(layer: &Path, lower: &Path, work: &str) -> Result<f64> {
    for name in ["upper", "work"] {
        fs::create_dir_all(layer.join(name))?;
    }
    let at = |name: &str| layer.join(name).display().to_string();
    let lower = lower.display();
    let mount = format!(
        "mount -t overlay overlay -o lowerdir={lower},upperdir={},workdir={} {lower} && cd {lower} && {work}",
        at("upper"),
        at("work")
    );
    let begun = Instant::now();
    run(Command::new("unshare").args(["--mount", "sh", "-c", &mount]), &[0])?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The look at few changes in many files.
fn looking(scratch: &Path) -> Result<Vec<Row>> {
    let (top, home) = (scratch.join("looked"), scratch.join("home-looked"));
    trees::make(&top, TREE)?;
    let (workspace, _) = Workspace::init(&Home::at(&home), &top, &InitOptions::default())?;
    let edits: Vec<_> = (0..CHANGED)
        .map(|number| format!("echo changed >> {}", trees::path(number * TREE / CHANGED)))
        .collect();
    let words = ["run", "--isolated", "--", "sh", "-c", &edits.join("; ")];
    run(&mut chronicle(&home, &top, &words)?, &[0])?;
    let mut times = Vec::new();
    for _ in 0..15 {
        times.push(micros(|| must_be(workspace.isolated_diff(None, &[], false)?.files_changed))?);
    }
    drop(workspace);
    for used in [&top, &home] {
        fs::remove_dir_all(used)?;
    }
    Ok(vec![Row {
        what: "look at 10 changes of an isolated run in 100000 files".to_owned(),
        ours: median(times) / 1e3,
        limit: 10.0,
        unit: "ms",
        beside: "fixed bound",
        bound: 1.0,
    }])
}

fn must_be(changed: u64) -> Result<()> {
    if changed == CHANGED as u64 { Ok(()) } else { Err(format!("{changed} changes").into()) }
}
