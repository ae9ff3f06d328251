//! The canonical bytes of everything that is hashed or stored (see `docs/format.md`).
//!
//! One value has exactly one encoding: integers are minimal varints, labels are in the order of
//! their tags, attributes in the order of their names. Decoding rejects everything else, so a
//! decoded record encodes to the same bytes again. Nothing here trusts its input: each length is
//! checked against what is left before anything is allocated.

use crate::chain;
use crate::entry::{
    Author, Change, Entry, Evidence, File, Meta, MovedFrom, Repository, Special, SpecialKind,
    Symlink, Why,
};
use crate::head::PublicKey;
use crate::id::{Epoch, LinkGroup, ObjectId, Seq, SnapshotId, Time, TransactionId, WorkspaceId};
use crate::id::{LinkHash, fill_random};
use crate::path::WorkspacePath;
use crate::record::{ChangeRef, Checkpointed, Kind, Labels, Pruned, Record, Sealed};

/// The version of the record format that this code writes.
pub const FORMAT_VERSION: u8 = 1;
/// Random bytes that hide a change in its commitment.
pub const SALT_SIZE: usize = 16;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("Record ends too early")]
    Truncated,
    /// They say something that no writer writes.
    #[error("Record is malformed: {0}")]
    Malformed(&'static str),
    /// They were written by a newer version.
    #[error("Record has format version {0}, this program knows version {FORMAT_VERSION}")]
    Newer(u8),
}

type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// Appends values to bytes.
#[derive(Debug, Default)]
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    /// One byte.
    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    /// An unsigned integer: seven bits a byte, lowest first.
    pub fn int(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A signed integer, zigzag: small ones of either sign are short.
    pub fn signed(&mut self, value: i64) {
        self.int((value << 1 ^ value >> 63) as u64);
    }

    /// Bytes of a length known to both sides.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A length, then that many bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.int(bytes.len() as u64);
        self.fixed(bytes);
    }
}

/// Takes values from bytes.
#[derive(Debug)]
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    /// One byte.
    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.fixed(1)?[0])
    }

    /// An unsigned integer in its shortest form.
    pub fn int(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 || shift > 0 && byte == 0 {
                return Err(DecodeError::Malformed("an integer is not in its shortest form"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed("an integer is too long"))
    }

    /// An integer that fits 32 bits.
    pub fn int32(&mut self) -> Result<u32> {
        u32::try_from(self.int()?).map_err(|_| DecodeError::Malformed("an integer is too large"))
    }

    /// A signed integer.
    pub fn signed(&mut self) -> Result<i64> {
        let value = self.int()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// So many bytes.
    pub fn fixed(&mut self, count: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// An array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.fixed(N)?.try_into().map_err(|_| DecodeError::Truncated)
    }

    /// A length, then that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.int()?;
        self.fixed(usize::try_from(count).map_err(|_| DecodeError::Truncated)?)
    }

    /// A count of things that take at least one byte each.
    pub fn count(&mut self) -> Result<usize> {
        let count = self.int()?;
        if count > self.0.len() as u64 { Err(DecodeError::Truncated) } else { Ok(count as usize) }
    }

    /// Text.
    pub fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| DecodeError::Malformed("a label is not UTF-8"))
    }

    /// A path.
    pub fn path(&mut self) -> Result<WorkspacePath> {
        WorkspacePath::new(self.bytes()?).map_err(|_| DecodeError::Malformed("a path is not plain"))
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes are left over")) }
    }
}

