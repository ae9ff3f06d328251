//! Reads the command lines that agents call before and after every action, without building the
//! whole command tree: `hook`, `snapshot` and `settle` with plain options.
//!
//! Anything else, or anything odd, is left to clap, which knows how to complain.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::cli::{Global, HookArgs, SnapshotArgs, Verb};

/// The verb and what every verb takes; `None` leaves the command line to clap.
pub(crate) fn parse(arguments: &[OsString]) -> Option<(Global, Verb)> {
    let mut global = Global::default();
    let mut rest = arguments.iter();
    let mut verb = rest.next()?;
    while let Some(common) = read_global(&mut global, verb, &mut rest) {
        common?;
        verb = rest.next()?;
    }
    match verb.to_str()? {
        "snapshot" => read_snapshot(global, rest),
        "settle" => read_settle(global, rest),
        "hook" => read_hook(global, rest),
        _ => None,
    }
}

type Arguments<'a> = std::slice::Iter<'a, OsString>;

/// Reads `-C DIR` or `--json`: `None` if it is neither, `Some(None)` if it is odd.
fn read_global(global: &mut Global, word: &OsStr, rest: &mut Arguments<'_>) -> Option<Option<()>> {
    if word == "--json" {
        // Given twice it is an error, and errors are clap's.
        return Some((!std::mem::replace(&mut global.json, true)).then_some(()));
    }
    if word != "-C" {
        return None;
    }
    let read = match (&global.directory, rest.next()) {
        (None, Some(dir)) if !dir.as_bytes().starts_with(b"-") => {
            global.directory = Some(PathBuf::from(dir));
            Some(())
        }
        _ => None,
    };
    Some(read)
}

fn read_settle(mut global: Global, mut rest: Arguments<'_>) -> Option<(Global, Verb)> {
    while let Some(word) = rest.next() {
        read_global(&mut global, word, &mut rest)??;
    }
    Some((global, Verb::Settle))
}

fn read_hook(mut global: Global, mut rest: Arguments<'_>) -> Option<(Global, Verb)> {
    let (mut agent, mut home, mut budget, mut strict) = (None, None, None, false);
    while let Some(word) = rest.next() {
        if let Some(common) = read_global(&mut global, word, &mut rest) {
            common?;
        } else if word == "--strict" {
            if std::mem::replace(&mut strict, true) {
                return None;
            }
        } else if !word.as_bytes().starts_with(b"-") {
            set(&mut agent, text(word.clone())?)?;
        } else {
            let (name, value) = option(word, &mut rest)?;
            match name {
                "home" => set(&mut home, PathBuf::from(plain(text(value)?)?))?,
                "budget" => set(&mut budget, text(value)?.parse().ok()?)?,
                _ => return None,
            }
        }
    }
    let args = HookArgs { agent: agent?, home, strict, budget };
    Some((global, Verb::Hook(args)))
}

fn read_snapshot(mut global: Global, mut rest: Arguments<'_>) -> Option<(Global, Verb)> {
    let mut args = SnapshotArgs::default();
    let mut action = None;
    while let Some(word) = rest.next() {
        if let Some(common) = read_global(&mut global, word, &mut rest) {
            common?;
            continue;
        }
        let (name, value) = option(word, &mut rest)?;
        match name {
            "path" => args.paths.push(PathBuf::from(value)),
            "to" => set(&mut args.to, PathBuf::from(value))?,
            "action" => set(&mut action, plain(text(value)?)?)?,
            "transaction" => set(&mut args.transaction, plain(text(value)?)?)?,
            "summary" => set(&mut args.summary, text(value)?)?,
            "turn-key" => set(&mut args.turn_key, text(value)?)?,
            "session" => set(&mut args.session, text(value)?)?,
            "agent" => set(&mut args.agent, text(value)?)?,
            "tool" => set(&mut args.tool, text(value)?)?,
            "call-id" => set(&mut args.call_id, text(value)?)?,
            _ => return None,
        }
    }
    args.action = action?;
    Some((global, Verb::Snapshot(args)))
}

/// `--name value` or `--name=value`.
fn option<'a>(word: &'a OsStr, rest: &mut Arguments<'a>) -> Option<(&'a str, OsString)> {
    let bytes = word.as_bytes().strip_prefix(b"--")?;
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(end) => {
            let value = OsString::from_vec(bytes[end + 1..].to_vec());
            Some((std::str::from_utf8(&bytes[..end]).ok()?, value))
        }
        None => Some((std::str::from_utf8(bytes).ok()?, rest.next()?.clone())),
    }
}

fn text(value: OsString) -> Option<String> {
    value.into_string().ok()
}

/// A value that does not look like an option, where clap would take it for one.
fn plain(value: String) -> Option<String> {
    (!value.starts_with('-')).then_some(value)
}

/// Sets what must not be set twice.
fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// Whatever is read by hand must be what clap reads.
    #[track_caller]
    fn check_same(line: &str) {
        let words = words(line);
        let (global, verb) = parse(&words).unwrap_or_else(|| panic!("left to clap: {line}"));
        let name = OsString::from("chronicle");
        let cli = Cli::try_parse_from(std::iter::once(&name).chain(&words)).expect(line);
        assert_eq!(global, cli.global, "{line}");
        match (verb, cli.verb) {
            (Verb::Snapshot(fast), Verb::Snapshot(slow)) => assert_eq!(fast, slow, "{line}"),
            (Verb::Hook(fast), Verb::Hook(slow)) => assert_eq!(fast, slow, "{line}"),
            (Verb::Settle, Verb::Settle) => {}
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn check_left(line: &str) {
        assert!(parse(&words(line)).is_none(), "read by hand: {line}");
    }

    #[test]
    fn plain_lines_mean_what_clap_makes_of_them() {
        check_same("settle");
        check_same("hook codex");
        check_same("hook --strict claude-code --home /h --budget=900");
        check_same("-C /tmp settle --json");
        check_same("--json -C x settle");
        check_same("snapshot --action write_file --path a");
        check_same("snapshot --path=a --path=b=c --action=move_file --to -dash");
        check_same("snapshot --path -dash --action chmod --session --json");
        check_same("-C d snapshot --action shell --summary -x --turn-key k --session s --json");
        check_same("snapshot --action a --transaction t --agent g --tool w --call-id c -C e");
    }

    #[test]
    fn what_is_odd_is_left_to_clap() {
        for line in [
            "",
            "log",
            "snapshot",
            "snapshot --path a",
            "snapshot --action a --action b",
            "snapshot --action -a",
            "snapshot --action a extra",
            "snapshot --action a --unknown x",
            "snapshot --action a --path",
            "snapshot --help",
            "settle extra",
            "-C",
            "-C a -C b settle",
            "--json --json settle",
        ] {
            check_left(line);
        }
    }
}
