//! What a bundle means: its identity, HEAD, branches, and in words how two of them differ.
//!
//! The same refs are the same value whether they are packed or loose, and so is an index of which
//! only the stat data differs; messages and the last HEAD are carried along but do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::{Bundle, BundleFile, BundleKind};
use super::{Class, Flavor, classify, index, ref_counts, split_nested};
use crate::codec::Encoder;
use crate::id::ObjectId;
use crate::path::escape;

/// Separates these hashes from all others.
const DOMAIN: &[u8] = b"chronicle repository identity 1";

/// The value of one git or jj directory inside a bundle.
#[derive(Debug, Default, PartialEq, Eq)]
struct Value<'a> {
    /// Where each ref that counts points.
    refs: BTreeMap<&'a [u8], &'a [u8]>,
    /// Every other file that counts: kind, mode where it matters, and the content's hash.
    parts: BTreeMap<&'a [u8], (u8, u32, ObjectId)>,
}

impl Bundle {
    /// Whose metadata this is.
    pub fn flavor(&self) -> Flavor {
        let is_jj = |file: &BundleFile| {
            file.inner.starts_with(b"repo/") || file.inner.starts_with(b"working_copy/")
        };
        if self.files.iter().any(is_jj) { Flavor::Jj } else { Flavor::Git }
    }

    /// The hash of what counts; equal for two bundles that differ only in what does not.
    pub fn identity(&self) -> ObjectId {
        let mut out = Encoder(DOMAIN.to_vec());
        let values = self.values();
        out.int(values.len() as u64);
        for (place, value) in values {
            out.bytes(place);
            out.int(value.refs.len() as u64);
            for (name, target) in value.refs {
                out.bytes(name);
                out.bytes(target);
            }
            out.int(value.parts.len() as u64);
            for (inner, (kind, mode, hash)) in value.parts {
                out.bytes(inner);
                out.byte(kind);
                out.int(u64::from(mode));
                out.fixed(hash.as_bytes());
            }
        }
        ObjectId::of(&out.0)
    }

    /// Where HEAD points: `refs/heads/main` or a commit id; for jj the ids of the head operations.
    pub fn head(&self) -> Vec<u8> {
        match self.flavor() {
            Flavor::Git => self.get(b"HEAD").map(head_target).unwrap_or_default().to_vec(),
            Flavor::Jj => {
                let heads = |file: &BundleFile| {
                    file.inner.strip_prefix(b"repo/op_heads/heads/").map(<[u8]>::to_vec)
                };
                self.files.iter().filter_map(heads).collect::<Vec<_>>().join(&b',')
            }
        }
    }

    /// The branches without `refs/heads/`, and the commit that each is at, in hexadecimal.
    pub fn branches(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let main = match self.flavor() {
            Flavor::Git => &b""[..],
            Flavor::Jj => b"repo/store/git/",
        };
        let refs = self.values().remove(main).unwrap_or_default().refs;
        let branch = |name: &[u8]| name.strip_prefix(b"refs/heads/").map(<[u8]>::to_vec);
        refs.into_iter().filter_map(|(name, id)| Some((branch(name)?, id.to_vec()))).collect()
    }

    /// The values by the place of their directories; the bundle's own is at the empty place.
    fn values(&self) -> BTreeMap<&[u8], Value<'_>> {
        let flavor = self.flavor();
        let mut values: BTreeMap<_, Value<'_>> = BTreeMap::new();
        for file in &self.files {
            if classify(flavor, &file.inner) == Class::Significant {
                let (place, inner) = split_nested(flavor, &file.inner);
                values.entry(place).or_default().add(inner, file);
            }
        }
        values
    }
}

impl<'a> Value<'a> {
    /// Adds a file. They come in order, so that loose refs replace packed ones.
    fn add(&mut self, inner: &'a [u8], file: &'a BundleFile) {
        let content = file.kind.bytes();
        match inner {
            b"packed-refs" if self.add_packed(content).is_some() => {}
            // Git empties it rather than remove it.
            b"MERGE_RR" if content.is_empty() => {}
            b"HEAD" => self.add_part(inner, file, head_target(file)),
            b"index" => self.add_part(inner, file, &index::normalize(content)),
            _ if inner.starts_with(b"refs/") && matches!(file.kind, BundleKind::File(_)) => {
                self.refs.insert(inner, content.trim_ascii_end());
            }
            _ => self.add_part(inner, file, content),
        }
    }

    fn add_part(&mut self, inner: &'a [u8], file: &BundleFile, content: &[u8]) {
        let mode = if inner.starts_with(b"hooks/") { file.mode } else { 0 };
        let kind = u8::from(matches!(file.kind, BundleKind::Symlink(_)));
        self.parts.insert(inner, (kind, mode, ObjectId::of(content)));
    }

