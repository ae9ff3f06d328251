//! What a look and the watcher say to each other: one question, one reply, each a short frame.
//!
//! A frame is a length of four bytes, a version and a body. Nothing of it is trusted: a frame that
//! is too long, cut off or malformed is no frame, and whoever asked makes a full look instead.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};

use super::{Doubt, Report, Token, Touched, Witnessed, Written};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::id::Time;
use crate::path::WorkspacePath;
use crate::process::Process;

/// The version that this program speaks; another one is answered by nobody.
pub(crate) const VERSION: u8 = 1;
/// The longest question.
pub(super) const QUESTION_MAX: usize = 128;
/// The longest reply: some ten thousand paths.
pub(super) const REPLY_MAX: usize = 4 << 20;

/// In the place of a doubt: there is none, and it sees which processes write. An older program takes
/// it for no doubt.
const SEES: u8 = 0x80;

/// What a process asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// Which paths were touched since a moment?
    Since {
        /// What the one who asks takes for the workspace, as a hash of its roots and rules.
        scope: [u8; 16],
        /// The moment; `None` asks only for a first one.
        since: Option<Token>,
    },
    /// How does the watcher stand?
    Status,
    /// Which processes wrote since a moment, and where?
    Writers {
        /// As in the other question.
        scope: [u8; 16],
        /// The moment that the last recorded look was given.
        since: Token,
    },
    /// Tell, by a byte each time, that something was touched, for as long as the connection lasts.
    Follow,
}

/// What the watcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// These paths and no others were touched.
    Touched {
        /// The moment up to which that is so.
        token: Token,
        /// The paths.
        paths: Vec<Touched>,
    },
    /// It cannot tell, so that everything must be looked at.
    CannotTell {
        /// From which moment on it can; `None` if not yet.
        token: Option<Token>,
        /// Why.
        why: Doubt,
    },
    /// How it stands.
    Status(Report),
    /// Who wrote; `None`: it does not know them all.
    Writers(Option<Witnessed>),
}

impl Question {
    /// The question as a frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Self::Since { scope, since } => {
                out.byte(1);
                out.fixed(scope);
                encode_token(&mut out, since.as_ref());
            }
            Self::Status => out.byte(2),
            Self::Writers { scope, since } => {
                out.byte(3);
                out.fixed(scope);
                encode_token(&mut out, Some(since));
            }
            Self::Follow => out.byte(4),
        }
        frame(&out.0)
    }

    /// Reads the body of a frame.
    pub(super) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut input = body_of(body)?;
        let question = match input.byte()? {
            1 => Self::Since { scope: input.array()?, since: decode_token(&mut input)? },
            2 => Self::Status,
            3 => {
                let (scope, since) = (input.array()?, decode_token(&mut input)?);
                Self::Writers { scope, since: since.ok_or(DecodeError::Malformed("no moment"))? }
            }
            4 => Self::Follow,
            _ => return Err(DecodeError::Malformed("no such question")),
        };
        input.end()?;
        Ok(question)
    }
}

