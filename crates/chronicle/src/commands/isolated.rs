//! `chronicle run --isolated` and `chronicle isolated`: work that waits for a decision.

use chronicle_core::{
    CommitRequest, Error, FilteredChoice, GitChoice, IsolatedCounts, IsolatedRun, IsolatedView,
    OnConflict, PlanView, RewindReport, Stop, Workspace,
};
use serde::Serialize;

use super::{Invocation, with_schema};
use crate::checkpoint_first;
use crate::cli::{
    ConflictWay, FilteredWay, GitWay, IsolatedCommitArgs, IsolatedDiffArgs, IsolatedVerb, RunArgs,
};
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{Paint, count, diff, plan, printable};
use crate::run;
use crate::ui::{self, Ui, say};

/// Exit status when something was left that the person should look at.
const PARTIAL: u8 = 4;

/// So many paths are compared before the caller gets its prompt back; of more only that is told.
const FEW: usize = 500;

/// A run with how much it changed.
#[derive(Serialize)]
struct Counted {
    #[serde(flatten)]
    run: IsolatedView,
    changes: Option<IsolatedCounts>,
}

/// Runs a command on a layer of its own, and decides about its work.
pub(crate) fn run(invocation: &mut Invocation, args: &RunArgs) -> Outcome {
    let mut workspace = invocation.open().map_err(ours)?;
    let summary = args.summary.clone().unwrap_or_else(|| run::words(&args.command));
    let texts = run::texts(&args.command);
    checkpoint_first::before_run(&workspace, &texts).map_err(ours)?;
    let prepared = workspace.isolate(&summary).map_err(|error| ours(error.into()))?;
    // What it does outside is done, whatever becomes of its work here.
    workspace.record_effects(&texts).map_err(|error| ours(error.into()))?;
    let (root, directory) = (workspace.root().to_owned(), &invocation.directory);
    let words = run::isolated(&prepared, &root, directory, &args.command);
    let status = run::run(&words, directory);
    if let Some(refusal) = workspace.isolated_refusal(&prepared)? {
        return Err(ours(refusal.into()));
    }
    let status = status?;
    let told = |error: Error| {
        ours(error.into()).hinted(format!("The command itself ended with status {status}"))
    };
    workspace.isolated_end(&prepared, status).map_err(told)?;
    if args.isolation.discard {
        workspace.isolated_drop(prepared).map_err(told)?;
        invocation.ui.note(format!("Discarded the work of {}", printable(&summary)));
        return Ok(status);
    }
    let counts = match workspace.isolated_counts_of_few(&prepared, FEW) {
        Ok(counts) => counts,
        Err(error) => {
            // The work is there all the same, and waits.
            say(&CommandError::from(error).text());
            let view = workspace.isolated_show(Some(&prepared.id().hex()))?;
            waits(&mut invocation.ui, Counted { run: view, changes: None });
            return Ok(status);
        }
    };
    if counts.is_some_and(|counts| counts.is_nothing()) {
        workspace.isolated_drop(prepared).map_err(told)?;
        invocation.ui.note(format!("Isolated {}: nothing changed", printable(&summary)));
        return Ok(status);
    }
    decide(invocation, &mut workspace, prepared, (args, counts, status))
}

/// Commits where that was said or is agreed to; keeps the work waiting otherwise.
fn decide(
    invocation: &mut Invocation,
    workspace: &mut Workspace,
    prepared: IsolatedRun,
    (args, counts, status): (&RunArgs, Option<IsolatedCounts>, u8),
) -> Outcome {
    let ui = &mut invocation.ui;
    let commits = match args.isolation.commit {
        true => status == 0,
        false => ui::person_present() && asked(ui, counts),
    };
    let view = workspace.isolated_show(Some(&prepared.id().hex()))?;
    if !commits {
        if args.isolation.commit {
            ui.note(format!("Nothing was committed, since the command ended with status {status}"));
        }
        drop(prepared);
        waits(ui, Counted { run: view, changes: counts });
        return Ok(status);
    }
    let done = workspace.isolated_commit_now(prepared, &CommitRequest::default(), &mut |_| true);
    match done {
        Ok(done) => {
            if ui.json() {
                say(&json(&done));
            } else {
                report(ui, &view, &done);
            }
            Ok(if done.partial && status == 0 { PARTIAL } else { status })
        }
        Err(error) => {
            waits(ui, Counted { run: view, changes: counts });
            Err(error.into())
        }
    }
}

