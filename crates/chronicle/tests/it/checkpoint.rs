//! The newcomer's walk: a small web application with migrations, an agent's turn that resets the database and
//! rewrites the models, one command, and everything runs again.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Cli;

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
