//! `chronicle filter`: which paths do not travel between a host and its replicas.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use chronicle_core::{SCHEMA, Workspace, WorkspacePath};
use chronicle_replica::DirectionalFilter;
use chronicle_replica::drive::{RuleFile, rules_text};
use chronicle_replica::wire::Direction;

use super::Invocation;
use crate::bucket::home as bucket_home;
use crate::cli::{DirectionChoice, FilterCheckArgs, FilterRuleArgs, FilterVerb};
use crate::error::{CommandError, Outcome};
use crate::render::printable;

/// Stands for a name of no length, which only patterns fit that fit any name.
const NAMELESS: &[u8] = b"/\x01\x02\x01";
/// The longest text of paths or rules that is read.
const TEXT_MOST: u64 = 1 << 30;

pub(crate) fn execute(invocation: &mut Invocation, verb: &FilterVerb) -> Outcome {
    match verb {
        FilterVerb::Check(args) => {
            check(invocation, args).map_err(CommandError::where_one_is_an_answer)
        }
        FilterVerb::List => list(invocation),
        FilterVerb::Add(args) => add(invocation, args),
        FilterVerb::Remove(args) => remove(invocation, args),
    }
}

impl From<DirectionChoice> for Direction {
    fn from(choice: DirectionChoice) -> Self {
        match choice {
            DirectionChoice::Push => Self::Push,
            DirectionChoice::WriteBack => Self::WriteBack,
        }
    }
}

/// Prints the given paths that are filtered, as they were given.
fn check(invocation: &mut Invocation, args: &FilterCheckArgs) -> Outcome {
    let (filter, root) = filter(invocation, args)?;
    let given = given(args)?;
    let mut filtered = Vec::new();
    for path in given {
        let place = Given::resolve(&path, &invocation.directory, &root)?;
        if place.is_some_and(|place| filter.is_filtered(&place.path, place.is_directory)) {
            filtered.push(path);
        }
    }
    let status = u8::from(filtered.is_empty());
    if invocation.ui.json() {
        let paths: Vec<_> = filtered.iter().map(|path| String::from_utf8_lossy(path)).collect();
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "filtered": paths }));
        return Ok(status);
    }
    let mut text = Vec::new();
    for path in filtered {
        match args.nul {
            true => text.extend([&path[..], b"\0"].concat()),
            false => text.extend([&quoted(&path)[..], b"\n"].concat()),
        }
    }
    let _ = invocation.ui.write_all(&text);
    Ok(status)
}

/// The rules that were named, or those of the workspace; and what paths are relative to.
fn filter(
    invocation: &Invocation,
    args: &FilterCheckArgs,
) -> Result<(DirectionalFilter, PathBuf), CommandError> {
    if args.rules.is_empty() {
        let workspace = invocation.open()?;
        let text = rules_of(&workspace, args.direction.into())?;
        return Ok((DirectionalFilter::from_rules(&text), workspace.root().to_owned()));
    }
    let mut text = Vec::new();
    for file in &args.rules {
        let path = invocation.directory.join(file);
        let words = format!("Could not read {}", path.display());
        let read = std::fs::read(&path).map_err(|error| CommandError::io(words, error))?;
        text.extend(read.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&read));
        text.push(b'\n');
    }
    let root = invocation.directory.clone();
    let root = Workspace::open(&bucket_home()?, &root).map_or(root, |it| it.root().to_owned());
    Ok((DirectionalFilter::from_rules(&text), root))
}

fn rules_of(workspace: &Workspace, direction: Direction) -> Result<Vec<u8>, CommandError> {
    let settings = workspace.current_settings()?.replication;
    Ok(rules_text(&settings, &added(workspace)?.1, direction))
}

fn added(
    workspace: &Workspace,
) -> Result<(RuleFile, chronicle_replica::drive::Rules), CommandError> {
    let file = RuleFile::of(&bucket_home()?, workspace.id());
    let words = format!("Could not read {}", file.path().display());
    let rules = file.read().map_err(|error| CommandError::io(words, error))?;
    Ok((file, rules))
}

/// The paths, as bytes.
fn given(args: &FilterCheckArgs) -> Result<Vec<Vec<u8>>, CommandError> {
    if !args.stdin {
        return Ok(args.paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect());
    }
    let mut text = Vec::new();
    let read = std::io::stdin().take(TEXT_MOST).read_to_end(&mut text);
    read.map_err(|error| CommandError::io("Could not read stdin", error))?;
    let end = if args.nul { b'\0' } else { b'\n' };
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = text.strip_suffix(&[end]).unwrap_or(&text);
    let lines = text.split(|byte| *byte == end);
    Ok(match args.nul {
        true => lines.map(<[u8]>::to_vec).collect(),
        false => lines.map(|line| unquoted(line).unwrap_or_else(|| line.to_vec())).collect(),
    })
}

/// A path as somebody gave it.
struct Given {
    path: WorkspacePath,
    is_directory: bool,
}

