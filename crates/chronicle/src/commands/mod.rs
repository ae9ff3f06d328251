//! The verbs, one file each; here is what they share.

mod begin;
mod bucket;
mod cat;
mod changed;
mod checkpoint;
mod clone;
mod commit;
mod completions;
mod config;
mod conflicts;
mod connect;
mod demo;
mod diff;
mod doctor;
mod export;
mod fetch;
mod filter;
mod fleet;
mod forget;
mod grep;
pub(crate) mod hand_over;
mod head;
mod history;
mod hook;
mod init;
mod install;
mod isolated;
mod log;
mod man;
mod mcp;
pub(crate) mod mount;
mod operator;
mod pin;
pub(crate) mod prune;
mod pull;
pub(crate) mod push;
mod redo;
mod replicas;
mod rewind;
mod rollback;
mod roots;
mod run;
mod serve;
mod settings_files;
mod settle;
mod show;
mod signals;
mod snapshot;
mod status;
mod taking_back;
mod token;
mod tui;
mod turn;
mod undo;
mod uninstall;
mod unmount;
mod upgrade_check;
mod verify;
pub(crate) mod watch;
mod web;
mod witness;
mod words;

pub(crate) use init::repository_top;

use std::path::{Path, PathBuf};

use chronicle_core::{SCHEMA, Workspace, WorkspacePath};
use serde::Serialize;

use crate::bucket::home as bucket_home;
use crate::cli::{
    BucketVerb, CheckpointVerb, ConfigVerb, ConflictsVerb, FilterVerb, Global, IsolatedVerb,
    LogFormat, LoggingArgs, OperatorVerb, RootsVerb, TokenVerb, Verb, WitnessVerb,
};
use crate::environment;
use crate::error::{CommandError, Outcome};
use crate::ui::{self, Ui};

/// Where a command works and where it speaks.
pub(crate) struct Invocation {
    pub(crate) ui: Ui,
    /// The directory that relative paths start from.
    pub(crate) directory: PathBuf,
    /// Whether the directory was named with `-C`.
    pub(crate) named: bool,
}

impl Invocation {
    /// What was said before or after the verb.
    pub(crate) fn new(global: &Global) -> Self {
        let directory = environment::directory(global.directory.as_deref());
        Self { ui: Ui::new(global.json), directory, named: global.directory.is_some() }
    }

    /// Opens the workspace around the directory.
    pub(crate) fn open(&self) -> Result<Workspace, CommandError> {
        let mut workspace = Workspace::open(&bucket_home()?, &self.directory)?;
        checkpoint::finish_left(&mut workspace);
        Ok(workspace)
    }

    /// Opens a workspace whose root is gone, to write it anew.
    pub(crate) fn open_to_recreate(&self) -> Result<Workspace, CommandError> {
        Ok(Workspace::open_to_recreate(&bucket_home()?, &self.directory)?)
    }

    /// A path as the person gave it.
    pub(crate) fn path(
        &self,
        workspace: &Workspace,
        given: &Path,
    ) -> Result<WorkspacePath, CommandError> {
        Ok(workspace.path(given, &self.directory)?)
    }

    /// Paths as the person gave them.
    pub(crate) fn paths(
        &self,
        workspace: &Workspace,
        given: &[PathBuf],
    ) -> Result<Vec<WorkspacePath>, CommandError> {
        given.iter().map(|path| self.path(workspace, path)).collect()
    }
}

/// A value in JSON that does not carry its schema itself.
#[derive(Serialize)]
pub(crate) struct WithSchema<T> {
    schema: u32,
    #[serde(flatten)]
    value: T,
}

/// Adds the schema to a value.
pub(crate) fn with_schema<T: Serialize>(value: T) -> WithSchema<T> {
    WithSchema { schema: SCHEMA, value }
}

