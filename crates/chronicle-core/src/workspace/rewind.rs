//! Taking back: from a request to a plan, and from the plan to a changed workspace.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;

use super::attribute::session_of;
use super::finish::Pending;
use super::history::filtered_in;
use super::repository_rule::RepositoryHistory;
use super::resolve::Resolved;
use super::roles::{Gathered, Rule};
use super::saved_plan::digest;
use super::timings::Timings;
use super::views::{author_text, kept, plan_view};
use super::{LONG_PATIENCE, PATIENCE, Workspace, key};
use crate::apply;
use crate::catalog::{Batch, Durability, LocalState};
use crate::entry::{Entry, Why};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::{ObjectId, PlanId, Seq, SnapshotId, Time, TransactionId};
use crate::known::DirectoryView;
use crate::path::WorkspacePath;
use crate::plan::{Draft, Move, OnConflict, PlanInput, Selection, draft};
use crate::record::{ChangeRef, Kind, Labels, Record};
use crate::store::ContentStorage;
use crate::view::{EffectView, KeptView, PlanView, RewindReport, SCHEMA};

/// What to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewindKind {
    /// To a moment.
    Rewind {
        /// The moment.
        target: String,
    },
    /// One snapshot's files, or a transaction, to before it.
    Rollback {
        /// The snapshot or transaction.
        id: String,
    },
    /// One action or turn, keeping what came later; the newest turn where nothing is named.
    Undo {
        /// The snapshot, or `turn:N`.
        what: Option<String>,
    },
    /// The newest of these that was not redone yet.
    Redo,
    /// A plan that was shown before.
    Plan {
        /// The plan.
        id: String,
    },
}

/// What happens to a repository's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitChoice {
    /// It stays as it is.
    Keep,
    /// It goes back.
    Restore,
}

/// What to take back, and how.
#[derive(Debug, Clone)]
pub struct RewindRequest {
    /// What.
    pub kind: RewindKind,
    /// Only these paths and what is below them; all where empty.
    pub paths: Vec<WorkspacePath>,
    /// Not these paths, nor what is below them: somebody else sees to those.
    pub except: Vec<WorkspacePath>,
    /// Only these hunks of these files.
    pub hunks: Vec<(WorkspacePath, Vec<usize>)>,
    /// Keep nothing of what others did.
    pub exact: bool,
    /// Take back this session's work.
    pub session: Option<String>,
    /// Take back all agents' work.
    pub all_sessions: bool,
    /// Write into a new or empty root.
    pub recreate_root: bool,
    /// What to do where both sides changed the same thing.
    pub on_conflict: OnConflict,
    /// Take back what several could have made.
    pub take_shared: bool,
    /// What happens to repositories; by the rule where nothing is said.
    pub git: Option<GitChoice>,
    /// Give restored files the present time.
    pub touch: bool,
    /// Wait until nobody else works on the workspace.
    pub wait: bool,
}

/// What a plan does beyond going back: what stays in conflict, what a conflict gives up.
struct Effect<'d> {
    on_conflict: OnConflict,
    hunks: bool,
    draft: &'d Draft,
}

impl Effect<'_> {
    fn in_conflict(&self, path: &WorkspacePath) -> bool {
        self.draft.conflicts.iter().any(|conflict| conflict.path == *path)
    }

    /// Whether a path stays as it is, so that its changes stay in effect.
    fn stays(&self, path: &WorkspacePath) -> bool {
        let kept = self.on_conflict == OnConflict::KeepMine && self.in_conflict(path);
        kept || self.draft.unknown.iter().any(|(unknown, _)| unknown == path)
    }

    /// Whether kept work on a path gives way.
    fn is_replaced(&self, path: &WorkspacePath) -> bool {
        self.on_conflict == OnConflict::Replace && self.in_conflict(path)
    }
}

impl RewindRequest {
    /// A request with nothing but its kind said.
    pub fn new(kind: RewindKind) -> Self {
        Self {
            kind,
            paths: Vec::new(),
            except: Vec::new(),
            hunks: Vec::new(),
            exact: false,
            session: None,
            all_sessions: false,
            recreate_root: false,
            on_conflict: OnConflict::Stop,
            take_shared: false,
            git: None,
            touch: false,
            wait: false,
        }
    }
}

