//! Secrets are kept sealed and shown only when asked for; what is forgotten is nowhere any more.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use chronicle_core::{Home, KeySource, Workspace};

use crate::hooks::Talk;
use crate::support::{Cli, listing};

/// Text that cannot be mistaken, and that compressing leaves as it is.
pub(crate) const MARKER: &str = "Zq7vK1xW9pLm3RtYc8BnDs";
pub(crate) const OTHER: &str = "Hj4gT6uFo2QaXe5ViNk0Mb";

/// The files below a directory that hold these bytes anywhere.
pub(crate) fn holding(directory: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let content = fs::read(path).unwrap_or_default();
        content.windows(bytes.len()).any(|window| window == bytes)
    };
    listing(directory).into_iter().filter(|path| path.is_file()).filter(holds).collect()
}

#[track_caller]
pub(crate) fn assert_nowhere(cli: &Cli, text: &str) {
    assert_eq!(holding(&cli.home(), text.as_bytes()), Vec::<PathBuf>::new());
}

fn key(cli: &Cli) -> PathBuf {
    cli.home().with_file_name(".config").join("chronicle/secret.key")
}

/// What a person says on a terminal.
pub(crate) fn accept(cli: &Cli) {
    let home = Home::at(&cli.home()).with_secret_key(KeySource::File(key(cli)));
    let mut workspace = Workspace::open(&home, &cli.root()).expect("open");
    workspace.accept_config().expect("accept");
}

pub(crate) fn hash(cli: &Cli, path: &str) -> String {
    let versions = cli.call(["--json", "history", path]).ok().json_lines();
    versions[0]["change"]["after"]["hash"].as_str().expect("a hash").to_owned()
}

fn secret_line(marker: &str) -> String {
    format!("A=1\nTOKEN={marker}\nB=2\n")
}

#[test]
fn a_secret_is_nowhere_in_the_home_and_comes_back_exactly() {
    let cli = Cli::adopted(&[(".env", &secret_line(MARKER)), ("plain", OTHER)]);
    assert_nowhere(&cli, MARKER);
    assert!(!holding(&cli.home(), OTHER.as_bytes()).is_empty(), "the search finds plain content");
    assert_eq!(fs::metadata(key(&cli)).unwrap().permissions().mode() & 0o777, 0o600);

    cli.turn("s", "break it", || cli.write(".env", "A=1\n"));
    cli.call(["rewind", "start", "--yes"]).ok();
    assert_eq!(cli.read(".env").unwrap(), secret_line(MARKER));
    assert_nowhere(&cli, MARKER);
    cli.call(["verify", "--deep"]).ok();

    // Much at once goes into packs, large content into files of its own.
    for number in 0..100 {
        cli.write(&format!("many/{number}.pem"), &format!("{MARKER} {number}"));
    }
    cli.write("large.key", &format!("{MARKER}{}", OTHER.repeat(300_000)));
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, MARKER);
    cli.turn("s", "remove them", || {
        fs::remove_dir_all(cli.root().join("many")).unwrap();
        fs::remove_file(cli.root().join("large.key")).unwrap();
    });
    cli.call(["undo", "turn:2", "--yes"]).ok();
    assert_eq!(cli.read("many/7.pem").unwrap(), format!("{MARKER} 7"));
    assert_eq!(cli.read("large.key").unwrap().len(), MARKER.len() + OTHER.len() * 300_000);
    cli.call(["gc"]).ok();
    cli.call(["verify", "--deep"]).ok();
    assert_nowhere(&cli, MARKER);
}

#[test]
fn equal_secrets_are_kept_once_under_a_name_that_cannot_be_guessed() {
    let cli = Cli::adopted(&[(".env", MARKER), ("a/.env.local", MARKER), ("plain", MARKER)]);
    assert_eq!(hash(&cli, ".env"), hash(&cli, "a/.env.local"));
    assert_ne!(hash(&cli, ".env"), hash(&cli, "plain"));
    let version = &cli.call(["--json", "history", ".env"]).ok().json_lines()[0];
    assert_eq!(version["change"]["after"]["secret"], true);
}

#[test]
fn secrets_are_known_by_what_stands_in_them_and_by_what_people_set() {
    let token = format!("ghp_{MARKER}0123456789abcd");
    let cli = Cli::adopted(&[
        ("chronicle.toml", "[secrets]\nencrypt = [\"*.hidden\"]\n"),
        ("src/config.py", &format!("token = \"{token}\"\n")),
        ("notes.hidden", MARKER),
    ]);
    assert_nowhere(&cli, MARKER);
    fs::write(cli.home().join("config.toml"), "[secrets]\nencrypt = [\"*.everywhere\"]\n").unwrap();
    cli.write("x.everywhere", MARKER);
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, MARKER);
    // What weakens waits for a person; what seals more holds at once.
    cli.write(
        "chronicle.toml",
        "[secrets]\nencrypt = [\"*.hidden\", \"*.too\"]\nnever = [\"vault/**\"]\nplain = [\"*.hidden\"]\n",
    );
    cli.write("new.hidden", &format!("{MARKER} again"));
    cli.write("x.too", MARKER);
    let status = cli.call(["--json", "status"]).ok().json();
    assert!(status["pending_config"].to_string().contains("vault/**"), "{status}");
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, MARKER);
    accept(&cli);
    cli.write("new.hidden", &format!("{OTHER} plain"));
    cli.write("vault/a", MARKER);
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, MARKER);
    assert!(!holding(&cli.home(), OTHER.as_bytes()).is_empty());
    // What is never kept is never touched either.
    cli.turn("s", "change the vault", || cli.write("vault/a", OTHER));
    let done = cli.call(["undo", "turn:1", "--yes"]);
    assert!(matches!(done.status, 0 | 3 | 4), "{done:?}");
    assert_eq!(cli.read("vault/a").unwrap(), OTHER);
}

