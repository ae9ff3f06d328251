//! Whether any process is left of an isolated run: while one is, its layer may still change.
//!
//! Every process of a run is in a process namespace, which ends with its first process: the kernel
//! ends all others before that one counts as ended.

use std::path::Path;

use crate::error::{Context, Result};
use crate::process::Process;

/// Says in a file which process is the first of a run.
pub fn tell_first_process(file: &Path, process: &Process) -> Result<()> {
    let Process { pid, started, boot } = process;
    std::fs::write(file, format!("{pid} {started} {boot}")).at("write", file)
}

/// Whether the process lives that a file names. A run that never came so far has no such file.
pub(crate) fn first_process_lives(file: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    parse(&text).is_some_and(|process| process.is_alive())
}

fn parse(text: &str) -> Option<Process> {
    let mut words = text.split_whitespace();
    let (pid, started) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Process { pid, started, boot: words.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_process_counts() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("first");
        assert!(!first_process_lives(&file));
        let own = Process::of(std::process::id()).unwrap();
        tell_first_process(&file, &own).unwrap();
        assert!(first_process_lives(&file));
        tell_first_process(&file, &Process { started: own.started + 1, ..own }).unwrap();
        assert!(!first_process_lives(&file));
        std::fs::write(&file, "nonsense").unwrap();
        assert!(!first_process_lives(&file));
    }
}
