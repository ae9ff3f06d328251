//! What a replica makes of a push.
//!
//! The host's version is put where something else stands, except over writes that it may still take: those are left
//! alone while the host shows what they were made on, or one of them. What is left alone is remembered with
//! the place at which the host showed it, because no later push will repeat it: see [`host_shows`].

use std::collections::{BTreeMap, HashMap};

use super::{Item, Standing, Step, Verdict, Version, Write, order, stays_home};
use crate::id::Seq;
use crate::path::WorkspacePath;

/// Something that the host shows and that is not put there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftAlone {
    /// What the host shows where; its seq is the place at which it was shown.
    pub item: Item,
    /// Why not.
    pub why: WhyLeft,
    /// What is in the way.
    pub holds: Vec<WorkspacePath>,
}

/// Why something that the host shows is not put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyLeft {
    /// A write of this replica that the host has not answered stands there.
    Unanswered,
    /// It is a directory that holds what the host does not know of.
    Holds,
    /// What stands there is not known or never travels, so that it must not be overwritten.
    InTheWay,
    /// It never travels; no honest host sends it.
    StaysHome,
}

/// What to do for a push.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// What to write, in this order.
    pub steps: Vec<Step>,
    /// What is left as it is.
    pub left: Vec<LeftAlone>,
    /// Paths at which the host's version stands already.
    pub equal: Vec<WorkspacePath>,
    /// What the host showed where a write waits for its answer: to be remembered until then, with what was left, because
    /// the answer may be older. Its seq is the place at which it was shown.
    pub told: Vec<Item>,
}

/// Decides what a replica does with the items of a push that shows the host's tree at `shown`.
///
/// `pending` are the writes that the host has not answered, in their order. Of several items of one path the
/// last counts. What was left alone earlier and is not named by the push belongs to the items too.
pub fn receive(
    local: &dyn Standing,
    pending: &[Write],
    items: &[Item],
    shown: Seq,
    folds: bool,
) -> Received {
    let mut unanswered: HashMap<&WorkspacePath, Vec<&Write>> = HashMap::new();
    pending.iter().for_each(|write| unanswered.entry(&write.path).or_default().push(write));
    let mut desk =
        Desk { local, unanswered, shown, puts: BTreeMap::new(), received: Received::default() };
    let items: BTreeMap<_, _> = items.iter().map(|item| (&item.path, item)).collect();
    items.values().for_each(|item| desk.take(item));
    desk.remember(&items);
    let wanted: Vec<_> = desk.puts.iter().filter(|(_, put)| put.put.is_present()).collect();
    let wanted: Vec<_> = wanted.into_iter().map(|(path, _)| path.clone()).collect();
    wanted.iter().for_each(|path| desk.make_parents(path));
    desk.keep_what_holds();
    let steps = std::mem::take(&mut desk.puts).into_values().collect();
    Received { steps: order(steps, folds), ..desk.received }
}

struct Desk<'a> {
    local: &'a dyn Standing,
    unanswered: HashMap<&'a WorkspacePath, Vec<&'a Write>>,
    shown: Seq,
    puts: BTreeMap<WorkspacePath, Step>,
    received: Received,
}

