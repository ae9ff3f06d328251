//! `chronicle pin`: names a moment.

use super::Invocation;
use crate::cli::PinArgs;
use crate::error::Outcome;
use crate::render::printable;

pub(crate) fn execute(invocation: &mut Invocation, args: &PinArgs) -> Outcome {
    let moment = invocation.open()?.pin(&args.target, &args.name)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        let schema = chronicle_core::SCHEMA;
        ui.data(
            &serde_json::json!({ "schema": schema, "name": args.name, "resolved_target": moment }),
        );
    }
    let name = printable(&args.name);
    ui.note(format!(
        "Pinned {} as {name}. Go there with: chronicle rewind {name}",
        printable(&moment)
    ));
    Ok(0)
}
