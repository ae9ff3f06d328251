//! Measures how small objects may lie on disk: rows in SQLite, an append pack, one file each.
//!
//! `layouts DIRECTORY [FILES]` works below the directory, which should be on a journaled
//! filesystem, and prints a table. The figures behind `docs/decisions/0001-small-objects.md`.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use chronicle_core::{ContentStorage, LocalStore, ObjectId, pack_object, unpack_object};
use rusqlite::Connection;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: u64 = 300;
const READS: usize = 5000;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: layouts DIRECTORY [FILES]")?);
    let files = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(100_000);
    fs::create_dir_all(&directory)?;
    one_object(&directory)?;
    many_objects(&directory, files)
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Bytes like source code: they compress to about a third.
fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 32);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let words: [&[u8]; 8] =
            [b"let ", b"self.", b"    ", b"return ", b"value", b"(index)", b" = ", b";\n"];
        bytes.extend_from_slice(words[(state >> 60) as usize % 8]);
        bytes.extend_from_slice(words[(state >> 50) as usize % 8]);
        if state.is_multiple_of(3) {
            bytes.extend_from_slice(format!("{:x}", state >> 40).as_bytes());
        }
    }
    bytes.truncate(length);
    bytes
}

/// A catalog as the product has it: WAL that is used again, one durable commit.
fn catalog(path: &Path) -> Result<Connection> {
    let catalog = Connection::open(path)?;
    catalog.pragma_update(None, "journal_mode", "wal")?;
    catalog.pragma_update(None, "synchronous", "full")?;
    catalog.pragma_update(None, "wal_autocheckpoint", 64)?;
    catalog.execute_batch(
        "CREATE TABLE object (id BLOB NOT NULL UNIQUE, stored BLOB NOT NULL);
         CREATE TABLE record (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);",
    )?;
    Ok(catalog)
}

fn commit(catalog: &mut Connection, object: Option<(&ObjectId, &[u8])>) -> Result<()> {
    let transaction = catalog.transaction()?;
    if let Some((id, stored)) = object {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO object (id, stored) VALUES (?, ?)")?
            .execute((id.as_bytes(), stored))?;
    }
    transaction.prepare_cached("INSERT INTO record (body) VALUES (?)")?.execute([[7u8; 200]])?;
    Ok(transaction.commit()?)
}

fn create(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)?)
}

fn sync_directory(path: &Path) -> Result<()> {
    Ok(rustix::fs::fsync(File::open(path)?)?)
}

fn write_single(directory: &Path, id: &ObjectId, stored: &[u8], durable: bool) -> Result<()> {
    let hex = id.hex();
    let (new, path) = (directory.join(format!("new-{hex}")), directory.join(&hex[..2]).join(&hex));
    let parent = directory.join(&hex[..2]);
    fs::create_dir_all(&parent)?;
    let file = create(&new)?;
    file.write_all_at(stored, 0)?;
    if durable {
        file.sync_data()?;
    }
    fs::rename(new, path)?;
    if durable { sync_directory(&parent) } else { Ok(()) }
}

/// The median time of one durable object of 8 KiB, with and without the catalog's commit.
fn one_object(directory: &Path) -> Result<()> {
    let directory = &fresh(directory, "one")?;
    let mut rows = catalog(&directory.join("rows.db"))?;
    let mut records = catalog(&directory.join("records.db"))?;
    let pack = create(&directory.join("pack"))?;
    let (mut end, single) = (0, directory.join("single"));
    fs::create_dir(&single)?;

    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..ROUNDS {
        let bytes = content(round, 8 << 10);
        let (id, stored) = (ObjectId::of(&bytes), pack_object(&bytes));
        let mut timed = |at: usize, job: &mut dyn FnMut() -> Result<()>| {
            let start = Instant::now();
            job()?;
            times[at].push(start.elapsed());
            Result::Ok(())
        };
        timed(0, &mut || commit(&mut records, None))?;
        timed(1, &mut || commit(&mut rows, Some((&id, &stored))))?;
        let mut append = || -> Result<()> {
            pack.write_all_at(&stored, end)?;
            end += stored.len() as u64;
            Ok(pack.sync_data()?)
        };
        timed(2, &mut append)?;
        timed(3, &mut || append().and_then(|()| commit(&mut records, None)))?;
        timed(4, &mut || write_single(&single, &id, &stored, true))?;
        let id = ObjectId::of(id.as_bytes());
        timed(5, &mut || {
            write_single(&single, &id, &stored, true)?;
            commit(&mut records, None)
        })?;
    }
    let limit = median(&mut times[0]);
    say("one object of 8 KiB, durable                         us (median)   to the commit alone")?;
    let labels = [
        "catalog commit alone (the limit)",
        "row in the catalog's commit",
        "append pack, fdatasync",
        "append pack, fdatasync + catalog commit",
        "one file, fdatasync, rename, fsync",
        "one file, the same + catalog commit",
    ];
    for (label, times) in labels.iter().zip(&mut times) {
        let time = median(times);
        let ratio = time.as_secs_f64() / limit.as_secs_f64();
        say(&format!("{label:<48} {:>15.0} {ratio:>20.2}x", time.as_secs_f64() * 1e6))?;
    }
    Ok(())
}

