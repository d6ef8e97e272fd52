//! The application's memory in the engine's hands.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use engine::copy;

use crate::abi::Iovec;
use crate::offer::PIECES;

/// The pieces of an application's list; `None` if impossible.
///
/// # Safety
/// `pieces` is NULL or holds `count`.
#[inline]
pub unsafe fn pieces<'a>(pieces: *const Iovec, count: usize) -> Option<&'a [Iovec]> {
    if count == 0 {
        return Some(&[Iovec { base: std::ptr::null_mut(), length: 0 }]);
    }
    if pieces.is_null() || count > PIECES {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(pieces, count) })
}

/// Total length; `None` if it is impossible or a piece is NULL.
#[inline]
pub fn total(pieces: &[Iovec]) -> Option<usize> {
    let mut total = 0usize;
    for piece in pieces {
        if piece.base.is_null() && piece.length > 0 {
            return None;
        }
        total = total.checked_add(piece.length)?;
    }
    Some(total)
}

/// Actions at the end of a request.
pub mod wish {
    /// An entry is made in the completion queue.
    pub const COMPLETION: u8 = 1 << 0;
    /// The request was made by a tagged call.
    pub const TAGGED: u8 = 1 << 1;
    /// The buffer takes messages until it is full.
    pub const MULTIPLE: u8 = 1 << 2;
    /// The request is the provider's own: a part of a remote memory access.
    pub const REMOTE: u8 = 1 << 3;
    /// The request is an inject: without a context of the application's, for errors either.
    pub const NAMELESS: u8 = 1 << 4;
    /// The request is a part of deferred work, which says where its end is counted.
    pub const DEFERRED: u8 = 1 << 5;
}

/// Purposes of the provider's own requests; in [`Memory::source`].
pub mod role {
    /// Receives the next request of any peer.
    pub const REQUEST: u32 = 0;
    /// Receives an operation's answer.
    pub const ANSWER: u32 = 1;
    /// Sends a part of an operation to the target.
    pub const PART: u32 = 2;
    /// Reads or writes a region for a peer.
    pub const LEASE: u32 = 3;
    /// Ends unnoticed.
    pub const IGNORED: u32 = 4;
    /// Carries a message of a connection's handshake.
    pub const WORD: u32 = 5;
    /// Carries the copy of a datagram.
    pub const DATAGRAM: u32 = 6;
}

/// The engine's context of one of the provider's own requests. The highest bit tells it from applications' contexts, which are
/// addresses, so that `fi_cancel` finds none of these.
pub fn own(bits: u64) -> u64 {
    bits ^ 1 << 63
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    /// No memory: writes are lost, reads give 0.
    Nowhere,
    /// The application's memory in one piece.
    Flat,
    /// A copy, made because the application wanted its buffer back at once.
    Owned,
    /// The application's memory in several pieces: `pointer` is a `Box<Pieces>`.
    Scattered,
}

struct Pieces(Vec<(*mut u8, usize)>);

/// Memory of a message, and the provider's record of its request: it travels with the request and comes back with the
/// completion, so that no table of requests is needed.
pub struct Memory {
    pointer: *mut u8,
    length: usize,
    /// The peer that a buffer for several messages receives from, `u32::MAX` for any; of the provider's own requests their
    /// purpose; of deferred work its ticket.
    pub source: u32,
    pub wishes: u8,
    kind: Kind,
}

