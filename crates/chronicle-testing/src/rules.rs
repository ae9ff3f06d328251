//! An in-memory model of the rules: several authors, and what a rewind keeps and takes back.
//!
//! It says what *should* stand in a workspace; `drive` does the same to a real one and compares.
//! Files are made of parts (name, mode, slots of text far apart), and each part is only ever changed
//! by one author, so that the rules alone decide every result. One file is not text: its slots are
//! one part, which all change. What the rules leave open is answered with [`Outcome::Open`] and not
//! tried.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::dice::Dice;

#[cfg(test)]
mod tests;

/// Who works in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Author {
    /// A person, outside every turn.
    Person,
    /// An agent's session, by its key.
    Session(&'static str),
    /// Either of the two sessions, while both have a turn open.
    Shared,
}

/// All authors; a part's owner is a place in this list.
pub const AUTHORS: [Author; 4] =
    [Author::Person, Author::Session("A"), Author::Session("B"), Author::Shared];
/// Where files live: those in which every author has a slot, then those of each author.
pub const DIRECTORIES: [&str; 5] = ["shared", "person", "a", "b", "both"];
/// The sessions that a shared change may be of.
const SESSIONS: [&str; 2] = ["A", "B"];
/// Files in which every author has a slot.
const SHARED: usize = 4;
/// Files of one author alone, for each author.
const OWN: usize = 3;
/// Slots of a file, one for each author.
const SLOTS: usize = AUTHORS.len();
/// The file that is not text, and so cannot be merged by lines.
const BINARY: usize = SHARED - 1;

/// A file as the model sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    /// Where it is.
    pub path: String,
    /// Its permission bits.
    pub mode: u32,
    /// The value that stands in each slot of its text.
    pub slots: [u32; SLOTS],
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:o} {:?}", self.path, self.mode, self.slots)
    }
}

/// A file, or nothing.
pub type Standing = Option<State>;

impl State {
    /// The file's text: each slot is one line with enough fixed lines around it to merge apart.
    pub fn text(&self, file: usize) -> String {
        let mut text = if file == BINARY { "\0\n".to_owned() } else { String::new() };
        for (slot, value) in self.slots.iter().enumerate() {
            for line in 0..5 {
                text.push_str(&format!("file {file} part {slot} line {line}\n"));
            }
            text.push_str(&format!("slot {slot} holds {value}\n"));
        }
        text + &format!("file {file} ends\n")
    }
}

/// One recorded change of one file.
#[derive(Debug, Clone)]
struct Change {
    file: usize,
    before: Standing,
    after: Standing,
    /// `None`: a rewind's own write.
    author: Option<Author>,
    turn: Option<u64>,
    /// Which look found it.
    look: usize,
    /// Between two looks it was deleted and made again.
    anew: bool,
    live: bool,
}

/// A moment that a rewind can go to.
#[derive(Debug, Clone)]
pub struct Moment {
    changes: usize,
    states: Vec<Standing>,
    live: Vec<bool>,
}

/// One exchange with an agent.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Its number, as Chronicle gave it.
    pub number: u64,
    /// Whose it is.
    pub session: &'static str,
    /// Just after its opening look.
    pub start: Moment,
    /// Just after it ended.
    pub end: Option<Moment>,
}

/// What a rewind makes of the workspace.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What will stand.
    pub states: Vec<Standing>,
    /// Which changes will be live.
    pub live: Vec<bool>,
    /// The paths that stay because several could have changed them.
    pub shared: BTreeSet<String>,
}

/// What a rewind will come to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is done.
    Done(Planned),
    /// It stops, with nothing changed, unless it is said what to do.
    Conflict {
        /// If what is in conflict shall stay; `None` where the model does not say.
        keep_mine: Option<Planned>,
        /// If what is in conflict shall go; `None` where the model does not say.
        replace: Option<Planned>,
    },
    /// The rules do not decide it.
    Open,
}

/// The workspace, its history, and the rules.
#[derive(Debug, Clone)]
pub struct Model {
    files: Vec<Standing>,
    known: Vec<Standing>,
    history: Vec<Change>,
    turns: Vec<Turn>,
    open: Vec<(u64, &'static str)>,
    /// Files that an action announced: whose it is.
    announced: BTreeMap<usize, &'static str>,
    /// Files that were made since the last look.
    made: BTreeSet<usize>,
    /// What was before each look.
    looks: Vec<Moment>,
    redo: Vec<Moment>,
    fresh: u32,
    renames: bool,
}

impl Model {
    /// Whether a file may be moved.
    pub fn may_move(&self, file: usize) -> bool {
        self.renames || file >= SHARED
    }

