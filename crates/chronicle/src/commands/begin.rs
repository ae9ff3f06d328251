//! `chronicle begin`: opens a transaction.

use super::Invocation;
use crate::error::Outcome;
use crate::render::short;

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let transaction = invocation.open()?.begin()?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&transaction);
        return Ok(0);
    }
    let id = short(&transaction.id);
    ui.line(id);
    ui.note(format!("Transaction {id} is open. Take back with: chronicle rollback {id}"));
    Ok(0)
}
