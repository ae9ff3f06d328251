//! Tools that build in the mount: they make many files, link and rename them, and trust what times say.

use std::process::Command;

use chronicle_testing::shared::skip;

use super::Mount;

/// Runs a tool in the mount, without a network.
#[track_caller]
fn tool(mount: &Mount, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(mount.place.path());
    command.env("CARGO_TARGET_DIR", mount.at("target")).env("npm_config_cache", mount.at(".cache"));
    let said = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{words:?}: {out}\n{err}");
    format!("{out}{err}")
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn cargo_builds_in_it_and_builds_again_only_what_changed() {
    let test = "building::cargo_builds_in_it_and_builds_again_only_what_changed";
    if !has("cargo") {
        return skip(&format!("mount::{test}"), "it needs cargo");
    }
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let library = "pub fn number() -> u32 {\n    41\n}\n";
    let program = "fn main() {\n    println!(\"{}\", small::number());\n}\n";
    let files = [("Cargo.toml", manifest), ("src/lib.rs", library), ("src/main.rs", program)];
    let Some(mount) = Mount::new(test, &files) else { return };
    let build = ["cargo", "build", "--offline"];
    assert!(tool(&mount, &build).contains("Compiling small"));
    let built = mount.at("target/debug/small");
    assert_eq!(tool(&mount, &[built.to_str().unwrap()]), "41\n");
    assert!(!tool(&mount, &build).contains("Compiling"), "nothing changed");
    mount.write("src/lib.rs", &library.replace("41", "42"));
    assert!(tool(&mount, &build).contains("Compiling small"));
    assert_eq!(tool(&mount, &[built.to_str().unwrap()]), "42\n");
    assert_eq!(mount.versions("src/lib.rs"), [library, &library.replace("41", "42")]);
    // What was built is kept out, and said so.
    mount.cli.call(["rewind", "start", "--exact", "--touch", "--yes"]).exits(4);
    assert_eq!(std::fs::read_to_string(mount.at("src/lib.rs")).unwrap(), library);
    assert!(tool(&mount, &build).contains("Compiling small"));
    assert_eq!(tool(&mount, &[built.to_str().unwrap()]), "41\n");
    mount.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn npm_installs_in_it() {
    let test = "building::npm_installs_in_it";
    if !has("npm") || !has("node") {
        return skip(&format!("mount::{test}"), "it needs npm and node");
    }
    let package = r#"{"name": "small", "version": "1.0.0", "dependencies": {"dependency": "file:packages/dependency"}}"#;
    let dependency =
        r#"{"name": "dependency", "version": "2.0.0", "main": "main.js", "bin": "main.js"}"#;
    let files = [
        ("package.json", package),
        ("packages/dependency/package.json", dependency),
        ("packages/dependency/main.js", "#!/usr/bin/env node\nmodule.exports = 42\n"),
    ];
    let Some(mount) = Mount::new(test, &files) else { return };
    // Once as links and once as copies.
    for links in ["--install-links=false", "--install-links=true"] {
        let install = [
            "npm",
            "install",
            "--offline",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            links,
        ];
        tool(&mount, &install);
        let said = tool(
            &mount,
            &[
                "node",
                "-p",
                "require('dependency') + require('./package-lock.json').lockfileVersion",
            ],
        );
        assert_eq!(said.trim(), "45");
        assert!(mount.at("node_modules/.bin/dependency").exists());
        std::fs::remove_dir_all(mount.at("node_modules")).unwrap();
    }
    assert!(!mount.versions("package-lock.json").is_empty());
    mount.cli.call(["verify", "--deep"]).ok();
}
