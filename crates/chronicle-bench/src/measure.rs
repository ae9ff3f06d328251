//! Runs processes and takes figures: times, medians, the most memory a process had.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Anything that can go wrong in a benchmark.
pub(crate) type Failure = Box<dyn std::error::Error>;
/// The result of a measurement.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// What one process did.
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The most memory it had resident, where it was watched.
    pub(crate) memory_mb: f64,
}

/// A program of this build, beside the benchmark itself.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not built: use bench/run", path.display()).into())
    }
}

/// A `chronicle` command on a workspace with a home of its own.
pub(crate) fn chronicle(home: &Path, workspace: &Path, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(program("chronicle")?);
    command.env_clear().env("CHRONICLE_HOME", home).env("HOME", home).current_dir(workspace);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}

/// Runs a command to its end and expects one of these exit codes.
pub(crate) fn run(command: &mut Command, codes: &[i32]) -> Result<Ran> {
    let begun = Instant::now();
    let output = command.output()?;
    let seconds = begun.elapsed().as_secs_f64();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if !output.status.code().is_some_and(|code| codes.contains(&code)) {
        return Err(format!("{command:?} ended with {}\n{stdout}{stderr}", output.status).into());
    }
    Ok(Ran { seconds, stdout, stderr, memory_mb: 0.0 })
}

/// Runs a command and watches how much memory it takes, every two milliseconds.
///
/// The kernel's own high-water mark is read, so only growth in the very last moment is missed.
pub(crate) fn run_watched(command: &mut Command) -> Result<Ran> {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut memory_kb: f64 = 0.0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = std::fs::read_to_string(&status_file).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = mark.and_then(|mark| mark.trim().split(' ').next()?.parse().ok());
        memory_kb = memory_kb.max(kb.unwrap_or(0.0));
        std::thread::sleep(Duration::from_millis(2));
    };
    if !status.success() {
        return Err(format!("{command:?} ended with {status}").into());
    }
    let (stdout, stderr) = (String::new(), String::new());
    Ok(Ran {
        seconds: begun.elapsed().as_secs_f64(),
        stdout,
        stderr,
        memory_mb: memory_kb / 1024.0,
    })
}

/// How long a closure takes, in microseconds.
pub(crate) fn micros<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let begun = Instant::now();
    let done = work()?;
    let elapsed = begun.elapsed();
    drop(done);
    Ok(elapsed.as_secs_f64() * 1e6)
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The steps that `CHRONICLE_TIMINGS` tells of, but for these, in microseconds.
pub(crate) fn timings_without(stderr: &str, left_out: &[&str]) -> Result<f64> {
    let mut total = None;
    for line in stderr.lines().filter_map(|line| line.strip_prefix("timing ")) {
        let (name, micros) = line.split_once(' ').ok_or("a timing has no figure")?;
        if !left_out.contains(&name) {
            *total.get_or_insert(0.0) += micros.parse::<f64>()?;
        }
    }
    total.ok_or_else(|| format!("no timings in {stderr:?}").into())
}
