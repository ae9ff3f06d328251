//! `chronicle grep`: lines in every version of every file.

use chronicle_core::GrepMatch;

use super::Invocation;
use crate::cli::GrepArgs;
use crate::error::{CommandError, Outcome};
use crate::render::log;

pub(crate) fn execute(invocation: &mut Invocation, args: &GrepArgs) -> Outcome {
    let found = search(invocation, args).map_err(CommandError::where_one_is_an_answer)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        found.iter().for_each(|found| ui.data(found));
    } else {
        let paint = ui.paint();
        ui.print(&log::matches(&found, paint));
    }
    Ok(u8::from(found.is_empty()))
}

fn search(invocation: &Invocation, args: &GrepArgs) -> Result<Vec<GrepMatch>, CommandError> {
    Ok(invocation.open()?.grep(&args.pattern, args.path.as_deref())?)
}
