//! `run --isolated`: the workspace is as it was until a commit, and then as the command left it.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

pub(crate) mod crash;
mod frozen;
mod hostile;
mod property;
mod users;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use chronicle_testing::env::{Env, Ran};
use chronicle_testing::shared::skip;
use chronicle_testing::tree::{Tree, assert_same, describe};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::scenes::{fill, world};
use crate::terminal::Terminal;

/// A world with every kind of entry, adopted; `None`, told as a skip, where nothing can be isolated.
fn isolating(test: &str) -> Option<Env> {
    let env = world();
    fill(&env);
    env.ok(&["init"]);
    can_isolate(&env, test).then_some(env)
}

/// Whether anything can be isolated here; told as a skip where not.
pub(crate) fn is_allowed(test: &str) -> bool {
    isolating(test).is_some()
}

fn can_isolate(env: &Env, test: &str) -> bool {
    let ran = env.run(&["run", "--isolated", "--", "true"]);
    if ran.output.status.code() == Some(13) {
        skip(&format!("isolated::{test}"), ran.stderr().lines().next().unwrap_or("refused"));
        return false;
    }
    let _ = ran.code(0);
    true
}

/// Runs a script isolated, without a decision.
fn script(env: &Env, text: &str) -> Ran {
    env.run(&["run", "--isolated", "--", "sh", "-ec", text])
}

/// The JSON that a command prints.
fn json(env: &Env, words: &[&str]) -> Value {
    serde_json::from_str(&env.ok(words)).unwrap()
}

fn runs(env: &Env) -> Vec<Value> {
    json(env, &["--json", "isolated", "list"])["runs"].as_array().unwrap().clone()
}