impl Reply {
    /// The reply as a frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            Self::Touched { token, paths } => {
                out.byte(1);
                encode_token(&mut out, Some(token));
                out.int(paths.len() as u64);
                for touched in paths {
                    out.byte(u8::from(touched.whole));
                    out.bytes(touched.path.as_bytes());
                }
            }
            Self::CannotTell { token, why } => {
                out.byte(2);
                encode_token(&mut out, token.as_ref());
                out.byte(*why as u8);
            }
            Self::Status(report) => {
                out.byte(3);
                out.int(u64::from(report.pid));
                out.signed(report.since.0);
                out.int(report.directories);
                let sees = if report.sees_processes { SEES } else { 0 };
                out.byte(report.doubt.map_or(sees, |why| why as u8));
            }
            Self::Writers(found) => {
                out.byte(4);
                out.byte(u8::from(found.is_some()));
                found.iter().for_each(|found| encode_writers(&mut out, found));
            }
        }
        frame(&out.0)
    }

    /// Reads the body of a frame.
    pub(super) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut input = body_of(body)?;
        let reply = match input.byte()? {
            1 => {
                let token = decode_token(&mut input)?.ok_or(DecodeError::Malformed("no moment"))?;
                Self::Touched { token, paths: decode_paths(&mut input)? }
            }
            2 => {
                let token = decode_token(&mut input)?;
                let why = Doubt::of(input.byte()?).ok_or(DecodeError::Malformed("no reason"))?;
                Self::CannotTell { token, why }
            }
            3 => {
                let (pid, since) = (input.int32()?, Time(input.signed()?));
                let (directories, state) = (input.int()?, input.byte()?);
                let (doubt, sees_processes) = (Doubt::of(state), state == SEES);
                Self::Status(Report { pid, since, directories, doubt, sees_processes })
            }
            4 => Self::Writers(match input.byte()? {
                0 => None,
                1 => Some(decode_writers(&mut input)?),
                _ => return Err(DecodeError::Malformed("a flag is neither")),
            }),
            _ => return Err(DecodeError::Malformed("no such reply")),
        };
        input.end()?;
        Ok(reply)
    }
}

fn decode_paths(input: &mut Decoder<'_>) -> Result<Vec<Touched>, DecodeError> {
    let count = input.count()?;
    let mut paths = Vec::with_capacity(count);
    for _ in 0..count {
        let whole = match input.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Malformed("a flag is neither")),
        };
        let path = WorkspacePath::new(input.bytes()?);
        let path = path.map_err(|_| DecodeError::Malformed("a path is not one"))?;
        paths.push(Touched { path, whole });
    }
    Ok(paths)
}

/// Writes who wrote where: the processes once each, then the lines, then the paths.
fn encode_writers(out: &mut Encoder, found: &Witnessed) {
    let mut processes: Vec<&Process> = Vec::new();
    let mut numbers: HashMap<&Process, u64> = HashMap::new();
    for process in found.lines.iter().flatten() {
        numbers.entry(process).or_insert_with(|| {
            processes.push(process);
            processes.len() as u64 - 1
        });
    }
    out.bytes(processes.first().map_or(&[], |process| process.boot.as_bytes()));
    out.int(processes.len() as u64);
    for process in processes {
        out.int(u64::from(process.pid));
        out.int(process.started);
    }
    out.int(found.lines.len() as u64);
    for line in &found.lines {
        out.int(line.len() as u64);
        line.iter().for_each(|process| out.int(numbers[process]));
    }
    out.int(found.paths.len() as u64);
    for (path, written) in &found.paths {
        out.bytes(path.as_bytes());
        out.byte(u8::from(written.moved));
        out.int(written.writers.len() as u64);
        // 0 is somebody unknown.
        let number = |writer: &Option<usize>| writer.map_or(0, |line| line as u64 + 1);
        written.writers.iter().for_each(|writer| out.int(number(writer)));
    }
}

fn decode_writers(input: &mut Decoder<'_>) -> Result<Witnessed, DecodeError> {
    let boot = String::from_utf8_lossy(input.bytes()?).into_owned();
    let mut processes = Vec::new();
    for _ in 0..input.count()? {
        let (pid, started) = (input.int32()?, input.int()?);
        processes.push(Process { pid, started, boot: boot.clone() });
    }
    let mut lines = Vec::new();
    for _ in 0..input.count()? {
        let mut line = Vec::new();
        for _ in 0..input.count()? {
            let process = usize::try_from(input.int()?).ok().and_then(|at| processes.get(at));
            line.push(process.ok_or(DecodeError::Malformed("no such process"))?.clone());
        }
        lines.push(line);
    }
    let mut paths = BTreeMap::new();
    for _ in 0..input.count()? {
        let path = WorkspacePath::new(input.bytes()?);
        let path = path.map_err(|_| DecodeError::Malformed("a path is not one"))?;
        paths.insert(path, decode_written(input, lines.len())?);
    }
    Ok(Witnessed { lines, paths })
}

