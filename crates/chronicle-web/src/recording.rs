//! What a harness says while it works: turns, actions before they start, and what became of them.

use std::path::{Path, PathBuf};

use chronicle_core::{SnapshotRequest, TurnRequest, Workspace, WorkspacePath};

use crate::answer::Answer;
use crate::call::{Call, exact_path, path_in};
use crate::problem::Problem;
use crate::shapes::{SnapshotBody, TurnBody};

/// The longest text that goes into a record.
const WORDS_MOST: usize = 4 << 10;
/// How many paths one request may name.
const PATHS_MOST: usize = 10_000;

/// Paths as a body gives them.
pub(crate) fn paths(
    workspace: &Workspace,
    plain: &[String],
    exact: &[String],
) -> Result<Vec<WorkspacePath>, Problem> {
    if plain.len() + exact.len() > PATHS_MOST {
        return Err(Problem::usage(format!("At most {PATHS_MOST} paths can be named")));
    }
    let plain = plain.iter().map(|path| Ok(PathBuf::from(path)));
    let all = plain.chain(exact.iter().map(|path| exact_path(path)));
    all.map(|path| path.and_then(|path| path_in(workspace, &path))).collect()
}

/// Refuses words that would make a record large.
fn short(words: &[Option<&str>]) -> Result<(), Problem> {
    match words.iter().flatten().any(|words| words.len() > WORDS_MOST || words.contains('\0')) {
        true => Err(Problem::usage(format!("Words may have {WORDS_MOST} bytes and no NUL"))),
        false => Ok(()),
    }
}

pub(crate) fn snapshot(call: &Call<'_>) -> Result<Answer, Problem> {
    let given: SnapshotBody = call.read()?;
    short(&[
        Some(&given.action),
        given.summary.as_deref(),
        given.tool.as_deref(),
        given.call_id.as_deref(),
        given.session.as_deref(),
        given.turn_key.as_deref(),
        given.agent.as_deref(),
    ])?;
    let mut workspace = call.open()?;
    let to = given.to.as_deref().map(|to| path_in(&workspace, Path::new(to))).transpose()?;
    let request = SnapshotRequest {
        paths: paths(&workspace, &given.paths, &given.paths_b64)?,
        action: given.action,
        to,
        summary: given.summary,
        tool: given.tool,
        call_id: given.call_id,
        session: given.session,
        turn_key: given.turn_key,
        agent: given.agent,
        transaction: None,
    };
    Answer::json(&workspace.snapshot(&request)?)
}

pub(crate) fn settle(call: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&call.open()?.settle()?)
}

fn turn(call: &Call<'_>) -> Result<TurnRequest, Problem> {
    let given: TurnBody = call.read()?;
    short(&[given.key.as_deref(), given.session.as_deref(), given.agent.as_deref()])?;
    let TurnBody { key, session, prompt, agent } = given;
    Ok(TurnRequest { key, session, prompt, agent, by_hook: false })
}

pub(crate) fn turn_start(call: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&call.open()?.turn_start(&turn(call)?)?)
}

pub(crate) fn turn_end(call: &Call<'_>) -> Result<Answer, Problem> {
    Answer::json(&call.open()?.turn_end(&turn(call)?)?)
}
