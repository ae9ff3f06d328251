//! `chronicle replicas`: how far each replica of this workspace is.

use chronicle_core::{ReplicaRow, SCHEMA};
use serde_json::json;

use super::Invocation;
use crate::error::Outcome;
use crate::render::{count, fit, printable, size, time};

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let workspace = invocation.open()?;
    let (rows, head) = (workspace.replicas()?, workspace.replica_place()?.head);
    let own = workspace.replica_state()?;
    let (lazy, unfilled) = (workspace.is_lazy()?, workspace.unfilled()?);
    let now = time::now();
    let lag = |row: &ReplicaRow| {
        let place = row.acknowledged.filter(|place| place.epoch == head.epoch)?;
        Some(head.seq.0.saturating_sub(place.seq.0))
    };
    let silent = |row: &ReplicaRow| now.saturating_sub(row.seen.0 / 1_000_000_000).max(0);
    if invocation.ui.json() {
        let rows = workspace.replica_views()?;
        let of = own.map(|own| {
            json!({
                "workspace": own.of.hex(),
                "from": own.from,
                "name": own.name,
                "applied": own.applied.map(|place| place.seq.0),
                "under_way": own.under_way,
                "lazy": lazy,
                "files_not_here": unfilled.files,
                "bytes_not_here": unfilled.bytes,
            })
        });
        invocation.ui.data(&json!({
            "schema": SCHEMA, "head": head.seq.0, "replicas": rows, "replica_of": of,
        }));
        return Ok(0);
    }
    if let Some(own) = own {
        let applied =
            own.applied.map_or("nothing yet".to_owned(), |place| format!("record {}", place.seq.0));
        let (of, from) = (own.of.hex(), printable(&own.from).into_owned());
        let missing = match unfilled.files {
            0 => String::new(),
            files => {
                format!(", {} ({}) not here yet", count(files, "file"), size(unfilled.bytes))
            }
        };
        let of = &of[..12];
        invocation.ui.line(format!("This is a replica of {of} at {from}: {applied}{missing}"));
    }
    for row in &rows {
        let behind = match lag(row) {
            Some(0) => "up to date".to_owned(),
            Some(behind) => format!("{} behind", count(behind, "record")),
            None => "to be filled or compared".to_owned(),
        };
        let seen = time::span(silent(row).unsigned_abs());
        let (name, sent, received) = (printable(&row.name), size(row.sent), size(row.received));
        invocation.ui.line(format!(
            "{:<24} {behind}, heard of {seen} ago, {sent} sent, {received} received, {}",
            fit(&name, 24),
            count(row.conflicts, "conflict"),
        ));
    }
    if rows.is_empty() {
        invocation.ui.note("No replica was ever connected. See: chronicle serve --help");
    }
    Ok(0)
}
