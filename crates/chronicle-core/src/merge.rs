//! Three-way merges: of what stands at a path, part by part, and of text, line by line.
//!
//! Decides without guessing: where both sides changed the same part differently it is a conflict,
//! and choosing is left to the caller. Nothing is read but the contents that must be merged.

use std::collections::{BTreeMap, HashMap};

use crate::entry::{Entry, File, Meta, Repository};
use crate::error::Result;
use crate::id::ObjectId;
use crate::text::{self, LineChange};

/// The largest file that is merged by lines; larger ones conflict as binaries do.
pub(crate) const TEXT_LIMIT: u64 = 64 * 1024 * 1024;

/// Content by name: what the store has, and what merging made.
pub(crate) struct Contents<'a> {
    read: &'a dyn Fn(&ObjectId) -> Result<Vec<u8>>,
    made: HashMap<ObjectId, Vec<u8>>,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(read: &'a dyn Fn(&ObjectId) -> Result<Vec<u8>>) -> Self {
        Self { read, made: HashMap::new() }
    }

    /// The bytes of an object.
    pub(crate) fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        match self.made.get(id) {
            Some(bytes) => Ok(bytes.clone()),
            None => (self.read)(id),
        }
    }

    /// Keeps bytes that the store may not have.
    pub(crate) fn add(&mut self, bytes: Vec<u8>) -> ObjectId {
        let id = ObjectId::of(&bytes);
        self.made.insert(id, bytes);
        id
    }

    /// Gives away bytes that merging made, if it made these.
    pub(crate) fn take_made(&mut self, id: &ObjectId) -> Option<Vec<u8>> {
        self.made.remove(id)
    }
}

/// What a merge of three entries comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merged {
    /// Our side, unchanged.
    Ours,
    /// Their side, unchanged.
    Theirs,
    /// Parts of both.
    Mixed(Entry),
    /// Both changed this part, differently.
    Conflict(&'static str),
}

/// Brings the change from `base` to `theirs` onto `ours`.
///
/// A deletion always wins, and time never conflicts. What is unknown is never merged: their side
/// is taken where the base is unknown, and ours stays where it is unknown itself.
pub(crate) fn merge_entries(
    base: &Entry,
    ours: &Entry,
    theirs: &Entry,
    contents: &mut Contents<'_>,
) -> Result<Merged> {
    if base == theirs {
        return Ok(Merged::Ours);
    }
    if theirs.is_unknown() || base.is_unknown() || base == ours || *theirs == Entry::Absent {
        return Ok(Merged::Theirs);
    }
    if ours.is_unknown() {
        return Ok(Merged::Ours);
    }
    match (base.meta(), ours.meta()) {
        (Some(_), Some(_)) => merge_present(base, ours, theirs, contents),
        (Some(_), None) if base.same_but_time(theirs) => Ok(Merged::Ours),
        (Some(_), None) => Ok(Merged::Conflict(kind_word(base, ours, theirs))),
        (None, None) => Ok(Merged::Theirs),
        (None, Some(_)) if ours.same_content(theirs) => Ok(Merged::Theirs),
        (None, Some(_)) if std::mem::discriminant(ours) == std::mem::discriminant(theirs) => {
            Ok(Merged::Conflict(content_word(ours)))
        }
        (None, Some(_)) => Ok(Merged::Conflict(kind_word(base, ours, theirs))),
    }
}

/// The word for a conflict over what kind of thing there is.
fn kind_word(base: &Entry, ours: &Entry, theirs: &Entry) -> &'static str {
    let repository = |entry: &&Entry| matches!(entry, Entry::Repository(_));
    if [base, ours, theirs].iter().any(repository) { "repository" } else { "kind" }
}

/// The word for a conflict over the content of two things of one kind.
fn content_word(entry: &Entry) -> &'static str {
    match entry {
        Entry::Repository(_) => "repository",
        Entry::Special(_) => "kind",
        _ => "content",
    }
}

