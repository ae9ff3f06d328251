//! One component of a path, small: most names need no memory of their own.

const SHORT: usize = 22;

/// A name in a directory.
#[derive(Debug)]
pub(crate) enum Name {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Name {
    /// No name at all, which takes no memory either.
    pub(crate) const EMPTY: Self = Self::Short { length: 0, bytes: [0; SHORT] };

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Name {
    fn from(name: &[u8]) -> Self {
        if name.len() > SHORT {
            return Self::Long(name.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..name.len()].copy_from_slice(name);
        Self::Short { length: name.len() as u8, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_come_back_and_are_small() {
        for length in 0..=255 {
            let name = vec![b'x'; length];
            assert_eq!(Name::from(&name[..]).as_bytes(), &name[..]);
        }
        assert_eq!(size_of::<Name>(), 24);
    }
}
