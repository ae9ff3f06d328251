//! Who wants only a part pays only for that part: what lies beyond it is not read.

use std::fs;
use std::path::{Path, PathBuf};

use chronicle_core::{DiffRequest, Home, InitOptions, Workspace};

/// Forty small files with three matches each and a last large one, whose content is then lost.
fn damaged(place: &Path) -> Workspace {
    let (work, home) = (place.join("work"), place.join("home"));
    fs::create_dir(&work).unwrap();
    let (mut workspace, _) =
        Workspace::init(&Home::at(&home), &work, &InitOptions::default()).unwrap();
    for number in 0..40 {
        let text = "match one\nmatch two\nmatch three\n";
        fs::write(work.join(format!("f{number:02}")), format!("{text}{number}\n")).unwrap();
    }
    workspace.settle().unwrap();
    // In a pack of its own.
    fs::write(work.join("z"), "match, and much more of it\n".repeat(250_000)).unwrap();
    workspace.settle().unwrap();
    fs::remove_file(largest(&home.join("store"))).unwrap();
    Workspace::open(&Home::at(&home), &work).unwrap()
}

fn largest(directory: &Path) -> PathBuf {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let (path, meta) =
                entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            if meta.is_dir() { open.push(path) } else { found.push((meta.len(), path)) }
        }
    }
    found.into_iter().max().unwrap().1
}

#[test]
fn a_search_ends_with_the_first_match_too_many() {
    let place = tempfile::tempdir().unwrap();
    let workspace = damaged(place.path());
    assert!(workspace.grep("match", None).is_err(), "the last file cannot be read");
    let (found, more) = workspace.grep_some("match", None, 4).unwrap();
    let paths: Vec<_> = found.iter().map(|found| &found.path[..]).collect();
    assert_eq!((paths, more), (vec!["f00", "f00", "f00", "f01"], true));
    let (found, more) = workspace.grep_some("match", Some("f*"), 120).unwrap();
    assert_eq!((found.len(), more), (120, false));
}

#[test]
fn a_difference_looks_into_so_many_changes_and_counts_the_rest() {
    let place = tempfile::tempdir().unwrap();
    let mut workspace = damaged(place.path());
    // Up to what was recorded: a look would take in again what it reads for being so new.
    let last = workspace.list().unwrap().last().unwrap().seq;
    let (from, to) = (Some("start".to_owned()), Some(format!("seq:{last}")));
    let whole = DiffRequest { from, to, ..DiffRequest::default() };
    assert!(workspace.diff(&whole).is_err(), "the last file cannot be read");
    let part = workspace.diff(&DiffRequest { most_changes: Some(3), ..whole.clone() }).unwrap();
    assert_eq!((part.changes.len(), part.files_changed, part.partial), (3, 41, true));
    assert_eq!(part.insertions, 12);
    let request =
        DiffRequest { patch: true, most_changes: Some(40), most_patch_bytes: Some(100), ..whole };
    let part = workspace.diff(&request).unwrap();
    let patched = part.changes.iter().filter(|change| change.patch.is_some()).count();
    assert!(part.partial && (1..40).contains(&patched), "{patched}");
}
