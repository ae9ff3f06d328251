//! The journal of a mount: what is about to happen, what came of it, and the versions that went, before any
//! of it is in the log.
//!
//! A commit of the catalog costs more than most operations on files, so a mount writes a note here
//! instead, with one `write`: a killed process loses none of them. Whoever next works on the workspace brings
//! them into the log, with the place up to which he did in the same commit, so that each counts once.
//!
//! A note: its length (4, little-endian), the first 8 bytes of the BLAKE3 hash of its body, its body. What
//! does not fit its hash is the end: nobody finished writing it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::codec::{DecodeError, Decoder, Encoder, decode_entry, encode_entry};
use crate::entry::Entry;
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;
use crate::path::WorkspacePath;
use crate::process::Process;
use crate::store::Row;

pub(crate) const MAGIC: &[u8; 8] = b"chr-mnt1";
/// The directory of a workspace's home in which journals lie.
pub(crate) const DIRECTORY: &str = "mount";
/// Bytes before the body of a note.
const FRAME: usize = 12;
/// No note is longer.
const LONGEST: usize = 4 << 20;
/// A journal that is longer is gone on with in a new one: whoever folds reads all of the last.
const FULL: u64 = 1 << 20;

/// One thing that a mount wrote down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A process and what it is called, itself first, then those above it; later notes name it by this number.
    Who { number: u32, name: String, line: Vec<Process> },
    /// Something is about to happen to these paths.
    Intent { number: u64, who: u32, deed: Deed, paths: Vec<WorkspacePath> },
    /// What came of it: 0, or the number of the error.
    Outcome { number: u64, errno: u32 },
    /// Nobody has these open for writing any more.
    Closed { who: u32, paths: Vec<WorkspacePath> },
    /// What stood at a path and is not in the log yet, just before it goes.
    Saved { path: WorkspacePath, entry: Entry, rows: Vec<(ObjectId, Vec<u8>)> },
}

/// What an intent is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The content may change until it is closed.
    Opens = 0,
    /// The content or what surrounds it changes at once.
    Changes = 1,
    /// It did not stand there before.
    Creates = 2,
    /// The same, a directory.
    CreatesDirectory = 3,
    /// It goes.
    Removes = 4,
    /// It goes elsewhere, with everything below.
    Leaves = 5,
    /// It comes from elsewhere, with everything below; what stood there goes.
    Arrives = 6,
}

impl Deed {
    const ALL: [Self; 7] = [
        Self::Opens,
        Self::Changes,
        Self::Creates,
        Self::CreatesDirectory,
        Self::Removes,
        Self::Leaves,
        Self::Arrives,
    ];

    /// Whether everything below is concerned too.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::CreatesDirectory) || self.moves()
    }

    /// Whether it is about something that goes elsewhere or comes from there.
    pub(crate) fn moves(self) -> bool {
        matches!(self, Self::Leaves | Self::Arrives)
    }

    /// Whether nothing is left at the path.
    pub(crate) fn empties(self) -> bool {
        matches!(self, Self::Removes | Self::Leaves)
    }
}

impl Note {
    /// The note with its frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(vec![0; FRAME]);
        match self {
            Self::Who { number, name, line } => {
                out.byte(0);
                out.int(u64::from(*number));
                out.bytes(name.as_bytes());
                out.int(line.len() as u64);
                line.iter().for_each(|process| process.encode(&mut out));
            }
            Self::Intent { number, who, deed, paths } => {
                out.byte(1);
                out.int(*number);
                out.int(u64::from(*who));
                out.byte(*deed as u8);
                encode_paths(&mut out, paths);
            }
            Self::Outcome { number, errno } => {
                out.byte(2);
                out.int(*number);
                out.int(u64::from(*errno));
            }
            Self::Closed { who, paths } => {
                out.byte(3);
                out.int(u64::from(*who));
                encode_paths(&mut out, paths);
            }
            Self::Saved { path, entry, rows } => {
                out.byte(4);
                out.bytes(path.as_bytes());
                encode_entry(&mut out, entry);
                out.int(rows.len() as u64);
                for (id, stored) in rows {
                    out.fixed(id.as_bytes());
                    out.bytes(stored);
                }
            }
        }
        let body = out.0.len() - FRAME;
        let sum = sum(&out.0[FRAME..]);
        out.0[..4].copy_from_slice(&u32::try_from(body).unwrap_or(u32::MAX).to_le_bytes());
        out.0[4..FRAME].copy_from_slice(&sum);
        out.0
    }

    fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(body);
        let note = match input.byte()? {
            0 => {
                let (number, name, count) = (input.int32()?, input.text()?, input.count()?);
                let line =
                    (0..count).map(|_| Process::decode(&mut input)).collect::<Result<_, _>>()?;
                Self::Who { number, name, line }
            }
            1 => {
                let (number, who) = (input.int()?, input.int32()?);
                let deed = Deed::ALL.get(usize::from(input.byte()?)).copied();
                let deed = deed.ok_or(DecodeError::Malformed("deed or note"))?;
                Self::Intent { number, who, deed, paths: decode_paths(&mut input)? }
            }
            2 => Self::Outcome { number: input.int()?, errno: input.int32()? },
            3 => Self::Closed { who: input.int32()?, paths: decode_paths(&mut input)? },
            4 => {
                let (path, entry) = (input.path()?, decode_entry(&mut input)?);
                let mut rows = Vec::new();
                for _ in 0..input.count()? {
                    rows.push((ObjectId(input.array()?), input.bytes()?.to_vec()));
                }
                Self::Saved { path, entry, rows }
            }
            _ => return Err(DecodeError::Malformed("deed or note")),
        };
        input.end()?;
        Ok(note)
    }
}

