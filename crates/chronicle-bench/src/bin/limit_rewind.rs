//! The limit of a rewind: write the files to temporary names, sync the file system once, rename.
//!
//! usage: `limit_rewind DIR LIST`; LIST names one path below DIR a line. Each file is read first
//! and written back with the same bytes; only the writing counts. Prints it in microseconds.
#![expect(clippy::print_stdout, reason = "the figure is the output")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: limit_rewind DIR LIST";
    let (top, list) = (words.next().ok_or(usage)?, words.next().ok_or(usage)?);
    let mut files: Vec<(PathBuf, PathBuf, Vec<u8>)> = Vec::new();
    for line in fs::read_to_string(list)?.lines() {
        let path = Path::new(&top).join(line);
        let content = fs::read(&path)?;
        files.push((path.with_extension("limit-new"), path, content));
    }
    let begun = Instant::now();
    for (new, _, content) in &files {
        fs::write(new, content)?;
    }
    rustix::fs::syncfs(File::open(&top)?)?;
    for (new, path, _) in &files {
        fs::rename(new, path)?;
    }
    println!("{}", begun.elapsed().as_micros());
    Ok(())
}