/// A plan with everything that is needed to apply it.
pub(super) struct Planned {
    pub(super) id: PlanId,
    pub(super) resolved_words: String,
    pub(super) draft: Draft,
    pub(super) git: Vec<KeptView>,
    pub(super) shared: Vec<KeptView>,
    pub(super) irreversible: Vec<KeptView>,
    pub(super) target_time: Time,
    pub(super) moves_head: bool,
    pub(super) labels: Labels,
    pub(super) authors: Vec<String>,
    pub(super) transaction: Option<TransactionId>,
    pub(super) digest: ObjectId,
    /// What the record says happened: a rewind, or the outcome of an action.
    pub(super) kind: Kind,
}

impl Workspace {
    /// Plans a rewind without changing the workspace, and keeps the plan under its id.
    pub fn plan(&mut self, request: &RewindRequest) -> Result<PlanView> {
        let _lock = self.lock_when_quiet(request)?;
        let request = self.with_saved_plan(request)?.0;
        self.before_rewind(&request, true)?;
        let planned = self.draft_request(&request)?;
        self.save_plan(&request, &planned)?;
        let stale = self.stale_output(&planned)?;
        let armed = self.armed(&planned)?;
        Ok(plan_view(&planned, self.now(), stale, armed))
    }

    /// Plans and applies, after `confirm` has seen the plan and agreed.
    pub fn rewind(
        &mut self,
        request: &RewindRequest,
        confirm: &mut dyn FnMut(&PlanView) -> bool,
    ) -> Result<RewindReport> {
        let mut timings = Timings::start();
        let _lock = self.lock_when_quiet(request)?;
        self.discard_leftovers()?;
        let (request, shown) = self.with_saved_plan(request)?;
        self.before_rewind(&request, shown.is_some())?;
        timings.step("look");
        failpoint::hit("rewind_after_look");
        let planned = self.draft_request(&request)?;
        if let Some(digest) = shown
            && digest != planned.digest
        {
            let paths = planned.draft.goals.iter().map(|goal| goal.path.clone()).collect();
            return Err(Error::Stopped(Stop::PlanOutdated(paths)));
        }
        if request.on_conflict == OnConflict::Stop && !planned.draft.conflicts.is_empty() {
            let conflicts = planned.draft.conflicts.iter();
            return Err(Error::Stopped(Stop::Conflict(
                conflicts.map(|c| c.path.clone()).collect(),
            )));
        }
        let stale = self.stale_output(&planned)?;
        let armed = self.armed(&planned)?;
        let view = plan_view(&planned, self.now(), stale, armed);
        timings.step("plan");
        if !confirm(&view) {
            return Err(Error::Stopped(Stop::NotConfirmed("nothing was changed".to_owned())));
        }
        let report = self.apply_planned(&planned, &request, view, &mut timings)?;
        if let Some(id) = planned.transaction
            && self.active_transaction()? == Some(id)
        {
            self.end_transaction(id, true)?;
        }
        Ok(report)
    }

    /// What a plan that was shown is now, without looking again.
    pub(super) fn draft_again(&mut self, request: &RewindRequest) -> Result<Planned> {
        let resolved = self.resolve_request(request)?;
        self.draft_once(request, &resolved)
    }

    fn draft_request(&mut self, request: &RewindRequest) -> Result<Planned> {
        let resolved = self.resolve_request(request)?;
        self.refuse_across_transaction(&resolved)?;
        let first = self.draft_once(request, &resolved)?;
        // What a filter hides and the plan wants to write is captured by name first.
        let hidden: Vec<_> = first
            .draft
            .unknown
            .iter()
            .filter(|(_, why)| matches!(why, Why::Filtered | Why::NotSeen))
            .map(|(path, _)| path.clone())
            .collect();
        if hidden.is_empty() || !self.capture_hidden(&hidden)? {
            return Ok(first);
        }
        self.draft_once(request, &resolved)
    }

    fn refuse_across_transaction(&self, resolved: &Resolved) -> Result<()> {
        let Some(active) = self.active_transaction()? else { return Ok(()) };
        if resolved.transaction == Some(active) {
            return Ok(());
        }
        for seq in self.catalog.of_kind(Kind::TransactionStart)? {
            if self.read_header(seq)?.labels.transaction == Some(active)
                && resolved.moment.seq < seq
            {
                return Err(Error::Stopped(Stop::ActiveTransaction(active.short())));
            }
        }
        Ok(())
    }

