//! An in-memory model of the rules: several authors, and what a rewind keeps and takes back.
//!
//! It says what *should* stand in a workspace; `drive` does the same to a real one and compares.
//! Files are made of parts (name, mode, three slots of text far apart), and each part is only ever
//! changed by one author, so that the rules alone decide every result. What they leave open is
//! answered with [`Outcome::Open`] and not tried.

use std::collections::BTreeMap;
use std::fmt;

use crate::dice::Dice;

/// Who works in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Author {
    /// A person, outside every turn.
    Person,
    /// An agent's session, by its key.
    Session(&'static str),
}

/// All authors; a part's owner is a place in this list.
pub const AUTHORS: [Author; 3] = [Author::Person, Author::Session("A"), Author::Session("B")];
/// Files in which every author has a slot.
const SHARED: usize = 4;
/// Files of one author alone, for each author.
const OWN: usize = 3;
/// Slots of a file, one for each author.
const SLOTS: usize = AUTHORS.len();

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
        let mut text = String::new();
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

/// What a rewind will come to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// This is what will stand, and which changes will be live.
    Done(Vec<Standing>, Vec<bool>),
    /// It stops, with nothing changed.
    Conflict,
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
    open: Option<(u64, &'static str)>,
    redo: Vec<Moment>,
    fresh: u32,
    renames: bool,
}

impl Model {
    /// A workspace with the shared files and one own file of each author, all just adopted.
    ///
    /// Whether a file may be moved.
    pub fn may_move(&self, file: usize) -> bool {
        self.renames || file >= SHARED
    }

