//! A store behind a pointer is a store: so that stacks can share one.

use std::io::Read;
use std::sync::Arc;

use super::{ContentStorage, Piece, SealedStorage};
use crate::error::Result;
use crate::id::ObjectId;

macro_rules! storage_behind {
    ($($pointer:ty),*) => {$(
        impl<S: ContentStorage + ?Sized> ContentStorage for $pointer {
            fn get(&self, id: &ObjectId) -> Result<Vec<u8>> {
                (**self).get(id)
            }

            fn put(&self, id: &ObjectId, bytes: &[u8]) -> Result<()> {
                (**self).put(id, bytes)
            }

            fn exists(&self, id: &ObjectId) -> Result<bool> {
                (**self).exists(id)
            }

            fn delete(&self, id: &ObjectId) -> Result<()> {
                (**self).delete(id)
            }

            fn reader(&self, id: &ObjectId) -> Result<Box<dyn Read + Send + '_>> {
                (**self).reader(id)
            }

            fn pieces(&self, id: &ObjectId) -> Result<Option<Vec<Piece>>> {
                (**self).pieces(id)
            }

            fn stored(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
                (**self).stored(id)
            }

            fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
                (**self).put_stream(source)
            }

            fn is_elsewhere(&self, id: &ObjectId) -> Result<bool> {
                (**self).is_elsewhere(id)
            }

            fn drop_copy(&self, id: &ObjectId) -> Result<()> {
                (**self).drop_copy(id)
            }
        }

        impl<S: SealedStorage + ?Sized> SealedStorage for $pointer {
            fn get_sealed(&self, name: &ObjectId) -> Result<Vec<u8>> {
                (**self).get_sealed(name)
            }

            fn put_sealed(&self, name: &ObjectId, form: &[u8]) -> Result<()> {
                (**self).put_sealed(name, form)
            }
        }
    )*};
}

storage_behind!(&S, Box<S>, Arc<S>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LARGE_OBJECT, LocalStore};

    /// A store behind a pointer said that large objects have no pieces: whoever sent one over a link read all of it
    /// into memory. What a trait gives by itself must be passed on too.
    #[test]
    fn pieces_of_a_large_object_are_seen_through_a_pointer() {
        let home = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&home.path().join("store")).unwrap();
        let bytes: Vec<u8> =
            (0..LARGE_OBJECT as u32 + 1).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        let mut intake = store.intake().unwrap();
        let (id, _) = intake.take_stream(&mut &bytes[..]).unwrap();
        assert_eq!(intake.finish().unwrap(), []);
        drop(intake);
        let pieces = store.pieces(&id).unwrap().expect("it is large");
        fn through(store: impl ContentStorage, id: &ObjectId) -> Option<Vec<Piece>> {
            store.pieces(id).unwrap()
        }
        assert_eq!(through(&store, &id).as_ref(), Some(&pieces));
        assert_eq!(through(Box::new(&store), &id).as_ref(), Some(&pieces));
        assert_eq!(through(Arc::new(store), &id).as_ref(), Some(&pieces));
    }
}
