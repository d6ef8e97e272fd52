//! Credit for bytes: short messages wait for it, and are announced only where a receive or probe waits behind held messages.

use std::collections::VecDeque;

use engine::{Claim, Completion, Engine, Label, LinkConfig, Request, Source, Space, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};
use proptest::prelude::*;

const OTHER: PeerIndex = PeerIndex(0);
/// Packets that a driver takes from its port in one iteration.
const TURN: usize = 64;
/// Packets under way beyond which a port is full.
const ROOM: usize = 256;
/// Length of most messages, and how many of them the usual credit is for.
const SHORT: usize = 512;
const CREDIT: usize = 2048;
/// Messages whose credit comes back together.
const QUARTER: usize = 4096;

/// A sender (0) and a receiver (1), each polled as by a driver.
struct Pair {
    engines: [Engine<Vec<u8>>; 2],
    wires: [VecDeque<Vec<u8>>; 2],
    now: Nanoseconds,
}

impl Pair {
    fn new(link: &LinkConfig) -> Pair {
        let mut engines = [Engine::new(), Engine::new()];
        engines.iter_mut().for_each(|engine| assert_eq!(engine.add_peer(link.clone()), OTHER));
        Pair { engines, wires: Default::default(), now: Nanoseconds(1) }
    }

    /// A pair with the usual settings of ports.
    fn usual(reliable: bool) -> Pair {
        let capabilities = Capabilities { ordered: reliable, reliable, mtu: Bytes(1472), remote_read: false };
        Pair::new(&LinkConfig::for_port(&capabilities, 7))
    }

    /// One iteration of one side; whether a packet moved.
    fn turn(&mut self, side: usize) -> bool {
        self.now = self.now + Nanoseconds(1000);
        let (now, engine) = (self.now, &mut self.engines[side]);
        let came = self.wires[side].len().min(TURN);
        for packet in self.wires[side].drain(..came) {
            engine.handle_packet(now, OTHER, &packet);
        }
        if engine.next_timeout().is_some_and(|at| at <= now) {
            engine.handle_timeout(now);
        }
        let mut moved = came > 0;
        if engine.next_ready().is_some() {
            while let Some(length) = engine.plan(now, OTHER) {
                if self.wires[1 - side].len() == ROOM {
                    engine.defer(OTHER);
                    break;
                }
                let mut packet = vec![0; length];
                engine.write(now, OTHER, &mut packet);
                self.wires[1 - side].push_back(packet);
                moved = true;
            }
        }
        moved
    }

    /// Polls until nothing moves, acknowledgements included.
    fn settle(&mut self) {
        let mut still = 0;
        while still < 10 {
            let moved = [self.turn(0), self.turn(1)].contains(&true);
            still = if moved { 0 } else { still + 1 };
            self.now = self.now + Nanoseconds(100_000);
        }
        assert!(self.engines.iter().all(|engine| engine.is_alive(OTHER) && engine.counters().malformed == 0));
    }

    fn send(&mut self, label: impl Into<Label>, length: usize) -> Request {
        self.engines[0].send(OTHER, label, vec![length as u8; length], 0).unwrap()
    }

    fn flood(&mut self, messages: usize, tag: u64) {
        for _ in 0..messages {
            self.send(tag, SHORT);
        }
    }

    /// Sends messages for which receives wait.
    fn flood_received(&mut self, messages: usize) {
        for _ in 0..messages {
            self.receive(TagSelector::exactly(6));
        }
        self.flood(messages, 6);
        self.settle();
        for _ in 0..messages {
            assert_eq!(self.received().expect("its receive waits").envelope.tag, 6);
        }
    }

    fn receive(&mut self, selector: TagSelector) -> Request {
        self.engines[1].receive(Source::Peer(OTHER), selector, vec![0; SHORT], 0).unwrap()
    }

    fn received(&mut self) -> Option<Completion<Vec<u8>>> {
        self.engines[1].next_completion()
    }

    fn announced(&self) -> u64 {
        self.engines[0].counters().announced
    }
}

