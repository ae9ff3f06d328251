//! Isolated runs: starting one, finding those that wait for a decision, and discarding.
//!
//! What a run changed is `isolated_changes`, bringing that into the workspace `isolated_commit`.

use std::path::{Path, PathBuf};

use super::attribute::session_of;
use super::turns::RUN_SESSION;
use super::views::timestamp;
use super::{PATIENCE, Workspace};
use crate::catalog::Log;
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::{private_directory, sync_directory};
use crate::id::{Seq, SnapshotId};
use crate::isolated::{
    GOING, RunPlace, Stage, State, first_process_lives, freeze, hindrance, is_overlay, remove_tree,
    uses_user_xattrs,
};
use crate::lock::Lock;
use crate::record::Labels;
use crate::view::{IsolatedView, SCHEMA};

/// A run that was prepared: its command may start, over a layer of its own.
///
/// While this lives nobody else takes the run for dead.
#[must_use = "a run that is not ended counts as killed"]
#[derive(Debug)]
pub struct IsolatedRun {
    pub(super) state: State,
    pub(super) place: RunPlace,
    pub(super) _alive: Lock,
}

impl IsolatedRun {
    /// The run's id; also that of the snapshot that a commit makes.
    pub fn id(&self) -> SnapshotId {
        self.state.id
    }

    /// The run's own directory.
    pub fn directory(&self) -> &Path {
        self.place.directory()
    }

    /// The directory that takes what the command writes.
    pub fn upper(&self) -> PathBuf {
        self.place.upper()
    }

    /// What lies below the layer: the workspace, or what stood there when the run was prepared, if that could be frozen.
    pub fn lower(&self, root: &Path) -> PathBuf {
        let frozen = self.place.frozen();
        if frozen.exists() { frozen } else { root.to_owned() }
    }

    /// The directory that the kernel needs beside it.
    pub fn work(&self) -> PathBuf {
        self.place.work()
    }

    /// Whether the layer's marks are attributes that users may set.
    pub fn user_xattrs(&self) -> bool {
        self.state.user_xattrs
    }

    /// Where the first process of the run's namespaces says which it is.
    pub fn first(&self) -> PathBuf {
        self.place.first()
    }

    /// Where it writes why it could not.
    pub fn refused(&self) -> PathBuf {
        self.place.refused()
    }
}

impl Workspace {
    fn runs(&self) -> PathBuf {
        self.directory().join("isolated")
    }

    /// Prepares a run whose command works on a layer over the workspace.
    ///
    /// What the workspace is now is recorded first: it is what the run's work is compared with.
    pub fn isolate(&mut self, summary: &str) -> Result<IsolatedRun> {
        if let Some(why) = hindrance(&self.root, self.home.path()) {
            return Err(Error::NotIsolated { root: self.root.clone(), why });
        }
        self.refuse_unfilled("An isolated run")?;
        let _lock = self.lock(PATIENCE)?;
        // What cannot be removed is the doctor's to tell of, and no reason to run nothing.
        let _ = self.sweep_runs();
        self.settle_locked()?;
        let labels = match &self.open_turns()?[..] {
            [turn] => Labels { session: Some(session_of(turn)), ..turn.clone() },
            _ => Labels { session: Some(RUN_SESSION.to_owned()), ..Labels::default() },
        };
        let (id, time) = (SnapshotId::new(self.now()), self.now());
        let place = RunPlace::new(&self.runs(), &id);
        private_directory(place.directory())?;
        let alive = Lock::take(&place.lock(), PATIENCE)?;
        for directory in [place.upper(), place.work()] {
            private_directory(&directory)?;
        }
        self.make_alike(&place.upper())?;
        // Not before everything is recorded: what changes in between then counts as somebody else's.
        freeze(self.roots.workspace().handle()?, &place.frozen());
        failpoint::hit("isolated_before_state");
        let state = State {
            id,
            workspace: self.id,
            epoch: self.catalog.epoch(),
            start: self.catalog.head()?.seq,
            time,
            stage: Stage::Started,
            user_xattrs: uses_user_xattrs(),
            turn: labels.turn,
            session: labels.session.unwrap_or_default(),
            summary: State::cut(summary),
        };
        state.write_first(&place)?;
        sync_directory(&self.runs())?;
        failpoint::hit("isolated_after_state");
        Ok(IsolatedRun { state, place, _alive: alive })
    }