impl Verb {
    /// Whether it writes anything, and so does nothing while Chronicle is off.
    pub(crate) fn changes_something(&self) -> bool {
        match self {
            Self::Status
            | Self::Log(_)
            | Self::Show(_)
            | Self::Diff(_)
            | Self::Changed(_)
            | Self::History(_)
            | Self::Cat(_)
            | Self::Grep(_)
            | Self::Verify(_)
            | Self::UpgradeCheck(_)
            // It answers its agent itself, also while everything is off.
            | Self::Hook(_)
            // They go on looking; what of them changes something refuses by itself.
            | Self::Mcp(_)
            | Self::Tui(_)
            | Self::Web(_)
            | Self::Operator(OperatorVerb::Show | OperatorVerb::Key(_) | OperatorVerb::Grant(_))
            | Self::Config(ConfigVerb::Show)
            | Self::Roots(RootsVerb::List)
            | Self::Witness(WitnessVerb::List)
            | Self::Bucket(BucketVerb::Show | BucketVerb::List)
            | Self::Isolated(
                IsolatedVerb::List
                | IsolatedVerb::Show(_)
                | IsolatedVerb::Diff(_)
                | IsolatedVerb::Log,
            )
            | Self::Checkpoint(
                CheckpointVerb::Detect
                | CheckpointVerb::List
                | CheckpointVerb::Show(_)
                | CheckpointVerb::Diff(_)
                | CheckpointVerb::Verify(_),
            )
            | Self::Replicas
            | Self::Conflicts(ConflictsVerb::List | ConflictsVerb::Show(_))
            | Self::Token(TokenVerb::List)
            | Self::Filter(FilterVerb::Check(_) | FilterVerb::List)
            | Self::Completions(_)
            | Self::Man(_) => false,
            Self::Init(_)
            | Self::Snapshot(_)
            | Self::Settle
            | Self::Turn(_)
            | Self::Begin
            | Self::Commit(_)
            | Self::Rollback(_)
            | Self::Run(_)
            | Self::Isolated(IsolatedVerb::Commit(_) | IsolatedVerb::Discard(_))
            | Self::Rewind(_)
            | Self::Undo(_)
            | Self::Redo(_)
            | Self::Pin(_)
            | Self::Prune(_)
            | Self::Forget(_)
            | Self::Export(_)
            | Self::Bucket(
                BucketVerb::Set(_)
                | BucketVerb::Forget
                | BucketVerb::Gc
                | BucketVerb::Evict(_)
                | BucketVerb::Rekey(_),
            )
            | Self::Push
            | Self::Pull
            | Self::Clone(_)
            | Self::Gc
            | Self::Doctor(_)
            | Self::Head(_)
            | Self::Witness(WitnessVerb::Add(_) | WitnessVerb::Remove(_))
            | Self::Operator(OperatorVerb::Require(_) | OperatorVerb::Use(_))
            | Self::Config(ConfigVerb::Accept(_))
            | Self::Roots(RootsVerb::Add(_) | RootsVerb::Remove(_))
            | Self::Install(_)
            | Self::Uninstall(_)
            | Self::Watch(_)
            | Self::Checkpoint(
                CheckpointVerb::Create(_) | CheckpointVerb::Restore(_) | CheckpointVerb::Prune(_),
            )
            | Self::Mount(_)
            | Self::Unmount(_)
            | Self::Serve(_)
            | Self::Connect(_)
            | Self::Fetch(_)
            | Self::Conflicts(_)
            | Self::Token(_)
            | Self::Filter(_)
            | Self::Demo(_) => true,
        }
    }
}

impl Verb {
    /// Its name and how it tells of events, if it runs for long.
    fn logging(&self) -> Option<(&'static str, &LoggingArgs)> {
        Some(match self {
            Self::Serve(args) => ("serve", &args.logging),
            Self::Connect(args) => ("connect", &args.logging),
            Self::Watch(args) => ("watch", &args.logging),
            Self::Web(args) => ("web", &args.logging),
            Self::Mount(args) => ("mount", &args.logging),
            Self::Mcp(args) => ("mcp", &args.logging),
            _ => return None,
        })
    }

    /// Has it tell of events as it was asked to.
    fn choose_log(&self) -> Result<(), CommandError> {
        let Some((name, args)) = self.logging() else { return Ok(()) };
        let json = match (args.log_format, environment::log_format().as_deref()) {
            (Some(format), _) => format == LogFormat::Json,
            (None, None | Some("text")) => false,
            (None, Some("json")) => true,
            (None, Some(other)) => {
                let words = format!("CHRONICLE_LOG_FORMAT is {other:?}");
                return Err(CommandError::usage(words).hinted("It is text or json"));
            }
        };
        if json {
            ui::log_as_json(name);
        }
        Ok(())
    }
}

