//! Bytes from nowhere and from a peer that lies: the engine neither panics nor grows, and goes on serving the others.

use engine::{Engine, LARGEST_HEADER, LinkConfig, RELIABILITY_HEADER, ReliabilityConfig, Source, Status, TagSelector};
use machine::bounds::ENGINE_ANSWERS;
use machine::{Bytes, Nanoseconds, PeerIndex};
use proptest::prelude::*;

const HOSTILE: PeerIndex = PeerIndex(0);
const HONEST: PeerIndex = PeerIndex(1);
const CREDIT_MESSAGES: u32 = 20;
const CREDIT_BYTES: u64 = 4000;
const SESSION: u32 = 77;

fn link(reliable: bool, remote_read: bool) -> LinkConfig {
    LinkConfig {
        mtu: Bytes((LARGEST_HEADER + RELIABILITY_HEADER + 60) as u64),
        eager_limit: Bytes(500),
        eager_near: remote_read.then_some(Bytes(600)),
        remote_read,
        credit_messages: CREDIT_MESSAGES,
        credit_bytes: Bytes(CREDIT_BYTES),
        reliability: (!reliable).then(|| ReliabilityConfig { window: 32, ..ReliabilityConfig::new(SESSION) }),
    }
}

fn packets(now: Nanoseconds, engine: &mut Engine<Vec<u8>>) -> Vec<(PeerIndex, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(now, peer) {
            let mut packet = vec![0; length];
            engine.write(now, peer, &mut packet);
            all.push((peer, packet));
        }
    }
    all
}

/// Harm to a packet on its way from the hostile peer.
#[derive(Debug, Clone)]
enum Harm {
    None,
    Flip {
        at: prop::sample::Index,
        bits: u8,
    },
    /// Overwrites a word, the fields of headers being words.
    Word {
        at: prop::sample::Index,
        value: u64,
    },
    Cut {
        at: prop::sample::Index,
    },
    Replay {
        which: prop::sample::Index,
    },
    /// The head of this packet on the tail of an older one.
    Splice {
        which: prop::sample::Index,
        at: prop::sample::Index,
    },
    Noise(Vec<u8>),
    Drop,
}

fn harm() -> impl Strategy<Value = Harm> {
    use prop::sample::Index;
    let value = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        Just(1),
        Just(u64::from(u32::MAX)),
        Just(1 << 63),
        Just((1 << 32) | 1),
        any::<u64>()
    ];
    prop_oneof![
        20 => Just(Harm::None),
        3 => (any::<Index>(), 1u8..).prop_map(|(at, bits)| Harm::Flip { at, bits }),
        3 => (any::<Index>(), value).prop_map(|(at, value)| Harm::Word { at, value }),
        2 => any::<Index>().prop_map(|at| Harm::Cut { at }),
        3 => any::<Index>().prop_map(|which| Harm::Replay { which }),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(which, at)| Harm::Splice { which, at }),
        1 => prop::collection::vec(any::<u8>(), 0..120).prop_map(Harm::Noise),
        1 => Just(Harm::Drop),
    ]
}

