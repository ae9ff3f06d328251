//! The numbering: what was touched, and when, as numbers; pure.
//!
//! Events come in, questions are answered. Everything that the watcher promises about its answers
//! is decided here, so that it can be tested without a file system.

use std::collections::HashMap;

use super::protocol::{REPLY_MAX, Reply};
use super::{Doubt, Token, Touched};
use crate::path::WorkspacePath;

/// How long a file that was modified and never closed is looked at again and again: `truncate` by
/// name modifies without ever closing.
const UNCLOSED_NS: i64 = 600 * 1_000_000_000;
/// The most files that are remembered as modified and not closed.
const UNCLOSED_MAX: usize = 1024;

/// What was touched since when.
pub(super) struct Ledger {
    instance: [u8; 16],
    counter: u64,
    /// Before this number it cannot tell, and why.
    floor: (u64, Doubt),
    /// The number in the last answer.
    answered: u64,
    touched: HashMap<Vec<u8>, Mark>,
    /// Files that were modified and not closed, with the time of the last modification.
    unclosed: HashMap<Vec<u8>, i64>,
    /// More touched paths than this are not worth naming.
    most: usize,
}

/// When a path was last touched.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    /// When everything below it last became doubtful; 0: never.
    whole_at: u64,
}

impl Ledger {
    /// An empty one for a new watcher.
    pub(super) fn new(instance: [u8; 16], most: usize) -> Self {
        let floor = (1, Doubt::OtherWatcher);
        let (touched, unclosed) = Default::default();
        Self { instance, counter: 1, floor, answered: 0, touched, unclosed, most }
    }

    fn token(&self) -> Token {
        Token { instance: self.instance, counter: self.counter }
    }

    /// How much was seen so far.
    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    /// Whether a moment is one of this watcher's.
    pub(super) fn is_own(&self, token: &Token) -> bool {
        token.instance == self.instance
    }

    /// A path was touched; with `whole`, everything below it may have changed as well.
    pub(super) fn touch(&mut self, path: &[u8], whole: bool) {
        self.counter += 1;
        let at = self.counter;
        if self.bump_above(path) {
            return;
        }
        let mark = self.touched.entry(path.to_vec()).or_insert(Mark { at, whole_at: 0 });
        mark.at = at;
        if whole {
            mark.whole_at = at;
        }
        if self.touched.len() > self.most {
            self.forget(Doubt::TooMany);
        }
    }

    /// Where a directory above is to be looked at whole anyway, that covers this path too. Only what
    /// no answer has named yet: otherwise one new file would have the whole walked again.
    fn bump_above(&mut self, path: &[u8]) -> bool {
        let at = self.counter;
        let ends = path.iter().enumerate().rev().filter(|(at, byte)| **byte == b'/' && *at > 0);
        for end in ends.map(|(end, _)| end) {
            if let Some(mark) = self.touched.get_mut(&path[..end])
                && mark.whole_at > self.answered
            {
                (mark.at, mark.whole_at) = (at, at);
                return true;
            }
        }
        false
    }

    /// A file was written and may still be open: a mapping can change it without a sound.
    pub(super) fn modified(&mut self, path: &[u8], now_ns: i64) {
        self.touch(path, false);
        if self.unclosed.len() < UNCLOSED_MAX || self.unclosed.contains_key(path) {
            self.unclosed.insert(path.to_vec(), now_ns);
        }
    }

    /// A file that was written is closed, moved or gone.
    pub(super) fn closed(&mut self, path: &[u8]) {
        self.unclosed.remove(path);
    }

    /// From now on it cannot tell what came before.
    pub(super) fn forget(&mut self, why: Doubt) {
        self.counter += 1;
        self.floor = (self.counter, why);
        self.touched.clear();
    }

