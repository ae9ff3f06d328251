//! Cases in a small language, and random histories against rules that must always hold.
//!
//! A case is the state at the moment, then one record per step, each with its author:
//! `"a=xy d/ | agent a=z -d | person b=1 | other c<b"`. Values: letters are lines of text,
//! `!v` is binary, `@t` a link, `git:v` a repository, `?` unknown; `,m=` is the mode, `,t=` the time.
//! `~` marks a path as neutral, `-` deletes with everything below, `c<b` moves with everything below.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use super::*;
use crate::entry::{Author, Evidence, File, Meta, MovedFrom, Repository, Symlink};
use crate::error::Error;
use crate::id::Seq;

mod cases;
mod random;

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(if text == "." { "" } else { text }).unwrap()
}

/// A workspace of entries, its history, and the contents they name.
#[derive(Default)]
struct World {
    state: BTreeMap<WorkspacePath, Entry>,
    then: BTreeMap<WorkspacePath, Entry>,
    changes: Vec<PastChange>,
    objects: RefCell<HashMap<ObjectId, Vec<u8>>>,
    seq: u64,
}

impl World {
    /// Reads a case.
    fn new(case: &str) -> Self {
        let mut world = Self::default();
        let mut steps = case.split('|');
        for word in steps.next().unwrap().split_whitespace() {
            let (path, entry) = world.parse(word.trim_start_matches('~'));
            world.state.insert(path, entry);
        }
        world.then = world.state.clone();
        for step in steps {
            let (author, words) = step.trim().split_once(' ').unwrap();
            world.begin();
            words.split_whitespace().for_each(|word| world.step(author, word));
        }
        world
    }

    /// Starts a record.
    fn begin(&mut self) {
        self.seq += 1;
    }

    fn object(&self, bytes: Vec<u8>) -> (ObjectId, u64) {
        let (id, size) = (ObjectId::of(&bytes), bytes.len() as u64);
        self.objects.borrow_mut().insert(id, bytes);
        (id, size)
    }

    fn parse(&self, word: &str) -> (WorkspacePath, Entry) {
        let (head, mut meta) = (word.split(',').next().unwrap(), Meta::default());
        for part in word.split(',').skip(1) {
            let (name, value) = part.split_once('=').unwrap();
            match name {
                "m" => meta.mode = value.parse().unwrap(),
                _ => meta.mtime_ns = value.parse().unwrap(),
            }
        }
        let (name, value) = head.split_once('=').unwrap_or((head.trim_end_matches('/'), "/"));
        (path(name), self.value(value, meta))
    }

    fn value(&self, value: &str, meta: Meta) -> Entry {
        match value.split_at(value.len().min(1)) {
            ("/", _) => Entry::Directory(meta),
            ("?", "") => Entry::Unknown(Why::Filtered),
            ("?", _) => Entry::Unknown(Why::Unreadable),
            ("@", target) => Entry::Symlink(Symlink { target: target.into(), meta }),
            ("!", bytes) => self.file([&[0], bytes.as_bytes()].concat(), meta),
            _ => match value.strip_prefix("git:") {
                Some(identity) => {
                    let identity = ObjectId::of(identity.as_bytes());
                    Entry::Repository(Repository { bundle: identity, identity, head: vec![], meta })
                }
                None => self.file(value.bytes().flat_map(|byte| [byte, b'\n']).collect(), meta),
            },
        }
    }

    fn file(&self, bytes: Vec<u8>, meta: Meta) -> Entry {
        let (object, size) = self.object(bytes);
        Entry::File(File {
            object,
            secret: false,
            pending: false,
            size,
            sparse: false,
            link: None,
            meta,
        })
    }

    fn step(&mut self, author: &str, word: &str) {
        let (neutral, word) = (word.starts_with('~'), word.trim_start_matches('~'));
        if let Some(gone) = word.strip_prefix('-') {
            for path in self.within(&path(gone)) {
                self.change(author, path, Entry::Absent, None, neutral);
            }
        } else if let Some((new, old)) = word.split_once('<') {
            self.rename(author, &path(new), &path(old));
        } else {
            let (path, entry) = self.parse(word);
            self.change(author, path, entry, None, neutral);
        }
    }

    fn within(&self, top: &WorkspacePath) -> Vec<WorkspacePath> {
        self.state.keys().filter(|path| path.is_within(top)).cloned().collect()
    }

    fn rename(&mut self, author: &str, new: &WorkspacePath, old: &WorkspacePath) {
        let moved = self.within(old);
        let entries: Vec<_> = moved.iter().map(|path| self.state[path].clone()).collect();
        for path in &moved {
            self.change(author, path.clone(), Entry::Absent, None, false);
        }
        for (from, entry) in moved.into_iter().zip(entries) {
            let to = from.rebase(old, new).unwrap();
            self.change(author, to, entry, Some(from), false);
        }
    }

