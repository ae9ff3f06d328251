//! A PostgreSQL cluster's data directory in the content store, file by file.
//!
//! Of a running server it is a backup by the server's own protocol: begun before the freeze, with all files
//! read meanwhile, and ended inside it. Where it ended is the boundary, and the write-ahead log up to there,
//! cut off there, is what makes the files whole when the server starts on them. A stopped one is copied cold.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::{self, absent, gate_path, keep, known_before};
use super::psql::Session;
use crate::driver::{Aside, Capture, Captured, Deadline, End, Restoration, Site};
use crate::durable;
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::{exists, remove};
use crate::part::Part;
use crate::programs::Program;
use crate::schema::TABLES;
use crate::tree::{Reading, Tree};

/// How long a server may take to stop or start.
const LONG: Duration = Duration::from_secs(300);
const QUICK: Duration = Duration::from_secs(30);
/// Directories whose content a server makes anew.
const TRANSIENT: [&[u8]; 8] = [
    b"pg_wal/",
    b"pg_replslot/",
    b"pg_dynshmem/",
    b"pg_notify/",
    b"pg_serial/",
    b"pg_snapshots/",
    b"pg_stat_tmp/",
    b"pg_subtrans/",
];
/// What says that a server runs, and how.
const RUNNING: [&[u8]; 2] = [b"postmaster.pid", b"postmaster.opts"];

fn belongs_cold(path: &[u8]) -> bool {
    !RUNNING.contains(&path)
}

fn belongs_live(path: &[u8]) -> bool {
    let scratch =
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path).starts_with(b"pgsql_tmp");
    let left = [&b"backup_label"[..], b"tablespace_map"].contains(&path);
    belongs_cold(path)
        && !scratch
        && !left
        && !TRANSIENT.iter().any(|start| path.starts_with(start))
}

/// A server that runs on a data directory.
struct Server {
    data: PathBuf,
    socket: String,
    port: String,
    owner: (u32, u32),
    programs: PathBuf,
}

impl Server {
    fn of(part: &Part) -> Result<Option<Self>> {
        let text = match fs::read_to_string(part.path.join("postmaster.pid")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.at("read", part.path.join("postmaster.pid"))?,
        };
        let line = |number: usize| text.lines().nth(number).unwrap_or_default().trim().to_owned();
        let alive = is_running(&line(0), &part.path)?;
        let about = fs::metadata(&part.path).at("examine", &part.path)?;
        let owner = (about.uid(), about.gid());
        let programs = programs(part);
        let (socket, port) = (line(4), line(3));
        let data = part.path.clone();
        Ok(alive.then_some(Self { data, socket, port, owner, programs }))
    }

    fn psql(&self, database: &str) -> Program {
        let (uid, gid) = self.owner;
        Program::new(self.programs.join("psql"), QUICK)
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                &self.socket,
                "-p",
                &self.port,
            ])
            .args(["-d", database])
            .within(Path::new("/"))
            .without_var("PGPASSWORD")
            .var("PGCONNECT_TIMEOUT", "10")
            .by_owner(uid, gid)
    }

    fn ask(&self, database: &str, question: &str) -> Result<String> {
        let said = self.psql(database).args(["-c", question]).run()?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// The newest migration in each database, by the tables that tools keep.
    fn schemas(&self) -> Result<String> {
        let all =
            "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1";
        let names: Vec<_> = TABLES.iter().map(|(_, table, _)| format!("'{table}'")).collect();
        let which = format!(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname IN ({})",
            names.join(",")
        );
        let mut found = Vec::new();
        for database in self.ask("postgres", all)?.lines() {
            let tables = self.ask(database, &which)?;
            for (tool, table, question) in TABLES {
                if !tables.lines().any(|it| it == table) {
                    continue;
                }
                // A table of that name may be somebody else's.
                if let Ok(revision) = self.ask(database, question) {
                    found.push(format!("{database}: {tool} {revision}"));
                    break;
                }
            }
        }
        Ok(found.join(", "))
    }
}

