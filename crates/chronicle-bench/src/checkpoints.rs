//! The figures of checkpoints: how long a cluster stands still on Btrfs, and what one in the content store
//! takes beside `pg_basebackup`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::drivers::btrfs::make_data_directory;
use chronicle_checkpoint::{CreateRequest, create};
use chronicle_core::{Home, InitOptions, Workspace};
use chronicle_testing::mounted::Mounted;
use chronicle_testing::postgres::{Cluster, program};

use crate::measure::{Result, median, micros, run};
use crate::rows::Row;

const ROUNDS: usize = 9;
const BACKUPS: usize = 3;
const IMAGE: u64 = 8 << 30;
/// Rows of about a thousand bytes each.
const SMALL: usize = 10_000;
const TENTH: usize = 100_000;
const LARGE: usize = 1_000_000;
const MIDDLE: usize = 200_000;

/// A cluster on a file system of its own, and a workspace that declares nothing else.
struct Scene {
    cluster: Cluster,
    top: PathBuf,
    _mounted: Mounted,
}

pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let [(small, small_bare), (tenth, tenth_bare), (large, large_bare)] = freezes(scratch)?;
    let row = |what: &str, ours, limit, unit, beside, bound| {
        let what = what.to_owned();
        Row { what, ours, limit, unit, beside, bound }
    };
    let bare = "`btrfs subvolume snapshot -r` as a process";
    let mut rows = vec![
        row("freeze of a cluster of 1 GB on Btrfs", large, small, "ms", "of 10 MB", 2.0),
        row("freeze of a cluster of 1 GB on Btrfs", large, large_bare, "ms", bare, 5.0),
        row("freeze of a cluster of 100 MB on Btrfs", tenth, tenth_bare, "ms", bare, 5.0),
        row("freeze of a cluster of 10 MB on Btrfs", small, small_bare, "ms", bare, 5.0),
    ];
    let store = in_the_store(scratch)?;
    rows.push(row(
        "first checkpoint of a cluster of 200 MB in the content store, on ext4",
        store.first,
        store.backup,
        "s",
        "`pg_basebackup` to a directory, and a sync",
        1.5,
    ));
    rows.push(row(
        "the second after some work: growth of the home",
        store.growth,
        store.changed,
        "MB",
        "the files that changed, and the log",
        1.0,
    ));
    rows.push(row("the same: time", store.second, store.first, "s", "the first", 0.7));
    Ok(rows)
}

impl Scene {
    fn new(scratch: &Path, kind: &str, filler: usize) -> Result<Self> {
        let mounted = Mounted::within(scratch, kind, IMAGE)?;
        let top = mounted.at();
        let data = top.join("cluster");
        if kind == "btrfs" {
            make_data_directory(&data)?;
        }
        let mut cluster = Cluster::new(&data)?;
        cluster.start();
        let rows = "select g as id, repeat(md5(g::text), 30) as words from generate_series(1,";
        cluster.ask(&format!("create table filler as {rows} {filler}) g"))?;
        // What a server would do by itself, some time during the measurement.
        cluster.ask("vacuum freeze filler")?;
        cluster.ask("checkpoint")?;
        let mut made = cluster.client("pgbench");
        run(made.args(["-i", "-q", "-s", "1"]), &[0])?;
        run(&mut Command::new("sync"), &[0])?;
        Ok(Self { cluster, top, _mounted: mounted })
    }

    fn workspace(&self, name: &str) -> Result<Workspace> {
        let code = self.top.join(format!("code-{name}"));
        fs::create_dir(&code)?;
        let place = self.cluster.data().display();
        let text = format!("[[checkpoint.part]]\nname = \"cluster\"\npostgres = \"{place}\"\n");
        fs::write(code.join("chronicle.toml"), text)?;
        let home = Home::at(&self.top.join(format!("home-{name}")));
        let mut workspace = Workspace::init(&home, &code, &InitOptions::default())?.0;
        workspace.accept_config()?;
        Ok(workspace)
    }

    fn work(&self) -> Result<()> {
        let mut bench = self.cluster.client("pgbench");
        run(bench.args(["-n", "-t", "100"]), &[0]).map(drop)
    }
}

