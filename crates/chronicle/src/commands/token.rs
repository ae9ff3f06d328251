//! `chronicle token`: what lets replicas in.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use chronicle_core::SCHEMA;
use chronicle_replica::drive::{Right, TokenError, Tokens, wall_ns};

use super::Invocation;
use crate::bucket::home as bucket_home;
use crate::cli::{RightChoice, TokenCreateArgs, TokenRevokeArgs, TokenVerb};
use crate::error::{CommandError, Kind, Outcome};
use crate::render::time;

pub(crate) fn execute(invocation: &mut Invocation, verb: &TokenVerb) -> Outcome {
    match verb {
        TokenVerb::Create(args) => create(invocation, args),
        TokenVerb::List => list(invocation),
        TokenVerb::Revoke(args) => revoke(invocation, args),
    }
}

fn create(invocation: &mut Invocation, args: &TokenCreateArgs) -> Outcome {
    let workspace = invocation.open()?;
    let right = match args.right {
        RightChoice::Read => Right::Read,
        RightChoice::WriteBack => Right::WriteBack,
    };
    let tokens = Tokens::of(&bucket_home()?);
    let token = tokens.create(&args.name, workspace.id(), right, wall_ns())?;
    if let Some(file) = &args.file {
        let path = invocation.directory.join(file);
        if let Err(error) = write(&path, &token) {
            // A token that nobody has is of no use.
            let _ = tokens.revoke(&args.name);
            let words = format!("Could not write {}", path.display());
            return Err(CommandError::io(words, error));
        }
    }
    let shown = args.file.is_none().then_some(&token);
    if invocation.ui.json() {
        invocation.ui.data(&serde_json::json!({
            "schema": SCHEMA, "name": args.name, "right": right.word(), "token": shown,
        }));
    } else if let Some(token) = shown {
        invocation.ui.line(token.clone());
    }
    let name = &args.name;
    invocation.ui.note(format!(
        "It is shown only now. Give it to the replica in a file: chronicle connect --token-file FILE. \
         Take it back with: chronicle token revoke {name}"
    ));
    Ok(0)
}

fn write(path: &Path, token: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{token}\n").as_bytes())?;
    file.sync_all()
}

fn list(invocation: &mut Invocation) -> Outcome {
    let rows = Tokens::of(&bucket_home()?).list()?;
    if invocation.ui.json() {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                serde_json::json!({
                    "name": row.name,
                    "right": row.right.word(),
                    "workspace": row.workspace,
                    "created_ns": row.created_ns,
                })
            })
            .collect();
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "tokens": rows }));
        return Ok(0);
    }
    for row in &rows {
        let past = time::now().saturating_sub(row.created_ns / 1_000_000_000);
        let created = format!("{} ago", time::span(past.unsigned_abs()));
        let (right, workspace) = (row.right.word(), &row.workspace[..12]);
        invocation.ui.line(format!("{:<24} {right:<11} {workspace}  {created}", row.name));
    }
    if rows.is_empty() {
        invocation.ui.note("There are no tokens. Make one with: chronicle token create NAME");
    }
    Ok(0)
}

fn revoke(invocation: &mut Invocation, args: &TokenRevokeArgs) -> Outcome {
    Tokens::of(&bucket_home()?).revoke(&args.name)?;
    if invocation.ui.json() {
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "revoked": args.name }));
    }
    invocation.ui.note(format!(
        "Revoked {}: its bearer is refused from now on, and dismissed within seconds",
        args.name
    ));
    Ok(0)
}

impl From<TokenError> for CommandError {
    fn from(error: TokenError) -> Self {
        let (kind, code, hint) = match &error {
            TokenError::Taken(_) => {
                (Kind::Failed, "token", "Revoke it first: chronicle token revoke NAME")
            }
            TokenError::Unknown(_) => {
                (Kind::Failed, "token", "See them with: chronicle token list")
            }
            TokenError::Name(_) => (Kind::Usage, "usage", "Choose a plain name"),
            TokenError::File(..) => (Kind::Failed, "io", "The file must be yours, mode 0600"),
        };
        Self { kind, code, error: error.into(), hints: vec![hint.to_owned()] }
    }
}
