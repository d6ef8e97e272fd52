//! Long messages over memory that both ends share, where the receiver asks for packets and also reads.

use engine::{Completion, Engine, LinkConfig, Source, Status, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};

const OTHER: PeerIndex = PeerIndex(0);
const LENGTH: usize = 3 << 20;
const NOW: Nanoseconds = Nanoseconds(1);

struct Ends {
    sender: Engine<Vec<u8>>,
    receiver: Engine<Vec<u8>>,
    /// Packets that the receiver has not seen.
    ring: Vec<Vec<u8>>,
    message: Vec<u8>,
    /// Address of the message at the sender.
    start: u64,
}

impl Ends {
    /// Ends after the announcement, for whose packets the receiver has asked.
    fn new() -> Ends {
        let mtu = Bytes(16 << 10);
        let link =
            LinkConfig::for_shared_memory(&Capabilities { ordered: true, reliable: true, mtu, remote_read: true });
        let message: Vec<u8> = (0..LENGTH).map(|i| (i * 31 + i / 251) as u8).collect();
        let sent = message.clone();
        let mut ends = Ends {
            sender: Engine::new(),
            receiver: Engine::new(),
            ring: Vec::new(),
            message,
            start: sent.as_ptr() as u64,
        };
        ends.sender.add_peer(link.clone());
        ends.receiver.add_peer(link);
        ends.receiver.receive(Source::Any, TagSelector::any(), vec![0; LENGTH], 0).unwrap();
        ends.sender.send(OTHER, 1, sent, 0).unwrap();
        ends.fill_ring(usize::MAX);
        ends.take_ring();
        ends
    }

    /// The sender puts up to `most` packets into the ring.
    fn fill_ring(&mut self, most: usize) {
        self.ring.extend(packets(&mut self.sender, most));
    }

    fn take_ring(&mut self) {
        for packet in self.ring.drain(..) {
            self.receiver.handle_packet(NOW, OTHER, &packet);
        }
    }

    /// The sender takes the receiver's answers.
    fn answer(&mut self) {
        for packet in packets(&mut self.receiver, usize::MAX) {
            self.sender.handle_packet(NOW, OTHER, &packet);
        }
    }

    /// One look of the receiver; returns the bytes that it has read.
    fn look(&mut self) -> u64 {
        let (message, start) = (&self.message, self.start);
        self.receiver.carry_out_reads(|_, address, into| {
            let from = (address - start) as usize;
            into.copy_from_slice(&message[from..from + into.len()]);
            true
        })
    }

    fn received(&mut self) -> Option<Completion<Vec<u8>>> {
        self.receiver.next_completion()
    }

    fn end_well(&mut self) {
        let received = self.received().expect("received");
        assert_eq!((received.status, received.buffer == self.message), (Status::Done, true));
        self.answer();
        assert_eq!(self.sender.next_completion().expect("sent").status, Status::Done);
        // Packets of the message under way are dropped, whatever comes after it.
        self.fill_ring(usize::MAX);
        self.take_ring();
        self.receiver.receive(Source::Any, TagSelector::any(), vec![0; 8], 0).unwrap();
        self.sender.send(OTHER, 1, vec![7; 8], 0).unwrap();
        self.fill_ring(usize::MAX);
        self.take_ring();
        assert_eq!(self.received().expect("the next message").buffer, [7; 8]);
        assert_eq!((self.sender.counters().malformed, self.receiver.counters().malformed), (0, 0));
        assert!(!self.receiver.has_reads());
    }
}

fn packets(engine: &mut Engine<Vec<u8>>, most: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(NOW, peer) {
            if all.len() == most {
                engine.defer(peer);
                return all;
            }
            let mut packet = vec![0; length];
            engine.write(NOW, peer, &mut packet);
            all.push(packet);
        }
    }
    all
}

#[test]
fn a_sender_that_sends_is_not_read() {
    let mut ends = Ends::new();
    ends.answer();
    while !ends.receiver.has_ended() {
        ends.fill_ring(8);
        assert!(!ends.ring.is_empty());
        assert!(!ends.sender.has_ended(), "it may be read until its receiver ends it");
        ends.take_ring();
        assert_eq!((0..60).map(|_| ends.look()).sum::<u64>(), 0);
    }
    ends.end_well();
}

#[test]
fn a_sender_that_computes_is_read() {
    let mut ends = Ends::new();
    let read: u64 = (0..200).map(|_| ends.look()).sum();
    assert_eq!(read, LENGTH as u64);
    // The sender finds the receiver's request and then the end when it looks again.
    ends.end_well();
}

#[test]
fn packets_and_reads_meet() {
    for (before, under_way) in [(1, 0), (1, 5), (40, 7), (100, 500)] {
        let mut ends = Ends::new();
        ends.answer();
        ends.fill_ring(before);
        ends.take_ring();
        // Packets in the ring when the receiver loses patience.
        ends.fill_ring(under_way);
        let mut read = 0;
        while !ends.receiver.has_ended() {
            read += ends.look();
        }
        assert!(read < LENGTH as u64 && read >= (LENGTH - before * (16 << 10)) as u64, "{read} after {before} packets");
        ends.end_well();
    }
}

#[test]
fn a_buffer_that_is_taken_back_while_it_is_read_harms_nobody() {
    let stand_in = |buffer: &Vec<u8>, copied: bool| if copied { buffer.clone() } else { vec![0; buffer.len()] };
    for sent in [0, 5, usize::MAX] {
        let mut ends = Ends::new();
        ends.answer();
        ends.fill_ring(sent);
        let request = ends.sender.find(0).unwrap();
        while !ends.receiver.has_ended() {
            ends.look();
        }
        assert!(ends.sender.take_back(request, stand_in));
        let whole = sent == usize::MAX;
        let expected = if whole { Status::Done } else { Status::Cancelled };
        assert_eq!(ends.sender.next_completion().unwrap().status, expected);
        // The receiver has said that it is done, and the sender that no more packets come.
        assert_eq!(ends.received().unwrap().status, Status::Done);
        ends.answer();
        ends.fill_ring(usize::MAX);
        ends.take_ring();
        assert_eq!((ends.sender.counters().malformed, ends.receiver.counters().malformed), (0, 0));
    }
}

#[test]
fn what_comes_too_late_is_no_more_than_was_left() {
    let mut ends = Ends::new();
    ends.answer();
    ends.fill_ring(1);
    let packet = ends.ring[0].clone();
    while !ends.receiver.has_ended() {
        ends.look();
    }
    let _ = ends.received();
    for _ in 0..=LENGTH / (16 << 10) {
        ends.receiver.handle_packet(NOW, OTHER, &packet);
        if ends.receiver.counters().malformed > 0 {
            return;
        }
    }
    ends.receiver.handle_packet(NOW, OTHER, &packet);
    assert_eq!(ends.receiver.counters().malformed, 1, "a peer that sends more than it has is given up");
}
