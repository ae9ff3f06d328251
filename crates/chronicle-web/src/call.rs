//! One request that is worked on: what it said, and the workspace it is about.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use chronicle_core::{Seq, Workspace, WorkspaceId, WorkspacePath, from_base64};
use http::HeaderMap;
use serde::de::DeserializeOwned;

use crate::access::Caller;
use crate::problem::Problem;
use crate::route::Said;
use crate::site::Site;

/// One request on its thread.
pub(crate) struct Call<'a> {
    pub(crate) site: &'a Site,
    pub(crate) said: &'a Said,
    pub(crate) body: &'a [u8],
    pub(crate) headers: &'a HeaderMap,
    pub(crate) caller: Option<Caller>,
    /// Nobody waits for the answer any more.
    pub(crate) gone: &'a AtomicBool,
}

impl Call<'_> {
    /// What was said, if it was.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.said.get(name).map(String::as_str)
    }

    /// What must be said.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, Problem> {
        self.text(name).ok_or_else(|| Problem::usage(format!("{name} is missing")))
    }

    /// A number that was checked when it was read.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The same as a count, or another one where nothing was said.
    pub(crate) fn count(&self, name: &str, usual: usize) -> usize {
        self.number(name).and_then(|number| usize::try_from(number).ok()).unwrap_or(usual)
    }

    pub(crate) fn truth(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    pub(crate) fn seq(&self, name: &str) -> Option<Seq> {
        self.number(name).map(Seq)
    }

    /// Whether nobody waits any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// The body as what it should be.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body = if self.body.is_empty() { b"{}" } else { self.body };
        serde_json::from_slice(body)
            .map_err(|error| Problem::usage(format!("The body is not what is needed: {error}")))
    }

    /// Opens the workspace anew: it costs little, and nothing of an earlier request can be stale.
    pub(crate) fn open(&self) -> Result<Workspace, Problem> {
        self.site.open(self.needed("workspace")?)
    }

    /// The path that the query names, in text or exactly.
    pub(crate) fn path(&self, workspace: &Workspace) -> Result<WorkspacePath, Problem> {
        let path = self.maybe_path(workspace, "path", "path_b64")?;
        path.ok_or_else(|| Problem::usage("path is missing"))
    }

    pub(crate) fn maybe_path(
        &self,
        workspace: &Workspace,
        text: &str,
        exact: &str,
    ) -> Result<Option<WorkspacePath>, Problem> {
        let given = match (self.text(text), self.text(exact)) {
            (Some(_), Some(_)) => {
                return Err(Problem::usage(format!("{text} and {exact} exclude one another")));
            }
            (Some(path), None) => PathBuf::from(path),
            (None, Some(path)) => exact_path(path)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(path_in(workspace, &given)?))
    }
}

/// The bytes of a path, from base64.
pub(crate) fn exact_path(text: &str) -> Result<PathBuf, Problem> {
    let bytes = from_base64(text).filter(|bytes| !bytes.contains(&0));
    let bytes = bytes.ok_or_else(|| Problem::usage("path_b64 is not the base64 of a path"))?;
    Ok(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// A path of the workspace; relative ones start at its directory.
pub(crate) fn path_in(workspace: &Workspace, given: &Path) -> Result<WorkspacePath, Problem> {
    Ok(workspace.path(given, workspace.root())?)
}

/// The id that text names.
pub(crate) fn workspace_id(text: &str) -> Option<WorkspaceId> {
    let digits = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or(0);
    digits.then(|| WorkspaceId(std::array::from_fn(byte)))
}
