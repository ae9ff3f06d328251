//! The project that the clients work in, and the turn that wrecks it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use chronicle_testing::clients::{Action, Client, Scope};
use chronicle_testing::model::{Call, Script, Turn};

/// The person's words.
pub(super) const PROMPT: &str = "Clean up this project, please.";
/// The agent's words to its sub-agent.
const DELEGATED: &str = "Write down what is left over.";
/// What the model says last.
pub(super) const ENDING: &str = "all done";

const TRACKED: &[(&str, &str)] = &[
    (".gitignore", ".env\ncache/\n"),
    ("README.md", "hello\nworld\n"),
    ("server.py", "import http\nPORT = 8080\n"),
    ("docs/guide.md", "how to\n"),
    ("doomed/tracked.txt", "kept by git\n"),
];
const UNTRACKED: &[(&str, &str)] = &[
    (".env", "SECRET=1\n"),
    ("cache/data.bin", "\0\u{1}\u{2}"),
    ("doomed/deep/untracked.txt", "not kept by git\n"),
    ("ideas/one.txt", "an idea\n"),
    ("notes.txt", "mine\n"),
    ("tool.sh", "#!/bin/sh\n"),
];

/// What an agent does to it in one turn: every way to change files that agents have.
const TURN: &[Action<'_>] = &[
    Action::Read("server.py"),
    Action::Edit("server.py", "PORT = 8080", "PORT = 80"),
    Action::Create("notes/new.md", "new"),
    Action::Shell("sed -i s/hello/goodbye/ README.md"),
    Action::Shell("rm -rf doomed"),
    Action::Shell("git clean -fdxq"),
    Action::Shell("mv docs/guide.md docs/manual.md"),
    // In a session of its own, or Codex ends it with the command that started it.
    Action::Shell("{ setsid sh -c 'sleep 0.3; echo late > late.txt' >/dev/null 2>&1 & }"),
    Action::Create("made.md", "made"),
    Action::Delegate(DELEGATED),
    // The turn must not end before the writer in the background has written.
    Action::Shell("timeout 30 sh -c 'until [ -s late.txt ]; do sleep 0.05; done'"),
];
const DELEGATED_TURN: &[Action<'_>] =
    &[Action::Create("left.md", "left"), Action::Shell("echo 'DEBUG = 1' >> server.py")];

/// What the model does after the person's prompt, and after the agent's.
///
/// Hooks in the project's own settings are deleted by `git clean`. A pause lets a client notice that
/// which reads its settings again, as it would in a turn of human length.
pub(super) fn script(client: Client, project: &Path, scope: Scope) -> Script {
    let pause = if scope == Scope::Project { "; sleep 2" } else { "" };
    let turn = |prompt: &str, actions: &[Action<'_>]| Turn {
        prompt: prompt.to_owned(),
        steps: actions
            .iter()
            .filter(|action| can(client, action))
            .map(|action| vec![call(client, *action, project, pause)])
            .collect(),
        ending: ENDING.to_owned(),
    };
    Script { turns: vec![turn(PROMPT, TURN), turn(DELEGATED, DELEGATED_TURN)] }
}

/// A shell command begins with a `cd` that must succeed: it would wreck whatever is around it.
fn call(client: Client, action: Action<'_>, project: &Path, pause: &str) -> Call {
    match action {
        Action::Shell(command) => {
            let pause = if command.starts_with("git clean") { pause } else { "" };
            let command = format!("cd '{}' && {command}{pause}", project.display());
            client.call(Action::Shell(&command), project)
        }
        other => client.call(other, project),
    }
}

fn can(client: Client, action: &Action<'_>) -> bool {
    client == Client::ClaudeCode || !matches!(action, Action::Delegate(_))
}

/// The tools in the order in which a client should report them, before and after each.
pub(super) fn reports(client: Client, project: &Path) -> Vec<String> {
    let delegated = || actions(client, DELEGATED_TURN, project, &Vec::new);
    let mut reports = vec!["prompt".to_owned()];
    reports.extend(actions(client, TURN, project, &delegated));
    reports.push("end".to_owned());
    reports
}

fn actions(
    client: Client,
    actions: &[Action<'_>],
    project: &Path,
    delegated: &dyn Fn() -> Vec<String>,
) -> Vec<String> {
    let mut reports = Vec::new();
    for action in actions.iter().filter(|action| can(client, action)) {
        let call = client.call(*action, project);
        // Codex has its own name for the shell, and another one for hooks.
        let tool = if call.tool == "exec_command" { "Bash" } else { &call.tool };
        reports.push(format!("before {tool}"));
        if matches!(action, Action::Delegate(_)) {
            reports.extend(delegated());
        }
        reports.push(format!("after {tool}"));
    }
    reports
}

/// A repository with a dirty file, and around it what only a person's disk has.
pub(super) fn make(project: &Path) {
    put(project, TRACKED);
    symlink("server.py", project.join("current")).unwrap();
    set_mode(&project.join("server.py"), 0o755);
    git(project, &["init", "-q", "-b", "main"]);
    git(project, &["add", "."]);
    git(project, &["commit", "-qm", "first"]);
    put(project, &[("README.md", "hello\nworld\nand mine\n")]);
    put(project, UNTRACKED);
    for directory in ["empty/inside", "doomed/empty", "cache/empty"] {
        fs::create_dir_all(project.join(directory)).unwrap();
    }
    symlink("nowhere", project.join("doomed/dangling")).unwrap();
    symlink("../docs", project.join("ideas/link")).unwrap();
    set_mode(&project.join(".env"), 0o600);
    set_mode(&project.join("tool.sh"), 0o750);
    set_mode(&project.join("doomed/deep"), 0o711);
}

fn put(project: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What git itself keeps, wherever it keeps it: where HEAD and the branches are, and the index.
pub(super) fn repository(project: &Path) -> String {
    git(project, &["fsck", "--strict"]);
    let head = git(project, &["symbolic-ref", "HEAD"]);
    head + &git(project, &["for-each-ref"]) + &git(project, &["ls-files", "--stage"])
}

fn git(project: &Path, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(words)
        .current_dir(project)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Why this is not the project after the turn, if it is not.
pub(super) fn is_wrecked(client: Client, project: &Path) -> Result<(), String> {
    let read = |name: &str| fs::read_to_string(project.join(name)).unwrap_or_default();
    let debug = if client == Client::ClaudeCode { "DEBUG = 1\n" } else { "" };
    let texts = [
        ("server.py", format!("import http\nPORT = 80\n{debug}")),
        ("README.md", "goodbye\nworld\nand mine\n".to_owned()),
        ("docs/manual.md", "how to\n".to_owned()),
        ("late.txt", "late\n".to_owned()),
        ("made.md", "made\n".to_owned()),
    ];
    for (name, text) in texts {
        let found = read(name);
        if found != text {
            return Err(format!("{name} holds {found:?} instead of {text:?}"));
        }
    }
    let gone = ["doomed", "docs/guide.md", "notes.txt", "notes", ".env", "cache", "empty", "ideas"];
    match gone.into_iter().find(|name| project.join(name).symlink_metadata().is_ok()) {
        Some(name) => Err(format!("{name} is still there")),
        None => Ok(()),
    }
}
