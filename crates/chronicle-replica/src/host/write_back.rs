//! A batch of a replica's writes on its way into the workspace: its parts, its contents, its answer.

use std::collections::BTreeMap;
use std::time::Duration;

use chronicle_core::ObjectId;
use chronicle_core::replica::Version;

use super::session::{Done, Fault, HostSession, Live, fault, object_of};
use super::{Effect, Event, TakeWrites, WritesTaken};
use crate::fetch::{Fetcher, Step, Trouble, Want};
use crate::parts::{gather, verdict_length, write_length};
use crate::wire::{Frame, Outcome, SentWrite, WriteBack, WriteBackResult, digest_of};

/// A batch that is not answered.
#[derive(Debug)]
pub(super) struct Incoming {
    batch: u64,
    digest: ObjectId,
    next_part: u32,
    bytes: usize,
    writes: Vec<SentWrite>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Parts are missing.
    Gathering,
    /// Which contents must be sent?
    Asking(u64),
    /// They are on their way; the number is that of a question about pieces.
    Fetching(Box<Fetcher>, Option<u64>),
    /// It is being judged.
    Taking,
}

impl Incoming {
    /// When something must be asked again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        if let Stage::Fetching(fetcher, _) = &self.stage { fetcher.deadline() } else { None }
    }
}

impl HostSession {
    /// Takes a part of a batch. Parts that came before, or of a batch before, are nothing.
    pub(super) fn take_part(
        &self,
        live: &mut Live,
        part: WriteBack,
        out: &mut Vec<Effect>,
    ) -> Done {
        if !live.may_write {
            return Err(fault("this replica may not write back"));
        }
        match &live.incoming {
            Some(now) if !matches!(now.stage, Stage::Gathering) => {
                return if part.batch <= now.batch { Ok(()) } else { Err(second_batch(now.batch)) };
            }
            Some(now) if now.batch == part.batch && now.next_part == part.part => {}
            _ if part.part > 0 => return Ok(()),
            _ => live.incoming = Some(Box::new(Incoming::begin(&part))),
        }
        let Some(incoming) = live.incoming.as_mut() else { return Ok(()) };
        let last = part.last;
        incoming.gather(part, &self.limits)?;
        if last { incoming.ask(&mut live.next_id, out) } else { Ok(()) }
    }

    /// Takes what the replica sent of a content.
    pub(super) fn take_content(
        &self,
        live: &mut Live,
        frame: Frame,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some((fetcher, _)) = fetcher_of(live) else { return Ok(()) };
        let steps = match frame {
            Frame::Content(content) => fetcher.content(content, now),
            Frame::Manifest(manifest) => fetcher.manifest(manifest, now),
            Frame::Missing(object) => {
                fetcher.missing_there(object, now);
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        };
        self.go_on_fetching(live, steps, out)
    }

    /// Takes the answers to what a batch needed.
    pub(super) fn go_on_taking(
        &self,
        live: &mut Live,
        event: Event,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        match event {
            Event::Lacking { id, objects } => self.take_lacking(live, id, &objects, now, out),
            Event::ContentPut(object, kept) => {
                let Some((fetcher, _)) = fetcher_of(live) else { return Ok(()) };
                let steps = fetcher.put(object, kept, now);
                self.go_on_fetching(live, steps, out)
            }
            Event::Tick => {
                let Some((fetcher, _)) = fetcher_of(live) else { return Ok(()) };
                let steps = fetcher.tick(now);
                self.go_on_fetching(live, steps, out)
            }
            Event::WritesTaken(taken) => answer(live, taken, out),
            _ => Ok(()),
        }
    }

    fn take_lacking(
        &self,
        live: &mut Live,
        id: u64,
        objects: &[ObjectId],
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(incoming) = live.incoming.as_mut() else { return Ok(()) };
        let steps = match &mut incoming.stage {
            Stage::Asking(asked) if *asked == id => {
                let wants = incoming.wants()?;
                let wants =
                    objects.iter().filter_map(|object| wants.get(object).cloned()).collect();
                let fetcher = Fetcher::new(wants, self.limits.fetches, &self.limits, now);
                incoming.stage = Stage::Fetching(Box::new(fetcher), None);
                Vec::new()
            }
            Stage::Fetching(fetcher, asked) if *asked == Some(id) => {
                *asked = None;
                fetcher.lacking(objects, now)
            }
            _ => return Ok(()),
        };
        self.go_on_fetching(live, Ok(steps), out)
    }

    fn go_on_fetching(
        &self,
        live: &mut Live,
        steps: Result<Vec<Step>, Trouble>,
        out: &mut Vec<Effect>,
    ) -> Done {
        let mut steps = steps.map_err(|trouble| Fault(trouble.to_string()))?;
        let next_id = &mut live.next_id;
        let Some(incoming) = live.incoming.as_mut() else { return Ok(()) };
        let Stage::Fetching(fetcher, asked) = &mut incoming.stage else { return Ok(()) };
        steps.extend(fetcher.pump());
        for step in steps {
            out.push(match step {
                Step::Send(frame) => Effect::Send(frame),
                Step::Put(object, bytes) => Effect::PutContent { object, bytes },
                Step::Assemble { object, size, pieces } => {
                    Effect::PutPieces { object, size, pieces }
                }
                Step::Check { pieces, base } => {
                    *next_id += 1;
                    *asked = Some(*next_id);
                    Effect::Lacking { id: *next_id, objects: pieces, base }
                }
            });
        }
        if fetcher.is_done() {
            let missing = fetcher.missing().to_vec();
            out.push(incoming.take(missing));
        }
        Ok(())
    }
}

fn second_batch(batch: u64) -> Fault {
    fault(format!("another batch came before batch {batch} was answered"))
}

fn fetcher_of(live: &mut Live) -> Option<(&mut Fetcher, &mut Option<u64>)> {
    match &mut live.incoming.as_mut()?.stage {
        Stage::Fetching(fetcher, asked) => Some((fetcher, asked)),
        _ => None,
    }
}

impl Incoming {
    fn begin(part: &WriteBack) -> Self {
        let (batch, digest, writes) = (part.batch, part.digest, Vec::new());
        Self { batch, digest, next_part: 0, bytes: 0, writes, stage: Stage::Gathering }
    }

