//! The keys of one place: the one that seals what is written, and those that sealed what is older.
//!
//! A key is exchanged by adding an object below `keys/` that holds the old key, sealed with the new one.
//! So whoever has the newest key can open everything, and nothing has to be written anew at once.

use chronicle_core::to_hex;

use crate::bucket::Bucket;
use crate::error::{Cause, Failure, Result};
use crate::seal::{self, Kind, MARK, RemoteKey, Sealer};

const DIRECTORY: &str = "keys";

/// By what a place remembers a key.
pub(crate) type Mark = [u8; MARK];

/// The keys of a place, the newest first; none where it is not sealed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keyring(Vec<RemoteKey>);

impl Keyring {
    /// The key that seals what is written.
    pub(crate) fn newest(&self) -> Option<&RemoteKey> {
        self.0.first()
    }

    pub(crate) fn newest_mark(&self) -> Option<Mark> {
        self.newest().map(|key| *key.mark())
    }

    /// The key with this mark.
    pub(crate) fn of(&self, mark: Option<Mark>) -> Option<&RemoteKey> {
        self.0.iter().find(|key| Some(*key.mark()) == mark)
    }

    /// Opens what one of the keys sealed, and says which; what is not sealed is as it is.
    pub(crate) fn open(
        &self,
        kind: Kind,
        context: &[u8],
        bytes: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<Mark>), &'static str> {
        if self.0.is_empty() {
            return Ok((bytes, None));
        }
        let mut refused = "its seal is broken";
        for key in &self.0 {
            match seal::open(key, kind, context, &bytes) {
                Ok((plain, _)) => return Ok((plain, Some(*key.mark()))),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }

    /// The keys that lead from this one to the one that the place was made with.
    pub(crate) fn read(
        bucket: &Bucket,
        key: Option<&RemoteKey>,
        first: Option<Mark>,
    ) -> Result<Self> {
        let (Some(key), Some(first)) = (key, first) else { return Ok(Self::default()) };
        let exchanges: Vec<(Mark, Mark)> =
            bucket.list(DIRECTORY)?.iter().filter_map(|listed| parse(&listed.key)).collect();
        let mut keys = vec![key.clone()];
        let wrong =
            |why: &str| bucket.about(Failure::new(Cause::Key, why.to_owned()), "open", DIRECTORY);
        if exchanges.iter().any(|(_, old)| old == key.mark()) {
            return Err(wrong("it was exchanged for another"));
        }
        while let Some(last) = keys.last().filter(|last| *last.mark() != first) {
            let exchange = exchanges.iter().find(|(new, _)| new == last.mark());
            // More keys than exchanges would be a circle.
            let Some((new, old)) = exchange.filter(|_| keys.len() <= exchanges.len()) else {
                return Err(wrong("it was sealed with another"));
            };
            let sealed = bucket.get(&name(new, old))?;
            let opened = seal::open(last, Kind::Key, old, &sealed);
            let secret = opened.ok().and_then(|(plain, _)| <[u8; 32]>::try_from(plain).ok());
            let older = secret.map(|secret| RemoteKey::derive(&secret));
            match older.filter(|older| older.mark() == old) {
                Some(older) => keys.push(older),
                None => return Err(wrong("the key before it cannot be read")),
            }
        }
        Ok(Self(keys))
    }

    /// Exchanges the newest key for another, durably.
    pub(crate) fn exchange(&mut self, bucket: &Bucket, new: &RemoteKey) -> Result<()> {
        let Some(old) = self.newest().filter(|old| old.mark() != new.mark()) else {
            let why = "only a sealed place has a key to exchange, and only for another";
            return Err(bucket.about(Failure::new(Cause::Usage, why), "exchange", DIRECTORY));
        };
        let sealed = Sealer::random(new, Kind::Key, old.mark()).seal(old.secret());
        bucket.put(&name(new.mark(), old.mark()), sealed)?;
        self.0.insert(0, new.clone());
        Ok(())
    }
}

fn name(new: &Mark, old: &Mark) -> String {
    format!("{DIRECTORY}/{}-{}", to_hex(new), to_hex(old))
}

fn parse(key: &str) -> Option<(Mark, Mark)> {
    let (new, old) = key.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('-')?;
    Some((mark(new)?, mark(old)?))
}

/// The mark that is written so.
pub(crate) fn mark(hex: &str) -> Option<Mark> {
    let number = u64::from_str_radix(hex, 16).ok()?;
    let mark = number.to_be_bytes();
    (to_hex(&mark) == hex).then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> RemoteKey {
        RemoteKey::derive(&[byte; 32])
    }

    fn read(bucket: &Bucket, byte: u8) -> Result<Keyring> {
        Keyring::read(bucket, Some(&key(byte)), Some(*key(1).mark()))
    }

    #[test]
    fn newest_key_leads_to_all_before_it_and_an_old_one_is_refused() {
        let bucket = Bucket::memory().unwrap();
        let mut ring = read(&bucket, 1).unwrap();
        assert_eq!(read(&bucket, 2).unwrap_err().cause, Cause::Key);
        ring.exchange(&bucket, &key(2)).unwrap();
        ring.exchange(&bucket, &key(3)).unwrap();
        let ring = read(&bucket, 3).unwrap();
        let marks: Vec<_> = ring.0.iter().map(|key| *key.mark()).collect();
        assert_eq!(marks, [3, 2, 1].map(|byte| *key(byte).mark()));
        for byte in [1, 2, 4] {
            assert_eq!(read(&bucket, byte).unwrap_err().cause, Cause::Key);
        }
        assert_eq!(ring.clone().exchange(&bucket, &key(3)).unwrap_err().cause, Cause::Usage);
    }

    #[test]
    fn what_any_of_the_keys_sealed_is_opened() {
        let bucket = Bucket::memory().unwrap();
        let sealed = Sealer::random(&key(1), Kind::Index, b"x").seal(b"plain");
        let mut ring = read(&bucket, 1).unwrap();
        ring.exchange(&bucket, &key(2)).unwrap();
        let opened = ring.open(Kind::Index, b"x", sealed.clone()).unwrap();
        assert_eq!(opened, (b"plain".to_vec(), Some(*key(1).mark())));
        assert!(ring.open(Kind::Pack, b"x", sealed).is_err());
        assert_eq!(Keyring::default().open(Kind::Pack, b"", vec![7]).unwrap(), (vec![7], None));
    }

    #[test]
    fn exchange_that_leads_in_a_circle_ends() {
        let bucket = Bucket::memory().unwrap();
        for (new, old) in [(5, 6), (6, 7), (7, 6)] {
            let (new, old) = (key(new), key(old));
            let sealed = Sealer::random(&new, Kind::Key, old.mark()).seal(old.secret());
            bucket.put(&name(new.mark(), old.mark()), sealed).unwrap();
        }
        assert_eq!(read(&bucket, 5).unwrap_err().cause, Cause::Key);
    }
}
