//! Measures Chronicle beside the bare limit of each job, in one run on one machine.
//!
//! usage: `chronicle-bench [--large | --small | --trees | --watched | --store | --bucket | --overlay | --replica | --mount | --checkpoints | --clones NAME] [--out FILE] DIR`;
//! `--small` stops after the figures of one file, `--trees` measures only verifying and trees of 100,000 files, `--watched` measures only looks through the watcher, `--store` only
//! what content takes, `--bucket` only sending it, `--overlay` only isolated runs, `--replica` only replication, `--mount` only everyday work through mounts,
//! as a table of its own, `--checkpoints` only checkpoints of PostgreSQL clusters, as root, `--clones` only what sharing blocks gives on the file system of
//! that name; DIR must be on a journaled file system, as `bench/run` makes one. Only ratios count: times drift
//! from run to run.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

mod bucket;
mod checkpoints;
mod clones;
mod daemon;
mod edits;
mod hooks;
mod large;
mod links;
mod measure;
mod mount;
mod overlay;
mod peers;
mod proof;
mod replica;
mod rows;
mod trees;
mod watched;

use std::path::{Path, PathBuf};

use measure::Result;
use rows::Row;

struct Options {
    large: bool,
    small: bool,
    trees: bool,
    watched: bool,
    store: bool,
    bucket: bool,
    overlay: bool,
    replica: bool,
    clones: Option<String>,
    checkpoints: bool,
    mount: bool,
    out: Option<PathBuf>,
    directory: PathBuf,
}

fn main() -> Result<()> {
    let options = options()?;
    let table = if options.mount { mounts(&options)? } else { table(&measure_all(&options)?) };
    println!("{table}");
    if let Some(out) = &options.out {
        std::fs::write(out, &table)?;
    }
    Ok(())
}

fn options() -> Result<Options> {
    let (mut large, mut small, mut watched, mut store) = (false, false, false, false);
    let (mut bucket, mut overlay, mut mount, mut replica) = (false, false, false, false);
    let (mut checkpoints, mut trees) = (false, false);
    let (mut out, mut directory, mut clones) = (None, None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--large" => large = true,
            "--small" => small = true,
            "--trees" => trees = true,
            "--watched" => watched = true,
            "--store" => store = true,
            "--bucket" => bucket = true,
            "--overlay" => overlay = true,
            "--replica" => replica = true,
            "--mount" => mount = true,
            "--checkpoints" => checkpoints = true,
            "--clones" => clones = Some(words.next().ok_or("--clones needs a name")?),
            "--out" => out = Some(PathBuf::from(words.next().ok_or("--out needs a file")?)),
            _ => directory = Some(PathBuf::from(word)),
        }
    }
    let directory = directory.ok_or(
        "usage: chronicle-bench [--large | --small | --trees | --watched | --store | --bucket | --overlay | --replica | --mount | --checkpoints | --clones NAME] [--out FILE] DIR",
    )?;
    Ok(Options {
        large,
        small,
        trees,
        watched,
        store,
        bucket,
        overlay,
        replica,
        clones,
        checkpoints,
        mount,
        out,
        directory,
    })
}

fn mounts(options: &Options) -> Result<String> {
    let scratch = std::path::absolute(options.directory.join("chronicle-bench"))?;
    std::fs::create_dir(&scratch)?;
    let (columns, rows) = mount::table(&scratch)?;
    std::fs::remove_dir_all(&scratch)?;
    Ok(columns + &table(&rows))
}

