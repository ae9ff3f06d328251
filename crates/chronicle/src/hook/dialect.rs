//! The agents' dialects: what each sends, as what it means.
//!
//! Read leniently: unknown fields are ignored and missing ones are handled, because agents change
//! every month. What cannot be understood at all is an error, which the policy decides about.

use std::path::PathBuf;

use serde_json::Value;

use super::event::{Event, Heard, Tool};
use super::tools;
use crate::agent::Agent;

impl Agent {
    /// Whether this agent tells when all calls of an answer have ended, until when its other hooks
    /// may write what a call named.
    pub(crate) fn tells_of_batches(self) -> bool {
        self == Self::ClaudeCode
    }

    /// Whether what is said at this event reaches the agent's model.
    pub(crate) fn listens(self, event: &Event) -> bool {
        match event {
            Event::Prompt(_) => true,
            Event::After(_) => matches!(self, Self::Gemini | Self::Opencode),
            Event::Before(_) => !matches!(self, Self::Gemini | Self::Opencode),
            _ => false,
        }
    }

    /// Whether the process that calls the hooks runs the tools as well, and nothing that its person
    /// does: one that lives in an editor shares that with the person.
    pub(crate) fn runs_its_tools(self) -> bool {
        !matches!(self, Self::Cursor | Self::Cline)
    }

    /// Whether this agent may leave out that a call has ended.
    pub(crate) fn may_leave_out_ends(self) -> bool {
        matches!(self, Self::Codex | Self::Cursor | Self::Copilot | Self::Cline)
    }

    /// What an event means.
    pub(crate) fn read(self, value: &Value) -> Result<Heard, String> {
        if !value.is_object() {
            return Err("the event is not a JSON object".to_owned());
        }
        match self {
            Self::ClaudeCode | Self::Codex | Self::Gemini => Ok(claude_like(value)),
            Self::Opencode => opencode(value),
            Self::Cursor => Ok(cursor(value)),
            Self::Copilot => Ok(copilot(value)),
            Self::Cline => Ok(cline(value)),
        }
    }
}

/// A field as text; numbers count as text too.
fn text(value: &Value, key: &str) -> Option<String> {
    match value.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn first_text(value: &Value, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| text(value, key))
}

/// The directory that an event names, or the one the hook was started in.
fn directory(value: &Value, keys: &[&str]) -> PathBuf {
    let named = first_text(value, keys).or_else(|| {
        let roots = value.get("workspace_roots").or_else(|| value.get("workspaceRoots"))?;
        roots.get(0)?.as_str().map(str::to_owned)
    });
    named.map(PathBuf::from).or_else(|| std::env::current_dir().ok()).unwrap_or_default()
}

/// A session that has no name of its own is the one of its agent in that directory.
fn session(name: Option<String>) -> String {
    name.unwrap_or_else(|| "unnamed".to_owned())
}

const NULL: Value = Value::Null;

fn called(value: &Value, name: &[&str], input: &[&str], id: &[&str]) -> Tool {
    let name = first_text(value, name).unwrap_or_default();
    let input = input.iter().find_map(|key| value.get(key)).unwrap_or(&NULL);
    // Some agents send the input as a text that holds JSON.
    let parsed = input.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let input = parsed.as_ref().filter(|parsed| parsed.is_object()).unwrap_or(input);
    tools::tool(&name, input, first_text(value, id))
}

