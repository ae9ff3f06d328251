//! An application with code and data: two git repositories, a PostgreSQL cluster and a SQLite
//! database, and what must be true of all of them together at any one instant.
//!
//! For every commit of either repository there is one row in each database, a draft that is not
//! committed and a file beside the code, and who looks at one instant sees all of them or none. Workers stop between two commits
//! when the gate is closed; pgbench and a SQLite writer go on whatever the gate says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::git;
use crate::postgres::Cluster;

/// How many repositories there are, each with a worker of its own.
pub const REPOSITORIES: usize = 2;

/// Where everything of it lies.
#[derive(Debug)]
pub struct Application {
    /// The directory with the code, in which a workspace may be made.
    pub code: PathBuf,
    /// Files beside the code, one for each repository.
    pub files: PathBuf,
    /// The SQLite database.
    pub sqlite: PathBuf,
    /// The directory with which workers are stopped and let go on.
    pub gate: PathBuf,
    /// The database server.
    pub cluster: Cluster,
}

/// What one look at all of it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// For each repository how many commits there are.
    pub commits: Vec<u64>,
    /// For each repository its newest commit.
    pub heads: Vec<String>,
}

const TABLES: &str = "create table commits (repository int, number int, id text);";
const ROWS: &str = "select count(*), coalesce(max(number), 0) from commits where repository =";
/// What pgbench moves is moved in four tables at once.
const BALANCES: &str = "select (select coalesce(sum(abalance), 0) from pgbench_accounts), \
    (select coalesce(sum(bbalance), 0) from pgbench_branches), \
    (select coalesce(sum(tbalance), 0) from pgbench_tellers), \
    (select coalesce(sum(delta), 0) from pgbench_history)";

impl Application {
    /// Makes one below a directory, with its cluster running; the reason in words where that cannot be
    /// done here.
    pub fn new(top: &Path) -> Result<Self, String> {
        Self::with_data(top, &top.join("cluster"))
    }

    /// The same with its cluster in this very directory.
    pub fn with_data(top: &Path, data: &Path) -> Result<Self, String> {
        for program in ["git", "sqlite3", "stdbuf"] {
            let found = Command::new(program).arg("--version").output();
            found.map_err(|error| format!("needs {program}: {error}"))?;
        }
        // Whoever runs the server must reach its directory.
        fs::set_permissions(top, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        let mut cluster = Cluster::new(data)?;
        cluster.start();
        let code = top.join("code");
        let (sqlite, gate) = (top.join("app.db"), top.join("gate"));
        let files = top.join("files");
        let application = Self { code, files, sqlite, gate, cluster };
        application.set_up();
        Ok(application)
    }

    fn set_up(&self) {
        fs::create_dir_all(&self.gate).expect("a gate");
        fs::create_dir_all(&self.files).expect("a directory for files");
        for number in 0..REPOSITORIES {
            let repository = self.repository(number);
            fs::create_dir_all(&repository).expect("a repository's directory");
            git::init(&repository).expect("a repository");
        }
        let lines = format!("pragma journal_mode=wal; {TABLES} create table noise (data blob);");
        self.lite(&lines);
        self.cluster.sql(TABLES);
        let mut bench = self.cluster.client("pgbench");
        let made = bench.args(["-i", "-q", "-s", "1"]).output().expect("pgbench runs");
        assert!(made.status.success(), "{made:?}");
        self.write_scripts();
    }

    /// The directory of a repository.
    pub fn repository(&self, number: usize) -> PathBuf {
        self.code.join(["core", "plugin"][number])
    }

    /// The file beside the code that belongs to a repository.
    pub fn file(&self, number: usize) -> PathBuf {
        self.files.join(format!("of-{number}"))
    }

    /// A shell's line that closes the gate and waits until every worker has stopped.
    pub fn freeze_line(&self) -> String {
        self.gate.join("freeze").display().to_string()
    }

    /// A shell's line that opens it.
    pub fn thaw_line(&self) -> String {
        self.gate.join("thaw").display().to_string()
    }

    /// The answer of a worker carries the question, so that no old one is taken for it.
    fn write_scripts(&self) {
        let gate = self.gate.display();
        let freeze = format!(
            "#!/bin/sh\ncd {gate} || exit 1\necho $$ >closing && mv closing closed\n\
             for worker in alive-*; do\n  [ -e \"$worker\" ] || continue\n  \
             answer=paused-${{worker#alive-}}\n  \
             until [ \"$(cat \"$answer\" 2>/dev/null)\" = $$ ]; do\n    \
             [ -e \"$worker\" ] || break\n    sleep 0.01\n  done\ndone\n"
        );
        let thaw = format!("#!/bin/sh\nrm -f {gate}/closed\n");
        for (name, text) in [("freeze", freeze), ("thaw", thaw)] {
            let path = self.gate.join(name);
            fs::write(&path, text).expect("a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        }
    }

    /// What SQLite answers.
    pub fn lite(&self, sql: &str) -> String {
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-bail", "-cmd", ".timeout 20000"]).arg(&self.sqlite).arg(sql);
        let output = command.output().expect("sqlite3 runs");
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Looks at all of it and compares it: sound each by itself, and one instant together. What is not so
    /// is told in words.
    pub fn facts(&self) -> Result<Facts, String> {
        let mut facts = Facts { commits: Vec::new(), heads: Vec::new() };
        for number in 0..REPOSITORIES {
            let (commits, head) = self.one_repository(number)?;
            facts.commits.push(commits);
            facts.heads.push(head);
        }
        same("PRAGMA integrity_check", &self.lite("pragma integrity_check"), "ok")?;
        let balances = self.cluster.ask(BALANCES)?;
        let mut each = balances.split('|');
        let first = each.next().unwrap_or_default();
        each.try_for_each(|sum| same("a sum of pgbench", sum, first))?;
        self.cluster.trouble().map_or(Ok(facts), Err)
    }

    fn one_repository(&self, number: usize) -> Result<(u64, String), String> {
        let at = self.repository(number);
        if let Some(trouble) = git::trouble(&at) {
            return Err(format!("git fsck in {}: {trouble}", at.display()));
        }
        let head = said(&at, &["rev-parse", "--verify", "-q", "HEAD"]);
        let commits = match head.is_empty() {
            true => 0,
            false => said(&at, &["rev-list", "--count", "HEAD"]).parse().expect("a number"),
        };
        let expected = format!("{commits}|{commits}");
        let query = format!("{ROWS} {number}");
        same("rows in SQLite", &self.lite(&query), &expected)?;
        same("rows in PostgreSQL", &self.cluster.ask(&query)?, &expected)?;
        let newest = format!(
            "select id from commits where repository = {number} and number = {commits} limit 1"
        );
        same("the newest commit in PostgreSQL", &self.cluster.ask(&newest)?, &head)?;
        same("the newest commit in SQLite", &self.lite(&newest), &head)?;
        for (what, path) in [("the draft", at.join("draft")), ("the file", self.file(number))] {
            let found = fs::read_to_string(path).unwrap_or_else(|_| "0".to_owned());
            same(what, &found, &commits.to_string())?;
        }
        Ok((commits, head))
    }
}

pub(crate) fn said(repository: &Path, words: &[&str]) -> String {
    let output = git::run(repository, words).expect("git was there before");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn same(what: &str, found: &str, expected: &str) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?} where {expected:?} belongs")),
    }
}
