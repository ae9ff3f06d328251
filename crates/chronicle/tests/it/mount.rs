//! The mount: whatever any process does in it is in the log, also what lives only for a moment, and what the
//! past was can be browsed there.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use chronicle_testing::dice::Dice;
use chronicle_testing::shared::skip;
use chronicle_testing::work::{Menu, Random};
use serde_json::Value;

use crate::support::{Cli, Done};

mod building;
mod databases;
mod failing;

/// A workspace and its mount; unmounted when dropped.
struct Mount {
    cli: Cli,
    place: tempfile::TempDir,
}

impl Mount {
    fn new(test: &str, files: &[(&str, &str)]) -> Option<Self> {
        Self::with(test, files, &[])
    }

    fn with(test: &str, files: &[(&str, &str)], words: &[&str]) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            skip(&format!("mount::{test}"), "there is no /dev/fuse");
            return None;
        }
        let mount = Self { cli: Cli::adopted(files), place: tempfile::tempdir().unwrap() };
        let place = [mount.place.path().as_os_str()];
        let words = ["mount"].iter().chain(words).map(OsStr::new).chain(place);
        mount.cli.call(words).ok();
        Some(mount)
    }

    fn start(&self) -> Done {
        self.cli.call(["mount".as_ref(), self.place.path().as_os_str()])
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        fs::write(self.at(path), content).unwrap();
    }

    /// What the mount says of the workspace, with everything in the log.
    fn status(&self) -> Value {
        serde_json::from_slice(&fs::read(self.at(".chronicle/status")).unwrap()).unwrap()
    }

    fn seq(&self) -> u64 {
        self.status()["head_seq"].as_u64().unwrap()
    }

    fn shell(&self, script: &str) {
        let mut command = Command::new("sh");
        let done = command.args(["-ec", script]).current_dir(self.place.path()).status().unwrap();
        assert!(done.success(), "{script}");
    }

    /// The versions of a file, the oldest first; a deletion is a dash.
    fn versions(&self, path: &str) -> Vec<String> {
        let said = fs::read_to_string(self.at(&format!(".chronicle/query/{path}"))).unwrap();
        let version = |line: &str| {
            let said: Value = serde_json::from_str(line).unwrap();
            if said["change"]["after"]["kind"] == "absent" {
                return "-".to_owned();
            }
            let at = format!(".chronicle/at/seq-{}/{path}", said["seq"]);
            fs::read_to_string(self.at(&at)).unwrap()
        };
        said.lines().map(version).collect()
    }

    /// Kills whoever serves it.
    fn kill(&self) {
        let mut command = Command::new("pkill");
        let killed =
            command.args(["-9", "-f", &format!("__mount .* {}", self.place.path().display())]);
        assert!(killed.status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read_dir(self.place.path()).is_ok() {
            assert!(Instant::now() < deadline, "it still answers");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ =
            self.cli.call(["unmount".as_ref(), "--force".as_ref(), self.place.path().as_os_str()]);
    }
}

/// What stands below a directory: kind and content by path.
fn standing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let said = if kind.is_dir() {
                left.push(path.clone());
                "directory".to_owned()
            } else if kind.is_symlink() {
                format!("link {:?}", fs::read_link(&path).unwrap())
            } else if kind.is_fifo() {
                continue;
            } else {
                blake3::hash(&fs::read(&path).unwrap()).to_string()
            };
            found.insert(path.strip_prefix(top).unwrap().to_owned(), said);
        }
    }
    found
}

