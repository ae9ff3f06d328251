//! What failed in a way that may pass is tried again, within bounds.

use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::local::read_start;
use super::verified::Hashing;
use super::{ContentStorage, LARGE_OBJECT, SealedStorage};
use crate::error::{Error, Result};
use crate::id::ObjectId;

/// Which failures may pass, and how often and how long they are waited out; whichever bound is
/// reached first ends it.
pub struct Retries {
    /// How often something is tried, the first time included.
    pub tries: u32,
    /// The time after which nothing is tried again, pauses included.
    pub total: Duration,
    /// Whether a failure may pass by itself.
    pub may_pass: Box<dyn Fn(&Error) -> bool + Send + Sync>,
    /// How long to wait after so many failures.
    pub pause: Box<dyn Fn(u32) -> Duration + Send + Sync>,
    /// Waits; a test only notes it.
    pub sleep: Box<dyn Fn(Duration) + Send + Sync>,
}

impl Default for Retries {
    /// Five times within half a minute, after pauses that double from a tenth of a second.
    fn default() -> Self {
        Self {
            tries: 5,
            total: Duration::from_secs(30),
            may_pass: Box::new(may_pass),
            pause: Box::new(|failures| Duration::from_millis(100) * 2_u32.pow(failures.min(6) - 1)),
            sleep: Box::new(std::thread::sleep),
        }
    }
}

/// A line that was cut, and somebody who is busy. Whatever else the other side said, it will say again.
fn may_pass(error: &Error) -> bool {
    use io::ErrorKind as Kind;
    match error {
        Error::Busy(_) => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            Kind::BrokenPipe
                | Kind::ConnectionAborted
                | Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::HostUnreachable
                | Kind::Interrupted
                | Kind::NetworkDown
                | Kind::NetworkUnreachable
                | Kind::NotConnected
                | Kind::ResourceBusy
                | Kind::TimedOut
                | Kind::UnexpectedEof
                | Kind::WouldBlock
        ),
        _ => false,
    }
}

/// A store that is asked again where a failure may pass.
///
/// A put that failed may have been carried out all the same: before it is repeated the store is asked,
/// and what it has is read back. A long stream cannot be taken in twice; it counts as kept only if it is
/// found there whole. It is not checked here whether bytes are right: [`super::Verified`] goes around this.
pub struct Retrying<S> {
    store: S,
    retries: Retries,
}

/// One thing that is tried until it succeeds or the bounds are reached.
struct Attempts<'r> {
    retries: &'r Retries,
    begun: Instant,
    /// Counted too, since a test's pauses take no time.
    slept: Duration,
    failures: u32,
}

impl<'r> Attempts<'r> {
    fn new(retries: &'r Retries) -> Self {
        Self { retries, begun: Instant::now(), slept: Duration::ZERO, failures: 0 }
    }

    /// Waits if it is worth another try; otherwise gives the failure back.
    fn failed(&mut self, error: Error) -> Result<()> {
        self.failures += 1;
        if self.failures >= self.retries.tries || !(self.retries.may_pass)(&error) {
            return Err(error);
        }
        let pause = (self.retries.pause)(self.failures);
        if self.begun.elapsed().max(self.slept) + pause > self.retries.total {
            return Err(error);
        }
        self.slept += pause;
        (self.retries.sleep)(pause);
        Ok(())
    }
}

impl<S> Retrying<S> {
    /// Asks this store again, as far as these bounds allow.
    pub fn new(store: S, retries: Retries) -> Self {
        Self { store, retries }
    }

    /// The store itself.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn attempt<'s, T>(&'s self, mut ask: impl FnMut(&'s S) -> Result<T>) -> Result<T> {
        let mut attempts = Attempts::new(&self.retries);
        loop {
            match ask(&self.store) {
                Err(error) => attempts.failed(error)?,
                done => return done,
            }
        }
    }

    /// Puts, and after a failure first looks whether it was carried out all the same.
    fn write(
        &self,
        put: impl Fn(&S) -> Result<()>,
        is_kept: impl Fn(&S) -> Result<bool>,
    ) -> Result<()> {
        let mut first = true;
        self.attempt(|store| {
            if !std::mem::take(&mut first) && is_kept(store)? {
                return Ok(());
            }
            put(store)
        })
    }
}

impl<S: ContentStorage> Retrying<S> {
    fn holds(store: &S, id: &ObjectId, bytes: &[u8]) -> Result<bool> {
        if !store.exists(id)? {
            return Ok(false);
        }
        match store.get(id) {
            // What was there may be the damaged one that this put was to replace.
            Err(Error::Corrupt { .. } | Error::Missing(_)) => Ok(false),
            read => Ok(read? == bytes),
        }
    }