    /// Adds packed refs; `None`, and nothing added, if a line is not one that git writes.
    fn add_packed(&mut self, content: &'a [u8]) -> Option<()> {
        let lines = content.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !matches!(line.first(), None | Some(b'#' | b'^')));
        let pair = |line: &'a [u8]| {
            let end = memchr::memchr(b' ', line)?;
            Some((&line[end + 1..], &line[..end]))
        };
        let pairs: Vec<_> = lines.map(pair).collect::<Option<_>>()?;
        self.refs.extend(pairs.into_iter().filter(|(name, _)| ref_counts(name)));
        Some(())
    }
}

fn head_target(file: &BundleFile) -> &[u8] {
    let content = file.kind.bytes().trim_ascii();
    content.strip_prefix(b"ref:").map_or(content, <[u8]>::trim_ascii)
}

/// How a repository changed, in one line: `git: main -> feature`, `git: index changed`.
pub fn describe_move(before: &Bundle, after: &Bundle) -> String {
    let (old, new) = (before.head(), after.head());
    match after.flavor() {
        Flavor::Jj if old != new => format!("jj: operation {} -> {}", short(&old), short(&new)),
        Flavor::Jj => "jj: working copy changed".to_owned(),
        Flavor::Git if old != new => format!("git: {} -> {}", short(&old), short(&new)),
        Flavor::Git => format!("git: {}", describe_git(before, after, &new)),
    }
}

/// How a git repository changed whose HEAD names the same branch or commit as before.
fn describe_git(before: &Bundle, after: &Bundle, head: &[u8]) -> String {
    let (mut old, mut new) = (before.values(), after.values());
    let (own_old, own_new) = (old.remove(&b""[..]), new.remove(&b""[..]));
    let (own_old, own_new) = (own_old.unwrap_or_default(), own_new.unwrap_or_default());
    if own_old.refs.get(head) != own_new.refs.get(head) {
        return describe_ref(head, own_old.refs.get(head), own_new.refs.get(head));
    }
    let mut words = describe_refs(&own_old, &own_new);
    for word in describe_parts(&own_old, &own_new) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let places: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    for place in places.into_iter().filter(|place| old.get(place) != new.get(place)) {
        let name = place.strip_prefix(b"modules/").unwrap_or(place);
        let name = name.strip_suffix(b"/").unwrap_or(name);
        words.push(format!("submodule {} changed", escape(name)));
    }
    if words.is_empty() { "unchanged".to_owned() } else { words.join(", ") }
}

fn describe_refs(old: &Value<'_>, new: &Value<'_>) -> Vec<String> {
    let names: BTreeSet<_> = old.refs.keys().chain(new.refs.keys()).copied().collect();
    let changed: Vec<_> =
        names.into_iter().filter(|name| old.refs.get(name) != new.refs.get(name)).collect();
    let kinds: [(&[u8], &str); 2] = [(b"refs/heads/", "branches"), (b"refs/tags/", "tags")];
    let mut words = Vec::new();
    for (prefix, many) in kinds {
        let of_kind: Vec<_> = changed.iter().filter(|name| name.starts_with(prefix)).collect();
        match of_kind[..] {
            [] => {}
            [name] => words.push(describe_ref(name, old.refs.get(*name), new.refs.get(*name))),
            _ => words.push(format!("{} {many} changed", of_kind.len())),
        }
    }
    if changed.contains(&&b"refs/stash"[..]) {
        words.push("stash changed".to_owned());
    }
    let known = |name: &&&[u8]| {
        **name == b"refs/stash" || kinds.iter().any(|(prefix, _)| name.starts_with(prefix))
    };
    if changed.iter().any(|name| !known(&name)) {
        words.push("refs changed".to_owned());
    }
    words
}

fn describe_ref(name: &[u8], old: Option<&&[u8]>, new: Option<&&[u8]>) -> String {
    let kind = if name.starts_with(b"refs/tags/") { "tag" } else { "branch" };
    match (old, new) {
        (Some(old), Some(new)) => format!("{} {} -> {}", short(name), short(old), short(new)),
        (None, Some(new)) => format!("{kind} {} created at {}", short(name), short(new)),
        _ => format!("{kind} {} deleted", short(name)),
    }
}

/// The files that changed, by what people call them, each said once.
fn describe_parts(old: &Value<'_>, new: &Value<'_>) -> Vec<String> {
    let names: BTreeSet<_> = old.parts.keys().chain(new.parts.keys()).copied().collect();
    let changed = names.into_iter().filter(|name| old.parts.get(name) != new.parts.get(name));
    let mut words: Vec<String> = Vec::new();
    for name in changed {
        let word = match name {
            b"index" => "index changed",
            b"config" | b"config.worktree" => "config changed",
            b"logs/refs/stash" => "stash changed",
            _ if name.starts_with(b"hooks/") => "hooks changed",
            _ if name.starts_with(b"info/") => "info changed",
            _ if name.starts_with(b"reftable/") => "refs changed",
            _ => "operation state changed",
        };
        if !words.iter().any(|said| said == word) {
            words.push(word.to_owned());
        }
    }
    words
}

