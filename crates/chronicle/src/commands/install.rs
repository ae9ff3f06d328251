//! `chronicle install`: shows what it will add to an agent's settings, adds it, and adopts the project.

use std::path::{Path, PathBuf};

use chronicle_core::{Error, Home, InitReport, SCHEMA, Stop, Workspace};

use super::{Invocation, init};
use crate::agent::Agent;
use crate::cli::{InstallArgs, LevelArgs};
use crate::environment;
use crate::error::{CommandError, Outcome};
use crate::install::Level;
use crate::install::command::HookCommand;
use crate::install::dialect::{self, Places, Target};
use crate::install::plan::{self, Install};
use crate::install::receipt::{Receipt, Receipts};
use crate::render::diff::patch;
use crate::render::printable;
use crate::ui;

use super::settings_files::{self, FileEdit, Then};

pub(crate) fn execute(invocation: &mut Invocation, args: &InstallArgs) -> Outcome {
    let home = Home::from_env()?;
    let level = level(args.level);
    let project = project(invocation, level)?;
    let command = command(args, level, &home)?;
    let places = places(project.as_deref().unwrap_or(&invocation.directory))?;
    let receipts = Receipts::new(home.path());
    let mut edits = Vec::new();
    for target in targets(level, &places, &command)? {
        edits.extend(plan_file(args.agent, target, &receipts)?);
    }
    let already = edits.is_empty();
    if !already {
        show(invocation, &edits);
        confirm(invocation, args.yes, "Change the settings so?")?;
        settings_files::apply(args.agent, &edits, &receipts)?;
    }
    let adopted = match project {
        Some(project) => Some(adopt(invocation, &project)?),
        None => None,
    };
    report(invocation, args, level, already, &edits, adopted.as_ref());
    Ok(0)
}

/// The level that was asked for.
pub(super) fn level(args: LevelArgs) -> Level {
    match args {
        LevelArgs { project: true, .. } => Level::Project,
        LevelArgs { shared: true, .. } => Level::Shared,
        LevelArgs { .. } => Level::User,
    }
}

/// The project: the workspace or repository around the directory, or the directory itself if it was
/// named or is needed.
pub(super) fn project(
    invocation: &Invocation,
    level: Level,
) -> Result<Option<PathBuf>, CommandError> {
    let directory = &invocation.directory;
    let around = match Workspace::open(&Home::from_env()?, directory) {
        Ok(workspace) => Some(workspace.root().to_owned()),
        Err(_) => init::repository_top(directory),
    };
    if level == Level::User {
        return Ok(around.or_else(|| invocation.named.then(|| directory.clone())));
    }
    let project = around.unwrap_or_else(|| directory.clone());
    if environment::home_directory().as_deref() == Some(&project) {
        let shown = printable(&project.to_string_lossy()).into_owned();
        let hint = "Go to a project, or use --user, which holds for all of them";
        return Err(CommandError::usage(format!("{shown} is a home, not a project")).hinted(hint));
    }
    Ok(Some(project))
}

/// Where settings lie, with this project.
pub(super) fn places(project: &Path) -> Result<Places, CommandError> {
    environment::places(project).ok_or_else(|| {
        CommandError::usage("HOME is not set: the agent's settings cannot be found")
            .hinted("Set HOME to your home directory")
    })
}

/// The agent's files, or why it has none of this level.
pub(super) fn targets(
    level: Level,
    places: &Places,
    command: &HookCommand,
) -> Result<Vec<Target>, CommandError> {
    dialect::targets(level, places, command).ok_or_else(|| {
        let title = command.agent.title();
        CommandError::usage(format!(
            "{title} has no settings of one person for one project: its project settings are \
             everybody's"
        ))
        .hinted("Use --user for all your projects, or --shared for everybody in this one")
    })
}

fn command(args: &InstallArgs, level: Level, home: &Home) -> Result<HookCommand, CommandError> {
    if level == Level::Shared {
        return Ok(HookCommand::by_name(args.agent, args.strict));
    }
    let program = environment::program()
        .map_err(|error| CommandError::io("Could not find this program's own file", error))?;
    let usual = environment::home_directory().map(|home| home.join(".chronicle"));
    let other_home = Some(home.path()).filter(|path| Some(*path) != usual.as_deref());
    HookCommand::absolute(args.agent, &program, other_home, args.strict).ok_or_else(|| {
        let shown = printable(&program.to_string_lossy()).into_owned();
        CommandError::usage(format!("Settings cannot name {shown} so that it is recognised again"))
            .hinted("Call the program chronicle, and use paths that are text")
    })
}

