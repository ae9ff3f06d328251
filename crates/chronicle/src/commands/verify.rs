//! `chronicle verify`: recomputes the chain and looks for its content.

use chronicle_core::{Error, VerifyReport};

use super::Invocation;
use crate::cli::VerifyArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, grouped};
use crate::ui::Meter;

pub(crate) fn execute(invocation: &mut Invocation, args: &VerifyArgs) -> Outcome {
    let workspace = invocation.open().map_err(damage)?;
    let meter = Meter::new(&invocation.ui);
    let verified = workspace.verify(args.deep, &|done, total| {
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

/// `History verifies: 12 records, 40 objects there, 40 read back, head 0123...`.
pub(crate) fn words(found: &VerifyReport) -> String {
    let read = match found.objects_read {
        0 => String::new(),
        read => format!(", {read} read back"),
    };
    let (records, objects) = (count(found.records, "record"), count(found.objects, "object"));
    format!("History verifies: {records}, {objects} there{read}, head {}", found.head_hash)
}

/// Damage that verification found has an exit status of its own.
fn damage(error: CommandError) -> CommandError {
    let damaged = error.error.downcast_ref::<Error>().is_some_and(|error| {
        matches!(
            error,
            Error::Tampered { .. }
                | Error::Corrupt { .. }
                | Error::Missing(_)
                | Error::Record { .. }
        )
    });
    if damaged { error.of(Kind::Verification) } else { error }
}
