//! Control messages of UDP sockets: written for UDP_SEGMENT, read for UDP_GRO and IP_RECVERR.

use std::mem::{offset_of, size_of};

use linux::control_messages::{HEADER, field, messages, put};

/// The size of the packets that the kernel joined into this super-packet, if it joined any.
#[inline]
pub(super) fn joined_packet_size(control: &[u8]) -> Option<usize> {
    messages(control).find(|m| m.level == libc::SOL_UDP && m.kind == libc::UDP_GRO).and_then(|m| {
        let size = i32::from_ne_bytes(field(m.data, 0)?);
        usize::try_from(size).ok().filter(|&s| s > 0)
    })
}

/// An error returned for a packet: its errno and whether another host on the way reported it.
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

#[cfg(test)]
mod tests {
    use linux::control_messages::encode;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn garbage_is_no_answer(buffer in proptest::collection::vec(any::<u8>(), 0..200)) {
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
