//! Two engines joined by a perfect wire: each way a message can take, end to end.

use std::collections::VecDeque;

use engine::{Completion, Direction, Engine, LinkConfig, Source, Status, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};

const OTHER: PeerIndex = PeerIndex(0);

struct Pair {
    engines: [Engine<Vec<u8>>; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    done: [Vec<Completion<Vec<u8>>>; 2],
    now: Nanoseconds,
}

impl Pair {
    fn new(reliable: bool, mtu: u64) -> Self {
        let capabilities = Capabilities { ordered: reliable, reliable, mtu: Bytes(mtu), remote_read: false };
        let mut engines = [Engine::new(), Engine::new()];
        for engine in &mut engines {
            engine.add_peer(LinkConfig::for_port(&capabilities, 7));
        }
        Pair { engines, wires: Default::default(), done: Default::default(), now: Nanoseconds(0) }
    }

    fn run(&mut self) {
        loop {
            let mut moved = false;
            self.now = self.now + Nanoseconds(1_000);
            for side in 0..2 {
                if self.engines[side].next_timeout().is_some_and(|at| at <= self.now) {
                    self.engines[side].handle_timeout(self.now);
                }
                while let Some(peer) = self.engines[side].next_ready() {
                    while let Some(length) = self.engines[side].plan(self.now, peer) {
                        moved = true;
                        let mut packet = vec![0; length];
                        self.engines[side].write(self.now, peer, &mut packet);
                        self.wires[1 - side].push_back(packet);
                    }
                }
                while let Some(packet) = self.wires[side].pop_front() {
                    moved = true;
                    self.engines[side].handle_packet(self.now, OTHER, &packet);
                }
                while let Some(completion) = self.engines[side].next_completion() {
                    self.done[side].push(completion);
                }
            }
            if !moved && self.engines.iter().all(|engine| engine.ready_peers() == 0) {
                return;
            }
        }
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + length) as u8).collect()
}

