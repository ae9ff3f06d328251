//! What this machine remembers of agents' sessions: which process the agent is, what it left
//! running, what it was told.

use super::Workspace;
use crate::catalog::{Batch, Durability, Local};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::Result;
use crate::id::Seq;
use crate::process::Process;

/// The most causes of warnings that are remembered for a session.
const WARNINGS: usize = 64;

/// What is remembered of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// The agent's process, where its hook could find it.
    pub(super) process: Option<Process>,
    /// What the agent left running when its call had ended.
    pub(super) background: Vec<Process>,
    /// The agent said that a task of its own runs on in the background.
    pub(super) task: bool,
    /// The last rewind that the agent was told of.
    pub(super) told: Seq,
    /// The causes of warnings that the person has seen.
    pub(super) warned: Vec<String>,
    /// Where the conversation stood when its last turn ended, in the agent's own words.
    pub(super) place: Option<String>,
}

impl Session {
    /// Whether something of it may have written between its calls since the last look: what ran
    /// then, and may have ended since.
    pub(super) fn runs_on(&self) -> bool {
        let lives = self.process.as_ref().is_none_or(Process::is_alive);
        (self.task && lives) || !self.background.is_empty()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.byte(u8::from(self.process.is_some()));
        if let Some(process) = &self.process {
            process.encode(&mut out);
        }
        out.int(self.background.len() as u64);
        self.background.iter().for_each(|process| process.encode(&mut out));
        out.byte(u8::from(self.task));
        out.int(self.told.0);
        out.int(self.warned.len() as u64);
        self.warned.iter().for_each(|cause| out.bytes(cause.as_bytes()));
        out.bytes(self.place.as_deref().unwrap_or("").as_bytes());
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let mut session = Self::default();
        if input.byte()? == 1 {
            session.process = Some(Process::decode(&mut input)?);
        }
        for _ in 0..input.count()? {
            session.background.push(Process::decode(&mut input)?);
        }
        session.task = input.byte()? == 1;
        session.told = Seq(input.int()?);
        for _ in 0..input.count()? {
            session.warned.push(String::from_utf8_lossy(input.bytes()?).into_owned());
        }
        let place = String::from_utf8_lossy(input.bytes()?).into_owned();
        session.place = (!place.is_empty()).then_some(place);
        Ok(session)
    }
}

impl Workspace {
    /// What is remembered of a session. What cannot be read is forgotten: it is only a memory.
    pub(super) fn session(&self, key: &str) -> Result<Option<Session>> {
        let bytes = self.catalog.local(Local::Session, key.as_bytes())?;
        Ok(bytes.and_then(|bytes| Session::decode(&bytes).ok()))
    }

    /// All sessions that are remembered.
    pub(super) fn sessions(&self) -> Result<Vec<(String, Session)>> {
        let all = self.catalog.locals(Local::Session)?;
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            Some((String::from_utf8(key).ok()?, Session::decode(&value).ok()?))
        };
        Ok(all.into_iter().filter_map(read).collect())
    }

    /// Remembers a session with the rest of a batch.
    pub(super) fn remember(&self, batch: &mut Batch, key: &str, session: &Session) {
        batch.local.push((Local::Session, key.as_bytes().to_vec(), Some(session.encode())));
    }

    /// Forgets what was left running and has ended, now that a look has seen what it wrote.
    pub(super) fn forget_ended(&self, batch: &mut Batch) -> Result<()> {
        for (key, mut session) in self.sessions()? {
            let before = session.background.len();
            session.background.retain(Process::is_alive);
            let already = batch.local.iter().any(|(_, other, _)| *other == key.as_bytes());
            if session.background.len() < before && !already {
                self.remember(batch, &key, &session);
            }
        }
        Ok(())
    }

    /// The sessions whose agent is one of these processes: whose call a command came from.
    pub fn sessions_of(&self, processes: &[Process]) -> Result<Vec<String>> {
        let of = |session: &Session| {
            session.process.as_ref().is_some_and(|process| processes.contains(process))
        };
        let all = self.sessions()?.into_iter();
        Ok(all.filter(|(_, session)| of(session)).map(|(key, _)| key).collect())
    }

    /// Whether a session's person has not seen a warning of this cause yet; from now on he has.
    pub fn warn_once(&mut self, session: &str, cause: &str) -> Result<bool> {
        let mut known = self.session(session)?.unwrap_or_default();
        if known.warned.iter().any(|seen| seen == cause) {
            return Ok(false);
        }
        if known.warned.len() < WARNINGS {
            known.warned.push(cause.to_owned());
        }
        let mut batch = Batch::default();
        self.remember(&mut batch, session, &known);
        self.commit_batch(batch, Durability::ProcessDeath)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_remembered_whole() {
        let process = |pid| Process { pid, started: 5, boot: "b".to_owned() };
        let session = Session {
            process: Some(process(1)),
            background: vec![process(2), process(3)],
            task: true,
            told: Seq(9),
            warned: vec!["a".to_owned(), String::new()],
            place: Some("x".to_owned()),
        };
        assert_eq!(Session::decode(&session.encode()).unwrap(), session);
        let none = Session::default();
        assert_eq!(Session::decode(&none.encode()).unwrap(), none);
        let bytes = session.encode();
        for cut in 0..bytes.len() {
            assert!(Session::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
