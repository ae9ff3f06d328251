//! A place in a bucket: a few operations over keys whose bytes never change.
//!
//! Because they never change, everything may be repeated: a put whose answer was lost is put again, and
//! nothing here depends on conditional requests, which not every server honours.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::answer::{ANSWER_MAX, Answer, noting};
use crate::error::{Cause, Failure, RemoteError, Result};
use crate::options::{BucketOptions, parse_url};
use crate::patience::{Attempts, Patience};
use crate::random::random_bytes;

/// Longer bytes than this are put in several requests, of this length each.
pub const MULTIPART: usize = 8 << 20;

/// How many of these requests are under way at once.
const PARTS_AT_ONCE: usize = 4;

/// The longest key, prefix included.
const KEY_MAX: usize = 512;

/// The most keys that one listing gives.
const LIST_MAX: usize = 1 << 20;

/// What a server does with a put that must not overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionalPut {
    /// It refuses the second.
    Honoured,
    /// It overwrites, or does not know such a put.
    Ignored,
}

/// A key that a listing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The key, below the place.
    pub key: String,
    /// How many bytes it has.
    pub length: u64,
}

/// A place in a bucket; cheap to clone, and blocking, so not to be used inside a runtime.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    store: Arc<dyn ObjectStore>,
    place: String,
    prefix: String,
    patience: Patience,
    runtime: Runtime,
    /// Told of every operation before it begins, so that a test can do something at that very moment.
    observe: Option<Observer>,
}

/// Told of an operation: the verb and the key.
type Observer = Box<dyn Fn(&str, &str) + Send + Sync>;

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bucket").field(&self.0.place).finish()
    }
}

/// A failed attempt: by the store, or by what it gave.
enum Trouble {
    Store(object_store::Error),
    Own(Failure),
}

impl From<object_store::Error> for Trouble {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Own(failure)
    }
}

type Attempt<T> = std::result::Result<T, Trouble>;

impl Bucket {
    /// The place that `s3://bucket/prefix` names; nothing is sent yet.
    pub fn open(url: &str, options: &BucketOptions) -> Result<Self> {
        let connected = parse_url(url)
            .and_then(|(bucket, prefix)| Ok((options.connect(&bucket)?, bucket, prefix)));
        let (store, bucket, prefix) =
            connected.map_err(|failure| about(failure, url, "open", ""))?;
        let place = format!("s3://{bucket}/{prefix}").trim_end_matches('/').to_owned();
        Self::new(store, place, prefix, options.patience.clone())
    }

    /// A place that lives as long as this process, for tests.
    pub fn memory() -> Result<Self> {
        let store = Arc::new(InMemory::new());
        Self::new(store, "memory:".to_owned(), String::new(), Patience::default())
    }

