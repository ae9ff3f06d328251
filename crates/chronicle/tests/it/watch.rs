//! The watcher as a process: started, asked, killed, overrun, replaced. Whatever happens to it costs
//! one full look and never a change.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Cli;

pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a watcher in the background and waits until it answers; its process.
pub(crate) fn start(cli: &Cli) -> Pid {
    cli.call(["watch"]).ok();
    let process = until("a watcher that answers", || {
        let said = cli.call(["watch", "--json"]).ok().json();
        said["process"].as_i64()
    });
    Pid::from_raw(i32::try_from(process).expect("a process")).expect("a process")
}

/// Settles; whether the watcher told where to look, and how many paths changed.
fn settle(cli: &Cli) -> (bool, u64) {
    let said = cli.call(["settle", "--json"]).ok().json();
    (said["watched"].as_bool().expect("a flag"), said["changes"].as_u64().expect("a number"))
}

/// Settles until the watcher tells where to look.
pub(crate) fn follow(cli: &Cli) {
    until("a look through the watcher", || settle(cli).0.then_some(()));
}

fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn stop(cli: &Cli, process: Pid) {
    let _ = kill_process(process, Signal::TERM);
    until("the watcher ends", || (!is_alive(process)).then_some(()));
    let _ = cli;
}

#[test]
fn a_watcher_tells_where_to_look_until_it_is_stopped() {
    let cli = Cli::adopted(&[("a", "1"), ("d/b", "2")]);
    assert!(!settle(&cli).0);
    let process = start(&cli);
    follow(&cli);
    assert_eq!(settle(&cli), (true, 0));
    cli.write("d/b", "3");
    cli.write("e/f/g", "4");
    let (watched, changes) = settle(&cli);
    assert!(watched && changes >= 2, "{changes}");
    assert_eq!(settle(&cli), (true, 0));
    let status = cli.call(["status", "--json"]).ok().json();
    assert!(
        status["watcher"].as_str().expect("words").starts_with("on: 4 directories"),
        "{status}"
    );
    // A rewind looks for itself, and what it wrote is nobody's change.
    cli.call(["undo", "--yes"]).exits(3);
    stop(&cli, process);
    assert_eq!(cli.call(["status", "--json"]).ok().json()["watcher"], "off");
    cli.write("a", "5");
    assert_eq!(settle(&cli), (false, 1));
}

#[test]
fn a_killed_watcher_costs_a_full_look_and_no_change() {
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    follow(&cli);
    cli.write("a", "2");
    kill_process(process, Signal::KILL).expect("ours");
    until("it is dead", || (!is_alive(process)).then_some(()));
    cli.write("b", "3");
    assert_eq!(settle(&cli), (false, 2));
    // It worked, so that the next one may be started at once, in spite of the socket left behind.
    let process = start(&cli);
    cli.write("b", "4");
    let (watched, changes) = settle(&cli);
    assert_eq!((watched, changes), (false, 1));
    follow(&cli);
    stop(&cli, process);
}

#[test]
fn more_at_once_than_the_kernel_remembers_costs_a_full_look() {
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    follow(&cli);
    kill_process(process, Signal::STOP).expect("ours");
    let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(16_384);
    for at in 0..most / 2 + 500 {
        let path = cli.root().join(format!("f{}", at % 2));
        fs::write(&path, "x").expect("write");
        fs::remove_file(&path).expect("remove");
    }
    cli.write("late/b", "2");
    kill_process(process, Signal::CONT).expect("ours");
    let (watched, changes) = settle(&cli);
    assert!(!watched && changes >= 1);
    follow(&cli);
    cli.write("late/b", "3");
    assert_eq!(settle(&cli), (true, 1));
    stop(&cli, process);
}

#[test]
fn a_watcher_that_does_not_answer_costs_little() {
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    follow(&cli);
    kill_process(process, Signal::STOP).expect("ours");
    cli.write("a", "2");
    assert_eq!(settle(&cli), (false, 1));
    kill_process(process, Signal::CONT).expect("ours");
    // Its word was not used, so that the next look asks for more than it needs.
    until("a look through the watcher", || settle(&cli).0.then_some(()));
    cli.write("a", "3");
    assert_eq!(settle(&cli), (true, 1));
    stop(&cli, process);
}

