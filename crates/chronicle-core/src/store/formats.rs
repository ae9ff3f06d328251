//! Which formats a store is in, read from the first bytes of its files.

use std::path::Path;

use super::chunks::{CODEC_CHUNKS, VERSION as PIECES_VERSION};
use super::group::CODEC_GROUP;
use super::local::{FORMAT_VERSION, FORMAT_WORDS};
use super::{index, pack};
use crate::error::Result;
use crate::formats::{Tally, beginning, format, inside};
use crate::view::{Format, FormatFound, UpgradeVerdict};

pub(crate) const STORE: Format = format("store", "`store/format`", 1, FORMAT_VERSION);
pub(crate) const PACK: Format =
    format("pack", "bytes 8 to 11 of `packs/NAME.pack`", 1, pack::MAGIC[8] as u64);
pub(crate) const INDEX: Format =
    format("index of a pack", "bytes 8 to 11 of `packs/NAME.idx`", 1, index::VERSION as u64);
pub(crate) const OBJECT: Format = format("stored form", "first byte", 0, CODEC_GROUP as u64);
pub(crate) const PIECES: Format =
    format("object in pieces", "byte 9 of a stored form 4", 1, PIECES_VERSION as u64);

/// Where the version of an object in pieces stands: behind the codec and the length.
const PIECES_AT: usize = 9;

/// Looks at every file of a store; one that was never made is in no format.
pub(crate) fn look(directory: &Path) -> Result<Vec<FormatFound>> {
    let (mut store, mut packs, mut indexes) =
        (Tally::new(STORE), Tally::new(PACK), Tally::new(INDEX));
    look_at_mark(&directory.join("format"), &mut store);
    for path in inside(&directory.join("packs"))? {
        match path.extension().and_then(|end| end.to_str()) {
            Some("pack") => packs.read::<12>(&path, &pack::MAGIC[..8], number),
            Some("idx") => indexes.read::<12>(&path, index::MAGIC, number),
            _ => {}
        }
    }
    let (mut objects, mut pieces) = (Tally::new(OBJECT), Tally::new(PIECES));
    for shelf in inside(&directory.join("objects"))? {
        for path in inside(&shelf)? {
            look_at_object(&path, &mut objects, &mut pieces);
        }
    }
    let mut all = [store, packs, indexes, objects, pieces].map(Tally::end);
    // Every one of these is still written, each for what it is good for.
    for it in all.iter_mut().filter(|it| [INDEX, OBJECT].contains(&it.format)) {
        if it.verdict == UpgradeVerdict::Older {
            it.verdict = UpgradeVerdict::Current;
        }
    }
    Ok(all.into_iter().filter(|it| it.count > 0 || !it.problems.is_empty()).collect())
}

fn number(rest: &[u8]) -> u64 {
    rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes).into())
}

fn look_at_mark(path: &Path, store: &mut Tally) {
    let text = match beginning::<256>(path) {
        Ok(Some(bytes)) => String::from_utf8(bytes).unwrap_or_default(),
        Ok(None) => return,
        Err(error) => return store.damaged(path, &error.to_string()),
    };
    match text.strip_prefix(FORMAT_WORDS).map(|version| version.trim_end().parse()) {
        Some(Ok(version)) => store.add(version),
        _ => store.damaged(path, "it names no version"),
    }
}

fn look_at_object(path: &Path, objects: &mut Tally, pieces: &mut Tally) {
    match beginning::<{ PIECES_AT + 1 }>(path) {
        Ok(Some(head)) => {
            let Some(&codec) = head.first() else { return objects.damaged(path, "it is empty") };
            objects.add(codec.into());
            if codec == CODEC_CHUNKS && head.len() > PIECES_AT {
                pieces.add(head[PIECES_AT].into());
            }
        }
        Ok(None) => {}
        Err(error) => objects.damaged(path, &error.to_string()),
    }
}
