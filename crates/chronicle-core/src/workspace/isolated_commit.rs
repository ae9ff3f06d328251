//! Brings an isolated run's work into the workspace: one transaction, as an action of the run's turn.
//!
//! The plan is that of a redo: the run's work as if it had been done and taken back where the run
//! started, with everything that happened since kept. So both sides are merged, and conflict, by
//! the same rules.

use std::collections::BTreeSet;

use super::isolated::{IsolatedRun, take_over};
use super::isolated_changes::{Eyes, Touched, Touches};
use super::moment::Moment;
use super::outcomes::Closing;
use super::repository_rule::RepositoryHistory;
use super::rewind::{GitChoice, Planned, RewindKind, RewindRequest};
use super::saved_plan::digest;
use super::timings::Timings;
use super::turns::RUN_SESSION;
use super::views::{kept, plan_view, why_text};
use super::{LONG_PATIENCE, PATIENCE, Workspace};
use crate::catalog::{Batch, Durability, LocalState};
use crate::entry::{Author, Change, Entry, Evidence, Why};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::{ObjectId, PlanId, Time};
use crate::isolated::{Layer, RunPlace, Stage, State};
use crate::path::WorkspacePath;
use crate::plan::{Conflict, Draft, OnConflict, PastChange, PlanInput, Role, Selection, draft};
use crate::record::{ChangeRef, Kind, Labels, Record};
use crate::store::{ContentStorage, StoreLock};
use crate::view::{KeptView, PlanView, RewindReport, SCHEMA};

/// Within this time before the start of a run a change may carry the same time as one after it.
const TICK_NS: i64 = 20_000_000;

/// What becomes of paths that filters keep out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilteredChoice {
    /// They are brought too, and captured like a named edit.
    #[default]
    Bring,
    /// They stay behind, and are named.
    Leave,
}

/// How a run's work is brought into the workspace.
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// What to do where both sides changed the same thing.
    pub on_conflict: OnConflict,
    /// What happens to repositories that both sides changed.
    pub git: Option<GitChoice>,
    /// What happens to what filters keep out.
    pub filtered: FilteredChoice,
    /// Wait until nobody else works on the workspace.
    pub wait: bool,
}

/// A plan, and what the run did that it does not bring.
struct CommitPlan {
    planned: Planned,
    left: Vec<KeptView>,
    /// Until the commit point names the run's contents, only this keeps them from being swept.
    _hold: StoreLock,
}

impl Workspace {
    /// What a commit would do, without doing it.
    pub fn isolated_plan(&mut self, id: Option<&str>, request: &CommitRequest) -> Result<PlanView> {
        let _lock = self.lock(patience(request))?;
        let (state, place) = self.find_run(id)?;
        let _alive = take_over(&place)?;
        let plan = self.commit_plan(&state, &place, request)?;
        self.commit_view(&plan)
    }

    /// Brings a run's work into the workspace, after `confirm` has seen the plan and agreed.
    ///
    /// A run that was committed before is not applied again.
    pub fn isolated_commit(
        &mut self,
        id: Option<&str>,
        request: &CommitRequest,
        confirm: &mut dyn FnMut(&PlanView) -> bool,
    ) -> Result<RewindReport> {
        let lock = self.lock(patience(request))?;
        let (state, place) = self.find_run(id)?;
        let _alive = take_over(&place)?;
        let report = self.commit_run(state, &place, request, confirm);
        drop(lock);
        report
    }

    /// The same for a run whose command has just ended here.
    pub fn isolated_commit_now(
        &mut self,
        run: IsolatedRun,
        request: &CommitRequest,
        confirm: &mut dyn FnMut(&PlanView) -> bool,
    ) -> Result<RewindReport> {
        let _lock = self.lock(patience(request))?;
        self.commit_run(run.state, &run.place, request, confirm)
    }

