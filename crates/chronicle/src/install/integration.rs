//! What is generated into `integrations/`: plugins and extensions, from the data that `install` uses.

use super::command::HookCommand;
use super::dialect;
use super::json::{Json, document, list, object};
use crate::agent::Agent;

/// The hidden verb that prints the files, for `integrations/` and the test that compares them.
pub(crate) const VERB: &str = "__integrations";

const NAME: &str = "chronicle";
const DESCRIPTION: &str = "See, search and take back whatever the agent does to your files";
const SKILL: &str = include_str!("skill.md");

/// Every file: its path below `integrations/`, and its text.
pub(crate) fn files() -> Vec<(String, String)> {
    let shim = dialect::shim(&HookCommand::by_name(Agent::Opencode, false));
    let file = |path: &str, text: String| (path.to_owned(), text);
    vec![
        file(".claude-plugin/marketplace.json", document(&marketplace())),
        file("claude-code/.claude-plugin/plugin.json", document(&plugin())),
        file("claude-code/.mcp.json", document(&object([("mcpServers", servers())]))),
        file("claude-code/hooks/hooks.json", hooks(Agent::ClaudeCode)),
        file("claude-code/skills/chronicle-undo/SKILL.md", SKILL.to_owned()),
        file("gemini/gemini-extension.json", document(&extension())),
        file("gemini/hooks/hooks.json", hooks(Agent::Gemini)),
        file("gemini/skills/chronicle-undo/SKILL.md", SKILL.to_owned()),
        file("opencode/chronicle.ts", shim),
    ]
}

fn hooks(agent: Agent) -> String {
    let hooks = dialect::hooks(&HookCommand::by_name(agent, false));
    let hooks = hooks.expect("BUG: an agent without hooks in JSON");
    hooks.add_to("").expect("BUG: nothing is settings without hooks")
}

fn version() -> Json {
    env!("CARGO_PKG_VERSION").into()
}

fn plugin() -> Json {
    object([
        ("name", NAME.into()),
        ("version", version()),
        ("description", DESCRIPTION.into()),
        ("author", object([("name", "Chronicle".into())])),
        ("license", env!("CARGO_PKG_LICENSE").into()),
    ])
}

fn marketplace() -> Json {
    object([
        ("name", NAME.into()),
        ("description", DESCRIPTION.into()),
        ("owner", object([("name", "Chronicle".into())])),
        (
            "plugins",
            list([object([
                ("name", NAME.into()),
                ("source", "./claude-code".into()),
                ("description", DESCRIPTION.into()),
            ])]),
        ),
    ])
}

fn extension() -> Json {
    object([
        ("name", NAME.into()),
        ("version", version()),
        ("description", DESCRIPTION.into()),
        ("mcpServers", servers()),
        // The agent cleans the environment of hooks; this one may pass.
        (
            "settings",
            list([object([
                ("name", "Chronicle home".into()),
                ("description", "Where history lies, if not in ~/.chronicle".into()),
                ("envVar", "CHRONICLE_HOME".into()),
                ("sensitive", false.into()),
            ])]),
        ),
    ])
}

fn servers() -> Json {
    let server = object([("command", NAME.into()), ("args", list(["mcp".into()]))]);
    object([(NAME, server)])
}
