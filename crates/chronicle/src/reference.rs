//! The whole command line as one document, from the same types that read it.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The hidden verb that prints the document, for `docs/cli.md` and the test that compares it.
pub(crate) const VERB: &str = "__reference";

/// The document.
pub(crate) fn text() -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut text = String::from(
        "# The command line\n\n\
         Made from the program's own help by `chronicle __reference`; a test keeps the two\n\
         the same.\n",
    );
    describe(&mut text, &mut command, "chronicle");
    text
}

fn describe(text: &mut String, command: &mut Command, name: &str) {
    let help = command.clone().bin_name(name).render_long_help().to_string();
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    for verb in command.get_subcommands_mut() {
        if verb.get_name() != "help" {
            let name = format!("{name} {}", verb.get_name());
            describe(text, verb, &name);
        }
    }
}
