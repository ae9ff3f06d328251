//! `chronicle pull`: what a bucket has of this history and this home has not.

use chronicle_core::{ContentStorage, SCHEMA, Workspace};
use chronicle_remote::{Fetched, LogHead, RemoteStore};
use serde_json::json;

use super::Invocation;
use super::bucket::{log_words, required};
use crate::bucket;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, grouped, printable};
use crate::ui::Meter;

/// Exit status when some content is nowhere.
const PARTIAL: u8 = 4;

pub(crate) fn execute(invocation: &mut Invocation) -> Outcome {
    let home = bucket::home()?;
    let settings = required()?;
    let mut workspace = invocation.open()?;
    workspace.refuse_agents("take over another history")?;
    workspace.settle()?;
    let store = settings.connect()?;
    let meter = Meter::new(&invocation.ui);
    let progress = |done, total| {
        meter.show(|| format!("{} of {} objects", grouped(done), grouped(total)));
    };
    let pulled = pull(&home, &mut workspace, &store, &progress);
    meter.clear();
    let Pulled { from, records, objects, missing } = pulled?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "place": settings.url, "records": records,
            "objects": objects, "seq": from, "missing": missing }));
    } else if records == 0 && objects == 0 {
        ui.line(format!("{} has nothing that is not here", printable(&settings.url)));
    } else {
        ui.line(format!("Took over {} and {}", count(records, "record"), count(objects, "object")));
    }
    if records > 0 {
        ui.note(format!(
            "The files are as they were. Make them what they were there with: chronicle rewind seq:{from} --exact"
        ));
    }
    Ok(if missing > 0 { PARTIAL } else { 0 })
}

struct Pulled {
    from: u64,
    records: u64,
    objects: u64,
    missing: u64,
}

fn pull(
    home: &chronicle_core::Home,
    workspace: &mut Workspace,
    store: &RemoteStore,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Pulled, CommandError> {
    let position = workspace.position()?;
    let mut logs = store.logs(Some(position.workspace))?;
    // What was pushed from here, or goes no further, has no news; its contents may still be wanted.
    logs.sort_by_key(|log| std::cmp::Reverse(log.head.seq));
    let ahead: Vec<&LogHead> = logs.iter().filter(|log| log.head.seq > position.head.seq).collect();
    let mut beside = None;
    for log in ahead {
        let has = |id: &_| workspace.has_content(id);
        let fetched = store.fetch(home, log, &has, progress)?;
        if fetched.arrival.link_at(position.head.seq)? != position.head {
            beside = Some(log);
            continue;
        }
        let Fetched { arrival, standing, missing, objects } = fetched;
        let came = workspace.catch_up(arrival, standing.as_ref())?;
        return Ok(Pulled {
            from: came.seq.0,
            records: came.seq.0 - position.head.seq.0,
            objects,
            missing: missing.len() as u64,
        });
    }
    if let Some(log) = beside {
        let message =
            format!("{} went another way than this one: {}", "A longer history", log_words(log));
        return Err(CommandError::failed("diverged", message).of(Kind::Stopped).hinted(
            "Nothing was changed. Have it beside this one with: chronicle clone URL DIR in another home",
        ));
    }
    let objects = bring_back(workspace, store)?;
    Ok(Pulled { from: position.head.seq.0, records: 0, objects, missing: 0 })
}

/// Brings contents back that were taken away here, or lost, and that the bucket has.
fn bring_back(workspace: &Workspace, store: &RemoteStore) -> Result<u64, CommandError> {
    let position = workspace.position()?;
    let mut brought = 0;
    for id in workspace.objects_between(chronicle_core::Seq(0), position.head.seq)? {
        if !workspace.has_content(&id)? && store.exists(&id)? {
            brought += u64::from(workspace.bring_near(&id)?);
        }
    }
    Ok(brought)
}
