//! What is too long for one frame, in parts: about how long things are on the wire, and gathering them.

use chronicle_core::replica::{Node, Verdict, Version};

use crate::limits::GATHERED;
use crate::wire::{PushItem, SentWrite};

/// Things in runs of about [`GATHERED`] bytes; one run if there are none.
pub(crate) fn gather<T>(things: Vec<T>, length: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut runs = vec![Vec::new()];
    let mut room = GATHERED;
    for thing in things {
        let length = length(&thing);
        let run = runs.last_mut().expect("BUG: there is always one");
        if length > room && !run.is_empty() {
            runs.push(vec![thing]);
            room = GATHERED.saturating_sub(length);
        } else {
            run.push(thing);
            room = room.saturating_sub(length);
        }
    }
    runs
}

/// About how long a version is, at most.
fn version_length(version: &Version) -> usize {
    64 + if let Version::Symlink { target } = version { target.len() } else { 0 }
}

/// About how long an item of a push is, at most.
pub(crate) fn item_length(item: &PushItem) -> usize {
    let inline = item.content_length();
    32 + item.item.path.as_bytes().len() + version_length(&item.item.version) + inline
}

/// About how long a write is, at most.
pub(crate) fn write_length(sent: &SentWrite) -> usize {
    let inline = sent.inline.as_ref().map_or(0, Vec::len);
    let versions = version_length(&sent.write.base) + version_length(&sent.write.after);
    32 + sent.write.path.as_bytes().len() + versions + inline
}

/// About how long an entry of a listing is, at most.
pub(crate) fn node_length(node: &Node) -> usize {
    48 + node.name.len() + version_length(&node.version)
}

/// About how long a verdict is, at most.
pub(crate) fn verdict_length(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Accepted(_) => 12,
        Verdict::Rejected { theirs, .. } => 16 + theirs.as_ref().map_or(0, version_length),
    }
}
