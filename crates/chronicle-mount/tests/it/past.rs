//! The magic tree below its name.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronicle_mount::{Errno, Magic, MagicEntry, MagicFile, MagicKind};

use crate::world::World;

/// `at/N/f` holds N, for N up to 3; `now` leads to `at/3`.
struct Tree;

struct Text(Vec<u8>);

impl MagicFile for Text {
    fn read_at(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let start = usize::try_from(offset).unwrap().min(self.0.len());
        Ok(self.0[start..self.0.len().min(start + size)].to_vec())
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

fn words(path: &[Vec<u8>]) -> Vec<&str> {
    path.iter().map(|name| std::str::from_utf8(name).unwrap()).collect()
}

fn kind(path: &[&str]) -> Option<MagicKind> {
    match path {
        ["at"] | ["at", "1" | "2" | "3"] => Some(MagicKind::Directory),
        ["at", "1" | "2" | "3", "f"] => Some(MagicKind::File),
        ["now"] => Some(MagicKind::Symlink),
        _ => None,
    }
}

impl Magic for Tree {
    fn lookup(&self, parent: &[Vec<u8>], name: &[u8]) -> Result<MagicEntry, Errno> {
        assert_ne!(name, b"panic", "asked for it");
        let mut path = parent.to_vec();
        path.push(name.to_vec());
        let kind = kind(&words(&path)).ok_or(Errno::ENOENT)?;
        Ok(MagicEntry { kind, size: 1, mode: 0o755, uid: 0, gid: 0, mtime_ns: -500_000_000 })
    }

    fn list(&self, directory: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, MagicKind)>, Errno> {
        let named = |names: &[&str], kind| {
            names.iter().map(|name| (name.as_bytes().to_vec(), kind)).collect()
        };
        match words(directory)[..] {
            [] => {
                let mut all: Vec<_> = named(&["at"], MagicKind::Directory);
                all.push((b"now".to_vec(), MagicKind::Symlink));
                Ok(all)
            }
            ["at"] => Ok(named(&["3", "1", "2"], MagicKind::Directory)),
            _ => Ok(named(&["f"], MagicKind::File)),
        }
    }

    fn open(&self, path: &[Vec<u8>]) -> Result<Box<dyn MagicFile>, Errno> {
        Ok(Box::new(Text(path[1].clone())))
    }

    fn readlink(&self, _: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
        Ok(b"at/3".to_vec())
    }
}

#[test]
fn it_is_found_but_not_listed_and_can_be_browsed() {
    let Some(world) = World::with("past::it_is_found", |_| {}, Arc::new(Tree)) else { return };
    world.sh("echo x > f");
    assert_eq!(world.sh("ls -A; find . | wc -l"), "f\n2\n");
    assert_eq!(
        world.sh("cd .chronicle; ls . at now; cat at/2/f now/f"),
        ".:\nat\nnow\n\nat:\n1\n2\n3\n\nnow:\nf\n23"
    );
    assert_eq!(world.sh("diff -r .chronicle/at/1 .chronicle/at/2 | grep -c '^[<>]'").trim(), "2");
    assert_eq!(
        world.sh("cd .chronicle/at/1; ls ../..; stat -c '%a %s %Y' f"),
        "at\nnow\n555 1 -1\n"
    );
}

/// The same tree, whose files' lengths cost something; counts how often one was asked for.
#[derive(Default)]
struct Costly(AtomicUsize);

impl Magic for Costly {
    fn lookup(&self, parent: &[Vec<u8>], name: &[u8]) -> Result<MagicEntry, Errno> {
        self.0.fetch_add(usize::from(name == b"f"), Ordering::SeqCst);
        Tree.lookup(parent, name)
    }

    fn list(&self, directory: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, MagicKind)>, Errno> {
        Tree.list(directory)
    }

    fn is_costly(&self, directory: &[Vec<u8>]) -> bool {
        words(directory) == ["at", "2"]
    }

    fn open(&self, path: &[Vec<u8>]) -> Result<Box<dyn MagicFile>, Errno> {
        Tree.open(path)
    }

    fn readlink(&self, path: &[Vec<u8>]) -> Result<Vec<u8>, Errno> {
        Tree.readlink(path)
    }
}

#[test]
fn a_length_that_costs_something_is_asked_for_only_by_who_wants_it() {
    let costly = Arc::new(Costly::default());
    let magic = Arc::clone(&costly) as Arc<dyn Magic>;
    let Some(world) = World::with("past::a_length", |_| {}, magic) else { return };
    assert_eq!(world.sh("cd .chronicle/at/2; ls; find . -type f"), "f\n./f\n");
    assert_eq!(costly.0.load(Ordering::SeqCst), 0);
    assert_eq!(world.sh("stat -c %s .chronicle/at/2/f; wc -c < .chronicle/at/2/f"), "1\n1\n");
    assert!(costly.0.load(Ordering::SeqCst) > 0);
}

#[test]
fn nothing_in_it_can_be_changed() {
    let Some(world) = World::with("past::nothing_in_it", |_| {}, Arc::new(Tree)) else { return };
    world.sh("echo x > f; mkdir d");
    for script in [
        "echo x > .chronicle/at/1/f",
        "echo x > .chronicle/new",
        "mkdir .chronicle/d",
        "rm .chronicle/at/1/f",
        "rmdir .chronicle",
        "mv f .chronicle/f",
        "mv .chronicle/at/1/f g",
        "ln f .chronicle/f",
        "chmod 777 .chronicle/at/1/f",
        "mv d .chronicle",
        "mv .chronicle g",
        "touch .chronicle/at/1/f",
    ] {
        world.sh(&format!("! ({script}) 2>/dev/null"));
    }
    assert_eq!(world.sh("ls -A; cat .chronicle/at/1/f"), "d\nf\n1");
    assert_eq!(world.outside("ls -A"), "d\nf\n");
}

#[test]
fn a_real_thing_of_that_name_is_shown_and_another_name_can_be_chosen() {
    let change = |settings: &mut chronicle_mount::Settings| {
        fs::create_dir(settings.backing.join(".chronicle")).unwrap();
        fs::write(settings.backing.join(".chronicle/real"), "real").unwrap();
        settings.magic_name = ".past".into();
    };
    let Some(world) = World::with("past::a_real_thing", change, Arc::new(Tree)) else { return };
    assert_eq!(world.sh("cat .chronicle/real .past/at/1/f; ls -A"), "real1.chronicle\n");
}

#[test]
fn a_panic_is_an_error_and_the_mount_goes_on() {
    let Some(world) = World::with("past::a_panic", |_| {}, Arc::new(Tree)) else { return };
    world.sh("! ls .chronicle/panic 2> error; grep -q 'Input/output' error");
    assert_eq!(world.sh("cat .chronicle/at/1/f"), "1");
}