fn asked(ui: &mut Ui, counts: Option<IsolatedCounts>) -> bool {
    let changed = counts.map_or_else(|| format!("more than {FEW} paths"), words);
    ui.confirm(&format!("The command changed {changed}. Bring that into the workspace?"))
}

/// Says what waits and how to decide; on stderr, since stdout is the command's.
fn waits(ui: &mut Ui, run: Counted) {
    if ui.json() {
        say(&json(&run));
        return;
    }
    let id = &run.run.short_id;
    let changed = run.changes.map_or_else(String::new, |counts| format!(": {}", words(counts)));
    ui.note(format!(
        "Isolated run {id} waits{changed}. See it with: chronicle isolated diff {id}; then: \
         chronicle isolated commit {id}, or: chronicle isolated discard {id}"
    ));
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("BUG: views are plain data") + "\n"
}

/// `3 paths (1 created, 2 changed)`.
fn words(counts: IsolatedCounts) -> String {
    let IsolatedCounts { created, modified, deleted, .. } = counts;
    let parts = [(created, "created"), (modified, "changed"), (deleted, "deleted")];
    let parts: Vec<_> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    match counts.all() {
        0 => "times only".to_owned(),
        all => format!("{} ({})", count(all, "path"), parts.join(", ")),
    }
}

/// What fails before the command or beside it is the run's failure, but for a refusal.
fn ours(error: CommandError) -> CommandError {
    match error.code {
        "not_isolated" | "in_isolation" => error.of(Kind::NotIsolated),
        _ => error.of(Kind::Run),
    }
}

pub(crate) fn execute(invocation: &mut Invocation, verb: &IsolatedVerb) -> Outcome {
    let mut workspace = invocation.open()?;
    match verb {
        IsolatedVerb::List => list(&mut invocation.ui, &workspace),
        IsolatedVerb::Log => log(&mut invocation.ui, &workspace),
        IsolatedVerb::Show(args) => {
            let run = workspace.isolated_show(args.id.as_deref())?;
            let shown = counted(&workspace, run)?;
            show(&mut invocation.ui, shown);
            Ok(0)
        }
        IsolatedVerb::Diff(args) => show_diff(invocation, &workspace, args),
        IsolatedVerb::Commit(args) => commit(&mut invocation.ui, &mut workspace, args),
        IsolatedVerb::Discard(args) => {
            let gone = workspace.isolated_discard(args.id.as_deref())?;
            if invocation.ui.json() {
                invocation.ui.data(&gone);
            }
            let (id, what) = (&gone.short_id, printable(&gone.summary));
            invocation.ui.note(format!("Discarded isolated run {id} ({what})"));
            Ok(0)
        }
    }
}

fn list(ui: &mut Ui, workspace: &Workspace) -> Outcome {
    let runs = workspace.isolated_runs()?;
    if ui.json() {
        ui.data(&with_schema(serde_json::json!({ "runs": runs })));
        return Ok(0);
    }
    for run in &runs {
        ui.line(line(run, None));
    }
    if runs.is_empty() {
        ui.note("No isolated run waits");
    }
    Ok(0)
}

fn log(ui: &mut Ui, workspace: &Workspace) -> Outcome {
    for run in workspace.isolated_runs()?.into_iter().rev() {
        let Counted { run, changes } = counted(workspace, run)?;
        if ui.json() {
            ui.data(&Counted { run, changes });
        } else {
            ui.line(line(&run, changes));
        }
    }
    Ok(0)
}

/// A run with how much it changed; of one that goes on nobody can tell.
fn counted(workspace: &Workspace, run: IsolatedView) -> Result<Counted, CommandError> {
    let changes = match run.state.as_str() {
        "running" | "committed" | "damaged" => None,
        _ => Some(workspace.isolated_counts(Some(&run.id))?),
    };
    Ok(Counted { run, changes })
}

