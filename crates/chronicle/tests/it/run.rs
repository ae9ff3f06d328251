//! `run` passes everything through but the caller's terminal.
//!
//! What needs no history is tried off the record; the terminals are made here.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetattr;

use crate::support::{Cli, done};
use crate::terminal::Terminal;

/// `chronicle run -- sh -c SCRIPT`, off the record.
fn script(cli: &Cli, text: &str) -> Command {
    let mut command = cli.command(["run", "--", "sh", "-c", text]);
    command.env("CHRONICLE", "off");
    command
}

#[track_caller]
fn check_status(text: &str, expected: i32) {
    let cli = Cli::new();
    let output = script(&cli, text).output().expect("start");
    done(output).exits(expected);
    let (screen, status) = Terminal::new().run(script(&cli, &format!("echo; {text}")));
    assert_eq!(status, expected, "on a terminal: {screen}");
}

#[test]
fn the_status_of_the_command_passes_through() {
    check_status("exit 0", 0);
    check_status("exit 7", 7);
    check_status("kill -TERM $$", 143);
    check_status("kill -KILL $$", 137);
}

#[test]
fn a_command_that_cannot_start_has_the_status_that_shells_give() {
    let cli = Cli::new();
    for (program, status) in [("/nonexistent", 127), ("no-such-command", 127), ("/etc/passwd", 126)]
    {
        let output = cli.command(["run", "--", program]).env("CHRONICLE", "off").output();
        let done = done(output.expect("start")).exits(status);
        assert!(
            done.stderr.starts_with(&format!("Error: Could not start {program}\n")),
            "{done:?}"
        );
    }
}

#[test]
fn a_run_that_itself_fails_is_125() {
    let done = Cli::new().call(["run", "--", "true"]).exits(125);
    assert!(done.stderr.starts_with("Error: No workspace"), "{}", done.stderr);
}

#[test]
fn arguments_and_pipes_pass_through_untouched() {
    let cli = Cli::new();
    let mut command =
        cli.command(["run", "--", "sh", "-c", "cat; echo \"$1\" >&2", "-", "--json -x"]);
    command
        .env("CHRONICLE", "off")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("start");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), b"through\0")
        .expect("write");
    let done = done(child.wait_with_output().expect("wait")).ok();
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("through\0", "--json -x\n"));
}

#[test]
fn only_terminals_are_replaced_and_pipes_stay_pipes() {
    let cli = Cli::new();
    let terminal = Terminal::new();
    let mut command = script(&cli, "test -t 0 && test ! -t 1 && test -t 2 && echo piped");
    command.stdin(terminal.stdio()).stdout(Stdio::piped()).stderr(terminal.stdio());
    let done = done(command.spawn().expect("start").wait_with_output().expect("wait")).ok();
    assert_eq!(done.stdout, "piped\n");
}

#[test]
fn the_command_has_a_terminal_of_its_own_of_the_same_size() {
    let cli = Cli::new();
    let terminal = Terminal::new();
    let name = terminal.name.clone();
    let (screen, status) = terminal.run(script(&cli, "tty; stty size; tty < /dev/tty"));
    assert_eq!(status, 0, "{screen}");
    let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
    assert!(lines[0].starts_with("/dev/pts/") && lines[0] != name, "{screen}");
    assert_eq!(lines[1], "33 77");
}

#[test]
fn a_session_without_a_terminal_has_none_to_open() {
    let cli = Cli::new();
    let output =
        script(&cli, "if (: < /dev/tty) 2>/dev/null; then echo has; else echo none; fi").output();
    assert_eq!(done(output.expect("start")).ok().stdout, "none\n");
}

#[test]
fn the_callers_terminal_is_as_before_when_the_command_has_ended() {
    let cli = Cli::new();
    let terminal = Terminal::new();
    let shape =
        |terminal: &Terminal| format!("{:?}", tcgetattr(&terminal.inside).expect("settings"));
    let before = shape(&terminal);
    terminal.run(script(&cli, "stty raw -echo; echo; kill -9 $$"));
    assert_eq!(shape(&terminal), before);
}

#[test]
fn all_output_arrives_even_that_of_the_last_moment() {
    let cli = Cli::new();
    let (screen, status) = Terminal::new().run(script(&cli, "seq 1 30000"));
    assert_eq!(status, 0);
    let lines: Vec<_> = screen.lines().map(str::trim_end).collect();
    assert_eq!(lines.len(), 30_000);
    assert_eq!(lines[29_999], "30000");
}

#[test]
fn keys_reach_the_command() {
    let cli = Cli::new();
    let terminal = Terminal::new();
    terminal.type_in("typed\r");
    let (screen, status) = terminal.run(script(&cli, "read word; echo \"got $word\""));
    assert_eq!(status, 0, "{screen}");
    assert!(screen.contains("got typed"), "{screen}");
}

#[test]
fn signals_are_passed_on() {
    let cli = Cli::new();
    let text = "trap 'echo told; exit 42' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = script(&cli, text).stdout(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("signal");
    assert_eq!(lines.next().expect("a line").expect("text"), "told");
    assert_eq!(child.wait().expect("wait").code(), Some(42));
}

