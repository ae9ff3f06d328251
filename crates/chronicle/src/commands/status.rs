//! `chronicle status`: how the workspace stands.

use super::Invocation;
use crate::error::Outcome;
use crate::render::{status, time};

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let found = invocation.open()?.status()?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&found);
    } else {
        let paint = ui.paint();
        ui.print(&status::status(&found, time::now(), paint));
    }
    Ok(0)
}
