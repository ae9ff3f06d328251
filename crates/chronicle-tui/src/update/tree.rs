//! The workspace at a moment: directories, and the content of a file.

use chronicle_core::{Entry, Seq, WorkspacePath, escape, view_of};

use super::changes::{open_versions, scroll};
use super::{Effect, Key, ask_filter, leave};
use crate::model::{Asks, Content, Model, Screen, Tree, TreeRow};
use crate::request::{Answered, Request, ScreenId};

/// Opens the root of the tree at a moment.
pub(super) fn open(model: &mut Model, moment: Seq, words: String, effects: &mut Vec<Effect>) {
    let id = model.new_screen();
    model.stack.push(Screen::Tree(Tree {
        id,
        moment,
        words,
        path: WorkspacePath::root(),
        rows: Vec::new(),
        shown: Vec::new(),
        filter: String::new(),
        loading: true,
        failed: None,
        list: Default::default(),
        came_from: None,
    }));
    let path = WorkspacePath::root();
    effects.push(Effect::Ask(Request::Directory { screen: id, moment, path }));
}

/// Opens the content of a file at a moment.
pub(super) fn open_content(
    model: &mut Model,
    moment: Seq,
    path: WorkspacePath,
    effects: &mut Vec<Effect>,
) {
    let id = model.new_screen();
    let title = format!("{path} as after record {moment}");
    model.stack.push(Screen::Content(Content { id, title, view: None, failed: None }));
    effects.push(Effect::Ask(Request::Content { screen: id, moment, path }));
}

pub(super) fn on_directory(
    model: &mut Model,
    id: ScreenId,
    path: WorkspacePath,
    listing: Answered<Vec<(Vec<u8>, Entry)>>,
) {
    let Some(Screen::Tree(it)) = model.screen(id) else { return };
    if it.path != path {
        return;
    }
    it.loading = false;
    let listing = match listing {
        Err(failure) => {
            it.failed = Some(failure.words);
            return;
        }
        Ok(listing) => listing,
    };
    it.failed = None;
    let rows = listing.into_iter().map(|(bytes, entry)| TreeRow {
        name: escape(&bytes).into_owned(),
        view: view_of(&entry),
        bytes,
        entry,
    });
    it.rows = rows.collect();
    // Directories first, then by name, as people list them.
    it.rows.sort_by(|a, b| {
        (!a.entry.is_directory(), &a.bytes).cmp(&(!b.entry.is_directory(), &b.bytes))
    });
    filter(it, String::new());
    if let Some(name) = it.came_from.take() {
        it.list.selected = it.rows.iter().position(|row| row.bytes == name).unwrap_or(0);
    }
}

/// Leaves the names that hold the words.
pub(super) fn filter(it: &mut Tree, words: String) {
    let fits = |row: &TreeRow| words.is_empty() || row.name.contains(&words);
    let all = it.rows.iter().enumerate();
    it.shown = all.filter(|(_, row)| fits(row)).map(|(index, _)| index).collect();
    it.filter = words;
    it.list = Default::default();
}

pub(super) fn on_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height().saturating_sub(1);
    let Some(Screen::Tree(it)) = model.stack.last_mut() else { return };
    let (moment, here) = (it.moment, it.path.clone());
    let row = it.shown.get(it.list.selected).map(|index| &it.rows[*index]);
    let path = row.map(|row| here.join(&row.bytes));
    let is_directory = row.is_some_and(|row| row.entry.is_directory());
    match (key, path) {
        (Key::Go(step), _) => it.list.go(step, it.shown.len(), height),
        (Key::Enter | Key::Right, Some(path)) if is_directory => enter(it, path, effects),
        (Key::Enter | Key::Right | Key::Char('v'), Some(path)) => {
            open_content(model, moment, path, effects);
        }
        (Key::Char('t'), Some(path)) => open_versions(model, path, effects),
        (Key::Back, _) if !it.filter.is_empty() => filter(it, String::new()),
        (Key::Left | Key::Back, _) if !here.is_root() => {
            it.came_from = Some(here.name().to_vec());
            let above = here.parent().unwrap_or_default();
            enter(it, above, effects);
        }
        (Key::Left | Key::Back | Key::Char('q'), _) => leave(model, effects),
        (Key::Char('/'), _) => ask_filter(model, Asks::ListFilter),
        _ => {}
    }
}

fn enter(it: &mut Tree, path: WorkspacePath, effects: &mut Vec<Effect>) {
    it.path = path.clone();
    it.loading = true;
    it.filter = String::new();
    let (screen, moment) = (it.id, it.moment);
    effects.push(Effect::Ask(Request::Directory { screen, moment, path }));
}

pub(super) fn on_content_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    let Some(Screen::Content(it)) = model.stack.last_mut() else { return };
    let stays = !matches!(key, Key::Back | Key::Char('q'));
    if !stays || !scroll(&mut it.view, key, height) {
        leave(model, effects);
    }
}
