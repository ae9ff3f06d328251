//! A workspace's history into a bucket: contents, then records, then the head that makes them count.
//!
//! Several homes may use one place, and one of them may be collecting garbage. So what a push needs is
//! listed in the bucket before it trusts that anything is there, and what was doomed meanwhile is written
//! again before the head is.

use std::collections::{BTreeSet, HashSet};

use chronicle_core::{Alone, Error, Head, ObjectId, Position, Seq, Stop, Time, Workspace};

use crate::blob::{Blob, key_of, undecodable};
use crate::error::Cause;
use crate::log_head::{HeadName, LogHead, SegmentRef};
use crate::pack::PackName;
use crate::store::RemoteStore;
use crate::writer::Written;

/// Bytes of records in a run, before they are compressed.
const SEGMENT: usize = 8 << 20;
/// Runs are joined until they are so long, compressed.
const JOINED: u64 = 4 << 20;
/// How often a head is looked for again that was replaced while it was read.
const ROUNDS: usize = 8;

/// Who pushes, and how.
pub struct PushOptions<'a> {
    /// Tells the homes that use a place apart.
    pub home: [u8; 16],
    /// What people call the workspace.
    pub title: String,
    /// The time that is noted.
    pub time: Time,
    /// Called now and then with how many objects are there, of how many.
    pub progress: &'a dyn Fn(u64, u64),
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// How far the place has the history now.
    pub head: Head,
    /// Records that were not there before.
    pub records: u64,
    /// What was written.
    pub written: Written,
    /// Contents that the history names and that are not here any more, so that they are not there.
    pub missing: Vec<ObjectId>,
    /// Older records were written anew, since history was taken away from them.
    pub rewritten: bool,
}

impl RemoteStore {
    /// Brings a history into the bucket, or what is new of it.
    pub fn push(&self, workspace: &Workspace, options: &PushOptions<'_>) -> Result<Pushed, Error> {
        let Position { workspace: id, epoch, .. } = workspace.position()?;
        let before = self.newest_head(id, epoch)?;
        let there = before.as_ref().map(|(_, head)| head);
        let has = there.map_or(Head::EMPTY, |there| there.head);
        let standing = workspace.standing(there.and_then(|there| Some(there.standing?.0)))?;
        // Read after what stands, so that no record is missing that tells of it.
        let position = workspace.position()?;
        if has.seq > position.head.seq || workspace.link_at(has.seq)? != has {
            return Err(Error::Stopped(Stop::Diverged(self.bucket().place().to_owned())));
        }
        let rewritten = workspace.was_rewritten_after(has.seq)? && has != Head::EMPTY;
        let mut pushed = Pushed {
            head: position.head,
            records: position.head.seq.0 - has.seq.0,
            written: Written::default(),
            missing: Vec::new(),
            rewritten,
        };
        let mark = self.keys().newest_mark().unwrap_or_default();
        let is_old = |there: &LogHead| there.segments.iter().any(|segment| segment.mark != mark);
        if pushed.records == 0 && standing.is_none() && !there.is_some_and(is_old) {
            return Ok(pushed);
        }
        let mut objects = workspace.objects_between(has.seq, position.head.seq)?;
        objects.extend(standing.iter().flat_map(|standing| standing.objects()));
        let references = self.send(workspace, objects, options, &mut pushed)?;
        let of = id.hex();
        let standing = match &standing {
            Some(standing) => {
                Some((standing.seq, self.put_blob(Blob::Standing, &of, "", &standing.encode())?))
            }
            None => there.and_then(|there| there.standing),
        };
        let segments = self.write_segments(workspace, there, position.head.seq, rewritten)?;
        let head = LogHead {
            workspace: id,
            epoch,
            head: position.head,
            baseline: position.baseline,
            time: options.time,
            title: options.title.clone(),
            segments,
            standing,
        };
        self.publish(&head, before.as_ref())?;
        references.iter().try_for_each(|key| self.bucket().delete(key))?;
        Ok(pushed)
    }