    /// Whether a long object is there whole.
    fn holds_stream(&self, id: &ObjectId, length: u64) -> bool {
        let read = || -> Result<bool> {
            if !self.exists(id)? {
                return Ok(false);
            }
            let mut hashing = Hashing::new(self.reader(id)?);
            let read = io::copy(&mut hashing, &mut io::sink());
            Ok(read.is_ok() && hashing.so_far() == (*id, length))
        };
        read().unwrap_or(false)
    }
}

impl<S: ContentStorage> ContentStorage for Retrying<S> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        self.attempt(|store| store.get(id))
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        self.write(|store| store.put(id, bytes), |store| Self::holds(store, id, bytes))
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.attempt(|store| store.exists(id))
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.attempt(|store| store.delete(id))
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        let source = self.attempt(|store| store.reader(id))?;
        Ok(Box::new(Resuming { retrying: self, id: *id, source, given: 0 }))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let start = read_start(source)?;
        if start.len() <= LARGE_OBJECT {
            let id = ObjectId::of(&start);
            self.put(&id, &start)?;
            return Ok((id, start.len() as u64));
        }
        let mut hashing = Hashing::new(start.as_slice().chain(source));
        let error = match self.store.put_stream(&mut hashing) {
            Err(error) => error,
            kept => return kept,
        };
        let (id, length) = hashing.so_far();
        let ambiguous = hashing.is_at_end() && (self.retries.may_pass)(&error);
        if ambiguous && self.holds_stream(&id, length) { Ok((id, length)) } else { Err(error) }
    }

    fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.attempt(|store| store.drop_copy(id))
    }
}

impl<S: SealedStorage> SealedStorage for Retrying<S> {
    fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>> {
        self.attempt(|store| store.get_sealed(name))
    }

    fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()> {
        let is_kept = |store: &S| match store.get_sealed(name) {
            Err(Error::Corrupt { .. } | Error::Missing(_)) => Ok(false),
            read => Ok(read? == form),
        };
        self.write(|store| store.put_sealed(name, form), is_kept)
    }
}

/// A stream that goes on where it was cut: an object's bytes are the same every time.
struct Resuming<'s, S> {
    retrying: &'s Retrying<S>,
    id: ObjectId,
    source: Box<dyn Read + Send + 's>,
    given: u64,
}

impl<S: ContentStorage> Resuming<'_, S> {
    fn resume(&mut self) -> Result<()> {
        let id = self.id;
        let mut source = self.retrying.store.reader(&id)?;
        let skipped = io::copy(&mut source.by_ref().take(self.given), &mut io::sink());
        if skipped.map_err(|error| read_error(&id, error))? < self.given {
            return Err(read_error(&id, io::ErrorKind::UnexpectedEof.into()));
        }
        self.source = source;
        Ok(())
    }
}

impl<S: ContentStorage> Read for Resuming<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut attempts = Attempts::new(&self.retrying.retries);
        loop {
            let failure = match self.source.read(buffer) {
                Ok(count) => {
                    self.given += count as u64;
                    return Ok(count);
                }
                // What was given already may have been the damaged part.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                Err(error) => error,
            };
            let mut failure = read_error(&self.id, failure);
            loop {
                attempts.failed(failure).map_err(into_io)?;
                match self.resume() {
                    Err(error) => failure = error,
                    Ok(()) => break,
                }
            }
        }
    }
}

fn read_error(id: &ObjectId, source: io::Error) -> Error {
    Error::Io { action: "read", path: PathBuf::from(id.hex()), source }
}

fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        Error::Corrupt { why, .. } => io::Error::new(io::ErrorKind::InvalidData, why),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn noting(tries: u32, total: u64) -> (Retries, Arc<Mutex<Vec<u64>>>) {
        let slept: Arc<Mutex<Vec<u64>>> = Arc::default();
        let note = Arc::clone(&slept);
        let sleep = move |pause: Duration| note.lock().unwrap().push(pause.as_millis() as u64);
        let total = Duration::from_millis(total);
        (Retries { tries, total, sleep: Box::new(sleep), ..Retries::default() }, slept)
    }

    fn cut() -> Error {
        read_error(&ObjectId::of(b""), io::ErrorKind::ConnectionReset.into())
    }

    #[track_caller]
    fn check(retries: (Retries, Arc<Mutex<Vec<u64>>>), error: fn() -> Error, pauses: &[u64]) {
        let mut attempts = Attempts::new(&retries.0);
        while attempts.failed(error()).is_ok() {}
        assert_eq!(*retries.1.lock().unwrap(), pauses);
    }

    #[test]
    fn attempts_end_by_number_by_time_and_at_what_does_not_pass() {
        check(noting(4, 30_000), cut, &[100, 200, 400]);
        check(noting(100, 1000), cut, &[100, 200, 400]);
        check(noting(1, 1000), cut, &[]);
        check(noting(9, 9000), || Error::Missing(ObjectId::of(b"")), &[]);
        check(
            noting(9, 9000),
            || read_error(&ObjectId::of(b""), io::ErrorKind::NotFound.into()),
            &[],
        );
    }
}
