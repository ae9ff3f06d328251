//! Recomputing the chain and the Merkle tree, tile by tile, on all cores.
//!
//! A tile is 256 records: the unit in which the tree keeps its nodes. Each is checked for itself,
//! since a link is right if it follows from the stored link before it, whoever checks that one.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::catalog::{Catalog, TileRow};
use crate::chain;
use crate::codec::{self, kind_number};
use crate::error::{Error, Finding, Result};
use crate::id::{Epoch, LeafHash, LinkHash, ObjectSet, Seq, WorkspaceId};
use crate::merkle::{Frontier, Hash, TILE};
use crate::record::{ChangeRef, Kind, Pruned};
use crate::skim;

const UNREADABLE: &str = "its changes are not the ones that were recorded";

/// Logs of fewer tiles are checked on one core: another connection costs more than it saves.
const FEW_TILES: u64 = 4;

/// Which log it must be.
#[derive(Debug, Clone)]
pub(super) struct Which {
    pub(super) workspace: WorkspaceId,
    /// Its lives: the record that began each, rising, and the epoch from there on.
    pub(super) lives: Vec<(Seq, Epoch)>,
    /// Where it ends.
    pub(super) end: Seq,
}

impl Which {
    /// The log of a catalog, whose last life must be the one that the catalog is in.
    pub(super) fn of(catalog: &Catalog, workspace: WorkspaceId, end: Seq) -> Result<Self> {
        let mut lives = Vec::new();
        for seq in catalog.of_kind(Kind::Genesis)?.into_iter().filter(|seq| *seq <= end) {
            let sealed = catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
            // One that cannot be read begins nothing, so that what follows belongs nowhere.
            if let Ok(header) = codec::decode_header(&sealed.leaf) {
                lives.push((seq, header.epoch));
            }
        }
        match lives.last() {
            Some((seq, epoch)) if *epoch != catalog.epoch() => {
                let why = "this log says that it is in another life".to_owned();
                Err(Error::Tampered { seq: *seq, finding: Finding::Foreign, why })
            }
            _ => Ok(Self { workspace, lives, end }),
        }
    }

    /// The life in which a record was made.
    pub(super) fn epoch_at(&self, seq: Seq) -> Option<Epoch> {
        let before = self.lives.partition_point(|(first, _)| *first <= seq);
        Some(self.lives.get(before.checked_sub(1)?)?.1)
    }

    fn is_of(&self, (workspace, epoch): (WorkspaceId, Epoch), seq: Seq) -> bool {
        workspace == self.workspace && self.epoch_at(seq) == Some(epoch)
    }
}

/// What a log was at one of the sizes that were asked for.
#[derive(Debug, Clone)]
pub(super) struct AtSize {
    pub(super) size: u64,
    pub(super) root: Hash,
    pub(super) link: LinkHash,
}

/// A log that was checked.
pub(super) struct Checked {
    /// Which log it is.
    pub(super) which: Which,
    /// What it was at the sizes that were asked for, rising.
    pub(super) at: Vec<AtSize>,
    /// The nodes that are kept of a tree like this: level, number, hash.
    pub(super) nodes: Vec<(u32, u64, Hash)>,
    /// Every object that a record names.
    pub(super) objects: ObjectSet,
}

/// One tile that was checked.
#[derive(Default)]
struct Tile {
    edge: Frontier,
    /// At each size inside it that was asked for: the peaks up to there, and the link.
    at: Vec<(u64, Vec<Hash>, LinkHash)>,
}

/// Checks every record, link and tile; `sizes` rise, and none is beyond the end.
pub(super) fn check(
    catalog: &Catalog,
    path: &Path,
    which: &Which,
    sizes: &[u64],
) -> Result<Checked> {
    let count = which.end.0.div_ceil(TILE);
    let work = Work {
        which,
        sizes,
        pruned: pruned(catalog)?,
        forgotten: forgotten(catalog)?,
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        tiles: Mutex::new(BTreeMap::new()),
    };
    let objects = if count < FEW_TILES {
        work.run(catalog)
    } else {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| Catalog::open(path).map(|catalog| work.run(&catalog)));
            let mut objects = work.run(catalog);
            let theirs = other.join().expect("BUG: a checking thread panicked")?;
            objects.extend(theirs);
            Ok::<_, Error>(objects)
        })?
    };
    let mut tiles = Vec::new();
    for tile in work.tiles.into_inner().expect("no holder panics").into_values() {
        tiles.push(tile?);
    }
    assert_eq!(tiles.len() as u64, count, "BUG: a tile was left out");
    Ok(assemble(which.clone(), &tiles, objects))
}

