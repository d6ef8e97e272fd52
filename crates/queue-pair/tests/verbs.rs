//! Verbs on two adapters: states, work requests, completions, and refusals.

use crate::layers::faulty::{Faulty, Rates};
use machine::port::memory::{Geometry, MemoryPort, star};
use machine::{Nanoseconds, PeerIndex, Port, Sent};
use queue_pair::{
    Adapter, Address, Link, MemoryKey, Opcode, QueuePairNumber, ReceiveQueues, Segment, SendWork, Settings, State,
    Transfer, WorkCompletion, WorkStatus,
};

type Card = Adapter<MemoryPort, Vec<u8>>;
const HUB: PeerIndex = PeerIndex(0);

fn small() -> Settings {
    Settings { receive: ReceiveQueues::PerPeer { depth: 4 }, send_depth: 8, ..Settings::default() }
}

fn create<P: Port>(of: &mut Adapter<P, Vec<u8>>) -> QueuePairNumber {
    let link = Link::of(&of.port().capabilities());
    of.create_queue_pair(HUB, 0, link).unwrap()
}

fn two(settings: &Settings) -> (Card, Card) {
    let (one, mut others) = star(1, Geometry::default());
    (Adapter::open(one, settings).unwrap(), Adapter::open(others.remove(0), settings).unwrap())
}

/// Two connected queue pairs; the first may send.
fn connected(settings: &Settings) -> (Card, QueuePairNumber, Card, QueuePairNumber) {
    let (mut one, mut other) = two(settings);
    let a = create(&mut one);
    let b = create(&mut other);
    one.modify(a, State::Init).unwrap();
    other.modify(b, State::Init).unwrap();
    one.ready_to_receive(a, other.address(b, 0).unwrap()).unwrap();
    other.ready_to_receive(b, one.address(a, 0).unwrap()).unwrap();
    one.modify(a, State::ReadyToSend).unwrap();
    other.modify(b, State::ReadyToSend).unwrap();
    (one, a, other, b)
}

/// Drives both until neither has news; returns their completions.
fn run(one: &mut Card, other: &mut Card) -> (Vec<WorkCompletion>, Vec<WorkCompletion>) {
    let mut done = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        one.poll().unwrap();
        other.poll().unwrap();
        done.0.extend(std::iter::from_fn(|| one.poll_completion()));
        done.1.extend(std::iter::from_fn(|| other.poll_completion()));
    }
    done
}

fn whole(key: MemoryKey, length: u64) -> Segment {
    Segment { key, offset: 0, length }
}

