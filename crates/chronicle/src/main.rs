//! The `chronicle` command: words in, the library's answers out.
#![cfg_attr(all(target_os = "linux", target_env = "gnu", not(test)), no_main)]

mod agent;
mod bucket;
mod checkpoint_first;
mod cli;
mod commands;
mod demo;
mod environment;
mod error;
mod fast;
mod hook;
mod install;
mod reference;
mod render;
mod run;
mod start;
mod ui;

use std::ffi::OsString;

use chronicle_core::WATCHER;
use clap::Parser;

use crate::cli::{Cli, Global, Verb};
use crate::commands::Invocation;
use crate::error::{CommandError, Outcome};
use crate::ui::{Ui, say};

#[cfg(any(test, not(all(target_os = "linux", target_env = "gnu"))))]
fn main() -> std::process::ExitCode {
    whole().into()
}

/// The whole program; gives its exit status.
fn whole() -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(status) = hidden(&arguments) {
        return status;
    }
    let (global, verb) = match parse(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error, &arguments),
    };
    let json = global.json;
    match execute(&global, verb) {
        Ok(status) => status,
        Err(error) => {
            ui::tell_failure(&error, json);
            error.kind.exit()
        }
    }
}

/// What this program calls itself for, and what the documentation is made with: no part of the
/// contract, so not among the verbs.
fn hidden(arguments: &[OsString]) -> Option<u8> {
    match arguments.first()?.to_str()? {
        run::SESSION => Some(run::session(&arguments[1..])),
        run::STAGE => Some(run::stage(&arguments[1..])),
        commands::prune::PRUNER => Some(commands::prune::detached(&arguments[1..])),
        commands::mount::SERVE => Some(commands::mount::serve(&arguments[1..])),
        WATCHER => Some(commands::watch::detached(&arguments[1..])),
        commands::push::VERB => Some(commands::push::detached(&arguments[1..])),
        commands::hand_over::VERB => Some(commands::hand_over::detached(&arguments[1..])),
        reference::VERB => {
            let mut ui = Ui::new(false);
            ui.print(&reference::text());
            Some(u8::from(ui.finish().is_err()))
        }
        install::integration::VERB => Some(integrations()),
        verb => run::isolation(verb, &arguments[1..]),
    }
}

/// Prints what is generated into `integrations/`: one object, path to text.
fn integrations() -> u8 {
    let mut ui = Ui::new(true);
    let files: std::collections::BTreeMap<_, _> =
        install::integration::files().into_iter().collect();
    ui.data(&files);
    u8::from(ui.finish().is_err())
}

/// Reads the command line: by hand for what agents call before every action, by clap for the rest.
fn parse(arguments: &[OsString]) -> Result<(Global, Verb), clap::Error> {
    if let Some(parsed) = fast::parse(arguments) {
        return Ok(parsed);
    }
    let name = OsString::from("chronicle");
    let Cli { global, verb } = Cli::try_parse_from(std::iter::once(&name).chain(arguments))?;
    Ok((global, verb))
}

/// Says why the command line makes no sense, or prints the help that was asked for.
fn refuse(error: &clap::Error, arguments: &[OsString]) -> u8 {
    if error.use_stderr() && arguments.iter().any(|argument| argument == "--json") {
        let message = error.to_string();
        let message = message.trim().trim_start_matches("error: ");
        say(&CommandError::usage(message).hinted("See: chronicle --help").json());
    } else if error.print().is_err() {
        return 1;
    }
    // An agent takes status 2 of its hook for a refusal.
    if error.use_stderr() && arguments.iter().any(|argument| argument == "hook") {
        return 1;
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

fn execute(global: &Global, verb: Verb) -> Outcome {
    let mut invocation = Invocation::new(global);
    let outcome = if environment::is_off() && verb.changes_something() {
        commands::do_nothing(&mut invocation, verb)
    } else {
        commands::execute(&mut invocation, verb)
    };
    match (outcome, invocation.ui.finish()) {
        (Ok(_), Err(error)) => Err(error),
        (outcome, _) => outcome,
    }
}
