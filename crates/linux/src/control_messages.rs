//! Control messages (`cmsg(3)`) beside a message of a socket.

use std::mem::{align_of, offset_of, size_of};

/// Bytes before a control message's data; the header's size is already a multiple of the alignment.
pub const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = align_of::<libc::cmsghdr>();

/// One control message as the kernel wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlMessage<'a> {
    pub level: i32,
    pub kind: i32,
    pub data: &'a [u8],
}

/// Walks the control messages in `buffer`; ends at the first that is cut short or lies about its length.
#[inline]
pub fn messages(buffer: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let length = usize::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_len))?);
        let level = i32::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_level))?);
        let kind = i32::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_type))?);
        let data = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(ALIGN)..).unwrap_or(&[]);
        Some(ControlMessage { level, kind, data })
    })
}

/// The bytes of a field, where `buffer` is long enough.
pub fn field<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..at + N)?.try_into().ok()
}

/// Writes `value` over the bytes from `at` on.
#[inline]
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A control message as the kernel writes it.
pub fn encode(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; (HEADER + data.len()).next_multiple_of(ALIGN)];
    put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_len), &(HEADER + data.len()).to_ne_bytes());
    put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_level), &level.to_ne_bytes());
    put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_type), &kind.to_ne_bytes());
    put(&mut bytes, HEADER, data);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_back_what_was_written(all in proptest::collection::vec(
            (any::<i32>(), any::<i32>(), proptest::collection::vec(any::<u8>(), 0..20)), 0..5)) {
            let buffer: Vec<u8> = all.iter().flat_map(|(l, k, d)| encode(*l, *k, d)).collect();
            let read: Vec<_> = messages(&buffer).map(|m| (m.level, m.kind, m.data.to_vec())).collect();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn garbage_ends_the_walk(mut buffer in proptest::collection::vec(any::<u8>(), 0..200), length in 0usize..300) {
            if buffer.len() >= 8 {
                put(&mut buffer, 0, &length.to_ne_bytes());
            }
            let bytes: usize = messages(&buffer).map(|m| m.data.len() + HEADER).sum();
            prop_assert!(bytes <= buffer.len());
        }
    }
}