#[test]
fn a_shell_script_let_loose_in_it_is_taken_back_and_the_mount_shows_it_at_once() {
    let test = "a_shell_script_let_loose_in_it_is_taken_back_and_the_mount_shows_it_at_once";
    let Some(mount) = Mount::new(test, &[("a.txt", "one\n"), ("src/b.txt", "b\n")]) else { return };
    let before = standing(mount.place.path());
    assert_eq!(before, standing(&mount.cli.root()));
    mount.cli.call(["turn", "start", "--key", "k", "--session", "s"]).ok();
    mount.shell(
        "echo two > a.txt; echo three > a.txt; cp a.txt c.txt; rm c.txt; mkdir -p deep/er; \
         echo x > deep/er/f; mv deep/er/f deep/g; rm -r src; printf tmp > t; mv t a.txt; ln -s a.txt l",
    );
    mount.cli.call(["turn", "end", "--key", "k", "--session", "s"]).ok();
    assert_eq!(mount.versions("a.txt"), ["one\n", "two\n", "three\n", "tmp"]);
    assert_eq!(mount.versions("c.txt"), ["three\n", "-"]);
    assert_eq!(standing(&mount.at(".chronicle/at/before-turn-1")), before);
    assert_eq!(standing(&mount.at(".chronicle/at/turn-1")), standing(&mount.cli.root()));
    let listed = fs::read_dir(mount.place.path()).unwrap();
    assert!(listed.flatten().all(|entry| entry.file_name() != ".chronicle"), "it is hidden");
    let turn = fs::read_to_string(mount.at(".chronicle/turns/1")).unwrap();
    assert!(turn.contains("\"session\":\"s\""), "{turn}");
    assert!(fs::write(mount.at(".chronicle/at/turn-1/a.txt"), "no").is_err());
    let mut diff = Command::new("diff");
    let said =
        diff.arg("-r").arg(mount.at(".chronicle/at/turn-1")).arg(mount.place.path()).output();
    assert_eq!(String::from_utf8_lossy(&said.unwrap().stdout), "");

    mount.cli.call(["rewind", "before:turn:1", "--yes"]).ok();
    assert_eq!(standing(mount.place.path()), before);
    assert_eq!(fs::read_to_string(mount.at("a.txt")).unwrap(), "one\n");
    assert!(!mount.at("l").exists() && mount.at("src/b.txt").exists());
    // From within the mount it is the same workspace.
    let mut inside = mount.cli.command(["cat", "a.txt", "--at", "turn:1"]);
    let said = inside.current_dir(mount.place.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "tmp", "{said:?}");
    mount.cli.call(["redo"]).ok();
    assert_eq!(fs::read_to_string(mount.at("a.txt")).unwrap(), "tmp");
    mount.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn at_every_position_the_tree_is_what_it_was() {
    let Some(mount) = Mount::new("at_every_position_the_tree_is_what_it_was", &[("a", "a\n")])
    else {
        return;
    };
    let seed = 0x6d6f_756e;
    let menu = Menu { filters: false, specials: false, ..Menu::ALL };
    let mut work = Random::new(mount.place.path(), seed, menu);
    let mut dice = Dice::new(seed);
    let mut moments = Vec::new();
    for _ in 0..60 {
        let told = work.steps(1 + dice.below(6));
        let seq = mount.seq();
        assert_eq!(standing(mount.place.path()), standing(&mount.cli.root()), "{told:?}");
        moments.push((seq, standing(&mount.cli.root()), told));
    }
    for (seq, want, told) in &moments {
        let got = standing(&mount.at(&format!(".chronicle/at/seq-{seq}")));
        assert_eq!(&got, want, "at {seq} after {told:?}");
    }
    assert_eq!(mount.cli.call(["--json", "settle"]).ok().json()["changes"], 0);
    mount.cli.call(["verify", "--deep"]).ok();
    let (seq, want, _) = &moments[10];
    mount.cli.call(["rewind", &format!("seq:{seq}"), "--exact", "--yes"]).ok();
    assert_eq!(&standing(mount.place.path()), want);
}

#[test]
fn a_killed_mount_leaves_a_directory_that_can_be_used_and_a_log_that_closes() {
    let test = "a_killed_mount_leaves_a_directory_that_can_be_used_and_a_log_that_closes";
    let Some(mount) = Mount::new(test, &[("kept", "first\n")]) else { return };
    for round in 0..50 {
        mount.write("short", &format!("version {round}\n"));
        mount.write("kept", &format!("kept {round}\n"));
    }
    mount.kill();
    assert_eq!(fs::read_to_string(mount.cli.root().join("short")).unwrap(), "version 49\n");
    mount.start().ok();
    assert_eq!(fs::read_to_string(mount.at("short")).unwrap(), "version 49\n");
    let versions = mount.versions("short");
    let want: Vec<String> = (0..50).map(|round| format!("version {round}\n")).collect();
    assert_eq!(versions, want);
    mount.cli.call(["verify", "--deep"]).ok();
    mount.cli.call(["rewind", "start", "--exact", "--yes"]).ok();
    assert_eq!(fs::read_to_string(mount.at("kept")).unwrap(), "first\n");
    assert!(!mount.at("short").exists());
}

#[test]
fn writers_that_sync_lose_nothing_when_the_mount_is_killed() {
    let test = "writers_that_sync_lose_nothing_when_the_mount_is_killed";
    let Some(mount) = Mount::new(test, &[("a", "a\n")]) else { return };
    let mut dice = Dice::new(7);
    let seconds = chronicle_testing::shared::setting("CHRONICLE_MOUNT_SECONDS", 6);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut acknowledged: Vec<u64> = vec![0; 8];
    while Instant::now() < end {
        let pause = Duration::from_millis(300 + dice.below(900) as u64);
        let done: Vec<_> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8_usize)
                .map(|writer| {
                    let (file, from) = (mount.at(&format!("w{writer}")), acknowledged[writer]);
                    scope.spawn(move || write_until_it_fails(&file, from))
                })
                .collect();
            std::thread::sleep(pause);
            mount.kill();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        acknowledged = done;
        mount.start().ok();
        for (writer, number) in acknowledged.iter().enumerate() {
            let text = fs::read_to_string(mount.at(&format!("w{writer}"))).unwrap_or_default();
            let last = text.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
            assert!(last >= *number, "writer {writer}: {number} was acknowledged, {last} is there");
        }
        assert_eq!(standing(mount.place.path()), standing(&mount.cli.root()));
        mount.cli.call(["verify"]).ok();
    }
    assert!(acknowledged.iter().sum::<u64>() > 8, "they wrote");
    assert_eq!(mount.cli.call(["--json", "settle"]).ok().json()["changes"], 0);
}