    /// The answer to what was touched since a moment.
    ///
    /// A moment that is asked about is one whose look was recorded: what is older is dropped.
    pub(super) fn since(&mut self, since: Option<Token>, now_ns: i64) -> Reply {
        let token = self.token();
        let cannot = |why| Reply::CannotTell { token: Some(token), why };
        let Some(since) = since.filter(|since| since.instance == self.instance) else {
            self.answered = self.counter;
            return cannot(Doubt::OtherWatcher);
        };
        self.answered = self.counter;
        if since.counter < self.floor.0 || since.counter > self.counter {
            return cannot(self.floor.1);
        }
        self.touched.retain(|_, mark| mark.at > since.counter);
        if since.counter > self.floor.0 {
            self.floor = (since.counter, Doubt::TooOld);
        }
        self.unclosed.retain(|_, time| now_ns.saturating_sub(*time) < UNCLOSED_NS);
        let marks = self.touched.iter();
        let mut paths: Vec<_> =
            marks.filter_map(|(path, mark)| touched(path, mark.whole_at > since.counter)).collect();
        let open = self.unclosed.keys().filter(|path| !self.touched.contains_key(*path));
        paths.extend(open.filter_map(|path| touched(path, false)));
        paths.sort_unstable();
        let size: usize = paths.iter().map(|touched| touched.path.as_bytes().len() + 4).sum();
        if size > REPLY_MAX / 2 {
            return cannot(Doubt::TooMany);
        }
        Reply::Touched { token, paths }
    }
}

