//! A checkpoint before something that may destroy data.
//!
//! It is made by this program as a process of its own: whoever waits for it, an agent's hook above
//! all, links and does nothing more for it than before.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use chronicle_core::{CheckpointWanted, Home, Workspace};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::error::{CommandError, Kind};

/// How long one that is told to end may take to let go of what it froze.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);
/// How much of what it says is read.
const HEARD: u64 = 256 << 10;
/// How often it is looked at.
const OFTEN: Duration = Duration::from_millis(5);

/// Makes a checkpoint and tells which, in words; or why there is none.
pub(crate) fn make(home: &Path, root: &Path, wanted: &CheckpointWanted) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg("-C").arg(root).args(["--json", "checkpoint", "create", "--reason"]);
    command.arg(&wanted.reason).env("CHRONICLE_HOME", home).current_dir(root);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().map_err(|error| format!("it could not be started: {error}"))?;
    let said = [listen(child.stdout.take()), listen(child.stderr.take())];
    let ended = wait(&mut child, wanted.limit)?;
    // A process that it left behind may hold the pipes.
    let [stdout, stderr] = said.map(|said| said.recv_timeout(LAST_WORDS).unwrap_or_default());
    match ended {
        true => Ok(made(&stdout)),
        false => Err(problem(&stderr)),
    }
}

fn listen(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, hear) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What cannot be read is not told.
            let _ = stream.by_ref().take(HEARD).read_to_end(&mut bytes);
            let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
            // Whoever says more is not kept waiting for a listener.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    hear
}

/// Whether it ended well; one that takes too long is ended.
fn wait(child: &mut Child, limit: Duration) -> Result<bool, String> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            // What was asked to stop may have been done all the same: nobody counts on it.
            return if told { Err(too_long(limit)) } else { Ok(status.success()) };
        }
        let pid = Pid::from_child(child);
        if begun.elapsed() > limit + LAST_WORDS {
            // A crash leaves no checkpoint, and the next start says what it left.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = child.wait();
            return Err(too_long(limit));
        }
        if begun.elapsed() > limit && !told {
            told = true;
            let _ = kill_process(pid, Signal::TERM);
        }
        std::thread::sleep(OFTEN);
    }
}

fn too_long(limit: Duration) -> String {
    format!("it took longer than {} seconds", limit.as_secs())
}

fn made(stdout: &str) -> String {
    let value: Value = serde_json::from_str(stdout.trim()).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match text("short_id").or_else(|| text("id")) {
        Some(id) => {
            format!("checkpoint {id} was made before it: chronicle checkpoint restore {id}")
        }
        None => "a checkpoint was made before it: chronicle checkpoint list".to_owned(),
    }
}

/// The words of its error, which is one line of JSON.
fn problem(stderr: &str) -> String {
    let last = stderr.trim().lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(last).unwrap_or_default();
    let words = ["message", "error"].iter().find_map(|key| value.get(key)?.as_str());
    let words = words.unwrap_or(last);
    if words.is_empty() { "it failed and did not say why".to_owned() } else { words.to_owned() }
}

/// The same before a command that `run` runs, which does not run without it.
pub(crate) fn before_run(
    workspace: &Workspace,
    command: &[String],
) -> Result<Option<String>, CommandError> {
    let Some(wanted) = workspace.run_wants_checkpoint(command)? else { return Ok(None) };
    let home = Home::from_env()?;
    make(home.path(), workspace.root(), &wanted).map(Some).map_err(|why| {
        let words = format!("The checkpoint {} could not be made: {why}", wanted.reason);
        CommandError::failed("no_checkpoint", words).of(Kind::Run).hinted(
            "The command was not run. Make one with: chronicle checkpoint create; or change \
             [checkpoint.when] in chronicle.toml",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().expect("a shell")
    }

    #[test]
    fn what_takes_too_long_is_ended_and_counts_as_failed() {
        let limit = Duration::from_millis(200);
        assert_eq!(wait(&mut child("exit 0"), limit), Ok(true));
        assert_eq!(wait(&mut child("exit 3"), limit), Ok(false));
        let begun = Instant::now();
        // It hears that it should end, and says that all went well.
        let polite = "trap 'exit 0' TERM; sleep 60 & wait";
        assert_eq!(wait(&mut child(polite), limit), Err(too_long(limit)));
        assert_eq!(wait(&mut child("trap '' TERM; sleep 60"), limit), Err(too_long(limit)));
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_it_says_becomes_words() {
        let words = "checkpoint abc was made before it: chronicle checkpoint restore abc";
        assert_eq!(made("{\"id\": \"0-abc\", \"short_id\": \"abc\"}\n"), words);
        assert_eq!(problem("note\n{\"code\": \"x\", \"message\": \"No space\"}\n"), "No space");
        assert_eq!(problem("plain words\n"), "plain words");
        assert_eq!(problem(""), "it failed and did not say why");
    }
}
