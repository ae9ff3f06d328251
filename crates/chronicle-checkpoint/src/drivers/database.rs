//! One database of a PostgreSQL server that is not ours: a dump of one snapshot of it, in the content store.
//!
//! The boundary is a transaction whose snapshot is exported inside the freeze; `pg_dump` reads that very
//! snapshot afterwards. The way back is a database beside it, made from the dump, and two renames in one
//! transaction. The server itself is never stopped, and nobody's connection is ever ended.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chronicle_core::ObjectId;

use super::directory::{absent, object, unreadable};
use super::psql::Session;
use crate::contents::Contents;
use crate::driver::{Aside, Capture, Captured, Deadline, End, Restoration, Site, Staged};
use crate::error::{Error, Problem, Result};
use crate::exchange::remove;
use crate::part::{Parameters, Part};
use crate::programs::{self, Program};
use crate::schema::TABLES;
use crate::tree_write::write_file;

mod address;

use address::Address;

/// The parameter that names the dump.
pub(super) const DUMP: &str = "dump";
/// How the database was made, and its own settings and rights, as parameters of these names.
const PROPERTIES: [&str; 7] =
    ["encoding", "collate", "ctype", "provider", "locale", "owner", "settings"];
/// What the new database is called by the server, whatever its name.
const IDENTITY: &str = "identity";
const NOTHING: &str = "nothing";
const QUICK: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(24 * 3600);
/// With which every whole dump ends.
const LAST: &[u8] = b"-- PostgreSQL database dump complete";
const OTHER: &str = "Restore another checkpoint: chronicle checkpoint list";

/// A server, as a part says how to reach it.
struct Server {
    address: Address,
    programs: Option<PathBuf>,
}

/// What a server says about itself and the database.
struct About {
    oid: Option<String>,
    system: String,
    version: String,
}

/// A value as SQL wants it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL wants it.
fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

impl Server {
    fn of(part: &Part) -> Result<Self> {
        let said = part.parameters.get("connection").map(String::as_str).unwrap_or_default();
        let address = Address::parse(said).ok_or_else(|| {
            let words = format!("Part {:?} does not say which database it is", part.name);
            Error::Declared(words)
        })?;
        let programs = part.parameters.get("programs").map(PathBuf::from);
        Ok(Self { address, programs })
    }

    /// A program of PostgreSQL. Its connection is not shown in errors: it may hold a password.
    fn program(&self, what: &str, database: &str, limit: Duration) -> Result<Program> {
        let places: Vec<&Path> = self.programs.iter().map(PathBuf::as_path).collect();
        let found = programs::find(what, &places).ok_or_else(|| {
            let why = format!("{what} is not installed, and the database needs it");
            let next =
                "Install PostgreSQL's client programs, or name their directory with `programs`";
            Error::from(Problem::new("programs_missing", why, next))
        })?;
        let mut command = Command::new(found);
        command.arg("--dbname").arg(self.address.of(database)).arg("--no-password");
        command.env("PGCONNECT_TIMEOUT", "10").env_remove("PGDATABASE").current_dir("/");
        Ok(Program::prepared(command, what, limit))
    }

    fn psql(&self, database: &str, limit: Duration) -> Result<Program> {
        let quiet = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
        Ok(self.program("psql", database, limit)?.args(quiet))
    }