    /// A workspace with the shared files and one own file of each author, all just adopted.
    ///
    /// `renames` says whether shared files are moved, so that kept work must follow them.
    pub fn new(renames: bool) -> Self {
        let mut files: Vec<Standing> = Vec::new();
        for file in 0..SHARED + OWN * AUTHORS.len() {
            let exists = file < SHARED || (file - SHARED).is_multiple_of(OWN);
            let path = format!("{}/{file}.txt", directory(file));
            files.push(exists.then_some(State { path, mode: 0o644, slots: [0; SLOTS] }));
        }
        Self {
            known: files.clone(),
            files,
            history: Vec::new(),
            turns: Vec::new(),
            open: Vec::new(),
            announced: BTreeMap::new(),
            made: BTreeSet::new(),
            looks: Vec::new(),
            redo: Vec::new(),
            fresh: 0,
            renames,
        }
    }

    /// What stands in the workspace: path to file number and state.
    pub fn standing(&self) -> BTreeMap<String, (usize, State)> {
        let files = self.files.iter().enumerate();
        files
            .filter_map(|(file, state)| {
                state.clone().map(|state| (state.path.clone(), (file, state)))
            })
            .collect()
    }

    /// What stands at one file number.
    pub fn file(&self, file: usize) -> &Standing {
        &self.files[file]
    }

    /// The turns so far.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The author who may work now: the open turn's session, nobody alone where there are two, and
    /// the person where there is none.
    pub fn author(&self) -> Author {
        match self.open[..] {
            [] => Author::Person,
            [(_, session)] => Author::Session(session),
            _ => Author::Shared,
        }
    }

    /// Changes something that belongs to the present author; says which file.
    pub fn edit(&mut self, dice: &mut Dice) -> usize {
        let me = number_of(self.author());
        loop {
            let file = dice.below(self.files.len());
            if self.announced.contains_key(&file) {
                continue;
            }
            if let Some(after) = self.proposal(me, file, dice) {
                if self.files[file].is_none() {
                    self.made.insert(file);
                }
                self.files[file] = after;
                return file;
            }
        }
    }

    fn proposal(&mut self, me: usize, file: usize, dice: &mut Dice) -> Option<Standing> {
        self.fresh += 1;
        // Each mode is used about once, so that a chmod never makes an entry that stood before.
        let (value, mode) = (self.fresh, 0o600 + self.fresh % 64);
        let owned = |part: usize| file >= SHARED || (file + part) % AUTHORS.len() == me;
        if file >= SHARED && (file - SHARED) / OWN != me {
            return None;
        }
        let Some(state) = self.files[file].clone() else {
            let path = format!("{}/{file}.txt", directory(file));
            let path = if dice.chance(50) { path } else { self.new_path(file) };
            let own = file >= SHARED;
            return own.then_some(Some(State { path, mode, slots: [value; SLOTS] }));
        };
        match dice.below(10) {
            0 if owned(1) && mode != state.mode => Some(Some(State { mode, ..state })),
            1 if owned(0) && self.may_move(file) => {
                Some(Some(State { path: self.new_path(file), ..state }))
            }
            2 if owned(0) => Some(None),
            0..=2 => None,
            _ => {
                let mut slots = state.slots;
                slots[me] = value;
                Some(Some(State { slots, ..state }))
            }
        }
    }

    /// Announces a write of one session to a file that nobody has touched since the last look; says
    /// which file, and where it is.
    pub fn announce(&self, dice: &mut Dice, session: &'static str) -> Option<(usize, String)> {
        let own = SHARED + number_of(Author::Session(session)) * OWN;
        let fits = |file: &usize| {
            let mine = *file < SHARED || (own..own + OWN).contains(file);
            mine && self.files[*file].is_some() && self.files[*file] == self.known[*file]
        };
        let files: Vec<_> = (0..self.files.len()).filter(fits).collect();
        let file = *dice.pick_any(&files)?;
        self.files[file].as_ref().map(|state| (file, state.path.clone()))
    }

    /// Does what was announced: the session's own slot changes.
    pub fn edit_announced(&mut self, file: usize, session: &'static str) {
        self.fresh += 1;
        let state = self.files[file].as_mut().expect("BUG: it was there when it was announced");
        state.slots[number_of(Author::Session(session))] = self.fresh;
        self.announced.insert(file, session);
    }

    fn new_path(&self, file: usize) -> String {
        format!("{}/{file}-{}.txt", directory(file), self.fresh)
    }

