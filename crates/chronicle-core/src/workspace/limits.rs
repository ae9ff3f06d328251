//! The settings that hold for a workspace, and history that goes to keep within them.

use std::collections::{HashMap, HashSet};

use super::{Workspace, key};
use crate::catalog::{Batch, Durability, LocalState, Log};
use crate::codec;
use crate::entry::{Author, Entry};
use crate::error::{Error, Result, Stop};
use crate::grant::Act;
use crate::id::{ObjectId, Seq};
use crate::process::Process;
use crate::retention::Policy;
use crate::room::{self, Limits};
use crate::secret::SecretRules;
use crate::settings::{CheckpointSettings, EffectSettings, HOME_FILE, Settings, WORKSPACE_FILE};
use crate::store::Intake;
use crate::view::PruneReport;

/// How often old history is looked for.
const PRUNE_EVERY_NS: i64 = DAY_NS;
const DAY_NS: i64 = 86_400_000_000_000;
/// What is tried, in this order, when the budget binds: how many days stay, and whether the newest
/// turns stay whole.
const TIGHTER: [(u32, bool); 5] = [(14, true), (7, true), (3, true), (1, true), (1, false)];

/// What the files said when the lock was taken.
pub(super) struct Held {
    home: Settings,
    own: Settings,
    /// The text of settings that keep more than the accepted ones.
    wider: Option<String>,
}

impl Workspace {
    /// The settings that hold: the workspace's own as far as they keep more, and what was accepted.
    pub fn settings(&self) -> Result<Settings> {
        Ok(self.read_settings()?.own)
    }

    fn read_settings(&self) -> Result<Held> {
        let (home, accepted) = (self.home_settings()?, self.accepted_settings()?);
        let path = self.root.join(WORKSPACE_FILE);
        let text = Settings::text(&path);
        let current = text.and_then(|text| Ok((Settings::parse(&text, &path)?, text)));
        let (own, wider) = match current {
            // A file that cannot be understood changes nothing; `status` says so.
            Err(_) => (accepted, None),
            Ok((current, text)) if current.shorter_than(&accepted).is_empty() => {
                let wider = (current != accepted).then_some(text);
                (current, wider)
            }
            // More that is sealed or marked needs nobody's leave, whatever else is waiting for one.
            Ok((current, _)) => {
                let mut own = accepted;
                own.secrets.encrypt.extend(current.secrets.encrypt);
                own.effects.commands.extend(current.effects.commands);
                own.effects.tools.extend(current.effects.tools);
                own.checkpoint.when.commands.extend(current.checkpoint.when.commands);
                own.checkpoint.when.tools.extend(current.checkpoint.when.tools);
                (own, None)
            }
        };
        Ok(Held { home, own, wider })
    }

    /// The settings, read once for all that is done under one lock.
    fn held(&self) -> Result<&Held> {
        if let Some(held) = self.held.get() {
            return Ok(held);
        }
        let read = self.read_settings()?;
        Ok(self.held.get_or_init(|| read))
    }

    /// What counts as secret: what always does, and what the home and the workspace say.
    pub(super) fn secret_rules(&self) -> Result<SecretRules> {
        Ok(self.held()?.rules())
    }

    fn home_settings(&self) -> Result<Settings> {
        let path = self.home.path().join(HOME_FILE);
        Settings::parse(&Settings::text(&path)?, &path)
    }

    /// The settings in the workspace's file.
    pub fn current_settings(&self) -> Result<Settings> {
        let path = self.root.join(WORKSPACE_FILE);
        Settings::parse(&Settings::text(&path)?, &path)
    }

    fn accepted_settings(&self) -> Result<Settings> {
        let text = self.catalog.state(key::ACCEPTED_SETTINGS)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Settings::parse(&text, &self.root.join(WORKSPACE_FILE))
    }

    /// What the workspace's file would keep less of, and nobody accepted.
    pub(super) fn pending_settings(&self) -> Result<Vec<String>> {
        match self.current_settings() {
            Ok(current) => Ok(current.shorter_than(&self.accepted_settings()?)),
            Err(error) => Ok(vec![error.to_string()]),
        }
    }

    /// Settings that keep more need nobody's leave, and are the accepted ones from now on.
    pub(super) fn accept_wider_settings(&self, batch: &mut Batch) -> Result<()> {
        let wider = self.held()?.wider.as_ref();
        batch
            .state
            .extend(wider.map(|text| (key::ACCEPTED_SETTINGS, Some(text.clone().into_bytes()))));
        Ok(())
    }

    /// The text of the workspace's settings, for who accepts them as they are.
    pub(super) fn settings_to_accept(&self) -> Result<Vec<u8>> {
        let path = self.root.join(WORKSPACE_FILE);
        let text = Settings::text(&path)?;
        Settings::parse(&text, &path)?;
        Ok(text.into_bytes())
    }

    /// How much room the history may take: the home's own settings outrank a workspace's.
    pub(super) fn limits(&self) -> Result<Limits> {
        Ok(self.held()?.limits())
    }

    /// What cannot be taken back, as the home and the workspace say.
    pub(super) fn effect_settings(&self) -> Result<EffectSettings> {
        let held = self.held()?;
        Ok(held.home.effects.joined(&held.own.effects))
    }

    /// What checkpoints are made of, and when.
    pub(super) fn checkpoint_settings(&self) -> Result<&CheckpointSettings> {
        Ok(&self.held()?.own.checkpoint)
    }

