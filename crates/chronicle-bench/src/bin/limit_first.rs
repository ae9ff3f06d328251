//! The limit of a first capture on one core: read every file, hash it, compress it, append it to
//! one file, and sync that once.
//!
//! usage: `limit_first DIR OUT`; prints the bytes that it wrote.
#![expect(clippy::print_stdout, reason = "the size is the output")]

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Pack {
    out: BufWriter<File>,
    compressor: zstd::bulk::Compressor<'static>,
    buffer: Vec<u8>,
    written: usize,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: limit_first DIR OUT";
    let (top, out) = (words.next().ok_or(usage)?, words.next().ok_or(usage)?);
    let mut pack = Pack {
        out: BufWriter::with_capacity(1 << 20, File::create(out)?),
        compressor: zstd::bulk::Compressor::new(3)?,
        buffer: Vec::new(),
        written: 0,
    };
    walk(Path::new(&top), &mut pack)?;
    pack.out.into_inner()?.sync_all()?;
    println!("{}", pack.written);
    Ok(())
}

fn walk(directory: &Path, pack: &mut Pack) -> Result<()> {
    for item in fs::read_dir(directory)? {
        let item = item?;
        if item.file_type()?.is_dir() {
            walk(&item.path(), pack)?;
        } else {
            take(&item.path(), pack)?;
        }
    }
    Ok(())
}

fn take(path: &Path, pack: &mut Pack) -> Result<()> {
    pack.buffer.clear();
    File::open(path)?.read_to_end(&mut pack.buffer)?;
    let id = blake3::hash(&pack.buffer);
    let stored = pack.compressor.compress(&pack.buffer)?;
    pack.out.write_all(id.as_bytes())?;
    pack.out.write_all(&stored)?;
    pack.written += 32 + stored.len();
    Ok(())
}
