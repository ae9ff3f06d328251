//! One file: its versions, its content, its text, where its lines come from; and directories.

use std::io::{self, Write};

use chronicle_core::{Entry, EntryView, SCHEMA, Seq, Workspace, WorkspacePath};

use crate::answer::{Answer, Content};
use crate::call::Call;
use crate::problem::Problem;
use crate::shapes::{HistoryPage, TextView};

/// How many versions a page has where nothing is said.
const VERSIONS_PAGE: usize = 200;
/// How many names.
const NAMES_PAGE: usize = 500;
/// How much of a text is read.
const TEXT_MOST: usize = 8 << 20;
/// How much of one line is shown.
const LINE_MOST: usize = 4_000;
/// How far into content a NUL byte makes it binary.
const BINARY_PREFIX: usize = 8 << 10;

pub(crate) fn history(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let path = call.path(&workspace)?;
    let most = call.count("limit", VERSIONS_PAGE);
    let (iterations, more) = workspace.history_some(&path, call.seq("before"), most)?;
    Answer::json(&HistoryPage { schema: SCHEMA, iterations, more })
}

/// The moment that was asked for: the last record where nothing was said.
fn moment(call: &Call<'_>, workspace: &Workspace) -> Result<Seq, Problem> {
    Ok(match call.text("at") {
        Some(target) => workspace.position_of(target)?,
        None => workspace.last_position()?,
    })
}

/// What stood at the path, if it is something that can be read.
fn standing(call: &Call<'_>) -> Result<(Workspace, WorkspacePath, Seq, Entry), Problem> {
    let workspace = call.open()?;
    let path = call.path(&workspace)?;
    let at = moment(call, &workspace)?;
    match workspace.entry_just_after(at, &path)? {
        Entry::File(file) if file.secret => Err(chronicle_core::Error::Secret(path).into()),
        entry @ (Entry::File(_) | Entry::Symlink(_)) => Ok((workspace, path, at, entry)),
        other => {
            let words = format!("a file at {path} (it is {})", EntryView::from(&other).kind);
            Err(chronicle_core::Error::UnknownTarget(words).into())
        }
    }
}

pub(crate) fn content(call: &Call<'_>) -> Result<Answer, Problem> {
    let (workspace, path, _, entry) = standing(call)?;
    let (size, hash) = match &entry {
        Entry::Symlink(link) => (link.target.len() as u64, None),
        entry => {
            let view = EntryView::from(entry);
            (view.size.unwrap_or(0), view.hash)
        }
    };
    let write = move |out: &mut dyn Write| match &entry {
        Entry::Symlink(link) => out.write_all(&link.target),
        entry => workspace.write_past(&path, entry, out).map_err(io::Error::other),
    };
    Ok(Answer::Content(Content { size, hash, write: Box::new(write) }))
}

/// Takes so much, and then no more.
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = TEXT_MOST - self.bytes.len();
        self.full |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.full { Err(io::Error::other("enough")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn text(call: &Call<'_>) -> Result<Answer, Problem> {
    let (workspace, path, at, entry) = standing(call)?;
    let mut read = Bounded { bytes: Vec::new(), full: false };
    match &entry {
        Entry::Symlink(link) => read.bytes.clone_from(&link.target),
        entry => match workspace.write_past(&path, entry, &mut read) {
            Err(_) if read.full => {}
            written => written?,
        },
    }
    let bytes = &read.bytes;
    let binary = bytes[..bytes.len().min(BINARY_PREFIX)].contains(&0);
    let mut partial = read.full;
    let mut lines = Vec::new();
    if !binary {
        for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
            partial |= line.len() > LINE_MOST;
            let shown = &line[..line.len().min(LINE_MOST)];
            lines.push(String::from_utf8_lossy(shown).into_owned());
        }
        if bytes.is_empty() {
            lines.clear();
        }
    }
    let (entry, path) = (EntryView::from(&entry), path.to_string());
    Answer::json(&TextView { schema: SCHEMA, path, seq: at.0, entry, lines, binary, partial })
}

pub(crate) fn blame(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let path = call.path(&workspace)?;
    Answer::json(&workspace.blame(&path, call.text("at"))?)
}

pub(crate) fn tree(call: &Call<'_>) -> Result<Answer, Problem> {
    let workspace = call.open()?;
    let directory = match (call.text("path"), call.text("path_b64")) {
        (None | Some(""), None) => WorkspacePath::root(),
        _ => call.path(&workspace)?,
    };
    let at = moment(call, &workspace)?;
    let after = call.text("after").map(str::as_bytes);
    let most = call.count("limit", NAMES_PAGE);
    Answer::json(&workspace.tree_view(at, &directory, after, most)?)
}
