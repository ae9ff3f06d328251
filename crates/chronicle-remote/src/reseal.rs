//! Exchanging the key of a place: from then on it is written with the new one, and what the old one sealed
//! is written anew, pack by pack.
//!
//! Each home writes its own logs anew at its next push; until all have, the old key is still needed, and
//! whoever has the new one has it.

use chronicle_core::Error;

use crate::pack::PackBuilder;
use crate::seal::RemoteKey;
use crate::store::RemoteStore;

impl RemoteStore {
    /// Exchanges the key; everything that is written from now on is sealed with the new one.
    pub fn exchange_key(&self, new: &RemoteKey) -> Result<(), Error> {
        let mut keys = self.keys_mut();
        Ok(keys.exchange(self.bucket(), new)?)
    }

    /// Writes every pack anew that an older key sealed, and says how many.
    ///
    /// Each is durable before the old one goes, so this may be stopped and begun again at any time.
    pub fn reseal(&self, progress: &dyn Fn(u64, u64)) -> Result<u64, Error> {
        self.refresh()?;
        let newest = self.keys().newest_mark();
        let old: Vec<_> =
            self.known().packs().into_iter().filter(|index| index.mark != newest).collect();
        for (done, index) in old.iter().enumerate() {
            progress(done as u64, old.len() as u64);
            let plain = self.read_pack(index)?;
            let mut builder = PackBuilder::new();
            let mut objects = index.objects.clone();
            // As they lay: what was written together is read together.
            objects.sort_unstable_by_key(|(_, location)| location.offset);
            for (id, location) in objects {
                let range = location.range();
                builder.add(id, &plain[range.start as usize..range.end as usize]);
            }
            self.upload(builder)?;
            self.remove(index)?;
        }
        Ok(old.len() as u64)
    }
}
