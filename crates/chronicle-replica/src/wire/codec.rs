//! Each frame as bytes and back. One value has one encoding.

use chronicle_core::mirror::{Decoder, Encoder};
use chronicle_core::replica::{
    Node, Place, Version, Write, decode_item, decode_place, decode_verdict, decode_write,
    encode_item, encode_place, encode_verdict, encode_write, stays_home,
};
use chronicle_core::{
    DecodeError, Epoch, ObjectId, Piece, Seq, WorkspaceId, WorkspacePath, unpack_object,
    unpacked_length,
};

use super::{
    Ack, CatchupRequest, Content, Direction, Fetch, FilterSet, Frame, FullResyncRequired, Goodbye,
    Heartbeat, Hello, MAGIC, Manifest, Outcome, Push, PushItem, Refused, RefusedCode, ReplicaId,
    ResyncReason, Run, SentWrite, TreeListing, TreeRequest, Versions, Wanted, Welcome, WireError,
    WriteBack, WriteBackResult,
};
use crate::limits::{
    ASKED_MAX, INLINE_MAX, NAME_MAX, PIECE_MAX, PIECES_PER_FRAME, RULES_MAX, TOKEN_MAX, WORDS_MAX,
};

type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// The context of the hash that says what a batch is.
const BATCH_CONTEXT: &[u8] = b"chronicle batch of writes 1\n";

/// A frame with its length before it, as it travels.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut out = Encoder(vec![0; 4]);
    write_frame(&mut out, frame);
    let length = u32::try_from(out.0.len() - 4).expect("BUG: a frame is far shorter");
    out.0[..4].copy_from_slice(&length.to_be_bytes());
    out.0
}

/// The frame that these bytes, without the length before them, are.
pub fn decode(bytes: &[u8]) -> Result<Frame, WireError> {
    let mut input = Decoder(bytes);
    let frame = read_frame(&mut input)?;
    input.end()?;
    Ok(frame)
}

pub(super) fn digest_of<'a>(writes: impl IntoIterator<Item = &'a Write>) -> ObjectId {
    let mut out = Encoder(BATCH_CONTEXT.to_vec());
    writes.into_iter().for_each(|write| encode_write(&mut out, write));
    ObjectId::of(&out.0)
}

fn write_frame(out: &mut Encoder, frame: &Frame) {
    match frame {
        Frame::Hello(it) => typed(out, 1, |out| write_hello(out, it)),
        Frame::ForeignHello(it) => typed(out, 1, |out| write_opening(out, *it)),
        Frame::Welcome(it) => typed(out, 2, |out| write_welcome(out, it)),
        Frame::Refused(it) => typed(out, 3, |out| write_refused(out, it)),
        Frame::Push(it) => typed(out, 4, |out| write_push(out, it)),
        Frame::Ack(it) => typed(out, 5, |out| {
            write_place_if_any(out, it.up_to);
            out.int(it.parts.into());
        }),
        Frame::WriteBack(it) => typed(out, 6, |out| write_write_back(out, it)),
        Frame::WriteBackResult(it) => typed(out, 7, |out| write_result(out, it)),
        Frame::Heartbeat(it) => typed(out, 8, |out| {
            write_place_if_any(out, it.place);
            out.int(it.now_ms);
        }),
        Frame::CatchupRequest(it) => typed(out, 9, |out| write_place_if_any(out, it.since)),
        Frame::FullResyncRequired(it) => typed(out, 10, |out| {
            out.byte(it.why as u8);
            encode_place(out, &it.place);
        }),
        Frame::TreeRequest(it) => typed(out, 11, |out| {
            out.int(it.paths.len() as u64);
            it.paths.iter().for_each(|path| out.bytes(path.as_bytes()));
        }),
        Frame::TreeListing(it) => typed(out, 12, |out| write_listing(out, it)),
        Frame::ManifestRequest(it) => typed(out, 13, |out| write_wanted(out, it)),
        Frame::Manifest(it) => typed(out, 14, |out| write_manifest(out, it)),
        Frame::Fetch(it) => typed(out, 15, |out| {
            out.int(it.runs.len() as u64);
            it.runs.iter().for_each(|run| write_run(out, run));
        }),
        Frame::Content(it) => typed(out, 16, |out| {
            out.fixed(&it.object.0);
            out.int(it.offset);
            out.bytes(&it.bytes);
        }),
        Frame::Missing(object) => typed(out, 17, |out| out.fixed(&object.0)),
        Frame::FilterSet(it) => typed(out, 18, |out| {
            out.byte(it.direction as u8);
            out.bytes(&it.rules);
        }),
        Frame::Goodbye(it) => typed(out, 19, |out| out.bytes(it.words.as_bytes())),
    }
}

