//! Suites that others wrote: pjdfstest and fsx, if `./test` has installed them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use chronicle_mount::NoMagic;

use crate::world::World;

/// A tool below `target/tools`, or what `CHRONICLE_TOOLS` names.
fn tool(test: &str, name: &str) -> Option<PathBuf> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let tools = std::env::var_os("CHRONICLE_TOOLS").map_or_else(usual, PathBuf::from);
    let found = tools.join(name).join("bin").join(name);
    if found.exists() {
        return Some(found);
    }
    chronicle_testing::shared::skip(test, &format!("needs {name}, which ./test installs"));
    None
}

const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// How each case of pjdfstest ended in a directory.
fn cases(suite: &Path, directory: &Path) -> BTreeMap<String, String> {
    let settings = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(settings.path(), SETTINGS).unwrap();
    let mut command = Command::new(suite);
    command.arg("-c").arg(settings.path()).arg("-p").arg(directory).current_dir("/");
    let output = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
    let words = output.lines().filter_map(|line| line.split_once(' '));
    let cases = words.filter(|(case, _)| case.contains("::"));
    cases.map(|(case, end)| (case.to_owned(), end.trim().to_owned())).collect()
}

#[test]
fn pjdfstest_fails_nowhere_where_the_plain_directory_does_not() {
    let test = "suites::pjdfstest";
    if !chronicle_testing::shared::is_root() {
        return chronicle_testing::shared::skip(test, "needs root, to become other users");
    }
    let Some(suite) = tool(test, "pjdfstest") else { return };
    for passthrough in [true, false] {
        let change = |settings: &mut chronicle_mount::Settings| {
            settings.allow_other = true;
            settings.passthrough = passthrough;
        };
        let Some(world) = World::with(test, change, Arc::new(NoMagic)) else { return };
        world.notes.look_away();
        world.outside("chmod 755 .");
        let (plain, mounted) = (cases(&suite, &world.below("")), cases(&suite, &world.at("")));
        assert!(plain.len() > 350, "only {} cases were read", plain.len());
        let bad = |end: &String| end != "ok" && end != "skipped";
        let is_worse = |case: &String, end: &String| {
            bad(end) && plain.get(case).is_none_or(|plain| !bad(plain))
        };
        let mut worse: Vec<_> = mounted
            .iter()
            .filter(|(case, end)| is_worse(case, end))
            .map(|(case, _)| case)
            .collect();
        // This process serves the mount and starts other programs meanwhile, which hold what is open for
        // writing until they are started: "text file busy" may come of that, once.
        if !worse.is_empty() {
            let again = cases(&suite, &world.at(""));
            worse.retain(|case| again.get(*case).is_none_or(|end| is_worse(case, end)));
        }
        assert!(worse.is_empty(), "passthrough {passthrough}: {worse:?}");
        let ok = mounted.values().filter(|end| *end == "ok").count();
        assert!(ok > 350, "only {ok} cases ran on the mount");
    }
}

/// On memory: fsx syncs all the time, and it is not the disk that is tested.
fn fsx(test: &str, seed: u64, passthrough: bool) {
    let Some(suite) = tool(test, "fsx") else { return };
    let memory = Path::new("/dev/shm");
    let backing =
        tempfile::tempdir_in(if memory.exists() { memory } else { Path::new("/tmp") }).unwrap();
    let change = |settings: &mut chronicle_mount::Settings| {
        settings.backing = backing.path().to_owned();
        settings.passthrough = passthrough;
    };
    let Some(world) = World::with(test, change, Arc::new(NoMagic)) else { return };
    world.notes.look_away();
    let count = chronicle_testing::shared::setting("CHRONICLE_FSX", 100_000);
    // By requests an operation takes several times as long.
    let count = if passthrough { count } else { count / 5 };
    let artifacts = tempfile::tempdir().unwrap();
    let output = Command::new(suite)
        .args(["-q", "-N", &count.to_string(), "-S", &seed.to_string(), "-P"])
        .arg(artifacts.path())
        .arg(world.at("file"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {said}");
}

#[test]
fn fsx_seed_1() {
    fsx("suites::fsx_seed_1", 1, true);
}

#[test]
fn fsx_seed_2() {
    fsx("suites::fsx_seed_2", 2, true);
}

#[test]
fn fsx_seed_3() {
    fsx("suites::fsx_seed_3", 3, true);
}

#[test]
fn fsx_by_requests() {
    fsx("suites::fsx_by_requests", 4, false);
}