    /// Brings contents into the bucket; gives the keys of the lists that keep them from being collected.
    fn send(
        &self,
        workspace: &Workspace,
        objects: Vec<ObjectId>,
        options: &PushOptions<'_>,
        pushed: &mut Pushed,
    ) -> Result<Vec<String>, Error> {
        let mut seen = HashSet::new();
        let mut needed = Vec::new();
        for id in objects {
            if seen.insert(id) {
                let pieces = workspace.pieces_of(&id)?;
                needed.extend(pieces.into_iter().filter(|piece| seen.insert(*piece)));
                needed.push(id);
            }
        }
        let of = chronicle_core::to_hex(&options.home);
        let before = format!("{}-", workspace.id().hex());
        let directory = format!("{}/{of}", Blob::References.directory());
        // Those that an earlier push left, which did not come to its end.
        let old = self.bucket().list(&directory)?.into_iter().map(|listed| listed.key);
        let mut keys: Vec<String> =
            old.filter(|key| key.starts_with(&format!("{directory}/{before}"))).collect();
        if needed.is_empty() {
            return Ok(keys);
        }
        let list: Vec<u8> = needed.iter().flat_map(|id| id.0).collect();
        let name = self.put_blob(Blob::References, &of, &before, &list)?;
        keys.push(key_of(Blob::References, &of, &before, &name));
        let mut doomed = self.doomed()?;
        loop {
            self.set_doomed(doomed.clone());
            self.refresh()?;
            self.send_missing(workspace, &needed, options, pushed)?;
            // Whoever dooms a pack after this has seen what is needed.
            let again = self.doomed()?;
            if again.is_subset(&doomed) {
                return Ok(keys);
            }
            doomed.extend(again);
        }
    }

    fn send_missing(
        &self,
        workspace: &Workspace,
        needed: &[ObjectId],
        options: &PushOptions<'_>,
        pushed: &mut Pushed,
    ) -> Result<(), Error> {
        let (total, mut done) = (needed.len() as u64, 0);
        let mut missing = BTreeSet::new();
        let mut known = 0;
        let unknown = needed.iter().filter(|id| {
            let is_known = self.is_known(id);
            known += u64::from(is_known);
            !is_known
        });
        let forms = unknown.filter_map(|id| {
            done += 1;
            (options.progress)(done, total);
            match workspace.alone(id) {
                Ok(Alone::Whole(stored) | Alone::Pieces(stored, _)) => Some(Ok((*id, stored))),
                // A history is worth keeping also where some of its content is lost.
                Err(Error::Missing(_) | Error::Corrupt { .. }) => {
                    missing.insert(*id);
                    None
                }
                Err(error) => Some(Err(error)),
            }
        });
        let written = self.write_all(forms)?;
        pushed.written.packs += written.packs;
        pushed.written.objects += written.objects;
        pushed.written.known += known;
        pushed.missing = missing.into_iter().collect();
        Ok(())
    }

    /// Writes the runs of records that are new or not what they were.
    fn write_segments(
        &self,
        workspace: &Workspace,
        there: Option<&LogHead>,
        last: Seq,
        rewritten: bool,
    ) -> Result<Vec<SegmentRef>, Error> {
        let (mut segments, mark) = (Vec::new(), self.keys().newest_mark().unwrap_or_default());
        for old in there.map_or(&[][..], |there| &there.segments) {
            match rewritten || old.mark != mark {
                true => {
                    let after = Seq(old.first.0 - 1);
                    self.write_run(workspace, after, old.last, Some(old), &mut segments)?;
                }
                false => segments.push(*old),
            }
        }
        let mut after = segments.last().map_or(Seq(0), |segment| segment.last);
        if after >= last {
            return Ok(segments);
        }
        // Short runs at the end become one with what is new: each record is written again a few times at
        // most, and a history of many short pushes is still few runs.
        let mut length = workspace.segment(after, last, SEGMENT)?.encode().len() as u64;
        while let Some(short) =
            segments.pop_if(|s| s.length <= 2 * length && s.length + length < JOINED)
        {
            length += short.length;
            after = Seq(short.first.0 - 1);
        }
        self.write_run(workspace, after, last, None, &mut segments)?;
        Ok(segments)
    }

