//! What rewind, rollback, undo and redo share: the request, the question, the report.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use chronicle_core::{
    Error, GitChoice, OnConflict, PlanView, RewindKind, RewindReport, RewindRequest, Stop,
    Workspace, WorkspacePath,
};

use super::Invocation;
use crate::cli::{ConflictWay, GitWay, SharedWay, TakingBackArgs};
use crate::error::{CommandError, Outcome};
use crate::render::{Paint, count, plan, printable, short};
use crate::ui::{self, Ui, say};

/// Exit status when something was left that the person should look at.
const PARTIAL: u8 = 4;

/// What is taken back, beyond the moment.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) paths: Vec<WorkspacePath>,
    pub(crate) exact: bool,
    pub(crate) session: Option<String>,
    pub(crate) all_sessions: bool,
    pub(crate) recreate_root: bool,
}

/// Plans, asks where a person should look twice, applies, and says how to go back.
pub(crate) fn take_back(
    invocation: &mut Invocation,
    mut workspace: Workspace,
    kind: RewindKind,
    scope: Scope,
    options: &TakingBackArgs,
) -> Outcome {
    let request = request(invocation, &workspace, kind, scope, options)?;
    if options.dry_run {
        let planned = workspace.plan(&request)?;
        preview(&mut invocation.ui, &planned);
        return Ok(0);
    }
    let mut question = Question::new(&mut invocation.ui, options);
    let done = workspace.rewind(&request, &mut |plan| question.answer(plan));
    let shown = question.shown;
    match done {
        Ok(done) => {
            report(&mut invocation.ui, &request.kind, &done, shown);
            Ok(if done.partial { PARTIAL } else { 0 })
        }
        Err(error) => {
            if matches!(&error, Error::Stopped(Stop::Conflict(_))) {
                show_conflicts(&mut invocation.ui, &mut workspace, &request);
            }
            Err(error.into())
        }
    }
}

fn request(
    invocation: &Invocation,
    workspace: &Workspace,
    kind: RewindKind,
    scope: Scope,
    options: &TakingBackArgs,
) -> Result<RewindRequest, CommandError> {
    let kind = match &options.plan {
        Some(id) => RewindKind::Plan { id: id.clone() },
        None => kind,
    };
    Ok(RewindRequest {
        kind,
        except: Vec::new(),
        paths: scope.paths,
        hunks: hunks(invocation, workspace, &options.hunks)?,
        exact: scope.exact,
        session: scope.session,
        all_sessions: scope.all_sessions,
        recreate_root: scope.recreate_root,
        on_conflict: match options.on_conflict {
            ConflictWay::Stop => OnConflict::Stop,
            ConflictWay::KeepMine => OnConflict::KeepMine,
            ConflictWay::Replace => OnConflict::Replace,
        },
        take_shared: options.shared == SharedWay::Take,
        git: options.git.map(|way| match way {
            GitWay::Keep => GitChoice::Keep,
            GitWay::Restore => GitChoice::Restore,
        }),
        touch: options.touch,
        wait: options.wait,
    })
}

fn hunks(
    invocation: &Invocation,
    workspace: &Workspace,
    given: &[OsString],
) -> Result<Vec<(WorkspacePath, Vec<usize>)>, CommandError> {
    let read = |word: &OsString| {
        let (path, numbers) = hunk(word).ok_or_else(|| {
            let shown = word.to_string_lossy();
            CommandError::usage(format!("{shown:?} is not PATH:N[,N] with numbers from 1"))
        })?;
        Ok((invocation.path(workspace, &path)?, numbers))
    };
    given.iter().map(read).collect()
}

/// `src/main.rs:1,3` names two hunks; the path may hold colons itself.
/// People count hunks from 1, the library from 0.
fn hunk(word: &OsString) -> Option<(PathBuf, Vec<usize>)> {
    let bytes = word.as_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b':').filter(|end| *end > 0)?;
    let numbers = std::str::from_utf8(&bytes[end + 1..]).ok()?;
    let numbers: Option<Vec<usize>> =
        numbers.split(',').map(|number| number.parse::<usize>().ok()?.checked_sub(1)).collect();
    Some((PathBuf::from(OsString::from_vec(bytes[..end].to_vec())), numbers?))
}

/// Shows where a plan goes before anything changes, and asks where much would go.
struct Question<'u> {
    ui: &'u mut Ui,
    /// Whether there is somebody to ask: not where the plan itself was looked at before.
    asks: bool,
    /// Whether the resolved moment was shown.
    shown: bool,
}

impl<'u> Question<'u> {
    fn new(ui: &'u mut Ui, options: &TakingBackArgs) -> Self {
        let asks = !options.yes && options.plan.is_none() && ui::person_present();
        Self { ui, asks, shown: false }
    }