    fn commit_run(
        &mut self,
        mut state: State,
        place: &RunPlace,
        request: &CommitRequest,
        confirm: &mut dyn FnMut(&PlanView) -> bool,
    ) -> Result<RewindReport> {
        self.discard_leftovers()?;
        if !self.catalog.of_snapshot(&state.id)?.is_empty() {
            return self.already_committed(&state, place);
        }
        let plan = self.commit_plan(&state, place, request)?;
        let conflicts = &plan.planned.draft.conflicts;
        if request.on_conflict == OnConflict::Stop && !conflicts.is_empty() {
            let paths = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
            return Err(Error::Stopped(Stop::Conflict(paths)));
        }
        let view = self.commit_view(&plan)?;
        if !confirm(&view) {
            return Err(Error::Stopped(Stop::NotConfirmed("nothing was changed".to_owned())));
        }
        let draft = &plan.planned.draft;
        let partial =
            !plan.left.is_empty() || !draft.unknown.is_empty() || !draft.conflicts.is_empty();
        state.stage = Stage::Committing { partial };
        state.write(place)?;
        failpoint::hit("isolated_before_commit");
        let asked = rewind_request(request);
        let mut report = self.apply_planned(&plan.planned, &asked, view, &mut Timings::start())?;
        failpoint::hit("isolated_after_commit");
        report.partial |= partial;
        self.end_commit(state, place, report.partial)?;
        Ok(report)
    }

    /// What was left out stays where it is until somebody discards it.
    fn end_commit(&self, mut state: State, place: &RunPlace, partial: bool) -> Result<()> {
        if partial {
            state.stage = Stage::Committed;
            return state.write(place);
        }
        self.remove_run(place)
    }

    /// The log says that it was applied; whoever died after that left only the directory.
    fn already_committed(&self, state: &State, place: &RunPlace) -> Result<RewindReport> {
        if let Stage::Committing { partial } = state.stage {
            self.end_commit(state.clone(), place, partial)?;
        }
        let planned = Planned {
            resolved_words: format!("{}, which was committed before", words(state)),
            ..nothing(state, self.now())
        };
        Ok(RewindReport {
            schema: SCHEMA,
            id: Some(state.id.to_string()),
            plan: plan_view(&planned, self.now(), Vec::new(), Vec::new()),
            unexpected: Vec::new(),
            aside: Vec::new(),
            changed: 0,
            partial: false,
        })
    }

    fn commit_view(&self, plan: &CommitPlan) -> Result<PlanView> {
        let armed = self.armed(&plan.planned)?;
        let mut view = plan_view(&plan.planned, self.now(), Vec::new(), armed);
        view.unknown.extend(plan.left.iter().cloned());
        Ok(view)
    }

    /// Records what the workspace is by now, takes the run's contents in and plans.
    fn commit_plan(
        &mut self,
        state: &State,
        place: &RunPlace,
        request: &CommitRequest,
    ) -> Result<CommitPlan> {
        if state.workspace != self.id || state.epoch != self.catalog.epoch() {
            let what = format!("the start of {}", words(state));
            return Err(Error::Pruned { what, nearest: Vec::new() });
        }
        self.refuse_pruned(&Moment {
            seq: state.start,
            words: format!("the start of {}", words(state)),
            session: None,
            time: state.time,
        })?;
        let asked = rewind_request(request);
        self.before_rewind(&asked, true)?;
        let layer = Layer::read(&place.upper(), state.user_xattrs)?;
        let _hold = self.store.hold()?;
        let mut touches = self.take_layer_in(state, &layer)?;
        failpoint::hit("isolated_after_contents");
        let left = take_out(&mut touches, request, self.inner_workspaces()?)?;
        let conflicts = self.capture_filtered(state, &mut touches)?;
        let mut planned = self.draft_commit(state, &touches, request)?;
        // What git keeps besides a repository's value is never fought over: mine stays.
        let neutral = |path: &WorkspacePath| touches.get(path).is_some_and(|t| t.neutral);
        planned.draft.conflicts.retain(|conflict| !neutral(&conflict.path));
        decide_filtered(&mut planned.draft, conflicts, &touches, request.on_conflict);
        planned.digest = digest(&planned.draft, &[]);
        Ok(CommitPlan { planned, left, _hold })
    }

    /// Compares the layer with what stood there, and takes all its contents into the store.
    fn take_layer_in(&self, state: &State, layer: &Layer) -> Result<Touches> {
        let mut intake = self.intake()?.in_packs()?;
        let touches = self.touches(state, layer, &Eyes::Taking(&intake))?;
        let rows = intake.finish()?;
        assert!(rows.is_empty(), "BUG: packs were asked for");
        Ok(touches)
    }

