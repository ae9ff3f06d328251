//! What cannot be taken back is recorded with its call, told by every plan that goes back over it, and
//! outlives everything that takes history away.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chronicle_core::{
    Call, CallEnd, CallStart, Clock, EffectView, Error, Forgettable, Home, InitOptions, LogQuery,
    Policy, Prompt, RewindKind, RewindRequest, Seq, Time, Workspace, WorkspacePath,
};

const HOUR: i64 = 3_600_000_000_000;

#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

struct Scene {
    scratch: tempfile::TempDir,
    home: Home,
    workspace: Workspace,
    clock: Hands,
}

impl Scene {
    fn new(settings: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "1\n").unwrap();
        if !settings.is_empty() {
            fs::write(root.join("chronicle.toml"), settings).unwrap();
        }
        let home = Home::at(&scratch.path().join("home"));
        let (mut workspace, _) = Workspace::init(&home, &root, &InitOptions::default()).unwrap();
        let clock = Hands(Arc::new(AtomicI64::new(1_700_000_000_000_000_000)));
        workspace.set_clock(Box::new(clock.clone()));
        Self { scratch, home, workspace, clock }
    }

    fn root(&self) -> PathBuf {
        self.workspace.root().to_owned()
    }

    /// A turn with one shell call that leaves this in the file.
    fn turn(&mut self, command: &str, content: &str) -> String {
        let key = format!("k{}", self.workspace.turns().unwrap().len());
        let prompt = Prompt {
            session: "s".into(),
            agent: "codex".into(),
            turn_key: Some(key),
            ..Prompt::default()
        };
        self.workspace.prompt(&prompt).unwrap();
        let id = self.call("Bash", Some(command), content);
        self.workspace.stop("s", false).unwrap();
        id
    }

    fn call(&mut self, tool: &str, command: Option<&str>, content: &str) -> String {
        let call = Call {
            session: "s".into(),
            agent: "codex".into(),
            tool: tool.into(),
            call_id: Some(format!("c{}", self.workspace.history_size().unwrap().records)),
            action: "shell".into(),
            summary: format!("shell: {}", command.unwrap_or_default()),
            command: command.map(str::to_owned),
            ..Call::default()
        };
        let begun = self.workspace.call_start(&call).unwrap();
        if !content.is_empty() {
            fs::write(self.root().join("a"), content).unwrap();
        }
        self.workspace.call_end(&call, &CallEnd::default()).unwrap();
        begun.id
    }

    fn effects(&self) -> Vec<EffectView> {
        self.workspace.effects_since(Seq(0)).unwrap()
    }

    fn whats(&self) -> Vec<String> {
        self.effects().into_iter().map(|effect| effect.what).collect()
    }

    #[track_caller]
    fn check_plan(&mut self, kind: RewindKind, expected: &[&str]) {
        let request = RewindRequest::new(kind.clone());
        let plan = self.workspace.plan(&request).unwrap();
        let listed: Vec<_> = plan.irreversible.iter().map(|kept| &kept.path[..]).collect();
        assert_eq!(listed, expected, "{kind:?}");
    }

    fn rewind(&mut self, kind: RewindKind) {
        self.workspace.rewind(&RewindRequest::new(kind), &mut |_| true).unwrap();
    }
}

fn to(target: &str) -> RewindKind {
    RewindKind::Rewind { target: target.to_owned() }
}

fn undo(what: &str) -> RewindKind {
    RewindKind::Undo { what: Some(what.to_owned()) }
}

