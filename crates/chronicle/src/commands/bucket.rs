//! `chronicle bucket`: where histories and contents of this home lie besides.

use chronicle_core::{SCHEMA, Workspace};
use chronicle_remote::LogHead;
use serde_json::json;

use super::Invocation;
use crate::bucket::{self, BucketSettings};
use crate::cli::{BucketPlaceArgs, BucketSetArgs, BucketVerb, EvictArgs, RekeyArgs};
use crate::error::{CommandError, Outcome};
use crate::render::{count, grouped, printable, short, size};
use crate::ui::Meter;

pub(crate) fn execute(invocation: &mut Invocation, verb: BucketVerb) -> Outcome {
    match verb {
        BucketVerb::Set(args) => set(invocation, &args),
        BucketVerb::Show => show(invocation),
        BucketVerb::Forget => forget(invocation),
        BucketVerb::List => list(invocation),
        BucketVerb::Gc => collect(invocation),
        BucketVerb::Evict(args) => evict(invocation, &args),
        BucketVerb::Rekey(args) => rekey(invocation, &args),
    }
}

/// The settings that are given; the key is made if it is not there.
pub(crate) fn given(
    invocation: &mut Invocation,
    url: &str,
    place: &BucketPlaceArgs,
    make_key: bool,
) -> Result<BucketSettings, CommandError> {
    let key = place.key.as_ref().map(|key| invocation.directory.join(key));
    if let Some(path) = key.as_ref().filter(|_| make_key)
        && bucket::make_key(path)?
    {
        invocation.ui.note(format!(
            "Made a key: {}. Keep a copy of it elsewhere: without it nobody reads what is in the bucket",
            path.display()
        ));
    }
    let settings = BucketSettings {
        url: url.to_owned(),
        endpoint: place.endpoint.clone(),
        region: place.region.clone(),
        key,
        allow_http: place.allow_http,
        manual: false,
        pool: place.pool.as_ref().map(|pool| invocation.directory.join(pool)),
        pool_bytes: place.pool_bytes,
    };
    if let (Some(pool), Ok(workspace)) = (&settings.pool, invocation.open())
        && pool.starts_with(workspace.root())
    {
        return Err(CommandError::usage("A pool cannot lie inside a workspace"));
    }
    settings.copies().map_or(Ok(()), |pool| pool.prepare())?;
    Ok(settings)
}

fn set(invocation: &mut Invocation, args: &BucketSetArgs) -> Outcome {
    refuse_agents(invocation, "set where history is sent")?;
    let home = bucket::home()?;
    let mut settings = given(invocation, &args.url, &args.place, true)?;
    settings.manual = args.manual;
    let store = settings.connect()?;
    settings.write(&home)?;
    let ui = &mut invocation.ui;
    let place = printable(store.bucket().place());
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "place": place, "sealed": settings.key.is_some(),
            "manual": settings.manual }));
    }
    let sealed = if settings.key.is_some() { "sealed" } else { "not sealed" };
    let when = match settings.manual {
        true => "when you say: chronicle push",
        false => "at the end of every turn, and when you say: chronicle push",
    };
    ui.note(format!("History goes to {place}, {sealed}, {when}"));
    ui.note("Take it back with: chronicle bucket forget (what is there stays there)");
    Ok(0)
}

fn show(invocation: &mut Invocation) -> Outcome {
    let settings = required()?;
    let key = settings.key.as_ref().map(|key| key.display().to_string());
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "url": settings.url, "endpoint": settings.endpoint,
            "region": settings.region, "key": key, "allow_http": settings.allow_http,
            "manual": settings.manual, "pool": settings.pool.as_ref().map(|pool| pool.display().to_string()) }));
        return Ok(0);
    }
    ui.line(format!("Place     {}", printable(&settings.url)));
    if let Some(endpoint) = &settings.endpoint {
        ui.line(format!("Endpoint  {}", printable(endpoint)));
    }
    ui.line(match key {
        Some(key) => format!("Sealed    with the key in {}", printable(&key)),
        None => "Sealed    no".to_owned(),
    });
    ui.line(format!(
        "Pushed    {}",
        if settings.manual { "by command" } else { "after every turn" }
    ));
    if let Some(pool) = &settings.pool {
        ui.line(format!("Pool      {}", printable(&pool.display().to_string())));
    }
    if let Some(Err(error)) = settings.copies().map(|pool| pool.check()) {
        ui.note(format!("{error}. Nothing is read from there or kept there"));
    }
    Ok(0)
}

fn forget(invocation: &mut Invocation) -> Outcome {
    refuse_agents(invocation, "change where history is sent")?;
    let forgotten = BucketSettings::forget(&bucket::home()?)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "forgotten": forgotten }));
    }
    ui.note(match forgotten {
        true => "Nothing is sent any more. What is in the bucket stays there",
        false => "No bucket was set",
    });
    Ok(0)
}

