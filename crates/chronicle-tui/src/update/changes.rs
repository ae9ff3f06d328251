//! Files of a turn and versions of a file: the list, the patch, and what leads on from there.

use chronicle_core::{
    ChangesOf, FileSpan, FileVersion, RewindKind, RewindRequest, Seq, WorkspacePath,
};

use super::{Effect, Key, ask_filter, leave, offer, tree};
use crate::doc::{Doc, DocView};
use crate::list::Move;
use crate::model::{
    Asks, ChangeRow, Changes, Choice, Focus, Menu, Model, Of, Screen, ShownDoc, VersionFacts,
};
use crate::request::{Answered, Request, ScreenId};

/// How far one step to the side goes.
const SIDEWAYS: usize = 8;

fn new(id: ScreenId, title: String, of: Of) -> Changes {
    Changes {
        id,
        title,
        of,
        rows: Vec::new(),
        shown: Vec::new(),
        filter: String::new(),
        loading: true,
        failed: None,
        more: false,
        list: Default::default(),
        focus: Focus::List,
        counts: Default::default(),
        asked: Default::default(),
        doc: ShownDoc::default(),
    }
}

/// Opens the files that something changed.
pub(super) fn open_files(
    model: &mut Model,
    of: ChangesOf,
    after: Seq,
    title: String,
    menu: Vec<Choice>,
    effects: &mut Vec<Effect>,
) {
    let id = model.new_screen();
    let files = Of::Files { after, menu };
    model.stack.push(Screen::Changes(new(id, title, files)));
    effects.push(Effect::Ask(Request::Files { screen: id, of }));
}

/// Opens a file through time.
pub(super) fn open_versions(model: &mut Model, path: WorkspacePath, effects: &mut Vec<Effect>) {
    let id = model.new_screen();
    let title = format!("{path} through time");
    model.stack.push(Screen::Changes(new(id, title, Of::Versions)));
    effects.push(Effect::Ask(Request::Versions { screen: id, path }));
}

pub(super) fn on_files(model: &mut Model, id: ScreenId, files: Answered<Vec<FileSpan>>) {
    let Some(Screen::Changes(it)) = model.screen(id) else { return };
    it.loading = false;
    match files {
        Err(failure) => it.failed = Some(failure.words),
        Ok(files) => {
            it.rows = files.into_iter().map(|span| row(span, None)).collect();
            filter(it, String::new());
        }
    }
}

pub(super) fn on_versions(
    model: &mut Model,
    id: ScreenId,
    versions: Answered<(Vec<FileVersion>, bool)>,
) {
    let Some(Screen::Changes(it)) = model.screen(id) else { return };
    it.loading = false;
    match versions {
        Err(failure) => it.failed = Some(failure.words),
        Ok((versions, more)) => {
            it.more = more;
            let rows = versions.into_iter().map(|version| {
                let facts = VersionFacts {
                    seq: version.seq,
                    seconds: version.time.0 / 1_000_000_000,
                    turn: version.turn,
                    summary: version.summary,
                };
                row(version.span, Some(facts))
            });
            it.rows = rows.collect();
            filter(it, String::new());
        }
    }
}

fn row(span: FileSpan, version: Option<VersionFacts>) -> ChangeRow {
    let (before, after) = span.views();
    let name = match &span.from {
        Some(from) => format!("{from} => {}", span.path),
        None => span.path.to_string(),
    };
    ChangeRow { name, before, after, version, span }
}

/// Leaves the rows whose path holds the words.
pub(super) fn filter(it: &mut Changes, words: String) {
    let fits = |row: &ChangeRow| words.is_empty() || row.name.contains(&words);
    let all = it.rows.iter().enumerate();
    it.shown = all.filter(|(_, row)| fits(row)).map(|(index, _)| index).collect();
    it.filter = words;
    it.list = Default::default();
}

pub(super) fn on_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    let Some(Screen::Changes(it)) = model.stack.last_mut() else { return };
    if it.focus == Focus::Doc {
        return on_doc_key(model, key, effects);
    }
    match key {
        Key::Go(step) => it.list.go(step, it.shown.len(), height),
        Key::Enter | Key::Right if !it.shown.is_empty() => it.focus = Focus::Doc,
        Key::Back if !it.filter.is_empty() => filter(it, String::new()),
        Key::Left | Key::Back | Key::Char('q') => leave(model, effects),
        Key::Char('/') => ask_filter(model, Asks::ListFilter),
        key => lead_on(model, key, effects),
    }
}

