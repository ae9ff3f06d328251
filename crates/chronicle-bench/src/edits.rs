//! The figures of many small edits: what they add to the store, and what making them small costs.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use chronicle_core::{Home, InitOptions, ObjectId, Workspace, pack_object, pack_version};

use crate::measure::{Result, median, micros};
use crate::rows::Row;

const FILES: usize = 200;
const EDITS: usize = 1000;

pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let mut project = Project::new();
    let (top, home) = (scratch.join("edits"), scratch.join("home-edits"));
    for file in 0..FILES {
        project.write(&top, file)?;
    }
    let (mut workspace, _) = Workspace::init(&Home::at(&home), &top, &InitOptions::default())?;
    let mut import = project.first_commit();
    let (before, records) = (contents(&home)?, catalog_bytes(&home)?);
    let (mut plain, mut delta) = (Vec::new(), Vec::new());
    for edit in 0..EDITS {
        let file = edit * 7919 % FILES;
        let old = project.text(file);
        project.edit(file, edit);
        project.write(&top, file)?;
        workspace.settle()?;
        project.commit(&mut import, file, edit);
        let new = project.text(file);
        plain.push(micros(|| Ok(pack_object(new.as_bytes())))?);
        let base = ObjectId::of(old.as_bytes());
        delta.push(micros(|| Ok(pack_version(new.as_bytes(), &base, old.as_bytes())))?);
    }
    let grown = contents(&home)? - before;
    let whole = catalog_bytes(&home)? - records;
    eprintln!("{EDITS} edits: {grown} bytes of content, {whole} bytes of catalog");
    let pack = git_pack(&scratch.join("edits-git"), &import)?;
    let bytes = |what: &str, ours: u64, limit: u64, beside: &'static str, bound| Row {
        what: what.to_owned(),
        ours: ours as f64 / 1e6,
        limit: limit as f64 / 1e6,
        unit: "MB",
        beside,
        bound,
    };
    Ok(vec![
        bytes(
            &format!("{EDITS} small edits of {FILES} files: growth of the store"),
            grown,
            pack,
            "the pack that git gc makes of the same versions",
            0.5,
        ),
        Row {
            what: "one of them kept against the version before".to_owned(),
            ours: median(delta),
            limit: median(plain),
            unit: "us",
            beside: "compressed alone",
            bound: 2.0,
        },
    ])
}

/// Files of source-like lines, each as it is now.
struct Project(Vec<Vec<String>>);

impl Project {
    fn new() -> Self {
        let line = |file: usize, n: usize| {
            let word = (file * 131 + n * 7919) % 4093;
            format!("    let value_{word:x} = compute_{:x}(input, {});", word * 17 % 997, n % 50)
        };
        let text = |file| (0..100 + file % 40).map(|n| line(file, n)).collect();
        Self((0..FILES).map(text).collect())
    }

    /// Changes one to five lines.
    fn edit(&mut self, file: usize, edit: usize) {
        let lines = &mut self.0[file];
        for n in 0..=edit % 5 {
            let at = (edit * 104_729 + n * 31) % lines.len();
            lines[at] = format!("    let edited_{edit}_{n} = changed({});", edit * n);
        }
        if edit.is_multiple_of(3) {
            lines.insert(edit % lines.len(), format!("    // Added by edit {edit}."));
        }
    }

    fn text(&self, file: usize) -> String {
        self.0[file].join("\n") + "\n"
    }

    fn write(&self, top: &Path, file: usize) -> Result<()> {
        let path = top.join(name(file));
        fs::create_dir_all(path.parent().ok_or("a file lies in a directory")?)?;
        Ok(fs::write(path, self.text(file))?)
    }

    fn first_commit(&self) -> String {
        let mut import = String::new();
        begin(&mut import, "first");
        (0..FILES).for_each(|file| self.add(&mut import, file));
        import
    }

    fn commit(&self, import: &mut String, file: usize, edit: usize) {
        begin(import, &format!("edit {edit}"));
        self.add(import, file);
    }

    fn add(&self, import: &mut String, file: usize) {
        let text = self.text(file);
        let (name, length) = (name(file), text.len());
        write!(import, "M 100644 inline {name}\ndata {length}\n{text}\n").expect("memory");
    }
}

fn name(file: usize) -> String {
    format!("src/d{}/file{file}.rs", file % 10)
}

fn begin(import: &mut String, message: &str) {
    let length = message.len();
    write!(
        import,
        "commit refs/heads/main\ncommitter t <t@example.org> 1700000000 +0000\n\
         data {length}\n{message}\n"
    )
    .expect("memory");
}

/// The bytes of all content in a home, in its stored form.
fn contents(home: &Path) -> Result<u64> {
    let catalog = rusqlite::Connection::open(catalog(home)?)?;
    let sql = "SELECT coalesce(sum(length(id) + length(stored)), 0) FROM object";
    let rows: i64 = catalog.query_row(sql, [], |row| row.get(0))?;
    let store = chronicle_core::LocalStore::open(&home.join("store"))?;
    Ok(rows.cast_unsigned() + store.stored_bytes()?)
}

fn catalog(home: &Path) -> Result<std::path::PathBuf> {
    let first = fs::read_dir(home.join("workspaces"))?.next().ok_or("no workspace")??;
    Ok(first.path().join("catalog.db"))
}

fn catalog_bytes(home: &Path) -> Result<u64> {
    Ok(fs::metadata(catalog(home)?)?.len())
}

/// The size of the pack after `git gc`.
fn git_pack(directory: &Path, import: &str) -> Result<u64> {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(directory).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        git
    };
    fs::create_dir_all(directory)?;
    crate::measure::run(&mut git(&["init", "-q"]), &[0])?;
    let mut child = git(&["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(import.as_bytes())?;
    if !child.wait()?.success() {
        return Err("git fast-import failed".into());
    }
    crate::measure::run(&mut git(&["gc", "-q", "--prune=now"]), &[0])?;
    let mut bytes = 0;
    for entry in fs::read_dir(directory.join(".git/objects/pack"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|end| end == "pack") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
