//! Silence, absence and the end of a conversation on unreliable ports, step by step.

use engine::{Engine, LinkConfig, ReliabilityConfig, Source, Status, TagSelector};
use machine::{Bytes, Nanoseconds, PeerIndex};

const OTHER: PeerIndex = PeerIndex(0);
const SECOND: u64 = 1_000_000_000;
const LIMIT: u64 = 60 * SECOND;

fn engine(session: u32) -> Engine<Vec<u8>> {
    let mut engine = Engine::new();
    engine.add_peer(LinkConfig {
        mtu: Bytes(1472),
        eager_limit: Bytes(1000),
        eager_near: None,
        remote_read: false,
        credit_messages: 4,
        credit_bytes: Bytes(4000),
        reliability: Some(ReliabilityConfig::new(session)),
    });
    engine
}

fn packets(now: u64, engine: &mut Engine<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(Nanoseconds(now), peer) {
            let mut packet = vec![0; length];
            engine.write(Nanoseconds(now), peer, &mut packet);
            all.push(packet);
        }
    }
    all
}

/// Carries all packets from one to the other; returns how many.
fn carry(now: u64, from: &mut Engine<Vec<u8>>, to: &mut Engine<Vec<u8>>) -> usize {
    let packets = packets(now, from);
    packets.iter().for_each(|packet| to.handle_packet(Nanoseconds(now), OTHER, packet));
    packets.len()
}

/// Drives `engine` without arrivals until its peer counts as dead; returns when.
fn given_up(mut now: u64, engine: &mut Engine<Vec<u8>>) -> u64 {
    let start = now;
    while engine.is_alive(OTHER) {
        now = engine.next_timeout().expect("somebody must look at the clock").0.max(now);
        assert!(now < start + 10 * LIMIT, "a dead peer is not noticed");
        engine.handle_timeout(Nanoseconds(now));
        packets(now, engine);
    }
    now
}

#[test]
fn a_silent_peer_is_given_up_after_the_limit() {
    let mut engine = engine(1);
    engine.send(OTHER, 1, vec![1; 2000], 0).unwrap();
    packets(5, &mut engine);
    assert_eq!(given_up(5, &mut engine), 5 + LIMIT);
    assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);
}

#[test]
fn a_receive_from_a_peer_never_heard_of_ends_too() {
    let mut engine = engine(1);
    engine.receive(Source::Peer(OTHER), TagSelector::any(), vec![], 0).unwrap();
    assert!(packets(5, &mut engine).is_empty());
    assert_eq!(given_up(5, &mut engine), 5 + LIMIT);
    assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);
}

#[test]
fn ones_own_absence_is_not_the_peers_silence() {
    let (mut a, mut b) = (engine(1), engine(1));
    a.send(OTHER, 1, vec![1; 10], 0).unwrap();
    carry(0, &mut a, &mut b);
    // Both compute for five times the limit, with nothing in the sockets. Then a looks at the clock.
    let back = 5 * LIMIT;
    a.handle_timeout(Nanoseconds(back));
    assert!(a.is_alive(OTHER));
    assert!(carry(back, &mut a, &mut b) > 0, "a asks for a sign of life");
    b.handle_timeout(Nanoseconds(back));
    assert!(b.is_alive(OTHER));
    carry(back, &mut b, &mut a);
    assert!(a.is_quiet());
    // From here on `a` looks at the clock, and `b` is gone.
    let noticed = given_up(back, &mut a);
    assert_eq!(noticed, back + LIMIT);
}

#[test]
fn an_engine_is_not_quiet_while_its_peer_must_wait_for_word() {
    let (mut a, mut b) = (engine(1), engine(1));
    a.send(OTHER, 1, vec![1; 2000], 0).unwrap();
    carry(0, &mut a, &mut b);
    assert!(!b.is_quiet(), "the request was not acknowledged");
    b.handle_timeout(b.next_timeout().unwrap());
    carry(SECOND / 1000, &mut b, &mut a);
    assert!(b.is_quiet());
    assert!(!a.is_quiet(), "the message still waits at its sender");
    b.receive(Source::Any, TagSelector::any(), vec![0; 2000], 0).unwrap();
    for turn in 2..20 {
        let now = turn * SECOND / 1000;
        for (from, to) in [(0, 1), (1, 0)] {
            let mut pair = [&mut a, &mut b];
            if pair[from].next_timeout().is_some_and(|at| at.0 <= now) {
                pair[from].handle_timeout(Nanoseconds(now));
            }
            packets(now, pair[from]).iter().for_each(|p| pair[to].handle_packet(Nanoseconds(now), OTHER, p));
        }
    }
    assert_eq!(b.next_completion().unwrap().buffer, vec![1; 2000]);
    assert_eq!(a.next_completion().unwrap().status, Status::Done);
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn packets_of_another_conversation_are_dropped() {
    let (mut a, mut b) = (engine(1), engine(2));
    a.send(OTHER, 1, vec![1; 10], 0).unwrap();
    carry(0, &mut a, &mut b);
    assert_eq!((b.counters().other_session, b.queue_lengths()), (1, (0, 0)));
    assert!(packets(0, &mut b).is_empty(), "no answer to unknown senders");
}

#[test]
fn a_timeout_sends_a_peer_that_computes_few_packets() {
    let mut engine = engine(1);
    let mut sent = 0;
    for _ in 0..4 {
        engine.send(OTHER, 1, vec![1; 900], 0).unwrap();
    }
    packets(0, &mut engine);
    let mut timeouts = 0;
    while timeouts < 12 {
        let now = engine.next_timeout().unwrap();
        engine.handle_timeout(now);
        let resent = packets(now.0, &mut engine).len();
        assert!(resent <= 5, "{resent} packets after a timeout");
        sent += resent;
        timeouts += 1;
    }
    assert!(sent >= 4, "the peer is probed");
    assert!(engine.is_alive(OTHER));
}

/// A sender waits for the last acknowledgement of a rendezvous; no timer may lie between.
#[test]
fn the_end_of_a_long_message_is_acknowledged_at_the_next_look_at_the_clock() {
    let (mut a, mut b) = (engine(1), engine(1));
    a.send(OTHER, 1, vec![7; 5000], 0).unwrap();
    b.receive(Source::Any, TagSelector::any(), vec![0; 5000], 0).unwrap();
    assert_eq!(carry(10, &mut a, &mut b), 1);
    carry(10, &mut b, &mut a);
    assert_eq!(carry(10, &mut a, &mut b), 4);
    assert_eq!(b.next_completion().unwrap().buffer, vec![7; 5000]);
    // At the same moment an answer could still carry it.
    assert_eq!(carry(10, &mut b, &mut a), 0);
    assert!(a.next_completion().is_none());
    let soon = b.next_timeout().unwrap().0;
    assert_eq!(soon, 11);
    b.handle_timeout(Nanoseconds(soon));
    assert_eq!(carry(soon, &mut b, &mut a), 1);
    assert_eq!(a.next_completion().unwrap().status, Status::Done);
    assert!(a.is_quiet() && b.is_quiet());
}
