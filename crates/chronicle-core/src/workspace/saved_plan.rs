//! Plans that were shown: kept with their request, and applied only if they still mean the same.

use super::Workspace;
use super::rewind::{GitChoice, Planned, RewindKind, RewindRequest};
use crate::codec::{DecodeError, Decoder, Encoder, encode_entry};
use crate::error::{Error, Result};
use crate::id::{ObjectId, Time};
use crate::plan::{Draft, OnConflict};
use crate::view::EffectView;

/// How long a plan that was shown can be applied.
const PLAN_LIFE_NS: i64 = 7 * 86_400 * 1_000_000_000;

impl Workspace {
    pub(super) fn with_saved_plan(
        &self,
        request: &RewindRequest,
    ) -> Result<(RewindRequest, Option<ObjectId>)> {
        let RewindKind::Plan { id } = &request.kind else { return Ok((request.clone(), None)) };
        let mut plans = self.catalog.plans()?;
        plans.retain(|(plan, _)| super::moment::fits(&plan.hex(), id));
        match &plans[..] {
            [(_, bytes)] => {
                let unreadable = |_| Error::UnknownTarget(format!("plan {id}"));
                let (mut saved, digest) = decode_request(bytes).map_err(unreadable)?;
                saved.wait = request.wait;
                Ok((saved, Some(digest)))
            }
            [] => Err(Error::UnknownTarget(format!("plan {id}"))),
            _ => Err(Error::Ambiguous {
                given: id.clone(),
                candidates: plans.iter().map(|(plan, _)| plan.short()).collect(),
            }),
        }
    }

    pub(super) fn save_plan(&self, request: &RewindRequest, planned: &Planned) -> Result<()> {
        let mut request = request.clone();
        if let RewindKind::Rewind { target } = &mut request.kind
            && self.moment(target)?.session.is_none()
        {
            // A span back from now means another moment when the plan is applied.
            let seq = planned.labels.target.map_or(0, |seq| seq.0);
            *target = format!("seq:{seq}");
        }
        let since = Time(self.now().0 - PLAN_LIFE_NS);
        let bytes = encode_request(&request, &planned.digest);
        self.catalog.keep_plan(&planned.id, self.now(), since, &bytes)
    }
}

/// Names a plan by what it would do, so that a plan that was shown is the one that is applied.
///
/// What cannot be taken back is a part of it: nobody goes back over more than was shown.
pub(super) fn digest(draft: &Draft, effects: &[EffectView]) -> ObjectId {
    let mut out = Encoder::default();
    for goal in &draft.goals {
        out.bytes(goal.path.as_bytes());
        encode_entry(&mut out, &goal.now);
        encode_entry(&mut out, &goal.then);
    }
    for step in &draft.moves {
        out.bytes(step.from.as_bytes());
        out.bytes(step.to.as_bytes());
    }
    for conflict in &draft.conflicts {
        out.bytes(conflict.path.as_bytes());
    }
    effects.iter().for_each(|effect| out.int(effect.seq));
    ObjectId::of(&out.0)
}

fn encode_request(request: &RewindRequest, digest: &ObjectId) -> Vec<u8> {
    let mut out = Encoder::default();
    out.fixed(&digest.0);
    let (tag, text) = match &request.kind {
        RewindKind::Rewind { target } => (0, Some(target)),
        RewindKind::Rollback { id } => (1, Some(id)),
        RewindKind::Undo { what } => (2, what.as_ref()),
        RewindKind::Redo => (3, None),
        RewindKind::Plan { id } => (4, Some(id)),
    };
    out.byte(tag);
    for text in [text, request.session.as_ref()] {
        out.byte(u8::from(text.is_some()));
        out.bytes(text.map_or(&[][..], |text| text.as_bytes()));
    }
    out.int(request.paths.len() as u64);
    request.paths.iter().for_each(|path| out.bytes(path.as_bytes()));
    out.int(request.hunks.len() as u64);
    for (path, hunks) in &request.hunks {
        out.bytes(path.as_bytes());
        out.int(hunks.len() as u64);
        hunks.iter().for_each(|hunk| out.int(*hunk as u64));
    }
    let flags = [
        request.exact,
        request.all_sessions,
        request.recreate_root,
        request.take_shared,
        request.touch,
    ];
    flags.iter().for_each(|flag| out.byte(u8::from(*flag)));
    out.byte(request.on_conflict as u8);
    out.byte(match request.git {
        None => 0,
        Some(GitChoice::Keep) => 1,
        Some(GitChoice::Restore) => 2,
    });
    out.0
}

fn decode_request(bytes: &[u8]) -> Result<(RewindRequest, ObjectId), DecodeError> {
    let mut input = Decoder(bytes);
    let digest = ObjectId(input.array()?);
    let tag = input.byte()?;
    let mut text = || -> Result<Option<String>, DecodeError> {
        let some = input.byte()? == 1;
        Ok(Some(input.text()?).filter(|_| some))
    };
    let (words, session) = (text()?, text()?);
    let given = words.clone().unwrap_or_default();
    let mut request = RewindRequest::new(match tag {
        0 => RewindKind::Rewind { target: given },
        1 => RewindKind::Rollback { id: given },
        2 => RewindKind::Undo { what: words },
        _ => RewindKind::Redo,
    });
    request.session = session;
    for _ in 0..input.count()? {
        request.paths.push(input.path()?);
    }
    for _ in 0..input.count()? {
        let path = input.path()?;
        let count = input.count()?;
        let hunks = (0..count).map(|_| Ok(input.int()? as usize)).collect::<Result<_, _>>()?;
        request.hunks.push((path, hunks));
    }
    let mut flag = || Ok::<_, DecodeError>(input.byte()? == 1);
    request.exact = flag()?;
    request.all_sessions = flag()?;
    request.recreate_root = flag()?;
    request.take_shared = flag()?;
    request.touch = flag()?;
    request.on_conflict = match input.byte()? {
        1 => OnConflict::KeepMine,
        2 => OnConflict::Replace,
        _ => OnConflict::Stop,
    };
    request.git = match input.byte()? {
        1 => Some(GitChoice::Keep),
        2 => Some(GitChoice::Restore),
        _ => None,
    };
    Ok((request, digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::WorkspacePath;

    #[test]
    fn mutated_requests() {
        let path = |text: &str| WorkspacePath::new(text).unwrap();
        let undo = RewindRequest {
            paths: vec![path("a"), path("b/c")],
            hunks: vec![(path("d"), vec![0, 7])],
            session: Some("s".to_owned()),
            exact: true,
            ..RewindRequest::new(RewindKind::Undo { what: Some("turn:2".to_owned()) })
        };
        let rewind = RewindRequest::new(RewindKind::Rewind { target: "start".to_owned() });
        let samples = [undo, rewind].map(|request| encode_request(&request, &ObjectId([7; 32])));
        crate::fuzz::target("request", &samples, |input| {
            let Ok((request, digest)) = decode_request(input) else { return false };
            let again = encode_request(&request, &digest);
            let (request, digest) = decode_request(&again).expect("what was read can be written");
            assert_eq!(encode_request(&request, &digest), again);
            true
        });
    }
}
