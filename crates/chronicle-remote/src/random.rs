//! Randomness from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// So many random bytes.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("BUG: the kernel's random source failed: {error}"),
        }
    }
    bytes
}
