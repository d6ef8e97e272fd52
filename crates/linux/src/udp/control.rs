//! Control messages (`cmsg(3)`) beside a message: written for UDP_SEGMENT, read for UDP_GRO and IP_RECVERR, and for
//! descriptors and credentials that come over Unix sockets.

use std::mem::{align_of, offset_of, size_of};

/// Bytes before a control message's data; the header's size is already a multiple of the alignment.
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = align_of::<libc::cmsghdr>();

/// One control message as the kernel wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlMessage<'a> {
    pub level: i32,
    pub kind: i32,
    pub data: &'a [u8],
}

/// Walks the control messages in `buffer`; ends at the first that is cut short or lies about its length.
pub(crate) fn messages(buffer: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
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

fn field<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..at + N)?.try_into().ok()
}

/// The size of the packets that the kernel joined into this super-packet, if it joined any.
#[inline]
pub(super) fn joined_packet_size(control: &[u8]) -> Option<usize> {
    messages(control).find(|m| m.level == libc::SOL_UDP && m.kind == libc::UDP_GRO).and_then(|m| {
        let size = i32::from_ne_bytes(field(m.data, 0)?);
        usize::try_from(size).ok().filter(|&s| s > 0)
    })
}

/// An error that came back for a packet: its errno and whether a host on the way (not this one) said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReturnedError {
    pub errno: i32,
    pub by_icmp: bool,
}

/// The extended error in the control messages of an error-queue entry.
pub(super) fn returned_error(control: &[u8]) -> Option<ReturnedError> {
    let found = messages(control).find(|m| {
        (m.level == libc::SOL_IP && m.kind == libc::IP_RECVERR)
            || (m.level == libc::SOL_IPV6 && m.kind == libc::IPV6_RECVERR)
    })?;
    let errno = u32::from_ne_bytes(field(found.data, offset_of!(libc::sock_extended_err, ee_errno))?);
    let origin = *found.data.get(offset_of!(libc::sock_extended_err, ee_origin))?;
    let by_icmp = origin == libc::SO_EE_ORIGIN_ICMP || origin == libc::SO_EE_ORIGIN_ICMP6;
    Some(ReturnedError { errno: errno.cast_signed(), by_icmp })
}

/// A UDP_SEGMENT control message: the kernel cuts the datagram into packets of `segment` bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct SegmentControl([u8; HEADER + 8]);

impl SegmentControl {
    pub const LENGTH: usize = HEADER + 8;

    pub fn new(segment: u16) -> Self {
        let mut bytes = [0; Self::LENGTH];
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_len), &(HEADER + size_of::<u16>()).to_ne_bytes());
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_level), &libc::SOL_UDP.to_ne_bytes());
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_type), &libc::UDP_SEGMENT.to_ne_bytes());
        put(&mut bytes, HEADER, &segment.to_ne_bytes());
        SegmentControl(bytes)
    }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; (HEADER + data.len()).next_multiple_of(ALIGN)];
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_len), &(HEADER + data.len()).to_ne_bytes());
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_level), &level.to_ne_bytes());
        put(&mut bytes, offset_of!(libc::cmsghdr, cmsg_type), &kind.to_ne_bytes());
        put(&mut bytes, HEADER, data);
        bytes
    }

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
            let _ = (joined_packet_size(&buffer), returned_error(&buffer));
        }

        #[test]
        fn a_joined_size_is_positive(size: i32) {
            let buffer = encode(libc::SOL_UDP, libc::UDP_GRO, &size.to_ne_bytes());
            prop_assert_eq!(joined_packet_size(&buffer), usize::try_from(size).ok().filter(|&s| s > 0));
        }
    }

    #[test]
    fn the_written_segment_reads_back() {
        let written = SegmentControl::new(1400);
        let read: Vec<_> = messages(&written.0).map(|m| (m.level, m.kind, m.data.to_vec())).collect();
        assert_eq!(read, [(libc::SOL_UDP, libc::UDP_SEGMENT, 1400u16.to_ne_bytes().to_vec())]);
    }
}
