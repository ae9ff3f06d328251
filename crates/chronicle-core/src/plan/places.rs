//! Where things are in the plan, if not where they are now: what a dropped change moved is still
//! at its old place there.

use std::collections::HashMap;

use crate::path::WorkspacePath;

/// The places of moved things, by the path they have now; all others are where they are.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_path: HashMap<Vec<u8>, WorkspacePath>,
    by_place: HashMap<Vec<u8>, WorkspacePath>,
    left: HashMap<Vec<u8>, WorkspacePath>,
}

impl Places {
    /// The place of what is at a path: its own, or below that of the nearest moved directory.
    pub(super) fn of(&self, path: &WorkspacePath) -> WorkspacePath {
        match self.by_path.get(path.as_bytes()) {
            Some(place) => place.clone(),
            None => self.of_new(path),
        }
    }

    /// The place of something new at a path, whatever was there before.
    pub(super) fn of_new(&self, path: &WorkspacePath) -> WorkspacePath {
        let bytes = path.as_bytes();
        if self.by_path.is_empty() {
            return path.clone();
        }
        let ends = (1..bytes.len()).rev().filter(|end| bytes[*end] == b'/');
        let nearest = ends.map(|end| &bytes[..end]).find_map(|directory| {
            let (_, place) = (directory, self.by_path.get(directory)?);
            Some([place.as_bytes(), &bytes[directory.len()..]].concat())
        });
        nearest.and_then(|bytes| WorkspacePath::new(bytes).ok()).unwrap_or_else(|| path.clone())
    }

    /// The place of what was at a path until it was deleted.
    pub(super) fn of_deleted(&self, path: &WorkspacePath) -> WorkspacePath {
        self.left.get(path.as_bytes()).cloned().unwrap_or_else(|| self.of(path))
    }

    /// What is at a path is at this place.
    pub(super) fn set(&mut self, path: &WorkspacePath, place: WorkspacePath) {
        self.forget(path);
        if *path != place || self.of_new(path) != place {
            self.by_place.insert(place.as_bytes().to_vec(), path.clone());
            self.by_path.insert(path.as_bytes().to_vec(), place);
        }
    }

    /// What is at a path has no place of its own any more.
    pub(super) fn forget(&mut self, path: &WorkspacePath) {
        if let Some(place) = self.by_path.remove(path.as_bytes())
            && self.by_place.get(place.as_bytes()) == Some(path)
        {
            self.by_place.remove(place.as_bytes());
        }
    }

    /// What was at a path is gone from there.
    pub(super) fn leave(&mut self, path: &WorkspacePath) {
        if !self.by_path.is_empty() {
            self.left.insert(path.as_bytes().to_vec(), self.of(path));
            self.forget(path);
        }
    }

    /// What was at one place is at another.
    pub(super) fn shift(&mut self, from: &WorkspacePath, to: &WorkspacePath) {
        if let Some(path) = self.by_place.get(from.as_bytes()).cloned() {
            self.set(&path, to.clone());
        }
    }

    /// The path at which the thing of a place is now, where that is another one.
    pub(super) fn path_of(&self, place: &WorkspacePath) -> Option<&WorkspacePath> {
        self.by_place.get(place.as_bytes())
    }

    /// All moved things: path and place, ordered by path.
    pub(super) fn all(&self) -> Vec<(WorkspacePath, &WorkspacePath)> {
        let path = |bytes: &[u8]| WorkspacePath::new(bytes).expect("it was one when it was set");
        let mut all: Vec<_> =
            self.by_path.iter().map(|(bytes, place)| (path(bytes), place)).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    /// `"b<a"` moves `a` to `b`, `"x b"` deletes; then the place of a path is asked.
    #[track_caller]
    fn check(steps: &str, asked: &str, expected: &str) {
        let mut places = Places::default();
        for step in steps.split_whitespace() {
            match step.split_once('<') {
                Some((new, old)) => {
                    let place = places.of(&path(old));
                    places.leave(&path(old));
                    places.set(&path(new), place);
                }
                None => places.leave(&path(step)),
            }
        }
        assert_eq!(places.of(&path(asked)), path(expected));
    }

    #[test]
    fn moved_things_keep_their_place_through_chains() {
        check("", "a", "a");
        check("b<a", "b", "a");
        check("b<a c<b", "c", "a");
        check("b<a c<b", "b", "b");
        check("b<a a<b", "a", "a");
    }

    #[test]
    fn what_is_below_a_moved_directory_follows_the_nearest_one() {
        check("e<d", "e/x/y", "d/x/y");
        check("e<d", "ef", "ef");
        check("e<d e/x<other", "e/x/y", "other/y");
        check("e<d f<e", "f/x", "d/x");
    }

    #[test]
    fn what_comes_after_a_deletion_is_new() {
        check("b<a b", "b", "b");
        check("e<d e/x", "e/x", "d/x");
    }
}
