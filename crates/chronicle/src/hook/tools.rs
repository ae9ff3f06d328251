//! Which tools of which agents touch what. A tool that nobody knows can touch anything.

use std::path::PathBuf;

use serde_json::Value;

use super::event::{Reach, Tool};
use super::patch;

/// Tools that touch no file of the workspace, by their names in lower case.
const HARMLESS: &[&str] = &[
    "agent",
    "agentoutput",
    "ask_followup_question",
    "ask_user",
    "askuserquestion",
    "attempt_completion",
    "bashoutput",
    "browser_action",
    "codebase_search",
    "codesearch",
    "enter_plan_mode",
    "enterplanmode",
    "exit_plan_mode",
    "exitplanmode",
    "fetch",
    "file_search",
    "get_internal_docs",
    "glob",
    "google_web_search",
    "grep",
    "grep_search",
    "kill_shell",
    "killbash",
    "killshell",
    "list",
    "list_code_definition_names",
    "list_directory",
    "list_dir",
    "list_files",
    "listmcpresources",
    "ls",
    "lsp",
    "plan_exit",
    "plan_mode_respond",
    "question",
    "read",
    "read_file",
    "read_files",
    "read_lints",
    "read_many_files",
    "readfile",
    "readmcpresource",
    "report_intent",
    "save_memory",
    "search_file_content",
    "search_files",
    "semanticsearch",
    "skill",
    "slashcommand",
    "structuredoutput",
    "task",
    "taskcreate",
    "taskget",
    "tasklist",
    "taskoutput",
    "taskstop",
    "taskupdate",
    "todoread",
    "todowrite",
    "toolsearch",
    "update_plan",
    "update_todo",
    "view",
    "view_image",
    "web_fetch",
    "web_search",
    "webfetch",
    "websearch",
    "write_todos",
];

/// Tools that write the files they name, and no others.
const EDITS: &[&str] = &[
    "apply_patch",
    "create",
    "create_file",
    "delete",
    "delete_file",
    "edit",
    "edit_file",
    "editor",
    "insert_edit_into_file",
    "multiedit",
    "multiedits",
    "notebookedit",
    "patch",
    "replace",
    "replace_in_file",
    "search_replace",
    "str_replace",
    "str_replace_editor",
    "strreplace",
    "write",
    "write_file",
    "write_to_file",
];

/// The fields that name a file, in the words of all agents.
const PATHS: &[&str] = &[
    "file_path",
    "filePath",
    "notebook_path",
    "notebookPath",
    "target_file",
    "path",
    "absolute_path",
    "filename",
    "new_path",
    "newPath",
];

/// The fields that may hold a patch.
const PATCHES: &[&str] = &["command", "patchText", "patch", "input", "diff"];

/// What a call of a tool can touch.
pub(crate) fn tool(name: &str, input: &Value, call_id: Option<String>) -> Tool {
    let lower = name.to_lowercase();
    let command = ["command", "cmd", "script"].iter().find_map(|key| input.get(key)?.as_str());
    let background = ["run_in_background", "is_background", "isBackground", "background"];
    let in_background = background.iter().any(|key| input.get(key) == Some(&Value::Bool(true)));
    let reach = if lower.starts_with("mcp") {
        Reach::Anything
    } else if HARMLESS.contains(&&lower[..]) {
        Reach::Nothing
    } else if EDITS.contains(&&lower[..]) {
        named(input)
    } else {
        Reach::Anything
    };
    let command = command.filter(|_| reach == Reach::Anything).map(str::to_owned);
    Tool { name: name.to_owned(), call_id, reach, command, in_background }
}

/// The files that an edit names; one that names none can touch anything.
fn named(input: &Value) -> Reach {
    let text = |key: &str| input.get(key).and_then(Value::as_str);
    let mut paths: Vec<PathBuf> =
        PATHS.iter().filter_map(|key| text(key)).map(PathBuf::from).collect();
    for patch in PATCHES.iter().filter_map(|key| text(key)) {
        paths.extend(patch::paths(patch));
    }
    if let Some(Value::String(all)) = Some(input) {
        paths.extend(patch::paths(all));
    }
    paths.retain(|path| !path.as_os_str().is_empty());
    if paths.is_empty() { Reach::Anything } else { Reach::Named(paths) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(name: &str, input: &Value, expected: Reach) {
        assert_eq!(tool(name, input, None).reach, expected, "{name} {input}");
    }

    fn named(paths: &[&str]) -> Reach {
        Reach::Named(paths.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn edits_own_what_they_name_and_shells_can_touch_anything() {
        check("Edit", &json!({"file_path": "/w/a"}), named(&["/w/a"]));
        check("NotebookEdit", &json!({"notebook_path": "/w/n.ipynb"}), named(&["/w/n.ipynb"]));
        check("MultiEdit", &json!({"file_path": "a", "edits": []}), named(&["a"]));
        check("write", &json!({"filePath": "rel"}), named(&["rel"]));
        check("replace", &json!({"file_path": "x"}), named(&["x"]));
        let patch = "*** Begin Patch\n*** Add File: n\n+1\n*** Delete File: o\n*** End Patch";
        check("apply_patch", &json!({"command": patch}), named(&["n", "o"]));
        check("apply_patch", &json!({"patchText": patch}), named(&["n", "o"]));
        check("apply_patch", &json!(patch), named(&["n", "o"]));
        check("Write", &json!({}), Reach::Anything);
        check("Bash", &json!({"command": "rm -rf ."}), Reach::Anything);
        check("mcp__files__read", &json!({}), Reach::Anything);
        check("mcp_files_write", &json!({"path": "a"}), Reach::Anything);
        check("SomethingNew", &json!(null), Reach::Anything);
        check("Read", &json!({"file_path": "a"}), Reach::Nothing);
        check("Task", &json!({"prompt": "x"}), Reach::Nothing);
    }

    #[test]
    fn a_shell_is_known_by_its_command_line() {
        let tool = tool("Bash", &json!({"command": "sleep 9", "run_in_background": true}), None);
        assert_eq!((tool.command.as_deref(), tool.in_background), (Some("sleep 9"), true));
    }
}
