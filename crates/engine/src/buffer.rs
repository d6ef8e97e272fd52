//! Memory of a message while the engine has it.

/// Memory of a message. It is given to the engine with a request and comes back with the completion. Whatever can show
/// its bytes as slices is a buffer; so is memory of another process, which the node's engine can only copy.
///
/// [`Buffer::address`] must stay true while the value is moved (as for a `Vec`), since peers with remote reads are
/// told of it.
pub trait Buffer {
    /// Length in bytes.
    fn length(&self) -> usize;

    /// Where the bytes are in the memory of the process that peers read from.
    fn address(&self) -> u64;

    /// Copies the bytes from `offset` on over the whole of `into`; the range is inside the buffer.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies the whole of `from` to `offset`; the range is inside the buffer.
    fn write(&mut self, offset: usize, from: &[u8]);

    /// The bytes, where they lie in this process's memory.
    fn as_mut_slice(&mut self) -> Option<&mut [u8]>;
}

/// Copies the whole of `from` over `into`, which has its length. Where both are a few words they are moved in place: the call
/// of a general copy costs more than the rest of a short message's way.
///
/// # Panics
/// Where the lengths differ.
#[inline(always)]
pub fn copy(into: &mut [u8], from: &[u8]) {
    match (from.first_chunk::<8>(), from.last_chunk::<8>()) {
        (Some(first), Some(last)) if from.len() <= 16 && into.len() == from.len() => {
            into[..8].copy_from_slice(first);
            into[from.len() - 8..].copy_from_slice(last);
        }
        _ => copy_long(into, from),
    }
}

#[inline(never)]
fn copy_long(into: &mut [u8], from: &[u8]) {
    into.copy_from_slice(from);
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Buffer for T {
    #[inline]
    fn length(&self) -> usize {
        self.as_ref().len()
    }

    #[inline]
    fn address(&self) -> u64 {
        self.as_ref().as_ptr() as u64
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.as_ref()[offset..offset + into.len()]);
    }

    #[inline]
    fn write(&mut self, offset: usize, from: &[u8]) {
        self.as_mut()[offset..offset + from.len()].copy_from_slice(from);
    }

    #[inline]
    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        Some(self.as_mut())
    }
}
