//! The log: moving in it, opening what it holds, following what is new.

use std::collections::HashSet;

use chronicle_core::{
    ChangesOf, Outline, RewindKind, RewindRequest, Seq, SnapshotBrief, Stretch, StretchView,
};

use super::{Effect, Key, changes, complain, offer, quit, tree};
use crate::list::Move;
use crate::model::{Choice, Menu, Model, Row};
use crate::request::{Answered, Request};

/// How many stretches are read ahead of what is seen.
const AHEAD: usize = 8;
/// How many stretches are kept.
const KEPT: usize = 4_000;

pub(super) fn on_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    let timeline = &mut model.timeline;
    match key {
        Key::Go(step) => timeline.list.go(step, timeline.rows.len(), height),
        Key::Char(' ' | '\t') => toggle(model),
        Key::Right => match model.timeline.chosen() {
            Some(Row::Stretch(index)) if !model.timeline.is_open(index) => toggle(model),
            _ => open(model, effects),
        },
        Key::Left => close(model),
        Key::Enter => open(model, effects),
        Key::Back if timeline.filter.is_some() => filter(model, String::new(), effects),
        Key::Back => model.notice = None,
        Key::Char('r' | 'u') => menu(model),
        Key::Char('f') => browse(model, effects),
        Key::Char('n') => next_turn(model, true),
        Key::Char('p') => next_turn(model, false),
        Key::Char('Q') => quit(model, effects),
        _ => {}
    }
}

fn next_turn(model: &mut Model, forward: bool) {
    let height = model.body_height();
    let timeline = &mut model.timeline;
    let is_turn = |index: &usize| matches!(timeline.rows[*index], Row::Stretch(_));
    let at = timeline.list.selected;
    let found = match forward {
        true => (at + 1..timeline.rows.len()).find(is_turn),
        false => (0..at.min(timeline.rows.len())).rev().find(is_turn),
    };
    if let Some(index) = found {
        timeline.list.selected = index;
        timeline.list.go(Move::By(0), timeline.rows.len(), height);
    }
}

fn toggle(model: &mut Model) {
    let Some(Row::Stretch(index) | Row::Snapshot(index, _)) = model.timeline.chosen() else {
        return;
    };
    let first = model.timeline.stretches()[index].first;
    if !model.timeline.toggled.remove(&first) {
        model.timeline.toggled.insert(first);
    }
    rebuild(model, Some((first, None)));
}

fn close(model: &mut Model) {
    match model.timeline.chosen() {
        Some(Row::Snapshot(index, _)) => {
            let first = model.timeline.stretches()[index].first;
            rebuild(model, Some((first, None)));
        }
        Some(Row::Stretch(index)) if model.timeline.is_open(index) => toggle(model),
        _ => {}
    }
}

/// Opens what the chosen row changed.
fn open(model: &mut Model, effects: &mut Vec<Effect>) {
    let Some(row) = model.timeline.chosen() else { return };
    let (of, after, title) = match row {
        Row::Stretch(index) => {
            let Some(view) = model.timeline.view(index) else { return };
            (ChangesOf::Stretch(view.stretch), end_of(view), title_of(view))
        }
        Row::Snapshot(index, below) => {
            let Some(brief) = model.timeline.snapshot(index, below) else { return };
            let Some(id) = brief.id else {
                return complain(model, "It changed no files");
            };
            (ChangesOf::Snapshot(id), brief.last, format!("{}  {}", id.short(), brief.summary))
        }
    };
    let menu = choices(model, row);
    changes::open_files(model, of, after, title, menu, effects);
}

/// The last record of a turn, or the one before the next stretch.
fn end_of(view: &StretchView) -> Seq {
    let end = view.turn.as_ref().and_then(|turn| turn.end_seq).map(Seq);
    end.unwrap_or(view.stretch.last)
}

fn title_of(view: &StretchView) -> String {
    match &view.turn {
        Some(turn) => match &turn.prompt {
            Some(prompt) => format!("Turn {}  \"{prompt}\"", turn.number),
            None => format!("Turn {}", turn.number),
        },
        None => "Outside any turn".to_owned(),
    }
}

