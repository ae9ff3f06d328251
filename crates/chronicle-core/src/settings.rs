//! The settings that people write: `chronicle.toml` in the workspace, `config.toml` in the home.
//!
//! Anything in a workspace may have been written by an agent. What keeps more or takes less room
//! away from others holds at once; what keeps less waits until a person accepts it.

mod checkpoint;
mod effects;

use std::path::Path;

use serde::Deserialize;

pub use checkpoint::{CheckpointCommand, CheckpointPart, CheckpointSettings};
pub use effects::{CheckpointWhen, EffectSettings};

use crate::error::{Error, Result};
use crate::retention::Policy;

/// The file in the workspace.
pub(crate) const WORKSPACE_FILE: &str = "chronicle.toml";
/// The file in the home.
pub(crate) const HOME_FILE: &str = "config.toml";
/// A settings file is never longer.
const LONGEST: u64 = 64 << 10;

/// What people can set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How long history is kept.
    pub retention: Policy,
    /// Bytes that the home may take; `None`: a quarter of its file system.
    pub budget: Option<u64>,
    /// Bytes that stay free on the home's file system; `None`: a fiftieth of it, at most 1 GiB.
    pub floor: Option<u64>,
    /// Which files hold secrets.
    pub secrets: SecretSettings,
    /// What does not travel between a host and its replicas.
    pub replication: ReplicationSettings,
    /// What checkpoints are made of.
    pub checkpoint: CheckpointSettings,
    /// What cannot be taken back.
    pub effects: EffectSettings,
}

/// What does not travel; lists of patterns as in `.gitignore`, the last one that fits decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationSettings {
    /// From the host to its replicas.
    pub push: Vec<String>,
    /// From a replica to its host.
    pub write_back: Vec<String>,
}

/// Which files hold secrets, besides those that always do; lists of patterns as in `.gitignore`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretSettings {
    /// Kept sealed.
    pub encrypt: Vec<String>,
    /// Never kept.
    pub never: Vec<String>,
    /// Kept plain, though they look like secrets.
    pub plain: Vec<String>,
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    budget: Option<Size>,
    floor: Option<Size>,
    max_snapshots: Option<u64>,
    max_age_days: Option<u32>,
    retention: Retention,
    secrets: SecretSettings,
    replication: ReplicationSettings,
    checkpoint: CheckpointSettings,
    effects: EffectSettings,
}

/// The table `[retention]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Retention {
    max_snapshots: Option<u64>,
    max_age_days: Option<Age>,
    turns: Option<u32>,
    hours: Option<u32>,
    days: Option<u32>,
    weeks: Option<u32>,
    min_age_hours: Option<u32>,
}

/// A number of days, or `"unlimited"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Age {
    Days(u32),
    Words(String),
}

/// Bytes, as a number or with a unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Words(String),
}

