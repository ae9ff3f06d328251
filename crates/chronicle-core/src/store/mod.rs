//! Keeps content by the BLAKE3 hash of its bytes: the trait that every store has, and the stored form.
//!
//! Which objects are still needed is not decided here, and neither is when content must be durable:
//! an [`Intake`] belongs to one capture, whose commit point is the catalog's transaction.

mod away;
mod cached;
mod chunks;
mod clones;
mod delta;
mod encrypting;
mod files;
pub(crate) mod formats;
mod group;
#[cfg(test)]
mod group_tests;
mod handles;
mod index;
mod intake;
mod local;
mod loose;
mod memory;
mod pack;
mod packs;
mod pool;
mod repair;
mod retrying;
mod sweep;
mod tier;
mod verified;

use std::cell::RefCell;
use std::io::Read;

use zstd::bulk::{Compressor, Decompressor};

use crate::error::{Error, Result};
use crate::id::ObjectId;
use crate::secret::{Refused, SecretKey, Secrets, seal, unseal};

pub use cached::Cached;
pub use chunks::{ChunkManifest, Piece, cut as cut_into_pieces};
pub(crate) use clones::Cloned;
pub use delta::pack_version;
pub(crate) use delta::{Bases, base_of, depth_of, open_chain, smaller};
pub use encrypting::{Encrypting, SealedStorage};
pub(crate) use files::Lock as StoreLock;
pub(crate) use intake::WHOLE_MAX;
pub use intake::{Intake, Row};
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use pool::PooledCache;
pub(crate) use repair::{Disorder, keep_aside};
pub use retrying::{Retries, Retrying};
pub(crate) use sweep::Needed;
pub(crate) use tier::Tier;
pub use tier::TieredStore;
pub use verified::Verified;

/// Content of more bytes than this is streamed into a file of its own.
pub const LARGE_OBJECT: usize = 4 << 20;

/// Keeps objects; every store passes the same contract suite.
///
/// Stores are put around and before one another. Here a store that is not trusted is asked again where a
/// failure may pass, what it gives is checked, and what was read is kept in memory for the next time:
///
/// ```
/// use chronicle_core::{Cached, ContentStorage, MemoryStore, ObjectId, Retries, Retrying, Verified};
///
/// # fn main() -> chronicle_core::Result<()> {
/// let far = MemoryStore::new(); // Somebody else's.
/// let far = Verified::new(Retrying::new(far, Retries::default()));
/// let store = Cached::new(MemoryStore::new(), far, 64 << 20);
///
/// let id = ObjectId::of(b"content");
/// store.put(&id, b"content")?;
/// assert!(store.far().exists(&id)? && store.near().exists(&id)?);
/// assert_eq!(store.get(&id)?, b"content");
/// assert!(store.put(&id, b"other bytes").is_err());
/// # Ok(())
/// # }
/// ```
pub trait ContentStorage: Send + Sync {
    /// The object's bytes, verified: `Missing` if it is not here, `Corrupt` if it is damaged.
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>>;

    /// Keeps these bytes, durable on return; bytes of another name are `Corrupt`.
    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()>;

    /// Whether the object is here.
    fn exists(&self, id: &ObjectId) -> Result<bool>;

    /// Takes the object away; one that is not here is no error.
    fn delete(&self, id: &ObjectId) -> Result<()>;

    /// The object's bytes as a stream; damage is an `InvalidData` error, at the latest at the end.
    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>>;

    /// The pieces that a large object is kept in, each an object itself; `None` if it is kept whole.
    fn pieces(&self, _id: &ObjectId) -> Result<Option<Vec<Piece>>> {
        Ok(None)
    }

    /// The object as `pack_object` makes it, verified, if that is how it is kept: whoever keeps it too need not compress
    /// it again.
    fn stored(&self, _id: &ObjectId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Keeps everything the source gives, durable on return, and says its name and length.
    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)>;

    /// Whether the object is not here and need not be: a placeholder may stand for a file with it.
    fn is_elsewhere(&self, _id: &ObjectId) -> Result<bool> {
        Ok(false)
    }

    /// Takes away copies of an object that only save a way, as caches have; the object itself stays.
    fn drop_copy(&self, _id: &ObjectId) -> Result<()> {
        Ok(())
    }
}

const LEVEL: i32 = 3;
/// For a capture that has so much that somebody waits for it: what it loses, larger groups gain.
const FAST_LEVEL: i32 = 1;
const CODEC_RAW: u8 = 0;
const CODEC_ZSTD: u8 = 1;
/// The first byte of a stored form that the key of a home sealed; its payload holds one of those above.
pub const CODEC_SEALED: u8 = 2;

