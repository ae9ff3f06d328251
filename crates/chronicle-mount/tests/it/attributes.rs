//! Mode, owner, times, extended attributes and access lists.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};

use crate::world::World;

#[test]
fn mode_times_and_owner_are_set_below() {
    let Some(world) = World::new("attributes::mode_times_and_owner") else { return };
    // Whoever reads what he notes touches the time of reading.
    world.notes.look_away();
    world.sh("echo x > f; mkdir d; ln -s nowhere s; chmod 751 f; chmod 1777 d");
    assert_eq!(fs::metadata(world.below("f")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(world.below("d")).unwrap().mode() & 0o7777, 0o1777);
    let at = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let set = |name: &str, last_access, last_modification| {
        let times = Timestamps { last_access, last_modification };
        rustix::fs::utimensat(CWD, world.at(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let found = fs::symlink_metadata(world.below(name)).unwrap();
        assert_eq!(fs::symlink_metadata(world.at(name)).unwrap().mtime_nsec(), found.mtime_nsec());
        found
    };
    let found = set("f", at(100, 5), at(-2, 250_000_000));
    assert_eq!((found.atime(), found.atime_nsec()), (100, 5));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-2, 250_000_000));
    let found = set("f", at(0, UTIME_OMIT), at(7, 8));
    assert_eq!((found.atime(), found.mtime(), found.mtime_nsec()), (100, 7, 8));
    let found = set("s", at(0, UTIME_NOW), at(9, 0));
    assert_eq!(found.mtime(), 9);
    assert!(found.atime() > 1_000_000_000);
    if chronicle_testing::shared::is_root() {
        world.sh("chown 12:34 f; chown -h 56 s");
        let (file, link) = (fs::metadata(world.below("f")), fs::symlink_metadata(world.below("s")));
        assert_eq!((file.as_ref().unwrap().uid(), file.unwrap().gid()), (12, 34));
        assert_eq!(link.unwrap().uid(), 56);
    }
}

#[test]
fn extended_attributes_go_through() {
    let Some(world) = World::new("attributes::extended") else { return };
    world.sh("echo x > f; mkdir d");
    for name in ["f", "d"] {
        let (above, below) = (world.at(name), world.below(name));
        let set = rustix::fs::setxattr(&above, "user.key", b"value", XattrFlags::CREATE);
        if set == Err(rustix::io::Errno::OPNOTSUPP) {
            return chronicle_testing::shared::skip(
                "attributes::extended",
                "no extended attributes here",
            );
        }
        let again = rustix::fs::setxattr(&above, "user.key", b"value", XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
        let mut room = [0; 64];
        assert_eq!(rustix::fs::getxattr(&below, "user.key", &mut room), Ok(5));
        assert_eq!(rustix::fs::getxattr(&above, "user.key", &mut room), Ok(5));
        assert_eq!(&room[..5], b"value");
        assert_eq!(
            rustix::fs::getxattr(&above, "user.key", &mut room[..2]),
            Err(rustix::io::Errno::RANGE)
        );
        let listed = rustix::fs::listxattr(&above, &mut room).unwrap();
        assert!(room[..listed].split(|byte| *byte == 0).any(|key| key == b"user.key"));
        rustix::fs::removexattr(&above, "user.key").unwrap();
        assert_eq!(
            rustix::fs::getxattr(&below, "user.key", &mut room),
            Err(rustix::io::Errno::NODATA)
        );
    }
}

#[test]
fn a_default_access_list_counts_more_than_the_mask() {
    let Some(world) = World::new("attributes::a_default_access_list") else { return };
    let has = std::process::Command::new("setfacl").arg("--version").output().is_ok();
    if !has {
        return chronicle_testing::shared::skip(
            "attributes::a_default_access_list",
            "needs setfacl",
        );
    }
    let script = "mkdir d; setfacl -d -m u:12:rw,g::rw,o::--- d; umask 077; echo x > d/f; mkdir d/e; \
        getfacl -cn d/f d/e";
    let above = world.sh(script);
    assert_eq!(above, world.outside("getfacl -cn d/f d/e"));
    assert!(above.contains("user:12:rw-"), "{above}");
    world.sh("setfacl -b d/f; setfacl -m u:34:r d/f");
    assert_eq!(world.sh("getfacl -cn d/f"), world.outside("getfacl -cn d/f"));
}

#[test]
fn a_write_of_another_takes_set_user_id_away() {
    if !chronicle_testing::shared::is_root() {
        return chronicle_testing::shared::skip("attributes::a_write_of_another", "needs root");
    }
    for passthrough in [true, false] {
        let change = |settings: &mut chronicle_mount::Settings| {
            settings.allow_other = true;
            settings.passthrough = passthrough;
        };
        let magic = std::sync::Arc::new(chronicle_mount::NoMagic);
        let Some(world) = World::with("attributes::a_write_of_another", change, magic) else {
            return;
        };
        let other = "setpriv --reuid=12345 --regid=12345 --clear-groups";
        world.sh("chmod 777 .; echo x > f; chmod 6777 f; echo x > t; chmod 6777 t");
        let open = world.at("").parent().unwrap().metadata().unwrap().mode() & 0o1 != 0;
        assert!(open, "the way to the mount is closed for others");
        world.sh(&format!("{other} sh -c 'echo y >> f; : > t; echo z > own; mkdir dir'"));
        assert_eq!(world.sh("stat -c '%a' f t"), "777\n777\n");
        assert_eq!(
            world.outside("stat -c '%a %u %g' f t own dir | cut -d' ' -f2-"),
            "0 0\n0 0\n12345 12345\n12345 12345\n"
        );
        assert_eq!(world.outside("stat -c '%a' f t"), "777\n777\n");
        // What was its owner's is not another's to open.
        world.sh("echo secret > s; chmod 600 s");
        world.sh(&format!("! {other} cat s"));
    }
}
