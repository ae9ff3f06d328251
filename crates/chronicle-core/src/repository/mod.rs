//! Repositories inside the workspace: which directories are metadata, and what in them counts.
//!
//! The metadata of a repository is one value: its significant files as one bundle. Nothing here
//! runs git or jj or reads the disk; names and bytes come in, answers go out.

mod bundle;
mod index;
#[cfg(test)]
mod real_git;
mod value;

pub(crate) use bundle::BUNDLE_VERSION;
pub use bundle::{Bundle, BundleFile, BundleKind};
pub use index::{Tracked, tracked, visit};
pub use value::describe_move;

/// Whose metadata it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// A `.git` directory.
    Git,
    /// A `.jj` directory.
    Jj,
}

/// What a file inside a metadata directory means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is part of the repository's value.
    Significant,
    /// It goes back with the value but is no part of it.
    Carried,
    /// It is brought back if it is missing and otherwise left alone.
    Neutral,
    /// It is of the moment: locks and temporary files.
    Ignored,
}

/// Names at the top of a git directory, by which the end of a submodule's name is found.
const GIT_TOP: [&[u8]; 25] = [
    b"AUTO_MERGE",
    b"COMMIT_EDITMSG",
    b"FETCH_HEAD",
    b"HEAD",
    b"MERGE_HEAD",
    b"ORIG_HEAD",
    b"branches",
    b"config",
    b"config.worktree",
    b"description",
    b"hooks",
    b"index",
    b"info",
    b"lfs",
    b"logs",
    b"modules",
    b"objects",
    b"packed-refs",
    b"rebase-apply",
    b"rebase-merge",
    b"refs",
    b"reftable",
    b"sequencer",
    b"shallow",
    b"worktrees",
];

/// Whether a directory of this name with these entries in it is a repository's metadata.
pub fn is_repository(name: &[u8], has_child: &dyn Fn(&[u8]) -> bool) -> Option<Flavor> {
    let (flavor, needed): (_, &[&[u8]]) = match name {
        b".git" => (Flavor::Git, &[b"HEAD", b"objects", b"refs"]),
        b".jj" => (Flavor::Jj, &[b"repo", b"working_copy"]),
        _ => return None,
    };
    needed.iter().all(|child| has_child(child)).then_some(flavor)
}

/// What a file means, by its path relative to the metadata directory.
///
/// Directories themselves are never more than neutral; that is the caller's to know.
pub fn classify(flavor: Flavor, inner: &[u8]) -> Class {
    let (prefix, inner) = split_nested(flavor, inner);
    match flavor {
        Flavor::Jj if prefix.is_empty() => classify_jj(inner),
        _ => classify_git(inner),
    }
}

