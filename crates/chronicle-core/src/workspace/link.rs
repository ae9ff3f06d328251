//! Which files are hard links of one another.

use std::collections::HashMap;

use crate::entry::Entry;
use crate::id::LinkGroup;
use crate::known::{Known, Signature};
use crate::look::Examined;
use crate::path::WorkspacePath;

/// Gives files with several names their link groups.
///
/// Whatever adds or removes a name changes the time of all of them, so all names of a changed
/// group are seen in one look; but the directory of one may move, and nothing tells of the others.
/// So a group keeps its id while its inode stays, also under a name that was `left` for another; a
/// new one is named after the inode, so that two looks that see different names agree.
pub(super) fn group_links(
    found: &mut [(Option<Known>, Examined)],
    left: &[(WorkspacePath, Known)],
    born_ns: &dyn Fn(usize) -> i64,
) {
    let mut groups: HashMap<(u64, u64), LinkGroup> = HashMap::new();
    for (was, examined) in found.iter() {
        if let (Some(key), Some(group)) = (key(examined), kept_group(was.as_ref(), examined)) {
            groups.entry(key).or_insert(group);
        }
    }
    let replaced = found.iter().filter_map(|(was, _)| was.as_ref());
    let left = left.iter().map(|(_, known)| known).chain(replaced).filter_map(linked);
    let left: HashMap<u64, (Signature, LinkGroup)> =
        left.map(|(signature, group)| (signature.ino, (signature, group))).collect();
    for (_, examined) in found.iter() {
        // Its directory moved, and nothing else happened to it.
        if let (Some(key), Some(now)) = (key(examined), examined.known.signature)
            && let Some((was, group)) = left.get(&now.ino)
            && *was == now
        {
            groups.entry(key).or_insert(*group);
        }
    }
    for (index, (_, examined)) in found.iter_mut().enumerate() {
        let Some(key) = key(examined) else { continue };
        let group = *groups.entry(key).or_insert_with(|| new_group(key, born_ns(index)));
        if let Entry::File(file) = &mut examined.known.entry {
            file.link = Some(group);
        }
    }
}

/// Device and inode of a file with more than one name.
fn key(examined: &Examined) -> Option<(u64, u64)> {
    let several = examined.nlink > 1 && matches!(examined.known.entry, Entry::File(_));
    several.then_some((examined.dev, examined.known.signature?.ino))
}

/// What a name of a group looked like, and the group.
fn linked(known: &Known) -> Option<(Signature, LinkGroup)> {
    match &known.entry {
        Entry::File(file) => Some((known.signature?, file.link?)),
        _ => None,
    }
}

/// The group that the same inode had before.
fn kept_group(was: Option<&Known>, examined: &Examined) -> Option<LinkGroup> {
    let was = was?;
    let same_inode = was.signature?.ino == examined.known.signature?.ino;
    match &was.entry {
        Entry::File(file) if same_inode => file.link,
        _ => None,
    }
}

fn new_group((dev, ino): (u64, u64), born_ns: i64) -> LinkGroup {
    let mut hasher = blake3::Hasher::new();
    for part in [dev.to_le_bytes(), ino.to_le_bytes(), born_ns.to_le_bytes()] {
        hasher.update(&part);
    }
    let mut id = [0; 8];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    LinkGroup(id)
}
