//! The streams: data on stdout, everything else on stderr, colour only on a terminal.
//!
//! Nothing else in this program prints. Writing never fails here: the first error is kept and told
//! at the end, and a reader that went away is no error at all.

use std::fmt;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use chronicle_core::{Clock, SCHEMA, SystemClock};
use serde::Serialize;

use crate::environment;
use crate::error::CommandError;
use crate::render::Paint;

/// How much output is gathered before it is written.
const BUFFER: usize = 64 << 10;

/// Both streams of one command.
pub(crate) struct Ui {
    json: bool,
    out: Vec<u8>,
    failed: Option<io::Error>,
}

impl Ui {
    /// The streams of this process.
    pub(crate) fn new(json: bool) -> Self {
        Self { json, out: Vec::new(), failed: None }
    }

    /// Whether the caller wants JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// How to draw on stdout.
    pub(crate) fn paint(&self) -> Paint {
        let terminal = io::stdout().is_terminal();
        let wide = if terminal { terminal_width() } else { None };
        let width = wide.or_else(environment::columns).unwrap_or(80).clamp(40, 500);
        Paint { color: terminal && !environment::no_color(), terminal, width }
    }

    /// Adds text to stdout.
    pub(crate) fn print(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds a line to stdout.
    pub(crate) fn line(&mut self, text: impl fmt::Display) {
        self.print(&format!("{text}\n"));
    }

    /// Adds one JSON object on a line of its own to stdout.
    pub(crate) fn data(&mut self, value: &impl Serialize) {
        let line = serde_json::to_string(value).expect("BUG: views are plain data");
        self.line(line);
    }

    /// Tells the person something on stderr; a caller that wants JSON is not told.
    pub(crate) fn note(&mut self, text: impl fmt::Display) {
        if !self.json || is_logged() {
            self.flush();
            tell(&text.to_string());
        }
    }

    /// Asks a question that needs yes; only a person at a terminal can be asked.
    pub(crate) fn confirm(&mut self, question: &str) -> bool {
        self.flush();
        say(&format!("{question} [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        if self.out.len() >= BUFFER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            self.failed = stdout.write_all(&out).and_then(|()| stdout.flush()).err();
        }
    }

    /// Writes what is left; a reader that went away had enough.
    pub(crate) fn finish(mut self) -> Result<(), CommandError> {
        self.flush();
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(CommandError::io("Could not write to standard output", error))
            }
            _ => Ok(()),
        }
    }
}

/// Streams bytes to stdout, for content that need not fit in memory.
impl Write for Ui {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        match &self.failed {
            // Ends the stream early when nobody reads it any more.
            Some(error) => Err(error.kind().into()),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self);
        Ok(())
    }
}

/// Writes to stderr at once; there is nowhere to report that this failed.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The command whose events are lines of JSON on stderr, once that was asked for.
static LOGGED: OnceLock<&'static str> = OnceLock::new();

/// From now on everything that is told on stderr is a line of JSON.
pub(crate) fn log_as_json(command: &'static str) {
    let _ = LOGGED.set(command);
}

/// Whether what is told on stderr is lines of JSON.
pub(crate) fn is_logged() -> bool {
    LOGGED.get().is_some()
}

/// Tells of something that happened: a line for people, or one of JSON.
pub(crate) fn tell(text: &str) {
    match LOGGED.get() {
        Some(command) => log(command, "info", None, text),
        None => say(&format!("{text}\n")),
    }
}

/// Tells how a command failed; the same.
pub(crate) fn tell_failure(error: &CommandError, json: bool) {
    match LOGGED.get() {
        Some(command) => log(command, "error", Some(error.code), error.text().trim_end()),
        None => say(&if json { error.json() } else { error.text() }),
    }
}

fn log(command: &str, level: &str, code: Option<&str>, message: &str) {
    let mut line = serde_json::json!({
        "schema": SCHEMA,
        "time_ns": SystemClock.now().0,
        "level": level,
        "command": command,
        "message": message,
    });
    if let Some(code) = code {
        line["code"] = code.into();
    }
    say(&format!("{line}\n"));
}

/// Whether a person can be asked.
pub(crate) fn person_present() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows on a terminal how far something is, in place, at most ten times a second, from any thread.
pub(crate) struct Meter {
    visible: bool,
    started: Instant,
    last_ms: AtomicU64,
}

impl Meter {
    /// How often it is shown at most.
    const PERIOD_MS: u64 = 100;

    /// Starts now; nobody sees it who wants JSON or has no terminal.
    pub(crate) fn new(ui: &Ui) -> Self {
        let visible = io::stderr().is_terminal() && !ui.json() && !is_logged();
        Self { visible, started: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// Shows the text, if it is time to.
    pub(crate) fn show(&self, text: impl FnOnce() -> String) {
        if !self.visible {
            return;
        }
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.last_ms.load(Ordering::Relaxed);
        let ours = || {
            self.last_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if now >= last + Self::PERIOD_MS && ours() {
            say(&format!("\r\x1b[K{}", text()));
        }
    }

    /// Removes what was shown last.
    pub(crate) fn clear(&self) {
        if self.visible && self.last_ms.load(Ordering::Relaxed) > 0 {
            say("\r\x1b[K");
        }
    }
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