/// Whether a directory inside a metadata directory is itself what says that an operation is under way.
///
/// Git asks only whether it is there, so an empty one would hold a repository in an operation that
/// nobody can go on with.
pub fn is_operation_directory(flavor: Flavor, inner: &[u8]) -> bool {
    let (_, inner) = split_nested(flavor, inner);
    let first = inner.split(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(first, b"rebase-merge" | b"rebase-apply" | b"sequencer")
}

/// Cuts a path into the place of the git directory that it lies in, and the path inside that.
///
/// A submodule's git directory lies in `modules/NAME`, jj's own in `repo/store/git`.
fn split_nested(flavor: Flavor, inner: &[u8]) -> (&[u8], &[u8]) {
    let mut at = match flavor {
        Flavor::Git => 0,
        Flavor::Jj => match inner.strip_prefix(b"repo/store/git/") {
            Some(_) => b"repo/store/git/".len(),
            None => return (&[], inner),
        },
    };
    while let Some(length) = module_length(&inner[at..]) {
        at += length;
    }
    inner.split_at(at)
}

/// How long `modules/NAME/` is at the beginning of a path; a name may have slashes in it.
fn module_length(inner: &[u8]) -> Option<usize> {
    let rest = inner.strip_prefix(b"modules/")?;
    let mut at = inner.len() - rest.len() + memchr::memchr(b'/', rest)? + 1;
    loop {
        let name = inner[at..].split(|byte| *byte == b'/').next().unwrap_or(&[]);
        if GIT_TOP.contains(&name) || is_operation(name) {
            return Some(at);
        }
        at += memchr::memchr(b'/', &inner[at..])? + 1;
    }
}

fn classify_git(inner: &[u8]) -> Class {
    let name = inner.rsplit(|byte| *byte == b'/').next().unwrap_or(inner);
    if is_of_the_moment(inner, name) {
        return Class::Ignored;
    }
    let (first, rest) = match memchr::memchr(b'/', inner) {
        Some(end) => (&inner[..end], &inner[end + 1..]),
        None => (inner, &[][..]),
    };
    match first {
        b"refs" => {
            if ref_counts(inner) {
                Class::Significant
            } else {
                Class::Neutral
            }
        }
        b"hooks" | b"rebase-merge" | b"rebase-apply" | b"sequencer" | b"reftable" => {
            Class::Significant
        }
        b"info" if matches!(rest, b"exclude" | b"sparse-checkout" | b"attributes" | b"grafts") => {
            Class::Significant
        }
        b"logs" if rest == b"refs/stash" => Class::Significant,
        _ if !rest.is_empty() => Class::Neutral,
        b"HEAD" | b"config" | b"config.worktree" | b"packed-refs" | b"index" | b"shallow" => {
            Class::Significant
        }
        _ if is_operation(first) => Class::Significant,
        // Git leaves the last automatic merge lying about, long after it mattered.
        b"ORIG_HEAD" | b"COMMIT_EDITMSG" | b"AUTO_MERGE" => Class::Carried,
        // The larger half of a split index; which one is in use is said by the index itself.
        _ if first.starts_with(b"sharedindex.") => Class::Carried,
        _ => Class::Neutral,
    }
}

/// Whether a file at the top of a git directory says that an operation is under way.
fn is_operation(name: &[u8]) -> bool {
    let known: [&[u8]; 7] = [
        b"MERGE_HEAD",
        b"MERGE_MSG",
        b"MERGE_MODE",
        b"MERGE_RR",
        b"CHERRY_PICK_HEAD",
        b"REVERT_HEAD",
        b"REBASE_HEAD",
    ];
    known.contains(&name) || name == b"SQUASH_MSG" || name.starts_with(b"BISECT_")
}

fn is_of_the_moment(inner: &[u8], name: &[u8]) -> bool {
    name.ends_with(b".lock")
        || inner == b"gc.pid"
        || inner == b"packed-refs.new"
        || inner.starts_with(b"fsmonitor--daemon")
        || inner.starts_with(b"objects/")
            && inner
                .split(|byte| *byte == b'/')
                .any(|part| part.starts_with(b"tmp_") || part.starts_with(b"incoming-"))
}

/// Whether a ref is somebody's work, not a copy of another repository's or a tool's own mark.
fn ref_counts(name: &[u8]) -> bool {
    let others: [&[u8]; 3] = [b"refs/remotes/", b"refs/prefetch/", b"refs/jj/"];
    // Our own heads, where the repository is their witness, and history that was exported to it.
    let ours = name == crate::head::NOTES_REF.as_bytes()
        || name.starts_with(crate::export::REFS.as_bytes());
    !ours && !others.iter().any(|prefix| name.starts_with(prefix))
}

fn classify_jj(inner: &[u8]) -> Class {
    let name = inner.rsplit(|byte| *byte == b'/').next().unwrap_or(inner);
    if name.ends_with(b".lock") || name == b"lock" {
        return Class::Ignored;
    }
    match inner {
        // What was seen of each file; the operation says the rest.
        b"working_copy/tree_state" => Class::Carried,
        b"repo" | b"repo/config.toml" => Class::Significant,
        _ if inner.starts_with(b"working_copy/") => Class::Significant,
        _ if inner.starts_with(b"repo/op_heads/") => Class::Significant,
        _ => Class::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(flavor: Flavor, class: Class, paths: &str) {
        for path in paths.split_whitespace() {
            assert_eq!(classify(flavor, path.as_bytes()), class, "{path}");
        }
    }

    #[test]
    fn what_counts_in_git() {
        check(
            Flavor::Git,
            Class::Significant,
            "HEAD config packed-refs refs/heads/main refs/heads/a/b refs/tags/v1 refs/stash \
             refs/notes/commits index hooks/pre-commit info/exclude logs/refs/stash MERGE_HEAD \
             BISECT_LOG rebase-merge/done sequencer/todo shallow reftable/tables.list",
        );
        check(Flavor::Git, Class::Carried, "ORIG_HEAD COMMIT_EDITMSG AUTO_MERGE sharedindex.12");
        check(
            Flavor::Git,
            Class::Neutral,
            "objects/ab/cd objects/pack/pack-1.pack objects/info/alternates logs/HEAD FETCH_HEAD \
             refs/remotes/origin/main description worktrees/w/HEAD lfs/objects/x info/refs \
             refs/jj/keep/1 gitk.cache branches/x refs/notes/chronicle refs/chronicle/review",
        );
        check(
            Flavor::Git,
            Class::Ignored,
            "index.lock refs/heads/main.lock objects/pack/tmp_pack_x objects/12/tmp_obj_x gc.pid \
             objects/incoming-x/12/34 fsmonitor--daemon.ipc fsmonitor--daemon/cookies/1",
        );
    }

    #[test]
    fn submodules_follow_the_same_rules() {
        check(
            Flavor::Git,
            Class::Significant,
            "modules/a/HEAD modules/libs/b/refs/heads/x modules/a/modules/c/index \
             modules/hooks/HEAD modules/a/sequencer/todo modules/a/CHERRY_PICK_HEAD \
             modules/a/BISECT_LOG",
        );
        check(
            Flavor::Git,
            Class::Neutral,
            "modules/a/objects/hooks/x modules/a/logs/HEAD modules/a",
        );
        check(Flavor::Git, Class::Carried, "modules/a/ORIG_HEAD");
    }

    #[test]
    fn what_counts_in_jj() {
        check(Flavor::Jj, Class::Significant, "repo/op_heads/heads/12 working_copy/checkout");
        check(Flavor::Jj, Class::Significant, "repo/store/git/HEAD repo/store/git/refs/heads/x");
        check(Flavor::Jj, Class::Neutral, "repo/op_store/views/1 repo/index/x repo/store/extra/y");
        check(
            Flavor::Jj,
            Class::Neutral,
            "repo/store/git/objects/1/2 repo/store/git/refs/jj/keep/1",
        );
        check(Flavor::Jj, Class::Carried, "working_copy/tree_state");
        check(Flavor::Jj, Class::Ignored, "working_copy/working_copy.lock repo/op_heads/lock");
    }

    #[test]
    fn operations_are_known_by_their_directories() {
        let is = |inner: &str| is_operation_directory(Flavor::Git, inner.as_bytes());
        assert!(["rebase-merge", "rebase-apply/x", "modules/a/sequencer"].into_iter().all(is));
        assert!(!["refs", "hooks", "modules/a/refs", "refs/heads/sequencer"].into_iter().any(is));
    }

    #[test]
    fn only_complete_metadata_is_a_repository() {
        let with = |names: &'static str| {
            move |child: &[u8]| names.split(' ').any(|name| name.as_bytes() == child)
        };
        assert_eq!(is_repository(b".git", &with("HEAD objects refs")), Some(Flavor::Git));
        assert_eq!(is_repository(b".git", &with("HEAD refs")), None);
        assert_eq!(is_repository(b"git", &with("HEAD objects refs")), None);
        assert_eq!(is_repository(b".jj", &with("repo working_copy")), Some(Flavor::Jj));
    }
}
