//! Taking back: the plan as it is chosen, the question, what came of it, and back again.

use std::collections::BTreeMap;

use chronicle_core::shown::count;
use chronicle_core::{OnConflict, PlanStep, PlanView, RewindReport, exact_path};

use super::changes::scroll;
use super::{Effect, Key, complain, leave, say};
use crate::list::Move;
use crate::model::{Confirm, Focus, Model, PlanRow, Popup, Rewind, Screen, ShownDoc};
use crate::request::{Answered, Request, ScreenId};

/// Begins with what was chosen in the menu.
pub(super) fn choose(model: &mut Model, effects: &mut Vec<Effect>) {
    let Some(Popup::Menu(menu)) = model.popup.take() else { return };
    let Some(choice) = menu.choices.into_iter().nth(menu.selected) else { return };
    let id = model.new_screen();
    let mut rewind = Rewind {
        id,
        words: choice.words,
        request: choice.request,
        plan: None,
        planning: true,
        serial: 0,
        failed: None,
        rows: Vec::new(),
        left_out: Default::default(),
        report: None,
        taken_back: false,
        list: Default::default(),
        focus: Focus::List,
        doc: ShownDoc::default(),
    };
    plan(&mut rewind, effects);
    model.stack.push(Screen::Rewind(Box::new(rewind)));
}

/// Asks for the plan of what is chosen now.
fn plan(it: &mut Rewind, effects: &mut Vec<Effect>) {
    let mut request = it.request.clone();
    let chosen = it.chosen_paths();
    if !chosen.is_empty() {
        request.paths = chosen;
    }
    it.planning = true;
    it.failed = None;
    it.serial += 1;
    let (screen, serial) = (it.id, it.serial);
    let request = Box::new(request);
    effects.push(Effect::Ask(Request::Plan { screen, serial, request }));
}

pub(super) fn on_plan(model: &mut Model, id: ScreenId, serial: u64, plan: Answered<Box<PlanView>>) {
    let Some(Screen::Rewind(it)) = model.screen(id) else { return };
    if serial != it.serial {
        return;
    }
    match plan {
        Err(failure) if failure.code == "cancelled" => {}
        Err(failure) => {
            it.planning = false;
            it.plan = None;
            it.failed = Some(failure.words);
        }
        Ok(plan) => {
            it.planning = false;
            list(it, &plan);
            it.plan = Some(*plan);
        }
    }
}

/// Lists what the plan does, and what of an earlier one was left out.
fn list(it: &mut Rewind, plan: &PlanView) {
    let chosen = it.rows.get(it.list.selected).map(|row| row.name.clone());
    let mut rows: BTreeMap<(u8, String), PlanRow> = BTreeMap::new();
    for row in std::mem::take(&mut it.rows) {
        if it.left_out.contains(&row.name) {
            rows.insert((rank(row.verb), row.name.clone()), row);
        }
    }
    let planned = plan_rows(plan, it.request.on_conflict);
    for row in planned {
        rows.retain(|_, left| left.name != row.name);
        rows.insert((rank(row.verb), row.name.clone()), row);
    }
    it.rows = rows.into_values().collect();
    let place = it.rows.iter().position(|row| Some(&row.name) == chosen.as_ref());
    it.list.selected = place.unwrap_or(0);
    it.doc = ShownDoc::default();
}

/// Conflicts first, then what is done, then what is only said.
fn rank(verb: &str) -> u8 {
    match verb {
        "conflict" => 0,
        "write" | "merge" | "delete" => 1,
        _ => 2,
    }
}

fn plan_rows(plan: &PlanView, on_conflict: OnConflict) -> Vec<PlanRow> {
    let mut rows = Vec::new();
    let step = |verb: &'static str, step: &PlanStep| PlanRow {
        verb,
        name: step.path.clone(),
        path: exact_path(&step.path, step.path_b64.as_deref()),
        sides: Some((step.now.clone(), step.then.clone())),
        note: String::new(),
    };
    rows.extend(plan.write.iter().map(|it| step("write", it)));
    rows.extend(plan.merge.iter().map(|it| step("merge", it)));
    rows.extend(plan.delete.iter().map(|it| step("delete", it)));
    for conflict in &plan.conflict {
        let way = match on_conflict {
            OnConflict::Stop => "both sides changed it: c decides",
            OnConflict::KeepMine => "stays as it is",
            OnConflict::Replace => "is replaced",
        };
        rows.push(PlanRow {
            verb: "conflict",
            name: conflict.path.clone(),
            path: exact_path(&conflict.path, None),
            sides: Some((conflict.mine.clone(), conflict.then.clone())),
            note: format!("{}: {way}", conflict.what),
        });
    }
    let said = [
        ("keep", &plan.keep),
        ("shared", &plan.shared),
        ("unknown", &plan.unknown),
        ("git", &plan.git),
        ("stays", &plan.irreversible),
    ];
    for (verb, all) in said {
        rows.extend(all.iter().map(|it| PlanRow {
            verb,
            name: it.path.clone(),
            path: None,
            sides: None,
            note: it.reason.clone(),
        }));
    }
    rows.extend(plan.runs_by_itself.iter().map(|path| PlanRow {
        verb: "note",
        name: path.clone(),
        path: None,
        sides: None,
        note: "comes back, and tools run it by themselves".to_owned(),
    }));
    rows
}

