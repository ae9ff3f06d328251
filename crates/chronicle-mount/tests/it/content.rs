//! What is in files, by every way to read and write it, passed through and by requests.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::FallocateFlags;

use crate::world::World;

fn both(test: &str) -> impl Iterator<Item = World> {
    [World::new(test), World::by_requests(test)].into_iter().flatten()
}

#[test]
fn data_goes_through_whatever_its_size() {
    for world in both("content::data_goes_through") {
        let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        fs::write(world.at("f"), &data).unwrap();
        assert!(fs::read(world.below("f")).unwrap() == data);
        assert!(fs::read(world.at("f")).unwrap() == data);
        let file = OpenOptions::new().read(true).write(true).open(world.at("f")).unwrap();
        file.write_all_at(b"middle", 1_500_000).unwrap();
        file.set_len(2_000_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2_000_000);
        let mut read = [0; 6];
        file.read_exact_at(&mut read, 1_500_000).unwrap();
        assert_eq!(&read, b"middle");
        fs::write(world.at("f"), "short").unwrap();
        assert_eq!(fs::read_to_string(world.below("f")).unwrap(), "short");
    }
}

#[test]
fn two_processes_append_and_nothing_is_lost() {
    for world in both("content::two_processes_append") {
        world.sh(
            "for p in 1 2; do (i=0; while [ $i -lt 300 ]; do echo $p-$i >> log; i=$((i+1)); done) & done; wait",
        );
        assert_eq!(world.sh("sort -u log | wc -l").trim(), "600");
        assert_eq!(world.outside("wc -l < log").trim(), "600");
    }
}

#[test]
fn a_shared_mapping_is_one_memory_for_two_processes() {
    for world in both("content::a_shared_mapping") {
        let script = r#"
import mmap, os
with open("f", "wb") as file: file.write(b"\0" * 8192)
if os.fork() == 0:
    file = open("f", "r+b"); map = mmap.mmap(file.fileno(), 8192)
    map[5000:5005] = b"child"; os._exit(0)
file = open("f", "r+b"); map = mmap.mmap(file.fileno(), 8192)
private = mmap.mmap(file.fileno(), 8192, mmap.MAP_PRIVATE)
os.wait()
assert map[5000:5005] == b"child", map[5000:5005]
map[0:6] = b"parent"; map.flush()
private[100:107] = b"private"
assert open("f", "rb").read()[:6] == b"parent"
"#;
        world.sh(&format!("python3 -c '{script}'"));
        let below = fs::read(world.below("f")).unwrap();
        assert_eq!(
            (&below[..6], &below[5000..5005], below[100]),
            (&b"parent"[..], &b"child"[..], 0)
        );
    }
}

#[test]
fn holes_are_found_made_and_filled() {
    for world in both("content::holes") {
        let file = File::create_new(world.at("f")).unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.write_all_at(&[2; 65536], 1 << 20).unwrap();
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(hole)).unwrap();
        assert_eq!((hole, data), (65536, 1 << 20));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 8192, 4096).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 2 << 20, 4096).unwrap();
        let read = fs::read(world.at("f")).unwrap();
        assert!(read == fs::read(world.below("f")).unwrap());
        assert_eq!((read.len(), read[0], read[4096], read[8192]), ((1 << 20) + 65536, 0, 1, 0));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
    }
}

#[test]
fn a_range_is_copied_from_file_to_file() {
    for world in both("content::a_range_is_copied") {
        fs::write(world.at("from"), "0123456789").unwrap();
        fs::write(world.at("to"), "abcdefghij").unwrap();
        let from = File::open(world.at("from")).unwrap();
        let to = OpenOptions::new().write(true).open(world.at("to")).unwrap();
        let (mut read, mut written) = (2, 4);
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), 3)
                .unwrap();
        assert_eq!(
            (copied, fs::read_to_string(world.at("to")).unwrap().as_str()),
            (3, "abcd234hij")
        );
        assert_eq!(fs::read_to_string(world.below("to")).unwrap(), "abcd234hij");
    }
}

#[test]
fn locks_hold_between_processes() {
    for world in both("content::locks") {
        let script = r#"
import fcntl, os
file = open("f", "w+"); fcntl.lockf(file, fcntl.LOCK_EX)
other = open("g", "w+"); fcntl.flock(other, fcntl.LOCK_EX)
if os.fork() == 0:
    for name, lock in [("f", fcntl.lockf), ("g", fcntl.flock)]:
        try: lock(open(name, "w+"), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
        except OSError: pass
    os._exit(0)
assert os.wait()[1] == 0
fcntl.lockf(file, fcntl.LOCK_UN)
if os.fork() == 0:
    fcntl.lockf(open("f", "w+"), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(0)
assert os.wait()[1] == 0
"#;
        world.sh(&format!("python3 -c '{script}'"));
    }
}

#[test]
fn odd_ways_to_open_work() {
    for world in both("content::odd_ways") {
        fs::write(world.at("f"), "content").unwrap();
        let mut file = OpenOptions::new().write(true).open(world.at("f")).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"!").unwrap();
        assert!(OpenOptions::new().write(true).create_new(true).open(world.at("f")).is_err());
        // O_TRUNC without the right to write through the handle.
        let truncated = OpenOptions::new().read(true).custom_flags(0o1000).open(world.at("f"));
        let mut text = String::new();
        truncated.unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "");
        // O_TMPFILE is not offered by FUSE without asking, and programs fall back.
        let nameless = OpenOptions::new().write(true).custom_flags(0o20_200_000).open(world.at(""));
        assert!(nameless.is_err());
        // A file that only its owner may read is no hindrance to making it.
        world.sh("(umask 777; echo x > secret); chmod 600 secret; cat secret");
    }
}