    /// Records what changed since the last look.
    pub fn look(&mut self) {
        self.looks.push(self.now());
        for file in 0..self.files.len() {
            let (before, after) = (self.known[file].clone(), self.files[file].clone());
            let author = self.announced.get(&file).copied().map(Author::Session);
            let author = author.unwrap_or(self.author());
            if before != after {
                self.add(file, before, after, Some(author));
            }
        }
        self.announced.clear();
        self.made.clear();
        self.known = self.files.clone();
    }

    fn add(&mut self, file: usize, before: Standing, after: Standing, author: Option<Author>) {
        let session =
            |(_, session): &&(u64, &'static str)| author == Some(Author::Session(session));
        let turn = self.open.iter().find(session).map(|(number, _)| *number);
        let look = self.looks.len();
        let anew = before.is_some() && self.made.contains(&file);
        self.history.push(Change { file, before, after, author, turn, look, anew, live: true });
    }

    fn now(&self) -> Moment {
        let live = self.history.iter().map(|change| change.live).collect();
        Moment { changes: self.history.len(), states: self.known.clone(), live }
    }

    /// Opens a turn, after a look.
    pub fn turn_start(&mut self, number: u64, session: &'static str) {
        let open = self.open.iter().any(|(_, other)| *other == session);
        assert!(!open, "BUG: a session with two turns at once is not in this model");
        self.look();
        self.turns.push(Turn { number, session, start: self.now(), end: None });
        self.open.push((number, session));
    }

    /// Ends a session's open turn, after a look.
    pub fn turn_end(&mut self, session: &'static str) {
        self.look();
        self.open.retain(|(_, other)| *other != session);
        let end = Some(self.now());
        let turn = self.turns.iter_mut().rev().find(|turn| turn.session == session);
        turn.expect("BUG: no turn to end").end = end;
    }

    /// The moment after the first turn's opening look.
    pub fn start(&self) -> Option<Moment> {
        self.turns.first().map(|turn| turn.start.clone())
    }

    /// Whether a file is where it was at a moment, and was never anywhere else since.
    pub fn stayed(&self, file: usize, since: &Moment) -> bool {
        let path = |state: &Standing| state.as_ref().map(|state| state.path.clone());
        let here = path(&self.files[file]);
        let later = self.history[since.changes..].iter().filter(|change| change.file == file);
        let mut all = later.flat_map(|change| [&change.before, &change.after]);
        path(&since.states[file]) == here && all.all(|state| path(state) == here)
    }

    /// Rewind to a moment, taking back what these sessions did, and with `true` also what may be
    /// theirs; `None` takes back everything.
    pub fn rewind(
        &self,
        to: &Moment,
        taken: Option<(&[&str], bool)>,
        only: Option<usize>,
    ) -> Outcome {
        let keep = |change: &Change| match (change.author, taken) {
            (_, None) | (None, _) => false,
            (Some(Author::Person), _) => true,
            (Some(Author::Session(key)), Some((sessions, _))) => !sessions.contains(&key),
            // Whoever of them it was, it goes.
            (Some(Author::Shared), Some((sessions, also_shared))) => {
                !also_shared && !SESSIONS.iter().all(|key| sessions.contains(key))
            }
        };
        let listed = |change: &Change| change.author == Some(Author::Shared) && keep(change);
        self.plan(to, only, keep, |change, was| keep(change) && was != change.live, listed)
    }

    /// Whether taking back all agents' work since a moment would take work of a session that is not
    /// done, beside that of another.
    pub fn would_hit_another(&self, since: &Moment) -> bool {
        let later = self.history[since.changes..].iter().filter(|change| change.live);
        let hit: BTreeSet<_> = later.filter_map(|change| session_of(change.author)).collect();
        hit.len() > 1 && self.open.iter().any(|(_, session)| hit.contains(session))
    }

    /// Take back one turn and keep everything else.
    pub fn undo(&self, turn: &Turn) -> Outcome {
        let gone = |change: &Change| change.turn == Some(turn.number);
        // What was found while it ran, and could be another session's, stays and is named.
        let end = turn.end.as_ref().map_or(self.history.len(), |end| end.changes);
        let during = &self.history[turn.start.changes..end];
        let looks: BTreeSet<_> = during.iter().map(|change| change.look).collect();
        let shared = |change: &Change| change.author == Some(Author::Shared);
        self.without(&turn.start, gone, |change| shared(change) && looks.contains(&change.look))
    }

    /// Take back the newest turn with live changes, or else the newest look that found some which
    /// nobody alone may have made; `None` where there is neither.
    pub fn undo_newest(&self) -> Option<Outcome> {
        if let Some(turn) = self.turns.iter().rev().find(|turn| self.has_live_changes(turn)) {
            return Some(self.undo(turn));
        }
        let shared = |change: &&Change| change.live && change.author == Some(Author::Shared);
        let look = self.history.iter().rev().find(shared)?.look;
        let gone = |change: &Change| change.look == look && change.author == Some(Author::Shared);
        Some(self.without(&self.looks[look - 1], gone, |_| false))
    }

    fn without(
        &self,
        before: &Moment,
        gone: impl Fn(&Change) -> bool,
        listed: impl Fn(&Change) -> bool,
    ) -> Outcome {
        let keep = |change: &Change| change.author.is_some() && !gone(change);
        self.plan(before, None, keep, |change, was| keep(change) && was != change.live, listed)
    }

    /// Whether anything that this turn did is still in effect.
    pub fn has_live_changes(&self, turn: &Turn) -> bool {
        self.history.iter().any(|change| change.live && change.turn == Some(turn.number))
    }

    /// Bring back what the newest rewind took; `None` where there is none.
    pub fn redo(&self) -> Option<Outcome> {
        let before = self.redo.last()?;
        let keep = |change: &Change| change.author.is_some();
        let open = |change: &Change, was: bool| keep(change) && change.live && !was;
        Some(self.plan(before, None, keep, open, |_| false))
    }

    /// Makes a rewind's result the present, and remembers how to take it back.
    pub fn rewound(&mut self, planned: Planned, redone: bool) {
        let before = self.now();
        if redone {
            self.redo.pop();
        } else {
            self.redo.push(before);
        }
        for (change, live) in self.history.iter_mut().zip(planned.live) {
            change.live = live;
        }
        self.files = planned.states;
        for file in 0..self.files.len() {
            let (before, after) = (self.known[file].clone(), self.files[file].clone());
            if before != after {
                self.add(file, before, after, None);
            }
        }
        self.known = self.files.clone();
    }

    /// The one operation: the state at a moment, plus the later changes that are kept.
    ///
    /// A change of before that moment that was live then and is not now, or the reverse, is neither
    /// of then nor a later one; `open` says for which of them the rules do not decide. `listed` says
    /// which kept changes are named, since nobody knows whose they are.
    fn plan(
        &self,
        to: &Moment,
        only: Option<usize>,
        keep: impl Fn(&Change) -> bool,
        open: impl Fn(&Change, bool) -> bool,
        listed: impl Fn(&Change) -> bool,
    ) -> Outcome {
        let selected = |file: usize| only.is_none_or(|only| only == file);
        let mut live: Vec<_> = self.history.iter().map(|change| change.live).collect();
        let mut shared = BTreeMap::new();
        for (index, change) in self.history.iter().enumerate().filter(|(_, c)| selected(c.file)) {
            let was = to.live.get(index).copied();
            if was.is_some_and(|was| open(change, was)) {
                return Outcome::Open;
            }
            if was.is_none() && change.live && listed(change) {
                let paths: &mut BTreeSet<_> = shared.entry(change.file).or_default();
                paths.extend(
                    [&change.before, &change.after].into_iter().flatten().map(|s| s.path.clone()),
                );
            }
            live[index] = was.unwrap_or(change.live && keep(change));
        }
        let (mut states, mut conflicts) = (self.known.clone(), Vec::new());
        for file in (0..states.len()).filter(|file| selected(*file)) {
            let kept = |change: &Change| change.live && keep(change);
            match self.replay(file, to, kept) {
                Merged::Into(state) => states[file] = state,
                Merged::Conflict => conflicts.push(file),
                Merged::Open => return Outcome::Open,
            }
        }
        let plan = Draft { states, live, shared };
        if conflicts.is_empty() {
            return Outcome::Done(plan.planned());
        }
        let chosen = |replace| self.decide(plan.clone(), to, &conflicts, replace);
        Outcome::Conflict { keep_mine: chosen(false), replace: chosen(true) }
    }

    /// What comes of a plan in which these files are in conflict: they stay as they are, or they
    /// become what they were at the moment. `None` where one of them was not always in one place.
    fn decide(
        &self,
        mut plan: Draft,
        to: &Moment,
        conflicts: &[usize],
        replace: bool,
    ) -> Option<Planned> {
        for file in conflicts {
            if !self.stayed(*file, to) {
                return None;
            }
            let state = if replace { &to.states[*file] } else { &self.known[*file] };
            plan.states[*file] = state.clone();
            let changes =
                self.history.iter().enumerate().filter(|(_, change)| change.file == *file);
            for (index, change) in changes {
                let then = to.live.get(index).copied().unwrap_or(false);
                plan.live[index] = if replace { then } else { change.live };
            }
            if replace {
                plan.shared.remove(file);
            }
        }
        Some(plan.planned())
    }

    fn replay(&self, file: usize, to: &Moment, keep: impl Fn(&Change) -> bool) -> Merged {
        let (mut state, mut conflict) = (to.states[file].clone(), false);
        let later: Vec<_> =
            self.history[to.changes..].iter().filter(|change| change.file == file).collect();
        for group in later.chunk_by(|a, b| keep(a) == keep(b)).filter(|group| keep(group[0])) {
            let (first, last) = (group[0], group[group.len() - 1]);
            let made_anew = group.iter().any(|change| change.after.is_none() || change.anew);
            match merge(file, [&state, &first.before, &last.after]) {
                // What is deleted in the end is no conflict any more.
                _ if conflict && last.after.is_none() => (state, conflict) = (None, false),
                // Deleted and made again under another name it is another file.
                merged
                    if (conflict || matches!(merged, Merged::Conflict))
                        && made_anew
                        && moved(&first.before, &last.after) =>
                {
                    return Merged::Open;
                }
                _ if conflict => {}
                Merged::Into(merged) => state = merged,
                Merged::Conflict => conflict = true,
                Merged::Open => return Merged::Open,
            }
        }
        if conflict { Merged::Conflict } else { Merged::Into(state) }
    }
}

/// A plan that may still have conflicts.
#[derive(Clone)]
struct Draft {
    states: Vec<Standing>,
    live: Vec<bool>,
    /// The paths that stay because several could have changed them, by file.
    shared: BTreeMap<usize, BTreeSet<String>>,
}

impl Draft {
    fn planned(self) -> Planned {
        let shared = self.shared.into_values().flatten().collect();
        Planned { states: self.states, live: self.live, shared }
    }
}

/// The author's place in the list.
fn number_of(author: Author) -> usize {
    let place = AUTHORS.iter().position(|other| *other == author);
    place.expect("BUG: an author who is not in the list")
}

fn session_of(author: Option<Author>) -> Option<&'static str> {
    match author {
        Some(Author::Session(session)) => Some(session),
        _ => None,
    }
}

/// Where files of this number live.
fn directory(file: usize) -> &'static str {
    match file.checked_sub(SHARED) {
        None => DIRECTORIES[0],
        Some(own) => DIRECTORIES[1 + own / OWN],
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Merged {
    Into(Standing),
    Conflict,
    Open,
}

/// Three-way, part by part.
fn merge(file: usize, [ours, base, theirs]: [&Standing; 3]) -> Merged {
    if base == theirs || ours == theirs {
        return Merged::Into(ours.clone());
    }
    if ours == base {
        return Merged::Into(theirs.clone());
    }
    let (Some(ours), Some(base), Some(theirs)) = (ours, base, theirs) else {
        return merge_with_nothing(ours, base, theirs);
    };
    let Some(path) = three(&ours.path, &base.path, &theirs.path) else {
        return Merged::Open;
    };
    let mode = three(&ours.mode, &base.mode, &theirs.mode);
    if file == BINARY && three(&ours.slots, &base.slots, &theirs.slots).is_none() {
        return Merged::Conflict;
    }
    let mut slots = ours.slots;
    for (slot, value) in slots.iter_mut().enumerate() {
        match three(&ours.slots[slot], &base.slots[slot], &theirs.slots[slot]) {
            Some(merged) => *value = merged,
            None => return Merged::Conflict,
        }
    }
    mode.map_or(Merged::Conflict, |mode| Merged::Into(Some(State { path, mode, slots })))
}

/// One of the three is absent, and no two are equal.
fn merge_with_nothing(ours: &Standing, base: &Standing, theirs: &Standing) -> Merged {
    match (ours, base, theirs) {
        // Two new files with two names are no conflict, and not one file of this model.
        (_, None, _) if moved(ours, theirs) => Merged::Open,
        (_, None, _) => Merged::Conflict,
        // Whether a move of nothing is a conflict is left open.
        (None, _, _) if moved(base, theirs) => Merged::Open,
        (None, _, Some(_)) => Merged::Conflict,
        // A deletion wins, wherever the file is.
        (_, _, None) if !moved(ours, base) => Merged::Into(None),
        _ => Merged::Open,
    }
}

fn moved(from: &Standing, to: &Standing) -> bool {
    let path = |state: &Standing| state.as_ref().map(|state| state.path.clone());
    path(from) != path(to)
}

fn three<T: Clone + PartialEq>(ours: &T, base: &T, theirs: &T) -> Option<T> {
    if base == theirs || ours == theirs {
        Some(ours.clone())
    } else if ours == base {
        Some(theirs.clone())
    } else {
        None
    }
}
