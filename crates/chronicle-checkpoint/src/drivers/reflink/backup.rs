//! A running cluster in backup mode: one session that begins and ends it, and what it says at the end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::postgres::is_running;
use crate::driver::Deadline;
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::exists;
use crate::part::Part;
use crate::programs::{self, Program, end};

/// How long a cluster may take for the checkpoint with which backup mode begins.
const PATIENCE: Duration = Duration::from_secs(300);
/// What marks the end of an answer.
const DONE: &str = "chronicle: that was all";
/// Directories whose contents belong to the server that runs; they stay as empty ones.
const EMPTIED: [&[u8]; 8] = [
    b"pg_dynshmem",
    b"pg_notify",
    b"pg_replslot",
    b"pg_serial",
    b"pg_snapshots",
    b"pg_stat_tmp",
    b"pg_subtrans",
    b"pg_internal.init",
];

/// A cluster in backup mode, which ends with this session.
pub(super) struct Backup {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

/// What makes clones of a cluster a backup.
pub(super) struct Ended {
    /// Where the backup ended in the log.
    pub(super) stop: String,
    /// The file that says so, among the data.
    label: String,
    last: String,
}

/// Whether a path of a data directory is cloned before the log is.
pub(super) fn is_data(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let inside = EMPTIED
        .iter()
        .any(|empty| path.strip_prefix(*empty).is_some_and(|rest| rest.starts_with(b"/")));
    let servers = [&b"postmaster.pid"[..], b"postmaster.opts", b"pg_wal"].contains(&path);
    !inside && !servers && name != b"pg_internal.init" && !name.starts_with(b"pgsql_tmp")
}

impl Backup {
    /// Begins backup mode, if a server runs on the data.
    pub(super) fn begin(part: &Part, id: &str) -> Result<Option<Self>> {
        let data = &part.path;
        let Some((sockets, port)) = address(data)? else { return Ok(None) };
        let owner = fs::metadata(data).at("examine", data)?;
        let programs = part.parameters.get("programs").map(PathBuf::from);
        let places: Vec<&Path> = programs.iter().map(PathBuf::as_path).collect();
        let psql = programs::find("psql", &places).ok_or_else(|| {
            Error::Declared("psql is not installed, and a running cluster needs it".to_owned())
        })?;
        let mut program = Program::new(psql, PATIENCE).args(["-X", "-q", "-A", "-t"]);
        program = program.args(["-v", "ON_ERROR_STOP=1", "-d", "postgres", "-h"]).arg(&sockets);
        program = program.args(["-p", &port]).by_owner(owner.uid(), owner.gid());
        if let Some(user) = part.parameters.get("user") {
            program = program.args(["-U", user]);
        }
        let mut child = program.converse()?;
        let input = child.stdin.take();
        let answers = child.stdout.take().map(lines);
        let (Some(input), Some(answers)) = (input, answers) else {
            return Err(Error::Program { program: "psql".to_owned(), why: "no pipe".to_owned() });
        };
        let mut backup = Self { child, input, answers };
        // It keeps the log from being recycled, and goes with the session.
        let slot = format!("pg_create_physical_replication_slot('chronicle_{id}', true, true)");
        backup.ask(&format!("SELECT slot_name FROM {slot}"), PATIENCE)?;
        backup.ask("SELECT pg_backup_start('chronicle', true)", PATIENCE)?;
        Ok(Some(backup))
    }

    /// Ends backup mode: everything in the log up to here belongs to it.
    pub(super) fn end(mut self, limit: &Deadline) -> Result<Ended> {
        // The label is many lines, so it comes as one that can be told from the rest.
        let sql = "SELECT lsn, pg_walfile_name(lsn) AS last, encode(labelfile::bytea, 'hex') AS label \
                   FROM pg_backup_stop(false) \\gset\n\\echo :lsn\n\\echo :last\n\\echo :label";
        let said = self.ask(sql, limit.left())?;
        let [stop, last, label] = &said[..] else { return Err(self.failed()) };
        let (stop, last) = (stop.clone(), last.clone());
        let bytes = from_hex(label).ok_or_else(|| self.failed())?;
        let label = String::from_utf8(bytes).map_err(|_| self.failed())?;
        Ok(Ended { stop, label, last })
    }

    /// What the server answers, line by line.
    fn ask(&mut self, sql: &str, limit: Duration) -> Result<Vec<String>> {
        let end = if sql.contains("\\gset") { "" } else { ";" };
        let told = writeln!(self.input, "{sql}{end}\n\\echo {DONE}");
        told.and_then(|()| self.input.flush()).map_err(|_| self.failed())?;
        let deadline = Deadline::after(limit);
        let mut said = Vec::new();
        loop {
            match self.answers.recv_timeout(deadline.left()) {
                Ok(line) if line == DONE => return Ok(said),
                Ok(line) => said.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    return Err(Error::FreezeLimit("waiting for PostgreSQL".to_owned()));
                }
                Err(_) => return Err(self.failed()),
            }
        }
    }

