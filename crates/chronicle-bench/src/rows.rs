//! The figures, one function each: ours and the limit in interleaved rounds, medians of both.

use std::fs;
use std::path::Path;
use std::process::Command;

use chronicle_core::{Home, InitOptions, SnapshotRequest, Workspace, WorkspacePath};

use crate::measure::{
    Result, chronicle, median, micros, program, run, run_watched, timings_without,
};
use crate::trees;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) ours: f64,
    /// What it is compared with; the bound itself where there is nothing to run beside.
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    pub(crate) beside: &'static str,
    /// The largest accepted ratio of ours to the limit.
    pub(crate) bound: f64,
}

/// The small workspace for figures of one file.
const SMALL: usize = 200;

/// Figures of one file, in process.
pub(crate) fn in_process(scratch: &Path) -> Result<Vec<Row>> {
    let (top, limits) = (scratch.join("small"), scratch.join("limits"));
    fs::create_dir_all(&limits)?;
    trees::make(&top, SMALL)?;
    let home = Home::at(&scratch.join("home-small"));
    let (mut workspace, _) = Workspace::init(&home, &top, &InitOptions::default())?;
    let mut rows = vec![capture(&mut workspace, &top, &limits)?];
    rows.extend(check(&mut workspace)?);
    Ok(rows)
}

fn capture(workspace: &mut Workspace, top: &Path, limits: &Path) -> Result<Row> {
    let request = snapshot_of(&trees::path(0))?;
    let (mut ours, mut limit, mut version) = (Vec::new(), Vec::new(), 0);
    for _ in 0..7 {
        let mut times = Vec::new();
        for _ in 0..150 {
            version += 1;
            let content = [trees::content(0, version), trees::content(1, version)].concat();
            fs::write(top.join(trees::path(0)), content)?;
            times.push(micros(|| Ok(workspace.snapshot(&request)?))?);
            workspace.settle()?;
        }
        ours.push(median(times.split_off(50)));
        let ran = run(Command::new(program("limit_capture")?).arg(limits).arg("100"), &[0])?;
        limit.push(ran.stdout.trim().parse()?);
    }
    Ok(Row {
        what: "capture of one changed 8 KiB file, durable, in process".to_owned(),
        ours: median(ours),
        limit: median(limit),
        unit: "us",
        beside: "read + BLAKE3 + one durable SQLite commit",
        bound: 1.6,
    })
}

fn check(workspace: &mut Workspace) -> Result<Vec<Row>> {
    let path = WorkspacePath::new(trees::path(7))?;
    let request = snapshot_of(&trees::path(7))?;
    let (mut bare, mut recorded) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        bare.push(micros(|| {
            let same = workspace.is_unchanged(&path)?;
            if same { Ok(()) } else { Err("a file that nobody touched has changed".into()) }
        })?);
        recorded.push(micros(|| Ok(workspace.snapshot(&request)?))?);
        workspace.settle()?;
    }
    let row = |what: &str, times, limit| Row {
        what: what.to_owned(),
        ours: median(times),
        limit,
        unit: "us",
        beside: "fixed bound",
        bound: 1.0,
    };
    Ok(vec![
        row("check of an unchanged known file", bare, 60.0),
        row("the same with its record", recorded, 120.0),
    ])
}

fn snapshot_of(path: &str) -> Result<SnapshotRequest> {
    Ok(SnapshotRequest {
        action: "write_file".to_owned(),
        paths: vec![WorkspacePath::new(path)?],
        ..SnapshotRequest::default()
    })
}

/// `chronicle snapshot` as a process of its own.
pub(crate) fn process(scratch: &Path) -> Result<Row> {
    let (home, top) = (scratch.join("home-small"), scratch.join("small"));
    let path = trees::path(3);
    let words = ["snapshot", "--action", "write_file", "--path", &path];
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..330 {
        let mine = run(&mut chronicle(&home, &top, &words)?, &[0])?.seconds * 1e3;
        run(&mut chronicle(&home, &top, &["settle"])?, &[0])?;
        let bare = run(Command::new("/bin/true").env_clear(), &[0])?.seconds * 1e3;
        if round >= 30 {
            ours.push(mine);
            limit.push(bare);
        }
    }
    Ok(Row {
        what: "`chronicle snapshot` as a process, file known".to_owned(),
        ours: median(ours),
        limit: median(limit),
        unit: "ms",
        beside: "spawning `/bin/true`",
        bound: 4.0,
    })
}

