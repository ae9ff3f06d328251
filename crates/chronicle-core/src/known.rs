//! The known state: for every path the last recorded entry and the stat signature it had then.
//!
//! While a path still has its signature its content is already in the store, so capturing it costs
//! one `lstat`. Kept per directory as one packed row, because a look reads all of it: rows of single
//! files cost twice the walk itself.

use std::collections::{BTreeMap, HashMap};

use crate::codec::{DecodeError, Decoder, Encoder, decode_entry, encode_entry};
use crate::entry::Entry;
use crate::id::{Seq, Time};
use crate::path::WorkspacePath;

/// What `lstat` says of a file; only ever a hint that nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds.
    pub mtime_ns: i64,
    /// Status change time in nanoseconds; nobody can set it back.
    pub ctime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Kind and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The bytes of an encoded signature.
const SIGNATURE_SIZE: usize = 44;

/// How a path takes part in rewinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// As itself.
    Ordinary,
    /// Inside a repository: brought back if missing, otherwise left alone.
    Neutral,
    /// Inside a repository: recorded only as a part of the repository's one value.
    Significant,
}

/// What is known of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The last recorded entry.
    pub entry: Entry,
    /// Its signature when it was read; `None` where there was nothing to stat.
    pub signature: Option<Signature>,
    /// It was touched so shortly before it was read that a later touch could look the same.
    pub racy: bool,
    /// How it takes part in rewinds.
    pub part: Part,
}

/// When a directory was last listed completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The head of the log then.
    pub seq: Seq,
    /// The time at which the listing began.
    pub time: Time,
}

/// Which directory a root or a mount point really is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The file system.
    pub fsid: u64,
    /// The inode.
    pub ino: u64,
    /// When the inode was born; 0 where the file system does not tell.
    pub born_ns: i64,
}

/// What is known of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownDirectory {
    /// When it was last listed completely; without that, a missing name proves nothing.
    pub listed: Option<Listed>,
    /// Which file system is mounted here, if it is not its parent's.
    pub mount: Option<Identity>,
    /// The directory's own entry, for a root; others have theirs in their parent.
    pub own: Option<Known>,
    /// What it holds, by name.
    pub names: BTreeMap<Vec<u8>, Known>,
}

impl KnownDirectory {
    /// The row's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(64 + self.names.len() * 128));
        let flag = |bit: u8, set: bool| if set { bit } else { 0 };
        out.byte(
            flag(1, self.listed.is_some())
                | flag(2, self.mount.is_some())
                | flag(4, self.own.is_some()),
        );
        if let Some(listed) = self.listed {
            out.int(listed.seq.0);
            out.signed(listed.time.0);
        }
        if let Some(mount) = self.mount {
            encode_identity(&mut out, &mount);
        }
        if let Some(own) = &self.own {
            own.encode(&mut out);
        }
        for (name, known) in &self.names {
            out.bytes(name);
            known.encode(&mut out);
        }
        out.0
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (view, mut names) = (DirectoryView::new(bytes)?, BTreeMap::new());
        for item in view.names() {
            let (name, known) = item?;
            names.insert(name.to_vec(), known.to_known()?);
        }
        Ok(Self { listed: view.listed, mount: view.mount, own: view.own, names })
    }
}

/// Writes the identity of a directory.
pub fn encode_identity(out: &mut Encoder, identity: &Identity) {
    out.fixed(&identity.fsid.to_le_bytes());
    out.fixed(&identity.ino.to_le_bytes());
    out.fixed(&identity.born_ns.to_le_bytes());
}

/// Reads the identity of a directory.
pub fn decode_identity(input: &mut Decoder<'_>) -> Result<Identity, DecodeError> {
    Ok(Identity {
        fsid: u64::from_le_bytes(input.array()?),
        ino: u64::from_le_bytes(input.array()?),
        born_ns: i64::from_le_bytes(input.array()?),
    })
}

