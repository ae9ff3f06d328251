//! SQLite databases in use: the boundary is a read transaction, the bytes come by the backup API.
//!
//! The file, its `-wal` and its `-journal` are one group. A healthy database becomes one file, with everything
//! that was committed. What is no database any more is kept as the files it is.
//!
//! While a connection is open here, nothing in this process may open the file otherwise: closing it would
//! take SQLite's locks away.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::directory::{absent, gate_path, object, read_back, read_back_as};
use crate::contents::Contents;
use crate::driver::{Aside, Capture, Captured, Deadline, End, Restoration, Site, Staged};
use crate::error::{Context, Error, Problem, Result};
use crate::exchange::{Exchange, exists, remove};
use crate::part::{Parameters, Part};
use crate::schema;
use crate::tree::hash_stream;
use crate::tree_write::write_file;

/// The files of a group besides the database itself, in the order in which they are exchanged.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// The parameters that name contents.
const FILE: &str = "file";
/// The parameter that holds owner, group and mode.
const RIGHTS: &str = "rights";
/// How long a database may keep us waiting outside a freeze.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct SqliteCapture<'s> {
    part: Part,
    site: Site<'s>,
    writer: Option<Connection>,
    reader: Option<Connection>,
    /// It is no database: its files are kept as they are.
    raw: Option<Vec<(&'static str, PathBuf)>>,
    absent: bool,
    /// Its owner, group and mode.
    rights: Option<(u32, u32, u32)>,
}

impl<'s> SqliteCapture<'s> {
    pub(super) fn prepare(part: &Part, site: &Site<'s>) -> Result<Self> {
        let part = part.clone();
        Ok(Self {
            part,
            site: *site,
            writer: None,
            reader: None,
            raw: None,
            absent: false,
            rights: None,
        })
    }

    fn open(&self, limit: &Deadline) -> Result<Option<Connection>> {
        let connection = connect(&self.part.path)?;
        let waits = limit.left().max(Duration::from_millis(1));
        connection.busy_timeout(waits).map_err(|error| failed(&self.part.path, &error))?;
        match connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
            Err(error) if is_no_database(&error) => Ok(None),
            other => {
                other.map_err(|error| failed(&self.part.path, &error)).map(|()| Some(connection))
            }
        }
    }
}

impl Capture for SqliteCapture<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        self.absent = !exists(&self.part.path)?;
        if self.absent {
            return Ok(());
        }
        let about = fs::metadata(&self.part.path).at("examine", &self.part.path)?;
        self.rights = Some((about.uid(), about.gid(), about.mode() & 0o7777));
        match self.open(limit)? {
            Some(connection) => {
                // Whoever writes waits, or is waited for.
                execute(&connection, "BEGIN IMMEDIATE", &self.part.path)?;
                self.writer = Some(connection);
            }
            None => self.raw = Some(group(&self.part.path)?),
        }
        limit.check(&format!("waiting for who writes to {}", self.part.path.display()))
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        if self.writer.is_none() {
            return Ok(());
        }
        if let Some(reader) = self.open(limit)? {
            execute(&reader, "BEGIN", &self.part.path)?;
            let count = "SELECT count(*) FROM sqlite_schema";
            reader
                .query_row(count, [], |_| Ok(()))
                .map_err(|error| failed(&self.part.path, &error))?;
            self.reader = Some(reader);
        }
        Ok(())
    }

    fn thaw(&mut self) -> Result<()> {
        match self.writer.take() {
            Some(writer) => execute(&writer, "ROLLBACK", &self.part.path),
            None => Ok(()),
        }
    }

    fn capture(&mut self) -> Result<Captured> {
        if self.absent {
            return Ok(absent());
        }
        let mut captured = self.bring_in()?;
        if let Some((uid, gid, mode)) = self.rights {
            captured.parameters.insert(RIGHTS.to_owned(), format!("{uid} {gid} {mode:o}"));
        }
        Ok(captured)
    }
}