#[test]
fn secret_content_is_printed_only_by_cat() {
    let cli = Cli::adopted(&[(".env", &secret_line(MARKER)), ("plain", "x\n")]);
    cli.turn("s", "change it", || cli.write(".env", &secret_line(OTHER)));
    let id = cli.call(["--json", "log"]).ok().json_lines()[0]["id"].as_str().unwrap().to_owned();
    for call in [
        &["diff", "start", "--patch"][..],
        &["show", &id, "--patch"],
        &["--json", "diff", "start", "--patch"],
        &["rewind", "start", "--dry-run"],
    ] {
        let done = cli.call(call).ok();
        assert!(!done.stdout.contains(MARKER) && !done.stdout.contains(OTHER), "{done:?}");
        if call.contains(&"--patch") {
            assert!(done.stdout.contains("Secret content is not shown"), "{done:?}");
        }
    }
    cli.call(["grep", MARKER]).exits(1);
    assert_eq!(cli.call(["cat", ".env", "--at", "start"]).ok().stdout, secret_line(MARKER));
}

#[test]
fn what_others_did_to_a_secret_is_merged_and_stays_sealed() {
    let line = |a: &str, z: &str| format!("A={a}\nB=2\nC=3\nD=4\nE=5\nZ={z}\n");
    let cli = Cli::adopted(&[(".env", &line("1", "1"))]);
    cli.turn("s", "first line", || cli.write(".env", &line("agent", "1")));
    cli.write(".env", &line("agent", MARKER));
    cli.call(["rewind", "start", "--yes"]).ok();
    assert_eq!(cli.read(".env").unwrap(), line("1", MARKER));
    assert_nowhere(&cli, MARKER);
    cli.call(["redo", "--yes"]).ok();
    cli.call(["verify", "--deep"]).ok();
}

/// A hook that is told where the home is seals like every other command.
#[test]
fn a_hook_seals_whatever_names_its_home() {
    let cli = Cli::adopted(&[(".env", &secret_line(MARKER))]);
    let before = hash(&cli, ".env");
    let talk = Talk::with_home_named(&cli, "claude-code");
    talk.prompt("p1");
    talk.edit("e1", ".env", &secret_line(OTHER));
    talk.shell("c1", || cli.write(".env", &secret_line(MARKER)));
    talk.stop();
    assert_nowhere(&cli, MARKER);
    assert_nowhere(&cli, OTHER);
    assert_eq!(hash(&cli, ".env"), before);
}

/// Who opens a home without saying where its key is does not take plain what was sealed before.
#[test]
fn a_home_opened_without_a_key_takes_no_secret() {
    let cli = Cli::adopted(&[(".env", &secret_line(MARKER)), ("a", "1\n")]);
    cli.write(".env", &secret_line(OTHER));
    cli.write("a", OTHER);
    let mut workspace = Workspace::open(&Home::at(&cli.home()), &cli.root()).expect("open");
    let report = workspace.settle().expect("settle");
    assert_eq!(report.problems.len(), 1, "{report:?}");
    drop(workspace);
    let plain = holding(&cli.home(), OTHER.as_bytes());
    assert!(!plain.is_empty(), "what is no secret is taken");
    assert_nowhere(&cli, &secret_line(OTHER));
    cli.call(["settle"]).ok();
    assert_eq!(cli.call(["cat", ".env"]).ok().stdout, secret_line(OTHER));
}

#[test]
fn without_its_key_a_secret_is_neither_lost_nor_plain() {
    let cli = Cli::adopted(&[(".env", MARKER), ("a", "1\n")]);
    let (key, away) = (key(&cli), cli.home().with_file_name("key.away"));
    fs::rename(&key, &away).unwrap();

    let done = cli.call(["--json", "cat", ".env", "--at", "start"]).exits(1);
    assert_eq!(done.error()["code"], "secret_key_missing");
    assert!(done.error()["message"].as_str().unwrap().contains("secret.key"), "{done:?}");
    let report = cli.call(["--json", "verify", "--deep"]).ok().json();
    assert_eq!((&report["objects_not_read"], &report["objects_read"]), (&1.into(), &1.into()));
    cli.call(["gc"]).ok();
    // A new secret is not taken plain, and an action on it is not let through.
    cli.write(".env", OTHER);
    cli.write("a", "2\n");
    cli.call(["settle"]).ok();
    assert_nowhere(&cli, OTHER);
    assert!(!key.exists(), "no new key in place of the lost one");
    let done =
        cli.call(["--json", "snapshot", "--action", "write_file", "--path", ".env"]).exits(1);
    assert_eq!(done.error()["code"], "not_captured");
    let status = cli.call(["--json", "status"]).ok().json();
    assert!(status["unprotected"].to_string().contains("secret.key"), "{status}");

    fs::set_permissions(&away, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(&away, &key).unwrap();
    assert!(cli.call(["cat", ".env", "--at", "start"]).exits(1).stderr.contains("chmod 600"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(cli.call(["cat", ".env", "--at", "start"]).ok().stdout, MARKER);
    cli.call(["settle"]).ok();
    assert_eq!(cli.call(["cat", ".env"]).ok().stdout, OTHER);
    assert_eq!(cli.call(["--json", "verify", "--deep"]).ok().json()["objects_not_read"], 0);
}
