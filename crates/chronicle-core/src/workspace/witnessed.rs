//! Asks the watcher who wrote what a look found, and makes a verdict of it.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::Workspace;
use super::attribute::{Group, Openings, attribute};
use super::by_process::{Kin, Kinship, Origin};
use super::capture::Found;
use crate::entry::{Author, Entry, Evidence};
use crate::error::Result;
use crate::path::WorkspacePath;
use crate::process::Process;
use crate::record::{Kind, Labels};
use crate::watch::{self, Witnessed, Written};

/// Whose changes are, where processes tell.
pub(super) type Verdicts = HashMap<WorkspacePath, (Group, Author, Evidence)>;

impl Workspace {
    /// Whose the changes of a look are, as far as the processes that wrote them tell.
    ///
    /// Asked only after the disk was read, so that whoever wrote what was read is among them.
    pub(super) fn verdicts(&self, found: &[Found], open: &Openings) -> Result<Verdicts> {
        let named = |found: &Found| attribute(&found.path, open).2 == Evidence::Named;
        if found.iter().all(named) {
            return Ok(Verdicts::new());
        }
        let Some((seen, blind)) = self.witnessed()? else { return Ok(Verdicts::new()) };
        let kinship = Kinship {
            open,
            kin: self.kin(&seen)?,
            is_shell: &Process::is_shell,
            // A turn that cannot be read is for `verify` to report.
            last_turn: &|session| self.last_turn_of(session).ok().flatten(),
        };
        let origins: Vec<_> = seen.lines.iter().map(|line| kinship.origin(line)).collect();
        let (mut verdicts, all) = (Verdicts::new(), Hands::new(&seen));
        for found in found {
            // What the look before could not see may have been written long ago.
            if blind.iter().any(|blind| found.path.is_within(blind)) {
                continue;
            }
            let hands = all.on(found);
            let behind: Option<BTreeSet<Origin>> =
                hands.into_iter().map(|hand| origins.get(hand?)?.clone()).collect();
            let Some(behind) = behind.filter(|behind| behind.len() < 2 || can_be_mixed(found))
            else {
                continue;
            };
            if let Some(verdict) = kinship.verdict(&behind) {
                verdicts.insert(found.path.clone(), verdict);
            }
        }
        Ok(verdicts)
    }

    /// Who wrote, as a mount or the watcher saw it, and where the look before could not see.
    fn witnessed(&self) -> Result<Option<(Witnessed, Vec<WorkspacePath>)>> {
        if let Some((seen, _)) = self.seen.borrow().clone() {
            return Ok(Some((seen, Vec::new())));
        }
        let Some(bookmark) = self.bookmark()?.filter(|_| may_see_processes()) else {
            return Ok(None);
        };
        let seen = watch::writers(&self.directory(), self.watch_scope()?, bookmark.token);
        Ok(seen.map(|seen| (seen, bookmark.again)))
    }

    /// Lets the watcher see who wrote just now, while this process is still there to be seen. Without
    /// it the writer is unknown, and windows decide: no failure.
    pub(super) fn be_seen(&self) {
        if may_see_processes()
            && let (Ok(Some(bookmark)), Ok(scope)) = (self.bookmark(), self.watch_scope())
        {
            let _ = watch::writers(&self.directory(), scope, bookmark.token);
        }
    }

    fn kin(&self, seen: &Witnessed) -> Result<Vec<Kin>> {
        let boot = seen.lines.iter().flatten().next().map(|process| &process.boot);
        let of_this_boot = |process: &Process| Some(&process.boot) == boot;
        let kin = self.sessions()?.into_iter().map(|(session, known)| {
            // Nothing survives a reboot.
            let agent = known.process.filter(of_this_boot);
            let alive = agent.as_ref().is_some_and(Process::is_alive);
            let (above, tools_below, left) = (known.above, known.tools_below, known.background);
            Kin { session, agent, tools_below, alive, above, left }
        });
        Ok(kin.collect())
    }

