//! `chronicle upgrade-check`: whether this program can take a home over, before it does.

use chronicle_core::{
    Format, FormatFound, Home, SCHEMA, UpgradeReport, UpgradeVerdict, UpgradeWorkspace,
};

use super::Invocation;
use crate::bucket::BucketSettings;
use crate::cli::UpgradeCheckArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, printable, size};

pub(crate) fn execute(invocation: &mut Invocation, args: &UpgradeCheckArgs) -> Outcome {
    let ui = &mut invocation.ui;
    if args.formats {
        if ui.json() {
            let formats: Vec<_> = formats().collect();
            let program = env!("CARGO_PKG_VERSION");
            ui.data(
                &serde_json::json!({ "schema": SCHEMA, "program": program, "formats": formats }),
            );
        } else {
            formats().for_each(|it| ui.line(format_line(&it)));
        }
        return Ok(0);
    }
    let home = Home::from_env()?;
    let mut report = home.upgrade_check()?;
    if args.bucket {
        let found = ask_bucket(&home)?;
        report.verdict = report.verdict.max(found.verdict);
        report.bucket = Some(found);
    }
    if ui.json() {
        ui.data(&report);
    } else {
        lines(&report).into_iter().for_each(|line| ui.line(line));
    }
    Ok(match report.verdict {
        UpgradeVerdict::Newer => Kind::Stopped.exit(),
        UpgradeVerdict::Damaged => Kind::Verification.exit(),
        _ if !report.has_room() => Kind::Stopped.exit(),
        _ => 0,
    })
}

/// Everything with a number that this program reads or writes.
fn formats() -> impl Iterator<Item = Format> {
    let others = [
        chronicle_checkpoint::FORMATS,
        chronicle_remote::FORMATS,
        chronicle_replica::FORMATS,
        chronicle_fleet::FORMATS,
    ];
    chronicle_core::FORMATS.iter().chain(others.into_iter().flatten()).copied()
}

/// `| catalog | \`user_version\` of \`catalog.db\` | 1 to 5 |`: a line of docs/format.md.
fn format_line(format: &Format) -> String {
    format!("| {} | {} | {} |", format.name, format.place, versions(format.oldest, format.newest))
}

fn versions(oldest: u64, newest: u64) -> String {
    if oldest == newest { newest.to_string() } else { format!("{oldest} to {newest}") }
}

/// Asks the bucket which version it is; without the key of what is in it.
fn ask_bucket(home: &Home) -> Result<FormatFound, CommandError> {
    let settings = BucketSettings::read(home)?.ok_or_else(|| {
        CommandError::usage("This home has no bucket")
            .hinted("Leave --bucket out, or set one with: chronicle bucket set URL")
    })?;
    let found =
        chronicle_remote::version_of(&settings.open()?).map_err(chronicle_core::Error::from)?;
    let format = chronicle_remote::PLACE;
    let verdict = match found {
        Some(version) if version > format.newest => UpgradeVerdict::Newer,
        Some(version) if version < format.oldest => UpgradeVerdict::Damaged,
        _ => UpgradeVerdict::Current,
    };
    let count = found.into_iter().count() as u64;
    Ok(FormatFound { format, found: found.into_iter().collect(), count, verdict, problems: vec![] })
}

fn lines(report: &UpgradeReport) -> Vec<String> {
    let (program, home) = (report.program, printable(&report.home));
    let mut lines = vec![format!("Chronicle {program} and the home {home}:")];
    report.formats.iter().chain(&report.bucket).for_each(|it| found(&mut lines, "", it));
    for workspace in &report.workspaces {
        lines.push(format!("  {}", workspace_words(workspace)));
        workspace.formats.iter().for_each(|it| found(&mut lines, "  ", it));
        for words in &workspace.unfinished {
            lines
                .push(format!("    unfinished: {words}; finish it with the program that began it"));
        }
        for words in &workspace.running {
            lines.push(format!("    running: {words}; end it before the program is exchanged"));
        }
    }
    if report.bytes_needed > 0 {
        let (needed, free) = (size(report.bytes_needed), size(report.bytes_free));
        lines.push(format!("  Migrating may take {needed} for a while; {free} are free"));
    }
    lines.push(conclusion(report).to_owned());
    lines
}

fn found(lines: &mut Vec<String>, indent: &str, it: &FormatFound) {
    let known = versions(it.format.oldest, it.format.newest);
    let numbers: Vec<_> = it.found.iter().map(ToString::to_string).collect();
    let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
    let words = words(it.verdict);
    lines.push(format!("{indent}  {}: {numbers} (this program: {known}), {words}", it.format.name));
    for problem in &it.problems {
        lines.push(format!("{indent}    {}", printable(problem)));
    }
}

fn workspace_words(workspace: &UpgradeWorkspace) -> String {
    let name = workspace.root.as_deref().unwrap_or(&workspace.id);
    let records = count(workspace.records, "record");
    format!("{}, {records}: {}", printable(name), words(workspace.verdict))
}

fn words(verdict: UpgradeVerdict) -> &'static str {
    match verdict {
        UpgradeVerdict::Current => "read and written",
        UpgradeVerdict::Older => "older, read and written",
        UpgradeVerdict::Migrates => "older, will be migrated",
        UpgradeVerdict::Damaged => "damaged",
        UpgradeVerdict::Newer => "written by a newer Chronicle",
    }
}

fn conclusion(report: &UpgradeReport) -> &'static str {
    match report.verdict {
        UpgradeVerdict::Newer => {
            "This program cannot take it over: use the newer one that wrote it, or an older copy of the home"
        }
        UpgradeVerdict::Damaged => {
            "Something is damaged: see it, and put right what can be, with: chronicle doctor"
        }
        _ if !report.has_room() => "There is not enough room to migrate: free some first",
        UpgradeVerdict::Migrates => {
            "This program can take it over, and migrates it when it is first used. Older programs cannot use it \
             from then on: to be able to go back, copy the home first (cp -a)"
        }
        UpgradeVerdict::Current | UpgradeVerdict::Older => "This program can take it over as it is",
    }
}
