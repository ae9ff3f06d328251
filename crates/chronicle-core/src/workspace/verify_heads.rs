//! Comparing a log that is whole in itself with what was signed: the heads in the catalog, those
//! that witnesses saw, and one that somebody noted.

use std::time::Duration;

use super::Workspace;
use super::verify_chain::{AtSize, Checked};
use crate::catalog::HeadRow;
use crate::error::{Error, Finding, Result};
use crate::head::{Anchor, PublicKey, SignedHead};
use crate::id::Seq;
use crate::merkle::{Hash, TILE_LEVELS};
use crate::record::Kind;
use crate::view::WitnessView;
use crate::witness::Place;

/// How long verification waits for a witness.
const WITNESS: Duration = Duration::from_secs(20);

/// What the catalog has besides the log, read at one moment.
pub(super) struct Stored {
    /// Where the log ends.
    pub(super) end: Seq,
    pub(super) heads: Vec<HeadRow>,
    pub(super) nodes: Vec<(u32, u64, Hash)>,
    /// The key of the first head.
    pub(super) pinned: Option<PublicKey>,
    /// The highest position that anything else speaks of.
    pub(super) mentioned: Seq,
}

/// Everything outside the catalog that the log is compared with.
#[derive(Default)]
pub(super) struct Outside {
    /// Each witness with what it showed.
    pub(super) witnesses: Vec<(Place, Vec<SignedHead>)>,
    pub(super) anchor: Option<Anchor>,
}

impl Outside {
    /// The sizes at which the log has to be known.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        let seen = self.witnesses.iter().flat_map(|(_, heads)| heads);
        seen.map(|signed| signed.head.size).chain(self.anchor.iter().map(Anchor::size))
    }
}

fn bad(seq: u64, finding: Finding, why: impl Into<String>) -> Error {
    Error::Tampered { seq: Seq(seq), finding, why: why.into() }
}

impl Workspace {
    /// Asks every witness. One that cannot be asked is a finding if it was ever given a head.
    pub(super) fn ask_witnesses(&self, anchor: Option<Anchor>) -> Result<Outside> {
        let mut outside = Outside { witnesses: Vec::new(), anchor };
        let given = self.handed_over();
        for place in self.home.witnesses()? {
            let has = given.iter().find(|mark| mark.0 == place).map_or(0, |mark| mark.1);
            match place.witness(WITNESS).seen(self.id) {
                Ok(heads) => {
                    let newest = heads.iter().map(|signed| signed.head.size).max().unwrap_or(0);
                    if newest < has {
                        let why = format!(
                            "witness {place} was given a head over {has} records and shows {}",
                            if newest == 0 { "none".into() } else { format!("one over {newest}") }
                        );
                        return Err(bad(has, Finding::WitnessLost, why));
                    }
                    outside.witnesses.push((place, heads));
                }
                Err(error) if has > 0 => {
                    let why = format!("what was given over {has} records cannot be seen: {error}");
                    return Err(bad(has, Finding::WitnessLost, why));
                }
                Err(_) => outside.witnesses.push((place, Vec::new())),
            }
        }
        Ok(outside)
    }

    /// Compares everything that was signed with a log whose chain is right; `signed` are the stored
    /// heads that `read_all` read.
    pub(super) fn verify_signed(
        &self,
        stored: &Stored,
        signed: Vec<Option<SignedHead>>,
        outside: &Outside,
        checked: &Checked,
    ) -> Result<()> {
        if stored.mentioned > stored.end {
            let why = format!("other tables speak of record {}", stored.mentioned);
            return Err(cut_off(stored.end, &why));
        }
        self.verify_key(stored)?;
        let mut good = 0;
        for (row, signed) in stored.heads.iter().zip(signed) {
            self.verify_head(row, signed, good, stored, checked)?;
            good = row.size;
        }
        self.verify_takings(stored)?;
        self.verify_grants()?;
        verify_nodes(&stored.nodes, &checked.nodes, good)?;
        for (place, heads) in &outside.witnesses {
            self.verify_witness(place, heads, stored, checked)?;
        }
        match &outside.anchor {
            Some(anchor) => self.verify_anchor(anchor, stored, checked),
            None => Ok(()),
        }
    }

