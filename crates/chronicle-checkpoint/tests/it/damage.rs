//! Copies that drivers keep, damaged in every way: each has a word of its own, and each is refused before
//! anything is changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use chronicle_checkpoint::{Captured, Error, Part, PartKind};
use chronicle_core::ObjectId;
use chronicle_testing::mounted::Mounted;
use chronicle_testing::shared::skip;

use crate::harness_drivers::{Made, World};

/// What is done to a checkpoint: to its copy, to what the lock says of it, or to where it goes.
enum Damage {
    Copy(fn(&Path)),
    Lock(fn(&mut Captured)),
    Target(fn(&Path)),
}

fn same_times(top: &Path, change: impl FnOnce(&Path)) {
    let times = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let (file, directory) = (times(&top.join("a")), times(top));
    change(top);
    if let Ok(opened) = File::open(top.join("a")) {
        opened.set_modified(file).unwrap();
    }
    File::open(top).unwrap().set_modified(directory).unwrap();
}

fn replace(path: &Path, make: impl FnOnce(&Path)) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap()
    } else {
        fs::remove_file(path).unwrap()
    }
    make(path);
}

const KINDS: [(&str, Damage); 21] = [
    ("copy_missing", Damage::Copy(|top| fs::remove_dir_all(top).unwrap())),
    ("copy_not_a_directory", Damage::Copy(|top| replace(top, |it| fs::write(it, "").unwrap()))),
    (
        "copy_bytes_changed",
        Damage::Copy(|top| {
            same_times(top, |top| {
                let file = File::options().write(true).open(top.join("a")).unwrap();
                file.write_all_at(b"X", 70_000).unwrap();
            })
        }),
    ),
    (
        "copy_length_changed",
        Damage::Copy(|top| {
            same_times(top, |top| {
                File::options().write(true).open(top.join("a")).unwrap().set_len(9).unwrap();
            })
        }),
    ),
    ("copy_file_missing", Damage::Copy(|top| fs::remove_file(top.join("d/b")).unwrap())),
    ("copy_file_added", Damage::Copy(|top| fs::write(top.join("d/c"), "").unwrap())),
    (
        "copy_kind_changed",
        Damage::Copy(|top| replace(&top.join("a"), |it| fs::create_dir(it).unwrap())),
    ),
    (
        "copy_link_changed",
        Damage::Copy(|top| replace(&top.join("l"), |it| symlink("d", it).unwrap())),
    ),
    (
        "copy_mode_changed",
        Damage::Copy(|top| {
            fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
        }),
    ),
    (
        "copy_owner_changed",
        Damage::Copy(|top| {
            std::os::unix::fs::chown(top.join("a"), Some(7), None).unwrap();
        }),
    ),
    (
        "copy_attributes_changed",
        Damage::Copy(|top| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(top.join("a"), "user.x", b"y", flags).unwrap();
        }),
    ),
    (
        "copy_time_changed",
        Damage::Copy(|top| {
            File::open(top.join("a")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }),
    ),
    (
        "copy_place_unknown",
        Damage::Lock(|it| {
            it.parameters.insert("place".to_owned(), "/etc".to_owned());
        }),
    ),
    ("copy_manifest_unnamed", Damage::Lock(|it| drop(it.parameters.remove("manifest")))),
    (
        "copy_manifest_missing",
        Damage::Lock(|it| {
            it.parameters.insert("manifest".to_owned(), ObjectId::of(b"none").hex());
        }),
    ),
    ("copy_manifest_differs", Damage::Lock(|it| it.digest = ObjectId::of(b"another"))),
    ("copy_size_differs", Damage::Lock(|it| it.bytes += 1)),
    ("newer_driver", Damage::Lock(|it| it.version += 1)),
    (
        "moved_directory",
        Damage::Target(|at| {
            let parent = at.parent().unwrap();
            fs::rename(parent, parent.with_extension("moved")).unwrap();
        }),
    ),
    (
        "symlink_in_place",
        Damage::Target(|at| {
            fs::rename(at, at.with_extension("moved")).unwrap();
            symlink("data.moved", at).unwrap();
        }),
    ),
    (
        "not_a_directory",
        Damage::Target(|at| {
            fs::rename(at, at.with_extension("moved")).unwrap();
            fs::write(at, "").unwrap();
        }),
    ),
];

fn make_data(data: &Path) {
    fs::create_dir_all(data.join("d")).unwrap();
    fs::write(data.join("a"), vec![b'a'; 100_000]).unwrap();
    fs::write(data.join("d/b"), "two").unwrap();
    symlink("a", data.join("l")).unwrap();
}

/// Every path below a directory with its bytes and times.
pub fn everything(top: &Path) -> BTreeSet<(PathBuf, String)> {
    let mut found = BTreeSet::new();
    for item in fs::read_dir(top).into_iter().flatten().flatten() {
        let about = fs::symlink_metadata(item.path()).unwrap();
        let content = if about.is_file() { fs::read(item.path()).unwrap() } else { Vec::new() };
        let facts = (about.permissions(), about.modified().unwrap(), ObjectId::of(&content));
        found.insert((item.path(), format!("{facts:?}")));
        if about.is_dir() {
            found.extend(everything(&item.path()));
        }
    }
    found
}

#[test]
fn every_damage_has_its_word_and_changes_nothing() {
    let test = "damage::every_damage_has_its_word_and_changes_nothing";
    let mounted = match Mounted::new("xfs", 1 << 30) {
        Ok(mounted) => mounted,
        Err(why) => return skip(test, &why),
    };
    for (number, (word, damage)) in KINDS.iter().enumerate() {
        let top = mounted.at().join(format!("case-{number}"));
        let data = top.join("outer/data");
        make_data(&data);
        let world =
            World::new(&top.join("home"), vec![Part::new("data", PartKind::Directory, &data)]);
        let Made { mut captured } = world.create(Some("reflink"), "c1").unwrap();
        let copy = PathBuf::from(&captured[0].parameters["place"]);
        match damage {
            Damage::Copy(harm) => harm(&copy),
            Damage::Lock(harm) => harm(&mut captured[0]),
            Damage::Target(harm) => harm(&data),
        }
        let before = everything(&top);
        let refused = world.restore(&Made { captured }, "r1");
        let Err(Error::Gate(problems)) = refused else { panic!("{word}: not refused") };
        assert_eq!(problems[0].code, *word, "{problems:?}");
        assert!(before == everything(&top), "{word}: something was changed");
    }
}

/// Their words.
pub fn words() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(word, _)| *word)
}
