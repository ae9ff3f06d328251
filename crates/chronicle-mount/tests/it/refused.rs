//! What must not be mounted, and how mounts end.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chronicle_mount::{MountError, NoMagic, NoVersions, Settings, Unmounted, mount};

use crate::world::{World, has_fuse, run};

fn attempt(backing: &Path, at: &Path) -> Result<(), MountError> {
    let mounted = mount(&Settings::new(backing, at), Arc::new(NoVersions), Arc::new(NoMagic))?;
    mounted.unmount().unwrap();
    Ok(())
}

#[test]
fn bad_places_are_refused_with_the_reason() {
    if !has_fuse("refused::bad_places") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for name in ["back/in", "full/x", "empty"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    fs::write(path("file"), "").unwrap();
    let refused = |backing: &str, at: &str| attempt(&path(backing), &path(at)).unwrap_err();
    assert!(matches!(refused("missing", "empty"), MountError::Backing { .. }));
    assert!(matches!(refused("file", "empty"), MountError::Backing { .. }));
    assert!(matches!(refused("back", "missing"), MountError::MountPoint { .. }));
    assert!(matches!(refused("back", "file"), MountError::NotADirectory { .. }));
    assert!(matches!(refused("back", "full"), MountError::NotEmpty { .. }));
    assert!(matches!(refused("back", "back/in"), MountError::Inside { .. }));
    assert!(matches!(refused("back/in", "back"), MountError::Inside { .. }));
    let said = refused("back", "full").to_string();
    assert!(
        said.contains(&*path("full").to_string_lossy()) && said.contains("empty directory"),
        "{said}"
    );
    attempt(&path("back"), &path("empty")).unwrap();
}

#[test]
fn twice_at_one_place_is_refused_and_over_itself_works() {
    let Some(world) = World::new("refused::twice") else { return };
    let other = tempfile::tempdir().unwrap();
    let twice = attempt(other.path(), &world.at("")).unwrap_err();
    assert!(matches!(twice, MountError::AlreadyMounted { .. }), "{twice:?}");

    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join("f"), "below").unwrap();
    let settings = Settings::new(own.path(), own.path());
    let mounted = mount(&settings, Arc::new(NoVersions), Arc::new(NoMagic)).unwrap();
    run("grep below f; echo more > g; mkdir d; mv g d", own.path());
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Clean);
    assert_eq!(fs::read_to_string(own.path().join("d/g")).unwrap(), "more\n");
}

#[test]
fn a_busy_mount_goes_lazily_and_says_so() {
    let Some(mut world) = World::new("refused::a_busy_mount") else { return };
    let mut file = fs::File::create(world.at("f")).unwrap();
    assert_eq!(world.mounted.take().unwrap().unmount().unwrap(), Unmounted::Lazily);
    assert!(!world.at("f").exists());
    std::io::Write::write_all(&mut file, b"still written").unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(world.below("f")).unwrap(), "still written");
}

#[test]
fn somebody_elses_unmount_ends_it() {
    let Some(mut world) = World::new("refused::somebody_elses") else { return };
    let mounted = world.mounted.take().unwrap();
    let at = world.at("").display().to_string();
    let done = Command::new("umount").arg(at.trim_end_matches('/')).status().unwrap();
    if done.success() {
        let begun = Instant::now();
        while !mounted.is_over() {
            assert!(begun.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(mounted.unmount().unwrap(), Unmounted::Already);
    }
}

/// Serves until it is killed; the parent of `a_killed_mount` runs this very binary.
#[test]
fn child_that_serves() {
    let (Ok(backing), Ok(at)) = (std::env::var("MOUNT_BACKING"), std::env::var("MOUNT_AT")) else {
        return;
    };
    let mounted =
        mount(&Settings::new(backing, &at), Arc::new(NoVersions), Arc::new(NoMagic)).unwrap();
    fs::write(format!("{at}/ready"), "").unwrap();
    mounted.wait().unwrap();
}

/// Another process that mounts and serves, once it does.
pub(crate) fn serve_in_child(backing: &Path, at: &Path) -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "refused::child_that_serves"])
        .env("MOUNT_BACKING", backing)
        .env("MOUNT_AT", at)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !backing.join("ready").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the child did not mount");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_killed_mount_says_so_and_is_replaced() {
    if !has_fuse("refused::a_killed_mount") {
        return;
    }
    let (backing, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut child = serve_in_child(backing.path(), at.path());
    run("echo kept > f", at.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let error = fs::metadata(at.path()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(107), "ENOTCONN");
    assert_eq!(fs::read_to_string(backing.path().join("f")).unwrap(), "kept\n");
    attempt(backing.path(), at.path()).unwrap();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let change = |settings: &mut Settings| settings.read_only = true;
    let Some(world) = World::with("refused::a_read_only", change, Arc::new(NoMagic)) else {
        return;
    };
    world.outside("echo x > f");
    world.mounted().catch_up();
    assert_eq!(world.sh("cat f; ! echo y > f; ! rm f; ! mkdir d"), "x\n");
    assert_eq!(world.outside("cat f"), "x\n");
}
