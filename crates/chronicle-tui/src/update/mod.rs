//! Events in, the next state and what to ask for out; no clock, no file, no thread.

mod changes;
mod rewind;
mod search;
mod timeline;
mod tree;

pub(crate) use rewind::{counts as plan_counts, short};

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::list::Move;
use crate::model::{Asks, Focus, Input, Menu, Model, Notice, Popup, Screen};
use crate::request::{Answer, Request, ScreenId};

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// So many seconds since 1970.
    Tick(i64),
    Answer(Box<Answer>),
}

/// What is to be done outside.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Ask(Request),
    /// What a screen still waits for is not wanted any more.
    GiveUp(ScreenId),
    /// Whether the terminal tells of the mouse.
    Mouse(bool),
    Redraw,
    Suspend,
    Quit,
}

/// What a key means wherever one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Go(Move),
    Left,
    Right,
    Enter,
    Back,
    Char(char),
    Other,
}

/// The keys of vi and those of everybody else.
pub(crate) fn meaning(key: KeyEvent) -> Key {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('d') if control => Key::Go(Move::Half(1)),
        KeyCode::Char('u') if control => Key::Go(Move::Half(-1)),
        KeyCode::Char('f') if control => Key::Go(Move::Page(1)),
        KeyCode::Char('b') if control => Key::Go(Move::Page(-1)),
        KeyCode::Char('n') if control => Key::Go(Move::By(1)),
        KeyCode::Char('p') if control => Key::Go(Move::By(-1)),
        KeyCode::Char(_) if control => Key::Other,
        KeyCode::Char('j') | KeyCode::Down => Key::Go(Move::By(1)),
        KeyCode::Char('k') | KeyCode::Up => Key::Go(Move::By(-1)),
        KeyCode::PageDown => Key::Go(Move::Page(1)),
        KeyCode::PageUp => Key::Go(Move::Page(-1)),
        KeyCode::Char('g') | KeyCode::Home => Key::Go(Move::First),
        KeyCode::Char('G') | KeyCode::End => Key::Go(Move::Last),
        KeyCode::Char('h') | KeyCode::Left => Key::Left,
        KeyCode::Char('l') | KeyCode::Right => Key::Right,
        KeyCode::Enter => Key::Enter,
        KeyCode::Tab => Key::Char('\t'),
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        KeyCode::Char(c) => Key::Char(c),
        _ => Key::Other,
    }
}

/// What there is to ask for before anything happened.
pub(crate) fn begin() -> Vec<Effect> {
    vec![Effect::Ask(Request::Outline { filter: None })]
}

/// The next state, and what is to be done.
pub(crate) fn update(model: &mut Model, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    match event {
        Event::Key(key) => on_key(model, key, &mut effects),
        Event::Mouse(mouse) => on_mouse(model, mouse, &mut effects),
        Event::Paste(text) => {
            if let Some(Popup::Input(input)) = &mut model.popup {
                input.text.extend(text.chars().filter(|c| !c.is_control()));
            }
        }
        Event::Resize(columns, rows) => model.size = (columns, rows),
        Event::Tick(now) => model.now = now,
        Event::Answer(answer) => on_answer(model, *answer, &mut effects),
    }
    see(model, &mut effects);
    effects
}

/// Keeps every place in sight, and asks for what is seen and not known.
fn see(model: &mut Model, effects: &mut Vec<Effect>) {
    timeline::see(model, effects);
    let (height, wide) = (model.body_height(), model.is_wide());
    match model.stack.last_mut() {
        Some(Screen::Changes(it)) => changes::see(it, height, wide, effects),
        Some(Screen::Rewind(it)) => rewind::see(it, height, wide, effects),
        Some(Screen::Tree(it)) => it.list.fit(it.shown.len(), height.saturating_sub(1)),
        Some(Screen::Search(it)) => it.list.fit(it.found.len(), height.saturating_sub(1)),
        Some(Screen::Content(it)) => {
            if let Some(view) = &mut it.view {
                let last = view.doc.lines.len().saturating_sub(height.max(1));
                view.top = view.top.min(last);
            }
        }
        None => {}
    }
}

