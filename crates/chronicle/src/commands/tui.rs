//! `chronicle tui`: the workspace in a terminal.

use chronicle_tui::{Options, TuiError};

use super::Invocation;
use crate::cli::TuiArgs;
use crate::environment;
use crate::error::{CommandError, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, TuiArgs {}: &TuiArgs) -> Outcome {
    if invocation.ui.json() {
        return Err(CommandError::usage("This is for people: there is no --json").hinted(
            "The same as data: chronicle log --json, diff --json, rewind --dry-run --json",
        ));
    }
    let options = Options {
        home: crate::bucket::home()?,
        directory: invocation.directory.clone(),
        color: !environment::no_color(),
        off: environment::is_off(),
    };
    chronicle_tui::run(&options)?;
    Ok(0)
}

impl From<TuiError> for CommandError {
    fn from(error: TuiError) -> Self {
        match error {
            TuiError::Workspace(error) => error.into(),
            TuiError::Terminal(error) => Self::io("Could not use the terminal", error),
            other => Self::usage(other.to_string())
                .hinted("Without one: chronicle log, chronicle diff, chronicle rewind"),
        }
    }
}
