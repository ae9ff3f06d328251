//! The limit of a verification: one core that reads every record of a catalog and hashes its bytes, and
//! the names of its objects, and nothing else.
//!
//! usage: `limit_verify CATALOG`; prints how many bytes it hashed.
#![expect(clippy::print_stdout, reason = "the count is the output")]

use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or("usage: limit_verify CATALOG")?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let catalog = Connection::open_with_flags(path, flags)?;
    let mut hashed = hash_all(&catalog, "SELECT leaf, body FROM record ORDER BY seq", 2)?;
    hashed += hash_all(&catalog, "SELECT id FROM object", 1)?;
    println!("{hashed}");
    Ok(())
}

/// Hashes every value of these rows for itself; how many bytes that were.
fn hash_all(catalog: &Connection, sql: &str, columns: usize) -> Result<u64> {
    let mut statement = catalog.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut hashed = 0;
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            let bytes = row.get_ref(column)?.as_blob()?;
            std::hint::black_box(Sha256::digest(bytes));
            hashed += bytes.len() as u64;
        }
    }
    Ok(hashed)
}