/// A sender that never waits, and a receiver that takes fewer messages per poll than come, as in NetPIPE's stream.
#[test]
fn a_stream_of_short_messages_past_the_credit_is_not_announced() {
    const MESSAGES: usize = 20_000;
    for reliable in [true, false] {
        let mut pair = Pair::usual(reliable);
        pair.flood(MESSAGES, 5);
        let (mut received, mut held) = (0, 0);
        pair.receive(TagSelector::exactly(5));
        while received < MESSAGES {
            pair.turn(0);
            pair.turn(1);
            held = held.max(pair.engines[1].unexpected_bytes());
            for _ in 0..8 {
                let Some(got) = pair.received() else { break };
                assert_eq!(got.buffer, [SHORT as u8; SHORT]);
                received += 1;
                pair.receive(TagSelector::exactly(5));
            }
        }
        assert!(held > 3 << 18, "the sender is not held back: only {held} bytes waited");
        assert_eq!(pair.announced(), 0, "reliable {reliable}");
    }
}

/// The flood is more than the credit; the receiver wants its last message first, by a receive that is posted before or after
/// the flood, or by looking again and again.
#[test]
fn what_a_receiver_waits_for_comes_although_others_hold_the_credit() {
    const FLOOD: u64 = 5000;
    for reliable in [true, false] {
        for (posted, late) in [(true, false), (true, true), (false, true)] {
            let mut pair = Pair::usual(reliable);
            let needle = TagSelector::exactly(FLOOD);
            if !late {
                pair.receive(needle);
            }
            for tag in 0..=FLOOD {
                pair.send(tag, SHORT);
            }
            pair.settle();
            if late {
                assert_eq!((pair.announced(), pair.engines[1].queue_lengths().1), (0, CREDIT), "all waits");
                assert_eq!(pair.engines[0].counters().credit_waits, 1);
            }
            if late && posted {
                pair.receive(needle);
                pair.settle();
            }
            if !posted {
                assert!(pair.engines[1].probe(Source::Any, needle).is_none());
                pair.settle();
                let (envelope, claim) = pair.engines[1].claim(Source::Any, needle).expect("it has come");
                assert_eq!(envelope.length, SHORT as u64);
                pair.engines[1].receive_claimed(claim, vec![0; SHORT], 0).unwrap();
                pair.settle();
            }
            let got = pair.received().expect("the needle");
            assert_eq!((got.envelope.tag, got.envelope.length), (FLOOD, SHORT as u64));
            assert!(pair.announced() > 0);
            // Once it has come and the rest is taken, messages travel as before.
            for tag in 0..FLOOD {
                pair.receive(TagSelector::exactly(tag));
                pair.turn(0);
                pair.turn(1);
            }
            pair.settle();
            for _ in 0..FLOOD {
                pair.received().expect("the flood");
            }
            let before = pair.announced();
            for _ in 0..FLOOD {
                pair.send(0, SHORT);
                pair.receive(TagSelector::exactly(0));
                pair.settle();
            }
            assert_eq!(pair.announced(), before);
        }
    }
}

/// After a receive is withdrawn, nobody waits: the sender is not asked for announcements for ever.
#[test]
fn announcements_end_with_the_receive_that_waited() {
    let mut pair = Pair::usual(true);
    let needle = pair.receive(TagSelector::exactly(7));
    pair.flood(2100, 5);
    pair.settle();
    assert_eq!(pair.announced(), 2100 - CREDIT as u64);
    assert!(pair.engines[1].cancel(needle));
    for _ in 0..2100 {
        pair.receive(TagSelector::exactly(5));
    }
    pair.settle();
    pair.flood(2500, 5);
    pair.settle();
    assert_eq!((pair.announced(), pair.engines[1].queue_lengths().1), (2100 - CREDIT as u64, CREDIT));
}

/// Messages for other receives use up the credit as well, before a quarter of it was freed.
#[test]
fn a_receive_that_waits_is_not_forgotten_where_others_get_theirs() {
    let mut pair = Pair::usual(true);
    pair.receive(TagSelector::exactly(7));
    pair.flood(CREDIT - 348, 5);
    pair.flood_received(340);
    pair.settle();
    // Longer than the eight messages of credit that are left.
    pair.send(5, 8000);
    pair.send(7, SHORT);
    pair.settle();
    assert_eq!(pair.received().expect("the needle").envelope.tag, 7);
    assert_eq!(pair.announced(), 0, "the credit that had come together was enough");
}

#[test]
fn nor_where_it_is_the_number_that_is_used_up() {
    let capabilities = Capabilities { ordered: true, reliable: true, mtu: Bytes(1472), remote_read: false };
    let mut pair = Pair::new(&LinkConfig { credit_messages: 16, ..LinkConfig::for_port(&capabilities, 7) });
    pair.receive(TagSelector::exactly(7));
    pair.flood(13, 5);
    pair.flood_received(3);
    pair.send(7, SHORT);
    pair.settle();
    assert_eq!(pair.received().expect("the needle").envelope.tag, 7);
}