pub(super) fn on_key(model: &mut Model, key: Key, effects: &mut Vec<Effect>) {
    let height = model.body_height().saturating_sub(crate::view::REWIND_HEAD);
    let applying = model.applying;
    let Some(Screen::Rewind(it)) = model.stack.last_mut() else { return };
    if it.focus == Focus::Doc {
        return on_doc_key(it, key, height);
    }
    match key {
        Key::Go(step) => it.list.go(step, it.rows.len(), height),
        Key::Enter | Key::Right if has_sides(it) => it.focus = Focus::Doc,
        Key::Left | Key::Back | Key::Char('q') if applying => {
            say(model, "The rewind is being applied: it is done in a moment");
        }
        Key::Left | Key::Back | Key::Char('q') => leave(model, effects),
        Key::Char('u') if it.report.is_some() && !applying => take_back(model, effects),
        _ if it.report.is_some() || applying => {}
        Key::Char(' ') => toggle(model, effects),
        Key::Char('a') => toggle_all(it, effects),
        Key::Char('c') => {
            it.request.on_conflict = match it.request.on_conflict {
                OnConflict::Stop => OnConflict::KeepMine,
                OnConflict::KeepMine => OnConflict::Replace,
                OnConflict::Replace => OnConflict::Stop,
            };
            plan(it, effects);
        }
        Key::Char('e') => {
            it.request.exact = !it.request.exact;
            plan(it, effects);
        }
        Key::Char('S') => {
            it.request.take_shared = !it.request.take_shared;
            plan(it, effects);
        }
        Key::Char('o') => {
            it.request.all_sessions = !it.request.all_sessions;
            plan(it, effects);
        }
        Key::Char('y') => ask(model),
        _ => {}
    }
}

/// Whether the chosen row has something to compare.
fn has_sides(it: &Rewind) -> bool {
    it.rows.get(it.list.selected).is_some_and(|row| row.sides.is_some())
}

fn on_doc_key(it: &mut Rewind, key: Key, height: usize) {
    match key {
        Key::Back | Key::Char('q') => it.focus = Focus::List,
        Key::Char('n' | 'J') => it.list.go(Move::By(1), it.rows.len(), height),
        Key::Char('p' | 'K') => it.list.go(Move::By(-1), it.rows.len(), height),
        key => {
            if !scroll(&mut it.doc.view, key, height) {
                it.focus = Focus::List;
            }
        }
    }
}

fn toggle(model: &mut Model, effects: &mut Vec<Effect>) {
    let height = model.body_height().saturating_sub(crate::view::REWIND_HEAD);
    let Some(Screen::Rewind(it)) = model.stack.last_mut() else { return };
    let Some(row) = it.rows.get(it.list.selected) else { return };
    if row.path.is_none() {
        return complain(model, "This line only tells: there is nothing to choose");
    }
    let name = row.name.clone();
    if !it.left_out.remove(&name) {
        it.left_out.insert(name);
    }
    it.list.go(Move::By(1), it.rows.len(), height);
    plan_chosen(it, effects);
}

fn toggle_all(it: &mut Rewind, effects: &mut Vec<Effect>) {
    if it.left_out.is_empty() {
        let all = it.rows.iter().filter(|row| row.path.is_some());
        it.left_out = all.map(|row| row.name.clone()).collect();
    } else {
        it.left_out.clear();
    }
    plan_chosen(it, effects);
}

/// A plan for nothing is none.
fn plan_chosen(it: &mut Rewind, effects: &mut Vec<Effect>) {
    if it.rows.iter().any(|row| it.is_chosen(row)) {
        return plan(it, effects);
    }
    it.plan = None;
    it.planning = false;
    it.serial += 1;
    effects.push(Effect::GiveUp(it.id));
}

