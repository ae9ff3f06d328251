//! The steps of one rewind on disk, as a value with canonical bytes.
//!
//! A script names everything that finishing it after a crash needs: where staging lies, which inode
//! is staged for which path, what was expected there and what is wanted. It does nothing itself.

use crate::codec::{DecodeError, Decoder, Encoder, decode_entry, encode_entry};
use crate::entry::{Entry, Meta};
use crate::id::PlanId;
use crate::path::WorkspacePath;

use super::directories::Seen;

/// The version of the bytes that this code writes.
pub(crate) const VERSION: u8 = 1;
/// The bytes of the checksum at the end.
const CHECKSUM: usize = 32;

/// Everything a rewind does to the disk, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) id: PlanId,
    /// Restored files get the present time.
    pub(super) touch: bool,
    /// The directories that hold a staging directory, one for each volume.
    pub(super) holders: Vec<WorkspacePath>,
    pub(super) steps: Vec<Step>,
    /// What is already known not to come back, in words.
    pub(super) problems: Vec<(WorkspacePath, String)>,
}

/// A place in staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot {
    /// Which of the staging directories.
    pub(super) stage: usize,
    /// Which directory in it.
    pub(super) lane: usize,
    /// The name in that directory.
    pub(super) number: u64,
}

/// What must be found at a path before it may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) mtime_ns: i64,
    /// `None` where a step on another name of the same inode changes it.
    pub(super) ctime_ns: Option<i64>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// One change to the disk; doing it twice is the same as doing it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Lets the owner change what a directory holds, until its last step sets the right mode.
    Unlock { path: WorkspacePath, ino: u64, mode: u32 },
    /// Takes a file, link or special file out of the way, into the trash.
    Remove { path: WorkspacePath, expected: Expected, slot: Slot },
    /// Removes an empty directory.
    RemoveDirectory { path: WorkspacePath, ino: u64, mode: u32, rest: Rest },
    /// Renames something that is not in the store to a name beside it.
    SetAside { path: WorkspacePath, ino: u64, to: WorkspacePath },
    /// Takes something that moves into staging.
    MoveOut { from: WorkspacePath, ino: u64, slot: Slot },
    /// Brings it from there to its place.
    MoveIn { from: WorkspacePath, to: WorkspacePath, ino: u64, slot: Slot },
    /// Moves something straight to its place.
    Move { from: WorkspacePath, to: WorkspacePath, ino: u64 },
    /// Puts a staged entry in its place.
    Place(Box<Place>),
    /// Changes attributes where content stays.
    Change { path: WorkspacePath, expected: Expected, meta: Meta, remove: Vec<Vec<u8>> },
    /// Gives a directory its last attributes, after everything in it is done.
    Finish { path: WorkspacePath, meta: Meta, remove: Vec<Vec<u8>>, base: Base },
    /// Puts back what the steps disturbed in a directory that is not itself changed.
    Settle { path: WorkspacePath, ino: u64, mode: Option<u32>, mtime_ns: i64 },
}

/// One staged entry and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: WorkspacePath,
    pub(super) then: Entry,
    pub(super) slot: Slot,
    /// The staged inode.
    pub(super) ino: u64,
    /// What it replaces; `None` where nothing may be.
    pub(super) expected: Option<Expected>,
    /// The path whose inode this becomes another name of.
    pub(super) link_from: Option<WorkspacePath>,
}

/// What happens to a directory that must go but is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rest {
    /// It stays and is reported.
    Stays,
    /// It is renamed to this and reported.
    Aside(WorkspacePath),
    /// It stays inside its parent, which is renamed as a whole.
    WithParent,
}

/// Which directory a last step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The one that stood there before, by its inode.
    Kept(u64),
    /// The one that the rewind made.
    Made,
}

