//! `chronicle forget`: content is removed for good, and history still verifies.

use std::path::Path;

use chronicle_core::{Error, ForgetReport, Forgettable, Stop, Workspace};

use super::Invocation;
use crate::cli::ForgetArgs;
use crate::error::{CommandError, Outcome};
use crate::render::{count, printable};
use crate::ui;

/// Fewer digits are taken for a path.
const OBJECT_DIGITS: usize = 12;
/// Records of a path that are named one by one.
const NAMED: usize = 8;

pub(crate) fn execute(invocation: &mut Invocation, args: &ForgetArgs) -> Outcome {
    let mut workspace = invocation.open()?;
    if !args.dry_run {
        workspace.refuse_agents("forget content")?;
        refuse_unasked(args)?;
    }
    let what = what(invocation, &workspace, args)?;
    let invocation_ui = &mut invocation.ui;
    let report = workspace.forget(&what, args.dry_run, &mut |report| {
        if args.yes {
            return true;
        }
        ui::say(&listing(report));
        invocation_ui.confirm("This cannot be taken back. Forget it?")
    })?;
    show(invocation, &report);
    Ok(0)
}

/// A script must say that it means it.
fn refuse_unasked(args: &ForgetArgs) -> Result<(), CommandError> {
    if args.yes || ui::person_present() {
        return Ok(());
    }
    let why = "what is forgotten cannot be brought back".to_owned();
    Err(Error::Stopped(Stop::NotConfirmed(why)).into())
}

fn what(
    invocation: &Invocation,
    workspace: &Workspace,
    args: &ForgetArgs,
) -> Result<Forgettable, CommandError> {
    if let Some(object) = object(&args.what) {
        if args.at.is_some() {
            return Err(CommandError::usage("--at goes with a path: an object has one content"));
        }
        return Ok(Forgettable::Object(object.to_owned()));
    }
    let path = invocation.path(workspace, &args.what)?;
    Ok(Forgettable::Path { path, at: args.at.clone() })
}

/// The digits of an object; a file of such a name is meant by `./NAME`.
fn object(given: &Path) -> Option<&str> {
    let text = given.to_str()?;
    let digits = text.chars().all(|letter| letter.is_ascii_hexdigit());
    (digits && text.len() >= OBJECT_DIGITS).then_some(text)
}

fn show(invocation: &mut Invocation, report: &ForgetReport) {
    let ui = &mut invocation.ui;
    if ui.json() {
        ui.data(report);
        return;
    }
    ui.print(&listing(report));
    let verb = if report.dry_run { "Would forget" } else { "Forgot" };
    let (objects, changes) = (count(report.objects, "content"), count(report.changes, "change"));
    ui.line(format!("{verb} {objects}; {changes} of the history say less"));
    for path in &report.still_there {
        ui.line(format!("It still stands at {}: change or remove that first", printable(path)));
    }
    for root in &report.needed_elsewhere {
        ui.line(format!("Workspace {} needs it too", printable(root)));
    }
    if !report.dry_run {
        ui.note("History still verifies. Copies outside the home, and heads that were handed over, stay");
    }
}

/// A line for each path, with the records that name what goes.
fn listing(report: &ForgetReport) -> String {
    let line = |found: &chronicle_core::ForgottenView| {
        let mut seqs: Vec<_> =
            found.seqs.iter().take(NAMED).map(|seq| format!("seq:{seq}")).collect();
        if found.seqs.len() > NAMED {
            seqs.push(format!("and {} more", found.seqs.len() - NAMED));
        }
        format!("  {}  {}\n", printable(&found.path), seqs.join(" "))
    };
    report.paths.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_in_plenty_name_an_object() {
        assert_eq!(object(Path::new("0123456789ab")), Some("0123456789ab"));
        for path in ["0123456789a", "./0123456789ab", "0123456789ab.txt", ".env", ""] {
            assert_eq!(object(Path::new(path)), None, "{path}");
        }
    }
}
