//! Captures in the pcapng format, as Wireshark and dumpcap write them: blocks, of which those of interfaces and packets count.
//!
//! Format: <https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/draft-ietf-opsawg-pcapng.html>.

use std::io::Read;

use machine::Result;

use super::{Filled, Found, Link, bad, fill, skip};

/// The first block of a section, the same in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
/// Bytes of a block's type and of its two lengths.
const AROUND: u64 = 12;
/// Bytes of a packet's block before those of the packet.
const PACKET_HEAD: usize = 20;
/// Most bytes of an interface's options that are read.
const MOST_OPTIONS: u64 = 1 << 16;
/// The option with the unit of time.
const RESOLUTION: u16 = 9;
const MICROSECONDS: u8 = 6;

struct Interface {
    link: u32,
    /// The negative power of ten, or with its highest bit of two, that a tick is of a second.
    resolution: u8,
}

#[derive(Clone, Copy)]
struct Order {
    little: bool,
}

impl Order {
    fn half(self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn number(self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

/// Reads what follows the type of the first block. `false` where the file ends within a block.
pub(super) fn read(from: &mut dyn Read, found: &mut Found) -> Result<bool> {
    let mut order = Order { little: true };
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut kind = SECTION;
    loop {
        let mut length = [0; 4];
        if fill(from, &mut length)? != Filled::Whole {
            return Ok(false);
        }
        let mut taken = 0;
        if kind == SECTION {
            let mut magic = [0; 4];
            if fill(from, &mut magic)? != Filled::Whole {
                return Ok(false);
            }
            order.little = match magic {
                [0x4d, 0x3c, 0x2b, 0x1a] => true,
                [0x1a, 0x2b, 0x3c, 0x4d] => false,
                _ => return Err(bad("it begins as a pcapng file and tells no byte order")),
            };
            interfaces.clear();
            taken = 4;
        }
        let total = u64::from(order.number(&length));
        let Some(rest) = total.checked_sub(AROUND + taken) else {
            return Err(bad(format!("a block claims {total} bytes")));
        };
        let whole = match order.number(&kind) {
            INTERFACE => {
                if !(8..=MOST_OPTIONS).contains(&rest) {
                    return Err(bad(format!("the block of an interface claims {total} bytes")));
                }
                let mut body = vec![0; rest as usize];
                let filled = fill(from, &mut body)? == Filled::Whole;
                interfaces.push(Interface {
                    link: order.half(&body).into(),
                    resolution: option(&body[8..], RESOLUTION, order).unwrap_or(MICROSECONDS),
                });
                filled
            }
            kind @ (PACKET | OLD_PACKET) => {
                if found.is_full() {
                    return Ok(true);
                }
                let mut head = [0; PACKET_HEAD];
                let Some(kept) = rest.checked_sub(PACKET_HEAD as u64) else {
                    return Err(bad(format!("the block of packet {} claims {total} bytes", found.place())));
                };
                if fill(from, &mut head)? != Filled::Whole || !skip(from, kept)? {
                    return Ok(false);
                }
                let packet = packet(&head, kind, kept, &interfaces, order, found)?;
                found.push(packet);
                true
            }
            SIMPLE_PACKET => {
                found.untimed += 1;
                skip(from, rest)?
            }
            _ => skip(from, rest)?,
        };
        // The length stands at the end too.
        if !whole || !skip(from, 4)? {
            return Ok(false);
        }
        match fill(from, &mut kind)? {
            Filled::Whole => {}
            Filled::Nothing => return Ok(true),
            Filled::Part => return Ok(false),
        }
    }
}

/// Time and length of a packet. `room` is what its block has for its bytes and options.
fn packet(
    head: &[u8; PACKET_HEAD],
    kind: u32,
    room: u64,
    interfaces: &[Interface],
    order: Order,
    found: &Found,
) -> Result<(u64, u32)> {
    let place = found.place();
    let number = |at: usize| order.number(&head[at..at + 4]);
    let interface = if kind == OLD_PACKET { order.half(head).into() } else { number(0) };
    let Some(Interface { link, resolution }) = interfaces.get(interface as usize) else {
        return Err(bad(format!("packet {place} is of interface {interface}, which the file does not describe")));
    };
    let (kept, length) = (number(12), number(16));
    found.check(kept, length)?;
    if u64::from(kept) > room {
        return Err(bad(format!("packet {place} has {kept} bytes, and its block has room for {room}")));
    }
    let ticks = u128::from(number(4)) << 32 | u128::from(number(8));
    let nanoseconds = match (resolution & 0x80 != 0, resolution & 0x7f) {
        (true, power @ 0..=63) => Some((ticks * 1_000_000_000) >> power),
        (false, power @ 0..=19) => Some(ticks * 1_000_000_000 / 10u128.pow(power.into())),
        _ => None,
    };
    let at = nanoseconds.and_then(|time| u64::try_from(time).ok());
    let at = at.ok_or_else(|| bad(format!("packet {place} has a time beyond 584 years, or parts too small")))?;
    Ok((at, Link::of(*link)?.ethernet_length(length)))
}

/// The first byte of an option.
fn option(mut options: &[u8], wanted: u16, order: Order) -> Option<u8> {
    loop {
        let (code, length) = (order.half(options.get(..2)?), order.half(options.get(2..4)?));
        match code {
            0 => return None,
            code if code == wanted => return options.get(4).copied().filter(|_| length > 0),
            _ => options = options.get(4 + usize::from(length).next_multiple_of(4)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Capture;
    use super::*;

    fn block(little: bool, kind: u32, body: &[u8]) -> Vec<u8> {
        let number = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let length = number(12 + body.len() as u32);
        [&number(kind)[..], &length, body, &length].concat()
    }

    /// A file of one interface with ticks of `resolution`, and packets of `(ticks, length)`.
    fn file(little: bool, link: u16, resolution: u8, packets: &[(u64, u32)]) -> Vec<u8> {
        let number = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let half = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let section = [&number(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
        let mut interface = [&half(link)[..], &half(0), &number(65_535)].concat();
        // A name of five bytes before it, the end after it.
        interface.extend(
            [&half(2)[..], &half(5), b"eth0\0\0\0\0", &half(RESOLUTION), &half(1), &[resolution, 0, 0, 0]].concat(),
        );
        interface.extend([0; 4]);
        let mut bytes = block(little, 0x0a0d_0d0a, &section);
        bytes.extend(block(little, INTERFACE, &interface));
        // Of names, which nobody asked for.
        bytes.extend(block(little, 4, &[0; 8]));
        for &(ticks, length) in packets {
            let kept = length.min(30);
            let mut body = [0, (ticks >> 32) as u32, ticks as u32, kept, length].map(number).concat();
            body.resize(body.len() + kept.next_multiple_of(4) as usize, 0xee);
            bytes.extend(block(little, PACKET, &body));
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<(u64, u32)> {
        let capture = Capture::read(bytes).unwrap();
        capture.packets.iter().map(|packet| (packet.at.0, packet.length)).collect()
    }

    #[test]
    fn both_orders_and_all_clocks_read_alike() {
        for little in [false, true] {
            for (resolution, tick) in [(6, 1000), (9, 1), (3, 1_000_000), (0x80 | 10, 976_562)] {
                let start = if resolution == 3 { 7 } else { 1 << 40 };
                let bytes = file(little, 1, resolution, &[(start, 60), (start + 1, 1514)]);
                let read = read(&bytes);
                assert_eq!((read[0], read[1].1), ((0, 60), 1514));
                assert!(read[1].0.abs_diff(tick) <= 1, "{resolution}: {read:?}");
            }
        }
        assert_eq!(read(&file(true, 101, 6, &[(0, 100)])), [(0, 114)]);
        let two = [file(true, 1, 6, &[(0, 60)]), file(false, 101, 9, &[(2000, 60)])].concat();
        assert_eq!(read(&two), [(0, 60), (2000, 74)], "a second section in the other order");
    }

    #[test]
    fn a_file_that_ends_early_gives_what_is_whole() {
        let bytes = file(true, 1, 6, &[(1, 60), (2, 61), (3, 62)]);
        let cut = Capture::read(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(cut.packets.len(), 3, "its bytes are there");
        let cut = Capture::read(&bytes[..bytes.len() - 30]).unwrap();
        assert_eq!((cut.packets.len(), cut.notes.len()), (2, 1));
        assert!(cut.notes[0].contains("ends within packet 3"), "{:?}", cut.notes);
    }

    #[test]
    fn what_is_no_pcapng_is_refused_with_the_reason() {
        let good = file(true, 1, 6, &[(1, 60)]);
        let simple = block(true, SIMPLE_PACKET, &[60, 0, 0, 0]);
        let start = good.len() - 12 - 20 - 32;
        let other = |at: usize, to: u32| {
            let mut bytes = good.clone();
            bytes[start + 8 + at..start + 12 + at].copy_from_slice(&to.to_le_bytes());
            bytes
        };
        for (bytes, word) in [
            (&good[..start], "no packets"),
            (&[&good[..start], &simple].concat(), "for want of a time: 1 packet"),
            (&other(0, 7), "of interface 7"),
            (&other(12, 61), "packet 1 has 61 bytes of 60"),
            (&other(16, u32::MAX), "claims 4294967295 bytes"),
            (&file(true, 105, 6, &[(1, 60)]), "link type is 105"),
            (&file(true, 1, 0xff, &[(1, 60)]), "parts too small"),
            (&[&SECTION[..], &[8, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a]].concat(), "claims 8 bytes"),
        ] {
            let fault = Capture::read(bytes).unwrap_err();
            assert!(fault.to_string().contains(word), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_pcapng_ends_in_packets_or_a_fault(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut: prop::sample::Index) {
            let mut bytes = file(true, 1, 9, &[(1, 60), (2, 99), (3, 1514)]);
            for (at, to) in damage {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(capture) = Capture::read(&bytes[..]) {
                prop_assert!(!capture.packets.is_empty() && capture.packets[0].at.0 == 0);
            }
        }
    }
}