fn read_frame(input: &mut Decoder<'_>) -> Result<Frame> {
    Ok(match input.byte()? {
        1 => read_hello(input)?,
        2 => Frame::Welcome(read_welcome(input)?),
        3 => Frame::Refused(read_refused(input)?),
        4 => Frame::Push(read_push(input)?),
        5 => Frame::Ack(Ack { up_to: read_place_if_any(input)?, parts: input.int32()? }),
        6 => Frame::WriteBack(read_write_back(input)?),
        7 => Frame::WriteBackResult(read_result(input)?),
        8 => {
            let place = read_place_if_any(input)?;
            Frame::Heartbeat(Heartbeat { place, now_ms: input.int()? })
        }
        9 => Frame::CatchupRequest(CatchupRequest { since: read_place_if_any(input)? }),
        10 => {
            let why = one_of(input, &RESYNC_REASONS, "a resync has an unknown reason")?;
            Frame::FullResyncRequired(FullResyncRequired { why, place: decode_place(input)? })
        }
        11 => {
            let paths = many(input, ASKED_MAX, read_directory)?;
            Frame::TreeRequest(TreeRequest { paths })
        }
        12 => Frame::TreeListing(read_listing(input)?),
        13 => Frame::ManifestRequest(read_wanted(input)?),
        14 => Frame::Manifest(read_manifest(input)?),
        15 => Frame::Fetch(Fetch { runs: many(input, ASKED_MAX, read_run)? }),
        16 => {
            let (object, offset) = (read_object(input)?, input.int()?);
            Frame::Content(Content { object, offset, bytes: bounded(input, PIECE_MAX as usize)? })
        }
        17 => Frame::Missing(read_object(input)?),
        18 => {
            let direction = one_of(input, &DIRECTIONS, "a direction is unknown")?;
            Frame::FilterSet(FilterSet { direction, rules: bounded(input, RULES_MAX)? })
        }
        19 => Frame::Goodbye(Goodbye { words: text(input, WORDS_MAX)? }),
        _ => return Err(DecodeError::Malformed("a frame has an unknown type")),
    })
}

fn typed(out: &mut Encoder, kind: u8, write: impl FnOnce(&mut Encoder)) {
    out.byte(kind);
    write(out);
}

const RESYNC_REASONS: [ResyncReason; 3] =
    [ResyncReason::TooOld, ResyncReason::Epoch, ResyncReason::Filters];
const DIRECTIONS: [Direction; 2] = [Direction::Push, Direction::WriteBack];
const REFUSED_CODES: [RefusedCode; 6] = [
    RefusedCode::Version,
    RefusedCode::Token,
    RefusedCode::Workspace,
    RefusedCode::Busy,
    RefusedCode::Protocol,
    RefusedCode::Failed,
];
/// The value that a byte stands for: its place in a list that only grows.
fn one_of<T: Copy>(input: &mut Decoder<'_>, values: &[T], why: &'static str) -> Result<T> {
    values.get(usize::from(input.byte()?)).copied().ok_or(DecodeError::Malformed(why))
}

fn flag(input: &mut Decoder<'_>) -> Result<bool> {
    one_of(input, &[false, true], "a flag is neither 0 nor 1")
}

/// A count, then so many things; room is made as they come.
fn many<T>(
    input: &mut Decoder<'_>,
    most: usize,
    mut read: impl FnMut(&mut Decoder<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = input.count()?;
    if count > most {
        return Err(DecodeError::Malformed("there are too many of something"));
    }
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(read(input)?);
    }
    Ok(found)
}

fn bounded(input: &mut Decoder<'_>, most: usize) -> Result<Vec<u8>> {
    let bytes = input.bytes()?;
    if bytes.len() > most {
        return Err(DecodeError::Malformed("something is too long"));
    }
    Ok(bytes.to_vec())
}

fn text(input: &mut Decoder<'_>, most: usize) -> Result<String> {
    let bytes = bounded(input, most)?;
    String::from_utf8(bytes).map_err(|_| DecodeError::Malformed("words are not UTF-8"))
}

