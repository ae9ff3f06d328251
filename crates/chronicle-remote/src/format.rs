//! The object `format` at the prefix: which version this is, and whether and with which key it is sealed.
//!
//! It is text: `chronicle-remote 1`, then `plain` or `sealed` and the mark of the key, a line each.

use chronicle_core::to_hex;

use crate::bucket::Bucket;
use crate::error::{Cause, Failure, Result};
use crate::keys::{Keyring, Mark, mark};
use crate::seal::RemoteKey;

const KEY: &str = "format";
const FIRST_WORD: &str = "chronicle-remote";
pub(crate) const VERSION: u64 = 1;

/// The version of a place, if it is one; reads only that.
pub(crate) fn version(bucket: &Bucket) -> Result<Option<u64>> {
    let found = match bucket.get(KEY) {
        Err(error) if error.cause == Cause::Missing => return Ok(None),
        found => found?,
    };
    let text = String::from_utf8_lossy(&found);
    let first = text.lines().next().and_then(|line| line.strip_prefix(FIRST_WORD));
    let number = first.and_then(|rest| rest.trim().parse().ok());
    number.map(Some).ok_or_else(|| {
        let failure = Failure::new(Cause::Damaged, "it is no format of ours");
        bucket.about(failure, "open", KEY)
    })
}

/// Checks the place, or makes it one if nothing is there yet; says with which keys it is sealed.
pub(crate) fn check_or_make(bucket: &Bucket, key: Option<&RemoteKey>) -> Result<Keyring> {
    let wanted = text(key);
    let found = match bucket.get(KEY) {
        Err(error) if error.cause == Cause::Missing => {
            make(bucket, &wanted)?;
            // Read again: of two that make a place at once, one must notice.
            bucket.get(KEY)?
        }
        found => found?,
    };
    let first = check(&String::from_utf8_lossy(&found), key.is_some())
        .map_err(|failure| bucket.about(failure, "open", KEY))?;
    Keyring::read(bucket, key, first)
}

fn make(bucket: &Bucket, wanted: &str) -> Result<()> {
    // What was written without a format is nobody's to guess.
    if !bucket.list("packs")?.is_empty() {
        let failure = Failure::new(Cause::Damaged, "packs are there and the format is not");
        return Err(bucket.about(failure, "open", KEY));
    }
    bucket.put(KEY, wanted.to_owned())
}

fn text(key: Option<&RemoteKey>) -> String {
    let seal = key.map_or("plain".to_owned(), |key| format!("sealed {}", to_hex(key.mark())));
    format!("{FIRST_WORD} {VERSION}\n{seal}\n")
}

/// The mark of the key that the place was made with, if it is sealed.
fn check(found: &str, with_key: bool) -> Result<Option<Mark>, Failure> {
    let (first, seal) = found.split_once('\n').unwrap_or((found, ""));
    let version = first.strip_prefix(FIRST_WORD).and_then(|rest| rest.trim().parse::<u64>().ok());
    let sealed = seal.strip_suffix('\n').and_then(|seal| mark(seal.strip_prefix("sealed ")?));
    let failure = match (version, sealed) {
        (Some(version), _) if version > VERSION => {
            Failure::new(Cause::Newer, format!("version {version}, known is {VERSION}"))
        }
        (Some(VERSION), Some(mark)) if with_key => return Ok(Some(mark)),
        (Some(VERSION), Some(_)) => Failure::new(Cause::Key, "it is sealed and no key was given"),
        (Some(VERSION), None) if seal == "plain\n" && !with_key => return Ok(None),
        (Some(VERSION), None) if seal == "plain\n" => Failure::new(Cause::Key, "it is not sealed"),
        _ => Failure::new(Cause::Damaged, "it is no format of ours"),
    };
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(found: &str, key: Option<&RemoteKey>) -> Cause {
        check(found, key.is_some()).unwrap_err().cause
    }

    #[test]
    fn place_is_opened_only_as_what_it_was_made() {
        let one = RemoteKey::derive(&[1; 32]);
        assert_eq!(check(&text(None), false).unwrap(), None);
        assert_eq!(check(&text(Some(&one)), true).unwrap(), Some(*one.mark()));
        assert_eq!(refused(&text(Some(&one)), None), Cause::Key);
        assert_eq!(refused(&text(None), Some(&one)), Cause::Key);
        assert_eq!(refused("chronicle-remote 2\nwhatever\n", None), Cause::Newer);
        for damaged in ["", "x", "chronicle-remote 1\n", "chronicle-remote 1\nplain"] {
            assert_eq!(refused(damaged, None), Cause::Damaged, "{damaged:?}");
        }
    }

    #[test]
    fn version_is_read_and_nothing_is_made() {
        let bucket = Bucket::memory().unwrap();
        assert_eq!(version(&bucket).unwrap(), None);
        assert_eq!(bucket.get(KEY).unwrap_err().cause, Cause::Missing);
        bucket.put(KEY, "chronicle-remote 7\nwhatever\n").unwrap();
        assert_eq!(version(&bucket).unwrap(), Some(7));
        bucket.delete(KEY).unwrap();
        bucket.put(KEY, "something else\n").unwrap();
        assert_eq!(version(&bucket).unwrap_err().cause, Cause::Damaged);
    }

    #[test]
    fn packs_without_a_format_are_not_taken_over() {
        let bucket = Bucket::memory().unwrap();
        check_or_make(&bucket, None).unwrap();
        check_or_make(&bucket, None).unwrap();
        bucket.put("packs/x", &b"x"[..]).unwrap();
        bucket.delete(KEY).unwrap();
        assert_eq!(check_or_make(&bucket, None).unwrap_err().cause, Cause::Damaged);
    }
}
