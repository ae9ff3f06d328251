//! The newcomer's walk: a small web application with migrations, an agent's turn that resets the database and
//! rewrites the models, one command, and everything runs again.

use std::fs;
use std::path::Path;
use std::process::Command;

use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::skip;
use serde_json::Value;

use crate::support::Cli;
use crate::terminal::Terminal;

const APPLICATION: &str = r#"
import http.server, json, sqlite3, sys, threading, urllib.request
import models

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with sqlite3.connect("shop.db") as db:
            rows = db.execute(f"SELECT {', '.join(models.FIELDS)} FROM customers").fetchall()
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps(rows).encode())
    def log_message(self, *words): pass

if __name__ == "__main__":
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read().decode())
"#;

const MIGRATE: &str = r#"
import sqlite3
db = sqlite3.connect("shop.db")
db.execute("PRAGMA journal_mode = wal")
db.executescript("""
CREATE TABLE IF NOT EXISTS schema_migrations (version TEXT);
INSERT INTO schema_migrations VALUES ('20260101');
CREATE TABLE customers (name TEXT, mail TEXT);
INSERT INTO customers VALUES ('Ann', 'ann@example.org'), ('Bea', 'bea@example.org');
""")
"#;

const TESTS: &str = r#"
import sqlite3, unittest, models
class Shop(unittest.TestCase):
    def test_every_field_is_a_column(self):
        db = sqlite3.connect("shop.db")
        columns = [row[1] for row in db.execute("PRAGMA table_info(customers)")]
        self.assertEqual(models.FIELDS, columns)
"#;

fn python(root: &Path, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new("python3").args(arguments).current_dir(root).output().expect("python runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_application_with_migrations_survives_an_agent_that_resets_its_database() {
    let env = Cli::new();
    let root = &env.root().to_owned();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]).args(words);
        assert!(command.current_dir(root).status().unwrap().success(), "git {words:?}");
    };
    let write = |name: &str, text: &str| fs::write(root.join(name), text).unwrap();
    write("app.py", APPLICATION);
    write("migrate.py", MIGRATE);
    write("test_shop.py", TESTS);
    write("models.py", "FIELDS = ['name', 'mail']\n");
    write(".gitignore", "shop.db*\n__pycache__/\n");
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "shop"]);
    assert!(python(root, &["migrate.py"]).0);
    let page = python(root, &["app.py"]);
    assert!(page.0 && page.1.contains("bea@example.org"), "{page:?}");

    env.call(["init"]).ok();
    env.call(["checkpoint", "create", "before-agent"]).ok();

    // The agent's turn: models rewritten and committed, the database reset.
    env.call(["turn", "start"]).ok();
    write("models.py", "FIELDS = ['full_name']\n");
    git(&["commit", "-q", "-a", "-m", "simplify"]);
    fs::remove_file(root.join("shop.db")).unwrap();
    assert!(python(root, &["-c", "import sqlite3; sqlite3.connect('shop.db').execute('CREATE TABLE customers (full_name TEXT)')"]).0);
    env.call(["turn", "end"]).ok();
    assert!(!python(root, &["app.py"]).1.contains("bea@example.org"));

    env.call(["checkpoint", "restore", "before-agent", "--yes"]).ok();
    assert_eq!(python(root, &["app.py"]), page);
    assert!(python(root, &["-m", "unittest", "-q"]).0);
    env.call(["checkpoint", "verify"]).ok();
    env.call(["verify", "--deep"]).ok();
}

