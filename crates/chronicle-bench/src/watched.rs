//! Looks through the watcher: their cost must not grow with the tree.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use chronicle_core::{Home, InitOptions, Workspace};

use crate::measure::{Result, chronicle, median, micros, run};
use crate::rows::Row;
use crate::trees;

/// The figures of one tree, in microseconds of ours.
pub(crate) struct Watched {
    files: usize,
    unchanged: f64,
    changed: f64,
    process: f64,
    bare: f64,
}

/// Measures a tree with a watcher beside it.
pub(crate) fn measure(scratch: &Path, top: &Path, files: usize) -> Result<Watched> {
    let directory = scratch.join(format!("home-watched-{files}"));
    let home = Home::at(&directory);
    let (mut workspace, _) = Workspace::init(&home, top, &InitOptions::default())?;
    run(&mut chronicle(&directory, top, &["watch"])?, &[0])?;
    let end = Instant::now() + Duration::from_secs(60);
    while !workspace.settle()?.watched {
        if Instant::now() > end {
            return Err("no watcher answers".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut unchanged, mut changed) = (Vec::new(), Vec::new());
    for version in 0..300 {
        unchanged.push(micros(|| Ok(workspace.settle()?))?);
        fs::write(top.join(trees::path(3)), trees::content(3, version + 1))?;
        changed.push(micros(|| Ok(workspace.settle()?))?);
    }
    drop(workspace);
    let (mut process, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        process.push(run(&mut chronicle(&directory, top, &["settle"])?, &[0])?.seconds * 1e6);
        bare.push(run(Command::new("/bin/true").env_clear(), &[0])?.seconds * 1e6);
    }
    // Without its socket the watcher ends.
    for entry in fs::read_dir(directory.join("workspaces"))? {
        fs::remove_file(entry?.path().join("watch.sock"))?;
    }
    let (unchanged, changed) = (median(unchanged.split_off(50)), median(changed.split_off(50)));
    Ok(Watched { files, unchanged, changed, process: median(process), bare: median(bare) })
}

/// The rows of a small tree and a large one.
pub(crate) fn rows(small: &Watched, large: &Watched) -> Vec<Row> {
    let mut rows = Vec::new();
    for tree in [small, large] {
        rows.push(Row {
            what: format!(
                "`chronicle settle` with a watcher, nothing changed, {} files",
                tree.files
            ),
            ours: tree.process / 1e3,
            limit: tree.bare / 1e3,
            unit: "ms",
            beside: "spawning `/bin/true`",
            bound: 8.0,
        });
    }
    let mut grows = |what: &str, ours, limit| {
        rows.push(Row {
            what: format!("{what}, {} files", large.files),
            ours,
            limit,
            unit: "us",
            beside: "the same with 1000 files",
            bound: 1.3,
        });
    };
    grows("that process", large.process, small.process);
    grows("settle in process, watched, nothing changed", large.unchanged, small.unchanged);
    grows("settle in process, watched, one file changed", large.changed, small.changed);
    rows
}
