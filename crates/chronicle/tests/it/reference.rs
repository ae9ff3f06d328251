//! `docs/cli.md` is the program's own help, and cannot drift from it unseen.

use std::path::Path;

use crate::support::Cli;

#[test]
fn the_reference_is_what_the_program_says() {
    let said = Cli::new().call(["__reference"]).ok().stdout;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &said).expect("write docs/cli.md");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(said == written, "docs/cli.md is out of date: run this test with UPDATE_DOCS=1");
}
