//! What people do to a tree: everything that has ever confused a synchroniser.

use chronicle_core::replica::Version;
use chronicle_core::{ObjectId, WorkspacePath};
use chronicle_testing::dice::Dice;

use super::disk::{self, Tree};

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f.tmp", "g.mine"];

/// What one piece of work comes to.
#[derive(Debug, Default)]
pub struct Edit {
    pub puts: Vec<(WorkspacePath, Version)>,
    pub contents: Vec<Vec<u8>>,
    pub moves: Vec<(WorkspacePath, WorkspacePath)>,
    pub words: String,
}

/// Works on a tree; `serial` makes every content its own.
pub fn edit(
    tree: &Tree,
    contents: &dyn Fn(&ObjectId) -> Option<Vec<u8>>,
    serial: &mut u64,
    dice: &mut Dice,
) -> Edit {
    let mut edit = Edit::default();
    match dice.below(20) {
        0..=5 => write(tree, &mut edit, serial, dice),
        6..=8 => change_a_line(tree, contents, &mut edit, serial, dice),
        9..=10 => remove(tree, &mut edit, dice),
        11..=13 => rename(tree, &mut edit, dice),
        14 => cycle(tree, &mut edit, dice),
        15 => swap_kinds(tree, &mut edit, serial, dice),
        16..=17 => make_directory(tree, &mut edit, dice),
        18 => link(tree, &mut edit, serial, dice),
        _ => chmod(tree, &mut edit, dice),
    }
    edit
}

fn directories(tree: &Tree) -> Vec<WorkspacePath> {
    let inside = tree.iter().filter(|(path, version)| version.is_directory() && path.depth() < 3);
    inside.map(|(path, _)| path.clone()).chain([WorkspacePath::root()]).collect()
}

fn some_name(tree: &Tree, dice: &mut Dice) -> WorkspacePath {
    let directories = directories(tree);
    dice.pick(&directories).join(dice.pick(&NAMES).as_bytes())
}

fn file(content: &[u8], mode: u32, serial: u64) -> Version {
    let mtime_ns = i64::try_from(serial).unwrap_or(0);
    Version::File { object: ObjectId::of(content), size: content.len() as u64, mode, mtime_ns }
}

fn new_file(edit: &mut Edit, serial: &mut u64, dice: &mut Dice) -> Version {
    *serial += 1;
    let mut content = format!("one {serial}\ntwo\nthree\nfour\nfive\n").into_bytes();
    if dice.chance(20) {
        content.extend(dice.bytes(6000));
    }
    let version = file(&content, 0o644, *serial);
    edit.contents.push(content);
    version
}

/// Everything below a path, then the path, is gone.
fn clear(tree: &Tree, top: &WorkspacePath, edit: &mut Edit) {
    for path in disk::subtree(tree, top).into_iter().rev() {
        edit.puts.push((path, Version::Absent));
    }
}

fn write(tree: &Tree, edit: &mut Edit, serial: &mut u64, dice: &mut Dice) {
    let path = some_name(tree, dice);
    if disk::at(tree, &path).is_directory() {
        return;
    }
    let version = new_file(edit, serial, dice);
    edit.words = format!("write {path}");
    edit.puts.push((path, version));
}

fn change_a_line(
    tree: &Tree,
    contents: &dyn Fn(&ObjectId) -> Option<Vec<u8>>,
    edit: &mut Edit,
    serial: &mut u64,
    dice: &mut Dice,
) {
    let files: Vec<_> = tree.iter().filter(|(_, version)| version.object().is_some()).collect();
    let Some((path, version)) = dice.pick_any(&files) else { return };
    let Version::File { object, mode, .. } = version else { return };
    let Some(content) = contents(object) else { return };
    *serial += 1;
    let mut lines: Vec<_> = content.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = dice.below(lines.len());
    lines[at] = format!("line {serial}").into_bytes();
    let content = lines.join(&b'\n');
    edit.words = format!("change a line of {path}");
    edit.puts.push(((*path).clone(), file(&content, *mode, *serial)));
    edit.contents.push(content);
}

