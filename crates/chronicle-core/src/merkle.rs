//! The Merkle tree of RFC 6962 over the leaf hashes of the log; pure.
//!
//! A tree of any size is a row of *peaks*: complete subtrees, the largest first. Its root folds them
//! from the right. A complete subtree never changes again, so that whoever keeps some of them can
//! prove things about a long log by reading little of it: see [`inclusion`] and [`consistency`].

use sha2::{Digest, Sha256};

/// A hash of the tree: of a leaf, of a subtree, or its root.
pub type Hash = [u8; 32];

const NODE: u8 = 0x01;

/// The levels of the tree that are kept: every one that is a multiple of this.
pub const TILE_LEVELS: u32 = 8;
/// How many leaves the smallest kept subtree has.
pub const TILE: u64 = 1 << TILE_LEVELS;

/// The hash of two subtrees beside one another.
pub fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([NODE]).chain_update(left).chain_update(right).finalize().into()
}

/// The root of the tree without leaves.
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// The root of a tree from its peaks, the largest first.
pub fn fold(peaks: &[Hash]) -> Hash {
    let Some((last, before)) = peaks.split_last() else { return empty_root() };
    before.iter().rev().fold(*last, |right, left| node(left, &right))
}

/// The levels of the peaks of a tree, the largest first.
pub fn levels(size: u64) -> impl DoubleEndedIterator<Item = u32> + Clone {
    (0..u64::BITS).rev().filter(move |level| size >> level & 1 == 1)
}

/// The growing edge of a tree: all that is needed to append to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The edge of a tree of this size; `None` if a tree of this size has another number of peaks.
    pub fn new(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then_some(Self { size, peaks })
    }

    /// How many leaves the tree has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its complete subtrees, the largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// The tree's root.
    pub fn root(&self) -> Hash {
        fold(&self.peaks)
    }

    /// The root of the tree with a smaller one beside it, given by its peaks.
    pub fn root_with(&self, more: &[Hash]) -> Hash {
        fold(&[&self.peaks, more].concat())
    }

    /// Appends a leaf, or a complete subtree of that level; tells of every subtree that is complete
    /// with it: its level, its number among those of its level, its hash.
    ///
    /// A subtree can only stand where the tree's size is a multiple of its own.
    pub fn push(&mut self, level: u32, hash: Hash, complete: &mut dyn FnMut(u32, u64, &Hash)) {
        assert!(self.size.is_multiple_of(1 << level), "BUG: a subtree stands across its place");
        let (mut level, mut hash) = (level, hash);
        let mut before = self.size;
        self.size += 1 << level;
        complete(level, before >> level, &hash);
        while before >> level & 1 == 1 {
            let left = self.peaks.pop().expect("BUG: a peak for each bit of the size");
            hash = node(&left, &hash);
            before -= 1 << level;
            level += 1;
            complete(level, before >> level, &hash);
        }
        self.peaks.push(hash);
    }
}

/// Reads the hash of a complete subtree: its level and its number among those of its level.
pub type Read<'r, E> = dyn FnMut(u32, u64) -> Result<Hash, E> + 'r;

/// The root of the subtree over `start..end`, where `start` is a multiple of the next power of two.
fn range<E>(start: u64, end: u64, read: &mut Read<'_, E>) -> Result<Hash, E> {
    let mut peaks = Vec::new();
    let mut at = start;
    for level in levels(end - start) {
        peaks.push(read(level, at >> level)?);
        at += 1 << level;
    }
    Ok(fold(&peaks))
}

/// The largest power of two below a number greater than 1.
fn split(size: u64) -> u64 {
    1 << (u64::BITS - 1 - (size - 1).leading_zeros())
}

/// The root of the tree of this size.
pub fn root<E>(size: u64, read: &mut Read<'_, E>) -> Result<Hash, E> {
    range(0, size, read)
}