impl Expected {
    /// What a look saw; names that share an inode change its ctime for each other.
    pub(super) fn of(seen: &Seen) -> Self {
        let signature = &seen.signature;
        Self {
            ino: signature.ino,
            size: signature.size,
            mtime_ns: signature.mtime_ns,
            ctime_ns: (seen.nlink == 1).then_some(signature.ctime_ns),
            mode: signature.mode,
            uid: signature.uid,
            gid: signature.gid,
        }
    }

    /// Whether this is still what stands there.
    pub(super) fn is(&self, seen: &Seen) -> bool {
        self.came_out_as(seen) && self.ctime_ns.is_none_or(|time| time == seen.signature.ctime_ns)
    }

    /// Whether this is what a rename brought out; a rename itself changes the ctime.
    pub(super) fn came_out_as(&self, seen: &Seen) -> bool {
        let Self { ino, size, mtime_ns, mode, uid, gid, .. } = *self;
        let found = &seen.signature;
        (ino, size, mtime_ns) == (found.ino, found.size, found.mtime_ns)
            && (mode, uid, gid) == (found.mode, found.uid, found.gid)
    }
}

impl Step {
    /// The path that a report names.
    pub(super) fn path(&self) -> &WorkspacePath {
        match self {
            Self::Unlock { path, .. }
            | Self::Remove { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::SetAside { path, .. }
            | Self::Change { path, .. }
            | Self::Finish { path, .. }
            | Self::Settle { path, .. } => path,
            Self::MoveOut { from, .. } => from,
            Self::MoveIn { to, .. } | Self::Move { to, .. } => to,
            Self::Place(place) => &place.path,
        }
    }

    /// Where something comes from that is moved to the path that a report names.
    pub(super) fn source(&self) -> Option<&WorkspacePath> {
        match self {
            Self::MoveIn { from, .. } | Self::Move { from, .. } => Some(from),
            _ => None,
        }
    }
}

impl Script {
    /// Whether something moves in two steps.
    pub(super) fn has_moves(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::MoveOut { .. } | Step::MoveIn { .. }))
    }

    /// The entries that are put in place.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.steps.iter().filter_map(|step| match step {
            Step::Place(place) => Some(&**place),
            _ => None,
        })
    }

    /// The same, to stage them.
    pub(super) fn places_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.steps.iter_mut().filter_map(|step| match step {
            Step::Place(place) => Some(&mut **place),
            _ => None,
        })
    }

    /// The script's bytes, ending with a checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(256 + self.steps.len() * 192));
        out.byte(VERSION);
        out.fixed(&self.id.0);
        out.byte(u8::from(self.touch));
        out.int(self.holders.len() as u64);
        for holder in &self.holders {
            out.bytes(holder.as_bytes());
        }
        out.int(self.steps.len() as u64);
        for step in &self.steps {
            encode_step(&mut out, step);
        }
        out.int(self.problems.len() as u64);
        for (path, why) in &self.problems {
            out.bytes(path.as_bytes());
            out.bytes(why.as_bytes());
        }
        let checksum = blake3::hash(&out.0);
        out.fixed(checksum.as_bytes());
        out.0
    }

    /// Reads a script; bytes that were damaged are an error.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let body = bytes.len().checked_sub(CHECKSUM).ok_or(DecodeError::Truncated)?;
        let (body, checksum) = bytes.split_at(body);
        if blake3::hash(body).as_bytes() != checksum {
            return Err(DecodeError::Malformed("the checksum is wrong"));
        }
        let mut input = Decoder(body);
        let version = input.byte()?;
        if version != VERSION {
            return Err(DecodeError::Newer(version));
        }
        let (id, touch) = (PlanId(input.array()?), input.byte()? != 0);
        let holders = decode_all(&mut input, |input| input.path())?;
        let steps = decode_all(&mut input, decode_step)?;
        let problems = decode_all(&mut input, |input| Ok((input.path()?, input.text()?)))?;
        input.end()?;
        let script = Self { id, touch, holders, steps, problems };
        if script.steps.iter().any(|step| !script.has_slot(step)) {
            return Err(DecodeError::Malformed(
                "a step names a staging directory that is not there",
            ));
        }
        Ok(script)
    }

    fn has_slot(&self, step: &Step) -> bool {
        let slot = match step {
            Step::Remove { slot, .. } | Step::MoveOut { slot, .. } | Step::MoveIn { slot, .. } => {
                slot
            }
            Step::Place(place) => &place.slot,
            _ => return true,
        };
        slot.stage < self.holders.len() && slot.lane < super::stage::LANES
    }
}

