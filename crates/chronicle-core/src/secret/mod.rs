//! Secrets: which files hold them, the key that seals their content, and the sealed form.
//!
//! Secret content has an address that only the key's owner can compute, and lies in the store
//! encrypted. It shares nothing with other content.

mod key;
mod rules;
mod seal;
mod shapes;

pub use key::Secrets;
pub(crate) use key::{KEY_MARK, SecretKey};
pub(crate) use rules::{Class, SecretRules};
pub(crate) use seal::{Refused, Sealing, Unsealing, overhead, seal, unseal};