/// Off the record: only `run` does its part that is not Chronicle's.
pub(crate) fn do_nothing(invocation: &mut Invocation, verb: Verb) -> Outcome {
    if let Verb::Run(args) = verb {
        return run::only_run(invocation, &args);
    }
    if invocation.ui.json() {
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "off": true }));
    }
    invocation.ui.note("Chronicle is off (CHRONICLE=off): nothing was done");
    Ok(0)
}

/// Does what the verb says.
pub(crate) fn execute(invocation: &mut Invocation, verb: Verb) -> Outcome {
    verb.choose_log()?;
    match verb {
        Verb::Init(args) => init::execute(invocation, &args),
        Verb::Hook(args) => hook::execute(&args),
        Verb::Status => status::execute(invocation),
        Verb::Snapshot(args) => snapshot::execute(invocation, args),
        Verb::Settle => settle::execute(invocation),
        Verb::Turn(verb) => turn::execute(invocation, verb),
        Verb::Begin => begin::execute(invocation),
        Verb::Commit(args) => commit::execute(invocation, &args),
        Verb::Rollback(args) => rollback::execute(invocation, args),
        Verb::Run(args) => run::execute(invocation, &args),
        Verb::Isolated(verb) => isolated::execute(invocation, &verb),
        Verb::Log(args) => log::execute(invocation, args),
        Verb::Show(args) => show::execute(invocation, &args),
        Verb::Diff(args) => diff::execute(invocation, &args),
        Verb::Changed(args) => changed::execute(invocation, &args),
        Verb::Rewind(args) => rewind::execute(invocation, args),
        Verb::Undo(args) => undo::execute(invocation, &args),
        Verb::Redo(args) => redo::execute(invocation, &args),
        Verb::History(args) => history::execute(invocation, &args),
        Verb::Cat(args) => cat::execute(invocation, &args),
        Verb::Grep(args) => grep::execute(invocation, &args),
        Verb::Pin(args) => pin::execute(invocation, &args),
        Verb::Prune(args) => prune::execute(invocation, &args),
        Verb::Forget(args) => forget::execute(invocation, &args),
        Verb::Export(args) => export::execute(invocation, args),
        Verb::Bucket(verb) => bucket::execute(invocation, verb),
        Verb::Push => push::execute(invocation),
        Verb::Pull => pull::execute(invocation),
        Verb::Clone(args) => clone::execute(invocation, &args),
        Verb::Gc => prune::collect_garbage(invocation),
        Verb::Verify(args) => verify::execute(invocation, &args),
        Verb::Doctor(args) => doctor::execute(invocation, &args),
        Verb::UpgradeCheck(args) => upgrade_check::execute(invocation, &args),
        Verb::Head(args) => head::execute(invocation, &args),
        Verb::Witness(verb) => witness::execute(invocation, &verb),
        Verb::Watch(args) => watch::execute(invocation, &args),
        Verb::Checkpoint(verb) => checkpoint::execute(invocation, &verb),
        Verb::Mount(args) => mount::execute(invocation, &args),
        Verb::Unmount(args) => unmount::execute(invocation, &args),
        Verb::Serve(args) => serve::execute(invocation, &args),
        Verb::Connect(args) => connect::execute(invocation, &args),
        Verb::Fetch(args) => fetch::execute(invocation, &args),
        Verb::Replicas => replicas::execute(invocation),
        Verb::Conflicts(verb) => conflicts::execute(invocation, &verb),
        Verb::Token(verb) => token::execute(invocation, &verb),
        Verb::Filter(verb) => filter::execute(invocation, &verb),
        Verb::Operator(verb) => operator::execute(invocation, &verb),
        Verb::Config(verb) => config::execute(invocation, &verb),
        Verb::Roots(verb) => roots::execute(invocation, &verb),
        Verb::Tui(args) => tui::execute(invocation, &args),
        Verb::Mcp(args) => mcp::execute(invocation, args),
        Verb::Web(args) => web::execute(invocation, &args),
        Verb::Install(args) => install::execute(invocation, &args),
        Verb::Uninstall(args) => uninstall::execute(invocation, &args),
        Verb::Demo(args) => demo::execute(invocation, &args),
        Verb::Completions(args) => completions::execute(invocation, &args),
        Verb::Man(args) => man::execute(invocation, &args),
    }
}