// SAFETY: the pointers are to memory that stays until the request ends or gives it back, whatever thread that is in.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    /// The memory stays until this value is dropped, or replaced by [`Memory::stand_in`]. The application does not access it
    /// meanwhile, unless it is a region's, where it finds old or new bytes. A send's is only read.
    #[inline(always)]
    pub unsafe fn flat(pointer: *mut c_void, length: usize, wishes: u8) -> Self {
        // A slice may not begin at NULL, not even an empty one.
        let pointer = if length == 0 { std::ptr::dangling_mut() } else { pointer.cast() };
        Memory { pointer, length, source: u32::MAX, wishes, kind: Kind::Flat }
    }

    /// Memory of the provider with a copy.
    pub fn owned(bytes: Vec<u8>, wishes: u8) -> Self {
        let mut bytes = ManuallyDrop::new(bytes.into_boxed_slice());
        let length = bytes.len();
        Memory { pointer: bytes.as_mut_ptr(), length, source: u32::MAX, wishes, kind: Kind::Owned }
    }

    /// # Safety
    /// As for [`Memory::flat`], for every piece; the list itself is copied.
    #[inline(always)]
    pub unsafe fn scattered(pieces: &[Iovec], wishes: u8) -> Self {
        if let [only] = pieces {
            // SAFETY: the caller's promise.
            return unsafe { Memory::flat(only.base, only.length, wishes) };
        }
        Memory::of_several(pieces, wishes)
    }

    #[inline(never)]
    fn of_several(pieces: &[Iovec], wishes: u8) -> Self {
        let length = pieces.iter().map(|piece| piece.length).sum();
        let pieces = pieces.iter().filter(|piece| piece.length > 0);
        let pieces = Box::new(Pieces(pieces.map(|piece| (piece.base.cast(), piece.length)).collect()));
        let pointer = Box::into_raw(pieces).cast();
        Memory { pointer, length, source: u32::MAX, wishes, kind: Kind::Scattered }
    }

    /// Replacement of memory that is taken back; see [`endpoint::StandIn`].
    pub fn stand_in(&self, needed: bool) -> Self {
        let (length, source, wishes) = (self.length, self.source, self.wishes);
        if !needed {
            return Memory { pointer: std::ptr::dangling_mut(), length, source, wishes, kind: Kind::Nowhere };
        }
        let mut copy = vec![0; length];
        engine::Buffer::read(self, 0, &mut copy);
        let mut memory = Memory::owned(copy, wishes);
        memory.source = source;
        memory
    }

    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Address of the first byte, as applications are told it.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        if self.kind == Kind::Flat { self.pointer } else { std::ptr::null_mut() }
    }

    /// The bytes of a copy.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.is_slice(), "it is not in one piece");
        // SAFETY: flat and owned memory is one piece that stays while `self` does.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }

    /// Whether the memory is one piece.
    #[inline]
    fn is_slice(&self) -> bool {
        matches!(self.kind, Kind::Flat | Kind::Owned)
    }

    fn pieces(&self) -> &[(*mut u8, usize)] {
        debug_assert!(self.kind == Kind::Scattered);
        // SAFETY: `scattered` put the box there, and `drop` takes it away.
        unsafe { &(*self.pointer.cast::<Pieces>()).0 }
    }

    #[inline(never)]
    fn read_pieces(&self, offset: usize, into: &mut [u8]) {
        if self.kind == Kind::Nowhere {
            return into.fill(0);
        }
        // SAFETY: `walk` names parts of the application's memory and of `into`, which do not overlap.
        self.walk(offset, into.len(), |from, at, length| unsafe {
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(at), length);
        });
    }

    #[inline(never)]
    fn write_pieces(&mut self, offset: usize, from: &[u8]) {
        if self.kind == Kind::Nowhere {
            return;
        }
        // SAFETY: as in `read_pieces`.
        self.walk(offset, from.len(), |into, at, length| unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr().add(at), into, length);
        });
    }

    /// Calls `each` with every part of the range: its address, its offset in the range, its length.
    fn walk(&self, offset: usize, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let (mut skip, mut done) = (offset, 0);
        for &(pointer, size) in self.pieces() {
            if skip >= size {
                skip -= size;
                continue;
            }
            let part = (size - skip).min(length - done);
            // SAFETY: `skip` is inside the piece.
            each(unsafe { pointer.add(skip) }, done, part);
            skip = 0;
            done += part;
            if done == length {
                break;
            }
        }
    }
}

