//! Installing into the agents' settings, and taking it back exactly.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chronicle_testing::shared::{is_root, skip};
use serde_json::Value;

use crate::support::{Cli, Done, PROGRAM, done};
use crate::terminal::Terminal;

/// Every agent and level, with the files it touches, seen from the person's home.
const PLACES: [(&str, &str, &[&str]); 16] = [
    ("claude-code", "--user", &[".claude/settings.json"]),
    ("claude-code", "--project", &["workspace/.claude/settings.local.json"]),
    ("claude-code", "--shared", &["workspace/.claude/settings.json"]),
    ("codex", "--user", &[".codex/hooks.json"]),
    ("codex", "--shared", &["workspace/.codex/hooks.json"]),
    ("gemini", "--user", &[".gemini/settings.json"]),
    ("gemini", "--shared", &["workspace/.gemini/settings.json"]),
    ("opencode", "--user", &[".config/opencode/plugins/chronicle.ts"]),
    ("opencode", "--shared", &["workspace/.opencode/plugins/chronicle.ts"]),
    ("cursor", "--user", &[".cursor/hooks.json"]),
    ("cursor", "--shared", &["workspace/.cursor/hooks.json"]),
    ("copilot", "--user", &[".copilot/hooks/chronicle.json"]),
    ("copilot", "--project", &["workspace/.github/copilot/settings.local.json"]),
    ("copilot", "--shared", &["workspace/.github/hooks/chronicle.json"]),
    ("cline", "--user", &["Documents/Cline/Hooks/PreToolUse", "Documents/Cline/Hooks/TaskStart"]),
    ("cline", "--shared", &["workspace/.clinerules/hooks/PreToolUse"]),
];

/// Settings as a person left them: comments, odd indentation, hooks of his own, no last line end.
const THEIRS: &str = "{\n\t // mine\n   \"theme\" : \"dark\",\n  \"hooks\":{\"PreToolUse\":[ \
     {\"matcher\":\"Bash\", \"hooks\":[{\"type\":\"command\",\"command\":\"./check.sh\"}]} /* keep */ ]},\n\
     \t\"last\": [1,2 , 3] // end\n}";

impl Cli {
    /// The person's home.
    fn person(&self) -> PathBuf {
        self.root().parent().expect("in a scratch directory").to_owned()
    }

