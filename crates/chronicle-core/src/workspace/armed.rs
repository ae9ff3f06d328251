//! Files that run something by themselves: a rewind that brings one back says so.
//!
//! Somebody may have planted it, and somebody else may have taken it away for that reason.

use super::Workspace;
use super::rewind::Planned;
use crate::entry::Entry;
use crate::error::Result;
use crate::id::ObjectId;
use crate::path::WorkspacePath;
use crate::repository::{Bundle, BundleFile};
use crate::store::ContentStorage;

/// Files that a tool reads and runs commands from, by their names.
const NAMES: [&str; 8] = [
    ".envrc",
    ".mcp.json",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    "lefthook.yaml",
    ".lefthook.yml",
    ".gitattributes",
    ".gitmodules",
];

/// The same, by a directory and the names in it; a name that ends with a slash is everything below.
const PLACES: [(&str, &[&str]); 10] = [
    (".claude", &["settings.json", "settings.local.json", "hooks/", "commands/"]),
    (".codex", &["config.toml", "hooks.json", "hooks/"]),
    (".gemini", &["settings.json", "extensions/"]),
    (".opencode", &["plugin/", "plugins/", "opencode.json"]),
    (".cursor", &["hooks.json", "mcp.json"]),
    (".clinerules", &["hooks/"]),
    (".github", &["hooks/"]),
    (".vscode", &["tasks.json", "settings.json", "launch.json", "mcp.json"]),
    (".husky", &[""]),
    (".githooks", &[""]),
];

/// Whether a file at this path is run by some tool without anybody asking.
fn runs_by_itself(path: &WorkspacePath) -> bool {
    // Most paths have no name that could be one of these: the rest is worth more time.
    let bytes = path.as_bytes();
    let hidden = bytes.first() == Some(&b'.') || bytes.windows(2).any(|pair| pair == b"/.");
    if !hidden && !path.name().starts_with(b"lefthook.") {
        return false;
    }
    let text = String::from_utf8_lossy(bytes);
    let name = text.rsplit('/').next().unwrap_or_default();
    let in_place = |(directory, names): &(&str, &[&str])| {
        let below = text
            .strip_prefix(&format!("{directory}/"))
            .or_else(|| text.split_once(&format!("/{directory}/")).map(|(_, below)| below));
        below.is_some_and(|below| {
            names.iter().any(|name| match name.is_empty() || name.ends_with('/') {
                true => below.starts_with(name),
                false => below == *name,
            })
        })
    };
    NAMES.contains(&name) || PLACES.iter().any(in_place)
}

/// Whether a file of a repository's metadata can make git run something.
fn arms_git(file: &BundleFile) -> bool {
    let text = String::from_utf8_lossy(&file.inner);
    let hook = text
        .split_once("hooks/")
        .is_some_and(|(before, _)| before.is_empty() || before.ends_with('/'));
    let config = text == "config" || text.ends_with("/config") || text.ends_with("config.worktree");
    hook && !text.ends_with(".sample") || config
}

impl Workspace {
    /// What a plan brings back that runs by itself.
    pub(super) fn armed(&self, planned: &Planned) -> Result<Vec<String>> {
        let mut armed = Vec::new();
        for goal in &planned.draft.goals {
            match (&goal.then, &goal.now) {
                (Entry::File(_) | Entry::Symlink(_), now)
                    if runs_by_itself(&goal.path) && !goal.then.same_content(now) =>
                {
                    armed.push(goal.path.to_string());
                }
                (Entry::Repository(then), now) => {
                    let now = now.object().map(|id| self.arms(&id)).transpose()?;
                    let before = now.unwrap_or_default();
                    let differ = |file: &BundleFile| {
                        !before.iter().any(|b| b.inner == file.inner && b.kind == file.kind)
                    };
                    for file in self.arms(&then.bundle)?.iter().filter(|file| differ(file)) {
                        let inner = String::from_utf8_lossy(&file.inner);
                        armed.push(format!("{}/{inner}", goal.path));
                    }
                }
                _ => {}
            }
        }
        Ok(armed)
    }

    fn arms(&self, bundle: &ObjectId) -> Result<Vec<BundleFile>> {
        let bytes = self.objects()?.get(bundle)?;
        // One that cannot be read is found out when it is written.
        let files = Bundle::decode(&bytes).map(|bundle| bundle.files).unwrap_or_default();
        Ok(files.into_iter().filter(arms_git).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_by_itself_is_known_by_its_place() {
        let runs = |path: &str| runs_by_itself(&WorkspacePath::new(path).unwrap());
        for path in [
            ".envrc",
            "sub/.envrc",
            ".claude/settings.json",
            "a/b/.claude/settings.local.json",
            ".claude/hooks/pre.sh",
            ".vscode/tasks.json",
            ".husky/pre-commit",
            ".mcp.json",
        ] {
            assert!(runs(path), "{path}");
        }
        for path in ["envrc", "src/settings.json", ".claude/notes.md", "x.claude/settings.json"] {
            assert!(!runs(path), "{path}");
        }
    }
}
