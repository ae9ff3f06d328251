//! Processes: which one, whether it still lives, and who started it.
//!
//! A pid alone is nobody: it is given out again. Together with its start time and the boot it names
//! one process for ever. Everything is read from `/proc`; where that is not mounted, nothing is
//! known, and nothing is concluded from that.

use crate::codec::{DecodeError, Decoder, Encoder};

/// How far up somebody's parents are looked for.
const GENERATIONS: usize = 64;

/// The shells that people and agents use.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

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
        Self::above(std::process::id())
    }

    /// The processes above one that lives, its parent first; `None` if it does not.
    pub(crate) fn ancestors_if_alive(&self) -> Option<Vec<Self>> {
        let above = self.is_alive().then(|| Self::above(self.pid))?;
        // Else the number may have been another's meanwhile.
        self.is_alive().then_some(above)
    }

    fn above(mut pid: u32) -> Vec<Self> {
        let mut found = Vec::new();
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

    /// What it is called, as far as anybody can tell.
    pub fn name(&self) -> String {
        let same = |stat: &Stat| stat.started == self.started;
        stat(self.pid).filter(same).map(|stat| stat.name).unwrap_or_default()
    }

    /// A process and those above it: itself first; nobody if it is gone.
    pub fn line(pid: u32) -> Vec<Self> {
        let Some(process) = Self::of(pid) else { return Vec::new() };
        [vec![process], Self::above(pid)].concat()
    }

    /// The agent that called us: the nearest ancestor that is not a shell between.
    pub fn caller() -> Option<Self> {
        const BETWEEN: [&str; 4] = ["busybox", "env", "timeout", "chronicle"];
        let between = |process: &Self| {
            stat(process.pid).is_some_and(|stat| {
                SHELLS.contains(&&stat.name[..]) || BETWEEN.contains(&&stat.name[..])
            })
        };
        Self::ancestors().into_iter().find(|process| !between(process))
    }

    /// Whether it is a shell: one that starts what it is told at its own terminal, and takes in no
    /// orphans of others.
    pub(crate) fn is_shell(&self) -> bool {
        let is_shell =
            |stat: &Stat| stat.started == self.started && SHELLS.contains(&&stat.name[..]);
        self.boot == boot() && stat(self.pid).as_ref().is_some_and(is_shell)
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

/// Names this boot of the machine.
pub(crate) fn boot() -> String {
    if let Some(boot) = crate::failpoint::boot() {
        return boot;
    }
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// When the process with this number started, and the number of its parent.
pub(crate) fn parentage(pid: u32) -> Option<(u64, u32)> {
    stat(pid).map(|stat| (stat.started, stat.parent))
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
