//! The canonical bytes of what travels and of what is remembered of it.

use super::{Item, Place, Rejection, Verdict, Version, Write};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::id::{Epoch, Seq};

type Result<T> = std::result::Result<T, DecodeError>;

/// Writes a place.
pub fn encode_place(out: &mut Encoder, place: &Place) {
    out.fixed(&place.epoch.0);
    out.int(place.seq.0);
}

/// Reads a place.
pub fn decode_place(input: &mut Decoder<'_>) -> Result<Place> {
    Ok(Place { epoch: Epoch(input.array()?), seq: Seq(input.int()?) })
}

/// Writes an item.
pub fn encode_item(out: &mut Encoder, item: &Item) {
    out.bytes(item.path.as_bytes());
    out.int(item.seq.0);
    item.version.encode(out);
}

/// Reads an item.
pub fn decode_item(input: &mut Decoder<'_>) -> Result<Item> {
    Ok(Item { path: input.path()?, seq: Seq(input.int()?), version: Version::decode(input)? })
}

/// Writes a write.
pub fn encode_write(out: &mut Encoder, write: &Write) {
    out.bytes(write.path.as_bytes());
    write.base.encode(out);
    write.after.encode(out);
    out.int(write.seen.0);
    out.int(u64::from(write.group));
}

/// Reads a write.
pub fn decode_write(input: &mut Decoder<'_>) -> Result<Write> {
    Ok(Write {
        path: input.path()?,
        base: Version::decode(input)?,
        after: Version::decode(input)?,
        seen: Seq(input.int()?),
        group: input.int32()?,
    })
}

/// Writes a verdict.
pub fn encode_verdict(out: &mut Encoder, verdict: &Verdict) {
    match verdict {
        Verdict::Accepted(seq) => {
            out.byte(0);
            out.int(seq.0);
        }
        Verdict::Rejected { reason, theirs, seq } => {
            out.byte(1 + *reason as u8);
            out.int(seq.0);
            out.byte(u8::from(theirs.is_some()));
            if let Some(theirs) = theirs {
                theirs.encode(out);
            }
        }
    }
}

/// Reads a verdict.
pub fn decode_verdict(input: &mut Decoder<'_>) -> Result<Verdict> {
    let tag = input.byte()?;
    let seq = Seq(input.int()?);
    if tag == 0 {
        return Ok(Verdict::Accepted(seq));
    }
    let reason = Rejection::ALL.get(usize::from(tag) - 1);
    let reason =
        *reason.ok_or(DecodeError::Malformed("a write is rejected for an unknown reason"))?;
    let theirs = match input.byte()? {
        0 => None,
        1 => Some(Version::decode(input)?),
        _ => return Err(DecodeError::Malformed("a verdict has unknown flags")),
    };
    Ok(Verdict::Rejected { reason, theirs, seq })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;
    use crate::path::WorkspacePath;

    fn bytes<T>(encode: impl Fn(&mut Encoder, &T), value: &T) -> Vec<u8> {
        let mut out = Encoder::default();
        encode(&mut out, value);
        out.0
    }

    #[track_caller]
    fn check<T: PartialEq + std::fmt::Debug>(
        name: &str,
        samples: &[T],
        encode: impl Fn(&mut Encoder, &T),
        decode: impl Fn(&mut Decoder<'_>) -> Result<T>,
    ) {
        let encoded: Vec<_> = samples.iter().map(|sample| bytes(&encode, sample)).collect();
        for (sample, encoded) in samples.iter().zip(&encoded) {
            assert_eq!(decode(&mut Decoder(encoded)).as_ref(), Ok(sample));
        }
        fuzz::target(name, &encoded, |input| {
            let mut rest = Decoder(input);
            let Ok(value) = decode(&mut rest) else { return false };
            let read = &input[..input.len() - rest.0.len()];
            assert_eq!(bytes(&encode, &value), read, "not canonical");
            true
        });
    }

    #[test]
    fn mutated_writes_and_verdicts() {
        let path = WorkspacePath::new("a/b").unwrap();
        let directory = Version::Directory { mode: 0o755 };
        let item = Item { path: path.clone(), seq: Seq(300), version: directory.clone() };
        check("replica-item", &[item], encode_item, decode_item);
        let base = Version::Absent;
        let write = Write { path, base, after: directory.clone(), seen: Seq(7), group: 3 };
        check("replica-write", &[write], encode_write, decode_write);
        let rejected = |reason| Verdict::Rejected { reason, theirs: None, seq: Seq(1) };
        let mut verdicts: Vec<_> = Rejection::ALL.into_iter().map(rejected).collect();
        verdicts.push(Verdict::Accepted(Seq(9)));
        let (reason, theirs) = (Rejection::Changed, Some(directory));
        verdicts.push(Verdict::Rejected { reason, theirs, seq: Seq(2) });
        check("replica-verdict", &verdicts, encode_verdict, decode_verdict);
    }
}