fn decode_written(input: &mut Decoder<'_>, lines: usize) -> Result<Written, DecodeError> {
    let moved = match input.byte()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Malformed("a flag is neither")),
    };
    let mut writers = Vec::new();
    for _ in 0..input.count()? {
        writers.push(match input.int()? {
            0 => None,
            number if number <= lines as u64 => Some(number as usize - 1),
            _ => return Err(DecodeError::Malformed("no such line")),
        });
    }
    Ok(Written { writers, moved })
}

/// Writes a moment, or that there is none.
pub(super) fn encode_token(out: &mut Encoder, token: Option<&Token>) {
    out.byte(u8::from(token.is_some()));
    if let Some(token) = token {
        out.fixed(&token.instance);
        out.int(token.counter);
    }
}

/// Reads a moment, or that there is none.
pub(super) fn decode_token(input: &mut Decoder<'_>) -> Result<Option<Token>, DecodeError> {
    match input.byte()? {
        0 => Ok(None),
        1 => Ok(Some(Token { instance: input.array()?, counter: input.int()? })),
        _ => Err(DecodeError::Malformed("a flag is neither")),
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 1).expect("BUG: a frame is longer than any may be");
    [&length.to_le_bytes()[..], &[VERSION], body].concat()
}

fn body_of(bytes: &[u8]) -> Result<Decoder<'_>, DecodeError> {
    let mut input = Decoder(bytes);
    match input.byte()? {
        VERSION => Ok(input),
        other => Err(DecodeError::Newer(other)),
    }
}

/// Sends one frame.
pub(super) fn send(to: &mut impl Write, frame: &[u8]) -> std::io::Result<()> {
    to.write_all(frame)
}