impl SqliteCapture<'_> {
    fn bring_in(&mut self) -> Result<Captured> {
        if let Some(files) = self.raw.take() {
            return capture_raw(&files, self.site.contents);
        }
        let Some(reader) = self.reader.take() else {
            return Err(Error::Sqlite {
                path: self.part.path.clone(),
                why: "it became no database in the middle of the freeze".to_owned(),
            });
        };
        let copy = temporary(&self.site, &self.part.name);
        let captured = copy_out(&reader, &copy, &self.part.path)
            .and_then(|()| keep_copy(&copy, self.site.contents));
        for suffix in BESIDE {
            remove(&with_suffix(&copy, suffix))?;
        }
        remove(&copy)?;
        captured
    }
}

/// A file of our own for a copy.
fn temporary(site: &Site<'_>, name: &str) -> PathBuf {
    site.place.join(format!("tmp-{name}-{}", site.id))
}

fn copy_out(from: &Connection, copy: &Path, path: &Path) -> Result<()> {
    remove(copy)?;
    let mut to = Connection::open(copy).map_err(|error| failed(copy, &error))?;
    let settings = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;";
    to.execute_batch(settings).map_err(|error| failed(copy, &error))?;
    let backup = Backup::new(from, &mut to).map_err(|error| failed(path, &error))?;
    loop {
        match backup.step(-1).map_err(|error| failed(path, &error))? {
            StepResult::Done => break,
            StepResult::More => {}
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    drop(backup);
    to.close().map_err(|(_, error)| failed(copy, &error))
}

fn keep_copy(copy: &Path, contents: &Contents<'_>) -> Result<Captured> {
    let mut file = File::open(copy).at("open", copy)?;
    let (id, bytes) = contents.put_stream(&mut file)?;
    let mut parameters = Parameters::from([(FILE.to_owned(), id.hex())]);
    parameters.extend(schema::of_sqlite(copy).map(|schema| ("schema".to_owned(), schema)));
    Ok(Captured {
        absent: false,
        digest: id,
        bytes,
        parameters,
        objects: vec![id],
        notes: Vec::new(),
        ..absent()
    })
}

fn capture_raw(files: &[(&'static str, PathBuf)], contents: &Contents<'_>) -> Result<Captured> {
    let (mut parameters, mut objects, mut total) = (Parameters::new(), Vec::new(), 0);
    for (suffix, path) in files {
        let mut file = File::open(path).at("open", path)?;
        let (id, bytes) = contents.put_stream(&mut file)?;
        parameters.insert(format!("{FILE}{suffix}"), id.hex());
        objects.push(id);
        total += bytes;
    }
    let words: Vec<_> = parameters.iter().map(|(name, id)| format!("{name} {id}\n")).collect();
    let note = "it is no healthy SQLite database: its files are kept as they are";
    Ok(Captured {
        absent: false,
        digest: chronicle_core::ObjectId::of(words.concat().as_bytes()),
        bytes: total,
        parameters,
        objects,
        notes: vec![note.to_owned()],
        ..absent()
    })
}

/// The files of a group that are there.
fn group(path: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let all = ["", "-journal", "-wal"].map(|suffix| (suffix, with_suffix(path, suffix)));
    let mut found = Vec::new();
    for (suffix, file) in all {
        if exists(&file)? {
            found.push((suffix, file));
        }
    }
    Ok(found)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| failed(path, &error))?;
    connection.busy_timeout(PATIENCE).map_err(|error| failed(path, &error))?;
    Ok(connection)
}

fn execute(connection: &Connection, statement: &str, path: &Path) -> Result<()> {
    connection.execute_batch(statement).map_err(|error| failed(path, &error))
}

fn is_no_database(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    Error::Sqlite { path: path.to_owned(), why: error.to_string() }
}

/// Whether a file is a SQLite database by its first bytes.
pub(crate) fn is_database(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == b"SQLite format 3\0"
}

/// Reads back what was captured; a database is opened and examined too.
pub(super) fn verify(captured: &Captured, site: &Site<'_>) -> Result<()> {
    for id in captured.objects_named(FILE) {
        read_back_as(&id?, site.contents, "database")?;
    }
    if captured.absent || !captured.notes.is_empty() {
        return Ok(());
    }
    let (id, copy) = (object(captured, FILE)?, temporary(site, "verify"));
    remove(&copy)?;
    let verified = write_file(&copy, site.contents.reader(&id)?.as_mut(), captured.bytes)
        .and_then(|()| examine(&copy));
    for suffix in BESIDE {
        remove(&with_suffix(&copy, suffix))?;
    }
    remove(&copy)?;
    verified
}

fn examine(copy: &Path) -> Result<()> {
    let connection = connect(copy)?;
    let said = connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    let said = said.map_err(|error| failed(copy, &error))?;
    match said == "ok" {
        true => Ok(()),
        false => Err(Problem::new(
            "database_damaged",
            format!("SQLite says of the database that was captured: {said}"),
            "Restore another checkpoint: chronicle checkpoint list",
        )
        .into()),
    }
}

pub(super) fn gate(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let mut problems = gate_path(restoration)?;
    if restoration.part.path.is_dir() {
        let why = format!("{} is a directory now", restoration.part.path.display());
        problems.push(Problem::new("not_a_file", why, "Move it away"));
    }
    Ok(problems)
}

/// Refuses while anybody has the database open, and makes it one file.
pub(super) fn halt(restoration: &Restoration<'_>) -> Result<()> {
    let path = &restoration.part.path;
    let users = users(path)?;
    if !users.is_empty() {
        let why = format!("{} is open in {}", path.display(), users.join(", "));
        let next = "Stop it, or name a command that does in [checkpoint] of chronicle.toml";
        return Err(Problem::new("in_use", why, next).of(&restoration.part.name).into());
    }
    if !exists(path)? {
        return Ok(());
    }
    let connection = connect(path)?;
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
        Ok(0) => Ok(()),
        Err(error) if is_no_database(&error) => Ok(()),
        Ok(_) => Err(busy(path)),
        Err(error) => Err(failed(path, &error)),
    }
}

fn busy(path: &Path) -> Error {
    let why = format!("{} is being used", path.display());
    Problem::new("in_use", why, "Stop what uses it").into()
}

/// The processes that have a file of the group open, as far as they can be seen.
fn users(path: &Path) -> Result<Vec<String>> {
    let files = ["", "-wal", "-shm", "-journal"].map(|suffix| with_suffix(path, suffix));
    let ids: Vec<_> = files
        .iter()
        .filter_map(|file| fs::metadata(file).ok())
        .map(|about| (about.dev(), about.ino()))
        .collect();
    let mut found = Vec::new();
    let own = std::process::id().to_string();
    for process in fs::read_dir("/proc").at("list", "/proc")?.flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        let uses = open.flatten().any(|file| {
            let about = fs::metadata(file.path());
            about.is_ok_and(|about| ids.contains(&(about.dev(), about.ino())))
        });
        if uses {
            let called = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} (process {name})", called.trim()));
        }
    }
    Ok(found)
}

