//! A command may leave anything in its layer; reading that leads nowhere else and loses nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use chronicle_testing::shared::{is_root, skip};
use chronicle_testing::tree::assert_same;

use super::{isolating, left, runs, script, tree};
use crate::scenes::world;

#[test]
fn odd_names_modes_links_and_attributes_come_as_they_are() {
    let Some(env) = isolating("hostile") else { return };
    let text =
        "printf x > \"$(printf 'a\\nb\\377')\"; ln -s /etc/passwd out; ln -s .. up; mkfifo pipe
        echo x > setuid; chmod 6755 setuid; mkdir sticky; chmod 1777 sticky; truncate -s 10M holes
        n=$(printf %0200d 0); mkdir -p $n/$n/$n/$n; echo deep > $n/$n/$n/$n/f
        echo x > marked; setfattr -n user.mark -v v marked || :
        setfattr -n user.overlay.opaque -v y marked || :; rm -r deep; ln -s /etc deep";
    let before = tree(&env);
    let _ = script(&env, text).code(0);
    assert_same(&before, &tree(&env), "an isolated run");
    env.ok(&["isolated", "diff", "--patch"]);
    env.ok(&["isolated", "commit"]);
    assert_eq!(fs::read_link(env.path("out")).unwrap(), PathBuf::from("/etc/passwd"));
    assert_eq!(fs::read_link(env.path("deep")).unwrap(), PathBuf::from("/etc"));
    assert_eq!(fs::metadata(env.path("setuid")).unwrap().permissions().mode() & 0o7777, 0o6755);
    assert_eq!(fs::metadata(env.path("holes")).unwrap().len(), 10 << 20);
    env.ok(&["undo", "--yes"]);
    assert_same(&before, &tree(&env), "an undo");
    env.ok(&["verify", "--deep"]);
}

#[test]
fn what_cannot_be_brought_is_named_and_kept() {
    let Some(env) = isolating("sockets") else { return };
    let listen =
        "python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.bind(\"sock\")'; echo x > n";
    let _ = script(&env, listen).code(0);
    let ran = env.run(&["isolated", "commit"]).code(4);
    assert!(ran.stdout().contains("sock"), "{}", ran.story());
    assert_eq!(env.read("n").as_deref(), Some("x\n"));
    assert_eq!(runs(&env)[0]["state"], "committed");
    env.ok(&["isolated", "discard"]);
    assert!(left(&env).is_empty(), "{:?}", left(&env));
}

#[test]
fn a_layer_that_keeps_its_owner_out_can_be_thrown_away() {
    let Some(env) = isolating("closed") else { return };
    let text = "mkdir -p shut/in; echo x > shut/in/f; echo y > unread; chmod 0 unread shut/in shut";
    let _ = script(&env, text).code(0);
    if !is_root() {
        // Without its content nothing may be committed.
        let _ = env.run(&["isolated", "commit"]).code(1);
    }
    env.ok(&["isolated", "discard"]);
    assert!(left(&env).is_empty(), "{:?}", left(&env));
}

/// An overlay may lie below a layer, but none can hold one.
#[test]
fn an_overlay_below_works_and_one_for_the_home_is_refused() {
    let Some(env) = isolating("stacked") else { return };
    let base = env.base().join("stack");
    let place = |name: &str| base.join(name).display().to_string();
    for name in ["lower", "upper", "work", "at"] {
        fs::create_dir_all(base.join(name)).unwrap();
    }
    let (lower, upper, work) = (place("lower"), place("upper"), place("work"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(base.join("at"));
    if !mount.output().is_ok_and(|done| done.status.success()) {
        return skip("isolated::stacked", "nothing can be mounted here");
    }
    let below = world().with_workspace(base.join("at"));
    let above = world().with_home(base.join("at/home"));
    let tried = std::panic::catch_unwind(|| {
        fs::write(below.path("f"), "x\n").unwrap();
        below.ok(&["init"]);
        below.ok(&["run", "--isolated", "--commit", "--", "sh", "-c", "echo y > f; mkdir d"]);
        assert_eq!(below.read("f").as_deref(), Some("y\n"));
        above.ok(&["init"]);
        let refused = above.run(&["run", "--isolated", "--", "true"]).code(13);
        assert!(refused.stderr().contains("on an overlay itself"), "{}", refused.story());
    });
    let _ = std::process::Command::new("umount").arg("-l").arg(base.join("at")).status();
    tried.unwrap();
}
