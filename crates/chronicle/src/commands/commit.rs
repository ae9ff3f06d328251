//! `chronicle commit`: closes a transaction and keeps what it did.

use super::Invocation;
use crate::cli::CommitArgs;
use crate::error::Outcome;
use crate::render::{count, short};

pub(crate) fn execute(invocation: &mut Invocation, args: &CommitArgs) -> Outcome {
    let transaction = invocation.open()?.commit(args.id.as_deref())?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&transaction);
        return Ok(0);
    }
    let id = short(&transaction.id);
    let snapshots = count(transaction.snapshots.len() as u64, "snapshot");
    ui.note(format!(
        "Committed transaction {id} ({snapshots}). Take back with: chronicle rollback {id}"
    ));
    Ok(0)
}