    /// Since a log is signed, whatever took history away was signed with it.
    fn verify_takings(&self, stored: &Stored) -> Result<()> {
        // What was taken before the first head, that head is signed over.
        let Some(first) = stored.heads.first().map(|row| row.size) else { return Ok(()) };
        for kind in [Kind::Prune, Kind::Forget] {
            for seq in self.catalog.of_kind(kind)? {
                let signed = stored.heads.binary_search_by_key(&seq.0, |row| row.size).is_ok();
                if seq.0 > first && !signed {
                    let why = "it takes history away, and nobody signed that";
                    return Err(bad(seq.0, Finding::Unsigned, why));
                }
            }
        }
        Ok(())
    }

    /// The key that is pinned must be the one that signs here, if one does.
    fn verify_key(&self, stored: &Stored) -> Result<()> {
        let first = stored.heads.first().map_or(1, |row| row.size);
        let pinned = match stored.pinned {
            Some(pinned) => pinned,
            None if stored.heads.is_empty() => return Ok(()),
            None => return Err(bad(first, Finding::OtherKey, "the key of its heads is not noted")),
        };
        match self.home.key().load() {
            Ok(Some(own)) if own.verifying_key().to_bytes() != pinned.0 => {
                let own = PublicKey(own.verifying_key().to_bytes()).text();
                let why = format!("its heads are signed with {}, not with {own}", pinned.text());
                Err(bad(first, Finding::OtherKey, why))
            }
            _ => Ok(()),
        }
    }

    fn verify_head(
        &self,
        row: &HeadRow,
        signed: Option<SignedHead>,
        good: u64,
        stored: &Stored,
        checked: &Checked,
    ) -> Result<()> {
        let size = row.size;
        let Some(signed) = signed else {
            return Err(bad(size, Finding::HeadEdited, "its head is not what was signed"));
        };
        let head = &signed.head;
        if Some(head.key) != stored.pinned {
            let why = format!("its head is signed with another key, {}", head.key.text());
            return Err(bad(size, Finding::OtherKey, why));
        }
        if head.workspace != self.id || head.epoch != self.catalog.epoch() {
            return Err(bad(size, Finding::HeadEdited, "its head is of another log"));
        }
        if head.after != good {
            let lost = head.after;
            return Err(bad(lost, Finding::HeadDropped, format!("the head over {lost} is gone")));
        }
        if size > stored.end.0 {
            return Err(cut_off(stored.end, &format!("a head was signed over {size} records")));
        }
        let is = at(checked, size);
        if is.is_none_or(|is| (is.root, is.link) != (head.root, head.link)) {
            let why = format!(
                "records {} to {size} were made anew: they follow one another, but are not what \
                 the head over {size} was signed for",
                good + 1
            );
            return Err(bad(good + 1, Finding::Rechained, why));
        }
        if row.frontier().is_none_or(|edge| edge.root() != head.root) {
            return Err(bad(size, Finding::HeadEdited, "the peaks beside its head were changed"));
        }
        Ok(())
    }

    fn verify_witness(
        &self,
        place: &Place,
        heads: &[SignedHead],
        stored: &Stored,
        checked: &Checked,
    ) -> Result<()> {
        let who = format!("witness {place}");
        let (mut good, mut dropped) = (0, None);
        let mut heads: Vec<_> = heads.iter().collect();
        heads.sort_by_key(|signed| signed.head.size);
        for signed in heads {
            let size = signed.head.size;
            let kept = stored.heads.binary_search_by_key(&size, |row| row.size).ok();
            // One that is stored here word for word was checked with the others.
            if kept.is_none_or(|at| stored.heads[at].note != signed.text()) {
                if !signed.is_signed() {
                    continue;
                }
                self.verify_outside(&who, signed, good, stored, checked)?;
                // What was signed in an earlier life, on another machine, was never stored here.
                if signed.head.epoch == self.catalog.epoch() {
                    dropped.get_or_insert(size);
                }
            }
            good = size;
        }
        match dropped {
            None => Ok(()),
            Some(size) => {
                let why = format!("the head over {size} that {who} saw is gone");
                Err(bad(size, Finding::HeadDropped, why))
            }
        }
    }

    fn verify_anchor(&self, anchor: &Anchor, stored: &Stored, checked: &Checked) -> Result<()> {
        match anchor {
            Anchor::Signed(signed) if signed.head.workspace != self.id => {
                Err(Error::Usage("The anchor is the head of another workspace".to_owned()))
            }
            Anchor::Signed(signed) => {
                let good = last_before(stored, signed.head.size);
                self.verify_outside("the anchor", signed, good, stored, checked)
            }
            Anchor::Root { size, root } => {
                let good = last_before(stored, *size);
                compare("the anchor", *size, good, stored, || {
                    *size == 0 || at(checked, *size).is_some_and(|is| is.root == *root)
                })
            }
        }
    }