/// The tree just after the chosen row.
fn browse(model: &mut Model, effects: &mut Vec<Effect>) {
    let (moment, words) = match model.timeline.chosen() {
        Some(Row::Stretch(index)) => {
            let Some(view) = model.timeline.view(index) else { return };
            let words = match &view.turn {
                Some(turn) => format!("after turn {}", turn.number),
                None => format!("after record {}", view.stretch.last),
            };
            (end_of(view), words)
        }
        Some(Row::Snapshot(index, below)) => {
            let Some(brief) = model.timeline.snapshot(index, below) else { return };
            (brief.last, format!("after {}", brief.summary))
        }
        None => return,
    };
    tree::open(model, moment, words, effects);
}

fn menu(model: &mut Model) {
    let Some(row) = model.timeline.chosen() else { return };
    let title = match row {
        Row::Stretch(index) => model.timeline.view(index).map(title_of),
        Row::Snapshot(index, below) => {
            model.timeline.snapshot(index, below).map(|brief| brief.summary.clone())
        }
    };
    let Some(title) = title else { return };
    let choices = choices(model, row);
    offer(model, Menu { title, choices, selected: 0 });
}

/// What can be taken back from a row.
fn choices(model: &Model, row: Row) -> Vec<Choice> {
    match row {
        Row::Stretch(index) => model.timeline.view(index).map_or_else(Vec::new, choices_of_stretch),
        Row::Snapshot(index, below) => {
            let brief = model.timeline.snapshot(index, below);
            brief.map_or_else(Vec::new, choices_of_snapshot)
        }
    }
}

fn choice(words: impl Into<String>, kind: RewindKind) -> Choice {
    Choice { words: words.into(), request: RewindRequest::new(kind) }
}

fn choices_of_stretch(view: &StretchView) -> Vec<Choice> {
    let Some(turn) = &view.turn else {
        let target = format!("seq:{}", view.stretch.last.0);
        return vec![choice("Rewind to just after it", RewindKind::Rewind { target })];
    };
    let name = format!("turn:{}", turn.number);
    let target = format!("before:{name}");
    let mut choices = vec![
        choice(
            format!("Undo turn {}, keep what came later", turn.number),
            RewindKind::Undo { what: Some(name.clone()) },
        ),
        choice(format!("Rewind to just before turn {}", turn.number), {
            RewindKind::Rewind { target }
        }),
    ];
    if turn.end_seq.is_some() {
        let words = format!("Rewind to just after turn {}", turn.number);
        choices.push(choice(words, RewindKind::Rewind { target: name }));
    }
    choices
}

fn choices_of_snapshot(brief: &SnapshotBrief) -> Vec<Choice> {
    let Some(id) = brief.id else {
        let target = format!("seq:{}", brief.last.0);
        return vec![choice("Rewind to this moment", RewindKind::Rewind { target })];
    };
    let id = id.to_string();
    let mut choices = Vec::new();
    if brief.changes.0 > 0 {
        let what = Some(id.clone());
        choices.push(choice("Undo it, keep what came later", RewindKind::Undo { what }));
    }
    choices.push(choice("Rewind to just before it", {
        RewindKind::Rewind { target: format!("before:{id}") }
    }));
    choices.push(choice("Rewind to just after it", {
        RewindKind::Rewind { target: format!("after:{id}") }
    }));
    choices
}

/// Lists only what touched such a path; everything for no words.
pub(super) fn filter(model: &mut Model, words: String, effects: &mut Vec<Effect>) {
    let filter = Some(words).filter(|words| !words.is_empty());
    if filter == model.timeline.filter {
        return;
    }
    model.timeline.filtering = filter.is_some();
    model.timeline.filter = filter.clone();
    effects.push(Effect::Ask(Request::Outline { filter }));
}

pub(super) fn on_head(model: &mut Model, head: u64, effects: &mut Vec<Effect>) {
    let known = model.timeline.outline.as_ref().map(|outline| outline.head);
    if known != Some(head) {
        let filter = model.timeline.filter.clone();
        effects.push(Effect::Ask(Request::Outline { filter }));
    }
}

