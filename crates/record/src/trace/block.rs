//! Blocks of a timeline: a word with length and seal, then calls.
//!
//! The writer begins a block with [`open`] and, after about [`BYTES`] of calls, replaces that word by [`closed`].

use super::Header;
use crate::seal;

/// Bytes of a block's word.
pub const HEAD: usize = 8;
/// Bytes of calls after which a block is closed.
pub const BYTES: usize = 4096;

/// Length in the word of a block that is being written.
const OPEN: u32 = u32::MAX;

/// The word of an open block at offset `at` in the file.
pub fn open(at: u64) -> u64 {
    word(OPEN, seal::of(&at.to_le_bytes()))
}

/// The word of a closed block with these calls.
pub fn closed(at: u64, calls: &[u8]) -> u64 {
    word(calls.len() as u32, seal::of(calls) ^ seal::of(&at.to_le_bytes()))
}

fn word(length: u32, seal: u64) -> u64 {
    u64::from(length) | u64::from(seal::short(seal)) << 32
}

/// The end of a block's calls.
pub(super) enum End {
    Closed(usize),
    Open,
}

/// The end of the block at `at`; `None` where there is none.
pub(super) fn end(file: &[u8], at: usize) -> Option<Result<End, ()>> {
    let start = at.checked_add(HEAD)?;
    let word = u64::from_le_bytes(file.get(at..start)?.try_into().ok()?);
    if word == 0 {
        return None;
    }
    if word == open(at as u64) {
        return Some(Ok(End::Open));
    }
    let end = start + word as u32 as usize;
    let calls = file.get(start..end);
    Some(calls.filter(|calls| word == closed(at as u64, calls)).map(|_| End::Closed(end)).ok_or(()))
}

/// A file with these calls in one closed block.
pub fn file(header: &Header, calls: &[u8]) -> Vec<u8> {
    use zerocopy::IntoBytes;
    let mut file = header.as_bytes().to_vec();
    let word = closed(file.len() as u64, calls);
    file.extend(word.to_le_bytes());
    file.extend(calls);
    file
}
