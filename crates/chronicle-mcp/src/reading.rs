//! The tools that look: status, lists, show, diff, search, versions, verify; and pin.

use std::io::{self, Write};

use chronicle_core::{DiffRequest, LogQuery, SCHEMA, TurnView};
use rmcp::model::JsonObject;
use serde_json::json;

use crate::answer::{Answer, TEXT_MOST, cut_field, json_of, list, shorten};
use crate::arguments::{self, bounded};
use crate::own::session_of;
use crate::refusal::Refusal;
use crate::server::Call;
use crate::words;

/// How many changes are shown of each snapshot of a list.
const CHANGES_IN_LIST: usize = 10;
/// How many changes are shown of one snapshot.
const CHANGES_MOST: usize = 200;
/// How many paths are named in each list of the status.
const STATUS_MOST: usize = 50;

pub(crate) fn status(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    arguments::read::<arguments::Nothing>(given)?;
    let mut workspace = call.open()?;
    let status = workspace.status()?;
    let own = call.own(&workspace)?;
    let text = words::status(&status, own.sessions());
    let mut value = json_of(&status);
    let lists = ["changes", "unprotected", "filtered", "pending_config", "open_turns", "pins"];
    for field in lists.into_iter().chain(["isolated"]) {
        shorten(&mut value, field, STATUS_MOST);
    }
    value["own_sessions"] = own.sessions().into();
    Ok(Answer { value, text })
}

pub(crate) fn list_turns(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::ListTurns = arguments::read(given)?;
    let workspace = call.open()?;
    let own = call.own(&workspace)?;
    let mut turns: Vec<TurnView> = workspace.turns()?;
    turns.reverse();
    turns.retain(|turn| given.session.as_ref().is_none_or(|key| session_of(turn) == *key));
    let most = bounded(given.limit);
    let cut = turns.len() > most;
    turns.truncate(most);
    let is_own = |turn: &TurnView| own.sessions().contains(&session_of(turn));
    let values = turns.iter().map(|turn| {
        let mut value = json_of(turn);
        value["own"] = is_own(turn).into();
        value
    });
    let value = list("turns", values.collect(), cut);
    Ok(Answer { text: words::turns(&turns, cut, is_own), value })
}

pub(crate) fn list_snapshots(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::ListSnapshots = arguments::read(given)?;
    let workspace = call.open()?;
    let path = given.path.map(|path| call.path(&workspace, &path)).transpose()?;
    let most = bounded(given.limit);
    // One more than wanted tells whether there are more.
    let limit = Some(most + 1);
    let query =
        LogQuery { turn: given.turn, session: given.session, path, limit, ..LogQuery::default() };
    let mut snapshots = workspace.log(&query)?;
    let cut = snapshots.len() > most;
    snapshots.truncate(most);
    let values = snapshots.iter().map(|snapshot| {
        let mut value = json_of(snapshot);
        shorten(&mut value, "changes", CHANGES_IN_LIST);
        shorten(&mut value, "files_backed_up", CHANGES_IN_LIST);
        value
    });
    let value = list("snapshots", values.collect(), cut);
    Ok(Answer { text: words::snapshots(&snapshots, cut), value })
}

pub(crate) fn show(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::Show = arguments::read(given)?;
    let workspace = call.open()?;
    let snapshot = workspace.show(&given.id)?;
    let mut value = json_of(&snapshot);
    shorten(&mut value, "changes", CHANGES_MOST);
    shorten(&mut value, "files_backed_up", CHANGES_MOST);
    let mut text = words::snapshot(&snapshot);
    if given.patch {
        value["patch"] = workspace.show_patch(&given.id)?.into();
        let cut = cut_field(&mut value, "patch", TEXT_MOST);
        text = words::with_patch(text, value["patch"].as_str().unwrap_or_default(), cut);
    }
    Ok(Answer { value, text })
}

pub(crate) fn diff(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::Diff = arguments::read(given)?;
    let mut workspace = call.open()?;
    let paths = call.paths(&workspace, &given.paths)?;
    let most = bounded(given.limit.or(Some(arguments::LIST_MOST)));
    let request = DiffRequest {
        from: given.from,
        to: given.to,
        paths,
        patch: given.patch,
        most_changes: Some(most),
        most_patch_bytes: Some(TEXT_MOST),
        ..DiffRequest::default()
    };
    let found = workspace.diff(&request)?;
    let cut = found.files_changed > found.changes.len() as u64;
    let mut text = words::diff(&found, cut);
    let mut patches = String::new();
    let mut value = json_of(&found);
    value["cut"] = cut.into();
    let mut patch_cut = false;
    for change in value["changes"].as_array_mut().into_iter().flatten() {
        if given.patch && !change["patch"].is_string() {
            (change["patch"], change["patch_cut"]) = ("".into(), true.into());
            patch_cut = true;
            continue;
        }
        patch_cut |= cut_field(change, "patch", TEXT_MOST.saturating_sub(patches.len()));
        patches.push_str(change["patch"].as_str().unwrap_or_default());
    }
    if given.patch {
        text = words::with_patch(text, &patches, patch_cut);
    }
    Ok(Answer { value, text })
}