/// What can be done with the chosen change wherever the keys go.
fn lead_on(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let Some(Screen::Changes(it)) = model.stack.last() else { return };
    let Some(row) = it.shown.get(it.list.selected).map(|index| it.rows[*index].clone()) else {
        return;
    };
    let of = it.of.clone();
    match key {
        Key::Char('t') if matches!(of, Of::Files { .. }) => {
            open_versions(model, row.span.path, effects);
        }
        Key::Char('v') => {
            let moment = match (&of, &row.version) {
                (Of::Files { after, .. }, _) => *after,
                (Of::Versions, Some(version)) => version.seq,
                (Of::Versions, None) => return,
            };
            tree::open_content(model, moment, row.span.path, effects);
        }
        Key::Char('r' | 'u') => {
            let choices = match &of {
                Of::Files { menu, .. } => menu.iter().map(|it| for_path(it, &row.span)).collect(),
                Of::Versions => choices_of_version(&row),
            };
            offer(model, Menu { title: row.name.clone(), choices, selected: 0 });
        }
        Key::Char('R') => {
            if let Of::Files { menu, .. } = of {
                let title = it.title.clone();
                offer(model, Menu { title, choices: menu, selected: 0 });
            }
        }
        _ => {}
    }
}

/// The same for one file, under both of its names.
fn for_path(choice: &Choice, span: &FileSpan) -> Choice {
    let mut request = choice.request.clone();
    request.paths = vec![span.path.clone()];
    request.paths.extend(span.from.clone());
    Choice { words: format!("{}: this file only", choice.words), request }
}

fn choices_of_version(row: &ChangeRow) -> Vec<Choice> {
    let Some(version) = &row.version else { return Vec::new() };
    let to = |words: &str, seq: u64| {
        let kind = RewindKind::Rewind { target: format!("seq:{seq}") };
        let paths = vec![row.span.path.clone()];
        let request = RewindRequest { paths, exact: true, ..RewindRequest::new(kind) };
        Choice { words: words.to_owned(), request }
    };
    let mut choices = vec![to("Bring this version of the file back", version.seq.0)];
    if version.seq.0 > 1 {
        choices.push(to("Bring the version before it back", version.seq.0 - 1));
    }
    choices
}

fn on_doc_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    let Some(Screen::Changes(it)) = model.stack.last_mut() else { return };
    let length = it.shown.len();
    match key {
        Key::Char('n' | 'J') => it.list.go(Move::By(1), length, height),
        Key::Char('p' | 'K') => it.list.go(Move::By(-1), length, height),
        Key::Back | Key::Char('q') => it.focus = Focus::List,
        key => {
            if !scroll(&mut it.doc.view, key, height.saturating_sub(1)) {
                it.focus = Focus::List;
            }
            lead_on(model, key, effects);
        }
    }
}

/// Moves in a document; tells whether it stays there.
pub(super) fn scroll(view: &mut Option<DocView>, key: Key, height: usize) -> bool {
    let Some(view) = view else { return key != Key::Left };
    let last = view.doc.lines.len().saturating_sub(height.max(1));
    match key {
        Key::Go(Move::Last) => view.top = last,
        Key::Go(step) => view.top = step.from(view.top, last + 1, height),
        Key::Right => view.left += SIDEWAYS,
        Key::Left if view.left == 0 => return false,
        Key::Left => view.left = view.left.saturating_sub(SIDEWAYS),
        Key::Char('0') => view.left = 0,
        Key::Char(']') => view.hunk(true, height),
        Key::Char('[') => view.hunk(false, height),
        Key::Char(' ') => view.top = Move::Page(1).from(view.top, last + 1, height),
        _ => {}
    }
    true
}

pub(super) fn on_doc(model: &mut Model, id: ScreenId, index: usize, doc: Answered<Doc>) {
    let shown = match model.screen(id) {
        Some(Screen::Changes(it)) => &mut it.doc,
        Some(Screen::Rewind(it)) => &mut it.doc,
        Some(Screen::Content(it)) => {
            match doc {
                Ok(doc) => it.view = Some(DocView::new(doc)),
                Err(failure) => it.failed = Some(failure.words),
            }
            return;
        }
        _ => return,
    };
    if shown.wanted != Some(index) {
        return;
    }
    (shown.view, shown.failed) = match doc {
        Ok(doc) => (Some(DocView::new(doc)), None),
        Err(failure) => (None, Some(failure.words)),
    };
}

/// Asks for the counts of the rows that are seen, and for the patch of the chosen one if it is.
pub(super) fn see(it: &mut Changes, height: usize, wide: bool, effects: &mut Vec<Effect>) {
    it.list.fit(it.shown.len(), height);
    let screen = it.id;
    let seen = it.list.seen(it.shown.len(), height);
    let mut wanted = Vec::new();
    for index in &it.shown[seen] {
        if it.asked.insert(*index) {
            wanted.push((*index, it.rows[*index].span.clone()));
        }
    }
    let chosen = it.shown.get(it.list.selected).copied();
    if let Some(index) = chosen.filter(|_| wide || it.focus == Focus::Doc)
        && it.doc.wanted != Some(index)
    {
        it.doc = ShownDoc { wanted: Some(index), ..ShownDoc::default() };
        let span = Box::new(it.rows[index].span.clone());
        effects.push(Effect::Ask(Request::Patch { screen, index, span }));
    }
    if !wanted.is_empty() {
        effects.push(Effect::Ask(Request::Counts { screen, wanted }));
    }
}