pub(super) fn on_outline(model: &mut Model, filter: Option<String>, outline: Answered<Outline>) {
    if filter != model.timeline.filter {
        return;
    }
    model.timeline.filtering = false;
    match outline {
        Err(failure) if failure.code == "cancelled" => {}
        Err(failure) => model.timeline.failed = Some(failure.words),
        Ok(outline) => {
            let place = place(model);
            model.timeline.failed = None;
            model.timeline.generation += 1;
            model.timeline.outline = Some(outline);
            rebuild(model, place);
        }
    }
}

pub(super) fn on_stretches(
    model: &mut Model,
    generation: u64,
    wanted: &[Stretch],
    views: Answered<Vec<StretchView>>,
) {
    for stretch in wanted {
        model.timeline.asked.remove(&stretch.first);
    }
    match views {
        Err(failure) => {
            model.timeline.failed = Some(failure.words);
            // Not asked for again until there is something new.
            let generation = model.timeline.generation;
            model.timeline.asked.extend(wanted.iter().map(|it| (it.first, generation)));
        }
        Ok(views) => {
            let place = place(model);
            for view in views {
                model.timeline.views.insert(view.stretch.first, (generation, view));
            }
            rebuild(model, place);
        }
    }
}

/// What is chosen, by what it is: a new row above it must not make it another. The newest stays the
/// newest.
fn place(model: &Model) -> Option<(Seq, Option<Seq>)> {
    let timeline = &model.timeline;
    if timeline.list.selected == 0 {
        return None;
    }
    match timeline.chosen()? {
        Row::Stretch(index) => Some((timeline.stretches()[index].first, None)),
        Row::Snapshot(index, below) => {
            let brief = timeline.snapshot(index, below);
            Some((timeline.stretches()[index].first, brief.map(|brief| brief.first)))
        }
    }
}

/// Lists the rows anew and finds the chosen one again, at the same height of the screen.
fn rebuild(model: &mut Model, place: Option<(Seq, Option<Seq>)>) {
    let height = model.body_height();
    let timeline = &mut model.timeline;
    let mut rows = Vec::with_capacity(timeline.stretches().len() + 64);
    let mut chosen = 0;
    for index in 0..timeline.stretches().len() {
        let first = timeline.stretches()[index].first;
        let here = place.filter(|(of, _)| *of == first);
        if here.is_some() {
            chosen = rows.len();
        }
        rows.push(Row::Stretch(index));
        if !timeline.is_open(index) {
            continue;
        }
        for below in 0..timeline.view(index).map_or(0, |view| view.snapshots.len()) {
            let brief = timeline.snapshot(index, below).map(|brief| brief.first);
            if here.is_some_and(|(_, of)| of.is_some() && of == brief) {
                chosen = rows.len();
            }
            rows.push(Row::Snapshot(index, below));
        }
    }
    let offset = timeline.list.selected.saturating_sub(timeline.list.top);
    timeline.rows = rows;
    timeline.list.selected = chosen;
    timeline.list.top = chosen.saturating_sub(offset);
    timeline.list.fit(timeline.rows.len(), height);
}

/// Asks for the stretches that are seen and not known, or known from before.
pub(super) fn see(model: &mut Model, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    let timeline = &mut model.timeline;
    timeline.list.fit(timeline.rows.len(), height);
    let seen = timeline.list.seen(timeline.rows.len(), height + AHEAD);
    let generation = timeline.generation;
    let mut wanted: Vec<Stretch> = Vec::new();
    let mut near = HashSet::new();
    for row in &timeline.rows[seen] {
        let (Row::Stretch(index) | Row::Snapshot(index, _)) = row;
        let stretch = timeline.stretches()[*index];
        let fresh = timeline.views.get(&stretch.first).is_some_and(|(of, _)| *of == generation);
        let asked = timeline.asked.get(&stretch.first) == Some(&generation);
        near.insert(stretch.first);
        if !fresh && !asked && !wanted.contains(&stretch) {
            wanted.push(stretch);
        }
    }
    if timeline.views.len() > KEPT {
        let open = timeline.toggled.clone();
        timeline.views.retain(|first, _| near.contains(first) || open.contains(first));
    }
    if wanted.is_empty() {
        return;
    }
    timeline.asked.extend(wanted.iter().map(|stretch| (stretch.first, generation)));
    effects.push(Effect::Ask(Request::Stretches { generation, wanted }));
}
