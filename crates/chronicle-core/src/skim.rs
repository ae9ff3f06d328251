//! Reads of a record only what verifying it needs, and copies nothing; pure.
//!
//! The codec makes values of a record and is strict about every byte. Here the bytes were committed
//! to, which is shown by their hashes, so that only what they are compared with is taken out.

use crate::chain;
use crate::codec::{DecodeError, Decoder, FORMAT_VERSION, SALT_SIZE};
use crate::id::{Epoch, ObjectId, Seq, WorkspaceId};

type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// What a record says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claims<'r> {
    pub(crate) kind: u8,
    pub(crate) workspace: WorkspaceId,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    /// One for each change, 32 bytes long.
    pub(crate) commitments: &'r [u8],
}

/// What a leaf claims.
pub(crate) fn claims(leaf: &[u8]) -> Result<Claims<'_>> {
    let mut input = Decoder(leaf);
    let version = input.byte()?;
    if version != FORMAT_VERSION {
        return Err(DecodeError::Newer(version));
    }
    let kind = input.byte()?;
    let (workspace, epoch) = (WorkspaceId(input.array()?), Epoch(input.array()?));
    let seq = Seq(input.int()?);
    input.int()?;
    for _ in 0..input.count()? {
        input.byte()?;
        input.bytes()?;
    }
    let count = input.int()?;
    if count.checked_mul(32) != Some(input.0.len() as u64) {
        return Err(DecodeError::Malformed("the commitments have the wrong length"));
    }
    Ok(Claims { kind, workspace, epoch, seq, commitments: input.0 })
}

/// Checks that the changes of a body are those that were committed to, and tells the objects that
/// they name. One without a salt may be another, if `redacted` says so of its place and bytes.
pub(crate) fn changes(
    commitments: &[u8],
    body: &[u8],
    redacted: &dyn Fn(usize, &[u8]) -> bool,
    named: &mut impl FnMut(ObjectId),
) -> Result<()> {
    let mut body = Decoder(body);
    for (index, expected) in commitments.chunks_exact(32).enumerate() {
        let (salt, change) = (body.fixed(SALT_SIZE)?, body.bytes()?);
        let forgotten = || salt == [0; SALT_SIZE] && redacted(index, change);
        if chain::commitment(salt, change) != expected && !forgotten() {
            return Err(DecodeError::Malformed("a change is not the one that was committed to"));
        }
        let mut input = Decoder(change);
        input.bytes()?;
        for _ in ["before", "after"] {
            entry(&mut input, named)?;
        }
    }
    body.end()
}

/// The changes of a body as they stand, without asking what was committed to.
pub(crate) fn raw_changes(body: &[u8]) -> Result<Vec<&[u8]>> {
    let (mut body, mut changes) = (Decoder(body), Vec::new());
    while !body.0.is_empty() {
        body.fixed(SALT_SIZE)?;
        changes.push(body.bytes()?);
    }
    Ok(changes)
}

fn entry(input: &mut Decoder<'_>, named: &mut impl FnMut(ObjectId)) -> Result<()> {
    match input.byte()? {
        0 => return Ok(()),
        1 => return input.byte().map(drop),
        2 => {
            input.byte()?;
            named(ObjectId(input.array()?));
            input.int()?;
            if input.byte()? & 2 != 0 {
                input.fixed(8)?;
            }
        }
        3 => {}
        4 => drop(input.bytes()?),
        5 => drop(input.byte()?),
        6 => {
            named(ObjectId(input.array()?));
            input.fixed(32)?;
            input.bytes()?;
        }
        _ => return Err(DecodeError::Malformed("an entry has an unknown kind")),
    }
    // Mode, owner, group and time, then the extended attributes.
    for _ in 0..4 {
        input.int()?;
    }
    for _ in 0..input.count()? {
        input.bytes()?;
        input.bytes()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::id::LinkHash;

    #[test]
    fn what_is_skimmed_is_what_is_decoded() {
        let record = codec::tests::sample();
        let sealed = codec::seal(&record, &LinkHash::ZERO);
        let claims = claims(&sealed.leaf).unwrap();
        assert_eq!(claims.kind, codec::kind_number(record.kind));
        assert_eq!((claims.workspace, claims.epoch), (record.workspace, record.epoch));
        assert_eq!(claims.seq, record.seq);
        let mut named = Vec::new();
        changes(claims.commitments, &sealed.body, &|_, _| false, &mut |id| named.push(id)).unwrap();
        let sides = record.changes.iter().flat_map(|change| [&change.before, &change.after]);
        assert_eq!(named, sides.filter_map(crate::entry::Entry::object).collect::<Vec<_>>());
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error_or_another_leaf() {
        let sealed = codec::seal(&codec::tests::sample(), &LinkHash::ZERO);
        let commitments = claims(&sealed.leaf).unwrap().commitments;
        for at in 0..sealed.body.len() {
            let never = |_: usize, _: &[u8]| false;
            assert!(changes(commitments, &sealed.body[..at], &never, &mut |_| {}).is_err());
            let mut body = sealed.body.clone();
            body[at] ^= 0x55;
            assert!(changes(commitments, &body, &never, &mut |_| {}).is_err(), "byte {at}");
        }
        for at in 0..sealed.leaf.len() {
            assert!(claims(&sealed.leaf[..at]).is_err(), "byte {at}");
        }
    }
}
