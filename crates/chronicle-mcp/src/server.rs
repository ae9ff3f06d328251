//! The server itself: which tools there are, and how a call becomes blocking work and an answer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronicle_core::{Home, Workspace, WorkspacePath};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, InitializeResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::answer::Answer;
use crate::own::Own;
use crate::previews::Previews;
use crate::refusal::Refusal;
use crate::tools::{self, Effect, Kind};
use crate::who::WhoAmI;
use crate::words::printable;

/// How often a long call says how far it is.
const PROGRESS_PERIOD: std::time::Duration = std::time::Duration::from_millis(200);

/// What a model is told about all of this.
const INSTRUCTIONS: &str = "Chronicle records everything that happens to this workspace and can \
    take it back. To look: status, list_turns, list_snapshots, show, diff, search, file_history, \
    read_version. To take back your own work: call preview, read its plan and tell the person what \
    it will do, then call the tool of that action with the plan_id. Work of other sessions and of \
    people is kept; only a person can take that back.";

/// What the server works on, and for whom.
#[derive(Clone)]
pub struct Options {
    /// Where history lies.
    pub home: Home,
    /// The directory whose workspace is served, and that relative paths start from.
    pub directory: PathBuf,
    /// Whose work may be taken back.
    pub who: Arc<dyn WhoAmI>,
    /// Whether nothing may be changed or recorded (`CHRONICLE=off`).
    pub off: bool,
}

/// The server for one workspace; clones share what was previewed.
#[derive(Clone)]
pub struct Server {
    options: Arc<Options>,
    previews: Arc<Previews>,
}

/// One call: everything that its blocking half may use.
pub(crate) struct Call<'a> {
    options: &'a Options,
    pub(crate) previews: &'a Previews,
    pub(crate) progress: &'a (dyn Fn(u64, u64) + Sync),
    pub(crate) cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Call<'_> {
    /// Opens the workspace anew: it costs little, and nothing of an earlier call can be stale.
    pub(crate) fn open(&self) -> Result<Workspace, Refusal> {
        Ok(Workspace::open(&self.options.home, &self.options.directory)?)
    }

    /// What is the model's own.
    pub(crate) fn own(&self, workspace: &Workspace) -> Result<Own, Refusal> {
        Ok(Own::new(self.options.who.sessions(workspace)?))
    }

    /// A path as the model gave it.
    pub(crate) fn path(
        &self,
        workspace: &Workspace,
        given: &str,
    ) -> Result<WorkspacePath, Refusal> {
        Ok(workspace.path(Path::new(given), &self.options.directory)?)
    }

    /// Paths as the model gave them.
    pub(crate) fn paths(
        &self,
        workspace: &Workspace,
        given: &[String],
    ) -> Result<Vec<WorkspacePath>, Refusal> {
        given.iter().map(|path| self.path(workspace, path)).collect()
    }

    pub(crate) fn refuse_when_off(&self) -> Result<(), Refusal> {
        match self.options.off {
            true => Err(Refusal::new("off", "Chronicle is off (CHRONICLE=off): nothing was done")),
            false => Ok(()),
        }
    }
}

impl Server {
    /// A server that has shown nothing yet.
    pub fn new(options: Options) -> Self {
        Self { options: Arc::new(options), previews: Arc::default() }
    }

    /// Starts the blocking half of a call; it ends by itself, whether or not somebody waits.
    fn start(
        &self,
        kind: &'static Kind,
        given: JsonObject,
        progress: watch::Sender<(u64, u64)>,
        context: &RequestContext<RoleServer>,
    ) -> JoinHandle<Result<Answer, Refusal>> {
        let (server, cancelled) = (self.clone(), context.ct.clone());
        tokio::task::spawn_blocking(move || {
            let call = Call {
                options: &server.options,
                previews: &server.previews,
                progress: &|done, total| _ = progress.send((done, total)),
                cancelled: &|| cancelled.is_cancelled(),
            };
            if cancelled.is_cancelled() {
                return Err(was_cancelled());
            }
            (kind.run)(&call, given)
        })
    }

    async fn run(
        &self,
        kind: &'static Kind,
        given: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, Refusal> {
        let (sender, receiver) = watch::channel((0, 0));
        let mut work = self.start(kind, given, sender, context);
        let mut report = std::pin::pin!(report_progress(context, receiver));
        let mut reporting = true;
        loop {
            tokio::select! {
                done = &mut work => return done.unwrap_or_else(|error| Err(failed(&error))),
                () = &mut report, if reporting => reporting = false,
                // What changes the workspace is waited for: its answer must be the truth.
                () = context.ct.cancelled(), if kind.effect == Effect::Looks => {
                    return Err(was_cancelled());
                }
            }
        }
    }
}

fn was_cancelled() -> Refusal {
    Refusal::new("cancelled", "Cancelled").hinted("Nothing was changed")
}

fn failed(error: &tokio::task::JoinError) -> Refusal {
    Refusal::new("io", format!("The call ended without an answer: {error}"))
}

/// Tells a client that asked how far a call is, until the call ends.
async fn report_progress(
    context: &RequestContext<RoleServer>,
    mut progress: watch::Receiver<(u64, u64)>,
) {
    let Some(token) = context.meta.get_progress_token() else { return };
    while progress.changed().await.is_ok() {
        let (done, total) = *progress.borrow_and_update();
        let param = ProgressNotificationParam::new(token.clone(), done as f64);
        if context.peer.notify_progress(param.with_total(total as f64)).await.is_err() {
            return;
        }
        tokio::time::sleep(PROGRESS_PERIOD).await;
    }
}

fn result(outcome: Result<Answer, Refusal>) -> CallToolResult {
    match outcome {
        Ok(answer) => {
            let mut result = CallToolResult::success(vec![text(answer.text)]);
            result.structured_content = Some(answer.value);
            result
        }
        // No structured content: it would have to fit the shape that the tool promised.
        Err(refusal) => {
            let value = ContentBlock::text(refusal.value().to_string());
            CallToolResult::error(vec![text(refusal.text()), value])
        }
    }
}

fn text(text: String) -> ContentBlock {
    ContentBlock::text(printable(text))
}

impl ServerHandler for Server {
    fn get_info(&self) -> InitializeResult {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let identity = Implementation::new("chronicle", env!("CARGO_PKG_VERSION"));
        InitializeResult::new(capabilities)
            .with_server_info(identity)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::TOOLS.iter().map(Kind::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = request.arguments.unwrap_or_default();
        let outcome = match tools::find(&request.name) {
            Some(kind) => self.run(kind, given, &context).await,
            None => {
                let names: Vec<_> = tools::TOOLS.iter().map(|kind| kind.name).collect();
                let message = format!("No tool is called {:?}", request.name);
                Err(Refusal::usage(message).hinted(format!("There are: {}", names.join(", "))))
            }
        };
        Ok(result(outcome).into())
    }
}
