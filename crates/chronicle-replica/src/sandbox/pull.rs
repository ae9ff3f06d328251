//! What the host pushes, on its way to being durable here.

use std::collections::BTreeMap;
use std::time::Duration;

use chronicle_core::replica::{Place, Version};
use chronicle_core::{ObjectId, Seq};

use super::session::{Applying, Done, Fault, Live, Parts, SandboxSession, fault, is_over};
use super::{ApplyPush, Effect};
use crate::fetch::{Fetcher, Step, Trouble, Want};
use crate::limits::{HELD_MAX, INLINE_TOGETHER};
use crate::wire::{Ack, CatchupRequest, Frame, Push, PushItem};

/// How often it is asked again before the link is given up.
const TRIES: u32 = 3;

/// Items whose contents are being brought here.
#[derive(Debug)]
pub(super) struct Pulling {
    pub(super) pulled: Pulled,
    pub(super) stage: Stage,
}

/// What the host has at some paths.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) items: Vec<PushItem>,
    /// At which record, or later.
    pub(super) shown: Seq,
    /// Where the replica is once this is durable.
    pub(super) advance: Option<Place>,
    /// It is all that differs, found by comparing trees.
    pub(super) resync: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Which of these contents are here?
    Checking(u64, BTreeMap<ObjectId, Want>),
    /// They are on their way; the number is that of a question about pieces.
    Fetching(Box<Fetcher>, Option<u64>),
    /// All contents are here.
    Ready,
}

impl SandboxSession {
    /// Takes a part of a push into the queue, or finds that it says nothing new.
    pub(super) fn take_push(&mut self, live: &mut Live, push: Push, out: &mut Vec<Effect>) -> Done {
        if push.epoch != live.host.epoch {
            return Err(fault("a push is of another life of the host's log"));
        }
        live.host.seq = live.host.seq.max(push.to);
        if live.resync.is_some() {
            return Ok(());
        }
        let to = Place { epoch: push.epoch, seq: push.to };
        if self.begin.place.is_some_and(|here| here.epoch == to.epoch && here.seq >= to.seq) {
            // The acknowledgement of it was lost.
            out.push(Effect::Send(Frame::Ack(Ack { up_to: self.begin.place, parts: 0 })));
            return Ok(());
        }
        live.queued += push.items.len();
        let parts = self.limits.push_parts.max(self.limits.fill_parts);
        if live.queue.len() > 2 * parts + 2 && live.queued > HELD_MAX {
            return Err(fault("the host pushes more than it may before it is acknowledged"));
        }
        live.queue.push_back(push);
        Ok(())
    }

    /// Notices that something was pushed and did not come.
    pub(super) fn heartbeat(
        &mut self,
        live: &mut Live,
        place: Option<Place>,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(place) = place else { return Ok(()) };
        if place.epoch != live.host.epoch {
            return Err(fault("the host's log has begun another life"));
        }
        live.host.seq = live.host.seq.max(place.seq);
        let idle = live.queue.is_empty() && live.pulling.is_none() && live.resync.is_none();
        if idle && self.applying.is_none() && self.begin.place != Some(live.host) {
            self.ask_to_catch_up(live, out);
        }
        Ok(())
    }

    /// Asks for everything after what is durable here.
    pub(super) fn ask_to_catch_up(&self, live: &mut Live, out: &mut Vec<Effect>) {
        live.clear_queue();
        live.pulling = None;
        live.parts = None;
        out.push(Effect::Send(Frame::CatchupRequest(CatchupRequest { since: self.begin.place })));
    }

    /// Goes on with what was pushed, as far as that is possible now.
    pub(super) fn go_on_pulling(
        &mut self,
        live: &mut Live,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        self.fetch_on(live, now, out)?;
        while live.pulling.is_none() && self.applying.is_none() {
            let Some(push) = live.queue.pop_front() else { break };
            live.queued -= push.items.len();
            live.progress = now;
            self.begin_push(live, push, now, out)?;
        }
        self.apply_if_ready(live, out);
        self.notice_stall(live, now, out)
    }

