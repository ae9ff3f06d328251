//! The known names of one directory in their order: its packed row with the newer paths in place.
//!
//! Nothing is decoded until somebody asks for it, because an unchanged path needs only its
//! signature.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::iter::Peekable;

use super::same_signature;
use crate::codec::DecodeError;
use crate::entry::Entry;
use crate::fs::Stat;
use crate::known::{DirectoryView, Known, KnownView, Part, Signature};

/// What is known of one path, decoded or not.
#[derive(Clone, Copy)]
pub(super) enum Remembered<'a> {
    Packed(KnownView<'a>),
    Newer(&'a Known),
}

impl Remembered<'_> {
    /// Whether a stat shows that nothing changed; `in_unit` is whether it lies in a repository.
    pub(super) fn is_current(&self, stat: &Stat, in_unit: bool) -> bool {
        let trusted = match self {
            Self::Packed(view) => !view.racy() && !view.is_unknown_or_absent(),
            Self::Newer(known) => !known.racy && known.entry.is_present(),
        };
        trusted
            && (self.part() != Part::Ordinary) == in_unit
            && self.signature().is_some_and(|known| same_signature(&known, stat))
    }

    pub(super) fn part(&self) -> Part {
        match self {
            Self::Packed(view) => view.part(),
            Self::Newer(known) => known.part,
        }
    }

    fn signature(&self) -> Option<Signature> {
        match self {
            Self::Packed(view) => view.signature(),
            Self::Newer(known) => known.signature,
        }
    }

    /// Everything, decoded.
    pub(super) fn to_known(self) -> Result<Known, DecodeError> {
        match self {
            Self::Packed(view) => view.to_known(),
            Self::Newer(known) => Ok(known.clone()),
        }
    }
}

/// Whether something was seen at a path, so that it can vanish.
pub(super) fn was_there(known: &Known) -> bool {
    match known.entry {
        Entry::Absent => false,
        Entry::Unknown(_) => known.signature.is_some(),
        _ => true,
    }
}

/// A packed name, or the reason why the row cannot be read.
type Packed<'a> = Result<(&'a [u8], KnownView<'a>), DecodeError>;
type NewerNames = BTreeMap<Vec<u8>, Option<Known>>;

/// The known names of a directory, one after the other.
pub(super) struct Join<'a, I: Iterator<Item = Packed<'a>>> {
    rows: Peekable<I>,
    newer: Peekable<btree_map::Iter<'a, Vec<u8>, Option<Known>>>,
}

/// Joins a directory's row with the newer paths beside it.
pub(super) fn join<'v, 'a>(
    row: Option<&'v DirectoryView<'a>>,
    newer: Option<&'a NewerNames>,
) -> Join<'a, impl Iterator<Item = Packed<'a>> + use<'v, 'a>> {
    static NONE: NewerNames = BTreeMap::new();
    let rows = row.into_iter().flat_map(DirectoryView::names);
    Join { rows: rows.peekable(), newer: newer.unwrap_or(&NONE).iter().peekable() }
}

impl<'a, I: Iterator<Item = Packed<'a>>> Join<'a, I> {
    /// The next name. The empty name, under which a root's own entry may lie, is passed over.
    pub(super) fn next(&mut self) -> Result<Option<(&'a [u8], Remembered<'a>)>, DecodeError> {
        loop {
            let newer = self.newer.peek().map(|(name, _)| name.as_slice());
            let packed = match self.rows.peek() {
                Some(Ok((name, _))) => Some(*name),
                Some(Err(error)) => return Err(error.clone()),
                None => None,
            };
            let item = match (packed, newer) {
                (Some(name), Some(newer)) if name < newer => self.packed(),
                (Some(_), None) => self.packed(),
                (_, Some(newer)) => {
                    if packed == Some(newer) {
                        self.rows.next();
                    }
                    self.newest()
                }
                (None, None) => return Ok(None),
            };
            if let Some(item) = item.filter(|(name, _)| !name.is_empty()) {
                return Ok(Some(item));
            }
        }
    }

    fn packed(&mut self) -> Option<(&'a [u8], Remembered<'a>)> {
        let (name, view) = self.rows.next()?.ok()?;
        Some((name, Remembered::Packed(view)))
    }

    /// The next newer path; `None` where it was forgotten.
    fn newest(&mut self) -> Option<(&'a [u8], Remembered<'a>)> {
        let (name, known) = self.newer.next()?;
        Some((name, Remembered::Newer(known.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Meta;
    use crate::known::{KnownDirectory, KnownTable};
    use crate::path::WorkspacePath;

    fn known(mode: u32) -> Known {
        let meta = Meta { mode, ..Meta::default() };
        let entry = Entry::Directory(meta);
        Known { entry, signature: None, racy: false, part: Part::Ordinary }
    }

    #[test]
    fn newer_paths_replace_add_and_remove() {
        let row = |names: &[&str]| KnownDirectory {
            names: names.iter().map(|name| (name.as_bytes().to_vec(), known(1))).collect(),
            ..KnownDirectory::default()
        };
        let mut table = KnownTable { arena: row(&["a", "c", "d"]).encode(), ..Default::default() };
        let root = WorkspacePath::root();
        table.rows.insert(root.clone(), 0..table.arena.len());
        let newer = [("", Some(2)), ("b", Some(2)), ("c", None), ("d", Some(2)), ("e", None)];
        let newer = newer.map(|(name, mode)| (name.as_bytes().to_vec(), mode.map(known)));
        table.newer.insert(root.clone(), newer.into());
        let row = table.row(&root).unwrap().unwrap();
        let mut join = join(Some(&row), table.newer(&root));
        let mut found = Vec::new();
        while let Some((name, known)) = join.next().unwrap() {
            let mode = known.to_known().unwrap().entry.meta().unwrap().mode;
            found.push(format!("{}{mode}", name.escape_ascii()));
        }
        assert_eq!(found, ["a1", "b2", "d2"]);
    }
}
