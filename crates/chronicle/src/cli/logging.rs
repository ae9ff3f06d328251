//! What all verbs take that run for long.

use clap::{Args, ValueEnum};

/// How events are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// A line of JSON
    Json,
}

/// How a verb that runs for long tells of events.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LoggingArgs {
    /// How to tell of events on stderr; otherwise CHRONICLE_LOG_FORMAT of the environment
    #[arg(long, value_enum, value_name = "FORMAT", display_order = 80)]
    pub(crate) log_format: Option<LogFormat>,
}
