//! `chronicle tui` in a real terminal (tmux): every flow, resizes, signals, hostile names, dead terminals.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chronicle_testing::shared::skip;
use serde_json::json;

use crate::hooks::{Talk, call};
use crate::support::{Cli, PROGRAM};

/// How long a screen may take to show what it should, on a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(30);

/// A terminal with a shell in it.
struct Tmux<'c> {
    cli: &'c Cli,
    /// The server's name: one that is ending must not be taken for the next.
    name: String,
}

impl<'c> Tmux<'c> {
    /// A terminal of a size; nothing, and a note, where there is no tmux.
    fn new(test: &str, cli: &'c Cli, columns: u16, rows: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip(test, "tmux is missing");
            return None;
        }
        let tmux = Self { cli, name: Self::name() };
        tmux.begin(columns, rows, "sh -i");
        tmux.until("a prompt", |screen| screen.trim_end().ends_with(['$', '#']));
        Some(tmux)
    }

    fn name() -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("own{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn begin(&self, columns: u16, rows: u16, command: &str) {
        let size = (columns.to_string(), rows.to_string());
        let out = self.tmux(["new-session", "-d", "-x", &size.0, "-y", &size.1, command]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// A terminal in which nobody notices that the interface is stopped for a while.
    fn alone(test: &str, cli: &'c Cli, before: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip(test, "tmux is missing");
            return None;
        }
        let tmux = Self { cli, name: Self::name() };
        let words = format!("{before} {} tui; echo left:$?; exec sh -i", Self::program());
        tmux.begin(80, 24, &words);
        tmux.wait("record ");
        Some(tmux)
    }

    /// Calls tmux, with a server of this test's own.
    fn tmux<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        let base = self.cli.home().parent().unwrap().to_owned();
        Command::new("tmux")
            .args(["-u", "-L", &self.name, "-f", "/dev/null"])
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TMUX_TMPDIR", &base)
            .env("HOME", &base)
            .env("CHRONICLE_HOME", self.cli.home())
            .env("CHRONICLE_WATCH", "off")
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .current_dir(self.cli.root())
            .output()
            .expect("run tmux")
    }

    fn program() -> String {
        std::env::var("CHRONICLE_BIN").unwrap_or_else(|_| PROGRAM.to_owned())
    }

    /// Starts the interface from the shell, with words before it.
    fn start(&self, before: &str) {
        self.say(&format!("{before} {} tui; echo left:$?", Self::program()));
        self.keys(["Enter"]);
        self.wait("record ");
    }

    fn keys<'k>(&self, keys: impl IntoIterator<Item = &'k str>) {
        for key in keys {
            self.tmux(["send-keys", key]);
        }
    }

    fn say(&self, text: &str) {
        self.tmux(["send-keys", "-l", text]);
    }

    /// The screen as text.
    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The screen with what gives it colours.
    fn colours(&self) -> String {
        String::from_utf8_lossy(&self.tmux(["capture-pane", "-p", "-e"]).stdout).into_owned()
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if fits(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < DEADLINE, "the screen never had {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Leaves, and checks that the terminal is what it was.
    #[track_caller]
    fn leave(&self) {
        self.keys(["C-c"]);
        self.wait("left:0");
        self.check_restored();
    }

    /// The shell answers, with echo, on the ordinary screen.
    #[track_caller]
    fn check_restored(&self) {
        self.say("stty -a | tr ' ;' '\\n\\n' | grep -cx -e icanon -e echo -e isig");
        self.keys(["Enter"]);
        self.until("three settings", |screen| screen.lines().any(|line| line.trim() == "3"));
        let mode = self.tmux(["display-message", "-p", "#{alternate_on}#{mouse_any_flag}"]);
        assert_eq!(String::from_utf8_lossy(&mode.stdout).trim(), "00");
    }

    /// The process that shows the interface.
    fn process(&self) -> u32 {
        let shell = self.tmux(["display-message", "-p", "#{pane_pid}"]);
        let shell = String::from_utf8_lossy(&shell.stdout).trim().to_owned();
        let begun = Instant::now();
        loop {
            let children = format!("/proc/{shell}/task/{shell}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            if let Some(child) = children.split_whitespace().next() {
                return child.parse().unwrap();
            }
            assert!(begun.elapsed() < DEADLINE, "no process");
        }
    }

    fn signal(&self, name: &str) {
        let process = self.process().to_string();
        assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.tmux(["kill-server"]);
    }
}

/// A workspace in which an agent, its sub-agent and a person worked.
fn worked() -> Cli {
    let five = ["one", "two", "three", "four", "five"];
    let cli = Cli::adopted(&five.map(|name| (name, "first\nsecond\n")));
    let talk = Talk::new(&cli, "claude-code", "s");
    talk.prompt("k1");
    talk.shell("wreck", || {
        for name in five {
            cli.write(name, &format!("first\nsecond, by the agent in {name}\n"));
        }
    });
    let sub = |id: &str| {
        let mut fields = call("Bash", id, json!({"command": id}));
        fields["agent_id"] = json!("helper");
        fields
    };
    talk.quiet("PreToolUse", sub("more"));
    cli.write("six", "by the sub-agent\n");
    talk.quiet("PostToolUse", sub("more"));
    talk.quiet("PostToolBatch", json!({"agent_id": "helper"}));
    talk.stop();
    cli.write("mine", "a person's\n");
    cli.call(["settle"]).ok();
    cli
}

fn contents(cli: &Cli) -> Vec<Option<String>> {
    ["one", "two", "three", "four", "five", "six", "mine"].map(|name| cli.read(name)).into()
}

#[test]
fn the_timeline_tells_who_did_what_and_grows_while_it_is_looked_at() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui timeline", &cli, 80, 24) else { return };
    tmux.start("");
    let screen = tmux.wait("do k1");
    assert!(screen.contains("outside any turn"), "{screen}");
    assert!(screen.contains("person"), "{screen}");
    tmux.keys(["n", "Space"]);
    let screen = tmux.wait("sub helper");
    assert!(screen.contains("6 files"), "{screen}");
    assert!(screen.contains("shell: do wreck"), "{screen}");
    let begun = Instant::now();
    cli.turn("other", "while you look", || cli.write("two", "new\n"));
    tmux.wait("while you look");
    assert!(begun.elapsed() < Duration::from_secs(10));
    tmux.leave();
}

