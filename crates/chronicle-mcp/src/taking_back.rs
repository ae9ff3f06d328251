//! Preview, and the four tools that apply one: rewind, undo, rollback, redo.

use chronicle_core::{
    Error, GitChoice, OnConflict, PlanView, RewindKind, RewindReport, RewindRequest, Stop,
    Workspace,
};
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::answer::{Answer, json_of, shorten};
use crate::arguments::{self, Action, Apply, Preview};
use crate::own::{Own, newest_work};
use crate::refusal::Refusal;
use crate::server::Call;
use crate::words;

/// How many paths of each list of a plan are named.
const PATHS_MOST: usize = 100;

/// What the command can do and a model may not: the argument, its value, and why.
const FOR_PEOPLE: [(&str, Option<&str>); 8] = [
    ("exact", None),
    ("all_sessions", None),
    ("shared", None),
    ("take_shared", None),
    ("recreate_root", None),
    ("hunks", None),
    ("on_conflict", Some("replace")),
    ("git", Some("restore")),
];

/// Plans without changing anything.
pub(crate) fn preview(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    refuse_what_is_for_people(&given)?;
    let given: Preview = arguments::read(given)?;
    let mut workspace = call.open()?;
    let own = call.own(&workspace)?;
    // The work that is meant may be this very turn's, and not recorded yet.
    workspace.settle()?;
    let request = request(call, &workspace, &own, &given)?;
    let plan = workspace.plan(&request)?;
    if own.is_known() {
        own.refuse_others(&plan.authors)?;
        call.previews.remember(&plan.plan_id, given.action);
    }
    let text = words::plan(&plan, given.action, own.is_known());
    let mut value = json_of(&plan);
    shorten_plan(&mut value);
    value["action"] = given.action.word().into();
    value["can_apply"] = own.is_known().into();
    Ok(Answer { value, text })
}

fn refuse_what_is_for_people(given: &JsonObject) -> Result<(), Refusal> {
    let asked = |(name, value): &&(&str, Option<&str>)| match (given.get(*name), value) {
        (None | Some(Value::Null | Value::Bool(false)), _) => false,
        (Some(said), Some(value)) => said == value,
        (Some(_), None) => true,
    };
    let Some((name, value)) = FOR_PEOPLE.iter().find(asked) else { return Ok(()) };
    let said = value.map(|value| format!(" {value}")).unwrap_or_default();
    let message = format!("{name}{said} could take back what others did, so only a person may");
    Err(Refusal::new("not_allowed", message)
        .hinted("Leave it out, or ask the person to use the chronicle command"))
}

fn request(
    call: &Call<'_>,
    workspace: &Workspace,
    own: &Own,
    given: &Preview,
) -> Result<RewindRequest, Refusal> {
    let target = given.target.as_deref();
    let session = match own.is_known() {
        true => Some(own.choose(workspace, given.session.as_deref(), target)?),
        false => given.session.clone(),
    };
    let mut request = RewindRequest::new(kind(workspace, session.as_deref(), given)?);
    request.session = session.filter(|_| given.action == Action::Rewind);
    request.paths = call.paths(workspace, &given.paths)?;
    request.touch = given.touch;
    request.git = given.git.map(|_| GitChoice::Keep);
    if given.on_conflict == Some(arguments::ConflictWay::KeepMine) {
        request.on_conflict = OnConflict::KeepMine;
    }
    Ok(request)
}

fn kind(
    workspace: &Workspace,
    session: Option<&str>,
    given: &Preview,
) -> Result<RewindKind, Refusal> {
    let missing = |what| {
        let message = format!("action {} needs a target: {what}", given.action.word());
        Err(Refusal::usage(message))
    };
    Ok(match (given.action, given.target.clone(), session) {
        (Action::Rewind, Some(target), _) => RewindKind::Rewind { target },
        (Action::Rewind, None, _) => return missing("a moment, like before:turn:3"),
        (Action::Rollback, Some(id), _) => RewindKind::Rollback { id },
        (Action::Rollback, None, _) => return missing("a snapshot or a transaction"),
        (Action::Undo, None, Some(session)) => {
            RewindKind::Undo { what: Some(newest_work(workspace, session)?) }
        }
        (Action::Undo, what, _) => RewindKind::Undo { what },
        (Action::Redo, None, _) => RewindKind::Redo,
        (Action::Redo, Some(_), _) => {
            return Err(Refusal::usage("action redo takes no target: it is the newest rewind"));
        }
    })
}

pub(crate) fn rewind(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    apply(call, given, Action::Rewind)
}

pub(crate) fn undo(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    apply(call, given, Action::Undo)
}

pub(crate) fn rollback(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    apply(call, given, Action::Rollback)
}

pub(crate) fn redo(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    apply(call, given, Action::Redo)
}

/// Applies a plan that was shown, if it still is what was shown and touches own work only.
fn apply(call: &Call<'_>, given: JsonObject, action: Action) -> Result<Answer, Refusal> {
    let given: Apply = arguments::read(given)?;
    call.refuse_when_off()?;
    let mut workspace = call.open()?;
    let own = call.own(&workspace)?;
    own.require()?;
    let id = call.previews.take(given.plan_id.as_deref(), action)?;
    match apply_plan(call, &mut workspace, &own, &id) {
        Ok(done) => Ok(report(done, action)),
        Err(refusal) => {
            if refusal.code == "busy" {
                // Nothing happened, and the plan may still hold when the other one is done.
                call.previews.remember(&id, action);
            }
            Err(refusal)
        }
    }
}

fn apply_plan(
    call: &Call<'_>,
    workspace: &mut Workspace,
    own: &Own,
    id: &str,
) -> Result<RewindReport, Refusal> {
    let mut refused = None;
    let mut confirm = |plan: &PlanView| {
        // Under the lock now: whose work it is may have changed since it was shown.
        refused = own.refuse_others(&plan.authors).err();
        refused.is_none() && !(call.cancelled)()
    };
    let request = RewindRequest::new(RewindKind::Plan { id: id.to_owned() });
    match workspace.rewind(&request, &mut confirm) {
        Err(Error::Stopped(Stop::NotConfirmed(_))) => Err(refused.unwrap_or_else(|| {
            Refusal::new("cancelled", "Cancelled").hinted("Nothing was changed")
        })),
        done => Ok(done?),
    }
}

fn report(done: RewindReport, action: Action) -> Answer {
    let text = words::report(&done, action);
    let mut value = json_of(&done);
    shorten_plan(&mut value["plan"]);
    shorten(&mut value, "unexpected", PATHS_MOST);
    shorten(&mut value, "aside", PATHS_MOST);
    Answer { value, text }
}

fn shorten_plan(plan: &mut Value) {
    let lists = ["write", "delete", "merge", "keep", "conflict", "unknown", "git", "irreversible"];
    for field in lists.into_iter().chain(["shared", "stale_output", "runs_by_itself", "authors"]) {
        shorten(plan, field, PATHS_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(given: Value, refused: bool) {
        let given = given.as_object().cloned().unwrap();
        let found = refuse_what_is_for_people(&given);
        assert_eq!(found.is_err(), refused, "{given:?}");
    }

    #[test]
    fn what_could_hit_others_is_for_people() {
        check(json!({ "exact": true }), true);
        check(json!({ "all_sessions": true }), true);
        check(json!({ "on_conflict": "replace" }), true);
        check(json!({ "git": "restore" }), true);
        check(json!({ "exact": false, "all_sessions": null }), false);
        check(json!({ "on_conflict": "keep-mine", "git": "keep" }), false);
    }
}
