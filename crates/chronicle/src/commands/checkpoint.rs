//! `chronicle checkpoint`: code and data at one instant, and back.

use std::path::Path;
use std::time::Duration;

use chronicle_checkpoint::{
    Answer, Captured, CreateRequest, LockFile, LockedPart, Plan, Problem, RestoreRequest, Which,
    answers, as_toml, compare, create, detect, drivers, drop_all, find, is_left, load, lock_text,
    recover, restore, restore_to, verify,
};
use chronicle_core::{CheckpointRecord, EffectView, KeptView, Workspace};
use serde::Serialize;

use super::taking_back::plain;
use super::{Invocation, with_schema};
use crate::bucket;
use crate::cli::{
    CheckpointCreateArgs, CheckpointDiffArgs, CheckpointPruneArgs, CheckpointRestoreArgs,
    CheckpointShowArgs, CheckpointVerb, CheckpointVerifyArgs,
};
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, plan, printable, size};
use crate::ui::{self, Ui, say};

/// Exit status when something was left that the person should look at.
const PARTIAL: u8 = 4;

/// A checkpoint in JSON.
#[derive(Serialize)]
struct CheckpointView {
    id: String,
    short_id: String,
    name: Option<String>,
    seq: u64,
    moment: u64,
    timestamp: String,
    summary: String,
    link: String,
    dropped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    freeze_ms: Option<u64>,
    parts: Vec<PartView>,
}

/// One part of a checkpoint in JSON.
#[derive(Serialize)]
struct PartView {
    name: String,
    kind: &'static str,
    path: String,
    driver: String,
    revision: Option<String>,
    schema_revision: Option<String>,
    digest: String,
    bytes: u64,
    notes: Vec<String>,
}

impl PartView {
    fn of(part: &LockedPart) -> Self {
        let Captured { driver, revision, digest, bytes, notes, .. } = part.captured.clone();
        Self {
            name: part.name.clone(),
            kind: part.kind.word(),
            path: part.path.clone(),
            driver,
            revision,
            schema_revision: part.schema.clone(),
            digest: digest.hex(),
            bytes,
            notes,
        }
    }
}

fn view(record: &CheckpointRecord, lock: Option<&LockFile>) -> CheckpointView {
    CheckpointView {
        id: record.id.to_string(),
        short_id: record.id.short(),
        name: record.name.clone(),
        seq: record.seq.0,
        moment: record.moment.0,
        timestamp: record.time.rfc3339(),
        summary: record.summary.clone(),
        link: record.link.hex(),
        dropped: record.dropped,
        freeze_ms: lock.map(|lock| lock.freeze_ms),
        parts: lock.map(|lock| lock.parts.iter().map(PartView::of).collect()).unwrap_or_default(),
    }
}

/// Finishes what a process that died left, and says which way; a failure to is no reason not to go on with
/// what was asked, which may be to look at it.
pub(crate) fn finish_left(workspace: &mut Workspace) {
    if !is_left(workspace) {
        return;
    }
    match recover(workspace) {
        Ok(None) => {}
        Ok(Some(recovered)) => {
            let mut text = format!("{}\n", recovered.words);
            for aside in &recovered.asides {
                text.push_str(&format!("Left beside: {} ({})\n", printable(&aside.at), aside.why));
            }
            say(&text);
        }
        Err(error) => say(&CommandError::from(error)
            .hinted(
                "An interrupted restore could not be finished yet; the next command tries again",
            )
            .text()),
    }
}

pub(crate) fn execute(invocation: &mut Invocation, verb: &CheckpointVerb) -> Outcome {
    let mut workspace = invocation.open()?;
    let ui = &mut invocation.ui;
    match verb {
        CheckpointVerb::Detect => show_detected(ui, &workspace),
        CheckpointVerb::Create(args) => make(ui, &mut workspace, args),
        CheckpointVerb::List => list(ui, &workspace),
        CheckpointVerb::Show(args) => show(ui, &workspace, args),
        CheckpointVerb::Diff(args) => show_diff(ui, &workspace, args),
        CheckpointVerb::Verify(args) => read_back(ui, &workspace, args),
        CheckpointVerb::Restore(args) => {
            let to = args.to.as_ref().map(|to| invocation.directory.join(to));
            bring_back(ui, &mut workspace, args, to.as_deref())
        }
        CheckpointVerb::Prune(args) => prune(ui, &mut workspace, args),
    }
}

