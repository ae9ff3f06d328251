//! The limit of every mount: the same passthrough with nobody who keeps versions.
//!
//! `bare_mount DIR MOUNTPOINT [allow-other] [no-passthrough] [no-watch] [threads=N]` serves until somebody unmounts it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people who measure")]

use std::process::ExitCode;
use std::sync::Arc;

use chronicle_mount::{NoMagic, NoVersions, Settings};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [backing, at, flags @ ..] = &words[..] else {
        eprintln!(
            "usage: bare_mount DIR MOUNTPOINT [allow-other] [no-passthrough] [no-watch] [threads=N]"
        );
        return ExitCode::from(2);
    };
    let has = |flag: &str| flags.iter().any(|word| word == flag);
    let mut settings = Settings::new(backing, at);
    settings.allow_other = has("allow-other");
    settings.passthrough = !has("no-passthrough");
    settings.watch = !has("no-watch");
    let threads = flags.iter().find_map(|word| word.strip_prefix("threads=")?.parse().ok());
    settings.threads = threads.unwrap_or(settings.threads);
    let mounted = match chronicle_mount::mount(&settings, Arc::new(NoVersions), Arc::new(NoMagic)) {
        Ok(mounted) => mounted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:?}", mounted.abilities());
    match mounted.wait() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
