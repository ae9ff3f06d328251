//! A small project: a repository with uncommitted work, a SQLite database in WAL mode, a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::{CreateRequest, Created, Error, RestoreRequest, Restored};
use chronicle_core::{Home, InitOptions, KeySource, Workspace};
use rusqlite::Connection;
use tempfile::TempDir;

/// What `chronicle.toml` says.
pub const DECLARED: &str = "[checkpoint]
[[checkpoint.part]]
git = \".\"
[[checkpoint.part]]
git = \"lib\"
[[checkpoint.part]]
sqlite = \"app.db\"
[[checkpoint.part]]
directory = \"uploads\"
";

pub struct Scene {
    holder: TempDir,
}

impl Scene {
    /// The project, adopted, with this in its settings.
    pub fn new(settings: &str) -> Self {
        let scene = Self::bare(settings);
        scene.adopt();
        scene
    }

    /// The project alone.
    pub fn bare(settings: &str) -> Self {
        let scene = Self { holder: tempfile::tempdir().unwrap() };
        let root = scene.root();
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::create_dir_all(root.join("uploads/deep")).unwrap();
        for place in [root.clone(), root.join("lib")] {
            git(&place, &["init", "-q", "-b", "main"]);
            fs::write(place.join("code.py"), "one\n").unwrap();
            fs::write(place.join(".gitignore"), "app.db*\nlib/\nuploads/\n").unwrap();
            git(&place, &["add", "."]);
            git(&place, &["commit", "-q", "-m", "one"]);
        }
        fs::write(root.join("code.py"), "one\nuncommitted\n").unwrap();
        fs::write(root.join("uploads/deep/file"), "upload\n").unwrap();
        std::os::unix::fs::symlink("deep/file", root.join("uploads/link")).unwrap();
        fs::write(root.join("chronicle.toml"), settings).unwrap();
        scene.execute(
            "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('one');
             CREATE TABLE rows (number INTEGER); INSERT INTO rows VALUES (1), (2), (3);",
        );
        scene
    }

    /// Makes it a workspace whose settings are accepted.
    pub fn adopt(&self) {
        let (mut workspace, _) =
            Workspace::init(&self.home(), &self.root(), &InitOptions::default()).unwrap();
        workspace.accept_config().unwrap();
    }

    pub fn at(&self) -> &Path {
        self.holder.path()
    }

    pub fn root(&self) -> PathBuf {
        self.at().join("project")
    }

    pub fn home(&self) -> Home {
        home_of(self.at())
    }

    pub fn open(&self) -> Workspace {
        Workspace::open(&self.home(), &self.root()).unwrap()
    }

    pub fn execute(&self, statements: &str) {
        let connection = Connection::open(self.root().join("app.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.execute_batch(statements).unwrap();
    }

    /// What an agent does in a bad turn: a commit, models rewritten, the database reset.
    pub fn wreck(&self) {
        let root = self.root();
        fs::write(root.join("code.py"), "two\n").unwrap();
        fs::write(root.join("new.py"), "new\n").unwrap();
        git(&root, &["add", "."]);
        git(&root, &["commit", "-q", "-m", "two"]);
        fs::write(root.join("lib/code.py"), "two\n").unwrap();
        git(&root.join("lib"), &["commit", "-q", "-a", "-m", "two"]);
        self.execute("UPDATE alembic_version SET version_num = 'two'; DELETE FROM rows;");
        fs::remove_file(root.join("uploads/deep/file")).unwrap();
        fs::write(root.join("uploads/other"), "other\n").unwrap();
    }

    /// Everything that counts, as text.
    pub fn state(&self) -> String {
        let root = self.root();
        let mut words = Vec::new();
        for place in [root.clone(), root.join("lib")] {
            words.push(git(&place, &["log", "--format=%s"]));
            words.push(git(&place, &["status", "--porcelain"]));
            git(&place, &["fsck", "--no-dangling"]);
        }
        for file in ["code.py", "new.py", "lib/code.py", "uploads/deep/file", "uploads/other"] {
            words.push(format!("{file}: {:?}", fs::read_to_string(root.join(file)).ok()));
        }
        words.push(format!("{:?}", fs::read_link(root.join("uploads/link")).ok()));
        words.push(self.rows());
        let left = fs::read_dir(&root).unwrap().flatten();
        let left = left.filter(|item| item.file_name().to_string_lossy().contains("staging"));
        words.push(format!("left: {}", left.count()));
        words.join("\n")
    }

    pub fn rows(&self) -> String {
        let path = self.root().join("app.db");
        if !path.exists() {
            return "no database".to_owned();
        }
        let connection = Connection::open(path).unwrap();
        let text = |question: &str| {
            connection.query_row(question, [], |row| row.get::<_, Option<String>>(0)).unwrap()
        };
        assert_eq!(text("PRAGMA integrity_check").unwrap(), "ok");
        let version = text("SELECT version_num FROM alembic_version");
        format!("{version:?} {:?}", text("SELECT group_concat(number) FROM rows"))
    }

    pub fn create(&self) -> Result<Created, Error> {
        chronicle_checkpoint::create(&mut self.open(), &CreateRequest::default())
    }

    pub fn restore(&self, checkpoint: &str) -> Result<Restored, Error> {
        let mut workspace = self.open();
        let record = chronicle_checkpoint::find(&workspace, checkpoint)?;
        chronicle_checkpoint::restore(&mut workspace, &record, &RestoreRequest::default())
    }
}

pub fn home_of(holder: &Path) -> Home {
    let key = KeySource::File(holder.join("key/head.key"));
    Home::at(&holder.join("home")).signed_with(key)
}

pub fn git(place: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false"])
        .args(arguments)
        .current_dir(place)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
