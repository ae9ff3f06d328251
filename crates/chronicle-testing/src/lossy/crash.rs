//! What is left of a log of operations after the power was cut.
//!
//! The rules are those that POSIX allows and no stricter: bytes are durable when their file was
//! synced, attributes too unless only the data were, names when their directory was. A name that is
//! durable has brought along the earlier changes of the same directories, and a rename is never
//! half done: every journal gives that much. Symbolic links cannot be synced, so that their
//! attributes go with their names.

use std::collections::{HashMap, HashSet};

use super::image::{Content, Image, Ino, Logged, Operation};
use crate::dice::Dice;

/// What becomes of that which was not made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// All of it is gone.
    Lost,
    /// A part of it, and parts of single writes, are there; the seed says which.
    Torn(u64),
    /// All of it is there, as after a kill.
    Kept,
}

/// What each operation touches, and what has been made durable of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Survives,
    Open,
}

/// The image after the power was cut behind the last of these operations.
pub fn after_crash(start: &Image, log: &[Logged], unsynced: Unsynced) -> Image {
    let mut dice = Dice::new(if let Unsynced::Torn(seed) = unsynced { seed } else { 0 });
    let mut fates = fates(log);
    for (fate, Logged { operation, .. }) in fates.iter_mut().zip(log) {
        let lucky = match unsynced {
            Unsynced::Lost => false,
            Unsynced::Kept => true,
            Unsynced::Torn(_) => !is_content(operation) && dice.chance(50),
        };
        if lucky {
            *fate = Fate::Survives;
        }
    }
    with_what_they_rest_on(log, &mut fates);
    let mut image = start.clone();
    for logged in log {
        // An inode may be there without a name.
        if let Operation::Make { ino, node, .. } = &logged.operation {
            image.add(*ino, node);
        }
    }
    for (fate, logged) in fates.iter().zip(log) {
        match fate {
            Fate::Survives => image.apply(logged),
            Fate::Open if matches!(unsynced, Unsynced::Torn(_)) => {
                tear(&mut image, logged, &mut dice);
            }
            Fate::Open => {}
        }
    }
    image
}

/// What the syncs in a log made durable.
fn fates(log: &[Logged]) -> Vec<Fate> {
    let (mut data, mut whole) = (HashSet::new(), HashSet::new());
    let links = links(log);
    let mut fates = vec![Fate::Open; log.len()];
    for (at, Logged { operation, .. }) in log.iter().enumerate().rev() {
        match operation {
            Operation::Sync { ino, whole: true } => drop((whole.insert(*ino), data.insert(*ino))),
            Operation::Sync { ino, whole: false } => drop(data.insert(*ino)),
            _ => {}
        }
        let synced = match operation {
            Operation::Write { ino, .. } | Operation::Truncate { ino, .. } => data.contains(ino),
            Operation::Attributes { ino, .. } => whole.contains(links.get(ino).unwrap_or(ino)),
            other => directories(other).iter().any(|directory| data.contains(directory)),
        };
        if synced {
            fates[at] = Fate::Survives;
        }
    }
    fates
}

/// The symbolic links that were made, and where.
fn links(log: &[Logged]) -> HashMap<Ino, Ino> {
    let made = log.iter().filter_map(|logged| match &logged.operation {
        Operation::Make { name, ino, node } if matches!(node.content, Content::Symlink(_)) => {
            Some((*ino, name.0))
        }
        _ => None,
    });
    made.collect()
}

/// Lets the earlier changes of names in the same directories survive with each that does.
fn with_what_they_rest_on(log: &[Logged], fates: &mut [Fate]) {
    let mut needed: HashSet<Ino> = HashSet::new();
    for (Logged { operation, .. }, fate) in log.iter().zip(fates).rev() {
        let touched = directories(operation);
        if *fate == Fate::Survives || touched.iter().any(|directory| needed.contains(directory)) {
            *fate = if touched.is_empty() { *fate } else { Fate::Survives };
            needed.extend(touched);
        }
    }
}

fn is_content(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { .. } | Operation::Truncate { .. })
}

/// The directories whose names an operation changes.
fn directories(operation: &Operation) -> Vec<Ino> {
    match operation {
        Operation::Make { name, .. } | Operation::Link { name, .. } => vec![name.0],
        Operation::Remove { name, directory } => {
            std::iter::once(name.0).chain(*directory).collect()
        }
        Operation::Rename { from, to, .. } => vec![from.0, to.0],
        _ => Vec::new(),
    }
}