#[test]
fn two_files_of_five_are_rewound_and_that_is_taken_back() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui rewind", &cli, 80, 24) else { return };
    let before = contents(&cli);
    tmux.start("");
    tmux.wait("do k1");
    tmux.keys(["n", "r"]);
    tmux.wait("Undo turn 1, keep what came later");
    tmux.keys(["1"]);
    tmux.wait("write 5, delete 1");
    // Everything off, then two of them on.
    tmux.keys(["a"]);
    tmux.until("nothing chosen", |screen| !screen.contains("[x]"));
    // In the order of their names: five, four, one, six, three, two. Choosing one goes on to the next.
    tmux.keys(["g", "j", "Space", "j", "j", "j", "Space"]);
    let screen = tmux.wait("write 2");
    assert_eq!(screen.matches("[x]").count(), 2, "{screen}");
    let plan = screen.split("Plan ").nth(1).unwrap().split([' ', ':']).next().unwrap().to_owned();
    tmux.keys(["y"]);
    let screen = tmux.wait("Apply exactly this plan?");
    assert!(screen.contains(&plan), "{screen}");
    assert_eq!(contents(&cli), before, "nothing before the answer");
    tmux.keys(["y"]);
    let screen = tmux.wait("Applied: 2 files changed");
    assert_eq!(screen.matches("ok ").count(), 2, "{screen}");
    let after = contents(&cli);
    assert_eq!(after[1].as_deref(), Some("first\nsecond\n"));
    assert_eq!(after[3].as_deref(), Some("first\nsecond\n"));
    assert_eq!((&after[0], &after[2], &after[4..]), (&before[0], &before[2], &before[4..]));
    tmux.keys(["u"]);
    tmux.wait("Taken back: 2 files changed");
    assert_eq!(contents(&cli), before);
    tmux.leave();
    cli.call(["verify"]).ok();
}

