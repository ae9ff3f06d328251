//! How a workspace and its history stand, and verifying it while others go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronicle_core::{SCHEMA, Workspace};

use crate::answer::Answer;
use crate::call::Call;
use crate::problem::Problem;
use crate::shapes::{Health, Verification, VerifyBody};

/// How many conflicts are named.
const CONFLICTS_MOST: usize = 200;
/// How many records about checkpoints.
const CHECKPOINTS_MOST: usize = 50;

/// The verifications of this server, by workspace.
#[derive(Clone, Default)]
pub(crate) struct Verifying(Arc<Mutex<HashMap<String, Verification>>>);

impl Verifying {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Verification>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, workspace: &str) -> Verification {
        let never = || Verification { state: "never".to_owned(), ..Verification::default() };
        self.all().get(workspace).cloned().unwrap_or_else(never)
    }

    /// Starts one, unless one runs.
    fn start(&self, workspace: Workspace, deep: bool) -> Verification {
        let id = workspace.id().hex();
        let mut all = self.all();
        if let Some(running) = all.get(&id).filter(|it| it.state == "running") {
            return running.clone();
        }
        let begun = Verification { state: "running".to_owned(), ..Verification::default() };
        all.insert(id.clone(), begun.clone());
        drop(all);
        let verifying = self.clone();
        std::thread::spawn(move || {
            let progress = |done, total| {
                let state = "running".to_owned();
                let now = Verification { state, done, total, ..Verification::default() };
                verifying.all().insert(id.clone(), now);
            };
            let verified = workspace.verify(deep, &progress);
            let mut end = verifying.of(&id);
            match verified {
                Ok(report) => (end.state, end.report) = ("verified".to_owned(), Some(report)),
                Err(error) => {
                    (end.state, end.problem) = ("failed".to_owned(), Some(error.to_string()));
                }
            }
            verifying.all().insert(id.clone(), end);
        });
        begun
    }
}

pub(crate) fn health(call: &Call<'_>) -> Result<Answer, Problem> {
    let mut workspace = call.open()?;
    let conflicts = workspace.conflicts()?.into_iter().take(CONFLICTS_MOST);
    let conflicts: Vec<_> = conflicts.collect();
    let conflicts = conflicts.iter().map(|conflict| workspace.rejected_view(conflict));
    let conflicts = conflicts.collect::<Result<_, _>>()?;
    let checkpoints = workspace.checkpoint_notes()?;
    Answer::json(&Health {
        schema: SCHEMA,
        status: workspace.status()?,
        budget_bytes: workspace.settings()?.budget,
        excess_bytes: workspace.excess()?,
        retention: workspace.prune_by_rules(true)?,
        verification: call.site.verifying().of(&workspace.id().hex()),
        replicas: workspace.replica_views()?,
        conflicts,
        checkpoints: checkpoints.into_iter().rev().take(CHECKPOINTS_MOST).collect(),
    })
}

pub(crate) fn verification(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    Answer::json(&call.site.verifying().of(&workspace.id().hex()))
}

pub(crate) fn verify(call: &Call<'_>) -> Result<Answer, Problem> {
    let given: VerifyBody = call.read()?;
    Answer::json(&call.site.verifying().start(call.open()?, given.deep))
}