    /// Gives the layer's own directory what the workspace's has: the command sees its attributes.
    fn make_alike(&self, upper: &Path) -> Result<()> {
        let root = self.roots.workspace().handle()?;
        let (stat, xattrs) =
            (crate::fs::stat_of(root).at("read", &self.root)?, crate::fs::xattrs(root));
        let layer = std::fs::File::open(upper).at("open", upper)?;
        let signature = stat.signature;
        let owner = crate::fs::stat_of(&layer).at("read", upper)?.signature;
        if (owner.uid, owner.gid) != (signature.uid, signature.gid) {
            let (uid, gid) = (signature.uid, signature.gid);
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            if rustix::fs::fchown(&layer, Some(uid), Some(gid)).is_err() {
                let why = "its directory belongs to another user or group".to_owned();
                return Err(Error::NotIsolated { root: self.root.clone(), why });
            }
        }
        let mode = rustix::fs::Mode::from_raw_mode(signature.mode & 0o7777);
        rustix::fs::fchmod(&layer, mode).at("change", upper)?;
        for (name, value) in xattrs.at("read", &self.root)? {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&layer, &name[..], &value, flags).at("change", upper)?;
        }
        let time = rustix::fs::Timespec {
            tv_sec: signature.mtime_ns.div_euclid(1_000_000_000),
            tv_nsec: signature.mtime_ns.rem_euclid(1_000_000_000),
        };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&layer, &times).at("change", upper)
    }

    /// Says that the command of a run has ended, and how.
    pub fn isolated_end(&mut self, run: &IsolatedRun, status: u8) -> Result<()> {
        // Syncing here would wait for all that the command wrote.
        let file = run.place.ended();
        std::fs::write(&file, status.to_string()).at("write", &file)?;
        failpoint::hit("isolated_after_end");
        Ok(())
    }

    /// Why the kernel refused to isolate a run, if it did; such a run never began, and is removed.
    pub fn isolated_refusal(&mut self, run: &IsolatedRun) -> Result<Option<Error>> {
        let Ok(why) = std::fs::read_to_string(run.refused()) else { return Ok(None) };
        self.remove_run(&run.place)?;
        Ok(Some(Error::NotIsolated { root: self.root.clone(), why }))
    }

    /// The runs that wait for a decision, or go on, oldest first.
    pub fn isolated_runs(&self) -> Result<Vec<IsolatedView>> {
        let mut views = Vec::new();
        for (state, place) in self.all_runs()? {
            views.push(self.isolated_view(&state, &place)?);
        }
        for (id, place) in self.damaged_runs()? {
            views.push(damaged_view(&id, &place));
        }
        views.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(views)
    }

    /// One run, by a part of its id; the only one where nothing is said.
    pub fn isolated_show(&self, id: Option<&str>) -> Result<IsolatedView> {
        let (state, place) = self.find_run(id)?;
        self.isolated_view(&state, &place)
    }

    fn isolated_view(&self, state: &State, place: &RunPlace) -> Result<IsolatedView> {
        let done = !self.catalog.of_snapshot(&state.id)?.is_empty();
        let status = place.status();
        let words = match state.stage {
            _ if done || state.stage == Stage::Committed => "committed",
            Stage::Started if status.is_none() && is_running(place)? => "running",
            Stage::Started if status.is_none() => "killed",
            _ => "ended",
        };
        Ok(IsolatedView {
            schema: SCHEMA,
            id: state.id.to_string(),
            short_id: state.id.short(),
            summary: state.summary.clone(),
            state: words.to_owned(),
            status,
            started_at: timestamp(state.time),
            start_seq: state.start.0,
            session: state.session.clone(),
            turn: state.turn,
            layer: place.upper().display().to_string(),
        })
    }

    /// Throws a run's work away; the workspace was never touched by it.
    pub fn isolated_discard(&mut self, id: Option<&str>) -> Result<IsolatedView> {
        let _lock = self.lock(PATIENCE)?;
        let (place, view) = match self.find_run(id) {
            Err(Error::NoIsolatedRun(_)) => self.find_damaged(id)?,
            found => {
                let (state, place) = found?;
                let view = self.isolated_view(&state, &place)?;
                (place, view)
            }
        };
        let _alive = take_over(&place)?;
        self.remove_run(&place)?;
        let _ = self.sweep_runs();
        Ok(view)
    }

    /// Throws the work of a run away whose command has just ended here.
    pub fn isolated_drop(&mut self, run: IsolatedRun) -> Result<()> {
        let _lock = self.lock(PATIENCE)?;
        self.remove_run(&run.place)
    }

    /// Removes a run's directory: from the rename on it is no run any more, whatever comes.
    pub(super) fn remove_run(&self, place: &RunPlace) -> Result<()> {
        let (from, runs) = (place.directory(), self.runs());
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let going = runs.join(format!("{GOING}{name}"));
        std::fs::rename(from, &going).at("rename", from)?;
        sync_directory(&runs)?;
        failpoint::hit("isolated_in_discard");
        remove_tree(&going)
    }

    /// Goes on with what an interrupted discard or start left behind; needs the lock.
    pub(super) fn sweep_runs(&self) -> Result<()> {
        for name in self.run_names()? {
            let directory = self.runs().join(&name);
            if name.starts_with(GOING) {
                remove_tree(&directory)?;
            } else if let Ok(id) = name.parse::<SnapshotId>() {
                let place = RunPlace::new(&self.runs(), &id);
                // Whoever prepares a run holds the workspace's lock until its state is written.
                if matches!(State::read(&place), Ok(None)) {
                    self.remove_run(&place)?;
                }
            }
        }
        Ok(())
    }

    fn run_names(&self) -> Result<Vec<String>> {
        let runs = self.runs();
        let entries = match std::fs::read_dir(&runs) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("list", &runs)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.at("list", &runs)?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn all_runs(&self) -> Result<Vec<(State, RunPlace)>> {
        let known = self.run_ids()?.into_iter().filter_map(|(id, place)| {
            let state = State::read(&place).ok().flatten().filter(|state| state.id == id)?;
            Some((state, place))
        });
        Ok(known.collect())
    }

    fn run_ids(&self) -> Result<Vec<(SnapshotId, RunPlace)>> {
        let ids = self.run_names()?.into_iter().filter_map(|name| name.parse::<SnapshotId>().ok());
        Ok(ids.map(|id| (id, RunPlace::new(&self.runs(), &id))).collect())
    }

    /// Runs of which nobody can tell what they were.
    pub(super) fn damaged_runs(&self) -> Result<Vec<(SnapshotId, RunPlace)>> {
        let is_damaged = |(id, place): &(SnapshotId, RunPlace)| match State::read(place) {
            Ok(None) => false,
            Ok(Some(state)) => state.id != *id,
            Err(_) => true,
        };
        Ok(self.run_ids()?.into_iter().filter(is_damaged).collect())
    }

    fn find_damaged(&self, id: Option<&str>) -> Result<(RunPlace, IsolatedView)> {
        let given = id.map(str::to_owned);
        let fits = |(run, _): &(SnapshotId, RunPlace)| {
            given.as_ref().is_some_and(|text| super::moment::fits(&run.hex(), text))
        };
        let found = self.damaged_runs()?.into_iter().find(fits);
        let (run, place) = found.ok_or(Error::NoIsolatedRun(given.clone()))?;
        let view = damaged_view(&run, &place);
        Ok((place, view))
    }

    /// What an interrupted start or discard left, which nobody needs.
    pub(super) fn stale_runs(&self) -> Result<Vec<PathBuf>> {
        let is_stale = |name: &String| match name.parse::<SnapshotId>() {
            Ok(id) => matches!(State::read(&RunPlace::new(&self.runs(), &id)), Ok(None)),
            Err(()) => name.starts_with(GOING),
        };
        let names = self.run_names()?.into_iter().filter(is_stale);
        Ok(names.map(|name| self.runs().join(name)).collect())
    }

    /// The run that a part of an id names.
    pub(super) fn find_run(&self, id: Option<&str>) -> Result<(State, RunPlace)> {
        let mut runs = self.all_runs()?;
        if let Some(text) = id {
            runs.retain(|(state, _)| super::moment::fits(&state.id.hex(), text));
        }
        match runs.len() {
            1 => Ok(runs.remove(0)),
            0 => Err(Error::NoIsolatedRun(id.map(str::to_owned))),
            _ => Err(Error::Ambiguous {
                given: id.unwrap_or_default().to_owned(),
                candidates: runs.iter().map(|(state, _)| state.id.short()).collect(),
            }),
        }
    }

    /// Whether what stands at the root is the layer of a run that goes on: we are its command.
    pub(super) fn is_seen_from_inside(&self) -> Result<bool> {
        if !is_overlay(&self.root) {
            return Ok(false);
        }
        for (state, place) in self.all_runs()? {
            if state.stage == Stage::Started && is_running(&place)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where runs started that wait for a decision: what their work is compared with.
    pub(super) fn isolated_starts(&self) -> Result<Vec<Seq>> {
        Ok(self.all_runs()?.into_iter().map(|(state, _)| state.start).collect())
    }
}

fn damaged_view(id: &SnapshotId, place: &RunPlace) -> IsolatedView {
    IsolatedView {
        schema: SCHEMA,
        id: id.to_string(),
        short_id: id.short(),
        summary: "its state cannot be read".to_owned(),
        state: "damaged".to_owned(),
        status: None,
        started_at: String::new(),
        start_seq: 0,
        session: String::new(),
        turn: None,
        layer: place.upper().display().to_string(),
    }
}

/// Whether the process that runs a command still lives.
fn is_running(place: &RunPlace) -> Result<bool> {
    Ok(Lock::try_take(&place.lock())?.is_none() || first_process_lives(&place.first()))
}

/// Takes a run over from whoever ran it: only once nothing of it lives any more.
pub(super) fn take_over(place: &RunPlace) -> Result<Lock> {
    let busy = || Error::Busy("the isolated run is still going on".to_owned());
    let lock = Lock::try_take(&place.lock())?.ok_or_else(busy)?;
    if first_process_lives(&place.first()) {
        return Err(busy());
    }
    Ok(lock)
}