/// What becomes of one file; nothing if all is there already.
fn plan_file(
    agent: Agent,
    target: Target,
    receipts: &Receipts,
) -> Result<Option<FileEdit>, CommandError> {
    let file = settings_files::read(&target.path)?;
    let receipt = receipts.read(agent, &file.path);
    let planned = plan::install(&target.content, file.text.as_deref(), receipt.as_ref())
        .map_err(|error| settings_files::malformed(&file.path, &error))?;
    let (text, original) = match planned {
        Install::Already => return Ok(None),
        Install::NotOurs => return Err(not_ours(agent, &file.path)),
        Install::Write { text, original } => (text, original),
    };
    settings_files::refuse_read_only(&file.path)?;
    let mut directories = receipt.map(|receipt| receipt.directories).unwrap_or_default();
    directories.extend(settings_files::missing_directories(&file.path));
    let receipt = Receipt {
        path: file.path.display().to_string(),
        original,
        written: text.clone(),
        directories,
    };
    let then = Then::Write { text, executable: target.content.is_executable() };
    Ok(Some(FileEdit { file, then, receipt: Some(receipt) }))
}

fn not_ours(agent: Agent, path: &Path) -> CommandError {
    let shown = printable(&path.to_string_lossy()).into_owned();
    let message =
        format!("{shown} is somebody else's, and {} runs one of that name", agent.title());
    CommandError::failed("not_ours", message).hinted(format!(
        "Nothing was changed. Move it away, or call from it: chronicle hook {}",
        agent.name()
    ))
}

/// Shows every difference.
pub(super) fn show(invocation: &mut Invocation, edits: &[FileEdit]) {
    if invocation.ui.json() {
        return;
    }
    let paint = invocation.ui.paint();
    for edit in edits {
        let text = patch(&edit.patch(), paint);
        invocation.ui.print(&text);
    }
}

/// Asks the person, if there is one to ask.
pub(super) fn confirm(
    invocation: &mut Invocation,
    yes: bool,
    question: &str,
) -> Result<(), CommandError> {
    let asks = !yes && !invocation.ui.json() && ui::person_present();
    if asks && !invocation.ui.confirm(question) {
        let stop = Stop::NotConfirmed("the settings stay as they were".to_owned());
        let error = CommandError::from(Error::Stopped(stop));
        return Err(CommandError { hints: vec!["Go ahead with: --yes".to_owned()], ..error });
    }
    Ok(())
}

fn adopt(invocation: &Invocation, project: &Path) -> Result<(PathBuf, InitReport), CommandError> {
    init::adopt(&invocation.ui, project).map_err(|error| {
        error.hinted("The hooks are installed; adopt the project later with: chronicle init")
    })
}

fn report(
    invocation: &mut Invocation,
    args: &InstallArgs,
    level: Level,
    already: bool,
    edits: &[FileEdit],
    adopted: Option<&(PathBuf, InitReport)>,
) {
    let next = if already { Vec::new() } else { dialect::next_steps(args.agent, level) };
    let back = format!("chronicle uninstall {} --{}", args.agent.name(), level.name());
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": SCHEMA,
            "agent": args.agent.name(),
            "level": level.name(),
            "strict": args.strict,
            "already": already,
            "files": settings_files::views(edits),
            "adopted": adopted.map(|(root, found)| init::view(root, found)),
            "next": next,
            "take_back": back,
        }));
        return;
    }
    let title = args.agent.title();
    if already {
        ui.line(format!("{title}: already installed, nothing was written"));
    }
    for edit in edits {
        ui.line(format!("{} {}", edit.word(), edit.shown()));
    }
    match adopted {
        Some((root, found)) if found.already => {
            ui.line(format!("Already adopted {}", printable(&root.to_string_lossy())));
        }
        Some((root, found)) => init::report(ui, root, found),
        None => ui.note("Go to a project and adopt it with: chronicle init"),
    }
    for step in next {
        ui.note(step);
    }
    ui.note(format!("Take back with: {back}"));
}