/// Writes an entry.
pub fn encode_entry(out: &mut Encoder, entry: &Entry) {
    match entry {
        Entry::Absent => out.byte(0),
        Entry::Unknown(why) => {
            out.byte(1);
            out.byte(*why as u8);
        }
        Entry::File(file) => {
            out.byte(2);
            // Content class: 0 is a plain object, 1 a secret with a keyed address, 2 a pending clone.
            out.byte(if file.pending { 2 } else { u8::from(file.secret) });
            out.fixed(&file.object.0);
            out.int(file.size);
            out.byte(u8::from(file.sparse) | u8::from(file.link.is_some()) << 1);
            if let Some(link) = file.link {
                out.fixed(&link.0);
            }
        }
        Entry::Directory(_) => out.byte(3),
        Entry::Symlink(link) => {
            out.byte(4);
            out.bytes(&link.target);
        }
        Entry::Special(special) => {
            out.byte(5);
            out.byte(special.kind as u8);
        }
        Entry::Repository(repository) => {
            out.byte(6);
            out.fixed(&repository.bundle.0);
            out.fixed(&repository.identity.0);
            out.bytes(&repository.head);
        }
    }
    if let Some(meta) = entry.meta() {
        encode_meta(out, meta);
    }
}

fn encode_meta(out: &mut Encoder, meta: &Meta) {
    out.int(u64::from(meta.mode));
    out.int(u64::from(meta.uid));
    out.int(u64::from(meta.gid));
    out.signed(meta.mtime_ns);
    out.int(meta.xattrs.len() as u64);
    for (name, value) in &meta.xattrs {
        out.bytes(name);
        out.bytes(value);
    }
}

/// Reads an entry.
pub fn decode_entry(input: &mut Decoder<'_>) -> Result<Entry> {
    Ok(match input.byte()? {
        0 => Entry::Absent,
        1 => Entry::Unknown(decode_why(input.byte()?)?),
        2 => Entry::File(decode_file(input)?),
        3 => Entry::Directory(decode_meta(input)?),
        4 => {
            let target = input.bytes()?.to_vec();
            Entry::Symlink(Symlink { target, meta: decode_meta(input)? })
        }
        5 => {
            let kind = decode_special(input.byte()?)?;
            Entry::Special(Special { kind, meta: decode_meta(input)? })
        }
        6 => {
            let (bundle, identity) = (ObjectId(input.array()?), ObjectId(input.array()?));
            let head = input.bytes()?.to_vec();
            Entry::Repository(Repository { bundle, identity, head, meta: decode_meta(input)? })
        }
        _ => return Err(DecodeError::Malformed("an entry has an unknown kind")),
    })
}

fn decode_file(input: &mut Decoder<'_>) -> Result<File> {
    let (secret, pending) = match input.byte()? {
        class @ 0..=2 => (class == 1, class == 2),
        _ => {
            let why = "a file has a content class that is not known here";
            return Err(DecodeError::Malformed(why));
        }
    };
    let object = ObjectId(input.array()?);
    let size = input.int()?;
    let flags = input.byte()?;
    if flags > 3 {
        return Err(DecodeError::Malformed("a file has unknown flags"));
    }
    let link = if flags & 2 != 0 { Some(LinkGroup(input.array()?)) } else { None };
    let sparse = flags & 1 != 0;
    Ok(File { object, secret, pending, size, sparse, link, meta: decode_meta(input)? })
}

fn decode_meta(input: &mut Decoder<'_>) -> Result<Meta> {
    let (mode, uid, gid) = (input.int32()?, input.int32()?, input.int32()?);
    let mtime_ns = input.signed()?;
    let count = input.count()?;
    let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for _ in 0..count {
        let name = input.bytes()?.to_vec();
        if xattrs.last().is_some_and(|(last, _)| *last >= name) {
            return Err(DecodeError::Malformed("attributes are out of order"));
        }
        xattrs.push((name, input.bytes()?.to_vec()));
    }
    Ok(Meta { mode, uid, gid, mtime_ns, xattrs })
}

fn decode_why(byte: u8) -> Result<Why> {
    use Why::{Changing, Filtered, Forgotten, NoKey, NotSeen, Secret, Unmounted, Unreadable};
    [NotSeen, Filtered, Unreadable, Changing, Unmounted, Secret, Forgotten, NoKey]
        .into_iter()
        .find(|why| *why as u8 == byte)
        .ok_or(DecodeError::Malformed("an entry is unknown for an unknown reason"))
}