fn encode_paths(out: &mut Encoder, paths: &[WorkspacePath]) {
    out.int(paths.len() as u64);
    paths.iter().for_each(|path| out.bytes(path.as_bytes()));
}

fn decode_paths(input: &mut Decoder<'_>) -> Result<Vec<WorkspacePath>, DecodeError> {
    (0..input.count()?).map(|_| input.path()).collect()
}

fn sum(body: &[u8]) -> [u8; 8] {
    let hash = blake3::hash(body);
    let mut sum = [0; 8];
    sum.copy_from_slice(&hash.as_bytes()[..8]);
    sum
}

/// Notes as they lie in a journal, with the place behind each.
pub(crate) fn read(bytes: &[u8]) -> Vec<(u64, Note)> {
    let notes = bytes.strip_prefix(MAGIC).map(notes_in).unwrap_or_default();
    let begun = MAGIC.len() as u64;
    notes.into_iter().map(|(behind, note)| (begun + behind, note)).collect()
}

/// Notes that lie in a row, with the place behind each.
pub(crate) fn notes_in(bytes: &[u8]) -> Vec<(u64, Note)> {
    let (mut notes, mut rest) = (Vec::new(), bytes);
    while rest.len() >= FRAME {
        let length = u32::from_le_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        let Some(body) = rest.get(FRAME..FRAME + length).filter(|_| length <= LONGEST) else {
            break;
        };
        if sum(body) != rest[4..FRAME] {
            break;
        }
        let Ok(note) = Note::decode(body) else { break };
        rest = &rest[FRAME + length..];
        notes.push(((bytes.len() - rest.len()) as u64, note));
    }
    notes
}

/// The journals of a workspace with their numbers, the oldest first.
pub(crate) fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at("list", directory)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.at("list", directory)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("journal-"));
        if let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
            found.push((number, directory.join(name)));
        }
    }
    found.sort();
    Ok(found)
}

/// All bytes of one journal; none if it is gone. That of a newer program is not taken for an empty one.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>> {
    let bytes = bytes_behind(path, 0)?;
    let (word, known) = MAGIC.split_at(MAGIC.len() - 1);
    match bytes.strip_prefix(word).and_then(<[u8]>::first) {
        Some(found) if *found > known[0] => {
            let number = |digit: u8| u64::from(digit.wrapping_sub(b'0'));
            let what = format!("Journal {}", path.display());
            Err(Error::Newer { what, found: number(*found), known: number(known[0]) })
        }
        _ => Ok(bytes),
    }
}

/// The bytes of one journal behind a place.
pub(crate) fn bytes_behind(path: &Path, place: u64) -> Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.at("open", path)?,
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(place)).at("read", path)?;
    file.read_to_end(&mut bytes).at("read", path)?;
    Ok(bytes)
}

/// The contents that saved versions name.
pub(crate) fn saved_in(directory: &Path) -> Result<Vec<ObjectId>> {
    let mut objects = Vec::new();
    for (_, path) in list(directory)? {
        for (_, note) in read(&bytes_of(&path)?) {
            if let Note::Saved { entry, .. } = note {
                objects.extend(entry.object());
            }
        }
    }
    Ok(objects)
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    file: File,
    pub(crate) number: u64,
    pub(crate) length: u64,
    synced: u64,
}

impl Journal {
    /// Begins one that comes after all that are there.
    pub(crate) fn begin(directory: &Path) -> Result<Self> {
        let last = list(directory)?.last().map_or(0, |(number, _)| *number);
        Self::numbered(directory, last + 1)
    }

