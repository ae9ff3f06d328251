//! Who started whom: from a process's number to the processes above it, remembered from when each
//! was first seen.
//!
//! A process whose parent ends is given to another one, so that the first sight is the truest. What
//! cannot be read at once is not known, and never guessed.

use std::collections::HashMap;
use std::sync::Arc;

use crate::process;

/// How far up parents are followed.
const GENERATIONS: usize = 64;
/// How many processes are remembered before the oldest half is forgotten.
const HALF: usize = 4096;

/// A process of this boot: its number, and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) started: u64,
}

/// A process and those above it, itself first, up to what the first process of all started.
pub(super) type Line = Arc<[Member]>;

/// The lines of the processes that were seen lately.
#[derive(Default)]
pub(super) struct Family {
    young: HashMap<Member, Line>,
    old: HashMap<Member, Line>,
}

impl Family {
    /// The line of the process that has this number now; `None` if it cannot be read whole.
    ///
    /// Whoever asks makes sure that the number is still the same process's afterwards.
    pub(super) fn line(&mut self, pid: u32) -> Option<Line> {
        self.line_by(pid, &process::parentage)
    }

    /// The same; `read` tells when a process started and which its parent is.
    fn line_by(&mut self, pid: u32, read: &dyn Fn(u32) -> Option<(u64, u32)>) -> Option<Line> {
        let (started, mut above) = read(pid)?;
        let mut fresh = vec![Member { pid, started }];
        let known = loop {
            let last = *fresh.last()?;
            if let Some(line) = self.remembered(last) {
                fresh.pop();
                break line;
            }
            // The first process of all, and what has none above it.
            if above <= 1 {
                break Line::default();
            }
            let (started, next) = read(above)?;
            // If the parent ended in between, its number may be another's by now.
            if read(last.pid) != Some((last.started, above)) || started > last.started {
                return None;
            }
            if fresh.len() >= GENERATIONS {
                return None;
            }
            fresh.push(Member { pid: above, started });
            above = next;
        };
        let whole: Vec<_> = fresh.iter().chain(known.iter()).copied().collect();
        // Each of them has a line now: whoever they start later is theirs even when they are gone.
        for at in (0..fresh.len()).rev() {
            self.remember(whole[at], Line::from(&whole[at..]));
        }
        self.remembered(whole.first().copied()?)
    }

    fn remembered(&mut self, member: Member) -> Option<Line> {
        if let Some(line) = self.young.get(&member) {
            return Some(Arc::clone(line));
        }
        let line = self.old.get(&member).cloned()?;
        self.remember(member, Arc::clone(&line));
        Some(line)
    }

    fn remember(&mut self, member: Member, line: Line) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(member, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Processes as `number: (start, parent)`.
    type Table = RefCell<HashMap<u32, (u64, u32)>>;

    fn line(family: &mut Family, table: &Table, pid: u32) -> Option<Vec<u32>> {
        let line = family.line_by(pid, &|pid| table.borrow().get(&pid).copied())?;
        Some(line.iter().map(|member| member.pid).collect())
    }

    #[test]
    fn a_line_leads_up_to_the_first_process_of_all() {
        let table = Table::from(HashMap::from([(5, (1, 1)), (6, (2, 5)), (7, (3, 6))]));
        let mut family = Family::default();
        assert_eq!(line(&mut family, &table, 7), Some(vec![7, 6, 5]));
        assert_eq!(line(&mut family, &table, 5), Some(vec![5]));
        assert_eq!(line(&mut family, &table, 8), None);
        // Somebody above cannot be read.
        table.borrow_mut().insert(9, (4, 8));
        assert_eq!(line(&mut family, &table, 9), None);
    }

    #[test]
    fn an_orphan_keeps_the_line_it_was_first_seen_with_and_its_children_inherit_it() {
        let table = Table::from(HashMap::from([(5, (1, 1)), (6, (2, 5)), (7, (3, 6))]));
        let mut family = Family::default();
        line(&mut family, &table, 7);
        table.borrow_mut().remove(&6);
        table.borrow_mut().insert(7, (3, 1));
        assert_eq!(line(&mut family, &table, 7), Some(vec![7, 6, 5]));
        table.borrow_mut().insert(8, (9, 7));
        assert_eq!(line(&mut family, &table, 8), Some(vec![8, 7, 6, 5]));
        // The same number later is somebody else.
        table.borrow_mut().insert(7, (20, 1));
        assert_eq!(line(&mut family, &table, 7), Some(vec![7]));
    }

    #[test]
    fn a_parent_younger_than_its_child_is_somebody_else() {
        let table = Table::from(HashMap::from([(5, (9, 1)), (6, (2, 5))]));
        assert_eq!(line(&mut Family::default(), &table, 6), None);
    }

    #[test]
    fn what_was_not_seen_for_long_is_forgotten() {
        let mut family = Family::default();
        for pid in 2..3 * HALF as u32 {
            let table = Table::from(HashMap::from([(pid, (1, 1))]));
            line(&mut family, &table, pid);
            assert!(family.young.len() + family.old.len() <= 2 * HALF);
        }
    }
}
