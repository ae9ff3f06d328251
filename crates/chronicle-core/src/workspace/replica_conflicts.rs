//! What a host did not take, until somebody decides about it.

use std::collections::BTreeSet;

use super::replica_redo::announced_objects;
use super::replica_registry::decoded;
use super::replica_types::{Conflict, Resolution};
use super::replica_write::{OwnTree, Supply, TRIES};
use super::{PATIENCE, Workspace};
use crate::catalog::{Catalog, Durability, Local};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::entry::{Author, Evidence};
use crate::error::{Error, Result, Stop};
use crate::failpoint;
use crate::id::{ObjectId, SnapshotId, Time};
use crate::path::WorkspacePath;
use crate::record::Labels;
use crate::replica::{
    Rejection, Standing, Step, Version, Write, decode_write, encode_write, merge_conflict, order,
};
use crate::store::{ContentStorage, MemoryStore};

/// The action of records that decide about a conflict.
const RESOLVE: &str = "resolve";

impl Conflict {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        let (path, base, after) = (self.path.clone(), self.base.clone(), self.mine.clone());
        encode_write(&mut out, &Write { path, base, after, seen: self.seq, group: 0 });
        out.byte(self.reason as u8);
        out.signed(self.time.0);
        out.byte(u8::from(self.theirs.is_some()));
        if let Some(theirs) = &self.theirs {
            theirs.encode(&mut out);
        }
        out.0
    }

    fn decode(id: SnapshotId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let Write { path, base, after: mine, seen: seq, .. } = decode_write(&mut input)?;
        let reason = Rejection::ALL.get(usize::from(input.byte()?)).copied();
        let reason = reason.ok_or(DecodeError::Malformed("a conflict has an unknown reason"))?;
        let time = Time(input.signed()?);
        let theirs = if input.byte()? == 1 { Some(Version::decode(&mut input)?) } else { None };
        input.end()?;
        Ok(Self { id, path, base, mine, theirs, reason, seq, time })
    }

    fn objects(&self) -> impl Iterator<Item = ObjectId> {
        let sides = [Some(&self.base), Some(&self.mine), self.theirs.as_ref()];
        sides.into_iter().flatten().filter_map(Version::object).collect::<Vec<_>>().into_iter()
    }
}

impl Workspace {
    /// The writes that the host did not take and nobody has decided about, oldest first.
    pub fn conflicts(&self) -> Result<Vec<Conflict>> {
        conflicts_in(&self.catalog)
    }

