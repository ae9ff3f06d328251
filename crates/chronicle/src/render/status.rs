//! How a workspace stands, in about ten lines.

use std::fmt::Write as _;

use chronicle_core::{DiffChange, MirrorView, Status, WitnessView};

use super::diff::{Row, rows};
use super::log::turn_words;
use super::time::ago;
use super::{Paint, Style, count, grouped, printable, short, size};

/// How many changed paths are listed before the rest is only counted.
const LISTED: usize = 8;

/// The status for people.
pub(crate) fn status(status: &Status, now: i64, paint: Paint) -> String {
    let mut text = String::new();
    let field = |text: &mut String, name: &str, value: &str| {
        let name = format!("{name:<10}");
        let _ = writeln!(text, "{} {value}", paint.text(Style::Heading, &name));
    };
    field(&mut text, "Workspace", &printable(&status.workspace));
    field(&mut text, "Turn", &turn(status, now));
    field(&mut text, "Changes", &changes_words(status));
    text.push_str(&changes(&status.changes, paint));
    field(&mut text, "Protected", &protection(status));
    for notice in notices(status, now) {
        field(&mut text, "Note", &paint.text(Style::Warning, &notice));
    }
    if status.redoable > 0 {
        let words = format!(
            "{} can be brought back with: chronicle redo",
            count(status.redoable, "rewind")
        );
        field(&mut text, "Redo", &words);
    }
    if !status.pins.is_empty() {
        field(&mut text, "Pins", &printable(&status.pins.join(", ")));
    }
    if let Some(view) = &status.mirror {
        field(&mut text, "Bucket", &mirror(view, now));
    }
    field(&mut text, "History", &history(status));
    text
}

fn turn(status: &Status, now: i64) -> String {
    match (status.open_turns.as_slice(), &status.last_turn) {
        ([], None) => "none yet".to_owned(),
        ([], Some(last)) => turn_words(last.number, last, now),
        (open, _) => {
            let words: Vec<_> =
                open.iter().map(|turn| turn_words(turn.number, turn, now)).collect();
            words.join("; ")
        }
    }
}

fn changes_words(status: &Status) -> String {
    let since = match &status.last_turn {
        Some(turn) => format!("since turn {} ended", turn.number),
        None => "since the first look".to_owned(),
    };
    match status.changes.len() {
        0 => format!("none {since}"),
        number => format!("{} {since}", count(number as u64, "path")),
    }
}

fn changes(changes: &[DiffChange], paint: Paint) -> String {
    let listed: Vec<Row<'_>> = changes.iter().take(LISTED).map(Row::from).collect();
    let mut text: String = rows(&listed, Paint { width: paint.width.saturating_sub(10), ..paint })
        .lines()
        .map(|line| format!("          {line}\n"))
        .collect();
    if changes.len() > LISTED {
        let rest = grouped((changes.len() - LISTED) as u64);
        let _ = writeln!(text, "           and {rest} more: chronicle diff");
    }
    text
}

fn protection(status: &Status) -> String {
    let files = count(status.protected_files, "file");
    if status.unprotected_files == 0 {
        return files;
    }
    let examples: Vec<_> = status
        .unprotected
        .iter()
        .take(3)
        .map(|kept| format!("{}: {}", printable(&kept.path), printable(&kept.reason)))
        .collect();
    let not = grouped(status.unprotected_files);
    format!("{files}; {not} not yet protected ({})", examples.join("; "))
}

/// What the person should know or decide.
fn notices(status: &Status, now: i64) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(transaction) = &status.active_transaction {
        let (id, since) = (short(&transaction.id), ago(&transaction.started_at, now));
        notices.push(format!(
            "transaction {id} is {}, since {since}: chronicle commit, or chronicle rollback {id}",
            printable(&transaction.status)
        ));
    }
    if status.open_intents > 0 {
        let announced = count(status.open_intents, "announced action");
        notices.push(format!("{announced} not settled: chronicle settle"));
    }
    if !status.effects.is_empty() {
        let effects = count(status.effects.len() as u64, "effect");
        let all: Vec<_> = status.effects.iter().map(|effect| effect.what.clone()).collect();
        notices.push(format!("{effects} that cannot be taken back: {}", listed(&all)));
    }
    for run in &status.isolated {
        let (id, what) = (&run.short_id, printable(&run.summary));
        let next = if run.state == "running" { "isolated list" } else { "isolated diff" };
        notices.push(format!("isolated run {id} ({what}) is {}: chronicle {next} {id}", run.state));
    }
    for pending in &status.pending_config {
        notices.push(format!("waits for chronicle config accept: {}", printable(pending)));
    }
    if status.files_not_here > 0 {
        let (files, bytes) = (count(status.files_not_here, "file"), size(status.bytes_not_here));
        notices.push(format!("{files} not here yet, {bytes} at the host: chronicle fetch"));
    }
    if let Some(why) = &status.mount_problem {
        notices.push(format!("what the mount saw is not in the log yet: {}", printable(why)));
    }
    if let Some(why) = &status.head_problem {
        notices.push(format!("the newest history is not signed: {}", printable(why)));
    }
    let lacks = |view: &&WitnessView| view.problem.is_some() || view.size < status.signed_size;
    for view in status.witnesses.iter().filter(lacks) {
        notices.push(format!("witness {}", witness(view)));
    }
    if !status.filtered.is_empty() {
        notices.push(format!("kept out: {}", listed(&status.filtered)));
    }
    if !status.roots.is_empty() {
        notices.push(format!("protects too: {}", listed(&status.roots)));
    }
    notices
}

