//! `chronicle turn`: opens and closes turns of the conversation.

use chronicle_core::TurnRequest;

use super::{Invocation, with_schema};
use crate::cli::{TurnArgs, TurnVerb};
use crate::error::Outcome;

pub(crate) fn execute(invocation: &mut Invocation, verb: TurnVerb) -> Outcome {
    let mut workspace = invocation.open()?;
    let (turn, word) = match verb {
        TurnVerb::Start(args) => (workspace.turn_start(&request(args))?, "is open"),
        TurnVerb::End(args) => (workspace.turn_end(&request(args))?, "has ended"),
    };
    if turn.end_seq.is_some() {
        super::prune::start_if_due(&workspace);
        super::push::leave(&crate::bucket::home()?, &workspace);
    }
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&with_schema(&turn));
        return Ok(0);
    }
    let number = turn.number;
    ui.line(format!("turn:{number}"));
    ui.note(format!("Turn {number} {word}. Take it back with: chronicle undo turn:{number}"));
    Ok(0)
}

fn request(args: TurnArgs) -> TurnRequest {
    TurnRequest {
        key: args.key,
        session: args.session,
        prompt: args.prompt,
        agent: args.agent,
        by_hook: false,
    }
}