fn measure_all(options: &Options) -> Result<Vec<Row>> {
    let scratch = std::path::absolute(options.directory.join("chronicle-bench"))?;
    std::fs::create_dir(&scratch)?;
    if options.watched {
        let top = scratch.join("tree");
        trees::make(&top, 100_000)?;
        let rows = through_the_watcher(&scratch, &top, 100_000)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.trees {
        let mut rows = vec![proof::verify(&scratch)?];
        rows.extend(trees(&scratch, false)?);
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.bucket {
        let rows = bucket::rows(&scratch)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.checkpoints {
        let rows = checkpoints::rows(&scratch)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.overlay {
        let rows = overlay::rows(&scratch)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.replica {
        let mut rows = links::rows(&scratch)?;
        rows.extend(replica::rows(&scratch)?);
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if options.store {
        let rows = contents(&scratch)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    if let Some(kind) = &options.clones {
        say(&format!("clones on {kind}"));
        let rows = clones::rows(&scratch, kind)?;
        std::fs::remove_dir_all(&scratch)?;
        return Ok(rows);
    }
    say("one file");
    let mut rows = rows::in_process(&scratch)?;
    say("one process");
    rows.push(rows::process(&scratch)?);
    say("a turn's end");
    rows.push(proof::turn_end(&scratch)?);
    if !options.small {
        rows.extend(contents(&scratch)?);
        say("verifying");
        rows.push(proof::verify(&scratch)?);
        rows.extend(trees(&scratch, options.large)?);
        say("isolated runs");
        rows.extend(overlay::rows(&scratch)?);
        say("everyday work through mounts");
        rows.extend(mount::table(&scratch)?.1);
    }
    std::fs::remove_dir_all(&scratch)?;
    Ok(rows)
}

/// What content takes, and how fast it is read.
fn contents(scratch: &Path) -> Result<Vec<Row>> {
    say("many small edits");
    let mut rows = edits::rows(scratch)?;
    say("one large file");
    rows.extend(large::rows(scratch)?);
    say("backup programs");
    rows.extend(peers::rows(scratch)?);
    say("a bucket");
    rows.extend(bucket::rows(scratch)?);
    Ok(rows)
}

/// The figures of whole trees.
fn trees(scratch: &Path, large: bool) -> Result<Vec<Row>> {
    let (mut rows, rewind) = tree(scratch, 100_000, 3)?;
    if large {
        let (more, larger) = tree(scratch, 1_000_000, 1)?;
        rows.extend(more);
        say("a walk through a mount");
        rows.push(mount::walk(scratch, &scratch.join("tree-1000000"), 1_000_000)?);
        rows.push(Row {
            what: "the same rewind in a tree ten times larger".to_owned(),
            ours: larger,
            limit: rewind,
            unit: "ms",
            beside: "in 100000 files",
            bound: 1.1,
        });
    }
    Ok(rows)
}

/// All figures of one tree, and how long its rewind took.
fn tree(scratch: &Path, files: usize, rounds: usize) -> Result<(Vec<Row>, f64)> {
    let top = scratch.join(format!("tree-{files}"));
    say(&format!("making {files} files"));
    trees::make(&top, files)?;
    measure::run(&mut std::process::Command::new("sync"), &[0])?;
    say("first capture");
    let mut rows = rows::first(scratch, &top, files, rounds)?;
    say("unchanged look");
    rows.push(rows::look(scratch, &top, files)?);
    if files <= 100_000 {
        rows.extend(through_the_watcher(scratch, &top, files)?);
    }
    say("rewind");
    let (row, ours) = rows::rewind(scratch, &top, files)?;
    rows.push(row);
    Ok((rows, ours))
}

fn through_the_watcher(scratch: &Path, top: &Path, files: usize) -> Result<Vec<Row>> {
    say("looks through the watcher");
    let small = scratch.join("tree-1000");
    trees::make(&small, 1000)?;
    let small = watched::measure(scratch, &small, 1000)?;
    Ok(watched::rows(small, watched::measure(scratch, top, files)?))
}

fn say(what: &str) {
    eprintln!("measuring: {what}");
}

/// The table in Markdown.
fn table(rows: &[Row]) -> String {
    let mut text =
        "| what | ours | beside it | ratio | at most | |\n|---|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let ratio = row.ours / row.limit;
        let verdict = if ratio <= row.bound { "holds" } else { "**misses**" };
        // A pipe would end the cell.
        let (what, beside, unit) = (&row.what, row.beside.replace('|', "\\|"), row.unit);
        let (ours, limit) = (figure(row.ours), figure(row.limit));
        text.push_str(&format!(
            "| {what} | {ours} {unit} | {limit} {unit}: {beside} | {} | {} | {verdict} |\n",
            part(ratio),
            part(row.bound)
        ));
    }
    text
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// A ratio; a small one with the figures that tell it from its bound.
fn part(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}