/// What the threads share.
struct Work<'w> {
    which: &'w Which,
    sizes: &'w [u64],
    /// What each prune took, the newest word last.
    pruned: Vec<(Seq, Vec<Pruned>)>,
    /// What the newest forget that names a change says in its place.
    forgotten: HashMap<ChangeRef, Vec<u8>>,
    next: AtomicU64,
    failed: AtomicBool,
    /// Those that were checked; up to the first that failed, all of them.
    tiles: Mutex<BTreeMap<u64, Result<Tile>>>,
}

impl Work<'_> {
    fn run(&self, catalog: &Catalog) -> ObjectSet {
        let mut objects = ObjectSet::default();
        // Whoever takes a tile checks it: so of all tiles before one that fails each is checked.
        while !self.failed.load(Ordering::Acquire) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number * TILE >= self.which.end.0 {
                break;
            }
            let tile = self.check_tile(catalog, number, &mut objects);
            if tile.is_err() {
                self.failed.store(true, Ordering::Release);
            }
            self.tiles.lock().expect("no holder panics").insert(number, tile);
        }
        objects
    }

    fn check_tile(&self, catalog: &Catalog, number: u64, objects: &mut ObjectSet) -> Result<Tile> {
        let first = number * TILE;
        let last = (first + TILE).min(self.which.end.0);
        let mut previous = catalog.link(Seq(first))?;
        let before = self.sizes.partition_point(|size| *size <= first);
        let mut wanted = self.sizes[before..].iter().peekable();
        let mut tile = Tile::default();
        let mut expected = Seq(first);
        let mut wrong = None;
        catalog.for_each_row(Seq(first), Seq(last), &mut |row| {
            expected = expected.next();
            wrong = self.check_row(catalog, expected, &row, &previous, objects).err();
            previous = row.link;
            tile.edge.push(0, row.leaf_hash.0, &mut |_, _, _| {});
            while wanted.next_if(|size| **size == expected.0).is_some() {
                tile.at.push((expected.0, tile.edge.peaks().to_vec(), previous));
            }
            wrong.is_none()
        })?;
        if wrong.is_none() && expected.0 < last {
            expected = expected.next();
            wrong = Some("the record is missing");
        }
        wrong.map_or(Ok(tile), |why| Err(diagnose(catalog, self.which, expected, why)))
    }
}

/// Puts the tiles together to the whole tree.
fn assemble(which: Which, tiles: &[Tile], objects: ObjectSet) -> Checked {
    let mut checked = Checked { which, at: Vec::new(), nodes: Vec::new(), objects };
    let mut tree = Frontier::default();
    for tile in tiles {
        for (size, peaks, link) in &tile.at {
            // The last size of a full tile has one peak, which may join those before it.
            let root = tree.root_with(peaks);
            checked.at.push(AtSize { size: *size, root, link: *link });
        }
        if let [root] = tile.edge.peaks()
            && tile.edge.size() == TILE
        {
            tree.push(crate::merkle::TILE_LEVELS, *root, &mut |level, number, hash| {
                if level.is_multiple_of(crate::merkle::TILE_LEVELS) {
                    checked.nodes.push((level, number, *hash));
                }
            });
        }
    }
    checked
}

/// What every prune dropped or merged, the newest word on each record last.
///
/// What a prune says is itself checked with the other records.
fn pruned(catalog: &Catalog) -> Result<Vec<(Seq, Vec<Pruned>)>> {
    let mut prunes = Vec::new();
    for seq in catalog.of_kind(Kind::Prune)? {
        let sealed = catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
        // One that cannot be read vouches for nothing.
        let header = codec::decode_header(&sealed.leaf);
        prunes.push((seq, header.map(|header| header.labels.pruned).unwrap_or_default()));
    }
    Ok(prunes)
}

