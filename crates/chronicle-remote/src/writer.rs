//! Gathers objects into packs, so that many small ones cost few requests.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, PoisonError};

use chronicle_core::{Error, ObjectId};

use crate::pack::{PackBuilder, STORED_MAX};
use crate::store::{RemoteStore, corrupt, not_taken};

/// What a writer wrote.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Packs, each with an index.
    pub packs: u64,
    /// Objects in them.
    pub objects: u64,
    /// Objects that were in the bucket already.
    pub known: u64,
}

/// Gathers objects in their stored form and writes a pack whenever one is full.
#[must_use = "what is not in a full pack is written by finish()"]
pub struct RemotePackWriter<'a> {
    store: &'a RemoteStore,
    pack: PackBuilder,
    gathered: HashSet<ObjectId>,
    written: Written,
}

impl<'a> RemotePackWriter<'a> {
    pub(crate) fn new(store: &'a RemoteStore) -> Self {
        let (pack, gathered) = (PackBuilder::new(), HashSet::new());
        Self { store, pack, gathered, written: Written::default() }
    }

    /// Takes an object; it is durable once its pack is full or the writer finished.
    pub fn add(&mut self, id: &ObjectId, stored: &[u8]) -> Result<(), Error> {
        if stored.is_empty() {
            return Err(corrupt(id, "its stored form is empty"));
        }
        if stored.len() > STORED_MAX {
            return Err(not_taken(ErrorKind::FileTooLarge.into()));
        }
        if self.gathered.contains(id) || self.store.is_known(id) {
            self.written.known += 1;
            return Ok(());
        }
        if !self.pack.has_room(stored.len()) {
            self.flush()?;
        }
        self.pack.add(*id, stored);
        self.gathered.insert(*id);
        Ok(())
    }

    /// Writes what is left and says how much it was; everything taken is durable on return.
    pub fn finish(mut self) -> Result<Written, Error> {
        self.flush()?;
        Ok(self.written)
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.pack.is_empty() {
            return Ok(());
        }
        let objects = self.pack.count() as u64;
        self.store.upload(std::mem::replace(&mut self.pack, PackBuilder::new()))?;
        self.gathered.clear();
        self.written.packs += 1;
        self.written.objects += objects;
        Ok(())
    }
}

/// Packs that wait to be sent, so that the next is gathered meanwhile.
const WAITING: usize = 2;
/// Packs that are under way at a time.
const SENDERS: usize = 3;

impl RemoteStore {
    /// Writes many objects, each in its stored form; packs are sealed and sent while the next is gathered.
    ///
    /// What is in the bucket already is left out by who knows it. Everything is durable on return.
    pub fn write_all(
        &self,
        objects: impl Iterator<Item = Result<(ObjectId, Vec<u8>), Error>>,
    ) -> Result<Written, Error> {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<PackBuilder>(WAITING);
        let receiver = Mutex::new(receiver);
        let failed = AtomicBool::new(false);
        let send = || -> Result<(), Error> {
            loop {
                let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(pack) = next else { return Ok(()) };
                // After a failure the rest is only taken, so that nobody waits for it to be.
                if !failed.load(Ordering::Acquire) {
                    self.upload(pack).inspect_err(|_| failed.store(true, Ordering::Release))?;
                }
            }
        };
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send)).collect();
            let gathered = gather(objects, &sender, &failed);
            drop(sender);
            let results: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
            for result in results {
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            gathered
        })
    }
}

fn gather(
    objects: impl Iterator<Item = Result<(ObjectId, Vec<u8>), Error>>,
    sender: &SyncSender<PackBuilder>,
    failed: &AtomicBool,
) -> Result<Written, Error> {
    let (mut pack, mut written) = (PackBuilder::new(), Written::default());
    let mut hand_over = |pack: PackBuilder| {
        written.packs += 1;
        written.objects += pack.count() as u64;
        // Nobody takes it only where all have failed, and they say why.
        let _ = sender.send(pack);
    };
    for object in objects {
        let (id, stored) = object?;
        if stored.is_empty() || stored.len() > STORED_MAX {
            return Err(not_taken(ErrorKind::FileTooLarge.into()));
        }
        if !pack.has_room(stored.len()) {
            hand_over(std::mem::replace(&mut pack, PackBuilder::new()));
        }
        pack.add(id, &stored);
        if failed.load(Ordering::Acquire) {
            break;
        }
    }
    if !pack.is_empty() {
        hand_over(pack);
    }
    Ok(written)
}