fn on_key(model: &mut Model, key: KeyEvent, effects: &mut Vec<Effect>) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return quit(model, effects),
        KeyCode::Char('l') if control => return effects.push(Effect::Redraw),
        KeyCode::Char('z') if control => return effects.push(Effect::Suspend),
        _ => {}
    }
    // Escape and a letter that come together look like one key with Alt, of which we have none.
    if key.modifiers.contains(KeyModifiers::ALT) {
        on_key(model, KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE), effects);
        let letter = KeyEvent::new(key.code, key.modifiers - KeyModifiers::ALT);
        return on_key(model, letter, effects);
    }
    if model.popup.is_some() {
        return on_popup_key(model, key, effects);
    }
    model.notice = None;
    match meaning(key) {
        Key::Char('?') => model.popup = Some(Popup::Help { top: 0 }),
        Key::Char('m') => {
            model.mouse = !model.mouse;
            let words = match model.mouse {
                true => "The mouse is Chronicle's again",
                false => "The mouse is the terminal's: select text as usual; m takes it again",
            };
            say(model, words);
            effects.push(Effect::Mouse(model.mouse));
        }
        Key::Char('q') if model.stack.is_empty() => quit(model, effects),
        Key::Char('s') if !matches!(model.stack.last(), Some(Screen::Rewind(_))) => {
            search::open(model);
        }
        Key::Char('/') if model.stack.is_empty() => ask_filter(model, Asks::TimelineFilter),
        key => match model.stack.last() {
            None => timeline::on_key(model, key, effects),
            Some(Screen::Changes(_)) => changes::on_key(model, key, effects),
            Some(Screen::Tree(_)) => tree::on_key(model, key, effects),
            Some(Screen::Content(_)) => tree::on_content_key(model, key, effects),
            Some(Screen::Search(_)) => search::on_key(model, key, effects),
            Some(Screen::Rewind(_)) => rewind::on_key(model, key, effects),
        },
    }
}

/// Leaves, unless a rewind is under way: that is waited for.
fn quit(model: &mut Model, effects: &mut Vec<Effect>) {
    if model.applying {
        say(model, "Leaving when the rewind is done");
    }
    effects.push(Effect::Quit);
}

/// Goes back to the screen before.
fn leave(model: &mut Model, effects: &mut Vec<Effect>) {
    if let Some(screen) = model.stack.pop() {
        effects.push(Effect::GiveUp(screen.id()));
    }
}

fn say(model: &mut Model, words: impl Into<String>) {
    model.notice = Some(Notice { words: words.into(), is_error: false });
}

fn complain(model: &mut Model, words: impl Into<String>) {
    model.notice = Some(Notice { words: words.into(), is_error: true });
}

fn ask_filter(model: &mut Model, asks: Asks) {
    let text = match (asks, model.stack.last()) {
        (Asks::TimelineFilter, _) => model.timeline.filter.clone().unwrap_or_default(),
        (_, Some(Screen::Changes(it))) => it.filter.clone(),
        (_, Some(Screen::Tree(it))) => it.filter.clone(),
        _ => String::new(),
    };
    model.popup = Some(Popup::Input(Input { asks, text }));
}

/// Offers what can be taken back.
fn offer(model: &mut Model, menu: Menu) {
    if model.off {
        complain(model, "Chronicle is off (CHRONICLE=off): nothing is changed");
    } else if menu.choices.is_empty() {
        complain(model, "There is nothing to take back here");
    } else {
        model.popup = Some(Popup::Menu(menu));
    }
}

fn on_popup_key(model: &mut Model, key: KeyEvent, effects: &mut Vec<Effect>) {
    let height = model.body_height();
    match model.popup.as_mut() {
        Some(Popup::Input(_)) => on_input_key(model, key, effects),
        Some(Popup::Help { top }) => match meaning(key) {
            Key::Go(step) => *top = step.from(*top, crate::view::HELP.len(), height),
            _ => model.popup = None,
        },
        Some(Popup::Menu(menu)) => {
            let length = menu.choices.len();
            match meaning(key) {
                Key::Go(step) => menu.selected = step.from(menu.selected, length, length),
                Key::Enter | Key::Right => rewind::choose(model, effects),
                Key::Char(c) => {
                    let number = c.to_digit(10).map_or(0, |digit| digit as usize);
                    if (1..=length).contains(&number) {
                        menu.selected = number - 1;
                        rewind::choose(model, effects);
                    } else {
                        model.popup = None;
                    }
                }
                _ => model.popup = None,
            }
        }
        Some(Popup::Confirm(_)) => match key.code {
            KeyCode::Char('y' | 'Y') => rewind::confirmed(model, effects),
            _ => {
                model.popup = None;
                say(model, "Nothing was changed");
            }
        },
        None => {}
    }
}

fn on_input_key(model: &mut Model, key: KeyEvent, effects: &mut Vec<Effect>) {
    let Some(Popup::Input(input)) = &mut model.popup else { return };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Esc => {
            let asks = input.asks;
            model.popup = None;
            if asks == Asks::Pattern {
                search::leave_if_empty(model, effects);
            }
        }
        KeyCode::Enter => {
            let input = input.clone();
            model.popup = None;
            take_input(model, input, effects);
        }
        KeyCode::Backspace => drop(input.text.pop()),
        KeyCode::Char('u') if control => input.text.clear(),
        KeyCode::Char('w') if control => {
            let kept = input.text.trim_end().rfind(' ').map_or(0, |at| at + 1);
            input.text.truncate(kept);
        }
        KeyCode::Char(c) if !control => {
            input.text.push(c);
            // What is only a matter of the list is done as one types.
            if input.asks == Asks::ListFilter {
                let text = input.text.clone();
                filter_list(model, text);
            }
        }
        _ => {}
    }
}

