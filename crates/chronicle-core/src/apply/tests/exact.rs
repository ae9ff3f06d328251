//! Rewinds bring back everything, and only that.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::XattrFlags;

use super::super::*;
use super::scene::{Scene, path};

fn inode(scene: &Scene, name: &str) -> u64 {
    fs::symlink_metadata(scene.real(name)).unwrap().ino()
}

#[test]
fn attributes_alone_change_without_a_new_inode() {
    let scene = Scene::new();
    scene.write("f", "same");
    scene.symlink("f", "l");
    scene.fifo("p");
    scene.mkdir("d");
    scene.age();
    let target = scene.capture();
    let before = ["f", "l", "p", "d"].map(|name| inode(&scene, name));
    scene.chmod("f", 0o444);
    scene.chmod("p", 0o666);
    scene.chmod("d", 0o711);
    for name in ["f", "l", "p", "d"] {
        scene.set_time(name, 5);
    }
    scene.check(&target);
    assert_eq!(["f", "l", "p", "d"].map(|name| inode(&scene, name)), before);
}

#[test]
fn extended_attributes_come_back_and_new_ones_go() {
    let scene = Scene::new();
    scene.write("f", "1");
    scene.write("only", "2");
    scene.mkdir("d");
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::setxattr(scene.real(name), attribute, value, XattrFlags::empty())
    };
    if let Err(error) = set("f", "user.a", b"one") {
        eprintln!("skipped: no extended attributes here: {error}");
        return;
    }
    set("only", "user.b", b"").unwrap();
    set("d", "user.c", b"dir").unwrap();
    scene.age();
    let target = scene.capture();
    scene.remove("f");
    scene.write("f", "other");
    set("f", "user.z", b"new").unwrap();
    set("only", "user.b", b"longer").unwrap();
    set("only", "user.new", b"x").unwrap();
    rustix::fs::removexattr(scene.real("d"), "user.c").unwrap();
    set("d", "user.d", b"x").unwrap();
    scene.check(&target);
}

#[test]
fn an_inherited_access_list_does_not_stay_on_what_is_restored() {
    let scene = Scene::new();
    scene.write("f", "1");
    scene.mkdir("d");
    let target = scene.capture();
    scene.remove("f");
    scene.remove("d");
    // Version 2; owner rwx, user 7 rwx, group r-x, mask rwx, others r-x.
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in
        [(1u16, 7u16, u32::MAX), (2, 7, 7), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        list.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    let (root, name) = (scene.root(), "system.posix_acl_default");
    if let Err(error) = rustix::fs::setxattr(&root, name, &list, XattrFlags::empty()) {
        eprintln!("skipped: no access lists here: {error}");
        return;
    }
    assert_eq!(scene.rewind(&scene.work(&target)), Applied::default());
    for name in ["f", "d"] {
        let mut names = vec![0; 1024];
        let size = rustix::fs::listxattr(scene.real(name), &mut names[..]).unwrap();
        assert!(!String::from_utf8_lossy(&names[..size]).contains("acl"), "{name}");
    }
    rustix::fs::removexattr(&root, name).unwrap();
    scene.assert_is(&target);
}

#[test]
fn holes_stay_holes() {
    let scene = Scene::new();
    for (name, size) in [("small", 1 << 20), ("large", 9 << 20)] {
        let file = fs::File::create(scene.real(name)).unwrap();
        file.write_all_at(b"head", 0).unwrap();
        file.write_all_at(b"tail", size - 100).unwrap();
        file.set_len(size + 77).unwrap();
    }
    let target = scene.capture();
    scene.write("small", "x");
    scene.remove("large");
    scene.check(&target);
    assert!(fs::metadata(scene.real("large")).unwrap().blocks() < 200);
}

#[test]
fn large_content_is_streamed() {
    let scene = Scene::new();
    let content: Vec<u8> = (0..5_000_000u32).map(|number| ((number * 7) >> 3) as u8 | 1).collect();
    scene.write("big", &content);
    let target = scene.capture();
    scene.remove("big");
    scene.check(&target);
}

#[test]
fn names_that_are_not_text_come_back() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff\n\x01");
    fs::write(scene.root().join(name), "odd").unwrap();
    let target = scene.capture();
    fs::remove_file(scene.root().join(name)).unwrap();
    scene.check(&target);
}

#[test]
fn setuid_and_sticky_bits_survive() {
    let scene = Scene::new();
    scene.write("f", "x");
    scene.chmod("f", 0o4755);
    scene.mkdir("d");
    scene.chmod("d", 0o3775);
    let target = scene.capture();
    scene.remove("f");
    scene.remove("d");
    scene.check(&target);
}

