//! Files whose content is not on disk yet: shown as what they will be, and brought when somebody needs what is in them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chronicle_core::{ObjectId, Placeholder};
use chronicle_mount::{Errno, Fill, NoMagic};

use crate::world::World;

/// Brings contents from a table, as somebody else would: the file is another one then.
#[derive(Default)]
struct Table {
    contents: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    backing: Mutex<PathBuf>,
    asked: AtomicUsize,
    away: Mutex<Option<Errno>>,
}

impl Fill for Table {
    fn fill(&self, path: &[u8]) -> Result<(), Errno> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = *self.away.lock().unwrap() {
            return Err(error);
        }
        let top = self.backing.lock().unwrap().clone();
        let contents = self.contents.lock().unwrap();
        let (place, aside) = (top.join(std::str::from_utf8(path).unwrap()), top.join(".aside"));
        let target = fs::read_link(&place).map_err(|_| Errno::EIO)?;
        let found = Placeholder::parse(target.as_os_str().as_encoded_bytes()).ok_or(Errno::EIO)?;
        let bytes = contents.get(&found.object.0[..]).ok_or(Errno::EIO)?;
        fs::write(&aside, bytes).map_err(|_| Errno::ENOSPC)?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(found.mode)).unwrap();
        fs::rename(&aside, &place).map_err(|_| Errno::EIO)
    }
}

impl Table {
    fn put(&self, world: &World, path: &str, content: &[u8], mode: u32) {
        let object = ObjectId::of(content);
        self.contents.lock().unwrap().insert(object.0.to_vec(), content.to_vec());
        let target = Placeholder { object, size: content.len() as u64, mode }.target();
        let place = world.below(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        symlink(std::str::from_utf8(&target).unwrap(), place).unwrap();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn world(test: &str) -> Option<(World, Arc<Table>)> {
    let table = Arc::new(Table::default());
    let fill = Arc::clone(&table);
    let world = World::with(test, |settings| settings.fill = Some(fill), Arc::new(NoMagic))?;
    *table.backing.lock().unwrap() = world.below("");
    Some((world, table))
}

#[test]
fn a_placeholder_is_shown_as_its_file_and_looking_brings_nothing() {
    let Some((world, table)) = world("lazy::a_placeholder_is_shown_as_its_file") else { return };
    table.put(&world, "d/a.sh", b"echo hello\n", 0o755);
    table.put(&world, "b", &vec![7; 100_000], 0o640);
    symlink("b", world.below("link")).unwrap();
    let shown =
        world.sh("find . -type f -printf '%p %s %m\\n' | sort; find . -type l -printf '%p %l\\n'");
    assert_eq!(shown, "./b 100000 640\n./d/a.sh 11 755\n./link b\n");
    let meta = fs::symlink_metadata(world.at("b")).unwrap();
    assert!(meta.is_file() && meta.nlink() == 1);
    assert!(meta.blocks() * 512 >= 100_000, "nobody takes it for a hole");
    world.sh("ls -lR . >/dev/null; mv d/a.sh d/b.sh; rm b; mv d e; stat e/b.sh >/dev/null");
    assert_eq!(table.asked(), 0);
    assert_eq!(world.sh("sh ./e/b.sh"), "hello\n");
    assert_eq!(table.asked(), 1);
}

#[test]
fn whoever_opens_it_has_the_whole_content() {
    let Some((world, table)) = world("lazy::whoever_opens_it_has_the_whole_content") else {
        return;
    };
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for name in ["cat", "copy", "map", "append", "part", "cut", "over", "mode", "time", "linked"] {
        table.put(&world, name, &large, 0o644);
    }
    assert_eq!(fs::read(world.at("cat")).unwrap(), large);
    world.sh("cp copy copied; cmp cat copied; cmp copy copied");
    // By a mapping: python reads its bytes without a read.
    world.sh(
        "python3 -c 'import mmap,sys; f=open(\"map\",\"rb\"); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ); \
         sys.exit(m[:] != open(\"cat\",\"rb\").read())'",
    );
    world.sh("printf x >> append; test $(stat -c %s append) = 3000001; head -c 3000000 append | cmp - cat");
    world.sh("printf yy | dd of=part conv=notrunc bs=1 seek=5 2>/dev/null; test $(stat -c %s part) = 3000000");
    world.sh("truncate -s 7 cut; head -c 7 cat | cmp - cut");
    world.sh("echo new > over; test \"$(cat over)\" = new");
    world.sh("chmod 600 mode; test $(stat -c %a mode) = 600; cmp mode cat");
    world.sh("touch -d '2001-01-01' time; cmp time cat");
    world.sh("ln linked linked2; cmp linked2 cat; test $(stat -c %h linked) = 2");
    assert_eq!(table.asked(), 10, "each of them once");
    assert_eq!(
        world.sh("grep -rl x . | sort | head -1; stat -c %i copy"),
        world.sh("echo ./append; ls -i copy | cut -d' ' -f1")
    );
    assert!(fs::symlink_metadata(world.below("cat")).unwrap().is_file());
}

#[test]
fn what_cannot_be_brought_is_an_error_and_the_rest_works() {
    let Some((world, table)) = world("lazy::what_cannot_be_brought_is_an_error") else { return };
    table.put(&world, "away", b"content\n", 0o644);
    fs::write(world.below("here"), "here\n").unwrap();
    *table.away.lock().unwrap() = Some(Errno::EIO);
    for _ in 0..2 {
        let failed = fs::read(world.at("away")).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{failed}");
        assert!(fs::write(world.at("away"), "x").is_err());
        assert_eq!(world.sh("cat here; stat -c %s away"), "here\n8\n");
    }
    assert!(fs::symlink_metadata(world.below("away")).unwrap().is_symlink());
    *table.away.lock().unwrap() = None;
    assert_eq!(fs::read(world.at("away")).unwrap(), b"content\n");
}

#[test]
fn nobody_makes_a_placeholder_through_the_mount() {
    let Some((world, _)) = world("lazy::nobody_makes_a_placeholder_through_the_mount") else {
        return;
    };
    let target = Placeholder { object: ObjectId([1; 32]), size: 1, mode: 0o644 }.target();
    let refused = symlink(std::str::from_utf8(&target).unwrap(), world.at("forged")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    symlink("elsewhere", world.at("fine")).unwrap();
}

#[test]
fn many_open_the_same_file_at_once() {
    let Some((world, table)) = world("lazy::many_open_the_same_file_at_once") else { return };
    for number in 0..20 {
        table.put(&world, &format!("f{number}"), format!("{number}\n").as_bytes(), 0o644);
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..20 {
                    let found = fs::read_to_string(world.at(&format!("f{number}")));
                    // The table fills without a lock, so that who comes second may find it done; the driver has one.
                    match found {
                        Ok(text) => assert_eq!(text, format!("{number}\n")),
                        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
                    }
                }
            });
        }
    });
    for number in 0..20 {
        let text = fs::read_to_string(world.at(&format!("f{number}"))).unwrap();
        assert_eq!(text, format!("{number}\n"));
    }
}
