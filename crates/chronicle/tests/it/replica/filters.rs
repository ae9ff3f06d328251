//! `chronicle filter check` beside `git check-ignore --no-index`: the same lines, the same answer.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Cli;

/// A small generator, so that a seed is a case.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const NAMES: [&str; 9] = ["a", "b", "foo", "bar.o", "x.pyc", "build", "doc", "ab", "\u{fc}"];

fn pattern(random: &mut Random) -> String {
    let mut text = String::new();
    text.push_str(random.one_of(&["", "", "", "!", "/", "!/", "**/", "#", "\\!"]));
    for part in 0..=random.below(3) {
        if part > 0 {
            text.push('/');
        }
        text.push_str(random.one_of(&[
            "a", "b", "foo", "*.o", "*.pyc", "build", "doc", "a*", "?", "**", "[ab]", "*", "f\\oo",
            "a ",
        ]));
    }
    text.push_str(random.one_of(&["", "", "/", "/**", " "]));
    text
}

fn path(random: &mut Random) -> String {
    let parts: Vec<_> = (0..=random.below(3)).map(|_| random.one_of(&NAMES)).collect();
    let mut text = parts.join("/");
    text.push_str(random.one_of(&["", "", "", "", "/"]));
    text
}

fn ask(command: &mut Command, input: &str) -> (String, Option<i32>) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // Whoever refuses may be gone before it has read anything.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("ended");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", root);
    command
}

#[test]
fn every_answer_is_gits_own() {
    let cases = if std::env::var_os("CHRONICLE_LONG").is_some() { 2000 } else { 60 };
    let cli = Cli::new();
    let root = cli.root();
    assert!(git(&root).args(["init", "-q"]).status().expect("git").success());
    let mut random = Random(7);
    for case in 0..cases {
        let rules: String = (0..1 + random.below(6)).map(|_| pattern(&mut random) + "\n").collect();
        fs::write(root.join(".gitignore"), &rules).expect("written");
        let directory = root.join(random.one_of(&NAMES)).join(random.one_of(&NAMES));
        let _ = fs::create_dir_all(directory);
        let paths: String = (0..25).map(|_| path(&mut random) + "\n").collect();
        let theirs = ask(git(&root).args(["check-ignore", "--no-index", "--stdin"]), &paths);
        let words = ["filter", "check", "--stdin", "--rules", ".gitignore"];
        let ours = ask(&mut cli.command(words), &paths);
        assert_eq!(ours, theirs, "case {case}, rules:\n{rules}\npaths:\n{paths}");
    }
}

#[test]
fn lines_are_quoted_and_ended_as_git_does_it() {
    let cli = Cli::new();
    fs::write(cli.root().join("rules"), "*.pyc\nfoo/\n").expect("written");
    let check = |more: &[&str], input: &str| {
        let words = ["filter", "check", "--stdin", "--rules", "rules"].iter().chain(more);
        ask(&mut cli.command(words), input)
    };
    let all = "a.pyc\n\"b\\tc.pyc\"\n\u{fc}.pyc\n./d.pyc\nfoo/x\nfoo\n.\n";
    let expected = "a.pyc\n\"b\\tc.pyc\"\n\"\\303\\274.pyc\"\n./d.pyc\nfoo/x\n";
    assert_eq!(check(&[], all), (expected.to_owned(), Some(0)));
    assert_eq!(check(&["-z"], "a.pyc\0x\0"), ("a.pyc\0".to_owned(), Some(0)));
    assert_eq!(check(&[], "x.py\n"), (String::new(), Some(1)));
    assert_eq!(check(&[], "\n").1, Some(2));
    assert_eq!(check(&[], "../x\n").1, Some(2));
    let missing = ["filter", "check", "--stdin", "--rules", "none"];
    assert_eq!(ask(&mut cli.command(missing), "x\n").1, Some(5));
}

#[test]
fn rules_of_a_workspace_are_kept_and_listed() {
    let cli = Cli::adopted(&[
        ("a.txt", "one\n"),
        ("chronicle.toml", "[replication]\npush = [\"*.o\"]\n"),
    ]);
    cli.call(["filter", "add", "*.log", "--direction", "push"]).ok();
    cli.call(["filter", "add", "!keep.log", "--direction", "push"]).ok();
    let (found, status) =
        ask(&mut cli.command(["filter", "check", "--stdin"]), "x.log\nkeep.log\nx.o\ny\n");
    assert_eq!((&found[..], status), ("x.log\nx.o\n", Some(0)));
    let back = ["filter", "check", "--stdin", "--direction", "write-back"];
    assert_eq!(ask(&mut cli.command(back), "x.log\nchronicle.toml\n").0, "chronicle.toml\n");
    let listed = cli.call(["filter", "list", "--json"]).ok().json();
    assert_eq!(listed["rules"].as_array().map(Vec::len), Some(3), "{listed}");
    cli.call(["filter", "remove", "*.log"]).ok();
    assert_eq!(ask(&mut cli.command(["filter", "check", "x.log"]), "").1, Some(1));
}
