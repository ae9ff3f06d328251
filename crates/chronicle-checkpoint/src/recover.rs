//! What a process that died in the middle left behind: finished or taken back by whoever starts next.

use chronicle_core::{CheckpointGuard, SnapshotId, Workspace};

use crate::declare::Plan;
use crate::driver::{Aside, End};
use crate::durable;
use crate::error::{Error, Result, sentence};
use crate::freeze::reopen;
use crate::kept;
use crate::restore::{Job, Phase, State};

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// In words: which restore, and whether it was finished or taken back.
    pub words: String,
    /// What was left beside.
    pub asides: Vec<Aside>,
}

/// Finishes or takes back what an earlier process left; nothing while another is at work.
pub fn recover(workspace: &mut Workspace) -> Result<Option<Recovered>> {
    let Some(guard) = workspace.checkpoint_guard()? else { return Ok(None) };
    recover_held(&guard, workspace)
}

/// Whether anything was left behind, as far as two file names tell.
pub fn is_left(workspace: &Workspace) -> bool {
    let place = workspace.checkpoint_directory();
    State::path(&place).exists() || place.join("frozen").exists()
}

pub(crate) fn recover_held(
    _guard: &CheckpointGuard,
    workspace: &mut Workspace,
) -> Result<Option<Recovered>> {
    let place = workspace.checkpoint_place()?;
    let state: Option<State> = durable::read(&State::path(&place))?;
    let recovered = match state {
        Some(state) => Some(go_on(workspace, state)?),
        None => None,
    };
    // Admission comes last.
    let root = workspace.root().to_owned();
    if reopen(&place, &root)? && recovered.is_none() {
        let words = "A checkpoint was interrupted in its freeze: everything runs again, and there is \
                     no checkpoint of it";
        return Ok(Some(Recovered { words: words.to_owned(), asides: Vec::new() }));
    }
    Ok(recovered)
}

fn go_on(workspace: &mut Workspace, state: State) -> Result<Recovered> {
    let plan = Plan::accepted(workspace)?;
    let place = workspace.checkpoint_place()?;
    let store = workspace.content_store()?;
    let find = |hex: &str| {
        let id: SnapshotId = hex.parse().map_err(|()| Error::Unknown(hex.to_owned()))?;
        let found = workspace.checkpoints()?.into_iter().find(|it| it.id == id);
        found.ok_or_else(|| Error::Unknown(hex.to_owned()))
    };
    let record = find(&state.checkpoint)?;
    let lock = kept::load(workspace, &record)?;
    let present = match &state.present {
        Some(present) => Some(kept::load(workspace, &find(present)?)?),
        None => None,
    };
    let (which, phase) = (record.id.short(), state.phase);
    let mut job = Job { store: &store, place, plan: &plan, lock, present, state };
    let finished =
        format!("The restore of checkpoint {which}, which was interrupted, was finished");
    let taken_back = format!(
        "The restore of checkpoint {which}, which was interrupted, was taken back: everything is as it \
         was before"
    );
    let (words, asides) = match phase {
        Phase::Beside => (taken_back, job.end(workspace, End::Old)?),
        Phase::Back => {
            job.back(workspace)?;
            (taken_back, Vec::new())
        }
        Phase::Clearing => (finished, job.end(workspace, End::New)?),
        Phase::Forward => match job.forward(workspace) {
            Ok(_) => {
                job.note(workspace, record.id)?;
                (finished, job.end(workspace, End::New)?)
            }
            Err(error) => {
                job.back(workspace)?;
                (format!("{taken_back} ({})", sentence(&error)), Vec::new())
            }
        },
    };
    Ok(Recovered { words, asides })
}
