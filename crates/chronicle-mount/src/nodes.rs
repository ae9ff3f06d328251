//! Which numbers the kernel was given for which files, and under which names it knows them.
//!
//! A node stands for one backing file, so that hard links share it; its names are pairs of a parent and a
//! component. Names are what somebody saw last: whoever acts on one compares the file first.
//!
//! A node's number is the file's own wherever that can be, because programs (git) remember file numbers and ought
//! to see the same with and without the mount.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use fuser::FileType;

use crate::name::Name;
use crate::slab::Slab;
use crate::table::{NONE, Table};

/// The root's number, which FUSE fixes.
pub(crate) const ROOT: u64 = 1;

/// Numbers that are nobody's file number on the root's device: where those are taken, or of another device.
const SPECIAL: u64 = 1 << 62;

/// The slot of the root.
const TOP: u32 = 1;

/// More components than any path has; a walk upwards that is longer goes in a circle.
const DEEPEST: usize = 4096;

/// What the backing file system tells files apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) ino: u64,
}

impl From<&rustix::fs::Stat> for FileId {
    fn from(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, ino: stat.st_ino }
    }
}

/// A place where a file has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
}

#[derive(Debug)]
struct Node {
    ino: u64,
    /// How often the kernel was given this number and has not forgotten it.
    lookups: u64,
    generation: u32,
    /// 0 if the number is the file's own.
    special: u32,
    first: u32,
    /// Names that have this directory as their parent.
    children: u32,
    /// Open handles and others of ours that need the number to keep its meaning.
    pins: u32,
    device: u16,
    kind: FileType,
    /// Whether the file is still found by its [`FileId`].
    indexed: bool,
}

#[derive(Debug)]
struct Link {
    parent: u32,
    node: u32,
    next: u32,
    name: Name,
}

/// What a lookup came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) node: u64,
    pub(crate) generation: u64,
    /// Nobody knew it before.
    pub(crate) is_new: bool,
}

/// All nodes and names.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Slab<Node>,
    links: Slab<Link>,
    by_file: Table,
    by_name: Table,
    devices: Vec<u64>,
    /// Nodes that are not found by taking their number for a file's.
    others: HashMap<u64, u32>,
    /// How many nodes were ever made.
    made: u32,
    hasher: RandomState,
}

impl Nodes {
    /// Only the root, which is never forgotten.
    pub(crate) fn new(root: FileId) -> Self {
        let mut all = Self {
            nodes: Slab::new(),
            links: Slab::new(),
            by_file: Table::new(),
            by_name: Table::new(),
            devices: Vec::new(),
            others: HashMap::new(),
            made: 0,
            hasher: RandomState::new(),
        };
        all.nodes.insert(|_| all_zero());
        let top = all.make(root, FileType::Directory, false);
        all.nodes.get_mut(top).pins = 1;
        all.others.insert(ROOT, top);
        debug_assert_eq!(top, TOP);
        all
    }

    /// How many files are known.
    pub(crate) fn count(&self) -> usize {
        self.nodes.count() - 1
    }

    /// A file was seen at a place; the kernel is told so often.
    #[cfg(test)]
    pub(crate) fn found(
        &mut self,
        parent: u64,
        name: &[u8],
        file: FileId,
        kind: FileType,
        lookups: u64,
    ) -> Found {
        self.found_as(parent, name, file, kind, lookups, false)
    }

    /// The same; `changes` is whether the file is a placeholder, whose place another file takes and whose number stays.
    pub(crate) fn found_as(
        &mut self,
        parent: u64,
        name: &[u8],
        file: FileId,
        kind: FileType,
        lookups: u64,
        changes: bool,
    ) -> Found {
        let known = self.node_of(file).filter(|node| self.is_still(*node, kind));
        let is_new = known.is_none();
        let node = known.unwrap_or_else(|| self.make(file, kind, changes));
        // Before the name is put in: whatever is dropped for it, this one is not.
        self.nodes.get_mut(node).lookups += lookups;
        if let Some(parent) = self.slot(parent) {
            self.put_name(parent, name, node);
        }
        let generation = self.nodes.get(node).generation.into();
        Found { node: self.number(node), generation, is_new }
    }