pub(crate) fn search(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::Search = arguments::read(given)?;
    let (pattern, path) = (&given.pattern, given.path.as_deref());
    let (found, partial) = call.open()?.grep_some(pattern, path, bounded(given.limit))?;
    let text = words::matches(&found, partial);
    let mut value = list("matches", found.iter().map(json_of).collect(), partial);
    value["total"] = found.len().into();
    value["partial"] = partial.into();
    Ok(Answer { value, text })
}

pub(crate) fn file_history(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::FileHistory = arguments::read(given)?;
    let workspace = call.open()?;
    let path = call.path(&workspace, &given.path)?;
    let mut versions = workspace.history(&path)?;
    let most = bounded(given.limit);
    let total = versions.len();
    versions.truncate(most);
    let text = words::history(&given.path, &versions, total);
    let mut value = list("versions", versions.iter().map(json_of).collect(), total > most);
    value["total"] = total.into();
    Ok(Answer { value, text })
}

pub(crate) fn read_version(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::ReadVersion = arguments::read(given)?;
    let most = given.limit.unwrap_or(TEXT_MOST).clamp(1, TEXT_MOST);
    let mut workspace = call.open()?;
    let path = call.path(&workspace, &given.path)?;
    let at = given.at.as_deref().map(|target| workspace.resolve(target)).transpose()?;
    let mut window = Window { skip: given.offset, most, bytes: Vec::new(), is_full: false };
    match workspace.cat_unless_secret(&path, given.at.as_deref(), &mut window) {
        Err(_) if window.is_full => {}
        done => done?,
    }
    Ok(version(&given.path, at, given.offset, window))
}

fn version(path: &str, at: Option<String>, offset: u64, mut window: Window) -> Answer {
    if window.is_full
        && let Err(error) = std::str::from_utf8(&window.bytes)
        && error.error_len().is_none()
    {
        // The rest of a character that was cut belongs to the next part.
        window.bytes.truncate(error.valid_up_to());
    }
    let binary = window.bytes.contains(&0);
    let read = window.bytes.len() as u64;
    let next = window.is_full.then_some(offset + read);
    let mut text = words::version(path, at.as_deref(), offset, read, next, binary);
    let mut value = json!({
        "schema": SCHEMA, "path": path, "at": at, "offset": offset, "bytes": read,
        "binary": binary, "cut": window.is_full, "next_offset": next,
    });
    if !binary {
        let content = String::from_utf8_lossy(&window.bytes).into_owned();
        text.push_str(&content);
        value["content"] = content.into();
    }
    Answer { value, text }
}

/// Keeps a part of what is written to it, and ends the stream when it has that part.
struct Window {
    skip: u64,
    most: usize,
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Window {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let wanted = &bytes[skipped..];
        let room = self.most - self.bytes.len();
        self.bytes.extend_from_slice(&wanted[..wanted.len().min(room)]);
        self.is_full = wanted.len() > room;
        if self.is_full { Err(io::Error::other("enough was read")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn pin(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::Pin = arguments::read(given)?;
    call.refuse_when_off()?;
    let moment = call.open()?.pin(&given.target, &given.name)?;
    let text = format!("Pinned {moment} as {}", given.name);
    let value = json!({ "schema": SCHEMA, "name": given.name, "resolved_target": moment });
    Ok(Answer { value, text })
}

pub(crate) fn verify(call: &Call<'_>, given: JsonObject) -> Result<Answer, Refusal> {
    let given: arguments::Verify = arguments::read(given)?;
    let found = call.open()?.verify(given.deep, call.progress)?;
    let text = words::verified(&found);
    Ok(Answer { value: json_of(&found), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(content: &[u8], offset: u64, most: usize) -> Value {
        let mut window = Window { skip: offset, most, bytes: Vec::new(), is_full: false };
        for part in content.chunks(3) {
            if window.write_all(part).is_err() {
                break;
            }
        }
        version("f", None, offset, window).value
    }

    #[test]
    fn a_version_is_read_in_parts_between_characters() {
        let first = read("abcé!".as_bytes(), 0, 4);
        assert_eq!(first["content"], "abc");
        assert_eq!(first["next_offset"], 3);
        let rest = read("abcé!".as_bytes(), 3, 4);
        assert_eq!(rest["content"], "é!");
        assert_eq!((&rest["cut"], &rest["next_offset"]), (&json!(false), &Value::Null));
        assert_eq!(read(b"ab", 9, 4)["content"], "");
    }

    #[test]
    fn what_is_not_text_is_not_shown() {
        let value = read(b"a\0b", 0, 9);
        assert_eq!(value["binary"], true);
        assert!(value.get("content").is_none());
    }
}
