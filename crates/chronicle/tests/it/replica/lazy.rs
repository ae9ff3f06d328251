//! A replica that has the tree at once and contents when they are read, with the real program and a real mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_testing::shared::skip;

use super::scene::{Host, PATIENCE, Replica, Running, tree, wait_until, wait_until_equal};

/// Longer than anything may take that waits for a host that is away.
const BOUND: Duration = Duration::from_secs(20);

/// A lazy replica and the place where it is mounted.
struct Lazy {
    replica: Replica,
    at: PathBuf,
}

impl Lazy {
    fn of(host: &Host) -> Self {
        let replica = Replica::of(host);
        let at = replica.cli.home().with_extension("mounted");
        Self { replica, at }
    }

    fn command(&self) -> Command {
        self.replica.command(&["--lazy", "--mount", self.at.to_str().expect("text")])
    }

    /// Connects, and waits until the tree is mounted.
    fn connect(&self) -> Running {
        self.connect_with(self.command())
    }

    fn connect_with(&self, mut command: Command) -> Running {
        let log = self.replica.cli.home().with_extension("log");
        let log = fs::File::options().create(true).append(true).open(log).expect("a log");
        let running = Running::start(command.stderr(log).stdout(Stdio::null()));
        wait_until("it is mounted", || self.is_mounted());
        running
    }

    fn is_mounted(&self) -> bool {
        let above = self.at.parent().expect("a parent").metadata().expect("there").dev();
        self.at.metadata().is_ok_and(|meta| meta.dev() != above)
    }

    fn not_here(&self) -> u64 {
        let status = self.replica.cli.call(["status", "--json"]).ok().json();
        status["files_not_here"].as_u64().expect("a number")
    }

    #[track_caller]
    fn sh(&self, script: &str) -> String {
        sh(script, &self.at)
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        let _ = self.replica.cli.call(["unmount", "--force"]);
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

#[track_caller]
fn sh(script: &str, within: &Path) -> String {
    let output =
        Command::new("sh").args(["-ec", script]).current_dir(within).output().expect("done");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_fuse(test: &str) -> bool {
    let has = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !has {
        skip(test, "needs /dev/fuse");
    }
    has
}

/// Bytes that the host has sent to its only replica.
fn sent(host: &Host) -> u64 {
    let rows = host.cli.call(["replicas", "--json"]).ok().json();
    rows["replicas"][0]["sent_bytes"].as_u64().unwrap_or(0)
}

fn large() -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..5_000_000).map(|_| next()).collect()
}

/// A host with a script, a directory of small files, a large one and an empty one.
fn host() -> Host {
    let host =
        Host::new(&[("a.txt", "needle one\n"), ("src/lib.rs", "fn main() {}\n"), ("empty", "")]);
    let root = host.cli.root();
    for number in 0..60 {
        let text = format!("file {number}\n").repeat(200);
        fs::create_dir_all(root.join("many")).expect("done");
        fs::write(root.join(format!("many/{number}")), text).expect("done");
    }
    fs::write(root.join("run.sh"), "#!/bin/sh\necho ran\n").expect("done");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("done");
    fs::write(root.join("large"), large()).expect("done");
    std::os::unix::fs::symlink("a.txt", root.join("link")).expect("done");
    host.cli.call(["settle"]).ok();
    host
}

#[test]
fn the_tree_is_there_at_once_and_contents_when_they_are_read() {
    if !has_fuse("replica::lazy::the_tree_is_there_at_once") {
        return;
    }
    let host = host();
    let lazy = Lazy::of(&host);
    let serving = host.serve();
    let connected = lazy.connect();
    let list = "find . -mindepth 1 -not -path './.chronicle*' -printf '%p %y %m %T@ ' \\( -type f -printf '%s\\n' -o -printf '\\n' \\) | sort";
    let files = |top: &Path| -> Vec<String> {
        // Times of directories and links are not the host's.
        let lines = sh(list, top);
        lines.lines().filter(|line| line.contains(" f ")).map(str::to_owned).collect()
    };
    assert_eq!(files(&lazy.at), files(&host.cli.root()));
    assert_eq!(fs::read_link(lazy.at.join("link")).expect("done"), Path::new("a.txt"));
    // Nothing of what is in the files has moved, and nobody recorded a placeholder.
    wait_until("it is counted", || sent(&host) > 0);
    assert!(sent(&host) < 40_000, "{} bytes were sent for a tree of 65 files", sent(&host));
    assert_eq!(lazy.not_here(), 65);
    lazy.replica.cli.call(["settle"]).ok();
    let log = lazy.replica.cli.call(["log", "--json"]).ok().stdout;
    let others =
        log.lines().filter(|line| line.contains("\"action_type\"") && !line.contains("\"push\""));
    assert_eq!(others.count(), 0, "{log}");
    // Reading brings what is read; however many read it, all have all of it.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(fs::read(lazy.at.join("large")).expect("done"), large()));
        }
    });
    assert_eq!(lazy.sh("./run.sh; grep -rl needle . | sort"), "ran\n./a.txt\n");
    lazy.sh("cp many/3 copy; cmp many/3 copy; test $(wc -l < many/59) = 200");
    assert_eq!(lazy.not_here(), 0, "grep has read every file");
    wait_until("the copy is at the host", || host.cli.root().join("copy").exists());
    // From now on it is a file like any other, in both directions.
    lazy.sh("echo more >> a.txt; git init -q .; git add -A; git -c user.name=a -c user.email=a@b commit -qm all; test -z \"$(git status --porcelain)\"");
    wait_until("the edit is at the host", || {
        fs::read_to_string(host.cli.root().join("a.txt")).is_ok_and(|it| it.ends_with("more\n"))
    });
    fs::write(host.cli.root().join("a.txt"), "from the host\n").expect("done");
    wait_until("the host's edit is in the mount", || {
        fs::read_to_string(lazy.at.join("a.txt")).is_ok_and(|it| it == "from the host\n")
    });
    assert_eq!(lazy.not_here(), 0, "a file that is here stays here");
    let conflicts = lazy.replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(conflicts["conflicts"].as_array().map(Vec::len), Some(0), "{conflicts}");
    assert!(connected.end().success());
    assert!(!lazy.is_mounted(), "it is unmounted at the end");
    drop(serving);
    lazy.replica.cli.call(["verify", "--deep"]).ok();
    host.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn without_the_host_what_is_here_works_and_the_rest_is_an_error_soon() {
    if !has_fuse("replica::lazy::without_the_host") {
        return;
    }
    let host = host();
    let lazy = Lazy::of(&host);
    let serving = host.serve();
    let connected = lazy.connect();
    assert_eq!(lazy.sh("cat a.txt"), "needle one\n");
    lazy.replica.cli.call(["fetch", "src"]).ok();
    serving.kill();
    let begun = Instant::now();
    let failed = fs::read(lazy.at.join("many/1")).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    // Whoever comes later hears it at once, and the rest works.
    let begun = Instant::now();
    assert!(fs::read(lazy.at.join("many/2")).is_err());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(lazy.sh("cat a.txt src/lib.rs; ls many | wc -l"), "needle one\nfn main() {}\n60\n");
    lazy.sh("mv many/5 moved; rm many/6; echo new > mine");
    let refused = lazy.replica.cli.call(["fetch"]);
    assert!(refused.stderr.contains("not here yet"), "{}", refused.stderr);
    // It comes back, and everything goes on.
    let _serving = host.serve();
    wait_until("it can be read", || fs::read(lazy.at.join("many/1")).is_ok());
    assert_eq!(lazy.sh("head -n 1 moved"), "file 5\n");
    wait_until("what was done meanwhile is at the host", || {
        let root = host.cli.root();
        root.join("moved").exists() && root.join("mine").exists() && !root.join("many/6").exists()
    });
    lazy.replica.cli.call(["fetch"]).ok();
    assert_eq!(lazy.not_here(), 0);
    wait_until_equal(&[&host.cli.root(), &lazy.replica.root()]);
    drop(connected);
}