impl Settings {
    /// Reads the text of a settings file.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self> {
        let bad = |why: String| Error::Settings { path: path.to_owned(), why };
        let written: Written =
            toml::from_str(text).map_err(|error| bad(error.message().to_owned()))?;
        let defaults = Policy::default();
        let table = written.retention;
        let max_age_days = match table.max_age_days {
            Some(Age::Days(days)) => Some(days),
            Some(Age::Words(words)) if words == "unlimited" => None,
            Some(Age::Words(words)) => {
                return Err(bad(format!(
                    "max_age_days is {words:?}, not a number or \"unlimited\""
                )));
            }
            None => written.max_age_days.or(defaults.max_age_days),
        };
        written.secrets.check().map_err(bad)?;
        written.effects.check().map_err(bad)?;
        written.checkpoint.when.check().map_err(bad)?;
        let size = |size: Option<Size>| size.map(|size| size.bytes()).transpose().map_err(bad);
        Ok(Self {
            retention: Policy {
                max_age_days,
                max_snapshots: table.max_snapshots.or(written.max_snapshots),
                turns: table.turns.unwrap_or(defaults.turns),
                hours: table.hours.unwrap_or(defaults.hours),
                days: table.days.unwrap_or(defaults.days),
                weeks: table.weeks.unwrap_or(defaults.weeks),
                min_age_hours: table.min_age_hours.unwrap_or(defaults.min_age_hours),
            },
            budget: size(written.budget)?,
            floor: size(written.floor)?,
            secrets: written.secrets,
            replication: written.replication,
            checkpoint: written.checkpoint,
            effects: written.effects,
        })
    }

    /// The text of a settings file; empty where there is none.
    pub(crate) fn text(path: &Path) -> Result<String> {
        use std::io::Read;
        let bad = |why: String| Error::Settings { path: path.to_owned(), why };
        // A link could name anything, and nothing else than a file is ever waited for.
        let flags = rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::NONBLOCK
            | rustix::fs::OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
            opened => std::fs::File::from(opened.map_err(|error| bad(error.to_string()))?),
        };
        let mut text = String::new();
        let read = file.take(LONGEST + 1).read_to_string(&mut text);
        read.map_err(|error| bad(error.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(bad("it is too long".to_owned()));
        }
        Ok(text)
    }

    /// What these settings keep less of than others, in words.
    pub(crate) fn shorter_than(&self, other: &Self) -> Vec<String> {
        let mut words = Vec::new();
        if self.retention.is_shorter_than(&other.retention) {
            words.push(format!("retention: {}", self.retention.words()));
        }
        if self.budget.unwrap_or(u64::MAX) < other.budget.unwrap_or(u64::MAX) {
            words.push(format!("budget: {} bytes", self.budget.unwrap_or_default()));
        }
        if self.floor.unwrap_or(0) > other.floor.unwrap_or(0) {
            words.push(format!("floor: {} bytes", self.floor.unwrap_or_default()));
        }
        words.extend(self.secrets.weaker_than(&other.secrets));
        words.extend(self.checkpoint.more_than(&other.checkpoint));
        words.extend(self.effects.weaker_than(&other.effects));
        let declared = [self, other].map(|settings| !settings.checkpoint.part.is_empty());
        words.extend(self.checkpoint.when.weaker_than(&other.checkpoint.when, declared));
        words
    }
}

impl SecretSettings {
    /// A line that takes back another would make the order count, and what is weaker hard to see.
    fn check(&self) -> Result<(), String> {
        let all = self.encrypt.iter().chain(&self.never).chain(&self.plain);
        let odd = |line: &&String| line.starts_with(['!', '#']) || line.contains('\n');
        match all.into_iter().find(odd) {
            Some(line) => Err(format!("{line:?} in [secrets] is no plain pattern")),
            None => Ok(()),
        }
    }

    /// What these keep less of, or less secret, than others, in words.
    fn weaker_than(&self, other: &Self) -> Vec<String> {
        let added = |name: &str, new: &[String], old: &[String]| {
            let more: Vec<_> = new.iter().filter(|line| !old.contains(line)).cloned().collect();
            (!more.is_empty()).then(|| format!("secrets.{name}: {}", more.join(", ")))
        };
        let fewer = added("encrypt, no longer", &other.encrypt, &self.encrypt);
        let more = [added("never", &self.never, &other.never), fewer];
        more.into_iter().chain([added("plain", &self.plain, &other.plain)]).flatten().collect()
    }

    /// Both together.
    pub(crate) fn joined(&self, other: &Self) -> Self {
        let both = |a: &[String], b: &[String]| [a, b].concat();
        Self {
            encrypt: both(&self.encrypt, &other.encrypt),
            never: both(&self.never, &other.never),
            plain: both(&self.plain, &other.plain),
        }
    }
}