/// What forgets put in the place of changes, the newest word on each.
///
/// What a forget says is itself checked with the other records.
fn forgotten(catalog: &Catalog) -> Result<HashMap<ChangeRef, Vec<u8>>> {
    let mut forgotten = HashMap::new();
    for seq in catalog.of_kind(Kind::Forget)? {
        let sealed = catalog.record(seq)?.ok_or_else(|| Error::missing_record(seq))?;
        // One that cannot be read vouches for nothing, and neither does one for what comes later.
        let Ok(header) = codec::decode_header(&sealed.leaf) else { continue };
        let Ok(changes) = skim::raw_changes(&sealed.body) else { continue };
        let named = header.labels.forgotten.into_iter().zip(changes);
        let earlier = named.filter(|(at, _)| at.seq < seq);
        forgotten.extend(earlier.map(|(at, bytes)| (at, bytes.to_vec())));
    }
    Ok(forgotten)
}

impl Work<'_> {
    /// The newest word of a prune on a record.
    fn covering(&self, seq: Seq) -> Option<(Seq, &Pruned)> {
        let later = self.pruned.iter().rev().take_while(|(prune, _)| *prune > seq);
        // The ranges of one prune rise.
        let range = |ranges: &'_ Vec<Pruned>| ranges.partition_point(|range| range.last < seq);
        let mut holding = later.filter_map(|(prune, ranges)| {
            let found = ranges.get(range(ranges)).filter(|range| range.holds(seq))?;
            Some((*prune, found))
        });
        holding.next()
    }

    /// Checks one record where it stands, and notes the objects that it names.
    fn check_row(
        &self,
        catalog: &Catalog,
        expected: Seq,
        row: &TileRow<'_>,
        previous: &LinkHash,
        objects: &mut ObjectSet,
    ) -> Result<(), &'static str> {
        if row.seq != expected {
            return Err("the record is missing");
        }
        let dropped = row.leaf.is_empty();
        let may_be_gone =
            |(_, range): (_, &Pruned)| range.merged.is_none() || range.last > expected;
        if dropped && !self.covering(expected).is_some_and(may_be_gone) {
            return Err("what the record said is missing, and no prune dropped it");
        }
        if !dropped && chain::leaf_hash(row.leaf) != row.leaf_hash {
            return Err("the record was edited");
        }
        if chain::link(previous, &row.leaf_hash) != row.link {
            return Err("the record does not follow the one before it");
        }
        if dropped {
            return Ok(());
        }
        let claims = skim::claims(row.leaf).map_err(|_| UNREADABLE)?;
        self.check_changes(catalog, row, claims.commitments, objects)?;
        if claims.seq != expected {
            return Err("the record belongs to another place");
        }
        if !self.which.is_of((claims.workspace, claims.epoch), expected) {
            return Err("the record belongs to another log");
        }
        if claims.kind != row.kind {
            return Err("its row calls it another kind of record");
        }
        Ok(())
    }

    /// Checks the changes of a record; where they are gone they must have been merged, and what
    /// stands for them must be there.
    fn check_changes(
        &self,
        catalog: &Catalog,
        row: &TileRow<'_>,
        commitments: &[u8],
        objects: &mut ObjectSet,
    ) -> Result<(), &'static str> {
        let gone = row.body.is_empty() && !commitments.is_empty();
        if !gone {
            // What a forget or a resolve says is about others, which name their objects themselves.
            let counts = ![Kind::Forget, Kind::Resolve].map(kind_number).contains(&row.kind);
            let mut named = |id| {
                if counts {
                    objects.insert(id);
                }
            };
            let redacted = |index: usize, bytes: &[u8]| {
                let at =
                    ChangeRef { seq: row.seq, index: u32::try_from(index).unwrap_or(u32::MAX) };
                self.forgotten.get(&at).is_some_and(|said| said == bytes)
            };
            skim::changes(commitments, &row.body, &redacted, &mut named).map_err(|_| UNREADABLE)?;
        }
        if row.kind == kind_number(Kind::Forget) {
            return check_forget(row, commitments.len() / 32);
        }
        if row.kind == kind_number(Kind::Prune) {
            self.check_prune(row, gone, (commitments.len() / 32) as u64)
        } else if gone {
            let merged = catalog.merged(row.seq).ok().flatten();
            let covering = self.covering(row.seq);
            let stands = covering.zip(merged).is_some_and(|((prune, range), merged)| {
                range.last == row.seq
                    && range.first == merged.first
                    && range.merged == u32::try_from(merged.count).ok()
                    && prune == merged.prune
            });
            if stands { Ok(()) } else { Err("its changes are missing, and no prune merged them") }
        } else {
            Ok(())
        }
    }

    /// A prune holds what it merged, until all of that was dropped or merged again.
    fn check_prune(&self, row: &TileRow<'_>, gone: bool, holds: u64) -> Result<(), &'static str> {
        let header = codec::decode_header(row.leaf).map_err(|_| UNREADABLE)?;
        let ranges = &header.labels.pruned;
        if !gone {
            let counts = ranges.iter().filter_map(|range| range.merged).map(u64::from);
            let fits = counts.sum::<u64>() == holds;
            return if fits { Ok(()) } else { Err("it does not hold what it merged") };
        }
        let again = |range: &Pruned| {
            let later = self.covering(range.last).is_some_and(|(prune, _)| prune > header.seq);
            range.merged.is_none() || later
        };
        if ranges.iter().all(again) { Ok(()) } else { Err("what it merged is missing") }
    }
}