fn decode_special(byte: u8) -> Result<SpecialKind> {
    use SpecialKind::{Block, Character, Fifo, Socket};
    [Fifo, Socket, Block, Character]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
        .ok_or(DecodeError::Malformed("a special file has an unknown kind"))
}

/// Writes a change.
pub fn encode_change(out: &mut Encoder, change: &Change) {
    out.bytes(change.path.as_bytes());
    encode_entry(out, &change.before);
    encode_entry(out, &change.after);
    out.byte(u8::from(change.neutral) | u8::from(change.from.is_some()) << 1);
    if let Some(from) = &change.from {
        out.bytes(from.path.as_bytes());
        out.int(from.seq.0);
    }
    match &change.author {
        Author::Person => out.byte(0),
        Author::Session(key) => {
            out.byte(1);
            out.bytes(key.as_bytes());
        }
        Author::Chronicle => out.byte(2),
        Author::Shared(keys) => {
            out.byte(3);
            out.int(keys.len() as u64);
            keys.iter().for_each(|key| out.bytes(key.as_bytes()));
        }
    }
    out.byte(change.evidence as u8);
}

/// Reads a change.
pub fn decode_change(input: &mut Decoder<'_>) -> Result<Change> {
    let path = input.path()?;
    let (before, after) = (decode_entry(input)?, decode_entry(input)?);
    let flags = input.byte()?;
    if flags > 3 {
        return Err(DecodeError::Malformed("a change has unknown flags"));
    }
    let from = if flags & 2 != 0 {
        Some(MovedFrom { path: input.path()?, seq: Seq(input.int()?) })
    } else {
        None
    };
    let author = match input.byte()? {
        0 => Author::Person,
        1 => Author::Session(input.text()?),
        2 => Author::Chronicle,
        3 => {
            let count = input.count()?;
            Author::Shared((0..count).map(|_| input.text()).collect::<Result<_>>()?)
        }
        _ => return Err(DecodeError::Malformed("a change has an unknown author")),
    };
    let evidence = decode_evidence(input.byte()?)?;
    Ok(Change { path, before, after, from, author, evidence, neutral: flags & 1 != 0 })
}

fn decode_evidence(byte: u8) -> Result<Evidence> {
    use Evidence::{Named, Outside, Own, Process, Returned, Window};
    [Named, Process, Window, Outside, Returned, Own]
        .into_iter()
        .find(|evidence| *evidence as u8 == byte)
        .ok_or(DecodeError::Malformed("a change has unknown evidence"))
}

const KINDS: [Kind; 15] = [
    Kind::Genesis,
    Kind::Intent,
    Kind::Outcome,
    Kind::TurnStart,
    Kind::TurnEnd,
    Kind::TransactionStart,
    Kind::TransactionEnd,
    Kind::Rewind,
    Kind::Resolve,
    Kind::Pin,
    Kind::Effect,
    Kind::Checkpoint,
    Kind::Prune,
    Kind::Forget,
    Kind::Operator,
];

/// The number of a kind in the format.
pub fn kind_number(kind: Kind) -> u8 {
    kind as u8
}

fn encode_header(out: &mut Encoder, record: &Record) {
    out.byte(FORMAT_VERSION);
    out.byte(kind_number(record.kind));
    out.fixed(&record.workspace.0);
    out.fixed(&record.epoch.0);
    out.int(record.seq.0);
    out.signed(record.time.0);
    encode_labels(out, &record.labels);
}

