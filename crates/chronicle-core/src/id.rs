//! The names of things: each kind of id is a type of its own, so that two can never be mixed.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::str::FromStr;

/// Fills a fixed-size array with random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill_random(&mut bytes);
    bytes
}

/// Fills a slice with random bytes from the kernel.
pub(crate) fn fill_random(mut bytes: &mut [u8]) {
    use rustix::rand::{GetRandomFlags, getrandom};
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("BUG: the kernel's random source failed: {error}"),
        }
    }
}

/// Writes bytes as lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Reads hexadecimal of an exact length; `None` for anything else.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::try_from(nibble(pair[0])? << 4 | nibble(pair[1])?).ok()?;
    }
    Some(bytes)
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $size:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $size]);

        impl $name {
            /// The id's bytes.
            pub fn as_bytes(&self) -> &[u8; $size] {
                &self.0
            }

            /// The id from its bytes, if there are exactly as many as it has.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// The id in hexadecimal.
            pub fn hex(&self) -> String {
                to_hex(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.hex())
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                from_hex(text).map(Self).ok_or(())
            }
        }
    };
}

id_type!(
    /// Names immutable bytes by their BLAKE3 hash.
    ObjectId, 32
);
id_type!(
    /// The SHA-256 of a record's leaf bytes.
    LeafHash, 32
);
id_type!(
    /// The SHA-256 that binds a record to everything before it.
    LinkHash, 32
);
id_type!(
    /// Names one snapshot: a UUID v7.
    SnapshotId, 16
);
id_type!(
    /// Names one transaction: a UUID v7.
    TransactionId, 16
);
id_type!(
    /// Names one plan: a UUID v7.
    PlanId, 16
);
id_type!(
    /// Names one workspace, for as long as its history lives.
    WorkspaceId, 16
);
id_type!(
    /// Names one unbroken life of a log; a log restored from a copy gets a new one.
    Epoch, 16
);
id_type!(
    /// Names one replica, from when it became one.
    ReplicaId, 16
);
id_type!(
    /// Names a set of hard links to one file.
    LinkGroup, 8
);

impl ObjectId {
    /// The name of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl LinkHash {
    /// What the first record of a log links to.
    pub const ZERO: Self = Self([0; 32]);
}

impl WorkspaceId {
    /// A new random id.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl Epoch {
    /// A new random id.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl ReplicaId {
    /// A new random id.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl LinkGroup {
    /// A new random id.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

/// A UUID v7: 48 bits of milliseconds, then randomness.
fn uuid_v7(now: Time) -> [u8; 16] {
    let mut bytes: [u8; 16] = random_bytes();
    let millis = u64::try_from(now.0 / 1_000_000).unwrap_or(0);
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = to_hex(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

macro_rules! uuid_type {
    ($name:ident) => {
        impl $name {
            /// A new id, made at this time.
            pub fn new(now: Time) -> Self {
                Self(uuid_v7(now))
            }

            /// The part people see and type: the last 12 digits, since the first are only the time.
            pub fn short(&self) -> String {
                to_hex(&self.0[10..])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&uuid_text(&self.0))
            }
        }
    };
}

uuid_type!(SnapshotId);
uuid_type!(TransactionId);
uuid_type!(PlanId);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// A record's position in the log of one workspace: 1 for the first, without gaps, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time: nanoseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

/// Many names of objects. They are hashes already: a part of one is as good as another hash of it.
pub(crate) type ObjectSet = std::collections::HashSet<ObjectId, BuildHasherDefault<Part>>;

/// Takes the first bytes of a name for its hash.
#[derive(Default)]
pub(crate) struct Part(u64);

impl Hasher for Part {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length of a name says nothing.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_there_and_back_and_nothing_else_is_read() {
        let id = ObjectId::of(b"x");
        assert_eq!(id.hex().parse(), Ok(id));
        assert_eq!("zz".repeat(32).parse::<ObjectId>(), Err(()));
        assert_eq!("aa".parse::<ObjectId>(), Err(()));
    }

    #[test]
    fn snapshot_ids_are_version_7_and_sort_by_time() {
        let (old, new) =
            (SnapshotId::new(Time(1_000_000_000)), SnapshotId::new(Time(9_000_000_000)));
        assert!(old < new);
        assert_eq!(old.to_string().as_bytes()[14], b'7');
        assert!(old.to_string().ends_with(&old.short()));
    }
}