    fn ask_in(&self, database: &str, question: &str) -> Result<String> {
        let program = self.psql(database, QUICK)?;
        let said = program.run_with(Some(question.as_bytes()))?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// Asks in a database that is not the one in question, which cannot be renamed from within.
    fn ask(&self, question: &str) -> Result<String> {
        let other = if self.address.database == "postgres" { "template1" } else { "postgres" };
        match self.ask_in(other, question) {
            Err(Error::Program { why, .. })
                if other == "postgres" && why.contains("does not exist") =>
            {
                self.ask_in("template1", question)
            }
            said => said,
        }
    }

    /// The number that the server has for a database.
    fn oid(&self, database: &str) -> Result<Option<String>> {
        let question =
            format!("SELECT oid FROM pg_database WHERE datname = {};", literal(database));
        Ok(Some(self.ask(&question)?).filter(|said| !said.is_empty()))
    }

    fn about(&self) -> Result<About> {
        let said = self.ask(
            "SELECT system_identifier FROM pg_control_system();\n\
             SELECT current_setting('server_version_num')::int / 10000;",
        )?;
        let (system, version) = said.split_once('\n').unwrap_or((&said, ""));
        let oid = self.oid(&self.address.database)?;
        Ok(About { oid, system: system.to_owned(), version: version.to_owned() })
    }

    /// Who else is connected to the database.
    fn users(&self) -> Result<Vec<String>> {
        let said = self.ask(&format!(
            "SELECT format('%s (process %s of %s)', coalesce(nullif(application_name, ''), 'a client'), pid, \
             usename) FROM pg_stat_activity WHERE datname = {} AND backend_type = 'client backend' \
             ORDER BY pid;",
            literal(&self.address.database)
        ))?;
        Ok(said.lines().map(str::to_owned).collect())
    }
}

pub(super) struct DatabaseCapture<'s> {
    part: Part,
    site: Site<'s>,
    server: Server,
    about: About,
    taken: Option<Taken>,
}

/// What was fixed inside the freeze: as long as the session lasts, the snapshot can be read.
struct Taken {
    _session: Session,
    snapshot: String,
    parameters: Parameters,
}

impl<'s> DatabaseCapture<'s> {
    pub(super) fn prepare(part: &Part, site: &Site<'s>) -> Result<Self> {
        let server = Server::of(part)?;
        let about = server.about()?;
        Ok(Self { part: part.clone(), site: *site, server, about, taken: None })
    }
}

/// The question for what a dump without its database does not hold, one line of JSON.
fn properties(database: &str) -> String {
    // Settings that are lists are written as they are, others as values.
    let lists = "'search_path', 'temp_tablespaces', 'local_preload_libraries', \
                 'session_preload_libraries', 'shared_preload_libraries'";
    format!(
        "SELECT json_build_object('encoding', pg_encoding_to_char(d.encoding), 'collate', d.datcollate, \
         'ctype', d.datctype, 'provider', coalesce(to_jsonb(d)->>'datlocprovider', 'c'), \
         'locale', coalesce(to_jsonb(d)->>'datlocale', to_jsonb(d)->>'daticulocale', ''), \
         'owner', pg_get_userbyid(d.datdba), 'settings', coalesce((SELECT string_agg(line, E'\\n') FROM ( \
           SELECT format('ALTER DATABASE :DB SET %I TO %s;', split_part(c, '=', 1), \
             CASE WHEN split_part(c, '=', 1) IN ({lists}) THEN substr(c, strpos(c, '=') + 1) \
             ELSE quote_literal(substr(c, strpos(c, '=') + 1)) END) AS line \
           FROM pg_db_role_setting s, unnest(s.setconfig) c WHERE s.setdatabase = d.oid AND s.setrole = 0 \
           UNION ALL SELECT 'REVOKE ALL ON DATABASE :DB FROM PUBLIC;' WHERE d.datacl IS NOT NULL \
           UNION ALL SELECT format('GRANT %s ON DATABASE :DB TO %s%s;', a.privilege_type, \
             CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, \
             CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END) \
           FROM aclexplode(d.datacl) a) lines), '')) \
         FROM pg_database d WHERE d.datname = {}",
        literal(database)
    )
}

/// The newest migration, asked inside the transaction of the snapshot.
fn migration(session: &mut Session, limit: &Deadline) -> Result<Option<String>> {
    for (tool, table, question) in TABLES {
        let there = format!("SELECT to_regclass('{table}') IS NOT NULL");
        if session.ask(&there, limit)? != "t" {
            continue;
        }
        // A table of that name may be somebody else's, and what fails must not end the transaction.
        let asked = format!(
            "SAVEPOINT asked;\n\\set ON_ERROR_STOP 0\n{question};\n\\set ON_ERROR_STOP 1\n\
             ROLLBACK TO asked"
        );
        let revision = session.ask(&asked, limit)?;
        if !revision.is_empty() {
            return Ok(Some(format!("{tool} {revision}")));
        }
    }
    Ok(None)
}