/// Whether the process that a data directory names is its server. Another one on the same data, which has
/// another number here, is in a container: it can be neither asked nor stopped from here, and its files
/// must not be taken for those of a server that stands still.
pub(super) fn is_running(pid: &str, data: &Path) -> Result<bool> {
    let place = fs::metadata(data).at("examine", data)?;
    let works_there = |process: &Path| {
        let about = fs::metadata(process.join("cwd"));
        about.map(|about| (about.dev(), about.ino()) == (place.dev(), place.ino()))
    };
    let named = Path::new("/proc").join(pid);
    let is_named = pid.bytes().all(|byte| byte.is_ascii_digit()) && !pid.is_empty();
    let seen = if is_named { works_there(&named) } else { Ok(false) };
    if matches!(seen, Ok(true)) {
        return Ok(true);
    }
    let is_server = |process: &Path| {
        let called = fs::read_to_string(process.join("comm")).unwrap_or_default();
        called.starts_with("postgres") && works_there(process).unwrap_or(false)
    };
    let all = fs::read_dir("/proc").at("list", "/proc")?.flatten();
    match all.map(|item| item.path()).find(|process| is_server(process)) {
        // Whose process it is cannot be seen by everybody.
        None => Ok(seen.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)),
        Some(process) => {
            let why = format!(
                "its server runs in a container ({}), where it cannot be stopped or asked from here",
                process.display()
            );
            let next = "Declare the database itself instead: database = \"postgres://...\"";
            Err(Problem::new("server_elsewhere", why, next).into())
        }
    }
}

/// Where the programs of this cluster's version are.
fn programs(part: &Part) -> PathBuf {
    if let Some(said) = part.parameters.get("programs") {
        return PathBuf::from(said);
    }
    let options = fs::read_to_string(part.path.join("postmaster.opts")).unwrap_or_default();
    let started = options.split(" \"").next().map(str::trim).map(PathBuf::from);
    let started = started.and_then(|program| program.parent().map(Path::to_owned));
    let version = fs::read_to_string(part.path.join("PG_VERSION")).unwrap_or_default();
    let usual = Path::new("/usr/lib/postgresql").join(version.trim()).join("bin");
    started.filter(|place| place.join("pg_ctl").exists()).unwrap_or(usual)
}

/// What the end of a backup says.
struct Ended {
    stop: u64,
    label: String,
}

pub(super) struct PostgresCapture<'s> {
    part: Part,
    site: Site<'s>,
    live: Option<(Server, Session, u64)>,
    tree: Option<Tree>,
    ended: Option<Ended>,
    schemas: Option<String>,
}

impl<'s> PostgresCapture<'s> {
    pub(super) fn prepare(part: &Part, site: &Site<'s>) -> Result<Self> {
        let mut capture = Self {
            part: part.clone(),
            site: *site,
            live: None,
            tree: None,
            ended: None,
            schemas: None,
        };
        if !exists(&part.path)? {
            return Ok(capture);
        }
        refuse_tablespaces(&part.path)?;
        let previous = known_before(site);
        let Some(server) = Server::of(part)? else { return Ok(capture) };
        capture.schemas = Some(server.schemas()?);
        let mut session = Session::begin(server.psql("postgres"))?;
        // It keeps the write-ahead log from being recycled, and goes with the session.
        let slot = format!(
            "SELECT pg_create_physical_replication_slot('chronicle_{}', true, true)",
            site.id
        );
        let limit = Deadline::after(LONG);
        session.ask(&slot, &limit)?;
        let begin = format!("SELECT pg_backup_start('chronicle {}', true)", site.id);
        let start = position(&session.ask(&begin, &limit)?)?;
        let reading = Reading { fuzzy: true, known: previous.as_ref(), admits: &belongs_live };
        capture.tree = Some(Tree::read(&part.path, site.contents, reading)?);
        capture.live = Some((server, session, start));
        Ok(capture)
    }