/// The exchange of each file of the group: those beside first, the database last.
fn exchanges(restoration: &Restoration<'_>) -> Vec<(&'static str, Exchange)> {
    let at = |suffix| {
        let path = with_suffix(&restoration.part.path, suffix);
        (suffix, Exchange::at(&path, restoration.site.id))
    };
    BESIDE.into_iter().chain([""]).map(at).collect()
}

/// What is noted about one file of the group.
fn noted(staged: &Staged, suffix: &str) -> Staged {
    let prefix = format!("{FILE}{suffix}.");
    let own = staged.iter().filter_map(|(name, value)| {
        name.strip_prefix(&prefix).map(|name| (name.to_owned(), value.clone()))
    });
    own.collect()
}

pub(super) fn restore(restoration: &Restoration<'_>) -> Result<Staged> {
    let mut staged = Staged::new();
    for (suffix, exchange) in exchanges(restoration) {
        remove(exchange.new_place())?;
        let name = format!("{FILE}{suffix}");
        if restoration.captured.parameters.contains_key(&name) {
            let id = object(restoration.captured, &name)?;
            let size = read_back(&id, restoration.site.contents)?;
            let mut reader = restoration.site.contents.reader(&id)?;
            write_file(exchange.new_place(), reader.as_mut(), size)?;
            finish(exchange.new_place(), restoration.captured)?;
        }
        let own = exchange.stage()?;
        staged.extend(own.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
    }
    Ok(staged)
}

/// Gives the new file the owner and mode that it had, and makes it durable.
fn finish(path: &Path, captured: &Captured) -> Result<()> {
    let file = File::open(path).at("open", path)?;
    let rights = captured.parameters.get(RIGHTS).map(String::as_str).unwrap_or_default();
    if let [uid, gid, mode] = rights.split(' ').collect::<Vec<_>>()[..]
        && let (Ok(uid), Ok(gid), Ok(mode)) =
            (uid.parse::<u32>(), gid.parse(), u32::from_str_radix(mode, 8))
    {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if (uid, gid) != own {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).at("give away", path)?;
        }
        // Nothing that was captured gives its owner's rights to whoever runs it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode & 0o777);
        fs::set_permissions(path, mode).at("set the mode of", path)?;
    }
    file.sync_all().at("sync", path)
}