fn list(invocation: &mut Invocation) -> Outcome {
    let logs = required()?.connect()?.logs(None)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        let logs: Vec<_> = logs.iter().map(log_json).collect();
        ui.data(&json!({ "schema": SCHEMA, "logs": logs }));
        return Ok(0);
    }
    for log in &logs {
        ui.line(log_words(log));
    }
    if logs.is_empty() {
        ui.note("No history is there yet: chronicle push");
    }
    Ok(0)
}

fn log_json(log: &LogHead) -> serde_json::Value {
    json!({ "workspace_id": log.workspace.hex(), "epoch": log.epoch.hex(), "seq": log.head.seq.0,
        "title": log.title, "pushed_at": log.time.rfc3339() })
}

/// `0123456789ab  project  120 records, pushed 2026-11-16T10:00:00Z`.
pub(crate) fn log_words(log: &LogHead) -> String {
    format!(
        "{}  {}  {}, pushed {}",
        short(&log.workspace.hex()),
        printable(&log.title),
        count(log.head.seq.0, "record"),
        log.time.rfc3339(),
    )
}

fn collect(invocation: &mut Invocation) -> Outcome {
    refuse_agents(invocation, "collect garbage in the bucket")?;
    let home = bucket::home()?;
    let collected = required()?.connect()?.collect(bucket::home_id(&home)?)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "objects_needed": collected.needed,
            "packs_doomed": collected.doomed, "packs_gone": collected.packs,
            "freed_bytes": collected.bytes, "objects_carried": collected.carried }));
        return Ok(0);
    }
    ui.line(format!(
        "{} freed, {} gone, {} of them carried over; {} needed",
        size(collected.bytes),
        count(collected.packs, "pack"),
        count(collected.carried, "object"),
        grouped(collected.needed),
    ));
    if collected.doomed > 0 {
        let packs = count(collected.doomed, "pack");
        ui.note(format!("{packs} are not needed: the next chronicle bucket gc takes them away"));
    }
    Ok(0)
}

fn evict(invocation: &mut Invocation, args: &EvictArgs) -> Outcome {
    refuse_agents(invocation, "take content away")?;
    let home = bucket::home()?;
    let settings = required()?;
    let store = settings.connect()?;
    // What the bucket has is what it listed just now.
    let bytes = args.bytes.unwrap_or(u64::MAX);
    let report = home.evict(bytes, &settings.url, &|id| Ok(store.is_known(id)))?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&report);
        return Ok(0);
    }
    ui.line(format!(
        "{} freed, {} gone from here",
        size(report.freed_bytes),
        count(report.objects_gone, "object")
    ));
    ui.note("Whoever needs one of them reads it from the bucket, where it stays");
    Ok(0)
}

fn rekey(invocation: &mut Invocation, args: &RekeyArgs) -> Outcome {
    refuse_agents(invocation, "exchange the key of the bucket")?;
    let home = bucket::home()?;
    let mut settings = required()?;
    let store = settings.connect()?;
    let path = invocation.directory.join(&args.key);
    if bucket::make_key(&path)? {
        invocation.ui.note(format!("Made a key: {}. Keep a copy of it elsewhere", path.display()));
    }
    if settings.key.as_ref() != Some(&path) {
        store.exchange_key(&bucket::read_key(&path)?)?;
        settings.key = Some(path);
        settings.write(&home)?;
    }
    let meter = Meter::new(&invocation.ui);
    let packs = store.reseal(&|done, total| {
        meter.show(|| format!("{} of {} packs", grouped(done), grouped(total)));
    });
    meter.clear();
    let packs = packs?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "packs_resealed": packs }));
    } else {
        ui.line(format!("The key is exchanged; {} written anew", count(packs, "pack")));
    }
    ui.note("Each workspace's records follow at its next push: chronicle push");
    Ok(0)
}

/// The settings of the home, which must be there.
pub(crate) fn required() -> Result<BucketSettings, CommandError> {
    BucketSettings::read(&chronicle_core::Home::from_env()?)?.ok_or_else(|| {
        CommandError::usage("No bucket is set for this home")
            .hinted("Set one with: chronicle bucket set s3://BUCKET/PREFIX --key FILE")
    })
}

/// What is outside every workspace must not be an agent's to change from inside one.
fn refuse_agents(invocation: &Invocation, what: &'static str) -> Result<(), CommandError> {
    match invocation.open() {
        Ok(workspace) => refuse(&workspace, what),
        Err(_) => Ok(()),
    }
}

fn refuse(workspace: &Workspace, what: &'static str) -> Result<(), CommandError> {
    Ok(workspace.refuse_agents(what)?)
}