/// What is left of runs in the home.
fn left(env: &Env) -> Vec<PathBuf> {
    let workspaces = fs::read_dir(env.home().join("workspaces")).unwrap();
    let runs = workspaces.map(|entry| entry.unwrap().path().join("isolated"));
    runs.filter_map(|runs| fs::read_dir(runs).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect()
}

/// Every kind of change, as a script.
const WRECK: &str = "echo other > f1; rm f3; mv f4 moved; mkdir -p new/dir; echo new > new/dir/file
    rm -r deep; mkdir deep; echo again > deep/file; rmdir empty; echo 'a file now' > empty
    rm link; mkdir link; rm f2-too; chmod 600 script; ln -s nowhere dangling; touch -d @1 f2";

#[test]
fn nothing_changes_until_a_commit_and_an_undo_takes_it_back() {
    let Some(env) = isolating("commit") else { return };
    let before = describe(&env.workspace());
    let _ = script(&env, WRECK).code(0);
    assert_same(&before, &describe(&env.workspace()), "an isolated run");
    let shown = json(&env, &["--json", "isolated", "show"]);
    assert_eq!((shown["state"].as_str(), shown["status"].as_u64()), (Some("ended"), Some(0)));
    let done = json(&env, &["--json", "isolated", "commit"]);
    assert_eq!(done["id"], shown["id"]);
    assert_eq!(env.read("f1").as_deref(), Some("other\n"));
    assert_eq!(env.read("empty").as_deref(), Some("a file now\n"));
    assert_eq!(env.read("f3"), None);
    assert_eq!(env.read("deep/er/file"), None);
    assert_eq!(fs::metadata(env.path("script")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(env.path("link").is_dir() && env.path("new/dir/file").is_file());
    assert!(left(&env).is_empty(), "{:?}", left(&env));
    let after = describe(&env.workspace());
    let log = env.ok(&["--json", "log"]);
    let newest: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&newest["id"], &newest["session"]), (&shown["id"], &"run".into()), "{newest}");
    env.ok(&["undo", "--yes"]);
    assert_same(&before, &describe(&env.workspace()), "an undo");
    env.ok(&["redo", "--yes"]);
    assert_same(&after, &describe(&env.workspace()), "a redo");
    env.ok(&["verify", "--deep"]);
    assert_eq!(json(&env, &["--json", "status"])["changes"].as_array().unwrap().len(), 0);
}

#[test]
fn the_command_sees_the_workspace_at_its_usual_path_and_its_own_work() {
    let Some(env) = isolating("view") else { return };
    env.write("below/here/f", "x\n");
    let ran = env.run_with(
        &[
            "run",
            "--isolated",
            "--discard",
            "--",
            "sh",
            "-c",
            "pwd; cat f; echo y > f; cat f ../../f1",
        ],
        |command| {
            command.current_dir(env.path("below/here"));
        },
    );
    let seen = ran.code(0).stdout();
    let here = env.path("below/here").canonicalize().unwrap();
    assert!(seen.starts_with(&format!("{}\nx\ny\nfile 1\n", here.display())), "{seen}");
    assert_eq!(env.read("below/here/f").as_deref(), Some("x\n"));
    assert!(left(&env).is_empty(), "{:?}", left(&env));
}

#[test]
fn the_status_passes_through_and_decides_about_a_commit() {
    let Some(env) = isolating("status") else { return };
    for (text, status) in [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let _ = env.run(&["run", "--isolated", "--", "sh", "-c", text]).code(status);
    }
    let _ = env.run(&["run", "--isolated", "--", "no-such-command"]).code(127);
    assert_eq!(runs(&env).len(), 0, "runs that changed nothing do not wait");
    let words = ["run", "--isolated", "--commit", "--", "sh", "-c", "echo x > n; exit 3"];
    let ran = env.run(&words).code(3);
    assert!(ran.stderr().contains("Nothing was committed"), "{}", ran.story());
    assert_eq!((env.read("n"), runs(&env).len()), (None, 1));
    env.ok(&["isolated", "discard"]);
    env.ok(&["run", "--isolated", "--commit", "--", "sh", "-c", "echo x > n"]);
    assert_eq!((env.read("n").as_deref(), runs(&env).len()), (Some("x\n"), 0));
    env.ok(&["run", "--isolated", "--discard", "--", "sh", "-c", "echo y > n"]);
    assert_eq!(env.read("n").as_deref(), Some("x\n"));
}

#[test]
fn both_sides_are_merged_or_nothing_is_done() {
    let Some(env) = isolating("merge") else { return };
    let lines = |first: &str, last: &str| format!("{first}\n{}{last}\n", "same\n".repeat(9));
    env.write("text", lines("one", "two"));
    env.write("both", "before\n");
    let _ = script(&env, "sed -i 's/^one/ONE/' text; echo theirs > both; echo x > only").code(0);
    env.write("text", lines("one", "TWO"));
    env.write("both", "mine\n");
    env.write("other", "outside\n");
    let refused = env.run(&["--json", "isolated", "commit"]).code(3);
    let error: Value = serde_json::from_str(refused.stderr().lines().last().unwrap()).unwrap();
    assert_eq!(error["code"], "conflict");
    assert!(error["message"].as_str().unwrap().ends_with(": both"), "{error}");
    assert_eq!((env.read("only"), env.read("text")), (None, Some(lines("one", "TWO"))));
    let plan = json(&env, &["--json", "isolated", "commit", "--dry-run"]);
    assert_eq!(plan["conflict"].as_array().unwrap().len(), 1, "{plan}");
    // What is left out stays until somebody throws it away.
    let _ = env.run(&["isolated", "commit", "--on-conflict", "keep-mine"]).code(4);
    assert_eq!(env.read("text"), Some(lines("ONE", "TWO")));
    assert_eq!(
        (env.read("both").as_deref(), env.read("only").as_deref()),
        (Some("mine\n"), Some("x\n"))
    );
    assert_eq!(runs(&env)[0]["state"], "committed");
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("both").as_deref(), Some("mine\n"));
    env.ok(&["isolated", "discard"]);
    assert!(left(&env).is_empty(), "{:?}", left(&env));
}