    /// The number of the last turn of a session.
    fn last_turn_of(&self, session: &str) -> Result<Option<u64>> {
        for seq in self.catalog.of_kind(Kind::TurnStart)?.into_iter().rev() {
            let labels = self.read_header(seq)?.labels;
            if labels.session.as_deref() == Some(session) {
                return Ok(labels.turn);
            }
        }
        Ok(None)
    }

    /// What changes are labelled with that were seen in a mount: by which program, if it was one.
    pub(super) fn seen_labels(&self, changes: &[crate::entry::Change]) -> Labels {
        let seen = self.seen.borrow();
        let Some((seen, names)) = seen.as_ref() else { return Labels::default() };
        let written = changes.iter().filter_map(|change| seen.paths.get(&change.path));
        let writers: BTreeSet<_> = written.flat_map(|written| written.writers.clone()).collect();
        let one = writers.into_iter().collect::<Option<Vec<usize>>>();
        match one.as_deref() {
            Some([one]) => {
                let pid = seen.lines.get(*one).and_then(|line| line.first()).map(|own| own.pid);
                let tool = names.get(*one).filter(|name| !name.is_empty());
                let tool = tool.zip(pid).map(|(name, pid)| format!("{name} ({pid})"));
                Labels { tool, ..Labels::default() }
            }
            _ => Labels::default(),
        }
    }

    /// What a change is labelled with that a session made after its last turn.
    pub(super) fn labels_of_past_turn(&self, number: u64) -> Result<Labels> {
        for seq in self.catalog.of_kind(Kind::TurnStart)?.into_iter().rev() {
            let labels = self.read_header(seq)?.labels;
            if labels.turn == Some(number) {
                return Ok(labels);
            }
        }
        Ok(Labels::default())
    }
}

/// Whether a watcher of ours could see which processes write: it runs as we do.
fn may_see_processes() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Who wrote where, with what is asked of it for everything that a look found.
struct Hands<'s> {
    seen: &'s Witnessed,
    /// What was moved here or away.
    moved: HashSet<&'s WorkspacePath>,
    /// Everybody who wrote below something of that.
    below: OnceCell<Vec<Option<usize>>>,
}

impl<'s> Hands<'s> {
    fn new(seen: &'s Witnessed) -> Self {
        let moved = seen.paths.iter().filter(|(_, written)| written.moved);
        Self { seen, moved: moved.map(|(path, _)| path).collect(), below: OnceCell::new() }
    }

    /// Everybody who wrote what a look found: places in the list of lines, `None` for one unknown.
    fn on(&self, found: &Found) -> Vec<Option<usize>> {
        // Another name of the same file may lie anywhere.
        if is_linked(&found.before) || is_linked(&found.after) {
            return vec![None];
        }
        let mut hands = Vec::new();
        let mut add = |written: Option<&Written>| {
            hands.extend(written.into_iter().flat_map(|written| written.writers.iter().copied()));
        };
        let paths = &self.seen.paths;
        if is_repository(&found.before) || is_repository(&found.after) {
            let below = paths.iter().filter(|(path, _)| path.is_within(&found.path));
            below.for_each(|(_, written)| add(Some(written)));
        } else {
            add(paths.get(&found.path));
            add(found.from.as_ref().and_then(|from| paths.get(&from.path)));
        }
        // Below directories that were moved, names stand for now one and now another thing.
        if self.is_below_moved(&found.path) {
            hands.extend(self.below.get_or_init(|| self.all_below_moved()));
        }
        hands
    }

    fn is_below_moved(&self, path: &WorkspacePath) -> bool {
        let mut above = std::iter::successors(Some(path.clone()), WorkspacePath::parent);
        !self.moved.is_empty() && above.any(|above| self.moved.contains(&above))
    }

