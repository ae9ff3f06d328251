//! Makes the trees that are measured: many files of 4 KiB of text that compresses as sources do.

use std::fs;
use std::path::Path;

use crate::measure::Result;

/// Files in one directory.
const FILES_PER_DIRECTORY: usize = 100;
/// Bytes of one file.
const SIZE: usize = 4096;

/// Writes a tree of so many files, the same ones every time.
pub(crate) fn make(top: &Path, files: usize) -> Result<()> {
    for directory in 0..files.div_ceil(FILES_PER_DIRECTORY) {
        fs::create_dir_all(top.join(directory_of(directory)))?;
    }
    for file in 0..files {
        fs::write(top.join(path(file)), content(file, 0))?;
    }
    Ok(())
}

fn directory_of(number: usize) -> String {
    format!("part{}/d{number}", number / 100)
}

/// The path of a file by its number.
pub(crate) fn path(file: usize) -> String {
    format!("{}/file{file}.rs", directory_of(file / FILES_PER_DIRECTORY))
}

/// The content of a file by its number and version: words of a small vocabulary.
pub(crate) fn content(file: usize, version: usize) -> Vec<u8> {
    let mut state = (file as u64) << 20 ^ version as u64;
    let mut text = Vec::with_capacity(SIZE + 16);
    while text.len() < SIZE {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = state >> 33;
        let ending: &[u8] = if word.is_multiple_of(11) { b";\n    " } else { b" " };
        text.extend_from_slice(format!("w{:x}", word % 4096 * 7919 % 65_536).as_bytes());
        text.extend_from_slice(ending);
    }
    text.truncate(SIZE);
    text
}

/// Every twentieth file gets another version; says which.
pub(crate) fn change(top: &Path, files: usize, step: usize, version: usize) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    for file in (0..files).step_by(step) {
        let path = path(file);
        fs::write(top.join(&path), content(file, version))?;
        changed.push(path);
    }
    Ok(changed)
}
