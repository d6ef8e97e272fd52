//! A port that receives at the driver hook, as `bpf/src/programs/lanes.c` does: it checks sequences and acknowledges
//! without the engine, which may be asleep. The C program is tested on a real kernel; that its protocol ends well
//! whatever the wires do is tested here.

const CARRIES: u32 = 1;
const PING: u32 = 2;
const ACKNOWLEDGED: u32 = 4;
const HEADER: usize = 24;
const ACKNOWLEDGE_EVERY: u32 = 16;

/// One conversation at the receiving host.
pub struct Hook {
    session: u32,
    /// Packets that come before this time go to the socket.
    pub registered_at: u64,
    /// The longest packet that a slot takes; longer ones go to the socket, unknown to the hook.
    slot: usize,
    /// The first packet that the engine lacks, as it last told the peer.
    taken: u32,
    expected: u32,
    told: u32,
    beyond: u64,
}

/// The fate of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Placed,
    Dropped,
    /// Left to the socket.
    Passed,
}

impl Hook {
    pub fn new(session: u32, first: u32, registered_at: u64, slot: usize) -> Hook {
        Hook { session, registered_at, slot, taken: first, expected: first, told: first, beyond: 0 }
    }

    /// A packet of the engine here leaves for the peer.
    pub fn sends(&mut self, packet: &[u8]) {
        self.taken = word(packet, 8);
    }

    /// Handles a packet of the peer; returns the acknowledgement to send, if any. `waiting` of `slots` wait for the engine.
    pub fn arrives(&mut self, packet: &mut [u8], waiting: usize, slots: usize) -> (Verdict, Option<Vec<u8>>) {
        let (sequence, flags) = (word(packet, 4), word(packet, 12) & 0xffff);
        assert_eq!(word(packet, 0), self.session);
        if packet.len() > self.slot {
            return (Verdict::Passed, None);
        }
        let otherwise = self.taken.wrapping_sub(self.expected);
        if otherwise.wrapping_sub(1) < 1 << 31 {
            self.expected = self.taken;
            self.advance(if otherwise > 64 { 0 } else { self.beyond >> (otherwise - 1) });
        }
        if self.taken.wrapping_sub(self.told).cast_signed() > 0 {
            self.told = self.taken;
        }
        let mut ahead = 0;
        let mut outcome = if waiting >= slots { Verdict::Dropped } else { Verdict::Placed };
        let (mut duplicated, mut filled) = (false, false);
        if flags & CARRIES != 0 {
            ahead = sequence.wrapping_sub(self.expected);
            duplicated = ahead.cast_signed() < 0 || (1..=64).contains(&ahead) && self.beyond >> (ahead - 1) & 1 != 0;
            if duplicated {
                outcome = Verdict::Dropped;
            } else if ahead > 64 {
                return (Verdict::Passed, None);
            } else if outcome == Verdict::Placed && ahead > 0 {
                self.beyond |= 1 << (ahead - 1);
            } else if outcome == Verdict::Placed {
                filled = self.beyond != 0;
                self.expected = self.expected.wrapping_add(1);
                self.advance(self.beyond);
            }
        }
        let open = waiting < slots / 4;
        let answer = flags & PING != 0
            || duplicated
            || filled
            || (outcome == Verdict::Placed && ahead > 0)
            || (open && self.expected.wrapping_sub(self.told) >= ACKNOWLEDGE_EVERY);
        if answer && open {
            self.told = self.expected;
        }
        let beyond = if self.told == self.expected { self.beyond } else { 0 };
        let complete = answer && open && self.beyond == 0;
        let flags = flags & CARRIES | if complete { ACKNOWLEDGED } else { 0 };
        packet[12..14].copy_from_slice(&(flags as u16).to_le_bytes());
        let acknowledgement = answer.then(|| {
            let mut bytes = vec![0; HEADER];
            bytes[..4].copy_from_slice(&self.session.to_le_bytes());
            bytes[8..12].copy_from_slice(&self.told.to_le_bytes());
            bytes[16..].copy_from_slice(&beyond.to_le_bytes());
            bytes
        });
        (outcome, acknowledgement)
    }

    /// Advances to the first missing packet; bit i stands for packet `expected + i`.
    fn advance(&mut self, bits: u64) {
        let there = bits.trailing_ones();
        self.expected = self.expected.wrapping_add(there);
        self.beyond = bits.checked_shr(there + 1).unwrap_or(0);
    }
}

fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(packet[at..at + 4].try_into().unwrap())
}
