//! What test binaries share with the script `./test`: settings in, skips out.

use std::io::Write;

/// Whether this process could read and write everything anyway.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Notes that a test could not run here, and why; `./test` lists it and counts it as skipped.
pub fn skip(test: &str, why: &str) {
    let Some(list) = std::env::var_os("CHRONICLE_SKIPS") else {
        return;
    };
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&list)
        .unwrap_or_else(|error| panic!("could not open {}: {error}", list.display()));
    writeln!(file, "{test}: {why}").expect("the list of skips can be written");
}

/// A number from the environment, for how much to do; the default where it is missing.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