    fn all_below_moved(&self) -> Vec<Option<usize>> {
        let below = self.seen.paths.iter().filter(|(path, _)| self.is_below_moved(path));
        let hands: HashSet<_> = below.flat_map(|(_, written)| &written.writers).copied().collect();
        hands.into_iter().collect()
    }
}

/// Whether several writers mean that several could have made a change. Not of a repository, where
/// many write what is no part of its value, nor of a directory, where only the time is everybody's.
fn can_be_mixed(found: &Found) -> bool {
    let repository = is_repository(&found.before) || is_repository(&found.after);
    !(repository || found.before.is_directory() && found.after.is_directory())
}

fn is_repository(entry: &Entry) -> bool {
    matches!(entry, Entry::Repository(_))
}

fn is_linked(entry: &Entry) -> bool {
    matches!(entry, Entry::File(file) if file.link.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{File, Meta, MovedFrom, Repository};
    use crate::id::{LinkGroup, ObjectId, Seq};

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    fn file(link: Option<LinkGroup>) -> Entry {
        let (object, meta) = (ObjectId::of(b"x"), Meta::default());
        Entry::File(File {
            object,
            secret: false,
            pending: false,
            size: 1,
            sparse: false,
            link,
            meta,
        })
    }

    fn found(at: &str, before: Entry, after: Entry) -> Found {
        Found { path: path(at), before, after, from: None, neutral: false }
    }

    /// Writers as `a=1 b=2,? d*=3`: numbers of lines, `?` somebody unknown, `*` a moved directory.
    fn seen(text: &str) -> Witnessed {
        let word = |word: &str| {
            let (name, who) = word.split_once('=').unwrap();
            let writers = who.split(',').map(|who| who.parse().ok()).collect();
            (path(name.trim_end_matches('*')), Written { writers, moved: name.ends_with('*') })
        };
        Witnessed { lines: vec![], paths: text.split_whitespace().map(word).collect() }
    }

    #[track_caller]
    fn check(found: &Found, text: &str, expected: &str) {
        let mut hands: Vec<_> = Hands::new(&seen(text))
            .on(found)
            .into_iter()
            .map(|hand| hand.map_or("?".to_owned(), |line| line.to_string()))
            .collect();
        hands.sort();
        hands.dedup();
        assert_eq!(hands.join(","), expected);
    }

    #[test]
    fn a_path_has_its_own_writers_and_those_of_the_name_it_came_from() {
        let mut change = found("b", Entry::Absent, file(None));
        check(&change, "a=1 b=2,? c=3", "2,?");
        check(&change, "a=1", "");
        change.from = Some(MovedFrom { path: path("a"), seq: Seq(1) });
        check(&change, "a=1 b=2", "1,2");
    }

    #[test]
    fn below_a_moved_directory_everybody_who_wrote_below_one_counts() {
        let change = found("new/x", Entry::Absent, file(None));
        check(&change, "old*=1 new*=1 old/x=2 other=3", "1,2");
        check(&found("other", file(None), Entry::Absent), "old*=1 new*=1 other=3", "3");
    }

    #[test]
    fn who_writes_through_another_name_is_not_known() {
        let linked = Some(LinkGroup([1; 8]));
        check(&found("a", file(linked), file(None)), "a=1", "?");
        check(&found("a", file(None), file(linked)), "a=1", "?");
    }

    #[test]
    fn a_repository_is_written_to_by_whoever_writes_in_it() {
        let (bundle, identity) = (ObjectId::of(b"1"), ObjectId::of(b"2"));
        let meta = Meta::default();
        let value = Entry::Repository(Repository { bundle, identity, head: vec![], meta });
        let change = found(".git", value.clone(), value);
        check(&change, ".git/HEAD=1 .git/refs/heads/main=2 .github/x=3", "1,2");
        assert!(!can_be_mixed(&change));
        let directory = Entry::Directory(Meta::default());
        assert!(!can_be_mixed(&found("d", directory.clone(), directory.clone())));
        assert!(can_be_mixed(&found("d", directory, Entry::Absent)));
    }
}
