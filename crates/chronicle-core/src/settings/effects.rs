//! The tables `[effects]` and `[checkpoint.when]`: which commands and tools reach outside, and which a
//! checkpoint goes before.

use std::time::Duration;

use serde::Deserialize;

use crate::shell::{self, Rules};

/// How long a checkpoint before a call may take where nothing is said, and at most: agents wait 30
/// seconds for a hook.
const LIMIT_SECONDS: u64 = 20;

/// Which commands and tools do what cannot be taken back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EffectSettings {
    /// Whether the commands count that are known without being named; they do where nothing is said.
    pub builtin: Option<bool>,
    /// Patterns of commands.
    pub commands: Vec<String>,
    /// Names of tools; `*` is any text.
    pub tools: Vec<String>,
    /// Patterns of commands that are none of them.
    pub except: Vec<String>,
}

/// When a checkpoint is made by itself, from an agent's hook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointWhen {
    /// Before commands that are known to change data; where nothing is said, if parts are declared.
    pub migrations: Option<bool>,
    /// Before these commands.
    pub commands: Vec<String>,
    /// Before these tools.
    pub tools: Vec<String>,
    /// Never before these commands.
    pub except: Vec<String>,
    /// Before the first action of a turn, when so many turns began since the last checkpoint.
    pub every_turns: Option<u32>,
    /// How long it may take.
    pub limit_seconds: Option<u64>,
}

impl EffectSettings {
    pub(super) fn check(&self) -> Result<(), String> {
        check("effects", [&self.commands, &self.tools, &self.except])
    }

    /// Both together; whoever says no to what is known is heard.
    pub(crate) fn joined(&self, other: &Self) -> Self {
        let no = [self.builtin, other.builtin].contains(&Some(false));
        Self {
            builtin: no.then_some(false),
            commands: [&self.commands[..], &other.commands].concat(),
            tools: [&self.tools[..], &other.tools].concat(),
            except: [&self.except[..], &other.except].concat(),
        }
    }

    /// What is looked for: outside, and in data beside the files.
    pub(crate) fn rules(&self) -> [Rules<'_>; 2] {
        let known = self.builtin != Some(false);
        let of = |list: &'static [&'static str]| if known { list } else { &[] };
        let (commands, tools, except) = (&self.commands[..], &self.tools[..], &self.except[..]);
        let outside = Rules { known: of(shell::known_effects()), commands, tools, except };
        [outside, Rules { known: of(shell::known_data()), except, ..Rules::default() }]
    }

    /// What these mark less of than others, in words.
    pub(super) fn weaker_than(&self, other: &Self) -> Vec<String> {
        let off = self.builtin == Some(false) && other.builtin != Some(false);
        let mut words: Vec<_> =
            off.then(|| "effects.builtin: false".to_owned()).into_iter().collect();
        words.extend(fewer("effects.commands", &self.commands, &other.commands));
        words.extend(fewer("effects.tools", &self.tools, &other.tools));
        words.extend(more("effects.except", &self.except, &other.except));
        words
    }
}

impl CheckpointWhen {
    pub(super) fn check(&self) -> Result<(), String> {
        check("checkpoint.when", [&self.commands, &self.tools, &self.except])?;
        if self.every_turns == Some(0) {
            return Err("every_turns in [checkpoint.when] is 0; leave it out for never".to_owned());
        }
        match self.limit_seconds.unwrap_or(LIMIT_SECONDS) {
            1..=LIMIT_SECONDS => Ok(()),
            _ => Err(format!(
                "limit_seconds in [checkpoint.when] is not from 1 to {LIMIT_SECONDS}: agents wait 30 \
                 seconds for a hook"
            )),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_seconds.unwrap_or(LIMIT_SECONDS))
    }

    /// What is looked for; `declared`: somebody said what checkpoints are made of.
    pub(crate) fn rules(&self, declared: bool) -> Rules<'_> {
        let known = match self.migrations.unwrap_or(declared) {
            true => shell::known_data(),
            false => &[],
        };
        Rules { known, commands: &self.commands, tools: &self.tools, except: &self.except }
    }

    /// What these make fewer checkpoints for than others, in words.
    pub(super) fn weaker_than(&self, other: &Self, declared: [bool; 2]) -> Vec<String> {
        let [ours, theirs] = declared;
        let off = !self.migrations.unwrap_or(ours) && other.migrations.unwrap_or(theirs);
        let mut words = Vec::new();
        words.extend(off.then(|| "checkpoint.when.migrations: false".to_owned()));
        words.extend(fewer("checkpoint.when.commands", &self.commands, &other.commands));
        words.extend(fewer("checkpoint.when.tools", &self.tools, &other.tools));
        words.extend(more("checkpoint.when.except", &self.except, &other.except));
        let rarely = |when: &Self| when.every_turns.unwrap_or(u32::MAX);
        if rarely(self) > rarely(other) {
            words.push(format!("checkpoint.when.every_turns: {}", turns(self.every_turns)));
        }
        words
    }
}

fn turns(every: Option<u32>) -> String {
    every.map_or("never".to_owned(), |turns| turns.to_string())
}

fn check<'l>(table: &str, lists: impl IntoIterator<Item = &'l Vec<String>>) -> Result<(), String> {
    for pattern in lists.into_iter().flatten() {
        if let Some(problem) = shell::problem(pattern) {
            return Err(format!("{pattern:?} in [{table}] {problem}"));
        }
    }
    Ok(())
}

fn more(name: &str, new: &[String], old: &[String]) -> Option<String> {
    let more: Vec<_> = new.iter().filter(|line| !old.contains(line)).cloned().collect();
    (!more.is_empty()).then(|| format!("{name}: {}", more.join(", ")))
}

fn fewer(name: &str, new: &[String], old: &[String]) -> Option<String> {
    more(&format!("{name}, no longer"), old, new)
}