fn decode_all<T>(
    input: &mut Decoder<'_>,
    decode: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    (0..input.count()?).map(|_| decode(input)).collect()
}

fn encode_step(out: &mut Encoder, step: &Step) {
    let mut head = |tag: u8, path: &WorkspacePath| {
        out.byte(tag);
        out.bytes(path.as_bytes());
    };
    match step {
        Step::Unlock { path, ino, mode } => {
            head(0, path);
            out.int(*ino);
            out.int(u64::from(*mode));
        }
        Step::Remove { path, expected, slot } => {
            head(1, path);
            encode_expected(out, expected);
            encode_slot(out, slot);
        }
        Step::RemoveDirectory { path, ino, mode, rest } => {
            head(2, path);
            out.int(*ino);
            out.int(u64::from(*mode));
            encode_rest(out, rest);
        }
        Step::SetAside { path, ino, to } => {
            head(3, path);
            out.int(*ino);
            out.bytes(to.as_bytes());
        }
        Step::MoveOut { from, ino, slot } => {
            head(4, from);
            out.int(*ino);
            encode_slot(out, slot);
        }
        Step::MoveIn { from, to, ino, slot } => {
            head(5, from);
            out.bytes(to.as_bytes());
            out.int(*ino);
            encode_slot(out, slot);
        }
        Step::Move { from, to, ino } => {
            head(6, from);
            out.bytes(to.as_bytes());
            out.int(*ino);
        }
        Step::Place(place) => {
            head(7, &place.path);
            encode_place(out, place);
        }
        Step::Change { path, expected, meta, remove } => {
            head(8, path);
            encode_expected(out, expected);
            encode_attributes(out, meta, remove);
        }
        Step::Finish { path, meta, remove, base } => {
            head(9, path);
            encode_attributes(out, meta, remove);
            out.int(match base {
                Base::Kept(ino) => *ino,
                Base::Made => 0,
            });
        }
        Step::Settle { path, ino, mode, mtime_ns } => {
            head(10, path);
            out.int(*ino);
            out.int(mode.map_or(0, |mode| u64::from(mode) + 1));
            out.signed(*mtime_ns);
        }
    }
}

fn decode_step(input: &mut Decoder<'_>) -> Result<Step, DecodeError> {
    let (tag, path) = (input.byte()?, input.path()?);
    Ok(match tag {
        0 => Step::Unlock { path, ino: input.int()?, mode: input.int32()? },
        1 => Step::Remove { path, expected: decode_expected(input)?, slot: decode_slot(input)? },
        2 => {
            let (ino, mode) = (input.int()?, input.int32()?);
            Step::RemoveDirectory { path, ino, mode, rest: decode_rest(input)? }
        }
        3 => Step::SetAside { path, ino: input.int()?, to: input.path()? },
        4 => Step::MoveOut { from: path, ino: input.int()?, slot: decode_slot(input)? },
        5 => {
            let (to, ino) = (input.path()?, input.int()?);
            Step::MoveIn { from: path, to, ino, slot: decode_slot(input)? }
        }
        6 => Step::Move { from: path, to: input.path()?, ino: input.int()? },
        7 => Step::Place(Box::new(decode_place(input, path)?)),
        8 => {
            let expected = decode_expected(input)?;
            let (meta, remove) = decode_attributes(input)?;
            Step::Change { path, expected, meta, remove }
        }
        9 => {
            let (meta, remove) = decode_attributes(input)?;
            let base = match input.int()? {
                0 => Base::Made,
                ino => Base::Kept(ino),
            };
            Step::Finish { path, meta, remove, base }
        }
        10 => Step::Settle {
            path,
            ino: input.int()?,
            mode: input.int32()?.checked_sub(1),
            mtime_ns: input.signed()?,
        },
        _ => return Err(DecodeError::Malformed("a step has an unknown kind")),
    })
}

