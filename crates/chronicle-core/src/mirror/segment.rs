//! A run of records, as they stand in the log by now: whole, without their changes, or dropped.

use super::{Named, pack, unpack};
use crate::chain;
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::id::{LeafHash, LinkHash, Seq, WorkspaceId};
use crate::record::{Head, Kind, Sealed};

pub(crate) const MAGIC: &[u8; 8] = b"chr-sgm1";
const WHOLE: u8 = 0;
const DROPPED: u8 = 1;

/// Neighbouring records of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The workspace whose log it is.
    pub workspace: WorkspaceId,
    /// What the first of them follows.
    pub after: Head,
    /// The records, oldest first; at least one.
    pub records: Vec<Sealed>,
}

impl Segment {
    /// Where it ends.
    pub fn head(&self) -> Head {
        self.records.last().map_or(self.after, |last| Head { seq: last.seq, link: last.link })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.fixed(&self.workspace.0);
        out.int(self.after.seq.0);
        out.fixed(&self.after.link.0);
        out.int(self.records.len() as u64);
        for record in &self.records {
            if record.leaf.is_empty() {
                out.byte(DROPPED);
                out.fixed(&record.leaf_hash.0);
            } else {
                out.byte(WHOLE);
                out.bytes(&record.leaf);
                out.bytes(&record.body);
            }
        }
        pack(MAGIC, &out.0)
    }

    /// Reads one; hashes and links are computed, so that they follow one another.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let raw = unpack(MAGIC, bytes)?;
        let mut input = Decoder(&raw);
        let workspace = WorkspaceId(input.array()?);
        let after = Head { seq: Seq(input.int()?), link: LinkHash(input.array()?) };
        let count = input.count()?;
        if count == 0 || after.seq.0 > i64::MAX as u64 - count as u64 {
            return Err(DecodeError::Malformed("count"));
        }
        let (mut records, mut head) = (Vec::with_capacity(count), after);
        for _ in 0..count {
            let sealed = read_record(&mut input, head)?;
            head = Head { seq: sealed.seq, link: sealed.link };
            records.push(sealed);
        }
        input.end()?;
        Ok(Self { workspace, after, records })
    }

    /// Adds the contents that its records name.
    pub fn name_into(&self, named: &mut Named) -> crate::error::Result<()> {
        for sealed in &self.records {
            let Some(record) = crate::sweep::opened(sealed)? else { continue };
            for change in &record.changes {
                match record.kind {
                    Kind::Resolve => named.resolve(change),
                    _ => [&change.before, &change.after].iter().for_each(|side| named.add(side)),
                }
            }
        }
        Ok(())
    }
}

fn read_record(input: &mut Decoder<'_>, after: Head) -> Result<Sealed, DecodeError> {
    let (leaf, body, leaf_hash) = match input.byte()? {
        WHOLE => {
            let (leaf, body) = (input.bytes()?.to_vec(), input.bytes()?.to_vec());
            if leaf.is_empty() {
                return Err(DecodeError::Malformed("leaf"));
            }
            let hash = chain::leaf_hash(&leaf);
            (leaf, body, hash)
        }
        DROPPED => (Vec::new(), Vec::new(), LeafHash(input.array()?)),
        _ => return Err(DecodeError::Malformed("record")),
    };
    let link = chain::link(&after.link, &leaf_hash);
    Ok(Sealed { seq: after.seq.next(), leaf, body, leaf_hash, link })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Log;

    fn sample() -> Segment {
        let mut log = crate::catalog::MemoryLog::default();
        let record = crate::codec::tests::sample();
        let workspace = record.workspace;
        let plain = crate::record::Record { changes: Vec::new(), ..record.clone() };
        log.commit(vec![plain.clone(), record, plain], Head::EMPTY, None).unwrap();
        let mut records = log.read(Seq(0), 9).unwrap();
        (records[1].leaf, records[1].body) = (Vec::new(), Vec::new());
        Segment { workspace, after: Head::EMPTY, records }
    }

    #[test]
    fn a_run_comes_back_as_it_was_and_its_links_are_computed() {
        let segment = sample();
        let back = Segment::decode(&segment.encode()).unwrap();
        assert_eq!(back, segment);
        assert_eq!(back.head().seq, Seq(3));
    }

    #[test]
    fn cut_off_and_empty_runs_are_refused() {
        let bytes = sample().encode();
        for length in 0..bytes.len() {
            assert!(Segment::decode(&bytes[..length]).is_err(), "at {length}");
        }
        let empty = Segment { records: Vec::new(), ..sample() };
        assert!(Segment::decode(&empty.encode()).is_err());
    }

    #[test]
    fn mutated_segments() {
        crate::fuzz::target("segment", &[sample().encode()], |input| {
            let Ok(segment) = Segment::decode(input) else { return false };
            let _ = segment.name_into(&mut Named::default());
            assert_eq!(Segment::decode(&segment.encode()).unwrap(), segment);
            true
        });
    }
}