fn fixed_u16(input: &mut Decoder<'_>) -> Result<u16> {
    Ok(u16::from_be_bytes(input.array()?))
}

fn write_opening(out: &mut Encoder, versions: Versions) {
    out.fixed(MAGIC);
    out.fixed(&versions.oldest.to_be_bytes());
    out.fixed(&versions.newest.to_be_bytes());
}

fn write_hello(out: &mut Encoder, hello: &Hello) {
    write_opening(out, hello.versions);
    out.int(hello.features);
    out.bytes(&hello.token);
    out.byte(u8::from(hello.workspace.is_some()));
    if let Some(workspace) = &hello.workspace {
        out.fixed(&workspace.0);
    }
    out.fixed(&hello.replica.0);
    out.bytes(hello.name.as_bytes());
    write_place_if_any(out, hello.place);
    out.int(hello.answered);
    out.byte(u8::from(hello.folds_names));
}

fn read_hello(input: &mut Decoder<'_>) -> Result<Frame> {
    if input.fixed(MAGIC.len())? != MAGIC {
        return Err(DecodeError::Malformed("this is not a replica"));
    }
    let versions = Versions { oldest: fixed_u16(input)?, newest: fixed_u16(input)? };
    if versions.common(Versions::OURS).is_none() {
        // What follows is laid out as nobody here knows.
        input.0 = &[];
        return Ok(Frame::ForeignHello(versions));
    }
    let features = input.int()?;
    let token = bounded(input, TOKEN_MAX)?;
    let workspace = if flag(input)? { Some(WorkspaceId(input.array()?)) } else { None };
    Ok(Frame::Hello(Hello {
        versions,
        features,
        token,
        workspace,
        replica: ReplicaId(input.array()?),
        name: text(input, NAME_MAX)?,
        place: read_place_if_any(input)?,
        answered: input.int()?,
        folds_names: flag(input)?,
    }))
}

fn write_welcome(out: &mut Encoder, welcome: &Welcome) {
    out.fixed(&welcome.version.to_be_bytes());
    out.int(welcome.features);
    out.fixed(&welcome.workspace.0);
    encode_place(out, &welcome.place);
    out.byte(u8::from(welcome.may_write));
    out.byte(u8::from(welcome.folds_names));
    out.int(welcome.heartbeat_ms.into());
    out.int(welcome.fetches.into());
    out.int(welcome.batch_writes.into());
}

fn read_welcome(input: &mut Decoder<'_>) -> Result<Welcome> {
    Ok(Welcome {
        version: fixed_u16(input)?,
        features: input.int()?,
        workspace: WorkspaceId(input.array()?),
        place: decode_place(input)?,
        may_write: flag(input)?,
        folds_names: flag(input)?,
        heartbeat_ms: input.int32()?,
        fetches: input.int32()?,
        batch_writes: input.int32()?,
    })
}

fn write_refused(out: &mut Encoder, refused: &Refused) {
    out.byte(refused.code as u8);
    out.fixed(&refused.versions.oldest.to_be_bytes());
    out.fixed(&refused.versions.newest.to_be_bytes());
    out.bytes(refused.words.as_bytes());
}

fn read_refused(input: &mut Decoder<'_>) -> Result<Refused> {
    let code = one_of(input, &REFUSED_CODES, "a refusal has an unknown code")?;
    let versions = Versions { oldest: fixed_u16(input)?, newest: fixed_u16(input)? };
    Ok(Refused { code, versions, words: text(input, WORDS_MAX)? })
}

fn write_place_if_any(out: &mut Encoder, place: Option<Place>) {
    out.byte(u8::from(place.is_some()));
    if let Some(place) = place {
        encode_place(out, &place);
    }
}

fn read_place_if_any(input: &mut Decoder<'_>) -> Result<Option<Place>> {
    if flag(input)? { decode_place(input).map(Some) } else { Ok(None) }
}

fn read_object(input: &mut Decoder<'_>) -> Result<ObjectId> {
    Ok(ObjectId(input.array()?))
}

/// A path that a peer may name.
fn read_path(input: &mut Decoder<'_>) -> Result<WorkspacePath> {
    traveling(input.path()?)
}

fn traveling(path: WorkspacePath) -> Result<WorkspacePath> {
    if stays_home(&path) { Err(DecodeError::Malformed("a path does not travel")) } else { Ok(path) }
}