/// `write 2, delete 1`.
pub(crate) fn counts(plan: &PlanView) -> String {
    let parts = [
        (plan.write.len(), "write"),
        (plan.merge.len(), "merge"),
        (plan.delete.len(), "delete"),
        (plan.conflict.len(), "conflict"),
        (plan.keep.len(), "keep"),
    ];
    let said = parts.iter().filter(|(number, _)| *number > 0);
    let said: Vec<_> = said.map(|(number, verb)| format!("{verb} {number}")).collect();
    if said.is_empty() { "nothing to do".to_owned() } else { said.join(", ") }
}

fn ask(model: &mut Model) {
    let Some(Screen::Rewind(it)) = model.stack.last() else { return };
    let Some(plan) = it.plan.as_ref().filter(|_| !it.planning) else {
        return complain(model, "There is no plan yet");
    };
    if !plan.conflict.is_empty() && it.request.on_conflict == OnConflict::Stop {
        return complain(model, "Conflicts first: c keeps what is there or takes the target's");
    }
    if plan.write.is_empty() && plan.merge.is_empty() && plan.delete.is_empty() {
        return complain(model, "Already there: nothing would change");
    }
    let mut lines = vec![
        it.words.clone(),
        format!("Target: {}", plan.resolved_target),
        format!("Plan {}: {}", short(&plan.plan_id), counts(plan)),
    ];
    if !plan.authors.is_empty() {
        lines.push(format!("Work of: {}", plan.authors.join(", ")));
    }
    if plan.moves_head {
        lines.push("A repository's HEAD moves".to_owned());
    }
    if plan.delete.len() > 20 {
        lines.push(format!("Deletes {}", count(plan.delete.len() as u64, "file")));
    }
    let confirm = Confirm { screen: it.id, plan: plan.plan_id.clone(), lines };
    model.popup = Some(Popup::Confirm(confirm));
}

/// The part of an id that people type.
pub(crate) fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

pub(super) fn confirmed(model: &mut Model, effects: &mut Vec<Effect>) {
    let Some(Popup::Confirm(confirm)) = model.popup.take() else { return };
    model.applying = true;
    let Confirm { screen, plan, .. } = confirm;
    effects.push(Effect::Ask(Request::Apply { screen, plan }));
}

fn take_back(model: &mut Model, effects: &mut Vec<Effect>) {
    let Some(Screen::Rewind(it)) = model.stack.last() else { return };
    let screen = it.id;
    let Some(id) = it.report.as_ref().and_then(|report| report.id.clone()) else {
        return complain(model, "It changed nothing, so there is nothing to take back");
    };
    model.applying = true;
    effects.push(Effect::Ask(Request::TakeBack { screen, id }));
}

pub(super) fn on_applied(
    model: &mut Model,
    id: ScreenId,
    report: Answered<Box<RewindReport>>,
    effects: &mut Vec<Effect>,
) {
    model.applying = false;
    let Some(Screen::Rewind(it)) = model.screen(id) else { return };
    match report {
        Ok(report) => {
            it.taken_back = it.report.is_some() && !it.taken_back;
            it.left_out.clear();
            it.rows.clear();
            it.rows = plan_rows(&report.plan, it.request.on_conflict);
            it.rows.sort_by(|a, b| (rank(a.verb), &a.name).cmp(&(rank(b.verb), &b.name)));
            it.list = Default::default();
            it.doc = ShownDoc::default();
            it.focus = Focus::List;
            it.failed = None;
            it.report = Some(*report);
        }
        Err(failure) => {
            // What stood there changed since the plan was shown: the next one shows it.
            if failure.code == "plan_outdated" && it.report.is_none() {
                plan(it, effects);
                return complain(model, "The workspace changed meanwhile: this is the plan now");
            }
            it.failed = Some(failure.words);
        }
    }
}

/// Asks for what the chosen path would become, if that is seen.
pub(super) fn see(it: &mut Rewind, height: usize, wide: bool, effects: &mut Vec<Effect>) {
    it.list.fit(it.rows.len(), height.saturating_sub(crate::view::REWIND_HEAD));
    let index = it.list.selected;
    let Some(row) = it.rows.get(index) else {
        it.focus = Focus::List;
        return;
    };
    if it.doc.wanted == Some(index) || !(wide || it.focus == Focus::Doc) {
        return;
    }
    it.doc = ShownDoc { wanted: Some(index), ..ShownDoc::default() };
    if let Some((before, after)) = row.sides.clone() {
        let (before, after) = (Box::new(before), Box::new(after));
        effects.push(Effect::Ask(Request::Compare { screen: it.id, index, before, after }));
    }
}