impl Capture for DatabaseCapture<'_> {
    fn freeze(&mut self, limit: &Deadline) -> Result<()> {
        self.about.oid = self.server.oid(&self.server.address.database)?;
        limit.check("asking a PostgreSQL server")
    }

    fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        if self.about.oid.is_none() {
            return Ok(());
        }
        let database = self.server.address.database.clone();
        let mut session = Session::begin(self.server.psql(&database, limit.left())?)?;
        session.ask("BEGIN ISOLATION LEVEL REPEATABLE READ", limit)?;
        let snapshot = session.ask("SELECT pg_export_snapshot()", limit)?;
        let said = session.ask(&properties(&database), limit)?;
        let said: BTreeMap<String, String> = serde_json::from_str(&said).map_err(|error| {
            Error::Declared(format!("What the server says is no JSON: {error}"))
        })?;
        let mut parameters: Parameters =
            said.into_iter().filter(|(name, _)| PROPERTIES.contains(&&name[..])).collect();
        if let Some(schema) = migration(&mut session, limit)? {
            parameters.insert("schema".to_owned(), schema);
        }
        self.taken = Some(Taken { _session: session, snapshot, parameters });
        limit.check("exporting a snapshot")
    }

    fn thaw(&mut self) -> Result<()> {
        Ok(())
    }

    fn capture(&mut self) -> Result<Captured> {
        let common = [
            ("database", self.server.address.database.clone()),
            ("system", self.about.system.clone()),
            ("server", self.about.version.clone()),
        ];
        let common = common.map(|(name, value)| (name.to_owned(), value));
        let Some(Taken { _session, snapshot, mut parameters }) = self.taken.take() else {
            return Ok(Captured { parameters: Parameters::from(common), ..absent() });
        };
        let snapshot = format!("--snapshot={snapshot}");
        let program = self.server.program("pg_dump", &self.server.address.database, LONG)?;
        let mut dump = program.arg(snapshot).stream()?;
        let mut output = dump.output().ok_or_else(|| Error::Declared("No output".to_owned()))?;
        let mut read = Dump::of(&mut output);
        let (id, bytes) = self.site.contents.put_stream(&mut read)?;
        let (digest, whole) = read.finish();
        dump.finish(QUICK)?;
        if !whole {
            return Err(incomplete().of(&self.part.name).into());
        }
        parameters.extend(common);
        parameters.insert(DUMP.to_owned(), id.hex());
        Ok(Captured {
            absent: false,
            digest,
            bytes,
            parameters,
            objects: vec![id],
            notes: Vec::new(),
            ..absent()
        })
    }
}

fn incomplete() -> Problem {
    Problem::new("dump_incomplete", "the dump of the database has no end", OTHER)
}

/// A dump on its way, and the hash of it without what is different in each: the key with which it guards
/// itself.
struct Dump<'d> {
    source: &'d mut dyn Read,
    hasher: blake3::Hasher,
    line: Vec<u8>,
    whole: bool,
}

impl<'d> Dump<'d> {
    fn of(source: &'d mut dyn Read) -> Self {
        Self { source, hasher: blake3::Hasher::new(), line: Vec::new(), whole: false }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.whole |= line.starts_with(LAST);
        if !line.starts_with(b"\\restrict ") && !line.starts_with(b"\\unrestrict ") {
            self.hasher.update(&line);
        }
    }

    /// The hash, and whether the dump is whole.
    fn finish(mut self) -> (ObjectId, bool) {
        self.end_line();
        (ObjectId(*self.hasher.finalize().as_bytes()), self.whole)
    }
}

impl Read for Dump<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.source.read(buffer)?;
        for piece in buffer[..length].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
        Ok(length)
    }
}

/// Reads a dump to its end: its hash, and whether it is whole.
fn digest(source: &mut dyn Read) -> Result<(ObjectId, bool)> {
    let mut dump = Dump::of(source);
    std::io::copy(&mut dump, &mut std::io::sink()).map_err(|error| {
        Problem::new("damaged_dump", format!("the dump cannot be read: {error}"), OTHER)
    })?;
    Ok(dump.finish())
}

