//! The MPI layer: credits, dead peers, floods, hostile peers.

use std::time::Instant;

use crate::layers::faulty::{Faulty, Rates};
use crate::layers::{Ended, Layer, Random, admitted, connected};
use engine::{Buffer, Direction, Source, Status, TagSelector};
use machine::port::memory::{Geometry, star};
use machine::{Nanoseconds, PeerIndex, Port};
use proptest::prelude::*;
use queue_pair::{Endpoint, Link, ReceiveQueues, Settings, State};

const ZERO: PeerIndex = PeerIndex(0);

fn pair(settings: &Settings) -> (impl Layer + Counted + use<>, impl Layer + Counted + use<>) {
    let (hub, leaves) = star(1, Geometry::default());
    let (hub, mut leaves) = connected(hub, leaves, settings);
    (hub, leaves.remove(0))
}

trait Counted {
    fn counted(&self) -> queue_pair::Counters;
}

impl<P: Port> Counted for Endpoint<P, Vec<u8>> {
    fn counted(&self) -> queue_pair::Counters {
        self.counters()
    }
}

/// Drives both ends until `enough` holds.
fn drive(
    one: &mut impl Layer,
    other: &mut impl Layer,
    mut enough: impl FnMut(&[Ended], &[Ended]) -> bool,
) -> (Vec<Ended>, Vec<Ended>) {
    let until = Instant::now() + skip::LIMIT;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    while !enough(&left, &right) {
        assert!(Instant::now() < until, "{} and {} requests ended", left.len(), right.len());
        one.turn(&mut left);
        other.turn(&mut right);
    }
    (left, right)
}

/// A buffer of so many zeros without memory.
struct Zeros(usize);

impl Buffer for Zeros {
    fn length(&self) -> usize {
        self.0
    }

    fn address(&self) -> u64 {
        0
    }

    fn read(&self, _offset: usize, into: &mut [u8]) {
        into.fill(0);
    }

    fn write(&mut self, _offset: usize, _from: &[u8]) {}

    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        None
    }
}

#[test]
#[ignore = "make check"]
fn a_message_of_more_packets_than_may_be_under_way_passes() {
    let (hub, mut leaves) = star(1, Geometry { mtu: 96, ..Geometry::default() });
    let link = Link { window: 1 << 10, ..Link::of(&hub.capabilities()) };
    let mut ends = [hub, leaves.remove(0)].map(|port| Endpoint::open(port, &Settings::default()).unwrap());
    let [hub, leaf] = ends.each_mut().map(|end| end.create(link).unwrap().1);
    ends[0].connect(ZERO, leaf).unwrap();
    ends[1].connect(ZERO, hub).unwrap();
    // A length of 4.9 million packets of 64 B.
    let length = 300 << 20;
    ends[0].send(ZERO, 1, Zeros(length), 0).unwrap();
    ends[1].receive(Source::Any, TagSelector::exactly(1), Zeros(length), 0).unwrap();
    let mut ended = [None, None];
    while ended.iter().any(Option::is_none) {
        for (end, ended) in ends.iter_mut().zip(&mut ended) {
            end.turn().unwrap();
            *ended = ended.or(end.next_completion().map(|done| (done.status, done.envelope.length)));
        }
    }
    assert_eq!(ended, [Some((Status::Done, length as u64)); 2]);
}

#[test]
fn credits_hold_back_a_flood_and_nothing_is_lost() {
    for honour_credits in [true, false] {
        let settings = Settings {
            receive: ReceiveQueues::PerPeer { depth: 8 },
            honour_credits,
            rnr_timer: Nanoseconds(20_000),
            ..Settings::default()
        };
        let (mut one, mut other) = pair(&settings);
        for number in 0..2000u64 {
            one.send(ZERO, number, number.to_le_bytes().to_vec(), number);
        }
        let mut none = Vec::new();
        for _ in 0..20 {
            one.turn(&mut none);
        }
        let sent = one.counted().eager;
        assert!(sent <= if honour_credits { 8 } else { 64 }, "{sent} messages left while nobody received");
        for number in 0..2000u64 {
            other.receive(Source::Any, TagSelector::any(), vec![0; 8], number);
        }
        let (_, received) = drive(&mut one, &mut other, |_, received| received.len() == 2000);
        for (number, message) in received.iter().enumerate() {
            assert_eq!(message.buffer, (number as u64).to_le_bytes());
        }
        let not_ready = other.counted().adapter.not_ready_sent;
        if honour_credits {
            assert_eq!(not_ready, 0, "a receive was ready for every send");
            assert!(other.counted().credit_messages > 0, "credit had to go back by itself");
        } else {
            assert!(not_ready > 0 && one.counted().adapter.retransmitted > 0, "receives ran out, and sends went again");
        }
    }
}