    /// One of them, by its id or a unique part of it.
    pub fn conflict(&self, id: &str) -> Result<Conflict> {
        let fits = |conflict: &Conflict| conflict.id.to_string().contains(id);
        let mut found: Vec<_> = self.conflicts()?.into_iter().filter(fits).collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(Error::UnknownTarget(id.to_owned())),
            _ => Err(Error::Ambiguous {
                given: id.to_owned(),
                candidates: found.iter().map(|conflict| conflict.id.short()).collect(),
            }),
        }
    }

    /// The merge of a conflict's three sides, if they are text and merge without a clash and are all here.
    pub fn merged_conflict(&self, conflict: &Conflict) -> Result<Option<Vec<u8>>> {
        let Some(theirs) = &conflict.theirs else { return Ok(None) };
        let mut sides = Vec::new();
        for side in [&conflict.base, &conflict.mine, theirs] {
            let Some(object) = side.object() else { return Ok(None) };
            match self.objects()?.get(&object) {
                Ok(bytes) => sides.push(bytes),
                Err(Error::Missing(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(merge_conflict(&sides[0], &sides[1], &sides[2]))
    }

    /// Decides about a conflict; what it writes is an ordinary snapshot, whose id comes back and which can be taken
    /// back. `None` if nothing had to be written.
    pub fn resolve_conflict(&mut self, id: &str, how: Resolution) -> Result<Option<SnapshotId>> {
        let _lock = self.lock(PATIENCE)?;
        let conflict = self.conflict(id)?;
        let made = MemoryStore::default();
        let wanted = match how {
            Resolution::TakeTheirs => None,
            Resolution::KeepMine | Resolution::Retry => Some(conflict.mine.clone()),
            Resolution::Merge => Some(self.merged_version(&conflict, &made)?),
        };
        let mut tries = 0;
        loop {
            self.record_touched([(&conflict.path, true)].into_iter())?;
            match self.try_resolve(&conflict, how, wanted.as_ref(), &made) {
                Err(Error::Stopped(Stop::PlanOutdated(_))) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Their version with the merged content, which is put into `made`.
    fn merged_version(&self, conflict: &Conflict, made: &MemoryStore) -> Result<Version> {
        let refusal = || {
            let what = "it does not merge by lines: keep mine, or take theirs";
            Error::Usage(format!("Cannot merge {}: {what}", conflict.path))
        };
        let bytes = self.merged_conflict(conflict)?.ok_or_else(refusal)?;
        let Some(Version::File { mode, .. }) = conflict.theirs else { return Err(refusal()) };
        let (object, size) = (ObjectId::of(&bytes), bytes.len() as u64);
        made.put(&object, &bytes)?;
        Ok(Version::File { object, size, mode, mtime_ns: self.now().0 })
    }

    fn try_resolve(
        &mut self,
        conflict: &Conflict,
        how: Resolution,
        wanted: Option<&Version>,
        made: &MemoryStore,
    ) -> Result<Option<SnapshotId>> {
        let tree = OwnTree::new(self)?;
        let stands = tree.at(&conflict.path).version;
        let steps = match wanted {
            Some(wanted) => steps_to(&tree, &conflict.path, wanted)?,
            None => vec![],
        };
        tree.check()?;
        if how == Resolution::Retry && !stands.is_some_and(|now| now.same_value(&conflict.base)) {
            return Err(Error::Usage(format!(
                "Cannot send {} again as it was: what it was made on does not stand there; keep mine writes it over \
                 what does",
                conflict.path
            )));
        }
        let supply = Supply::new(made, self.objects()?);
        let put = self.put_steps(&steps, &supply, (Author::Person, Evidence::Named))?;
        if let Some((path, why)) = put.unexpected.iter().next() {
            self.undo_interrupted()?;
            return Err(Error::Usage(format!("Could not write {path}: {why}; try again")));
        }
        let mut batch = put.batch;
        batch.local.push((Local::Conflict, conflict.id.0.to_vec(), None));
        let id = SnapshotId::new(self.now());
        let wrote = !put.own.is_empty();
        if wrote {
            batch.records = self.outcome_records(resolve_labels(id, conflict, how), put.own);
        }
        let committed = || failpoint::hit("resolve_after_put");
        self.commit_put(batch, put.staging, Durability::PowerCut, committed)?;
        Ok(wrote.then_some(id))
    }
}

/// The way from what stands there to a version, with the directories that it needs.
fn steps_to(tree: &OwnTree<'_>, path: &WorkspacePath, wanted: &Version) -> Result<Vec<Step>> {
    let unknown = |path: &WorkspacePath| {
        Error::Usage(format!(
            "Cannot write {path}: what stands there is not known, or never travels"
        ))
    };
    let mut steps = Vec::new();
    let expect = tree.at(path).version.ok_or_else(|| unknown(path))?;
    if expect.is_directory() && !wanted.is_directory() && !tree.children(path).is_empty() {
        return Err(Error::Usage(format!("Cannot write {path}: the directory there is not empty")));
    }
    if !expect.same_value(wanted) {
        steps.push(Step { path: path.clone(), expect, put: wanted.clone() });
    }
    let above: BTreeSet<_> = path.ancestors().filter(|above| !above.is_root()).collect();
    for above in above.into_iter().filter(|_| wanted.is_present()) {
        match tree.at(&above).version.ok_or_else(|| unknown(&above))? {
            Version::Directory { .. } => {}
            Version::Absent => steps.push(Step {
                path: above,
                expect: Version::Absent,
                put: Version::Directory { mode: 0o755 },
            }),
            _ => return Err(Error::Usage(format!("Cannot write {path}: {above} is no directory"))),
        }
    }
    Ok(order(steps, false))
}

fn resolve_labels(id: SnapshotId, conflict: &Conflict, how: Resolution) -> Labels {
    let words = match how {
        Resolution::KeepMine => "mine kept",
        Resolution::TakeTheirs => "theirs taken",
        Resolution::Merge => "merged",
        Resolution::Retry => "sent again",
    };
    Labels {
        snapshot: Some(id),
        action: Some(RESOLVE.to_owned()),
        summary: Some(format!("{RESOLVE}: {}, {words}", conflict.path)),
        ..Labels::default()
    }
}

fn conflicts_in(catalog: &Catalog) -> Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for (key, value) in catalog.locals(Local::Conflict)? {
        let Some(id) = SnapshotId::from_slice(&key) else { continue };
        conflicts.push(decoded(Conflict::decode(id, &value))?);
    }
    conflicts.sort_by_key(|conflict| conflict.id);
    Ok(conflicts)
}

/// The contents that conflicts need, and a push that is being written: no record may name them.
pub(crate) fn conflict_objects(catalog: &Catalog) -> Result<Vec<ObjectId>> {
    let mut objects = announced_objects(catalog)?;
    objects.extend(conflicts_in(catalog)?.iter().flat_map(Conflict::objects));
    Ok(objects)
}
