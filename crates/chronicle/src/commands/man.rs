//! `chronicle man`: the manual pages, one for the program and one for each verb.

use std::path::Path;

use clap::{Command, CommandFactory};

use super::Invocation;
use crate::cli::{Cli, ManArgs};
use crate::error::{CommandError, Outcome};

pub(crate) fn execute(invocation: &mut Invocation, args: &ManArgs) -> Outcome {
    let directory = invocation.directory.join(&args.dir);
    std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
    let mut command = Cli::command();
    command.build();
    let written = write(&command, "chronicle", &directory)?;
    let pages = crate::render::count(written, "page");
    invocation.ui.note(format!("Wrote {pages} to {}", directory.display()));
    Ok(0)
}

/// Writes the page of a command and of what is below it; gives back how many.
fn write(command: &Command, name: &str, directory: &Path) -> Result<u64, CommandError> {
    let mut page = Vec::new();
    let title = name.replace(' ', "-");
    let rendered = clap_mangen::Man::new(command.clone().bin_name(name)).title(title.clone());
    let path = directory.join(format!("{title}.1"));
    rendered.render(&mut page).map_err(|error| failed(&path, error))?;
    std::fs::write(&path, page).map_err(|error| failed(&path, error))?;
    let mut written = 1;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        written += write(verb, &format!("{name} {}", verb.get_name()), directory)?;
    }
    Ok(written)
}

fn failed(path: &Path, error: std::io::Error) -> CommandError {
    CommandError::io(format!("Could not write {}", path.display()), error)
}
