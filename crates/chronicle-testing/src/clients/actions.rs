//! The same action, as each client's model asks for it.

use std::path::Path;

use serde_json::json;

use super::Client;
use crate::model::Call;

/// Something that an agent does; paths are relative to the project.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Reads a file, which some clients want before an edit.
    Read(&'a str),
    /// Replaces a whole line of a file by the edit tool.
    Edit(&'a str, &'a str, &'a str),
    /// Writes a new file of one line by the edit tool.
    Create(&'a str, &'a str),
    /// Runs a shell command in the project.
    Shell(&'a str),
    /// Hands work to a sub-agent, with this prompt. Only Claude Code is asked for this.
    Delegate(&'a str),
}

impl Client {
    /// The tool call that does this.
    pub fn call(self, action: Action<'_>, project: &Path) -> Call {
        let at = |path: &str| project.join(path).display().to_string();
        match self {
            Self::ClaudeCode => claude_code(action, at),
            Self::Codex => codex(action),
            Self::Gemini => gemini(action, at),
            Self::OpenCode => open_code(action, at),
        }
    }
}

fn claude_code(action: Action<'_>, at: impl Fn(&str) -> String) -> Call {
    match action {
        Action::Read(path) => Call::new("Read", json!({"file_path": at(path)})),
        Action::Edit(path, old, new) => {
            Call::new("Edit", json!({"file_path": at(path), "old_string": old, "new_string": new}))
        }
        Action::Create(path, line) => {
            Call::new("Write", json!({"file_path": at(path), "content": format!("{line}\n")}))
        }
        Action::Shell(command) => {
            Call::new("Bash", json!({"command": command, "description": "work"}))
        }
        Action::Delegate(prompt) => Call::new(
            "Agent",
            json!({
                "description": "work", "prompt": prompt, "subagent_type": "general-purpose",
                "run_in_background": false,
            }),
        ),
    }
}

/// Codex has one tool for the shell, and one for patches, whose input is bare text.
fn codex(action: Action<'_>) -> Call {
    let shell = |command: &str| Call::new("exec_command", json!({"cmd": command}));
    let patch = |hunk: String| {
        Call::new("apply_patch", json!(format!("*** Begin Patch\n{hunk}*** End Patch\n")))
    };
    match action {
        Action::Read(path) => shell(&format!("cat {path}")),
        Action::Edit(path, old, new) => {
            patch(format!("*** Update File: {path}\n@@\n-{old}\n+{new}\n"))
        }
        Action::Create(path, line) => patch(format!("*** Add File: {path}\n+{line}\n")),
        Action::Shell(command) => shell(command),
        Action::Delegate(_) => unreachable!("only Claude Code is asked to delegate"),
    }
}

fn gemini(action: Action<'_>, at: impl Fn(&str) -> String) -> Call {
    match action {
        Action::Read(path) => Call::new("read_file", json!({"file_path": at(path)})),
        Action::Edit(path, old, new) => Call::new(
            "replace",
            json!({
                "file_path": at(path), "old_string": old, "new_string": new,
                "instruction": "change the line",
            }),
        ),
        Action::Create(path, line) => {
            Call::new("write_file", json!({"file_path": at(path), "content": format!("{line}\n")}))
        }
        Action::Shell(command) => {
            Call::new("run_shell_command", json!({"command": command, "description": "work"}))
        }
        Action::Delegate(_) => unreachable!("only Claude Code is asked to delegate"),
    }
}

fn open_code(action: Action<'_>, at: impl Fn(&str) -> String) -> Call {
    match action {
        Action::Read(path) => Call::new("read", json!({"filePath": at(path)})),
        Action::Edit(path, old, new) => {
            Call::new("edit", json!({"filePath": at(path), "oldString": old, "newString": new}))
        }
        Action::Create(path, line) => {
            Call::new("write", json!({"filePath": at(path), "content": format!("{line}\n")}))
        }
        Action::Shell(command) => {
            Call::new("bash", json!({"command": command, "description": "work"}))
        }
        Action::Delegate(_) => unreachable!("only Claude Code is asked to delegate"),
    }
}