    /// Takes a part of a push, if it follows what is here; with the last one the whole of it begins.
    fn begin_push(
        &mut self,
        live: &mut Live,
        push: Push,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let here = self.begin.place.filter(|here| here.epoch == push.epoch);
        if here.is_some_and(|here| here.seq >= push.to) {
            return Ok(());
        }
        // Whoever comes from another life compares trees; a push from nothing is only for who has nothing.
        let at = here.map_or(Seq(0), |here| here.seq);
        let follows = push.from <= at && (here.is_some() || self.begin.place.is_none());
        let is_it = |parts: &Parts| (parts.from, parts.to) == (push.from, push.to);
        let mut parts = match live.parts.take() {
            _ if !follows => return self.gap(live, out),
            _ if push.part == 0 => Parts::new(&push),
            Some(parts) if is_it(&parts) && parts.next == push.part => parts,
            Some(parts) if is_it(&parts) && parts.next > push.part => {
                live.parts = Some(parts);
                return Ok(());
            }
            _ => return self.gap(live, out),
        };
        parts.next += 1;
        parts.inline +=
            push.items.iter().filter_map(|item| item.inline.as_ref()).map(Vec::len).sum::<usize>();
        parts.items.extend(push.items);
        if parts.items.len() > HELD_MAX || parts.inline > 2 * INLINE_TOGETHER {
            return Err(fault("a push is larger than any may be"));
        }
        if !push.last {
            let (up_to, taken) = (self.begin.place, parts.next);
            out.push(Effect::Send(Frame::Ack(Ack { up_to, parts: taken })));
            live.parts = Some(parts);
            return Ok(());
        }
        let advance = Some(Place { epoch: push.epoch, seq: push.to });
        let pulled = Pulled { items: parts.items, shown: push.to, advance, resync: false };
        self.begin_items(live, pulled, now, out)
    }

    fn gap(&mut self, live: &mut Live, out: &mut Vec<Effect>) -> Done {
        self.ask_to_catch_up(live, out);
        Ok(())
    }

    /// Begins to bring the contents of items here.
    pub(super) fn begin_items(
        &mut self,
        live: &mut Live,
        pulled: Pulled,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let wants = wants(&pulled.items)?;
        live.progress = now;
        let stage = if wants.is_empty() {
            Stage::Ready
        } else {
            let id = self.id();
            out.push(match self.lazy {
                true => Effect::WhichContents { id, wants: wants.values().cloned().collect() },
                false => Effect::HasContents { id, objects: wants.keys().copied().collect() },
            });
            Stage::Checking(id, wants)
        };
        live.pulling = Some(Pulling { pulled, stage });
        Ok(())
    }

    fn apply_if_ready(&mut self, live: &mut Live, out: &mut Vec<Effect>) {
        if self.applying.is_some() {
            return;
        }
        let ready = live.pulling.take_if(|pulling| matches!(pulling.stage, Stage::Ready));
        let Some(Pulling { pulled: Pulled { items, shown, advance, resync }, .. }) = ready else {
            return;
        };
        let id = self.id();
        self.applying = Some(Applying { id, advance });
        out.push(Effect::ApplyPush(ApplyPush { id, items, shown, advance, resync }));
    }

    /// Something is durable: now, and only now, the host may know.
    pub(super) fn applied(&mut self, id: u64, now: Duration, out: &mut Vec<Effect>) {
        let Some(applying) = self.applying.take_if(|applying| applying.id == id) else { return };
        if applying.advance.is_some() {
            self.begin.place = applying.advance;
        }
        // Local work was recorded before it.
        self.dirty = true;
        let up_to = self.begin.place;
        let Some(live) = self.live_mut() else { return };
        live.progress = now;
        live.tries = 0;
        if live.resync.as_ref().is_some_and(|resync| !resync.is_over()) {
            return;
        }
        live.resync = None;
        if up_to.is_none_or(|place| place.epoch == live.host.epoch) {
            out.push(Effect::Send(Frame::Ack(Ack { up_to, parts: 0 })));
        }
    }

    /// It could not be applied: it is asked for again in a while.
    pub(super) fn not_applied(&mut self, id: u64, now: Duration) {
        if self.applying.take_if(|applying| applying.id == id).is_none() {
            return;
        }
        let Some(live) = self.live_mut() else { return };
        live.clear_queue();
        (live.pulling, live.parts, live.progress) = (None, None, now);
        if live.resync.is_some() {
            let place = live.host;
            live.resync = None;
            // Trees are compared anew, from the top.
            let _ = live.begin_resync(place, now);
        }
    }

    /// Takes which contents are not here.
    pub(super) fn lacking(
        &mut self,
        live: &mut Live,
        id: u64,
        objects: &[ObjectId],
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let fetches = live.fetches;
        let Some(pulling) = &mut live.pulling else { return Ok(()) };
        let steps = match &mut pulling.stage {
            Stage::Checking(asked, wants) if *asked == id => {
                let wants =
                    objects.iter().filter_map(|object| wants.get(object).cloned()).collect();
                let fetcher = Fetcher::new(wants, fetches, &self.limits, now);
                pulling.stage = Stage::Fetching(Box::new(fetcher), None);
                Vec::new()
            }
            Stage::Fetching(fetcher, asked) if *asked == Some(id) => {
                *asked = None;
                fetcher.lacking(objects, now)
            }
            _ => return Ok(()),
        };
        self.carry_out(live, Ok(steps), out)
    }

    /// Takes whether a content was kept.
    pub(super) fn content_put(
        &mut self,
        live: &mut Live,
        object: ObjectId,
        kept: bool,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(fetcher) = live.fetcher() else { return Ok(()) };
        let steps = fetcher.put(object, kept, now);
        self.carry_out(live, steps, out)
    }