/// Appends numbers, each synced; the last that was acknowledged.
fn write_until_it_fails(file: &Path, from: u64) -> u64 {
    let mut last = from;
    loop {
        let mut options = fs::OpenOptions::new();
        let Ok(mut out) = options.append(true).create(true).mode(0o644).open(file) else {
            return last;
        };
        let written = writeln!(out, "{}", last + 1).and_then(|()| out.sync_all());
        if written.is_err() {
            return last;
        }
        last += 1;
    }
}

#[test]
fn where_nothing_more_can_be_kept_nothing_is_destroyed() {
    let Some(mount) =
        Mount::new("where_nothing_more_can_be_kept_nothing_is_destroyed", &[("a", "a\n")])
    else {
        return;
    };
    fs::write(mount.cli.home().join("config.toml"), "budget = \"2 MiB\"\n").unwrap();
    let mut dice = Dice::new(3);
    let mut refused = false;
    for _ in 0..40 {
        let before = fs::read(mount.at("big")).unwrap_or_default();
        let noise = dice.bytes(200_000);
        match fs::write(mount.at("big"), &noise) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(28), "{error}");
                assert_eq!(fs::read(mount.at("big")).unwrap(), before);
                refused = true;
                break;
            }
        }
    }
    assert!(refused, "the budget was never used up");
    fs::write(mount.cli.home().join("config.toml"), "budget = \"1 GiB\"\n").unwrap();
    fs::write(mount.at("big"), "goes on\n").unwrap();
    mount.cli.call(["verify"]).ok();
}