fn show_detected(ui: &mut Ui, workspace: &Workspace) -> Outcome {
    let found = detect(workspace.root())?;
    let mut rows = Vec::new();
    for part in &found {
        let (driver, why) = match drivers::choose(part, None) {
            Ok((driver, why)) => (Some(driver.name()), why),
            Err(error) => (None, error.to_string()),
        };
        rows.push(serde_json::json!({
            "name": part.name, "kind": part.kind.word(), "path": part.path, "driver": driver, "why": why,
        }));
        if !ui.json() {
            let driver = driver.unwrap_or("no driver");
            let at = part.path.display().to_string();
            ui.line(format!(
                "{:<10} {:<12} {}  {}",
                part.kind,
                driver,
                printable(&at),
                printable(&why)
            ));
        }
    }
    if ui.json() {
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "parts": rows }));
        return Ok(0);
    }
    let declared = Plan::of(workspace).is_ok_and(|plan| !plan.found);
    match (found.is_empty(), declared) {
        (_, true) => ui.note("chronicle.toml declares the parts: what it says counts, not this"),
        (true, _) => ui.note("Nothing was found: a checkpoint holds the workspace's files"),
        _ => ui.note(format!(
            "Checkpoints are made of these. To declare them, and to name what stops writers, put this \
             into chronicle.toml:\n\n{}",
            as_toml(&found, workspace.root())
        )),
    }
    Ok(0)
}

fn make(ui: &mut Ui, workspace: &mut Workspace, args: &CheckpointCreateArgs) -> Outcome {
    let made = create(
        workspace,
        &CreateRequest {
            name: args.name.clone(),
            driver: args.driver.clone(),
            limit: args.limit.map(Duration::from_millis),
            reason: args.reason.clone(),
        },
    )?;
    if ui.json() {
        ui.data(&with_schema(view(&made.record, Some(&made.lock))));
        return Ok(0);
    }
    let short = made.record.id.short();
    ui.line(format!(
        "Checkpoint {short}: {} and the workspace, frozen for {} ms",
        count(made.lock.parts.len() as u64, "part"),
        made.lock.freeze_ms
    ));
    for part in &made.lock.parts {
        ui.line(part_line(part));
    }
    let name = made.record.name.as_deref().unwrap_or(&short);
    ui.note(format!("Bring all of it back with: chronicle checkpoint restore {name}"));
    Ok(0)
}

fn part_line(part: &LockedPart) -> String {
    let revision =
        part.captured.revision.as_deref().map(|it| format!(" at {}", &it[..it.len().min(12)]));
    let schema = part.schema.as_deref().map(|it| format!(", schema {it}"));
    let line = format!(
        "  {} {} by {}{}{}, {}",
        part.kind,
        part.name,
        part.captured.driver,
        revision.unwrap_or_default(),
        schema.unwrap_or_default(),
        size(part.captured.bytes)
    );
    let notes = part.captured.notes.iter().map(|note| format!("\n    {note}"));
    printable(&line).into_owned() + &notes.map(|note| printable_lines(&note)).collect::<String>()
}

fn printable_lines(text: &str) -> String {
    text.split('\n').map(|line| printable(line).into_owned()).collect::<Vec<_>>().join("\n")
}

fn list(ui: &mut Ui, workspace: &Workspace) -> Outcome {
    let all: Vec<_> = workspace.checkpoints()?.into_iter().rev().filter(|it| !it.dropped).collect();
    if ui.json() {
        let views = all.iter().map(|record| view(record, load(workspace, record).ok().as_ref()));
        let views: Vec<_> = views.collect();
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "checkpoints": views }));
        return Ok(0);
    }
    for record in &all {
        let name = record.name.as_deref().map(|name| format!("{name}: ")).unwrap_or_default();
        let line =
            format!("{}  {}  {name}{}", record.id.short(), record.time.rfc3339(), record.summary);
        ui.line(printable(&line));
    }
    if all.is_empty() {
        ui.note("No checkpoints yet. Make one with: chronicle checkpoint create");
    }
    Ok(0)
}