#[test]
fn diffs_files_versions_and_searches_lead_to_each_other() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui looking", &cli, 80, 24) else { return };
    tmux.start("");
    tmux.wait("do k1");
    tmux.keys(["n", "Enter"]);
    let screen = tmux.wait("+1");
    assert!(screen.contains("A six") && screen.contains("M five"), "{screen}");
    tmux.keys(["Enter"]);
    let screen = tmux.wait("@@ -1,2 +1,2 @@");
    assert!(
        screen.contains("-second") && screen.contains("+second, by the agent in five"),
        "{screen}"
    );
    tmux.keys(["n"]);
    tmux.wait("+second, by the agent in four");
    tmux.keys(["t"]);
    tmux.wait("four through time");
    tmux.keys(["q"]);
    tmux.keys(["v"]);
    tmux.wait("four as after record");
    tmux.keys(["q", "q", "q"]);
    tmux.wait("outside any turn");
    tmux.keys(["f"]);
    let screen = tmux.wait("Files after");
    tmux.wait("six");
    assert!(screen.contains("./"), "{screen}");
    tmux.keys(["q", "s"]);
    tmux.wait("Search every version");
    tmux.say("second$");
    tmux.keys(["Enter"]);
    tmux.wait("gone by 1");
    tmux.keys(["Enter"]);
    tmux.wait("through time");
    tmux.keys(["q", "q", "/"]);
    tmux.say("mine");
    tmux.keys(["Enter"]);
    tmux.until("only one row", |screen| screen.contains("path mine") && !screen.contains("do k1"));
    tmux.keys(["Escape"]);
    tmux.wait("do k1");
    tmux.keys(["?"]);
    tmux.wait("Everywhere");
    tmux.leave();
}

#[test]
fn any_size_works_and_a_resize_loses_nothing() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui sizes", &cli, 80, 24) else { return };
    tmux.start("");
    tmux.wait("do k1");
    tmux.keys(["n", "Enter"]);
    tmux.wait("M five");
    for (columns, rows) in [("200", "50"), ("20", "5"), ("3", "2"), ("1", "1"), ("132", "40")] {
        tmux.tmux(["resize-window", "-x", columns, "-y", rows]);
        tmux.keys(["j", "k"]);
    }
    let screen = tmux.wait("@@ -1,2 +1,2 @@");
    assert!(screen.contains("M five"), "side by side: {screen}");
    tmux.tmux(["resize-window", "-x", "80", "-y", "24"]);
    tmux.until("the list alone", |screen| screen.contains("M five") && !screen.contains("@@"));
    tmux.leave();
}

#[test]
fn without_colour_there_is_none_and_with_colour_sixteen_at_most() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui colour", &cli, 80, 24) else { return };
    tmux.start("NO_COLOR=1");
    tmux.wait("do k1");
    let is_colour = |code: &str| {
        let number: u32 = code.parse().unwrap_or(0);
        (30..=38).contains(&number) || (40..=48).contains(&number) || (90..=107).contains(&number)
    };
    let codes = |screen: &str| -> Vec<String> {
        let parts = screen.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
        parts
            .flat_map(|(codes, _)| codes.split(';').map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    assert!(!codes(&tmux.colours()).iter().any(|code| is_colour(code)));
    tmux.leave();
    tmux.say("clear");
    tmux.keys(["Enter"]);
    tmux.start("");
    tmux.wait("do k1");
    let seen = codes(&tmux.colours());
    assert!(seen.iter().any(|code| is_colour(code)), "{seen:?}");
    assert!(!seen.iter().any(|code| code == "38" || code == "48"), "{seen:?}");
    tmux.keys(["q"]);
    tmux.until("left twice", |screen| screen.contains("left:0"));
}

#[test]
fn hostile_names_and_contents_are_only_text() {
    let cli = Cli::adopted(&[("plain", "x\n")]);
    let names: [&[u8]; 6] = [
        b"esc\x1b[31mred",
        b"line\nbreak",
        "bidi\u{202e}txt.exe".as_bytes(),
        b"not\xffutf8",
        "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}".as_bytes(),
        "漢字漢字".as_bytes(),
    ];
    cli.turn("s\u{1b}]0;owned\u{7}", "\u{1b}[2Jprompt \u{1b}]52;c;aGk=\u{7}", || {
        for name in names {
            std::fs::write(cli.root().join(OsStr::from_bytes(name)), b"a\x1b[2Jb\rc\x07\n")
                .unwrap();
        }
        std::fs::write(cli.root().join("long"), "y".repeat(1 << 20)).unwrap();
        std::fs::write(cli.root().join("zero"), b"a\0b").unwrap();
    });
    let Some(tmux) = Tmux::new("tui hostile", &cli, 100, 30) else { return };
    tmux.start("");
    let screen = tmux.wait("prompt ");
    assert!(screen.contains("\\u{1b}[2Jprompt"), "{screen}");
    tmux.keys(["Enter"]);
    let screen = tmux.wait("long");
    for shown in ["esc\\u{1b}[31mred", "line\\nbreak", "txt.exe", "not\\xffutf8", "漢字漢字"] {
        assert!(screen.contains(shown), "{shown}:\n{screen}");
    }
    assert!(!screen.contains('\u{202e}'), "{screen}");
    for _ in 0..names.len() + 2 {
        tmux.keys(["Enter"]);
        tmux.wait("diff a/");
        tmux.keys(["Escape", "j"]);
    }
    let title = tmux.tmux(["display-message", "-p", "#{pane_title}"]);
    assert!(!String::from_utf8_lossy(&title.stdout).contains("owned"));
    let colours = tmux.colours();
    assert!(colours.contains("esc\\u{1b}[31mred"), "{colours}");
    tmux.leave();
}

#[test]
fn the_mouse_works_until_it_is_given_to_the_terminal() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui mouse", &cli, 80, 24) else { return };
    tmux.start("");
    let screen = tmux.wait("do k1");
    let row = screen.lines().position(|line| line.contains("do k1")).unwrap() + 1;
    // A click chooses, a click on what is chosen opens.
    tmux.say(&format!("\u{1b}[<0;10;{row}M"));
    tmux.wait(&format!(" {}/", row - 1));
    tmux.say(&format!("\u{1b}[<0;10;{row}M"));
    tmux.wait("M five");
    tmux.say("\u{1b}[<65;10;5M");
    tmux.wait("4/6");
    tmux.keys(["m"]);
    tmux.wait("The mouse is the terminal's");
    let flag = tmux.tmux(["display-message", "-p", "#{mouse_any_flag}"]);
    assert_eq!(String::from_utf8_lossy(&flag.stdout).trim(), "0");
    tmux.leave();
}