    fn numbered(directory: &Path, number: u64) -> Result<Self> {
        let path = path_of(directory, number);
        let mut options = OpenOptions::new();
        let open = options.append(true).create_new(true).mode(0o600).open(&path);
        let mut file = open.at("create", &path)?;
        file.write_all(MAGIC).at("write", &path)?;
        crate::home::sync_directory(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            file,
            number,
            length: MAGIC.len() as u64,
            synced: 0,
        })
    }

    /// Adds notes; all of them or none are there afterwards.
    pub(crate) fn add(&mut self, notes: &[Note]) -> Result<()> {
        let mut bytes = Vec::new();
        for note in notes {
            let encoded = note.encode();
            assert!(encoded.len() <= LONGEST, "BUG: nobody could read this note again");
            bytes.extend(encoded);
        }
        let path = || path_of(&self.directory, self.number);
        if let Err(error) = self.file.write_all(&bytes) {
            // What stands behind half a note would never be read.
            self.file.set_len(self.length).at("shorten", path())?;
            return Err(error).at("write", path());
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes everything that was added durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.synced < self.length {
            self.file.sync_data().at("sync", path_of(&self.directory, self.number))?;
            self.synced = self.length;
        }
        Ok(())
    }

    /// A new one to go on with, if this one is long.
    pub(crate) fn next(&self) -> Result<Option<Self>> {
        if self.length < FULL {
            return Ok(None);
        }
        Self::numbered(&self.directory, self.number + 1).map(Some)
    }
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("journal-{number:016x}"))
}

/// Up to where the journals are in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Folded {
    /// Of which journal; older ones are done.
    pub(crate) number: u64,
    /// Up to where the versions that went are recorded.
    pub(crate) saved: u64,
    /// Up to where it was looked at what was touched.
    pub(crate) looked: u64,
}

impl Folded {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [self.number, self.saved, self.looked].map(u64::to_le_bytes).concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let numbers: [u8; 24] = bytes.try_into().ok()?;
        let at =
            |n: usize| u64::from_le_bytes(numbers[8 * n..8 * n + 8].try_into().expect("eight"));
        Some(Self { number: at(0), saved: at(1), looked: at(2) })
    }
}

/// The contents that a saved version needs.
pub(crate) fn rows(kept: &[(ObjectId, Vec<u8>)]) -> impl Iterator<Item = Row> + '_ {
    kept.iter().map(|(id, stored)| Row { id: *id, stored: stored.clone(), base: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    fn samples() -> Vec<Note> {
        let process = Process { pid: 7, started: 9, boot: "b".to_owned() };
        let entry = crate::codec::tests::sample().changes[0].after.clone();
        vec![
            Note::Who { number: 1, name: "sh".to_owned(), line: vec![process] },
            Note::Intent {
                number: 3,
                who: 1,
                deed: Deed::Leaves,
                paths: vec![path("a"), path("b/c")],
            },
            Note::Outcome { number: 3, errno: 28 },
            Note::Closed { who: 1, paths: vec![path("b/c")] },
            Note::Saved { path: path("a"), entry, rows: vec![(ObjectId::of(b"x"), vec![1, 2, 3])] },
        ]
    }

    #[test]
    fn notes_come_back_in_order_and_half_a_note_is_the_end() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(place.path()).unwrap();
        journal.add(&samples()).unwrap();
        journal.sync().unwrap();
        let (number, file) = list(place.path()).unwrap().remove(0);
        assert_eq!(number, 1);
        let bytes = bytes_of(&file).unwrap();
        assert_eq!(bytes.len() as u64, journal.length);
        let notes = read(&bytes);
        assert_eq!(notes.iter().map(|(_, note)| note.clone()).collect::<Vec<_>>(), samples());
        for end in 0..bytes.len() {
            let whole = notes.iter().filter(|(behind, _)| *behind <= end as u64).count();
            assert_eq!(read(&bytes[..end]).len(), whole, "{end}");
        }
        assert_eq!(Journal::begin(place.path()).unwrap().number, 2);
    }

    /// A journal of another version was read as one without notes, and went with the next one: what it had
    /// saved was lost. A newer one is refused now, and stays.
    #[test]
    fn a_newer_journal_is_not_taken_for_an_empty_one() {
        let place = tempfile::tempdir().unwrap();
        Journal::begin(place.path()).unwrap().add(&samples()).unwrap();
        let file = list(place.path()).unwrap().remove(0).1;
        let mut bytes = bytes_of(&file).unwrap();
        bytes[7] = b'2';
        std::fs::write(&file, bytes).unwrap();
        let refused = bytes_of(&file).unwrap_err();
        assert!(matches!(refused, Error::Newer { found: 2, known: 1, .. }), "{refused}");
    }

    #[test]
    fn only_a_long_one_is_gone_on_with_in_a_new_one() {
        let place = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(place.path()).unwrap();
        assert!(journal.next().unwrap().is_none());
        while journal.length < FULL {
            journal.add(&samples()).unwrap();
        }
        assert_eq!(journal.next().unwrap().unwrap().number, 2);
        let folded = Folded { number: 1, saved: journal.length, looked: journal.length };
        assert_eq!(Folded::decode(&folded.encode()), Some(folded));
    }

    #[test]
    fn whatever_lies_in_a_journal_can_be_read() {
        let samples: Vec<Vec<u8>> =
            samples().iter().map(|note| note.encode()[FRAME..].to_vec()).collect();
        crate::fuzz::target("mount_note", &samples, |bytes| Note::decode(bytes).is_ok());
    }
}
