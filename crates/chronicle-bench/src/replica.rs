//! The figures of replication without a link: what a replica does with a push, beside the bare writes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use chronicle_core::replica::{Item, Place, Version};
use chronicle_core::{
    ContentStorage, Home, InitOptions, MemoryStore, ObjectId, PushLimits, Seq, Workspace,
    WorkspacePath,
};

use crate::measure::{Result, median, micros, run};
use crate::rows::Row;
use crate::trees;

const ROUNDS: usize = 7;
/// Small files in one push.
const MANY: usize = 1000;
/// Files of a first fill.
const TREE: usize = 100_000;
const LIMITS: PushLimits = PushLimits { items: 50_000, bytes: 24 << 20, content: 4096 };

/// Measures a push of one file, of many, and a first fill.
pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let mut replica = Replica::new(scratch, "pushed")?;
    let mut limit = Limit::new(scratch)?;
    let mut rows = vec![one(&mut replica, &mut limit)?, many(&mut replica, &mut limit)?];
    rows.push(fill(scratch)?);
    Ok(rows)
}

/// A replica whose host is made up.
struct Replica {
    workspace: Workspace,
    place: Place,
}

impl Replica {
    fn new(scratch: &Path, name: &str) -> Result<Self> {
        let top = scratch.join(name);
        fs::create_dir(&top)?;
        let home = Home::at(&scratch.join(format!("home-{name}")));
        let (mut workspace, _) = Workspace::init(&home, &top, &InitOptions::default())?;
        let position = workspace.position()?;
        workspace.become_replica(position.workspace, "nowhere", name)?;
        Ok(Self { workspace, place: Place { epoch: position.epoch, seq: Seq(0) } })
    }

    fn push(&mut self, items: &[Item], contents: &dyn ContentStorage) -> Result<()> {
        self.place.seq = self.place.seq.next();
        let report = self.workspace.apply_push(items, self.place, contents, false)?;
        match report.written >= items.len() as u64 {
            true => Ok(()),
            false => Err(format!("not everything was written: {report:?}").into()),
        }
    }
}

fn content(file: usize, version: usize) -> Vec<u8> {
    trees::content(file, version)[..1024].to_vec()
}

fn item(path: &str, bytes: &[u8], store: &MemoryStore) -> Result<Item> {
    let object = ObjectId::of(bytes);
    store.put(&object, bytes)?;
    let version = Version::File { object, size: bytes.len() as u64, mode: 0o644, mtime_ns: 1 };
    Ok(Item { path: WorkspacePath::new(path)?, seq: Seq(1), version })
}

/// The bare limit: new files, one sync, renames, one durable commit.
struct Limit {
    directory: std::path::PathBuf,
    catalog: rusqlite::Connection,
}

impl Limit {
    fn new(scratch: &Path) -> Result<Self> {
        let directory = scratch.join("bare");
        fs::create_dir(&directory)?;
        let catalog = rusqlite::Connection::open(directory.join("bare.db"))?;
        catalog.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a BLOB)",
        )?;
        Ok(Self { directory, catalog })
    }

    fn write(&mut self, files: &[(String, Vec<u8>)]) -> Result<()> {
        for (name, bytes) in files {
            let mut file = File::create(self.directory.join(format!("{name}.new")))?;
            file.write_all(bytes)?;
            if files.len() == 1 {
                file.sync_data()?;
            }
        }
        if files.len() > 1 {
            rustix::fs::syncfs(File::open(&self.directory)?)?;
        }
        for (name, _) in files {
            let from = self.directory.join(format!("{name}.new"));
            fs::rename(from, self.directory.join(name))?;
        }
        self.catalog.execute("INSERT INTO t VALUES (?1)", [vec![0_u8; 1024]])?;
        Ok(())
    }
}

fn one(replica: &mut Replica, bare: &mut Limit) -> Result<Row> {
    let (mut ours, mut limit, mut version) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            version += 1;
            let (bytes, store) = (content(0, version), MemoryStore::default());
            let items = [item("one.rs", &bytes, &store)?];
            mine.push(micros(|| replica.push(&items, &store))?);
            let files = [("one.rs".to_owned(), bytes)];
            theirs.push(micros(|| bare.write(&files))?);
        }
        ours.push(median(mine.split_off(20)));
        limit.push(median(theirs.split_off(20)));
    }
    Ok(Row {
        what: "push of one changed 1 KiB file, applied and durable".to_owned(),
        ours: median(ours),
        limit: median(limit),
        unit: "us",
        beside: "write + fdatasync + rename + one durable SQLite commit",
        bound: 2.5,
    })
}

fn many(replica: &mut Replica, bare: &mut Limit) -> Result<Row> {
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for version in 1..=ROUNDS {
        let (store, mut items, mut files) = (MemoryStore::default(), Vec::new(), Vec::new());
        for file in 0..MANY {
            let bytes = content(file, version);
            items.push(item(&format!("many{}-{file}.rs", version % 2), &bytes, &store)?);
            files.push((format!("many{}-{file}.rs", version % 2), bytes));
        }
        ours.push(micros(|| replica.push(&items, &store))? / 1e3);
        limit.push(micros(|| bare.write(&files))? / 1e3);
    }
    Ok(Row {
        what: format!("push of {MANY} files of 1 KiB, applied and durable"),
        ours: median(ours),
        limit: median(limit),
        unit: "ms",
        beside: "write all + one sync + rename all + one durable SQLite commit",
        bound: 4.0,
    })
}

/// Fills an empty replica from a host's log and store, beside `tar | tar` and a sync.
fn fill(scratch: &Path) -> Result<Row> {
    let (source, home) = (scratch.join("source"), Home::at(&scratch.join("home-source")));
    trees::make(&source, TREE)?;
    let (mut host, _) = Workspace::init(&home, &source, &InitOptions::default())?;
    rustix::fs::sync();
    let mut replica = Replica::new(scratch, "filled")?;
    let begun = Instant::now();
    let mut after = Seq(0);
    loop {
        let Some(push) = host.changes_for_replica(after, LIMITS, &|_, _| true)? else {
            return Err("the log does not tell everything".into());
        };
        let contents = host.replica_contents()?;
        replica.workspace.apply_push(&push.items, push.to, contents, false)?;
        after = push.to.seq;
        if !push.more {
            break;
        }
    }
    let ours = begun.elapsed().as_secs_f64();
    let copy = scratch.join("copy");
    fs::create_dir(&copy)?;
    rustix::fs::sync();
    let pipe = format!("tar cf - -C {} . | tar xf - -C {}", source.display(), copy.display());
    let begun = Instant::now();
    run(Command::new("sh").args(["-c", &pipe]), &[0])?;
    rustix::fs::syncfs(File::open(&copy)?)?;
    let limit = begun.elapsed().as_secs_f64();
    Ok(Row {
        what: format!("first fill of {TREE} files of 4 KiB, with their history"),
        ours,
        limit,
        unit: "s",
        beside: "`tar | tar` and a sync",
        bound: 1.0,
    })
}
