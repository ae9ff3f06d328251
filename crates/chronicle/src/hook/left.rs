//! What a call left running: processes that carry the mark which an agent gives to its shells.

use chronicle_core::Process;

use super::dialect::Agent;

/// The variable that an agent sets for the commands it runs, and not for itself.
fn mark(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::ClaudeCode => Some("CLAUDECODE="),
        Agent::Codex => Some("CODEX_"),
        Agent::Gemini => Some("GEMINI_CLI="),
        Agent::OpenCode => Some("OPENCODE="),
        Agent::Cursor => Some("CURSOR_AGENT="),
        Agent::Copilot | Agent::Cline => None,
    }
}

/// The living processes that the agent's shells started; `caller` is the agent.
///
/// They are younger than the agent, so that most of the machine need not be looked at. What belongs
/// to somebody else cannot be read, and is not ours.
pub(crate) fn running(agent: Agent, caller: Option<&Process>) -> Vec<Process> {
    let (Some(mark), Some(caller)) = (mark(agent), caller) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let above = Process::ancestors();
    let me = std::process::id();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let candidates = pids.filter(|pid: &u32| {
        *pid > caller.pid && *pid != me && above.iter().all(|process| process.pid != *pid)
    });
    candidates.filter(|pid| is_marked(*pid, mark)).filter_map(Process::of).collect()
}

fn is_marked(pid: u32, mark: &str) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
}
