//! Where the lines of a file come from: each version against the one before, oldest first.

use super::Workspace;
use super::views::{author_text, timestamp};
use crate::catalog::Log;
use crate::entry::{Change, Entry};
use crate::error::{Error, Result};
use crate::id::Seq;
use crate::path::WorkspacePath;
use crate::record::Record;
use crate::text;
use crate::view::{BlameRun, BlameView, SCHEMA};

/// How many versions of a file are compared.
const VERSIONS_MOST: usize = 1_000;

impl Workspace {
    /// Which change brought each line of a file, now or at a moment, across renames.
    pub fn blame(&self, path: &WorkspacePath, target: Option<&str>) -> Result<BlameView> {
        let until = match target {
            Some(target) => self.moment(target)?.seq,
            None => self.catalog.head()?.seq,
        };
        let mut versions: Vec<(Record, Change)> = Vec::new();
        let mut partial = false;
        self.for_each_version(path, until, &mut |record, _, change| {
            partial = versions.len() == VERSIONS_MOST;
            if !partial {
                versions.push((record.clone(), change.clone()));
            }
            Ok(!partial)
        })?;
        let mut lines = match versions.last() {
            Some((_, oldest)) => Lines::of(self.text_of(path, &oldest.before)?),
            None => Lines::of(self.text_of(path, &self.entry_at(path, until)?)?),
        };
        for (index, (_, change)) in versions.iter().enumerate().rev() {
            lines.replace(self.text_of(path, &change.after)?, index);
        }
        let runs = lines.runs(&versions);
        Ok(BlameView { schema: SCHEMA, path: path.to_string(), runs, partial })
    }

    /// The text of an entry; empty where it has none.
    fn text_of(&self, path: &WorkspacePath, entry: &Entry) -> Result<Vec<u8>> {
        if entry.is_secret() {
            return Err(Error::Secret(path.clone()));
        }
        let bytes = match entry {
            Entry::File(_) => self.countable(entry)?,
            _ => Some(Vec::new()),
        };
        let words = |why: &str| Error::Usage(format!("{path} {why}, so it has no lines"));
        let bytes = bytes.ok_or_else(|| words("is too large"))?;
        if text::is_binary(&bytes) { Err(words("is binary")) } else { Ok(bytes) }
    }
}

/// A text, and which version each of its lines comes from.
struct Lines {
    text: Vec<u8>,
    origins: Vec<Option<usize>>,
}

impl Lines {
    fn of(text: Vec<u8>) -> Self {
        let origins = vec![None; text::lines(&text).len()];
        Self { text, origins }
    }

    /// Goes on to the next version: what is new is its own.
    fn replace(&mut self, text: Vec<u8>, version: usize) {
        let mut origins = Vec::new();
        let mut position = 0;
        for change in text::changes(&self.text, &text) {
            origins.extend_from_slice(&self.origins[position..change.before.start as usize]);
            let new = (change.after.end - change.after.start) as usize;
            origins.extend(std::iter::repeat_n(Some(version), new));
            position = change.before.end as usize;
        }
        origins.extend_from_slice(&self.origins[position..]);
        *self = Self { text, origins };
    }

    fn runs(&self, versions: &[(Record, Change)]) -> Vec<BlameRun> {
        let mut runs = Vec::new();
        let mut first = 1;
        for same in self.origins.chunk_by(|a, b| a == b) {
            let lines = same.len() as u64;
            runs.push(run(first, lines, same[0].map(|version| &versions[version])));
            first += lines;
        }
        runs
    }
}

fn run(first: u64, lines: u64, origin: Option<&(Record, Change)>) -> BlameRun {
    let labels = origin.map(|(record, _)| &record.labels);
    BlameRun {
        first,
        lines,
        seq: origin.map_or(Seq(0), |(record, _)| record.seq).0,
        snapshot: labels.and_then(|labels| labels.snapshot).map(|id| id.to_string()),
        turn: labels.and_then(|labels| labels.turn),
        author: origin.map(|(_, change)| author_text(&change.author).0),
        timestamp: origin.map(|(record, _)| timestamp(record.time)),
        action_summary: labels.and_then(|labels| labels.summary.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_origin_until_it_changes() {
        let mut lines = Lines::of(b"a\nb\nc\n".to_vec());
        lines.replace(b"a\nB\nc\nd\n".to_vec(), 1);
        lines.replace(b"0\na\nB\nc\nd\n".to_vec(), 0);
        assert_eq!(lines.origins, [Some(0), None, Some(1), None, Some(1)]);
    }
}
