//! What this machine remembers of agents' sessions: which process the agent is, what it left
//! running, what it was told.

use std::collections::HashMap;

use super::Workspace;
use super::attribute::Openings;
use crate::catalog::{Batch, Durability, Local};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::Result;
use crate::id::Seq;
use crate::process::Process;
use crate::record::{Kind, Record};

/// The most causes of warnings that are remembered for a session.
const WARNINGS: usize = 64;

/// The most sessions that are remembered whose agent is not known to be alive.
const SESSIONS: usize = 64;
/// News that nobody asked for in so long are not kept for an agent that has ended.
const NEWS_NS: i64 = 7 * 24 * 3600 * 1_000_000_000;
/// How many of the newest turns are searched for a session's last one.
const TURNS: usize = 256;

/// What is remembered of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// The agent's process, where its hook could find it.
    pub(super) process: Option<Process>,
    /// Its tools run below that process, and nothing else does.
    pub(super) tools_below: bool,
    /// The processes above it when it was first heard of, its parent first.
    pub(super) above: Option<Vec<Process>>,
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

    /// The same session, led by this process from now on.
    pub(super) fn led_by(self, process: &Process, tools_below: bool) -> Self {
        let above = process.ancestors_if_alive();
        Self { process: Some(process.clone()), tools_below, above, ..self }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.byte(u8::from(self.process.is_some()));
        if let Some(process) = &self.process {
            process.encode(&mut out);
        }
        out.int(self.background.len() as u64);
        self.background.iter().for_each(|process| process.encode(&mut out));
        let flags = [self.task, self.tools_below, self.above.is_some()];
        out.byte(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        out.int(self.told.0);
        out.int(self.warned.len() as u64);
        self.warned.iter().for_each(|cause| out.bytes(cause.as_bytes()));
        out.bytes(self.place.as_deref().unwrap_or("").as_bytes());
        if let Some(above) = &self.above {
            out.int(above.len() as u64);
            above.iter().for_each(|process| process.encode(&mut out));
        }
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
        let flags = input.byte()?;
        (session.task, session.tools_below) = (flags & 1 != 0, flags & 2 != 0);
        session.told = Seq(input.int()?);
        for _ in 0..input.count()? {
            session.warned.push(String::from_utf8_lossy(input.bytes()?).into_owned());
        }
        let place = String::from_utf8_lossy(input.bytes()?).into_owned();
        session.place = (!place.is_empty()).then_some(place);
        if flags & 4 != 0 {
            let mut above = Vec::new();
            for _ in 0..input.count()? {
                above.push(Process::decode(&mut input)?);
            }
            session.above = Some(above);
        }
        Ok(session)
    }
}

impl Workspace {
    /// What is remembered of a session. What cannot be read is forgotten: it is only a memory.
    pub(super) fn session(&self, key: &str) -> Result<Option<Session>> {
        let bytes = self.catalog.local(Local::Session, key.as_bytes())?;
        Ok(bytes.and_then(|bytes| Session::decode(&bytes).ok()))
    }