impl Given {
    /// What it names below the root; `None` for the root itself.
    fn resolve(given: &[u8], directory: &Path, root: &Path) -> Result<Option<Self>, CommandError> {
        if given.is_empty() {
            return Err(CommandError::usage("An empty line is no path"));
        }
        let full = directory.join(OsStr::from_bytes(given));
        let outside = || {
            let given = String::from_utf8_lossy(given);
            let given = printable(&given);
            CommandError::usage(format!("{given} is outside of {}", root.display()))
        };
        let mut names: Vec<&OsStr> = Vec::new();
        for part in full.components() {
            match part {
                std::path::Component::Normal(name) => names.push(name),
                std::path::Component::ParentDir => drop(names.pop().ok_or_else(outside)?),
                _ => {}
            }
        }
        let mut resolved = PathBuf::from("/");
        resolved.extend(names);
        let below = resolved.strip_prefix(root).map_err(|_| outside())?;
        if below.as_os_str().is_empty() {
            return Ok(None);
        }
        let is_directory = std::fs::symlink_metadata(&resolved).is_ok_and(|meta| meta.is_dir());
        let mut path = below.as_os_str().to_owned().into_vec();
        if given.ends_with(b"/") {
            // Git takes it for something without a name in that directory.
            path.extend(NAMELESS);
        }
        let path = WorkspacePath::new(path).map_err(|_| outside())?;
        Ok(Some(Self { path, is_directory }))
    }
}

/// A path as git prints it: in quotes with escapes, if it has anything that is not plain.
fn quoted(path: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| (b' '..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return path.to_vec();
    }
    let mut text = vec![b'"'];
    for byte in path {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', *byte]),
            0x07 => text.extend(b"\\a"),
            0x08 => text.extend(b"\\b"),
            b'\t' => text.extend(b"\\t"),
            b'\n' => text.extend(b"\\n"),
            0x0b => text.extend(b"\\v"),
            0x0c => text.extend(b"\\f"),
            b'\r' => text.extend(b"\\r"),
            byte if is_plain(byte) => text.push(*byte),
            byte => text.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    text.push(b'"');
    text
}

/// What a line in quotes means; `None` if it is not in quotes, or not rightly.
fn unquoted(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line.strip_prefix(b"\"")?.strip_suffix(b"\"")?.iter().copied();
    let mut path = Vec::new();
    while let Some(byte) = rest.next() {
        if byte == b'"' {
            return None;
        }
        if byte != b'\\' {
            path.push(byte);
            continue;
        }
        path.push(match rest.next()? {
            b'a' => 0x07,
            b'b' => 0x08,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'r' => b'\r',
            plain @ (b'"' | b'\\') => plain,
            first @ b'0'..=b'3' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    let digit = rest.next().filter(|digit| (b'0'..=b'7').contains(digit))?;
                    value = value * 8 + (digit - b'0');
                }
                value
            }
            _ => return None,
        });
    }
    Some(path)
}

fn list(invocation: &mut Invocation) -> Outcome {
    let workspace = invocation.open()?;
    let settings = workspace.current_settings()?.replication;
    let (_, added) = added(&workspace)?;
    let rows = [
        ("push", "chronicle.toml", &settings.push),
        ("push", "added", &added.push),
        ("write-back", "chronicle.toml", &settings.write_back),
        ("write-back", "added", &added.write_back),
    ];
    if invocation.ui.json() {
        let rows: Vec<_> = rows
            .iter()
            .flat_map(|(direction, source, rules)| {
                rules.iter().map(move |rule| {
                    serde_json::json!({ "direction": direction, "source": source, "rule": rule })
                })
            })
            .collect();
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "rules": rows }));
        return Ok(0);
    }
    for (direction, source, rules) in rows {
        for rule in rules {
            invocation.ui.line(format!("{direction:<11} {source:<15} {}", printable(rule)));
        }
    }
    Ok(0)
}

fn directions(args: &FilterRuleArgs) -> Vec<Direction> {
    match args.direction {
        Some(direction) => vec![direction.into()],
        None => vec![Direction::Push, Direction::WriteBack],
    }
}

fn add(invocation: &mut Invocation, args: &FilterRuleArgs) -> Outcome {
    if args.rule.is_empty() || args.rule.contains('\n') {
        return Err(CommandError::usage("A rule is one line, and not empty"));
    }
    change(invocation, args, RuleFile::add, ("Added", "is there already"))
}

fn remove(invocation: &mut Invocation, args: &FilterRuleArgs) -> Outcome {
    change(invocation, args, RuleFile::remove, ("Removed", "was not there"))
}

fn change(
    invocation: &mut Invocation,
    args: &FilterRuleArgs,
    change: impl Fn(&RuleFile, Direction, &str) -> std::io::Result<bool>,
    (done, already): (&str, &str),
) -> Outcome {
    let workspace = invocation.open()?;
    let (file, _) = added(&workspace)?;
    let mut changed = false;
    for direction in directions(args) {
        let words = format!("Could not write {}", file.path().display());
        let one = change(&file, direction, &args.rule);
        changed |= one.map_err(|error| CommandError::io(words, error))?;
    }
    let rule = printable(&args.rule);
    if invocation.ui.json() {
        invocation.ui.data(&serde_json::json!({ "schema": SCHEMA, "changed": changed }));
    }
    invocation.ui.note(match changed {
        true => format!("{done} {rule}. A server that runs heeds it within seconds"),
        false => format!("{rule} {already}"),
    });
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_gits_own() {
        for (path, text) in [
            (&b"a b"[..], &b"a b"[..]),
            (b"tab\tx", b"\"tab\\tx\""),
            ("\u{fc}".as_bytes(), b"\"\\303\\274\""),
            (b"q\"\\", b"\"q\\\"\\\\\""),
            (b"\x01", b"\"\\001\""),
        ] {
            assert_eq!(quoted(path), text);
            let back = unquoted(text).unwrap_or_else(|| text.to_vec());
            assert_eq!(back, path);
        }
        for odd in [&b"\"a"[..], b"\"a\\x\"", b"\"\\9\"", b"\"a\"b\"", b"\""] {
            assert_eq!(unquoted(odd), None, "{odd:?}");
        }
    }
}