fn show(ui: &mut Ui, workspace: &Workspace, args: &CheckpointShowArgs) -> Outcome {
    let record = find(workspace, &args.checkpoint)?;
    if args.lock {
        ui.print(&lock_text(workspace, &record)?);
        return Ok(0);
    }
    let lock = load(workspace, &record)?;
    if ui.json() {
        ui.data(&with_schema(view(&record, Some(&lock))));
        return Ok(0);
    }
    let line = format!(
        "Checkpoint {} of {}, {}; frozen for {} ms; workspace at seq:{}",
        record.id.short(),
        record.time.rfc3339(),
        record.summary,
        lock.freeze_ms,
        lock.moment
    );
    ui.line(printable(&line));
    for part in &lock.parts {
        ui.line(part_line(part));
    }
    for (path, digest) in &lock.files {
        ui.line(printable(&format!("  file {path} {}", &digest[..digest.len().min(16)])));
    }
    Ok(0)
}

fn show_diff(ui: &mut Ui, workspace: &Workspace, args: &CheckpointDiffArgs) -> Outcome {
    let (from, to) = (find(workspace, &args.from)?, find(workspace, &args.to)?);
    let parts = compare(&load(workspace, &from)?, &load(workspace, &to)?);
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": chronicle_core::SCHEMA,
            "from": from.id.to_string(),
            "to": to.id.to_string(),
            "parts": parts,
        }));
        return Ok(0);
    }
    for part in &parts {
        let words = match (&part.from, &part.to) {
            (Some(from), Some(to)) if from != to => format!("  {from} -> {to}"),
            _ => String::new(),
        };
        ui.line(printable(&format!("{:<8} {} {}{words}", part.change, part.kind, part.part)));
    }
    let (from, to) = (from.id.short(), to.id.short());
    ui.note(format!("The workspace's files between them: chronicle diff {from} {to}"));
    Ok(0)
}

fn read_back(ui: &mut Ui, workspace: &Workspace, args: &CheckpointVerifyArgs) -> Outcome {
    let records = match &args.checkpoint {
        Some(text) => vec![find(workspace, text)?],
        None => workspace.checkpoints()?.into_iter().filter(|it| !it.dropped).collect(),
    };
    let (mut bad, mut rows): (Vec<Problem>, _) = (Vec::new(), Vec::new());
    for record in &records {
        let verified = verify(workspace, record)?;
        let short = record.id.short();
        if !ui.json() {
            let what =
                format!("{} and {}", count(verified.objects, "object"), size(verified.bytes));
            match verified.problems.is_empty() {
                true => ui.line(format!("{short}  whole: {what} read back")),
                false => ui.line(format!("{short}  damaged")),
            }
            for problem in &verified.problems {
                ui.line(printable(&format!("  {}: {}", problem.code, problem.words())));
            }
        }
        rows.push(
            serde_json::json!({ "id": record.id.to_string(), "whole": verified.problems.is_empty(),
            "objects": verified.objects, "bytes": verified.bytes, "problems": verified.problems }),
        );
        bad.extend(verified.problems);
    }
    if ui.json() {
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "checkpoints": rows }));
    }
    match bad.first() {
        None => Ok(0),
        Some(first) => {
            let words = format!("A checkpoint is not what it was: {}", first.words());
            Err(CommandError::failed(first.code, words).of(Kind::Verification))
        }
    }
}

fn bring_back(
    ui: &mut Ui,
    workspace: &mut Workspace,
    args: &CheckpointRestoreArgs,
    to: Option<&Path>,
) -> Outcome {
    let record = find(workspace, &args.checkpoint)?;
    if let Some(to) = to {
        return look_at(ui, workspace, &record, to);
    }
    let which = match &args.part[..] {
        [] => Which::All,
        names => Which::Only(names.to_vec()),
    };
    let request = RestoreRequest { which, anyway: args.partial_anyway.clone() };
    let stays = workspace.effects_since(record.moment)?;
    let stays: Vec<_> = stays.iter().map(EffectView::kept_by_restore).collect();
    if args.dry_run {
        let given = answers(workspace, &record, &request)?;
        return show_answers(ui, &given, &stays);
    }
    workspace.refuse_agents("restore a checkpoint")?;
    if !ui.json() {
        // Nobody goes back over what cannot be taken back without having read it.
        say(&plan::irreversible(&stays, plain(ui)));
    }
    let over = match stays.len() {
        0 => String::new(),
        many => format!(" It goes back over {}, listed above.", count(many as u64, "effect")),
    };
    let question = format!(
        "Bring code and data to checkpoint {} of {}? What is there now becomes a checkpoint first.{over}",
        record.id.short(),
        record.time.rfc3339()
    );
    if !args.yes && ui::person_present() && !ui.confirm(&question) {
        return Err(CommandError::failed("not_confirmed", "Nothing was changed").of(Kind::Stopped));
    }
    let done = restore(workspace, &record, &request)?;
    let present = done.present.id.short();
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": chronicle_core::SCHEMA,
            "checkpoint": record.id.to_string(),
            "present": done.present.id.to_string(),
            "files": done.files,
            "asides": done.asides,
            "still_ms": done.still_ms,
            "irreversible": stays,
        }));
    } else {
        ui.line(format!(
            "Restored checkpoint {} of {}; everything stood still for {} ms",
            record.id.short(),
            record.time.rfc3339(),
            done.still_ms
        ));
        for aside in &done.asides {
            ui.line(printable(&format!("Left beside: {} ({})", aside.at, aside.why)));
        }
        ui.note(format!("Take it back with: chronicle checkpoint restore {present}"));
    }
    let partial = !done.asides.is_empty() || done.files.is_some_and(|files| files.partial);
    Ok(if partial { PARTIAL } else { 0 })
}

