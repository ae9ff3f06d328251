//! What a host remembers of its replicas.

use super::replica_types::{Answer, ReplicaNews, ReplicaRow};
use super::{PATIENCE, Workspace};
use crate::catalog::{Batch, Durability, Local, Log};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::error::{Error, Result};
use crate::id::{ObjectId, ReplicaId, Seq, Time};
use crate::replica::{Place, decode_place, decode_verdict, encode_place, encode_verdict};

/// A replica that was not heard of for so long keeps no history from being pruned.
const HOLD_NS: i64 = 7 * 86_400 * 1_000_000_000;
/// Nor does one that is so many records behind.
const HOLD_RECORDS: u64 = 100_000;

/// A row with the answer to the last batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) row: ReplicaRow,
    /// The last answer, and what it answered: a sandbox that goes on from a copy of before uses the same number for
    /// other writes.
    pub(super) answer: Option<(ObjectId, Answer)>,
}

impl Remembered {
    fn new(id: ReplicaId) -> Self {
        let row = ReplicaRow {
            id,
            name: String::new(),
            acknowledged: None,
            seen: Time(0),
            sent: 0,
            received: 0,
            batch: 0,
            conflicts: 0,
        };
        Self { row, answer: None }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (row, mut out) = (&self.row, Encoder::default());
        out.bytes(row.name.as_bytes());
        out.byte(u8::from(row.acknowledged.is_some()) | u8::from(self.answer.is_some()) << 1);
        if let Some(place) = &row.acknowledged {
            encode_place(&mut out, place);
        }
        out.signed(row.seen.0);
        for number in [row.sent, row.received, row.batch, row.conflicts] {
            out.int(number);
        }
        if let Some((writes, answer)) = &self.answer {
            out.fixed(writes.as_bytes());
            encode_place(&mut out, &answer.head);
            out.int(answer.verdicts.len() as u64);
            answer.verdicts.iter().for_each(|verdict| encode_verdict(&mut out, verdict));
        }
        out.0
    }

    fn decode(id: ReplicaId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder(bytes);
        let name = input.text()?;
        let flags = input.byte()?;
        let acknowledged = if flags & 1 != 0 { Some(decode_place(&mut input)?) } else { None };
        let seen = Time(input.signed()?);
        let (sent, received, batch, conflicts) =
            (input.int()?, input.int()?, input.int()?, input.int()?);
        let row = ReplicaRow { id, name, acknowledged, seen, sent, received, batch, conflicts };
        let answer = match flags & 2 != 0 {
            false => None,
            true => {
                let writes = ObjectId(input.array()?);
                let (head, count) = (decode_place(&mut input)?, input.count()?);
                let verdicts =
                    (0..count).map(|_| decode_verdict(&mut input)).collect::<Result<_, _>>()?;
                Some((writes, Answer { batch, verdicts, head, repeated: true }))
            }
        };
        input.end()?;
        Ok(Self { row, answer })
    }
}

impl Workspace {
    /// The replicas that were ever heard of, by name.
    pub fn replicas(&self) -> Result<Vec<ReplicaRow>> {
        let mut rows = Vec::new();
        for (key, value) in self.catalog.locals(Local::Replica)? {
            let Some(id) = ReplicaId::from_slice(&key) else { continue };
            rows.push(decoded(Remembered::decode(id, &value))?.row);
        }
        rows.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        Ok(rows)
    }

    pub(super) fn remembered(&self, id: &ReplicaId) -> Result<Remembered> {
        match self.catalog.local(Local::Replica, &id.0)? {
            Some(value) => decoded(Remembered::decode(*id, &value)),
            None => Ok(Remembered::new(*id)),
        }
    }

    /// Remembers news of a replica; a first one makes its row. An acknowledgement of what the log does not have is
    /// refused.
    pub fn note_replica(&mut self, id: &ReplicaId, news: &ReplicaNews) -> Result<()> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        let mut known = self.remembered(id)?;
        let row = &mut known.row;
        if let Some(place) = news.acknowledged {
            self.check_acknowledged(place)?;
            // A late one is no step back.
            let same = row.acknowledged.filter(|had| had.epoch == place.epoch);
            row.acknowledged = Some(same.map_or(place, |had| had.max(place)));
        }
        row.name = news.name.clone().unwrap_or_else(|| std::mem::take(&mut row.name));
        row.sent = row.sent.saturating_add(news.sent);
        row.received = row.received.saturating_add(news.received);
        row.conflicts = news.conflicts.unwrap_or(row.conflicts);
        row.seen = self.now();
        let local = vec![(Local::Replica, id.0.to_vec(), Some(known.encode()))];
        // What is lost of it in a power cut is told again.
        self.commit_batch(Batch { local, ..Batch::default() }, Durability::ProcessDeath).map(drop)
    }

    fn check_acknowledged(&self, place: Place) -> Result<()> {
        let head = self.catalog.head()?.seq;
        if place.epoch == self.catalog.epoch() && place.seq <= head {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "A replica acknowledged record {} of another log, or one that is not there: this one ends at {head}",
            place.seq
        )))
    }

    /// Forgets a replica: it holds no history any more. False if there is none.
    pub fn forget_replica(&mut self, id: &ReplicaId) -> Result<bool> {
        let _lock = self.lock_in_haste(PATIENCE)?;
        let known = self.catalog.local(Local::Replica, &id.0)?.is_some();
        let local = vec![(Local::Replica, id.0.to_vec(), None)];
        self.commit_batch(Batch { local, ..Batch::default() }, Durability::PowerCut)?;
        Ok(known)
    }

    /// From which records on history must stay for replication: what replicas still have to be told, and what a host
    /// has not answered.
    pub(super) fn needed_for_replication(&self) -> Result<Vec<Seq>> {
        let (head, epoch, now) = (self.catalog.head()?.seq, self.catalog.epoch(), self.now());
        let holds = |row: &ReplicaRow| {
            let place = row.acknowledged.filter(|place| place.epoch == epoch)?;
            let near = head.0.saturating_sub(place.seq.0) <= HOLD_RECORDS;
            (near && now.0.saturating_sub(row.seen.0) <= HOLD_NS).then(|| place.seq.next())
        };
        let mut needed: Vec<_> = self.replicas()?.iter().filter_map(holds).collect();
        needed.extend(self.replica_state()?.map(|state| state.mark.next()));
        Ok(needed)
    }
}

/// What was remembered and cannot be read.
pub(super) fn decoded<T>(result: Result<T, DecodeError>) -> Result<T> {
    result.map_err(|source| Error::Record { seq: Seq(0), source })
}
