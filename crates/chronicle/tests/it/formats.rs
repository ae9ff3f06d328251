//! Homes of every released version are opened, proven and rewound; `upgrade-check` says what it must of those that
//! are older, newer or damaged, and writes nothing.
//!
//! A home is kept as `tests/fixtures/format-VERSION/home.tar.gz`: the home, the keys, and `moments.json` with what stood
//! in the workspace at some moments. Before a release, make that of the new version with
//! `MAKE_FIXTURE=1 cargo test -p chronicle --test it formats::`.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_core::{Home, KeySource};
use rusqlite::Connection;
use serde_json::Value;
use sha2::Digest;

use crate::doctor::directory;
use crate::retention::live_through;
use crate::support::{Cli, listing};

/// What stands in a workspace: a word for each path.
type Moment = BTreeMap<String, String>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn archive(version: &str) -> PathBuf {
    fixtures().join(format!("format-{version}/home.tar.gz"))
}

/// Everything in the workspace but the metadata of its repository.
fn standing(cli: &Cli) -> Moment {
    let word = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap();
        let mode = stat.permissions().mode() & 0o7777;
        match stat.file_type() {
            kind if kind.is_symlink() => {
                format!("link {}", fs::read_link(path).unwrap().display())
            }
            kind if kind.is_dir() => format!("directory {mode:o}"),
            _ => format!("file {mode:o} {}", blake3::hash(&fs::read(path).unwrap()).to_hex()),
        }
    };
    let root = cli.root();
    let paths = listing(&root).into_iter().filter(|path| !path.starts_with(root.join(".git")));
    paths
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().as_os_str().as_bytes();
            (name.escape_ascii().to_string(), word(&path))
        })
        .collect()
}

fn catalog(cli: &Cli) -> Connection {
    Connection::open(directory(cli).join("catalog.db")).unwrap()
}

/// Remembers what stands there now, by the last record.
fn remember(cli: &Cli, moments: &mut BTreeMap<u64, Moment>) {
    cli.call(["settle"]).ok();
    let last: i64 =
        catalog(cli).query_row("SELECT max(seq) FROM record", [], |row| row.get(0)).unwrap();
    moments.insert(last.cast_unsigned(), standing(cli));
}

