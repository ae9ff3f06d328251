//! The rules of a workspace's filters: what its `chronicle.toml` says, then what was added by command.
//!
//! Those added by command lie in the home, out of reach of whatever works in the workspace, and come last: the last
//! rule that fits decides.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chronicle_core::{Home, ReplicationSettings, WorkspaceId};
use serde::{Deserialize, Serialize};

use crate::wire::Direction;

/// Files that say how a workspace is protected: no replica writes them back to its host.
const HOST_DECIDES: [&str; 2] = ["/chronicle.toml", "/.chronicleignore"];
const FILE: &str = "replication-rules.json";

/// Rules of both directions, lines as in `.gitignore`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// What the host does not send.
    pub push: Vec<String>,
    /// What a replica does not send back.
    pub write_back: Vec<String>,
}

impl Rules {
    /// The lines of one direction.
    pub fn of(&self, direction: Direction) -> &[String] {
        match direction {
            Direction::Push => &self.push,
            Direction::WriteBack => &self.write_back,
        }
    }

    fn of_mut(&mut self, direction: Direction) -> &mut Vec<String> {
        match direction {
            Direction::Push => &mut self.push,
            Direction::WriteBack => &mut self.write_back,
        }
    }
}

/// The file in the home with the rules that were added for one workspace.
#[derive(Debug, Clone)]
pub struct RuleFile {
    path: PathBuf,
}

impl RuleFile {
    /// That of a workspace.
    pub fn of(home: &Home, workspace: WorkspaceId) -> Self {
        Self { path: home.path().join("workspaces").join(workspace.hex()).join(FILE) }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The rules in it; none if there is no such file.
    pub fn read(&self) -> io::Result<Rules> {
        match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Rules::default()),
            bytes => Ok(serde_json::from_slice(&bytes?)?),
        }
    }

    /// Adds a rule; false if it is the last one already.
    pub fn add(&self, direction: Direction, rule: &str) -> io::Result<bool> {
        let mut rules = self.read()?;
        let lines = rules.of_mut(direction);
        if lines.last().is_some_and(|last| last == rule) {
            return Ok(false);
        }
        lines.retain(|line| line != rule);
        lines.push(rule.to_owned());
        self.write(&rules).map(|()| true)
    }

    /// Removes a rule; false if there is no such.
    pub fn remove(&self, direction: Direction, rule: &str) -> io::Result<bool> {
        let mut rules = self.read()?;
        let lines = rules.of_mut(direction);
        let before = lines.len();
        lines.retain(|line| line != rule);
        if lines.len() == before {
            return Ok(false);
        }
        self.write(&rules).map(|()| true)
    }

    fn write(&self, rules: &Rules) -> io::Result<()> {
        let aside = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let _ = fs::remove_file(&aside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(&serde_json::to_vec_pretty(rules)?)?;
        file.sync_all()?;
        fs::rename(&aside, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// All rules that hold, as the text of an ignore file.
pub fn text(settings: &ReplicationSettings, added: &Rules, direction: Direction) -> Vec<u8> {
    let written = match direction {
        Direction::Push => &settings.push,
        Direction::WriteBack => &settings.write_back,
    };
    let host = match direction {
        Direction::Push => &[][..],
        Direction::WriteBack => &HOST_DECIDES[..],
    };
    let lines = written.iter().chain(added.of(direction)).map(String::as_str);
    lines.chain(host.iter().copied()).flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_kept_in_order_and_once() {
        let holder = tempfile::tempdir().expect("a directory");
        let home = Home::at(holder.path());
        let id = WorkspaceId([3; 16]);
        fs::create_dir_all(holder.path().join("workspaces").join(id.hex())).expect("made");
        let file = RuleFile::of(&home, id);
        assert_eq!(file.read().expect("read"), Rules::default());
        for rule in ["*.o", "!keep.o", "*.o"] {
            assert!(file.add(Direction::Push, rule).expect("added"));
        }
        assert!(!file.add(Direction::Push, "*.o").expect("there already"));
        assert_eq!(file.read().expect("read").push, ["!keep.o", "*.o"]);
        assert!(file.remove(Direction::Push, "*.o").expect("removed"));
        assert!(!file.remove(Direction::WriteBack, "*.o").expect("not there"));
    }

    #[test]
    fn what_was_added_comes_after_what_is_written() {
        let settings = ReplicationSettings { push: vec!["a".into()], write_back: vec![] };
        let added = Rules { push: vec!["!a".into()], write_back: vec!["b".into()] };
        assert_eq!(text(&settings, &added, Direction::Push), b"a\n!a\n");
        let back = text(&settings, &added, Direction::WriteBack);
        assert_eq!(back, b"b\n/chronicle.toml\n/.chronicleignore\n");
    }
}
