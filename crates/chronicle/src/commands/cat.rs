//! `chronicle cat`: one file as it was, byte for byte.

use chronicle_core::Error;

use super::Invocation;
use crate::cli::CatArgs;
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, args: &CatArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    let path = invocation.path(&workspace, &args.path)?;
    if let Some(target) = &args.at {
        let moment = workspace.resolve(target)?;
        invocation.ui.note(format!("At {moment}"));
    }
    match workspace.cat(&path, args.at.as_deref(), &mut invocation.ui) {
        // Nobody reads on: that is no failure of ours.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        done => Ok(done.map(|()| 0)?),
    }
}