fn git(cli: &Cli, words: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(words);
    let done = command.current_dir(cli.root()).env("HOME", cli.root()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A home with something of everything: pruned days, turns, a pack with groups, an object in pieces, a secret, a
/// repository, links and odd names, a rewind, a redo, a pin, a transaction, a checkpoint, a forget, signed heads, a plan.
fn make() -> (Cli, BTreeMap<u64, Moment>) {
    let (cli, mut moments) = (Cli::new(), BTreeMap::new());
    let keys = cli.home().with_file_name(".config").join("chronicle");
    let home = Home::at(&cli.home())
        .signed_with(KeySource::File(keys.join("head.key")))
        .with_secret_key(KeySource::File(keys.join("secret.key")));
    drop(live_through(&home, &cli.root(), 50));
    cli.call(["prune"]).ok();
    cli.turn("one", "make a project", || {
        for number in 0..90 {
            cli.write(&format!("src/{number}.txt"), &format!("file {number}\n").repeat(30));
        }
        cli.write(".env", "TOKEN=Hq3kzV9tRw1x\n");
        let odd = std::ffi::OsStr::from_bytes(b"odd \xff name");
        fs::write(cli.root().join(odd), "odd\n").unwrap();
        std::os::unix::fs::symlink("src/1.txt", cli.root().join("link")).unwrap();
        fs::create_dir(cli.root().join("empty")).unwrap();
        git(&cli, &["init", "-q", "-b", "main"]);
        git(&cli, &["add", "src"]);
        git(&cli, &["commit", "-q", "-m", "first"]);
    });
    remember(&cli, &mut moments);
    cli.call(["pin", "turn:-1", "made"]).ok();
    let line = |number: usize| match number % 997 {
        0 => format!("line {number} is one of its own\n"),
        _ => "this line is like all the others\n".to_owned(),
    };
    cli.turn("one", "add something large", || {
        cli.write("large.txt", &(0..90_000).map(line).collect::<String>());
        cli.write("leak.txt", "nobody should have written this down\n");
        fs::set_permissions(cli.root().join("src/3.txt"), fs::Permissions::from_mode(0o755))
            .unwrap();
        fs::rename(cli.root().join("src/4.txt"), cli.root().join("moved.txt")).unwrap();
    });
    remember(&cli, &mut moments);
    cli.call(["checkpoint", "create", "before"]).ok();
    cli.turn("two", "wreck it", || {
        fs::remove_dir_all(cli.root().join("src")).unwrap();
        fs::remove_file(cli.root().join(".env")).unwrap();
        cli.write("daily", "wrecked\n");
    });
    remember(&cli, &mut moments);
    cli.call(["undo", "--yes"]).ok();
    remember(&cli, &mut moments);
    cli.call(["redo", "--yes"]).ok();
    cli.call(["rewind", "made", "--exact", "--yes"]).ok();
    remember(&cli, &mut moments);
    cli.call(["begin"]).ok();
    cli.write("src/1.txt", "in a transaction\n");
    cli.call(["commit"]).ok();
    cli.call(["forget", "leak.txt", "--yes"]).ok();
    remember(&cli, &mut moments);
    cli.call(["rewind", "made", "--dry-run"]).ok();
    cli.call(["verify", "--deep"]).ok();
    // What was forgotten cannot come back.
    moments.retain(|_, moment| !moment.contains_key("leak.txt"));
    assert!(moments.len() >= 3, "{moments:?}");
    (cli, moments)
}

/// Packs a world: the same names, times and owners whoever makes it.
fn pack(cli: &Cli, moments: &BTreeMap<u64, Moment>, to: &Path) {
    let scratch = cli.home().parent().unwrap().to_owned();
    fs::write(scratch.join("moments.json"), serde_json::to_string(moments).unwrap()).unwrap();
    let words = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    let done = Command::new("tar")
        .args(words)
        .args(["--exclude=*-shm", "--exclude=*.sock", "-I", "gzip -9n", "-cf"])
        .arg(to)
        .args(["-C", scratch.to_str().unwrap(), "home", ".config", "moments.json"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Unpacks a world, whose workspace is an empty directory somewhere else.
fn unpack(from: &Path) -> (Cli, BTreeMap<u64, Moment>) {
    let cli = Cli::new();
    let scratch = cli.home().parent().unwrap().to_owned();
    let done = Command::new("tar").arg("-xzf").arg(from).arg("-C").arg(&scratch).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    // The home says by its path which directory is a workspace; here it is another.
    let roots = cli.home().join("roots");
    for file in fs::read_dir(&roots).unwrap().map(Result::unwrap) {
        fs::remove_file(file.path()).unwrap();
    }
    let (root, id) = (cli.root(), directory(&cli));
    let name = blake3::hash(root.as_os_str().as_bytes()).to_hex()[..32].to_owned();
    let words = format!("{}\n{}", id.file_name().unwrap().to_str().unwrap(), root.display());
    fs::write(roots.join(name), words).unwrap();
    let moments = fs::read_to_string(scratch.join("moments.json")).unwrap();
    (cli, serde_json::from_str(&moments).unwrap())
}

/// The names and bytes of a home.
fn bytes(cli: &Cli) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let all = listing(&cli.home()).into_iter();
    all.map(|path| (path.clone(), path.is_file().then(|| fs::read(&path).unwrap()))).collect()
}

/// Asks, and makes sure that nothing was written.
#[track_caller]
fn check(cli: &Cli, exit: i32) -> Value {
    let before = bytes(cli);
    let report = cli.call(["--json", "upgrade-check"]).exits(exit).json();
    cli.call(["upgrade-check"]).exits(exit);
    let after = bytes(cli);
    let changed: Vec<_> = after.iter().filter(|it| before.get(it.0) != Some(it.1)).collect();
    assert!(changed.is_empty() && before.len() == after.len(), "written: {:?}", changed[0].0);
    report
}

/// A rewind whose owner may be another than the person who made the home.
#[track_caller]
fn rewinds(cli: &Cli, words: &[&str]) {
    let done = cli.call(words);
    let as_root = rustix::process::geteuid().is_root();
    assert!(done.status == 0 || !as_root && done.status == 4, "{words:?}: {done:?}");
}

/// Everything that a home of an earlier version must still be good for.
fn is_good(from: &Path) {
    let (cli, moments) = unpack(from);
    let report = check(&cli, 0);
    assert!(["current", "older", "migrates"].contains(&report["verdict"].as_str().unwrap()));
    let workspace = &report["workspaces"][0];
    assert!(workspace["records"].as_u64().unwrap() > 100, "{report}");
    assert!(workspace["reads"] == true && workspace["writes"] == true, "{report}");
    for (number, (seq, moment)) in moments.iter().enumerate() {
        let target = format!("seq:{seq}");
        let mut words = vec!["rewind", &target, "--exact", "--yes"];
        words.extend((number == 0).then_some("--recreate-root"));
        rewinds(&cli, &words);
        assert_eq!(&standing(&cli), moment, "{seq}");
    }
    cli.call(["verify", "--deep"]).ok();
    rewinds(&cli, &["rewind", "made", "--exact", "--yes"]);
    assert_eq!(cli.read(".env").as_deref(), Some("TOKEN=Hq3kzV9tRw1x\n"));
    cli.call(["checkpoint", "verify", "before"]).ok();
    cli.turn("new", "go on", || cli.write("src/2.txt", "more\n"));
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(cli.read("src/2.txt").unwrap(), "file 2\n".repeat(30));
    assert!(cli.call(["log"]).ok().stdout.contains("make a project"));
    cli.call(["doctor"]).ok();
    let commit = Command::new("git").args(["-C", cli.root().to_str().unwrap(), "log"]).output();
    assert!(commit.unwrap().status.success(), "the repository came back");
}

#[test]
fn homes_of_every_released_version_are_opened_proven_and_rewound() {
    let mut versions = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        versions.extend(name.strip_prefix("format-").map(str::to_owned));
    }
    versions.sort();
    versions.iter().for_each(|version| is_good(&archive(version)));
    let this = env!("CARGO_PKG_VERSION");
    assert!(
        versions.iter().any(|version| version == this),
        "no home of {this}: see the head of this file"
    );
}

/// What makes the next one cannot rot, and what it makes is as good.
#[test]
fn a_home_of_this_version_can_be_made() {
    let (cli, moments) = make();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("home.tar.gz");
    pack(&cli, &moments, &file);
    is_good(&file);
    if std::env::var_os("MAKE_FIXTURE").is_some() {
        let to = archive(env!("CARGO_PKG_VERSION"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&file, to).unwrap();
    }
}

/// A copy of the home of this version with something done to it.
#[track_caller]
fn after(damage: impl FnOnce(&Cli), exit: i32, verdict: &str) -> (Cli, Value) {
    let (cli, _) = unpack(&archive(env!("CARGO_PKG_VERSION")));
    damage(&cli);
    let report = check(&cli, exit);
    assert_eq!(report["verdict"], verdict, "{report}");
    (cli, report)
}

fn first(cli: &Cli, ending: &str) -> PathBuf {
    let is_it = |path: &PathBuf| path.to_str().unwrap().ends_with(ending);
    listing(&cli.home().join("store")).into_iter().find(is_it).unwrap()
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn what_a_newer_chronicle_wrote_is_named_and_left_alone() {
    let (cli, report) =
        after(|cli| catalog(cli).execute_batch("PRAGMA user_version = 99").unwrap(), 3, "newer");
    assert_eq!(report["workspaces"][0]["formats"][0]["found"], serde_json::json!([99]));
    assert_eq!(report["workspaces"][0]["writes"], false);
    assert_eq!(cli.call(["--json", "log"]).exits(1).error()["code"], "newer_format");
    let words = cli.call(["upgrade-check"]).exits(3).stdout;
    assert!(words.contains("written by a newer Chronicle"), "{words}");
    let mark =
        |cli: &Cli| fs::write(cli.home().join("store/format"), "chronicle store 2\n").unwrap();
    let (cli, _) = after(mark, 3, "newer");
    assert_eq!(cli.call(["--json", "log"]).exits(1).error()["code"], "newer_format");
    after(|cli| put(&first(cli, ".idx"), 8, &[9]), 3, "newer");
    after(|cli| put(&first(cli, ".pack"), 8, &[9]), 3, "newer");
    after(|cli| put(&listing(&cli.home().join("store/objects"))[1], 0, &[9]), 3, "newer");
    let journal = |cli: &Cli| {
        fs::create_dir_all(directory(cli).join("mount")).unwrap();
        fs::write(directory(cli).join("mount/journal-0000000000000001"), "chr-mnt2").unwrap();
    };
    after(journal, 3, "newer");
    let run = |cli: &Cli| {
        fs::create_dir_all(directory(cli).join("isolated/one")).unwrap();
        fs::write(directory(cli).join("isolated/one/state"), "chriso\0\u{2}").unwrap();
    };
    let (_, report) = after(run, 3, "newer");
    assert!(!report["workspaces"][0]["unfinished"].as_array().unwrap().is_empty());
}

/// A record that is as it was written, and says what this program does not know.
#[test]
fn a_record_of_a_newer_chronicle_is_no_damage() {
    let newer = |cli: &Cli| {
        let catalog = catalog(cli);
        let sql = "SELECT max(seq) FROM record WHERE leaf <> x''";
        let seq: i64 = catalog.query_row(sql, [], |row| row.get(0)).unwrap();
        let sql = "SELECT leaf FROM record WHERE seq = ?1";
        let mut leaf: Vec<u8> = catalog.query_row(sql, [seq], |row| row.get(0)).unwrap();
        leaf[0] = 2;
        let hash = sha2::Sha256::new().chain_update([0]).chain_update(&leaf).finalize().to_vec();
        let sql = "UPDATE record SET leaf = ?2, leaf_hash = ?3 WHERE seq = ?1";
        catalog.execute(sql, (seq, leaf, hash)).unwrap();
    };
    let (_, report) = after(newer, 3, "newer");
    assert_eq!(report["workspaces"][0]["formats"][1]["found"], serde_json::json!([1, 2]));
}

#[test]
fn damage_is_told_from_a_newer_version() {
    let wreck = |cli: &Cli| {
        let (path, catalog) = (directory(cli).join("catalog.db"), catalog(cli));
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        catalog.query_row(sql, [], |_| Ok(())).unwrap();
        drop(catalog);
        put(&path, 0, &[0xa5; 200]);
    };
    let (cli, report) = after(wreck, 12, "damaged");
    assert_eq!(report["workspaces"][0]["reads"], false);
    assert!(cli.call(["upgrade-check"]).exits(12).stdout.contains("chronicle doctor"));
    let flip = "UPDATE record SET leaf = CAST(x'01ff' || substr(leaf, 3) AS BLOB) WHERE seq =
                (SELECT max(seq) FROM record WHERE leaf <> x'')";
    after(|cli| assert_eq!(catalog(cli).execute(flip, []).unwrap(), 1), 12, "damaged");
    after(|cli| put(&first(cli, ".pack"), 0, b"garbage!"), 12, "damaged");
    after(|cli| fs::write(cli.home().join("store/format"), "who knows\n").unwrap(), 12, "damaged");
}

#[test]
fn an_older_catalog_is_migrated_when_it_is_used_and_not_before() {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    cli.turn("s", "edit it", || cli.write("a.txt", "2\n"));
    // As the version before left it.
    let sql = "ALTER TABLE record DROP COLUMN packed; PRAGMA user_version = 4";
    catalog(&cli).execute_batch(sql).unwrap();
    let report = check(&cli, 0);
    assert_eq!(report["verdict"], "migrates", "{report}");
    assert!(report["workspaces"][0]["records"].as_u64().unwrap() > 3, "{report}");
    assert!(report["bytes_needed"].as_u64().unwrap() > 0, "{report}");
    assert!(report["bytes_free"].as_u64().unwrap() > 0, "{report}");
    let words = cli.call(["upgrade-check"]).ok().stdout;
    assert!(words.contains("older, will be migrated") && words.contains("cp -a"), "{words}");
    cli.call(["undo", "--yes"]).ok();
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
    assert_eq!(check(&cli, 0)["verdict"], "current");
    cli.call(["verify", "--deep"]).ok();
}

#[test]
fn a_home_that_is_in_use_is_looked_at_and_who_uses_it_is_named() {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    let held = fs::File::open(directory(&cli).join("lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // Somebody writes: what is in his log and not yet in the file counts too.
    let writer = catalog(&cli);
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO state VALUES ('under_way', x'00')").unwrap();
    let report = cli.call(["--json", "upgrade-check"]).ok().json();
    assert_eq!(
        report["workspaces"][0]["running"],
        serde_json::json!(["a command that changes it"])
    );
    assert_eq!(report["workspaces"][0]["unfinished"], serde_json::json!([]));
    writer.execute_batch("COMMIT").unwrap();
    let report = cli.call(["--json", "upgrade-check"]).ok().json();
    assert!(!report["workspaces"][0]["unfinished"].as_array().unwrap().is_empty(), "{report}");
}

#[test]
fn without_a_home_there_is_nothing_to_check() {
    let cli = Cli::new();
    cli.call(["upgrade-check"]).exits(10);
    cli.call(["upgrade-check", "--formats", "--bucket"]).exits(2);
    assert!(!cli.home().exists());
}

/// The table in docs/format.md is what the program says.
#[test]
fn every_format_number_is_in_the_documents() {
    let said = Cli::new().call(["upgrade-check", "--formats"]).ok().stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("## Numbers", "|---|---|---|\n");
    let from = text.find(begin).unwrap();
    let from = from + text[from..].find(end).unwrap() + end.len();
    let to = from + text[from..].find("\n\n").unwrap() + 1;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{said}{}", &text[..from], &text[to..])).unwrap();
    } else {
        assert_eq!(text[from..to], said, "run this test with UPDATE_DOCS=1");
    }
}