/// Receives one frame of at most so many bytes; allocates nothing before it has checked the length.
pub(super) fn receive(from: &mut impl Read, most: usize) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > most {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "no such frame"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(counter: u64) -> Token {
        Token { instance: [7; 16], counter }
    }

    fn replies() -> Vec<Reply> {
        let touched =
            |path: &str, whole| Touched { path: WorkspacePath::new(path).unwrap(), whole };
        let report = Report {
            pid: 9,
            since: Time(-5),
            directories: 3,
            doubt: Some(Doubt::Limit),
            sees_processes: false,
        };
        let process = |pid| Process { pid, started: 7, boot: "b".to_owned() };
        let written = |writers, moved| Written { writers, moved };
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let found = Witnessed {
            lines: vec![vec![process(3), process(2)], vec![process(4), process(2)], vec![]],
            paths: BTreeMap::from([
                (path(""), written(vec![Some(0), None], false)),
                (path("a/b"), written(vec![Some(1)], true)),
            ]),
        };
        vec![
            Reply::Touched { token: token(300), paths: vec![] },
            Reply::Touched {
                token: token(u64::MAX),
                paths: vec![touched("a/b", false), touched("", true), touched("/etc/x", true)],
            },
            Reply::CannotTell { token: None, why: Doubt::Starting },
            Reply::CannotTell { token: Some(token(0)), why: Doubt::OtherWatcher },
            Reply::Status(report.clone()),
            Reply::Status(Report { doubt: None, ..report.clone() }),
            Reply::Status(Report { doubt: None, sees_processes: true, ..report }),
            Reply::Writers(None),
            Reply::Writers(Some(Witnessed::default())),
            Reply::Writers(Some(found)),
        ]
    }

    fn questions() -> Vec<Question> {
        vec![
            Question::Since { scope: [1; 16], since: None },
            Question::Since { scope: [2; 16], since: Some(token(1 << 40)) },
            Question::Status,
            Question::Writers { scope: [3; 16], since: token(1 << 40) },
            Question::Follow,
        ]
    }

    #[test]
    fn everything_comes_back_as_it_was() {
        for reply in replies() {
            let frame = reply.encode();
            let body = receive(&mut &frame[..], REPLY_MAX).unwrap();
            assert_eq!(Reply::decode(&body), Ok(reply));
        }
        for question in questions() {
            let frame = question.encode();
            assert!(frame.len() <= QUESTION_MAX);
            let body = receive(&mut &frame[..], QUESTION_MAX).unwrap();
            assert_eq!(Question::decode(&body), Ok(question));
        }
    }

    #[test]
    fn cut_off_frames_are_none() {
        for frame in replies().iter().map(Reply::encode) {
            for end in 0..frame.len() {
                assert!(receive(&mut &frame[..end], REPLY_MAX).is_err());
                assert!(Reply::decode(&frame[end.min(4)..end]).is_err(), "{frame:?} to {end}");
            }
        }
        for frame in questions().iter().map(Question::encode) {
            for end in 0..frame.len() {
                assert!(receive(&mut &frame[..end], QUESTION_MAX).is_err());
                assert!(Question::decode(&frame[end.min(4)..end]).is_err(), "{frame:?} to {end}");
            }
        }
    }

    #[test]
    fn lengths_are_checked_before_anything_is_allocated() {
        for length in [0, QUESTION_MAX as u32 + 1, u32::MAX] {
            let frame = [&length.to_le_bytes()[..], &[0; 300]].concat();
            assert!(receive(&mut &frame[..], QUESTION_MAX).is_err());
        }
        // Four thousand million paths in ten bytes.
        let body = [&[VERSION, 1, 1][..], &[7; 16], &[1, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        assert!(Reply::decode(&body).is_err());
    }

    #[test]
    fn paths_that_lead_elsewhere_and_other_versions_are_refused() {
        for path in ["..", "a/../b", "a//b", "/", "a/", "a\0b"] {
            let mut out = Encoder::default();
            out.fixed(&[VERSION, 1]);
            encode_token(&mut out, Some(&token(1)));
            out.int(1);
            out.byte(0);
            out.bytes(path.as_bytes());
            assert!(Reply::decode(&out.0).is_err(), "{path:?}");
        }
        let mut body = Question::Status.encode().split_off(4);
        assert!(Question::decode(&body).is_ok());
        body[0] = VERSION + 1;
        assert!(Question::decode(&body).is_err());
    }

    #[test]
    fn random_bytes_never_panic_and_whatever_is_read_has_one_form() {
        let mut state = 1_u64;
        let mut roll = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let valid: Vec<_> = replies().iter().map(|reply| reply.encode().split_off(4)).collect();
        for _ in 0..20_000 {
            let mut bytes = valid[roll() % valid.len()].clone();
            for _ in 0..1 + roll() % 3 {
                let at = roll() % bytes.len();
                bytes[at] = roll() as u8;
            }
            if let Ok(reply) = Reply::decode(&bytes)
                && !matches!(reply, Reply::Status(_) | Reply::Writers(_))
            {
                assert_eq!(reply.encode()[4..], bytes[..]);
            }
            let _ = Question::decode(&bytes);
        }
    }

    #[test]
    fn mutated_frames() {
        let replies: Vec<_> = replies().iter().map(Reply::encode).collect();
        let frames = replies.into_iter().chain([Question::Status.encode()]);
        let samples: Vec<_> = frames.map(|frame| frame[4..].to_vec()).collect();
        crate::fuzz::target("watcher", &samples, |input| {
            let question = Question::decode(input);
            if let Ok(question) = &question {
                assert_eq!(&question.encode()[4..], input, "not canonical");
            }
            let Ok(reply) = Reply::decode(input) else { return question.is_ok() };
            assert_eq!(Reply::decode(&reply.encode()[4..]).as_ref(), Ok(&reply));
            true
        });
    }
}
