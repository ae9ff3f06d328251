//! Who wrote where since when; pure, and bounded whatever happens.
//!
//! It is asked *after* a look has read the disk, for everything since the moment that the look before
//! was given. So it may name a writer too many, and none too few: where it does not know all of them
//! it says so, and nothing is concluded.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::family::Line;
use super::{Witnessed, Written};
use crate::path::WorkspacePath;
use crate::process::Process;

/// The most writers of one path that are told apart.
const HANDS: usize = 8;
/// How many moments that answers named are remembered.
const MOMENTS: usize = 64;

/// One who wrote to a path.
struct Hand {
    /// `None`: somebody who was gone before he could be read.
    line: Option<Line>,
    /// When last, in generations.
    at: u64,
}

/// Those who wrote to one path.
#[derive(Default)]
struct Hands {
    hands: Vec<Hand>,
    /// When a directory of this name was last moved here or away.
    moved_at: u64,
}

/// All paths that somebody wrote to.
pub(super) struct Writers {
    /// Counts the moments; what is written now is of this one.
    generation: u64,
    /// Before this generation not everything is known.
    floor: u64,
    paths: HashMap<Vec<u8>, Hands>,
    /// The numbers that the watcher gave out, and the generation that began with each.
    moments: VecDeque<(u64, u64)>,
    most: usize,
}

impl Writers {
    /// Nothing is known yet.
    pub(super) fn new(most: usize) -> Self {
        let (paths, moments) = Default::default();
        Self { generation: 1, floor: 1, paths, moments, most }
    }

    /// Somebody wrote to a path; `None` is somebody unknown.
    pub(super) fn wrote(&mut self, path: &[u8], line: Option<&Line>) {
        let at = self.generation;
        self.hands(path).add(line, at);
        self.bound();
    }

    /// A directory was moved: whoever wrote below it may have done so under either name.
    pub(super) fn moved_directory(&mut self, path: &[u8], line: Option<&Line>) {
        let at = self.generation;
        let hands = self.hands(path);
        hands.add(line, at);
        hands.moved_at = at;
        self.bound();
    }