fn some_path(tree: &Tree, dice: &mut Dice) -> Option<WorkspacePath> {
    let paths: Vec<_> = tree.keys().cloned().collect();
    dice.pick_any(&paths).cloned()
}

fn remove(tree: &Tree, edit: &mut Edit, dice: &mut Dice) {
    let Some(path) = some_path(tree, dice) else { return };
    edit.words = format!("remove {path}");
    clear(tree, &path, edit);
}

fn rename(tree: &Tree, edit: &mut Edit, dice: &mut Dice) {
    let Some(from) = some_path(tree, dice) else { return };
    let to = some_name(tree, dice);
    if to.is_within(&from) || from.is_within(&to) {
        return;
    }
    edit.words = format!("rename {from} to {to}");
    clear(tree, &to, edit);
    shift(tree, &from, &to, edit);
}

/// Moves a path with everything below it.
fn shift(tree: &Tree, from: &WorkspacePath, to: &WorkspacePath, edit: &mut Edit) {
    for path in disk::subtree(tree, from) {
        let target = path.rebase(from, to).expect("it lies there");
        edit.puts.push((target, disk::at(tree, &path)));
    }
    for path in disk::subtree(tree, from).into_iter().rev() {
        edit.puts.push((path, Version::Absent));
    }
    edit.moves.push((from.clone(), to.clone()));
}

/// Files change their names in a circle.
fn cycle(tree: &Tree, edit: &mut Edit, dice: &mut Dice) {
    let files: Vec<_> = tree
        .iter()
        .filter(|(_, version)| !version.is_directory())
        .map(|(path, _)| path.clone())
        .collect();
    if files.len() < 3 {
        return;
    }
    let first = dice.below(files.len());
    let circle: Vec<_> = (0..3).map(|step| files[(first + step) % files.len()].clone()).collect();
    edit.words = format!("rename in a circle {circle:?}");
    for (at, path) in circle.iter().enumerate() {
        let to = &circle[(at + 1) % circle.len()];
        edit.puts.push((to.clone(), disk::at(tree, path)));
        edit.moves.push((path.clone(), to.clone()));
    }
}

/// A directory becomes a file, or a file a directory with something in it.
fn swap_kinds(tree: &Tree, edit: &mut Edit, serial: &mut u64, dice: &mut Dice) {
    let Some(path) = some_path(tree, dice) else { return };
    edit.words = format!("swap the kind of {path}");
    let was_directory = disk::at(tree, &path).is_directory();
    clear(tree, &path, edit);
    let version = new_file(edit, serial, dice);
    if was_directory {
        edit.puts.push((path, version));
    } else {
        edit.puts.push((path.clone(), Version::Directory { mode: 0o755 }));
        edit.puts.push((path.join(dice.pick(&NAMES).as_bytes()), version));
    }
}

fn make_directory(tree: &Tree, edit: &mut Edit, dice: &mut Dice) {
    let path = some_name(tree, dice);
    if disk::at(tree, &path).is_present() {
        return;
    }
    edit.words = format!("make directory {path}");
    edit.puts.push((path, Version::Directory { mode: 0o755 }));
}

fn link(tree: &Tree, edit: &mut Edit, serial: &mut u64, dice: &mut Dice) {
    let path = some_name(tree, dice);
    if disk::at(tree, &path).is_directory() {
        return;
    }
    *serial += 1;
    edit.words = format!("link {path}");
    edit.puts.push((path, Version::Symlink { target: format!("to/{serial}").into_bytes() }));
}

fn chmod(tree: &Tree, edit: &mut Edit, dice: &mut Dice) {
    let Some(path) = some_path(tree, dice) else { return };
    let mode = *dice.pick(&[0o600, 0o644, 0o700, 0o755]);
    let version = match disk::at(tree, &path) {
        Version::File { object, size, mtime_ns, .. } => {
            Version::File { object, size, mode, mtime_ns }
        }
        Version::Directory { .. } => Version::Directory { mode: mode | 0o700 },
        _ => return,
    };
    edit.words = format!("chmod {path} {mode:o}");
    edit.puts.push((path, version));
}
