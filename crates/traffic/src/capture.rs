//! Captures: lengths and times of packets, to be replayed. The bytes themselves are skipped.
//!
//! This is the classic pcap format, both byte orders, microseconds and nanoseconds; pcapng is in a file of its own. Format:
//! <https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/draft-ietf-opsawg-pcap.html>.

mod ng;

use std::io::{BufReader, Read};
use std::path::Path;

use machine::{Fault, Nanoseconds, Result, count};

use crate::control::TABLE_ENTRIES;

/// Largest packet that a capture can hold, as libpcap has it.
const LARGEST: u32 = 262_144;
const ETHERNET_HEADER: u32 = 14;
/// The version of the format. In earlier versions the two lengths of a packet may stand the other way round.
const VERSION: [u16; 2] = [2, 4];
/// Of the word with the link type: whether its highest four bits say how many half-words of check sequence end each packet.
const CHECKED: u32 = 1 << 26;

/// One packet of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Time after the first frame.
    pub at: Nanoseconds,
    /// Length of its Ethernet frame as it was on the wire, frame check sequence not counted.
    pub length: u32,
}

/// What a capture file holds, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub packets: Vec<Packet>,
    /// Packets that stood in the file after later ones.
    pub out_of_order: usize,
    /// Parts of the file that were left out, a sentence each.
    pub notes: Vec<String>,
}

impl Capture {
    /// Reads a file.
    ///
    /// # Errors
    /// The errors of [`Capture::read`]; a file that cannot be opened.
    pub fn open(path: &Path) -> Result<Capture> {
        let subject = format!("capture {}", path.display());
        let file = std::fs::File::open(path)
            .map_err(|e| Fault::because(subject, e, "name a pcap file that this user can read"))?;
        Capture::read(BufReader::new(file)).map_err(|fault| fault.within(path.display()))
    }

    /// Reads a capture, pcap or pcapng. Memory is bounded by 65,536 packets, whatever the file claims; what follows these, and
    /// a last packet that is not whole, are left out.
    ///
    /// # Errors
    /// Another format or version; another link type than Ethernet, raw IP or Linux cooked; a file that has more of a packet than
    /// there was; no whole packet.
    pub fn read(mut from: impl Read) -> Result<Capture> {
        let from: &mut dyn Read = &mut from;
        let short = || bad("the file is shorter than the format's header");
        let mut head = [0; 24];
        (fill(from, &mut head[..4])? == Filled::Whole).then_some(()).ok_or_else(short)?;
        let mut found = Found::default();
        let whole = match head[..4] == ng::SECTION {
            true => ng::read(from, &mut found)?,
            false => {
                (fill(from, &mut head[4..])? == Filled::Whole).then_some(()).ok_or_else(short)?;
                classic(&head, from, &mut found)?
            }
        };
        found.capture(whole)
    }
}

/// Reads the packets behind the header `head`. `false` where the file ends within one.
fn classic(head: &[u8; 24], from: &mut dyn Read, found: &mut Found) -> Result<bool> {
    let format = Format::of(head)?;
    let link = format.number(&head[20..24]);
    let check = if link & CHECKED != 0 { 2 * (link >> 28) } else { 0 };
    let link = Link::of(link & 0xffff)?;
    let mut record = [0; 16];
    loop {
        match fill(from, &mut record)? {
            Filled::Nothing => return Ok(true),
            Filled::Part => return Ok(false),
            Filled::Whole if found.is_full() => return Ok(true),
            Filled::Whole => {}
        }
        let place = found.place();
        let (seconds, parts) = (format.number(&record[0..4]), format.number(&record[4..8]));
        let (kept, length) = (format.number(&record[8..12]), format.number(&record[12..16]));
        let parts_a_second = if format.nanoseconds { 1_000_000_000 } else { 1_000_000 };
        if parts >= parts_a_second {
            return Err(bad(format!("packet {place} has a time with {parts} parts of a second")));
        }
        found.check(kept, length)?;
        if !skip(from, kept.into())? {
            return Ok(false);
        }
        let at = u64::from(seconds) * 1_000_000_000 + u64::from(parts) * (1_000_000_000 / u64::from(parts_a_second));
        found.push((at, link.ethernet_length(length.saturating_sub(check))));
    }
}

/// The packets read of a file, by time and length.
#[derive(Default)]
struct Found {
    packets: Vec<(u64, u32)>,
    /// Whether the file has more packets than fit.
    more: bool,
    untimed: usize,
}

impl Found {
    /// The number of the next packet, from 1 on.
    fn place(&self) -> usize {
        self.packets.len() + 1
    }

    /// Whether another packet does not fit; called where there is one.
    fn is_full(&mut self) -> bool {
        self.more = self.packets.len() == TABLE_ENTRIES;
        self.more
    }

    fn push(&mut self, packet: (u64, u32)) {
        self.packets.push(packet);
    }

