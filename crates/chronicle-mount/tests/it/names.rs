//! Names that come, go and move.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::world::World;

#[test]
fn what_is_made_is_there_below_with_mode_and_content() {
    let Some(world) = World::new("names::what_is_made") else { return };
    world.sh("umask 027; echo hello > f; mkdir d; ln -s f s; mkfifo p; : > d/empty");
    assert_eq!(fs::read_to_string(world.below("f")).unwrap(), "hello\n");
    assert_eq!(fs::metadata(world.below("f")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(world.below("d")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_link(world.below("s")).unwrap().to_str(), Some("f"));
    assert_eq!(fs::read_link(world.at("s")).unwrap().to_str(), Some("f"));
    assert!(fs::symlink_metadata(world.below("p")).unwrap().file_type().is_fifo());
    assert_eq!(world.sh("ls -A . d"), ".:\nd\nf\np\ns\n\nd:\nempty\n");
}

#[test]
fn a_file_has_the_number_that_it_has_below() {
    let Some(world) = World::new("names::a_file_has_the_number") else { return };
    world.outside("mkdir -p a/b; echo 1 > a/b/c");
    for path in ["", "a", "a/b", "a/b/c"] {
        let (above, below) = (fs::metadata(world.at(path)), fs::metadata(world.below(path)));
        assert_eq!(above.unwrap().ino(), below.unwrap().ino(), "{path}");
    }
    assert_eq!(world.sh("ls -i a/b"), world.outside("ls -i a/b"));
}

#[test]
fn hard_links_are_one_file() {
    let Some(world) = World::new("names::hard_links") else { return };
    world.sh("echo one > a; mkdir d; ln a d/b; echo two >> d/b");
    assert_eq!(world.sh("cat a; stat -c %h a"), "one\ntwo\n2\n");
    assert_eq!(world.sh("stat -c %i a"), world.sh("stat -c %i d/b"));
    world.sh("rm a");
    assert_eq!(world.sh("cat d/b; stat -c %h d/b"), "one\ntwo\n1\n");
    // A number that is free again must not be taken for the old file.
    world.sh("rm d/b; echo new > c");
    assert_eq!(world.sh("cat c; stat -c %h c"), "new\n1\n");
}

#[test]
fn a_rename_replaces_and_its_flags_hold() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(world) = World::new("names::a_rename_replaces") else { return };
    world.sh("echo a > a; echo b > b; mkdir d; echo c > d/c");
    let (a, b) = (world.at("a"), world.at("b"));
    let refused = renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    assert_eq!(refused.unwrap_err().raw_os_error(), 17, "EEXIST");
    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(world.sh("cat a b"), "b\na\n");
    renameat_with(CWD, &a, CWD, world.at("d"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(world.sh("cat d a/c"), "b\nc\n");
    world.sh("mv b a/moved; mv a e");
    assert_eq!(world.sh("cat e/moved e/c; ls"), "a\nc\nd\ne\n");
    assert_eq!(world.outside("cat e/moved e/c; ls"), "a\nc\nd\ne\n");
}

#[test]
fn a_large_directory_is_listed_once_each_and_can_be_removed() {
    let Some(world) = World::new("names::a_large_directory") else { return };
    world.outside("mkdir d; cd d; seq 5000 | xargs touch");
    assert_eq!(world.sh("ls d | sort -n | md5sum"), world.sh("seq 5000 | md5sum"));
    assert_eq!(world.sh("ls -l d | tail -n +2 | wc -l").trim(), "5000");
    world.sh("rm -r d");
    assert_eq!(world.outside("ls -A"), "");
}

#[test]
fn a_symlink_below_never_leads_out_of_the_root() {
    let Some(world) = World::new("names::a_symlink_below") else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("secret"), "secret").unwrap();
    world.sh("mkdir d; echo inside > d/secret; cat d/secret");
    let out = elsewhere.path().display();
    // Swapped behind the mount's back, while it has the directory open and its name cached.
    world.outside(&format!("mv d e; ln -s {out} d"));
    world.mounted().catch_up();
    let script = format!("readlink d; cat e/secret; test \"$(readlink -f d)\" = {out}");
    assert_eq!(world.sh(&script), format!("{out}\ninside\n"));
}
