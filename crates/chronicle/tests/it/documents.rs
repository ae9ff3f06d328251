//! Every command in the documents is run, in the order in which a reader types them.
//!
//! A block marked `console` is a conversation: lines that begin with `$ ` are typed, lines behind them that do not
//! are what the command says. All blocks of one document are typed into one shell, in an empty home. Between
//! blocks a comment of HTML may say what readers need not see:
//!
//! ```text
//! <!-- sh: COMMAND -->          typed too: what the reader's project looks like, or waiting for something
//! <!-- not run: REASON -->      the next block is only shown
//! <!-- needs: PATH -->          the next block is only shown where there is no such file
//! <!-- all of it needs: PATH -->  the same for the whole document
//! ```
//!
//! `$TOOLS` is where the tests' own tools are.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_testing::env::Env;

/// A document must not take longer than this.
const PATIENCE: Duration = Duration::from_secs(120);

/// One command and what the document says that it says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Typed {
    line: usize,
    command: String,
    said: String,
}

/// What a document has typed, in order.
fn typed(text: &str) -> Vec<Typed> {
    let (mut all, mut inside, mut skip) = (Vec::<Typed>::new(), false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let hidden = |word: &str| line.strip_prefix(word)?.strip_suffix("-->").map(str::trim);
        match line {
            "```console" => inside = true,
            "```" if inside => (inside, skip) = (false, false),
            _ if inside && skip => {}
            _ if inside => match line.strip_prefix("$ ") {
                Some(command) => {
                    let (command, said) = (command.to_owned(), String::new());
                    all.push(Typed { line: number, command, said });
                }
                None => {
                    let last = all.last_mut().filter(|_| !line.trim().is_empty());
                    last.into_iter().for_each(|last| last.said = format!("{}{line}\n", last.said));
                }
            },
            _ if hidden("<!-- not run:").is_some_and(|why| !why.is_empty()) => skip = true,
            _ if hidden("<!-- needs:").is_some_and(|what| !Path::new(what).exists()) => skip = true,
            _ => {
                if let Some(command) = hidden("<!-- sh:") {
                    let (command, said) = (command.to_owned(), String::new());
                    all.push(Typed { line: number, command, said });
                }
            }
        }
    }
    all
}

/// All of it as one script, which stops at the first command that fails and leaves what each one said.
fn script(all: &[Typed], said: &Path) -> String {
    let mut script = "set -m\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
    for Typed { line, command, .. } in all {
        let place = said.join(line.to_string());
        let place = place.display();
        let _ = writeln!(
            script,
            "{{ {command}\n}} >{place} 2>{place}.err </dev/null || {{ echo {line} $? >{}; exit 1; }}",
            said.join("failed").display()
        );
    }
    script
}

/// Where the tests' own tools are.
fn tools() -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    top.canonicalize().unwrap().join("target/tools").display().to_string()
}

/// Whether everything is there without which a document cannot be played at all.
fn can_be_played(text: &str) -> bool {
    let needs = text.lines().filter_map(|line| line.strip_prefix("<!-- all of it needs:"));
    let mut paths =
        needs.map(|rest| rest.trim_end_matches("-->").trim().replace("$TOOLS", &tools()));
    paths.all(|path| Path::new(&path).exists())
}

/// Types a document and says what went wrong.
fn play(document: &Path) -> Result<usize, String> {
    if !can_be_played(&fs::read_to_string(document).unwrap()) {
        let name = document.file_name().unwrap().to_string_lossy().into_owned();
        chronicle_testing::shared::skip(&name, "what the document needs is not installed");
        return Ok(0);
    }
    let env = Env::new(env!("CARGO_BIN_EXE_chronicle"));
    let (home, said, bin) =
        (env.base().join("me"), env.base().join("said"), env.base().join("bin"));
    for directory in [&home, &said, &bin] {
        fs::create_dir(directory).unwrap();
    }
    symlink(env.binary(), bin.join("chronicle")).unwrap();
    let all = typed(&fs::read_to_string(document).unwrap());
    fs::create_dir(home.join("project")).unwrap();
    let script_path = env.base().join("script");
    fs::write(&script_path, script(&all, &said)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("bash")
        .arg(&script_path)
        .current_dir(home.join("project"))
        .env_clear()
        .env("PATH", path)
        .env("HOME", &home)
        .env("TMPDIR", env.base())
        .env("TOOLS", tools())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            return Err("it does not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    compare(&all, &said)
}

fn compare(all: &[Typed], said: &Path) -> Result<usize, String> {
    if let Ok(failed) = fs::read_to_string(said.join("failed")) {
        let line: usize = failed.split(' ').next().unwrap().parse().unwrap();
        let typed = all.iter().find(|typed| typed.line == line).unwrap();
        let words = fs::read_to_string(said.join(format!("{line}.err"))).unwrap_or_default();
        return Err(format!("line {line}: {} ended with {failed}{words}", typed.command));
    }
    for Typed { line, command, said: should } in all {
        let is = fs::read_to_string(said.join(line.to_string()))
            .map_err(|_| format!("line {line} was not reached"))?;
        if !should.is_empty() && is.trim_end() != should.trim_end() {
            return Err(format!("line {line}: {command} says:\n{is}and not:\n{should}"));
        }
    }
    Ok(all.len())
}

#[test]
fn every_command_in_the_documents_does_what_they_say() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut documents = Vec::new();
    for below in ["", "docs", "docs/decisions", "packaging", "clients/python", "clients/typescript"]
    {
        let more = fs::read_dir(top.join(below)).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(more.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents.sort();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in &documents {
        match play(document) {
            Ok(commands) => count += commands,
            Err(why) => wrong.push(format!("{}: {why}", document.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count > 20, "only {count} commands were found");
}

#[test]
fn a_document_that_lies_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let document = place.path().join("document.md");
        fs::write(&document, text).unwrap();
        play(&document)
    };
    assert_eq!(check("```console\n$ cd /\n$ pwd\n/\n```\n"), Ok(2));
    assert!(check("```console\n$ pwd\n/elsewhere\n```\n").unwrap_err().contains("line 2"));
    assert!(
        check("```console\n$ chronicle status\n```\n").unwrap_err().contains("ended with 2 10")
    );
    assert_eq!(check("<!-- not run: it fails -->\n```console\n$ false\n```\n"), Ok(0));
    assert_eq!(check("<!-- needs: /no/such/file -->\n```console\n$ false\n```\n"), Ok(0));
    assert!(check("<!-- needs: /dev/null -->\n```console\n$ false\n```\n").is_err());
    assert_eq!(check("<!-- sh: test -n \"$TOOLS\" -->\n"), Ok(1));
    assert_eq!(check("<!-- sh: touch a -->\n```console\n$ ls\na\n```\n"), Ok(2));
}
