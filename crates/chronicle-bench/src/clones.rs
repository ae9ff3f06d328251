//! The figures of a file system that shares blocks: saving a large file before an edit, and taking the
//! edit back.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use chronicle_core::{Home, InitOptions, SnapshotRequest, Workspace, WorkspacePath};
use rustix::fs::{Advice, fadvise};

use crate::large;
use crate::measure::{Result, chronicle, median, micros, run, timings_without};
use crate::rows::Row;

const ROUNDS: u64 = 15;
/// Taking an edit back reads the whole file from the disk to verify it, where a copy reads it from the cache and
/// writes it: what it saves is room. A bound of our own.
const VERIFIED: f64 = 3.0;
/// Clones count with all their bytes, and here nobody reads them in between.
const BUDGET: &str = "budget = \"1000 GiB\"\n";
/// What a capture may take of the time that reading from the disk takes.
const PART: f64 = 1.0 / 50.0;
/// The same beside the cache, which no disk and no flush is as fast as: a bound of our own.
const CACHED_PART: f64 = 1.0 / 15.0;

/// Measures in a directory on a file system of this name.
pub(crate) fn rows(scratch: &Path, kind: &str) -> Result<Vec<Row>> {
    let (top, home) = (scratch.join("clones"), scratch.join("home-clones"));
    fs::create_dir_all(&top)?;
    let path = top.join("data.bin");
    large::make(&path)?;
    let (mut workspace, _) = Workspace::init(&Home::at(&home), &top, &InitOptions::default())?;
    fs::write(home.join("config.toml"), BUDGET)?;
    let (back, copy) = taking_back(&home, &top)?;
    read(&path)?;
    let (mut library, mut process, mut reading) = (Vec::new(), Vec::new(), Vec::new());
    let words = ["snapshot", "--action", "write_file", "--path", "data.bin"];
    for round in 0..ROUNDS {
        edit(&path, 2 * round)?;
        library.push(micros(|| Ok(workspace.snapshot(&request()?)?))? / 1e3);
        edit(&path, 2 * round + 1)?;
        process.push(run(&mut chronicle(&home, &top, &words)?, &[0])?.seconds * 1e3);
        must_be_cloned(&home, 2 * round + 2)?;
        reading.push(micros(|| read(&path))? / 1e3);
    }
    let from_disk = median(from_disk(&path)?);
    drop(workspace);
    fs::remove_dir_all(&top)?;
    fs::remove_dir_all(&home)?;
    let row = |what: String, ours, limit, beside, bound| {
        let unit = "ms";
        Row { what, ours, limit, unit, beside, bound }
    };
    let reading = median(reading);
    let (disk, cache) = ("reading it from the disk", "reading it from the cache");
    let what = |how| format!("capture before an edit of a changed file of 1 GiB on {kind}, {how}");
    let (library, process) = (median(library), median(process));
    let by_process = "by `chronicle snapshot` as a process";
    Ok(vec![
        row(what("in process"), library, from_disk, disk, PART),
        row(what(by_process), process, from_disk, disk, PART),
        row(what("in process"), library, reading, cache, CACHED_PART),
        row(
            format!("taking the edit back on {kind}, without the look"),
            back,
            copy,
            "copying the file and syncing the copy",
            VERIFIED,
        ),
    ])
}

fn request() -> Result<SnapshotRequest> {
    let path = WorkspacePath::new("data.bin").map_err(|_| "it is a path")?;
    let action = "write_file".to_owned();
    Ok(SnapshotRequest { action, paths: vec![path], ..SnapshotRequest::default() })
}

/// Changes a few bytes, which reach the disk before anything is measured.
fn edit(path: &Path, number: u64) -> Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&number.to_le_bytes(), (number % 20 + 1) * 50_000_001)?;
    file.sync_all()?;
    run(&mut Command::new("sync"), &[0]).map(drop)
}

fn must_be_cloned(home: &Path, times: u64) -> Result<()> {
    match fs::read_dir(home.join("store/clones")).map(Iterator::count) {
        Ok(count) if count as u64 == times => Ok(()),
        _ => Err("nothing was cloned: does this file system share blocks?".into()),
    }
}

fn read(path: &Path) -> Result<u64> {
    let (mut file, mut piece, mut total) = (File::open(path)?, vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(total),
            count => total += count as u64,
        }
    }
}

/// How long it takes to read what no cache has, in milliseconds.
fn from_disk(path: &Path) -> Result<Vec<f64>> {
    let drop_cached =
        || fadvise(File::open(path)?, 0, None, Advice::DontNeed).map_err(|e| e.into());
    (0..3).map(|_| drop_cached().and_then(|()| Ok(micros(|| read(path))? / 1e3))).collect()
}

/// How long taking an edit back takes, and copying the whole file, in milliseconds.
fn taking_back(home: &Path, top: &Path) -> Result<(f64, f64)> {
    let (path, copy) = (top.join("data.bin"), home.join("copy"));
    let say = |words: &[&str]| run(&mut chronicle(home, top, words)?, &[0]);
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let key = format!("round{round}");
        say(&["turn", "start", "--key", &key, "--session", "bench"])?;
        edit(&path, 100 + round)?;
        say(&["turn", "end", "--key", &key, "--session", "bench"])?;
        run(&mut Command::new("sync"), &[0])?;
        let mut command = chronicle(home, top, &["rewind", "before:turn:-1", "--exact", "--yes"])?;
        let ran = run(command.env("CHRONICLE_TIMINGS", "1"), &[0])?;
        ours.push(timings_without(&ran.stderr, &["look"])? / 1e3);
        run(&mut Command::new("sync"), &[0])?;
        limit.push(micros(|| plain_copy(&path, &copy))? / 1e3);
        fs::remove_file(&copy)?;
    }
    Ok((median(ours), median(limit)))
}

/// A copy with blocks of its own.
fn plain_copy(from: &Path, to: &Path) -> Result<()> {
    let (mut file, out, mut piece) = (File::open(from)?, File::create(to)?, vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(out.sync_all()?),
            count => {
                out.write_all_at(&piece[..count], at)?;
                at += count as u64;
            }
        }
    }
}
