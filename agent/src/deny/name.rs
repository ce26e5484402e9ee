//! A domain's name as entries of the deny list keep it.
//!
//! ```text
//! acme                        4 bytes, in the entry itself
//! a name of 23 bytes or more  in memory of its own
//! ```
//!
//! Entries are read cold: a short name costs a refused call no further wait for memory.

/// The longest name that is kept in place. Any name takes 24 bytes, eight more than a pointer and a length.
const SHORT_MAX: usize = 22;

/// A name.
#[derive(Clone, Debug)]
pub(super) enum EntryName {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<str>),
}

impl EntryName {
    pub(super) fn new(name: &str) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match bytes.get_mut(..name.len()) {
            Some(short) => {
                short.copy_from_slice(name.as_bytes());
                let len = name.len() as u8;
                Self::Short { len, bytes }
            }
            None => Self::Long(name.into()),
        }
    }

    /// Whether this is the name.
    #[inline]
    pub(super) fn is(&self, name: &str) -> bool {
        self.as_bytes() == name.as_bytes()
    }

    pub(super) fn to_boxed(&self) -> Box<str> {
        String::from_utf8_lossy(self.as_bytes()).into()
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(name) => name.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_told_apart() {
        assert_eq!(size_of::<EntryName>(), 24);
        for len in 0..40 {
            let text = "é".repeat(len / 2) + &"x".repeat(len % 2);
            let name = EntryName::new(&text);
            assert!(name.is(&text) && *name.to_boxed() == *text);
            assert!(!name.is(&format!("{text}\0")), "{text}");
            if let Some((at, _)) = text.char_indices().last() {
                assert!(!name.is(&text[..at]), "{text}");
            }
        }
    }
}