fn take_input(model: &mut Model, input: Input, effects: &mut Vec<Effect>) {
    match input.asks {
        Asks::TimelineFilter => timeline::filter(model, input.text, effects),
        Asks::ListFilter => filter_list(model, input.text),
        Asks::Pattern | Asks::Glob => search::take(model, input, effects),
    }
}

fn filter_list(model: &mut Model, text: String) {
    match model.stack.last_mut() {
        Some(Screen::Changes(it)) => changes::filter(it, text),
        Some(Screen::Tree(it)) => tree::filter(it, text),
        _ => {}
    }
}

fn on_mouse(model: &mut Model, mouse: MouseEvent, effects: &mut Vec<Effect>) {
    let step = match mouse.kind {
        MouseEventKind::ScrollDown => 3,
        MouseEventKind::ScrollUp => -3,
        MouseEventKind::Down(MouseButton::Left) => return on_click(model, mouse, effects),
        _ => return,
    };
    let height = model.body_height();
    match &mut model.popup {
        Some(Popup::Help { top }) => {
            *top = Move::By(step).from(*top, crate::view::HELP.len(), height);
        }
        Some(_) => {}
        None => {
            point(model, mouse.column);
            let code = if step > 0 { KeyCode::Down } else { KeyCode::Up };
            for _ in 0..3 {
                on_key(model, KeyEvent::new(code, KeyModifiers::NONE), effects);
            }
        }
    }
}

/// The side of a wide screen that the mouse is on gets the keys.
fn point(model: &mut Model, column: u16) {
    let wide = model.is_wide();
    let list = crate::view::list_width(model.size.0);
    let focus = if column >= list { Focus::Doc } else { Focus::List };
    match model.stack.last_mut() {
        Some(Screen::Changes(it)) if wide && it.doc.view.is_some() => it.focus = focus,
        Some(Screen::Rewind(it)) if wide && it.doc.view.is_some() => it.focus = focus,
        _ => {}
    }
}

/// A click chooses a row; one on the chosen row opens it.
fn on_click(model: &mut Model, mouse: MouseEvent, effects: &mut Vec<Effect>) {
    if model.popup.is_some() {
        if !matches!(model.popup, Some(Popup::Confirm(_) | Popup::Input(_))) {
            model.popup = None;
        }
        return;
    }
    point(model, mouse.column);
    let body = model.body_height();
    let Some(row) = usize::from(mouse.row).checked_sub(1).filter(|row| *row < body) else {
        return;
    };
    // Some screens have a line of their own above the list.
    let (list, length, above) = match model.stack.last_mut() {
        None => (&mut model.timeline.list, model.timeline.rows.len(), 0),
        Some(Screen::Changes(it)) if it.focus == Focus::List => (&mut it.list, it.shown.len(), 0),
        Some(Screen::Tree(it)) => (&mut it.list, it.shown.len(), 1),
        Some(Screen::Search(it)) => (&mut it.list, it.found.len(), 1),
        Some(Screen::Rewind(it)) if it.focus == Focus::List => {
            (&mut it.list, it.rows.len(), crate::view::REWIND_HEAD)
        }
        _ => return,
    };
    let Some(row) = row.checked_sub(above).map(|row| row + list.top) else { return };
    if row >= length {
        return;
    }
    let again = list.selected == row;
    list.selected = row;
    if again {
        on_key(model, KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE), effects);
    }
}

fn on_answer(model: &mut Model, answer: Answer, effects: &mut Vec<Effect>) {
    match answer {
        Answer::Head(head) => timeline::on_head(model, head, effects),
        Answer::Outline(filter, outline) => timeline::on_outline(model, filter, outline),
        Answer::Stretches(generation, wanted, views) => {
            timeline::on_stretches(model, generation, &wanted, views);
        }
        Answer::Files(id, files) => changes::on_files(model, id, files),
        Answer::Versions(id, versions) => changes::on_versions(model, id, versions),
        Answer::Counts(id, counts) => {
            if let Some(Screen::Changes(it)) = model.screen(id) {
                it.counts.extend(counts);
            }
        }
        Answer::Doc(id, index, doc) => changes::on_doc(model, id, index, doc),
        Answer::Directory(id, path, listing) => tree::on_directory(model, id, path, listing),
        Answer::Grep(id, found) => search::on_found(model, id, found),
        Answer::Plan(id, serial, plan) => rewind::on_plan(model, id, serial, plan),
        Answer::Applied(id, report) => rewind::on_applied(model, id, report, effects),
    }
}
