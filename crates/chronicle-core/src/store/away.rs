//! Which objects were taken away here because another store has them.
//!
//! The list is durable before anything goes, so that what was taken away on purpose never looks as if it
//! were lost.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{self, Temporary};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;

const MAGIC: &[u8; 8] = b"chr-away";
const ID: usize = 32;

/// The file with the list.
fn path(store: &Path) -> PathBuf {
    store.join("away")
}

/// The objects that were taken away; none where there is no list.
pub(super) fn read(store: &Path) -> Result<BTreeSet<ObjectId>> {
    let path = path(store);
    let Some(mut file) = files::open(&path)? else { return Ok(BTreeSet::new()) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).at("read", &path)?;
    decode(&bytes).ok_or_else(|| Error::Io {
        action: "understand",
        path,
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, "it is damaged"),
    })
}

/// Adds objects to the list, durably.
pub(super) fn add(store: &Path, ids: impl IntoIterator<Item = ObjectId>) -> Result<()> {
    // A list that cannot be read is made anew: it only ever tells two kinds of absence apart.
    let mut all = read(store).unwrap_or_default();
    all.extend(ids);
    let mut file = Temporary::create(&store.join("tmp"))?;
    file.file().write_all_at(&encode(&all), 0).at("write", file.path())?;
    file.sync()?;
    file.rename(path(store))?;
    file.keep();
    files::sync_directory(store)
}

fn encode(ids: &BTreeSet<ObjectId>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    ids.iter().for_each(|id| bytes.extend_from_slice(id.as_bytes()));
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<BTreeSet<ObjectId>> {
    let (content, checksum) = bytes.split_at_checked(bytes.len().checked_sub(ID)?)?;
    let (ids, []) = content.strip_prefix(MAGIC)?.as_chunks::<ID>() else { return None };
    let whole = blake3::hash(content).as_bytes() == checksum;
    whole.then(|| ids.iter().map(|id| ObjectId(*id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_grows_and_a_damaged_one_is_no_list() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("tmp")).unwrap();
        assert_eq!(read(home.path()).unwrap().len(), 0);
        add(home.path(), [ObjectId([2; 32]), ObjectId([1; 32])]).unwrap();
        add(home.path(), [ObjectId([3; 32]), ObjectId([1; 32])]).unwrap();
        let all: Vec<_> = read(home.path()).unwrap().into_iter().map(|id| id.0[0]).collect();
        assert_eq!(all, [1, 2, 3]);
        let bytes = std::fs::read(path(home.path())).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "at {length}");
        }
    }

    #[test]
    fn mutated_lists() {
        let sample = encode(&BTreeSet::from([ObjectId([1; 32]), ObjectId([9; 32])]));
        crate::fuzz::target("away", &[sample], |input| decode(input).is_some());
    }
}