/// The same, or the root.
fn read_directory(input: &mut Decoder<'_>) -> Result<WorkspacePath> {
    let path = input.path()?;
    if path.is_root() { Ok(path) } else { traveling(path) }
}

fn write_inline(out: &mut Encoder, inline: Option<&[u8]>) {
    out.byte(u8::from(inline.is_some()));
    if let Some(bytes) = inline {
        out.bytes(bytes);
    }
}

/// The same, or 2 and the content in its stored form.
fn write_pushed(out: &mut Encoder, inline: Option<&[u8]>, stored: Option<&[u8]>) {
    let Some(stored) = stored else { return write_inline(out, inline) };
    out.byte(2);
    out.bytes(stored);
}

/// The content of an item, and its stored form if it came in that: then it is what its name says.
type Pushed = (Option<Vec<u8>>, Option<Vec<u8>>);

fn read_pushed(input: &mut Decoder<'_>, version: &Version) -> Result<Pushed> {
    if input.0.first() != Some(&2) {
        return Ok((read_inline(input, version)?, None));
    }
    input.byte()?;
    let stored = bounded(input, INLINE_MAX)?;
    let Version::File { object, size, .. } = version else {
        return Err(DecodeError::Malformed("content stands where none can"));
    };
    // Its length before its content: a few bytes may say that they are gigabytes.
    let fits = unpacked_length(&stored) == Some(*size) && *size <= INLINE_MAX as u64;
    let bytes = if fits { unpack_object(object, &stored).ok() } else { None };
    match bytes {
        Some(bytes) => Ok((Some(bytes), Some(stored))),
        None => Err(DecodeError::Malformed("a stored content is not what its name says")),
    }
}

fn read_inline(input: &mut Decoder<'_>, version: &Version) -> Result<Option<Vec<u8>>> {
    if !flag(input)? {
        return Ok(None);
    }
    let bytes = bounded(input, INLINE_MAX)?;
    match version {
        Version::File { size, .. } if *size == bytes.len() as u64 => Ok(Some(bytes)),
        _ => Err(DecodeError::Malformed("content stands where none can")),
    }
}

fn write_push(out: &mut Encoder, push: &Push) {
    out.fixed(&push.epoch.0);
    out.int(push.from.0);
    out.int(push.to.0);
    out.int(push.part.into());
    out.byte(u8::from(push.last));
    out.int(push.items.len() as u64);
    for PushItem { item, inline, stored } in &push.items {
        encode_item(out, item);
        write_pushed(out, inline.as_deref(), stored.as_deref());
    }
}

fn read_push(input: &mut Decoder<'_>) -> Result<Push> {
    let epoch = Epoch(input.array()?);
    let (from, to) = (Seq(input.int()?), Seq(input.int()?));
    if from > to {
        return Err(DecodeError::Malformed("a push ends before it begins"));
    }
    let (part, last) = (input.int32()?, flag(input)?);
    let items = many(input, usize::MAX, |input| {
        let mut item = decode_item(input)?;
        item.path = traveling(item.path)?;
        let (inline, stored) = read_pushed(input, &item.version)?;
        Ok(PushItem { item, inline, stored })
    })?;
    Ok(Push { epoch, from, to, part, last, items })
}

fn write_write_back(out: &mut Encoder, it: &WriteBack) {
    out.int(it.batch);
    out.fixed(&it.digest.0);
    out.int(it.part.into());
    out.byte(u8::from(it.last));
    out.int(it.writes.len() as u64);
    for SentWrite { write, inline } in &it.writes {
        encode_write(out, write);
        write_inline(out, inline.as_deref());
    }
}

fn read_write_back(input: &mut Decoder<'_>) -> Result<WriteBack> {
    let (batch, digest) = (input.int()?, read_object(input)?);
    let (part, last) = (input.int32()?, flag(input)?);
    let writes = many(input, usize::MAX, |input| {
        let mut write = decode_write(input)?;
        write.path = traveling(write.path)?;
        let inline = read_inline(input, &write.after)?;
        Ok(SentWrite { write, inline })
    })?;
    Ok(WriteBack { batch, digest, part, last, writes })
}

fn write_result(out: &mut Encoder, it: &WriteBackResult) {
    out.int(it.batch);
    out.int(it.part.into());
    out.byte(u8::from(it.last));
    match &it.outcome {
        Outcome::Renumber(after) => {
            out.byte(0);
            out.int(*after);
        }
        Outcome::Verdicts(verdicts) => {
            out.byte(1);
            out.int(verdicts.len() as u64);
            verdicts.iter().for_each(|verdict| encode_verdict(out, verdict));
        }
    }
}