/// Reads the dump back and compares it with what the lock says of it.
pub(super) fn verify(captured: &Captured, contents: &Contents<'_>) -> Result<()> {
    let id = object(captured, DUMP)?;
    let mut reader = contents.reader(&id).map_err(|error| unreadable(error, DUMP))?;
    let (found, whole) = digest(&mut reader)?;
    match (whole, found == captured.digest) {
        (true, true) => Ok(()),
        (false, _) => Err(incomplete().into()),
        (true, false) => {
            let why = "the dump is not the one whose digest the lock file names";
            Err(Problem::new("dump_differs", why, OTHER).into())
        }
    }
}

pub(super) fn gate(restoration: &Restoration<'_>) -> Result<Vec<Problem>> {
    let (captured, mut problems) = (restoration.captured, Vec::new());
    let server = Server::of(restoration.part)?;
    let about = match server.about() {
        Ok(about) => about,
        Err(error) => {
            let next = "Start the server, or look at `database` in chronicle.toml";
            return Ok(vec![Problem::new("server_unreachable", error.to_string(), next)]);
        }
    };
    let was = |name: &str| captured.parameters.get(name).map(String::as_str).unwrap_or_default();
    if was("database") != server.address.database {
        let why = format!("it was the database {:?}, and another is declared", was("database"));
        problems.push(Problem::new("other_database", why, "Declare it as it was"));
    }
    if was("system") != about.system {
        let why = "another server answers there than the one that it was captured from";
        problems.push(Problem::new("other_cluster", why, "Connect to the server that it was"));
    }
    if was("server") != about.version {
        let (is, was) = (&about.version, was("server"));
        let why = format!("the server is PostgreSQL {is} now and was {was}");
        problems.push(Problem::new("other_server_version", why, "Use the server of that version"));
    }
    let may = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user;";
    if server.ask(may)? != "t" {
        let why = "this user of the server may not make databases, and one is put beside it";
        problems.push(Problem::new("no_right_to_create", why, "ALTER ROLE ... CREATEDB"));
    }
    Ok(problems)
}

/// Refuses while anybody is connected: it is somebody else's server, and nobody is thrown out of it.
pub(super) fn halt(restoration: &Restoration<'_>) -> Result<()> {
    let server = Server::of(restoration.part)?;
    let users = server.users()?;
    if users.is_empty() {
        return Ok(());
    }
    let why = format!("{} is used by {}", server.address.database, users.join(", "));
    let next = "Stop it, or name a command that does in [checkpoint] of chronicle.toml";
    Err(Problem::new("in_use", why, next).of(&restoration.part.name).into())
}

fn new_name(restoration: &Restoration<'_>) -> String {
    format!("chronicle_new_{}", restoration.site.id)
}

fn old_name(restoration: &Restoration<'_>) -> String {
    format!("chronicle_old_{}", restoration.site.id)
}

/// Makes the database again beside the one that is there.
pub(super) fn restore(restoration: &Restoration<'_>) -> Result<Staged> {
    let (server, new) = (Server::of(restoration.part)?, new_name(restoration));
    let staged = |identity: String| Staged::from([(IDENTITY.to_owned(), identity)]);
    server.ask(&format!("DROP DATABASE IF EXISTS {};", name(&new)))?;
    if restoration.captured.absent {
        return Ok(staged(NOTHING.to_owned()));
    }
    let was = |word: &str| restoration.captured.parameters.get(word).map_or("", String::as_str);
    let locale = match was("provider") {
        "i" => format!(" LOCALE_PROVIDER icu ICU_LOCALE {}", literal(was("locale"))),
        _ => String::new(),
    };
    server.ask(&format!(
        "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {}{locale} OWNER {};",
        name(&new),
        literal(was("encoding")),
        literal(was("collate")),
        literal(was("ctype")),
        name(was("owner"))
    ))?;
    let site = &restoration.site;
    let file = site.place.join(format!("tmp-{}-{}.sql", restoration.part.name, site.id));
    write_dump(restoration.captured, site.contents, &file)?;
    let written = server.psql(&new, LONG).and_then(|psql| {
        psql.args(["--single-transaction", "-o", "/dev/null", "-f"]).arg(&file).run()
    });
    remove(&file)?;
    written?;
    let settings = was("settings").replace(":DB", &name(&new));
    server.ask(&settings)?;
    let oid = server.oid(&new)?.ok_or_else(|| gone(&new))?;
    Ok(staged(oid))
}

