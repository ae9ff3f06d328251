//! `chronicle uninstall`: takes back what install did; the history stays unless it is to go too.

use chronicle_core::{Act, Error, HistorySize, Home, SCHEMA, Stop, Workspace};

use super::Invocation;
use super::install::{confirm, level, places, project, show, targets};
use super::settings_files::{self, FileEdit, Then};
use crate::agent::Agent;
use crate::cli::UninstallArgs;
use crate::error::{CommandError, Outcome};
use crate::install::Level;
use crate::install::command::HookCommand;
use crate::install::dialect::{self, Places, Target};
use crate::install::plan::{self, Uninstall};
use crate::install::receipt::Receipts;
use crate::render::{count, printable, size};
use crate::ui;

pub(crate) fn execute(invocation: &mut Invocation, args: &UninstallArgs) -> Outcome {
    let home = Home::from_env()?;
    let level = level(args.level);
    let project = project(invocation, level)?;
    let places = places(project.as_deref().unwrap_or(&invocation.directory))?;
    if args.purge {
        refuse_purge_unless_possible(invocation)?;
    }
    let receipts = Receipts::new(home.path());
    let command = HookCommand::by_name(args.agent, false);
    let targets = targets(level, &places, &command)?;
    let planned = targets.iter().map(|target| plan_file(args.agent, target, &receipts));
    let edits = planned.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    if !edits.is_empty() {
        show(invocation, &edits);
        confirm(invocation, args.yes, "Change the settings so?")?;
        settings_files::apply(args.agent, &edits, &receipts)?;
    }
    settings_files::forget(args.agent, &targets, &receipts);
    let elsewhere = if edits.is_empty() { elsewhere(args.agent, level, &places) } else { None };
    let history = Workspace::open(&home, &invocation.directory).ok();
    let history = match history {
        Some(workspace) if args.purge => Some(purge(invocation, workspace, args.yes)?),
        Some(workspace) => Some((workspace.history_size()?, false)),
        None => None,
    };
    report(invocation, args, level, &edits, elsewhere, &home, history);
    Ok(0)
}

/// What becomes of one file; nothing if there is nothing of ours.
fn plan_file(
    agent: Agent,
    target: &Target,
    receipts: &Receipts,
) -> Result<Option<FileEdit>, CommandError> {
    let file = settings_files::read(&target.path)?;
    let receipt = receipts.read(agent, &file.path);
    let planned = plan::uninstall(&target.content, file.text.as_deref(), receipt.as_ref())
        .map_err(|error| settings_files::malformed(&file.path, &error))?;
    let directories = receipt.map(|receipt| receipt.directories).unwrap_or_default();
    let then = match planned {
        Uninstall::Nothing => return Ok(None),
        Uninstall::Write(text) => Then::Write { text, executable: target.content.is_executable() },
        Uninstall::Delete => Then::Delete { directories },
        Uninstall::Aside => Then::Aside,
    };
    settings_files::refuse_read_only(&file.path)?;
    Ok(Some(FileEdit { file, then, receipt: None }))
}

/// Another level at which it is installed, for those who forgot which it was.
fn elsewhere(agent: Agent, level: Level, places: &Places) -> Option<Level> {
    let command = HookCommand::by_name(agent, false);
    let is_there = |other: &Level| {
        let targets = dialect::targets(*other, places, &command).unwrap_or_default();
        targets.iter().any(|target| {
            let text = settings_files::read(&target.path).ok().and_then(|file| file.text);
            let planned = plan::uninstall(&target.content, text.as_deref(), None);
            planned.is_ok_and(|planned| planned != Uninstall::Nothing)
        })
    };
    Level::ALL.into_iter().filter(|other| *other != level).find(is_there)
}

/// Only a person at a terminal can agree to lose a history: a script may be an agent's.
fn refuse_purge_unless_possible(invocation: &Invocation) -> Result<(), CommandError> {
    drop(invocation.open()?);
    if ui::person_present() {
        return Ok(());
    }
    let why = "a history is deleted on a terminal only".to_owned();
    let error = CommandError::from(Error::Stopped(Stop::NotConfirmed(why)));
    Err(CommandError {
        hints: vec!["Ask a person to run it; without --purge the history stays".to_owned()],
        ..error
    })
}

fn purge(
    invocation: &mut Invocation,
    mut workspace: Workspace,
    yes: bool,
) -> Result<(HistorySize, bool), CommandError> {
    let size = workspace.history_size()?;
    let root = printable(&workspace.root().to_string_lossy()).into_owned();
    ui::say(&format!(
        "The history of {root} goes for ever: {} in {}. Its files stay as they are now, and nothing \
         before now can be brought back.\n",
        count(size.records, "record"),
        count(size.turns, "turn"),
    ));
    let goes = yes || invocation.ui.confirm("Delete it?");
    if goes {
        workspace.authorize(Act::Purge)?;
        workspace.purge()?;
    }
    Ok((size, goes))
}

fn report(
    invocation: &mut Invocation,
    args: &UninstallArgs,
    level: Level,
    edits: &[FileEdit],
    elsewhere: Option<Level>,
    home: &Home,
    history: Option<(HistorySize, bool)>,
) {
    let again = format!("chronicle install {} --{}", args.agent.name(), level.name());
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": SCHEMA,
            "agent": args.agent.name(),
            "level": level.name(),
            "already": edits.is_empty(),
            "files": settings_files::views(edits),
            "elsewhere": elsewhere.map(Level::name),
            "home": printable(&home.path().to_string_lossy()),
            "home_bytes": home.disk_usage(),
            "purged": history.as_ref().is_some_and(|(_, purged)| *purged),
            "take_back": again,
        }));
        return;
    }
    if edits.is_empty() {
        let title = args.agent.title();
        ui.line(format!("{title}: not installed for --{}, nothing was written", level.name()));
    }
    if let Some(other) = elsewhere {
        let (agent, other) = (args.agent.name(), other.name());
        ui.note(format!("It is installed elsewhere: chronicle uninstall {agent} --{other}"));
    }
    for edit in edits {
        ui.line(format!("{} {}", edit.word(), edit.shown()));
    }
    ui.line(history_line(home, history));
    if !edits.is_empty() {
        ui.note(format!("Install again with: {again}"));
    }
}

/// Where the history lies and how large it is, or that it is gone.
fn history_line(home: &Home, history: Option<(HistorySize, bool)>) -> String {
    let shown = printable(&home.path().to_string_lossy()).into_owned();
    match history {
        Some((gone, true)) if gone.others > 0 => format!(
            "Deleted the history ({}); contents ({}) stay, since {} may need them: {shown}",
            size(gone.own_bytes),
            size(gone.store_bytes),
            count(gone.others, "other workspace"),
        ),
        Some((gone, true)) => {
            format!("Deleted the history ({})", size(gone.own_bytes + gone.store_bytes))
        }
        _ => format!("The history stays: {shown} ({})", size(home.disk_usage())),
    }
}