#[test]
fn it_holds_nothing_of_the_one_who_started_it() {
    let cli = Cli::adopted(&[("a", "1")]);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // Passed on on purpose, as a careless agent would.
    let _ = rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty());
    let process = start(&cli);
    let fds = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).expect("ours");
    let pipe = fs::read_link(format!("/proc/self/fd/{}", writer.as_raw_fd())).expect("a pipe");
    for fd in fds.flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        assert_ne!(target, pipe);
        if matches!(fd.file_name().to_str(), Some("0" | "1" | "2")) {
            assert_eq!(target, Path::new("/dev/null"));
        }
    }
    drop(writer);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut rest).expect("the pipe ends");
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).expect("ours");
    let session = stat.rsplit_once(") ").expect("a name").1.split(' ').nth(3).map(str::to_owned);
    assert_eq!(session, Some(process.as_raw_nonzero().to_string()), "a session of its own");
    let cwd = fs::read_link(format!("/proc/{}/cwd", process.as_raw_nonzero())).expect("ours");
    assert_eq!(cwd, Path::new("/"));
    stop(&cli, process);
}

#[test]
fn its_socket_is_private_and_goes_with_it() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    let socket = crate::support::listing(&cli.home())
        .into_iter()
        .find(|path| path.ends_with("watch.sock"))
        .expect("a socket");
    let meta = fs::symlink_metadata(&socket).expect("a socket");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    stop(&cli, process);
    assert!(!socket.exists());
}

#[test]
fn nonsense_at_its_socket_does_not_disturb_it() {
    use std::io::{Read, Write};
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    follow(&cli);
    let socket = crate::support::listing(&cli.home())
        .into_iter()
        .find(|path| path.ends_with("watch.sock"))
        .expect("a socket");
    for bytes in [&b""[..], b"\xff\xff\xff\xff", b"\x02\0\0\0\x09\x09", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{bytes:?} was answered");
    }
    cli.write("a", "2");
    assert_eq!(settle(&cli), (true, 1));
    stop(&cli, process);
}

#[test]
fn a_replaced_root_ends_it() {
    let cli = Cli::adopted(&[("a", "1")]);
    let process = start(&cli);
    follow(&cli);
    fs::rename(cli.root(), cli.root().with_file_name("aside")).expect("rename");
    until("the watcher ends", || (!is_alive(process)).then_some(()));
    fs::rename(cli.root().with_file_name("aside"), cli.root()).expect("rename");
    cli.write("a", "2");
    assert_eq!(settle(&cli), (false, 1));
}

#[test]
fn rules_that_change_cost_a_full_look() {
    let cli = Cli::adopted(&[("a.log", "1"), (".chronicleignore", "*.log\n")]);
    let process = start(&cli);
    follow(&cli);
    cli.write(".chronicleignore", "");
    let (watched, changes) = settle(&cli);
    assert!(!watched && changes >= 1);
    follow(&cli);
    cli.write("a.log", "2");
    assert_eq!(settle(&cli), (true, 1));
    stop(&cli, process);
}

/// A watcher that knew a worktree as a part of the project went on telling of it after it had become a
/// workspace of its own. It was recorded twice; and where a look was told of nothing else, the root
/// itself seemed to be new, because nothing had been loaded of it.
#[test]
fn a_worktree_that_somebody_adopts_is_left_out_beside_a_watcher() {
    let cli = Cli::new();
    cli.write("a", "1");
    let git = |words: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=me", "-c", "user.email=me@example.org"]).args(words);
        command.current_dir(cli.root()).env("HOME", cli.root()).env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.status().expect("git is there").success(), "{words:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "first"]);
    git(&["worktree", "add", "-q", "-b", "side", "t/side"]);
    cli.call(["init"]).ok();
    let process = start(&cli);
    follow(&cli);
    cli.call(["init", "t/side"]).ok();
    let mut seen = Vec::new();
    for round in 0..3 {
        cli.write("t/side/b", &format!("round {round}"));
        seen.push(settle(&cli));
    }
    // The first look sees that the worktree is left out from now on.
    assert_eq!(seen.iter().map(|(_, changes)| changes).sum::<u64>(), 1, "{seen:?}");
    assert!(seen[2].0, "{seen:?}");
    cli.write("t/side/b", "round 3");
    cli.write("t/c", "mine");
    assert_eq!(settle(&cli).1, 1);
    let log = cli.call(["log", "--path", "t/side/b"]);
    assert!(!log.stdout.contains("t/side/b"), "{}", log.stdout);
    stop(&cli, process);
}