    /// A placeholder was filled: its node stands for the file that is there now. False if that is known by another number
    /// already.
    pub(crate) fn filled(&mut self, node: u64, place: &Place, file: FileId) -> bool {
        let Some(slot) = self.slot(node).filter(|slot| self.nodes.get(*slot).special != 0) else {
            return false;
        };
        match self.node_of(file) {
            Some(other) if other == slot => {}
            Some(_) => return false,
            None => {
                self.unindex(slot);
                let device = self.device(file.device);
                let known = self.nodes.get_mut(slot);
                (known.ino, known.device, known.indexed) = (file.ino, device, true);
                self.index(slot);
            }
        }
        // Whoever heard of the new file first has taken the name away.
        if let Some(parent) = self.slot(place.parent) {
            self.put_name(parent, &place.name, slot);
        }
        true
    }

    /// The file that was last seen at a place.
    pub(crate) fn at(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.link_at(self.slot(parent)?, name).map(|link| self.number(self.links.get(link).node))
    }

    /// A file that is known and open has come to another place, by somebody else's doing.
    pub(crate) fn moved(&mut self, parent: u64, name: &[u8], file: FileId) {
        if let (Some(parent), Some(node)) = (self.slot(parent), self.node_of(file)) {
            self.put_name(parent, name, node);
        }
    }

    /// A name is gone.
    pub(crate) fn removed(&mut self, parent: u64, name: &[u8]) {
        if let Some(link) = self.slot(parent).and_then(|parent| self.link_at(parent, name)) {
            self.cut(link);
        }
    }