    /// Gives contents that were merged from secrets the names that secrets have.
    pub(super) fn name_secrets(&self, draft: &mut Draft) -> Result<()> {
        let merged = std::mem::take(&mut draft.merged);
        let (mut plain, mut secret) = (HashSet::new(), Vec::new());
        for goal in &mut draft.goals {
            let Entry::File(file) = &mut goal.then else { continue };
            let Some((id, bytes)) = merged.iter().find(|(id, _)| *id == file.object) else {
                continue;
            };
            if !file.secret {
                plain.insert(*id);
                continue;
            }
            file.object = self.home.secrets().key_or_make()?.address(bytes);
            secret.push((file.object, bytes.clone()));
        }
        draft.merged = merged;
        draft.merged.retain(|(id, _)| plain.contains(id));
        draft.merged.extend(secret);
        Ok(())
    }

    /// Gives every change after the moment its role, and drafts the plan.
    fn draft_once(&mut self, request: &RewindRequest, resolved: &Resolved) -> Result<Planned> {
        let dead = self.taken_back(None)?;
        let mut gathered = Gathered::new(self.inner_workspaces()?);
        let unnamed = self.unnamed_files(request);
        // A machine that was lost with its key for secrets gets everything else back.
        let no_secrets = request.recreate_root && self.home.secrets().key().is_err();
        self.for_each_change(resolved.moment.seq, &mut |record, at, mut change| {
            if unnamed.contains(&change.path) || within(&change.path, &request.except) {
                return Ok(());
            }
            if no_secrets && change.before.is_secret() {
                change.before = Entry::Unknown(Why::NoKey);
            }
            gathered.add(&resolved.rule, record, at, change, dead.contains(&at));
            Ok(())
        })?;
        gathered.shared.extend(resolved.shared.iter().cloned());
        gathered.cancel_round_trips();
        self.refuse_other_sessions(request, resolved, &gathered)?;
        let units = RepositoryHistory::of(&gathered.changes);
        let selection = selection(request, resolved);
        let selected =
            selected_paths(&selection).map(|paths| with_other_names(paths, &gathered.moved()));
        let objects = self.objects()?;
        let content = |id: &ObjectId| objects.get(id);
        let input = PlanInput {
            changes: std::mem::take(&mut gathered.changes),
            content: &content,
            selection,
            on_conflict: request.on_conflict,
        };
        let mut draft = draft(input)?;
        self.name_secrets(&mut draft)?;
        let asks = !matches!(resolved.rule, Rule::Live { .. });
        let git = self.apply_repository_rule(request, &mut draft, &units, asks)?;
        let moves_head = git.moves_head;
        let effect = Effect {
            on_conflict: request.on_conflict,
            hunks: !request.hunks.is_empty(),
            draft: &draft,
        };
        let labels =
            self.rewind_labels(resolved, &gathered, &dead, selected.as_deref(), &effect)?;
        let authors = self.authors(&labels, &gathered)?;
        let across = self.effects_across(resolved, &labels)?;
        let digest = digest(&draft, &across);
        let listed = |path: &WorkspacePath| {
            let selected = selected.as_ref().is_none_or(|all| within(path, all));
            selected && !effect.is_replaced(path)
        };
        gathered.shared.retain(|(path, _)| listed(path));
        Ok(Planned {
            id: PlanId::new(self.now()),
            resolved_words: resolved.moment.words.clone(),
            draft,
            git: git.words,
            shared: gathered
                .shared
                .iter()
                .map(|(path, keys)| {
                    kept(path, format!("could be the work of {}", keys.join(" or ")))
                })
                .collect(),
            irreversible: across.iter().map(EffectView::kept).collect(),
            target_time: resolved.moment.time,
            moves_head,
            labels,
            authors,
            transaction: resolved.transaction,
            digest,
            kind: Kind::Rewind,
        })
    }

    /// The linked worktrees inside that are workspaces of their own.
    pub(super) fn inner_workspaces(&self) -> Result<Vec<WorkspacePath>> {
        let inner = self.home.inner(&self.root)?;
        let below = inner.iter().filter_map(|inner| inner.strip_prefix(&self.root).ok());
        below.map(|path| Ok(WorkspacePath::new(path.as_os_str().as_bytes())?)).collect()
    }