#[test]
fn checkpoints_are_listed_compared_looked_at_and_dropped() {
    let parts =
        "[[checkpoint.part]]\nsqlite = 'app.db'\n[[checkpoint.part]]\ndirectory = 'uploads'\n";
    let cli = Cli::adopted(&[("chronicle.toml", parts), ("uploads/a", "1"), ("code", "1")]);
    let sql = |text: &str| {
        let root = cli.root();
        assert!(
            python(
                &root,
                &[
                    "-c",
                    &format!("import sqlite3; sqlite3.connect('app.db').executescript({text:?})")
                ]
            )
            .0
        );
    };
    sql("CREATE TABLE t (a); PRAGMA user_version = 1");
    cli.call(["checkpoint", "create", "one"]).ok();
    sql("DROP TABLE t; PRAGMA user_version = 2");
    cli.call(["checkpoint", "create", "two"]).ok();
    let diff = cli.call(["checkpoint", "diff", "one", "two", "--json"]).ok().json();
    let change = |name: &str| {
        let parts = diff["parts"].as_array().expect("parts");
        parts.iter().find(|part| part["part"] == name).expect("the part").clone()
    };
    assert_eq!(change("uploads")["change"], "same", "{diff}");
    assert_eq!(change("app.db")["from"], "user_version 1", "{diff}");
    assert_eq!(change("app.db")["to"], "user_version 2", "{diff}");
    // One part is refused, with words and without changing anything.
    for reason in [&[][..], &["--partial-anyway", ""]] {
        let words = ["checkpoint", "restore", "one", "--part", "app.db", "--yes", "--json"];
        let refused = cli.call(words.iter().chain(reason)).exits(3).error();
        assert_eq!(refused["code"], "partial");
    }
    let look = cli.home().with_file_name("look");
    cli.call(["checkpoint", "restore", "one", "--to", look.to_str().expect("a path")]).ok();
    assert_eq!(fs::read_to_string(look.join("uploads/a")).expect("the data"), "1");
    assert!(look.join("app.db").exists() && look.join("chronicle.lock").exists());
    let again = cli.call(["checkpoint", "restore", "one", "--to", look.to_str().expect("a path")]);
    assert!(again.exits(1).stderr.contains("exists"), "nothing is written over");
    cli.call(["checkpoint", "restore", "one", "--yes"]).ok();
    let count = || {
        let all = cli.call(["checkpoint", "list", "--json"]).ok().json();
        all["checkpoints"].as_array().expect("a list").len()
    };
    assert_eq!(count(), 3);
    cli.call(["checkpoint", "prune", "--keep", "0", "--dry-run"]).ok();
    assert_eq!(count(), 3);
    cli.call(["checkpoint", "prune", "--keep", "0"]).ok();
    assert_eq!(count(), 2, "what has a name stays");
    cli.call(["checkpoint", "prune", "two"]).ok();
    cli.call(["checkpoint", "verify"]).ok();
    assert_eq!(count(), 1);
}

/// The shop, in a workspace, with its databases.
struct Shop {
    cli: Cli,
    cluster: Cluster,
    _holder: tempfile::TempDir,
}

const FILES: [(&str, &str); 7] = [
    ("app.py", include_str!("shop/app.py")),
    ("migrate.py", include_str!("shop/migrate.py")),
    ("test_shop.py", include_str!("shop/test_shop.py")),
    ("models.py", "FIELDS = ['name', 'mail']\nVISITS = 'seen'\n"),
    ("migrations/001.sql", "CREATE TABLE customers (name text)"),
    (
        "migrations/002.sql",
        "ALTER TABLE customers ADD mail text; INSERT INTO customers VALUES ('Bea', 'bea@example.org')",
    ),
    (".gitignore", "visits.db*\n__pycache__/\n"),
];

impl Shop {
    fn new(test: &str) -> Option<Self> {
        let holder = tempfile::tempdir().expect("a place");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(holder.path(), open).expect("open to the server's user");
        let mut cluster = match Cluster::new(&holder.path().join("data")) {
            Ok(cluster) => cluster,
            Err(why) => {
                skip(test, &why);
                return None;
            }
        };
        cluster.start();
        cluster.sql("CREATE DATABASE shop");
        let shop = Self { cli: Cli::new(), cluster, _holder: holder };
        for (name, text) in FILES {
            shop.cli.write(name, text);
        }
        shop.git(&["init", "-q", "-b", "main"]);
        shop.git(&["add", "."]);
        shop.git(&["commit", "-q", "-m", "shop"]);
        assert!(shop.python(&["migrate.py"]).0);
        Some(shop)
    }

    fn address(&self) -> String {
        self.cluster.address().replace("dbname=postgres", "dbname=shop")
    }