impl engine::Buffer for Memory {
    #[inline]
    fn length(&self) -> usize {
        self.length
    }

    /// 0 if the bytes are not in one piece, so that peers cannot read them.
    #[inline]
    fn address(&self) -> u64 {
        if self.is_slice() { self.pointer as u64 } else { 0 }
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.length && into.len() <= self.length - offset, "read outside the buffer");
        if !self.is_slice() {
            return self.read_pieces(offset, into);
        }
        // SAFETY: the range is inside, as asserted. `into` is the port's memory, never the application's.
        copy(into, unsafe { std::slice::from_raw_parts(self.pointer.add(offset), into.len()) });
    }

    #[inline(always)]
    fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset <= self.length && from.len() <= self.length - offset, "write outside the buffer");
        if !self.is_slice() {
            return self.write_pieces(offset, from);
        }
        // SAFETY: as in `read`.
        copy(unsafe { std::slice::from_raw_parts_mut(self.pointer.add(offset), from.len()) }, from);
    }

    #[inline]
    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: one piece that stays while `self` does; nothing here keeps another reference into it, and what an
        // application does in a region of its own meanwhile changes plain bytes.
        self.is_slice().then(|| unsafe { std::slice::from_raw_parts_mut(self.pointer, self.length) })
    }
}

impl Memory {
    /// Frees what the provider made.
    #[cold]
    #[inline(never)]
    fn free(&mut self) {
        match self.kind {
            Kind::Flat | Kind::Nowhere => {}
            Kind::Owned => {
                // SAFETY: `owned` gave the boxed slice up.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.pointer, self.length)) })
            }
            // SAFETY: `scattered` gave the box up.
            Kind::Scattered => drop(unsafe { Box::from_raw(self.pointer.cast::<Pieces>()) }),
        }
    }
}

impl Drop for Memory {
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(self.kind, Kind::Flat | Kind::Nowhere) {
            self.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::Buffer;

    use super::*;

    #[test]
    fn pieces_read_and_write_as_one() {
        let mut parts = [vec![0u8; 3], vec![0u8; 0], vec![0u8; 5], vec![0u8; 1]];
        let list: Vec<Iovec> =
            parts.iter_mut().map(|part| Iovec { base: part.as_mut_ptr().cast(), length: part.len() }).collect();
        // SAFETY: the parts outlive the memory and are looked at after it is gone.
        let mut memory = unsafe { Memory::scattered(&list, 0) };
        assert_eq!((memory.length(), memory.address(), memory.as_mut_slice().is_none()), (9, 0, true));
        memory.write(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        memory.write(2, &[30, 40]);
        let mut back = [0; 6];
        memory.read(1, &mut back);
        assert_eq!(back, [2, 30, 40, 5, 6, 7]);
        memory.read(9, &mut []);
        drop(memory);
        assert_eq!(parts.concat(), [1, 2, 30, 40, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_stands_in_for_memory_touches_none() {
        let mut bytes = [7u8; 4];
        // SAFETY: the bytes outlive the memory and are looked at after it is gone.
        let mut memory = unsafe { Memory::flat(bytes.as_mut_ptr().cast(), 4, wish::REMOTE) };
        memory.source = 3;
        let (mut nowhere, copy) = (memory.stand_in(false), memory.stand_in(true));
        drop(memory);
        bytes = [8; 4];
        nowhere.write(0, &[9; 4]);
        for (stand_in, expected) in [(&nowhere, [0; 4]), (&copy, [7; 4])] {
            let mut back = [1; 4];
            stand_in.read(0, &mut back);
            assert_eq!((back, stand_in.length(), stand_in.source, stand_in.wishes), (expected, 4, 3, wish::REMOTE));
        }
        assert_eq!((nowhere.address(), nowhere.start().is_null(), nowhere.as_mut_slice()), (0, true, None));
        assert_eq!(bytes, [8; 4]);
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_written_past_the_end() {
        Memory::owned(vec![0; 4], 0).write(3, &[1, 2]);
    }
}