    fn change(
        &mut self,
        author: &str,
        path: WorkspacePath,
        after: Entry,
        from: Option<WorkspacePath>,
        neutral: bool,
    ) {
        let before = match after {
            Entry::Absent => self.state.remove(&path),
            _ => self.state.insert(path.clone(), after.clone()),
        };
        let before = before.unwrap_or(Entry::Absent);
        let from = from.map(|path| MovedFrom { path, seq: Seq(self.seq) });
        let (role, author, evidence) = match author {
            "person" => (Role::Keep, Author::Person, Evidence::Outside),
            "gone" => (Role::Drop, Author::Person, Evidence::Outside),
            "other" => (Role::Keep, Author::Session("b".into()), Evidence::Window),
            "shared" => (Role::Keep, Author::Shared(vec!["a".into()]), Evidence::Window),
            "rewind" => (Role::Drop, Author::Chronicle, Evidence::Own),
            _ => (Role::Drop, Author::Session("a".into()), Evidence::Window),
        };
        let change = Change { path, before, after, from, author, evidence, neutral };
        let at = ChangeRef { seq: Seq(self.seq), index: 0 };
        self.changes.push(PastChange { at, change, role });
    }

    fn try_draft(&self, selection: Selection, on_conflict: OnConflict) -> Result<Draft> {
        let content =
            |id: &ObjectId| self.objects.borrow().get(id).cloned().ok_or(Error::Missing(*id));
        let changes = self.changes.clone();
        let draft = draft(PlanInput { changes, content: &content, selection, on_conflict })?;
        for (id, bytes) in &draft.merged {
            self.objects.borrow_mut().insert(*id, bytes.clone());
        }
        Ok(draft)
    }

    fn draft(&self, selection: Selection, on_conflict: OnConflict) -> Draft {
        self.try_draft(selection, on_conflict).unwrap()
    }

    /// The workspace after a draft.
    fn after(&self, draft: &Draft) -> BTreeMap<WorkspacePath, Entry> {
        let mut state = self.state.clone();
        for goal in &draft.goals {
            let now = state.get(&goal.path).unwrap_or(&Entry::Absent);
            assert_eq!(*now, goal.now, "{} is what the goal starts from", goal.path);
            assert_ne!(goal.now, goal.then, "{} changes", goal.path);
            match &goal.then {
                Entry::Absent => state.remove(&goal.path),
                then => state.insert(goal.path.clone(), then.clone()),
            };
        }
        state
    }

    /// An entry in the language of the cases.
    fn show(&self, path: &WorkspacePath, entry: &Entry) -> String {
        let value = match entry {
            Entry::Absent => return format!("-{path}"),
            Entry::Directory(_) => "/".to_owned(),
            Entry::Unknown(_) => "=?".to_owned(),
            Entry::Symlink(link) => format!("=@{}", String::from_utf8_lossy(&link.target)),
            Entry::Repository(repository) => {
                let known = |id: &u8| ObjectId::of(&[*id]) == repository.identity;
                let id = (b'0'..=b'9').find(known).unwrap();
                format!("=git:{}", char::from(id))
            }
            Entry::File(file) => {
                let bytes = self.objects.borrow()[&file.object].clone();
                let text = String::from_utf8(bytes).unwrap().replace('\n', "");
                format!("={}", text.replace('\0', "!"))
            }
            Entry::Special(_) => unreachable!("cases have none"),
        };
        let meta = entry.meta().unwrap();
        let mode = if meta.mode == 0 { String::new() } else { format!(",m={}", meta.mode) };
        let time = if meta.mtime_ns == 0 { String::new() } else { format!(",t={}", meta.mtime_ns) };
        format!("{path}{value}{mode}{time}")
    }

    /// A draft in words: goals, moves, then what is kept, in conflict and unknown.
    fn words(&self, draft: &Draft) -> String {
        let mut words = Vec::new();
        for goal in &draft.goals {
            let marks = [(goal.merged, " merged"), (goal.aside, " aside")];
            let marks: String =
                marks.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
            words.push(self.show(&goal.path, &goal.then) + &marks);
        }
        words.extend(draft.moves.iter().map(|step| format!("move {}>{}", step.from, step.to)));
        for kept in &draft.keep {
            let reason = match kept.cause {
                KeptCause::Others => "",
                KeptCause::Shared => " shared",
                KeptCause::Conflict => " conflict",
                KeptCause::HoldsKept => " holds kept",
                KeptCause::HoldsUnknown => " holds unknown",
            };
            words.push(format!("keep {}{reason}", kept.path));
        }
        words.extend(draft.conflicts.iter().map(|it| format!("conflict {} {}", it.path, it.what)));
        words.extend(draft.unknown.iter().map(|(path, _)| format!("unknown {path}")));
        words.join("; ")
    }
}

#[track_caller]
fn check_with(case: &str, selection: Selection, on_conflict: OnConflict, expected: &str) {
    let world = World::new(case);
    let draft = world.draft(selection, on_conflict);
    assert_eq!(world.words(&draft), expected, "{case}");
    world.after(&draft);
}

#[track_caller]
fn check(case: &str, expected: &str) {
    check_with(case, Selection::All, OnConflict::Stop, expected);
}

/// The three ways to treat the conflicts of one case.
#[track_caller]
fn check_conflict(case: &str, stop: &str, keep_mine: &str, replace: &str) {
    check_with(case, Selection::All, OnConflict::Stop, stop);
    check_with(case, Selection::All, OnConflict::KeepMine, keep_mine);
    check_with(case, Selection::All, OnConflict::Replace, replace);
}

#[track_caller]
fn check_paths(case: &str, paths: &str, expected: &str) {
    let paths = paths.split_whitespace().map(path).collect();
    check_with(case, Selection::Paths(paths), OnConflict::Stop, expected);
}
