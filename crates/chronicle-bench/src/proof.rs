//! The figures of a history that is proven: verifying it, and what a head adds to a turn's end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_core::{
    Home, InitOptions, KeySource, SnapshotRequest, TurnRequest, Workspace, WorkspacePath,
};

use crate::measure::{Result, chronicle, median, micros, program, run};
use crate::rows::Row;

/// How many snapshots the log has.
const SNAPSHOTS: usize = 100_000;
/// How many of them are one turn.
const PER_TURN: usize = 100;

/// Verifying a log of many snapshots, by a process that just started.
pub(crate) fn verify(scratch: &Path) -> Result<Row> {
    let (home, top) = (scratch.join("home-proof"), scratch.join("proof"));
    make(&home, &top)?;
    let catalog = catalog(&home)?;
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..8 {
        let mine = run(&mut chronicle(&home, &top, &["verify"])?, &[0])?.seconds * 1e3;
        let bare = run(Command::new(program("limit_verify")?).arg(&catalog), &[0])?.seconds * 1e3;
        if round > 0 {
            ours.push(mine);
            limit.push(bare);
        }
    }
    Ok(Row {
        what: format!("verify of {SNAPSHOTS} snapshots"),
        ours: median(ours),
        limit: median(limit),
        unit: "ms",
        beside: "one core: read the same bytes, SHA-256",
        bound: 2.0,
    })
}

/// A turn's end with a head and without one.
pub(crate) fn turn_end(scratch: &Path) -> Result<Row> {
    let top = scratch.join("turns");
    fs::create_dir_all(&top)?;
    fs::write(top.join("file.txt"), "0")?;
    let key = KeySource::File(scratch.join("turns.key"));
    let signed = Home::at(&scratch.join("home-signed")).signed_with(key);
    let bare = Home::at(&scratch.join("home-bare"));
    let mut workspaces = Vec::new();
    for home in [&signed, &bare] {
        workspaces.push(Workspace::init(home, &top, &InitOptions::default())?.0);
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..300 {
        for (workspace, times) in workspaces.iter_mut().zip(&mut times) {
            let request = TurnRequest { session: Some("bench".into()), ..TurnRequest::default() };
            workspace.turn_start(&request)?;
            times.push(micros(|| Ok(workspace.turn_end(&request)?))?);
        }
    }
    let [signed, bare] = times;
    Ok(Row {
        what: "a turn's end that changed nothing, with its signed head".to_owned(),
        ours: median(signed),
        limit: median(bare),
        unit: "us",
        beside: "the same without a head",
        bound: 1.5,
    })
}

/// Makes a log of many snapshots, each of which changed a file.
fn make(home: &Path, top: &Path) -> Result<()> {
    fs::create_dir_all(top)?;
    let file = top.join("file.txt");
    fs::write(&file, "0")?;
    let key = KeySource::File(home.join(".config/chronicle/head.key"));
    let at = Home::at(home).signed_with(key);
    let (mut workspace, _) = Workspace::init(&at, top, &InitOptions::default())?;
    let request = SnapshotRequest {
        action: "write_file".to_owned(),
        paths: vec![WorkspacePath::new("file.txt")?],
        ..SnapshotRequest::default()
    };
    let turn = TurnRequest { session: Some("bench".into()), ..TurnRequest::default() };
    for number in 0..SNAPSHOTS {
        if number.is_multiple_of(PER_TURN) {
            workspace.turn_start(&turn)?;
        }
        workspace.snapshot(&request)?;
        fs::write(&file, number.to_string())?;
        if (number + 1).is_multiple_of(PER_TURN) {
            workspace.turn_end(&turn)?;
        }
    }
    Ok(())
}

/// The only catalog of a home.
fn catalog(home: &Path) -> Result<PathBuf> {
    let mut workspaces = fs::read_dir(home.join("workspaces"))?;
    Ok(workspaces.next().ok_or("the home has no workspace")??.path().join("catalog.db"))
}