    /// A file was renamed: whoever wrote to the old name wrote to what now has the new one.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8], line: Option<&Line>) {
        let earlier: Vec<_> = self.paths.get(from).map_or_else(Vec::new, |hands| {
            hands.hands.iter().map(|hand| (hand.line.clone(), hand.at)).collect()
        });
        let at = self.generation;
        let target = self.hands(to);
        earlier.iter().for_each(|(line, at)| target.add(line.as_ref(), *at));
        target.add(line, at);
        self.hands(from).add(line, at);
        self.bound();
    }

    fn hands(&mut self, path: &[u8]) -> &mut Hands {
        self.paths.entry(path.to_vec()).or_default()
    }

    fn bound(&mut self) {
        if self.paths.len() > self.most {
            self.overrun();
        }
    }

    /// Something was missed: what was written so far is not known.
    pub(super) fn overrun(&mut self) {
        self.floor = self.generation + 1;
        self.paths.clear();
    }

    /// A moment begins: everything that happened before has been told. The generation that it opens.
    pub(super) fn begin(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// The watcher gave this number out for the moment that a generation began with.
    pub(super) fn named(&mut self, counter: u64, generation: u64) {
        // Where nothing was touched in between, the earliest of several moments has the most to tell.
        if self.moments.iter().all(|(known, _)| *known != counter) {
            self.moments.push_back((counter, generation));
        }
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    fn generation_of(&self, counter: u64) -> Option<u64> {
        self.moments.iter().find(|(known, _)| *known == counter).map(|(_, generation)| *generation)
    }

    /// A look from this number on was recorded: what is older is dropped.
    pub(super) fn recorded(&mut self, counter: u64) {
        let Some(first) = self.generation_of(counter) else { return };
        for hands in self.paths.values_mut() {
            hands.hands.retain(|hand| hand.at >= first);
        }
        self.paths.retain(|_, hands| !hands.hands.is_empty());
    }

    /// Everybody who wrote since a number was given out; `None` if not all of them are known.
    pub(super) fn since(&self, counter: u64, boot: &str) -> Option<Witnessed> {
        let first = self.generation_of(counter).filter(|first| *first >= self.floor)?;
        let mut lines: Vec<Line> = Vec::new();
        let mut numbers: HashMap<Line, usize> = HashMap::new();
        let mut paths = BTreeMap::new();
        for (path, hands) in &self.paths {
            // A path that the kernel can hold and a record cannot is in no record.
            let Ok(path) = WorkspacePath::new(&path[..]) else { continue };
            let recent = hands.hands.iter().filter(|hand| hand.at >= first);
            let writers: Vec<_> = recent
                .map(|hand| {
                    let line = hand.line.as_ref()?;
                    Some(*numbers.entry(Arc::clone(line)).or_insert_with(|| {
                        lines.push(Arc::clone(line));
                        lines.len() - 1
                    }))
                })
                .collect();
            if !writers.is_empty() {
                paths.insert(path, Written { writers, moved: hands.moved_at >= first });
            }
        }
        let processes = |line: &Line| line.iter().map(|member| process(*member, boot)).collect();
        Some(Witnessed { lines: lines.iter().map(processes).collect(), paths })
    }
}

fn process(member: super::family::Member, boot: &str) -> Process {
    Process { pid: member.pid, started: member.started, boot: boot.to_owned() }
}

impl Hands {
    fn add(&mut self, line: Option<&Line>, at: u64) {
        if let Some(hand) = self.hands.iter_mut().find(|hand| hand.line.as_ref() == line) {
            hand.at = hand.at.max(at);
        } else if self.hands.len() < HANDS {
            self.hands.push(Hand { line: line.cloned(), at });
        } else {
            // More than can be told apart: from now on somebody is unknown.
            self.hands.clear();
            self.hands.push(Hand { line: None, at });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Member;
    use super::*;

    fn line(pid: u32) -> Line {
        Line::from([Member { pid, started: 1 }])
    }

    /// The answer as `a=3,? b=4`, where `?` is somebody unknown and `*` marks a moved directory.
    fn ask(writers: &Writers, counter: u64) -> String {
        let Some(Witnessed { lines, paths }) = writers.since(counter, "b") else {
            return "unknown".to_owned();
        };
        let who = |writer: &Option<usize>| match writer {
            Some(line) => lines[*line][0].pid.to_string(),
            None => "?".to_owned(),
        };
        let words = paths.iter().map(|(path, written)| {
            let mut names: Vec<_> = written.writers.iter().map(who).collect();
            names.sort();
            format!("{path}{}={}", if written.moved { "*" } else { "" }, names.join(","))
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// A look begins, and is given this number.
    fn moment(writers: &mut Writers, counter: u64) {
        let generation = writers.begin();
        writers.named(counter, generation);
    }

    #[test]
    fn writers_are_told_until_their_look_was_recorded() {
        let mut writers = Writers::new(10);
        assert_eq!(ask(&writers, 1), "unknown");
        moment(&mut writers, 1);
        writers.wrote(b"a", Some(&line(3)));
        writers.wrote(b"a", None);
        assert_eq!(ask(&writers, 1), "a=3,?");
        moment(&mut writers, 2);
        writers.wrote(b"b", Some(&line(4)));
        // What was written after the look began is told to it, too: it may have been seen.
        assert_eq!(ask(&writers, 1), "a=3,? b=4");
        assert_eq!(ask(&writers, 2), "b=4");
        writers.recorded(2);
        assert_eq!(ask(&writers, 1), "b=4");
        assert_eq!(writers.paths.len(), 1);
    }

    #[test]
    fn a_number_that_stayed_means_its_first_moment() {
        let mut writers = Writers::new(10);
        moment(&mut writers, 1);
        writers.wrote(b"a", Some(&line(3)));
        moment(&mut writers, 1);
        assert_eq!(ask(&writers, 1), "a=3");
    }

    #[test]
    fn what_was_missed_makes_everything_before_unknown() {
        let mut writers = Writers::new(2);
        moment(&mut writers, 1);
        writers.overrun();
        writers.wrote(b"a", Some(&line(3)));
        assert_eq!(ask(&writers, 1), "unknown");
        moment(&mut writers, 2);
        writers.wrote(b"b", Some(&line(3)));
        assert_eq!(ask(&writers, 2), "b=3");
        for path in [b"c", b"d", b"e"] {
            writers.wrote(path, Some(&line(3)));
        }
        assert_eq!(ask(&writers, 2), "unknown");
    }

    #[test]
    fn names_take_their_writers_with_them() {
        let mut writers = Writers::new(10);
        moment(&mut writers, 1);
        writers.wrote(b"a", Some(&line(3)));
        writers.renamed(b"a", b"b", Some(&line(4)));
        writers.renamed(b"b", b"c", Some(&line(5)));
        assert_eq!(ask(&writers, 1), "a=3,4 b=3,4,5 c=3,4,5");
        writers.moved_directory(b"d", Some(&line(6)));
        assert!(ask(&writers, 1).ends_with("d*=6"));
    }

    #[test]
    fn too_many_to_tell_apart_are_unknown() {
        let mut writers = Writers::new(10);
        moment(&mut writers, 1);
        for pid in 0..20 {
            writers.wrote(b"a", Some(&line(pid)));
        }
        assert!(ask(&writers, 1).contains('?'));
        assert!(writers.paths[&b"a"[..]].hands.len() <= HANDS);
        for counter in 0..200 {
            moment(&mut writers, counter);
        }
        assert!(writers.moments.len() <= MOMENTS);
    }
}
