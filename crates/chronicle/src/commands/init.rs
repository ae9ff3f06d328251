//! `chronicle init`: adopts a workspace, with progress, and can be interrupted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use chronicle_core::{Home, InitOptions, InitReport, Progress, Workspace};

use super::Invocation;
use crate::cli::InitArgs;
use crate::environment;
use crate::error::{CommandError, Outcome};
use crate::render::status::listed;
use crate::render::{count, grouped, printable, size};
use crate::ui::{Meter, Ui};

/// How many problems are listed before the rest is only counted.
const LISTED: usize = 10;

pub(crate) fn execute(invocation: &mut Invocation, args: &InitArgs) -> Outcome {
    let directory = directory(invocation, args);
    let (root, found) = adopt(&invocation.ui, &directory)?;
    if invocation.ui.json() {
        invocation.ui.data(&view(&root, &found));
    } else {
        report(&mut invocation.ui, &root, &found);
        let back = "Come back to any moment with: chronicle rewind TARGET";
        invocation.ui.note(format!("Nothing was written into it. {back}"));
    }
    Ok(0)
}

/// Adopts a directory, with progress; gives the workspace's root and what was found.
pub(super) fn adopt(ui: &Ui, directory: &Path) -> Result<(PathBuf, InitReport), CommandError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    listen(&cancelled)
        .map_err(|error| CommandError::io("Could not listen for interrupts", error))?;
    let meter = Meter::new(ui);
    let show = |progress: &Progress| meter.show(|| line(progress));
    let options = InitOptions { progress: Some(&show), cancelled: Some(&cancelled) };
    let adopted = Workspace::init(&Home::from_env()?, directory, &options);
    meter.clear();
    let (workspace, found) = adopted?;
    Ok((workspace.root().to_owned(), found))
}

/// The first interrupt asks to stop at a good place; a second one does not ask.
fn listen(cancelled: &Arc<AtomicBool>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(cancelled))?;
        signal_hook::flag::register(signal, Arc::clone(cancelled))?;
    }
    Ok(())
}

/// What is to be adopted: what was named, else the repository around the current directory.
fn directory(invocation: &Invocation, args: &InitArgs) -> PathBuf {
    match &args.dir {
        Some(dir) => invocation.directory.join(dir),
        None if invocation.named => invocation.directory.clone(),
        None => {
            repository_top(&invocation.directory).unwrap_or_else(|| invocation.directory.clone())
        }
    }
}

/// The top of the repository around a directory. The person's home is not looked at, nor what is
/// above: a repository of settings there does not make it a workspace.
pub(crate) fn repository_top(directory: &Path) -> Option<PathBuf> {
    let home = environment::home_directory();
    let is_top = |path: &Path| [".git", ".jj"].iter().any(|name| path.join(name).exists());
    directory
        .ancestors()
        .take_while(|path| Some(*path) != home.as_deref())
        .find(|path| is_top(path))
        .map(Path::to_owned)
}

/// What was adopted, for scripts.
pub(super) fn view(root: &Path, found: &InitReport) -> serde_json::Value {
    serde_json::json!({
        "schema": chronicle_core::SCHEMA,
        "workspace": printable(&root.to_string_lossy()),
        "workspace_id": found.workspace.hex(),
        "files": found.files,
        "bytes": found.bytes,
        "already": found.already,
        "problems": found.problems,
        "filtered": found.filtered,
    })
}

/// What was adopted, for people.
pub(super) fn report(ui: &mut Ui, root: &Path, found: &InitReport) {
    let shown = root.to_string_lossy();
    if found.already {
        ui.line(format!("Already adopted {}; see: chronicle status", printable(&shown)));
    } else {
        let what = format!("{} ({})", count(found.files, "file"), size(found.bytes));
        ui.line(format!("Adopted {}: {what} protected", printable(&shown)));
    }
    if !found.filtered.is_empty() {
        ui.line(format!("Kept out, since it can be made anew: {}", listed(&found.filtered)));
    }
    for problem in found.problems.iter().take(LISTED) {
        let (path, reason) = (printable(&problem.path), printable(&problem.reason));
        ui.line(format!("Not protected: {path} ({reason})"));
    }
    if found.problems.len() > LISTED {
        let more = grouped((found.problems.len() - LISTED) as u64);
        ui.line(format!("and {more} more: chronicle status"));
    }
}

/// `[########............]  40%  1,234 of 3,085 files, 12.3 MiB`.
fn line(progress: &Progress) -> String {
    const WIDTH: u64 = 20;
    let total = progress.files_total.max(progress.files_done).max(1);
    let filled = (progress.files_done * WIDTH / total) as usize;
    let bar = "#".repeat(filled) + &".".repeat(WIDTH as usize - filled);
    format!(
        "[{bar}] {:>3}%  {} of {} files, {}",
        progress.files_done * 100 / total,
        grouped(progress.files_done),
        grouped(total),
        size(progress.bytes_done)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_never_overflows() {
        let at = |files_done, files_total| Progress { files_done, files_total, bytes_done: 0 };
        assert_eq!(line(&at(0, 0)), "[....................]   0%  0 of 1 files, 0 B");
        assert_eq!(line(&at(5, 10)), "[##########..........]  50%  5 of 10 files, 0 B");
        assert_eq!(line(&at(11, 10)), "[####################] 100%  11 of 11 files, 0 B");
    }
}