    fn new(
        store: Arc<dyn ObjectStore>,
        place: String,
        prefix: String,
        patience: Patience,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            let failure = Failure::new(Cause::Unavailable, error.to_string());
            about(failure, &place, "open", "")
        })?;
        Ok(Self(Arc::new(Inner { store, place, prefix, patience, runtime, observe: None })))
    }

    /// The same place through a handle that tells of every operation before it begins, for tests.
    pub fn observed(&self, observe: impl Fn(&str, &str) + Send + Sync + 'static) -> Result<Self> {
        let Inner { store, place, prefix, patience, .. } = &*self.0;
        let new = Self::new(Arc::clone(store), place.clone(), prefix.clone(), patience.clone())?;
        let inner = Arc::into_inner(new.0).expect("BUG: nobody else has it yet");
        Ok(Self(Arc::new(Inner { observe: Some(Box::new(observe)), ..inner })))
    }

    /// The place, as a URL.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Keeps these bytes under the key, for which they are the only ones ever; durable on return.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) -> Result<()> {
        let (path, bytes) = (self.path("write", key)?, bytes.into());
        self.0.runtime.block_on(async {
            let mut attempts = Attempts::new(&self.0.patience);
            loop {
                let (result, answer) = noting(self.put_once(&path, &bytes)).await;
                let Err(trouble) = result else { return Ok(()) };
                let (failure, again) = self.judge(trouble, &answer);
                if again && answer.is_ambiguous() && self.has(&path, bytes.len()).await {
                    return Ok(());
                }
                self.rest(&mut attempts, failure, again, &answer)
                    .await
                    .map_err(|failure| self.about(failure, "write", key))?;
            }
        })
    }

    async fn put_once(&self, path: &Path, bytes: &Bytes) -> Attempt<()> {
        let put = async {
            match bytes.len() > MULTIPART {
                true => self.put_in_parts(path, bytes).await,
                false => Ok(self.0.store.put(path, bytes.clone().into()).await.map(|_| ())?),
            }
        };
        self.in_time(bytes.len() as u64, put).await
    }

    async fn put_in_parts(&self, path: &Path, bytes: &Bytes) -> Attempt<()> {
        let mut upload = self.0.store.put_multipart(path).await?;
        match send_parts(&mut *upload, bytes).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // Only tidiness, and noted apart: what counts is why it failed.
                let _ = noting(upload.abort()).await;
                Err(error.into())
            }
        }
    }

    /// Whether the key is there with so many bytes; asked once, after a put that may have landed.
    async fn has(&self, path: &Path, length: usize) -> bool {
        let head = self.in_time(0, async { Ok(self.0.store.head(path).await?) }).await;
        head.is_ok_and(|meta| meta.size == length as u64)
    }

    /// The bytes under the key.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        let path = self.path("read", key)?;
        self.run("read", key, async || {
            let found = self.in_time(0, async { Ok(self.0.store.get(&path).await?) }).await?;
            let length = found.meta.size;
            if length > ANSWER_MAX {
                return Err(Failure::new(Cause::TooLong, format!("{length} bytes")).into());
            }
            let bytes = self.in_time(length, async { Ok(found.bytes().await?) }).await?;
            whole(bytes, length)
        })
    }

    /// Some of the bytes under the key, all of which must be there.
    pub fn get_range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let path = self.path("read", key)?;
        let length = range.end.saturating_sub(range.start);
        if length == 0 || length > ANSWER_MAX {
            let failure = Failure::new(Cause::Usage, format!("a range of {length} bytes"));
            return Err(self.about(failure, "read", key));
        }
        let end = range.end;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        self.run("read", key, async || {
            let read = async {
                let found = self.0.store.get_opts(&path, options.clone()).await?;
                Ok(found.bytes().await?)
            };
            let read = self.in_time(length, read).await.and_then(|bytes| whole(bytes, length));
            match read {
                Err(
                    trouble @ (Trouble::Store(object_store::Error::Generic { .. })
                    | Trouble::Own(_)),
                ) => Err(self.check_reaches(&path, end).await.err().map_or(trouble, Trouble::Own)),
                other => other,
            }
        })
    }

    /// A range that ends behind the end fails in as many ways as a line does, but does not pass.
    async fn check_reaches(&self, path: &Path, end: u64) -> std::result::Result<(), Failure> {
        let head = self.in_time(0, async { Ok(self.0.store.head(path).await?) });
        match noting(head).await {
            (Ok(meta), _) if meta.size < end => {
                let why = format!("it has {} bytes, at least {end} were written", meta.size);
                Err(Failure::new(Cause::Damaged, why))
            }
            _ => Ok(()),
        }
    }

    /// How many bytes the key has; `None` if it is not there.
    pub fn length(&self, key: &str) -> Result<Option<u64>> {
        let path = self.path("look for", key)?;
        self.run("look for", key, async || {
            let head = self.in_time(0, async { Ok(self.0.store.head(&path).await?) }).await;
            match head {
                Ok(meta) => Ok(Some(meta.size)),
                Err(Trouble::Store(object_store::Error::NotFound { .. })) => {
                    // An answer without a body does not tell a missing key from a missing bucket.
                    let mut below = self.0.store.list(Some(&path));
                    let first = self.in_time(0, async { Ok(below.next().await.transpose()?) });
                    first.await.map(|_| None)
                }
                Err(trouble) => Err(trouble),
            }
        })
    }

    /// Whether the key is there.
    pub fn exists(&self, key: &str) -> Result<bool> {
        Ok(self.length(key)?.is_some())
    }

    /// Takes the key away; one that is not there is no error.
    pub fn delete(&self, key: &str) -> Result<()> {
        let path = self.path("delete", key)?;
        let deleted = self.run("delete", key, async || {
            self.in_time(0, async { Ok(self.0.store.delete(&path).await?) }).await
        });
        match deleted {
            Err(error) if error.cause == Cause::Missing => Ok(()),
            other => other,
        }
    }

    /// The keys below a directory of the place, in order.
    pub fn list(&self, directory: &str) -> Result<Vec<Listed>> {
        let path = self.path("list", directory)?;
        let mut found: Vec<Listed> = Vec::new();
        self.0.runtime.block_on(async {
            let mut attempts = Attempts::new(&self.0.patience);
            loop {
                let (result, answer) = noting(self.list_once(&path, &mut found)).await;
                let Err(trouble) = result else { break Ok(()) };
                let (failure, again) = self.judge(trouble, &answer);
                self.rest(&mut attempts, failure, again, &answer)
                    .await
                    .map_err(|failure| self.about(failure, "list", directory))?;
            }
        })?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// Goes on after what an earlier attempt found.
    async fn list_once(&self, path: &Path, found: &mut Vec<Listed>) -> Attempt<()> {
        let mut listing = match found.last() {
            Some(last) => self.0.store.list_with_offset(Some(path), &self.full(&last.key)?),
            None => self.0.store.list(Some(path)),
        };
        let next = async |listing: &mut futures_util::stream::BoxStream<'_, _>| {
            self.in_time(0, async { Ok(listing.next().await.transpose()?) }).await
        };
        while let Some(meta) = next(&mut listing).await? {
            let full: &str = meta.location.as_ref();
            // What is not below the place was not asked for.
            let Some(key) = self.below(full) else { continue };
            if found.len() == LIST_MAX || full.len() > KEY_MAX {
                let why = format!("more than {LIST_MAX} keys, or one of {} bytes", full.len());
                return Err(Failure::new(Cause::TooLong, why).into());
            }
            found.push(Listed { key: key.to_owned(), length: meta.size });
        }
        Ok(())
    }

    /// Tries what this server does with a put that must not overwrite; nothing depends on it.
    pub fn probe(&self) -> Result<ConditionalPut> {
        let name = chronicle_core::to_hex(&random_bytes::<16>());
        let key = format!("probe/{name}");
        let path = self.path("probe", &key)?;
        let create = async || {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = self.0.store.put_opts(&path, PutPayload::from_static(b"probe"), options);
            self.in_time(0, async { Ok(put.await?) }).await
        };
        self.put(&key, &b"probe"[..])?;
        let second = self.run("probe", &key, async || match create().await {
            Ok(_) => Ok(ConditionalPut::Ignored),
            Err(Trouble::Store(object_store::Error::NotImplemented { .. })) => {
                Ok(ConditionalPut::Ignored)
            }
            // It is there, so this conflict is the one that was provoked.
            Err(Trouble::Store(object_store::Error::AlreadyExists { .. })) => {
                Ok(ConditionalPut::Honoured)
            }
            Err(trouble) => Err(trouble),
        });
        self.delete(&key)?;
        second
    }

    /// Makes attempts until one succeeds, one fails for good, or patience ends.
    fn run<T>(
        &self,
        action: &'static str,
        key: &str,
        attempt: impl AsyncFn() -> Attempt<T>,
    ) -> Result<T> {
        self.0.runtime.block_on(async {
            let mut attempts = Attempts::new(&self.0.patience);
            loop {
                let (result, answer) = noting(attempt()).await;
                let trouble = match result {
                    Ok(value) => return Ok(value),
                    Err(trouble) => trouble,
                };
                let (failure, again) = self.judge(trouble, &answer);
                self.rest(&mut attempts, failure, again, &answer)
                    .await
                    .map_err(|failure| self.about(failure, action, key))?;
            }
        })
    }

    /// What failed, and whether that may pass.
    fn judge(&self, trouble: Trouble, answer: &Answer) -> (Failure, bool) {
        let failure = match trouble {
            Trouble::Store(error) => answer.failure(&error),
            Trouble::Own(failure) => failure,
        };
        let again = matches!(failure.cause, Cause::Unavailable | Cause::Conflict);
        (failure, again)
    }

    /// Waits for the next attempt; gives the failure back if there is none.
    async fn rest(
        &self,
        attempts: &mut Attempts<'_>,
        mut failure: Failure,
        again: bool,
        answer: &Answer,
    ) -> std::result::Result<(), Failure> {
        if !again {
            return Err(failure);
        }
        match attempts.pause(answer.pause) {
            Some(pause) => {
                sleep(pause).await;
                Ok(())
            }
            None => {
                let times = attempts.made();
                failure.detail = format!("{}, tried {times} times", failure.detail);
                Err(failure)
            }
        }
    }

    async fn in_time<T>(&self, length: u64, work: impl Future<Output = Attempt<T>>) -> Attempt<T> {
        match timeout(self.0.patience.for_length(length), work).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(Cause::Unavailable, "no answer in time").into()),
        }
    }

    fn path(&self, action: &'static str, key: &str) -> Result<Path> {
        if let Some(observe) = &self.0.observe {
            observe(action, key);
        }
        self.full(key).map_err(|failure| self.about(failure, action, key))
    }

    fn full(&self, key: &str) -> std::result::Result<Path, Failure> {
        let full = match self.0.prefix.is_empty() {
            true => key.to_owned(),
            false => format!("{}/{key}", self.0.prefix),
        };
        check_key(&full)?;
        Path::parse(&full).map_err(|error| Failure::new(Cause::Usage, error.to_string()))
    }

    fn below<'a>(&self, full: &'a str) -> Option<&'a str> {
        match self.0.prefix.is_empty() {
            true => Some(full),
            false => full.strip_prefix(&self.0.prefix)?.strip_prefix('/'),
        }
    }

    pub(crate) fn about(&self, failure: Failure, action: &'static str, key: &str) -> RemoteError {
        about(failure, &self.0.place, action, key)
    }
}

