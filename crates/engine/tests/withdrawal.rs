//! Buffers taken back at every point of a message's way: afterwards nothing touches them, and no receiver takes the
//! stand-in's bytes for the message.

use engine::{Engine, LinkConfig, ReliabilityConfig, Request, Source, Status, TagSelector};
use machine::{Bytes, Nanoseconds, PeerIndex};

const OTHER: PeerIndex = PeerIndex(0);
/// Byte of a stand-in whose message needs no bytes any more.
const STRANGE: u8 = 0xEE;

#[expect(clippy::ptr_arg, reason = "the engine gives the buffer as its user has it")]
fn stand_in(buffer: &Vec<u8>, needed: bool) -> Vec<u8> {
    if needed { buffer.clone() } else { vec![STRANGE; buffer.len()] }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 200) as u8).collect()
}

/// A sender, a receiver, and the packets between them.
struct Pair {
    ends: [Engine<Vec<u8>>; 2],
    now: Nanoseconds,
}

impl Pair {
    fn new(reliable: bool) -> Pair {
        let link = LinkConfig {
            mtu: Bytes(1000),
            eager_limit: Bytes(4000),
            eager_near: None,
            remote_read: false,
            credit_messages: 100,
            credit_bytes: Bytes(1 << 20),
            reliability: (!reliable).then(|| ReliabilityConfig::new(5)),
        };
        let mut ends = [Engine::new(), Engine::new()];
        ends.iter_mut().for_each(|end| assert_eq!(end.add_peer(link.clone()), OTHER));
        Pair { ends, now: Nanoseconds(1) }
    }

    /// Packets of one end, `most` at most.
    fn packets(&mut self, of: usize, most: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let end = &mut self.ends[of];
        let Some(peer) = end.next_ready() else { return all };
        while all.len() < most
            && let Some(length) = end.plan(self.now, peer)
        {
            let mut packet = vec![0; length];
            end.write(self.now, peer, &mut packet);
            all.push(packet);
        }
        if all.len() == most {
            end.defer(peer);
        }
        all
    }

    /// Carries up to `most` packets from one end to the other, but for those that are lost.
    fn carry(&mut self, from: usize, most: usize, lost: &[usize]) -> usize {
        let packets = self.packets(from, most);
        for (at, packet) in packets.iter().enumerate() {
            if !lost.contains(&at) {
                self.ends[1 - from].handle_packet(self.now, OTHER, packet);
            }
        }
        packets.len()
    }

    /// Polls until nothing moves, timeouts included.
    fn settle(&mut self) {
        for _ in 0..100 {
            self.now = self.now + Nanoseconds(100_000_000);
            for side in 0..2 {
                self.ends[side].handle_timeout(self.now);
                while self.carry(side, 64, &[]) > 0 {}
            }
        }
    }

    fn send(&mut self, length: usize) -> Request {
        self.ends[0].send(OTHER, 9, content(length), 1).unwrap()
    }

    fn receive(&mut self, length: usize) -> Request {
        self.ends[1].receive(Source::Any, TagSelector::exactly(9), vec![0; length], 2).unwrap()
    }

    fn end(&mut self, of: usize) -> (Status, Vec<u8>) {
        let done = self.ends[of].next_completion().expect("the request has ended");
        assert!(self.ends[of].next_completion().is_none(), "it ends once");
        (done.status, done.buffer)
    }

    /// Checks that the link works as before.
    fn goes_on(&mut self) {
        for length in [10, 20_000] {
            self.receive(length);
            self.send(length);
            self.settle();
            assert_eq!(self.end(0).0, Status::Done);
            assert_eq!(self.end(1), (Status::Done, content(length)));
        }
        assert_eq!((self.ends[0].counters().malformed, self.ends[1].counters().malformed), (0, 0));
    }
}

#[test]
fn a_send_of_which_nothing_has_left_is_cancelled() {
    for reliable in [true, false] {
        for length in [10, 20_000] {
            let mut way = Pair::new(reliable);
            let send = way.send(length);
            assert!(way.ends[0].take_back(send, stand_in));
            assert!(!way.ends[0].take_back(send, stand_in), "it has ended");
            assert_eq!(way.end(0), (Status::Cancelled, content(length)));
            way.goes_on();
        }
    }
}