    /// A name has moved, or two have traded places.
    pub(crate) fn renamed(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), exchange: bool) {
        let (Some(old), Some(new)) = (self.slot(from.0), self.slot(to.0)) else { return };
        let moved = self.link_at(old, from.1).map(|link| self.links.get(link).node);
        let replaced = self.link_at(new, to.1).map(|link| self.links.get(link).node);
        if moved.is_some() && moved == replaced {
            // Two names of one file: the system call does nothing, and both stay.
            return;
        }
        for node in moved.iter().chain(&replaced) {
            // Without a name for a moment, it must not be dropped.
            self.nodes.get_mut(*node).pins += 1;
        }
        self.removed(from.0, from.1);
        self.removed(to.0, to.1);
        if let Some(node) = moved {
            self.put_name(new, to.1, node);
        }
        if let Some(node) = replaced.filter(|_| exchange) {
            self.put_name(old, from.1, node);
        }
        for node in moved.into_iter().chain(replaced) {
            self.nodes.get_mut(node).pins -= 1;
            self.drop_unused(node);
        }
    }

    /// The kernel forgot a node so many times.
    pub(crate) fn forget(&mut self, node: u64, times: u64) {
        if let Some(slot) = self.slot(node) {
            let known = self.nodes.get_mut(slot);
            known.lookups = known.lookups.saturating_sub(times);
            self.drop_unused(slot);
        }
    }

    /// The node keeps its meaning until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self, node: u64) {
        if let Some(slot) = self.slot(node) {
            self.nodes.get_mut(slot).pins += 1;
        }
    }

    pub(crate) fn unpin(&mut self, node: u64) {
        if let Some(slot) = self.slot(node) {
            let known = self.nodes.get_mut(slot);
            known.pins = known.pins.saturating_sub(1);
            self.drop_unused(slot);
        }
    }

    /// Which file it is, if the node is one.
    pub(crate) fn file(&self, node: u64) -> Option<FileId> {
        let node = self.known(node)?;
        Some(FileId { device: self.devices[usize::from(node.device)], ino: node.ino })
    }

    /// What kind of thing it is.
    pub(crate) fn kind(&self, node: u64) -> Option<FileType> {
        self.known(node).map(|node| node.kind)
    }

    /// Every known name of a file.
    pub(crate) fn places(&self, node: u64) -> Vec<Place> {
        let mut found = Vec::new();
        let mut at = self.known(node).map_or(NONE, |node| node.first);
        while at != NONE {
            let link = self.links.get(at);
            found.push(self.place_of(link));
            at = link.next;
        }
        found
    }

    /// The first known name of a file.
    pub(crate) fn place(&self, node: u64) -> Option<Place> {
        let first = self.known(node)?.first;
        (first != NONE).then(|| self.place_of(self.links.get(first)))
    }

    /// The path of a name in a directory, from the root.
    pub(crate) fn path(&self, parent: u64, name: &[u8]) -> Option<Vec<u8>> {
        let mut names = vec![name];
        let mut at = self.slot(parent)?;
        while at != TOP {
            let first = self.nodes.get(at).first;
            if first == NONE || names.len() > DEEPEST {
                return None;
            }
            let link = self.links.get(first);
            names.push(link.name.as_bytes());
            at = link.parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Calls with every directory and every name in it.
    pub(crate) fn each(&self, mut told: impl FnMut(u64, u64, &[u8])) {
        for node in (0..self.nodes.length()).filter(|node| self.nodes.get(*node).is_used()) {
            let mut at = self.nodes.get(node).first;
            while at != NONE {
                let link = self.links.get(at);
                told(self.number(node), self.number(link.parent), link.name.as_bytes());
                at = link.next;
            }
        }
    }

    fn known(&self, node: u64) -> Option<&Node> {
        self.slot(node).map(|slot| self.nodes.get(slot))
    }

    fn slot(&self, number: u64) -> Option<u32> {
        if let Some(slot) = self.others.get(&number) {
            return Some(*slot);
        }
        let file = FileId { device: self.devices[0], ino: number };
        self.node_of(file).filter(|slot| self.nodes.get(*slot).special == 0)
    }

    fn number(&self, slot: u32) -> u64 {
        let node = self.nodes.get(slot);
        match (slot, node.special) {
            (TOP, _) => ROOT,
            (_, 0) => node.ino,
            (_, special) => SPECIAL | u64::from(special),
        }
    }

    fn place_of(&self, link: &Link) -> Place {
        Place { parent: self.number(link.parent), name: link.name.as_bytes().to_vec() }
    }

    /// Whether a file found by its number is the one that the node stood for.
    ///
    /// A file system uses numbers again. While a handle is open its number is taken; without a name and a
    /// handle nothing says that it is the same.
    fn is_still(&self, node: u32, kind: FileType) -> bool {
        let known = self.nodes.get(node);
        known.kind == kind && (known.first != NONE || known.pins > 0)
    }

    fn make(&mut self, file: FileId, kind: FileType, changes: bool) -> u32 {
        if let Some(old) = self.node_of(file) {
            self.unindex(old);
        }
        let device = self.device(file.device);
        self.made = self.made.wrapping_add(1).max(1);
        let is_plain = device == 0 && file.ino < SPECIAL && !self.others.contains_key(&file.ino);
        let is_own = is_plain && !changes;
        let (generation, special) = (self.made, if is_own { 0 } else { self.made });
        let slot = self.nodes.insert(|_| Node {
            ino: file.ino,
            generation,
            special,
            device,
            kind,
            indexed: true,
            ..all_zero()
        });
        if special != 0 {
            self.others.insert(self.number(slot), slot);
        }
        self.index(slot);
        slot
    }

    fn index(&mut self, slot: u32) {
        let (nodes, devices, hasher) = (&self.nodes, &self.devices, &self.hasher);
        let hash = hash_of_file(nodes, devices, hasher, slot);
        self.by_file.insert(hash, slot, |node| hash_of_file(nodes, devices, hasher, node));
    }

    fn device(&mut self, device: u64) -> u16 {
        let known = self.devices.iter().position(|known| *known == device);
        known.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        }) as u16
    }

    fn node_of(&self, file: FileId) -> Option<u32> {
        let is_it = |node: u32| {
            let node = self.nodes.get(node);
            node.ino == file.ino && self.devices[usize::from(node.device)] == file.device
        };
        self.by_file.find(self.hasher.hash_one(file), is_it)
    }

    fn unindex(&mut self, node: u32) {
        if !std::mem::take(&mut self.nodes.get_mut(node).indexed) {
            return;
        }
        // The kernel still knows it by this number.
        self.others.insert(self.number(node), node);
        let (nodes, devices, hasher) = (&self.nodes, &self.devices, &self.hasher);
        let hash = hash_of_file(nodes, devices, hasher, node);
        self.by_file.remove(hash, node, |node| hash_of_file(nodes, devices, hasher, node));
    }

    fn link_at(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let is_it = |link: u32| {
            let link = self.links.get(link);
            link.parent == parent && link.name.as_bytes() == name
        };
        self.by_name.find(self.hasher.hash_one((parent, name)), is_it)
    }

    fn put_name(&mut self, parent: u32, name: &[u8], node: u32) {
        if let Some(link) = self.link_at(parent, name) {
            if self.links.get(link).node == node {
                return;
            }
            self.cut(link);
        }
        if self.nodes.get(node).kind == FileType::Directory && self.nodes.get(node).first != NONE {
            // A directory has one name; it was moved by somebody else.
            self.cut(self.nodes.get(node).first);
        }
        let next = self.nodes.get(node).first;
        let link = self.links.insert(|_| Link { parent, node, next, name: name.into() });
        self.nodes.get_mut(node).first = link;
        self.nodes.get_mut(parent).children += 1;
        let (links, hasher) = (&self.links, &self.hasher);
        let hash = hash_of_name(links, hasher, link);
        self.by_name.insert(hash, link, |link| hash_of_name(links, hasher, link));
    }

    /// Takes a name away, and its parent with it if nothing else needed that.
    fn cut(&mut self, link: u32) {
        let (links, hasher) = (&self.links, &self.hasher);
        let hash = hash_of_name(links, hasher, link);
        self.by_name.remove(hash, link, |link| hash_of_name(links, hasher, link));
        let (parent, node, next) = {
            let cut = self.links.get_mut(link);
            cut.name = Name::EMPTY;
            (cut.parent, cut.node, cut.next)
        };
        if self.nodes.get(node).first == link {
            self.nodes.get_mut(node).first = next;
        } else {
            let mut at = self.nodes.get(node).first;
            while self.links.get(at).next != link {
                at = self.links.get(at).next;
            }
            self.links.get_mut(at).next = next;
        }
        self.links.release(link);
        self.nodes.get_mut(parent).children -= 1;
        self.drop_unused(parent);
    }

    fn drop_unused(&mut self, node: u32) {
        if !self.nodes.get(node).is_used() || self.nodes.get(node).is_needed() {
            return;
        }
        self.unindex(node);
        // Against being dropped twice on the way down.
        self.nodes.get_mut(node).pins = 1;
        while self.nodes.get(node).first != NONE {
            self.cut(self.nodes.get(node).first);
        }
        self.others.remove(&self.number(node));
        let dropped = self.nodes.get_mut(node);
        (dropped.pins, dropped.ino) = (0, 0);
        self.nodes.release(node);
    }
}

impl Node {
    fn is_used(&self) -> bool {
        self.ino != 0
    }

    fn is_needed(&self) -> bool {
        self.lookups > 0 || self.children > 0 || self.pins > 0
    }
}

fn all_zero() -> Node {
    Node {
        ino: 0,
        lookups: 0,
        generation: 0,
        special: 0,
        first: NONE,
        children: 0,
        pins: 0,
        device: 0,
        kind: FileType::Directory,
        indexed: false,
    }
}

fn hash_of_file(nodes: &Slab<Node>, devices: &[u64], hasher: &RandomState, node: u32) -> u64 {
    let node = nodes.get(node);
    hasher.hash_one(FileId { device: devices[usize::from(node.device)], ino: node.ino })
}

fn hash_of_name(links: &Slab<Link>, hasher: &RandomState, link: u32) -> u64 {
    let link = links.get(link);
    hasher.hash_one((link.parent, link.name.as_bytes()))
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
