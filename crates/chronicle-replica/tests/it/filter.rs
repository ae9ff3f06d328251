//! The filter beside git itself: the same paths are out.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_core::WorkspacePath;
use chronicle_replica::DirectionalFilter;
use chronicle_testing::dice::Dice;
use chronicle_testing::shared::{setting, skip};

/// An ordinary run tries as many trees as this time allows, and at least some.
const TIME: Duration = Duration::from_secs(20);

const NAMES: [&[u8]; 12] =
    [b"a", b"b", b"ab", b".o", b"-", b" x", b"\xff", b"[", b"A", b"7", b"\\", b"*"];
const PIECES: [&[u8]; 30] = [
    b"a",
    b"b",
    b"ab",
    b".o",
    b"a",
    b"/",
    b"/",
    b"/",
    b"*",
    b"*",
    b"**",
    b"**/",
    b"/**",
    b"?",
    b"[ab]",
    b"[!a]",
    b"[^b-z]",
    b"[]-]",
    b"[[:alpha:]]",
    b"[a-",
    b"\\",
    b"\\*",
    b" ",
    b"\xff",
    b"[\\]a]",
    b"-",
    b"{a,b}",
    b"[[:x",
    b"***",
    b"[0-9]",
];

fn name(dice: &mut Dice) -> Vec<u8> {
    let count = dice.between(1, 2);
    (0..count).flat_map(|_| dice.pick(&NAMES).to_vec()).collect()
}

fn pattern(dice: &mut Dice) -> Vec<u8> {
    let opening: [&[u8]; 8] = [b"", b"", b"", b"!", b"!", b"/", b"#", b"\\!"];
    let closing: [&[u8]; 8] = [b"", b"", b"", b"/", b"/", b" ", b"\r", b"\t"];
    let mut line = dice.pick(&opening).to_vec();
    // The shapes that are compared as plain bytes come often.
    match dice.below(8) {
        0 => line.extend([&name(dice)[..], b"*"].concat()),
        1 => line.extend([b"*", &name(dice)[..], b"*"].concat()),
        2 => line.extend([&name(dice)[..], b"/**"].concat()),
        _ => (0..dice.between(1, 4)).for_each(|_| line.extend(*dice.pick(&PIECES))),
    }
    line.extend(*dice.pick(&closing));
    line
}

/// Makes a random tree; answers its paths and whether each is a directory.
fn grow(top: &Path, dice: &mut Dice) -> Vec<(Vec<u8>, bool)> {
    let mut directories = vec![Vec::new()];
    let mut paths = Vec::new();
    for round in 0..48 {
        let parent = dice.pick(&directories).clone();
        let path = if parent.is_empty() { name(dice) } else { [parent, name(dice)].join(&b'/') };
        let real = top.join(OsStr::from_bytes(&path));
        if round < 8 && std::fs::create_dir(&real).is_ok() {
            directories.push(path.clone());
            paths.push((path, true));
        } else if round >= 8 && std::fs::File::create_new(&real).is_ok() {
            paths.push((path, false));
        }
    }
    paths
}

fn git(top: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(words).current_dir(top).env_clear().env("HOME", top);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What git says of each path, whether the last pattern that fits keeps it out.
fn ignored_by_git(top: &Path, paths: &[(Vec<u8>, bool)]) -> Vec<bool> {
    let mut child =
        git(top, &["check-ignore", "--no-index", "-z", "--stdin", "-v", "-n"]).spawn().unwrap();
    // A leading `./` keeps names from being taken for anything else.
    let given: Vec<u8> =
        paths.iter().flat_map(|(path, _)| [b"./", &path[..], b"\0"].concat()).collect();
    child.stdin.take().unwrap().write_all(&given).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    let fields: Vec<_> = output.stdout.split(|byte| *byte == 0).collect();
    let answers: Vec<_> = fields
        .chunks_exact(4)
        .map(|four| !four[2].is_empty() && !four[2].starts_with(b"!"))
        .collect();
    assert_eq!(answers.len(), paths.len(), "git answers for every path");
    answers
}

#[test]
fn the_same_is_filtered_as_git_ignores() {
    let begun = Instant::now();
    let most = setting("CHRONICLE_TREES", 2000);
    let patient = std::env::var_os("CHRONICLE_TREES").is_some();
    for seed in 1..=most {
        if !patient && begun.elapsed() > TIME && seed > 50 {
            break;
        }
        let mut dice = Dice::new(seed);
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path();
        if git(top, &["init", "-q", "--template="]).output().is_err() {
            return skip("filter", "git cannot be run");
        }
        let paths = grow(top, &mut dice);
        let rules: Vec<u8> = (0..dice.between(1, 6))
            .flat_map(|_| [pattern(&mut dice), b"\n".to_vec()].concat())
            .collect();
        std::fs::write(top.join(".gitignore"), &rules).unwrap();
        let filter = DirectionalFilter::from_rules(&rules);
        for ((path, is_directory), expected) in paths.iter().zip(ignored_by_git(top, &paths)) {
            let path = WorkspacePath::new(path.clone()).unwrap();
            let found = filter.is_filtered(&path, *is_directory);
            assert_eq!(
                found,
                expected,
                "seed {seed}: {path} with {:?}",
                String::from_utf8_lossy(&rules)
            );
        }
    }
}