/// Merges three entries of which all are there.
fn merge_present(
    base: &Entry,
    ours: &Entry,
    theirs: &Entry,
    contents: &mut Contents<'_>,
) -> Result<Merged> {
    let mixed = match (base, ours, theirs) {
        (Entry::File(b), Entry::File(o), Entry::File(t)) => {
            merge_files(b, o, t, contents)?.map(Entry::File)
        }
        (Entry::Repository(b), Entry::Repository(o), Entry::Repository(t)) => {
            merge_repositories(b, o, t).map(Entry::Repository)
        }
        _ => merge_others(base, ours, theirs),
    };
    Ok(match mixed {
        Err(what) => Merged::Conflict(what),
        Ok(mixed) if mixed == *theirs => Merged::Theirs,
        Ok(mixed) if mixed == *ours => Merged::Ours,
        Ok(mixed) => Merged::Mixed(mixed),
    })
}

/// A part that merged, or the word for the part that both sides changed.
type Part<T> = std::result::Result<T, &'static str>;

/// The side that changed a part, ours if neither did.
fn pick<'e, T: PartialEq>(base: &T, ours: &'e T, theirs: &'e T, what: &'static str) -> Part<&'e T> {
    match () {
        () if base == theirs => Ok(ours),
        () if base == ours || ours == theirs => Ok(theirs),
        () => Err(what),
    }
}

fn merge_files(
    base: &File,
    ours: &File,
    theirs: &File,
    contents: &mut Contents<'_>,
) -> Result<Part<File>> {
    let mut by_lines = false;
    let mut mixed = match pick(&base.object, &ours.object, &theirs.object, "content") {
        Ok(object) if *object == theirs.object => theirs.clone(),
        Ok(_) => ours.clone(),
        Err(what) => match merge_file_text(base, ours, theirs, contents)? {
            None => return Ok(Err(what)),
            Some((object, size)) => {
                by_lines = true;
                // What came from a secret is one.
                let secret = base.secret || ours.secret || theirs.secret;
                File { object, secret, pending: false, size, ..theirs.clone() }
            }
        },
    };
    let rest = || -> Part<_> {
        let link = *pick(&base.link, &ours.link, &theirs.link, "link")?;
        Ok((link, merge_meta(&base.meta, &ours.meta, &theirs.meta)?))
    };
    Ok(rest().map(|(link, meta)| {
        (mixed.link, mixed.meta) = (link, meta);
        if by_lines {
            mixed.meta.mtime_ns = theirs.meta.mtime_ns;
        }
        mixed
    }))
}

/// Merges the contents of three files by lines, if they are text and not too large.
fn merge_file_text(
    base: &File,
    ours: &File,
    theirs: &File,
    contents: &mut Contents<'_>,
) -> Result<Option<(ObjectId, u64)>> {
    if [base, ours, theirs].iter().any(|file| file.size > TEXT_LIMIT) {
        return Ok(None);
    }
    let [base, ours, theirs] =
        [contents.get(&base.object)?, contents.get(&ours.object)?, contents.get(&theirs.object)?];
    if [&base, &ours, &theirs].iter().any(|bytes| text::is_binary(bytes)) {
        return Ok(None);
    }
    Ok(merge_text(&base, &ours, &theirs).map(|bytes| {
        let size = bytes.len() as u64;
        (contents.add(bytes), size)
    }))
}

fn merge_repositories(
    base: &Repository,
    ours: &Repository,
    theirs: &Repository,
) -> Part<Repository> {
    let identity = pick(&base.identity, &ours.identity, &theirs.identity, "repository")?;
    let same = ours.identity == theirs.identity;
    let their_bundle =
        if same { theirs.bundle != base.bundle } else { *identity == theirs.identity };
    let side = if their_bundle { theirs } else { ours };
    let meta = merge_meta(&base.meta, &ours.meta, &theirs.meta)?;
    Ok(Repository { meta, ..side.clone() })
}