/// One label: its tag and its bytes. Tags only ever get added.
fn encode_labels(out: &mut Encoder, labels: &Labels) {
    let mut fields: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut text = |tag: u8, value: &Option<String>| {
        if let Some(value) = value {
            fields.push((tag, value.clone().into_bytes()));
        }
    };
    text(2, &labels.action);
    text(3, &labels.summary);
    text(4, &labels.tool);
    text(5, &labels.call_id);
    text(6, &labels.session);
    text(7, &labels.agent);
    text(9, &labels.turn_key);
    text(10, &labels.prompt);
    text(15, &labels.name);
    text(20, &labels.note);
    text(22, &labels.sub_agent);
    text(24, &labels.policy);
    text(27, &labels.grant);
    let mut number = |tag: u8, value: Option<u64>| {
        if let Some(value) = value {
            let mut inner = Encoder::default();
            inner.int(value);
            fields.push((tag, inner.0));
        }
    };
    number(8, labels.turn);
    number(16, labels.target.map(|seq| seq.0));
    number(17, labels.redoes.map(|seq| seq.0));
    let mut id = |tag: u8, value: Option<[u8; 16]>| {
        if let Some(value) = value {
            fields.push((tag, value.to_vec()));
        }
    };
    id(1, labels.snapshot.map(|id| id.0));
    id(11, labels.transaction.map(|id| id.0));
    id(12, labels.intent.map(|id| id.0));
    let mut flag = |tag: u8, value: bool| {
        if value {
            fields.push((tag, Vec::new()));
        }
    };
    flag(13, labels.partial);
    flag(14, labels.rolled_back);
    flag(21, labels.by_hook);
    let mut refs = |tag: u8, value: &[ChangeRef]| {
        if !value.is_empty() {
            fields.push((tag, encode_refs(value)));
        }
    };
    refs(18, &labels.taken_back);
    refs(19, &labels.brought_back);
    refs(25, &labels.forgotten);
    if !labels.pruned.is_empty() {
        fields.push((23, encode_pruned(&labels.pruned)));
    }
    if let Some(held) = &labels.checkpoint {
        fields.push((28, [held.lock.0, held.contents.0].concat()));
    }
    if let Some(operator) = &labels.operator {
        fields.push((26, operator.0.to_vec()));
    }
    fields.sort_by_key(|(tag, _)| *tag);
    out.int(fields.len() as u64);
    for (tag, bytes) in fields {
        out.byte(tag);
        out.bytes(&bytes);
    }
}

/// Changes by record, as steps from the one before: a whole record costs a byte a change.
fn encode_refs(refs: &[ChangeRef]) -> Vec<u8> {
    let mut out = Encoder::default();
    let mut last = ChangeRef { seq: Seq(0), index: 0 };
    for change in refs {
        assert!(*change > last || last.seq.0 == 0, "BUG: references are out of order");
        out.int(change.seq.0 - last.seq.0);
        let base = if change.seq == last.seq { last.index } else { 0 };
        out.int(u64::from(change.index - base));
        last = *change;
    }
    out.0
}

fn decode_refs(bytes: &[u8]) -> Result<Vec<ChangeRef>> {
    let malformed = DecodeError::Malformed("a reference to a change is out of range");
    let mut input = Decoder(bytes);
    let mut refs: Vec<ChangeRef> = Vec::new();
    let mut last = ChangeRef { seq: Seq(0), index: 0 };
    while !input.0.is_empty() {
        let (step, index) = (input.int()?, input.int32()?);
        let seq = Seq(last.seq.0.checked_add(step).ok_or(malformed.clone())?);
        let base = if step == 0 { last.index } else { 0 };
        last = ChangeRef { seq, index: base.checked_add(index).ok_or(malformed.clone())? };
        if refs.last().is_some_and(|before| *before >= last) {
            return Err(malformed);
        }
        refs.push(last);
    }
    Ok(refs)
}

/// Ranges of records: the step from the end of the one before, how many more follow the first, and 0
/// for dropped or one more than the number of changes that stand for them.
fn encode_pruned(ranges: &[Pruned]) -> Vec<u8> {
    let mut out = Encoder::default();
    let mut end = 0;
    for range in ranges {
        assert!(range.first.0 > end && range.last >= range.first, "BUG: ranges are out of order");
        out.int(range.first.0 - end);
        out.int(range.last.0 - range.first.0);
        out.int(range.merged.map_or(0, |count| u64::from(count) + 1));
        end = range.last.0;
    }
    out.0
}