    /// Begins to take content in, within the limits.
    pub(super) fn intake(&self) -> Result<Intake<'_>> {
        let held = self.held()?;
        let intake = self.store.intake()?.judging_by(held.rules());
        let intake = intake.within(self.home.path(), held.limits());
        Ok(if self.in_haste { intake.cloning() } else { intake })
    }

    /// The same for what must be kept whatever the limits say.
    pub(super) fn intake_without_limits(&self) -> Result<Intake<'_>> {
        Ok(self.store.intake()?.judging_by(self.secret_rules()?))
    }

    /// Lets the oldest history go that need not stay, where the home takes more room than it should.
    pub(super) fn keep_within_budget(&mut self) -> Result<()> {
        let limits = self.limits()?;
        if room::excess(self.home.path(), limits)? == 0 {
            return Ok(());
        }
        // An operator who has not allowed it keeps the history; capture fails loudly in the end.
        if self.operator()?.is_some() && !self.is_granted(Act::Prune)? {
            return Ok(());
        }
        // What one session floods the home with costs nobody's older history.
        if let Some((session, bytes)) = self.flooding(limits)? {
            return match room::is_full(self.home.path(), limits)? {
                false => Ok(()),
                true => Err(Error::OverBudget {
                    home: self.home.path().to_owned(),
                    why: format!(
                        "session {session:?} took {bytes} bytes within a day, more than its half of \
                         the budget, and no older history goes for that"
                    ),
                }),
            };
        }
        let rules = self.settings()?.retention;
        for (days, whole) in TIGHTER {
            let policy = Policy {
                max_age_days: Some(rules.max_age_days.map_or(days, |own| own.min(days))),
                turns: if whole { rules.turns } else { 0 },
                ..rules.clone()
            };
            if self.prune_locked(&policy, "the budget is used up", false)?.is_empty() {
                continue;
            }
            self.home.collect_garbage(&|_, _| ())?;
            room::measure(self.home.path())?;
            if room::excess(self.home.path(), limits)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// How many bytes should leave a home that is nearly full, so that it is not so again soon; 0 if it is not.
    pub fn excess(&self) -> Result<u64> {
        let (home, limits) = (self.home.path(), self.limits()?);
        room::measure(home)?;
        Ok(match room::excess(home, limits)? {
            0 => 0,
            excess => excess + room::budget(home, limits)? / 5,
        })
    }

    /// A session that took more than half of the budget within a day, and how much.
    fn flooding(&self, limits: Limits) -> Result<Option<(String, u64)>> {
        let most = room::budget(self.home.path(), limits)? / 2;
        let since = self.now().0 - DAY_NS;
        let mut taken: HashMap<String, (u64, HashSet<ObjectId>)> = HashMap::new();
        let mut seq = self.catalog.head()?.seq;
        while let Some(sealed) = self.catalog.record(seq)? {
            let Ok(record) = codec::open(&sealed.leaf, &sealed.body) else { break };
            if record.time.0 < since {
                break;
            }
            for change in &record.changes {
                let (Author::Session(session), Entry::File(file)) = (&change.author, &change.after)
                else {
                    continue;
                };
                let (bytes, seen) = taken.entry(session.clone()).or_default();
                if seen.insert(file.object) {
                    *bytes += file.size;
                }
            }
            seq = Seq(seq.0 - 1);
        }
        let most_of_all = taken.into_iter().max_by_key(|(_, (bytes, _))| *bytes);
        Ok(most_of_all.map(|(session, (bytes, _))| (session, bytes)).filter(|(_, b)| *b > most))
    }

    /// Refuses what only a person may do to a process that an agent started.
    ///
    /// This guards against accidents: who can write the home can do anything to it.
    pub fn refuse_agents(&self, what: &'static str) -> Result<()> {
        match self.sessions_of(&Process::ancestors())?.is_empty() {
            true => Ok(()),
            false => Err(Error::Stopped(Stop::NotAllowed(what))),
        }
    }

    /// Whether it is time to look for history that is too old.
    pub fn prune_is_due(&self) -> Result<bool> {
        let last = match self.catalog.state(key::PRUNED_AT)? {
            Some(last) => last.try_into().map_or(0, i64::from_le_bytes),
            None => self.read_header(Seq(1))?.time.0,
        };
        Ok((self.now().0 - last).unsigned_abs() > PRUNE_EVERY_NS.unsigned_abs())
    }

    /// Prunes by the rules that hold, and frees what nothing needs any more.
    pub fn prune_by_rules(&mut self, dry_run: bool) -> Result<PruneReport> {
        let mut report = self.prune(&self.settings()?.retention, "retention", dry_run)?;
        if dry_run {
            return Ok(report);
        }
        let now = self.now().0.to_le_bytes().to_vec();
        let state = vec![(key::PRUNED_AT, Some(now))];
        let lock = self.lock(super::PATIENCE)?;
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::ProcessDeath)?;
        drop(lock);
        report.freed_bytes = self.home.collect_garbage(&|_, _| ())?.freed_bytes;
        room::measure(self.home.path())?;
        Ok(report)
    }
}

impl Held {
    fn limits(&self) -> Limits {
        let Self { home, own, .. } = self;
        Limits { budget: home.budget.or(own.budget), floor: home.floor.or(own.floor) }
    }

    fn rules(&self) -> SecretRules {
        let set = self.home.secrets.joined(&self.own.secrets);
        SecretRules::new(&set.encrypt, &set.never, &set.plain)
    }
}