    /// The single files outside the workspace that a request does not name: they stay as they are.
    fn unnamed_files(&self, request: &RewindRequest) -> HashSet<WorkspacePath> {
        let roots = self.roots.iter().filter(|root| root.is_named_only());
        let prefixes = roots.map(|root| root.prefix().clone());
        prefixes.filter(|path| !within(path, &request.paths)).collect()
    }

    fn refuse_other_sessions(
        &self,
        request: &RewindRequest,
        resolved: &Resolved,
        gathered: &Gathered,
    ) -> Result<()> {
        let all_agents = matches!(resolved.rule, Rule::Others { sessions: None, .. });
        if !all_agents || request.all_sessions || gathered.hit.len() < 2 {
            return Ok(());
        }
        let open = self.open_turns()?;
        let hit = open.iter().map(session_of).find(|session| gathered.hit.contains(session));
        match hit {
            Some(session) => Err(Error::Stopped(Stop::OtherSession(session))),
            None => Ok(()),
        }
    }

    /// Those of some changes that lie at or below the chosen paths.
    fn refs_within<'r>(
        &self,
        refs: impl Iterator<Item = &'r ChangeRef>,
        chosen: Option<&[WorkspacePath]>,
    ) -> Result<Vec<ChangeRef>> {
        let refs: Vec<_> = refs.copied().collect();
        let (Some(chosen), Some(first)) = (chosen, refs.iter().min()) else { return Ok(refs) };
        let mut moved = Vec::new();
        self.for_each_change(Seq(first.seq.0 - 1), &mut |_, _, change| {
            moved.extend(change.from.map(|from| (change.path, from.path)));
            Ok(())
        })?;
        let chosen = with_other_names(chosen.to_vec(), &moved);
        let mut found = Vec::new();
        for at in refs {
            let Some(record) = self.read_kept(at.seq)? else { continue };
            if record.changes.get(at.index as usize).is_some_and(|c| within(&c.path, &chosen)) {
                found.push(at);
            }
        }
        Ok(found)
    }

    fn rewind_labels(
        &self,
        resolved: &Resolved,
        gathered: &Gathered,
        dead: &HashSet<ChangeRef>,
        selected: Option<&[WorkspacePath]>,
        effect: &Effect<'_>,
    ) -> Result<Labels> {
        let chosen = |path: &WorkspacePath| selected.is_none_or(|all| within(path, all));
        let mut taken: BTreeSet<ChangeRef> = BTreeSet::new();
        if !effect.hunks {
            let gone = gathered.dropped.iter().filter(|(_, path)| !effect.stays(path));
            let replaced = gathered.kept.iter().filter(|(_, path)| effect.is_replaced(path));
            taken.extend(gone.chain(replaced).filter(|(_, path)| chosen(path)).map(|(at, _)| *at));
        }
        let mut brought = BTreeSet::new();
        if let Some(seq) = resolved.redoes {
            let undone = self.read_header(seq)?.labels;
            taken.extend(undone.brought_back);
            brought.extend(undone.taken_back);
        } else if !matches!(resolved.rule, Rule::Live { .. }) {
            // What was in effect then and is not now comes back, and the other way round.
            let then = self.taken_back(Some(resolved.moment.seq))?;
            let old = |at: &&ChangeRef| at.seq <= resolved.moment.seq;
            let returning = dead.iter().filter(old).filter(|at| !then.contains(at));
            brought.extend(self.refs_within(returning, selected)?);
            let leaving = then.iter().filter(|at| !dead.contains(at));
            taken.extend(self.refs_within(leaving, selected)?);
        }
        let (action, words) = (resolved.action, &resolved.moment.words);
        let mut labels = Labels {
            snapshot: Some(SnapshotId::new(self.now())),
            action: Some(action.to_owned()),
            summary: Some(format!("{action}: to {words}")),
            target: Some(resolved.moment.seq),
            redoes: resolved.redoes,
            taken_back: taken.into_iter().collect(),
            brought_back: brought.into_iter().collect(),
            ..Labels::default()
        };
        if let [turn] = &self.open_turns()?[..] {
            labels.turn = turn.turn;
        }
        Ok(labels)
    }

    /// Whose work a plan takes out of effect or brings back into it.
    fn authors(&self, labels: &Labels, gathered: &Gathered) -> Result<Vec<String>> {
        let mut authors = BTreeSet::new();
        let mut older: BTreeMap<Seq, Vec<u32>> = BTreeMap::new();
        for at in labels.taken_back.iter().chain(&labels.brought_back) {
            match gathered.author(at) {
                Some(author) => drop(authors.insert(author_text(author).0)),
                None => older.entry(at.seq).or_default().push(at.index),
            }
        }
        for (seq, indices) in older {
            let Some(Record { changes, .. }) = self.read_kept(seq)? else { continue };
            let named = indices.into_iter().filter_map(|index| changes.get(index as usize));
            authors.extend(named.map(|change| author_text(&change.author).0));
        }
        if gathered.edit_goes {
            authors.insert("shared".to_owned());
        }
        Ok(authors.into_iter().collect())
    }

    /// Stages, passes the commit point, applies and records.
    pub(super) fn apply_planned(
        &mut self,
        planned: &Planned,
        request: &RewindRequest,
        view: PlanView,
        timings: &mut Timings,
    ) -> Result<RewindReport> {
        let mut report = RewindReport {
            schema: SCHEMA,
            id: None,
            plan: view,
            unexpected: Vec::new(),
            aside: Vec::new(),
            changed: 0,
            partial: false,
        };
        let kept_mine =
            request.on_conflict == OnConflict::KeepMine && !planned.draft.conflicts.is_empty();
        let unknown = !planned.draft.unknown.is_empty() || !planned.shared.is_empty();
        report.partial = kept_mine || unknown;
        let nothing = planned.draft.goals.is_empty() && planned.draft.moves.is_empty();
        if nothing && planned.labels.taken_back.is_empty() && planned.labels.redoes.is_none() {
            return Ok(report);
        }
        let work = self.work(planned, request.touch)?;
        let linked = !work.links.is_empty();
        self.mark_staging()?;
        let bulk = self.objects()?.bulk()?;
        let prepared = apply::prepare(&self.roots, &work, self.objects()?)?;
        drop(bulk);
        timings.step("stage");
        let pending = Pending {
            id: planned.id,
            kind: planned.kind,
            labels: Labels { note: kept_words(&report.plan.keep), ..planned.labels.clone() },
            goals: planned
                .draft
                .goals
                .iter()
                .map(|goal| (goal.path.clone(), goal.then.clone()))
                .collect(),
            moves: pairs(&planned.draft.moves),
            renames: pairs(&planned.draft.renames),
            prepared: prepared.to_bytes(),
        };
        let state = vec![(key::PENDING_REWIND, Some(self.encode_pending(&pending)))];
        self.commit_batch(Batch { state, ..Batch::default() }, Durability::PowerCut)?;
        failpoint::hit("rewind_after_commit_point");
        let applied = prepared.apply(&self.roots)?;
        timings.step("apply");
        // Staging goes before the record: all that was replaced is in the store, and a crash here
        // is finished like any other. A link that it still holds would count as a name of a file,
        // so where there are links it goes before anything is looked at.
        let (batch, changed) = if linked {
            apply::clean_up(&self.roots, &planned.id)?;
            self.ending(&pending, &applied)?
        } else {
            let (roots, id) = (&self.roots, &planned.id);
            std::thread::scope(|scope| {
                let cleaning = scope.spawn(|| apply::clean_up(roots, id));
                let ending = self.ending(&pending, &applied);
                cleaning.join().expect("BUG: the clean-up panicked")?;
                ending
            })?
        };
        failpoint::hit("rewind_after_clean_up");
        self.commit_with_head(batch, Durability::PowerCut)?;
        // Not before: a power cut may bring back staging that was removed, and only the mark leads
        // to it.
        self.unmark_staging()?;
        timings.step("record");
        failpoint::hit("rewind_after_record");
        self.be_seen();
        report.id = planned.labels.snapshot.map(|id| id.to_string());
        report.changed = changed;
        report.partial |= !applied.unexpected.is_empty() || !applied.aside.is_empty();
        report.unexpected =
            applied.unexpected.iter().map(|(path, why)| kept(path, why.clone())).collect();
        report.aside =
            applied.aside.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
        Ok(report)
    }

    /// Finishes a rewind whose process died after its commit point; needs the lock.
    pub(super) fn finish_pending(&mut self) -> Result<()> {
        let Some(bytes) = self.catalog.state(key::PENDING_REWIND)? else { return Ok(()) };
        let pending = self.decode_pending(&bytes)?;
        let applied = apply::recover(&self.roots, &pending.prepared, self.objects()?)?;
        apply::clean_up(&self.roots, &pending.id)?;
        let (batch, _) = self.ending(&pending, &applied)?;
        self.commit_with_head(batch, Durability::PowerCut).map(drop)
    }

    /// Output that filters keep out and that is newer than a source that goes back.
    fn stale_output(&self, planned: &Planned) -> Result<Vec<String>> {
        let written = planned.draft.goals.iter().filter_map(|goal| match &goal.then {
            Entry::File(file) => Some(file.meta.mtime_ns),
            _ => None,
        });
        let Some(oldest) = written.min() else { return Ok(Vec::new()) };
        let mut stale = Vec::new();
        for path in self.filtered_beside(&planned.draft)? {
            if let Some(stat) = self.stat(&path)?
                && stat.signature.mtime_ns > oldest
            {
                stale.push(path.to_string());
            }
        }
        Ok(stale)
    }

    /// What filters keep out in the directories above what a plan writes: what is built from a file
    /// lies there, and the rest of the workspace need not be read for it.
    fn filtered_beside(&self, draft: &Draft) -> Result<Vec<WorkspacePath>> {
        let mut above = BTreeSet::new();
        for goal in &draft.goals {
            for directory in goal.path.ancestors() {
                if !above.insert(directory) {
                    break;
                }
            }
        }
        let mut filtered = Vec::new();
        self.catalog.rows_of(above.iter(), &mut |path, row| {
            if let Ok(view) = DirectoryView::new(row) {
                filtered.extend(filtered_in(&view, path));
            }
        })?;
        Ok(filtered)
    }
}