    fn finish_live(
        &mut self,
        server: &Server,
        session: &mut Session,
        start: u64,
    ) -> Result<Captured> {
        let (Some(mut tree), Some(ended)) = (self.tree.take(), self.ended.take()) else {
            return Err(Error::Declared("BUG: no boundary was taken".to_owned()));
        };
        let limit = Deadline::after(QUICK);
        let size = "SELECT setting FROM pg_settings WHERE name = 'wal_segment_size'";
        let size = session.ask(size, &limit)?;
        let size: u64 =
            size.parse().map_err(|_| Error::Declared(format!("{size:?} is no size")))?;
        let line = session.ask("SELECT timeline_id FROM pg_control_checkpoint()", &limit)?;
        let line: u32 =
            line.parse().map_err(|_| Error::Declared(format!("{line:?} is no timeline")))?;
        for number in start / size..=(ended.stop - 1) / size {
            let per = (1 << 32) / size;
            let name = format!("{line:08X}{:08X}{:08X}", number / per, number % per);
            let path = server.data.join("pg_wal").join(&name);
            let mut bytes = fs::read(&path).at("read", &path)?;
            // What comes behind the boundary happened after it.
            let end =
                usize::try_from(ended.stop.saturating_sub(number * size)).unwrap_or(usize::MAX);
            bytes.iter_mut().skip(end).for_each(|byte| *byte = 0);
            tree.put(format!("pg_wal/{name}").as_bytes(), &bytes, self.site.contents)?;
        }
        tree.put(b"backup_label", format!("{}\n", ended.label).as_bytes(), self.site.contents)?;
        let mut captured = keep(&tree, self.site.contents)?;
        captured.revision = Some(format!("{:X}/{:X}", ended.stop >> 32, ended.stop & 0xffff_ffff));
        Ok(captured)
    }
}

impl Capture for PostgresCapture<'_> {
    fn freeze(&mut self, _limit: &Deadline) -> Result<()> {
        Ok(())
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        if let Some((_, session, _)) = &mut self.live {
            let stop = "SELECT lsn || E'\\n' || labelfile FROM pg_backup_stop(false)";
            let said = session.ask(stop, limit)?;
            let (lsn, label) = said.split_once('\n').unwrap_or((&said, ""));
            let (stop, label) = (position(lsn)?, label.to_owned());
            self.ended = Some(Ended { stop, label });
            return limit.check("ending the backup");
        }
        if !exists(&self.part.path)? {
            return Ok(());
        }
        if Server::of(&self.part)?.is_some() {
            let why = "its server was started in the middle of the checkpoint";
            return Err(Problem::new("changing", why, "Try again").into());
        }
        let previous = known_before(&self.site);
        let reading = Reading { fuzzy: false, known: previous.as_ref(), admits: &belongs_cold };
        self.tree = Some(Tree::read(&self.part.path, self.site.contents, reading)?);
        limit.check("copying a stopped cluster")
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        let mut captured = match self.live.take() {
            Some((server, mut session, start)) => self.finish_live(&server, &mut session, start)?,
            None => match &self.tree {
                Some(tree) => keep(tree, self.site.contents)?,
                None => return Ok(absent()),
            },
        };
        note(&mut captured, &self.part.path);
        note_schemas(&mut captured, &self.part, self.schemas.take())?;
        Ok(captured)
    }
}

/// The newest migrations in a cluster whose server runs.
pub(super) fn schemas(part: &Part) -> Result<Option<String>> {
    Server::of(part)?.map(|server| server.schemas()).transpose()
}

/// Notes the newest migrations as they were asked for before the freeze, if they are the same behind it: so
/// that the freeze is no longer for it, and nothing is noted that may not have been so inside it.
pub(super) fn note_schemas(
    captured: &mut Captured,
    part: &Part,
    before: Option<String>,
) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let after = schemas(part)?.unwrap_or_default();
    match before == after {
        true if before.is_empty() => {}
        true => drop(captured.parameters.insert("schema".to_owned(), before)),
        false => captured.notes.push(format!(
            "a migration ran while the checkpoint was made: {before:?} became {after:?}"
        )),
    }
    Ok(())
}

/// Notes which cluster it is, and of which version.
pub(super) fn note(captured: &mut Captured, data: &Path) {
    let version = fs::read_to_string(data.join("PG_VERSION")).unwrap_or_default();
    captured.parameters.insert("server".to_owned(), version.trim().to_owned());
    if let Some(system) = system_identifier(data) {
        captured.parameters.insert("system".to_owned(), system.to_string());
    }
}

