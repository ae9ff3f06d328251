//! The answers, in each agent's own dialect: what one accepts another rejects.

use serde_json::{Value, json};

use super::event::{Event, Heard};
use crate::agent::Agent;

/// What a hook has to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// For the agent: what it must know.
    pub(crate) context: Option<String>,
    /// For the person.
    pub(crate) warning: Option<String>,
    /// The capture failed: why.
    pub(crate) failure: Option<String>,
    /// What the agent is about to do must not be, whatever the policy: why.
    pub(crate) refusal: Option<String>,
}

/// What a process says and how it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: u8,
}

/// Puts an answer into the words of an agent. `heard` is missing where the event was not understood.
pub(crate) fn reply(agent: Agent, heard: Option<&Heard>, strict: bool, answer: &Answer) -> Reply {
    if let Some(why) = &answer.refusal {
        return Reply { stdout: String::new(), stderr: format!("{why}\n"), exit: 2 };
    }
    let before = heard.is_none_or(|heard| matches!(heard.event, Event::Before(_)));
    match &answer.failure {
        Some(why) if strict && before => block(agent, why),
        Some(why) => failed(agent, why),
        None => done(agent, heard, answer),
    }
}

/// The action must not start: what it could destroy is not saved.
fn block(agent: Agent, why: &str) -> Reply {
    let reason = format!(
        "Chronicle could not save what this action may destroy, so it was stopped: {why}. \
         Nothing was changed. Tell the person; do not try to work around it."
    );
    let (stdout, exit) = match agent {
        Agent::Cursor => {
            (json!({"permission": "deny", "user_message": reason, "agent_message": reason}), 2)
        }
        // Cline reads the decision from the answer alone.
        Agent::Cline => (json!({"cancel": true, "errorMessage": reason}), 0),
        _ => (Value::Null, 2),
    };
    Reply { stdout: line(&stdout), stderr: format!("{reason}\n"), exit }
}

/// The action goes on unprotected, and the person is told.
fn failed(agent: Agent, why: &str) -> Reply {
    let words = format!("Chronicle: not protected: {why}");
    let (stdout, exit) = match agent {
        // Its own failure would be taken for a refusal.
        Agent::Copilot => (json!({}), 0),
        Agent::Cursor => (json!({"user_message": words}), 1),
        Agent::Cline => (json!({"cancel": false, "errorMessage": words}), 0),
        _ => (Value::Null, 1),
    };
    Reply { stdout: line(&stdout), stderr: format!("{words}\n"), exit }
}

fn done(agent: Agent, heard: Option<&Heard>, answer: &Answer) -> Reply {
    let (context, warning) = (answer.context.as_deref(), answer.warning.as_deref());
    let name = heard.map_or("", |heard| &heard.name[..]);
    let value = match agent {
        Agent::ClaudeCode | Agent::Codex | Agent::Gemini => claude_like(name, context, warning),
        Agent::Opencode => fields(&[("context", context), ("warning", warning)]),
        Agent::Cursor => cursor(name, context, warning),
        Agent::Copilot => match name.chars().next().is_some_and(char::is_uppercase) {
            true => claude_like(name, context, warning),
            false => fields(&[("additionalContext", context)]),
        },
        Agent::Cline => cline(context),
    };
    // Without anything to say, silence is understood by all but those that want JSON.
    let wants_json = matches!(agent, Agent::Gemini | Agent::Cursor | Agent::Cline);
    let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
    let stdout = if empty && !wants_json { String::new() } else { line(&value) };
    Reply { stdout, stderr: String::new(), exit: 0 }
}

fn claude_like(name: &str, context: Option<&str>, warning: Option<&str>) -> Value {
    let mut value = fields(&[("systemMessage", warning)]);
    if let Some(context) = context {
        value["hookSpecificOutput"] = json!({"hookEventName": name, "additionalContext": context});
    }
    value
}

fn cursor(name: &str, context: Option<&str>, warning: Option<&str>) -> Value {
    let mut value = fields(&[("agent_message", context), ("user_message", warning)]);
    match name {
        "beforeSubmitPrompt" => value["continue"] = Value::Bool(true),
        "preToolUse" | "beforeShellExecution" | "beforeMCPExecution" => {
            value["permission"] = json!("allow");
        }
        _ => {}
    }
    value
}

/// Both of Cline's forms read what they know of this.
fn cline(context: Option<&str>) -> Value {
    let mut value = fields(&[("contextModification", context), ("context", context)]);
    value["cancel"] = Value::Bool(false);
    value
}

/// An object of those fields that have something to say.
fn fields(pairs: &[(&str, Option<&str>)]) -> Value {
    let said = pairs.iter().filter_map(|(key, text)| Some(((*key).to_owned(), json!((*text)?))));
    Value::Object(said.collect())
}

fn line(value: &Value) -> String {
    if value.is_null() { String::new() } else { format!("{value}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn heard(name: &str, event: Event) -> Heard {
        let directory = PathBuf::from("/w");
        let (session, name) = ("s".to_owned(), name.to_owned());
        Heard { session, turn_key: None, sub_agent: None, directory, transcript: None, name, event }
    }

    fn before() -> Event {
        Event::Before(crate::hook::tools::tool("Bash", &json!({"command": "x"}), None))
    }

    #[test]
    fn success_is_silent_but_where_json_is_wanted() {
        for agent in Agent::ALL {
            let heard = heard("PreToolUse", before());
            let said = reply(agent, Some(&heard), true, &Answer::default());
            let expected = match agent {
                Agent::Gemini => "{}\n",
                Agent::Cursor => "{}\n",
                Agent::Cline => "{\"cancel\":false}\n",
                _ => "",
            };
            assert_eq!(said, Reply { stdout: expected.to_owned(), stderr: String::new(), exit: 0 });
        }
    }

    #[test]
    fn only_strict_blocks_and_only_before_an_action() {
        let answer = Answer { failure: Some("no space".to_owned()), ..Answer::default() };
        for agent in Agent::ALL {
            let (first, later) =
                (heard("PreToolUse", before()), heard("Stop", Event::BatchEnd(Vec::new())));
            let exit = |heard, strict| reply(agent, heard, strict, &answer).exit;
            let (blocked, failed) = match agent {
                Agent::Cline => (0, 0),
                Agent::Copilot => (2, 0),
                _ => (2, 1),
            };
            assert_eq!(exit(Some(&first), true), blocked, "{agent:?}");
            assert_eq!(exit(None, true), blocked, "{agent:?}");
            assert_eq!(exit(Some(&first), false), failed, "{agent:?}");
            assert_eq!(exit(Some(&later), true), failed, "{agent:?}");
            assert!(reply(agent, Some(&first), false, &answer).stderr.contains("no space"));
        }
    }

    #[test]
    fn what_the_agent_must_know_names_the_event() {
        let answer = Answer { context: Some("stale".to_owned()), ..Answer::default() };
        let prompt = heard("UserPromptSubmit", Event::Prompt(None));
        let said = reply(Agent::Codex, Some(&prompt), false, &answer).stdout;
        let value: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(value["hookSpecificOutput"]["hookEventName"], "UserPromptSubmit");
        assert_eq!(value["hookSpecificOutput"]["additionalContext"], "stale");
    }
}
