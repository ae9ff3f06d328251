//! What was done outside, as callers see it.

use schemars::JsonSchema;
use serde::Serialize;

use super::KeptView;

/// A command or tool that was called and does what nothing here can take back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EffectView {
    /// The position of its record.
    pub seq: u64,
    /// When it was called, RFC 3339.
    pub timestamp: String,
    /// `outside`: it reached something outside; `data`: it changes data beside the files.
    pub kind: String,
    /// The command, or the tool's name.
    pub what: String,
    /// The rule by which it is one.
    pub rule: String,
    /// More about it: the checkpoint that was made before it, or why none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The snapshot of the call.
    pub snapshot: Option<String>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// The session's key.
    pub session: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The agent's tool.
    pub tool: Option<String>,
}

impl EffectView {
    /// What a plan says of it.
    pub(crate) fn kept(&self) -> KeptView {
        self.stays("files alone do not bring its data back")
    }

    /// What is said of it before code and data go back over it together.
    pub fn kept_by_restore(&self) -> KeptView {
        self.stays("its data comes back as far as the checkpoint has it as a part")
    }

    fn stays(&self, of_data: &str) -> KeptView {
        let turn =
            self.turn.map_or_else(|| "outside any turn".to_owned(), |n| format!("in turn {n}"));
        let fate = match &self.kind[..] {
            "data" => of_data,
            _ => "what it did outside cannot be taken back",
        };
        let note = self.note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
        let reason = format!("called {turn}, {}: {fate}{note}", self.timestamp);
        KeptView { path: self.what.clone(), reason }
    }
}