fn harmed(harm: &Harm, mut packet: Vec<u8>, seen: &[Vec<u8>]) -> Option<Vec<u8>> {
    match harm {
        Harm::None => {}
        Harm::Flip { at, bits } => {
            let at = at.index(packet.len());
            packet[at] ^= bits;
        }
        Harm::Word { at, value } => {
            let words = packet.len() / 8;
            if words > 0 {
                let at = at.index(words) * 8;
                packet[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        Harm::Cut { at } => packet.truncate(at.index(packet.len())),
        Harm::Replay { which } if !seen.is_empty() => packet = seen[which.index(seen.len())].clone(),
        Harm::Splice { which, at } if !seen.is_empty() => {
            let other = &seen[which.index(seen.len())];
            let at = at.index(packet.len()).min(other.len());
            packet.truncate(at);
            packet.extend_from_slice(&other[at..]);
        }
        Harm::Replay { .. } | Harm::Splice { .. } => {}
        Harm::Noise(bytes) => packet = bytes.clone(),
        Harm::Drop => return None,
    }
    Some(packet)
}

/// Lively traffic of every kind with the hostile peer, its packets harmed; the honest peer must notice nothing.
fn attack(reliable: bool, remote_read: bool, harms: Vec<Harm>) -> Result<(), TestCaseError> {
    let mut victim: Engine<Vec<u8>> = Engine::new();
    let mut others = [Engine::new(), Engine::new()];
    victim.add_peer(link(reliable, remote_read));
    victim.add_peer(link(reliable, false));
    others[0].add_peer(link(reliable, remote_read));
    others[1].add_peer(link(reliable, false));
    let (mut asked, mut ended) = (0u64, 0u64);
    let (mut honest_sent, mut honest_got) = (0u64, Vec::new());
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut harms = harms.into_iter();
    let mut now = Nanoseconds(1);
    let mut quiet_rounds = 0;
    for round in 0.. {
        now = now + Nanoseconds(10_000_000);
        if !harms.as_slice().is_empty() {
            let lengths = [0, 10, 130, 400, 501, 900];
            for &length in &lengths {
                let _ = others[0].send(PeerIndex(0), round, vec![1; length], 0);
                victim.send(HOSTILE, round, vec![2; length], 0).unwrap();
                asked += 1;
            }
            for source in [Source::Peer(HOSTILE), Source::Any, Source::Peer(HOSTILE)] {
                let wild = if source == Source::Any { TagSelector::masked(1, 1) } else { TagSelector::any() };
                victim.receive(source, wild, vec![0; 700], u64::MAX).unwrap();
                let _ = others[0].receive(Source::Any, TagSelector::any(), vec![0; 1000], 0);
                asked += 1;
            }
            others[1].send(PeerIndex(0), 2, honest_sent.to_le_bytes().to_vec(), 0).unwrap();
            honest_sent += 1;
        }
        if victim.next_timeout().is_some_and(|at| at <= now) {
            victim.handle_timeout(now);
        }
        victim.carry_out_reads(|_, address, into| {
            into.fill(3);
            address % 3 != 0
        });
        for (peer, packet) in packets(now, &mut victim) {
            others[peer.0 as usize].handle_packet(now, PeerIndex(0), &packet);
        }
        let mut moved = victim.has_reads() || others[0].has_reads();
        for (index, other) in others.iter_mut().enumerate() {
            if other.next_timeout().is_some_and(|at| at <= now) {
                other.handle_timeout(now);
            }
            for (_, packet) in packets(now, other) {
                moved = true;
                let packet = if index == 0 {
                    let Some(packet) = harms.next().map_or(Some(packet.clone()), |harm| harmed(&harm, packet, &seen))
                    else {
                        continue;
                    };
                    seen.push(packet.clone());
                    packet
                } else {
                    packet
                };
                victim.handle_packet(now, PeerIndex(index as u32), &packet);
                let hostile_alive = victim.is_alive(HOSTILE);
                prop_assert!(victim.unexpected_bytes() <= 2 * CREDIT_BYTES);
                prop_assert!(victim.queue_lengths().1 <= 2 * CREDIT_MESSAGES as usize);
                prop_assert!(victim.is_alive(HONEST), "an honest peer was given up; hostile alive: {hostile_alive}");
            }
            while other.next_completion().is_some() {}
        }
        while (honest_got.len() as u64) < honest_sent {
            let Some(seen) = victim.probe(Source::Peer(HONEST), TagSelector::exactly(2)) else { break };
            let buffer = vec![0; seen.length as usize];
            victim.receive(Source::Peer(HONEST), TagSelector::exactly(2), buffer, 42).unwrap();
            asked += 1;
            honest_got.push(u64::MAX);
        }
        while let Some(done) = victim.next_completion() {
            ended += 1;
            if done.context == 42 {
                prop_assert_eq!(done.status, Status::Done);
                let number = u64::from_le_bytes(done.buffer[..].try_into().unwrap());
                prop_assert_eq!(honest_got[number as usize], u64::MAX, "received twice");
                honest_got[number as usize] = number;
            }
        }
        quiet_rounds = if moved || !harms.as_slice().is_empty() { 0 } else { quiet_rounds + 1 };
        // Packets still to be harmed may not come once the hostile peer is given up.
        if quiet_rounds > 20 || (!victim.is_alive(HOSTILE) && round > 300) || round > 2000 {
            break;
        }
    }
    prop_assert_eq!(honest_got, (0..honest_sent).collect::<Vec<_>>());
    victim.peer_dead(HOSTILE);
    while victim.next_completion().is_some() {
        ended += 1;
    }
    let (posted, _) = victim.queue_lengths();
    prop_assert_eq!(asked, ended + posted as u64, "each request ends once or still waits for anyone");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn harmed_traffic_on_a_reliable_port(harms in prop::collection::vec(harm(), 1..250)) {
        attack(true, false, harms)?;
    }

    #[test]
    fn harmed_traffic_on_a_port_with_remote_reads(harms in prop::collection::vec(harm(), 1..250)) {
        attack(true, true, harms)?;
    }

    #[test]
    fn harmed_traffic_on_an_unreliable_port(harms in prop::collection::vec(harm(), 1..250)) {
        attack(false, false, harms)?;
    }

    #[test]
    fn noise(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..50), reliable: bool) {
        let mut victim: Engine<Vec<u8>> = Engine::new();
        victim.add_peer(link(reliable, true));
        for packet in packets {
            victim.handle_packet(Nanoseconds(1), HOSTILE, &packet);
            victim.handle_packet(Nanoseconds(1), PeerIndex(9), &packet);
        }
    }
}

/// A message-layer packet made by hand.
fn eager(tag: u64, length: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0];
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn more(payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 0, 0, 0], payload].concat()
}

