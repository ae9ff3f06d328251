//! The shapes of arguments and answers as JSON Schema; the answers are those of `docs/json.md`.
//!
//! Written by hand and kept plain (no references, no formats), since not every client's model
//! understands more. Fields may be added to an answer, so no shape is closed except arguments.

use serde_json::{Map, Value, json};

use crate::arguments::{LIST_MOST, LIST_USUAL};

/// An object; a name that ends with `?` may be left out.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let bare = name.trim_end_matches('?');
        if bare == name {
            required.push(bare.to_owned());
        }
        properties.insert(bare.to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The fields of one object followed by those of another.
fn with<const N: usize>(mut base: Value, more: [(&str, Value); N]) -> Value {
    let Value::Object(more) = object(more) else { return base };
    for (key, value) in more {
        match (&mut base[&key], value) {
            (Value::Object(old), Value::Object(new)) => old.extend(new),
            (Value::Array(old), Value::Array(new)) => old.extend(new),
            _ => {}
        }
    }
    base
}

/// What a tool takes: an object with nothing else in it.
fn takes<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let mut schema = object(fields);
    schema["additionalProperties"] = false.into();
    schema
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn truth() -> Value {
    json!({ "type": "boolean" })
}

fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn about(mut schema: Value, words: &str) -> Value {
    schema["description"] = words.into();
    schema
}

fn one_of(words: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": words, "description": description })
}

fn limit() -> Value {
    about(number(), &format!("At most this many, up to {LIST_MOST}; {LIST_USUAL} otherwise"))
}

fn moment(words: &str) -> Value {
    let forms = "a snapshot id (just before its action), turn:N (just after it), start, seq:N, a \
                 span back like 2h, an RFC 3339 time or a pin; before:X and after:X say it outright";
    about(text(), &format!("{words}: {forms}"))
}

fn paths(words: &str) -> Value {
    about(list(text()), words)
}

// --- what the tools take -------------------------------------------------------------------

pub(crate) fn takes_nothing() -> Value {
    takes([])
}

pub(crate) fn takes_list_turns() -> Value {
    takes([("session?", about(text(), "Only this session's")), ("limit?", limit())])
}

pub(crate) fn takes_list_snapshots() -> Value {
    takes([
        ("turn?", about(number(), "Only this turn's")),
        ("session?", about(text(), "Only this session's")),
        ("path?", about(text(), "Only what touched this path or anything below it")),
        ("limit?", limit()),
    ])
}

pub(crate) fn takes_show() -> Value {
    takes([
        ("id", about(text(), "The snapshot, by any unique part of its id")),
        ("patch?", about(truth(), "Show the changed lines too")),
    ])
}

pub(crate) fn takes_diff() -> Value {
    takes([
        ("from?", moment("From this moment; the start of the last turn otherwise")),
        ("to?", moment("To this moment; the present otherwise")),
        ("paths?", paths("Only these paths and what is below them")),
        ("patch?", about(truth(), "Show the changed lines too")),
        ("limit?", about(number(), &format!("At most this many paths, up to {LIST_MOST}"))),
    ])
}

pub(crate) fn takes_search() -> Value {
    takes([
        ("pattern", about(text(), "A regular expression, matched line by line")),
        ("path?", about(text(), "Only paths that match this glob")),
        ("limit?", limit()),
    ])
}

pub(crate) fn takes_file_history() -> Value {
    takes([("path", about(text(), "The file")), ("limit?", limit())])
}

pub(crate) fn takes_read_version() -> Value {
    takes([
        ("path", about(text(), "The file")),
        ("at?", moment("The moment; the present otherwise")),
        ("offset?", about(number(), "Start at this byte")),
        ("limit?", about(number(), "At most this many bytes; 32768 at most")),
    ])
}

pub(crate) fn takes_pin() -> Value {
    takes([("target", moment("The moment")), ("name", about(text(), "Its name"))])
}

pub(crate) fn takes_verify() -> Value {
    takes([("deep?", about(truth(), "Read every object back too; may take long"))])
}

pub(crate) fn takes_preview() -> Value {
    let target = "What to take back. rewind: the moment to go back to (before:turn:N, a snapshot \
                  id, 2h, ...). undo: turn:N or a snapshot id; your newest turn otherwise. \
                  rollback: a snapshot or transaction id. redo: nothing";
    takes([
        ("action", one_of(&["rewind", "undo", "rollback", "redo"], "What to preview")),
        ("target?", about(text(), target)),
        ("paths?", paths("Only these paths and what is below them")),
        ("session?", about(text(), "Which of your own sessions, if you have several")),
        ("on_conflict?", one_of(&["stop", "keep-mine"], "Where others changed the same lines")),
        ("git?", one_of(&["keep"], "Leave repositories as they are")),
        ("touch?", about(truth(), "Give restored files the present time, for builds")),
    ])
}

pub(crate) fn takes_plan() -> Value {
    takes([("plan_id", about(text(), "The plan_id that preview gave you; required"))])
}

// --- what the tools give -------------------------------------------------------------------

fn left_off() -> Value {
    about(json!({ "type": "object" }), "How many items were left off, by the list's name")
}

fn entry() -> Value {
    object([
        ("kind", text()),
        ("hash?", text()),
        ("size?", number()),
        ("mode?", text()),
        ("secret?", truth()),
        ("target?", text()),
        ("why?", text()),
    ])
}

fn change() -> Value {
    object([
        ("path", text()),
        ("path_b64?", text()),
        ("change_type", text()),
        ("from?", text()),
        ("author", text()),
        ("candidates?", list(text())),
        ("evidence", text()),
        ("live", truth()),
        ("before", entry()),
        ("after", entry()),
        ("inserted?", number()),
        ("deleted?", number()),
        ("binary?", truth()),
    ])
}

pub(crate) fn snapshot() -> Value {
    object([
        ("schema", number()),
        ("id", text()),
        ("short_id", text()),
        ("seq", number()),
        ("timestamp", text()),
        ("action_type", text()),
        ("action_summary", text()),
        ("files_backed_up", list(text())),
        ("session", or_null(text())),
        ("turn", or_null(number())),
        ("turn_key", or_null(text())),
        ("agent", or_null(text())),
        ("tool", or_null(text())),
        ("call_id", or_null(text())),
        ("transaction_id", or_null(text())),
        ("previous_hash", text()),
        ("hash", text()),
        ("complete", truth()),
        ("open", truth()),
        ("changes", list(change())),
        ("effects?", list(effect())),
        ("left_off?", left_off()),
        ("patch?", text()),
        ("patch_cut?", truth()),
    ])
}

fn turn() -> Value {
    object([
        ("number", number()),
        ("key", or_null(text())),
        ("session", or_null(text())),
        ("prompt", or_null(text())),
        ("started_at", text()),
        ("ended_at", or_null(text())),
        ("start_seq", number()),
        ("end_seq", or_null(number())),
    ])
}

/// A list and whether it was cut.
fn listed(name: &str, item: Value) -> Value {
    object([("schema", number()), (name, list(item)), ("cut", truth())])
}

pub(crate) fn turns() -> Value {
    listed("turns", with(turn(), [("own", truth())]))
}

pub(crate) fn snapshots() -> Value {
    listed("snapshots", snapshot())
}

fn diff_change() -> Value {
    object([
        ("path", text()),
        ("path_b64?", text()),
        ("change_type", text()),
        ("from?", text()),
        ("before_hash", or_null(text())),
        ("after_hash", or_null(text())),
        ("size_bytes", number()),
        ("inserted", number()),
        ("deleted", number()),
        ("binary", truth()),
        ("before", entry()),
        ("after", entry()),
        ("patch?", text()),
        ("patch_cut?", truth()),
    ])
}

pub(crate) fn diff() -> Value {
    object([
        ("schema", number()),
        ("from_snapshot", text()),
        ("to_snapshot", text()),
        ("timestamp", text()),
        ("changes", list(diff_change())),
        ("files_changed", number()),
        ("insertions", number()),
        ("deletions", number()),
        ("partial", truth()),
        ("cut", truth()),
    ])
}

pub(crate) fn matches() -> Value {
    let found = object([
        ("schema", number()),
        ("path", text()),
        ("line", text()),
        ("first_seen", number()),
        ("last_seen", number()),
        ("present", truth()),
        ("removed_by", or_null(text())),
        ("removed_by_turn", or_null(number())),
        ("first_turn", or_null(number())),
    ]);
    with(listed("matches", found), [("total", number()), ("partial", truth())])
}

pub(crate) fn versions() -> Value {
    let version = object([
        ("schema", number()),
        ("snapshot", text()),
        ("seq", number()),
        ("timestamp", text()),
        ("path", text()),
        ("turn", or_null(number())),
        ("action_summary", text()),
        ("change", change()),
    ]);
    with(listed("versions", version), [("total", number())])
}

pub(crate) fn content() -> Value {
    object([
        ("schema", number()),
        ("path", text()),
        ("at", or_null(text())),
        ("offset", number()),
        ("bytes", number()),
        ("binary", truth()),
        ("cut", truth()),
        ("next_offset", or_null(number())),
        ("content?", text()),
    ])
}

fn reasoned() -> Value {
    list(object([("path", text()), ("reason", text())]))
}

fn plan_of_command() -> Value {
    let step = || {
        let fields = [("path", text()), ("path_b64?", text()), ("now", entry()), ("then", entry())];
        list(object(fields))
    };
    let conflict =
        object([("path", text()), ("what", text()), ("mine", entry()), ("then", entry())]);
    object([
        ("schema", number()),
        ("plan_id", text()),
        ("resolved_target", text()),
        ("write", step()),
        ("delete", step()),
        ("merge", step()),
        ("keep", reasoned()),
        ("conflict", list(conflict)),
        ("unknown", reasoned()),
        ("git", reasoned()),
        ("irreversible", reasoned()),
        ("shared", reasoned()),
        ("authors", list(text())),
        ("span_seconds", number()),
        ("moves_head", truth()),
        ("stale_output", list(text())),
        ("runs_by_itself", list(text())),
        ("left_off?", left_off()),
    ])
}

pub(crate) fn plan() -> Value {
    with(plan_of_command(), [("action", text()), ("can_apply", truth())])
}

pub(crate) fn report() -> Value {
    object([
        ("schema", number()),
        ("id", or_null(text())),
        ("plan", plan_of_command()),
        ("unexpected", reasoned()),
        ("aside", list(list(text()))),
        ("changed", number()),
        ("partial", truth()),
        ("left_off?", left_off()),
    ])
}

pub(crate) fn pinned() -> Value {
    object([("schema", number()), ("name", text()), ("resolved_target", text())])
}

pub(crate) fn verified() -> Value {
    object([
        ("schema", number()),
        ("records", number()),
        ("objects", number()),
        ("objects_read", number()),
        ("objects_not_read", number()),
        ("objects_away", number()),
        ("head_hash", text()),
        ("root", text()),
        ("heads", number()),
        ("witnesses", list(witness())),
        ("anchored", or_null(number())),
    ])
}

fn witness() -> Value {
    object([
        ("kind", text()),
        ("place", text()),
        ("size", number()),
        ("behind", number()),
        ("problem", or_null(text())),
    ])
}

fn mirror() -> Value {
    object([
        ("place", text()),
        ("seq", number()),
        ("behind", number()),
        ("pushed_at", or_null(text())),
        ("failures", number()),
        ("next_try", or_null(text())),
        ("error", or_null(text())),
    ])
}

fn isolated() -> Value {
    object([
        ("schema", number()),
        ("id", text()),
        ("short_id", text()),
        ("summary", text()),
        ("state", text()),
        ("status", or_null(number())),
        ("started_at", text()),
        ("start_seq", number()),
        ("session", text()),
        ("turn", or_null(number())),
        ("layer", text()),
    ])
}

fn effect() -> Value {
    object([
        ("seq", number()),
        ("timestamp", text()),
        ("kind", text()),
        ("what", text()),
        ("rule", text()),
        ("note?", text()),
        ("snapshot", or_null(text())),
        ("turn", or_null(number())),
        ("session", or_null(text())),
        ("agent", or_null(text())),
        ("tool", or_null(text())),
    ])
}

pub(crate) fn status() -> Value {
    let transaction = object([
        ("schema", number()),
        ("id", text()),
        ("status", text()),
        ("started_at", text()),
        ("finished_at", or_null(text())),
        ("snapshots", list(text())),
    ]);
    object([
        ("schema", number()),
        ("workspace", text()),
        ("workspace_id", text()),
        ("home", text()),
        ("head_seq", number()),
        ("head_hash", text()),
        ("changes", list(diff_change())),
        ("open_turns", list(turn())),
        ("last_turn", or_null(turn())),
        ("active_transaction", or_null(transaction)),
        ("open_intents", number()),
        ("protected_files", number()),
        ("unprotected", reasoned()),
        ("unprotected_files", number()),
        ("filtered", list(text())),
        ("pending_config", list(text())),
        ("store_bytes", number()),
        ("catalog_bytes", number()),
        ("watcher", text()),
        ("redoable", number()),
        ("pins", list(text())),
        ("roots", list(text())),
        ("signed_size", number()),
        ("head_problem", or_null(text())),
        ("witnesses", list(witness())),
        ("mirror", or_null(mirror())),
        ("isolated", list(isolated())),
        ("mount_problem", or_null(text())),
        ("files_not_here", number()),
        ("bytes_not_here", number()),
        ("effects", list(effect())),
        ("own_sessions", list(text())),
        ("left_off?", left_off()),
    ])
}