    /// What psql complained about before it ended.
    fn failed(&mut self) -> Error {
        let _ = self.child.kill();
        let mut why = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut errors, &mut why);
        }
        let why = why.trim().replace('\n', "; ");
        Error::Program { program: "psql".to_owned(), why }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

impl Ended {
    /// The segment of the log with which recovery begins.
    fn first(&self) -> &str {
        let first = self.label.split("(file ").nth(1).and_then(|rest| rest.split(')').next());
        first.unwrap_or("none")
    }

    /// Makes sure that the log is there from where it begins to where it ends.
    pub(super) fn is_complete(&self, has: impl Fn(&str) -> bool) -> Result<()> {
        for name in [self.first(), &self.last] {
            if !has(name) {
                let why = format!("PostgreSQL recycled {name} before it was captured");
                let next = "Try again, or raise max_wal_size";
                return Err(Problem::new("log_recycled", why, next).into());
            }
        }
        Ok(())
    }

    /// Puts the label into clones, if the log is complete.
    pub(super) fn complete(&self, place: &Path) -> Result<()> {
        let log = place.join("pg_wal");
        self.is_complete(|name| log.join(name).exists())?;
        let label = place.join("backup_label");
        fs::write(&label, &self.label).at("write", &label)?;
        let like = fs::metadata(place).at("examine", place)?;
        chown(&label, Some(like.uid()), Some(like.gid())).at("give away", &label)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&label, mode).at("set the mode of", &label)
    }
}

fn lines(output: std::process::ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Where the server on this data listens, if one runs.
fn address(data: &Path) -> Result<Option<(String, String)>> {
    let file = data.join("postmaster.pid");
    if !exists(&file)? {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).at("read", &file)?;
    match parse_address(&text) {
        Some((pid, sockets, port)) if is_running(&pid, data)? => Ok(Some((sockets, port))),
        _ => Ok(None),
    }
}

/// The process, the directory of its socket and its port, from the lines that a server writes.
fn parse_address(text: &str) -> Option<(String, String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let (pid, port) = (lines.first()?.trim(), lines.get(3)?.trim());
    let [sockets, host] = [4, 5].map(|at| lines.get(at).copied().unwrap_or("").trim());
    let sockets = if sockets.is_empty() { host } else { sockets };
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    (plain(pid) && plain(port) && !sockets.is_empty())
        .then(|| (pid.to_owned(), sockets.to_owned(), port.to_owned()))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_the_lines_that_it_writes() {
        let text = "71\n/data\n1700000000\n5433\n/run/pg\n\n  12 0\nready\n";
        let found = parse_address(text).unwrap();
        assert_eq!(found, ("71".to_owned(), "/run/pg".to_owned(), "5433".to_owned()));
        let text = "71\n/data\n1700000000\n5433\n\nlocalhost\n";
        assert_eq!(parse_address(text).unwrap().1, "localhost");
        assert_eq!(parse_address("71\n"), None);
        assert_eq!(parse_address("x\n/data\n1\n5433\n/run\n"), None);
    }

    #[test]
    fn what_belongs_to_a_server_that_runs_is_not_cloned() {
        for path in ["base/1/1259", "global/pg_control", "pg_notify", "pg_stat_tmp", "PG_VERSION"] {
            assert!(is_data(path.as_bytes()), "{path}");
        }
        for path in ["postmaster.pid", "pg_wal", "pg_notify/0000", "base/5/pg_internal.init"] {
            assert!(!is_data(path.as_bytes()), "{path}");
        }
        assert!(!is_data(b"base/pgsql_tmp/pgsql_tmp71.0"));
    }

    #[test]
    fn a_backup_without_its_log_is_none() {
        let label = "START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n".to_owned();
        let last = "000000010000000000000004".to_owned();
        let ended = Ended { stop: "0/4000100".to_owned(), label, last };
        let segment = |number: u32| format!("0000000100000000{number:08X}");
        assert!(ended.is_complete(|name| name != segment(2)).is_err());
        assert!(ended.is_complete(|_| true).is_ok());
    }

    #[test]
    fn a_label_comes_as_it_was() {
        assert_eq!(from_hex("53540a").unwrap(), b"ST\n");
        assert_eq!(from_hex("5g"), None);
        assert_eq!(from_hex("535"), None);
    }
}
