//! Packets of two peers against an endpoint over queue pairs with requests of every kind in progress: peer 0 is connected,
//! peer 1 says what it likes to connect. The endpoint must not fail, each request must end once, and no message may stay
//! registered. The first byte picks the settings; then come packets, arbitrary ones and such as are in sequence, and between them
//! steps of the application.
#![no_main]

use engine::{Label, Source, Space, TagSelector};
use libfuzzer_sys::fuzz_target;
use machine::port::memory::{Geometry, MemoryPort, star};
use machine::{Bytes, Nanoseconds, PeerIndex, Port};
use queue_pair::{Address, Endpoint, Link, QueuePairNumber, ReceiveQueues, Settings};

const MTU: usize = 128;
const BUFFER: u64 = 256;
/// No multiples of the buffers' length, whose sums are none either.
const SHORT: usize = 51;
const LONG: usize = 511;

/// Sequence numbers have 24 bits.
const PSN: u32 = (1 << 24) - 1;
const ACKNOWLEDGE: u8 = 0x11;
const DATAGRAM: u8 = 0x64;
const OPCODES: [u8; 10] = [0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x0A, ACKNOWLEDGE, DATAGRAM];

fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// What a peer of the endpoint knows.
struct Peer {
    port: MemoryPort,
    /// The endpoint's queue pair, the sequence number that it expects once it was told of one, and that of its last packet.
    queue_pair: u32,
    expected: Option<u32>,
    seen: u32,
    /// Its last message, for keys and numbers that an answer needs.
    message: Vec<u8>,
}

impl Peer {
    fn of(port: MemoryPort) -> Peer {
        Peer { port, queue_pair: 0, expected: None, seen: 0, message: Vec::new() }
    }

    fn say(&mut self, packet: &[u8]) {
        let packet = &packet[..packet.len().min(MTU)];
        self.port.send(PeerIndex(0), packet.len(), |into| into.copy_from_slice(packet)).expect("it fits");
    }

    /// A packet in sequence, with what follows its base header; eight bytes of the last message go where `copied` says.
    fn say_next(&mut self, opcode: u8, copied: u8, rest: &[u8]) {
        let (queue_pair, psn) = match opcode {
            ACKNOWLEDGE => (self.queue_pair, self.seen),
            DATAGRAM => (1, 0),
            _ => (self.queue_pair, self.expected.unwrap_or(0)),
        };
        let mut packet = vec![opcode, if opcode == DATAGRAM { 0 } else { 0x80 }, 0, 0];
        if opcode == DATAGRAM {
            self.expected.get_or_insert(rest.get(4..8).map_or(0, word) & PSN);
        }
        packet.extend([queue_pair.to_le_bytes(), psn.to_le_bytes()].concat());
        packet.extend(rest);
        let (from, to) = (4 * usize::from(copied & 15), 12 + 4 * usize::from(copied >> 4));
        if let (Some(from), Some(to)) = (self.message.get(from..from + 8), packet.get_mut(to..to + 8)) {
            to.copy_from_slice(from);
        }
        self.say(&packet);
    }