#[test]
fn the_runs_side_may_be_taken_and_the_other_one_comes_back() {
    let Some(env) = isolating("replace") else { return };
    let _ = script(&env, "echo theirs > f1; rm f3").code(0);
    env.write("f1", "mine\n");
    env.write("f3", "mine too\n");
    let _ = env.run(&["isolated", "commit"]).code(3);
    let _ = env.run(&["isolated", "commit", "--on-conflict", "replace"]).code(4);
    assert_eq!((env.read("f1").as_deref(), env.read("f3")), (Some("theirs\n"), None));
    env.ok(&["undo", "--yes"]);
    assert_eq!(env.read("f1").as_deref(), Some("mine\n"));
    assert_eq!(env.read("f3").as_deref(), Some("mine too\n"));
}

#[test]
fn two_runs_conflict_only_where_both_worked() {
    let Some(env) = isolating("two") else { return };
    let first = start(&env, "echo 1 > a; echo 1 > f1; read x");
    let _ = script(&env, "echo 2 > b; echo 2 > f1").code(0);
    let second = runs(&env).iter().find(|run| run["state"] == "ended").unwrap()["id"].clone();
    let second = second.as_str().unwrap();
    assert_eq!(finish(first), Some(0));
    let first = runs(&env).iter().find(|run| run["id"] != second).unwrap()["id"].clone();
    let first = first.as_str().unwrap().to_owned();
    let _ = env.run(&["isolated", "commit"]).code(1);
    env.ok(&["isolated", "commit", second]);
    let refused = env.run(&["isolated", "commit", &first]).code(3);
    assert!(refused.stderr().contains("in conflict: f1"), "{}", refused.story());
    let _ = env.run(&["isolated", "commit", &first, "--on-conflict", "keep-mine"]).code(4);
    let all = ["a", "b", "f1"].map(|name| env.read(name).unwrap());
    assert_eq!(all, ["1\n", "2\n", "2\n"]);
}

/// Starts a script that reads a line before it ends.
fn start(env: &Env, text: &str) -> Child {
    let mut command = env.command();
    command.args(["run", "--isolated", "--", "sh", "-ec", text]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    wait_for(|| env.home().is_dir() && left(env).iter().any(|run| has_work(run)));
    child
}

/// Whether a run that goes on has something in its layer.
fn has_work(run: &std::path::Path) -> bool {
    let is_running = !run.file_name().unwrap().to_string_lossy().starts_with("going-");
    is_running && fs::read_dir(run.join("upper")).is_ok_and(|mut names| names.next().is_some())
}

fn finish(mut child: Child) -> Option<i32> {
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
    child.wait().unwrap().code()
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_whose_process_was_killed_waits_for_a_decision() {
    let Some(env) = isolating("killed") else { return };
    for decision in ["commit", "discard"] {
        let mut child = start(&env, "echo x > n; exec sleep 1000");
        let _ = env.run(&["isolated", "commit"]).code(11);
        let _ = env.run(&["isolated", "discard"]).code(11);
        let _ = env.run(&["isolated", "diff"]).code(11);
        assert_eq!(runs(&env)[0]["state"], "running");
        child.kill().unwrap();
        child.wait().unwrap();
        // Its processes die with it, which takes a moment.
        wait_for(|| runs(&env)[0]["state"] == "killed");
        assert_eq!(env.read("n"), None);
        env.ok(&["isolated", decision]);
        assert_eq!(env.read("n").is_some(), decision == "commit");
        assert!(left(&env).is_empty(), "{:?}", left(&env));
        fs::remove_file(env.path("n")).ok();
        env.ok(&["settle"]);
    }
}

#[test]
fn what_the_command_leaves_running_ends_with_the_run() {
    let Some(env) = isolating("daemons") else { return };
    let left_running = "(setsid sh -c 'sleep 0.2; echo late > late; while :; do date > n; sleep 0.02; done' \
                        >/dev/null 2>&1 &); echo started";
    let ran = script(&env, left_running).code(0);
    assert!(ran.stderr().contains("were ended with the isolated run"), "{}", ran.story());
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("late").as_deref(), Some("late\n"));
    // What ends soon by itself is waited for, and not told of.
    let ran = script(&env, "(sh -c 'sleep 0.2; echo soon > soon' >/dev/null 2>&1 &)").code(0);
    assert!(!ran.stderr().contains("were ended"), "{}", ran.story());
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("soon").as_deref(), Some("soon\n"));
}