impl Size {
    fn bytes(&self) -> Result<u64, String> {
        let words = match self {
            Self::Bytes(bytes) => return Ok(*bytes),
            Self::Words(words) => words.trim(),
        };
        let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let unit: u64 = match words[digits.len()..].trim() {
            "" | "B" => 1,
            "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" | "K" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            "TiB" | "T" => 1 << 40,
            unit => {
                return Err(format!("{unit:?} is no unit of size (B, KB, KiB, MB, MiB, GB, GiB)"));
            }
        };
        let count: u64 = digits.parse().map_err(|_| format!("{words:?} is no size"))?;
        count.checked_mul(unit).ok_or_else(|| format!("{words:?} is too large"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(text, Path::new("chronicle.toml"))
    }

    #[test]
    fn nothing_written_is_the_defaults() {
        assert_eq!(parse("").unwrap(), Settings::default());
    }

    #[test]
    fn both_ways_of_writing_limits_are_honoured() {
        let seed = parse("max_snapshots = 100\nmax_age_days = 7\n").unwrap();
        let table = parse("[retention]\nmax_snapshots = 100\nmax_age_days = 7\n").unwrap();
        assert_eq!(seed, table);
        assert_eq!(seed.retention.max_age_days, Some(7));
        let for_ever = parse("[retention]\nmax_age_days = \"unlimited\"\n").unwrap();
        assert_eq!(for_ever.retention.max_age_days, None);
    }

    #[test]
    fn sizes_have_units() {
        let settings = parse("budget = \"10 GiB\"\nfloor = 4096\n").unwrap();
        assert_eq!((settings.budget, settings.floor), (Some(10 << 30), Some(4096)));
        assert_eq!(parse("budget = \"3MB\"").unwrap().budget, Some(3_000_000));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let texts = [
            "budgets = 1",
            "budget = \"ten\"",
            "budget = \"1 XB\"",
            "[retention]\nturn = 1",
            "x",
            "[secrets]\nkeep = []",
            "[effects]\ncommand = []",
            "[effects]\ncommands = ['']",
            "[effects]\ntools = ['*']",
            "[checkpoint.when]\nevery_turns = 0",
            "[checkpoint.when]\nlimit_seconds = 60",
        ];
        for text in texts {
            let error = parse(text).unwrap_err();
            assert_eq!(error.code(), "settings", "{text}");
        }
    }

    #[test]
    fn less_in_any_respect_is_shorter() {
        let all = Settings::default();
        let check = |text: &str, shorter: bool| {
            assert_eq!(!parse(text).unwrap().shorter_than(&all).is_empty(), shorter, "{text}");
        };
        check("max_age_days = 31", false);
        check("max_age_days = 29", true);
        check("max_snapshots = 1000000", true);
        check("budget = \"1GiB\"", true);
        check("[retention]\nturns = 10\nmax_age_days = 300", true);
        check("[retention]\nweeks = 100", false);
        check("[secrets]\nencrypt = ['*.secret']", false);
        check("[secrets]\nnever = ['vault/**']", true);
        check("[secrets]\nplain = ['*.pem']", true);
        check("[effects]\ncommands = ['deploy']\nbuiltin = true", false);
        check("[effects]\nbuiltin = false", true);
        check("[effects]\nexcept = ['git push staging']", true);
        check("[checkpoint.when]\nevery_turns = 5\ncommands = ['x']", false);
        check("[checkpoint.when]\nmigrations = false", false);
        check("[checkpoint.when]\nexcept = ['alembic upgrade']", true);
        let more = parse("[effects]\ncommands = ['a']\n[[checkpoint.part]]\ngit = '.'").unwrap();
        let turns = parse("[checkpoint.when]\nevery_turns = 5").unwrap();
        assert_eq!(all.shorter_than(&more).len(), 2, "{:?}", all.shorter_than(&more));
        assert!(!all.shorter_than(&turns).is_empty());
        let sealed = parse("[secrets]\nencrypt = ['*.secret']").unwrap();
        assert!(!all.shorter_than(&sealed).is_empty());
    }
}
