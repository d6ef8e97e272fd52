//! Buffers for reuse.

use machine::port::Shared;

/// Buffers of packets that need not be kept any longer.
#[derive(Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    shared: Vec<Shared>,
}

/// Spare buffers beyond this many are freed.
const MOST_SPARES: usize = 256;
/// Spare shared buffers, which are long, beyond this many are freed.
const MOST_SHARED: usize = 16;

impl Spares {
    pub fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// A buffer of this length, written by `fill` unless empty.
    pub fn filled(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(length, 0);
        if length > 0 {
            fill(&mut buffer);
        }
        buffer
    }

    /// A shared buffer of this length, written by `fill`.
    pub fn shared(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Shared {
        let mut shared = self.shared.pop().unwrap_or_default();
        let bytes = Shared::get_mut(&mut shared).expect("a spare is nobody's");
        bytes.resize(length, 0);
        fill(bytes);
        shared
    }

    /// Keeps the buffer as a spare, unless the port still holds it.
    pub fn put_shared(&mut self, mut shared: Shared) {
        if self.shared.len() < MOST_SHARED && Shared::get_mut(&mut shared).is_some() {
            self.shared.push(shared);
        }
    }

    #[inline]
    pub fn put(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < MOST_SPARES {
            self.buffers.push(buffer);
        }
    }
}