/// The first capture of a tree: against the one-core program, against git, and its memory.
pub(crate) fn first(scratch: &Path, top: &Path, files: usize, rounds: usize) -> Result<Vec<Row>> {
    let (mut ours, mut limit, mut git, mut memory) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        let home = scratch.join(format!("home-{files}"));
        remove(&home)?;
        let ran = run_watched(&mut chronicle(&home, top, &["init"])?)?;
        ours.push(ran.seconds);
        memory.push(ran.memory_mb);
        let pack = scratch.join("limit.pack");
        limit.push(run(Command::new(program("limit_first")?).arg(top).arg(&pack), &[0])?.seconds);
        fs::remove_file(&pack)?;
        if files <= 100_000 && round < 2 {
            git.push(git_commit(scratch, top)?);
        }
    }
    let what = format!("first capture of {files} files of 4 KiB");
    let row =
        |what, ours, limit, unit, beside, bound| Row { what, ours, limit, unit, beside, bound };
    let seconds = median(ours);
    let beside = "one core: read, BLAKE3, zstd 3, append, one fsync";
    // A million files fill the cache and the disk's queue for both: there it must not be slower.
    let bound = if files > 100_000 { 1.0 } else { 0.8 };
    let mut rows = vec![row(what.clone(), seconds, median(limit), "s", beside, bound)];
    if !git.is_empty() {
        rows.push(row(what.clone(), seconds, median(git), "s", "git add -A and commit", 0.2));
    }
    let most = if files > 100_000 { 1024.0 } else { 300.0 };
    rows.push(row(
        format!("{what}: resident memory"),
        median(memory),
        most,
        "MB",
        "fixed bound",
        1.0,
    ));
    Ok(rows)
}

fn git_commit(scratch: &Path, top: &Path) -> Result<f64> {
    let shadow = scratch.join("shadow.git");
    remove(&shadow)?;
    let git = |words: &[&str]| -> Result<f64> {
        let mut command = Command::new("git");
        command.env("GIT_DIR", &shadow).env("GIT_WORK_TREE", top).env("HOME", scratch);
        command.args(["-c", "user.name=bench", "-c", "user.email=bench@example.org"]);
        command.args(["-c", "gc.auto=0"]).args(words).current_dir(top);
        Ok(run(&mut command, &[0])?.seconds)
    };
    git(&["init", "-q"])?;
    let seconds = git(&["add", "-A"])? + git(&["commit", "-q", "-m", "first"])?;
    remove(&shadow)?;
    Ok(seconds)
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// A look at a tree in which nothing changed, by a process that just started.
pub(crate) fn look(scratch: &Path, top: &Path, files: usize) -> Result<Row> {
    let home = scratch.join(format!("home-{files}"));
    run(&mut chronicle(&home, top, &["settle"])?, &[0])?;
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..16 {
        let mine = run(&mut chronicle(&home, top, &["changed"])?, &[0])?.seconds * 1e3;
        let bare = run(Command::new(program("limit_walk")?).arg(top), &[0])?.seconds * 1e3;
        if round > 0 {
            ours.push(mine);
            limit.push(bare);
        }
    }
    Ok(Row {
        what: format!("look at an unchanged tree of {files} files, cold process"),
        ours: median(ours),
        limit: median(limit),
        unit: "ms",
        beside: "two threads, getdents and fstatat",
        bound: if files > 100_000 { 1.6 } else { 1.5 },
    })
}

/// A rewind of 5,000 files, without the look before it; also its time alone, for larger trees: the
/// same files change in every tree.
pub(crate) fn rewind(scratch: &Path, top: &Path, files: usize) -> Result<(Row, f64)> {
    let home = scratch.join(format!("home-{files}"));
    let list = scratch.join("changed.list");
    let say = |words: &[&str]| run(&mut chronicle(&home, top, words)?, &[0]);
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 1..=7 {
        let key = format!("round{round}");
        say(&["turn", "start", "--key", &key, "--session", "bench"])?;
        let changed = trees::change(top, 100_000, 20, round)?;
        say(&["turn", "end", "--key", &key, "--session", "bench"])?;
        run(&mut Command::new("sync"), &[0])?;
        let mut command = chronicle(&home, top, &["rewind", "before:turn:-1", "--exact", "--yes"])?;
        let ran = run(command.env("CHRONICLE_TIMINGS", "1"), &[0])?;
        ours.push(timings_without(&ran.stderr, &["look"])? / 1e3);
        fs::write(&list, changed.join("\n"))?;
        run(&mut Command::new("sync"), &[0])?;
        let ran = run(Command::new(program("limit_rewind")?).arg(top).arg(&list), &[0])?;
        limit.push(ran.stdout.trim().parse::<f64>()? / 1e3);
    }
    let (ours, limit) = (median(ours), median(limit));
    let row = Row {
        what: format!("rewind of 5000 of {files} files, without the look"),
        ours,
        limit,
        unit: "ms",
        beside: "temporary names, one syncfs, renames",
        bound: 1.3,
    };
    Ok((row, ours))
}