    /// Learns from what the endpoint sent.
    fn hear(&mut self) {
        let Peer { port, queue_pair, expected, seen, message } = self;
        let mut learn = |packet: &[u8]| match packet[0] {
            // An acknowledgement names the last packet that arrived, a refusal the first that did not.
            ACKNOWLEDGE => *expected = Some((word(&packet[8..12]) + u32::from(packet[12] < 0x20)) & PSN),
            DATAGRAM => *queue_pair = word(&packet[12..16]),
            _ => {
                *seen = word(&packet[8..12]);
                *message = packet.to_vec();
            }
        };
        while port.receive(16, |_, packet| learn(packet)).expect("a leaf has no faults") > 0 {}
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, mut rest)) = input.split_first() else { return };
    let (hub, leaves) = star(2, Geometry { mtu: MTU, hub: 16 << 10, leaf: 2 << 10 });
    let receive = if how & 1 != 0 { ReceiveQueues::Shared { depth: 4 } } else { ReceiveQueues::PerPeer { depth: 4 } };
    // Times that have passed at the next look, or never do.
    let time = Nanoseconds(if how & 4 != 0 { 1 } else { u64::MAX / 4 });
    let settings = Settings {
        receive,
        send_depth: 8,
        buffer: Bytes(BUFFER),
        inline: 64,
        signal_every: 2,
        completion_depth: 256,
        acknowledge_every: 3,
        rnr_timer: time,
        timeout: time,
        ..Settings::default()
    };
    let link = Link { mtu: Bytes(MTU as u64), reliable: how & 2 != 0, window: 8 };
    let mut end = Endpoint::<MemoryPort, Vec<u8>>::open(hub, &settings).expect("settings that there can be");
    let (known, address) = end.create(link).expect("a link that there can be");
    let mut peers: Vec<Peer> = leaves.into_iter().map(Peer::of).collect();
    peers[0].queue_pair = address.queue_pair.0;
    peers[0].expected = Some(7);
    end.connect(known, Address { queue_pair: QueuePairNumber(2), first_psn: 7, source: 0 }).expect("it is new");
    end.admit(link);

    let (mut asked, mut ended) = (0, 0);
    let (mut requests, mut claims) = (Vec::new(), Vec::new());
    while let Some((&head, tail)) = rest.split_first() {
        rest = tail;
        let (peer, which) = (usize::from(head & 1), head >> 1 & 15);
        let from = PeerIndex(peer as u32);
        let label = Label::new(Space::Tagged, u64::from(which & 3), (which & 4 != 0).then_some(9));
        let source = if which & 8 != 0 { Source::Any } else { Source::Peer(from) };
        let selector = TagSelector::masked(u64::from(which & 3), u64::from(which & 1));
        match head {
            0..0x20 => {
                let (packet, tail) = rest.split_at(rest.len().min(8 * usize::from(which)));
                rest = tail;
                peers[peer].say(packet);
            }
            0x20..0x80 => {
                let Some(([length, copied], tail)) = rest.split_first_chunk() else { break };
                let (payload, tail) = tail.split_at(tail.len().min(usize::from(*length)));
                rest = tail;
                peers[peer].hear();
                peers[peer].say_next(OPCODES[usize::from(which) % OPCODES.len()], *copied, payload);
            }
            0x80..0xA0 => {
                let buffer = vec![0; if which & 1 != 0 { LONG } else { SHORT }];
                requests.push(end.receive(source, selector, buffer, 0).expect("the peer exists"));
                asked += 1;
            }
            0xA0..0xC0 => {
                let buffer = vec![1; if which & 8 != 0 { LONG } else { SHORT }];
                requests.push(end.send(from, label, buffer, 0).expect("the peer exists"));
                asked += 1;
            }
            0xC0..0xE0 => {
                let some = requests.get(usize::from(which)).copied();
                let _ = some.map(|request| {
                    if peer == 0 { end.cancel(request) } else { end.take_back(request, |buffer, _| buffer.clone()) }
                });
            }
            _ => match which {
                0..4 => {
                    requests.push(end.send_confirmed(from, label, vec![2; SHORT * peer], 0).expect("the peer exists"));
                    asked += 1;
                }
                4..6 => claims.extend(end.claim(source, selector).map(|(_, claim)| claim)),
                6 => claims.pop().map_or(Ok(()), |claim| end.discard(claim)).expect("it was claimed"),
                7..9 => {
                    if let Some(claim) = claims.pop() {
                        requests.push(end.receive_claimed(claim, vec![0; LONG], 0).expect("it was claimed"));
                        asked += 1;
                    }
                }
                9..11 => end.acknowledge_all().expect("the port has no faults"),
                _ => _ = end.turn().expect("no packet ends more than its connection"),
            },
        }
        if head < 0x80 {
            end.turn().expect("no packet ends more than its connection");
        }
        ended += std::iter::from_fn(|| end.next_completion()).count();
    }
    drop(peers);
    for _ in 0..64 {
        end.turn().expect("no packet ends more than its connection");
    }
    end.notices().expect("the port has no faults");
    end.turn().expect("no peer's end ends more than its connection");
    ended += std::iter::from_fn(|| end.next_completion()).count();
    assert_eq!(asked, ended + end.queue_lengths().0, "each request ends once, or still waits for anyone");
    assert_eq!(end.counters().registered % BUFFER, 0, "only buffers stay registered");
});