    fn place(&self, name: &str) -> PathBuf {
        self.person().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.place(name);
        fs::create_dir_all(path.parent().expect("below home")).expect("make the parents");
        fs::write(path, text).expect("write");
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.place(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn install(&self, agent: &str, level: &str) -> Done {
        self.call(["install", agent, level])
    }

    fn uninstall(&self, agent: &str, level: &str) -> Done {
        self.call(["uninstall", agent, level])
    }

    /// Everything in the person's home but the history: kind, mode, content.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let paths = crate::support::listing(&self.person()).into_iter();
        let theirs = paths.filter(|path| !path.starts_with(self.home()));
        let entry = |path: PathBuf| {
            let metadata = fs::symlink_metadata(&path).expect("listed");
            let content = match metadata.file_type() {
                kind if kind.is_dir() => Vec::new(),
                kind if kind.is_symlink() => {
                    fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
                }
                _ => fs::read(&path).expect("a file"),
            };
            (path, (metadata.permissions().mode(), content))
        };
        theirs.map(entry).collect()
    }
}

fn is_json(name: &str) -> bool {
    name.ends_with(".json")
}

#[test]
fn from_nothing_and_back_to_nothing_at_every_level() {
    for (agent, level, files) in PLACES {
        let cli = Cli::new();
        cli.write("a", "1");
        let before = cli.tree();
        let said = cli.install(agent, level).ok();
        for file in files {
            assert!(cli.place(file).exists(), "{agent} {level}: {file}");
            assert!(said.stdout.contains(&format!("{file}\n")), "{agent} {level}: {}", said.stdout);
            assert!(said.stdout.contains("\n+"), "{agent} {level} shows no difference");
        }
        assert!(said.stderr.contains(&format!("chronicle uninstall {agent} {level}")), "{agent}");

        let installed = cli.tree();
        let again = cli.install(agent, level).ok();
        assert!(again.stdout.contains("already installed"), "{agent}: {}", again.stdout);
        assert_eq!(cli.tree(), installed, "{agent} {level}");

        let back = cli.uninstall(agent, level).ok();
        assert!(back.stdout.contains("The history stays: "), "{agent}: {}", back.stdout);
        assert_eq!(cli.tree(), before, "{agent} {level}");
        let nothing = cli.uninstall(agent, level).ok();
        assert!(nothing.stdout.contains("not installed"), "{agent}: {}", nothing.stdout);
        assert!(!cli.home().join("installs").exists(), "{agent} {level}");
    }
}

#[test]
fn what_people_had_in_their_settings_stays_and_comes_back_byte_for_byte() {
    for (agent, level, files) in PLACES {
        let cli = Cli::new();
        for file in files.iter().filter(|file| is_json(file)) {
            cli.put(file, THEIRS);
            let mode = fs::Permissions::from_mode(0o640);
            fs::set_permissions(cli.place(file), mode).expect("chmod");
        }
        let before = cli.tree();
        cli.install(agent, level).ok();
        for file in files.iter().filter(|file| is_json(file)) {
            let now = cli.get(file);
            for theirs in ["// mine", "\"theme\" : \"dark\"", "./check.sh", "/* keep */", "// end"]
            {
                assert!(now.contains(theirs), "{agent} {level} lost {theirs}: {now}");
            }
            assert!(now.contains(&format!("hook {agent}")) || now.contains("\"args\""), "{now}");
            let mode = fs::metadata(cli.place(file)).expect("there").permissions().mode();
            assert_eq!(mode & 0o7777, 0o640, "{agent} {level}");
        }
        cli.uninstall(agent, level).ok();
        assert_eq!(cli.tree(), before, "{agent} {level}");
    }
}

#[test]
fn what_somebody_changed_in_between_is_kept() {
    for (agent, level, files) in PLACES {
        let Some(file) = files.iter().find(|file| is_json(file)) else { continue };
        let cli = Cli::new();
        cli.put(file, "{\n  // mine\n  \"theme\": \"dark\"\n}\n");
        cli.install(agent, level).ok();
        let edited = cli.get(file).replacen("\"dark\"", "\"light\", // now\n  \"new\": {}", 1);
        cli.put(file, &edited);
        cli.uninstall(agent, level).ok();
        let rest = cli.get(file);
        for theirs in ["// mine", "\"theme\": \"light\"", "// now", "\"new\": {}"] {
            assert!(rest.contains(theirs), "{agent} {level} lost {theirs}: {rest}");
        }
        assert!(!rest.contains("chronicle") && !rest.contains("hooks"), "{agent} {level}: {rest}");
    }
}

#[test]
fn codex_settings_change_only_where_hooks_were_turned_off() {
    let cli = Cli::new();
    cli.put(".codex/config.toml", "# mine\n[features]\nweb = true\n");
    cli.install("codex", "--user").ok();
    assert_eq!(cli.get(".codex/config.toml"), "# mine\n[features]\nweb = true\n");

    let cli = Cli::new();
    cli.put(".codex/config.toml", "# mine\n[features]\nhooks = false   # why\n");
    let before = cli.tree();
    let said = cli.install("codex", "--user").ok();
    assert!(said.stdout.contains("-hooks = false   # why\n+hooks = true   # why\n"));
    cli.uninstall("codex", "--user").ok();
    assert_eq!(cli.tree(), before);

    cli.install("codex", "--user").ok();
    cli.put(".codex/config.toml", "# mine\n[features]\nhooks = true   # why\nweb = true\n");
    cli.uninstall("codex", "--user").ok();
    let expected = "# mine\n[features]\nhooks = false   # why\nweb = true\n";
    assert_eq!(cli.get(".codex/config.toml"), expected);
}

#[test]
fn a_file_of_ours_that_somebody_edited_is_moved_aside() {
    let cli = Cli::new();
    let file = ".config/opencode/plugins/chronicle.ts";
    cli.install("opencode", "--user").ok();
    cli.put(file, &(cli.get(file) + "// mine\n"));
    let done = cli.install("opencode", "--user").exits(1);
    assert!(done.stderr.contains("somebody else's"), "{}", done.stderr);
    cli.uninstall("opencode", "--user").ok();
    assert!(!cli.place(file).exists());
    assert!(cli.get(".config/opencode/plugins/chronicle.ts.edited").ends_with("// mine\n"));
}

#[test]
fn somebody_elses_file_in_our_place_is_left_alone() {
    let cli = Cli::new();
    cli.put("Documents/Cline/Hooks/PreToolUse", "#!/bin/sh\necho mine\n");
    let before = cli.tree();
    let done = cli.call(["install", "cline", "--json"]).exits(1);
    assert_eq!(done.error()["code"], "not_ours");
    assert!(done.error()["hint"].as_str().is_some_and(|hint| hint.contains("hook cline")));
    cli.uninstall("cline", "--user").ok();
    assert_eq!(cli.tree(), before);
}

#[test]
fn settings_that_do_not_parse_are_left_alone_and_the_place_is_named() {
    for (file, text, place) in [
        (".codex/hooks.json", "{\n  \"a\": [1,\n", "line 2"),
        (".codex/hooks.json", "{\"hooks\": {\"Stop\": 1}}", "hooks.Stop is not a list"),
        (".codex/config.toml", "a = 1\nb =\n", "line 2"),
    ] {
        let cli = Cli::new();
        cli.put(file, text);
        let before = cli.tree();
        for verb in ["install", "uninstall"] {
            let done = cli.call([verb, "codex", "--json"]);
            if verb == "uninstall" && done.status == 0 {
                continue;
            }
            let error = done.exits(1).error();
            assert_eq!(error["code"], "settings_malformed", "{file}");
            let message = error["message"].as_str().expect("text");
            assert!(message.contains(file) && message.contains(place), "{message}");
        }
        assert_eq!(cli.tree(), before, "{file}: {text}");
        assert!(!cli.home().join("installs").exists());
    }
    let cli = Cli::new();
    cli.put(".gemini/settings.json", "");
    fs::write(cli.place(".gemini/settings.json"), b"{\"a\": \"\xff\"}").expect("write");
    let error = cli.call(["install", "gemini", "--json"]).exits(1).error();
    assert_eq!(error["code"], "settings_malformed");
}

#[test]
fn a_link_to_settings_elsewhere_stays_a_link() {
    let cli = Cli::new();
    cli.put("dotfiles/claude.json", THEIRS);
    fs::create_dir(cli.place(".claude")).expect("make");
    symlink("../dotfiles/claude.json", cli.place(".claude/settings.json")).expect("link");
    let before = cli.tree();
    cli.install("claude-code", "--user").ok();
    assert!(fs::symlink_metadata(cli.place(".claude/settings.json")).is_ok_and(|m| m.is_symlink()));
    assert!(cli.get("dotfiles/claude.json").contains("SessionStart"));
    cli.uninstall("claude-code", "--user").ok();
    assert_eq!(cli.tree(), before);

    // One that leads nowhere yet is followed too.
    symlink("../dotfiles/gemini.json", cli.place(".claude/x")).expect("link");
    fs::create_dir(cli.place(".gemini")).expect("make");
    symlink("../dotfiles/gemini.json", cli.place(".gemini/settings.json")).expect("link");
    let before = cli.tree();
    cli.install("gemini", "--user").ok();
    assert!(cli.get("dotfiles/gemini.json").contains("BeforeTool"));
    cli.uninstall("gemini", "--user").ok();
    assert_eq!(cli.tree(), before);
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let cli = Cli::new();
    cli.put(".claude/settings.json", THEIRS);
    let mode = fs::Permissions::from_mode(0o444);
    fs::set_permissions(cli.place(".claude/settings.json"), mode).expect("chmod");
    let before = cli.tree();
    let error = cli.call(["install", "claude-code", "--json"]).exits(1).error();
    assert_eq!(error["code"], "settings_read_only");
    assert_eq!(cli.tree(), before);
    assert!(!cli.home().join("installs").exists());
}

#[test]
fn a_denied_directory_is_named_and_nothing_changes() {
    if is_root() {
        return skip("install, a denied directory", "root is never denied anything");
    }
    let cli = Cli::new();
    cli.put(".claude/settings.json", THEIRS);
    let allow = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(cli.place(".claude"), mode).expect("chmod");
    };
    allow(0o555);
    let before = cli.tree();
    let error = cli.call(["install", "claude-code", "--json"]).exits(1).error();
    assert_eq!(error["code"], "io");
    assert!(error["message"].as_str().is_some_and(|text| text.contains(".claude/settings.json")));
    assert_eq!(cli.tree(), before);
    cli.uninstall("claude-code", "--user").ok();
    assert_eq!(cli.tree(), before);
    allow(0o755);
}