pub(super) fn swap(restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
    let mut all = exchanges(restoration).into_iter();
    all.try_for_each(|(suffix, exchange)| exchange.swap(&noted(staged, suffix)))
}

pub(super) fn swap_back(restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
    let mut all = exchanges(restoration).into_iter().rev();
    all.try_for_each(|(suffix, exchange)| exchange.swap_back(&noted(staged, suffix)))
}

pub(super) fn check(restoration: &Restoration<'_>) -> Result<()> {
    let path = &restoration.part.path;
    let wanted = restoration.captured.parameters.get(FILE);
    let found = match exists(path)? {
        true => {
            let mut file = File::open(path).at("open", path)?;
            Some(hash_stream(&mut file).at("read", path)?.0.hex())
        }
        false => None,
    };
    match found.as_ref() == wanted {
        true => Ok(()),
        false => {
            let why = format!("{} is not what was captured", path.display());
            Err(Problem::new("not_restored", why, "chronicle doctor").into())
        }
    }
}

pub(super) fn clear(restoration: &Restoration<'_>, end: End) -> Result<Vec<Aside>> {
    let mut asides = Vec::new();
    for (suffix, exchange) in exchanges(restoration).into_iter().rev() {
        remove(exchange.new_place())?;
        let old = exchange.old_place();
        if end == End::Old || !exists(old)? {
            continue;
        }
        if suffix == "-shm" || is_held(restoration, suffix, old)? {
            remove(old)?;
        } else {
            let why = "the checkpoint of the present does not hold exactly this";
            asides.push(Aside { at: old.display().to_string(), why: why.to_owned() });
        }
    }
    Ok(asides)
}

/// Whether the checkpoint of the present holds what stood there.
fn is_held(restoration: &Restoration<'_>, suffix: &str, old: &Path) -> Result<bool> {
    let Some(present) = restoration.present else { return Ok(false) };
    if !present.notes.is_empty() {
        let mut file = File::open(old).at("open", old)?;
        let found = hash_stream(&mut file).at("read", old)?.0.hex();
        return Ok(present.parameters.get(&format!("{FILE}{suffix}")) == Some(&found));
    }
    if !suffix.is_empty() {
        // A healthy database was made one file before it was captured.
        return Ok(fs::metadata(old).at("examine", old)?.len() == 0);
    }
    let copy = temporary(&restoration.site, "clear");
    let connection = connect(old)?;
    let same = copy_out(&connection, &copy, old).and_then(|()| {
        let mut file = File::open(&copy).at("open", &copy)?;
        Ok(hash_stream(&mut file).at("read", &copy)?.0 == present.digest)
    });
    drop(connection);
    remove(&copy)?;
    for suffix in BESIDE {
        remove(&with_suffix(old, suffix))?;
    }
    same
}
