//! The small file that says what an isolated run is and how far it came.
//!
//! It is written before anything is mounted and replaced by a rename, so that a run whose process
//! died is found again. Its bytes are in `docs/format.md`.

use std::io::Read;
use std::path::Path;

use super::RunPlace;
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::{Context, Error, Result};
use crate::home::{sync_directory, write_synced};
use crate::id::{Epoch, Seq, SnapshotId, Time, WorkspaceId};

pub(crate) const MAGIC: &[u8; 8] = b"chriso\x00\x01";
const SUM: usize = 32;
/// A longer file was not written by us.
const LONGEST: u64 = 64 << 10;
/// What is kept of a command's words.
const WORDS: usize = 4 << 10;

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The command was started; how it ended is said elsewhere.
    Started,
    /// Its work is being brought into the workspace; the log says whether it was.
    Committing {
        /// Something is left out on purpose, and stays in the layer.
        partial: bool,
    },
    /// Its work is in the workspace but for what was left out, which only the layer still has.
    Committed,
}

/// Everything that is remembered of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// The run; also the snapshot that a commit makes of it.
    pub(crate) id: SnapshotId,
    /// The workspace that lies below the layer.
    pub(crate) workspace: WorkspaceId,
    /// The life of the log in which `start` is a position.
    pub(crate) epoch: Epoch,
    /// The head of the log when the command started.
    pub(crate) start: Seq,
    /// When it started.
    pub(crate) time: Time,
    /// How far it came.
    pub(crate) stage: Stage,
    /// The layer's marks are attributes that users may set.
    pub(crate) user_xattrs: bool,
    /// The turn it was started in, if one was open.
    pub(crate) turn: Option<u64>,
    /// The session whose work it is.
    pub(crate) session: String,
    /// The command in words.
    pub(crate) summary: String,
}

impl State {
    /// Cuts the words to what is kept of them.
    pub(crate) fn cut(summary: &str) -> String {
        let mut end = summary.len().min(WORDS);
        while !summary.is_char_boundary(end) {
            end -= 1;
        }
        summary[..end].to_owned()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(MAGIC.to_vec());
        out.fixed(&self.id.0);
        out.fixed(&self.workspace.0);
        out.fixed(&self.epoch.0);
        out.int(self.start.0);
        out.signed(self.time.0);
        out.byte(match self.stage {
            Stage::Started => 0,
            Stage::Committing { partial } => 1 + u8::from(partial),
            Stage::Committed => 3,
        });
        out.byte(u8::from(self.user_xattrs));
        out.byte(u8::from(self.turn.is_some()));
        out.int(self.turn.unwrap_or(0));
        out.bytes(self.session.as_bytes());
        out.bytes(self.summary.as_bytes());
        let sum = blake3::hash(&out.0);
        out.fixed(sum.as_bytes());
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let start = bytes.len().checked_sub(SUM).ok_or(DecodeError::Truncated)?;
        let (content, sum) = bytes.split_at(start);
        let mut input = Decoder(content);
        let magic: [u8; 8] = input.array()?;
        if magic[..7] != MAGIC[..7] {
            return Err(DecodeError::Malformed("it is no state of an isolated run"));
        }
        if magic[7] > MAGIC[7] {
            return Err(DecodeError::Newer(magic[7]));
        }
        if magic[7] != MAGIC[7] || blake3::hash(content).as_bytes() != sum {
            return Err(DecodeError::Malformed("its sum does not fit"));
        }
        let (id, workspace) = (SnapshotId(input.array()?), WorkspaceId(input.array()?));
        let epoch = Epoch(input.array()?);
        let (start, time) = (Seq(input.int()?), Time(input.signed()?));
        let stage = match input.byte()? {
            0 => Stage::Started,
            1 => Stage::Committing { partial: false },
            2 => Stage::Committing { partial: true },
            3 => Stage::Committed,
            _ => return Err(DecodeError::Malformed("a run has an unknown stage")),
        };
        let mut flag = || match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Malformed("a flag is neither 0 nor 1")),
        };
        let (user_xattrs, has_turn) = (flag()?, flag()?);
        let turn = match (has_turn, input.int()?) {
            (true, number) => Some(number),
            (false, 0) => None,
            (false, _) => return Err(DecodeError::Malformed("a turn without its flag")),
        };
        let (session, summary) = (input.text()?, input.text()?);
        input.end()?;
        let state =
            Self { id, workspace, epoch, start, time, stage, user_xattrs, turn, session, summary };
        Ok(state)
    }

    /// Makes this what the run's directory says, durably and at once.
    pub(crate) fn write(&self, place: &RunPlace) -> Result<()> {
        let (new, file) = (place.directory().join("state.new"), file(place));
        write_synced(&new, &self.encode())?;
        std::fs::rename(&new, &file).at("rename", &file)?;
        sync_directory(place.directory())
    }

    /// The same for the first time, with one flush less: until this returns nothing was mounted, so
    /// a power cut may leave the file empty, which says that the run never began.
    pub(crate) fn write_first(&self, place: &RunPlace) -> Result<()> {
        let (new, file) = (place.directory().join("state.new"), file(place));
        std::fs::write(&new, self.encode()).at("write", &new)?;
        std::fs::rename(&new, &file).at("rename", &file)?;
        std::fs::File::open(&file).and_then(|file| file.sync_all()).at("sync", &file)?;
        sync_directory(place.directory())
    }

    /// What a run's directory says; `None` if the run never came to writing it.
    pub(crate) fn read(place: &RunPlace) -> Result<Option<Self>> {
        let file = file(place);
        let mut bytes = Vec::new();
        match std::fs::File::open(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.at("open", &file)?.take(LONGEST).read_to_end(&mut bytes),
        }
        .at("read", &file)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        Self::decode(&bytes).map(Some).map_err(|source| unreadable(&file, &source))
    }
}