    /// Refuses impossible lengths of the next packet.
    fn check(&self, kept: u32, length: u32) -> Result<()> {
        let place = self.place();
        if kept > LARGEST || length > LARGEST {
            let most = kept.max(length);
            return Err(bad(format!("packet {place} claims {most} bytes, at most {LARGEST} are possible")));
        }
        match kept > length {
            true => Err(bad(format!("packet {place} has {kept} bytes of {length}"))),
            false => Ok(()),
        }
    }

    /// `whole`: whether the file ended behind a packet.
    fn capture(self, whole: bool) -> Result<Capture> {
        let mut notes = Vec::new();
        let place = self.place();
        if !whole {
            notes.push(format!("the capture ends within packet {place}, which is left out"));
        }
        if self.more {
            notes.push(format!("the capture has more than {TABLE_ENTRIES} packets, and the first so many are sent"));
        }
        if self.untimed > 0 {
            let packets = count::of(self.untimed as u64, "packet");
            notes.push(format!("left out of the capture for want of a time: {packets}"));
        }
        let mut packets = self.packets;
        let out_of_order = packets.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        packets.sort_by_key(|&(at, _)| at);
        let Some(&(first, _)) = packets.first() else {
            return Err(bad(if notes.is_empty() { "it has no packets".to_owned() } else { notes.join("; ") }));
        };
        let packets = packets.into_iter().map(|(at, length)| Packet { at: Nanoseconds(at - first), length }).collect();
        Ok(Capture { packets, out_of_order, notes })
    }
}

/// How much of a buffer the input filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    Whole,
    Part,
    Nothing,
}

fn fill(from: &mut dyn Read, into: &mut [u8]) -> Result<Filled> {
    let mut have = 0;
    while have < into.len() {
        match from.read(&mut into[have..]) {
            Ok(0) if have == 0 => return Ok(Filled::Nothing),
            Ok(0) => return Ok(Filled::Part),
            Ok(more) => have += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(unreadable(e)),
        }
    }
    Ok(Filled::Whole)
}

/// Skips bytes; false where the input has fewer.
fn skip(from: &mut dyn Read, bytes: u64) -> Result<bool> {
    let skipped = std::io::copy(&mut Read::take(&mut *from, bytes), &mut std::io::sink()).map_err(unreadable)?;
    Ok(skipped == bytes)
}

fn bad(cause: impl Into<String>) -> Fault {
    Fault::new("capture", cause, "use a pcap or pcapng file, as `tcpdump -w` and `editcap -F pcap IN OUT` write it")
}

fn unreadable(error: std::io::Error) -> Fault {
    Fault::because("capture", error, "see whether the file can be read")
}

struct Format {
    little_endian: bool,
    nanoseconds: bool,
}

impl Format {
    fn of(head: &[u8; 24]) -> Result<Format> {
        let (little_endian, nanoseconds) = match head[..4] {
            [0xd4, 0xc3, 0xb2, 0xa1] => (true, false),
            [0xa1, 0xb2, 0xc3, 0xd4] => (false, false),
            [0x4d, 0x3c, 0xb2, 0xa1] => (true, true),
            [0xa1, 0xb2, 0x3c, 0x4d] => (false, true),
            _ => return Err(bad("it is no pcap file")),
        };
        let format = Format { little_endian, nanoseconds };
        let [major, minor] = [4, 6].map(|at| format.half(&head[at..at + 2]));
        match [major, minor] == VERSION {
            true => Ok(format),
            false => Err(bad(format!("it is of version {major}.{minor} of the format, and 2.4 is read"))),
        }
    }

