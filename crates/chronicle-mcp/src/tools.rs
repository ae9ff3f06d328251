//! The tools as a table: names, words, hints, shapes, and the functions behind them.
//!
//! A table instead of the kit's macros, since those answer wrong arguments with a protocol error,
//! which a model does not get to read.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use crate::answer::Answer;
use crate::refusal::Refusal;
use crate::server::Call;
use crate::{reading, schema, taking_back};

/// What a tool does to its world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only looks.
    Looks,
    /// It adds something and changes nothing that is there.
    Adds,
    /// It changes the workspace, by a plan that can be applied once.
    TakesBack,
}

/// One tool.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    title: &'static str,
    about: &'static str,
    pub(crate) effect: Effect,
    takes: fn() -> Value,
    gives: fn() -> Value,
    pub(crate) run: fn(&Call<'_>, JsonObject) -> Result<Answer, Refusal>,
}

impl Kind {
    /// The tool as clients see it.
    pub(crate) fn tool(&self) -> Tool {
        let hints = ToolAnnotations::with_title(self.title)
            .read_only(self.effect == Effect::Looks)
            .destructive(self.effect == Effect::TakesBack)
            // A plan is applied once: calling it again is refused and changes nothing.
            .idempotent(self.effect != Effect::Adds)
            .open_world(false);
        Tool::new(self.name, self.about, fields((self.takes)()))
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(fields((self.gives)())))
            .with_annotations(hints)
    }
}

fn fields(schema: Value) -> JsonObject {
    match schema {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

/// The tool of a name.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    TOOLS.iter().find(|kind| kind.name == name)
}

/// Every tool.
pub(crate) const TOOLS: &[Kind] = &[
    Kind {
        name: "status",
        title: "How the workspace stands",
        about: "What changed since the last turn, what is protected, which turns are open, and \
                which session is yours.",
        effect: Effect::Looks,
        takes: schema::takes_nothing,
        gives: schema::status,
        run: reading::status,
    },
    Kind {
        name: "list_turns",
        title: "List turns",
        about: "The turns of the conversations in this workspace, newest first; own says which are \
                yours.",
        effect: Effect::Looks,
        takes: schema::takes_list_turns,
        gives: schema::turns,
        run: reading::list_turns,
    },
    Kind {
        name: "list_snapshots",
        title: "List snapshots",
        about: "The recorded actions and what each changed, newest first; by turn, session or path.",
        effect: Effect::Looks,
        takes: schema::takes_list_snapshots,
        gives: schema::snapshots,
        run: reading::list_snapshots,
    },
    Kind {
        name: "show",
        title: "Show one snapshot",
        about: "One snapshot and everything it changed, with the changed lines if patch is set.",
        effect: Effect::Looks,
        takes: schema::takes_show,
        gives: schema::snapshot,
        run: reading::show,
    },
    Kind {
        name: "diff",
        title: "Compare two moments",
        about: "What differs between two moments, or a moment and the present.",
        effect: Effect::Looks,
        takes: schema::takes_diff,
        gives: schema::diff,
        run: reading::diff,
    },
    Kind {
        name: "search",
        title: "Search all versions",
        about: "Finds lines in every version of every file, deleted ones too: when a line was \
                first seen, whether it is there now, and what removed it.",
        effect: Effect::Looks,
        takes: schema::takes_search,
        gives: schema::matches,
        run: reading::search,
    },
    Kind {
        name: "file_history",
        title: "Versions of a file",
        about: "Every version of one file, newest first, across renames.",
        effect: Effect::Looks,
        takes: schema::takes_file_history,
        gives: schema::versions,
        run: reading::file_history,
    },
    Kind {
        name: "read_version",
        title: "Read an old version",
        about: "The content of a file as it was at a moment, without changing anything. Use it to \
                recover a part of a file instead of rewinding.",
        effect: Effect::Looks,
        takes: schema::takes_read_version,
        gives: schema::content,
        run: reading::read_version,
    },
    Kind {
        name: "preview",
        title: "Preview taking back",
        about: "Shows exactly what a rewind, undo, rollback or redo would write, delete, merge and \
                keep, and gives the plan_id without which those tools refuse. Changes nothing.",
        effect: Effect::Looks,
        takes: schema::takes_preview,
        gives: schema::plan,
        run: taking_back::preview,
    },
    Kind {
        name: "rewind",
        title: "Rewind to a moment",
        about: "Brings your session's work back to a moment and keeps what everybody else did. \
                Needs the plan_id of a preview with action rewind.",
        effect: Effect::TakesBack,
        takes: schema::takes_plan,
        gives: schema::report,
        run: taking_back::rewind,
    },
    Kind {
        name: "undo",
        title: "Undo a turn or action",
        about: "Takes back one of your turns or actions and keeps what came later. Needs the \
                plan_id of a preview with action undo.",
        effect: Effect::TakesBack,
        takes: schema::takes_plan,
        gives: schema::report,
        run: taking_back::undo,
    },
    Kind {
        name: "rollback",
        title: "Roll back a snapshot",
        about: "Brings one snapshot's files, or a transaction, back to before it. Needs the \
                plan_id of a preview with action rollback.",
        effect: Effect::TakesBack,
        takes: schema::takes_plan,
        gives: schema::report,
        run: taking_back::rollback,
    },
    Kind {
        name: "redo",
        title: "Redo what was taken back",
        about: "Brings back what the newest rewind, rollback or undo took back. Needs the plan_id \
                of a preview with action redo.",
        effect: Effect::TakesBack,
        takes: schema::takes_plan,
        gives: schema::report,
        run: taking_back::redo,
    },
    Kind {
        name: "pin",
        title: "Name a moment",
        about: "Gives a moment a name, so that it can be gone back to and is never pruned.",
        effect: Effect::Adds,
        takes: schema::takes_pin,
        gives: schema::pinned,
        run: reading::pin,
    },
    Kind {
        name: "verify",
        title: "Verify the history",
        about: "Recomputes the chain of records and checks that their content is there.",
        effect: Effect::Looks,
        takes: schema::takes_verify,
        gives: schema::verified,
        run: reading::verify,
    },
];