/// The entries of every event, as handlers.
fn handlers(settings: &str) -> Vec<(String, Value)> {
    let settings: Value = serde_json::from_str(settings).expect("JSON");
    let events = settings["hooks"].as_object().expect("hooks");
    let mut found = Vec::new();
    for (event, entries) in events {
        for entry in entries.as_array().expect("a list") {
            match entry.get("hooks").and_then(Value::as_array) {
                Some(group) => found.extend(group.iter().map(|one| (event.clone(), one.clone()))),
                None => found.push((event.clone(), entry.clone())),
            }
        }
    }
    found
}

/// The words of a handler, as a shell or the agent reads them.
fn words(handler: &Value) -> Vec<String> {
    let line = handler.get("command").or_else(|| handler.get("bash")).and_then(Value::as_str);
    let line = line.expect("a command");
    if let Some(arguments) = handler.get("args").and_then(Value::as_array) {
        let arguments = arguments.iter().filter_map(Value::as_str);
        return std::iter::once(line).chain(arguments).map(str::to_owned).collect();
    }
    let script = format!("set -- {line}\nprintf '%s\\0' \"$@\"");
    let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn any_path_of_the_program_reaches_the_agent_as_it_is() {
    for (agent, file) in [
        ("claude-code", ".claude/settings.json"),
        ("codex", ".codex/hooks.json"),
        ("gemini", ".gemini/settings.json"),
        ("cursor", ".cursor/hooks.json"),
        ("copilot", ".copilot/hooks/chronicle.json"),
    ] {
        let cli = Cli::new();
        let directory = cli.place("it's \"odd\" $HOME `x` \\ dir");
        fs::create_dir(&directory).expect("make");
        let program = directory.join("chronicle");
        fs::hard_link(PROGRAM, &program)
            .or_else(|_| fs::copy(PROGRAM, &program).map(drop))
            .expect("another path");
        let mut command = Command::new(&program);
        command.args(["install", agent]).current_dir(cli.root()).env_clear();
        command.env("HOME", cli.person()).env("CHRONICLE_HOME", cli.place("other home"));
        let _ = done(command.stdin(Stdio::null()).output().expect("start")).ok();
        let expected = [
            program.to_str().expect("text"),
            "hook",
            agent,
            "--home",
            cli.place("other home").to_str().expect("text"),
        ]
        .map(str::to_owned);
        let found = handlers(&cli.get(file));
        for (event, handler) in &found {
            assert_eq!(words(handler), expected, "{agent} {event}");
        }

        // From another path the entries are the same ones, not more of them.
        let mut usual = cli.command(["install", agent]);
        let _ = done(usual.env_remove("CHRONICLE_HOME").output().expect("start")).ok();
        let replaced = handlers(&cli.get(file));
        assert_eq!(replaced.len(), found.len(), "{agent}");
        for (event, handler) in &replaced {
            assert_eq!(words(handler), [PROGRAM, "hook", agent], "{agent} {event}");
        }
    }
}

#[test]
fn agents_wait_in_their_own_unit_and_before_a_tool_strict_blocks() {
    let check = |agent: &str, file: &str, before: &str, patience: (&str, u64), closed: &Value| {
        let cli = Cli::new();
        let _ = cli.call(["install", agent, "--strict"]).ok();
        for (event, handler) in handlers(&cli.get(file)) {
            assert!(words(&handler).iter().any(|word| word == "--strict"), "{agent} {event}");
            let end = event.eq_ignore_ascii_case("SessionEnd");
            let expected = if end { patience.1 / 10 } else { patience.1 };
            assert_eq!(handler[patience.0], expected, "{agent} {event}");
            for (key, value) in closed.as_object().expect("an object") {
                let expected = if event == before { value } else { &Value::Null };
                assert_eq!(&handler[key], expected, "{agent} {event} {key}");
            }
        }
        // Without strict there is no such word, and it is replaced in place.
        cli.install(agent, "--user").ok();
        let now = cli.get(file);
        assert!(!now.contains("strict") && !now.contains("block") && !now.contains("Closed"));
    };
    let none = serde_json::json!({});
    let block = serde_json::json!({ "onFailure": "block" });
    let closed = serde_json::json!({ "failClosed": true });
    check("claude-code", ".claude/settings.json", "PreToolUse", ("timeout", 30), &block);
    check("codex", ".codex/hooks.json", "PreToolUse", ("timeout", 30), &none);
    check("gemini", ".gemini/settings.json", "BeforeTool", ("timeout", 30_000), &none);
    check("cursor", ".cursor/hooks.json", "preToolUse", ("timeout", 30), &closed);
    check("copilot", ".copilot/hooks/chronicle.json", "preToolUse", ("timeoutSec", 30), &none);
}

/// Runs what a shared file says, with or without a `chronicle` to be found.
fn run_shared(script: &str, path: &Path) -> Done {
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .output();
    done(output.expect("sh"))
}

#[test]
fn a_teammate_without_the_program_is_left_alone_and_a_block_passes_through() {
    for (agent, file, quiet) in [
        ("claude-code", "workspace/.claude/settings.json", ""),
        ("codex", "workspace/.codex/hooks.json", ""),
        ("gemini", "workspace/.gemini/settings.json", "{}\n"),
        ("cursor", "workspace/.cursor/hooks.json", "{}\n"),
        ("copilot", "workspace/.github/hooks/chronicle.json", ""),
        ("cline", "workspace/.clinerules/hooks/PreToolUse", "{}\n"),
    ] {
        let cli = Cli::new();
        let _ = cli.call(["install", agent, "--shared", "--strict"]).ok();
        let text = cli.get(file);
        let person = cli.person();
        assert!(!text.contains(person.to_str().expect("text")), "{agent} names a path: {text}");
        let script = match agent {
            "cline" => text,
            _ => {
                let (_, handler) = handlers(&text).swap_remove(0);
                assert!(handler.get("args").is_none(), "{agent}");
                let line = handler.get("command").or_else(|| handler.get("bash"));
                line.and_then(Value::as_str).expect("a line").to_owned()
            }
        };
        let empty = cli.place("empty");
        fs::create_dir(&empty).expect("make");
        let without = run_shared(&script, &empty).ok();
        assert_eq!((without.stdout.as_str(), without.stderr.as_str()), (quiet, ""), "{agent}");

        let programs = cli.place("programs");
        fs::create_dir(&programs).expect("make");
        let fake = "#!/bin/sh\necho \"$@\"\necho no >&2\nexit 2\n";
        fs::write(programs.join("chronicle"), fake).expect("write");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(programs.join("chronicle"), mode).expect("chmod");
        let with = run_shared(&script, &programs).exits(2);
        assert_eq!(with.stdout, format!("hook {agent} --strict\n"), "{agent}");
        assert_eq!(with.stderr, "no\n", "{agent}");
    }
}

#[test]
fn scripts_of_cline_can_be_executed() {
    for (level, directory) in
        [("--user", "Documents/Cline/Hooks"), ("--shared", "workspace/.clinerules/hooks")]
    {
        let cli = Cli::new();
        cli.install("cline", level).ok();
        for event in ["PreToolUse", "PostToolUse", "UserPromptSubmit", "TaskStart", "TaskCancel"] {
            let path = cli.place(directory).join(event);
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o500, 0o500, "{}", path.display());
        }
    }
}

