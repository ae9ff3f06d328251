//! Who the model is: the sessions whose work it may take back.

use chronicle_core::{Error, Process, Result, Workspace};

/// The words that a plan uses for authors that are no session.
const RESERVED: [&str; 3] = ["person", "shared", "chronicle"];

/// Tells the sessions of the model that this server works for.
///
/// Asked at every call, since an agent may begin a new session while its server runs on.
pub trait WhoAmI: Send + Sync {
    /// The keys of its sessions; none if that is not known.
    fn sessions(&self, workspace: &Workspace) -> Result<Vec<String>>;
}

/// The sessions that whoever started the server named.
#[derive(Debug, Clone, Default)]
pub struct GivenSessions(Vec<String>);

impl GivenSessions {
    /// Takes the keys, unless one is a word by which plans name somebody else.
    pub fn new(keys: Vec<String>) -> Result<Self> {
        match keys.iter().find(|key| key.is_empty() || RESERVED.contains(&&key[..])) {
            Some(key) => Err(Error::Usage(format!("{key:?} cannot be the key of a session"))),
            None => Ok(Self(keys)),
        }
    }
}

impl WhoAmI for GivenSessions {
    fn sessions(&self, _: &Workspace) -> Result<Vec<String>> {
        Ok(self.0.clone())
    }
}

/// The sessions of the agent that started this process, as its hooks recorded them.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionsOfParents;

impl WhoAmI for SessionsOfParents {
    fn sessions(&self, workspace: &Workspace) -> Result<Vec<String>> {
        workspace.sessions_of(&Process::ancestors())
    }
}
