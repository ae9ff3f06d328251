//! Databases of a server that is not ours: they go back without the server being stopped, or anybody thrown
//! out of it.

use chronicle_checkpoint::{Part, PartKind, drivers};
use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::skip;

use crate::contract::{self, Subject};
use crate::scene::{DECLARED, Scene};

/// A server with a database that has more than rows.
pub struct Foreign {
    pub cluster: Cluster,
    _holder: tempfile::TempDir,
}

const MADE: &str = "
CREATE TABLE schema_migrations (version bigint); INSERT INTO schema_migrations VALUES (20260101);
CREATE TABLE customers (id serial PRIMARY KEY, name text, at timestamptz DEFAULT now());
INSERT INTO customers (name) SELECT 'Ann ' || n FROM generate_series(1, 500) n;
CREATE INDEX by_name ON customers (lower(name));
CREATE VIEW named AS SELECT name FROM customers;
CREATE FUNCTION twice(a int) RETURNS int LANGUAGE sql AS 'SELECT 2 * a';
SELECT lo_from_bytea(4711, 'a large object');
";

impl Foreign {
    pub fn new(test: &str) -> Option<Self> {
        let holder = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(holder.path(), open).unwrap();
        let mut cluster = match Cluster::new(&holder.path().join("data")) {
            Ok(cluster) => cluster,
            Err(why) => {
                skip(test, &why);
                return None;
            }
        };
        cluster.start();
        let foreign = Self { cluster, _holder: holder };
        foreign.cluster.sql("CREATE ROLE \"shop owner\" LOGIN CREATEDB");
        foreign.cluster.sql("CREATE DATABASE \"my shop\" OWNER \"shop owner\"");
        foreign.cluster.sql("ALTER DATABASE \"my shop\" SET statement_timeout TO '7s'");
        foreign.cluster.sql("ALTER DATABASE \"my shop\" SET search_path TO public, pg_catalog");
        foreign.cluster.sql("REVOKE CONNECT ON DATABASE \"my shop\" FROM PUBLIC");
        foreign.ask(MADE);
        Some(foreign)
    }

    /// How clients reach the database.
    pub fn address(&self) -> String {
        self.cluster.address().replace("dbname=postgres", "dbname='my shop'")
    }

    pub fn declaration(&self) -> String {
        let address = self.address();
        format!("[[checkpoint.part]]\nname = \"shop\"\ndatabase = \"{address}\"\n")
    }

    pub fn ask(&self, sql: &str) -> String {
        self.try_ask(sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
    }

    pub fn try_ask(&self, sql: &str) -> Result<String, String> {
        let mut psql = self.cluster.client("psql");
        let output = psql
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.address(), "-c", sql])
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// Everything that counts, as text.
    pub fn state(&self) -> String {
        let there = "SELECT count(*) FROM pg_database WHERE datname = 'my shop'";
        let databases = "SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database";
        let mut words = vec![self.cluster.sql(databases)];
        if self.cluster.sql(there) == "1" {
            for question in [
                "SELECT coalesce(string_agg(version::text, ','), '') FROM schema_migrations",
                "SELECT count(*), min(name), max(at) FROM customers",
                "SELECT twice(4), count(*) FROM named",
                "SELECT lo_get(4711)",
                "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'my shop'",
                "SELECT string_agg(a::text, ',' ORDER BY a::text) FROM pg_database d, \
                 aclexplode(d.datacl) a WHERE datname = 'my shop'",
                "SHOW statement_timeout",
                "SHOW search_path",
                "SELECT nextval('customers_id_seq') > 0",
            ] {
                words.push(self.try_ask(question).unwrap_or_else(|_| "none".to_owned()));
            }
        }
        words.join("\n")
    }

    pub fn wreck(&self) {
        self.ask("DROP TABLE customers CASCADE; UPDATE schema_migrations SET version = 1");
    }
}

#[test]
fn a_database_of_somebody_elses_server_comes_back_with_its_code() {
    let test = "database::a_database_of_somebody_elses_server_comes_back_with_its_code";
    let Some(foreign) = Foreign::new(test) else { return };
    let scene = Scene::new(&[DECLARED, &foreign.declaration()].concat());
    let started = || foreign.cluster.sql("SELECT pg_postmaster_start_time()");
    let (new, served_since) = ((scene.state(), foreign.state()), started());
    let made = scene.create().unwrap();
    let locked = made.lock.part("shop").unwrap();
    assert_eq!(locked.schema.as_deref(), Some("rails 20260101"));
    let shown = chronicle_checkpoint::lock_text(&scene.open(), &made.record).unwrap();
    assert!(!shown.contains("host="), "the connection stays in the settings: {shown}");
    scene.wreck();
    foreign.wreck();
    let old = (scene.state(), foreign.state());
    let restored = scene.restore(&made.record.id.hex()).unwrap();
    assert_eq!((scene.state(), foreign.state()), new);
    assert!(restored.asides.is_empty(), "{:?}", restored.asides);
    scene.restore(&restored.present.id.hex()).unwrap();
    assert_eq!((scene.state(), foreign.state()), old);
    // Gone altogether.
    foreign.cluster.sql("DROP DATABASE \"my shop\"");
    let restored = scene.restore(&made.record.id.hex()).unwrap();
    assert_eq!(foreign.state(), new.1);
    scene.restore(&restored.present.id.hex()).unwrap();
    assert!(!foreign.state().contains("my shop"), "nothing stood there");
    assert_eq!(started(), served_since, "nobody's server is stopped");
    let look = scene.at().join("look");
    chronicle_checkpoint::restore_to(&scene.open(), &made.record, &look).unwrap();
    assert!(std::fs::read_to_string(look.join("shop.sql")).unwrap().contains("Ann 500"));
}

#[test]
fn a_database_is_not_taken_away_from_who_is_connected_to_it() {
    let test = "database::a_database_is_not_taken_away_from_who_is_connected_to_it";
    let Some(foreign) = Foreign::new(test) else { return };
    let scene = Scene::new(&[DECLARED, &foreign.declaration()].concat());
    scene.create().unwrap();
    foreign.wreck();
    scene.wreck();
    let old = (scene.state(), foreign.state());
    let mut user = foreign.cluster.client("psql");
    user.args(["-X", "-d", &foreign.address()]).stdin(std::process::Stdio::piped());
    let mut user = user.stdout(std::process::Stdio::null()).spawn().unwrap();
    let connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'my shop' AND application_name = 'psql'";
    while foreign.cluster.sql(connected) != "1" {}
    let refused = scene.restore("latest").unwrap_err();
    assert_eq!(refused.code(), "in_use");
    assert!(refused.to_string().contains("psql (process"), "{refused}");
    assert_eq!(foreign.cluster.sql(connected), "1", "it is still connected");
    drop(user.stdin.take());
    user.wait().unwrap();
    assert_eq!((scene.state(), foreign.state()), old);
}

/// A dump is of one snapshot: what comes after the boundary is not in it, though it is made later.
#[test]
fn universal_keeps_the_contract_with_databases() {
    let test = "database::universal_keeps_the_contract_with_databases";
    let Some(foreign) = Foreign::new(test) else { return };
    let scene = Scene::new(DECLARED);
    let workspace = scene.open();
    let mut part = Part::new("shop", PartKind::Database, std::path::Path::new(""));
    part.parameters.insert("connection".to_owned(), foreign.address());
    let state = || foreign.ask("SELECT version FROM schema_migrations");
    let change = || foreign.wreck();
    let subject = Subject { workspace: &workspace, part, change: &change, state: &state };
    contract::check(drivers::named("universal").unwrap().as_ref(), &subject);
}