/// Credit for messages comes back while that for bytes is used up.
#[test]
fn announcements_go_on_as_long_as_a_receive_waits() {
    let mut pair = Pair::usual(true);
    pair.receive(TagSelector::exactly(7));
    pair.flood(CREDIT, 5);
    pair.flood_received(QUARTER);
    pair.send(7, SHORT);
    pair.settle();
    assert_eq!(pair.received().expect("the needle").envelope.tag, 7);
    pair.flood_received(QUARTER - 1);
    let before = pair.announced();
    assert_eq!(before, 2 * QUARTER as u64);
    pair.flood(10, 5);
    pair.settle();
    assert_eq!(pair.announced(), before, "nobody waits any more");
}

#[test]
fn a_message_withdrawn_while_it_waits_lets_the_next_go() {
    let mut pair = Pair::usual(true);
    pair.flood(CREDIT - 1, 5);
    let first = pair.send(5, 1000);
    pair.send(5, 12);
    pair.settle();
    assert_eq!(pair.engines[1].queue_lengths().1, CREDIT - 1, "the first lacks credit");
    assert!(pair.engines[0].cancel(first));
    pair.settle();
    assert_eq!((pair.engines[1].queue_lengths().1, pair.announced()), (CREDIT, 0));
}

/// Requests for remote memory are served whatever the application waits for.
#[test]
fn nothing_waits_before_a_message_of_another_space() {
    let mut pair = Pair::usual(true);
    pair.receive(TagSelector::any().within(Space::Remote));
    pair.flood(3000, 5);
    pair.send(Label::new(Space::Remote, 0, None), 100);
    pair.flood(10, 5);
    pair.settle();
    assert_eq!(pair.received().expect("the request").envelope.space, Space::Remote);
    assert_eq!(
        (pair.announced(), pair.engines[1].queue_lengths().1),
        (3001 - CREDIT as u64, 3000),
        "the last ten wait"
    );
}

#[derive(Debug, Clone)]
enum Act {
    Send { times: usize, space: bool, tag: u64, length: u64, confirmed: bool },
    Receive { space: bool, tag: u64, mask: u64, any: bool },
    Probe { tag: u64, claim: bool },
    Claimed { which: prop::sample::Index, discard: bool },
    CancelSend { which: prop::sample::Index },
    CancelReceive { which: prop::sample::Index },
    Turn { side: usize },
}

fn act() -> impl Strategy<Value = Act> {
    use prop::sample::Index;
    let mask = prop_oneof![Just(u64::MAX), Just(u64::MAX), Just(1), Just(0)];
    let seldom = || prop::bool::weighted(0.1);
    prop_oneof![
        // Most are a flood that fits the credit many times.
        8 => (1usize..30, 0u64..8, 0u64..12).prop_map(|(times, tag, length)| {
            Act::Send { times, space: false, tag: tag.saturating_sub(4), length, confirmed: false }
        }),
        4 => (seldom(), 0u64..4, 0u64..2000, seldom())
            .prop_map(|(space, tag, length, confirmed)| Act::Send { times: 1, space, tag, length, confirmed }),
        5 => (seldom(), 0u64..4, mask, any::<bool>())
            .prop_map(|(space, tag, mask, any)| Act::Receive { space, tag, mask, any }),
        1 => (0u64..4, any::<bool>()).prop_map(|(tag, claim)| Act::Probe { tag, claim }),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(which, discard)| Act::Claimed { which, discard }),
        1 => any::<Index>().prop_map(|which| Act::CancelSend { which }),
        1 => any::<Index>().prop_map(|which| Act::CancelReceive { which }),
        8 => (0usize..2).prop_map(|side| Act::Turn { side }),
    ]
}

fn space(other: bool) -> Space {
    if other { Space::Message } else { Space::Tagged }
}