#[test]
fn a_command_outlives_no_terminal() {
    let cli = Cli::new();
    let terminal = Terminal::new();
    let marker = cli.root().join("hung-up");
    let text = format!(
        "trap 'echo > {}; exit' HUP; echo ready; while :; do sleep 0.02; done",
        marker.display()
    );
    let mut child = terminal.start(script(&cli, &text));
    let mut screen = BufReader::new(File::from(terminal.screen.try_clone().expect("a copy")));
    let mut line = String::new();
    screen.read_line(&mut line).expect("a line");
    kill_process(Pid::from_child(&child), Signal::KILL).expect("kill");
    child.wait().expect("wait");
    let started = Instant::now();
    while !marker.exists() {
        assert!(started.elapsed().as_secs() < 10, "the command was not told");
        std::thread::yield_now();
    }
}

/// What a hostile command does: types a line into the terminal it was started on.
///
/// Called by the test below through this very program; on its own it does nothing.
#[test]
fn types_into_its_terminal() {
    if std::env::var_os("TYPE_INTO_TERMINAL").is_none() {
        return;
    }
    let typed = b"echo stolen\r".iter().all(|byte| type_into(rustix::stdio::stdin(), *byte));
    // Told to the caller, since a kernel may refuse it altogether.
    std::fs::write("typed", if typed { "typed" } else { "refused" }).expect("tell");
}

#[allow(unsafe_code)]
fn type_into(terminal: impl AsFd, byte: u8) -> bool {
    /// Linux's number for pushing one character into a terminal's input.
    const TIOCSTI: rustix::ioctl::Opcode = 0x5412;
    // SAFETY: TIOCSTI reads one byte through the pointer it is given.
    unsafe {
        let request = rustix::ioctl::Setter::<TIOCSTI, u8>::new(byte);
        rustix::ioctl::ioctl(terminal, request).is_ok()
    }
}

#[test]
fn a_command_cannot_type_into_the_callers_terminal() {
    let cli = Cli::new();
    let hostile = std::env::current_exe().expect("this program");
    let hostile = hostile.to_str().expect("its path is text");
    let test = ["--exact", "run::types_into_its_terminal", "--test-threads=1"];
    let words: Vec<_> = ["run", "--", hostile].into_iter().chain(test).collect();
    let mut command = cli.command(words);
    command.env("CHRONICLE", "off").env("TYPE_INTO_TERMINAL", "1");
    let terminal = Terminal::new();
    let (screen, status) = terminal.run(command);
    assert_eq!(status, 0, "{screen}");
    assert!(cli.read("typed").is_some(), "the hostile command did not run: {screen}");
    assert_eq!(terminal.waiting(), 0, "characters arrived in the caller's terminal");
}

#[test]
fn everything_a_command_did_is_one_snapshot() {
    let cli = Cli::adopted(&[("a", "1\n"), ("b", "1\n")]);
    let text = "echo 2 > a; rm b; mkdir d; echo new > d/c; exit 5";
    let done = cli.call(["run", "--summary", "try it", "--", "sh", "-c", text]).exits(5);
    assert!(done.stderr.contains("Take back with: chronicle undo "), "{}", done.stderr);
    let log = cli.call(["log", "--limit", "1", "--json"]).ok().json_lines();
    let mut paths: Vec<_> = log[0]["changes"].as_array().expect("changes").iter().collect();
    paths.retain(|change| change["path"] != "d");
    let paths: Vec<_> =
        paths.iter().map(|change| change["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["a", "b", "d/c"]);
    assert!(log[0]["action_summary"].as_str().expect("summary").contains("try it"), "{}", log[0]);
    cli.call(["undo"]).ok();
    assert_eq!((cli.read("a").as_deref(), cli.read("b").as_deref()), (Some("1\n"), Some("1\n")));
    assert_eq!(cli.read("d/c"), None);
}

#[test]
fn a_run_in_a_named_workspace_runs_there() {
    let cli = Cli::adopted(&[("a", "1\n")]);
    let root = cli.root();
    let mut command = cli.command(["-C", root.to_str().expect("text"), "run", "--", "rm", "a"]);
    done(command.current_dir("/").output().expect("start")).ok();
    assert_eq!(cli.read("a"), None);
}

#[test]
fn after_a_pause_a_new_turn_begins() {
    let cli = Cli::adopted(&[("a", "0"), ("b", "0")]);
    let script = "echo 1 > a; sleep 4; echo 1 > b";
    let said = cli.call(["run", "--pause", "1", "--", "sh", "-c", script]).ok();
    assert!(said.stderr.contains("in 2 turns"), "{}", said.stderr);
    cli.call(["undo"]).ok();
    let read = |name: &str| cli.read(name).expect("it stays");
    assert_eq!((&read("a")[..], &read("b")[..]), ("1\n", "0"));
    cli.call(["undo"]).ok();
    assert_eq!((&read("a")[..], &read("b")[..]), ("0", "0"));
}

#[test]
fn who_waits_for_a_command_does_not_keep_it_from_ending() {
    let cli = Cli::adopted(&[("a.txt", "1\n")]);
    cli.turn("A", "t", || cli.write("a.txt", "2\n"));
    let mut running =
        cli.command(["run", "--", "sh", "-c", "touch begun; sleep 1"]).spawn().expect("it starts");
    while cli.read("begun").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    cli.call(["undo", "turn:1"]).exits(11);
    let begun = std::time::Instant::now();
    cli.call(["undo", "turn:1", "--wait"]).ok();
    assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
    assert!(running.wait().expect("it ends").success());
    assert_eq!(cli.read("a.txt").as_deref(), Some("1\n"));
}
