//! A PostgreSQL cluster of a test: in a directory of its own, under a user of its own, reached only
//! through a socket in a directory, and never left running.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Who runs the server where the tests run as root, which it refuses to do; `./test` makes this user.
pub const USER: &str = "chronicle-test";

/// How long a server may take to come up, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// Commits wait for the disk as they would anywhere; only room is saved.
const SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "unix_socket_permissions=0777",
    "min_wal_size=32MB",
    "max_wal_size=128MB",
    "shared_buffers=16MB",
    "max_connections=20",
];

/// A cluster and, while it runs, its server.
#[derive(Debug)]
pub struct Cluster {
    data: PathBuf,
    sockets: TempDir,
    server: Option<Child>,
    settings: Vec<String>,
}

/// A program of PostgreSQL: of the newest version that the distribution has, else on the path.
pub fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|item| Some((item.file_name().to_str()?.parse().ok()?, item.path())))
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, place)| place.join("bin").join(name));
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|place| place.join(name)).find(|place| place.exists())
    };
    newest.filter(|place| place.exists()).or_else(on_path)
}

/// A command that runs as the user of the cluster.
pub fn as_user(program: impl AsRef<Path>) -> Command {
    let program = program.as_ref();
    if !crate::shared::is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}")).arg("--clear-groups");
    // A test that is killed takes its servers with it.
    command.args(["--pdeathsig", "INT"]).arg(program);
    command
}

/// The owner of the databases: who runs the server.
fn superuser() -> String {
    match crate::shared::is_root() {
        true => USER.to_owned(),
        false => said(Command::new("id").arg("-un")).expect("we are somebody"),
    }
}

