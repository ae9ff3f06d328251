//! What a place says of one log: which runs of records make it, and where it ends.
//!
//! A head is the last thing that a push writes, and the only thing by which a history is found. Heads are
//! listed, not pointed at: of several for one log the one that goes furthest counts.

use chronicle_core::mirror::{Decoder, Encoder};
use chronicle_core::{DecodeError, Epoch, Head, LinkHash, Seq, Time, WorkspaceId};

use crate::blob::{BlobName, parse_name};
use crate::keys::Mark;

pub(crate) const MAGIC: &[u8; 8] = b"chr-log1";

/// One run of records in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRef {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// How long it was before sealing: short ones are joined.
    pub(crate) length: u64,
    /// The hash of its bytes before sealing, by which a rewritten run is told from one that stayed.
    pub(crate) digest: [u8; 32],
    /// The key that sealed it; zeros where the place is not sealed.
    pub(crate) mark: Mark,
    pub(crate) name: BlobName,
}

/// Where a log in the bucket ends, and of what it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHead {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// The life of its log.
    pub epoch: Epoch,
    /// The last record that is there.
    pub head: Head,
    /// The end of the first capture.
    pub baseline: Seq,
    /// When it was written.
    pub time: Time,
    /// What people called the workspace's directory.
    pub title: String,
    pub(crate) segments: Vec<SegmentRef>,
    pub(crate) standing: Option<(Seq, BlobName)>,
}

/// What the key of a head tells without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadName {
    pub(crate) workspace: WorkspaceId,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    /// Counts how often the same log was written anew at the same length, for another key.
    pub(crate) generation: u32,
    pub(crate) name: BlobName,
}

impl HeadName {
    /// What stands before the name in the key.
    pub(crate) fn before(epoch: Epoch, seq: Seq, generation: u32) -> String {
        format!("{}-{:016x}-{generation:08x}-", epoch.hex(), seq.0)
    }

    pub(crate) fn key(&self) -> String {
        let before = Self::before(self.epoch, self.seq, self.generation);
        crate::blob::key_of(crate::blob::Blob::Head, &self.workspace.hex(), &before, &self.name)
    }

    /// Takes a key apart; `None` if it is no key of ours.
    pub(crate) fn parse(key: &str) -> Option<Self> {
        let (workspace, rest) = key.strip_prefix("heads/")?.split_once('/')?;
        let (before, name) = parse_name(rest)?;
        let mut parts = before.strip_suffix('-')?.split('-');
        let (epoch, seq, generation) = (parts.next()?, parts.next()?, parts.next()?);
        let parsed = Self {
            workspace: workspace.parse().ok()?,
            epoch: epoch.parse().ok()?,
            seq: Seq(u64::from_str_radix(seq, 16).ok()?),
            generation: u32::from_str_radix(generation, 16).ok()?,
            name,
        };
        (parsed.key() == key).then_some(parsed)
    }
}

impl LogHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(MAGIC.to_vec());
        out.fixed(&self.workspace.0);
        out.fixed(&self.epoch.0);
        out.int(self.head.seq.0);
        out.fixed(&self.head.link.0);
        out.int(self.baseline.0);
        out.signed(self.time.0);
        out.bytes(self.title.as_bytes());
        out.int(self.segments.len() as u64);
        for segment in &self.segments {
            out.int(segment.first.0);
            out.int(segment.last.0);
            out.int(segment.length);
            out.fixed(&segment.digest);
            out.fixed(&segment.mark);
            out.fixed(&segment.name);
        }
        out.byte(u8::from(self.standing.is_some()));
        if let Some((seq, name)) = &self.standing {
            out.int(seq.0);
            out.fixed(name);
        }
        out.0
    }

    /// Reads one; its runs must be the whole log, one after the other.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Malformed("magic"))?;
        let mut input = Decoder(rest);
        let (workspace, epoch) = (WorkspaceId(input.array()?), Epoch(input.array()?));
        let head = Head { seq: Seq(input.int()?), link: LinkHash(input.array()?) };
        let (baseline, time) = (Seq(input.int()?), Time(input.signed()?));
        let (title, mut segments, mut after) = (input.text()?, Vec::new(), Seq(0));
        for _ in 0..input.count()? {
            let (first, last) = (Seq(input.int()?), Seq(input.int()?));
            if after.0.checked_add(1) != Some(first.0) || last < first {
                return Err(DecodeError::Malformed("segments"));
            }
            let (length, digest, mark) = (input.int()?, input.array()?, input.array()?);
            let name = input.array()?;
            segments.push(SegmentRef { first, last, length, digest, mark, name });
            after = last;
        }
        let standing = match input.byte()? {
            0 => None,
            1 => Some((Seq(input.int()?), input.array()?)),
            _ => return Err(DecodeError::Malformed("standing")),
        };
        input.end()?;
        if after != head.seq || after == Seq(0) {
            return Err(DecodeError::Malformed("end"));
        }
        Ok(Self { workspace, epoch, head, baseline, time, title, segments, standing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> LogHead {
        let segment = |first, last| SegmentRef {
            first: Seq(first),
            last: Seq(last),
            length: 9,
            digest: [1; 32],
            mark: [6; 8],
            name: [2; 32],
        };
        LogHead {
            workspace: WorkspaceId([1; 16]),
            epoch: Epoch([2; 16]),
            head: Head { seq: Seq(9), link: LinkHash([3; 32]) },
            baseline: Seq(2),
            time: Time(-5),
            title: "project".to_owned(),
            segments: vec![segment(1, 4), segment(5, 9)],
            standing: Some((Seq(7), [4; 32])),
        }
    }

    #[test]
    fn it_comes_back_as_it_was_and_no_cut_of_it_does() {
        let bytes = sample().encode();
        assert_eq!(LogHead::decode(&bytes).unwrap(), sample());
        for length in 0..bytes.len() {
            assert!(LogHead::decode(&bytes[..length]).is_err(), "at {length}");
        }
    }

    #[test]
    fn runs_with_a_gap_or_another_end_are_refused() {
        for (at, first, last) in [(0, 2, 4), (1, 6, 9), (1, 4, 9), (1, 5, 8), (1, 5, 4)] {
            let mut head = sample();
            (head.segments[at].first, head.segments[at].last) = (Seq(first), Seq(last));
            assert!(LogHead::decode(&head.encode()).is_err(), "{at} {first} {last}");
        }
    }

    #[test]
    fn name_is_taken_apart_and_only_one_key_has_it() {
        let name = HeadName {
            workspace: WorkspaceId([0xab; 16]),
            epoch: Epoch([2; 16]),
            seq: Seq(77),
            generation: 1,
            name: [5; 32],
        };
        assert_eq!(HeadName::parse(&name.key()), Some(name));
        assert_eq!(HeadName::parse(&name.key().replace("ab", "AB")), None);
        assert_eq!(HeadName::parse("heads/x/y"), None);
    }
}