    /// Compares a head that was kept elsewhere.
    fn verify_outside(
        &self,
        who: &str,
        signed: &SignedHead,
        good: u64,
        stored: &Stored,
        checked: &Checked,
    ) -> Result<()> {
        let head = &signed.head;
        let earlier_life = head.epoch != self.catalog.epoch();
        if !earlier_life && Some(head.key) != stored.pinned {
            let why = format!(
                "{who} has a head over {} signed with {}, this history {}",
                head.size,
                head.key.text(),
                match stored.pinned {
                    Some(pinned) => format!("is signed with {}", pinned.text()),
                    None => "has no key".to_owned(),
                }
            );
            return Err(bad(good + 1, Finding::OtherKey, why));
        }
        if checked.which.epoch_at(Seq(head.size)) != Some(head.epoch) && head.size <= stored.end.0 {
            let why = format!("{who} saw another life of this log");
            return Err(bad(good + 1, Finding::Forked, why));
        }
        compare(who, head.size, good, stored, || {
            let same = |is: &AtSize| (is.root, is.link) == (head.root, head.link);
            at(checked, head.size).is_some_and(same)
        })
    }
}

/// Compares a log with how somebody saw it at a size.
fn compare(
    who: &str,
    size: u64,
    good: u64,
    stored: &Stored,
    same: impl FnOnce() -> bool,
) -> Result<()> {
    let end = stored.end.0;
    if size > end {
        let why = format!(
            "{who} saw {size} records, here are {end}: the history was put back to an older copy, \
             or its newest part was cut off without a trace"
        );
        return Err(bad(end + 1, Finding::RolledBack, why));
    }
    if !same() {
        let why = format!(
            "{who} saw other records up to {size}: the history was put back and went another way"
        );
        return Err(bad(good + 1, Finding::Forked, why));
    }
    Ok(())
}

fn cut_off(end: Seq, evidence: &str) -> Error {
    let why = format!("the newest records were cut off after {end}: {evidence}");
    bad(end.0 + 1, Finding::Truncated, why)
}

fn at(checked: &Checked, size: u64) -> Option<&AtSize> {
    let found = checked.at.binary_search_by_key(&size, |at| at.size).ok()?;
    checked.at.get(found)
}

/// The size of the newest stored head that is smaller than this.
fn last_before(stored: &Stored, size: u64) -> u64 {
    stored.heads.iter().rev().find(|row| row.size < size).map_or(0, |row| row.size)
}

/// Reads heads and checks their signatures, which is what costs time, on two cores.
pub(super) fn read_all(rows: &[HeadRow]) -> Vec<Option<SignedHead>> {
    let read = |rows: &[HeadRow]| rows.iter().map(HeadRow::signed).collect::<Vec<_>>();
    let (first, second) = rows.split_at(rows.len() / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| read(second));
        let mut all = read(first);
        all.extend(other.join().expect("BUG: a checking thread panicked"));
        all
    })
}

/// Compares the kept nodes: exactly those that are complete in the newest head.
fn verify_nodes(kept: &[(u32, u64, Hash)], made: &[(u32, u64, Hash)], size: u64) -> Result<()> {
    let mut due: Vec<_> =
        made.iter().filter(|(level, number, _)| (number + 1) << level <= size).collect();
    due.sort_unstable_by_key(|(level, number, _)| (*level, *number));
    let differs = |kept: &(u32, u64, Hash), due: &(u32, u64, Hash)| kept != due;
    let first = kept.iter().zip(&due).find(|(kept, due)| differs(kept, due));
    let extra = (kept.len() > due.len()).then(|| kept.get(due.len())).flatten();
    let missing = due.get(kept.len()).copied();
    let wrong = first.map(|(_, due)| *due).or(missing).or(extra);
    match wrong {
        None => Ok(()),
        Some((level, number, _)) => {
            let first = number.checked_shl(*level).unwrap_or(0).saturating_add(1);
            let why = format!(
                "the node of the Merkle tree at level {level} (every {TILE_LEVELS}th is kept), \
                 number {number}, is not the hash of its records"
            );
            Err(bad(first, Finding::NodeEdited, why))
        }
    }
}

/// How a witness agreed.
pub(super) fn witness_view(place: &Place, heads: &[SignedHead], end: Seq) -> WitnessView {
    let size = heads.iter().map(|signed| signed.head.size).max().unwrap_or(0);
    WitnessView {
        kind: place.kind().to_owned(),
        place: place.path().display().to_string(),
        size,
        behind: end.0.saturating_sub(size),
        problem: None,
    }
}