    fn answer(&mut self, planned: &PlanView) -> bool {
        show_target(self.ui, planned);
        self.shown = true;
        let Some(doubts) = plan::doubts(planned).filter(|_| self.asks) else {
            // Nobody is asked, and nobody goes back over these unknowing.
            if !self.ui.json() {
                say(&plan::irreversible(&planned.irreversible, plain(self.ui)));
            }
            return true;
        };
        say(&plan::plan(planned, plain(self.ui)));
        self.ui.confirm(&format!("This {doubts}. Go on?"))
    }
}

fn show_target(ui: &mut Ui, planned: &PlanView) {
    ui.note(format!("Target: {}", printable(&planned.resolved_target)));
}

/// How to draw on stderr: without colour.
pub(super) fn plain(ui: &Ui) -> Paint {
    Paint { color: false, ..ui.paint() }
}

/// The plan, without applying it.
fn preview(ui: &mut Ui, planned: &PlanView) {
    if ui.json() {
        ui.data(planned);
        return;
    }
    show_target(ui, planned);
    let paint = ui.paint();
    ui.print(&plan::plan(planned, paint));
    ui.line(format!("Plan {}: {}", planned.plan_id, plan::counts(planned)));
    ui.note(format!("Nothing was changed. Apply exactly this with: --plan {}", planned.plan_id));
}

/// Names both sides of every conflict; the error itself names only the paths.
fn show_conflicts(ui: &mut Ui, workspace: &mut Workspace, request: &RewindRequest) {
    if ui.json() || matches!(request.kind, RewindKind::Plan { .. }) {
        return;
    }
    if let Ok(planned) = workspace.plan(request) {
        let conflicts = PlanView {
            write: Vec::new(),
            merge: Vec::new(),
            delete: Vec::new(),
            keep: Vec::new(),
            ..planned
        };
        say(&plan::plan(&conflicts, plain(ui)));
    }
}

fn report(ui: &mut Ui, kind: &RewindKind, done: &RewindReport, shown: bool) {
    if ui.json() {
        ui.data(done);
        return;
    }
    if !shown {
        show_target(ui, &done.plan);
    }
    let paint = ui.paint();
    ui.print(&plan::plan(&done.plan, paint));
    ui.print(&plan::left_over(done, paint));
    ui.note(words(kind, done));
    if !done.plan.shared.is_empty() {
        let shared = count(done.plan.shared.len() as u64, "path");
        ui.note(format!(
            "{shared} changed by several stayed. Take them back too with: --shared take"
        ));
    }
    if done.partial {
        ui.note("Not everything could be done: see the paths above");
    }
}

/// `Rewound to turn 14 (3 files). Take back with: chronicle redo`.
fn words(kind: &RewindKind, done: &RewindReport) -> String {
    let target = printable(&done.plan.resolved_target);
    if done.changed == 0 {
        return format!("Already there: nothing changed ({target})");
    }
    let files = count(done.changed, "file");
    let back = match (kind, &done.id) {
        (RewindKind::Redo, Some(id)) => format!("chronicle undo {}", short(id)),
        _ => "chronicle redo".to_owned(),
    };
    let what = match kind {
        RewindKind::Rewind { .. } => format!("Rewound to {target}"),
        RewindKind::Rollback { .. } => format!("Rolled back to {target}"),
        RewindKind::Undo { .. } => format!("Undone: {target}"),
        RewindKind::Redo => format!("Redone: {target}"),
        RewindKind::Plan { .. } => format!("Applied the plan: {target}"),
    };
    format!("{what} ({files}). Take back with: {back}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::plan::tests::empty;
    use chronicle_core::SCHEMA;

    #[track_caller]
    fn check_hunk(word: &str, expected: Option<(&str, &[usize])>) {
        let expected = expected.map(|(path, numbers)| (PathBuf::from(path), numbers.to_vec()));
        assert_eq!(hunk(&word.into()), expected, "{word}");
    }

    #[test]
    fn hunks_are_numbers_behind_the_last_colon() {
        check_hunk("a:1", Some(("a", &[0])));
        check_hunk("d/a:b:2,3", Some(("d/a:b", &[1, 2])));
        for odd in ["a", "a:", ":1", "a:0", "a:x", "a:1,,2", "a:-1"] {
            check_hunk(odd, None);
        }
    }

    #[test]
    fn every_report_says_how_to_go_back() {
        let done = |changed| RewindReport {
            schema: SCHEMA,
            id: Some("0-0-0-0-abcdefabcdef".into()),
            plan: empty(),
            unexpected: Vec::new(),
            aside: Vec::new(),
            changed,
            partial: false,
        };
        let rewind = RewindKind::Rewind { target: "turn:1".into() };
        assert_eq!(
            words(&rewind, &done(3)),
            "Rewound to after turn 1 (3 files). Take back with: chronicle redo"
        );
        assert_eq!(
            words(&RewindKind::Redo, &done(1)),
            "Redone: after turn 1 (1 file). Take back with: chronicle undo abcdefabcdef"
        );
        assert!(words(&rewind, &done(0)).starts_with("Already there"));
    }
}
