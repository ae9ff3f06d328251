//! A pattern in every version of every file.

use chronicle_core::{GrepMatch, exact_path};

use super::changes::open_versions;
use super::{Effect, Key, complain, leave};
use crate::model::{Asks, Input, Model, Popup, Screen, Search};
use crate::request::{Answered, Request, ScreenId};

/// Opens the search and asks for a pattern.
pub(super) fn open(model: &mut Model) {
    if !matches!(model.stack.last(), Some(Screen::Search(_))) {
        let id = model.new_screen();
        model.stack.push(Screen::Search(Search {
            id,
            pattern: String::new(),
            glob: String::new(),
            running: false,
            failed: None,
            found: Vec::new(),
            more: false,
            list: Default::default(),
        }));
    }
    ask(model, Asks::Pattern);
}

fn ask(model: &mut Model, asks: Asks) {
    let Some(Screen::Search(it)) = model.stack.last() else { return };
    let text = if asks == Asks::Glob { it.glob.clone() } else { it.pattern.clone() };
    model.popup = Some(Popup::Input(Input { asks, text }));
}

/// A search that was never begun is left with its question.
pub(super) fn leave_if_empty(model: &mut Model, effects: &mut Vec<Effect>) {
    if matches!(model.stack.last(), Some(Screen::Search(it)) if it.pattern.is_empty()) {
        leave(model, effects);
    }
}

pub(super) fn take(model: &mut Model, input: Input, effects: &mut Vec<Effect>) {
    let Some(Screen::Search(it)) = model.stack.last_mut() else { return };
    match input.asks {
        Asks::Glob => it.glob = input.text,
        _ => it.pattern = input.text,
    }
    if it.pattern.is_empty() {
        return leave_if_empty(model, effects);
    }
    it.running = true;
    it.failed = None;
    it.found = Vec::new();
    it.list = Default::default();
    let glob = Some(it.glob.clone()).filter(|glob| !glob.is_empty());
    let pattern = it.pattern.clone();
    effects.push(Effect::Ask(Request::Grep { screen: it.id, pattern, glob }));
}

pub(super) fn on_found(model: &mut Model, id: ScreenId, found: Answered<(Vec<GrepMatch>, bool)>) {
    let Some(Screen::Search(it)) = model.screen(id) else { return };
    match found {
        // Another search took its place.
        Err(failure) if failure.code == "cancelled" => {}
        Err(failure) => {
            it.running = false;
            it.failed = Some(failure.words);
        }
        Ok((found, more)) => {
            it.running = false;
            (it.found, it.more) = (found, more);
        }
    }
}

pub(super) fn on_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height().saturating_sub(1);
    let Some(Screen::Search(it)) = model.stack.last_mut() else { return };
    match key {
        Key::Go(step) => it.list.go(step, it.found.len(), height),
        Key::Char('/') => ask(model, Asks::Glob),
        Key::Back if it.running => {
            it.running = false;
            it.failed = Some("Given up".to_owned());
            effects.push(Effect::GiveUp(it.id));
        }
        Key::Left | Key::Back | Key::Char('q') => leave(model, effects),
        Key::Enter | Key::Right | Key::Char('t') => {
            let Some(found) = it.found.get(it.list.selected) else { return };
            match exact_path(&found.path, None) {
                Some(path) => open_versions(model, path, effects),
                None => complain(model, "Its name is not text: find it with f, then t"),
            }
        }
        _ => {}
    }
}