    /// Takes what the host sent of a content.
    pub(super) fn take_content(
        &mut self,
        live: &mut Live,
        frame: Frame,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(fetcher) = live.fetcher() else { return Ok(()) };
        let steps = match frame {
            Frame::Content(content) => fetcher.content(content, now),
            Frame::Manifest(manifest) => fetcher.manifest(manifest, now),
            Frame::Missing(object) => {
                fetcher.missing_there(object, now);
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        };
        self.carry_out(live, steps, out)
    }

    fn fetch_on(&mut self, live: &mut Live, now: Duration, out: &mut Vec<Effect>) -> Done {
        let Some(fetcher) = live.fetcher() else { return Ok(()) };
        let mut steps = fetcher.tick(now);
        if let Ok(steps) = &mut steps {
            steps.extend(fetcher.pump());
        }
        let done = fetcher.is_done();
        let missing = !fetcher.missing().is_empty();
        self.carry_out(live, steps, out)?;
        if done && missing {
            // It stands there no more; what stands there now will be told.
            return self.start_again(live, now, out);
        }
        if let Some(pulling) = live.pulling.as_mut().filter(|_| done) {
            pulling.stage = Stage::Ready;
        }
        Ok(())
    }

    fn start_again(&mut self, live: &mut Live, now: Duration, out: &mut Vec<Effect>) -> Done {
        live.tries += 1;
        if live.tries >= TRIES {
            return Err(fault("contents that the host pushed cannot be had from it"));
        }
        if live.resync.is_some() {
            (live.pulling, live.resync) = (None, None);
            return live.begin_resync(live.host, now);
        }
        self.ask_to_catch_up(live, out);
        Ok(())
    }

    fn carry_out(
        &mut self,
        live: &mut Live,
        steps: Result<Vec<Step>, Trouble>,
        out: &mut Vec<Effect>,
    ) -> Done {
        let steps = steps.map_err(|trouble| Fault(trouble.to_string()))?;
        for step in steps {
            out.push(match step {
                Step::Send(frame) => Effect::Send(frame),
                Step::Put(object, bytes) => Effect::PutContent { object, bytes },
                Step::Assemble { object, size, pieces } => {
                    Effect::PutPieces { object, size, pieces }
                }
                Step::Check { pieces, .. } => {
                    let id = self.id();
                    if let Some(Pulling { stage: Stage::Fetching(_, asked), .. }) =
                        &mut live.pulling
                    {
                        *asked = Some(id);
                    }
                    Effect::HasContents { id, objects: pieces }
                }
            });
        }
        Ok(())
    }

    /// Whether something is due from the host.
    pub(super) fn is_waiting_for_host(&self, live: &Live) -> bool {
        let behind =
            live.parts.is_some() || self.begin.place != Some(live.host) || live.resync.is_some();
        behind
            && self.applying.is_none()
            && live.pulling.as_ref().is_none_or(|it| !matches!(it.stage, Stage::Checking(..)))
    }

    fn notice_stall(&mut self, live: &mut Live, now: Duration, out: &mut Vec<Effect>) -> Done {
        let fetching = live.pulling.is_some();
        if !self.is_waiting_for_host(live) || fetching {
            // What is fetched is watched by the fetch itself.
            live.progress = now;
            return Ok(());
        }
        if !is_over(live.progress, self.limits.patience, now) {
            return Ok(());
        }
        live.progress = now;
        live.tries += 1;
        if live.tries >= TRIES {
            return Err(fault("the host does not send what it has"));
        }
        match &mut live.resync {
            Some(resync) => resync.ask_again(),
            None => self.ask_to_catch_up(live, out),
        }
        Ok(())
    }
}

impl Parts {
    fn new(push: &Push) -> Self {
        Self { from: push.from, to: push.to, next: 0, items: Vec::new(), inline: 0 }
    }
}

impl Live {
    pub(super) fn clear_queue(&mut self) {
        self.queue.clear();
        self.queued = 0;
    }

    fn fetcher(&mut self) -> Option<&mut Fetcher> {
        match &mut self.pulling.as_mut()?.stage {
            Stage::Fetching(fetcher, _) => Some(fetcher),
            _ => None,
        }
    }
}

/// The contents that did not come with their items; whatever did must be what its name says.
fn wants(items: &[PushItem]) -> Result<BTreeMap<ObjectId, Want>, Fault> {
    let mut wants: BTreeMap<ObjectId, Want> = BTreeMap::new();
    for PushItem { item, inline, stored } in items {
        let Version::File { object, size, .. } = item.version else { continue };
        if let Some(bytes) = inline {
            if stored.is_none() && ObjectId::of(bytes) != object {
                return Err(fault(format!(
                    "the content of {} is not what its name says",
                    item.path
                )));
            }
            continue;
        }
        let want = Want { object, size, path: item.path.clone(), base: None };
        if wants.entry(object).or_insert(want).size != size {
            return Err(fault("one content is said to have two lengths"));
        }
    }
    Ok(wants)
}