fn words(kind: u8, word: u32, rest: &[u64]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend_from_slice(&word.to_le_bytes());
    rest.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes
}

fn request(length: u64, address: u64) -> Vec<u8> {
    words(3, 0, &[5, length, 1, address, 0])
}

fn data(receiver: u64, payload: &[u8]) -> Vec<u8> {
    [&words(5, 0, &[receiver])[..], payload].concat()
}

fn victim() -> Engine<Vec<u8>> {
    let mut victim = Engine::new();
    victim.add_peer(link(true, true));
    victim.add_peer(link(true, false));
    victim
}

/// Key of the engine's first receive in packets.
const FIRST_RECEIVE: u64 = (1 << 32) | 1;

#[test]
fn a_peer_beyond_its_credit_is_given_up_and_others_go_on() {
    let floods: [fn() -> Vec<u8>; 3] =
        [|| eager(5, 0, &[]), || eager(5, 300, &[7; 300]), || request(u64::MAX, u64::MAX)];
    for flood in floods {
        let mut victim = victim();
        let mut packets = 0;
        while victim.is_alive(HOSTILE) {
            victim.handle_packet(Nanoseconds(1), HOSTILE, &flood());
            packets += 1;
            assert!(packets <= CREDIT_MESSAGES + 1, "credit was overrun");
            assert!(victim.unexpected_bytes() <= CREDIT_BYTES);
        }
        assert_eq!(victim.counters().malformed, 1);
        victim.handle_packet(Nanoseconds(1), HONEST, &eager(6, 3, b"abc"));
        victim.receive(Source::Peer(HONEST), TagSelector::any(), vec![0; 3], 0).unwrap();
        let got = victim.next_completion().expect("the honest peer's message is here");
        assert_eq!((got.status, &got.buffer[..]), (Status::Done, &b"abc"[..]));
    }
}

#[test]
fn a_peer_that_takes_no_answers_is_given_up() {
    let mut engine = victim();
    let mut asked = 0;
    while engine.is_alive(HOSTILE) {
        engine.receive(Source::Peer(HOSTILE), TagSelector::any(), Vec::new(), 0).unwrap();
        engine.handle_packet(Nanoseconds(1), HOSTILE, &request(0, 0));
        while engine.next_completion().is_some() {}
        asked += 1;
        assert!(asked <= ENGINE_ANSWERS.each.count() + 1, "its answers pile up");
    }
    engine.handle_packet(Nanoseconds(1), HONEST, &eager(6, 3, b"abc"));
    assert!(engine.is_alive(HONEST) && engine.queue_lengths().1 == 1);
}