/// Writes the dump to a file where nothing stands.
pub(crate) fn write_dump(captured: &Captured, contents: &Contents<'_>, to: &Path) -> Result<()> {
    let id = object(captured, DUMP)?;
    remove(to)?;
    write_file(to, contents.reader(&id)?.as_mut(), captured.bytes)
}

fn gone(database: &str) -> Error {
    let why = format!("the database {database} is not there any more");
    Problem::new("not_restored", why, "Restore it again").into()
}

/// What is renamed is renamed in one transaction, so that there is no state between.
pub(super) fn swap(restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
    let server = Server::of(restoration.part)?;
    let (new, old) = (new_name(restoration), old_name(restoration));
    let (target, wanted) = (&server.address.database, wanted(staged)?);
    let (is, waits) = (server.oid(target)?, server.oid(&new)?);
    let aside = rename(target, &old);
    match (wanted, is, waits) {
        (NOTHING, Some(_), _) if server.oid(&old)?.is_none() => server.ask(&aside).map(drop),
        (NOTHING, ..) => Ok(()),
        (wanted, Some(is), _) if is == wanted => Ok(()),
        (wanted, is, Some(waits)) if waits == wanted => {
            let first = is.map(|_| aside).unwrap_or_default();
            server.ask(&format!("BEGIN; {first} {} COMMIT;", rename(&new, target))).map(drop)
        }
        _ => Err(gone(&new)),
    }
}

fn rename(from: &str, to: &str) -> String {
    format!("ALTER DATABASE {} RENAME TO {};", name(from), name(to))
}

fn wanted(staged: &Staged) -> Result<&str> {
    let noted = staged.get(IDENTITY).map(String::as_str);
    noted.ok_or_else(|| Error::Declared("A restore's state does not say what was staged".into()))
}

pub(super) fn swap_back(restoration: &Restoration<'_>, staged: &Staged) -> Result<()> {
    let server = Server::of(restoration.part)?;
    let (new, old) = (new_name(restoration), old_name(restoration));
    let (target, wanted) = (&server.address.database, wanted(staged)?);
    let (is, was) = (server.oid(target)?, server.oid(&old)?);
    let mut steps = String::new();
    let swapped = is.as_deref() == Some(wanted);
    if swapped {
        steps.push_str(&rename(target, &new));
    }
    if was.is_some() && (swapped || is.is_none()) {
        steps.push_str(&rename(&old, target));
    }
    match steps.is_empty() {
        true => Ok(()),
        false => server.ask(&format!("BEGIN; {steps} COMMIT;")).map(drop),
    }
}

pub(super) fn check(restoration: &Restoration<'_>, absent: bool) -> Result<()> {
    let server = Server::of(restoration.part)?;
    let (is, waits) = (server.oid(&server.address.database)?, server.oid(&new_name(restoration))?);
    match is.is_none() == absent && waits.is_none() {
        true => Ok(()),
        false => Err(gone(&server.address.database)),
    }
}

/// Drops what was put beside, and what stood there if the checkpoint of the present holds exactly that.
pub(super) fn clear(restoration: &Restoration<'_>, end: End) -> Result<Vec<Aside>> {
    let server = Server::of(restoration.part)?;
    let drop_database = |database: &str| {
        server.ask(&format!("DROP DATABASE IF EXISTS {};", name(database))).map(drop)
    };
    drop_database(&new_name(restoration))?;
    let old = old_name(restoration);
    if end == End::Old || server.oid(&old)?.is_none() {
        return Ok(Vec::new());
    }
    let held = match restoration.present {
        Some(present) => {
            let mut dump = server.program("pg_dump", &old, LONG)?.stream()?;
            let mut output =
                dump.output().ok_or_else(|| Error::Declared("No output".to_owned()))?;
            let found = digest(&mut output)?;
            dump.finish(QUICK)?;
            found == (present.digest, true)
        }
        None => false,
    };
    if held {
        drop_database(&old)?;
        return Ok(Vec::new());
    }
    let why = "the checkpoint of the present does not hold exactly this database";
    Ok(vec![Aside { at: format!("the database {old}"), why: why.to_owned() }])
}
