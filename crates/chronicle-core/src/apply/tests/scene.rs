//! A workspace in a temporary directory, with enough of a capture to rewind it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode};

use super::super::attributes::modified_at;
use super::super::*;
use crate::entry::{File, Meta, Special, SpecialKind, Symlink};
use crate::fs::Root;
use crate::id::{ObjectId, Time};
use crate::known::{Part, Signature};
use crate::secret::Secrets;
use crate::store::MemoryStore;

/// Everything that stands in a workspace.
pub(super) type State = BTreeMap<WorkspacePath, Known>;

pub(super) struct Scene {
    pub(super) directory: tempfile::TempDir,
    pub(super) roots: Roots,
    pub(super) store: MemoryStore,
}

pub(super) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

impl Scene {
    /// On the disk.
    pub(super) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// In memory, where a sync costs nothing.
    pub(super) fn quick() -> Self {
        let memory = Path::new("/dev/shm");
        Self::at(if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        })
    }

    pub(super) fn at(directory: tempfile::TempDir) -> Self {
        fs::create_dir(directory.path().join("w")).unwrap();
        let roots = Roots::new(Root::open(&directory.path().join("w")).unwrap(), Vec::new());
        Self { directory, roots, store: MemoryStore::default() }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.directory.path().join("w")
    }

    pub(super) fn real(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.real(name), content).unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.real(name)).unwrap()
    }

    pub(super) fn mkdir(&self, name: &str) {
        fs::create_dir_all(self.real(name)).unwrap();
    }

    pub(super) fn symlink(&self, target: &str, name: &str) {
        std::os::unix::fs::symlink(target, self.real(name)).unwrap();
    }

    pub(super) fn fifo(&self, name: &str) {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, self.real(name), FileType::Fifo, mode, 0).unwrap();
    }

    pub(super) fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.real(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn link(&self, from: &str, to: &str) {
        fs::hard_link(self.real(from), self.real(to)).unwrap();
    }

    pub(super) fn remove(&self, name: &str) {
        let real = self.real(name);
        match fs::symlink_metadata(&real) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(real).unwrap(),
            Ok(_) => fs::remove_file(real).unwrap(),
            Err(_) => {}
        }
    }

    pub(super) fn set_time(&self, name: &str, mtime_ns: i64) {
        let times = modified_at(mtime_ns);
        rustix::fs::utimensat(CWD, self.real(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    /// Gives everything an old time of its own, so that a disturbed one shows.
    pub(super) fn age(&self) {
        for (number, path) in self.capture().keys().rev().enumerate() {
            self.set_time(path.to_str().unwrap(), 1_500_000_000_123_456_789 + number as i64 * 7);
        }
    }

    /// What stands in the workspace now; content goes into the store.
    pub(super) fn capture(&self) -> State {
        let mut state = State::new();
        self.capture_below(&WorkspacePath::root(), &mut state);
        state
    }

    fn capture_below(&self, at: &WorkspacePath, state: &mut State) {
        let known = self.known(at).expect("it was listed");
        let is_directory = known.entry.is_directory();
        state.insert(at.clone(), known);
        if is_directory {
            for item in fs::read_dir(at.under(&self.root())).unwrap() {
                let name = item.unwrap().file_name();
                if !is_staging_name(name.as_bytes()) {
                    self.capture_below(&at.join(name.as_bytes()), state);
                }
            }
        }
    }

    /// What stands at one path now.
    pub(super) fn known(&self, at: &WorkspacePath) -> Option<Known> {
        let real = at.under(&self.root());
        let found = fs::symlink_metadata(&real).ok()?;
        let kind = found.file_type();
        let meta = Meta {
            mode: if kind.is_symlink() { 0 } else { found.mode() & 0o7777 },
            uid: found.uid(),
            gid: found.gid(),
            mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
            xattrs: if kind.is_symlink() { Vec::new() } else { attributes(&real) },
        };
        let entry = if kind.is_file() {
            let content = fs::read(&real).unwrap();
            let object = ObjectId::of(&content);
            self.store.put(&object, &content).unwrap();
            let link = (found.nlink() > 1).then(|| LinkGroup(found.ino().to_le_bytes()));
            let sparse = found.blocks() * 512 < found.len() / 4096 * 4096;
            Entry::File(File {
                object,
                secret: false,
                pending: false,
                size: found.len(),
                sparse,
                link,
                meta,
            })
        } else if kind.is_dir() {
            Entry::Directory(meta)
        } else if kind.is_symlink() {
            let target = fs::read_link(&real).unwrap().as_os_str().as_bytes().to_vec();
            Entry::Symlink(Symlink { target, meta })
        } else {
            use std::os::unix::fs::FileTypeExt;
            let kind = if kind.is_fifo() { SpecialKind::Fifo } else { SpecialKind::Socket };
            Entry::Special(Special { kind, meta })
        };
        let signature = Signature {
            size: found.len(),
            mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
            ctime_ns: found.ctime() * 1_000_000_000 + found.ctime_nsec(),
            ino: found.ino(),
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
        };
        Some(Known { entry, signature: Some(signature), racy: false, part: Part::Ordinary })
    }

    /// The work that brings the workspace back to a state.
    pub(super) fn work(&self, target: &State) -> Work {
        let now = self.capture();
        let absent =
            Known { entry: Entry::Absent, signature: None, racy: false, part: Part::Ordinary };
        let paths: BTreeSet<_> = now.keys().chain(target.keys()).cloned().collect();
        let mut tasks = Vec::new();
        for path in paths {
            let known = now.get(&path).unwrap_or(&absent);
            let then = target.get(&path).map_or(&Entry::Absent, |known| &known.entry);
            if known.entry != *then {
                let (now, then) = (known.clone(), then.clone());
                tasks.push(Task { path, now, then, aside: false });
            }
        }
        let mut links: HashMap<_, Vec<_>> = HashMap::new();
        for (path, known) in &now {
            if let Some(group) = fill::link_of(&known.entry) {
                links.entry(group).or_default().push(path.clone());
            }
        }
        let (id, secrets) = (PlanId::new(Time(1)), Secrets::default());
        Work { id, moves: Vec::new(), tasks, links, touch: false, secrets }
    }

    pub(super) fn prepare(&self, work: &Work) -> Result<Prepared> {
        prepare(&self.roots, work, &self.store)
    }

    /// Does everything that a rewind does, and leaves no trace.
    pub(super) fn rewind(&self, work: &Work) -> Applied {
        let applied = self.prepare(work).unwrap().apply(&self.roots).unwrap();
        self.clean_up(work);
        applied
    }

    pub(super) fn clean_up(&self, work: &Work) {
        clean_up(&self.roots, &work.id).unwrap();
        self.assert_no_staging();
    }

    #[track_caller]
    pub(super) fn assert_no_staging(&self) {
        for item in fs::read_dir(self.root()).unwrap() {
            let name = item.unwrap().file_name();
            assert!(!is_staging_name(name.as_bytes()), "{name:?} is left");
        }
    }

    #[track_caller]
    pub(super) fn assert_is(&self, target: &State) {
        assert_same(&self.capture(), target);
    }

    /// Rewinds to a state and checks that everything is as it was.
    #[track_caller]
    pub(super) fn check(&self, target: &State) {
        let applied = self.rewind(&self.work(target));
        assert_eq!(applied, Applied::default());
        self.assert_is(target);
    }
}

/// Compares entries; sets of hard links may have other names.
#[track_caller]
pub(super) fn assert_same(found: &State, wanted: &State) {
    let (found, wanted) = (described(found), described(wanted));
    for (path, entry) in &wanted {
        assert_eq!(found.get(path), Some(entry), "at {path}");
    }
    for path in found.keys() {
        assert!(wanted.contains_key(path), "{path} should not be there");
    }
}

fn described(state: &State) -> BTreeMap<&WorkspacePath, (Entry, Vec<&WorkspacePath>)> {
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for (path, known) in state {
        if let Some(group) = fill::link_of(&known.entry) {
            groups.entry(group).or_default().push(path);
        }
    }
    let describe = |known: &Known| {
        let mut entry = known.entry.clone();
        let names = fill::link_of(&entry).map(|group| groups[&group].clone()).unwrap_or_default();
        if let Entry::File(file) = &mut entry {
            file.link = None;
        }
        (entry, names)
    };
    state.iter().map(|(path, known)| (path, describe(known))).collect()
}

fn attributes(real: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut names, mut found) = (vec![0; 4096], Vec::new());
    let Ok(size) = rustix::fs::llistxattr(real, &mut names[..]) else { return found };
    for name in names[..size].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 4096];
        let size = rustix::fs::lgetxattr(real, name, &mut value[..]).unwrap();
        value.truncate(size);
        found.push((name.to_vec(), value));
    }
    found.sort();
    found
}
