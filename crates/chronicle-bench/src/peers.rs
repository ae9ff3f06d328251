//! The first capture of a real source tree beside backup programs: how long it takes, and what it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{Result, chronicle, median, run};
use crate::rows::Row;

const FILES: usize = 7000;
/// Longer ones are data that came along.
const LONGEST: u64 = 300_000;
const ROUNDS: usize = 5;

/// Nothing where the programs to compare with are not installed.
pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    for program in ["restic", "borg"] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("{program} is not installed: nothing to compare the first capture with");
            return Ok(Vec::new());
        }
    }
    let tree = source_tree(scratch)?;
    run(&mut Command::new("sync"), &[0])?;
    let places = ["ours", "restic", "borg"].map(|name| scratch.join(format!("peer-{name}")));
    // borg drops what it has read from the cache, so everybody would pay for its turn.
    let warm = || bytes_read(&tree);
    let (mut times, mut sizes) = ([Vec::new(), Vec::new(), Vec::new()], [0; 3]);
    for _ in 0..ROUNDS {
        for place in places.iter().filter(|place| place.exists()) {
            fs::remove_dir_all(place)?;
        }
        let [ours, restic, borg] = &places;
        warm()?;
        times[0].push(run(&mut chronicle(ours, &tree, &["init"])?, &[0])?.seconds);
        run(&mut peer("restic", scratch, &["init", "-q", "-r"], restic), &[0])?;
        let words = ["backup", "-q", "--no-cache", "-r"];
        warm()?;
        times[1].push(run(peer("restic", scratch, &words, restic).arg(&tree), &[0])?.seconds);
        run(&mut peer("borg", scratch, &["init", "-e", "none"], borg), &[0])?;
        let mut create = peer("borg", scratch, &["create"], Path::new(""));
        create.arg(format!("{}::first", borg.display())).arg(&tree);
        warm()?;
        times[2].push(run(&mut create, &[0])?.seconds);
        for (size, place) in sizes.iter_mut().zip(&places) {
            *size = bytes_below(place)?;
        }
    }
    let [ours, restic, borg] = times.map(median);
    let what = format!("first capture of {FILES} source files");
    let time =
        |limit, beside| Row { what: what.clone(), ours, limit, unit: "s", beside, bound: 0.25 };
    Ok(vec![
        time(restic, "restic backup"),
        time(borg, "borg create"),
        Row {
            what: format!("{what}: everything in the home"),
            ours: sizes[0] as f64 / 1e6,
            limit: sizes[1] as f64 / 1e6,
            unit: "MB",
            beside: "the repository of restic",
            bound: 1.0,
        },
    ])
}

fn peer(program: &str, home: &Path, words: &[&str], place: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", home).env("RESTIC_PASSWORD", "bench").args(words);
    if !place.as_os_str().is_empty() {
        command.arg(place);
    }
    command
}

/// The sources of what we depend on: real, and the same for everybody with our lock file.
fn source_tree(scratch: &Path) -> Result<PathBuf> {
    let (vendor, tree) = (scratch.join("vendor"), scratch.join("sources"));
    let mut cargo = Command::new("cargo");
    cargo.args(["vendor", "-q", "--locked", "--versioned-dirs"]).arg(&vendor);
    run(&mut cargo, &[0])?;
    let mut sources = Vec::new();
    gather(&vendor, &mut sources)?;
    sources.sort();
    for source in sources.iter().take(FILES) {
        let to = tree.join(source.strip_prefix(&vendor)?);
        fs::create_dir_all(to.parent().ok_or("a file lies in a directory")?)?;
        fs::copy(source, to)?;
    }
    fs::remove_dir_all(&vendor)?;
    if sources.len() < FILES { Err("there are not enough sources".into()) } else { Ok(tree) }
}

fn gather(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, meta) = (entry.path(), entry.metadata()?);
        let is_source = |end: &std::ffi::OsStr| {
            ["rs", "c", "h", "md", "toml"].iter().any(|wanted| end == *wanted)
        };
        if meta.is_dir() {
            gather(&path, found)?;
        } else if meta.len() < LONGEST && path.extension().is_some_and(is_source) {
            found.push(path);
        }
    }
    Ok(())
}

fn bytes_read(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        bytes += if path.is_dir() { bytes_read(&path)? } else { fs::read(&path)?.len() as u64 };
    }
    Ok(bytes)
}

fn bytes_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { bytes_below(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}
