//! What was answered to requests with an idempotency key, so that a retry is answered the same and
//! nothing is done twice.
//!
//! An answer is kept before it is sent, and outlives the server. It is not synced, which would cost more
//! than most of what is asked for: after a power cut, or where the server dies between doing and
//! answering, a plan is still not applied twice, since one that was applied is outdated, and what
//! is recorded twice harms nobody.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use chronicle_core::to_hex;
use http::StatusCode;

use crate::problem::Problem;

/// The longest key.
const KEY_MOST: usize = 255;
/// How long an answer is remembered.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// How many answers are remembered.
const ANSWERS_MOST: usize = 512;
/// After how many answers room is made.
const TIDIED_EVERY: usize = 32;
/// The longest answer that is remembered.
const ANSWER_MOST: usize = 16 << 20;

/// The answers of one home.
pub(crate) struct Answers {
    directory: PathBuf,
    under_way: Mutex<HashSet<String>>,
    written: AtomicUsize,
}

/// What is known under a key.
pub(crate) enum Known<'a> {
    /// Nothing yet: this one works on it.
    New(Turn<'a>),
    /// It was answered so.
    Answered(Vec<u8>),
}

/// The right to work on a key.
pub(crate) struct Turn<'a> {
    answers: &'a Answers,
    name: String,
    request: blake3::Hash,
}

impl Answers {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, under_way: Mutex::default(), written: AtomicUsize::new(0) }
    }

    /// Looks a key up, for a request that is named by everything it says.
    pub(crate) fn begin(
        &self,
        key: &str,
        scope: &str,
        request: &[u8],
    ) -> Result<Known<'_>, Problem> {
        if key.is_empty() || key.len() > KEY_MOST {
            return Err(Problem::usage("Idempotency-Key must have 1 to 255 characters"));
        }
        let name = blake3::hash(format!("{scope}\0{key}").as_bytes());
        let name = to_hex(&name.as_bytes()[..16]);
        let request = blake3::hash(request);
        if !self.under_way().insert(name.clone()) {
            let words = "A request with this Idempotency-Key is under way";
            return Err(Problem::new(StatusCode::CONFLICT, "busy", words).hinted("Ask again"));
        }
        let turn = Turn { answers: self, name, request };
        match fs::read(turn.path()).ok().as_deref().and_then(read) {
            Some((of, body)) if of == request.as_bytes() => Ok(Known::Answered(body.to_vec())),
            Some(_) => Err(Problem::usage("Idempotency-Key was used for another request before")),
            None => Ok(Known::New(turn)),
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room: what is too old goes, and the oldest where there are too many.
    fn tidy(&self) -> io::Result<()> {
        let mut kept: Vec<(SystemTime, PathBuf)> = Vec::new();
        for item in fs::read_dir(&self.directory)? {
            let item = item?;
            kept.push((item.metadata()?.modified()?, item.path()));
        }
        kept.sort();
        let spare = kept.len().saturating_sub(ANSWERS_MOST - TIDIED_EVERY);
        for (index, (time, path)) in kept.iter().enumerate() {
            if index < spare || time.elapsed().is_ok_and(|age| age > LIFE) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

impl Turn<'_> {
    fn path(&self) -> PathBuf {
        self.answers.directory.join(&self.name)
    }

    /// Remembers the answer. Where that fails the answer still counts: what was done is done.
    pub(crate) fn answered(&self, body: &[u8]) {
        if body.len() <= ANSWER_MOST {
            let _ = self.write(body);
        }
    }

    fn write(&self, body: &[u8]) -> io::Result<()> {
        let directory = &self.answers.directory;
        fs::create_dir_all(directory)?;
        if self.answers.written.fetch_add(1, Ordering::Relaxed).is_multiple_of(TIDIED_EVERY) {
            self.answers.tidy()?;
        }
        let (path, aside) = (self.path(), self.path().with_extension("tmp"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(self.request.as_bytes())?;
        file.write_all(blake3::hash(body).as_bytes())?;
        file.write_all(body)?;
        fs::rename(&aside, path)
    }
}

/// The request and the answer of a file, if it is whole.
fn read(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (of, rest) = bytes.split_at_checked(32)?;
    let (hash, body) = rest.split_at_checked(32)?;
    (blake3::hash(body).as_bytes() == hash).then_some((of, body))
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.answers.under_way().remove(&self.name);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_once_and_by_one() {
        let holder = tempfile::tempdir().unwrap();
        let answers = Answers::new(holder.path().join("answers"));
        let Known::New(turn) = answers.begin("k", "w", b"body").unwrap() else { panic!() };
        assert_eq!(answers.begin("k", "w", b"body").err().unwrap().code, "busy");
        turn.answered(b"done");
        drop(turn);
        let again = Answers::new(holder.path().join("answers"));
        let Known::Answered(body) = again.begin("k", "w", b"body").unwrap() else { panic!() };
        assert_eq!(body, b"done");
        assert_eq!(again.begin("k", "w", b"other").err().unwrap().code, "usage");
        assert!(matches!(again.begin("k", "v", b"body").unwrap(), Known::New(_)));
        // What a power cut left of an answer is none.
        let file = fs::read_dir(holder.path().join("answers")).unwrap().next().unwrap().unwrap();
        let whole = fs::read(file.path()).unwrap();
        for left in [0, 20, 40, whole.len() - 1] {
            fs::write(file.path(), &whole[..left]).unwrap();
            assert!(matches!(again.begin("k", "w", b"body").unwrap(), Known::New(_)), "{left}");
        }
    }

    #[test]
    fn only_so_many_are_remembered() {
        let holder = tempfile::tempdir().unwrap();
        let answers = Answers::new(holder.path().to_owned());
        for number in 0..ANSWERS_MOST + 5 {
            let Known::New(turn) = answers.begin(&number.to_string(), "", b"").unwrap() else {
                panic!()
            };
            turn.answered(b"");
        }
        assert!(fs::read_dir(holder.path()).unwrap().count() <= ANSWERS_MOST);
    }
}