#[test]
fn a_length_is_not_believed_before_its_bytes_come() {
    let mut victim = victim();
    // 4 GiB announced eagerly: more than any credit.
    victim.handle_packet(Nanoseconds(1), HOSTILE, &eager(5, u32::MAX, &[1]));
    assert!(!victim.is_alive(HOSTILE));
    assert_eq!(victim.queue_lengths().1, 0);
    // The greatest length there is, by rendezvous: nothing is allocated, the buffer is filled, no more.
    victim.receive(Source::Peer(HONEST), TagSelector::any(), vec![0; 4], 0).unwrap();
    victim.handle_packet(Nanoseconds(1), HONEST, &request(u64::MAX, 0));
    victim.handle_packet(Nanoseconds(1), HONEST, &data((1 << 32) | 1, &[9; 40]));
    assert!(victim.is_alive(HONEST));
    victim.peer_dead(HONEST);
    let got = victim.next_completion().unwrap();
    assert_eq!((got.status, got.envelope.length, got.buffer), (Status::PeerDead, u64::MAX, vec![9; 4]));
}

#[test]
fn bytes_that_come_another_way_than_asked_are_refused() {
    // Data for a receive that More packets are filling.
    let mut engine = victim();
    engine.receive(Source::Peer(HOSTILE), TagSelector::any(), vec![0; 100], 0).unwrap();
    engine.handle_packet(Nanoseconds(1), HOSTILE, &eager(5, 80, &[1; 40]));
    engine.handle_packet(Nanoseconds(1), HOSTILE, &data(FIRST_RECEIVE, &[2; 40]));
    assert!(!engine.is_alive(HOSTILE));
    engine.handle_packet(Nanoseconds(1), HOSTILE, &more(&[3; 40]));
    assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);
    assert!(engine.next_completion().is_none());

    // Data for a receive that waits for a remote read.
    let mut engine = victim();
    engine.receive(Source::Peer(HOSTILE), TagSelector::any(), vec![0; 100], 0).unwrap();
    engine.handle_packet(Nanoseconds(1), HOSTILE, &request(40, 0x1000));
    engine.handle_packet(Nanoseconds(1), HOSTILE, &data(FIRST_RECEIVE, &[2; 40]));
    assert!(!engine.is_alive(HOSTILE));
    assert_eq!(engine.carry_out_reads(|_, _, _| panic!("the peer is dead")), 0);
    assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);

    // Done or clear to send for a message that was never announced.
    for kind in [4, 6] {
        let mut engine = victim();
        engine.send(HOSTILE, 1, vec![0; 10], 0).unwrap();
        let rest: &[u64] = if kind == 4 { &[FIRST_RECEIVE, 1] } else { &[FIRST_RECEIVE] };
        engine.handle_packet(Nanoseconds(1), HOSTILE, &words(kind, 0, rest));
        assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);
    }
}

#[test]
fn credit_that_was_never_spent_is_refused() {
    let mut engine = victim();
    engine.handle_packet(Nanoseconds(1), HOSTILE, &words(7, u32::MAX, &[u64::MAX]));
    assert!(!engine.is_alive(HOSTILE));
    engine.handle_packet(Nanoseconds(1), HONEST, &words(7, 0, &[1]));
    assert!(!engine.is_alive(HONEST));
}

#[test]
fn a_peer_may_grant_more_messages_up_to_a_bound() {
    let mut engine = victim();
    engine.handle_packet(Nanoseconds(1), HONEST, &words(7, 1 << 19, &[0]));
    assert!(engine.is_alive(HONEST));
    engine.handle_packet(Nanoseconds(1), HONEST, &words(7, 1 << 20, &[0]));
    assert!(!engine.is_alive(HONEST));
}

#[test]
fn a_message_that_outgrows_its_length_is_not_left_behind_half_arrived() {
    let mut engine = victim();
    engine.handle_packet(Nanoseconds(1), HOSTILE, &eager(5, 80, &[1; 40]));
    engine.handle_packet(Nanoseconds(1), HOSTILE, &more(&[3; 41]));
    assert!(!engine.is_alive(HOSTILE));
    assert_eq!(engine.queue_lengths().1, 0);
    engine.receive(Source::Peer(HOSTILE), TagSelector::any(), vec![0; 100], 0).unwrap();
    assert_eq!(engine.next_completion().unwrap().status, Status::PeerDead);
}