fn look_at(ui: &mut Ui, workspace: &Workspace, record: &CheckpointRecord, to: &Path) -> Outcome {
    let written = restore_to(workspace, record, to)?;
    if ui.json() {
        ui.data(&serde_json::json!({ "schema": chronicle_core::SCHEMA, "written": written }));
        return Ok(0);
    }
    for path in &written {
        ui.line(printable(path));
    }
    let id = record.id.short();
    ui.note(format!(
        "The workspace's files of that moment: chronicle diff {id}, chronicle cat PATH --at {id}"
    ));
    Ok(0)
}

fn show_answers(ui: &mut Ui, given: &[Answer], stays: &[KeptView]) -> Outcome {
    let refused = given.iter().any(|answer| !answer.no.is_empty());
    if ui.json() {
        ui.data(&serde_json::json!({
            "schema": chronicle_core::SCHEMA, "would_restore": !refused, "answers": given,
            "irreversible": stays,
        }));
    } else {
        for answer in given {
            let word = if answer.no.is_empty() { "yes" } else { "no " };
            ui.line(printable(&format!("{word} {}", answer.question)));
            for problem in &answer.no {
                ui.line(printable(&format!("    {}: {}", problem.code, problem.words())));
                ui.line(printable(&format!("    {}", problem.next)));
            }
        }
        let paint = ui.paint();
        ui.print(&plan::irreversible(stays, paint));
        ui.note("Nothing was changed");
    }
    Ok(if refused { Kind::Stopped.exit() } else { 0 })
}

fn prune(ui: &mut Ui, workspace: &mut Workspace, args: &CheckpointPruneArgs) -> Outcome {
    let going = match args.keep {
        None => {
            let found: Result<Vec<_>, _> =
                args.checkpoints.iter().map(|text| find(workspace, text)).collect();
            found?
        }
        Some(keep) => {
            let all = workspace.checkpoints()?.into_iter().rev();
            let mut all: Vec<_> = all.filter(|it| !it.dropped && it.name.is_none()).collect();
            all.split_off(keep.min(all.len()))
        }
    };
    let going: Vec<_> = going.into_iter().filter(|it| !it.dropped).collect();
    if !args.dry_run && !going.is_empty() {
        workspace.refuse_agents("drop checkpoints")?;
        drop_all(workspace, &going, "asked for")?;
    }
    let freed = match args.dry_run || going.is_empty() {
        true => 0,
        false => bucket::home()?.collect_garbage(&|_, _| ())?.freed_bytes,
    };
    if ui.json() {
        let ids: Vec<_> = going.iter().map(|it| it.id.to_string()).collect();
        ui.data(&serde_json::json!({
            "schema": chronicle_core::SCHEMA, "dry_run": args.dry_run, "dropped": ids,
            "freed_bytes": freed,
        }));
        return Ok(0);
    }
    let (word, end) = match args.dry_run {
        true => ("Would drop", String::new()),
        false => ("Dropped", format!("; {} freed", size(freed))),
    };
    ui.line(format!("{word} {}{end}", count(going.len() as u64, "checkpoint")));
    for record in &going {
        ui.line(printable(&format!("  {}  {}", record.id.short(), record.summary)));
    }
    if !args.dry_run && !going.is_empty() {
        ui.note("This cannot be taken back; the workspace's own history stays");
    }
    Ok(0)
}
