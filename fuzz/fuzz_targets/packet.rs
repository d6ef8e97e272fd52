//! Arbitrary packets against an engine with requests of every kind in progress. The engine must not panic, must keep
//! within its credit, and each request must end once. The first byte picks the port; then come packets, each behind
//! its length, between them now and then a step of the application.
#![no_main]

use engine::{Engine, LinkConfig, ReliabilityConfig, Source, TagSelector};
use libfuzzer_sys::fuzz_target;
use machine::{Bytes, Nanoseconds, PeerIndex};

const PEER: PeerIndex = PeerIndex(0);
const CREDIT_MESSAGES: u32 = 8;
const CREDIT_BYTES: u64 = 2000;

fn transmit(now: Nanoseconds, engine: &mut Engine<Vec<u8>>) {
    let mut packet = [0; 128];
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(now, peer) {
            engine.write(now, peer, &mut packet[..length]);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&port, mut rest)) = input.split_first() else { return };
    let mut engine = Engine::new();
    engine.add_peer(LinkConfig {
        mtu: Bytes(128),
        eager_limit: Bytes(300),
        eager_near: None,
        remote_read: port & 2 != 0,
        credit_messages: CREDIT_MESSAGES,
        credit_bytes: Bytes(CREDIT_BYTES),
        reliability: (port & 1 != 0).then(|| ReliabilityConfig { window: 16, ..ReliabilityConfig::new(0) }),
    });
    let mut now = Nanoseconds(1);
    let (mut asked, mut ended) = (0, 0);
    let mut requests = Vec::new();
    while let Some((&head, tail)) = rest.split_first() {
        rest = tail;
        now = now + Nanoseconds(1_000_000);
        if head < 0xE0 {
            let (packet, tail) = rest.split_at(rest.len().min(head as usize));
            rest = tail;
            engine.handle_packet(now, PEER, packet);
        } else {
            let tag = u64::from(head & 3);
            match head & 0x1F {
                0..8 => {
                    let source = if head & 4 != 0 { Source::Any } else { Source::Peer(PEER) };
                    let request = engine.receive(source, TagSelector::masked(tag, tag), vec![0; 200], 0);
                    requests.push(request.expect("the peer exists"));
                    asked += 1;
                }
                8..16 => {
                    let length = if head & 4 != 0 { 50 } else { 500 };
                    requests.push(engine.send(PEER, tag, vec![0; length], 0).expect("the peer exists"));
                    asked += 1;
                }
                16..20 => {
                    let _ = requests.get(tag as usize).map(|&request| engine.cancel(request));
                }
                20..24 => now = now + Nanoseconds(100_000_000 << (8 * tag)),
                24..28 => transmit(now, &mut engine),
                28 => engine.peer_refused(PEER),
                _ => {
                    engine.carry_out_reads(|_, address, into| {
                        into.fill(1);
                        address & 1 == 0
                    });
                }
            }
            if engine.next_timeout().is_some_and(|at| at <= now) {
                engine.handle_timeout(now);
            }
        }
        assert!(engine.unexpected_bytes() <= CREDIT_BYTES);
        // Behind a receive that waits, the credit is doubled as often as it is used up.
        let doubled = engine.counters().widened.min(16);
        assert!(engine.queue_lengths().1 <= (CREDIT_MESSAGES as usize) << doubled);
        ended += std::iter::from_fn(|| engine.next_completion()).count();
    }
    transmit(now, &mut engine);
    engine.peer_dead(PEER);
    ended += std::iter::from_fn(|| engine.next_completion()).count();
    assert_eq!(asked, ended + engine.queue_lengths().0, "each request ends once, or still waits for anyone");
});