/// What a rewind left alone and why, in few words: an agent is told of it later.
fn kept_words(kept: &[KeptView]) -> Option<String> {
    const NAMED: usize = 20;
    let named = kept.iter().take(NAMED).map(|kept| format!("{} ({})", kept.path, kept.reason));
    let mut words: Vec<_> = named.collect();
    if kept.len() > NAMED {
        words.push(format!("and {} more", kept.len() - NAMED));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn pairs(moves: &[Move]) -> Vec<(WorkspacePath, WorkspacePath)> {
    moves.iter().map(|step| (step.from.clone(), step.to.clone())).collect()
}

pub(super) fn patience(request: &RewindRequest) -> std::time::Duration {
    if request.wait { LONG_PATIENCE } else { PATIENCE }
}

fn selection(request: &RewindRequest, resolved: &Resolved) -> Selection {
    if !request.hunks.is_empty() {
        return Selection::Hunks(request.hunks.clone());
    }
    match (&resolved.paths, &request.paths[..]) {
        (None, []) => Selection::All,
        (Some(paths), []) => Selection::Paths(paths.clone()),
        (None, paths) => Selection::Paths(paths.to_vec()),
        (Some(own), paths) => {
            let chosen = own.iter().filter(|path| within(path, paths)).cloned();
            Selection::Paths(chosen.collect())
        }
    }
}

fn selected_paths(selection: &Selection) -> Option<Vec<WorkspacePath>> {
    match selection {
        Selection::All => None,
        Selection::Paths(paths) => Some(paths.clone()),
        Selection::Hunks(hunks) => Some(hunks.iter().map(|(path, _)| path.clone()).collect()),
    }
}

/// Adds the other paths that chosen things had or have: what was moved may be named by either.
fn with_other_names(
    mut chosen: Vec<WorkspacePath>,
    moved: &[(WorkspacePath, WorkspacePath)],
) -> Vec<WorkspacePath> {
    loop {
        let before = chosen.len();
        for (path, from) in moved {
            for (one, other) in [(path, from), (from, path)] {
                if chosen.contains(one) && !chosen.contains(other) {
                    chosen.push(other.clone());
                }
            }
        }
        if chosen.len() == before {
            return chosen;
        }
    }
}

pub(super) fn within(path: &WorkspacePath, all: &[WorkspacePath]) -> bool {
    all.iter().any(|selected| path.is_within(selected))
}