impl Known {
    /// Appends the bytes of this: flags, signature, and the entry with its length.
    pub fn encode(&self, out: &mut Encoder) {
        let part = match self.part {
            Part::Ordinary => 0,
            Part::Neutral => 4,
            Part::Significant => 8,
        };
        out.byte(u8::from(self.racy) | u8::from(self.signature.is_some()) << 1 | part);
        if let Some(signature) = &self.signature {
            signature.encode(out);
        }
        let mut entry = Encoder::default();
        encode_entry(&mut entry, &self.entry);
        out.bytes(&entry.0);
    }

    /// Reads one.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        KnownView::take(input)?.to_known()
    }
}

impl Signature {
    fn encode(&self, out: &mut Encoder) {
        out.fixed(&self.size.to_le_bytes());
        out.fixed(&self.mtime_ns.to_le_bytes());
        out.fixed(&self.ctime_ns.to_le_bytes());
        out.fixed(&self.ino.to_le_bytes());
        out.fixed(&self.mode.to_le_bytes());
        out.fixed(&self.uid.to_le_bytes());
        out.fixed(&self.gid.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        Ok(Self {
            size: u64::from_le_bytes(input.array()?),
            mtime_ns: i64::from_le_bytes(input.array()?),
            ctime_ns: i64::from_le_bytes(input.array()?),
            ino: u64::from_le_bytes(input.array()?),
            mode: u32::from_le_bytes(input.array()?),
            uid: u32::from_le_bytes(input.array()?),
            gid: u32::from_le_bytes(input.array()?),
        })
    }
}

/// What is known of one path, still as bytes: a look compares signatures and reads no entries.
#[derive(Debug, Clone, Copy)]
pub struct KnownView<'a> {
    flags: u8,
    signature: &'a [u8],
    entry: &'a [u8],
}

impl<'a> KnownView<'a> {
    fn take(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let flags = input.byte()?;
        let size = if flags & 2 != 0 { SIGNATURE_SIZE } else { 0 };
        Ok(Self { flags, signature: input.fixed(size)?, entry: input.bytes()? })
    }

    /// The signature, if there is one.
    pub fn signature(&self) -> Option<Signature> {
        Signature::decode(self.signature).ok()
    }

    /// Whether the signature cannot be trusted.
    pub fn racy(&self) -> bool {
        self.flags & 1 != 0
    }

    /// How the path takes part in rewinds.
    pub fn part(&self) -> Part {
        match self.flags >> 2 & 3 {
            0 => Part::Ordinary,
            1 => Part::Neutral,
            _ => Part::Significant,
        }
    }

    /// Whether the entry is known to be absent or not known, so that nothing was there to compare.
    pub fn is_unknown_or_absent(&self) -> bool {
        matches!(self.entry.first(), Some(0 | 1) | None)
    }

    /// The whole, decoded.
    pub fn to_known(self) -> Result<Known, DecodeError> {
        let mut input = Decoder(self.entry);
        let entry = decode_entry(&mut input)?;
        input.end()?;
        let (signature, racy, part) = (self.signature(), self.racy(), self.part());
        Ok(Known { entry, signature, racy, part })
    }
}

/// A directory's row, still as bytes.
#[derive(Debug, Clone)]
pub struct DirectoryView<'a> {
    /// When it was last listed completely.
    pub listed: Option<Listed>,
    /// Which file system is mounted here, if it is not its parent's.
    pub mount: Option<Identity>,
    /// The directory's own entry, for a root.
    pub own: Option<Known>,
    names: &'a [u8],
}

