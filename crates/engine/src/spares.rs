//! Buffers for reuse.

use machine::port::Shared;

/// Buffers of packets that need not be kept any longer.
#[derive(Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    /// Memory of `buffers`, bytes.
    bytes: usize,
    shared: Vec<Shared>,
}

/// Spare buffers beyond this many bytes are freed: about what is in flight to one peer, which an allocator would take from the
/// kernel and give back again and again.
const MOST_BYTES: usize = 4 << 20;
/// Spare shared buffers, which are long, beyond this many are freed.
const MOST_SHARED: usize = 16;

impl Spares {
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    pub fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// A buffer of this length, written by `fill` unless empty.
    pub fn filled(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut buffer = self.take();
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
        if self.bytes + buffer.capacity() <= MOST_BYTES {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}