#[test]
fn an_agent_without_settings_of_one_person_for_one_project_says_so() {
    for agent in ["codex", "gemini", "opencode", "cursor", "cline"] {
        let cli = Cli::new();
        let before = cli.tree();
        for verb in ["install", "uninstall"] {
            let done = cli.call([verb, agent, "--project"]).exits(2);
            assert!(done.stderr.contains("--shared"), "{}", done.stderr);
        }
        assert_eq!(cli.tree(), before);
    }
}

#[test]
fn a_home_is_no_project() {
    let cli = Cli::new();
    let person = cli.person();
    let words = ["-C", person.to_str().expect("text"), "install", "claude-code", "--shared"];
    let done = cli.call(words).exits(2);
    assert!(done.stderr.contains("is a home, not a project"), "{}", done.stderr);
}

#[test]
fn the_project_around_is_adopted_and_without_one_nothing_is() {
    let cli = Cli::new();
    cli.write("sub/a", "1");
    cli.install("claude-code", "--user").ok();
    cli.call(["status"]).exits(10);

    fs::create_dir(cli.root().join(".git")).expect("make");
    let sub = cli.root().join("sub");
    let words = ["-C", sub.to_str().expect("text"), "install", "gemini", "--json"];
    let report = cli.call(words).ok().json();
    assert_eq!(report["adopted"]["workspace"], cli.root().to_str().expect("text"));
    cli.call(["status"]).ok();

    // Installed before, adopted now: that is what a second project needs.
    let other = Cli::new();
    other.install("codex", "--user").ok();
    fs::create_dir(other.root().join(".git")).expect("make");
    let again = other.install("codex", "--user").ok();
    assert!(again.stdout.contains("already installed") && again.stdout.contains("Adopted "));
}

