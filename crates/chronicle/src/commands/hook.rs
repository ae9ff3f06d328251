//! `chronicle hook`: the agents' side; see `crate::hook`.

use std::time::Duration;

use crate::agent::Agent;
use crate::cli::HookArgs;
use crate::error::{CommandError, Outcome};
use crate::hook::{Hook, run};
use crate::ui::say;

pub(crate) fn execute(args: &HookArgs) -> Outcome {
    let Some(agent) = Agent::named(&args.agent) else {
        let known: Vec<_> = Agent::ALL.iter().map(|agent| agent.name()).collect();
        let why = format!("No agent is called {:?}; known are {}", args.agent, known.join(", "));
        say(&CommandError::usage(why).text());
        // Status 2 would stop the action on purpose.
        return Ok(1);
    };
    let hook = Hook {
        agent,
        home: args.home.clone(),
        strict: args.strict,
        budget: args.budget.map(Duration::from_millis),
    };
    Ok(run(&hook))
}