/// A frame may ask for a window of at most 2^23 bytes, so that damage cannot ask for all memory.
const WINDOW_LOG_MAX: u32 = 23;

/// What a failed read of the content itself is said to have failed on, since only the caller knows.
const SOURCE: &str = "(content)";

/// Bytes before the payload: the codec and the length of the content.
const HEADER: usize = 9;

/// An object in its stored form, taken apart.
struct Stored<'a> {
    codec: u8,
    raw_length: u64,
    payload: &'a [u8],
}

impl<'a> Stored<'a> {
    fn parse(stored: &'a [u8]) -> Result<Self, &'static str> {
        let (header, payload) = stored.split_first_chunk().ok_or("it is cut off")?;
        let (codec, raw_length) = parse_header(*header);
        Ok(Self { codec, raw_length, payload })
    }

    fn header(&self) -> [u8; HEADER] {
        header(self.codec, self.raw_length)
    }

    fn to_bytes(&self) -> Vec<u8> {
        [&self.header(), self.payload].concat()
    }
}

fn header(codec: u8, raw_length: u64) -> [u8; HEADER] {
    let mut header = [codec; HEADER];
    header[1..].copy_from_slice(&raw_length.to_le_bytes());
    header
}

fn parse_header([codec, length @ ..]: [u8; HEADER]) -> (u8, u64) {
    (codec, u64::from_le_bytes(length))
}

struct Compression {
    compressor: Compressor<'static>,
    payload: Vec<u8>,
}

thread_local! {
    // Making a context costs more than compressing a small file with it.
    static COMPRESSION: RefCell<Compression> = RefCell::new(Compression {
        compressor: Compressor::new(LEVEL).expect("zstd has this level"),
        payload: Vec::new(),
    });
    static DECOMPRESSOR: RefCell<Decompressor<'static>> =
        RefCell::new(Decompressor::new().expect("an empty dictionary is valid"));
}

/// Compresses the bytes and lends the stored form out, without a copy of its own.
fn with_stored<R>(bytes: &[u8], lend: impl FnOnce(Stored<'_>) -> R) -> R {
    with_stored_at(LEVEL, bytes, lend)
}

fn with_stored_at<R>(level: i32, bytes: &[u8], lend: impl FnOnce(Stored<'_>) -> R) -> R {
    COMPRESSION.with_borrow_mut(|Compression { compressor, payload }| {
        let raw_length = bytes.len() as u64;
        payload.clear();
        payload.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        let set = compressor.set_compression_level(level);
        match set.and_then(|()| compressor.compress_to_buffer(bytes, payload)) {
            Ok(length) if length < bytes.len() => {
                lend(Stored { codec: CODEC_ZSTD, raw_length, payload })
            }
            _ => with_raw(bytes, lend),
        }
    })
}

/// Lends the stored form out without compressing: for who cannot wait.
fn with_raw<R>(bytes: &[u8], lend: impl FnOnce(Stored<'_>) -> R) -> R {
    lend(Stored { codec: CODEC_RAW, raw_length: bytes.len() as u64, payload: bytes })
}

/// The same object in a smaller stored form, where it was kept without compressing and would shrink.
pub(crate) fn compressed(stored: &[u8]) -> Option<Vec<u8>> {
    let Stored { codec: CODEC_RAW, raw_length, payload } = Stored::parse(stored).ok()? else {
        return None;
    };
    // With a compressor of its own: the thread's may be lending a payload out.
    let payload = &zstd::bulk::compress(payload, LEVEL).ok()?;
    let smaller = Stored { codec: CODEC_ZSTD, raw_length, payload }.to_bytes();
    (smaller.len() < stored.len()).then_some(smaller)
}

/// The stored form of these bytes: codec, length, and the payload, compressed if that helps.
pub fn pack_object(bytes: &[u8]) -> Vec<u8> {
    with_stored(bytes, |stored| stored.to_bytes())
}

/// The stored form of secret bytes, and the name that only the key's owner can compute.
pub(crate) fn pack_secret(key: &SecretKey, bytes: &[u8]) -> (ObjectId, Vec<u8>) {
    (key.address(bytes), sealed_form(key, bytes))
}

fn sealed_form(key: &SecretKey, bytes: &[u8]) -> Vec<u8> {
    let sealed = with_stored(bytes, |inner| seal(key, &[&[inner.codec], inner.payload].concat()));
    let raw_length = bytes.len() as u64;
    Stored { codec: CODEC_SEALED, raw_length, payload: &sealed }.to_bytes()
}

/// The bytes of a stored form, sealed or not, if they are the ones that the name says.
pub(crate) fn open_object(id: &ObjectId, stored: &[u8], secrets: &Secrets) -> Result<Vec<u8>> {
    match Stored::parse(stored) {
        Ok(Stored { codec: CODEC_SEALED, raw_length, payload }) => {
            open_sealed(id, raw_length, payload, secrets)
        }
        _ => unpack_object(id, stored),
    }
}

fn open_sealed(
    id: &ObjectId,
    raw_length: u64,
    sealed: &[u8],
    secrets: &Secrets,
) -> Result<Vec<u8>> {
    let key = secrets.key()?;
    let bytes = unsealed(id, raw_length, sealed, key)?;
    match key.address(&bytes) == *id {
        true => Ok(bytes),
        false => Err(corrupt(id, "its bytes have another hash")),
    }
}

/// The bytes of a sealed form, whatever their name.
fn open_with_key(id: &ObjectId, stored: &[u8], key: &SecretKey) -> Result<Vec<u8>> {
    match Stored::parse(stored) {
        Ok(Stored { codec: CODEC_SEALED, raw_length, payload }) => {
            unsealed(id, raw_length, payload, key)
        }
        _ => Err(corrupt(id, "it is not a sealed form")),
    }
}

fn unsealed(id: &ObjectId, raw_length: u64, sealed: &[u8], key: &SecretKey) -> Result<Vec<u8>> {
    let inner = unseal(key, sealed).map_err(|why| refused(id, why))?;
    let (codec, payload) = inner.split_first().ok_or_else(|| corrupt(id, "it is cut off"))?;
    let inner = Stored { codec: *codec, raw_length, payload };
    decode(inner).map_err(|why| corrupt(id, why))
}

fn refused(id: &ObjectId, why: Refused) -> Error {
    match why {
        Refused::OtherKey => Error::SecretKey(format!("object {id} was sealed with another one")),
        Refused::Io(error) => corrupt(id, error.to_string()),
    }
}

/// The name of an object whose stored form this is; `None` if it is damaged.
fn name_of(stored: &[u8], secrets: &Secrets) -> Result<Option<ObjectId>> {
    let Ok(parsed) = Stored::parse(stored) else { return Ok(None) };
    if parsed.codec != CODEC_SEALED {
        return Ok(decode(parsed).ok().map(|bytes| ObjectId::of(&bytes)));
    }
    let key = secrets.key()?;
    let inner = match unseal(key, parsed.payload) {
        Ok(inner) => inner,
        Err(Refused::Io(_)) => return Ok(None),
        Err(Refused::OtherKey) => {
            let why = "an object in a pack without an index was sealed with another one";
            return Err(Error::SecretKey(why.to_owned()));
        }
    };
    let Some((codec, payload)) = inner.split_first() else { return Ok(None) };
    let inner = Stored { codec: *codec, raw_length: parsed.raw_length, payload };
    Ok(decode(inner).ok().map(|bytes| key.address(&bytes)))
}

/// How long the bytes of a stored form say they are, unless it is sealed or stands on something else.
pub fn unpacked_length(stored: &[u8]) -> Option<u64> {
    let stored = Stored::parse(stored).ok()?;
    matches!(stored.codec, CODEC_RAW | CODEC_ZSTD).then_some(stored.raw_length)
}

/// The bytes of a stored form that is not sealed, if they are the ones that the name says.
pub fn unpack_object(id: &ObjectId, stored: &[u8]) -> Result<Vec<u8>> {
    let bytes = Stored::parse(stored).and_then(decode).map_err(|why| corrupt(id, why))?;
    verify(id, &bytes)?;
    Ok(bytes)
}

fn decode(stored: Stored<'_>) -> Result<Vec<u8>, &'static str> {
    let bytes = match stored.codec {
        CODEC_RAW => stored.payload.to_vec(),
        CODEC_ZSTD if stored.raw_length <= LARGE_OBJECT as u64 => decode_small(&stored)?,
        CODEC_ZSTD => decode_large(&stored)?,
        CODEC_SEALED => return Err("it is sealed"),
        delta::CODEC_DELTA => return Err("it stands on another version"),
        _ => return Err("its codec is not known"),
    };
    if bytes.len() as u64 != stored.raw_length { Err("its length is wrong") } else { Ok(bytes) }
}

fn decode_small(stored: &Stored<'_>) -> Result<Vec<u8>, &'static str> {
    let capacity = usize::try_from(stored.raw_length).map_err(|_| "its length is wrong")?;
    let mut bytes = Vec::with_capacity(capacity);
    DECOMPRESSOR
        .with_borrow_mut(|decompressor| {
            decompressor.decompress_to_buffer(stored.payload, &mut bytes)
        })
        .map_err(|_| "its payload is damaged")?;
    Ok(bytes)
}

/// Grows with what really comes out, since the length may be damaged too.
fn decode_large(stored: &Stored<'_>) -> Result<Vec<u8>, &'static str> {
    let damaged = |_| "its payload is damaged";
    let mut bytes = Vec::new();
    let limit = stored.raw_length.saturating_add(1);
    decoder(stored.payload)
        .map_err(damaged)?
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(damaged)?;
    Ok(bytes)
}

/// A decoder that asks for no more memory than our own frames need.
pub(crate) fn bounded_decoder(packed: &[u8]) -> std::io::Result<impl Read> {
    decoder(packed)
}

fn decoder<R: std::io::BufRead>(
    source: R,
) -> std::io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn verify(id: &ObjectId, bytes: &[u8]) -> Result<()> {
    let found = ObjectId::of(bytes);
    if found == *id { Ok(()) } else { Err(corrupt(id, format!("its bytes have the hash {found}"))) }
}

fn corrupt(id: &ObjectId, why: impl Into<String>) -> Error {
    Error::Corrupt { object: *id, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::random_bytes;

    #[track_caller]
    fn check(bytes: &[u8], codec: u8) {
        let stored = pack_object(bytes);
        assert_eq!(stored[0], codec);
        assert!(stored.len() <= bytes.len() + HEADER);
        assert_eq!(unpack_object(&ObjectId::of(bytes), &stored).unwrap(), bytes);
    }

    #[track_caller]
    fn check_corrupt(id: &ObjectId, stored: &[u8]) {
        match unpack_object(id, stored) {
            Err(Error::Corrupt { object, .. }) => assert_eq!(object, *id),
            other => panic!("expected a corrupt object, found {other:?}"),
        }
    }

    #[test]
    fn content_is_compressed_only_where_it_helps() {
        check(b"", CODEC_RAW);
        check(b"x", CODEC_RAW);
        check(&random_bytes::<5000>(), CODEC_RAW);
        check(&[7; 5000], CODEC_ZSTD);
        check(&vec![7; LARGE_OBJECT + 1], CODEC_ZSTD);
    }

    #[test]
    fn damaged_byte_is_never_taken_for_content() {
        let bytes: Vec<u8> = (0..3000u32).flat_map(|n| (n % 97).to_le_bytes()).collect();
        let (id, stored) = (ObjectId::of(&bytes), pack_object(&bytes));
        for position in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[position] ^= 0x41;
            if let Ok(read) = unpack_object(&id, &damaged) {
                assert_eq!(read, bytes, "at {position}");
            }
        }
        (0..HEADER).for_each(|length| check_corrupt(&id, &stored[..length]));
        check_corrupt(&id, &stored[..stored.len() - 1]);
        check_corrupt(&id, &[&stored[..], b"more"].concat());
    }

    #[test]
    fn claimed_length_does_not_make_memory() {
        let (id, stored) = (ObjectId::of(&[7; 5000]), pack_object(&[7; 5000]));
        for length in [0, 4999, 5001, 1 << 22, 1 << 23, 1 << 60, u64::MAX] {
            let claimed = [&header(CODEC_ZSTD, length), &stored[HEADER..]].concat();
            check_corrupt(&id, &claimed);
        }
    }

    #[test]
    fn damaged_seal_is_never_taken_for_content_and_a_missing_key_not_for_damage() {
        let scratch = tempfile::tempdir().unwrap();
        let file = crate::key::KeySource::File(scratch.path().join("secret.key"));
        let secrets = Secrets::new(file, scratch.path().join("mark"));
        let key = secrets.key_or_make().unwrap();
        let (id, stored) = pack_secret(key, &[7; 5000]);
        assert_eq!(open_object(&id, &stored, &secrets).unwrap(), [7; 5000]);
        assert_eq!(compressed(&stored), None);
        for position in 1..stored.len() {
            let mut damaged = stored.clone();
            damaged[position] ^= 0x41;
            assert!(open_object(&id, &damaged, &secrets).is_err(), "at {position}");
        }
        check_corrupt(&id, &stored);
        let without = open_object(&id, &stored, &Secrets::default()).unwrap_err();
        assert_eq!(without.code(), "secret_key_missing");
        let (other, _) = pack_secret(key, b"other");
        assert!(matches!(open_object(&other, &stored, &secrets), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn object_of_another_name_is_corrupt() {
        check_corrupt(&ObjectId::of(b"other"), &pack_object(b"this"));
        check_corrupt(&ObjectId::of(b"this"), &[&header(9, 4)[..], b"this"].concat());
    }
}
