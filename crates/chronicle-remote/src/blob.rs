//! Single things in a bucket that are named by the hash of their bytes there, sealed like packs are.

use chronicle_core::{Error, ObjectId, to_hex};

use crate::error::{Cause, Failure, RemoteError};
use crate::keys::Mark;
use crate::pack::PackName;
use crate::seal::{Kind, Sealer};
use crate::store::RemoteStore;

/// What a single thing is: where it lies, and what it must be opened as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blob {
    Segment,
    Standing,
    Head,
    References,
    Doomed,
}

impl Blob {
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Segment => "logs",
            Self::Standing => "standing",
            Self::Head => "heads",
            Self::References => "references",
            Self::Doomed => "doomed",
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Segment => Kind::Segment,
            Self::Standing => Kind::Standing,
            Self::Head => Kind::Head,
            Self::References => Kind::References,
            Self::Doomed => Kind::Doomed,
        }
    }
}

/// The name of a single thing: the hash of its bytes in the bucket.
pub(crate) type BlobName = [u8; 32];

/// The key of a single thing of a log, or of whatever `of` names.
pub(crate) fn key_of(blob: Blob, of: &str, before: &str, name: &BlobName) -> String {
    format!("{}/{of}/{before}{}", blob.directory(), to_hex(name))
}

impl RemoteStore {
    /// Writes a single thing and says its key; `before` stands in front of its name there.
    pub(crate) fn put_blob(
        &self,
        blob: Blob,
        of: &str,
        before: &str,
        plain: &[u8],
    ) -> Result<BlobName, RemoteError> {
        let keys = self.keys();
        let bytes = match keys.newest() {
            None => plain.to_vec(),
            Some(key) => Sealer::random(key, blob.kind(), of.as_bytes()).seal(plain),
        };
        let name = PackName::of(&bytes, keys.newest()).0;
        drop(keys);
        self.bucket().put(&key_of(blob, of, before, &name), bytes)?;
        Ok(name)
    }

    /// Reads a single thing, which must be the one that was written under this name, and says which key
    /// had sealed it.
    pub(crate) fn get_blob(
        &self,
        blob: Blob,
        of: &str,
        before: &str,
        name: &BlobName,
    ) -> Result<(Vec<u8>, Option<Mark>), RemoteError> {
        let key = key_of(blob, of, before, name);
        let bytes = self.bucket().get(&key)?;
        let damaged =
            |why: &str| self.bucket().about(Failure::new(Cause::Damaged, why), "read", &key);
        let keys = self.keys();
        let sealed = keys.newest().is_some().then(|| bytes.clone());
        let (plain, mark) = keys.open(blob.kind(), of.as_bytes(), bytes).map_err(damaged)?;
        let found = PackName::of(sealed.as_deref().unwrap_or(&plain), keys.of(mark));
        match found.0 == *name {
            true => Ok((plain, mark)),
            false => Err(damaged("its bytes have another hash")),
        }
    }
}

/// The name at the end of a key, and what stands before it.
pub(crate) fn parse_name(text: &str) -> Option<(&str, BlobName)> {
    let (before, hex) = text.split_at_checked(text.len().checked_sub(64)?)?;
    let name = hex.parse::<ObjectId>().ok()?.0;
    (to_hex(&name) == hex).then_some((before, name))
}

/// The error of something in a bucket that does not decode.
pub(crate) fn undecodable(store: &RemoteStore, key: &str, why: impl std::fmt::Display) -> Error {
    store.bucket().about(Failure::new(Cause::Damaged, why.to_string()), "understand", key).into()
}