#[test]
fn another_owner_comes_back() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let scene = Scene::new();
    for name in ["f", "g", "l"] {
        match name {
            "l" => scene.symlink("x", name),
            _ => scene.write(name, "x"),
        }
        std::os::unix::fs::lchown(scene.real(name), Some(1234), Some(4321)).unwrap();
    }
    scene.chmod("f", 0o4755);
    let target = scene.capture();
    scene.remove("f");
    scene.remove("l");
    std::os::unix::fs::chown(scene.real("g"), Some(0), Some(0)).unwrap();
    scene.check(&target);
}

#[test]
fn restored_files_get_the_present_time_if_asked() {
    let scene = Scene::new();
    scene.write("f", "old");
    scene.age();
    let target = scene.capture();
    let start = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    scene.write("f", "new");
    let work = Work { touch: true, ..scene.work(&target) };
    assert_eq!(scene.rewind(&work), Applied::default());
    assert_eq!(scene.read("f"), "old");
    assert!(fs::metadata(scene.real("f")).unwrap().mtime() >= start.tv_sec);
}

#[test]
fn a_broken_link_is_joined_again() {
    let scene = Scene::new();
    scene.write("a", "one");
    scene.link("a", "b");
    scene.link("a", "c");
    scene.age();
    let target = scene.capture();
    // An editor that replaces the file breaks the link; another name goes away.
    scene.remove("b");
    scene.write("b", "edited");
    scene.remove("c");
    scene.check(&target);
    assert_eq!(inode(&scene, "a"), inode(&scene, "c"));
}

#[test]
fn all_names_of_a_changed_file_go_back_together() {
    let scene = Scene::new();
    scene.write("a", "one");
    scene.mkdir("d");
    scene.link("a", "d/b");
    scene.age();
    let target = scene.capture();
    scene.write("a", "both say two");
    scene.check(&target);
    assert_eq!(inode(&scene, "a"), inode(&scene, "d/b"));
}

#[test]
fn all_names_that_went_away_come_back_as_one() {
    let scene = Scene::new();
    scene.write("a", "one");
    scene.link("a", "b");
    let target = scene.capture();
    scene.remove("a");
    scene.remove("b");
    scene.check(&target);
    assert_eq!(inode(&scene, "a"), inode(&scene, "b"));
}

#[test]
fn files_that_were_apart_are_parted_again() {
    let scene = Scene::new();
    scene.write("a", "same");
    scene.write("b", "same");
    scene.age();
    let target = scene.capture();
    scene.remove("b");
    scene.link("a", "b");
    scene.check(&target);
    assert_ne!(inode(&scene, "a"), inode(&scene, "b"));
}

#[test]
fn a_link_from_outside_keeps_its_content() {
    let scene = Scene::new();
    scene.write("a", "old");
    let target = scene.capture();
    let outside = scene.directory.path().join("outside");
    scene.write("a", "new");
    fs::hard_link(scene.real("a"), &outside).unwrap();
    scene.check(&target);
    assert_eq!(fs::read_to_string(outside).unwrap(), "new");
}

#[test]
fn a_name_joins_the_links_that_no_task_touches() {
    let scene = Scene::new();
    scene.write("a", "one");
    scene.link("a", "b");
    scene.link("a", "c");
    let target = scene.capture();
    scene.remove("c");
    let mut work = scene.work(&target);
    // What a look knows: the link count went down, but the set is still the same one.
    let group = fill::link_of(&target[&path("a")].entry).unwrap();
    work.tasks.retain(|task| task.path == path("c") || task.path.is_root());
    work.links = HashMap::from([(group, vec![path("a"), path("b")])]);
    let before = inode(&scene, "a");
    assert_eq!(scene.rewind(&work), Applied::default());
    scene.assert_is(&target);
    assert_eq!(inode(&scene, "c"), before);
}

#[test]
fn directories_beside_the_changes_keep_their_times() {
    let scene = Scene::new();
    scene.mkdir("d/e");
    scene.write("d/e/f", "old");
    scene.write("d/g", "same");
    scene.age();
    let target = scene.capture();
    scene.write("d/e/f", "new");
    let mut work = scene.work(&target);
    work.tasks.retain(|task| task.path == path("d/e/f"));
    let before = scene.capture();
    assert_eq!(scene.rewind(&work), Applied::default());
    let after = scene.capture();
    for name in ["", "d", "d/e", "d/g"] {
        assert_eq!(after[&path(name)].entry, before[&path(name)].entry, "{name:?}");
    }
    assert_eq!(scene.read("d/e/f"), "old");
}

