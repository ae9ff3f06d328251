//! What a call left running: processes that carry the mark which an agent gives to its shells.

use std::path::Path;

use chronicle_core::Process;

use crate::agent::Agent;

/// The variables that an agent sets for the commands it runs, and not for itself.
fn marks(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::ClaudeCode => &["CLAUDECODE="],
        Agent::Codex => &["CODEX_SANDBOX", "CODEX_CI=", "CODEX_THREAD_ID="],
        Agent::Gemini => &["GEMINI_CLI="],
        Agent::Opencode => &["OPENCODE=", "OPENCODE_PID=", "OPENCODE_TERMINAL="],
        Agent::Cursor => &["CURSOR_AGENT="],
        Agent::Copilot | Agent::Cline => &[],
    }
}

/// The living processes that the agent's shells started in the workspace; `caller` is the agent.
///
/// What belongs to somebody else cannot be read, and is not ours.
pub(crate) fn running(agent: Agent, caller: Option<&Process>, root: &Path) -> Vec<Process> {
    let (marks, Some(caller)) = (marks(agent), caller) else { return Vec::new() };
    if marks.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let above = Process::ancestors();
    let me = std::process::id();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let candidates = pids.filter(|pid: &u32| {
        *pid != caller.pid && *pid != me && above.iter().all(|process| process.pid != *pid)
    });
    let works_here = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|place| place.starts_with(root))
    };
    let left = candidates.filter(works_here).filter(|pid| is_marked(*pid, marks));
    left.filter_map(Process::of).collect()
}

fn is_marked(pid: u32, marks: &[&str]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    let marked = |variable: &[u8]| marks.iter().any(|mark| variable.starts_with(mark.as_bytes()));
    environment.split(|byte| *byte == 0).any(marked)
}
