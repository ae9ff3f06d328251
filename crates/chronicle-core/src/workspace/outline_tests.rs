//! The outline and what its stretches hold, on a real workspace.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::init::InitOptions;
use super::outline::{ChangesOf, Stretch};
use super::turns::TurnRequest;
use super::{RewindKind, RewindRequest, Workspace};
use crate::catalog::{Batch, Durability};
use crate::error::Error;
use crate::home::Home;
use crate::path::WorkspacePath;
use crate::record::{Kind, Labels};

struct World {
    place: tempfile::TempDir,
    workspace: Workspace,
}

impl World {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("ws");
        std::fs::create_dir(&top).unwrap();
        for (name, content) in files {
            std::fs::write(top.join(name), content).unwrap();
        }
        let home = Home::at(&place.path().join("home"));
        let (workspace, _) = Workspace::init(&home, &top, &InitOptions::default()).unwrap();
        Self { place, workspace }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join("ws").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.file(name), content).unwrap();
    }

    fn turn(&mut self, session: &str, work: impl FnOnce(&Self)) {
        let request = TurnRequest {
            session: Some(session.to_owned()),
            prompt: Some(format!("do it as {session}")),
            ..TurnRequest::default()
        };
        self.workspace.turn_start(&request).unwrap();
        work(self);
        self.workspace.turn_end(&request).unwrap();
    }

    /// The outline as text, newest first: `turn 1: a 2 files; outside: person 1 file`.
    fn told(&self) -> String {
        let outline = self.workspace.outline().unwrap();
        let views = self.workspace.stretches(&outline.stretches).unwrap();
        let told = views.iter().map(|view| {
            let what = view.turn.as_ref().map_or("outside".to_owned(), |turn| {
                let open = if turn.ended_at.is_some() { "" } else { " open" };
                format!("turn {}{open}", turn.number)
            });
            let taken = if view.changes.1 > 0 { " taken back" } else { "" };
            format!("{what}: {} {}{taken}", view.authors.join("+"), view.files)
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn turns_and_what_lies_between_them_are_told_newest_first() {
    let mut world = World::new(&[("a", "1\n"), ("b", "1\n")]);
    assert_eq!(world.told(), "outside:  0");
    world.turn("A", |world| {
        world.write("a", "2\n");
        std::fs::rename(world.file("b"), world.file("c")).unwrap();
    });
    world.write("a", "3\n");
    world.workspace.settle().unwrap();
    world.turn("B", |_| ());
    assert_eq!(world.told(), "turn 2:  0; outside: person 1; turn 1: A 2; outside:  0");
    let outline = world.workspace.outline().unwrap();
    assert_eq!(outline.turns, 2);
    assert_eq!(outline.head, world.workspace.last_position().unwrap().0);
}

#[test]
fn what_was_taken_back_says_so_and_an_open_turn_is_open() {
    let mut world = World::new(&[("a", "1\n")]);
    world.turn("A", |world| world.write("a", "2\n"));
    let undo = RewindRequest::new(RewindKind::Undo { what: Some("turn:1".to_owned()) });
    world.workspace.rewind(&undo, &mut |_| true).unwrap();
    let open = TurnRequest { session: Some("B".to_owned()), ..TurnRequest::default() };
    world.workspace.turn_start(&open).unwrap();
    assert_eq!(
        world.told(),
        "turn 2 open:  0; outside: chronicle 1; turn 1: A 1 taken back; outside:  0"
    );
}

#[test]
fn overlapping_turns_keep_their_own_records() {
    let mut world = World::new(&[("a", "1\n")]);
    let of =
        |session: &str| TurnRequest { session: Some(session.to_owned()), ..TurnRequest::default() };
    world.workspace.turn_start(&of("A")).unwrap();
    world.workspace.turn_start(&of("B")).unwrap();
    world.workspace.turn_end(&of("B")).unwrap();
    world.workspace.turn_end(&of("A")).unwrap();
    assert_eq!(world.told(), "turn 2:  0; turn 1:  0; outside:  0");
}

#[test]
fn a_filter_leaves_what_touched_the_path() {
    let mut world = World::new(&[("a", "1\n"), ("b", "1\n")]);
    world.turn("A", |world| world.write("a", "2\n"));
    world.turn("A", |world| world.write("b", "2\n"));
    world.write("mine", "1\n");
    world.workspace.settle().unwrap();
    let hit = |pattern: &str| {
        let never = AtomicBool::new(false);
        world.workspace.outline_touching(pattern, &never).unwrap().stretches.len()
    };
    // What a person did after a turn is not the turn's.
    assert_eq!((hit("a"), hit("b*"), hit("mine"), hit("nothing")), (1, 1, 1, 0));
    let cancelled = world.workspace.outline_touching("a", &AtomicBool::new(true));
    assert!(matches!(cancelled, Err(Error::Cancelled)));
}

#[test]
fn the_files_of_a_turn_have_sides_authors_and_lines() {
    let mut world = World::new(&[("a", "1\n"), ("old", "x\ny\n")]);
    world.turn("A", |world| {
        world.write("a", "2\n3\n");
        std::fs::rename(world.file("old"), world.file("new")).unwrap();
    });
    let outline = world.workspace.outline().unwrap();
    let turn: Vec<Stretch> = outline.stretches.into_iter().filter(|it| it.is_turn).collect();
    let files = world.workspace.changed_files(&ChangesOf::Stretch(turn[0])).unwrap();
    let told: Vec<_> = files
        .iter()
        .map(|span| {
            let stat = world.workspace.span_counts(span).unwrap();
            format!("{} {} +{} -{}", span.change_type(), span.path, stat.inserted, stat.deleted)
        })
        .collect();
    assert_eq!(told, ["modified a +2 -1", "renamed new +0 -0"]);
    assert!(files.iter().all(|span| span.authors == ["A"] && span.live));
    assert!(world.workspace.span_patch(&files[0]).unwrap().contains("@@ -1 +1,2 @@"));
    let (before, after) = files[0].views();
    assert_eq!(
        world.workspace.compare_views(&before, &after).unwrap(),
        "@@ -1 +1,2 @@\n-1\n+2\n+3\n"
    );
}

#[test]
fn versions_are_paged_and_follow_renames() {
    let mut world = World::new(&[("a", "1\n")]);
    for number in 2..6 {
        world.turn("A", |world| world.write("a", &format!("{number}\n")));
    }
    world.turn("A", |world| std::fs::rename(world.file("a"), world.file("b")).unwrap());
    let path = WorkspacePath::new("b").unwrap();
    let (three, more) = world.workspace.versions_of(&path, 3).unwrap();
    assert_eq!((three.len(), more), (3, true));
    assert_eq!(three.iter().map(|it| it.turn).collect::<Vec<_>>(), [Some(5), Some(4), Some(3)]);
    let (all, more) = world.workspace.versions_of(&path, 100).unwrap();
    assert_eq!((all.len(), more), (6, false));
}

#[test]
fn ten_thousand_turns_are_listed_without_being_read() {
    let mut world = World::new(&[("a", "1\n")]);
    let mut batch = Batch::default();
    for turn in 1..=10_000 {
        let labels = Labels {
            turn: Some(turn),
            session: Some("A".to_owned()),
            prompt: Some(format!("do {turn}")),
            ..Labels::default()
        };
        batch.records.push(world.workspace.record(Kind::TurnStart, labels.clone()));
        batch.records.push(world.workspace.record(Kind::TurnEnd, labels));
    }
    world.workspace.commit_batch(batch, Durability::PowerCut).unwrap();
    let begun = Instant::now();
    let outline = world.workspace.outline().unwrap();
    let page = world.workspace.stretches(&outline.stretches[..30]).unwrap();
    let oldest = outline.stretches.len() - 2;
    let last = world.workspace.stretches(&outline.stretches[oldest..=oldest]).unwrap();
    let took = begun.elapsed();
    assert_eq!(outline.turns, 10_000);
    assert_eq!(page[0].turn.as_ref().and_then(|turn| turn.prompt.as_deref()), Some("do 10000"));
    assert_eq!(last[0].turn.as_ref().map(|turn| turn.number), Some(1));
    // Reading every header would take several times as long, also on a machine that is busy.
    assert!(took.as_millis() < 1_000, "{took:?}");
}

#[test]
fn what_the_log_says_about_checkpoints_is_told_and_nothing_else() {
    let mut world = World::new(&[("a", "1\n")]);
    world.turn("s", |world| world.write("a", "2\n"));
    assert!(world.workspace.checkpoint_notes().unwrap().is_empty());
    let labels = Labels { summary: Some("checkpoint: db".to_owned()), ..Labels::default() };
    let records = vec![world.workspace.record(Kind::Checkpoint, labels)];
    let batch = Batch { records, ..Batch::default() };
    world.workspace.commit_batch(batch, Durability::PowerCut).unwrap();
    let notes = world.workspace.checkpoint_notes().unwrap();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].summary.as_deref(), Some("checkpoint: db"));
    assert_eq!(notes[0].seq, world.workspace.last_position().unwrap().0);
}
