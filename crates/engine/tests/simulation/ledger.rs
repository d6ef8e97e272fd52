//! Messages sent and received, and whether the two agree.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use engine::Status;

use super::random::Random;

/// Sender, receiver, tag.
pub type Stream = (usize, usize, u64);

/// A message's bytes follow from its number.
pub fn fill(number: u64, offset: usize, into: &mut [u8]) {
    let key = Random::new(number).next();
    let word = |at: usize| {
        let mixed = (key ^ (at as u64 / 8).wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed.to_le_bytes()
    };
    let skip = offset % 8;
    let (head, rest) = into.split_at_mut(into.len().min((8 - skip) % 8));
    head.copy_from_slice(&word(offset)[skip..skip + head.len()]);
    let mut at = offset + head.len();
    let mut words = rest.chunks_exact_mut(8);
    for bytes in &mut words {
        bytes.copy_from_slice(&word(at));
        at += 8;
    }
    let tail = words.into_remainder();
    tail.copy_from_slice(&word(at)[..tail.len()]);
}

/// FNV-1a over words.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut state = 0xCBF2_9CE4_8422_2325_u64;
    let mut mix = |word: u64| state = (state ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    for word in &mut words {
        mix(u64::from_le_bytes(word.try_into().unwrap()));
    }
    for &byte in words.remainder() {
        mix(u64::from(byte) | 0x100);
    }
    state
}

struct Sent {
    number: u64,
    length: usize,
    cancelled: bool,
}

/// A receive that a message was matched with.
pub struct Received {
    /// Number of the receive in the order posted.
    pub posted: u64,
    pub length: usize,
    pub capacity: usize,
    pub digest: u64,
    pub status: Status,
}

#[derive(Default)]
pub struct Ledger {
    sent: HashMap<Stream, Vec<Sent>, FixedState>,
    received: HashMap<Stream, Vec<Received>, FixedState>,
    /// Place of each message, for cancelling it.
    places: HashMap<u64, (Stream, usize), FixedState>,
    pub messages_received: u64,
}

impl Ledger {
    pub fn sent(&mut self, stream: Stream, number: u64, length: usize) {
        let list = self.sent.entry(stream).or_default();
        self.places.insert(number, (stream, list.len()));
        list.push(Sent { number, length, cancelled: false });
    }

    pub fn cancelled(&mut self, number: u64) {
        let (stream, place) = self.places[&number];
        self.sent.get_mut(&stream).unwrap()[place].cancelled = true;
    }

    pub fn received(&mut self, stream: Stream, received: Received) {
        self.messages_received += 1;
        self.received.entry(stream).or_default().push(received);
    }

    /// MPI: of one sender and tag, an earlier message goes to the receive posted earlier. So the receives in the order
    /// posted hold the messages in the order sent; between the living all of them, from or to a dead host perhaps
    /// with gaps.
    pub fn check(mut self, died: impl Fn(usize) -> bool) {
        for (stream, mut received) in self.received.drain() {
            received.sort_by_key(|receipt| receipt.posted);
            let sent = self.sent.remove(&stream).unwrap_or_else(|| panic!("{stream:?}: messages nobody sent"));
            let mut sent = sent.iter().filter(|message| !message.cancelled);
            let gaps = died(stream.0) || died(stream.1);
            for receipt in &received {
                loop {
                    let Some(message) = sent.next() else { panic!("{stream:?}: a message duplicated or altered") };
                    if agrees(message, receipt) {
                        break;
                    }
                    let (number, length) = (message.number, message.length);
                    assert!(
                        gaps,
                        "{stream:?}: message {number} of {length} bytes lost or altered, got {}",
                        receipt.length
                    );
                }
            }
            assert!(gaps || sent.next().is_none(), "{stream:?}: messages lost at the end");
        }
        for (stream, sent) in self.sent {
            let lost = sent.iter().filter(|message| !message.cancelled).count();
            assert!(lost == 0 || died(stream.0) || died(stream.1), "{stream:?}: {lost} messages lost, none came");
        }
    }
}

fn agrees(sent: &Sent, receipt: &Received) -> bool {
    if receipt.length != sent.length {
        return false;
    }
    if receipt.status == Status::PeerDead {
        return true;
    }
    let mut expected = vec![0; sent.length.min(receipt.capacity)];
    fill(sent.number, 0, &mut expected);
    digest(&expected) == receipt.digest
}
