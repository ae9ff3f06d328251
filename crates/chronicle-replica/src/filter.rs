//! Which paths do not go in a direction: lines as in `.gitignore`, with git's own meaning.
//!
//! A filter can be changed while it is in use. Patterns are compiled when a path is first asked about; the common
//! shapes (a name, its beginning, its end, a part of it, everything below a directory) are compared as plain bytes.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use chronicle_core::{IgnorePattern, WorkspacePath};

/// One line of a filter, compiled when it is first needed.
#[derive(Debug, Clone, Default)]
pub struct FilterPattern {
    line: Vec<u8>,
    compiled: OnceLock<Option<IgnorePattern>>,
}

impl FilterPattern {
    /// A line as `.gitignore` has it.
    pub fn new(line: impl AsRef<[u8]>) -> Self {
        let line = line.as_ref();
        let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
        Self { line: line[..end].to_vec(), compiled: OnceLock::new() }
    }

    /// The line.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    fn compiled(&self) -> Option<&IgnorePattern> {
        self.compiled.get_or_init(|| IgnorePattern::parse(&self.line)).as_ref()
    }
}

impl PartialEq for FilterPattern {
    fn eq(&self, other: &Self) -> bool {
        self.line == other.line
    }
}

impl Eq for FilterPattern {}

/// What does not go in one direction. Nothing in it: everything goes.
#[derive(Debug, Default)]
pub struct DirectionalFilter {
    patterns: RwLock<Arc<Vec<FilterPattern>>>,
}

impl DirectionalFilter {
    /// A filter that lets everything through.
    pub fn new() -> Self {
        Self::default()
    }

    /// A filter of the lines of an ignore file.
    pub fn from_rules(rules: &[u8]) -> Self {
        let filter = Self::new();
        filter.replace(rules);
        filter
    }

    /// Adds a pattern; the last one that fits decides.
    pub fn add_pattern(&self, pattern: FilterPattern) {
        let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut patterns).push(pattern);
    }

    /// Puts the lines of an ignore file in place of what was there.
    pub fn replace(&self, rules: &[u8]) {
        let rules = rules.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rules);
        let lines = rules.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let patterns = lines.map(FilterPattern::new).collect();
        *self.patterns.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(patterns);
    }

    /// The lines, as an ignore file.
    pub fn rules(&self) -> Vec<u8> {
        let patterns = self.now();
        patterns.iter().flat_map(|pattern| [pattern.line(), b"\n"]).flatten().copied().collect()
    }

    /// Whether everything goes.
    pub fn is_empty(&self) -> bool {
        self.now().is_empty()
    }

    /// Whether a path, or a directory above it, is kept out.
    pub fn is_filtered(&self, path: &WorkspacePath, is_directory: bool) -> bool {
        let patterns = self.now();
        if patterns.is_empty() {
            return false;
        }
        let path = path.as_bytes();
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let above = above.map(|(end, _)| (&path[..end], true));
        above
            .chain([(path, is_directory)])
            .any(|(part, is_directory)| is_out(&patterns, part, is_directory))
    }

    fn now(&self) -> Arc<Vec<FilterPattern>> {
        Arc::clone(&self.patterns.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the last pattern that fits says about a path by itself.
fn is_out(patterns: &[FilterPattern], path: &[u8], is_directory: bool) -> bool {
    let compiled = patterns.iter().rev().filter_map(FilterPattern::compiled);
    let mut fitting = compiled.filter(|pattern| pattern.fits(path, is_directory));
    fitting.next().is_some_and(|pattern| !pattern.is_negative())
}

/// The filters of both directions, of one side.
#[derive(Debug, Default)]
pub struct Filters {
    /// What the host does not send.
    pub push: DirectionalFilter,
    /// What a replica does not send back.
    pub write_back: DirectionalFilter,
}

impl Filters {
    /// The filter of a direction.
    pub fn of(&self, direction: crate::wire::Direction) -> &DirectionalFilter {
        match direction {
            crate::wire::Direction::Push => &self.push,
            crate::wire::Direction::WriteBack => &self.write_back,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).expect("a path")
    }

    #[test]
    fn the_seeds_own_example() {
        let filter = DirectionalFilter::new();
        filter.add_pattern(FilterPattern::new("*.pyc"));
        filter.add_pattern(FilterPattern::new("node_modules/**"));
        filter.add_pattern(FilterPattern::new(".git/**"));
        assert!(filter.is_filtered(&path("a/b.pyc"), false));
        assert!(filter.is_filtered(&path("node_modules/x/y"), false));
        assert!(!filter.is_filtered(&path("node_modules"), true));
        assert!(!filter.is_filtered(&path("a/b.py"), false));
    }

    #[test]
    fn below_what_is_out_nothing_comes_in_again() {
        let filter = DirectionalFilter::from_rules(b"build/\n!build/keep\n*.log\n!keep.log\n");
        assert!(filter.is_filtered(&path("build/keep"), false));
        assert!(filter.is_filtered(&path("a/x.log"), false));
        assert!(!filter.is_filtered(&path("a/keep.log"), false));
        assert_eq!(filter.rules(), b"build/\n!build/keep\n*.log\n!keep.log\n");
    }

    #[test]
    fn rules_can_be_exchanged_while_in_use() {
        let filter = DirectionalFilter::from_rules(b"*.o\n");
        assert!(filter.is_filtered(&path("a.o"), false));
        filter.replace(b"# none\n");
        assert!(!filter.is_filtered(&path("a.o"), false));
    }
}
