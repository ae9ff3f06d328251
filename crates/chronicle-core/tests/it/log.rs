//! The contract of logs, over those that are in this crate.

use chronicle_core::{MemoryLog, sqlite_log};
use chronicle_testing::log_contract::{WORKSPACE, check, names};

#[test]
fn memory_keeps_the_contract_of_logs() {
    check(&mut MemoryLog::default());
}

#[test]
fn sqlite_keeps_the_contract_of_logs_and_what_was_committed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("catalog.db");
    check(&mut *sqlite_log(&path, WORKSPACE).unwrap());
    assert_eq!(names(&*sqlite_log(&path, WORKSPACE).unwrap()), ["a", "b", "c", "d"]);
}