#[test]
fn inside_a_run_nothing_is_recorded_and_nothing_isolated_again() {
    let Some(env) = isolating("nested") else { return };
    let binary = env.binary().display().to_string();
    let inner = |words: &str| {
        format!("s=0; {binary} {words} 2> said || s=$?; echo $s > status; cat said >&2")
    };
    for (words, code, status) in [
        ("--json run --isolated -- true", "in_isolation", "13"),
        ("--json run -- true", "in_isolation", "125"),
        ("--json settle", "in_isolation", "1"),
    ] {
        let ran = script(&env, &inner(words)).code(0);
        assert!(ran.stderr().contains(code), "{}", ran.story());
        env.ok(&["isolated", "commit"]);
        assert_eq!(env.read("status").as_deref(), Some(&*format!("{status}\n")), "{words}");
    }
    let event = format!(
        "{{\"session_id\":\"s\",\"cwd\":{:?},\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\
         \"tool_input\":{{\"command\":\"x\"}}}}",
        env.workspace()
    );
    fs::write(env.base().join("event"), event).unwrap();
    let event = env.base().join("event");
    let words = format!("hook codex < {}", event.display());
    let _ = script(&env, &inner(&words)).code(0);
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("status").as_deref(), Some("0\n"));
    assert_eq!(env.read("said").as_deref(), Some(""), "an agent's hook has nothing to say");
}

#[test]
fn where_nothing_can_be_isolated_nothing_runs() {
    let env = world();
    env.ok(&["init"]);
    let words = ["--json", "run", "--isolated", "--", "touch", "n"];
    let off = env
        .run_with(&words, |command| {
            command.env("CHRONICLE", "off");
        })
        .code(13);
    assert!(off.stderr().contains("\"code\":\"not_isolated\""), "{}", off.story());
    let inside = world();
    let inside = inside.with_home(env.path("home"));
    let inside = inside.with_workspace(env.workspace());
    if inside.run(&["init"]).is_done() {
        let ran = inside.run(&words).code(13);
        assert!(ran.stderr().contains("inside the workspace"), "{}", ran.story());
    }
    assert_eq!(env.read("n"), None);
}

#[test]
fn a_file_system_inside_the_workspace_is_named() {
    let Some(env) = isolating("mounted") else { return };
    let mount = |words: &[&str]| {
        std::process::Command::new("mount")
            .args(words)
            .status()
            .is_ok_and(|status| status.success())
    };
    let inner = env.path("inner");
    fs::create_dir(&inner).unwrap();
    if !mount(&["-t", "tmpfs", "tmpfs", inner.to_str().unwrap()]) {
        return skip("isolated::mounted", "nothing can be mounted here");
    }
    let ran = env.run(&["run", "--isolated", "--", "true"]);
    std::process::Command::new("umount").arg(&inner).status().unwrap();
    let said = ran.code(13).stderr();
    assert!(said.contains("mounted in it") && said.contains("chronicle run -- CMD"), "{said}");
}

