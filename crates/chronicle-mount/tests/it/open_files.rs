//! Files that are open while their names come and go.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::world::World;

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    for world in
        [World::new("open_files::a_file_without"), World::by_requests("open_files::a_file_without")]
    {
        let Some(world) = world else { return };
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(world.at("f")).unwrap();
        file.write_all(b"0123456789").unwrap();
        fs::remove_file(world.at("f")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_len(4).unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"end").unwrap();
        file.sync_all().unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.len(), meta.mode() & 0o777), (7, 0o600));
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "0123end");
        // Another file takes the name, and the two do not mix.
        fs::write(world.at("f"), "another").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 7);
        assert_eq!(fs::read_to_string(world.at("f")).unwrap(), "another");
    }
}

#[test]
fn a_nameless_file_is_opened_again_by_its_descriptor() {
    let Some(world) = World::new("open_files::a_nameless_file") else { return };
    world.sh("exec 3<> f; echo text >&3; rm f; cat /proc/self/fd/3 | grep text; exec 3>&-");
}

#[test]
fn many_handles_of_one_file_see_one_content() {
    let Some(world) = World::new("open_files::many_handles") else { return };
    fs::write(world.at("f"), "first").unwrap();
    let reader = File::open(world.at("f")).unwrap();
    let mut writer = OpenOptions::new().write(true).open(world.at("f")).unwrap();
    let mut appender = OpenOptions::new().append(true).open(world.at("f")).unwrap();
    writer.write_all(b"FIRST").unwrap();
    appender.write_all(b"+more").unwrap();
    drop(writer);
    let mut text = String::new();
    (&reader).read_to_string(&mut text).unwrap();
    assert_eq!(text, "FIRST+more");
    drop(appender);
    assert_eq!(fs::metadata(world.at("f")).unwrap().len(), 10);
}

#[test]
fn a_renamed_file_and_a_moved_directory_are_written_where_they_are() {
    let Some(world) = World::new("open_files::a_renamed_file") else { return };
    world.sh("mkdir d; exec 3> d/f; mv d/f d/g; mv d e; echo text >&3; exec 3>&-; cat e/g");
    assert_eq!(world.outside("cat e/g"), "text\n");
    let seen = world.wait_for("closed e/g");
    assert!(seen.contains(&"before rename d e=".to_owned()) || seen.len() > 1, "{seen:?}");
}