#[test]
fn a_turn_of_five_thousand_files_and_a_diff_of_fifty_thousand_lines_are_shown() {
    let cli = Cli::adopted(&[("big", &"old line\n".repeat(25_000))]);
    cli.turn("s", "much", || {
        for number in 0..5_000 {
            cli.write(&format!("many/{number:04}"), "x\n");
        }
        cli.write("big", &"new line\n".repeat(25_000));
    });
    let Some(tmux) = Tmux::new("tui large", &cli, 80, 24) else { return };
    tmux.start("");
    // A directory is a change too.
    tmux.wait("5,002 files");
    tmux.keys(["Enter"]);
    let screen = tmux.wait("M big");
    assert!(screen.contains("1/5002"), "{screen}");
    tmux.keys(["Enter"]);
    tmux.wait("+25000 -25000");
    tmux.keys(["G"]);
    tmux.wait("50,00");
    tmux.keys(["Escape", "G"]);
    tmux.wait("many/4999");
    tmux.leave();
}

#[test]
fn a_conflict_shows_both_sides_and_waits_for_a_decision() {
    let cli = Cli::adopted(&[("a", "one\n")]);
    cli.turn("s", "change a", || cli.write("a", "by the agent\n"));
    cli.write("a", "by a person\n");
    cli.call(["settle"]).ok();
    let Some(tmux) = Tmux::new("tui conflict", &cli, 80, 24) else { return };
    tmux.start("");
    tmux.wait("change a");
    tmux.keys(["n", "r", "1"]);
    tmux.wait("conflict 1");
    tmux.keys(["y"]);
    tmux.wait("Conflicts first");
    tmux.keys(["Enter"]);
    let screen = tmux.wait("-by a person");
    assert!(screen.contains("+one") && screen.contains("mine: 12 B, target: 4 B"), "{screen}");
    tmux.keys(["Escape", "c", "c"]);
    tmux.wait("conflicts: take the target's");
    tmux.until("a plan", |screen| screen.contains("Plan ") && !screen.contains("Planning"));
    tmux.keys(["y"]);
    tmux.wait("Apply exactly this plan?");
    tmux.keys(["y"]);
    tmux.wait("Applied: 1 file changed");
    assert_eq!(cli.read("a").as_deref(), Some("one\n"));
    tmux.keys(["u"]);
    tmux.wait("Taken back");
    assert_eq!(cli.read("a").as_deref(), Some("by a person\n"));
    tmux.leave();
}

