//! Hooks as an agent sees them: from the start of the process to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::measure::{Result, chronicle, median, program, run};
use crate::rows::Row;
use crate::trees;

/// How often each hook is measured, and how often it is called before.
const ROUNDS: usize = 150;
const WARM: usize = 20;

/// The medians of one tree, in milliseconds.
pub(crate) struct Hooks {
    files: usize,
    edit_before: f64,
    edit_after: f64,
    shell_before: f64,
    shell_after: f64,
    bare: f64,
}

/// An agent that calls hooks.
struct Agent<'a> {
    home: &'a Path,
    top: &'a Path,
    event: PathBuf,
    watched: bool,
}

impl Agent<'_> {
    /// One hook, in milliseconds.
    fn hook(&self, name: &str, more: Value) -> Result<f64> {
        let mut event = json!({
            "session_id": "bench", "prompt_id": "bench", "cwd": self.top, "hook_event_name": name,
        });
        let fields = more.as_object().ok_or("an event has fields")?.clone();
        event.as_object_mut().ok_or("an event has fields")?.extend(fields);
        fs::write(&self.event, event.to_string())?;
        let mut command = chronicle(self.home, self.top, &["hook", "claude-code"])?;
        command.stdin(File::open(&self.event)?);
        if !self.watched {
            command.env("CHRONICLE_WATCH", "off");
        }
        Ok(run(&mut command, &[0])?.seconds * 1e3)
    }

    fn call(&self, name: &str, tool: &str, id: usize, input: &Value) -> Result<f64> {
        let id = format!("call-{id}");
        self.hook(name, json!({"tool_name": tool, "tool_use_id": id, "tool_input": input}))
    }
}

/// Measures the hooks on a tree that is adopted and whose watcher runs.
pub(crate) fn measure(home: &Path, top: &Path, files: usize) -> Result<Hooks> {
    let agent = Agent { home, top, event: home.join("event.json"), watched: true };
    agent.hook("UserPromptSubmit", json!({"prompt": "measure"}))?;
    let path = trees::path(5);
    let edit = json!({"file_path": top.join(&path)});
    let shell = json!({"command": "true"});
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..WARM + ROUNDS {
        let mut taken = [0.0; 5];
        taken[0] = agent.call("PreToolUse", "Edit", round, &edit)?;
        fs::write(top.join(&path), trees::content(5, round + 1))?;
        taken[1] = agent.call("PostToolUse", "Edit", round, &edit)?;
        agent.hook("PostToolBatch", json!({}))?;
        taken[2] = agent.call("PreToolUse", "Bash", ROUNDS + round, &shell)?;
        taken[3] = agent.call("PostToolUse", "Bash", ROUNDS + round, &shell)?;
        agent.hook("PostToolBatch", json!({}))?;
        taken[4] = run(Command::new("/bin/true").env_clear(), &[0])?.seconds * 1e3;
        if round >= WARM {
            times.iter_mut().zip(taken).for_each(|(all, one)| all.push(one));
        }
    }
    agent.hook("Stop", json!({}))?;
    let [edit_before, edit_after, shell_before, shell_after, bare] = times.map(median);
    Ok(Hooks { files, edit_before, edit_after, shell_before, shell_after, bare })
}

/// What a shell's hook takes longer without a watcher, beside the bare walk.
pub(crate) fn without_watcher(home: &Path, top: &Path, with: &Hooks) -> Result<Row> {
    let agent = Agent { home, top, event: home.join("event.json"), watched: false };
    agent.hook("UserPromptSubmit", json!({"prompt": "measure"}))?;
    let shell = json!({"command": "true"});
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..16 {
        let taken = agent.call("PreToolUse", "Bash", 10_000 + round, &shell)?;
        agent.call("PostToolUse", "Bash", 10_000 + round, &shell)?;
        agent.hook("PostToolBatch", json!({}))?;
        let bare = run(Command::new(program("limit_walk")?).arg(top), &[0])?.seconds * 1e3;
        if round > 0 {
            ours.push(taken - with.shell_before);
            limit.push(bare);
        }
    }
    agent.hook("Stop", json!({}))?;
    Ok(Row {
        what: format!("what a shell's hook takes longer without a watcher, {} files", with.files),
        ours: median(ours),
        limit: median(limit),
        unit: "ms",
        beside: "two threads, getdents and fstatat",
        bound: 1.5,
    })
}

/// The rows of a small tree and a large one.
pub(crate) fn rows(small: &Hooks, large: &Hooks) -> Vec<Row> {
    let row = |what: String, ours, limit, beside, bound| Row {
        what,
        ours,
        limit,
        unit: "ms",
        beside,
        bound,
    };
    let bare = "spawning `/bin/true`";
    let mut rows = Vec::new();
    for (what, ours) in [
        ("hook before an edit", small.edit_before),
        ("hook after an edit, one file changed", small.edit_after),
        ("hook before a shell command, nothing changed, with a watcher", small.shell_before),
        ("hook after a shell command, nothing changed, with a watcher", small.shell_after),
    ] {
        rows.push(row(format!("{what}, {} files", small.files), ours, small.bare, bare, 8.0));
    }
    for (what, ours, limit) in [
        ("hook before a shell command", large.shell_before, small.shell_before),
        ("hook after a shell command", large.shell_after, small.shell_after),
    ] {
        let what = format!("{what}, with a watcher, {} files", large.files);
        rows.push(row(what, ours, limit, "the same with 1000 files", 1.3));
    }
    rows
}