/// A branch by its name, a commit by its first seven digits.
fn short(target: &[u8]) -> String {
    for prefix in [&b"refs/heads/"[..], b"refs/tags/"] {
        if let Some(name) = target.strip_prefix(prefix) {
            return escape(name).into_owned();
        }
    }
    let is_id = target.len() >= 40 && target.iter().all(u8::is_ascii_hexdigit);
    escape(if is_id { &target[..7] } else { target }).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    /// Each line is a file, `path: content`; a hook ends with `!` if it is executable.
    fn bundle(text: &str) -> Bundle {
        let file = |line: &str| {
            let (inner, content) = line.trim().split_once(": ").expect("a file");
            let executable = inner.ends_with('!');
            BundleFile {
                inner: inner.trim_end_matches('!').into(),
                mode: if executable { 0o755 } else { 0o644 },
                uid: 0,
                gid: 0,
                mtime_ns: content.len() as i64,
                kind: BundleKind::File(content.replace("\\n", "\n").into()),
            }
        };
        let text = text.replace("$A", A).replace("$B", B);
        Bundle::new(text.lines().filter(|line| !line.trim().is_empty()).map(file).collect())
    }

    #[track_caller]
    fn check_same(one: &str, other: &str) {
        assert_eq!(bundle(one).identity(), bundle(other).identity());
    }

    #[track_caller]
    fn check_move(before: &str, after: &str, expected: &str) {
        let (before, after) = (bundle(before), bundle(after));
        assert_ne!(before.identity(), after.identity());
        assert_eq!(describe_move(&before, &after), expected);
    }

    #[test]
    fn packed_and_loose_refs_are_the_same_value() {
        check_same(
            "HEAD: ref: refs/heads/main\\n\nrefs/heads/main: $A\\n",
            "HEAD: ref: refs/heads/main\npacked-refs: # pack-refs\\n$A refs/heads/main\\n^$B\\n",
        );
        check_same(
            "packed-refs: $A refs/heads/main\nrefs/heads/main: $B",
            "packed-refs: $B refs/heads/main\\n$A refs/remotes/origin/x",
        );
    }

    #[test]
    fn messages_do_not_count() {
        check_same("HEAD: $A\nORIG_HEAD: $A\nCOMMIT_EDITMSG: x", "HEAD: $A\nORIG_HEAD: $B");
    }

    #[test]
    fn moves_in_words() {
        let main = "HEAD: ref: refs/heads/main\nrefs/heads/main: $A\n";
        let with = |more: &str| format!("{main}{more}");
        check_move(main, "HEAD: ref: refs/heads/f\nrefs/heads/main: $A", "git: main -> f");
        check_move(main, "HEAD: $B\nrefs/heads/main: $A", "git: main -> bbbbbbb");
        let commit = "HEAD: ref: refs/heads/main\nrefs/heads/main: $B\nindex: x";
        check_move(main, commit, "git: main aaaaaaa -> bbbbbbb");
        check_move("HEAD: ref: refs/heads/main", main, "git: branch main created at aaaaaaa");
        check_move(main, &with("refs/heads/x: $B"), "git: branch x created at bbbbbbb");
        check_move(&with("refs/tags/v: $B"), main, "git: tag v deleted");
        check_move(main, &with("refs/tags/v: $B\nrefs/tags/w: $B"), "git: 2 tags changed");
        check_move(main, &with("index: x"), "git: index changed");
        check_move(main, &with("config: x\nhooks/a: y"), "git: config changed, hooks changed");
        check_move(&with("hooks/a: y"), &with("hooks/a!: y"), "git: hooks changed");
        check_move(main, &with("MERGE_HEAD: $B"), "git: operation state changed");
        check_move(main, &with("modules/a/b/HEAD: $B"), "git: submodule a/b changed");
        check_move(main, &with("refs/stash: $B\nlogs/refs/stash: x"), "git: stash changed");
    }

    #[test]
    fn jj_is_told_by_its_operation() {
        let before = "repo/op_heads/heads/$A: x\nworking_copy/checkout: 1";
        let after = "repo/op_heads/heads/$B: x\nworking_copy/checkout: 2";
        check_move(before, after, "jj: operation aaaaaaa -> bbbbbbb");
    }

    #[test]
    fn branches_have_short_names() {
        let one = bundle("HEAD: ref: refs/heads/a/b\nrefs/heads/a/b: $A\nrefs/tags/t: $B");
        assert_eq!(one.head(), b"refs/heads/a/b");
        assert_eq!(one.branches(), BTreeMap::from([(b"a/b".to_vec(), A.into())]));
    }
}
