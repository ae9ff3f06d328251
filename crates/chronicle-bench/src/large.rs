//! The figures of one large file: what an edit of it adds to the store, and reading it back.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use chronicle_core::{ContentStorage, Home, InitOptions, LocalStore, ObjectId, Workspace};

use crate::measure::Result;
use crate::rows::Row;

const SIZE: u64 = 1 << 30;
/// One in a hundred bytes is changed, in so many places.
const EDITS: u64 = 40;
const EDIT: u64 = SIZE / 100 / EDITS;
/// What a piece has on average.
const PIECE: u64 = 256 << 10;

pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let (top, home) = (scratch.join("large"), scratch.join("home-large"));
    fs::create_dir_all(&top)?;
    let path = top.join("data.bin");
    make(&path)?;
    let (mut workspace, _) = Workspace::init(&Home::at(&home), &top, &InitOptions::default())?;
    let store = LocalStore::open(&home.join("store"))?;
    let before = store.stored_bytes()?;
    let file = File::options().write(true).open(&path)?;
    for edit in 0..EDITS {
        let bytes = noise(edit + 77).take(EDIT as usize).collect::<Vec<u8>>();
        file.write_all_at(&bytes, edit * (SIZE / EDITS) + 4321)?;
    }
    drop(file);
    workspace.settle()?;
    let grown = store.stored_bytes()? - before;
    let allowed = SIZE / 50 + EDITS * PIECE;
    let (ours, limit) = read_back(&store, &path)?;
    fs::remove_dir_all(&top)?;
    Ok(vec![
        Row {
            what: "a file of 1 GiB with 1 % changed in place: growth of the store".to_owned(),
            ours: grown as f64 / 1e6,
            limit: allowed as f64 / 1e6,
            unit: "MB",
            beside: "2 % and one piece for each of 40 edits",
            bound: 1.0,
        },
        Row {
            what: "reading it back".to_owned(),
            ours,
            limit,
            unit: "ms",
            beside: "zstd -d of one frame, and BLAKE3",
            // At least 70 % of that speed.
            bound: 1.0 / 0.7,
        },
    ])
}

/// Bytes that do not compress.
fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 29).to_le_bytes()
    })
    .flatten()
}

/// Half of it noise, half text as sources have it.
pub(crate) fn make(path: &Path) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for part in 0..SIZE >> 20 {
        let bytes: Vec<u8> = match part % 2 {
            0 => noise(part).take(1 << 20).collect(),
            _ => (0..256).flat_map(|n| crate::trees::content(part as usize * 256 + n, 0)).collect(),
        };
        out.write_all(&bytes)?;
    }
    Ok(out.flush()?)
}

/// How long reading takes, through the store and bare, in milliseconds.
fn read_back(store: &LocalStore, path: &Path) -> Result<(f64, f64)> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    let id = ObjectId(*hasher.finalize().as_bytes());
    let frame = path.with_extension("zst");
    zstd::stream::copy_encode(File::open(path)?, File::create(&frame)?, 3)?;
    let (mut ours, mut limit) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let begun = Instant::now();
        drain(&mut store.reader(&id)?, |_| ())?;
        ours = ours.min(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let mut hasher = blake3::Hasher::new();
        drain(&mut zstd::stream::read::Decoder::new(File::open(&frame)?)?, |bytes| {
            hasher.update(bytes);
        })?;
        limit = limit.min(begun.elapsed().as_secs_f64() * 1e3);
        if hasher.finalize().as_bytes() != id.as_bytes() {
            return Err("another content came back".into());
        }
    }
    fs::remove_file(frame)?;
    Ok((ours, limit))
}

fn drain(source: &mut dyn Read, mut see: impl FnMut(&[u8])) -> Result<()> {
    let mut piece = vec![0; 256 << 10];
    loop {
        match source.read(&mut piece)? {
            0 => return Ok(()),
            count => see(&piece[..count]),
        }
    }
}