async fn send_parts(upload: &mut dyn MultipartUpload, bytes: &Bytes) -> object_store::Result<()> {
    let pieces = (0..bytes.len()).step_by(MULTIPART);
    let pieces = pieces.map(|at| bytes.slice(at..bytes.len().min(at + MULTIPART)));
    let sent: Vec<_> = pieces.map(|piece| upload.put_part(piece.into())).collect();
    stream::iter(sent).buffer_unordered(PARTS_AT_ONCE).try_collect::<()>().await?;
    upload.complete().await.map(|_| ())
}

fn about(failure: Failure, place: &str, action: &'static str, key: &str) -> RemoteError {
    let Failure { cause, detail } = failure;
    RemoteError { cause, action, place: place.to_owned(), key: key.to_owned(), detail }
}

/// An answer of another length than it should have was cut, so it is asked for again.
fn whole(bytes: Bytes, length: u64) -> Attempt<Vec<u8>> {
    if bytes.len() as u64 == length {
        return Ok(bytes.into());
    }
    let why = format!("{} bytes came instead of {length}", bytes.len());
    Err(Failure::new(Cause::Unavailable, why).into())
}

/// Keys are plain words, so that no server and no proxy writes them in another way.
pub(crate) fn check_key(key: &str) -> std::result::Result<(), Failure> {
    let usage = |why: &str| Err(Failure::new(Cause::Usage, why));
    if key.len() > KEY_MAX {
        return usage("the key is too long");
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let word =
        |word: &str| !word.is_empty() && word != "." && word != ".." && word.bytes().all(good);
    if !key.split('/').all(word) {
        return usage("a key is words of letters, digits, dots, hyphens and underscores");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_words() {
        for good in ["format", "packs/00ff.pack", "a/b/c-d_e.f"] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        let long = "x".repeat(KEY_MAX + 1);
        for bad in ["", "/", "a//b", "a/", "/a", ".", "a/..", "a b", "a%2fb", "ä", "a\nb", &long] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_put_is_found_listed_and_deleted() {
        let bucket = Bucket::memory().unwrap();
        bucket.put("packs/a", &b"content"[..]).unwrap();
        bucket.put("packs/a", &b"content"[..]).unwrap();
        assert_eq!(bucket.get("packs/a").unwrap(), b"content");
        assert_eq!(bucket.get_range("packs/a", 1..3).unwrap(), b"on");
        for beyond in [5..8, 7..8, 100..200] {
            assert_eq!(bucket.get_range("packs/a", beyond).unwrap_err().cause, Cause::Damaged);
        }
        assert!(bucket.exists("packs/a").unwrap() && !bucket.exists("packs/b").unwrap());
        let listed = Listed { key: "packs/a".to_owned(), length: 7 };
        assert_eq!(bucket.list("packs").unwrap(), [listed]);
        bucket.delete("packs/a").unwrap();
        bucket.delete("packs/a").unwrap();
        assert_eq!(bucket.get("packs/a").unwrap_err().cause, Cause::Missing);
        assert_eq!(bucket.list("packs").unwrap(), []);
    }

    #[test]
    fn long_bytes_go_in_several_requests() {
        let bucket = Bucket::memory().unwrap();
        for length in [MULTIPART, MULTIPART + 1, 3 * MULTIPART] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            bucket.put("long", bytes.clone()).unwrap();
            assert!(bucket.get("long").unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn memory_honours_conditional_puts_and_keeps_no_probe() {
        let bucket = Bucket::memory().unwrap();
        assert_eq!(bucket.probe().unwrap(), ConditionalPut::Honoured);
        assert_eq!(bucket.list("probe").unwrap(), []);
    }
}