    /// `renames` says whether shared files are moved, so that kept work must follow them.
    pub fn new(renames: bool) -> Self {
        let mut files: Vec<Standing> = Vec::new();
        for file in 0..SHARED + OWN * AUTHORS.len() {
            let exists = file < SHARED || (file - SHARED).is_multiple_of(OWN);
            let path = format!("{}/{file}.txt", directory(file));
            files.push(exists.then_some(State { path, mode: 0o644, slots: [0; SLOTS] }));
        }
        let (known, history, turns, redo) = (files.clone(), Vec::new(), Vec::new(), Vec::new());
        Self { files, known, history, turns, open: None, redo, fresh: 0, renames }
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

    /// The author who may work now: the open turn's session, else the person.
    pub fn author(&self) -> Author {
        self.open.map_or(Author::Person, |(_, session)| Author::Session(session))
    }

    /// Changes something that belongs to the present author; says which file.
    pub fn edit(&mut self, dice: &mut Dice) -> usize {
        let me = AUTHORS.iter().position(|author| *author == self.author());
        let me = me.expect("BUG: an author who is not in the list");
        loop {
            let file = dice.below(self.files.len());
            if let Some(after) = self.proposal(me, file, dice) {
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
            0 if owned(1) => Some(Some(State { mode, ..state })),
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

    fn new_path(&self, file: usize) -> String {
        format!("{}/{file}-{}.txt", directory(file), self.fresh)
    }

    /// Records what changed since the last look.
    pub fn look(&mut self) {
        let (author, turn) = (Some(self.author()), self.open.map(|(number, _)| number));
        for file in 0..self.files.len() {
            let (before, after) = (self.known[file].clone(), self.files[file].clone());
            if before != after {
                self.history.push(Change { file, before, after, author, turn, live: true });
            }
        }
        self.known = self.files.clone();
    }

    fn now(&self) -> Moment {
        let live = self.history.iter().map(|change| change.live).collect();
        Moment { changes: self.history.len(), states: self.known.clone(), live }
    }

    /// Opens a turn, after a look.
    pub fn turn_start(&mut self, number: u64, session: &'static str) {
        assert!(self.open.is_none(), "BUG: two turns at once are not in this model");
        self.look();
        self.turns.push(Turn { number, session, start: self.now(), end: None });
        self.open = Some((number, session));
    }

    /// Ends the open turn, after a look.
    pub fn turn_end(&mut self) {
        self.look();
        self.open = None;
        let end = Some(self.now());
        self.turns.last_mut().expect("BUG: no turn to end").end = end;
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

    /// Rewind to a moment, taking back what these sessions did; `None` takes back everything.
    pub fn rewind(&self, to: &Moment, sessions: Option<&[&str]>, only: Option<usize>) -> Outcome {
        let keep = |change: &Change| match (change.author, sessions) {
            (_, None) | (None, _) => false,
            (Some(Author::Person), _) => true,
            (Some(Author::Session(key)), Some(taken)) => !taken.contains(&key),
        };
        self.plan(to, only, keep, |change, was| keep(change) && was != change.live)
    }

    /// Take back one turn and keep everything else.
    pub fn undo(&self, turn: &Turn) -> Outcome {
        let keep = |change: &Change| change.author.is_some() && change.turn != Some(turn.number);
        self.plan(&turn.start, None, keep, |change, was| keep(change) && was != change.live)
    }

    /// The newest turn that still has live changes.
    pub fn newest_live_turn(&self) -> Option<&Turn> {
        self.turns.iter().rev().find(|turn| self.has_live_changes(turn))
    }

    /// Whether anything that this turn did is still in effect.
    pub fn has_live_changes(&self, turn: &Turn) -> bool {
        self.history.iter().any(|change| change.live && change.turn == Some(turn.number))
    }

    /// Bring back what the newest rewind took; `None` where there is none.
    pub fn redo(&self) -> Option<Outcome> {
        let before = self.redo.last()?;
        let keep = |change: &Change| change.author.is_some();
        Some(self.plan(before, None, keep, |change, was| keep(change) && change.live && !was))
    }

    /// Makes a rewind's result the present, and remembers how to take it back.
    pub fn rewound(&mut self, states: Vec<Standing>, live: Vec<bool>, redone: bool) {
        let before = self.now();
        if redone {
            self.redo.pop();
        } else {
            self.redo.push(before);
        }
        for (change, live) in self.history.iter_mut().zip(live) {
            change.live = live;
        }
        self.files = states;
        for file in 0..self.files.len() {
            let (before, after) = (self.known[file].clone(), self.files[file].clone());
            if before != after {
                let (author, turn) = (None, None);
                self.history.push(Change { file, before, after, author, turn, live: true });
            }
        }
        self.known = self.files.clone();
    }

    /// The one operation: the state at a moment, plus the later changes that are kept.
    ///
    /// A change of before that moment that was live then and is not now, or the reverse, is neither
    /// of then nor a later one; `open` says for which of them the rules do not decide.
    fn plan(
        &self,
        to: &Moment,
        only: Option<usize>,
        keep: impl Fn(&Change) -> bool,
        open: impl Fn(&Change, bool) -> bool,
    ) -> Outcome {
        let selected = |file: usize| only.is_none_or(|only| only == file);
        let mut live: Vec<_> = self.history.iter().map(|change| change.live).collect();
        for (index, change) in self.history.iter().enumerate().filter(|(_, c)| selected(c.file)) {
            let was = to.live.get(index).copied();
            if was.is_some_and(|was| open(change, was)) {
                return Outcome::Open;
            }
            live[index] = was.unwrap_or(change.live && keep(change));
        }
        let (mut states, mut conflict) = (self.known.clone(), false);
        for file in (0..states.len()).filter(|file| selected(*file)) {
            let kept = |change: &Change| change.live && keep(change);
            match self.replay(file, to, kept) {
                Merged::Into(state) => states[file] = state,
                Merged::Conflict => conflict = true,
                Merged::Open => return Outcome::Open,
            }
        }
        if conflict { Outcome::Conflict } else { Outcome::Done(states, live) }
    }

    fn replay(&self, file: usize, to: &Moment, keep: impl Fn(&Change) -> bool) -> Merged {
        let mut state = to.states[file].clone();
        let later: Vec<_> =
            self.history[to.changes..].iter().filter(|change| change.file == file).collect();
        for group in later.chunk_by(|a, b| keep(a) == keep(b)).filter(|group| keep(group[0])) {
            let (first, last) = (group[0], group[group.len() - 1]);
            let made_anew = group.iter().any(|change| change.after.is_none());
            match merge(&state, &first.before, &last.after) {
                Merged::Into(merged) => state = merged,
                // Deleted and made again under another name it is another file.
                Merged::Conflict if made_anew && moved(&first.before, &last.after) => {
                    return Merged::Open;
                }
                other => return other,
            }
        }
        Merged::Into(state)
    }
}

/// Where files of this number live.
fn directory(file: usize) -> &'static str {
    match file.checked_sub(SHARED) {
        None => "shared",
        Some(own) => ["person", "a", "b"][own / OWN],
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Merged {
    Into(Standing),
    Conflict,
    Open,
}

/// Three-way, part by part.
fn merge(ours: &Standing, base: &Standing, theirs: &Standing) -> Merged {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a value into the present author's slot of the first file.
    fn put(model: &mut Model, value: u32) {
        let me = AUTHORS.iter().position(|author| *author == model.author()).unwrap();
        model.files[0].as_mut().unwrap().slots[me] = value;
    }

    fn turn(model: &mut Model, number: u64, session: &'static str, value: u32) {
        model.turn_start(number, session);
        put(model, value);
        model.turn_end();
    }

    #[track_caller]
    fn check(outcome: Outcome, expected: [u32; SLOTS]) {
        match outcome {
            Outcome::Done(states, _) => assert_eq!(states[0].as_ref().unwrap().slots, expected),
            other => panic!("{other:?}"),
        }
    }

    fn three_authors() -> Model {
        let mut model = Model::new(true);
        turn(&mut model, 1, "A", 1);
        put(&mut model, 10);
        turn(&mut model, 2, "B", 2);
        turn(&mut model, 3, "A", 3);
        model
    }

    #[test]
    fn a_rewind_takes_back_its_sessions_and_keeps_the_others() {
        let model = three_authors();
        let start = model.start().unwrap();
        check(model.rewind(&start, Some(&["A"]), None), [10, 0, 2]);
        check(model.rewind(&start, Some(&["A", "B"]), None), [10, 0, 0]);
        check(model.rewind(&start, None, None), [0, 0, 0]);
        let first = model.turns()[0].end.clone().unwrap();
        check(model.rewind(&first, Some(&["A"]), None), [10, 1, 2]);
    }

    #[test]
    fn undo_of_a_middle_turn_keeps_what_came_later() {
        let model = three_authors();
        check(model.undo(&model.turns()[1]), [10, 3, 0]);
        assert!(matches!(model.undo(&model.turns()[0]), Outcome::Conflict), "3 stands on 1");
    }

    #[test]
    fn redo_brings_back_and_merges_what_was_done_since() {
        let mut model = three_authors();
        let Outcome::Done(states, live) = model.rewind(&model.start().unwrap(), None, None) else {
            panic!("an exact rewind is always decided");
        };
        model.rewound(states, live, false);
        assert_eq!(model.newest_live_turn().map(|turn| turn.number), None);
        turn(&mut model, 4, "B", 4);
        assert!(matches!(model.redo().unwrap(), Outcome::Conflict), "B wrote over what B had");
        let mut model = three_authors();
        let Outcome::Done(states, live) = model.undo(&model.turns()[1].clone()) else {
            panic!("decided")
        };
        model.rewound(states, live, false);
        put(&mut model, 11);
        model.look();
        check(model.redo().unwrap(), [11, 3, 2]);
    }

    #[test]
    fn random_histories_stay_consistent() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let mut model = Model::new(true);
            for number in 1..6 {
                for _ in 0..dice.below(3) {
                    model.edit(&mut dice);
                }
                model.turn_start(number, if dice.chance(50) { "A" } else { "B" });
                for _ in 0..3 {
                    model.edit(&mut dice);
                }
                model.turn_end();
            }
            let end = model.now();
            let Outcome::Done(states, live) = model.rewind(&model.start().unwrap(), None, None)
            else {
                panic!("an exact rewind is always decided")
            };
            model.rewound(states, live, false);
            let Some(Outcome::Done(states, _)) = model.redo() else { panic!("nothing came since") };
            assert_eq!(states, end.states, "seed {seed}");
        }
    }
}
