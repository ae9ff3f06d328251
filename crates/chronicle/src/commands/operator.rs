//! `chronicle operator`: somebody else than the agents' user has the say over what takes protection
//! away.

use std::io::Read;
use std::path::Path;

use chronicle_core::{Act, Error, OperatorKey, PublicKey, SCHEMA, Stop, Workspace};
use serde_json::json;

use super::Invocation;
use crate::cli::{GrantArgs, OperatorVerb, RequireArgs, UseArgs};
use crate::error::{CommandError, Outcome};
use crate::ui;

/// The longest grant that is read.
const LONGEST: u64 = 1 << 14;

pub(crate) fn execute(invocation: &mut Invocation, verb: &OperatorVerb) -> Outcome {
    match verb {
        OperatorVerb::Key(args) => make_key(invocation, &args.file),
        OperatorVerb::Require(args) => require(invocation, args),
        OperatorVerb::Grant(args) => grant(invocation, args),
        OperatorVerb::Use(args) => use_grant(invocation, args),
        OperatorVerb::Show => show(invocation),
    }
}

fn make_key(invocation: &mut Invocation, file: &Path) -> Outcome {
    let path = invocation.directory.join(file);
    let key = OperatorKey::open_or_make(&path)?.public().text();
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "key": key, "file": path.display().to_string() }));
    } else {
        ui.line(&key);
    }
    ui.note(format!(
        "Keep {} where the agents' user cannot read it. In a workspace: chronicle operator require {key}",
        path.display()
    ));
    Ok(0)
}

fn require(invocation: &mut Invocation, args: &RequireArgs) -> Outcome {
    let key = PublicKey::parse(&args.key)
        .ok_or_else(|| CommandError::usage("The key is not 32 bytes in base64"))?;
    let mut workspace = invocation.open()?;
    if !ui::person_present() && !args.yes {
        let why = "an operator is named on a terminal, or with --yes".to_owned();
        return Err(Error::Stopped(Stop::NotConfirmed(why)).into());
    }
    let words =
        "From now on pruning, forgetting and protecting less need this operator's grant. Go on?";
    if !args.yes && !invocation.ui.confirm(words) {
        let stop = Stop::NotConfirmed("nobody was named".to_owned());
        return Err(Error::Stopped(stop).into());
    }
    workspace.require_operator(key)?;
    invocation.ui.note(
        "Only the operator can take this back, with a grant to name another: chronicle operator grant operator",
    );
    show(invocation)
}

fn grant(invocation: &mut Invocation, args: &GrantArgs) -> Outcome {
    let key = OperatorKey::open(&invocation.directory.join(&args.key))?;
    let act = Act::ALL.into_iter().find(|act| act.word() == args.act);
    let act = act.ok_or_else(|| {
        let words: Vec<_> = Act::ALL.iter().map(|act| act.word()).collect();
        CommandError::usage(format!("Nothing is called {:?} here", args.act))
            .hinted(format!("Name one of: {}", words.join(", ")))
    })?;
    let log = match &args.workspace {
        Some(named) => named.clone(),
        None => invocation.open()?.log_name(),
    };
    let signed = key.grant(&log, act, args.days)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "act": act.word(), "grant": signed.text() }));
    } else {
        ui.line(signed.text().trim_end());
    }
    ui.note("Give it to whoever may do it: chronicle operator use FILE");
    Ok(0)
}

fn use_grant(invocation: &mut Invocation, args: &UseArgs) -> Outcome {
    let mut text = String::new();
    let read = match args.file.as_os_str() == "-" {
        true => std::io::stdin().take(LONGEST).read_to_string(&mut text),
        false => std::fs::File::open(invocation.directory.join(&args.file))
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text)),
    };
    read.map_err(|error| {
        CommandError::io(format!("Could not read the grant {}", args.file.display()), error)
    })?;
    let mut workspace = invocation.open()?;
    let act = workspace.keep_grant(&text)?.grant.act;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "act": act.word() }));
    }
    ui.note(format!("The operator allows to {}", act.words()));
    Ok(0)
}

fn show(invocation: &mut Invocation) -> Outcome {
    let workspace = invocation.open()?;
    let (key, log) = (workspace.operator()?, workspace.log_name());
    let granted = granted(&workspace)?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&json!({ "schema": SCHEMA, "operator": key.map(|key| key.text()), "log": log,
            "granted": granted }));
        return Ok(0);
    }
    match key {
        Some(key) => ui.line(format!("Operator   {}", key.text())),
        None => ui.line("Operator   nobody: whoever sits at a terminal"),
    }
    ui.line(format!("Workspace  {log}"));
    if !granted.is_empty() {
        ui.line(format!("Granted    {}", granted.join(", ")));
    }
    Ok(0)
}

fn granted(workspace: &Workspace) -> Result<Vec<&'static str>, CommandError> {
    let mut granted = Vec::new();
    for act in Act::ALL {
        if workspace.is_granted(act)? {
            granted.push(act.word());
        }
    }
    Ok(granted)
}