#[test]
fn unknown_things_move_back_into_a_directory_that_is_made_again() {
    let scene = Scene::new();
    scene.mkdir("a/mass/inner");
    scene.write("a/mass/inner/x", "unknown");
    scene.write("a/known", "1");
    scene.age();
    let target = scene.capture();
    fs::rename(scene.real("a"), scene.real("b")).unwrap();
    let mut work = scene.work(&target);
    let mass = |task: &Task| task.path.as_bytes().windows(4).any(|part| part == b"mass");
    work.tasks.retain(|task| !mass(task));
    work.moves = vec![(path("b/mass"), path("a/mass"))];
    assert_eq!(scene.rewind(&work), Applied::default());
    scene.assert_is(&target);
}

#[test]
fn unknown_things_that_changed_places_change_back() {
    let scene = Scene::new();
    scene.mkdir("x");
    scene.mkdir("y");
    scene.write("x/1", "one");
    scene.write("y/2", "two");
    scene.age();
    let target = scene.capture();
    fs::rename(scene.real("x"), scene.real("t")).unwrap();
    fs::rename(scene.real("y"), scene.real("x")).unwrap();
    fs::rename(scene.real("t"), scene.real("y")).unwrap();
    scene.set_time("", 1);
    let mut work = scene.work(&target);
    work.tasks.retain(|task| task.path.is_root());
    work.moves = vec![(path("x"), path("y")), (path("y"), path("x"))];
    assert_eq!(scene.rewind(&work), Applied::default());
    scene.assert_is(&target);
}

#[test]
fn what_is_unknown_below_a_directory_that_goes_is_moved_aside() {
    let scene = Scene::new();
    scene.write("f", "kept");
    scene.age();
    let target = scene.capture();
    scene.mkdir("new/sub");
    scene.write("new/sub/known", "1");
    scene.write("new/other", "2");
    let mut work = scene.work(&target);
    scene.write("new/sub/unknown", "precious");
    for task in &mut work.tasks {
        task.aside = task.now.entry.is_directory() && !task.path.is_root();
        task.now = scene.known(&task.path).unwrap();
    }
    let applied = scene.rewind(&work);
    assert_eq!(applied.unexpected, []);
    let [(from, to)] = &applied.aside[..] else { panic!("{applied:?}") };
    assert_eq!(*from, path("new"));
    assert!(to.as_bytes().starts_with(b"new.kept-"), "{to}");
    let kept = to.under(&scene.root());
    assert_eq!(fs::read_to_string(kept.join("sub/unknown")).unwrap(), "precious");
    assert!(!kept.join("other").exists() && !scene.real("new").exists());
}

#[test]
fn an_unknown_file_in_the_way_is_moved_aside_or_left() {
    for aside in [true, false] {
        let scene = Scene::new();
        scene.write("f", "then");
        let target = scene.capture();
        scene.remove("f");
        scene.write("f", "unknown");
        let mut work = scene.work(&target);
        for task in work.tasks.iter_mut().filter(|task| task.path == path("f")) {
            task.now.entry = Entry::Unknown(crate::entry::Why::Unreadable);
            task.aside = aside;
        }
        let applied = scene.rewind(&work);
        if aside {
            let to = applied.aside[0].1.under(&scene.root());
            assert_eq!(fs::read_to_string(to).unwrap(), "unknown");
            assert_eq!(scene.read("f"), "then");
        } else {
            assert_eq!(applied.unexpected[0].0, path("f"));
            assert_eq!(scene.read("f"), "unknown");
        }
    }
}

#[test]
fn sockets_are_named_and_not_made() {
    let scene = Scene::new();
    let socket = std::os::unix::net::UnixListener::bind(scene.real("s")).unwrap();
    let target = scene.capture();
    scene.remove("s");
    drop(socket);
    let applied = scene.rewind(&scene.work(&target));
    assert_eq!(applied.unexpected, [(path("s"), "a socket cannot be brought back".to_owned())]);
}

#[test]
fn many_files_are_staged_by_several_threads() {
    let scene = Scene::new();
    let count = 500;
    for number in 0..count {
        scene.mkdir(&format!("d{}", number % 7));
        scene.write(&format!("d{}/f{number}", number % 7), format!("content {number}"));
    }
    scene.age();
    let target = scene.capture();
    for number in 0..count {
        let name = format!("d{}/f{number}", number % 7);
        if number % 3 == 0 { scene.remove(&name) } else { scene.write(&name, "overwritten") }
    }
    scene.remove("d3");
    scene.check(&target);
}

#[test]
fn a_store_without_the_content_changes_nothing() {
    let mut scene = Scene::new();
    scene.write("f", "old");
    let target = scene.capture();
    scene.write("f", "new");
    let work = scene.work(&target);
    let now = scene.capture();
    scene.store = Default::default();
    let error = scene.prepare(&work).unwrap_err();
    assert!(matches!(error, crate::error::Error::Missing(_)), "{error}");
    scene.assert_no_staging();
    scene.assert_is(&now);
}