#[test]
fn scripts_get_everything_as_json() {
    let cli = Cli::new();
    let report = cli.call(["install", "codex", "--shared", "--json"]).ok().json();
    assert_eq!(report["schema"], 1);
    assert_eq!((&report["agent"], &report["level"]), (&"codex".into(), &"shared".into()));
    assert_eq!((&report["already"], &report["strict"]), (&false.into(), &false.into()));
    assert_eq!(report["files"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["files"][0]["action"], "created");
    assert!(report["files"][0]["patch"].as_str().is_some_and(|patch| patch.contains("\n+")));
    assert!(report["next"][0].as_str().is_some_and(|next| next.contains("trust")));
    let back = cli.call(["uninstall", "codex", "--shared", "--json"]).ok().json();
    assert_eq!(back["files"][0]["action"], "removed");
    assert_eq!(back["purged"], false);
    assert!(back["home_bytes"].as_u64().is_some_and(|bytes| bytes > 0));

    cli.call(["install", "codex", "--shared"]).ok();
    let elsewhere = cli.call(["uninstall", "codex", "--json"]).ok().json();
    assert_eq!((&elsewhere["already"], &elsewhere["elsewhere"]), (&true.into(), &"shared".into()));
}

#[test]
fn receipts_are_for_their_owner_only() {
    let cli = Cli::new();
    cli.put(".claude/settings.json", "{\"env\": {\"TOKEN\": \"secret\"}}");
    cli.install("claude-code", "--user").ok();
    let installs = cli.home().join("installs");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&cli.home()), mode(&installs)), (0o700, 0o700));
    for entry in fs::read_dir(&installs).expect("listed").flatten() {
        assert_eq!(mode(&entry.path()), 0o600);
    }
}