/// Claude Code, Codex and Gemini: the same fields, with other words for the events.
fn claude_like(value: &Value) -> Heard {
    let name = text(value, "hook_event_name").unwrap_or_default();
    let tool = || called(value, &["tool_name"], &["tool_input"], &["tool_use_id"]);
    let response = value.get("tool_response");
    let ran_on = response
        .is_some_and(|response| response.get("backgroundTaskId").is_some_and(|id| !id.is_null()));
    let event = match &name[..] {
        "UserPromptSubmit" | "BeforeAgent" => Event::Prompt(text(value, "prompt")),
        "PreToolUse" | "BeforeTool" => Event::Before(tool()),
        "PostToolUse" | "PostToolUseFailure" | "AfterTool" => {
            let tool = tool();
            Event::After(Tool { in_background: tool.in_background || ran_on, ..tool })
        }
        "PostToolBatch" => {
            let calls = value.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
            Event::BatchEnd(calls.filter_map(|call| text(call, "tool_use_id")).collect())
        }
        "Stop" | "StopFailure" | "AfterAgent" => {
            let tasks = value.get("background_tasks").and_then(Value::as_array);
            Event::Stop { task: tasks.is_some_and(|tasks| !tasks.is_empty()) }
        }
        "SessionEnd" => Event::Stop { task: false },
        "ConfigChange" => match text(value, "file_path") {
            Some(path) => Event::Settings(PathBuf::from(path)),
            None => Event::Nothing,
        },
        _ => Event::Nothing,
    };
    Heard {
        session: session(text(value, "session_id")),
        turn_key: first_text(value, &["prompt_id", "turn_id"]),
        sub_agent: text(value, "agent_id"),
        directory: directory(value, &["cwd"]),
        transcript: text(value, "transcript_path").map(PathBuf::from),
        name,
        event,
    }
}

/// The events that our own shim for OpenCode sends: `n` is the hook, `i` and `o` its arguments.
fn opencode(value: &Value) -> Result<Heard, String> {
    let name = text(value, "n").ok_or("the event has no name")?;
    let (input, output) = (value.get("i").unwrap_or(&NULL), value.get("o").unwrap_or(&NULL));
    let args = |from: &Value| from.get("args").cloned().unwrap_or(Value::Null);
    let tool = |args: &Value| {
        tools::tool(&text(input, "tool").unwrap_or_default(), args, text(input, "callID"))
    };
    // A sub-agent is a session of its own, which the shim tells: its prompt and its end are not ours.
    let parent = text(value, "parent");
    let event = match &name[..] {
        "chat.message" | "event" if parent.is_some() => Event::Nothing,
        "chat.message" => Event::Prompt(first_part(output)),
        "before" => Event::Before(tool(&args(output))),
        "after" => Event::After(tool(&args(input))),
        "event" => match input.get("event").and_then(|event| text(event, "type")).as_deref() {
            Some("session.idle" | "session.error" | "session.deleted") => {
                Event::Stop { task: false }
            }
            _ => Event::Nothing,
        },
        _ => Event::Nothing,
    };
    let properties = input.get("event").and_then(|event| event.get("properties")).unwrap_or(&NULL);
    let key = text(input, "sessionID").or_else(|| text(properties, "sessionID"));
    let sub_agent = key.clone().filter(|_| parent.is_some());
    Ok(Heard {
        session: session(parent.or(key)),
        turn_key: text(input, "messageID").filter(|_| name == "chat.message"),
        sub_agent,
        directory: directory(value, &["directory"]),
        transcript: None,
        name,
        event,
    })
}

fn first_part(output: &Value) -> Option<String> {
    output.get("parts")?.as_array()?.iter().find_map(|part| text(part, "text"))
}

fn cursor(value: &Value) -> Heard {
    let name = text(value, "hook_event_name").unwrap_or_default();
    let tool = || {
        called(value, &["tool_name"], &["tool_input"], &["tool_use_id", "tool_call_id", "call_id"])
    };
    let shell = || tools::tool("Shell", value, None);
    let event = match &name[..] {
        "beforeSubmitPrompt" => Event::Prompt(text(value, "prompt")),
        "preToolUse" => Event::Before(tool()),
        "postToolUse" | "postToolUseFailure" => Event::After(tool()),
        "beforeShellExecution" => Event::Before(shell()),
        "afterShellExecution" => Event::After(shell()),
        "beforeMCPExecution" => Event::Before(mcp(tool())),
        "afterMCPExecution" => Event::After(mcp(tool())),
        "afterFileEdit" => Event::After(tools::tool("edit", value, None)),
        "stop" | "sessionEnd" => Event::Stop { task: false },
        _ => Event::Nothing,
    };
    Heard {
        session: session(first_text(value, &["conversation_id", "session_id"])),
        turn_key: text(value, "generation_id"),
        sub_agent: first_text(value, &["agent_id", "subagent_id"]),
        directory: directory(value, &["cwd"]),
        transcript: None,
        name,
        event,
    }
}

