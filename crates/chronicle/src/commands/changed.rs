//! `chronicle changed`: whether anything changed, as an exit status.

use super::Invocation;
use crate::cli::ChangedArgs;
use crate::error::{CommandError, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, args: &ChangedArgs) -> Outcome {
    let changed = ask(invocation, args).map_err(CommandError::where_one_is_an_answer)?;
    if invocation.ui.json() {
        let answer = serde_json::json!({ "schema": chronicle_core::SCHEMA, "changed": changed });
        invocation.ui.data(&answer);
    }
    Ok(u8::from(changed))
}

fn ask(invocation: &Invocation, args: &ChangedArgs) -> Result<bool, CommandError> {
    Ok(invocation.open()?.changed(args.target.as_deref())?)
}
