//! The arguments of the tools as types; what does not fit is explained, not guessed.

use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::refusal::Refusal;

/// How many items a list has where nothing is said.
pub(crate) const LIST_USUAL: usize = 20;
/// How many items a list has at most.
pub(crate) const LIST_MOST: usize = 200;

/// Reads arguments; one that is null was not given.
pub(crate) fn read<T: DeserializeOwned>(mut given: JsonObject) -> Result<T, Refusal> {
    given.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(given)).map_err(|error| {
        Refusal::usage(format!("Arguments make no sense: {error}"))
            .hinted("See the tool's input schema")
    })
}

/// How many items are wanted, within bounds.
pub(crate) fn bounded(limit: Option<usize>) -> usize {
    limit.unwrap_or(LIST_USUAL).clamp(1, LIST_MOST)
}

/// No arguments at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListTurns {
    pub(crate) session: Option<String>,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSnapshots {
    pub(crate) turn: Option<u64>,
    pub(crate) session: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Show {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) patch: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Diff {
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) patch: bool,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    pub(crate) pattern: String,
    pub(crate) path: Option<String>,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileHistory {
    pub(crate) path: String,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadVersion {
    pub(crate) path: String,
    pub(crate) at: Option<String>,
    #[serde(default)]
    pub(crate) offset: u64,
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pin {
    pub(crate) target: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {
    #[serde(default)]
    pub(crate) deep: bool,
}

/// What a preview is of: the tool that will apply it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Rewind,
    Undo,
    Rollback,
    Redo,
}

impl Action {
    /// The tool's name.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Undo => "undo",
            Self::Rollback => "rollback",
            Self::Redo => "redo",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConflictWay {
    Stop,
    KeepMine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GitWay {
    Keep,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preview {
    pub(crate) action: Action,
    pub(crate) target: Option<String>,
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    pub(crate) session: Option<String>,
    pub(crate) on_conflict: Option<ConflictWay>,
    pub(crate) git: Option<GitWay>,
    #[serde(default)]
    pub(crate) touch: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Apply {
    pub(crate) plan_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let unknown = read::<Search>(object(json!({ "pattern": "x", "regex": 1 }))).unwrap_err();
        assert!(unknown.message.contains("`regex`"), "{}", unknown.message);
        let missing = read::<Search>(object(json!({ "path": null }))).unwrap_err();
        assert!(missing.message.contains("`pattern`"), "{}", missing.message);
        let kind = read::<Preview>(object(json!({ "action": "gc" }))).unwrap_err();
        assert!(kind.message.contains("`rewind`"), "{}", kind.message);
    }

    #[test]
    fn limits_stay_within_bounds() {
        assert_eq!(bounded(None), LIST_USUAL);
        assert_eq!(bounded(Some(0)), 1);
        assert_eq!(bounded(Some(1_000_000)), LIST_MOST);
    }
}