/// A path that the kernel can hold and a record cannot is left to full looks, which report it.
fn touched(path: &[u8], whole: bool) -> Option<Touched> {
    Some(Touched { path: WorkspacePath::new(path).ok()?, whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn ledger() -> Ledger {
        Ledger::new([1; 16], 100)
    }

    /// The answer as `a b/*`, where `*` marks what is to be looked at whole, or the reason.
    fn ask(ledger: &mut Ledger, since: Option<Token>) -> (Option<Token>, String) {
        match ledger.since(since, NOW) {
            Reply::Touched { token, paths } => {
                let word = |t: &Touched| format!("{}{}", t.path, if t.whole { "/*" } else { "" });
                (Some(token), paths.iter().map(word).collect::<Vec<_>>().join(" "))
            }
            Reply::CannotTell { token, why } => (token, format!("{why:?}")),
            Reply::Status(_) | Reply::Writers(_) => panic!("nobody asked for that"),
        }
    }

    #[test]
    fn what_came_after_the_moment_is_named_until_it_was_recorded() {
        let mut ledger = ledger();
        let (first, said) = ask(&mut ledger, None);
        assert_eq!(said, "OtherWatcher");
        assert_eq!(ask(&mut ledger, first).1, "");
        ledger.touch(b"a", false);
        ledger.touch(b"d", true);
        let (second, said) = ask(&mut ledger, first);
        assert_eq!(said, "a d/*");
        // The look that asked was never recorded: the next one asks with the same moment.
        ledger.touch(b"b", false);
        assert_eq!(ask(&mut ledger, first).1, "a b d/*");
        assert_eq!(ask(&mut ledger, second).1, "b");
        // What was recorded is forgotten, and an older moment cannot be served any more.
        assert_eq!(ask(&mut ledger, first).1, "TooOld");
    }

    #[test]
    fn what_lies_below_something_whole_goes_with_it() {
        let mut ledger = ledger();
        let first = ask(&mut ledger, None).0;
        ledger.touch(b"d", true);
        ledger.touch(b"d/a", false);
        ledger.touch(b"d/e/f", true);
        ledger.touch(b"dd", false);
        let (second, said) = ask(&mut ledger, first);
        assert_eq!(said, "d/* dd");
        // Once it was named, a new file below is named alone.
        ledger.touch(b"d/b", false);
        assert_eq!(ask(&mut ledger, second).1, "d/b");
    }

    #[test]
    fn whole_stays_whole_until_it_was_recorded() {
        let mut ledger = ledger();
        let first = ask(&mut ledger, None).0;
        ledger.touch(b"d", true);
        let (second, _) = ask(&mut ledger, first);
        ledger.touch(b"d", false);
        assert_eq!(ask(&mut ledger, first).1, "d/*");
        let mut again = ledger;
        assert_eq!(ask(&mut again, second).1, "d");
    }

    #[test]
    fn a_doubt_makes_every_earlier_moment_worthless() {
        let mut ledger = ledger();
        let first = ask(&mut ledger, None).0;
        ledger.touch(b"a", false);
        ledger.forget(Doubt::Overflow);
        let (second, said) = ask(&mut ledger, first);
        assert_eq!(said, "Overflow");
        assert_eq!(ask(&mut ledger, second).1, "");
        let stranger = Token { instance: [2; 16], counter: 1 };
        assert_eq!(ask(&mut ledger, Some(stranger)).1, "OtherWatcher");
        let future = Token { instance: [1; 16], counter: u64::MAX };
        assert_eq!(ask(&mut ledger, Some(future)).1, "Overflow");
    }

    #[test]
    fn too_many_paths_are_not_named() {
        let mut ledger = Ledger::new([1; 16], 3);
        let first = ask(&mut ledger, None).0;
        for name in [b"a", b"b", b"c", b"d"] {
            ledger.touch(name, false);
        }
        assert_eq!(ask(&mut ledger, first).1, "TooMany");
    }

    #[test]
    fn what_is_modified_and_not_closed_is_named_again_and_again() {
        let mut ledger = ledger();
        let first = ask(&mut ledger, None).0;
        ledger.modified(b"log", NOW);
        let (second, said) = ask(&mut ledger, first);
        assert_eq!(said, "log");
        let (third, said) = ask(&mut ledger, second);
        assert_eq!((third, &said[..]), (second, "log"));
        ledger.touch(b"log", false);
        ledger.closed(b"log");
        let (fourth, said) = ask(&mut ledger, third);
        assert_eq!(said, "log");
        assert_eq!(ask(&mut ledger, fourth).1, "");
        // Not for ever: not everything that is modified is closed one day.
        ledger.modified(b"cut", NOW - UNCLOSED_NS);
        let fifth = ask(&mut ledger, fourth).0;
        assert_eq!(ask(&mut ledger, fifth).1, "");
    }

    /// Every event after a moment is in the answer, itself or by a whole directory above it, whatever
    /// looks were recorded and lost in between.
    #[test]
    fn no_event_is_ever_lost() {
        let mut state = 7_u64;
        let mut roll = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11);
            (state >> 33) as usize % end
        };
        for _ in 0..200 {
            let mut ledger = Ledger::new([1; 16], 30);
            let mut recorded = ask(&mut ledger, None).0;
            let mut pending: Vec<(String, bool)> = Vec::new();
            for _ in 0..60 {
                if roll(4) > 0 {
                    let parts = 1 + roll(3);
                    let path: Vec<_> = (0..parts).map(|_| ["a", "b", "c"][roll(3)]).collect();
                    let (path, whole) = (path.join("/"), roll(4) == 0);
                    ledger.touch(path.as_bytes(), whole);
                    pending.push((path, whole));
                    continue;
                }
                let Reply::Touched { token, paths } = ledger.since(recorded, NOW) else {
                    recorded = ask(&mut ledger, None).0;
                    pending.clear();
                    continue;
                };
                for (path, whole) in &pending {
                    let path = WorkspacePath::new(path.as_bytes()).unwrap();
                    let named = paths.iter().any(|touched| {
                        touched.path == path && (touched.whole || !whole)
                            || touched.whole && path.is_within(&touched.path)
                    });
                    assert!(named, "{path} in {paths:?}");
                }
                if roll(2) == 0 {
                    recorded = Some(token);
                    pending.clear();
                }
            }
        }
    }
}