#[test]
fn every_way_back_lists_what_it_goes_back_over() {
    let mut scene = Scene::new("");
    scene.turn("make", "2\n");
    let pushed = scene.turn("make && git push origin main", "3\n");
    scene.turn("npx prisma migrate reset", "4\n");
    let effects = scene.effects();
    assert_eq!(scene.whats(), ["git push origin main", "prisma migrate reset"]);
    assert_eq!((&effects[0].kind[..], &effects[1].kind[..]), ("outside", "data"));
    assert_eq!((effects[0].turn, effects[0].session.as_deref()), (Some(2), Some("s")));
    assert_eq!(effects[0].snapshot.as_ref(), Some(&pushed));
    let both = ["git push origin main", "prisma migrate reset"];
    scene.check_plan(to("turn:3"), &[]);
    scene.check_plan(to("turn:2"), &both[1..]);
    scene.check_plan(to("turn:1"), &both);
    scene.check_plan(to(&pushed), &both);
    scene.check_plan(undo("turn:3"), &both[1..]);
    scene.check_plan(undo("turn:2"), &both);
    scene.check_plan(RewindKind::Rollback { id: pushed.clone() }, &both);
    scene.rewind(to("turn:1"));
    assert_eq!(fs::read_to_string(scene.root().join("a")).unwrap(), "2\n");
    scene.check_plan(RewindKind::Redo, &both);
    let shown = scene.workspace.show(&pushed).unwrap();
    assert_eq!(shown.effects.len(), 1);
    assert!(!shown.open);
    assert_eq!(scene.workspace.status().unwrap().effects.len(), 0);
    scene.call("Bash", Some("npm publish"), "5\n");
    assert_eq!(scene.workspace.status().unwrap().effects.len(), 1);
}

/// Whoever was shown a plan has not agreed to go back over what was called since.
#[test]
fn an_effect_after_the_preview_makes_the_plan_outdated() {
    let mut scene = Scene::new("");
    scene.turn("make", "2\n");
    let plan = scene.workspace.plan(&RewindRequest::new(to("before:turn:1"))).unwrap();
    assert!(plan.irreversible.is_empty());
    let request = RewindRequest::new(RewindKind::Plan { id: plan.plan_id });
    scene.call("Bash", Some("make"), "");
    assert_eq!(scene.workspace.plan(&request).unwrap().write.len(), 1, "nothing has changed");
    scene.call("Bash", Some("git push"), "");
    let stopped = scene.workspace.rewind(&request, &mut |_| true).unwrap_err();
    assert!(matches!(stopped, Error::Stopped(_)), "{stopped}");
}

#[test]
fn settings_name_more_and_what_marks_less_waits_for_a_person() {
    let more = "[effects]\ncommands = ['deploy.sh']\ntools = ['mcp__mail__send*']\n";
    let mut scene = Scene::new(more);
    scene.turn("./deploy.sh prod; git push", "2\n");
    scene.call("mcp__mail__send_draft", None, "3\n");
    scene.call("mcp__mail__read", None, "4\n");
    assert_eq!(scene.whats(), ["./deploy.sh prod", "git push", "mcp__mail__send_draft"]);
    fs::write(scene.root().join("chronicle.toml"), "[effects]\nbuiltin = false\n").unwrap();
    scene.call("Bash", Some("git push again"), "5\n");
    assert_eq!(scene.effects().len(), 4, "nobody accepted it");
    let pending = scene.workspace.status().unwrap().pending_config;
    assert!(pending.iter().any(|words| words.contains("effects.builtin")), "{pending:?}");
}

