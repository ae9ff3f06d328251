//! What the replica's own log says, on its way to the host: one batch at a time, sent again until it is answered.

use std::time::Duration;

use chronicle_core::ObjectId;
use chronicle_core::replica::{Verdict, Version};

use super::session::{Asked, Done, Live, SandboxSession, fault, is_over};
use super::{Batch, Effect};
use crate::parts::{gather, write_length};
use crate::wire::{Frame, Outcome, Run, SentWrite, Wanted, WriteBack, WriteBackResult, digest_of};

/// How often a batch is sent over one link before the link is given up.
const TRIES: u32 = 3;
/// A host may ask again for what it has asked for already, so often.
const ASKED_AGAIN: usize = 4;

/// The batch that is not answered.
#[derive(Debug)]
pub(super) struct UnderWay {
    number: u64,
    digest: ObjectId,
    writes: Vec<SentWrite>,
}

/// What is known over this link of the batch's answer.
#[derive(Debug, Default)]
pub(super) struct Answering {
    /// When the batch was last sent over this link.
    pub(super) sent: Option<Duration>,
    tries: u32,
    verdicts: Vec<Verdict>,
    next_part: u32,
}

impl SandboxSession {
    /// Asks what there is to send, sends it, and sends it again.
    pub(super) fn go_on_sending(
        &mut self,
        live: &mut Live,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        if !live.may_write || self.asked.is_some() {
            return Ok(());
        }
        let Some(batch) = &self.batch else {
            live.answering = Answering::default();
            if self.dirty {
                self.dirty = false;
                let id = self.id();
                self.asked = Some(Asked::Next(id));
                out.push(Effect::NextBatch { id, most: live.batch_writes });
            }
            return Ok(());
        };
        let due = live.answering.sent.is_none_or(|at| is_over(at, self.limits.patience, now));
        if due {
            live.answering.tries += 1;
            if live.answering.tries > TRIES {
                return Err(fault("the host does not answer what was written back"));
            }
            live.answering.sent = Some(now);
            out.extend(batch.frames().map(Effect::Send));
        }
        Ok(())
    }

    pub(super) fn got_batch(&mut self, id: u64, batch: Option<Batch>) {
        if self.asked.take_if(|asked| *asked == Asked::Next(id)).is_some()
            && let Some(Batch { number, writes }) = batch
        {
            let digest = digest_of(writes.iter().map(|sent| &sent.write));
            self.batch = Some(UnderWay { number, digest, writes });
        }
    }

    /// Takes what the host made of the batch, or a part of that.
    pub(super) fn take_result(
        &mut self,
        live: &mut Live,
        result: WriteBackResult,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(batch) = self.batch.as_ref().filter(|batch| batch.number == result.batch) else {
            return Ok(());
        };
        if self.asked.is_some() {
            return Ok(());
        }
        match result.outcome {
            Outcome::Renumber(last) => {
                let id = self.id();
                self.asked = Some(Asked::Renumber(id));
                out.push(Effect::Renumber { id, last });
                return Ok(());
            }
            Outcome::Verdicts(_) if result.part != live.answering.next_part => return Ok(()),
            Outcome::Verdicts(verdicts) => live.answering.verdicts.extend(verdicts),
        }
        live.answering.next_part += 1;
        if live.answering.verdicts.len() > batch.writes.len() {
            return Err(fault("the host answers more writes than were sent"));
        }
        if !result.last {
            return Ok(());
        }
        if live.answering.verdicts.len() != batch.writes.len() {
            return Err(fault("the host does not answer all writes of a batch"));
        }
        let (number, verdicts) = (batch.number, std::mem::take(&mut live.answering.verdicts));
        let id = self.id();
        self.asked = Some(Asked::Keep(id, number));
        out.push(Effect::Answered { id, batch: number, verdicts });
        Ok(())
    }

    pub(super) fn answer_kept(&mut self, id: u64, more: bool) {
        let is_it = |asked: &mut Asked| matches!(asked, Asked::Keep(kept, _) if *kept == id);
        if let Some(Asked::Keep(_, number)) = self.asked.take_if(is_it) {
            self.begin.answered = number;
            self.batch = None;
            self.dirty |= more;
            self.forget_answer();
        }
    }

    pub(super) fn renumbered(&mut self, id: u64) {
        if self.asked.take_if(|asked| *asked == Asked::Renumber(id)).is_some() {
            self.batch = None;
            self.dirty = true;
            self.forget_answer();
        }
    }

    fn forget_answer(&mut self) {
        if let Some(live) = self.live_mut() {
            live.answering = Answering::default();
        }
    }

    /// Gives contents of the batch, and of nothing else.
    pub(super) fn give(&mut self, live: &mut Live, runs: Vec<Run>, out: &mut Vec<Effect>) -> Done {
        self.count_asked(live, runs.len())?;
        for run in runs {
            if self.is_of_batch(&run.wanted) {
                out.push(Effect::ReadContent(run));
            } else {
                out.push(Effect::Send(live.serving.content(&run, None)));
            }
        }
        Ok(())
    }

    /// The same for lists of pieces.
    pub(super) fn give_pieces(
        &mut self,
        live: &mut Live,
        wanted: Wanted,
        out: &mut Vec<Effect>,
    ) -> Done {
        self.count_asked(live, 1)?;
        if self.is_of_batch(&wanted) {
            out.push(Effect::ReadManifest(wanted));
        } else {
            out.extend(live.serving.manifest(wanted.object, None).into_iter().map(Effect::Send));
        }
        Ok(())
    }

    fn count_asked(&self, live: &mut Live, count: usize) -> Done {
        let most = self.limits.fetches * ASKED_AGAIN;
        live.serving
            .asked(count, most)
            .map_err(|_| fault("too much content is asked for at once"))?;
        // The host works on the batch.
        let heard = live.heard();
        live.answering.sent = live.answering.sent.map(|at| at.max(heard));
        live.answering.tries = live.answering.tries.min(1);
        Ok(())
    }

    fn is_of_batch(&self, wanted: &Wanted) -> bool {
        let is_it = |sent: &SentWrite| matches!(sent.write.after, Version::File { object, .. } if object == wanted.object);
        self.batch.as_ref().is_some_and(|batch| batch.writes.iter().any(is_it))
    }
}

impl UnderWay {
    /// The batch as it travels: in as many parts as it needs.
    fn frames(&self) -> impl Iterator<Item = Frame> + use<> {
        let runs = gather(self.writes.clone(), write_length);
        let (batch, digest, count) = (self.number, self.digest, runs.len());
        runs.into_iter().enumerate().map(move |(part, writes)| {
            let last = part + 1 == count;
            let part = u32::try_from(part).expect("BUG: a batch has far fewer parts");
            Frame::WriteBack(WriteBack { batch, digest, part, last, writes })
        })
    }
}