fn median<T: Ord + Copy>(measured: &mut [T]) -> T {
    measured.sort_unstable();
    measured[measured.len() / 2]
}

fn fresh(directory: &Path, name: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    fs::create_dir(&path)?;
    Ok(path)
}

fn many_objects(directory: &Path, count: usize) -> Result<()> {
    let tree = make_tree(directory, count)?;
    let names: Vec<PathBuf> = (0..count).map(|number| tree_path(&tree, number)).collect();
    let wanted: Vec<ObjectId> = (0..READS)
        .map(|number| ObjectId::of(&content((number * 7919 % count) as u64, 4 << 10)))
        .collect();
    say(&format!(
        "\n{count} files of 4 KiB, durable at the end        s   to the limit      MB   {READS} reads, ms"
    ))?;
    let layouts: [(&str, &Layout); 5] = [
        ("limit: one thread reads, hashes, compresses, appends", &append_only),
        ("rows in SQLite, one commit, two threads", &rows_layout),
        ("rows in SQLite, with the checkpoint", &rows_checkpointed_layout),
        ("packs (the intake), two threads", &pack_layout),
        ("one file each, one syncfs, two threads", &single_layout),
    ];
    // The first pass only brings the tree into the cache.
    append_only(&fresh(directory, "many")?, &names)?;
    let mut rounds: [Vec<Measured>; 5] = Default::default();
    for _ in 0..3 {
        for ((_, layout), measured) in layouts.iter().zip(&mut rounds) {
            measured.push(measure(layout, &fresh(directory, "many")?, &names, &wanted)?);
        }
    }
    let limit = median(&mut rounds[0]).time.as_secs_f64();
    for ((label, _), measured) in layouts.iter().zip(&mut rounds) {
        let Measured { time, megabytes, reads } = median(measured);
        let time = time.as_secs_f64();
        let reads =
            reads.map_or(String::new(), |reads| format!("{:.0}", reads.as_secs_f64() * 1e3));
        let ratio = time / limit;
        say(&format!("{label:<52} {time:>5.2} {ratio:>10.2}x {megabytes:>9} {reads:>10}"))?;
    }
    fs::remove_dir_all(directory.join("many"))?;
    Ok(fs::remove_dir_all(tree)?)
}

/// Takes all files in and says how one is read back.
type Layout = dyn Fn(&Path, &[PathBuf]) -> Result<Option<Reader>>;
type Reader = Box<dyn FnMut(&ObjectId) -> Result<Vec<u8>>>;

/// What one pass over all files cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Measured {
    time: Duration,
    megabytes: u64,
    reads: Option<Duration>,
}

fn measure(
    layout: &Layout,
    place: &Path,
    names: &[PathBuf],
    wanted: &[ObjectId],
) -> Result<Measured> {
    rustix::fs::sync();
    let start = Instant::now();
    let reader = layout(place, names)?;
    let time = start.elapsed();
    let megabytes = disk_bytes(place)? / 1_000_000;
    let reads = reader.map(|reader| measure_reads(reader, wanted)).transpose()?;
    Ok(Measured { time, megabytes, reads })
}

fn measure_reads(mut read: Reader, wanted: &[ObjectId]) -> Result<Duration> {
    let start = Instant::now();
    for id in wanted {
        read(id)?;
    }
    Ok(start.elapsed())
}

fn tree_path(tree: &Path, number: usize) -> PathBuf {
    tree.join(format!("{}/{number}.rs", number / 100))
}

fn make_tree(directory: &Path, count: usize) -> Result<PathBuf> {
    let tree = fresh(directory, "tree")?;
    for number in 0..count {
        let path = tree_path(&tree, number);
        if number.is_multiple_of(100) {
            fs::create_dir(path.parent().ok_or("no parent")?)?;
        }
        fs::write(path, content(number as u64, 4 << 10))?;
    }
    rustix::fs::sync();
    Ok(tree)
}