impl<'a> DirectoryView<'a> {
    /// Reads the head of a row.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let flags = input.byte()?;
        let listed = if flags & 1 != 0 {
            Some(Listed { seq: Seq(input.int()?), time: Time(input.signed()?) })
        } else {
            None
        };
        let mount = if flags & 2 != 0 { Some(decode_identity(&mut input)?) } else { None };
        let own = if flags & 4 != 0 { Some(Known::decode(&mut input)?) } else { None };
        Ok(Self { listed, mount, own, names: input.0 })
    }

    /// What is known of one name.
    pub fn find(&self, name: &[u8]) -> Result<Option<Known>, DecodeError> {
        for item in self.names() {
            let (found, known) = item?;
            if found >= name {
                return if found == name { known.to_known().map(Some) } else { Ok(None) };
            }
        }
        Ok(None)
    }

    /// What the directory holds, in the order of the names.
    pub fn names(&self) -> impl Iterator<Item = Result<(&'a [u8], KnownView<'a>), DecodeError>> {
        let mut input = Decoder(self.names);
        std::iter::from_fn(move || {
            if input.0.is_empty() {
                return None;
            }
            let item = input.bytes().and_then(|name| Ok((name, KnownView::take(&mut input)?)));
            if item.is_err() {
                input.0 = &[];
            }
            Some(item)
        })
    }
}

/// The whole known state in memory, for a look: packed rows, and the newer single paths beside them.
#[derive(Debug, Default)]
pub struct KnownTable {
    /// All rows, one after the other.
    pub arena: Vec<u8>,
    /// Where each directory's row lies in the arena.
    pub rows: HashMap<WorkspacePath, std::ops::Range<usize>>,
    /// Paths recorded since their directory's row was written: directory, then name. `None`: gone.
    pub newer: HashMap<WorkspacePath, BTreeMap<Vec<u8>, Option<Known>>>,
}

impl KnownTable {
    /// The row of a directory, if it was ever looked at.
    pub fn row(&self, directory: &WorkspacePath) -> Option<Result<DirectoryView<'_>, DecodeError>> {
        let range = self.rows.get(directory)?.clone();
        Some(DirectoryView::new(&self.arena[range]))
    }

    /// The single paths of a directory that are newer than its row.
    pub fn newer(&self, directory: &WorkspacePath) -> Option<&BTreeMap<Vec<u8>, Option<Known>>> {
        self.newer.get(directory)
    }

    /// What is known of one path, without decoding its neighbours.
    pub fn get(
        &self,
        directory: &WorkspacePath,
        name: &[u8],
    ) -> Result<Option<Known>, DecodeError> {
        if let Some(newer) = self.newer.get(directory).and_then(|names| names.get(name)) {
            return Ok(newer.clone());
        }
        match self.row(directory).transpose()? {
            Some(row) => row.find(name),
            None => Ok(None),
        }
    }

    /// Everything known of a directory, decoded and with the newer paths in place.
    pub fn directory(&self, path: &WorkspacePath) -> Result<KnownDirectory, DecodeError> {
        let mut directory = match self.rows.get(path) {
            Some(range) => KnownDirectory::decode(&self.arena[range.clone()])?,
            None => KnownDirectory::default(),
        };
        for (name, known) in self.newer.get(path).into_iter().flatten() {
            match known {
                Some(known) => directory.names.insert(name.clone(), known.clone()),
                None => directory.names.remove(name),
            };
        }
        Ok(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Meta, Why};

    #[test]
    fn a_row_comes_back_as_it_was() {
        let signature =
            Signature { size: 1, mtime_ns: -2, ctime_ns: 3, ino: 4, mode: 5, uid: 6, gid: 7 };
        let known = |entry, racy, part| Known { entry, signature: Some(signature), racy, part };
        let directory = KnownDirectory {
            listed: Some(Listed { seq: Seq(9), time: Time(-1) }),
            mount: Some(Identity { fsid: 1, ino: 2, born_ns: 3 }),
            own: Some(known(Entry::Directory(Meta::default()), false, Part::Ordinary)),
            names: BTreeMap::from([
                (b"a".to_vec(), known(Entry::Unknown(Why::Filtered), true, Part::Neutral)),
                (b"b\xff".to_vec(), known(Entry::Absent, false, Part::Significant)),
            ]),
        };
        assert_eq!(KnownDirectory::decode(&directory.encode()), Ok(directory.clone()));
        let bytes = directory.encode();
        for end in 0..bytes.len() {
            let _ = KnownDirectory::decode(&bytes[..end]);
        }
    }
}
