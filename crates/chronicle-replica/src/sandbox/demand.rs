//! Contents that somebody waits for who reads a file of a lazy replica; beside whatever is pushed.

use std::time::Duration;

use chronicle_core::ObjectId;

use super::Effect;
use super::session::{Done, Fault, Live, SandboxSession};
use crate::fetch::{Fetcher, Step, Trouble, Want};
use crate::wire::Frame;

/// What is on its way.
#[derive(Debug)]
pub(super) struct Demand {
    fetcher: Fetcher,
    /// The number of a question about pieces.
    asked: Option<u64>,
}

impl Demand {
    /// When to ask again, if nothing comes until then.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.fetcher.deadline()
    }
}

impl Live {
    pub(super) fn is_of_demand(&self, id: u64) -> bool {
        self.demand.as_ref().is_some_and(|demand| demand.asked == Some(id))
    }

    pub(super) fn is_demanded(&self, frame: &Frame) -> bool {
        let Some(demand) = &self.demand else { return false };
        match frame {
            Frame::Content(content) => demand.fetcher.asks(&content.object, content.offset),
            Frame::Manifest(manifest) => demand.fetcher.lists(&manifest.object),
            _ => false,
        }
    }

    pub(super) fn demand_missing(&mut self, object: ObjectId, now: Duration) {
        if let Some(demand) = &mut self.demand {
            demand.fetcher.missing_there(object, now);
        }
    }
}

impl SandboxSession {
    /// Begins to bring these.
    pub(super) fn demand(&self, live: &mut Live, wants: Vec<Want>, now: Duration) {
        let window = live.fetches;
        let demand = live.demand.get_or_insert_with(|| {
            let fetcher = Fetcher::new(Vec::new(), window, &self.limits, now);
            Box::new(Demand { fetcher, asked: None })
        });
        wants.into_iter().for_each(|want| demand.fetcher.want(want));
    }

    pub(super) fn demand_lacking(
        &mut self,
        live: &mut Live,
        objects: &[ObjectId],
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(demand) = &mut live.demand else { return Ok(()) };
        demand.asked = None;
        let steps = demand.fetcher.lacking(objects, now);
        self.demand_steps(live, Ok(steps), out)
    }

    pub(super) fn demand_put(
        &mut self,
        live: &mut Live,
        object: ObjectId,
        kept: bool,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(demand) = &mut live.demand else { return Ok(()) };
        let steps = demand.fetcher.put(object, kept, now);
        self.demand_steps(live, steps, out)
    }

    pub(super) fn take_demanded(
        &mut self,
        live: &mut Live,
        frame: Frame,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(demand) = &mut live.demand else { return Ok(()) };
        let steps = match frame {
            Frame::Content(content) => demand.fetcher.content(content, now),
            Frame::Manifest(manifest) => demand.fetcher.manifest(manifest, now),
            _ => Ok(Vec::new()),
        };
        self.demand_steps(live, steps, out)
    }

    /// Asks for as much as may be under way, and tells what cannot be had.
    pub(super) fn go_on_demanding(
        &mut self,
        live: &mut Live,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Done {
        let Some(demand) = &mut live.demand else { return Ok(()) };
        let mut steps = demand.fetcher.tick(now);
        if let Ok(steps) = &mut steps {
            steps.extend(demand.fetcher.pump());
        }
        out.extend(demand.fetcher.take_missing().into_iter().map(Effect::NotToBeHad));
        self.demand_steps(live, steps, out)?;
        if live.demand.as_ref().is_some_and(|demand| demand.fetcher.is_done()) {
            live.demand = None;
        }
        Ok(())
    }

    fn demand_steps(
        &mut self,
        live: &mut Live,
        steps: Result<Vec<Step>, Trouble>,
        out: &mut Vec<Effect>,
    ) -> Done {
        for step in steps.map_err(|trouble| Fault(trouble.to_string()))? {
            out.push(match step {
                Step::Send(frame) => Effect::Send(frame),
                Step::Put(object, bytes) => Effect::PutContent { object, bytes },
                Step::Assemble { object, size, pieces } => {
                    Effect::PutPieces { object, size, pieces }
                }
                Step::Check { pieces, .. } => {
                    let id = self.id();
                    if let Some(demand) = &mut live.demand {
                        demand.asked = Some(id);
                    }
                    Effect::HasContents { id, objects: pieces }
                }
            });
        }
        Ok(())
    }
}