#[test]
fn what_filters_keep_out_is_brought_or_named() {
    let Some(env) = isolating("filtered") else { return };
    env.write(".chronicleignore", "kept-out/\n*.log\n");
    env.write("kept-out/old", "old\n");
    env.write("kept-out/gone", "gone\n");
    env.write("a.log", "one\n");
    let terminal = Terminal::new();
    let mut accept = env.command();
    accept.args(["config", "accept", "--yes"]);
    let (screen, status) = terminal.run(accept);
    assert_eq!(status, 0, "{screen}");
    env.ok(&["settle"]);
    // Only what was there clearly before a run is known to be as it was.
    std::thread::sleep(Duration::from_millis(60));
    let before = describe(&env.workspace());
    let text = "echo new > kept-out/old; rm kept-out/gone; mkdir kept-out/d; echo x > kept-out/d/f; \
                echo two >> a.log; echo y > y";
    let _ = script(&env, text).code(0);
    assert_same(&before, &describe(&env.workspace()), "an isolated run");
    env.ok(&["isolated", "commit"]);
    let all = ["kept-out/old", "kept-out/d/f", "a.log", "y"].map(|name| env.read(name).unwrap());
    assert_eq!(all, ["new\n", "x\n", "one\ntwo\n", "y\n"]);
    assert_eq!(env.read("kept-out/gone"), None);
    // A single file that a rule names is out of sight again with the next look.
    env.ok(&["undo", "--yes"]);
    env.write("a.log", "one\n");
    let inside = |tree: &Tree| tree.part(b"kept-out");
    assert_same(&inside(&before), &inside(&describe(&env.workspace())), "an undo");

    // Left behind, they are named and stay where they are.
    let _ = script(&env, "echo newer > kept-out/old; echo z > z").code(0);
    let ran = env.run(&["isolated", "commit", "--filtered", "leave"]).code(4);
    assert!(ran.stdout().contains("kept-out/old"), "{}", ran.story());
    assert_eq!(
        (env.read("kept-out/old").as_deref(), env.read("z").as_deref()),
        (Some("old\n"), Some("z\n"))
    );
    let layer = runs(&env)[0]["layer"].as_str().unwrap().to_owned();
    assert_eq!(fs::read_to_string(PathBuf::from(layer).join("kept-out/old")).unwrap(), "newer\n");
    env.ok(&["isolated", "discard"]);

    // Whether somebody else changed it meanwhile, only its times tell.
    let _ = script(&env, "echo theirs > kept-out/old").code(0);
    env.write("kept-out/old", "mine\n");
    let _ = env.run(&["isolated", "commit"]).code(3);
    assert_eq!(env.read("kept-out/old").as_deref(), Some("mine\n"));
    let _ = env.run(&["isolated", "commit", "--on-conflict", "replace"]).code(4);
    assert_eq!(env.read("kept-out/old").as_deref(), Some("theirs\n"));
    env.ok(&["undo", "--yes"]);
    assert_eq!(env.read("kept-out/old").as_deref(), Some("mine\n"));
    env.ok(&["verify", "--deep"]);
}

const GIT: &str = "git -c user.name=n -c user.email=e@x -c init.defaultBranch=main";