#[test]
fn what_cannot_be_mounted_is_refused_with_words() {
    let Some(mount) = Mount::new("what_cannot_be_mounted_is_refused_with_words", &[("a", "a\n")])
    else {
        return;
    };
    let again = tempfile::tempdir().unwrap();
    let call = |at: &Path| mount.cli.call(["--json".as_ref(), "mount".as_ref(), at.as_os_str()]);
    let busy = call(again.path()).error();
    assert_eq!(busy["code"], "busy", "{busy}");
    mount.cli.call(["unmount".as_ref(), mount.place.path().as_os_str()]).ok();
    assert!(fs::read_dir(mount.place.path()).unwrap().next().is_none());
    let full = tempfile::tempdir().unwrap();
    fs::write(full.path().join("mine"), "x").unwrap();
    let inside = mount.cli.root().join("inside");
    fs::create_dir(&inside).unwrap();
    let above = mount.cli.root().parent().unwrap().to_owned();
    let file = full.path().join("mine");
    for (at, word) in [
        (full.path(), "name an empty directory"),
        (&inside, "lie in each other"),
        (&above, "lie in each other"),
        (&file, "is not a directory"),
    ] {
        let error = call(at).error();
        assert!(error["message"].to_string().contains(word), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    }
    let none = mount.cli.call(["unmount"]).exits(1);
    assert!(none.stderr.contains("not mounted"), "{none:?}");
    mount.start().ok();
}

#[test]
fn a_command_runs_in_a_mount_at_the_usual_path() {
    let test = "a_command_runs_in_a_mount_at_the_usual_path";
    if !Path::new("/dev/fuse").exists() || !chronicle_testing::shared::is_root() {
        return skip(&format!("mount::{test}"), "it needs root and /dev/fuse");
    }
    let cli = Cli::adopted(&[("a", "one\n")]);
    let script = "echo two > a; echo three > a; rm a; echo x > b; ls .chronicle/at >/dev/null; \
                  \"$PROGRAM\" cat a --at start";
    let mut command = cli.command(["run", "--mount", "--", "sh", "-ec", script]);
    let done = crate::support::done(
        command.env("PROGRAM", env!("CARGO_BIN_EXE_chronicle")).output().unwrap(),
    );
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(done.stdout, "one\n");
    let history = cli.call(["--json", "history", "a"]).ok().json_lines();
    assert_eq!(history.len(), 4, "{history:#?}");
    assert!(history[..3].iter().all(|version| version["turn"] == 1), "{history:#?}");
    cli.call(["undo"]).ok();
    assert_eq!((cli.read("a").as_deref(), cli.read("b")), (Some("one\n"), None));
    cli.call(["verify", "--deep"]).ok();
    assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(cli.root().to_str().unwrap()));
}

/// Content that stays long when it is compressed, so that a journal of it grows.
fn long_version(number: u64) -> String {
    let mut state = number.wrapping_add(1);
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + (state >> 40) as u8 % 64)
    };
    (0..8 << 10).map(|_| letter()).collect::<String>() + "\n"
}

#[test]
fn whoever_dies_while_it_is_recorded_loses_nothing() {
    let test = "whoever_dies_while_it_is_recorded_loses_nothing";
    for point in [
        "mount_after_save:7",
        "mount_after_fold",
        "mount_after_turn",
        "capture_before_commit",
        "catalog_before_commit:3",
    ] {
        if !Path::new("/dev/fuse").exists() {
            return skip(&format!("mount::{test}"), "there is no /dev/fuse");
        }
        let cli = Cli::adopted(&[("a", "a\n")]);
        let place = tempfile::tempdir().unwrap();
        let mut dies = cli.command(["mount".as_ref(), place.path().as_os_str()]);
        dies.env("CHRONICLE_FAILPOINT", point);
        // It may die before anybody can use it.
        let began = crate::support::done(dies.output().unwrap()).status == 0;
        let mut written = 0;
        // Until it is dead; what was written by then stands.
        for number in 0..if began { 400 } else { 0 } {
            if fs::write(place.path().join("f"), long_version(number)).is_err() {
                break;
            }
            written = number;
            if number % 20 == 19 {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        let mount = Mount { cli, place };
        assert!(!began || written < 399, "{point} was never reached");
        mount.start().ok();
        if !began {
            mount.write("f", &long_version(0));
        }
        let versions = mount.versions("f");
        let want: Vec<String> = (0..=written).map(long_version).collect();
        // The one that was cut off may stand there or not.
        let found = versions.len();
        assert!(versions.starts_with(&want[..want.len() - 1]), "{point}: {found} of {written}");
        mount.cli.call(["verify", "--deep"]).ok();
    }
}
