//! `chronicle verify`: recomputes the chain, compares it with what was signed, looks for its content.

use std::ffi::OsStr;
use std::io::Read;

use chronicle_core::{Anchor, Error, VerifyReport, VerifyRequest};

use super::Invocation;
use crate::cli::VerifyArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, grouped};
use crate::ui::Meter;

pub(crate) fn execute(invocation: &mut Invocation, args: &VerifyArgs) -> Outcome {
    let anchor = args.anchor.as_deref().map(|given| anchor(invocation, given)).transpose()?;
    let workspace = invocation.open().map_err(damage)?;
    let meter = Meter::new(&invocation.ui);
    let request = VerifyRequest { deep: args.deep, anchor };
    let verified = workspace.verify_with(&request, &|done, total| {
        meter.show(|| format!("{} of {} checked", grouped(done), grouped(total)));
    });
    meter.clear();
    let found = verified.map_err(|error| damage(error.into()))?;
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(&found);
    } else {
        ui.line(words(&found));
    }
    Ok(0)
}

/// The longest file with a head that is read.
const LONGEST: u64 = 1 << 16;

/// A head that was noted elsewhere: in a file, or given as it is.
fn anchor(invocation: &Invocation, given: &OsStr) -> Result<Anchor, CommandError> {
    if let Some(anchor) = given.to_str().and_then(Anchor::parse) {
        return Ok(anchor);
    }
    let path = invocation.directory.join(given);
    let mut text = String::new();
    let opened = std::fs::File::open(&path);
    let read = opened.and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    let words = |what: &str| format!("Anchor {} {what}", path.display());
    read.map_err(|error| CommandError::io(words("cannot be read"), error))?;
    Anchor::parse(&text).ok_or_else(|| {
        let hint = "Give the whole text that chronicle head printed, or SIZE:ROOT";
        CommandError::usage(words("holds no signed head")).hinted(hint)
    })
}

/// `History verifies: 12 records, 40 objects there, 40 read back, head 0123...`.
pub(crate) fn words(found: &VerifyReport) -> String {
    let read = match found.objects_read {
        0 => String::new(),
        read => format!(", {read} read back"),
    };
    let read = match found.objects_not_read {
        0 => read,
        sealed => format!("{read}, {sealed} secret and not checked for want of their key"),
    };
    let read = match found.objects_away {
        0 => read,
        away => format!("{read}, {away} of them only in the bucket"),
    };
    let (records, objects) = (count(found.records, "record"), count(found.objects, "object"));
    let agreeing = found.witnesses.iter().filter(|witness| witness.size > 0).count();
    let heads = match (found.heads, agreeing, found.anchored) {
        (0, 0, None) => String::new(),
        (heads, 0, None) => format!(", {}", count(heads, "signed head")),
        (heads, witnesses, anchored) => {
            let anchor = if anchored.is_some() { ", the anchor fits" } else { "" };
            let (heads, witnesses) =
                (count(heads, "signed head"), count(witnesses as u64, "witness"));
            format!(", {heads}, {witnesses} agreeing{anchor}")
        }
    };
    format!("History verifies: {records}, {objects} there{read}{heads}, head {}", found.head_hash)
}

/// Damage that verification found has an exit status of its own.
fn damage(error: CommandError) -> CommandError {
    let damaged = error.error.downcast_ref::<Error>().is_some_and(Error::is_damage);
    if damaged { error.of(Kind::Verification) } else { error }
}