/// A forget says in its own changes what stands in the place of each that it names.
fn check_forget(row: &TileRow<'_>, holds: usize) -> Result<(), &'static str> {
    let header = codec::decode_header(row.leaf).map_err(|_| UNREADABLE)?;
    let fits = header.labels.forgotten.len() == holds && !row.body.is_empty();
    if fits { Ok(()) } else { Err("it does not hold what it put in the place of others") }
}

/// Names what was done where a record does not fit.
fn diagnose(catalog: &Catalog, which: &Which, at: Seq, why: &'static str) -> Error {
    let bad = |seq, finding, why: String| Error::Tampered { seq, finding, why };
    let row = |seq: Seq| Found::at(catalog, seq);
    let place = |seq: Seq| row(seq).and_then(|row| row.says).map(|(_, seq)| seq);
    let Some(here) = row(at).filter(|row| !row.emptied) else {
        return bad(at, Finding::Deleted, why.to_owned());
    };
    let moved_down = place(at.next()) == Some(at);
    let Some((log, claims)) = here.says else {
        return match moved_down {
            true => bad(at, Finding::Inserted, inserted(at)),
            false => bad(at, Finding::Edited, why.to_owned()),
        };
    };
    if !which.is_of(log, claims) {
        bad(at, Finding::Foreign, "the record belongs to another log".to_owned())
    } else if claims > at {
        let (finding, why) = if place(claims) == Some(at) {
            (Finding::Swapped, format!("it was swapped with record {claims}"))
        } else if is_elsewhere(catalog, which, at) {
            (Finding::Reordered, format!("record {claims} stands in its place"))
        } else {
            (Finding::Deleted, "the record is missing, and later ones were moved up".to_owned())
        };
        bad(at, finding, why)
    } else if claims < at {
        // What stands at the place that it claims came between; unless it is itself the copy.
        let copy = row(claims).is_some_and(|row| row.leaf_hash == here.leaf_hash);
        let seq = if copy { at } else { claims };
        bad(seq, Finding::Inserted, inserted(seq))
    } else if moved_down {
        bad(at, Finding::Inserted, inserted(at))
    } else {
        bad(at, Finding::Edited, why.to_owned())
    }
}

/// What stands at one place.
struct Found {
    leaf_hash: LeafHash,
    emptied: bool,
    /// Of which log and place it says that it is, if it still is what was hashed.
    says: Option<((WorkspaceId, Epoch), Seq)>,
}

impl Found {
    fn at(catalog: &Catalog, seq: Seq) -> Option<Self> {
        let mut found = None;
        let visit = &mut |row: TileRow<'_>| {
            let whole = chain::leaf_hash(row.leaf) == row.leaf_hash;
            let claims = skim::claims(row.leaf).ok().filter(|_| whole);
            let says = claims.map(|claims| ((claims.workspace, claims.epoch), claims.seq));
            found = Some(Self { leaf_hash: row.leaf_hash, emptied: row.leaf.is_empty(), says });
            false
        };
        catalog.for_each_row(Seq(seq.0.saturating_sub(1)), seq, visit).ok()?;
        found
    }
}

/// Whether a record stands somewhere after its own place.
fn is_elsewhere(catalog: &Catalog, which: &Which, seq: Seq) -> bool {
    let mut found = false;
    let visit = &mut |row: TileRow<'_>| {
        found |= skim::claims(row.leaf).is_ok_and(|claims| claims.seq == seq);
        !found
    };
    catalog.for_each_row(seq, which.end, visit).is_ok() && found
}

fn inserted(seq: Seq) -> String {
    format!("a record was inserted at {seq}, and later ones were moved down")
}
