//! The hashes of the tamper-evident chain; pure.
//!
//! A record's leaf (header and one commitment per change) is hashed as RFC 6962 hashes a leaf, so
//! that a Merkle tree can stand over the same records. Each link binds the leaf to the link before.

use sha2::{Digest, Sha256};

use crate::id::{LeafHash, LinkHash};

const COMMITMENT: u8 = 0x02;
const LINK: u8 = 0x03;
const LEAF: u8 = 0x00;

/// Hides a change behind its salt: without the salt nobody can guess what was committed to.
pub fn commitment(salt: &[u8], change: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update([COMMITMENT])
        .chain_update(salt)
        .chain_update(change)
        .finalize()
        .into()
}

/// The hash of a record's leaf bytes.
pub fn leaf_hash(leaf: &[u8]) -> LeafHash {
    LeafHash(Sha256::new().chain_update([LEAF]).chain_update(leaf).finalize().into())
}

/// Binds a leaf to everything before it.
pub fn link(previous: &LinkHash, leaf: &LeafHash) -> LinkHash {
    LinkHash(
        Sha256::new()
            .chain_update([LINK])
            .chain_update(previous.0)
            .chain_update(leaf.0)
            .finalize()
            .into(),
    )
}
