//! The limit of a capture: read one file of 8 KiB, hash it, and commit it durably to SQLite.
//!
//! usage: `limit_capture DIR COUNT`; prints the median of the commits in microseconds. The log is
//! checkpointed often, so that it is reused and not extended, as in a catalog that lives long.
#![expect(clippy::print_stdout, reason = "the figure is the output")]

use std::path::Path;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().ok_or("usage: limit_capture DIR COUNT")?;
    let count: usize = words.next().ok_or("usage: limit_capture DIR COUNT")?.parse()?;
    let directory = Path::new(&directory);
    let database = rusqlite::Connection::open(directory.join("limit.db"))?;
    database.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=64;
         CREATE TABLE IF NOT EXISTS object (id BLOB PRIMARY KEY, bytes BLOB) WITHOUT ROWID;",
    )?;
    let file = directory.join("limit.txt");
    let mut times = Vec::with_capacity(count);
    for round in 0..count + 100 {
        std::fs::write(&file, content(round))?;
        let begun = Instant::now();
        let bytes = std::fs::read(&file)?;
        let id = blake3::hash(&bytes);
        database
            .prepare_cached("INSERT OR REPLACE INTO object VALUES (?1, ?2)")?
            .execute((id.as_bytes(), &bytes))?;
        if round >= 100 {
            times.push(begun.elapsed().as_micros());
        }
    }
    times.sort_unstable();
    println!("{}", times[times.len() / 2]);
    Ok(())
}

/// 8 KiB of text that differs from round to round and from run to run.
fn content(round: usize) -> Vec<u8> {
    let line = format!("round {round} of process {} says the same again\n", std::process::id());
    let mut bytes = line.repeat(8192 / line.len() + 1).into_bytes();
    bytes.truncate(8192);
    bytes
}