fn decode_pruned(bytes: &[u8]) -> Result<Vec<Pruned>> {
    let malformed = || DecodeError::Malformed("a pruned range is out of order");
    let mut input = Decoder(bytes);
    let (mut ranges, mut end) = (Vec::new(), 0u64);
    while !input.0.is_empty() {
        let (step, more, merged) = (input.int()?, input.int()?, input.int()?);
        let first = end.checked_add(step).filter(|_| step > 0).ok_or_else(malformed)?;
        end = first.checked_add(more).ok_or_else(malformed)?;
        let merged = match merged.checked_sub(1) {
            Some(count) => Some(u32::try_from(count).map_err(|_| malformed())?),
            None => None,
        };
        ranges.push(Pruned { first: Seq(first), last: Seq(end), merged });
    }
    if ranges.is_empty() { Err(malformed()) } else { Ok(ranges) }
}

fn decode_labels(input: &mut Decoder<'_>) -> Result<Labels> {
    let mut labels = Labels::default();
    let mut last_tag = 0;
    for _ in 0..input.count()? {
        let tag = input.byte()?;
        if tag <= last_tag {
            return Err(DecodeError::Malformed("labels are out of order"));
        }
        last_tag = tag;
        decode_label(&mut labels, tag, input.bytes()?)?;
    }
    Ok(labels)
}

fn decode_label(labels: &mut Labels, tag: u8, bytes: &[u8]) -> Result<()> {
    let text = || {
        String::from_utf8(bytes.to_vec())
            .map(Some)
            .map_err(|_| DecodeError::Malformed("a label is not UTF-8"))
    };
    let number = || {
        let mut input = Decoder(bytes);
        let value = input.int()?;
        input.end()?;
        Ok(Some(value))
    };
    let id = || bytes.try_into().map_err(|_| DecodeError::Malformed("an id has the wrong length"));
    let key = || bytes.try_into().map_err(|_| DecodeError::Malformed("a key has the wrong length"));
    let flag = || match bytes {
        [] => Ok(true),
        _ => Err(DecodeError::Malformed("a flag has a value")),
    };
    match tag {
        1 => labels.snapshot = Some(SnapshotId(id()?)),
        2 => labels.action = text()?,
        3 => labels.summary = text()?,
        4 => labels.tool = text()?,
        5 => labels.call_id = text()?,
        6 => labels.session = text()?,
        7 => labels.agent = text()?,
        8 => labels.turn = number()?,
        9 => labels.turn_key = text()?,
        10 => labels.prompt = text()?,
        11 => labels.transaction = Some(TransactionId(id()?)),
        12 => labels.intent = Some(SnapshotId(id()?)),
        13 => labels.partial = flag()?,
        14 => labels.rolled_back = flag()?,
        15 => labels.name = text()?,
        16 => labels.target = number()?.map(Seq),
        17 => labels.redoes = number()?.map(Seq),
        18 => labels.taken_back = decode_refs(bytes)?,
        19 => labels.brought_back = decode_refs(bytes)?,
        20 => labels.note = text()?,
        21 => labels.by_hook = flag()?,
        22 => labels.sub_agent = text()?,
        23 => labels.pruned = decode_pruned(bytes)?,
        24 => labels.policy = text()?,
        25 => labels.forgotten = decode_refs(bytes)?,
        26 => labels.operator = Some(PublicKey(key()?)),
        27 => labels.grant = text()?,
        28 => labels.checkpoint = Some(Checkpointed::read(bytes)?),
        _ => return Err(DecodeError::Malformed("a label is not known here")),
    }
    Ok(())
}