/// Merges directories, symbolic links, special files, and things of different kinds.
fn merge_others(base: &Entry, ours: &Entry, theirs: &Entry) -> Part<Entry> {
    let kind = std::mem::discriminant::<Entry>;
    let same_kind = kind(ours) == kind(theirs);
    let side = match () {
        () if ours.same_content(theirs) => theirs,
        () if base.same_content(theirs) && same_kind => ours,
        () if base.same_but_time(theirs) => return Ok(ours.clone()),
        () if base.same_content(ours) => theirs,
        () if same_kind => return Err(content_word(ours)),
        () => return Err(kind_word(base, ours, theirs)),
    };
    let mut mixed = side.clone();
    if let (Some(base), Some(ours), Some(theirs)) = (base.meta(), ours.meta(), theirs.meta())
        && let (Some(meta), true) = (mixed.meta_mut(), same_kind)
    {
        *meta = merge_meta(base, ours, theirs)?;
    }
    Ok(mixed)
}

/// Merges mode, owner and attributes; of the times, theirs wins if it changed.
fn merge_meta(base: &Meta, ours: &Meta, theirs: &Meta) -> Part<Meta> {
    let owner = |meta: &Meta| (meta.uid, meta.gid);
    let (uid, gid) = *pick(&owner(base), &owner(ours), &owner(theirs), "owner")?;
    let touched = theirs.mtime_ns != base.mtime_ns;
    Ok(Meta {
        mode: *pick(&base.mode, &ours.mode, &theirs.mode, "mode")?,
        uid,
        gid,
        mtime_ns: if touched { theirs.mtime_ns } else { ours.mtime_ns },
        xattrs: merge_attributes(&base.xattrs, &ours.xattrs, &theirs.xattrs)?,
    })
}

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Merges extended attributes name by name.
fn merge_attributes(base: &Attributes, ours: &Attributes, theirs: &Attributes) -> Part<Attributes> {
    if base == theirs {
        return Ok(ours.clone());
    }
    let map = |list: &Attributes| list.iter().cloned().collect::<BTreeMap<_, _>>();
    let (base, ours, theirs) = (map(base), map(ours), map(theirs));
    let mut merged = Vec::new();
    let mut names: Vec<_> = ours.keys().chain(theirs.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let sides = (base.get(name), ours.get(name), theirs.get(name));
        if let Some(value) = *pick(&sides.0, &sides.1, &sides.2, "attributes")? {
            merged.push((name.clone(), value.clone()));
        }
    }
    Ok(merged)
}

/// Merges three texts by lines; `None` if both sides changed the same or touching lines differently.
pub(crate) fn merge_text(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let base_lines = text::lines(base);
    let mut ours = Side::new(base, ours);
    let mut theirs = Side::new(base, theirs);
    let (mut merged, mut position) = (Vec::new(), 0);
    while let Some(start) = ours.next_start().into_iter().chain(theirs.next_start()).min() {
        let (our_first, their_first, mut end) = (ours.next, theirs.next, start);
        while ours.extend(&mut end) || theirs.extend(&mut end) {}
        let our_lines = ours.replacement(our_first, start, end);
        let their_lines = theirs.replacement(their_first, start, end);
        let lines = match (our_lines, their_lines) {
            (Some(lines), None) | (None, Some(lines)) => lines,
            (Some(ours), Some(theirs)) if ours == theirs => ours,
            _ => return None,
        };
        merged.extend(base_lines[position as usize..start as usize].concat());
        merged.extend(lines.concat());
        position = end;
    }
    merged.extend(base_lines[position as usize..].concat());
    Some(merged)
}

/// One side of a merge: its lines, and its changes of which the first `next` are done.
struct Side<'t> {
    lines: Vec<&'t [u8]>,
    changes: Vec<LineChange>,
    next: usize,
}

impl<'t> Side<'t> {
    fn new(base: &[u8], text: &'t [u8]) -> Self {
        Self { lines: text::lines(text), changes: text::changes(base, text), next: 0 }
    }

    fn next_start(&self) -> Option<u32> {
        self.changes.get(self.next).map(|change| change.before.start)
    }

    /// Takes the next change in if it touches what ends at `end`, and moves the end.
    fn extend(&mut self, end: &mut u32) -> bool {
        let Some(change) = self.changes.get(self.next) else { return false };
        let touches = change.before.start <= *end;
        if touches {
            *end = change.before.end.max(*end);
            self.next += 1;
        }
        touches
    }

