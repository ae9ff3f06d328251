//! Looks through the watcher: their cost must not grow with the tree.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use chronicle_core::{Home, InitOptions, Workspace};

use crate::hooks::{self, Hooks};
use crate::measure::{Result, chronicle, median, micros, run};
use crate::rows::Row;
use crate::trees;

/// The figures of one tree, in microseconds of ours.
pub(crate) struct Watched {
    files: usize,
    unchanged: f64,
    changed: f64,
    hooks: Hooks,
    alone: Row,
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
    let hooks = hooks::measure(&directory, top, files)?;
    // Without its socket the watcher ends.
    for entry in fs::read_dir(directory.join("workspaces"))? {
        fs::remove_file(entry?.path().join("watch.sock"))?;
    }
    let alone = hooks::without_watcher(&directory, top, &hooks)?;
    let (unchanged, changed) = (median(unchanged.split_off(50)), median(changed.split_off(50)));
    Ok(Watched { files, unchanged, changed, hooks, alone })
}

/// The rows of a small tree and a large one.
pub(crate) fn rows(small: Watched, large: Watched) -> Vec<Row> {
    let mut rows = hooks::rows(&small.hooks, &large.hooks);
    rows.extend([small.alone, large.alone]);
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
    grows("settle in process, watched, nothing changed", large.unchanged, small.unchanged);
    grows("settle in process, watched, one file changed", large.changed, small.changed);
    rows
}