#[test]
fn signals_end_it_with_the_terminal_restored() {
    let cli = worked();
    for signal in ["-TERM", "-HUP", "-INT"] {
        let Some(tmux) = Tmux::new("tui signals", &cli, 80, 24) else { return };
        tmux.start("");
        tmux.wait("do k1");
        tmux.signal(signal);
        tmux.wait("left:0");
        tmux.check_restored();
    }
    cli.call(["settle"]).ok();
}

#[test]
fn suspended_it_gives_the_terminal_back_and_goes_on_where_it_was() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui suspended", &cli, 80, 24) else { return };
    tmux.start("");
    tmux.wait("do k1");
    tmux.keys(["n", "Enter"]);
    tmux.wait("M five");
    tmux.keys(["C-z"]);
    tmux.wait("Stopped");
    tmux.check_restored();
    tmux.say("fg");
    tmux.keys(["Enter"]);
    tmux.wait("M five");
    tmux.keys(["q"]);
    tmux.wait("do k1");
    tmux.keys(["q"]);
    tmux.until("the shell", |screen| screen.trim_end().ends_with(['$', '#']));
    tmux.check_restored();
}

#[test]
fn a_terminal_that_dies_takes_the_process_along_and_leaves_no_lock() {
    let cli = worked();
    let Some(tmux) = Tmux::new("tui dead terminal", &cli, 80, 24) else { return };
    tmux.start("");
    tmux.wait("do k1");
    tmux.keys(["n", "r", "1"]);
    tmux.wait("write 5, delete 1");
    let process = tmux.process();
    tmux.tmux(["kill-server"]);
    let begun = Instant::now();
    while std::path::Path::new(&format!("/proc/{process}")).exists() {
        assert!(begun.elapsed() < DEADLINE, "it is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    cli.call(["settle"]).ok();
    cli.call(["verify"]).ok();
}

#[test]
fn killed_in_the_middle_of_a_rewind_it_leaves_all_or_nothing() {
    let cli = worked();
    let before = contents(&cli);
    for (failpoint, applied) in [("rewind_after_stage", false), ("rewind_after_step", true)] {
        let Some(tmux) = Tmux::new("tui killed", &cli, 80, 24) else { return };
        tmux.start(&format!("CHRONICLE_FAILPOINT={failpoint}"));
        tmux.wait("do k1");
        tmux.keys(["n", "r", "1"]);
        tmux.wait("write 5, delete 1");
        tmux.keys(["y"]);
        tmux.wait("Apply exactly this plan?");
        tmux.keys(["y"]);
        tmux.wait("left:137");
        cli.call(["settle"]).ok();
        let after = contents(&cli);
        let old = after == before;
        let new = after[..5].iter().all(|it| it.as_deref() == Some("first\nsecond\n"));
        assert!(if applied { new } else { old }, "{failpoint}: {after:?}");
    }
    cli.call(["verify"]).ok();
}

#[test]
fn hung_up_in_the_middle_of_a_rewind_it_finishes_the_rewind_first() {
    let cli = worked();
    let before = "CHRONICLE_FAILPOINT=stop:rewind_after_step:2";
    let Some(tmux) = Tmux::alone("tui hung up", &cli, before) else { return };
    tmux.wait("do k1");
    tmux.keys(["n", "r", "1"]);
    tmux.wait("write 5, delete 1");
    tmux.keys(["y"]);
    tmux.wait("Apply exactly this plan?");
    tmux.keys(["y"]);
    let process = tmux.process();
    let begun = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        if stat.rsplit(')').next().unwrap().trim_start().starts_with('T') {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "it never stopped: {stat}");
        std::thread::sleep(Duration::from_millis(5));
    }
    tmux.signal("-HUP");
    tmux.signal("-CONT");
    tmux.wait("left:0");
    tmux.check_restored();
    let after = contents(&cli);
    assert!(after[..5].iter().all(|it| it.as_deref() == Some("first\nsecond\n")), "{after:?}");
    assert_eq!((after[5].as_deref(), after[6].as_deref()), (None, Some("a person's\n")));
    cli.call(["verify"]).ok();
}

#[test]
fn it_needs_a_terminal_and_a_workspace() {
    let cli = worked();
    let said = cli.call(["tui"]).exits(2);
    assert!(said.stderr.contains("needs a terminal"), "{}", said.stderr);
    cli.call(["tui", "--json"]).exits(2);
}
