//! Taking back: a plan first, then exactly that plan.

use chronicle_core::{GitChoice, OnConflict, RewindKind, RewindRequest, Workspace, WorkspacePath};

use crate::answer::Answer;
use crate::call::Call;
use crate::problem::Problem;
use crate::recording::paths;
use crate::shapes::{ConflictWay, GitWay, HunksBody, PlanBody, PlanKind};

pub(crate) fn plan(call: &Call<'_>) -> Result<Answer, Problem> {
    let given: PlanBody = call.read()?;
    let mut workspace = call.open()?;
    let request = request(&workspace, &given)?;
    Answer::json(&workspace.plan(&request)?)
}

fn request(workspace: &Workspace, given: &PlanBody) -> Result<RewindRequest, Problem> {
    let mut request = RewindRequest::new(kind(given)?);
    request.paths = paths(workspace, &given.paths, &given.paths_b64)?;
    for hunks in &given.hunks {
        request.hunks.push(chosen(workspace, hunks)?);
    }
    request.on_conflict = match given.on_conflict {
        ConflictWay::Stop => OnConflict::Stop,
        ConflictWay::KeepMine => OnConflict::KeepMine,
        ConflictWay::Replace => OnConflict::Replace,
    };
    request.git = given.git.map(|way| match way {
        GitWay::Keep => GitChoice::Keep,
        GitWay::Restore => GitChoice::Restore,
    });
    request.session.clone_from(&given.session);
    request.exact = given.exact;
    request.all_sessions = given.all_sessions;
    request.take_shared = given.take_shared;
    request.touch = given.touch;
    Ok(request)
}

fn kind(given: &PlanBody) -> Result<RewindKind, Problem> {
    let needed = |what: &str| Problem::usage(format!("target is missing: {what}"));
    Ok(match (given.kind, given.target.clone()) {
        (PlanKind::Rewind, Some(target)) => RewindKind::Rewind { target },
        (PlanKind::Rewind, None) => return Err(needed("a moment, like before:turn:3")),
        (PlanKind::Rollback, Some(id)) => RewindKind::Rollback { id },
        (PlanKind::Rollback, None) => return Err(needed("a snapshot or a transaction")),
        (PlanKind::Undo, what) => RewindKind::Undo { what },
        (PlanKind::Redo, None) => RewindKind::Redo,
        (PlanKind::Redo, Some(_)) => {
            return Err(Problem::usage("A redo has no target: it is the newest rewind"));
        }
    })
}

fn chosen(
    workspace: &Workspace,
    given: &HunksBody,
) -> Result<(WorkspacePath, Vec<usize>), Problem> {
    let plain: Vec<_> = given.path.iter().cloned().collect();
    let exact: Vec<_> = given.path_b64.iter().cloned().collect();
    let mut found = paths(workspace, &plain, &exact)?;
    let (Some(path), true) = (found.pop(), found.is_empty()) else {
        return Err(Problem::usage("Hunks need one path, in path or in path_b64"));
    };
    let number = |number: &u32| {
        let place = number.checked_sub(1).ok_or_else(|| Problem::usage("Hunks count from 1"))?;
        Ok(place as usize)
    };
    let numbers = given.numbers.iter().map(number).collect::<Result<_, Problem>>()?;
    Ok((path, numbers))
}

pub(crate) fn plan_file(call: &Call<'_>) -> Result<Answer, Problem> {
    let mut workspace = call.open()?;
    let path = call.path(&workspace)?;
    Answer::json(&workspace.plan_file(call.needed("plan")?, &path)?)
}

pub(crate) fn apply(call: &Call<'_>) -> Result<Answer, Problem> {
    let mut workspace = call.open()?;
    let id = call.needed("plan")?.to_owned();
    let request = RewindRequest::new(RewindKind::Plan { id });
    // Who shows the plan's id has seen the plan.
    Answer::json(&workspace.rewind(&request, &mut |_| true)?)
}
