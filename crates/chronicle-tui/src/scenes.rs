//! Keys and answers in, screens out: the state machine and its picture, without a terminal.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use chronicle_core::shown::needs_escape;
use chronicle_core::{
    EntryView, LineStat, Outline, PlanStep, PlanView, RewindReport, SCHEMA, Seq, SnapshotBrief,
    SnapshotId, Stretch, StretchView, Time, TurnView,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::doc::Doc;
use crate::model::{Model, Popup, Screen};
use crate::request::{Answer, Failure, Request};
use crate::theme::Theme;
use crate::update::{Effect, Event, begin, update};
use crate::view::draw;

struct Scene {
    model: Model,
    terminal: Terminal<TestBackend>,
    asked: Vec<Request>,
    quit: bool,
}

impl Scene {
    fn new(columns: u16, rows: u16) -> Self {
        let theme = Theme { color: true };
        let model = Model::new("/work".to_owned(), theme, (columns, rows), 1_000, false);
        let terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let mut scene = Self { model, terminal, asked: Vec::new(), quit: false };
        scene.take(begin());
        scene
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Ask(request) => self.asked.push(request),
                Effect::Quit => self.quit = true,
                _ => {}
            }
        }
    }

    fn event(&mut self, event: Event) -> &mut Self {
        let effects = update(&mut self.model, event);
        self.take(effects);
        self
    }

    fn answer(&mut self, answer: Answer) -> &mut Self {
        self.event(Event::Answer(Box::new(answer)))
    }

    /// Types; `\r` is Enter, `\x1b` is Escape.
    fn keys(&mut self, keys: &str) -> &mut Self {
        for key in keys.chars() {
            let code = match key {
                '\r' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                key => KeyCode::Char(key),
            };
            self.event(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        }
        self
    }

    fn resize(&mut self, columns: u16, rows: u16) -> &mut Self {
        self.terminal.backend_mut().resize(columns, rows);
        self.terminal.autoresize().unwrap();
        self.event(Event::Resize(columns, rows))
    }

    /// The screen as text; nothing on it can act on a terminal.
    fn screen(&mut self) -> String {
        let model = &self.model;
        self.terminal.draw(|frame| draw(model, frame.area(), frame.buffer_mut())).unwrap();
        let buffer = self.terminal.backend().buffer();
        let wide = usize::from(buffer.area.width).max(1);
        for cell in buffer.content() {
            assert!(!cell.symbol().chars().any(|c| c == '\t' || needs_escape(c)), "{cell:?}");
        }
        let rows = buffer.content().chunks(wide);
        let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        text.map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    #[track_caller]
    fn has(&mut self, text: &str) -> &mut Self {
        let screen = self.screen();
        assert!(screen.contains(text), "no {text:?} in\n{screen}");
        self
    }

    fn last(&self) -> &Request {
        self.asked.last().unwrap()
    }

    /// Answers what was asked of stretches, as if each turn had one snapshot.
    fn answer_stretches(&mut self) -> &mut Self {
        for request in std::mem::take(&mut self.asked) {
            if let Request::Stretches { generation, wanted } = request {
                let views = wanted.iter().map(|stretch| stretch_view(*stretch, "do it")).collect();
                self.answer(Answer::Stretches(generation, wanted, Ok(views)));
            }
        }
        self
    }
}

fn outline(turns: u64) -> Outline {
    let stretch =
        |turn: u64| Stretch { first: Seq(turn * 4), last: Seq(turn * 4 + 3), is_turn: true };
    let stretches = (1..=turns).rev().map(stretch).collect();
    Outline { head: turns * 4 + 3, turns, stretches }
}

fn stretch_view(stretch: Stretch, prompt: &str) -> StretchView {
    let number = stretch.first.0 / 4;
    let brief = SnapshotBrief {
        id: Some(SnapshotId([7; 16])),
        first: Seq(stretch.first.0 + 1),
        last: Seq(stretch.first.0 + 2),
        time: Time(900 * 1_000_000_000),
        action: "shell".to_owned(),
        summary: format!("shell: make {number}"),
        agent: Some("claude-code".to_owned()),
        session: Some("s".to_owned()),
        sub_agent: None,
        files: 2,
        authors: vec!["s".to_owned()],
        changes: (2, 0),
        open: false,
        complete: true,
        effects: 0,
    };
    StretchView {
        stretch,
        turn: Some(TurnView {
            number,
            key: None,
            session: Some("s".to_owned()),
            prompt: Some(prompt.to_owned()),
            started_at: String::new(),
            ended_at: Some(String::new()),
            start_seq: stretch.first.0,
            end_seq: Some(stretch.last.0),
        }),
        agent: None,
        time: Time(900 * 1_000_000_000),
        files: 2,
        authors: vec!["s".to_owned()],
        changes: (2, 0),
        snapshots: vec![brief],
        partial: false,
    }
}

fn file(size: u64) -> EntryView {
    EntryView {
        kind: "file".to_owned(),
        hash: Some(size.to_string()),
        secret: false,
        size: Some(size),
        mode: Some("0644".to_owned()),
        target: None,
        why: None,
    }
}

fn plan(names: &[&str]) -> Box<PlanView> {
    let step = |name: &&str| PlanStep {
        path: (*name).to_owned(),
        path_b64: None,
        now: file(20),
        then: file(10),
    };
    Box::new(PlanView {
        schema: SCHEMA,
        plan_id: format!("0-0-0-0-plan{}", names.len()),
        resolved_target: "just before turn 2".to_owned(),
        write: names.iter().map(step).collect(),
        delete: Vec::new(),
        merge: Vec::new(),
        keep: Vec::new(),
        conflict: Vec::new(),
        unknown: Vec::new(),
        git: Vec::new(),
        irreversible: Vec::new(),
        shared: Vec::new(),
        authors: vec!["s".to_owned()],
        span_seconds: 1,
        moves_head: false,
        stale_output: Vec::new(),
        runs_by_itself: Vec::new(),
    })
}

fn with_turns(turns: u64, columns: u16, rows: u16) -> Scene {
    let mut scene = Scene::new(columns, rows);
    scene.answer(Answer::Outline(None, Ok(outline(turns)))).answer_stretches();
    scene
}

#[test]
fn the_timeline_at_eighty_columns() {
    let expected = [
        " Chronicle  /work                                       2 turns  record 11  1/3",
        " - 2 do it                                   s                  2 files   2 min",
        "     070707070707  shell: make 2             claude-code        2 files   2 min",
        " + 1 do it                                   s                  2 files   2 min",
        "",
        "",
        " enter changes  space fold  r rewind  f files  / path  s search  q quit  ? help",
    ];
    let screen = with_turns(2, 80, 7).screen();
    assert_eq!(screen.lines().collect::<Vec<_>>(), expected, "{screen}");
}

#[test]
fn of_ten_thousand_turns_only_those_that_are_seen_are_read() {
    let mut scene = Scene::new(80, 24);
    scene.asked.clear();
    scene.answer(Answer::Outline(None, Ok(outline(10_000))));
    let Request::Stretches { wanted, .. } = scene.last() else { panic!("{:?}", scene.asked) };
    assert!(wanted.len() < 40, "{}", wanted.len());
    scene.answer_stretches().keys("G").answer_stretches().has("+ 1 do it");
    let begun = std::time::Instant::now();
    for _ in 0..1_000 {
        scene.keys("k");
    }
    scene.answer_stretches().has("do it");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn what_is_chosen_stays_chosen_when_something_new_comes() {
    let mut scene = with_turns(50, 80, 24);
    scene.keys("jjj").has("47 do it");
    let chosen = |scene: &Scene| {
        let row = scene.model.timeline.chosen();
        format!("{:?}", row.map(|_| scene.model.timeline.list.selected))
    };
    let stretch = |scene: &Scene| match scene.model.timeline.chosen() {
        Some(crate::model::Row::Stretch(index)) => scene.model.timeline.stretches()[index].first,
        row => panic!("{row:?}"),
    };
    let (before, first) = (chosen(&scene), stretch(&scene));
    scene.answer(Answer::Head(999)).answer(Answer::Outline(None, Ok(outline(52))));
    scene.answer_stretches();
    assert_eq!(stretch(&scene), first);
    assert_ne!(chosen(&scene), before);
    // Who looks at the newest goes on to look at the newest.
    scene.keys("g").answer(Answer::Outline(None, Ok(outline(53)))).answer_stretches();
    assert_eq!(stretch(&scene), Seq(53 * 4));
}

#[test]
fn no_size_is_too_small_and_nothing_that_acts_is_ever_drawn() {
    let hostile = "\u{1b}[2J\u{202e}\0\r\n\t漢字e\u{301}\u{301}\u{301}\u{301}\u{301}";
    let mut scene = Scene::new(80, 24);
    scene.answer(Answer::Outline(None, Ok(outline(3))));
    for request in std::mem::take(&mut scene.asked) {
        if let Request::Stretches { generation, wanted } = request {
            let views = wanted.iter().map(|it| stretch_view(*it, hostile)).collect();
            scene.answer(Answer::Stretches(generation, wanted, Ok(views)));
        }
    }
    let sizes = [(80, 24), (1, 1), (2, 3), (7, 2), (20, 5), (45, 9), (65, 10), (240, 70)];
    for opened in ["", "?", "\x1br", "\r", "\x1bf", "\x1bs", "x\r"] {
        scene.keys(opened);
        for (columns, rows) in sizes {
            scene.resize(columns, rows);
            scene.screen();
        }
    }
}

#[test]
fn files_of_a_plan_are_chosen_and_exactly_that_plan_is_applied() {
    let mut scene = with_turns(2, 80, 24);
    scene.keys("r").has("Undo turn 2, keep what came later").keys("1");
    let Request::Plan { screen, serial, request } = scene.last().clone() else { panic!() };
    assert!(request.paths.is_empty());
    scene.has("planning").answer(Answer::Plan(screen, serial, Ok(plan(&["a", "b", "c"]))));
    scene.has("Plan plan3: write 3").keys("j ");
    let Request::Plan { request, .. } = scene.last().clone() else { panic!() };
    let paths: Vec<_> = request.paths.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["a", "c"]);
    scene.has("[ ] write    b");
    // Until the plan of what is chosen is there, nothing can be applied.
    scene.keys("y").has("There is no plan yet");
    // One that was asked for before the choice changed does not count.
    scene.answer(Answer::Plan(screen, serial, Ok(plan(&["a", "b", "c"]))));
    scene.keys("y").has("There is no plan yet");
    let serial = serial + 1;
    scene
        .answer(Answer::Plan(screen, serial, Ok(plan(&["a", "c"]))))
        .keys("y")
        .has("Plan plan2: write 2");
    assert!(matches!(scene.model.popup, Some(Popup::Confirm(_))));
    scene.keys("n").has("Nothing was changed").keys("yy");
    let Request::Apply { plan: applied, .. } = scene.last().clone() else { panic!() };
    assert_eq!(applied, "0-0-0-0-plan2");
    let report = RewindReport {
        schema: SCHEMA,
        id: Some("0-0-0-0-done".to_owned()),
        plan: *plan(&["a", "c"]),
        unexpected: Vec::new(),
        aside: Vec::new(),
        changed: 2,
        partial: false,
    };
    // While it is applied, it is not left.
    scene.keys("q").has("being applied");
    scene.answer(Answer::Applied(screen, Ok(Box::new(report)))).has("Applied: 2 files changed");
    scene.keys("u");
    let Request::TakeBack { id, .. } = scene.last().clone() else { panic!() };
    assert_eq!(id, "0-0-0-0-done");
}

#[test]
fn an_outdated_plan_is_made_anew_and_not_applied() {
    let mut scene = with_turns(1, 80, 24);
    scene.keys("r1");
    let Request::Plan { screen, serial, .. } = scene.last().clone() else { panic!() };
    scene.answer(Answer::Plan(screen, serial, Ok(plan(&["a"])))).keys("yy");
    let outdated = Failure { words: "Outdated".to_owned(), code: "plan_outdated" };
    scene.answer(Answer::Applied(screen, Err(outdated))).has("this is the plan now");
    assert!(matches!(scene.last(), Request::Plan { .. }));
    assert!(!scene.model.applying);
}

#[test]
fn switched_off_nothing_is_offered() {
    let mut scene = with_turns(1, 80, 24);
    scene.model.off = true;
    scene.keys("r").has("Chronicle is off");
    assert!(scene.model.popup.is_none());
}

#[test]
fn a_search_is_asked_for_given_up_and_filtered() {
    let mut scene = with_turns(1, 80, 24);
    scene.keys("s").has("Search every version for").keys("fn main\r").has("Searching...");
    let Request::Grep { screen, pattern, glob } = scene.last().clone() else { panic!() };
    assert_eq!((&pattern[..], glob), ("fn main", None));
    scene.keys("/*.rs\r");
    let Request::Grep { glob, .. } = scene.last().clone() else { panic!() };
    assert_eq!(glob.as_deref(), Some("*.rs"));
    scene.keys("\x1b").has("Given up");
    scene.answer(Answer::Grep(screen, Ok((Vec::new(), false)))).has("Given up");
    // One that was never begun leaves nothing behind.
    scene.keys("qs\x1b");
    assert!(scene.model.stack.is_empty());
}

#[test]
fn a_diff_of_fifty_thousand_lines_is_drawn_where_it_is_seen() {
    let mut patch = String::from("diff a/x b/x\n@@ -1,50000 +1,50000 @@\n");
    for number in 0..25_000 {
        patch.push_str(&format!("-let x = {number};\n+let x = {};\n", number + 1));
    }
    let mut scene = with_turns(1, 80, 24);
    scene.keys("f");
    let Some(Screen::Tree(_)) = scene.model.stack.last() else { panic!() };
    let id = scene.model.new_screen();
    scene.model.stack.push(Screen::Content(crate::model::Content {
        id,
        title: "x".to_owned(),
        view: None,
        failed: None,
    }));
    scene.answer(Answer::Doc(id, 0, Ok(Doc::of_patch(&patch)))).has("let x = 0;");
    let begun = std::time::Instant::now();
    scene.keys("G").has("let x = 25000;");
    for _ in 0..200 {
        scene.keys("k");
        scene.screen();
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn the_mouse_chooses_opens_and_scrolls() {
    let mut scene = with_turns(50, 80, 24);
    let click = |row| {
        Event::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: 5,
            row,
            modifiers: KeyModifiers::NONE,
        })
    };
    scene.event(click(4));
    assert_eq!(scene.model.timeline.list.selected, 3);
    scene.event(click(4));
    assert!(matches!(scene.last(), Request::Files { .. }));
    scene.keys("q");
    let wheel = MouseEvent {
        kind: MouseEventKind::ScrollDown,
        column: 5,
        row: 5,
        modifiers: KeyModifiers::NONE,
    };
    scene.event(Event::Mouse(wheel));
    assert_eq!(scene.model.timeline.list.selected, 6);
    scene.event(click(0)).event(click(23)).event(click(200));
    assert_eq!(scene.model.timeline.list.selected, 6);
}

#[test]
fn escape_and_a_letter_at_once_are_two_keys() {
    let mut scene = with_turns(2, 80, 24);
    scene.keys("\r");
    scene.event(Event::Key(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::ALT)));
    assert!(scene.model.stack.is_empty());
    assert_eq!(scene.model.timeline.list.selected, 1);
}

#[test]
fn answers_for_a_screen_that_was_left_are_not_shown() {
    let mut scene = with_turns(2, 80, 24);
    scene.keys("\r");
    let Request::Files { screen, .. } = scene.last().clone() else { panic!() };
    scene.keys("q\r");
    let failure = Failure { words: "late".to_owned(), code: "io" };
    scene.answer(Answer::Files(screen, Err(failure)));
    assert!(!scene.screen().contains("late"));
    scene.answer(Answer::Counts(screen, vec![(0, Some(LineStat::default()))])).screen();
    scene.keys("qq");
    assert!(scene.quit);
}