/// Whatever an MCP tool calls itself, it can touch anything.
fn mcp(tool: Tool) -> Tool {
    Tool { reach: super::event::Reach::Anything, ..tool }
}

/// Copilot, in its own words or, for the event names of Claude, in Claude's.
fn copilot(value: &Value) -> Heard {
    if value.get("hook_event_name").is_some() {
        return claude_like(value);
    }
    let tool = || called(value, &["toolName"], &["toolArgs"], &["toolCallId", "callId"]);
    // Its own payload has no name for the event: its fields tell.
    let has = |key: &str| value.get(key).is_some();
    let (name, event) = if has("toolResult") || has("error") && has("toolName") {
        ("postToolUse", Event::After(tool()))
    } else if has("toolName") {
        ("preToolUse", Event::Before(tool()))
    } else if has("prompt") {
        ("userPromptSubmitted", Event::Prompt(text(value, "prompt")))
    } else if has("stopReason") || has("reason") {
        ("agentStop", Event::Stop { task: false })
    } else {
        ("", Event::Nothing)
    };
    Heard {
        session: session(text(value, "sessionId")),
        turn_key: None,
        sub_agent: None,
        directory: directory(value, &["cwd"]),
        transcript: None,
        name: name.to_owned(),
        event,
    }
}

/// Cline's two forms: the extension's, with a field named like the event, and the command line's.
fn cline(value: &Value) -> Heard {
    let name = text(value, "hookName").unwrap_or_default();
    let of = |key: &str| value.get(key).unwrap_or(&NULL);
    let extension = |key: &str| called(of(key), &["toolName"], &["parameters"], &["id"]);
    let line = |key: &str| called(of(key), &["name"], &["input"], &["id"]);
    let event = match &name[..] {
        "UserPromptSubmit" => Event::Prompt(text(of("userPromptSubmit"), "prompt")),
        "TaskStart" | "prompt_submit" | "agent_start" => {
            Event::Prompt(text(of("prompt_submit"), "prompt").or_else(|| text(value, "prompt")))
        }
        "PreToolUse" => Event::Before(extension("preToolUse")),
        "PostToolUse" => Event::After(extension("postToolUse")),
        "tool_call" => Event::Before(line("tool_call")),
        "tool_result" => Event::After(line("tool_result")),
        "TaskComplete" | "TaskCancel" | "agent_end" | "agent_error" | "agent_abort"
        | "session_shutdown" => Event::Stop { task: false },
        _ => Event::Nothing,
    };
    let parent = text(value, "parent_agent_id");
    Heard {
        session: session(text(value, "taskId")),
        turn_key: None,
        sub_agent: parent.and_then(|_| text(value, "agent_id")),
        directory: directory(value, &["cwd"]),
        transcript: None,
        name,
        event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What agents sent, changed: read as any agent's, it means something or is refused.
    #[test]
    fn mutated_events() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/payloads");
        let files = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some()).collect();
        files.sort();
        let texts = files.iter().map(|path| std::fs::read_to_string(path).unwrap());
        let lines: Vec<Vec<u8>> =
            texts.flat_map(|text| text.lines().map(Into::into).collect::<Vec<_>>()).collect();
        chronicle_testing::fuzz::fuzz_all("events", &lines, 20_000, |input| {
            let Ok(value) = serde_json::from_slice::<Value>(input) else { return false };
            Agent::ALL.iter().filter(|agent| agent.read(&value).is_ok()).count() > 0
        });
    }
}
