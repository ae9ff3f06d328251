//! `chronicle mcp`: serves the workspace to a model.

use std::sync::Arc;

use chronicle_mcp::{
    GivenSessions, Options, ServeError, SessionsOfParents, WhoAmI, serve_http, serve_stdio,
};

use super::Invocation;
use crate::cli::McpArgs;
use crate::environment;
use crate::error::{CommandError, Kind, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, args: McpArgs) -> Outcome {
    // Over HTTP it is not the parent that asks, so only what was said counts.
    let who: Arc<dyn WhoAmI> = match args.sessions.is_empty() && args.http.is_none() {
        true => Arc::new(SessionsOfParents),
        false => Arc::new(GivenSessions::new(args.sessions)?),
    };
    let directory = invocation.directory.clone();
    let options =
        Options { home: crate::bucket::home()?, directory, who, off: environment::is_off() };
    match args.http {
        None => serve_stdio(options)?,
        Some(address) => serve_http(options, address, |url, token| {
            invocation.ui.note(format!("Serving {url}"));
            invocation.ui.note(format!("Clients need the bearer token in {}", token.display()));
        })?,
    }
    Ok(0)
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        let (kind, code, hint) = match &error {
            ServeError::NotLoopback(_) => {
                (Kind::Usage, "usage", Some("Give an address like 127.0.0.1:8765"))
            }
            ServeError::Listen(..) => (Kind::Failed, "io", Some("Port 0 takes a free port")),
            ServeError::Token(..) => {
                (Kind::Failed, "io", Some("Run chronicle init first; the file must be yours, 0600"))
            }
            _ => (Kind::Failed, "io", None),
        };
        let hints = hint.map(str::to_owned).into_iter().collect();
        Self { kind, code, error: error.into(), hints }
    }
}