/// Checks that no receive waits for a message that was sent, after a run of random acts.
fn progress(credit: u64, acts: &[Act]) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(&LinkConfig {
        mtu: Bytes(300),
        eager_limit: Bytes(1500),
        eager_near: None,
        remote_read: false,
        credit_messages: 10_000,
        credit_bytes: Bytes(credit),
        reliability: None,
    });
    // Requests by context.
    let mut sent: Vec<Option<(Label, Request)>> = Vec::new();
    let mut posted: Vec<Option<(TagSelector, Request)>> = Vec::new();
    let mut claims: Vec<Claim> = Vec::new();
    let taken = |pair: &mut Pair, sent: &mut Vec<Option<(Label, Request)>>, posted: &mut Vec<_>| {
        while let Some(done) = pair.received() {
            if done.context != u64::MAX {
                posted[done.context as usize] = None;
            }
            if let Some(number) = done.envelope.data {
                sent[number as usize] = None;
            }
        }
    };
    for act in acts {
        match *act {
            Act::Send { times, space: other, tag, length, confirmed } => {
                for _ in 0..times {
                    let (number, engine) = (sent.len() as u64, &mut pair.engines[0]);
                    let label = Label::new(space(other), tag, Some(number));
                    let buffer = vec![tag as u8; length as usize];
                    let request = if confirmed {
                        engine.send_confirmed(OTHER, label, buffer, number)
                    } else {
                        engine.send(OTHER, label, buffer, number)
                    };
                    sent.push(Some((label, request.unwrap())));
                }
            }
            Act::Receive { space: other, tag, mask, any } => {
                let selector = TagSelector::masked(tag, mask).within(space(other));
                let source = if any { Source::Any } else { Source::Peer(OTHER) };
                let context = posted.len() as u64;
                let request = pair.engines[1].receive(source, selector, vec![0; 2000], context).unwrap();
                posted.push(Some((selector, request)));
            }
            Act::Probe { tag, claim } if claim => {
                let found = pair.engines[1].claim(Source::Any, TagSelector::exactly(tag));
                claims.extend(found.map(|(envelope, claim)| {
                    sent[envelope.data.unwrap() as usize] = None;
                    claim
                }));
            }
            Act::Probe { tag, .. } => drop(pair.engines[1].probe(Source::Any, TagSelector::exactly(tag))),
            Act::Claimed { which, discard } if !claims.is_empty() => {
                let claim = claims.swap_remove(which.index(claims.len()));
                if discard {
                    pair.engines[1].discard(claim);
                } else {
                    pair.engines[1].receive_claimed(claim, vec![0; 2000], u64::MAX).unwrap();
                }
            }
            Act::CancelSend { which } if !sent.is_empty() => {
                let which = which.get_mut(&mut sent);
                if which.is_some_and(|(_, request)| pair.engines[0].cancel(request)) {
                    *which = None;
                }
            }
            Act::CancelReceive { which } if !posted.is_empty() => {
                if let Some((_, request)) = *which.get(&posted) {
                    pair.engines[1].cancel(request);
                }
            }
            Act::Turn { side } => drop(pair.turn(side)),
            _ => {}
        }
        taken(&mut pair, &mut sent, &mut posted);
    }
    pair.settle();
    taken(&mut pair, &mut sent, &mut posted);
    prop_assert!(pair.engines[1].unexpected_bytes() <= credit);
    for (selector, _) in posted.iter().flatten() {
        let missing = sent.iter().flatten().find(|(label, _)| selector.takes(label.space, label.tag));
        prop_assert!(missing.is_none(), "{selector:?} waits though {missing:?} was sent");
    }
    // Whoever goes on looking for a message finds it.
    for (label, _) in sent.iter().flatten().filter(|(label, _)| label.space == Space::Tagged) {
        let found = (0..20).any(|_| {
            pair.settle();
            pair.engines[1].probe(Source::Any, TagSelector::exactly(label.tag)).is_some()
        });
        prop_assert!(found, "{label:?} is not found");
    }
    // All of it comes, in the order sent.
    let mut last = [None; 8];
    for _ in 0..sent.iter().flatten().count() {
        for other in [false, true] {
            let selector = TagSelector::any().within(space(other));
            pair.engines[1].receive(Source::Any, selector, vec![0; 2000], u64::MAX).unwrap();
        }
        pair.settle();
        while let Some(got) = pair.received() {
            let (number, tag) = (got.envelope.data.unwrap(), got.envelope.tag as usize);
            prop_assert!(got.buffer[..got.envelope.length as usize].iter().all(|&byte| byte == tag as u8));
            let last = &mut last[tag + 4 * usize::from(got.envelope.space == Space::Message)];
            prop_assert!(last.is_none_or(|last| last < number), "out of order");
            *last = Some(number);
            sent[number as usize] = None;
        }
    }
    prop_assert_eq!(sent.iter().flatten().count(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_receive_waits_for_a_message_that_was_sent(
        credit in prop_oneof![Just(0u64), Just(100), Just(1280), Just(1280), Just(1536)],
        acts in prop::collection::vec(act(), 1..120),
    ) {
        progress(credit, &acts)?;
    }
}