/// The ids of the user of the cluster.
fn user_ids() -> Result<Option<(u32, u32)>, String> {
    if !crate::shared::is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| error.to_string())?;
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let ids = line.and_then(|line| {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    ids.map(Some).ok_or_else(|| format!("needs the user {USER}, which ./test makes"))
}

/// Gives a directory to the user of the cluster.
pub fn hand_over(directory: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    match user_ids()? {
        Some((user, group)) => chown(directory, Some(user), Some(group)).map_err(failed),
        None => Ok(()),
    }
}

impl Cluster {
    /// Makes a cluster with checksums in a directory that is not there yet, or is empty; the reason in
    /// words where that cannot be done here.
    pub fn new(data: &Path) -> Result<Self, String> {
        let initdb = program("initdb").ok_or("PostgreSQL is not installed")?;
        fs::create_dir_all(data).map_err(|error| format!("{}: {error}", data.display()))?;
        hand_over(data)?;
        let mut command = as_user(initdb);
        command.arg("-D").arg(data);
        // The owner of the data is the owner of the databases, as with the packages of distributions.
        command.args(["-A", "trust", "-k", "-E", "UTF8", "--locale=C", "-N"]);
        said(&mut command)?;
        Self::over(data)
    }

    /// A cluster that is there, and not running.
    pub fn over(data: &Path) -> Result<Self, String> {
        let made = tempfile::Builder::new().prefix("chronicle-pg-").tempdir();
        let sockets = made.map_err(|error| format!("no place for a socket: {error}"))?;
        hand_over(sockets.path())?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(sockets.path(), open).map_err(|error| error.to_string())?;
        Ok(Self { data: data.to_owned(), sockets, server: None, settings: Vec::new() })
    }

    /// The same with a setting more for its server.
    #[must_use]
    pub fn with_setting(mut self, setting: &str) -> Self {
        self.settings.push(setting.to_owned());
        self
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The directory that holds its socket.
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// How clients reach it.
    pub fn address(&self) -> String {
        format!("host={} user={} dbname=postgres", self.sockets().display(), superuser())
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        let sockets = self.sockets().display().to_string().replace('/', "%2F");
        format!("postgres://{}@{sockets}/postgres", superuser())
    }

    /// The words after which a shell has started its server, for those that start it themselves.
    pub fn start_line(&self) -> String {
        let mut options = format!("-k {}", self.sockets().display());
        for setting in self.all_settings() {
            options.push_str(&format!(" -c {setting}"));
        }
        let log = self.sockets().join("log");
        self.control_line(&format!("-w -s -l {} -o '{options}' start", log.display()))
    }

    /// The words after which a shell has stopped it.
    pub fn stop_line(&self) -> String {
        self.control_line("-w -s -m fast stop")
    }

    fn control_line(&self, words: &str) -> String {
        let control = program("pg_ctl").expect("it was there for the cluster");
        let line = format!("{} -D {} {words}", control.display(), self.data.display());
        match crate::shared::is_root() {
            true => format!("setpriv --reuid={USER} --regid={USER} --clear-groups {line}"),
            false => line,
        }
    }

    fn all_settings(&self) -> impl Iterator<Item = &str> {
        SETTINGS.into_iter().chain(self.settings.iter().map(String::as_str))
    }

    /// Starts its server and waits until it answers.
    pub fn start(&mut self) {
        let log = fs::File::create(self.sockets().join("log")).expect("a log");
        let mut command = as_user(program("postgres").expect("it was there for the cluster"));
        command.arg("-D").arg(&self.data).arg("-k").arg(self.sockets.path());
        for setting in self.all_settings() {
            command.args(["-c", setting]);
        }
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.server = Some(server.expect("the server starts"));
        self.wait_until_up();
    }

    /// Waits until its server answers, whoever started it.
    pub fn wait_until_up(&self) {
        let begun = Instant::now();
        while self.ask("select 1").is_err() {
            let log = || fs::read_to_string(self.sockets().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < START, "PostgreSQL does not come up: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops its server, whoever started it, as an administrator would.
    pub fn stop(&mut self) {
        self.end("fast");
    }

    /// Stops it as a power cut would.
    pub fn stop_at_once(&mut self) {
        self.end("immediate");
    }

    fn end(&mut self, mode: &str) {
        if self.is_running() {
            let mut command = as_user(program("pg_ctl").expect("it was there for the cluster"));
            command.arg("-D").arg(&self.data).args(["-w", "-s", "-m", mode, "stop"]);
            let _ = command.output();
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
    }

    /// Whether a server runs on the data.
    pub fn is_running(&self) -> bool {
        let pid = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let pid = pid.lines().next().unwrap_or("none");
        Path::new("/proc").join(pid).exists()
    }

    /// A client of the cluster's server.
    pub fn client(&self, name: &str) -> Command {
        let mut command = Command::new(program(name).unwrap_or_else(|| PathBuf::from(name)));
        command.env("PGHOST", self.sockets()).env("PGUSER", superuser());
        command.env("PGDATABASE", "postgres").stdin(Stdio::null());
        command
    }

    /// What the server answers; the reason in words where it does not.
    pub fn ask(&self, sql: &str) -> Result<String, String> {
        said(self.client("psql").args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// What the server answers.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.ask(sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
    }

    /// Has every table and index read while it runs; what is broken, in words.
    pub fn trouble(&self) -> Option<String> {
        let mut command = self.client("pg_amcheck");
        command.args(["--all", "--install-missing", "--heapallindexed", "--parent-check"]);
        said(&mut command).err()
    }

    /// Has every page's checksum compared while it does not run; what is broken, in words.
    pub fn wrong_checksums(&self) -> Option<String> {
        let checksums = program("pg_checksums").expect("it was there for the cluster");
        said(as_user(checksums).arg("--check").arg("-D").arg(&self.data)).err()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_at_once();
    }
}

/// What a command wrote; what it complained about where it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{name}: {error}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    match status.success() {
        true => Ok(stdout.trim().to_owned()),
        false => Err(format!("{name}: {status}: {}{}", stdout.trim(), stderr.trim())),
    }
}