/// Encodes a record and binds it to the link before it.
pub fn seal(record: &Record, previous: &LinkHash) -> Sealed {
    let mut leaf = Encoder::default();
    encode_header(&mut leaf, record);
    leaf.int(record.changes.len() as u64);
    let mut salts = vec![0; record.changes.len() * SALT_SIZE];
    fill_random(&mut salts);
    let mut body = Encoder(Vec::with_capacity(record.changes.len() * 192));
    let mut scratch = Encoder::default();
    for (change, salt) in record.changes.iter().zip(salts.chunks_exact(SALT_SIZE)) {
        scratch.0.clear();
        encode_change(&mut scratch, change);
        leaf.fixed(&chain::commitment(salt, &scratch.0));
        body.fixed(salt);
        body.bytes(&scratch.0);
    }
    let leaf_hash = chain::leaf_hash(&leaf.0);
    let link = chain::link(previous, &leaf_hash);
    Sealed { seq: record.seq, leaf: leaf.0, body: body.0, leaf_hash, link }
}

/// Decodes a record, checking that its changes are the ones its leaf commits to.
pub fn open(leaf: &[u8], body: &[u8]) -> Result<Record> {
    let (mut record, commitments) = decode_leaf(leaf)?;
    let mut body = Decoder(body);
    record.changes.reserve(commitments.len() / 32);
    for expected in commitments.chunks_exact(32) {
        let salt = body.fixed(SALT_SIZE)?;
        let bytes = body.bytes()?;
        let committed = chain::commitment(salt, bytes) == expected;
        if !committed && salt != [0; SALT_SIZE] {
            return Err(NOT_COMMITTED);
        }
        let mut input = Decoder(bytes);
        let change = decode_change(&mut input)?;
        input.end()?;
        // Without its salt a change may only say less than it did; a forget tells what it may say,
        // and verifying compares the two.
        if !committed && !is_redacted(&change) {
            return Err(NOT_COMMITTED);
        }
        record.changes.push(change);
    }
    body.end()?;
    Ok(record)
}

const NOT_COMMITTED: DecodeError =
    DecodeError::Malformed("a change is not the one that was committed to");

fn is_redacted(change: &Change) -> bool {
    let forgotten = Entry::Unknown(Why::Forgotten);
    change.before == forgotten || change.after == forgotten
}

/// Whether a record's changes are what became of the workspace: an intent's are befores, a prune's
/// stand for other records, a resolve's say which content a clone was, and of a dropped one nothing
/// is left.
pub fn holds_changes(leaf: &[u8]) -> bool {
    let others = [Kind::Intent, Kind::Prune, Kind::Forget, Kind::Resolve].map(kind_number);
    leaf.get(1).is_some_and(|kind| !others.contains(kind))
}

/// Decodes the header of a record, without its changes.
pub fn decode_header(leaf: &[u8]) -> Result<Record> {
    Ok(decode_leaf(leaf)?.0)
}