    fn write_run(
        &self,
        workspace: &Workspace,
        mut after: Seq,
        last: Seq,
        old: Option<&SegmentRef>,
        segments: &mut Vec<SegmentRef>,
    ) -> Result<(), Error> {
        while after < last {
            let segment = workspace.segment(after, last, SEGMENT)?;
            let (bytes, end) = (segment.encode(), segment.head().seq);
            let digest = *blake3::hash(&bytes).as_bytes();
            let mark = self.keys().newest_mark().unwrap_or_default();
            let written = match old.filter(|old| old.digest == digest && old.mark == mark) {
                Some(old) => *old,
                None => SegmentRef {
                    first: after.next(),
                    last: end,
                    length: bytes.len() as u64,
                    digest,
                    mark,
                    name: self.put_blob(Blob::Segment, &workspace.id().hex(), "", &bytes)?,
                },
            };
            segments.push(written);
            after = end;
        }
        Ok(())
    }

    /// Writes the head, by which everything before it counts, and takes away what it replaces.
    pub(crate) fn publish(
        &self,
        head: &LogHead,
        before: Option<&(HeadName, LogHead)>,
    ) -> Result<(), Error> {
        let of = head.workspace.hex();
        let generation = match before {
            Some((name, _)) if name.seq == head.head.seq => name.generation + 1,
            _ => 0,
        };
        let prefix = HeadName::before(head.epoch, head.head.seq, generation);
        let name = self.put_blob(Blob::Head, &of, &prefix, &head.encode())?;
        let Some((old_name, old)) = before else { return Ok(()) };
        if old_name.name != name {
            self.bucket().delete(&old_name.key())?;
        }
        let kept: HashSet<_> = head.segments.iter().map(|segment| segment.name).collect();
        for segment in old.segments.iter().filter(|segment| !kept.contains(&segment.name)) {
            self.bucket().delete(&key_of(Blob::Segment, &of, "", &segment.name))?;
        }
        match (old.standing, head.standing) {
            (Some((_, old)), new) if new.is_none_or(|(_, new)| new != old) => {
                Ok(self.bucket().delete(&key_of(Blob::Standing, &of, "", &old))?)
            }
            _ => Ok(()),
        }
    }

    /// The head of one life of a log that goes furthest, if there is any.
    pub(crate) fn newest_head(
        &self,
        workspace: chronicle_core::WorkspaceId,
        epoch: chronicle_core::Epoch,
    ) -> Result<Option<(HeadName, LogHead)>, Error> {
        for _ in 0..ROUNDS {
            let names = self.head_names(&workspace.hex())?;
            let of_epoch = names.into_iter().filter(|name| name.epoch == epoch);
            let Some(name) = of_epoch.max_by_key(|name| (name.seq, name.generation)) else {
                return Ok(None);
            };
            if let Some(head) = self.read_head(&name)? {
                return Ok(Some((name, head)));
            }
        }
        Err(Error::Busy(format!(
            "others keep writing the same history to {}",
            self.bucket().place()
        )))
    }

    /// The names of all heads below a directory of `heads/`.
    pub(crate) fn head_names(&self, of: &str) -> Result<Vec<HeadName>, Error> {
        let directory = format!("{}/{of}", Blob::Head.directory());
        let listed = self.bucket().list(directory.trim_end_matches('/'))?;
        Ok(listed.iter().filter_map(|listed| HeadName::parse(&listed.key)).collect())
    }

    /// Reads a head; `None` if it was replaced since it was listed.
    pub(crate) fn read_head(&self, name: &HeadName) -> Result<Option<LogHead>, Error> {
        let before = HeadName::before(name.epoch, name.seq, name.generation);
        let (bytes, _) = match self.get_blob(Blob::Head, &name.workspace.hex(), &before, &name.name)
        {
            Err(error) if error.cause == Cause::Missing => return Ok(None),
            read => read?,
        };
        let damaged = |why: &dyn std::fmt::Display| undecodable(self, &name.key(), why);
        let head = LogHead::decode(&bytes).map_err(|why| damaged(&why))?;
        match (head.workspace, head.epoch, head.head.seq) == (name.workspace, name.epoch, name.seq)
        {
            true => Ok(Some(head)),
            false => Err(damaged(&"it is of another log")),
        }
    }

    /// The packs that somebody means to take away: nothing new may count on them.
    fn doomed(&self) -> Result<HashSet<PackName>, Error> {
        Ok(self.marks()?.into_iter().flat_map(|mark| mark.packs).collect())
    }
}