fn refuse_tablespaces(data: &Path) -> Result<()> {
    let place = data.join("pg_tblspc");
    let any = fs::read_dir(&place).is_ok_and(|mut all| all.next().is_some());
    if any {
        let why = "the cluster has tablespaces outside its data directory";
        let next = "Move them into the data directory, or declare its databases otherwise";
        return Err(Problem::new("tablespaces", why, next).into());
    }
    if fs::symlink_metadata(data.join("pg_wal")).is_ok_and(|about| about.is_symlink()) {
        let why = "the cluster's write-ahead log lies outside its data directory";
        return Err(Problem::new("wal_outside", why, "Move pg_wal into the data directory").into());
    }
    Ok(())
}

/// A position in the write-ahead log as a number.
fn position(text: &str) -> Result<u64> {
    let parsed = text.trim().split_once('/').and_then(|(high, low)| {
        let high = u64::from_str_radix(high, 16).ok()?;
        Some(high << 32 | u64::from_str_radix(low, 16).ok()?)
    });
    parsed.ok_or_else(|| Error::Declared(format!("{text:?} is no position in the write-ahead log")))
}

/// What makes a cluster that cluster: the first number of its control file.
fn system_identifier(data: &Path) -> Option<u64> {
    let bytes = fs::read(data.join("global/pg_control")).ok()?;
    bytes.first_chunk().map(|first| u64::from_le_bytes(*first))
}

pub(super) fn gate(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let (path, captured) = (&restoration.part.path, restoration.captured);
    let mut problems = gate_path(restoration)?;
    // What stands there becomes a checkpoint first, and must not turn out to be none once it is stopped.
    let stops = Server::of(restoration.part).map(drop);
    for asked in [refuse_tablespaces(path), stops] {
        match asked {
            Err(Error::Refused(problem)) => problems.push(problem),
            other => other?,
        }
    }
    if let (Some(system), Some(was)) = (system_identifier(path), captured.parameters.get("system"))
        && system.to_string() != *was
    {
        let why = format!("another cluster lies at {} now", path.display());
        problems.push(Problem::new("other_cluster", why, "Move it away first"));
    }
    let here = fs::read_to_string(path.join("PG_VERSION")).unwrap_or_default();
    if let Some(was) = captured.parameters.get("server")
        && !here.trim().is_empty()
        && here.trim() != was
    {
        let why = format!("the cluster is of PostgreSQL {} now and was of {was}", here.trim());
        problems.push(Problem::new("other_server_version", why, "Use the server of that version"));
    }
    Ok(problems)
}

/// The file that says that we stopped a server, and with which options it ran.
fn mark(restoration: &Restoration<'_>) -> PathBuf {
    restoration
        .site
        .place
        .join(format!("stopped-{}-{}", restoration.part.name, restoration.site.id))
}

pub(super) fn halt(restoration: &Restoration<'_>) -> Result<()> {
    let part = restoration.part;
    let Some(server) = Server::of(part)? else { return Ok(()) };
    let options = fs::read_to_string(part.path.join("postmaster.opts")).unwrap_or_default();
    let options = options.split_once(' ').map_or("", |(_, options)| options.trim()).to_owned();
    let programs = server.programs.display().to_string();
    durable::write(&mark(restoration), &(options, programs, server.owner))?;
    control(&server.programs, &part.path, server.owner)
        .args(["stop", "-m", "fast", "-w"])
        .run()
        .map(drop)
}

pub(super) fn resume(restoration: &Restoration<'_>) -> Result<()> {
    let noted: Option<(String, String, (u32, u32))> = durable::read(&mark(restoration))?;
    let Some((options, programs, owner)) = noted else { return Ok(()) };
    if Server::of(restoration.part)?.is_none() {
        let program = control(Path::new(&programs), &restoration.part.path, owner);
        program.args(["start", "-w", "-l", "/dev/null", "-o", &options]).run()?;
    }
    remove(&mark(restoration))
}

fn control(programs: &Path, data: &Path, (uid, gid): (u32, u32)) -> Program {
    Program::new(programs.join("pg_ctl"), LONG)
        .arg("-D")
        .arg(data)
        .within(Path::new("/"))
        .by_owner(uid, gid)
}

pub(super) fn check(restoration: &Restoration<'_>) -> Result<()> {
    directory::check(restoration, &belongs_cold)
}

pub(super) fn clear(restoration: &Restoration<'_>, end: End) -> Result<Vec<Aside>> {
    directory::clear(restoration, end, &belongs_cold)
}
