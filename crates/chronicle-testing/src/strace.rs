//! Lets single system calls of a command fail, as a broken disk would, by running it under strace.
//!
//! strace counts each call by itself in each thread: the N-th `write` of every thread that gets so
//! far fails, and nothing else does.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::env::{Env, Ran};

/// The calls that write, by what people call them; one that a machine does not have is left out.
pub const WRITING: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mknodat",
    "ftruncate",
    "fallocate",
    "symlink",
    "symlinkat",
    "fchmod",
    "fchmodat",
    "fchown",
    "fchownat",
    "utimensat",
    "fsetxattr",
];

/// One call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The call.
    pub call: &'static str,
    /// What it fails with: `EIO`, `ENOSPC`.
    pub error: &'static str,
    /// Which of them, from 1, in each thread.
    pub when: usize,
}

/// How a command fared under strace.
#[derive(Debug)]
pub struct Tampered {
    /// What it said and how it ended.
    pub ran: Ran,
    /// The lines of the trace in which a call was made to fail.
    pub hits: Vec<String>,
}

/// Whether strace is there and may trace.
pub fn is_there() -> bool {
    let mut probe = Command::new("strace");
    let probe = probe.args(["-qq", "-e", "trace=none", "true"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command with one call failing.
pub fn run_with_fault(env: &Env, words: &[&str], fault: Fault) -> Tampered {
    let Fault { call, error, when } = fault;
    let rule = format!("inject={call}:error={error}:when={when}");
    let (ran, trace) = run(env, words, call, Some(&rule));
    let hits = trace.lines().filter(|line| line.contains("(INJECTED)")).map(str::to_owned);
    Tampered { ran, hits: hits.collect() }
}

/// Runs a command with every such call so many microseconds late: a race that is seldom lost is
/// lost often.
pub fn run_late(env: &Env, words: &[&str], call: &str, microseconds: u32) -> Ran {
    let rule = format!("inject={call}:delay_enter={microseconds}");
    run(env, words, call, Some(&rule)).0
}

/// How often a command makes each writing call in the thread that makes it most.
pub fn count_calls(env: &Env, words: &[&str]) -> BTreeMap<&'static str, usize> {
    // The question mark is for calls that this machine's kernel does not have.
    let all: Vec<_> = WRITING.iter().map(|call| format!("?{call}")).collect();
    let (ran, trace) = run(env, words, &all.join(","), None);
    assert!(ran.is_done(), "{}", ran.story());
    let mut by_thread: HashMap<(&str, &'static str), usize> = HashMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let name = rest.trim_start().split('(').next().unwrap_or_default();
        if let Some(call) = WRITING.iter().find(|call| **call == name) {
            *by_thread.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in by_thread {
        let known = most.entry(call).or_insert(0);
        *known = count.max(*known);
    }
    most
}

fn run(env: &Env, words: &[&str], calls: &str, rule: Option<&str>) -> (Ran, String) {
    let log = env.base().join("trace");
    let mut command = under_strace(env.command().args(words), &log, calls, rule);
    let output = command.output().expect("strace runs: it was probed");
    let trace = std::fs::read_to_string(&log).unwrap_or_default();
    (Ran { words: words.join(" "), output }, trace)
}

/// The same command, traced: with its variables and no others, in its directory.
pub fn under_strace(inner: &Command, log: &Path, calls: &str, rule: Option<&str>) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-o"]).arg(log).arg("-e").arg(format!("trace={calls}"));
    if let Some(rule) = rule {
        command.arg("-e").arg(rule);
    }
    command.arg(inner.get_program()).args(inner.get_args()).env_clear().stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.current_dir(inner.get_current_dir().map_or_else(|| PathBuf::from("."), Path::to_owned));
    command
}