    /// What is remembered of a session, or what can be told of one that is new or was forgotten.
    ///
    /// Its agent was told everything when its last turn began.
    pub(super) fn session_or_new(&self, key: &str) -> Result<Session> {
        if let Some(session) = self.session(key)? {
            return Ok(session);
        }
        for seq in self.catalog.of_kind(Kind::TurnStart)?.into_iter().rev().take(TURNS) {
            if self.read_header(seq)?.labels.session.as_deref() == Some(key) {
                return Ok(Session { told: seq, ..Session::default() });
            }
        }
        Ok(Session::default())
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

    /// Forgets what was left running and has ended, now that a look has seen what it wrote, and
    /// whole sessions whose agent has ended and that nothing needs any more.
    pub(super) fn forget_ended(&self, batch: &mut Batch, open: &Openings) -> Result<()> {
        let recent = self.recent_rewinds()?;
        let mut idle = Vec::new();
        for (key, mut session) in self.sessions()? {
            if batch.local.iter().any(|(_, other, _)| *other == key.as_bytes()) {
                continue;
            }
            let before = session.background.len();
            session.background.retain(Process::is_alive);
            let lives = session.process.as_ref().is_some_and(Process::is_alive);
            if !lives && !session.runs_on() && !is_open(open, &key) {
                idle.push((key, session, before));
            } else if session.background.len() < before {
                self.remember(batch, &key, &session);
            }
        }
        // Where there are too many, those go first that have heard nothing for longest.
        idle.sort_by_key(|(_, session, _)| std::cmp::Reverse(session.told));
        for (index, (key, session, before)) in idle.into_iter().enumerate() {
            let unknown = session.process.is_none();
            let needed = unknown || self.has_untold(&key, &session, &recent)?;
            if !needed || index >= SESSIONS {
                batch.local.push((Local::Session, key.into_bytes(), None));
            } else if session.background.len() < before {
                self.remember(batch, &key, &session);
            }
        }
        Ok(())
    }

    /// The rewinds of which an agent that has ended could still be told, newest first.
    fn recent_rewinds(&self) -> Result<Vec<Record>> {
        let since = self.now().0.saturating_sub(NEWS_NS);
        let mut recent = Vec::new();
        for seq in self.catalog.of_kind(Kind::Rewind)?.into_iter().rev() {
            let rewind = self.read_header(seq)?;
            if rewind.time.0 < since {
                break;
            }
            recent.push(rewind);
        }
        Ok(recent)
    }

    fn has_untold(&self, key: &str, session: &Session, recent: &[Record]) -> Result<bool> {
        let mut records = HashMap::new();
        for rewind in recent.iter().take_while(|rewind| rewind.seq > session.told) {
            if self.concerns(rewind, key, &mut records)? {
                return Ok(true);
            }
        }
        Ok(false)
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
        let mut known = self.session_or_new(session)?;
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

/// Whether a session has an open turn, or a call that has not ended.
fn is_open(open: &Openings, key: &str) -> bool {
    let calls = open.announced.iter().map(|announced| &announced.labels);
    open.turns.iter().chain(calls).any(|labels| labels.session.as_deref() == Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::home::Home;
    use crate::id::Time;
    use crate::workspace::init::InitOptions;
    use crate::workspace::{Prompt, RewindKind, RewindRequest};

    /// So many days after now.
    struct Later(i64);

    impl Clock for Later {
        fn now(&self) -> Time {
            let day = 24 * 3600 * 1_000_000_000;
            Time(crate::clock::SystemClock.now().0 + self.0 * day)
        }
    }

    struct World {
        place: tempfile::TempDir,
        workspace: Workspace,
    }

    impl World {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let top = place.path().join("work");
            std::fs::create_dir(&top).unwrap();
            let home = Home::at(&place.path().join("home"));
            let (workspace, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
            Self { place, workspace }
        }

        fn prompt(&mut self, session: &str, process: Option<Process>) {
            let (session, agent) = (session.to_owned(), "codex".to_owned());
            let prompt = Prompt { session, agent, process, ..Prompt::default() };
            self.workspace.prompt(&prompt).unwrap();
        }

        /// A whole turn in which one file is written by a command.
        fn work(&mut self, session: &str, name: &str) {
            let labels = crate::workspace::TurnRequest {
                session: Some(session.to_owned()),
                ..crate::workspace::TurnRequest::default()
            };
            self.workspace.turn_start(&labels).unwrap();
            std::fs::write(self.place.path().join("work").join(name), "x").unwrap();
            self.workspace.turn_end(&labels).unwrap();
        }

        fn remember(&mut self, key: &str, session: &Session) {
            let mut batch = Batch::default();
            self.workspace.remember(&mut batch, key, session);
            self.workspace.commit_batch(batch, Durability::ProcessDeath).unwrap();
        }

        fn look(&mut self) -> Vec<String> {
            self.workspace.settle().unwrap();
            self.workspace.sessions().unwrap().into_iter().map(|(key, _)| key).collect()
        }
    }

    fn dead() -> Option<Process> {
        Some(Process { pid: 1, started: 5, boot: "another boot".to_owned() })
    }

    fn alive() -> Option<Process> {
        Process::of(std::process::id())
    }

    #[test]
    fn a_session_is_forgotten_when_its_agent_is_dead_and_nothing_needs_it() {
        let mut world = World::new();
        world.prompt("over", dead());
        world.workspace.stop("over", false).unwrap();
        world.prompt("alive", alive());
        world.workspace.stop("alive", false).unwrap();
        // An agent that died in the middle of a turn is needed until the turn has ended.
        world.prompt("open", alive());
        world.remember("open", &Session { process: dead(), ..Session::default() });
        assert_eq!(world.look(), ["alive", "open"]);
        world.workspace.stop("open", false).unwrap();
        // What it left running may still write.
        let background = alive().into_iter().collect();
        world.remember("busy", &Session { process: dead(), background, ..Session::default() });
        assert_eq!(world.look(), ["alive", "busy"]);
    }

    #[test]
    fn news_are_kept_for_a_week_and_told_once_to_whoever_comes_back() {
        let mut world = World::new();
        let ended = Session { process: dead(), ..Session::default() };
        world.work("s", "a");
        let undo = RewindRequest::new(RewindKind::Undo { what: None });
        world.workspace.rewind(&undo, &mut |_| true).unwrap();
        world.remember("s", &ended);
        assert_eq!(world.look(), ["s"], "it was not told yet");
        world.prompt("s", dead());
        let news = world.workspace.news("s").unwrap().expect("news");
        world.workspace.told("s", &news).unwrap();
        world.workspace.stop("s", false).unwrap();
        assert_eq!(world.look(), [""; 0]);
        // Its memory is gone, but everything was told when its last turn began.
        world.prompt("s", dead());
        world.workspace.stop("s", false).unwrap();
        assert_eq!(world.look(), [""; 0]);
        assert_eq!(world.workspace.news("s").unwrap(), None);
        world.prompt("s", alive());
        assert_eq!(world.workspace.news("s").unwrap(), None);

        // One that was forgotten before its work was taken back is told all the same.
        world.workspace.stop("s", false).unwrap();
        world.work("t", "b");
        world.workspace.rewind(&undo, &mut |_| true).unwrap();
        assert_eq!(world.look(), ["s"]);
        world.prompt("t", dead());
        assert!(world.workspace.news("t").unwrap().is_some());
        world.workspace.stop("t", false).unwrap();
        assert_eq!(world.look(), ["s", "t"]);
        world.workspace.set_clock(Box::new(Later(8)));
        assert_eq!(world.look(), ["s"]);
    }

    #[test]
    fn of_agents_whose_process_nobody_knows_only_so_many_are_remembered() {
        let mut world = World::new();
        for number in 0..SESSIONS + 20 {
            let session = Session { told: Seq(number as u64), ..Session::default() };
            world.remember(&format!("s{number}"), &session);
        }
        let kept = world.look();
        assert_eq!(kept.len(), SESSIONS);
        assert!(kept.contains(&format!("s{}", SESSIONS + 19)) && !kept.contains(&"s0".to_owned()));
    }

    #[test]
    fn a_session_is_remembered_whole() {
        let process = |pid| Process { pid, started: 5, boot: "b".to_owned() };
        let session = Session {
            process: Some(process(1)),
            background: vec![process(2), process(3)],
            task: true,
            tools_below: true,
            above: Some(vec![process(8), process(9)]),
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

    #[test]
    fn mutated_sessions() {
        let process = |pid| Process { pid, started: 7, boot: "b".to_owned() };
        let session = Session {
            process: Some(process(3)),
            background: vec![process(4)],
            warned: vec!["disk".to_owned()],
            place: Some("p".to_owned()),
            above: Some(vec![process(1), process(2)]),
            ..Session::default()
        };
        let samples = [session.encode(), Session::default().encode()];
        crate::fuzz::target("session", &samples, |input| {
            let Ok(session) = Session::decode(input) else { return false };
            assert!(Session::decode(&session.encode()).is_ok());
            true
        });
    }
}