/// `file /x: has seen 12 records, 3 are newer`.
pub(crate) fn witness(view: &WitnessView) -> String {
    let seen = match (view.size, view.behind) {
        (0, _) => "has seen nothing yet".to_owned(),
        (size, 0) => format!("has seen all {}", count(size, "record")),
        (size, newer) => format!("has seen {}, {newer} are newer", count(size, "record")),
    };
    let problem: String = view.problem.iter().map(|why| format!("; {}", printable(why))).collect();
    format!("{} {}: {seen}{problem}", view.kind, printable(&view.place))
}

/// `s3://b/p has everything, as of 3 min ago`, or what waits and why.
fn mirror(view: &MirrorView, now: i64) -> String {
    let place = printable(&view.place);
    let mut words = match (&view.pushed_at, view.behind) {
        (Some(at), 0) => format!("{place} has everything, as of {}", ago(at, now)),
        (_, behind) => {
            format!("{} waiting to go to {place}: chronicle push", count(behind, "record"))
        }
    };
    if let Some(error) = &view.error {
        let times = count(u64::from(view.failures), "time");
        let next = view.next_try.as_deref().unwrap_or_default();
        words += &format!("; failed {times}, next try at {next}: {}", printable(error));
    }
    words
}

/// The first few of a list.
pub(crate) fn listed(names: &[String]) -> String {
    let mut shown: Vec<_> = names.iter().take(6).map(|name| printable(name).into_owned()).collect();
    if names.len() > 6 {
        shown.push(format!("and {} more", names.len() - 6));
    }
    shown.join(", ")
}

fn history(status: &Status) -> String {
    format!(
        "{}, head {}, {} (catalog {}) in {}; watcher {}",
        count(status.head_seq, "record"),
        status.head_hash.get(..12).unwrap_or(&status.head_hash),
        size(status.store_bytes + status.catalog_bytes),
        size(status.catalog_bytes),
        printable(&status.home),
        status.watcher
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronicle_core::{KeptView, SCHEMA};

    fn quiet() -> Status {
        Status {
            schema: SCHEMA,
            workspace: "/w".into(),
            workspace_id: "id".into(),
            home: "/h".into(),
            head_seq: 12,
            head_hash: "0123456789abcdef".into(),
            changes: Vec::new(),
            open_turns: Vec::new(),
            last_turn: None,
            active_transaction: None,
            open_intents: 0,
            protected_files: 1234,
            unprotected: Vec::new(),
            unprotected_files: 0,
            filtered: Vec::new(),
            pending_config: Vec::new(),
            store_bytes: 2048,
            catalog_bytes: 1024,
            watcher: "off".into(),
            redoable: 0,
            pins: Vec::new(),
            roots: Vec::new(),
            signed_size: 0,
            head_problem: None,
            mount_problem: None,
            files_not_here: 0,
            bytes_not_here: 0,
            effects: Vec::new(),
            witnesses: Vec::new(),
            mirror: None,
            isolated: Vec::new(),
        }
    }

    #[test]
    fn what_waits_for_the_bucket_and_why_is_said() {
        let mut view = MirrorView {
            place: "s3://b/p".into(),
            seq: 9,
            behind: 0,
            pushed_at: Some("1970-01-01T00:00:00Z".into()),
            failures: 0,
            next_try: None,
            error: None,
        };
        assert_eq!(mirror(&view, 180), "s3://b/p has everything, as of 3 min ago");
        view.behind = 3;
        assert_eq!(mirror(&view, 0), "3 records waiting to go to s3://b/p: chronicle push");
        (view.failures, view.error) = (2, Some("no route".into()));
        view.next_try = Some("1970-01-01T00:01:00Z".into());
        let words = mirror(&view, 0);
        assert!(
            words.ends_with("; failed 2 times, next try at 1970-01-01T00:01:00Z: no route"),
            "{words}"
        );
    }

    #[test]
    fn a_quiet_workspace_takes_five_lines() {
        let expected = "Workspace  /w\n\
             Turn       none yet\n\
             Changes    none since the first look\n\
             Protected  1,234 files\n\
             History    12 records, head 0123456789ab, 3.0 KiB (catalog 1.0 KiB) in /h; \
             watcher off\n";
        assert_eq!(status(&quiet(), 0, Paint::plain(80)), expected);
    }

    #[test]
    fn what_is_not_protected_and_what_waits_is_said() {
        let mut some = quiet();
        some.unprotected_files = 2;
        some.unprotected = vec![KeptView { path: "big.iso".into(), reason: "too large".into() }];
        some.pending_config = vec![".chronicleignore: +*.log".into()];
        let text = status(&some, 0, Paint::plain(80));
        assert!(text.contains("2 not yet protected (big.iso: too large)"), "{text}");
        assert!(
            text.contains("waits for chronicle config accept: .chronicleignore: +*.log"),
            "{text}"
        );
    }
}
