//! Links the command at a fixed address, and with what unwinds its stack inside.
//!
//! Hooks start it hundreds of times an hour, and moving a program of this size to a random place
//! costs as much as starting it (see `docs/decisions/0007-fixed-address.md`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // One library less to be found, mapped and asked what the processor can do.
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}