fn decode_leaf(leaf: &[u8]) -> Result<(Record, &[u8])> {
    let mut input = Decoder(leaf);
    let version = input.byte()?;
    if version != FORMAT_VERSION {
        return Err(DecodeError::Newer(version));
    }
    let kind = *KINDS
        .get(usize::from(input.byte()?))
        .ok_or(DecodeError::Malformed("a record has an unknown kind"))?;
    let (workspace, epoch) = (WorkspaceId(input.array()?), Epoch(input.array()?));
    let (seq, time) = (Seq(input.int()?), Time(input.signed()?));
    let labels = decode_labels(&mut input)?;
    let count = input.int()?;
    if count.checked_mul(32) != Some(input.0.len() as u64) {
        return Err(DecodeError::Malformed("the commitments have the wrong length"));
    }
    let record = Record { seq, workspace, epoch, time, kind, labels, changes: Vec::new() };
    Ok((record, input.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Record {
        let meta = Meta {
            mode: 0o640,
            uid: 1,
            gid: 2,
            mtime_ns: -5,
            xattrs: vec![(b"user.a".to_vec(), vec![1])],
        };
        let file = |n: u8| {
            Entry::File(File {
                object: ObjectId([n; 32]),
                secret: n == 2,
                pending: n == 3,
                size: u64::from(n) << 40,
                sparse: true,
                link: Some(LinkGroup([n; 8])),
                meta: meta.clone(),
            })
        };
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let change = |name: &str, before, after, author| Change {
            path: path(name),
            before,
            after,
            from: Some(MovedFrom { path: path("old"), seq: Seq(3) }),
            author,
            evidence: Evidence::Window,
            neutral: false,
        };
        let symlink = Entry::Symlink(Symlink { target: b"../x".to_vec(), meta: meta.clone() });
        let special = Entry::Special(Special { kind: SpecialKind::Fifo, meta: meta.clone() });
        let repository = Entry::Repository(Repository {
            bundle: ObjectId([1; 32]),
            identity: ObjectId([2; 32]),
            head: b"refs/heads/main".to_vec(),
            meta: meta.clone(),
        });
        Record {
            seq: Seq(300),
            workspace: WorkspaceId([7; 16]),
            epoch: Epoch([8; 16]),
            time: Time(-1),
            kind: Kind::Rewind,
            labels: Labels {
                snapshot: Some(SnapshotId([9; 16])),
                action: Some("rewind".into()),
                turn: Some(12),
                partial: true,
                target: Some(Seq(4)),
                taken_back: [(1, 0), (1, 1), (9, 7)]
                    .map(|(seq, index)| ChangeRef { seq: Seq(seq), index })
                    .to_vec(),
                note: Some("n".into()),
                pruned: [(2, 9, None), (10, 10, Some(0)), (12, 300, Some(7))]
                    .map(|(first, last, merged)| Pruned {
                        first: Seq(first),
                        last: Seq(last),
                        merged,
                    })
                    .to_vec(),
                policy: Some("p".into()),
                forgotten: vec![ChangeRef { seq: Seq(7), index: 3 }],
                operator: Some(PublicKey([5; 32])),
                grant: Some("g".into()),
                checkpoint: Checkpointed::read(&[6; 64]).ok(),
                ..Labels::default()
            },
            changes: vec![
                change("a", Entry::Absent, file(1), Author::Person),
                change("a", file(1), file(3), Author::Person),
                change("b/c", file(2), Entry::Unknown(Why::Filtered), Author::Session("s".into())),
                change("d", symlink, special, Author::Shared(vec!["x".into(), "y".into()])),
                change("e", repository, Entry::Directory(meta), Author::Chronicle),
            ],
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let record = sample();
        let sealed = seal(&record, &LinkHash::ZERO);
        assert_eq!(open(&sealed.leaf, &sealed.body), Ok(record));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error_or_another_leaf() {
        let sealed = seal(&sample(), &LinkHash::ZERO);
        for end in 0..sealed.body.len() {
            assert!(open(&sealed.leaf, &sealed.body[..end]).is_err());
        }
        for at in 0..sealed.body.len() {
            let mut body = sealed.body.clone();
            body[at] ^= 0x55;
            assert!(open(&sealed.leaf, &body).is_err(), "byte {at}");
        }
        for at in 0..sealed.leaf.len() {
            let mut leaf = sealed.leaf.clone();
            leaf[at] ^= 0x55;
            assert_ne!(chain::leaf_hash(&leaf), sealed.leaf_hash);
            let _ = open(&leaf, &sealed.body);
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut sealed = seal(&sample(), &LinkHash::ZERO);
        sealed.leaf[0] = 9;
        assert_eq!(open(&sealed.leaf, &sealed.body), Err(DecodeError::Newer(9)));
    }

    #[test]
    fn integers_have_one_encoding() {
        for value in [0, 1, 127, 128, 300, u64::MAX] {
            let mut out = Encoder::default();
            out.int(value);
            assert_eq!(Decoder(&out.0).int(), Ok(value));
        }
        assert!(Decoder(&[0x80, 0x00]).int().is_err());
        assert!(Decoder(&[0xff; 11]).int().is_err());
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Encoder::default();
            out.signed(value);
            assert_eq!(Decoder(&out.0).signed(), Ok(value));
        }
    }
}
