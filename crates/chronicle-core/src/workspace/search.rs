//! Searching every version of every file.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use regex::bytes::Regex;

use super::Workspace;
use super::views::COUNT_LIMIT;
use crate::catalog::LocalState;
use crate::entry::{Entry, File};
use crate::error::{Error, Result};
use crate::id::{ObjectId, Seq, SnapshotId};
use crate::known::Part;
use crate::path::{WorkspacePath, escape};
use crate::store::ContentStorage;
use crate::text;
use crate::view::{GrepMatch, SCHEMA};

/// The longest line that is shown; longer ones are cut.
const LINE_LIMIT: usize = 4096;

/// One version of a file: since which record, by whom, and its content.
struct Version {
    seq: Seq,
    turn: Option<u64>,
    snapshot: Option<SnapshotId>,
    object: Option<ObjectId>,
}

impl Workspace {
    /// Finds a pattern in every version of every file, deleted ones too.
    pub fn grep(&self, pattern: &str, glob: Option<&str>) -> Result<Vec<GrepMatch>> {
        Ok(self.grep_some(pattern, glob, usize::MAX)?.0)
    }

    /// The first so many matches by path, and whether there are more; stops when that is known.
    pub fn grep_some(
        &self,
        pattern: &str,
        glob: Option<&str>,
        most: usize,
    ) -> Result<(Vec<GrepMatch>, bool)> {
        self.grep_until(pattern, glob, most, &|| false)
    }