fn encode_place(out: &mut Encoder, place: &Place) {
    encode_entry(out, &place.then);
    encode_slot(out, &place.slot);
    out.int(place.ino);
    out.byte(u8::from(place.expected.is_some()) | u8::from(place.link_from.is_some()) << 1);
    if let Some(expected) = &place.expected {
        encode_expected(out, expected);
    }
    if let Some(path) = &place.link_from {
        out.bytes(path.as_bytes());
    }
}

fn decode_place(input: &mut Decoder<'_>, path: WorkspacePath) -> Result<Place, DecodeError> {
    let (then, slot, ino) = (decode_entry(input)?, decode_slot(input)?, input.int()?);
    let flags = input.byte()?;
    let expected = if flags & 1 != 0 { Some(decode_expected(input)?) } else { None };
    let link_from = if flags & 2 != 0 { Some(input.path()?) } else { None };
    Ok(Place { path, then, slot, ino, expected, link_from })
}

fn encode_slot(out: &mut Encoder, slot: &Slot) {
    out.int(slot.stage as u64);
    out.int(slot.lane as u64);
    out.int(slot.number);
}

fn decode_slot(input: &mut Decoder<'_>) -> Result<Slot, DecodeError> {
    let (stage, lane) = (input.int32()? as usize, input.int32()? as usize);
    Ok(Slot { stage, lane, number: input.int()? })
}

fn encode_expected(out: &mut Encoder, expected: &Expected) {
    out.int(expected.ino);
    out.int(expected.size);
    out.signed(expected.mtime_ns);
    out.byte(u8::from(expected.ctime_ns.is_some()));
    out.signed(expected.ctime_ns.unwrap_or(0));
    out.int(u64::from(expected.mode));
    out.int(u64::from(expected.uid));
    out.int(u64::from(expected.gid));
}

fn decode_expected(input: &mut Decoder<'_>) -> Result<Expected, DecodeError> {
    let (ino, size, mtime_ns) = (input.int()?, input.int()?, input.signed()?);
    let (has_ctime, ctime_ns) = (input.byte()? != 0, input.signed()?);
    let (mode, uid, gid) = (input.int32()?, input.int32()?, input.int32()?);
    Ok(Expected { ino, size, mtime_ns, ctime_ns: has_ctime.then_some(ctime_ns), mode, uid, gid })
}

fn encode_rest(out: &mut Encoder, rest: &Rest) {
    match rest {
        Rest::Stays => out.byte(0),
        Rest::Aside(to) => {
            out.byte(1);
            out.bytes(to.as_bytes());
        }
        Rest::WithParent => out.byte(2),
    }
}

fn decode_rest(input: &mut Decoder<'_>) -> Result<Rest, DecodeError> {
    Ok(match input.byte()? {
        0 => Rest::Stays,
        1 => Rest::Aside(input.path()?),
        2 => Rest::WithParent,
        _ => return Err(DecodeError::Malformed("a directory's rest has an unknown kind")),
    })
}

/// Attributes travel as a directory's entry, so that there is one encoding of them.
fn encode_attributes(out: &mut Encoder, meta: &Meta, remove: &[Vec<u8>]) {
    encode_entry(out, &Entry::Directory(meta.clone()));
    out.int(remove.len() as u64);
    for name in remove {
        out.bytes(name);
    }
}

