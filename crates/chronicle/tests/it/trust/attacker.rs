//! Somebody who can write to the home: a copy of it, and what he does to its catalog by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use crate::support::{Cli, Done, done};

/// A copy of a home, for the same workspace.
pub(crate) struct Copy<'c> {
    cli: &'c Cli,
    pub(crate) home: PathBuf,
}

/// One row of the log without its position.
pub(crate) type Row = (i64, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

pub(crate) fn sha(parts: &[&[u8]]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_vec()
}

/// Copies a directory with everything in it.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make a directory");
    for entry in fs::read_dir(from).expect("list").map(|entry| entry.expect("an entry")) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().expect("a kind") {
            kind if kind.is_dir() => copy_tree(&from, &to),
            kind if kind.is_file() => drop(fs::copy(from, to).expect("copy a file")),
            _ => {}
        }
    }
}

impl<'c> Copy<'c> {
    pub(crate) fn of(cli: &'c Cli, from: &Path, to: PathBuf) -> Self {
        copy_tree(from, &to);
        Self { cli, home: to }
    }

    /// The command on this copy.
    pub(crate) fn call(&self, words: &[&str], secret: Option<&str>) -> Done {
        let mut command = self.cli.command(words);
        command.env("CHRONICLE_HOME", &self.home);
        command.envs(secret.map(|secret| ("CHRONICLE_KEY", secret)));
        done(command.output().expect("start the command"))
    }

    /// The verifier that knows nothing of Chronicle, where no chronicle is.
    pub(crate) fn stranger(&self, words: &[&str]) -> Done {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../verify/chronicle_verify.py");
        let mut command = Command::new("/usr/bin/env");
        // Without what else is installed for Python here.
        command.args(["python3", "-S"]).arg(script).arg(self.directory()).args(words);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        done(command.output().expect("start python3"))
    }

    /// Nobody else remembers anything.
    pub(crate) fn forget_witness(&self) {
        let _ = fs::remove_file(self.home.join("witness"));
        let _ = fs::remove_file(self.directory().join("handed-over"));
    }

    pub(crate) fn directory(&self) -> PathBuf {
        let mut all = fs::read_dir(self.home.join("workspaces")).expect("list the workspaces");
        all.next().expect("a workspace").expect("an entry").path()
    }

    pub(crate) fn catalog(&self) -> Connection {
        Connection::open(self.directory().join("catalog.db")).expect("open the catalog")
    }

    pub(crate) fn sql(&self, sql: &str) {
        self.catalog().execute_batch(sql).expect("the catalog takes it");
    }

    pub(crate) fn number(&self, sql: &str) -> u64 {
        let number: i64 = self.catalog().query_row(sql, [], |row| row.get(0)).expect("a number");
        u64::try_from(number).expect("not below zero")
    }

    pub(crate) fn row(&self, seq: u64) -> Row {
        let sql = "SELECT kind, leaf_hash, link, leaf, body FROM record WHERE seq = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        };
        self.catalog().query_row(sql, [seq.cast_signed()], read).expect("a record")
    }

    pub(crate) fn put(&self, seq: u64, row: &Row) {
        let sql = "INSERT OR REPLACE INTO record (seq, kind, leaf_hash, link, leaf, body)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (kind, leaf_hash, link, leaf, body) = row;
        let values = params![seq.cast_signed(), kind, leaf_hash, link, leaf, body];
        self.catalog().execute(sql, values).expect("the catalog takes a record");
    }

    /// Moves the records from a position on by one, up or down.
    pub(crate) fn shift(&self, from: u64, by: i64) {
        self.sql(&format!(
            "UPDATE record SET seq = -seq WHERE seq >= {from};
             UPDATE record SET seq = -seq + {by} WHERE seq < 0;"
        ));
    }

    /// Makes a record say something else, with a leaf hash that fits: the last byte of its time.
    pub(crate) fn forge(&self, seq: u64) -> Row {
        // Behind version, kind, workspace, epoch and a short position comes the time.
        self.forge_at(seq, 36)
    }

    /// The same with another byte of its leaf: 2 to 17 are the workspace, 18 to 33 the epoch.
    pub(crate) fn forge_at(&self, seq: u64, at: usize) -> Row {
        let mut row = self.row(seq);
        row.3[at] ^= 0x10;
        row.1 = sha(&[&[0], &row.3]);
        row
    }

    /// Computes every link from a position on anew.
    pub(crate) fn chain_from(&self, seq: u64) {
        let end = self.number("SELECT max(seq) FROM record");
        for at in seq..=end {
            let before = if at == 1 { vec![0; 32] } else { self.row(at - 1).2 };
            let mut row = self.row(at);
            row.2 = sha(&[&[3], &before, &row.1]);
            self.put(at, &row);
        }
    }

    /// Signs everything anew, with the key that is there or with another.
    pub(crate) fn sign_anew(&self, secret: Option<&str>) {
        self.sql("DELETE FROM head; DELETE FROM node; DELETE FROM state WHERE key = 'head_key';");
        self.call(&["head"], secret).ok();
    }

    /// The same with a head that ends at one record, as who takes history away must make one.
    pub(crate) fn sign_anew_at(&self, seq: u64) {
        let later = format!("SELECT count(*) FROM record WHERE seq > {seq}");
        assert_eq!(self.number(&later), 0, "it is the newest record");
        self.sign_anew(None);
    }

    /// Cuts off what is newer, and everything else that speaks of it.
    pub(crate) fn cut_without_a_trace(&self, after: u64) {
        self.sql(&format!(
            "DELETE FROM record WHERE seq > {after}; DELETE FROM touched WHERE seq > {after};
             DELETE FROM by_id WHERE seq > {after}; DELETE FROM head WHERE size > {after};"
        ));
    }
}