    /// The same for who may lose patience: what was found until then, and that there may be more.
    pub fn grep_until(
        &self,
        pattern: &str,
        glob: Option<&str>,
        most: usize,
        impatient: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Vec<GrepMatch>, bool)> {
        let usage =
            |error: &dyn std::fmt::Display| Error::Usage(format!("Pattern is not valid: {error}"));
        let pattern = Regex::new(pattern).map_err(|error| usage(&error))?;
        let glob = glob.map(path_glob).transpose().map_err(|error| usage(&error))?;
        let files: Vec<_> = self.versions(glob.as_ref(), impatient)?.into_iter().collect();
        let objects = self.objects()?;
        let next = AtomicUsize::new(0);
        let found = Mutex::new(Vec::new());
        let failed = Mutex::new(None);
        let enough = AtomicBool::new(false);
        let gave_up = AtomicBool::new(false);
        // Files are taken in order and each is searched to its end, so that what is found is whole up
        // to some path.
        let work = || {
            while !enough.load(Ordering::Relaxed)
                && let Some((path, versions)) = files.get(next.fetch_add(1, Ordering::Relaxed))
            {
                if impatient() {
                    gave_up.store(true, Ordering::Relaxed);
                    enough.store(true, Ordering::Relaxed);
                    return;
                }
                match grep_file(objects, &pattern, path, versions) {
                    Ok(rows) if rows.is_empty() => {}
                    Ok(rows) => {
                        let mut found = found.lock().expect("no holder panics");
                        found.extend(rows);
                        if found.len() > most {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(error) => {
                        *failed.lock().expect("no holder panics") = Some(error);
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        if let Some(error) = failed.into_inner().expect("no holder panics") {
            return Err(error);
        }
        let mut found: Vec<GrepMatch> = found.into_inner().expect("no holder panics");
        found.sort_by(|a, b| {
            (&a.path, a.first_seen, &a.line).cmp(&(&b.path, b.first_seen, &b.line))
        });
        let more = found.len() > most || gave_up.into_inner();
        found.truncate(most);
        Ok((found, more))
    }

    /// Every version of every file whose path fits.
    fn versions(
        &self,
        glob: Option<&Regex>,
        impatient: &(dyn Fn() -> bool + Sync),
    ) -> Result<BTreeMap<WorkspacePath, Vec<Version>>> {
        let mut files: BTreeMap<WorkspacePath, Vec<Version>> = BTreeMap::new();
        let beginning = self.beginning()?;
        self.for_each_change(Seq(0), &mut |record, _, change| {
            if impatient() {
                return Err(Error::Cancelled);
            }
            let fits = glob.is_none_or(|glob| glob.is_match(change.path.as_bytes()));
            if change.neutral || !fits || change.before.same_content(&change.after) {
                return Ok(());
            }
            let object = match &change.after {
                Entry::File(file) => searchable(file),
                _ => None,
            };
            let (turn, snapshot) = (record.labels.turn, record.labels.snapshot);
            let version = Version { seq: record.seq, turn, snapshot, object };
            let versions = files.entry(change.path).or_default();
            // Where the history no longer tells how it came there, it stood there at its beginning.
            if let (Entry::File(file), true) = (&change.before, versions.is_empty()) {
                versions.push(Version::at_the_beginning(beginning, file));
            }
            versions.push(version);
            Ok(())
        })?;
        if beginning > Seq(0) {
            self.add_unchanged(glob, beginning, &mut files)?;
        }
        files.retain(|_, versions| versions.iter().any(|version| version.object.is_some()));
        Ok(files)
    }

    /// Files that never changed since the history begins, which no record names any more.
    fn add_unchanged(
        &self,
        glob: Option<&Regex>,
        beginning: Seq,
        files: &mut BTreeMap<WorkspacePath, Vec<Version>>,
    ) -> Result<()> {
        for (path, known) in self.catalog.known_below(&WorkspacePath::root())? {
            let fits = glob.is_none_or(|glob| glob.is_match(path.as_bytes()));
            if let (Entry::File(file), Part::Ordinary, true) = (&known.entry, known.part, fits) {
                files
                    .entry(path)
                    .or_insert_with(|| vec![Version::at_the_beginning(beginning, file)]);
            }
        }
        Ok(())
    }
}

impl Version {
    fn at_the_beginning(seq: Seq, file: &File) -> Self {
        let object = searchable(file);
        Self { seq, turn: None, snapshot: None, object }
    }
}

/// The content of a file, if it is searched: nothing of a secret is ever shown as a line.
fn searchable(file: &File) -> Option<ObjectId> {
    (file.size <= COUNT_LIMIT && !file.secret).then_some(file.object)
}

/// The rows of one file: a line from when it first appeared to when it was last there.
fn grep_file(
    objects: &dyn ContentStorage,
    pattern: &Regex,
    path: &WorkspacePath,
    versions: &[Version],
) -> Result<Vec<GrepMatch>> {
    let mut rows: HashMap<Vec<u8>, GrepMatch> = HashMap::new();
    let mut searched: HashMap<ObjectId, Vec<Vec<u8>>> = HashMap::new();
    for version in versions {
        let lines = match version.object {
            None => Vec::new(),
            Some(id) => match searched.get(&id) {
                Some(lines) => lines.clone(),
                None => {
                    let lines = matching_lines(&objects.get(&id)?, pattern);
                    searched.insert(id, lines.clone());
                    lines
                }
            },
        };
        for (line, row) in &mut rows {
            let there = lines.contains(line);
            if row.present && !there {
                row.removed_by = version.snapshot.map(|id| id.short());
                row.removed_by_turn = version.turn;
                row.last_seen = version.seq.0.saturating_sub(1);
            }
            if !row.present && there {
                (row.removed_by, row.removed_by_turn) = (None, None);
            }
            row.present = there;
            if there {
                row.last_seen = version.seq.0;
            }
        }
        for line in lines {
            rows.entry(line).or_insert_with_key(|line| GrepMatch {
                schema: SCHEMA,
                path: path.to_string(),
                line: escape(&line[..line.len().min(LINE_LIMIT)]).into_owned(),
                first_seen: version.seq.0,
                last_seen: version.seq.0,
                present: true,
                removed_by: None,
                removed_by_turn: None,
                first_turn: version.turn,
            });
        }
    }
    Ok(rows.into_values().collect())
}

fn matching_lines(content: &[u8], pattern: &Regex) -> Vec<Vec<u8>> {
    if text::is_binary(content) {
        return Vec::new();
    }
    let mut lines: Vec<Vec<u8>> = content
        .split(|byte| *byte == b'\n')
        .filter(|line| pattern.is_match(line))
        .map(<[u8]>::to_vec)
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// What a person types to find paths: a glob, or a part of the path.
pub(super) fn path_pattern(words: &str) -> Result<Regex> {
    let made = match words.contains(['*', '?']) {
        true => path_glob(words),
        false => Regex::new(&regex::escape(words)),
    };
    made.map_err(|error| Error::Usage(format!("Pattern is not valid: {error}")))
}

/// A glob over paths as a pattern: `*` stays in a directory, `**` does not; a name alone fits at
/// any depth.
fn path_glob(glob: &str) -> std::result::Result<Regex, regex::Error> {
    let mut pattern = String::from(if glob.contains('/') { "(?s)^" } else { "(?s)^(?:.*/)?" });
    let mut rest = glob.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.peek() == Some(&'*') => {
                rest.next();
                if rest.peek() == Some(&'/') {
                    rest.next();
                    pattern.push_str("(?:.*/)?");
                } else {
                    pattern.push_str(".*");
                }
            }
            '*' => pattern.push_str("[^/]*"),
            '?' => pattern.push_str("[^/]"),
            c => pattern.push_str(&regex::escape(&c.to_string())),
        }
    }
    pattern.push('$');
    Regex::new(&pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, path: &str, fits: bool) {
        assert_eq!(path_glob(glob).unwrap().is_match(path.as_bytes()), fits, "{glob} {path}");
    }

    #[test]
    fn globs_stay_in_their_directory_unless_doubled() {
        check("*.rs", "src/a.rs", true);
        check("src/*.rs", "src/a.rs", true);
        check("src/*.rs", "src/x/a.rs", false);
        check("src/**/*.rs", "src/x/y/a.rs", true);
        check("src/**/*.rs", "src/a.rs", true);
        check("a.b", "aXb", false);
    }
}