    /// Captures what stands where filters keep looks out and the run worked: it is about to be
    /// replaced. Gives those that somebody changed since the run started.
    fn capture_filtered(
        &mut self,
        state: &State,
        touches: &mut Touches,
    ) -> Result<BTreeSet<WorkspacePath>> {
        let filtered: Vec<_> =
            touches.iter().filter(|(_, t)| t.filtered).map(|(path, _)| path.clone()).collect();
        let mut changed = BTreeSet::new();
        if filtered.is_empty() {
            return Ok(changed);
        }
        let since = state.time.0.saturating_sub(TICK_NS);
        for path in &filtered {
            if self.stat(path)?.is_some_and(|stat| stat.signature.ctime_ns >= since) {
                changed.insert(path.clone());
            }
        }
        let look = self.look_at(&filtered)?;
        if !look.found.is_empty() || !look.known.is_empty() {
            let mut batch = Batch::default();
            self.add_outcomes(look, &self.openings()?, &mut batch, &Closing::Nobody)?;
            self.commit_batch(batch, Durability::PowerCut)?;
        }
        for path in filtered {
            let now = self.catalog.known(&path)?.map_or(Entry::Absent, |known| known.entry);
            let below = match now.is_directory() && !touches[&path].after.is_directory() {
                true => self.catalog.known_below(&path)?,
                false => Vec::new(),
            };
            for (inner, known) in below {
                let (before, after) = (known.entry, Entry::Absent);
                touches.entry(inner).or_insert(Touched {
                    before,
                    after,
                    neutral: false,
                    filtered: true,
                });
            }
            touches.get_mut(&path).expect("BUG: it was just listed").before = now;
        }
        Ok(changed)
    }

    /// Plans the way from what the workspace is to that with the run's work in it.
    fn draft_commit(
        &mut self,
        state: &State,
        touches: &Touches,
        request: &CommitRequest,
    ) -> Result<Planned> {
        let mut changes = as_if_taken_back(state, touches);
        self.for_each_change(state.start, &mut |_, at, mut change| {
            let touched = touches.get(&change.path);
            // What a filter hid was captured a moment ago, and is what the run started from.
            if touched.is_some_and(|touched| touched.filtered) {
                return Ok(());
            }
            // A repository's parts that the run wrote are its work like any other.
            change.neutral &= touched.is_none();
            changes.push(PastChange { at, change, role: Role::Keep });
            Ok(())
        })?;
        let units = RepositoryHistory::of(&changes);
        let objects = self.objects()?;
        let content = |id: &ObjectId| objects.get(id);
        let mut draft = draft(PlanInput {
            changes,
            content: &content,
            selection: Selection::All,
            on_conflict: request.on_conflict,
        })?;
        self.name_secrets(&mut draft)?;
        let asked = rewind_request(request);
        let git = self.apply_repository_rule(&asked, &mut draft, &units, false)?;
        Ok(Planned {
            draft,
            git: git.words,
            moves_head: git.moves_head,
            labels: self.commit_labels(state)?,
            authors: vec![state.session.clone()],
            ..nothing(state, self.now())
        })
    }

    /// The labels of the action; with a prompt, it is a turn of its own.
    fn commit_labels(&self, state: &State) -> Result<Labels> {
        let open = self.open_turns()?;
        let turn = open.iter().find(|turn| state.turn.is_some() && turn.turn == state.turn);
        let mut labels = Labels {
            snapshot: Some(state.id),
            action: Some("shell".to_owned()),
            summary: Some(format!("shell: {}", state.summary)),
            tool: Some("run".to_owned()),
            session: Some(state.session.clone()),
            transaction: self.active_transaction()?,
            ..Labels::default()
        };
        match turn {
            Some(turn) => {
                (labels.turn, labels.turn_key) = (turn.turn, turn.turn_key.clone());
            }
            None => {
                labels.turn = Some(self.next_turn()?);
                labels.turn_key = Some(format!("{RUN_SESSION}-{}", state.id.short()));
                labels.prompt = Some(state.summary.clone());
            }
        }
        Ok(labels)
    }

