//! Names of domains by number: `user:000000042`, fourteen bytes, the length of a typical address.

/// The length of every name in bytes.
pub const NAME_BYTES: usize = 14;

/// The name of the domain with this number.
pub fn domain(number: u32) -> String {
    format!("user:{number:09}")
}

/// The names of several domains one after the other, without an allocation per name.
#[derive(Debug, Default)]
pub struct NameBuffer(String);

impl NameBuffer {
    /// Replaces the content by the names of these domains.
    pub fn fill(&mut self, numbers: &[u32]) {
        self.0.clear();
        for number in numbers {
            self.0.push_str("user:");
            for power in [
                100_000_000,
                10_000_000,
                1_000_000,
                100_000,
                10_000,
                1_000,
                100,
                10,
                1,
            ] {
                let digit = (number / power % 10) as u8;
                self.0.push(char::from(b'0' + digit));
            }
        }
    }

    /// The name at this position.
    pub fn at(&self, index: usize) -> &str {
        &self.0[index * NAME_BYTES..][..NAME_BYTES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_the_same_names() {
        let numbers = [0, 42, 9_999_999, 123_456_789];
        let mut buffer = NameBuffer::default();
        buffer.fill(&[7]);
        buffer.fill(&numbers);
        for (index, number) in numbers.into_iter().enumerate() {
            assert_eq!(buffer.at(index), domain(number));
        }
    }
}