#[test]
fn credits_ride_on_messages_that_go_back_anyway() {
    let settings = Settings { receive: ReceiveQueues::PerPeer { depth: 8 }, ..Settings::default() };
    let (mut one, mut other) = pair(&settings);
    for number in 0..500u64 {
        other.receive(Source::Any, TagSelector::any(), vec![0; 8], number);
        one.receive(Source::Any, TagSelector::any(), vec![0; 8], number);
        one.send(ZERO, 1, vec![1; 8], number);
        drive(&mut one, &mut other, |_, came| came.iter().any(|done| done.direction == Direction::Receive));
        other.send(ZERO, 1, vec![1; 8], number);
        drive(&mut one, &mut other, |came, _| came.iter().any(|done| done.direction == Direction::Receive));
    }
    assert_eq!(one.counted().credit_messages + other.counted().credit_messages, 0);
}

#[test]
fn unexpected_messages_are_kept_without_a_bound() {
    let (mut one, mut other) = pair(&Settings::default());
    for number in 0..3000u64 {
        one.send(ZERO, number, vec![number as u8; 1000], number);
    }
    let mut none = Vec::new();
    let until = Instant::now() + skip::LIMIT;
    while other.counted().unexpected_most < 3000 {
        assert!(Instant::now() < until);
        one.turn(&mut none);
        other.turn(&mut none);
    }
    assert_eq!(
        other.counted().unexpected_bytes_most,
        3_000_000,
        "credit is of buffers, not of what is copied out of them"
    );
    for number in 0..3000u64 {
        other.receive(Source::Peer(ZERO), TagSelector::exactly(2999 - number), vec![0; 1000], number);
    }
    let (_, received) = drive(&mut one, &mut other, |_, received| received.len() == 3000);
    assert!(received.iter().all(|message| message.buffer == vec![message.envelope.tag as u8; 1000]));
}

#[test]
fn a_dead_peer_ends_everything_that_waits_for_it() {
    let (hub, leaves) = star(2, Geometry::default());
    let (mut hub, mut leaves) = connected(hub, leaves, &Settings::default());
    let mut ended = Vec::new();
    // One message arrived whole, one rendezvous under way, receives posted, sends that wait.
    leaves[0].send(ZERO, 1, vec![1; 8], 0).unwrap();
    hub.receive(Source::Peer(ZERO), TagSelector::exactly(9), vec![0; 8], 10).unwrap();
    Layer::turn(&mut leaves[0], &mut ended);
    Layer::turn(&mut hub, &mut ended);
    for number in 0..200 {
        hub.send(ZERO, 2, vec![0; 100], number).unwrap();
    }
    hub.send(ZERO, 3, vec![0; 100_000], 11).unwrap();
    drop(leaves.remove(0));
    ended.clear();
    let until = Instant::now() + skip::LIMIT;
    while hub.state(ZERO).unwrap() != State::Error || ended.len() < 202 {
        assert!(Instant::now() < until, "{} ended", ended.len());
        hub.notices().unwrap();
        Layer::turn(&mut hub, &mut ended);
    }
    let dead = |done: &&Ended| done.status == Status::PeerDead;
    assert!(ended.iter().filter(dead).any(|done| done.direction == Direction::Receive && done.context == 10));
    assert!(ended.iter().filter(dead).any(|done| done.direction == Direction::Send && done.context == 11));
    assert!(hub.counters().adapter.flushed > 0, "its posted receives were flushed");
    let mut later = Vec::new();
    hub.receive(Source::Any, TagSelector::exactly(1), vec![0; 8], 20).unwrap();
    hub.receive(Source::Peer(ZERO), TagSelector::any(), vec![0; 8], 21).unwrap();
    hub.send(ZERO, 5, vec![0; 8], 22).unwrap();
    Layer::turn(&mut hub, &mut later);
    let statuses: Vec<_> = later.iter().map(|done| (done.context, done.status)).collect();
    assert_eq!(statuses, [(20, Status::Done), (21, Status::PeerDead), (22, Status::PeerDead)]);
    // The other leaf is unaffected.
    leaves[0].send(ZERO, 4, vec![4; 8], 0).unwrap();
    hub.receive(Source::Any, TagSelector::exactly(4), vec![0; 8], 30).unwrap();
    let (_, came) = drive(&mut leaves[0], &mut hub, |_, came| !came.is_empty());
    assert_eq!((came[0].context, came[0].status, came[0].envelope.peer), (30, Status::Done, PeerIndex(1)));
}