    fn half(&self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        if self.little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn number(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

/// The link type: what precedes the IP packet.
#[derive(Clone, Copy)]
enum Link {
    Ethernet,
    RawIp,
    /// `tcpdump -i any`.
    Cooked(u32),
}

impl Link {
    fn of(number: u32) -> Result<Link> {
        match number {
            1 => Ok(Link::Ethernet),
            12 | 101 | 228 | 229 => Ok(Link::RawIp),
            113 => Ok(Link::Cooked(16)),
            276 => Ok(Link::Cooked(20)),
            _ => Err(bad(format!("its link type is {number}; Ethernet is 1"))),
        }
    }

    fn ethernet_length(self, length: u32) -> u32 {
        match self {
            Link::Ethernet => length,
            Link::RawIp => length + ETHERNET_HEADER,
            Link::Cooked(header) => length.saturating_sub(header) + ETHERNET_HEADER,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with packets of `(seconds, parts, length)`.
    pub(crate) fn file(little: bool, nanoseconds: bool, link: u32, packets: &[(u32, u32, u32)]) -> Vec<u8> {
        let number = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let mut bytes = number(if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
        bytes.extend([2u16, 4].iter().flat_map(|&n| if little { n.to_le_bytes() } else { n.to_be_bytes() }));
        [0, 0, 65_535, link].iter().for_each(|&n| bytes.extend(number(n)));
        for &(seconds, parts, length) in packets {
            let kept = length.min(32);
            [seconds, parts, kept, length].iter().for_each(|&n| bytes.extend(number(n)));
            bytes.resize(bytes.len() + kept as usize, 0xee);
        }
        bytes
    }

    #[test]
    fn both_orders_and_both_clocks_read_alike() {
        for little in [false, true] {
            for (nanoseconds, part) in [(false, 5), (true, 5000)] {
                let bytes = file(little, nanoseconds, 1, &[(7, part, 60), (7, 2 * part, 1514), (8, part, 20)]);
                let capture = Capture::read(&bytes[..]).unwrap();
                let times: Vec<_> = capture.packets.iter().map(|packet| (packet.at.0, packet.length)).collect();
                assert_eq!(times, [(0, 60), (5000, 1514), (1_000_000_000, 20)]);
                assert_eq!(capture.out_of_order, 0);
            }
        }
    }

    #[test]
    fn lengths_are_those_of_ethernet_frames() {
        // The last with a check sequence of two half-words.
        for (link, length) in [(1, 100), (101, 114), (113, 98), (276, 94), (1 | CHECKED | 2 << 28, 96)] {
            assert_eq!(Capture::read(&file(true, true, link, &[(0, 0, 100)])[..]).unwrap().packets[0].length, length);
        }
    }

    #[test]
    fn packets_come_in_the_order_of_time() {
        let capture = Capture::read(&file(true, false, 1, &[(2, 0, 61), (1, 0, 62), (3, 0, 63)])[..]).unwrap();
        assert_eq!(capture.packets.iter().map(|packet| packet.length).collect::<Vec<_>>(), [62, 61, 63]);
        assert_eq!(capture.out_of_order, 1);
    }

    #[test]
    fn a_file_that_ends_early_or_is_too_long_gives_what_fits() {
        let bytes = file(true, false, 1, &[(1, 0, 60), (2, 0, 61), (3, 0, 62)]);
        // In the bytes of the last packet, and in its head.
        for less in [1, 40] {
            let cut = Capture::read(&bytes[..bytes.len() - less]).unwrap();
            assert_eq!(cut.packets.iter().map(|packet| packet.length).collect::<Vec<_>>(), [60, 61]);
            assert_eq!(cut.notes, ["the capture ends within packet 3, which is left out"]);
        }
        let packets = |number: usize| Capture::read(&file(true, false, 1, &vec![(1, 0, 0); number])[..]).unwrap();
        let (most, more) = (packets(TABLE_ENTRIES), packets(TABLE_ENTRIES + 1));
        assert_eq!((most.packets.len(), most.notes.len()), (TABLE_ENTRIES, 0));
        assert_eq!((more.packets.len(), more.notes.len()), (TABLE_ENTRIES, 1));
        assert!(more.notes[0].contains("more than 65536 packets"), "{:?}", more.notes);
    }

    #[test]
    fn what_is_no_capture_is_refused_with_the_reason() {
        let good = file(true, false, 1, &[(1, 0, 60)]);
        let mut ng = good.clone();
        ng[..4].copy_from_slice(&[0x0a, 0x0d, 0x0d, 0x0a]);
        let mut huge = good.clone();
        huge[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut cut = good.clone();
        cut[32..36].copy_from_slice(&61u32.to_le_bytes());
        let mut old = file(false, true, 1, &[(1, 0, 60)]);
        old[7] = 3;
        for (bytes, word) in [
            (&b""[..], "shorter than the format's header"),
            (&good[..20], "shorter than the format's header"),
            (&good[..24], "no packets"),
            (&good[..30], "ends within packet 1"),
            (&good[..50], "ends within packet 1"),
            (&ng, "tells no byte order"),
            (&cut, "packet 1 has 61 bytes of 60"),
            (&old, "version 2.3 of the format"),
            (&huge, "claims 4294967295 bytes"),
            (&[7; 40], "no pcap file"),
            (&file(true, false, 105, &[(1, 0, 60)]), "link type is 105"),
            (&file(true, false, 1, &[(1, 1_000_000, 60)]), "1000000 parts"),
        ] {
            let fault = Capture::read(bytes).unwrap_err();
            assert!(fault.to_string().contains(word), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn damaged_captures_end_in_packets_or_a_fault(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut: prop::sample::Index) {
            let mut bytes = file(true, true, 1, &[(1, 0, 60), (2, 7, 99), (3, 0, 1514)]);
            for (at, to) in damage {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(capture) = Capture::read(&bytes[..]) {
                prop_assert!(!capture.packets.is_empty() && capture.packets[0].at.0 == 0);
                prop_assert!(capture.packets.windows(2).all(|pair| pair[0].at <= pair[1].at));
            }
        }
    }
}