impl Desk<'_> {
    fn take(&mut self, item: &Item) {
        if stays_home(&item.path) {
            return self.leave(item.path.clone(), item.version.clone(), WhyLeft::StaysHome, vec![]);
        }
        match self.local.at(&item.path).version {
            Some(stands) if stands.same_value(&item.version) => {
                self.received.equal.push(item.path.clone());
            }
            _ if self.may_still_be_taken(&item.path, &item.version) => {
                self.leave(item.path.clone(), item.version.clone(), WhyLeft::Unanswered, vec![]);
            }
            None => self.leave(item.path.clone(), item.version.clone(), WhyLeft::InTheWay, vec![]),
            Some(expect) => self.put(&item.path, expect, item.version.clone()),
        }
    }

    fn remember(&mut self, items: &BTreeMap<&WorkspacePath, &Item>) {
        let waiting = items.values().filter(|item| self.unanswered.contains_key(&item.path));
        let told = waiting.map(|item| Item { seq: item.seq.max(self.shown), ..(*item).clone() });
        self.received.told = told.collect();
    }

    fn put(&mut self, path: &WorkspacePath, expect: Version, put: Version) {
        self.puts.insert(path.clone(), Step { path: path.clone(), expect, put });
    }

    fn leave(
        &mut self,
        path: WorkspacePath,
        version: Version,
        why: WhyLeft,
        holds: Vec<WorkspacePath>,
    ) {
        let item = Item { path, seq: self.shown, version };
        self.received.left.push(LeftAlone { item, why, holds });
    }

    /// Whether the host shows what an unanswered write was made on, or one of these writes.
    fn may_still_be_taken(&self, path: &WorkspacePath, shown: &Version) -> bool {
        let writes = self.unanswered.get(path).map(Vec::as_slice).unwrap_or_default();
        writes.iter().any(|write| write.base.same_value(shown) || write.after.same_value(shown))
    }

    /// Makes the directories above something that is put: the host has them, or it could not show it.
    fn make_parents(&mut self, path: &WorkspacePath) {
        for above in path.ancestors().take_while(|above| !above.is_root()) {
            let put = self.puts.get(&above).map(|step| step.put.is_directory());
            let stands = self.local.at(&above).version;
            match (put, stands) {
                (Some(true), _) => return,
                (None, Some(stands)) if stands.is_directory() => return,
                (_, Some(stands)) => {
                    let made = self.as_the_host_has_it(&above);
                    self.received.left.retain(|left| left.item.path != above);
                    self.put(&above, stands, made);
                }
                (_, None) => return self.give_up_below(&above),
            }
        }
    }

    /// The directory that an unanswered write took away, or a plain one.
    fn as_the_host_has_it(&self, path: &WorkspacePath) -> Version {
        let writes = self.unanswered.get(path).map(Vec::as_slice).unwrap_or_default();
        let bases = writes.iter().map(|write| &write.base);
        let known = bases.rev().find(|base| base.is_directory());
        known.cloned().unwrap_or(Version::Directory { mode: 0o755 })
    }

    /// Leaves alone what would have to lie below something that must not be overwritten.
    fn give_up_below(&mut self, above: &WorkspacePath) {
        let below: Vec<_> =
            self.puts.keys().filter(|path| path.is_within(above)).cloned().collect();
        for path in below {
            if let Some(step) = self.puts.remove(&path) {
                self.leave(path, step.put, WhyLeft::InTheWay, vec![above.clone()]);
            }
        }
    }

    /// Leaves directories that should go but hold something that does not, and with them what should
    /// take their place.
    fn keep_what_holds(&mut self) {
        let goes = |step: &Step| step.expect.is_directory() && !step.put.is_directory();
        let going: Vec<_> =
            self.puts.values().filter(|step| goes(step)).map(|step| step.path.clone()).collect();
        // Deepest first: what keeps a directory keeps those above it.
        for path in going.iter().rev() {
            let stays = |child: &WorkspacePath| {
                self.puts.get(child).is_none_or(|step| step.put.is_present())
            };
            let holds: Vec<_> = self.local.children(path).into_iter().filter(stays).collect();
            if !holds.is_empty()
                && let Some(step) = self.puts.remove(path)
            {
                self.leave(path.clone(), step.put, WhyLeft::Holds, holds);
            }
        }
    }
}

/// What the host shows at a path whose last write it has answered, as far as the replica was told: the newer of the
/// answer and of what was left alone for the write's sake. `None` if nothing is known.
pub fn host_shows(verdict: &Verdict, after: &Version, left: Option<&Item>) -> Option<Version> {
    let (told, seq) = match verdict {
        Verdict::Accepted(seq) => (Some(after), *seq),
        Verdict::Rejected { theirs, seq, .. } => (theirs.as_ref(), *seq),
    };
    match left {
        Some(left) if told.is_none() || left.seq >= seq => Some(left.version.clone()),
        _ => told.cloned(),
    }
}