#[test]
fn requests_can_be_withdrawn_while_nothing_has_happened() {
    let (hub, leaves) = star(1, Geometry::default());
    let settings = Settings { receive: ReceiveQueues::PerPeer { depth: 4 }, ..Settings::default() };
    let (mut hub, mut leaves) = connected(hub, leaves, &settings);
    let receive = hub.receive(Source::Any, TagSelector::any(), vec![0; 8], 1).unwrap();
    assert!(hub.cancel(receive) && !hub.cancel(receive));
    assert_eq!(hub.poll().unwrap().unwrap().status, Status::Cancelled);
    let sends: Vec<_> = (0..6).map(|n| hub.send(ZERO, n, vec![0; 8], n).unwrap()).collect();
    assert!(!hub.cancel(sends[0]), "it has left");
    assert!(hub.cancel(sends[5]), "it waits for credit");
    leaves[0].receive(Source::Any, TagSelector::exactly(5), vec![0; 8], 0).unwrap();
    let mut ended = Vec::new();
    for _ in 0..500 {
        Layer::turn(&mut hub, &mut Vec::new());
        Layer::turn(&mut leaves[0], &mut ended);
    }
    assert!(ended.is_empty(), "what was withdrawn does not arrive");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Packets changed on their way break their own connection at most; nothing panics, and the others go on.
    #[test]
    fn changed_packets_break_one_connection_at_most(seed: u64, changed in 20usize..400, shared: bool, on_demand: bool) {
        let (hub, leaves) = star(2, Geometry { mtu: 600, ..Geometry::default() });
        let settings = Settings {
            timeout: Nanoseconds(200_000),
            ..if shared { Settings::shared(64) } else { Settings::default() }
        };
        // Packets between the hub and its bad peer are changed in both directions.
        let mut ports: Vec<_> = leaves.into_iter().map(|leaf| Faulty::new(leaf, Rates::default(), seed)).collect();
        let other = ports.pop().unwrap();
        let bad = ports.pop().unwrap().with(Rates { changed, ..Rates::default() });
        let hub = Faulty::new(hub, Rates { changed, ..Rates::default() }, seed ^ 5).only(ZERO);
        let wire = if on_demand { admitted } else { connected };
        let (mut hub, mut leaves) = wire(hub, vec![bad, other], &settings);
        let mut random = Random(seed);
        let mut ended = Vec::new();
        for step in 0..400u64 {
            let length = [0, 8, 100, 1500, 9000][random.below(5)];
            match random.below(4) {
                0 => { leaves[0].send(ZERO, step % 3, vec![1; length], step).unwrap(); }
                1 => { hub.send(ZERO, step % 3, vec![1; length], step).unwrap(); }
                2 => { hub.receive(Source::Peer(ZERO), TagSelector::any(), vec![0; 9000], step).unwrap(); }
                _ => { leaves[0].receive(Source::Any, TagSelector::any(), vec![0; 9000], step).unwrap(); }
            }
            Layer::turn(&mut hub, &mut ended);
            Layer::turn(&mut leaves[0], &mut ended);
        }
        // 20,000 bytes both ways with the peer whose packets are unchanged.
        for tag in 0..2 {
            leaves[1].send(ZERO, 70 + tag, vec![tag as u8; 10_000], 0).unwrap();
            hub.receive(Source::Peer(PeerIndex(1)), TagSelector::exactly(70 + tag), vec![9; 10_000], 5000 + tag).unwrap();
        }
        ended.clear();
        let until = Instant::now() + skip::LIMIT;
        while ended.iter().filter(|done| done.context >= 5000).count() < 2 {
            prop_assert!(Instant::now() < until);
            Layer::turn(&mut hub, &mut ended);
            for leaf in &mut leaves {
                Layer::turn(leaf, &mut Vec::new());
            }
        }
        for done in ended.iter().filter(|done| done.context >= 5000) {
            prop_assert_eq!(done.status, Status::Done);
            prop_assert_eq!(&done.buffer, &vec![(done.context - 5000) as u8; 10_000]);
        }
    }
}