    fn git(&self, words: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]).args(words);
        assert!(
            command.current_dir(self.cli.root()).status().expect("git runs").success(),
            "git {words:?}"
        );
    }

    fn python(&self, words: &[&str]) -> (bool, String) {
        let mut command = Command::new("python3");
        command.args(words).current_dir(self.cli.root()).env("SHOP", self.address());
        let output = command.output().expect("python runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What a newcomer writes, and accepts on his terminal.
    fn adopt(&self, part: &str) {
        let when = "[checkpoint.when]\ncommands = ['migrate.py reset']\n";
        let parts = "[[checkpoint.part]]\ngit = '.'\n[[checkpoint.part]]\nsqlite = 'visits.db'\n";
        self.cli.write("chronicle.toml", &[when, parts, part].concat());
        self.cli.call(["init"]).ok();
        let (screen, status) = Terminal::new().run(self.cli.command(["config", "accept", "--yes"]));
        assert_eq!(status, 0, "{screen}");
    }

    /// The agent's turn, in a process of its own.
    fn bad_turn(&self) {
        let ours = self.cli.command([""; 0]);
        let mut agent = Command::new("python3");
        agent.args(["-c", include_str!("shop/agent.py")]).current_dir(self.cli.root());
        for (name, value) in ours.get_envs() {
            agent.env(name, value.unwrap_or_default());
        }
        agent.env("SHOP", self.address()).env("CHRONICLE_PROGRAM", ours.get_program());
        let done = agent.output().expect("the agent runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Resets everything by an agent, restores once, and looks whether it all runs.
    fn walk(&self, part: &str) {
        let page = self.python(&["app.py"]);
        assert!(page.0 && page.1.contains("bea@example.org"), "{page:?}");
        self.adopt(part);
        self.bad_turn();
        assert!(!self.python(&["app.py"]).1.contains("bea@example.org"));
        assert!(!self.python(&["-m", "unittest", "-q"]).0);
        let all = self.cli.call(["checkpoint", "list", "--json"]).ok().json();
        let made = all["checkpoints"].as_array().expect("a list");
        assert_eq!(made.len(), 1, "the hook made it: {all}");
        let schema = |name: &str| {
            let parts = made[0]["parts"].as_array().expect("parts");
            let part = parts.iter().find(|part| part["name"] == name).expect("the part");
            part["schema_revision"].clone()
        };
        assert!(schema("customers").to_string().contains("rails 002"), "{all}");
        // What cannot be taken back is listed before anything is asked or done.
        let plan =
            self.cli.call(["checkpoint", "restore", "latest", "--dry-run", "--json"]).ok().json();
        assert_eq!(plan["would_restore"], Value::Bool(true), "{plan}");
        let stays = plan["irreversible"].as_array().expect("a list");
        let stays: Vec<_> = stays.iter().map(|it| it["path"].as_str().expect("words")).collect();
        assert_eq!(stays, ["git push origin main"], "{plan}");
        let terminal = Terminal::new();
        terminal.type_in("n\r");
        let (screen, status) = terminal.run(self.cli.command(["checkpoint", "restore", "latest"]));
        assert_eq!(status, 3, "{screen}");
        assert!(screen.contains("stays    git push origin main"), "{screen}");
        assert!(screen.contains("goes back over 1 effect"), "{screen}");
        let done = self.cli.call(["checkpoint", "restore", "latest", "--yes"]).ok();
        assert!(done.stderr.contains("stays    git push origin main"), "{}", done.stderr);
        self.cluster.wait_until_up();
        assert_eq!(self.python(&["app.py"]), page);
        let tests = self.python(&["-m", "unittest", "-q"]);
        assert!(tests.0, "{tests:?}");
        self.cli.call(["checkpoint", "verify"]).ok();
        self.cli.call(["verify", "--deep"]).ok();
    }
}

#[test]
fn an_agents_turn_that_resets_both_databases_and_rewrites_the_models_goes_back_by_one_command() {
    let test = "checkpoint::an_agents_turn_that_resets_both_databases_and_rewrites_the_models_goes_back_by_one_command";
    let Some(shop) = Shop::new(test) else { return };
    // A database of a server that is somebody else's.
    let part =
        format!("[[checkpoint.part]]\nname = 'customers'\ndatabase = \"{}\"\n", shop.address());
    shop.walk(&part);
}

#[test]
fn the_same_with_the_whole_cluster_as_a_part() {
    let test = "checkpoint::the_same_with_the_whole_cluster_as_a_part";
    let Some(shop) = Shop::new(test) else { return };
    let part =
        format!("[[checkpoint.part]]\nname = 'customers'\npostgres = {:?}\n", shop.cluster.data());
    shop.walk(&part);
}
