//! What the mount does where it cannot record: it says so, it goes on, and what was acknowledged is not lost.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_testing::shared::skip;

use super::Mount;
use crate::support::Cli;

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_directory_that_is_only_called_like_a_repository_keeps_its_versions() {
    let test = "failing::a_directory_that_is_only_called_like_a_repository_keeps_its_versions";
    let Some(mount) = Mount::new(test, &[]) else { return };
    mount.shell(
        "mkdir -p notes/.git; echo one > notes/.git/f; echo two > notes/.git/f; rm notes/.git/f",
    );
    mount.status();
    let history = mount.cli.call(["--json", "history", "notes/.git/f"]).ok().json_lines();
    assert_eq!(history.len(), 3, "{history:#?}");
    mount.shell("mkdir real; git init -q real; echo 1 > real/.git/f; echo 2 > real/.git/f");
    assert!(fs::read(mount.at(".chronicle/query/real/.git/f")).is_err(), "it has one value");
    mount.cli.call(["verify", "--deep"]).ok();
}

#[test]
fn what_cannot_be_folded_is_said_by_status_until_it_can() {
    let test = "failing::what_cannot_be_folded_is_said_by_status_until_it_can";
    let Some(mount) = Mount::new(test, &[("a", "a\n")]) else { return };
    assert!(mount.status()["mount_problem"].is_null());
    let settings = mount.cli.home().join("config.toml");
    fs::write(&settings, "budget = \"1 KiB\"\n").unwrap();
    mount.write("b", &super::long_version(1));
    let said = || {
        let said = mount.cli.call(["--json", "status"]);
        serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap_or_default()
    };
    until("the failure is said", || said()["mount_problem"].is_string());
    fs::write(&settings, "budget = \"1 GiB\"\n").unwrap();
    until("it is not said any more", || said()["mount_problem"].is_null());
    assert_eq!(mount.versions("b"), [super::long_version(1)]);
}

/// Serves a mount with one kind of call failing now and then.
fn tampered(cli: &Cli, place: &std::path::Path, inject: &str) -> Child {
    let served = cli.command(["mount".as_ref(), "--foreground".as_ref(), place.as_os_str()]);
    let mut command = Command::new("strace");
    command.args(["-f", "-o", "/dev/null", "-e", inject]).arg(served.get_program());
    command.args(served.get_args()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(directory) = served.get_current_dir() {
        command.current_dir(directory);
    }
    for (name, value) in served.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.spawn().unwrap()
}

#[test]
fn what_was_acknowledged_while_calls_failed_is_in_the_log() {
    let test = "mount::failing::what_was_acknowledged_while_calls_failed_is_in_the_log";
    if !std::path::Path::new("/dev/fuse").exists()
        || Command::new("strace").arg("-V").output().is_err()
    {
        return skip(test, "it needs /dev/fuse and strace");
    }
    for (call, error) in [("pwrite64", "ENOSPC"), ("write", "EIO"), ("fdatasync", "EIO")] {
        let cli = Cli::adopted(&[("a", "a\n")]);
        let place = tempfile::tempdir().unwrap();
        let inject = format!("inject={call}:error={error}:when=40+23");
        let mut served = tampered(&cli, place.path(), &inject);
        let file = place.path().join("f");
        let is_mounted = || place.path().join(".chronicle/status").exists();
        let began = Instant::now();
        while !is_mounted() && served.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(30), "{inject}: it does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut acknowledged = Vec::new();
        for number in 0..60 {
            if is_mounted() && fs::write(&file, format!("{number}\n")).is_ok() {
                acknowledged.push(format!("{number}\n"));
            }
            if number % 20 == 19 {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        let _ = cli.call(["unmount".as_ref(), "--force".as_ref(), place.path().as_os_str()]);
        let _ = served.wait();
        let mount = Mount { cli, place };
        mount.start().ok();
        if !acknowledged.is_empty() {
            let versions = mount.versions("f");
            let mut found = versions.iter();
            // All in order; what was refused may stand between them.
            let is_kept = |wanted: &&String| !found.any(|version| version == *wanted);
            let lost: Vec<_> = acknowledged.iter().filter(is_kept).collect();
            assert!(lost.is_empty(), "{inject}: {lost:?} of {acknowledged:?} not in {versions:?}");
        }
        mount.cli.call(["verify", "--deep"]).ok();
    }
}