fn read_result(input: &mut Decoder<'_>) -> Result<WriteBackResult> {
    let (batch, part, last) = (input.int()?, input.int32()?, flag(input)?);
    let outcome = match input.byte()? {
        0 => Outcome::Renumber(input.int()?),
        1 => Outcome::Verdicts(many(input, usize::MAX, decode_verdict)?),
        _ => return Err(DecodeError::Malformed("a batch has an unknown outcome")),
    };
    Ok(WriteBackResult { batch, part, last, outcome })
}

fn write_listing(out: &mut Encoder, it: &TreeListing) {
    out.bytes(it.path.as_bytes());
    encode_place(out, &it.place);
    out.int(it.part.into());
    out.byte(u8::from(it.last));
    out.byte(u8::from(it.found));
    out.int(it.entries.len() as u64);
    for entry in &it.entries {
        out.bytes(&entry.name);
        entry.version.encode(out);
        if entry.version.is_directory() {
            out.fixed(&entry.below.unwrap_or_default());
        }
    }
}

fn read_listing(input: &mut Decoder<'_>) -> Result<TreeListing> {
    let (path, place) = (read_directory(input)?, decode_place(input)?);
    let (part, last, found) = (input.int32()?, flag(input)?, flag(input)?);
    let mut before: Vec<u8> = Vec::new();
    let entries = many(input, usize::MAX, |input| {
        let entry = read_node(input, &path)?;
        if entry.name <= before {
            return Err(DecodeError::Malformed("a listing is not in order"));
        }
        before.clone_from(&entry.name);
        Ok(entry)
    })?;
    Ok(TreeListing { path, place, part, last, found, entries })
}

fn read_node(input: &mut Decoder<'_>, above: &WorkspacePath) -> Result<Node> {
    const NO_NAME: DecodeError = DecodeError::Malformed("a listing has an impossible name");
    let name = bounded(input, NAME_MAX)?;
    let plain =
        !matches!(&name[..], b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
    if !plain || stays_home(&above.join(&name)) {
        return Err(NO_NAME);
    }
    let version = Version::decode(input)?;
    let below = match version {
        Version::Absent => return Err(DecodeError::Malformed("a listing names what is not there")),
        Version::Directory { .. } => Some(input.array()?),
        Version::File { .. } | Version::Symlink { .. } => None,
    };
    Ok(Node { name, version, below })
}

fn write_wanted(out: &mut Encoder, wanted: &Wanted) {
    out.fixed(&wanted.object.0);
    out.bytes(wanted.path.as_bytes());
}

fn read_wanted(input: &mut Decoder<'_>) -> Result<Wanted> {
    Ok(Wanted { object: read_object(input)?, path: read_path(input)? })
}

fn write_run(out: &mut Encoder, run: &Run) {
    write_wanted(out, &run.wanted);
    out.int(run.offset);
    out.int(run.length.into());
}

fn read_run(input: &mut Decoder<'_>) -> Result<Run> {
    let (wanted, offset, length) = (read_wanted(input)?, input.int()?, input.int32()?);
    if length == 0 || length > PIECE_MAX || offset.checked_add(length.into()).is_none() {
        return Err(DecodeError::Malformed("a run has an impossible length"));
    }
    Ok(Run { wanted, offset, length })
}

fn write_manifest(out: &mut Encoder, it: &Manifest) {
    out.fixed(&it.object.0);
    out.int(it.size);
    out.int(it.first.into());
    out.byte(u8::from(it.last));
    out.int(it.pieces.len() as u64);
    for piece in &it.pieces {
        out.fixed(&piece.id.0);
        out.int(piece.length.into());
    }
}

fn read_manifest(input: &mut Decoder<'_>) -> Result<Manifest> {
    let (object, size) = (read_object(input)?, input.int()?);
    let (first, last) = (input.int32()?, flag(input)?);
    let pieces = many(input, PIECES_PER_FRAME, |input| {
        let (id, length) = (read_object(input)?, input.int32()?);
        if length == 0 || length > PIECE_MAX {
            return Err(DecodeError::Malformed("a piece has an impossible length"));
        }
        Ok(Piece { id, length })
    })?;
    Ok(Manifest { object, size, first, last, pieces })
}