    /// This side's lines in place of the base's `start..end`; `None` if it changed nothing there.
    fn replacement(&self, first: usize, start: u32, end: u32) -> Option<&[&'t [u8]]> {
        let taken = &self.changes[first..self.next];
        let (first, last) = (taken.first()?, taken.last()?);
        let from = first.after.start - (first.before.start - start);
        let to = last.after.end + (end - last.before.end);
        Some(&self.lines[from as usize..to as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Symlink, Why};
    use crate::id::LinkGroup;

    fn text(letters: &str) -> Vec<u8> {
        letters.bytes().flat_map(|letter| [letter, b'\n']).collect()
    }

    #[track_caller]
    fn check_text(base: &str, ours: &str, theirs: &str, expected: Option<&str>) {
        let expected = expected.map(text);
        assert_eq!(merge_text(&text(base), &text(ours), &text(theirs)), expected);
        assert_eq!(
            merge_text(&text(base), &text(theirs), &text(ours)),
            expected,
            "other way round"
        );
    }

    #[test]
    fn changes_of_lines_apart_merge() {
        check_text("abcde", "Xbcde", "abcdY", Some("XbcdY"));
        check_text("abcde", "bcde", "abcdYe", Some("bcdYe"));
        check_text("abcde", "abcde", "abXde", Some("abXde"));
        check_text("", "", "a", Some("a"));
    }

    #[test]
    fn changes_of_the_same_or_touching_lines_conflict() {
        check_text("abc", "aXc", "aYc", None);
        check_text("abcd", "aXcd", "abYd", None);
        check_text("abc", "abcX", "abcY", None);
        check_text("abcd", "ad", "aXcd", None);
        check_text("", "a", "b", None);
    }

    #[test]
    fn the_same_change_on_both_sides_merges() {
        check_text("abcdef", "aXcdef", "aXcdYf", Some("aXcdYf"));
        check_text("abc", "", "", Some(""));
    }

    #[test]
    fn random_merges_are_sound() {
        let mut state = 7_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % limit
        };
        for _ in 0..3000 {
            let mut word = |length: u64| -> String {
                (0..random(length)).map(|_| char::from(b'a' + random(4) as u8)).collect()
            };
            let (base, ours, theirs) = (word(12), word(12), word(12));
            let [b, o, t] = [&base, &ours, &theirs].map(|letters| text(letters));
            assert_eq!(merge_text(&b, &b, &t).as_ref(), Some(&t));
            assert_eq!(merge_text(&b, &o, &b).as_ref(), Some(&o));
            assert_eq!(merge_text(&b, &o, &o).as_ref(), Some(&o));
            assert_eq!(merge_text(&b, &o, &t), merge_text(&b, &t, &o));
        }
    }

    /// `"f:abc mode=644 uid=1 time=5 link=1 x.n=v"`; `d`, `l:target`, `r:identity`, `-`, `?`.
    fn entry(words: &str) -> Entry {
        let mut words = words.split_whitespace();
        let head = words.next().unwrap();
        let (kind, value) = head.split_once(':').unwrap_or((head, ""));
        let (mut meta, mut link) = (Meta { mode: 0o644, ..Meta::default() }, None);
        for word in words {
            let (name, value) = word.split_once('=').unwrap();
            match name.split_once('.') {
                Some((_, name)) => meta.xattrs.push((name.into(), value.into())),
                None if name == "mode" => meta.mode = value.parse().unwrap(),
                None if name == "uid" => meta.uid = value.parse().unwrap(),
                None if name == "time" => meta.mtime_ns = value.parse().unwrap(),
                None => link = Some(LinkGroup([value.parse().unwrap(); 8])),
            }
        }
        match kind {
            "f" => {
                let bytes = text(value);
                let (object, size) = (ObjectId::of(&bytes), bytes.len() as u64);
                Entry::File(File {
                    object,
                    secret: false,
                    pending: false,
                    size,
                    sparse: false,
                    link,
                    meta,
                })
            }
            "d" => Entry::Directory(meta),
            "l" => Entry::Symlink(Symlink { target: value.into(), meta }),
            "r" => {
                let identity = ObjectId::of(value.as_bytes());
                Entry::Repository(Repository { bundle: identity, identity, head: vec![], meta })
            }
            "-" => Entry::Absent,
            _ => Entry::Unknown(Why::Filtered),
        }
    }

    /// Merges `base | ours | theirs`; texts are found by their letters, digits are binary.
    #[track_caller]
    fn check(sides: &str, expected: &str) {
        let words: Vec<_> = sides.split('|').collect();
        let texts = words.iter().filter_map(|side| side.split_whitespace().next()?.split_once(':'));
        let known: HashMap<_, _> =
            texts.map(|(_, letters)| (ObjectId::of(&text(letters)), text(letters))).collect();
        let read = |id: &ObjectId| {
            let bytes = known[id].clone();
            Ok(if bytes.iter().any(u8::is_ascii_digit) { vec![0] } else { bytes })
        };
        let [base, ours, theirs] = [0, 1, 2].map(|side| entry(words[side]));
        let mut contents = Contents::new(&read);
        let found = match merge_entries(&base, &ours, &theirs, &mut contents).unwrap() {
            Merged::Conflict(what) => return assert_eq!(what, expected),
            Merged::Ours => ours,
            Merged::Theirs => theirs,
            Merged::Mixed(mixed) => mixed,
        };
        assert_eq!(found, entry(expected));
    }

    #[test]
    fn parts_merge_separately() {
        check("f:a mode=1 | f:b mode=1 | f:a mode=2 time=9", "f:b mode=2 time=9");
        check("f:a time=1 | f:b time=2 | f:a time=1 uid=3", "f:b time=2 uid=3");
        check("f:a | f:a x.n=1 | f:a x.m=2", "f:a x.m=2 x.n=1");
        check("f:a x.n=1 | f:a | f:a x.n=1 x.m=2", "f:a x.m=2");
        check("f:a | f:a link=1 | f:b", "f:b link=1");
        check("f:abcde time=1 | f:Xbcde time=2 | f:abcdY time=3", "f:XbcdY time=3");
        check("d mode=1 time=1 | d mode=2 time=2 | d mode=1 time=3", "d mode=2 time=3");
        check("l:a | l:a uid=1 | l:b", "l:b uid=1");
        check("r:a | r:a mode=1 | r:b", "r:b mode=1");
    }

    #[test]
    fn the_part_that_both_changed_is_named() {
        check("f:a | f:b | f:c", "content");
        check("f:1 | f:2 | f:3", "content");
        check("f:a mode=1 | f:a mode=2 | f:a mode=3", "mode");
        check("f:a uid=1 | f:a uid=2 | f:a uid=3", "owner");
        check("f:a x.n=1 | f:a x.n=2 | f:a x.n=3", "attributes");
        check("f:a | f:a link=1 | f:a link=2", "link");
        check("l:a | l:b | l:c", "content");
        check("r:a | r:b | r:c", "repository");
        check("f:a | d | l:b", "kind");
        check("f:a | d | f:b", "kind");
        check("d | f:a | r:b", "repository");
    }

    #[test]
    fn a_deletion_wins_and_work_on_what_is_gone_conflicts() {
        check("f:a | f:b | -", "-");
        check("f:a | - | f:b", "kind");
        check("f:a time=1 | - | f:a time=2", "-");
        check("d time=1 | - | d time=2", "-");
        check("d mode=1 | - | d mode=2", "kind");
    }

    #[test]
    fn what_both_made_must_have_the_same_content() {
        check("- | f:a mode=1 | f:a mode=2", "f:a mode=2");
        check("- | f:a | f:b", "content");
        check("- | d | f:b", "kind");
        check("- | - | f:b", "f:b");
        check("- | d mode=1 | d mode=2", "d mode=2");
    }

    #[test]
    fn one_side_may_change_the_kind() {
        check("f:a | f:a mode=1 | d", "d");
        check("f:a time=1 | d | f:a time=2", "d");
        check("f:a | l:b | l:b", "l:b");
    }

    #[test]
    fn the_unknown_is_never_merged() {
        check("? | f:a | f:b", "f:b");
        check("f:a | ? | f:b", "?");
        check("f:a | f:b | ?", "?");
    }
}