    /// The records of a commit: the outcome, and around it the turn that it is, if it is one.
    pub(super) fn committed_records(&self, labels: &Labels, changes: Vec<Change>) -> Vec<Record> {
        let outcome = Labels { prompt: None, ..labels.clone() };
        let mut records = self.outcome_records(outcome, changes);
        if let Some(prompt) = &labels.prompt {
            let turn = Labels {
                turn: labels.turn,
                turn_key: labels.turn_key.clone(),
                session: labels.session.clone(),
                ..Labels::default()
            };
            let start = Labels { prompt: Some(prompt.clone()), ..turn.clone() };
            records.insert(0, self.record(Kind::TurnStart, start));
            records.push(self.record(Kind::TurnEnd, turn));
        }
        records
    }

    /// The repository in whose metadata a path lies, as it is known.
    pub(super) fn unit_above(&self, path: &WorkspacePath) -> Option<WorkspacePath> {
        let is_unit = |above: &WorkspacePath| {
            let known = self.catalog.known(above).ok().flatten();
            known.is_some_and(|known| matches!(known.entry, Entry::Repository(_)))
        };
        let metadata = |above: &WorkspacePath| matches!(above.name(), b".git" | b".jj");
        path.ancestors().filter(metadata).find(is_unit)
    }
}

/// The run's work as changes that were taken back at once: what a redo would bring back.
fn as_if_taken_back(state: &State, touches: &Touches) -> Vec<PastChange> {
    let change = |(index, (path, touched)): (usize, (&WorkspacePath, &Touched))| PastChange {
        at: ChangeRef { seq: state.start, index: u32::try_from(index).unwrap_or(u32::MAX) },
        change: Change {
            path: path.clone(),
            before: touched.after.clone(),
            after: touched.before.clone(),
            from: None,
            author: Author::Chronicle,
            evidence: Evidence::Own,
            neutral: false,
        },
        role: Role::Drop,
    };
    touches.iter().enumerate().map(change).collect()
}

/// Takes out what the commit does not bring, with the reasons; what could not be read stops it.
fn take_out(
    touches: &mut Touches,
    request: &CommitRequest,
    apart: Vec<WorkspacePath>,
) -> Result<Vec<KeptView>> {
    let mut left = Vec::new();
    let mut failed = None;
    touches.retain(|path, touched| {
        let reason = match &touched.after {
            Entry::Unknown(why) if why.is_failure() => {
                failed.get_or_insert((path.clone(), why_text(*why)));
                return true;
            }
            Entry::Unknown(why) => why_text(*why).to_owned(),
            _ if apart.iter().any(|inner| path.is_within(inner)) => {
                "it lies in a workspace of its own".to_owned()
            }
            _ if touched.filtered && request.filtered == FilteredChoice::Leave => {
                why_text(Why::Filtered).to_owned()
            }
            _ => return true,
        };
        left.push(kept(path, reason));
        false
    });
    match failed {
        Some((path, why)) => Err(Error::NotCaptured { path, why }),
        None => Ok(left),
    }
}

/// Decides about what a filter hid and somebody changed since the run started.
fn decide_filtered(
    draft: &mut Draft,
    changed: BTreeSet<WorkspacePath>,
    touches: &Touches,
    on_conflict: OnConflict,
) {
    for path in changed {
        let touched = &touches[&path];
        if touched.before.same_but_time(&touched.after) {
            continue;
        }
        if on_conflict != OnConflict::Replace {
            draft.goals.retain(|goal| goal.path != path);
        }
        let (mine, then) = (touched.before.clone(), touched.after.clone());
        let base = Entry::Unknown(Why::Filtered);
        draft.conflicts.push(Conflict { path, what: "content", base, mine, then });
    }
    draft.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
}

fn nothing(state: &State, now: Time) -> Planned {
    Planned {
        id: PlanId::new(now),
        resolved_words: words(state),
        draft: Draft::default(),
        git: Vec::new(),
        shared: Vec::new(),
        irreversible: Vec::new(),
        target_time: state.time,
        moves_head: false,
        labels: Labels::default(),
        authors: Vec::new(),
        transaction: None,
        digest: ObjectId([0; 32]),
        kind: Kind::Outcome,
    }
}

fn words(state: &State) -> String {
    format!("isolated run {}", state.id.short())
}

fn rewind_request(request: &CommitRequest) -> RewindRequest {
    RewindRequest {
        on_conflict: request.on_conflict,
        git: request.git,
        wait: request.wait,
        ..RewindRequest::new(RewindKind::Redo)
    }
}

fn patience(request: &CommitRequest) -> std::time::Duration {
    if request.wait { LONG_PATIENCE } else { PATIENCE }
}