/// A file that was never read here is renamed while there is no link: the host asks for its content, which only the host has.
#[test]
fn what_was_renamed_without_a_link_is_renamed_at_the_host() {
    let host = host();
    let replica = Replica::of(&host);
    let serving = host.serve();
    let output = replica.command(&["--lazy", "--once"]).output().expect("done");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = replica.root();
    fs::rename(root.join("large"), root.join("larger")).expect("done");
    fs::rename(root.join("many"), root.join("others")).expect("done");
    fs::remove_file(root.join("empty")).expect("done");
    serving.kill();
    let _serving = host.serve();
    let output = replica.command(&["--once"]).output().expect("done");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(host.cli.root().join("larger")).expect("done"), large());
    assert_eq!(fs::read_dir(host.cli.root().join("others")).expect("done").count(), 60);
    assert!(!host.cli.root().join("many").exists() && !host.cli.root().join("empty").exists());
    let conflicts = replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(conflicts["conflicts"].as_array().map(Vec::len), Some(0), "{conflicts}");
    replica.cli.call(["verify", "--deep"]).ok();
    host.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn whoever_dies_while_he_fills_a_file_leaves_it_to_the_next() {
    if !has_fuse("replica::lazy::whoever_dies_while_he_fills") {
        return;
    }
    let host = host();
    let lazy = Lazy::of(&host);
    let _serving = host.serve();
    for (number, point) in
        ["direct_after_steps", "fill_before_commit", "fill_after_commit"].iter().enumerate()
    {
        let mut command = lazy.command();
        // The points of the first push are passed before; only a fill passes these two.
        let count = if *point == "direct_after_steps" && number == 0 { ":2" } else { "" };
        command.env("CHRONICLE_FAILPOINT", format!("{point}{count}"));
        let mut connected = lazy.connect_with(command);
        let at = lazy.at.join(format!("many/{}", number + 10));
        let mut read = fs::read(&at);
        // The mount may be there before the process that is connected hears readers.
        wait_until("it dies", || {
            let ended = connected.0.try_wait().expect("done").is_some();
            if !ended {
                read = fs::read(&at);
            }
            ended
        });
        let whole = format!("file {}\n", number + 10).repeat(200).into_bytes();
        // Whole, or an error: never anything else.
        assert!(read.as_ref().is_err() || read.expect("done") == whole, "{point}");
        assert_eq!(fs::read(lazy.at.join("many/40")).unwrap_err().raw_os_error(), Some(5));
        let again = lazy.connect();
        wait_until("it can be read", || fs::read(&at).is_ok_and(|it| it == whole));
        lazy.replica.cli.call(["settle"]).ok();
        let conflicts = lazy.replica.cli.call(["conflicts", "list", "--json"]).ok().json();
        assert_eq!(conflicts["conflicts"].as_array().map(Vec::len), Some(0), "{conflicts}");
        again.kill();
    }
    let log = lazy.replica.cli.call(["log", "--json"]).ok().stdout;
    let others =
        log.lines().filter(|line| line.contains("\"action_type\"") && !line.contains("\"push\""));
    assert_eq!(others.count(), 0, "a fill was recorded as a change: {log}");
    lazy.replica.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn what_the_host_does_not_have_any_more_is_named() {
    let host = host();
    let replica = Replica::of(&host);
    let _serving = host.serve();
    let running =
        Running::start(replica.command(&["--lazy"]).stderr(Stdio::null()).stdout(Stdio::null()));
    wait_until("the tree is there", || tree(&replica.root()).len() > 60);
    // A content that is at the host no more, neither at a path nor offered.
    let target = fs::read_link(replica.root().join("many/7")).expect("done");
    let mut forged = target.to_str().expect("done").to_owned().into_bytes();
    forged[12] = if forged[12] == b'A' { b'B' } else { b'A' };
    fs::remove_file(replica.root().join("many/7")).expect("done");
    std::os::unix::fs::symlink(
        std::str::from_utf8(&forged).expect("done"),
        replica.root().join("many/7"),
    )
    .expect("done");
    let refused = replica.cli.call(["fetch", "many/7"]);
    assert!(refused.stderr.contains("does not give content"), "{}", refused.stderr);
    replica.cli.call(["fetch", "many/8"]).ok();
    assert!(fs::symlink_metadata(replica.root().join("many/8")).expect("done").is_file());
    drop(running);
}

/// How long it takes until the whole tree stands in a new replica, and how many bytes the host sends for it.
fn first_connect(host: &Host, files: usize, more: &[&str]) -> (Duration, u64) {
    let replica = Replica::of(host);
    let before = total_sent(host);
    // A large tree comes in several pushes.
    let head = host.cli.call(["replicas", "--json"]).ok().json()["head"].clone();
    let begun = Instant::now();
    let running = Running::start(replica.command(more).stderr(Stdio::null()).stdout(Stdio::null()));
    let is_there = || {
        let rows = replica.cli.call(["replicas", "--json"]);
        rows.status == 0 && rows.json()["replica_of"]["applied"] == head
    };
    // A hundred thousand files take longer than anything else that is waited for.
    while !is_there() {
        assert!(begun.elapsed() < 10 * PATIENCE, "the tree never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed();
    wait_until("all of it is there", || tree(&replica.root()).len() > files);
    assert!(running.end().success());
    wait_until("it is counted", || total_sent(host) > before);
    (took, total_sent(host) - before)
}

fn total_sent(host: &Host) -> u64 {
    let rows = host.cli.call(["replicas", "--json"]).ok().json();
    let rows = rows["replicas"].as_array().cloned().unwrap_or_default();
    rows.iter().filter_map(|row| row["sent_bytes"].as_u64()).sum()
}

/// The first connect of a lazy replica costs names, not contents. `CHRONICLE_LONG` makes it a hundred thousand files.
#[test]
fn the_first_connect_of_many_files_moves_no_contents() {
    let files = if std::env::var_os("CHRONICLE_LONG").is_some() { 100_000 } else { 2_000 };
    let host = Host::new(&[("first", "first\n")]);
    for number in 0..files {
        let directory = host.cli.root().join(format!("d{}", number / 500));
        fs::create_dir_all(&directory).expect("done");
        // Nothing that could be compressed.
        let mut content = vec![0; 3000];
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(number as u64).to_le_bytes()).finalize_xof().fill(&mut content);
        fs::write(directory.join(format!("f{number}")), content).expect("done");
    }
    host.cli.call(["settle"]).ok();
    let _serving = host.serve();
    let (lazily, few) = first_connect(&host, files, &["--lazy"]);
    let (eagerly, all) = first_connect(&host, files, &[]);
    eprintln!(
        "{files} files: lazily {lazily:?} and {few} bytes, eagerly {eagerly:?} and {all} bytes"
    );
    assert!(few < 120 * files as u64, "{few} bytes for {files} names");
    assert!(few * 20 < all, "{few} bytes, and eagerly {all}");
}
