//! Links the command at a fixed address.
//!
//! Hooks start it hundreds of times an hour, and moving a program of this size to a random place
//! costs as much as starting it (see `docs/decisions/0007-fixed-address.md`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