/// Does what may be left of a write or a change of length that nobody made durable.
fn tear(image: &mut Image, logged: &Logged, dice: &mut Dice) {
    let time = logged.time;
    match &logged.operation {
        Operation::Write { ino, offset, data } => {
            let (ino, grain) = (*ino, *dice.pick(&[512, 4096, 1 << 30]));
            for (place, piece) in data.chunks(grain).enumerate() {
                let offset = offset + (place * grain) as u64;
                match dice.below(5) {
                    0 | 1 => {
                        let operation = Operation::Write { ino, offset, data: piece.to_vec() };
                        image.apply(&Logged { operation, time });
                    }
                    // Only the length got through, and zeros stand where nothing was before.
                    2 => image.extend(ino, offset + piece.len() as u64, time),
                    _ => {}
                }
            }
        }
        Operation::Truncate { .. } if dice.chance(50) => image.apply(logged),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lossy::image::{Attributes, Node, TOP};
    use std::collections::BTreeMap;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    /// One operation a word: `mk:2:a` makes file 2 as `a`, `dir:3:d` directory 3, `in:3:4:b` file 4
    /// as `b` in it, `wr:2:x` writes, `mode:2` changes it, `mv:a:b` renames, `sync:1` syncs 1,
    /// `data:2` only the data of 2.
    fn log(text: &str) -> Vec<Logged> {
        text.split_whitespace().enumerate().map(|(at, word)| operation(word, at as u64)).collect()
    }

    fn operation(word: &str, at: u64) -> Logged {
        let parts: Vec<_> = word.split(':').collect();
        let number = |part: usize| parts[part].parse().unwrap();
        let make = |parent, ino, name: &str, content| {
            let (mtime, ctime) = (UNIX_EPOCH, UNIX_EPOCH);
            let node = Node { content, mode: 0o644, uid: 0, gid: 0, mtime, ctime, links: 0 };
            Operation::Make { name: (parent, name.into()), ino, node }
        };
        let file = || Content::File(Vec::new());
        let operation = match parts[0] {
            "mk" => make(TOP, number(1), parts[2], file()),
            "in" => make(number(1), number(2), parts[3], file()),
            "dir" => make(TOP, number(1), parts[2], Content::Directory(BTreeMap::new())),
            "wr" => Operation::Write { ino: number(1), offset: 0, data: parts[2].into() },
            "mode" => {
                let to = Attributes { mode: Some(0o600), ..Attributes::default() };
                Operation::Attributes { ino: number(1), to }
            }
            "mv" => {
                let (from, to) = ((TOP, parts[1].into()), (TOP, parts[2].into()));
                Operation::Rename { from, to, exchange: false }
            }
            "sync" => Operation::Sync { ino: number(1), whole: true },
            "data" => Operation::Sync { ino: number(1), whole: false },
            other => panic!("no such operation: {other}"),
        };
        let time: SystemTime = UNIX_EPOCH + Duration::from_secs(at);
        Logged { operation, time }
    }

    /// What stands in an image, `a=x` for a file with its content, `a*` with another mode.
    fn show(image: &Image, ino: Ino, above: &str) -> String {
        let mut words = Vec::new();
        for (name, ino) in image.names(ino).unwrap() {
            let (path, node) = (format!("{above}{}", name.display()), image.node(*ino).unwrap());
            let mode = if node.mode == 0o600 { "*" } else { "" };
            words.push(match &node.content {
                Content::File(bytes) => format!("{path}{mode}={}", bytes.escape_ascii()),
                _ => format!("{path}/ {}", show(image, *ino, &format!("{path}/"))),
            });
        }
        words.join(" ").trim_end().to_owned()
    }

    #[track_caller]
    fn check(operations: &str, expected: &str) {
        let image = after_crash(&Image::default(), &log(operations), Unsynced::Lost);
        assert_eq!(show(&image, TOP, ""), expected, "{operations}");
    }

    #[test]
    fn bytes_need_a_sync_of_the_file_and_names_one_of_the_directory() {
        check("mk:2:a wr:2:x", "");
        check("mk:2:a wr:2:x sync:2", "");
        check("mk:2:a wr:2:x sync:1", "a=");
        check("mk:2:a wr:2:x sync:2 sync:1", "a=x");
        check("mk:2:a wr:2:x sync:2 sync:1 wr:2:y", "a=x");
    }

    #[test]
    fn attributes_need_more_than_a_sync_of_the_data() {
        check("mk:2:a wr:2:x mode:2 data:2 sync:1", "a=x");
        check("mk:2:a wr:2:x mode:2 sync:2 sync:1", "a*=x");
    }

    #[test]
    fn a_directory_needs_its_own_name() {
        check("dir:3:d in:3:4:b sync:3", "");
        check("dir:3:d in:3:4:b sync:1", "d/");
        check("dir:3:d in:3:4:b sync:3 sync:1", "d/ d/b=");
    }

    #[test]
    fn a_rename_brings_along_what_it_rests_on() {
        check("mk:2:a wr:2:x sync:2 mv:a:b sync:1 mk:5:c", "b=x");
        check("mk:2:a sync:1 mv:a:b", "a=");
    }

    #[test]
    fn torn_images_are_the_same_for_the_same_seed_and_never_less_than_durable() {
        let log = log("mk:2:a wr:2:xxxx sync:2 sync:1 mk:3:b wr:3:yyyy mv:a:c");
        let torn = |seed| {
            let image = after_crash(&Image::default(), &log, Unsynced::Torn(seed));
            show(&image, TOP, "")
        };
        let all: HashSet<_> = (0..40).map(torn).collect();
        assert!(all.iter().all(|image| image.contains("=xxxx")), "{all:?}");
        assert!(all.len() > 2, "{all:?}");
        assert_eq!(torn(5), torn(5));
    }
}
