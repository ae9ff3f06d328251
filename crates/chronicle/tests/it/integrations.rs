//! `integrations/` is what the program generates, and cannot drift from what it installs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Cli, PROGRAM, listing};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations")
}

fn generated() -> BTreeMap<String, String> {
    let said = Cli::new().call(["__integrations"]).ok().stdout;
    serde_json::from_str(&said).expect("path to text")
}

#[test]
fn the_integrations_are_what_the_program_generates() {
    let files = generated();
    if std::env::var_os("UPDATE_INTEGRATIONS").is_some() {
        let _ = fs::remove_dir_all(directory());
        for (name, text) in &files {
            let path = directory().join(name);
            fs::create_dir_all(path.parent().expect("below")).expect("make the parents");
            fs::write(path, text).expect("write");
        }
    }
    let present = listing(&directory()).into_iter().filter(|path| path.is_file());
    let present: BTreeMap<_, _> = present
        .map(|path| {
            let name = path.strip_prefix(directory()).expect("below").display().to_string();
            (name, fs::read_to_string(path).expect("text"))
        })
        .collect();
    assert!(
        present == files,
        "integrations/ is out of date: run this test with UPDATE_INTEGRATIONS=1"
    );
}

#[test]
fn every_json_file_is_json_and_versions_are_the_programs() {
    let version = env!("CARGO_PKG_VERSION");
    for (name, text) in generated().iter().filter(|(name, _)| name.ends_with(".json")) {
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(found) = value.get("version") {
            assert_eq!(found, version, "{name}");
        }
    }
}

#[test]
fn the_skill_names_only_verbs_that_exist() {
    let cli = Cli::new();
    let skill = &generated()["claude-code/skills/chronicle-undo/SKILL.md"];
    assert!(skill.starts_with("---\nname: chronicle-undo\ndescription: "));
    for line in skill.split("`chronicle ").skip(1) {
        let verb = line.split([' ', '`']).next().expect("a word");
        cli.call([verb, "--help"]).ok();
    }
}

/// Lets a shim work under node; `None` if there is none.
fn play(cli: &Cli, shim: &str, programs: &Path) -> Option<Value> {
    let scratch = cli.root();
    // Node wants to be told by the name that it is a module.
    let module = scratch.join("shim.mjs");
    fs::write(&module, shim).expect("write");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/opencode_shim.mjs");
    let found = Command::new("sh").args(["-c", "command -v node"]).output().expect("sh").stdout;
    let node = String::from_utf8(found).expect("text");
    if node.is_empty() {
        chronicle_testing::shared::skip("opencode shim", "node is missing");
        return None;
    }
    let mut command = Command::new(node.trim());
    command.args([&script, &module, &scratch]).env("PATH", programs);
    let output = command.output().expect("start node");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// A `chronicle` that notes down what it gets, takes its time, and answers as it is told.
fn fake(directory: &Path) {
    let program = "#!/bin/sh\n\
        PATH=/usr/bin:/bin\n\
        [ \"$1 $2\" = 'hook opencode' ] || exit 9\n\
        event=$(cat); sleep 0.02\n\
        printf '%s\\n' \"$event\" >>events\n\
        read -r status reason <answer\n\
        [ -z \"$reason\" ] || echo \"$reason\" >&2\n\
        exit \"$status\"\n";
    fs::create_dir_all(directory).expect("make");
    fs::write(directory.join("chronicle"), program).expect("write");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.join("chronicle"), mode).expect("chmod");
}

#[test]
fn the_opencode_shim_tells_in_order_blocks_and_warns() {
    let cli = Cli::new();
    let programs = cli.root().join("programs");
    fake(&programs);
    let Some(seen) = play(&cli, &generated()["opencode/chronicle.ts"], &programs) else {
        return;
    };
    let events = seen["events"].as_array().expect("events");
    let told: Vec<_> = events
        .iter()
        .map(|event| {
            let call = event["i"]["callID"].as_str().unwrap_or_default();
            format!("{}{call}", event["n"].as_str().expect("a name"))
        })
        .collect();
    let expected = [
        "chat.message",
        "before1",
        "before2",
        "after1",
        "after2",
        "event",
        "before3",
        "after3",
        "before4",
        "before5",
    ];
    assert_eq!(told, expected);
    assert_eq!(events[0]["o"]["parts"], serde_json::json!([{ "type": "text", "text": "do" }]));
    assert_eq!(events[1]["o"], serde_json::json!({ "args": { "filePath": "a" } }));
    assert_eq!(events[1]["worktree"], "/");
    assert_eq!(events[1]["directory"], cli.root().to_str().expect("text"));
    assert_eq!(events[5]["i"]["event"]["type"], "session.idle");
    assert_eq!(seen["refused"], "blocked: not saved");
    for passed in ["refusedAfter", "failed", "next"] {
        assert_eq!(seen[passed], "passed", "{passed}");
    }
    assert_eq!(seen["toasts"], serde_json::json!(["not saved", "disk full"]));
}

#[test]
fn the_opencode_shim_leaves_those_alone_who_have_no_chronicle() {
    let cli = Cli::new();
    let Some(seen) = play(&cli, &generated()["opencode/chronicle.ts"], &cli.root()) else {
        return;
    };
    for passed in ["refused", "failed", "next"] {
        assert_eq!(seen[passed], "passed", "{passed}");
    }
    assert_eq!(seen["toasts"], serde_json::json!([]));
}

#[test]
fn a_strict_opencode_shim_blocks_when_the_program_is_gone() {
    let cli = Cli::new();
    cli.call(["install", "opencode", "--strict"]).ok();
    let home = cli.root().parent().expect("in a home").to_owned();
    let shim = home.join(".config/opencode/plugins/chronicle.ts");
    let text = fs::read_to_string(&shim).expect("installed");
    assert!(text.contains(&format!("const command = [\"{PROGRAM}\",\"hook\",\"opencode\"")));
    let shim = text.replace(PROGRAM, "/nowhere/chronicle");
    let Some(seen) = play(&cli, &shim, &cli.root()) else { return };
    let refused = seen["next"].as_str().expect("text");
    assert!(refused.starts_with("blocked: ") && refused.contains("ENOENT"), "{refused}");
    assert_eq!(seen["refusedAfter"], "passed");
}
