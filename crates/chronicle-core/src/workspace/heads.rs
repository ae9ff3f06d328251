//! Signed heads of a workspace's log: made at a turn's end, handed over to witnesses, and proofs.

use std::sync::mpsc;
use std::time::Duration;

use super::views::timestamp;
use super::{PATIENCE, Workspace};
use crate::base64;
use crate::catalog::{Appended, Batch, Durability, HeadOrder, Log};
use crate::error::{Error, Result};
use crate::head::SignedHead;
use crate::id::Seq;
use crate::key::KeySource;
use crate::merkle::{self, Hash};
use crate::view::{HeadView, ProofView, SCHEMA, WitnessView};
use crate::witness::{self, Place};

/// How long a witness may keep a command waiting.
const COMMAND: Duration = Duration::from_secs(5);
/// How long a witness may keep an agent's hook waiting, when it is asked and when it is told.
const HOOK: Duration = Duration::from_millis(25);

/// Who may be kept waiting by a witness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WitnessPatience {
    /// A command: every witness is given what it lacks.
    #[default]
    Command,
    /// An agent's hook: only files, and they must be quick. Git is left to somebody else.
    Hook,
}

impl WitnessPatience {
    fn limit(self) -> Duration {
        match self {
            Self::Command => COMMAND,
            Self::Hook => HOOK,
        }
    }

    fn admits(self, place: &Place) -> bool {
        self == Self::Command || matches!(place, Place::File(_))
    }
}

impl Workspace {
    /// Says who may be kept waiting by witnesses from now on.
    pub fn set_witness_patience(&mut self, patience: WitnessPatience) {
        self.patience = patience;
    }

    /// Commits a batch with a signed head over it, and hands that over.
    ///
    /// Neither a head that cannot be made nor a witness that does not answer fails the commit: both
    /// show in `status`.
    pub(super) fn commit_with_head(
        &mut self,
        batch: Batch,
        durability: Durability,
    ) -> Result<Appended> {
        let head = Some(self.head_order()?);
        let appended = self.commit_appended(Batch { head, ..batch }, durability)?;
        if appended.signed.is_some() {
            let _ = self.hand_over(self.patience);
        }
        Ok(appended)
    }

    /// Commits what takes history away: in a log that is signed, or will be as soon as there is a
    /// key, not without a signature. The next head would show what nobody signed.
    pub(super) fn commit_signed(&mut self, batch: Batch) -> Result<Appended> {
        let signs = !matches!(self.home.key(), KeySource::None);
        if (signs || self.catalog.pinned_key()?.is_some())
            && let Err(why) = self.head_order()?.key
        {
            return Err(Error::Key(why));
        }
        self.commit_with_head(batch, Durability::PowerCut)
    }

    fn head_order(&self) -> Result<HeadOrder> {
        let source = self.home.key();
        // A key that is gone is not replaced by a new one: nobody would know it.
        let key = match self.catalog.pinned_key()? {
            None => source.load_or_make(),
            Some(_) => source.load().and_then(|key| {
                let gone = "the key that signed this workspace's heads is not there";
                key.ok_or_else(|| Error::Key(gone.to_owned()))
            }),
        };
        let key = key.map_err(|error| match error {
            Error::Key(why) => why,
            other => sentence(&other),
        });
        Ok(HeadOrder { workspace: self.id, time: self.now(), key })
    }

    /// The head over everything recorded, made now if there is none, and handed over.
    pub fn head(&mut self) -> Result<SignedHead> {
        let _lock = self.lock(PATIENCE)?;
        let appended = self.commit_with_head(Batch::default(), Durability::PowerCut)?;
        match appended.signed {
            Some(signed) => Ok(signed),
            None => Err(Error::Key(self.catalog.head_problem()?.unwrap_or_default())),
        }
    }

    /// The head for people and JSON.
    pub fn head_view(signed: &SignedHead) -> HeadView {
        let head = &signed.head;
        HeadView {
            schema: SCHEMA,
            workspace_id: head.workspace.hex(),
            epoch: head.epoch.hex(),
            size: head.size,
            root: base64::encode(&head.root),
            link: head.link.hex(),
            timestamp: timestamp(head.time),
            after: head.after,
            key: head.key.text(),
            note: signed.text(),
        }
    }

    /// Shows that a record is in the tree of a head of that size; reads little of a long log.
    pub fn prove_record(&self, seq: Seq, size: u64) -> Result<ProofView> {
        self.check_proof(seq.0, size)?;
        let leaf = self.catalog.subtree(0, seq.0 - 1)?;
        let proof = merkle::inclusion(seq.0 - 1, size, &mut |level, number| {
            self.catalog.subtree(level, number)
        })?;
        Ok(proof_view(Some(&leaf), seq.0, size, &proof))
    }