#[test]
fn on_a_terminal_the_person_is_asked() {
    let cli = Cli::new();
    cli.put(".cursor/hooks.json", "{}\n");
    let before = cli.tree();
    let terminal = Terminal::new();
    terminal.type_in("n\n");
    let (screen, status) = terminal.run(cli.command(["install", "cursor"]));
    assert_eq!(status, 3, "{screen}");
    assert!(screen.contains("[y/N]") && screen.contains("preToolUse"), "{screen}");
    assert_eq!(cli.tree(), before);

    let terminal = Terminal::new();
    terminal.type_in("y\n");
    let (screen, status) = terminal.run(cli.command(["install", "cursor"]));
    assert_eq!(status, 0, "{screen}");
    let terminal = Terminal::new();
    let (screen, status) = terminal.run(cli.command(["uninstall", "cursor", "--yes"]));
    assert_eq!(status, 0, "{screen}");
    assert_eq!(cli.tree(), before);
}

#[test]
fn a_history_is_deleted_only_by_a_person_and_only_this_one() {
    let cli = Cli::adopted(&[("a", "1")]);
    cli.install("cursor", "--user").ok();
    let other = cli.place("other");
    fs::create_dir(&other).expect("make");
    fs::write(other.join("b"), "2").expect("write");
    cli.call(["init", other.to_str().expect("text")]).ok();

    let refused = cli.call(["uninstall", "cursor", "--purge", "--yes", "--json"]).exits(3);
    assert_eq!(refused.error()["code"], "not_confirmed");
    assert!(cli.place(".cursor/hooks.json").exists());
    cli.call(["-C", "/", "uninstall", "cursor", "--purge"]).exits(10);

    let terminal = Terminal::new();
    terminal.type_in("y\nn\n");
    let (screen, status) = terminal.run(cli.command(["uninstall", "cursor", "--purge"]));
    assert_eq!(status, 0, "{screen}");
    assert!(screen.contains("goes for ever: ") && screen.contains("The history stays"), "{screen}");
    cli.call(["status"]).ok();

    let terminal = Terminal::new();
    terminal.type_in("y\n");
    let (screen, status) = terminal.run(cli.command(["uninstall", "cursor", "--purge"]));
    assert_eq!(status, 0, "{screen}");
    assert!(screen.contains("1 other workspace"), "{screen}");
    cli.call(["status"]).exits(10);
    assert_eq!(cli.read("a").as_deref(), Some("1"));
    let other = other.to_str().expect("text");
    cli.call(["-C", other, "verify", "--deep"]).ok();

    let terminal = Terminal::new();
    let last = ["-C", other, "uninstall", "cursor", "--purge", "--yes"];
    let (screen, status) = terminal.run(cli.command(last));
    assert_eq!(status, 0, "{screen}");
    assert!(!cli.home().join("store").exists());
    cli.call(["init"]).ok();
    cli.call(["verify", "--deep"]).ok();
}