    fn gather(&mut self, part: WriteBack, limits: &crate::Limits) -> Done {
        if part.digest != self.digest {
            return Err(fault("the parts of a batch are of different batches"));
        }
        for sent in &part.writes {
            check_inline(sent)?;
            self.bytes += write_length(sent);
        }
        self.writes.extend(part.writes);
        self.next_part += 1;
        if self.writes.len() > limits.batch_writes || self.bytes > limits.batch_bytes {
            return Err(fault("a batch is larger than any may be"));
        }
        Ok(())
    }

    /// All parts are here: asks which contents must be sent.
    fn ask(&mut self, next_id: &mut u64, out: &mut Vec<Effect>) -> Done {
        if digest_of(self.writes.iter().map(|sent| &sent.write)) != self.digest {
            return Err(fault("a batch is not what its digest says"));
        }
        let wants = self.wants()?;
        if wants.is_empty() {
            out.push(self.take(Vec::new()));
            return Ok(());
        }
        *next_id += 1;
        self.stage = Stage::Asking(*next_id);
        let objects = wants.into_keys().collect();
        out.push(Effect::Lacking { id: *next_id, objects, base: None });
        Ok(())
    }

    /// The contents that did not come with their writes; one name with two lengths is a lie.
    fn wants(&self) -> Result<BTreeMap<ObjectId, Want>, Fault> {
        let mut wants: BTreeMap<ObjectId, Want> = BTreeMap::new();
        for sent in self.writes.iter().filter(|sent| sent.inline.is_none()) {
            let Version::File { object, size, .. } = sent.write.after else { continue };
            let base = object_of(&sent.write.base);
            let path = sent.write.path.clone();
            let want = wants.entry(object).or_insert(Want { object, size, path, base });
            if want.size != size {
                return Err(fault("one content is said to have two lengths"));
            }
        }
        Ok(wants)
    }

    fn take(&mut self, missing: Vec<ObjectId>) -> Effect {
        self.stage = Stage::Taking;
        let writes = std::mem::take(&mut self.writes);
        Effect::TakeWrites(TakeWrites { batch: self.batch, digest: self.digest, writes, missing })
    }
}

/// Content that came with a write must be what its name says.
fn check_inline(sent: &SentWrite) -> Done {
    match (&sent.inline, object_of(&sent.write.after)) {
        (Some(bytes), Some(object)) if ObjectId::of(bytes) != object => {
            Err(fault(format!("the content of {} is not what its name says", sent.write.path)))
        }
        (Some(_), None) => {
            Err(fault(format!("{} came with content and is no file", sent.write.path)))
        }
        _ => Ok(()),
    }
}

fn answer(live: &mut Live, taken: WritesTaken, out: &mut Vec<Effect>) -> Done {
    let (batch, outcomes) = match taken {
        WritesTaken::Failed(words) => return Err(Fault(words)),
        WritesTaken::Renumber { batch, last } => (batch, vec![Outcome::Renumber(last)]),
        WritesTaken::Answered { batch, verdicts } => {
            (batch, gather(verdicts, verdict_length).into_iter().map(Outcome::Verdicts).collect())
        }
    };
    if live.incoming.as_ref().is_none_or(|incoming| incoming.batch != batch) {
        return Ok(());
    }
    live.incoming = None;
    let count = outcomes.len();
    for (part, outcome) in outcomes.into_iter().enumerate() {
        let last = part + 1 == count;
        let part = u32::try_from(part).expect("BUG: an answer has far fewer parts");
        out.push(Effect::Send(Frame::WriteBackResult(WriteBackResult {
            batch,
            part,
            last,
            outcome,
        })));
    }
    Ok(())
}
