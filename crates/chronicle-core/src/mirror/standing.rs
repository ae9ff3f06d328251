//! What stood in a workspace at a moment, for histories whose beginning is gone.
//!
//! What a path was is told by its last change. Once a prune drops that, only the known state still has it,
//! which never leaves its machine; so what the records no longer tell travels beside them.

use std::collections::BTreeMap;

use super::{Named, pack, unpack};
use crate::codec::{DecodeError, Decoder, Encoder, decode_entry, encode_entry};
use crate::entry::Entry;
use crate::id::{ObjectId, Seq};
use crate::path::WorkspacePath;

pub(crate) const MAGIC: &[u8; 8] = b"chr-std1";

/// The entries of all paths at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The moment: just after this record.
    pub seq: Seq,
    /// What stood there, and whether it lay inside a repository as what is only brought back if missing.
    pub entries: BTreeMap<WorkspacePath, (Entry, bool)>,
}

impl Standing {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.int(self.seq.0);
        out.int(self.entries.len() as u64);
        for (path, (entry, neutral)) in &self.entries {
            out.bytes(path.as_bytes());
            out.byte(u8::from(*neutral));
            encode_entry(&mut out, entry);
        }
        pack(MAGIC, &out.0)
    }

    /// Reads one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let raw = unpack(MAGIC, bytes)?;
        let mut input = Decoder(&raw);
        let seq = Seq(input.int()?);
        let mut entries = BTreeMap::new();
        for _ in 0..input.count()? {
            let path = input.path()?;
            let neutral = match input.byte()? {
                0 => false,
                1 => true,
                _ => return Err(DecodeError::Malformed("part")),
            };
            if entries.last_key_value().is_some_and(|(last, _)| *last >= path) {
                return Err(DecodeError::Malformed("order"));
            }
            entries.insert(path, (decode_entry(&mut input)?, neutral));
        }
        input.end()?;
        Ok(Self { seq, entries })
    }

    /// The contents that stood there.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.entries.values().filter_map(|(entry, _)| entry.object()).collect()
    }

    /// Adds them to what a history names.
    pub fn name_into(&self, named: &mut Named) {
        self.entries.values().for_each(|(entry, _)| named.add(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Standing {
        let changes = crate::codec::tests::sample().changes;
        let entry = |change: crate::entry::Change| (change.path, (change.after, change.neutral));
        Standing { seq: Seq(7), entries: changes.into_iter().map(entry).collect() }
    }

    #[test]
    fn it_comes_back_as_it_was() {
        assert_eq!(Standing::decode(&sample().encode()).unwrap(), sample());
        assert_eq!(Standing::decode(&Standing::default().encode()).unwrap(), Standing::default());
    }

    #[test]
    fn mutated_standings() {
        crate::fuzz::target("standing", &[sample().encode()], |input| {
            let Ok(standing) = Standing::decode(input) else { return false };
            assert_eq!(Standing::decode(&standing.encode()).unwrap(), standing);
            true
        });
    }
}