/// How long everything stood still, and a bare snapshot, in milliseconds, each after some work: of clusters of three
/// sizes, in turns.
fn freezes(scratch: &Path) -> Result<[(f64, f64); 3]> {
    let mut scenes = Vec::new();
    for filler in [SMALL, TENTH, LARGE] {
        crate::say(&format!("a cluster of {filler} rows"));
        let scene = Scene::new(scratch, "btrfs", filler)?;
        let workspace = scene.workspace("freezes")?;
        scenes.push((scene, workspace, Vec::new(), Vec::new()));
    }
    crate::say("freezes");
    let request = CreateRequest { driver: Some("btrfs".to_owned()), ..CreateRequest::default() };
    for round in 0..ROUNDS {
        for (scene, workspace, ours, bare) in &mut scenes {
            scene.work()?;
            ours.push(create(workspace, &request)?.freeze.as_secs_f64() * 1e3);
            scene.work()?;
            let mut command = Command::new("btrfs");
            command.args(["subvolume", "snapshot", "-r"]).arg(scene.cluster.data());
            command.arg(scene.top.join(format!("bare-{round}")));
            bare.push(run(&mut command, &[0])?.seconds * 1e3);
        }
    }
    let mut medians = scenes.into_iter().map(|(_, _, ours, bare)| (median(ours), median(bare)));
    let mut next = || medians.next().ok_or("a cluster of each size");
    Ok([next()?, next()?, next()?])
}

struct Store {
    first: f64,
    second: f64,
    backup: f64,
    growth: f64,
    changed: f64,
}

fn in_the_store(scratch: &Path) -> Result<Store> {
    crate::say("checkpoints in the content store");
    let scene = Scene::new(scratch, "ext4", MIDDLE)?;
    let (mut first, mut second, mut backup) = (Vec::new(), Vec::new(), Vec::new());
    let (mut growth, mut changed) = (0.0, 0.0);
    for round in 0..BACKUPS {
        let mut workspace = scene.workspace(&round.to_string())?;
        let home = scene.top.join(format!("home-{round}"));
        let mut make = || -> Result<f64> {
            let request = CreateRequest { driver: Some("universal".into()), ..Default::default() };
            Ok(micros(|| Ok(create(&mut workspace, &request)?))? / 1e6)
        };
        first.push(make()?);
        backup.push(base_backup(&scene, round)?);
        let (before, mark) = (size(&home)?, marked(&scene)?);
        scene.work()?;
        second.push(make()?);
        growth = (size(&home)? - before) / 1e6;
        changed = changed_since(scene.cluster.data(), mark)? / 1e6;
    }
    let (first, second, backup) = (median(first), median(second), median(backup));
    Ok(Store { first, second, backup, growth, changed })
}

/// What everybody would do: a copy with the log in it, durable.
fn base_backup(scene: &Scene, round: usize) -> Result<f64> {
    let to = scene.top.join(format!("backup-{round}"));
    let pg_basebackup = program("pg_basebackup").ok_or("pg_basebackup is not installed")?;
    let mut command = scene.cluster.client(&pg_basebackup.to_string_lossy());
    command.arg("-D").arg(&to).args(["-c", "fast", "-X", "fetch"]);
    let seconds = run(&mut command, &[0])?.seconds;
    fs::remove_dir_all(&to)?;
    Ok(seconds)
}

/// A time that everything written from now on is later than.
fn marked(scene: &Scene) -> Result<(i64, i64)> {
    let mark = scene.top.join("mark");
    fs::write(&mark, "")?;
    let about = fs::metadata(&mark)?;
    Ok((about.mtime(), about.mtime_nsec()))
}

fn each_file(top: &Path, see: &mut dyn FnMut(&fs::Metadata)) -> Result<()> {
    for item in fs::read_dir(top)? {
        let item = item?;
        let about = item.metadata()?;
        match about.is_dir() {
            true => each_file(&item.path(), see)?,
            false => see(&about),
        }
    }
    Ok(())
}

fn size(top: &Path) -> Result<f64> {
    let mut total = 0;
    each_file(top, &mut |about| total += about.blocks() * 512)?;
    Ok(total as f64)
}

fn changed_since(top: &Path, mark: (i64, i64)) -> Result<f64> {
    let mut total = 0;
    each_file(top, &mut |about| {
        if (about.mtime(), about.mtime_nsec()) > mark {
            total += about.len();
        }
    })?;
    Ok(total as f64)
}
