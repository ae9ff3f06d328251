//! Processes: which one, whether it still lives, and who started it.
//!
//! A pid alone is nobody: it is given out again. Together with its start time and the boot it names
//! one process for ever. Everything is read from `/proc`; where that is not mounted, nothing is
//! known, and nothing is concluded from that.

use crate::codec::{DecodeError, Decoder, Encoder};

/// How far up somebody's parents are looked for.
const GENERATIONS: usize = 64;

/// One process, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number while it lives.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot.
    pub started: u64,
    /// Which boot of the machine.
    pub boot: String,
}

/// What `/proc/PID/stat` says.
struct Stat {
    name: String,
    /// It has ended, and only waits for its parent to take note.
    ended: bool,
    parent: u32,
    started: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = stat(pid)?;
        Some(Self { pid, started: stat.started, boot: boot() })
    }

    /// Whether it is still there. Where nobody can tell, it is.
    pub fn is_alive(&self) -> bool {
        if self.boot != boot() {
            return false;
        }
        match stat(self.pid) {
            Some(stat) => stat.started == self.started && !stat.ended,
            // Without the other processes' files even our own is missing.
            None => stat(std::process::id()).is_none(),
        }
    }

    /// The processes that lead to this one, its parent first.
    pub fn ancestors() -> Vec<Self> {
        let mut found = Vec::new();
        let mut pid = std::process::id();
        let boot = boot();
        while let Some(Stat { parent, .. }) = stat(pid)
            && parent > 1
            && found.len() < GENERATIONS
        {
            let Some(Stat { started, .. }) = stat(parent) else { break };
            found.push(Self { pid: parent, started, boot: boot.clone() });
            pid = parent;
        }
        found
    }

    /// The agent that called us: the nearest ancestor that is not a shell between.
    pub fn caller() -> Option<Self> {
        const BETWEEN: [&str; 10] =
            ["sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "timeout", "chronicle"];
        let between = |process: &Self| {
            stat(process.pid).is_some_and(|stat| BETWEEN.contains(&&stat.name[..]))
        };
        Self::ancestors().into_iter().find(|process| !between(process))
    }

    pub(crate) fn encode(&self, out: &mut Encoder) {
        out.int(u64::from(self.pid));
        out.int(self.started);
        out.bytes(self.boot.as_bytes());
    }

    pub(crate) fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (pid, started) = (input.int32()?, input.int()?);
        let boot = String::from_utf8_lossy(input.bytes()?).into_owned();
        Ok(Self { pid, started, boot })
    }
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name stands in parentheses and may hold any character, so the rest is counted from its end.
fn parse(text: &str) -> Option<Stat> {
    let (start, end) = (text.find('(')?, text.rfind(')')?);
    let rest: Vec<&str> = text.get(end + 2..)?.split(' ').collect();
    Some(Stat {
        name: text.get(start + 1..end)?.to_owned(),
        ended: matches!(*rest.first()?, "Z" | "X"),
        parent: rest.get(1)?.parse().ok()?,
        started: rest.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let fields: Vec<String> = (4..=52).map(|field: u32| field.to_string()).collect();
        let stat = parse(&format!("17 (a ) (b) S {}\n", fields.join(" "))).unwrap();
        assert_eq!((&stat.name[..], stat.parent, stat.started), ("a ) (b", 4, 22));
        assert!(parse("17 (a").is_none());
        assert!(parse("").is_none());
    }

    #[test]
    fn a_process_lives_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        let another = Process { started: process.started + 1, ..process.clone() };
        assert!(!another.is_alive(), "the same number, but not the same process");
        let before = Process { boot: "another".to_owned(), ..process.clone() };
        assert!(!before.is_alive(), "the same number before a reboot");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(Process::ancestors().iter().all(Process::is_alive));
    }

    #[test]
    fn bytes_name_the_same_process() {
        let process = Process { pid: 7, started: 1 << 40, boot: "b".to_owned() };
        let mut out = Encoder::default();
        process.encode(&mut out);
        assert_eq!(Process::decode(&mut Decoder(&out.0)).unwrap(), process);
        assert!(Process::decode(&mut Decoder(&out.0[..2])).is_err());
    }
}