#[test]
fn a_commit_in_a_repository_comes_whole() {
    let Some(env) = isolating("git") else { return };
    let git = |text: &str| {
        let text = text.replace("GIT", GIT);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", &text]).current_dir(env.workspace()).env("HOME", env.base());
        let done = shell.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    git("GIT init -q; GIT add f1; GIT commit -qm first");
    env.ok(&["settle"]);
    let first = git("GIT rev-parse HEAD");
    let work =
        "echo 2 > f1; GIT commit -qam second; GIT checkout -qb topic; GIT tag t; GIT status -s >&2";
    let _ = script(&env, &work.replace("GIT", GIT)).code(0);
    assert_eq!(git("GIT rev-parse HEAD"), first);
    env.ok(&["isolated", "commit"]);
    assert_eq!(git("GIT log --format=%s"), "second\nfirst\n");
    assert_eq!(git("GIT branch --show-current; GIT tag"), "topic\nt\n");
    assert_eq!(git("GIT fsck --strict 2>&1; GIT diff --stat"), "");
    assert!(git("GIT reflog").contains("second"));
    env.ok(&["undo", "--yes"]);
    assert_eq!(git("GIT rev-parse HEAD"), first);
    assert_eq!(git("GIT status --porcelain -- f1"), "");
    env.ok(&["verify", "--deep"]);

    // Both committed: the repository goes whole or not at all.
    let _ = script(&env, &"echo 3 > f1; GIT commit -qam third".replace("GIT", GIT)).code(0);
    git("echo 4 > f4; GIT add f4; GIT commit -qm fourth");
    let _ = env.run(&["isolated", "commit"]).code(3);
    assert_eq!(git("GIT log --format=%s"), "fourth\nfirst\n");
    let _ = env.run(&["isolated", "commit", "--git", "keep"]).code(0);
    assert_eq!(git("GIT log --format=%s"), "fourth\nfirst\n");
    assert_eq!(env.read("f1").as_deref(), Some("3\n"));
    // A new one, made inside.
    let _ = script(
        &env,
        &"mkdir sub; cd sub; GIT init -q; echo x > x; GIT add x; GIT commit -qm inner"
            .replace("GIT", GIT),
    )
    .code(0);
    env.ok(&["isolated", "commit"]);
    assert_eq!(
        git("cd sub; GIT log --format=%s; GIT fsck --strict 2>&1; GIT status -s"),
        "inner\n"
    );
}

#[test]
fn a_person_is_asked_at_a_terminal() {
    let Some(env) = isolating("ask") else { return };
    for (answer, expected) in [("y\r", Some("x\n")), ("n\r", None)] {
        let terminal = Terminal::new();
        let mut command = env.command();
        command.args(["run", "--isolated", "--ask", "--", "sh", "-c", "echo x > n"]);
        let mut child = terminal.start(command);
        let screen = wait_for_words(&terminal, "into the workspace?");
        terminal.type_in(answer);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{screen}");
        assert!(screen.contains("1 path (1 created)"), "{screen}");
        assert_eq!(env.read("n").as_deref(), expected, "{screen}");
        assert_eq!(runs(&env).len(), usize::from(expected.is_none()));
        fs::remove_file(env.path("n")).ok();
    }
}

#[test]
fn signals_keys_and_stops_reach_the_command() {
    let Some(env) = isolating("signals") else { return };
    let text = "trap 'echo told; exit 42' TERM; echo ready; while :; do sleep 0.02; done";
    let mut command = env.command();
    command.args(["run", "--isolated", "--", "sh", "-c", text]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "told");
    assert_eq!(child.wait().unwrap().code(), Some(42));

    // ^C at a terminal ends what it would end, and keys are the command's.
    let at_terminal = |text: &str| {
        let mut command = env.command();
        command.args(["run", "--isolated", "--discard", "--", "sh", "-c", text]);
        command
    };
    let terminal = Terminal::new();
    terminal.type_in("typed\r");
    let (screen, status) = terminal.run(at_terminal("read word; echo \"got $word\"; tty"));
    assert_eq!(status, 0, "{screen}");
    assert!(screen.contains("got typed") && screen.contains("/dev/pts/"), "{screen}");
    let terminal = Terminal::new();
    let mut child = terminal.start(at_terminal("echo ready; exec sleep 1000"));
    wait_for_words(&terminal, "ready");
    terminal.type_in("\x03");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Waits until these words are on the screen; what was there until then.
fn wait_for_words(terminal: &Terminal, words: &str) -> String {
    let (mut screen, mut bytes) = (String::new(), [0; 4096]);
    while !screen.contains(words) {
        let count = rustix::io::read(&terminal.screen, &mut bytes).unwrap();
        screen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    screen
}

/// A command that stops itself is stopped with everything above it, and goes on when a shell says so.
#[test]
fn a_shell_can_stop_and_continue_it() {
    let Some(env) = isolating("stopped") else { return };
    let inner = format!(
        "{} run --isolated --discard -- sh -c 'kill -TSTP $$; echo went on'",
        env.binary().display()
    );
    let mut command = std::process::Command::new("bash");
    command.args(["--norc", "-ic", &format!("set -m; {inner}; echo first=$?; fg; echo second=$?")]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", env.base());
    command.env("CHRONICLE_HOME", env.home()).env("CHRONICLE_WATCH", "off");
    command.current_dir(env.workspace());
    let mut leader = std::process::Command::new("setsid");
    leader.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
    leader.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    leader.current_dir(env.workspace());
    let terminal = Terminal::new();
    let mut child = terminal.start(leader);
    let screen = wait_for_words(&terminal, "second=");
    child.wait().unwrap();
    assert!(screen.contains("went on") && screen.contains("first=1"), "{screen}");
}

#[test]
fn a_run_within_a_turn_is_that_turns() {
    let Some(env) = isolating("turn") else { return };
    env.ok(&["turn", "start", "--session", "s", "--key", "k", "--prompt", "do it"]);
    env.ok(&["run", "--isolated", "--commit", "--", "sh", "-c", "echo x > n"]);
    env.ok(&["turn", "end", "--session", "s", "--key", "k"]);
    let log = env.ok(&["--json", "log"]);
    let newest: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(
        (newest["session"].as_str(), newest["turn"].as_u64()),
        (Some("s"), Some(1)),
        "{log}"
    );
    env.ok(&["undo", "turn:1", "--yes"]);
    assert_eq!(env.read("n"), None);
}

#[test]
fn runs_that_wait_are_told_of_and_nothing_takes_them_away() {
    let Some(env) = isolating("pending") else { return };
    let _ = script(&env, "echo x > n").code(0);
    let status = json(&env, &["--json", "status"]);
    assert_eq!(status["isolated"].as_array().unwrap().len(), 1, "{status}");
    assert!(env.ok(&["status"]).contains("isolated run"), "status does not tell");
    env.ok(&["gc"]);
    env.ok(&["prune"]);
    env.ok(&["doctor"]);
    env.ok(&["isolated", "log"]);
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("n").as_deref(), Some("x\n"));
    // What an interrupted discard left is gone with the next one; a damaged state is named.
    let _ = script(&env, "echo y > n").code(0);
    let run = left(&env).remove(0);
    fs::write(run.join("state"), "nonsense").unwrap();
    assert_eq!(runs(&env)[0]["state"], "damaged");
    let found = env.run(&["--json", "doctor"]);
    assert!(found.stdout().contains("isolated_damaged"), "{}", found.story());
    let id = runs(&env)[0]["id"].as_str().unwrap().to_owned();
    let _ = env.run(&["isolated", "commit", &id]).code(1);
    env.ok(&["isolated", "discard", &id]);
    assert!(left(&env).is_empty(), "{:?}", left(&env));
    env.ok(&["doctor"]);
}

/// Bytes that the store has no room for are refused before anything is changed.
#[test]
fn a_commit_over_the_budget_is_refused() {
    let Some(env) = isolating("budget") else { return };
    let before = describe(&env.workspace());
    let _ = script(&env, "head -c 3000000 /dev/urandom > big; echo x > f1").code(0);
    fs::write(env.home().join("config.toml"), "budget = \"2 MiB\"\n").unwrap();
    let ran = env.run(&["--json", "isolated", "commit"]).code(1);
    assert!(ran.stderr().contains("over_budget"), "{}", ran.story());
    assert_same(&before, &describe(&env.workspace()), "a commit over the budget");
    fs::remove_file(env.home().join("config.toml")).unwrap();
    env.ok(&["isolated", "commit"]);
    assert_eq!(env.read("f1").as_deref(), Some("x\n"));
}

fn tree(env: &Env) -> Tree {
    describe(&env.workspace())
}

#[test]
fn links_of_the_workspace_stay_and_what_was_only_opened_is_no_change() {
    let Some(env) = isolating("links") else { return };
    symlink("/etc", env.path("away")).unwrap();
    let before = tree(&env);
    // Opened for writing, touched back, and listed: the kernel copies all of it into the layer.
    let text = "for f in f1 f2 script; do exec 3>> $f; exec 3>&-; done; ls away/ > /dev/null; \
                touch -r f3 stamp; touch -r stamp f3; rm stamp; touch -r deep ../s; : > x; rm x; touch -r ../s deep";
    let _ = script(&env, text).code(0);
    for run in runs(&env) {
        env.ok(&["isolated", "commit", run["id"].as_str().unwrap()]);
    }
    assert_same(&before, &tree(&env), "a run that changed nothing");
    // Names of one file made inside are names of one file; one that is written to is its own.
    let _ = script(&env, "ln f1 f1-too; ln f1 f1-three; echo more >> f2").code(0);
    env.ok(&["isolated", "commit"]);
    let after = tree(&env);
    let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    assert!(after.links.contains(&names(&["f1", "f1-too", "f1-three"])), "{:?}", after.links);
    assert_ne!(env.read("f2"), env.read("f2-too"));
    env.ok(&["undo", "--yes"]);
    assert_same(&before, &tree(&env), "an undo");
}