fn file(place: &RunPlace) -> std::path::PathBuf {
    place.directory().join("state")
}

fn unreadable(file: &Path, source: &DecodeError) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::InvalidData, source.to_string());
    Error::Io { action: "understand", path: file.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stage: Stage, turn: Option<u64>) -> State {
        State {
            id: SnapshotId([1; 16]),
            workspace: WorkspaceId([2; 16]),
            epoch: Epoch([3; 16]),
            start: Seq(300),
            time: Time(-5),
            stage,
            user_xattrs: turn.is_some(),
            turn,
            session: "run".to_owned(),
            summary: "make all".to_owned(),
        }
    }

    fn samples() -> Vec<State> {
        let committing = Stage::Committing { partial: true };
        let stages = [Stage::Started, committing, Stage::Committed];
        stages
            .into_iter()
            .flat_map(|stage| [None, Some(9)].map(|turn| sample(stage, turn)))
            .collect()
    }

    #[test]
    fn a_state_comes_back_as_it_was() {
        for state in samples() {
            assert_eq!(State::decode(&state.encode()), Ok(state));
        }
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let bytes = sample(Stage::Committed, Some(2)).encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(State::decode(&changed).is_err(), "{at}");
        }
    }

    #[test]
    fn long_words_are_cut_between_letters() {
        let words = "ä".repeat(WORDS);
        assert_eq!(State::cut(&words).len(), WORDS);
        assert_eq!(State::cut(&format!("x{words}")).len(), WORDS - 1);
    }

    /// The sum keeps mutations out, so it is made anew for each: the fields are what is tried.
    #[test]
    fn mutated_states() {
        let samples: Vec<_> = samples().iter().map(State::encode).collect();
        crate::fuzz::target("isolated", &samples, |input| {
            let content = &input[..input.len().saturating_sub(SUM)];
            let summed = [content, blake3::hash(content).as_bytes()].concat();
            let Ok(state) = State::decode(&summed) else { return false };
            assert_eq!(state.encode(), summed, "not canonical");
            true
        });
    }
}
