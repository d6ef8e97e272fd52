//! Message buffers: owned, handed to a stack and given back; reused at once or in rotation.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// One message's memory: `capacity` bytes, of which the first `length` are the message.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// Memory that is already paged in, so that no block pays for page faults.
    pub fn new(capacity: usize) -> Self {
        Buffer { bytes: vec![0xa5; capacity], length: capacity }
    }

    /// Wraps memory that a stack held; the message is its first `length` bytes.
    ///
    /// # Panics
    /// If `length` is more than `bytes` holds.
    pub fn from_bytes(bytes: Vec<u8>, length: usize) -> Self {
        assert!(length <= bytes.len());
        Buffer { bytes, length }
    }

    /// The whole memory, and the message's length: for stacks that take `Vec<u8>`.
    pub fn into_bytes(self) -> (Vec<u8>, usize) {
        (self.bytes, self.length)
    }

    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// # Panics
    /// If `length` is more than the capacity.
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.bytes.len());
        self.length = length;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Order in which free buffers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// The one given back last: warm in the caches.
    Warm,
    /// The one given back first: cold, if the pool was evicted and is larger than what is sent.
    Rotate,
}

/// Free buffers of one capacity.
#[derive(Debug)]
pub struct Pool {
    free: VecDeque<Buffer>,
    capacity: usize,
    reuse: Reuse,
}

impl Pool {
    pub fn new(count: usize, capacity: usize, reuse: Reuse) -> Self {
        Pool { free: (0..count).map(|_| Buffer::new(capacity)).collect(), capacity, reuse }
    }

    /// Whether this pool serves `count` messages of `capacity` bytes without waste: at most twice as large.
    pub fn suits(&self, count: usize, capacity: usize, reuse: Reuse) -> bool {
        self.reuse == reuse
            && (count..=2 * count).contains(&self.free.len())
            && (capacity..=2 * capacity).contains(&self.capacity)
    }

    /// Memory of its free buffers, bytes.
    pub fn bytes(&self) -> u64 {
        self.free.len() as u64 * self.capacity as u64
    }

    /// A buffer for a message of `length` bytes; grows where all are in use.
    pub fn take(&mut self, length: usize) -> Buffer {
        let mut buffer = match self.reuse {
            Reuse::Warm => self.free.pop_back(),
            Reuse::Rotate => self.free.pop_front(),
        }
        .unwrap_or_else(|| Buffer::new(self.capacity.max(length)));
        buffer.set_length(length);
        buffer
    }

    /// Drops the free buffers from all caches.
    pub fn evict(&self) {
        self.free.iter().for_each(|buffer| linux::cache::evict(&buffer.bytes));
    }

    pub fn give(&mut self, buffer: Buffer) {
        self.free.push_back(buffer);
    }
}

/// Writes the payload of `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = scramble(seed);
    for chunk in bytes.chunks_mut(8) {
        state = next(state);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Offset of the first byte that is not the payload of `seed`.
pub fn first_difference(bytes: &[u8], seed: u64) -> Option<usize> {
    let mut state = scramble(seed);
    for (index, chunk) in bytes.chunks(8).enumerate() {
        state = next(state);
        let expected = state.to_le_bytes();
        if chunk != &expected[..chunk.len()] {
            return chunk.iter().zip(expected).position(|(got, want)| *got != want).map(|at| index * 8 + at);
        }
    }
    None
}

/// The work of a receiver: a hash over every byte, dependent from word to word so that none can be skipped.
pub fn digest(bytes: &[u8], mut state: u64) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = (state ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
    }
    for byte in rest {
        state = (state ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    state
}

fn scramble(seed: u64) -> u64 {
    (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1
}

/// Marsaglia's xorshift64: never 0, except from 0.
fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_told_from_any_other() {
        for length in [1, 7, 8, 9, 4096] {
            let mut bytes = vec![0; length];
            fill(&mut bytes, 7);
            assert_eq!(first_difference(&bytes, 7), None);
            bytes[length - 1] ^= 0x10;
            assert_eq!(first_difference(&bytes, 7), Some(length - 1));
        }
        let mut bytes = vec![0; 8];
        fill(&mut bytes, 7);
        assert!(first_difference(&bytes, 8).is_some());
    }

    #[test]
    fn digest_depends_on_every_byte() {
        let bytes: Vec<u8> = (0..29).collect();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(digest(&bytes, 1), digest(&other, 1), "byte {at}");
        }
    }

    #[test]
    fn rotation_uses_every_buffer_before_one_again() {
        let mut pool = Pool::new(3, 64, Reuse::Rotate);
        let mut seen = Vec::new();
        for _ in 0..3 {
            let buffer = pool.take(8);
            seen.push(buffer.as_ptr());
            pool.give(buffer);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3);

        let mut warm = Pool::new(3, 64, Reuse::Warm);
        let first = warm.take(8);
        let at = first.as_ptr();
        warm.give(first);
        assert_eq!(warm.take(8).as_ptr(), at);
    }
}