#[test]
fn the_policy_says_before_which_calls_a_checkpoint_goes() {
    let mut scene = Scene::new("[checkpoint.when]\nmigrations = true\ncommands = ['wipe']\n");
    let call = |command: &str| Call {
        session: "s".into(),
        tool: "Bash".into(),
        action: "shell".into(),
        summary: "shell: x".into(),
        command: Some(command.to_owned()),
        ..Call::default()
    };
    for (command, wanted) in [
        ("make", None),
        ("cd x && poetry run alembic downgrade base", Some("before alembic downgrade base")),
        ("wipe --all", Some("before wipe --all")),
    ] {
        let records = scene.workspace.history_size().unwrap().records;
        match scene.workspace.call_begin(&call(command)).unwrap() {
            CallStart::Recorded(_) => assert_eq!(wanted, None, "{command}"),
            CallStart::CheckpointFirst(found) => {
                assert_eq!((Some(&found.reason[..]), found.due), (wanted, None), "{command}");
                // Nothing is recorded until there is one, or somebody goes on without.
                assert_eq!(scene.workspace.history_size().unwrap().records, records);
            }
        }
    }
    let words = vec!["rails".to_owned(), "db:drop".to_owned()];
    assert!(scene.workspace.run_wants_checkpoint(&words).unwrap().is_some());
    let quiet = Scene::new("");
    assert_eq!(
        quiet.workspace.run_wants_checkpoint(&words).unwrap(),
        None,
        "no parts are declared"
    );
    let parts = Scene::new("[[checkpoint.part]]\ngit = '.'\n");
    assert!(parts.workspace.run_wants_checkpoint(&words).unwrap().is_some());
    let turns = Scene::new("[checkpoint.when]\nevery_turns = 2\n");
    let due = turns.workspace.run_wants_checkpoint(&["ls".to_owned()]).unwrap().unwrap();
    assert_eq!((&due.reason[..], due.due), ("every 2 turns", Some(0)));
}

/// Pruning, forgetting and the road through a bucket leave an effect what it was, and the log verifies.
#[test]
fn an_effect_outlives_what_takes_history_away() {
    let mut scene = Scene::new("");
    fs::write(scene.root().join("secret"), "to be forgotten\n").unwrap();
    let pushed = scene.turn("git push origin main", "2\n");
    fs::remove_file(scene.root().join("secret")).unwrap();
    for number in 0..100 {
        scene.clock.0.fetch_add(20 * HOUR, Ordering::Relaxed);
        scene.turn("make", &format!("{number}\n"));
    }
    let before = scene.effects();
    assert_eq!(before.len(), 1);
    let what = Forgettable::Path { path: WorkspacePath::new("secret").unwrap(), at: None };
    scene.workspace.forget(&what, false, &mut |_| true).unwrap();
    assert_eq!(scene.effects(), before);
    scene.workspace.verify(true, &|_, _| ()).unwrap();
    let policy = Policy { turns: 3, ..Policy::default() };
    let report = scene.workspace.prune(&policy, "test", false).unwrap();
    assert!(report.dropped_records > 100, "{report:?}");
    scene.home.collect_garbage(&|_, _| ()).unwrap();
    assert_eq!(scene.effects(), before);
    scene.workspace.verify(true, &|_, _| ()).unwrap();
    // The log still marks it, and says nothing of what was pruned.
    let log = scene.workspace.log(&LogQuery::default()).unwrap();
    let kept = log.iter().find(|one| one.id == pushed).expect("it is still listed");
    assert_eq!((kept.effects.len(), kept.open, kept.changes.len()), (1, false, 0));
    let gone = scene.workspace.plan(&RewindRequest::new(to(&pushed))).unwrap_err();
    assert!(matches!(gone, Error::Pruned { .. }), "{gone}");
    check_travels(&scene, &before);
}

/// The whole log as bytes in another home says the same.
fn check_travels(scene: &Scene, before: &[EffectView]) {
    let position = scene.workspace.position().unwrap();
    let elsewhere = Home::at(&scene.scratch.path().join("elsewhere"));
    let mut arrival = elsewhere.receive(position.workspace).unwrap();
    let (mut after, mut travelled) = (Seq(0), Vec::new());
    while after < position.head.seq {
        let segment = scene.workspace.segment(after, position.head.seq, 1 << 20).unwrap();
        let effects = segment.records.iter().filter(|sealed| sealed.leaf.get(1) == Some(&10));
        travelled.extend(effects.map(|sealed| sealed.seq.0));
        arrival.add(&segment).unwrap();
        after = arrival.head().unwrap().seq;
    }
    // The same links: not a byte of any record is another.
    assert_eq!(arrival.head().unwrap(), position.head);
    assert_eq!(travelled, before.iter().map(|effect| effect.seq).collect::<Vec<_>>());
}