fn disk_bytes(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = fs::symlink_metadata(path)?.blocks() * 512;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

fn append_only(place: &Path, names: &[PathBuf]) -> Result<Option<Reader>> {
    let mut pack = std::io::BufWriter::with_capacity(1 << 20, create(&place.join("pack"))?);
    let mut compressor = zstd::bulk::Compressor::new(3)?;
    let (mut bytes, mut stored) = (vec![0; 8 << 10], Vec::with_capacity(16 << 10));
    for name in names {
        let length = std::io::Read::read(&mut File::open(name)?, &mut bytes)?;
        let hash = blake3::hash(&bytes[..length]);
        stored.clear();
        compressor.compress_to_buffer(&bytes[..length], &mut stored)?;
        pack.write_all(hash.as_bytes())?;
        pack.write_all(&stored)?;
    }
    pack.into_inner().map_err(|error| error.into_error())?.sync_data()?;
    Ok(None)
}

/// Reads every file on two threads and does the job with it.
fn on_two_threads(names: &[PathBuf], job: impl Fn(&[u8]) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || -> Result<()> {
        let mut bytes = vec![0; 8 << 10];
        loop {
            let start = next.fetch_add(64, Ordering::Relaxed);
            if start >= names.len() {
                return Ok(());
            }
            for name in &names[start..names.len().min(start + 64)] {
                let length = std::io::Read::read(&mut File::open(name)?, &mut bytes)?;
                job(&bytes[..length])?;
            }
        }
    };
    let run = || {
        if let Err(error) = work() {
            failed.lock().expect("nobody panics").replace(error);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(run);
        run();
    });
    failed.into_inner()?.map_or(Ok(()), Err)
}

fn rows_layout(place: &Path, names: &[PathBuf]) -> Result<Option<Reader>> {
    let catalog = fill_rows(place, names)?;
    Ok(Some(Box::new(move |id| {
        let mut select = catalog.prepare_cached("SELECT stored FROM object WHERE id = ?")?;
        let stored: Vec<u8> = select.query_row([id.as_bytes()], |row| row.get(0))?;
        Ok(unpack_object(id, &stored)?)
    })))
}

fn rows_checkpointed_layout(place: &Path, names: &[PathBuf]) -> Result<Option<Reader>> {
    let catalog = fill_rows(place, names)?;
    catalog.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(None)
}

fn fill_rows(place: &Path, names: &[PathBuf]) -> Result<Connection> {
    let catalog = catalog(&place.join("catalog.db"))?;
    catalog.pragma_update(None, "wal_autocheckpoint", 0)?;
    let (send, receive) = mpsc::sync_channel::<(ObjectId, Vec<u8>)>(1024);
    let insert_all = move || -> Result<Connection> {
        catalog.execute_batch("BEGIN")?;
        for (id, stored) in receive {
            catalog
                .prepare_cached("INSERT OR IGNORE INTO object (id, stored) VALUES (?, ?)")?
                .execute((id.as_bytes(), stored))?;
        }
        catalog.execute_batch("COMMIT")?;
        Ok(catalog)
    };
    std::thread::scope(|scope| {
        let inserting = scope.spawn(insert_all);
        on_two_threads(names, |bytes| Ok(send.send((ObjectId::of(bytes), pack_object(bytes)))?))?;
        drop(send);
        inserting.join().map_err(|_| "the inserting thread panicked")?
    })
}

fn pack_layout(place: &Path, names: &[PathBuf]) -> Result<Option<Reader>> {
    let store = LocalStore::open(&place.join("store"))?;
    let mut intake = store.intake()?;
    on_two_threads(names, |bytes| Ok(intake.take(bytes).map(|_| ())?))?;
    intake.finish()?;
    drop(intake);
    Ok(Some(Box::new(move |id| Ok(store.get(id)?))))
}

fn single_layout(place: &Path, names: &[PathBuf]) -> Result<Option<Reader>> {
    on_two_threads(names, |bytes| {
        write_single(place, &ObjectId::of(bytes), &pack_object(bytes), false)
    })?;
    rustix::fs::syncfs(File::open(place)?)?;
    let place = place.to_owned();
    Ok(Some(Box::new(move |id| {
        let hex = id.hex();
        Ok(unpack_object(id, &fs::read(place.join(&hex[..2]).join(hex))?)?)
    })))
}