#[test]
fn messages_of_every_protocol_arrive_whole() {
    for reliable in [true, false] {
        for mtu in [128, 1472, 65_000] {
            for length in [0, 1, 40, 111, 112, 1471, 5000, 64 << 10, (64 << 10) + 1, 256 << 10, (256 << 10) + 1] {
                for posted_first in [true, false] {
                    let mut pair = Pair::new(reliable, mtu);
                    let receive = |pair: &mut Pair| {
                        pair.engines[1].receive(Source::Any, TagSelector::exactly(9), vec![0; length], 1).unwrap();
                    };
                    if posted_first {
                        receive(&mut pair);
                    }
                    pair.engines[0].send(OTHER, 9, content(length), 2).unwrap();
                    pair.run();
                    if !posted_first {
                        receive(&mut pair);
                        pair.run();
                    }
                    let what = format!("reliable {reliable}, mtu {mtu}, length {length}, posted first {posted_first}");
                    // Acknowledgements may ride on a timer; the receiver has everything all the same.
                    let got = &pair.done[1][0];
                    assert_eq!(
                        (got.status, got.direction, got.context),
                        (Status::Done, Direction::Receive, 1),
                        "{what}"
                    );
                    assert_eq!(got.buffer, content(length), "{what}");
                    assert_eq!(pair.engines[1].counters().malformed, 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_longer_message_is_truncated_with_an_error() {
    for length in [100, 500_000] {
        let mut pair = Pair::new(true, 4096);
        pair.engines[1].receive(Source::Peer(OTHER), TagSelector::any(), vec![0; 60], 0).unwrap();
        pair.engines[0].send(OTHER, 1, content(length), 0).unwrap();
        pair.run();
        let got = &pair.done[1][0];
        assert_eq!(got.status, Status::Truncated);
        assert_eq!(got.envelope.length, length as u64);
        assert_eq!(got.buffer, content(length)[..60]);
        assert_eq!(pair.done[0][0].status, Status::Done);
    }
}

#[test]
fn a_peer_that_does_not_read_makes_the_sender_wait() {
    let config =
        LinkConfig::for_port(&Capabilities { ordered: true, reliable: true, mtu: Bytes(4096), remote_read: false }, 0);
    // The first length uses up the credit for messages, the second that for bytes.
    for length in [10, 1000] {
        let mut pair = Pair::new(true, 4096);
        let credit = (config.credit_messages as usize).min(config.credit_bytes.0 as usize / length);
        for _ in 0..credit + 1000 {
            pair.engines[0].send(OTHER, 5, content(length), 0).unwrap();
        }
        pair.run();
        assert_eq!(pair.engines[1].queue_lengths().1, credit);
        for _ in 0..credit + 1000 {
            pair.engines[1].receive(Source::Any, TagSelector::any(), vec![0; length], 0).unwrap();
            pair.run();
        }
        assert_eq!(pair.done[1].len(), credit + 1000);
        assert!(pair.done[1].iter().all(|got| got.status == Status::Done && got.buffer == content(length)));
        assert_eq!(pair.done[0].len(), pair.done[1].len());
        assert_eq!(pair.engines[0].counters().announced, 0);
    }
}

#[test]
fn death_ends_what_waits_for_the_peer_and_keeps_what_arrived() {
    let mut pair = Pair::new(true, 4096);
    pair.engines[0].send(OTHER, 1, content(10), 0).unwrap();
    pair.engines[0].send(OTHER, 2, content(500_000), 0).unwrap();
    pair.run();
    pair.engines[1].receive(Source::Peer(OTHER), TagSelector::exactly(3), vec![], 33).unwrap();
    pair.engines[1].peer_dead(OTHER);
    let died = pair.engines[1].next_completion().unwrap();
    assert_eq!((died.status, died.context), (Status::PeerDead, 33));
    pair.engines[1].receive(Source::Peer(OTHER), TagSelector::exactly(1), vec![0; 10], 1).unwrap();
    assert_eq!(pair.engines[1].next_completion().unwrap().buffer, content(10));
    pair.engines[1].receive(Source::Peer(OTHER), TagSelector::exactly(2), vec![0; 10], 2).unwrap();
    assert_eq!(pair.engines[1].next_completion().unwrap().status, Status::PeerDead);
    pair.engines[1].send(OTHER, 1, vec![], 4).unwrap();
    assert_eq!(pair.engines[1].next_completion().unwrap().status, Status::PeerDead);
}

/// MPI's progress rule: what a receive waits for comes through, however many messages nobody waits for come before it.
#[test]
fn a_needle_comes_through_a_flood_beyond_all_credit() {
    const FLOOD: u64 = 50_000;
    for reliable in [true, false] {
        for needle_first in [true, false] {
            for source in [Source::Any, Source::Peer(OTHER)] {
                let mut pair = Pair::new(reliable, 1472);
                let post = |pair: &mut Pair| {
                    pair.engines[1].receive(source, TagSelector::exactly(FLOOD), vec![0; 8], 1).unwrap();
                };
                if needle_first {
                    post(&mut pair);
                }
                for tag in 0..=FLOOD {
                    pair.engines[0].send(OTHER, tag, content(8), 2).unwrap();
                }
                pair.run();
                if !needle_first {
                    assert!(pair.engines[1].queue_lengths().1 < FLOOD as usize, "held back while nobody waits");
                    post(&mut pair);
                    pair.run();
                }
                let got = pair.done[1].iter().find(|done| done.envelope.tag == FLOOD).expect("the needle");
                assert_eq!(got.status, Status::Done);
                for tag in 0..FLOOD {
                    pair.engines[1].receive(source, TagSelector::exactly(tag), vec![0; 8], 1).unwrap();
                    pair.run();
                }
                assert_eq!(pair.done[1].len() as u64, FLOOD + 1);
            }
        }
    }
}

/// Packets around the length from which they are made once for the port and the reliability layer: of one message some may be
/// shared with the port, while the bytes of others stay in its buffer until they are acknowledged or copied.
#[test]
fn a_message_whose_packets_are_kept_in_different_ways_is_sent_again() {
    for (mtu, less) in (0..64).flat_map(|more| (0..90).map(move |less| ((8 << 10) + more, less))) {
        let message = content(2 * mtu as usize - less);
        let mut pair = Pair::new(false, mtu);
        let [sender, receiver] = &mut pair.engines;
        receiver.receive(Source::Any, TagSelector::any(), vec![0; message.len()], 0).unwrap();
        sender.send(OTHER, 1, message.clone(), 0).unwrap();
        let now = Nanoseconds(1_000);
        let peer = sender.next_ready().unwrap();
        while let Some(length) = sender.plan(now, peer) {
            let length = sender.apart(peer).map_or(length, |apart| apart.head);
            sender.write(now, peer, &mut vec![0; length]);
        }
        sender.end_departed();
        assert_eq!(sender.next_completion().unwrap().status, Status::Done);
        // Every packet was lost. Until the first is acknowledged, one is sent again at a time.
        while pair.done[1].is_empty() {
            pair.now = pair.engines[0].next_timeout().unwrap();
            pair.engines[0].handle_timeout(pair.now);
            pair.run();
        }
        assert_eq!(pair.done[1][0].buffer, message, "packets of {mtu} B, {} B", message.len());
    }
}