fn line(run: &IsolatedView, changes: Option<IsolatedCounts>) -> String {
    let status = run.status.map_or_else(String::new, |status| format!(" {status}"));
    let changes = changes.map_or_else(String::new, |counts| format!("  {}", words(counts)));
    let (id, at, state) = (&run.short_id, &run.started_at, &run.state);
    format!("{id}  {at}  {state}{status}{changes}  {}", printable(&run.summary))
}

fn show(ui: &mut Ui, shown: Counted) {
    if ui.json() {
        ui.data(&shown);
        return;
    }
    ui.line(line(&shown.run, shown.changes));
    ui.line(format!("Layer: {}", printable(&shown.run.layer)));
}

fn show_diff(
    invocation: &mut Invocation,
    workspace: &Workspace,
    args: &IsolatedDiffArgs,
) -> Outcome {
    let paths = invocation.paths(workspace, &args.paths)?;
    let found = workspace.isolated_diff(args.id.as_deref(), &paths, args.patch)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&found);
        return Ok(0);
    }
    let paint = ui.paint();
    if args.patch {
        ui.print(&diff::patches(&found, paint));
    } else if args.name_only {
        ui.print(&diff::names(&found));
    } else {
        ui.print(&diff::stat(&found, paint));
    }
    Ok(0)
}

fn commit(ui: &mut Ui, workspace: &mut Workspace, args: &IsolatedCommitArgs) -> Outcome {
    let (id, request) = (args.run.id.as_deref(), request(args));
    if args.dry_run {
        let planned = workspace.isolated_plan(id, &request)?;
        if ui.json() {
            ui.data(&planned);
        } else {
            let paint = ui.paint();
            ui.print(&plan::plan(&planned, paint));
            ui.note("Nothing was changed");
        }
        return Ok(0);
    }
    let view = workspace.isolated_show(id)?;
    match workspace.isolated_commit(Some(&view.id), &request, &mut |_| true) {
        Ok(done) => {
            if ui.json() {
                ui.data(&done);
            } else {
                let paint = ui.paint();
                ui.print(&plan::plan(&done.plan, paint));
                ui.print(&plan::left_over(&done, paint));
                report(ui, &view, &done);
            }
            Ok(if done.partial { PARTIAL } else { 0 })
        }
        Err(error) => {
            if matches!(&error, Error::Stopped(Stop::Conflict(_))) && !ui.json() {
                show_conflicts(ui, workspace, &view, &request);
            }
            Err(error.into())
        }
    }
}

fn request(args: &IsolatedCommitArgs) -> CommitRequest {
    CommitRequest {
        on_conflict: match args.on_conflict {
            ConflictWay::Stop => OnConflict::Stop,
            ConflictWay::KeepMine => OnConflict::KeepMine,
            ConflictWay::Replace => OnConflict::Replace,
        },
        git: args.git.map(|way| match way {
            GitWay::Keep => GitChoice::Keep,
            GitWay::Restore => GitChoice::Restore,
        }),
        filtered: match args.filtered {
            FilteredWay::Bring => FilteredChoice::Bring,
            FilteredWay::Leave => FilteredChoice::Leave,
        },
        wait: args.wait,
    }
}

/// Names both sides of every conflict; the error itself names only the paths.
fn show_conflicts(
    ui: &Ui,
    workspace: &mut Workspace,
    view: &IsolatedView,
    request: &CommitRequest,
) {
    let Ok(planned) = workspace.isolated_plan(Some(&view.id), request) else { return };
    let (write, merge, delete) = (Vec::new(), Vec::new(), Vec::new());
    let conflicts = PlanView { write, merge, delete, keep: Vec::new(), ..planned };
    say(&plan::plan(&conflicts, Paint { color: false, ..ui.paint() }));
}

fn report(ui: &mut Ui, view: &IsolatedView, done: &RewindReport) {
    let id = &view.short_id;
    if done.changed == 0 {
        ui.note(format!("Already committed, or nothing to change: isolated run {id}"));
        return;
    }
    let files = count(done.changed, "file");
    let back = format!("Take back with: chronicle undo {id}");
    ui.note(format!("Committed isolated run {id} ({files}). {back}"));
    if done.partial {
        ui.note(format!(
            "Not everything was brought: see the paths above. The rest is kept until: chronicle \
             isolated discard {id}"
        ));
    }
}
