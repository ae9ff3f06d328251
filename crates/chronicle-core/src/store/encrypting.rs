//! Objects sealed before they reach a store, so that its owner can neither read nor confirm them.
//!
//! The sealed form is the one that secrets have. The names are keyed hashes of the ids, so a store that
//! checks names against bytes cannot keep them: a store says with [`SealedStorage`] that it keeps sealed
//! forms under names that it cannot check.

use std::io::{Cursor, Read};

use super::{CODEC_SEALED, ContentStorage, Stored, corrupt, open_with_key, sealed_form, verify};
use crate::error::{Context, Error, Result};
use crate::id::ObjectId;
use crate::secret::SecretKey;

/// Keeps sealed forms under names that say nothing about their bytes.
///
/// Such a store can find them, count them and take them away ([`ContentStorage::exists`] and
/// [`ContentStorage::delete`] by that name); only the key's owner can tell whether they are whole.
pub trait SealedStorage: ContentStorage {
    /// The sealed form of this name, as it was put; `Missing` if it is not here.
    fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>>;

    /// Keeps a sealed form in place of the one of this name, durable on return.
    fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()>;
}

/// Refuses what is not a sealed form, so that nothing plain gets under a name that nobody can check.
pub(super) fn check_form(name: &ObjectId, form: &[u8]) -> Result<()> {
    match Stored::parse(form) {
        Ok(Stored { codec: CODEC_SEALED, .. }) => Ok(()),
        _ => Err(corrupt(name, "it is not a sealed form")),
    }
}

/// A store that is given everything sealed, under names that only the key's owner can compute.
///
/// The owner of the store learns how many objects there are, about how long they are, and when they are
/// used. He can take them away and bring back what was deleted; anything else he does is noticed. An
/// object is sealed and opened in memory, also where it comes as a stream.
pub struct Encrypting<S> {
    store: S,
    key: SecretKey,
}

/// Sets these keys apart from those of other uses of the same bytes.
const CONTEXT: &str = "chronicle 1 encrypting store";

impl<S: SealedStorage> Encrypting<S> {
    /// Seals with keys that are derived from these secret bytes.
    pub fn new(store: S, secret: &[u8; 32]) -> Self {
        Self { store, key: SecretKey::new(&blake3::derive_key(CONTEXT, secret)) }
    }

    /// The store that has the sealed forms.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// The name under which the store has an object.
    fn name(&self, id: &ObjectId) -> ObjectId {
        self.key.address(id.as_bytes())
    }
}

/// The object is what the caller asked for; its name in the store would mean nothing to him.
fn about(id: &ObjectId, error: Error) -> Error {
    match error {
        Error::Missing(_) => Error::Missing(*id),
        Error::Corrupt { why, .. } => corrupt(id, why),
        other => other,
    }
}

impl<S: SealedStorage> ContentStorage for Encrypting<S> {
    fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
        let form = self.store.get_sealed(&self.name(id)).map_err(|error| about(id, error))?;
        let bytes = open_with_key(id, &form, &self.key)?;
        // A sealed form of ours under another's name opens, and is not what was asked for.
        verify(id, &bytes)?;
        Ok(bytes)
    }

    fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
        verify(id, bytes)?;
        // What opens is whole; only a damaged one is written anew.
        if self.store.exists(&self.name(id))? && self.get(id).is_ok() {
            return Ok(());
        }
        let form = sealed_form(&self.key, bytes);
        self.store.put_sealed(&self.name(id), &form).map_err(|error| about(id, error))
    }

    fn exists(&self, id: &ObjectId) -> Result<bool> {
        self.store.exists(&self.name(id))
    }

    fn delete(&self, id: &ObjectId) -> Result<()> {
        self.store.delete(&self.name(id))
    }

    fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
        Ok(Box::new(Cursor::new(self.get(id)?)))
    }

    fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).at("take in", super::SOURCE)?;
        let id = ObjectId::of(&bytes);
        self.put(&id, &bytes)?;
        Ok((id, bytes.len() as u64))
    }

    fn drop_copy(&self, id: &ObjectId) -> Result<()> {
        self.store.drop_copy(&self.name(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn put(store: &dyn ContentStorage, bytes: &[u8]) -> ObjectId {
        store.put(&ObjectId::of(bytes), bytes).unwrap();
        ObjectId::of(bytes)
    }

    #[test]
    fn store_has_neither_the_content_nor_its_name() {
        let memory = MemoryStore::new();
        let store = Encrypting::new(&memory, &[1; 32]);
        let id = put(&store, b"a secret thing");
        assert!(store.exists(&id).unwrap() && !memory.exists(&id).unwrap());
        let form = memory.get_sealed(&store.name(&id)).unwrap();
        assert!(!form.windows(6).any(|window| window == b"secret"));
        let other = Encrypting::new(&memory, &[2; 32]);
        assert!(!other.exists(&id).unwrap());
        assert!(matches!(other.get(&id), Err(Error::Missing(missing)) if missing == id));
        assert_eq!(store.get(&id).unwrap(), b"a secret thing");
    }

    #[test]
    fn whatever_the_owner_of_the_store_does_is_noticed_and_may_be_mended() {
        let memory = MemoryStore::new();
        let store = Encrypting::new(&memory, &[1; 32]);
        let (one, two) = (put(&store, b"one"), put(&store, b"two"));
        let form = memory.get_sealed(&store.name(&one)).unwrap();
        let is_corrupt = |id: &ObjectId| matches!(store.get(id), Err(Error::Corrupt { object, .. }) if object == *id);
        memory.put_sealed(&store.name(&two), &form).unwrap();
        assert!(is_corrupt(&two), "one in another's place");
        for at in 1..form.len() {
            let mut damaged = form.clone();
            damaged[at] ^= 1;
            memory.put_sealed(&store.name(&one), &damaged).unwrap();
            // A changed mark says that another key sealed it.
            let refused = store.get(&one).unwrap_err();
            assert!(["corrupt_object", "secret_key_missing"].contains(&refused.code()), "at {at}");
        }
        put(&store, b"one");
        put(&store, b"two");
        assert_eq!(
            (store.get(&one).unwrap(), store.get(&two).unwrap()),
            (b"one".to_vec(), b"two".to_vec())
        );
        assert!(memory.put_sealed(&store.name(&one), b"plain").is_err());
    }
}