fn decode_attributes(input: &mut Decoder<'_>) -> Result<(Meta, Vec<Vec<u8>>), DecodeError> {
    let Entry::Directory(meta) = decode_entry(input)? else {
        return Err(DecodeError::Malformed("attributes have the wrong kind"));
    };
    let remove = decode_all(input, |input| Ok(input.bytes()?.to_vec()))?;
    Ok((meta, remove))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Symlink;

    fn sample() -> Script {
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let meta = Meta { mode: 0o1755, uid: 1, gid: 2, mtime_ns: -3, xattrs: Vec::new() };
        let slot = Slot { stage: 1, lane: 1, number: 300 };
        let expected =
            Expected { ino: 1, size: 2, mtime_ns: -3, ctime_ns: Some(-4), mode: 5, uid: 6, gid: 7 };
        let shared = Expected { ctime_ns: None, ..expected };
        let (remove, ino) = (vec![b"user.a".to_vec()], 9);
        let place = Place {
            path: path("p"),
            then: Entry::Symlink(Symlink { target: b"t".to_vec(), meta: meta.clone() }),
            slot,
            ino,
            expected: Some(shared),
            link_from: Some(path("q")),
        };
        let fresh = Place { expected: None, link_from: None, ..place.clone() };
        let (from, to) = (path("from"), path("to"));
        let gone = |rest| Step::RemoveDirectory { path: path("d"), ino, mode: 0o700, rest };
        let finish = |base| Step::Finish {
            path: path("d"),
            meta: meta.clone(),
            remove: remove.clone(),
            base,
        };
        let settle = |mode| Step::Settle { path: WorkspacePath::root(), ino, mode, mtime_ns: -1 };
        Script {
            id: PlanId([7; 16]),
            touch: true,
            holders: vec![WorkspacePath::root(), path("m")],
            steps: vec![
                Step::Unlock { path: path("d"), ino, mode: 0o755 },
                Step::Remove { path: path("r\u{e4}"), expected, slot },
                gone(Rest::Stays),
                gone(Rest::Aside(path("d.kept"))),
                gone(Rest::WithParent),
                Step::SetAside { path: path("u"), ino, to: path("u.kept") },
                Step::MoveOut { from: from.clone(), ino, slot },
                Step::MoveIn { from: from.clone(), to: to.clone(), ino, slot },
                Step::Move { from, to, ino },
                Step::Place(Box::new(place)),
                Step::Place(Box::new(fresh)),
                Step::Change {
                    path: path("c"),
                    expected,
                    meta: meta.clone(),
                    remove: remove.clone(),
                },
                finish(Base::Made),
                finish(Base::Kept(4)),
                settle(None),
                settle(Some(0)),
            ],
            problems: vec![(path("s"), "a socket cannot be brought back".into())],
        }
    }

    #[test]
    fn a_script_comes_back_as_it_was() {
        let script = sample();
        assert_eq!(Script::decode(&script.encode()), Ok(script));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error() {
        let bytes = sample().encode();
        for end in 0..bytes.len() {
            assert!(Script::decode(&bytes[..end]).is_err());
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x55;
            assert!(Script::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn bytes_with_a_right_checksum_are_still_not_trusted() {
        let body = sample().encode();
        let body = &body[..body.len() - CHECKSUM];
        for at in 0..body.len() {
            let mut body = body.to_vec();
            body[at] ^= 0x55;
            let checksum = blake3::hash(&body);
            body.extend_from_slice(checksum.as_bytes());
            let _ = Script::decode(&body);
        }
    }

    /// With a checksum that fits, so that what is behind it is reached.
    #[test]
    fn mutated_scripts() {
        let sample = sample().encode();
        let body = sample[..sample.len() - CHECKSUM].to_vec();
        crate::fuzz::target("script", &[body], |input| {
            let whole = [input, blake3::hash(input).as_bytes()].concat();
            let _ = Script::decode(input);
            let Ok(script) = Script::decode(&whole) else { return false };
            assert_eq!(Script::decode(&script.encode()).as_ref(), Ok(&script));
            true
        });
    }
}