    /// Shows that the tree of one size is the beginning of the tree of another.
    pub fn prove_growth(&self, old: u64, size: u64) -> Result<ProofView> {
        self.check_proof(old, size)?;
        let proof = merkle::consistency(old, size, &mut |level, number| {
            self.catalog.subtree(level, number)
        })?;
        Ok(proof_view(None, old, size, &proof))
    }

    fn check_proof(&self, from: u64, size: u64) -> Result<()> {
        let last = self.catalog.newest_head()?.map_or(0, |row| row.size);
        if from == 0 || from > size || size > last {
            let why =
                format!("Proofs go from record 1 up to the newest head, which is over {last}");
            return Err(Error::Usage(why));
        }
        Ok(())
    }

    /// Gives every witness the newest head, if it lacks it, and says how each stands.
    pub fn hand_over(&self, patience: WitnessPatience) -> Result<Vec<WitnessView>> {
        let places = self.home.witnesses()?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let newest = self.catalog.newest_head()?.and_then(|row| row.signed());
        let records = self.catalog.head()?.seq.0;
        let mut marks = self.handed_over();
        let before = marks.clone();
        let mut views = Vec::new();
        for place in places {
            let has = marks.iter().find(|(other, _)| *other == place).map_or(0, |mark| mark.1);
            let lacking = newest.as_ref().filter(|signed| signed.head.size > has);
            let mut view = WitnessView {
                kind: place.kind().to_owned(),
                place: place.path().display().to_string(),
                size: has,
                behind: records.saturating_sub(has),
                problem: None,
            };
            if let Some(signed) = lacking.filter(|_| patience.admits(&place)) {
                match self.hand_over_to(&place, signed, patience.limit()) {
                    Ok(()) => {
                        view.size = signed.head.size;
                        view.behind = records.saturating_sub(view.size);
                        marks.retain(|(other, _)| *other != place);
                        marks.push((place, view.size));
                    }
                    Err(error) => view.problem = Some(sentence(&error)),
                }
            }
            views.push(view);
        }
        if marks != before {
            witness::write_marks(&self.directory(), &marks)?;
        }
        Ok(views)
    }

    /// Gives a witness a head, unless it has seen another history: going on from there would only
    /// bury what it saw.
    fn hand_over_to(&self, place: &Place, signed: &SignedHead, limit: Duration) -> Result<()> {
        let id = self.id;
        let (from, to) = (place.clone(), place.clone());
        let seen = bounded(place, limit, move || from.witness(limit).newest(id))?;
        if let Some(seen) = seen {
            let ours = self.catalog.head_at(seen.head.size)?;
            if ours.is_none_or(|row| row.note != seen.text()) {
                let size = seen.head.size;
                let why = format!(
                    "it has seen another history of {size} records; compare with: chronicle verify"
                );
                return Err(place.error(why));
            }
            if seen.head.size >= signed.head.size {
                return Ok(());
            }
        }
        let signed = signed.clone();
        bounded(place, limit, move || to.witness(limit).hand_over(&signed))
    }

    /// Whether a witness lacks the newest head.
    pub fn has_to_hand_over(&self) -> Result<bool> {
        let places = self.home.witnesses()?;
        if places.is_empty() {
            return Ok(false);
        }
        let Some(newest) = self.catalog.newest_head()? else { return Ok(false) };
        let marks = self.handed_over();
        let has =
            |place: &Place| marks.iter().any(|mark| mark.0 == *place && mark.1 >= newest.size);
        Ok(places.iter().any(|place| !has(place)))
    }

    /// What each witness was given.
    pub(super) fn handed_over(&self) -> Vec<(Place, u64)> {
        witness::marks(&self.directory())
    }
}

fn proof_view(leaf: Option<&Hash>, from: u64, size: u64, proof: &[Hash]) -> ProofView {
    ProofView {
        schema: SCHEMA,
        from,
        size,
        leaf_hash: leaf.map(|leaf| base64::encode(leaf)),
        proof: proof.iter().map(|hash| base64::encode(hash)).collect(),
    }
}

/// Does something that may hang on a place of somebody else's, for so long and no longer.
fn bounded<T: Send + 'static>(
    place: &Place,
    limit: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    // If it never comes back it ends with this process.
    std::thread::spawn(move || sender.send(work()));
    let too_long = || place.error(format!("it took longer than {} ms", limit.as_millis()));
    receiver.recv_timeout(limit).unwrap_or_else(|_| Err(too_long()))
}

/// An error with its causes, as one sentence.
fn sentence(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
