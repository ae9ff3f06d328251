//! What must hold whatever happens, remembered apart from everything that is tested.

use std::collections::BTreeMap;

use chronicle_core::replica::{Decision, LocalChange, Place, Verdict, Version, Write};
use chronicle_core::{ObjectId, WorkspacePath};
use chronicle_replica::wire::ReplicaId;

use super::disk::{self, Tree};
use super::store::Row;

#[derive(Default)]
pub struct Oracle {
    /// How often something was put at a path by people, a merge, or a disk that lost what people wrote.
    made: BTreeMap<(WorkspacePath, ObjectId), u32>,
    answers: BTreeMap<(ReplicaId, u64, ObjectId), Vec<Verdict>>,
    acked: BTreeMap<usize, Place>,
    rejected: Vec<(usize, Write)>,
    pub wrong: Vec<String>,
}

impl Oracle {
    /// Somebody meant this to stand there.
    pub fn made(&mut self, path: &WorkspacePath, version: &Version) {
        *self.made.entry((path.clone(), version.hash())).or_default() += 1;
    }

    /// Nothing is taken that was made on something else than what stands there.
    pub fn judged(&mut self, known: &Tree, writes: &[Write], decisions: &[Decision]) {
        for (write, decision) in writes.iter().zip(decisions) {
            let stands = disk::at(known, &write.path);
            if *decision == Decision::Take && !stands.same_value(&write.base) {
                let Write { path, base, .. } = write;
                self.wrong
                    .push(format!("a write of {path} made on {base:?} was taken over {stands:?}"));
            }
        }
    }

    /// A batch counts once: it is never answered in two ways.
    pub fn answered(
        &mut self,
        replica: ReplicaId,
        batch: u64,
        digest: ObjectId,
        verdicts: &[Verdict],
    ) {
        let first =
            self.answers.entry((replica, batch, digest)).or_insert_with(|| verdicts.to_vec());
        if first != verdicts {
            self.wrong.push(format!("batch {batch} was answered {first:?} and then {verdicts:?}"));
        }
    }

    /// The host was told that this is durable.
    pub fn acked(&mut self, replica: usize, place: Place) {
        let known = self.acked.entry(replica).or_insert(place);
        if known.epoch != place.epoch || known.seq < place.seq {
            *known = place;
        }
    }

    /// What was acknowledged is still there after a crash.
    pub fn woke_up(&mut self, replica: usize, place: Option<Place>) {
        if let Some(acked) = self.acked.get(&replica) {
            let kept =
                place.is_some_and(|place| place.epoch != acked.epoch || place.seq >= acked.seq);
            if !kept {
                self.wrong.push(format!(
                    "sandbox {replica} acknowledged {acked:?} and woke up at {place:?}"
                ));
            }
        }
    }

    /// It begins again with nothing.
    pub fn reborn(&mut self, replica: usize) {
        self.acked.remove(&replica);
        self.rejected.retain(|(number, _)| *number != replica);
    }

    /// The host was restored: what it promised after that moment is gone with it.
    pub fn restored(&mut self) {
        self.answers.clear();
    }

    pub fn rejected(&mut self, replica: usize, write: &Write) {
        self.rejected.push((replica, write.clone()));
    }

    /// Every rejected write can be found where it was made.
    pub fn check_conflicts(&mut self, replica: usize, found: &[Write]) {
        for (_, write) in self.rejected.iter().filter(|(number, _)| *number == replica) {
            if !found.contains(write) {
                self.wrong
                    .push(format!("the rejected write {write:?} of sandbox {replica} is nowhere"));
            }
        }
    }

    /// Nothing came to stand in the host's log oftener than somebody meant it to: nothing rose, nothing went by itself.
    pub fn check_log(&mut self, rows: &[Row]) {
        let mut seen: BTreeMap<(&WorkspacePath, ObjectId), u32> = BTreeMap::new();
        for change in rows.iter().flat_map(|row| &row.changes) {
            let after = change.after.as_ref().expect("all is known here");
            let hash = after.hash();
            let count = seen.entry((&change.path, hash)).or_default();
            *count += 1;
            let meant = self.made.get(&(change.path.clone(), hash)).copied().unwrap_or(0);
            if *count > meant {
                self.wrong.push(format!(
                    "{} became {after:?} {count} times and was meant to {meant} times",
                    change.path
                ));
            }
        }
    }

    /// An accepted write is in the host's log, by the record that the host named.
    pub fn check_accepted(&mut self, rows: &[Row], writes: &[Write], verdicts: &[Verdict]) {
        for (write, verdict) in writes.iter().zip(verdicts) {
            let Verdict::Accepted(seq) = verdict else { continue };
            let is_it = |change: &LocalChange| {
                let after = change.after.as_ref();
                change.path == write.path && after.is_some_and(|it| it.same_value(&write.after))
            };
            let row = rows.iter().find(|row| row.seq == *seq);
            if seq.0 > 0 && !row.is_some_and(|row| row.changes.iter().any(is_it)) {
                let words =
                    format!("{} was accepted by record {} and is not in it", write.path, seq.0);
                self.wrong.push(words);
            }
        }
    }
}