#[test]
fn states_follow_one_another_and_no_other_way() {
    use State::*;
    let all = [Reset, Init, ReadyToReceive, ReadyToSend, Error];
    let legal = [
        (Reset, Init),
        (Init, Init),
        (Init, ReadyToReceive),
        (ReadyToReceive, ReadyToSend),
        (ReadyToSend, ReadyToSend),
    ];
    for from in all {
        for to in all {
            let expected = matches!(to, Reset | Error) || legal.contains(&(from, to));
            assert_eq!(from.may_become(to), expected, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn illegal_transitions_are_refused_with_what_to_do() {
    let (mut one, mut other) = two(&small());
    let a = create(&mut one);
    let b = create(&mut other);
    let fault = one.modify(a, State::ReadyToSend).unwrap_err();
    assert!(fault.cause().contains("Reset") && fault.next().contains("Init"), "{fault}");
    assert!(one.ready_to_receive(a, other.address(b, 0).unwrap()).is_err(), "not from Reset");
    assert_eq!(one.state(a).unwrap(), State::Reset, "a refusal changes nothing");
    assert!(one.modify(QueuePairNumber(77), State::Init).is_err());
    assert!(one.state(QueuePairNumber(0)).is_err(), "0 and 1 are not given out");

    let pool = one.register_pool(4096);
    assert!(one.post_receive(a, 1, whole(pool, 64)).is_err(), "nothing is posted in Reset");
    one.modify(a, State::Init).unwrap();
    one.post_receive(a, 1, whole(pool, 64)).unwrap();
    assert!(one.modify(a, State::ReadyToReceive).unwrap_err().next().contains("ready_to_receive"));
    assert!(one.post_inline(a, 1, true, 4, |_| ()).unwrap_err().cause().contains("Init"));
    one.ready_to_receive(a, other.address(b, 0).unwrap()).unwrap();
    assert!(one.post_inline(a, 1, true, 4, |_| ()).is_err(), "not before ReadyToSend");
    // Back to Reset: posted work is gone, without completions.
    one.modify(a, State::Reset).unwrap();
    assert_eq!(run(&mut one, &mut other).0, []);
    one.modify(a, State::Init).unwrap();
}

#[test]
fn a_send_meets_the_oldest_receive_and_both_complete() {
    let (mut one, a, mut other, b) = connected(&small());
    let pool = other.register_pool(4096);
    for id in 0..3 {
        other.post_receive(b, 10 + id, Segment { key: pool, offset: 100 * id, length: 100 }).unwrap();
    }
    one.post_inline(a, 1, false, 5, |into| into.copy_from_slice(b"first")).unwrap();
    let source = one.register(vec![7; 90], None);
    let transfer = Transfer::Send(whole(source, 90));
    one.post_send(a, SendWork { id: 2, signaled: true, transfer }).unwrap();
    let (sent, received) = run(&mut one, &mut other);
    assert_eq!(
        sent.iter().map(|done| (done.id, done.opcode, done.status)).collect::<Vec<_>>(),
        [(2, Opcode::Send, WorkStatus::Success)]
    );
    assert_eq!(received.iter().map(|done| (done.id, done.length)).collect::<Vec<_>>(), [(10, 5), (11, 90)]);
    assert_eq!(other.memory(Segment { key: pool, offset: 0, length: 5 }).unwrap(), b"first");
    assert_eq!(other.memory(Segment { key: pool, offset: 100, length: 90 }).unwrap(), [7; 90]);
    assert!(one.is_quiet() && other.is_quiet());
    assert_eq!(one.deregister(source), Some(vec![7; 90]));
}

#[test]
fn a_message_longer_than_the_receive_breaks_the_connection_and_flushes_the_rest() {
    let (mut one, a, mut other, b) = connected(&small());
    let pool = other.register_pool(4096);
    other.post_receive(b, 1, whole(pool, 4)).unwrap();
    other.post_receive(b, 2, whole(pool, 4)).unwrap();
    for id in 0..3 {
        one.post_inline(a, id, false, 8, |into| into.fill(1)).unwrap();
    }
    let (sent, received) = run(&mut one, &mut other);
    let ends = |done: &[WorkCompletion]| done.iter().map(|done| (done.id, done.status)).collect::<Vec<_>>();
    assert_eq!(ends(&received), [(1, WorkStatus::LocalLength), (2, WorkStatus::Flushed)]);
    assert_eq!(
        ends(&sent),
        [(0, WorkStatus::RemoteInvalidRequest), (1, WorkStatus::Flushed), (2, WorkStatus::Flushed)]
    );
    assert_eq!((one.state(a).unwrap(), other.state(b).unwrap()), (State::Error, State::Error));
    assert_eq!((one.next_event(), one.next_event()), (Some(a), None), "told once");
    // A work request posted to a broken queue pair completes at once.
    one.post_inline(a, 9, false, 1, |into| into.fill(0)).unwrap();
    assert_eq!(ends(&run(&mut one, &mut other).0), [(9, WorkStatus::Flushed)]);
    // Work requests for whose completions there is no room are refused.
    for id in 0..8 {
        one.post_inline(a, id, true, 1, |into| into.fill(0)).unwrap();
    }
    assert!(one.post_inline(a, 8, true, 1, |into| into.fill(0)).unwrap_err().cause().contains("full"));
    assert_eq!(run(&mut one, &mut other).0.len(), 8);
}

/// An adapter whose queue pair has a bare port for peer, which sends any packets from `first_psn` on.
fn beside_a_port(settings: &Settings, first_psn: u32) -> (Card, QueuePairNumber, MemoryPort) {
    let (one, mut others) = star(1, Geometry::default());
    let mut one: Card = Adapter::open(one, settings).unwrap();
    let a = create(&mut one);
    one.modify(a, State::Init).unwrap();
    one.ready_to_receive(a, Address { queue_pair: QueuePairNumber(2), first_psn, source: 0 }).unwrap();
    one.modify(a, State::ReadyToSend).unwrap();
    (one, a, others.remove(0))
}

/// Sends a packet of the reliable connected transport, and returns the adapter's answer.
fn hear(one: &mut Card, port: &mut MemoryPort, opcode: u8, to: QueuePairNumber, psn: u32, rest: &[u8]) {
    let packet = [&[opcode, 0, 0, 0][..], &to.0.to_le_bytes(), &psn.to_le_bytes(), rest].concat();
    let sent = port.send(HUB, packet.len(), |into| into.copy_from_slice(&packet)).unwrap();
    assert_eq!(sent, Sent::Taken);
    port.flush().unwrap();
    one.poll().unwrap();
}

#[test]
fn what_is_said_of_packets_that_have_arrived_or_never_left_changes_nothing() {
    let settings = Settings { rnr_timer: Nanoseconds(1), rnr_retry: 1, ..small() };
    let (mut one, a, mut port) = beside_a_port(&settings, 0);
    let first = one.address(a, 0).unwrap().first_psn;
    let mut acknowledge = |one: &mut Card, psn, syndrome| hear(one, &mut port, 0x11, a, psn, &[syndrome, 0, 0, 0]);
    const ARRIVED: u8 = 0x1f;
    let ended = |one: &mut Card| one.poll_completion().map(|done| (done.id, done.status));
    one.post_inline(a, 1, true, 1, |into| into.fill(0)).unwrap();
    acknowledge(&mut one, first, ARRIVED);
    assert_eq!(ended(&mut one), Some((1, WorkStatus::Success)));
    one.post_inline(a, 2, true, 1, |into| into.fill(0)).unwrap();
    // Not ready, out of sequence, and both errors.
    for syndrome in [0x20, 0x20, 0x20, 0x60, 0x61, 0x62] {
        acknowledge(&mut one, first, syndrome);
    }
    acknowledge(&mut one, first + 2, ARRIVED);
    let counters = one.counters();
    assert_eq!((counters.not_ready_received, counters.retransmitted), (0, 0));
    assert_eq!((counters.duplicates, counters.malformed), (6, 1));
    assert_eq!((one.state(a).unwrap(), ended(&mut one)), (State::ReadyToSend, None));
    acknowledge(&mut one, first + 1, ARRIVED);
    assert_eq!(ended(&mut one), Some((2, WorkStatus::Success)));
}

#[test]
fn packets_are_taken_once_and_in_order_where_sequence_numbers_wrap() {
    const LAST: u32 = (1 << 24) - 1;
    const SEND_ONLY: u8 = 0x04;
    let (mut one, a, mut port) = beside_a_port(&small(), LAST - 1);
    let pool = one.register_pool(4096);
    for id in 0..4 {
        one.post_receive(a, id, Segment { key: pool, offset: id, length: 1 }).unwrap();
    }
    for (psn, byte) in [(LAST - 1, 1), (LAST, 2), (LAST, 9), (0, 3), (LAST - 1, 9), (3, 9), (1, 4)] {
        hear(&mut one, &mut port, SEND_ONLY, a, psn, &[byte]);
    }
    let ended: Vec<_> = std::iter::from_fn(|| one.poll_completion()).map(|done| (done.id, done.status)).collect();
    assert_eq!(ended, [0, 1, 2, 3].map(|id| (id, WorkStatus::Success)));
    assert_eq!(one.memory(whole(pool, 4)).unwrap(), [1, 2, 3, 4]);
    let counters = one.counters();
    assert_eq!((counters.duplicates, counters.out_of_sequence), (2, 1));
}

#[test]
fn writes_reach_registered_memory_and_no_other() {
    let (mut one, a, mut other, b) = connected(&small());
    let bytes: Vec<u8> = (0..30_000).map(|place| place as u8).collect();
    let source = one.register(bytes.clone(), None);
    let target = other.register(vec![0; 30_000], Some(b));
    let write = |from, key: MemoryKey, offset| Transfer::Write { from, key: key.0, offset };
    let transfer = write(whole(source, 30_000), target, 0);
    one.post_send(a, SendWork { id: 5, signaled: true, transfer }).unwrap();
    let (sent, received) = run(&mut one, &mut other);
    assert_eq!((sent.len(), sent[0].status, sent[0].opcode), (1, WorkStatus::Success, Opcode::RdmaWrite));
    assert_eq!(received, [], "the peer is not told of a write");
    assert_eq!(other.deregister(target), Some(bytes));

    // Writes beyond the end, after deregistration, where no peer may write, where another may, and into a pool.
    let (short, closed) = (vec![0; 100], vec![0; 100]);
    let pool = |other: &mut Card| other.register_pool(4096);
    for case in 0..5 {
        let (mut one, a, mut other, b) = connected(&small());
        let source = one.register(vec![1; 64], None);
        let (key, offset) = match case {
            0 => (other.register(short.clone(), Some(b)), 64),
            1 => {
                let key = other.register(short.clone(), Some(b));
                other.deregister(key).unwrap();
                (key, 0)
            }
            2 => (other.register(closed.clone(), None), 0),
            3 => {
                let another = create(&mut other);
                (other.register(closed.clone(), Some(another)), 0)
            }
            _ => (pool(&mut other), 0),
        };
        let transfer = write(whole(source, 64), key, offset);
        one.post_send(a, SendWork { id: 6, signaled: false, transfer }).unwrap();
        let (sent, _) = run(&mut one, &mut other);
        assert_eq!(sent.len(), 1, "a failure is told also of work that asked for no completion");
        assert_eq!(sent[0].status, WorkStatus::RemoteAccess, "case {case}");
        assert_eq!((one.state(a).unwrap(), other.state(b).unwrap()), (State::Error, State::Error));
    }
}

#[test]
fn work_on_memory_that_is_not_registered_is_refused() {
    let (mut one, a, ..) = connected(&small());
    let key = one.register(vec![0; 10], None);
    let send = |from| SendWork { id: 0, signaled: true, transfer: Transfer::Send(from) };
    assert!(one.post_send(a, send(whole(key, 11))).is_err());
    assert!(one.post_send(a, send(Segment { key, offset: u64::MAX, length: 2 })).is_err());
    one.deregister(key).unwrap();
    assert!(one.post_send(a, send(whole(key, 10))).is_err());
    assert!(one.post_inline(a, 0, true, 129, |_| ()).is_err());
}

#[test]
fn a_full_send_queue_is_told() {
    let (mut one, a, mut other, b) = connected(&small());
    let pool = other.register_pool(4096);
    for id in 0..8 {
        assert_eq!(one.send_room(a), 8 - id);
        one.post_inline(a, u64::from(id), true, 1, |into| into.fill(0)).unwrap();
    }
    assert!(one.post_inline(a, 8, true, 1, |into| into.fill(0)).unwrap_err().cause().contains("full"));
    for id in 0..4 {
        other.post_receive(b, id, whole(pool, 8)).unwrap();
    }
    assert!(other.post_receive(b, 4, whole(pool, 8)).unwrap_err().cause().contains("posted"));
}

#[test]
fn a_receiver_that_is_not_ready_is_asked_again_until_it_is() {
    let settings = Settings { rnr_timer: Nanoseconds(50_000), ..small() };
    let (mut one, a, mut other, b) = connected(&settings);
    for id in 0..3 {
        one.post_inline(a, id, true, 1, |into| into.fill(id as u8)).unwrap();
    }
    let (sent, _) = run(&mut one, &mut other);
    assert_eq!(sent, [], "nothing can have arrived");
    let heard = one.counters().not_ready_received;
    assert!(heard > 0 && heard == other.counters().not_ready_sent, "{heard}");
    let pool = other.register_pool(4096);
    for id in 0..3 {
        other.post_receive(b, id, Segment { key: pool, offset: id, length: 1 }).unwrap();
    }
    let until = std::time::Instant::now() + skip::LIMIT;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    while sent.len() < 3 {
        assert!(std::time::Instant::now() < until);
        let (more_sent, more_received) = run(&mut one, &mut other);
        sent.extend(more_sent);
        received.extend(more_received);
    }
    assert!(sent.iter().chain(&received).all(|done| done.status == WorkStatus::Success));
    assert_eq!(other.memory(whole(pool, 3)).unwrap(), [0, 1, 2], "in order, once each");
}

#[test]
fn a_receiver_that_is_never_ready_is_given_up_after_the_retries() {
    let settings = Settings { rnr_timer: Nanoseconds(1_000), rnr_retry: 2, ..small() };
    let (mut one, a, mut other, _) = connected(&settings);
    one.post_inline(a, 1, false, 1, |into| into.fill(0)).unwrap();
    one.post_inline(a, 2, false, 1, |into| into.fill(0)).unwrap();
    let mut sent = Vec::new();
    let until = std::time::Instant::now() + skip::LIMIT;
    while sent.len() < 2 {
        assert!(std::time::Instant::now() < until);
        sent.extend(run(&mut one, &mut other).0);
    }
    assert_eq!((sent[0].id, sent[0].status), (1, WorkStatus::RnrRetryExceeded));
    assert_eq!((sent[1].id, sent[1].status), (2, WorkStatus::Flushed));
    assert_eq!(other.counters().not_ready_sent, 3, "once, and twice again");
    assert_eq!(one.next_event(), Some(a));
}

#[test]
fn silence_on_a_port_that_loses_packets_ends_after_the_retries() {
    let settings = Settings { timeout: Nanoseconds(200_000), retry: 3, ..small() };
    let (one, mut others) = star(1, Geometry::default());
    let deaf = Rates { lost: 1000, ..Rates::default() };
    let mut one: Adapter<_, Vec<u8>> = Adapter::open(Faulty::new(one, deaf, 1), &settings).unwrap();
    let mut other: Card = Adapter::open(others.remove(0), &settings).unwrap();
    let a = create(&mut one);
    let b = create(&mut other);
    one.modify(a, State::Init).unwrap();
    one.ready_to_receive(a, other.address(b, 0).unwrap()).unwrap();
    one.modify(a, State::ReadyToSend).unwrap();
    one.post_inline(a, 1, false, 1, |into| into.fill(0)).unwrap();
    let until = std::time::Instant::now() + skip::LIMIT;
    let done = loop {
        assert!(std::time::Instant::now() < until);
        one.poll().unwrap();
        if let Some(done) = one.poll_completion() {
            break done;
        }
    };
    assert_eq!((done.id, done.status), (1, WorkStatus::RetryExceeded));
    assert_eq!(one.counters().packets_sent, 4, "once, and three times again");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let open = |settings: Settings| {
        let (one, _others) = star(1, Geometry::default());
        Adapter::<_, Vec<u8>>::open(one, &settings).map(|_| ())
    };
    open(Settings::default()).unwrap();
    for settings in [
        Settings { send_depth: 0, ..Settings::default() },
        Settings { inline: 200, ..Settings::default() },
        Settings { completion_depth: 100, ..Settings::default() },
        Settings { acknowledge_every: 0, ..Settings::default() },
        Settings { receive: ReceiveQueues::Shared { depth: 1 << 20 }, ..Settings::default() },
    ] {
        let fault = open(settings).unwrap_err();
        assert!(!fault.next().is_empty());
    }
    let (one, _others) = star(1, Geometry { mtu: 64, ..Geometry::default() });
    assert!(Adapter::<_, Vec<u8>>::open(one, &Settings::default()).is_err(), "no room for headers");
}
