//! A store that fails on command, as those behind a network do.

use std::io::{Cursor, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chronicle_core::{ContentStorage, Error, ObjectId, Result, SealedStorage};

/// What goes wrong behind a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What is read has another hash.
    WrongBytes,
    /// What is read ends early, and nothing says so.
    Truncated,
    /// The next write is carried out and yet fails, and the next read fails; then it is over.
    LostAnswer,
    /// The next two requests are refused because there are too many.
    Throttled,
    /// The credentials were valid once.
    Expired,
    /// The clock is wrong.
    ClockSkew,
    /// There is no bucket any more.
    Gone,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::WrongBytes,
        Self::Truncated,
        Self::LostAnswer,
        Self::Throttled,
        Self::Expired,
        Self::ClockSkew,
        Self::Gone,
    ];

    /// Whether trying again helps.
    pub fn passes(self) -> bool {
        matches!(self, Self::LostAnswer | Self::Throttled)
    }

    /// Whether every question fails for as long as it lasts.
    pub fn refuses(self) -> bool {
        matches!(self, Self::Expired | Self::ClockSkew | Self::Gone)
    }

    /// What whoever hears of it must be told, among other things.
    pub fn says(self) -> &'static str {
        match self {
            Self::WrongBytes | Self::Truncated | Self::LostAnswer => "",
            Self::Throttled => "slow",
            Self::Expired => "expired",
            Self::ClockSkew => "clock",
            Self::Gone => "does not exist",
        }
    }

    fn error(self) -> Error {
        let (kind, words) = match self {
            Self::WrongBytes | Self::Truncated => (ErrorKind::InvalidData, "it is damaged"),
            Self::LostAnswer => (ErrorKind::ConnectionReset, "the connection was cut"),
            Self::Throttled => (ErrorKind::ResourceBusy, "slow down"),
            Self::Expired => (ErrorKind::PermissionDenied, "the credentials have expired"),
            Self::ClockSkew => (ErrorKind::PermissionDenied, "the clocks differ too much"),
            // Of all kinds the one that is most easily taken for a missing object.
            Self::Gone => (ErrorKind::NotFound, "the bucket does not exist"),
        };
        let source = std::io::Error::new(kind, words);
        Error::Io { action: "use", path: PathBuf::from("(far away)"), source }
    }
}

/// Something whose faults a test begins and ends.
pub trait Faults {
    /// From now on this goes wrong, and nothing else.
    fn begin(&self, fault: Fault);

    /// Nothing goes wrong any more.
    fn end(&self);
}

/// A store that fails on command.
#[derive(Default)]
pub struct Faulty<S> {
    store: S,
    /// What goes wrong, and how many requests it still hits.
    fault: Mutex<Option<(Fault, usize)>>,
}

impl<S> Faulty<S> {
    /// Nothing goes wrong until it is told to.
    pub fn new(store: S) -> Self {
        Self { store, fault: Mutex::new(None) }
    }

    /// The store itself, in which nothing goes wrong.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn fault(&self) -> MutexGuard<'_, Option<(Fault, usize)>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that hits this request.
    fn next(&self) -> Option<Fault> {
        let mut fault = self.fault();
        let (now, left) = fault.as_mut().filter(|(_, left)| *left > 0)?;
        *left -= usize::from(now.passes());
        Some(*now)
    }

    fn read<T>(
        &self,
        read: impl FnOnce() -> Result<T>,
        spoil: impl FnOnce(T, Fault) -> T,
    ) -> Result<T> {
        match self.next() {
            None => read(),
            Some(fault @ (Fault::WrongBytes | Fault::Truncated)) => Ok(spoil(read()?, fault)),
            Some(fault) => Err(fault.error()),
        }
    }

    fn write<T>(&self, write: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.next() {
            None | Some(Fault::WrongBytes | Fault::Truncated) => write(),
            Some(Fault::LostAnswer) => {
                write()?;
                Err(Fault::LostAnswer.error())
            }
            Some(fault) => Err(fault.error()),
        }
    }
}

impl<S> Faults for Faulty<S> {
    fn begin(&self, fault: Fault) {
        let times = match fault {
            Fault::LostAnswer => 1,
            Fault::Throttled => 2,
            _ => usize::MAX,
        };
        *self.fault() = Some((fault, times));
    }

    fn end(&self) {
        *self.fault() = None;
    }
}

impl<S: Faults + ?Sized> Faults for std::sync::Arc<S> {
    fn begin(&self, fault: Fault) {
        (**self).begin(fault);
    }

    fn end(&self) {
        (**self).end();
    }
}

fn spoil(mut bytes: Vec<u8>, fault: Fault) -> Vec<u8> {
    let half = bytes.len() / 2;
    match (fault, bytes.get_mut(half)) {
        (Fault::Truncated, Some(_)) => bytes.truncate(half),
        (_, Some(byte)) => *byte ^= 1,
        (_, None) => bytes.push(7),
    }
    bytes
}

impl<S: ContentStorage> ContentStorage for Faulty<S> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.read(|| self.store.get(id), spoil)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.write(|| self.store.put(id, bytes))
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.read(|| self.store.exists(id), |there, _| there)
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.write(|| self.store.delete(id))
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        match self.next() {
            None => self.store.reader(id),
            Some(Fault::Throttled) => Err(Fault::Throttled.error()),
            Some(fault) if fault.refuses() => Err(fault.error()),
            Some(Fault::LostAnswer) => {
                let mut bytes = self.store.get(id)?;
                bytes.truncate(bytes.len() / 2);
                Ok(Box::new(Cursor::new(bytes).chain(Cut)))
            }
            Some(fault) => Ok(Box::new(Cursor::new(spoil(self.store.get(id)?, fault)))),
        }
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        self.write(|| self.store.put_stream(source))
    }
}

impl<S: SealedStorage> SealedStorage for Faulty<S> {
    fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>> {
        self.read(|| self.store.get_sealed(name), spoil)
    }

    fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()> {
        self.write(|| self.store.put_sealed(name, form))
    }
}

/// A connection that ends in the middle.
struct Cut;

impl Read for Cut {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(ErrorKind::ConnectionReset.into())
    }
}
