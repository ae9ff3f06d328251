//! A store behind a pointer is a store: so that stacks can share one.

use std::io::Read;
use std::sync::Arc;

use super::{ContentStorage, SealedStorage};
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

            fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
                (**self).put_stream(source)
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
