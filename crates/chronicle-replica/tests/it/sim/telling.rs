//! Small things around a world: what is told of it, and the hands of the people in it.

use chronicle_core::replica::{Verdict, Version};
use chronicle_core::{ObjectId, WorkspacePath};
use chronicle_replica::wire::{Frame, Outcome, ResyncReason};
use chronicle_testing::dice::Dice;

use super::disk;
use super::edits;
use super::oracle::Oracle;
use super::replica::Replica;
use super::store::Store;

/// Directories that hold what the host has nothing to do with: they stay, whatever it does to them.
pub fn held(replica: &Replica) -> Vec<WorkspacePath> {
    let filter = &replica.filters.push;
    let known = &replica.store.known;
    let kept =
        known.iter().filter(|(path, version)| filter.is_filtered(path, version.is_directory()));
    kept.flat_map(|(path, _)| path.ancestors()).collect()
}

pub fn name(who: Option<usize>) -> String {
    who.map_or("host".to_owned(), |who| format!("sandbox {who}"))
}

pub fn kind(frame: &Frame) -> &'static str {
    match frame {
        Frame::Push(push) if push.part > 0 => "later part of a push",
        Frame::WriteBackResult(result) => match &result.outcome {
            Outcome::Renumber(_) => "renumber",
            Outcome::Verdicts(verdicts)
                if verdicts.iter().any(|it| matches!(it, Verdict::Rejected { .. })) =>
            {
                "rejection"
            }
            Outcome::Verdicts(_) => "acceptance",
        },
        Frame::FullResyncRequired(required) => match required.why {
            ResyncReason::TooOld => "resync of who is too old",
            ResyncReason::Epoch => "resync of another life",
            ResyncReason::Filters => "resync for filters",
        },
        Frame::CatchupRequest(_) => "catch-up",
        Frame::TreeListing(_) => "listing",
        Frame::Content(_) => "content",
        Frame::Missing(_) => "missing",
        Frame::Goodbye(_) => "goodbye",
        _ => "anything else",
    }
}

pub fn brief(frame: &Frame) -> String {
    let mut words = format!("{frame:?}");
    if words.len() > 400 {
        let mut end = 400;
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        words.truncate(end);
    }
    words
}

/// Lets somebody work on a side's disk.
pub fn work<N: Clone>(
    store: &mut Store<N>,
    serial: &mut u64,
    dice: &mut Dice,
    oracle: &mut Oracle,
) -> String {
    let contents = |object: &ObjectId| store.content(object).cloned();
    let before = store.disk.live.clone();
    let edit = edits::edit(&before, &contents, serial, dice);
    for content in edit.contents {
        store.keep(content);
    }
    for (path, version) in &edit.puts {
        store.disk.put(path, version, true);
    }
    store.moves.extend(edit.moves);
    let meant = disk::differing(&before, &store.disk.live);
    for path in meant {
        let version: Version = disk::at(&store.disk.live, &path);
        oracle.made(&path, &version);
    }
    if dice.chance(60) {
        store.disk.sync();
    }
    edit.words
}