#[test]
fn a_message_taken_back_before_it_is_asked_for_ends_withdrawn() {
    for reliable in [true, false] {
        for posted in [true, false] {
            let mut way = Pair::new(reliable);
            if posted {
                way.receive(20_000);
            }
            let send = way.send(20_000);
            assert_eq!(way.carry(0, 64, &[]), 1, "the request to send");
            assert!(way.ends[0].take_back(send, stand_in));
            if !posted {
                way.receive(20_000);
            }
            way.settle();
            assert_eq!(way.end(1), (Status::Withdrawn, vec![0; 20_000]), "reliable {reliable}, posted {posted}");
            assert_eq!(way.end(0).0, Status::Cancelled);
            way.goes_on();
        }
    }
}

#[test]
fn a_message_taken_back_on_its_way_ends_withdrawn_and_what_had_come_is_its_own() {
    for reliable in [true, false] {
        let mut way = Pair::new(reliable);
        way.receive(20_000);
        let send = way.send(20_000);
        way.carry(0, 64, &[]);
        way.carry(1, 64, &[]);
        let lost: &[usize] = if reliable { &[] } else { &[2] };
        assert_eq!(way.carry(0, 5, lost), 5);
        assert!(way.ends[0].take_back(send, stand_in));
        way.settle();
        let (status, got) = way.end(1);
        let came = got.iter().zip(content(20_000)).take_while(|(got, sent)| **got == *sent).count();
        assert_eq!(status, Status::Withdrawn);
        assert!((4000..5000).contains(&came), "five packets of data had left, {came} bytes came");
        assert!(got[came..].iter().all(|&byte| byte == 0), "reliable {reliable}");
        assert_eq!(way.end(0).0, Status::Cancelled);
        way.goes_on();
    }
}

#[test]
fn a_message_that_has_left_whole_arrives_whole_although_its_buffer_was_taken_back() {
    let mut way = Pair::new(false);
    way.receive(20_000);
    let send = way.send(20_000);
    way.carry(0, 64, &[]);
    way.carry(1, 64, &[]);
    assert!(way.carry(0, 64, &[3, 7, 20]) > 20);
    assert!(way.ends[0].take_back(send, stand_in));
    assert_eq!(way.end(0).0, Status::Done);
    way.settle();
    assert_eq!(way.end(1), (Status::Done, content(20_000)));
    way.goes_on();
}

#[test]
fn the_rest_of_an_eager_message_is_copied() {
    for reliable in [true, false] {
        let mut way = Pair::new(reliable);
        way.receive(3000);
        let send = way.send(3000);
        assert_eq!(way.carry(0, 2, &[]), 2);
        assert!(way.ends[0].take_back(send, stand_in));
        way.settle();
        assert_eq!(way.end(1), (Status::Done, content(3000)));
        assert_eq!(way.end(0).0, Status::Done);
        way.goes_on();
    }
}

#[test]
fn a_receive_whose_buffer_was_taken_back_ends_with_its_message() {
    for reliable in [true, false] {
        for length in [10, 3000, 20_000] {
            for packets in [0, 2] {
                let mut way = Pair::new(reliable);
                let receive = way.receive(length);
                way.send(length);
                way.carry(0, packets, &[]);
                let taken = way.ends[1].take_back(receive, stand_in);
                assert_eq!(taken, length > 10 || packets == 0, "a short one has ended");
                way.settle();
                let (status, got) = way.end(1);
                assert_eq!((status, got.len()), (Status::Done, length));
                assert_eq!(way.end(0).0, Status::Done);
                way.goes_on();
            }
        }
    }
}

#[test]
fn a_peer_that_withdraws_what_it_does_not_send_is_given_up() {
    let withdrawn = |receiver: u64| [&[8u8, 0, 0, 0, 0, 0, 0, 0][..], &receiver.to_le_bytes()].concat();
    let mut way = Pair::new(true);
    way.receive(20_000);
    way.ends[1].handle_packet(way.now, OTHER, &withdrawn((1 << 32) | 1));
    assert!(!way.ends[1].is_alive(OTHER), "a receive that waits is no message of the peer's");
}