/// The hashes with which somebody who has a leaf can compute the root: from the leaf upwards.
pub fn inclusion<E>(index: u64, size: u64, read: &mut Read<'_, E>) -> Result<Vec<Hash>, E> {
    let mut proof = Vec::new();
    let (mut start, mut end) = (0, size);
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            proof.push(range(middle, end, read)?);
            end = middle;
        } else {
            proof.push(range(start, middle, read)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The hashes that show that the tree of size `old` is the beginning of the one of size `new`.
pub fn consistency<E>(old: u64, new: u64, read: &mut Read<'_, E>) -> Result<Vec<Hash>, E> {
    let mut proof = Vec::new();
    if old == 0 || old >= new {
        return Ok(proof);
    }
    let (mut start, mut end, mut whole) = (0, new, true);
    while end != old {
        let middle = start + split(end - start);
        if old <= middle {
            proof.push(range(middle, end, read)?);
            end = middle;
        } else {
            proof.push(range(start, middle, read)?);
            (start, whole) = (middle, false);
        }
    }
    if !whole {
        proof.push(range(start, end, read)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether a proof leads from a leaf at an index to the root of a tree of this size.
pub fn includes(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, *leaf);
    for other in proof {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            hash = node(other, &hash);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            hash = node(&hash, other);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    last == 0 && hash == *root
}

/// Whether a proof shows that the tree of size `old` is the beginning of the one of size `new`.
pub fn extends(old: (u64, &Hash), new: (u64, &Hash), proof: &[Hash]) -> bool {
    let ((old, old_root), (new, new_root)) = (old, new);
    if old == 0 || old >= new {
        return proof.is_empty() && (old == 0 || old == new && old_root == new_root);
    }
    let (mut place, mut last) = (old - 1, new - 1);
    while place & 1 == 1 {
        (place, last) = (place >> 1, last >> 1);
    }
    let mut rest = proof.iter();
    // A tree that is one complete subtree is its own first step.
    let first = if place == 0 { Some(old_root) } else { rest.next() };
    let Some(first) = first else { return false };
    let (mut was, mut is) = (*first, *first);
    for other in rest {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            (was, is) = (node(other, &was), node(other, &is));
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            is = node(&is, other);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    last == 0 && was == *old_root && is == *new_root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::leaf_hash;
    use crate::id::to_hex;
    use std::convert::Infallible;

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|number| leaf_hash(&number.to_be_bytes()).0).collect()
    }

    /// RFC 6962, section 2.1, word for word.
    fn defined(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
                node(&defined(left), &defined(right))
            }
        }
    }

    /// RFC 6962, section 2.1.1.
    fn defined_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() < 2 {
            return Vec::new();
        }
        let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
        let (mut path, other) = match index.checked_sub(left.len()) {
            None => (defined_path(index, left), defined(right)),
            Some(index) => (defined_path(index, right), defined(left)),
        };
        path.push(other);
        path
    }

    /// RFC 6962, section 2.1.2.
    fn defined_proof(old: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
        if old == leaves.len() {
            return if whole { Vec::new() } else { vec![defined(leaves)] };
        }
        let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
        let (mut proof, other) = match old.checked_sub(left.len()) {
            None | Some(0) => (defined_proof(old, left, whole), defined(right)),
            Some(old) => (defined_proof(old, right, false), defined(left)),
        };
        proof.push(other);
        proof
    }

    fn reader(leaves: &[Hash]) -> impl FnMut(u32, u64) -> Result<Hash, Infallible> + '_ {
        |level, number| {
            let start = (number << level) as usize;
            Ok(defined(&leaves[start..start + (1 << level)]))
        }
    }

    #[test]
    fn roots_are_those_of_the_definition() {
        let leaves = leaves(300);
        let mut frontier = Frontier::default();
        let mut complete = Vec::new();
        for size in 0..=300 {
            let expected = defined(&leaves[..size]);
            assert_eq!(frontier.root(), expected, "{size}");
            assert_eq!(root(size as u64, &mut reader(&leaves)).unwrap(), expected, "{size}");
            let again = Frontier::new(size as u64, frontier.peaks().to_vec()).unwrap();
            assert_eq!(again, frontier);
            if let Some(leaf) = leaves.get(size) {
                frontier.push(0, *leaf, &mut |level, number, hash| {
                    complete.push((level, number, *hash));
                });
            }
        }
        for (level, number, hash) in complete {
            assert_eq!(reader(&leaves)(level, number).unwrap(), hash, "{level} {number}");
        }
        assert_eq!(Frontier::new(3, vec![[0; 32]]), None);
    }

    #[test]
    fn whole_tiles_may_be_pushed_at_once() {
        let leaves = leaves(300);
        let mut by_tile = Frontier::default();
        by_tile.push(8, defined(&leaves[..256]), &mut |_, _, _| {});
        let mut rest = Frontier::default();
        leaves[256..].iter().for_each(|leaf| rest.push(0, *leaf, &mut |_, _, _| {}));
        assert_eq!(by_tile.root_with(rest.peaks()), defined(&leaves));
    }

    #[test]
    fn a_leaf_is_proven_at_its_place_and_nowhere_else() {
        let leaves = leaves(70);
        for size in 1..=leaves.len() {
            let root = defined(&leaves[..size]);
            for index in 0..size {
                let at = |index, size, proof: &[Hash], root: &Hash| {
                    includes(&leaves[index as usize], index, size, proof, root)
                };
                let (place, count) = (index as u64, size as u64);
                let proof = inclusion(place, count, &mut reader(&leaves)).unwrap();
                assert_eq!(proof, defined_path(index, &leaves[..size]));
                assert!(at(place, count, &proof, &root));
                assert!(!at(place, count, &proof, &leaves[0]) || size == 1);
                assert!(!includes(&[7; 32], place, count, &proof, &root));
                if size > 1 {
                    let other = (index + 1) % size;
                    assert!(!includes(&leaves[index], other as u64, count, &proof, &root));
                    assert!(!at(place, count, &proof[1..], &root));
                    assert!(!at(place, count, &[&proof[..], &[[1; 32]]].concat(), &root));
                }
            }
        }
    }

    #[test]
    fn a_longer_log_is_proven_to_go_on_and_a_fork_is_not() {
        let leaves = leaves(70);
        let mut forked = leaves.clone();
        forked[3] = [9; 32];
        for new in 0..=leaves.len() {
            for old in 0..=new {
                let (was, is) = (defined(&leaves[..old]), defined(&leaves[..new]));
                let (from, to) = ((old as u64, &was), (new as u64, &is));
                let proof = consistency(old as u64, new as u64, &mut reader(&leaves)).unwrap();
                if old > 0 {
                    assert_eq!(proof, defined_proof(old, &leaves[..new], true), "{old} {new}");
                }
                assert!(extends(from, to, &proof), "{old} {new}");
                if old > 3 {
                    let other = defined(&forked[..old]);
                    assert!(!extends((old as u64, &other), to, &proof), "{old} {new}");
                    let other = defined(&forked[..new]);
                    assert!(!extends(from, (new as u64, &other), &proof), "{old} {new}");
                }
                if !proof.is_empty() {
                    assert!(!extends(from, to, &proof[1..]), "{old} {new}");
                }
            }
        }
    }

    /// The values that the Certificate Transparency projects test with: eight leaves of given bytes.
    #[test]
    fn published_roots_come_out() {
        let leaves =
            [&b""[..], b"\x00", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"];
        let leaves: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf).0).collect();
        let root = |size: usize| to_hex(&defined(&leaves[..size]));
        assert_eq!(root(0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(root(1), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
        assert_eq!(root(8), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
    }
}
