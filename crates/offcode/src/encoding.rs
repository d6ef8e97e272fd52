//! How arguments and results become bytes, one value after the other.
//!
//! Two encodings, chosen by the interface: [`postcard`], the default, takes whatever serde takes; [`fixed`] puts each
//! value at an offset that is known beforehand, so that a body in C or BPF can read it.

pub mod fixed;
pub mod postcard;

use std::fmt;

/// The destination of encoded bytes.
pub trait Sink {
    /// Appends `bytes`.
    fn extend(&mut self, bytes: &[u8]);

    /// Appends one byte.
    #[inline]
    fn push(&mut self, byte: u8) {
        self.extend(&[byte]);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }
}

/// The reason why bytes do not decode, or a value has no encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fault if bytes are left after the last value.
#[inline]
pub fn end(rest: &[u8]) -> Result<(), Malformed> {
    if rest.is_empty() { Ok(()) } else { Err(Malformed(format!("{} bytes too many", rest.len()))) }
}
