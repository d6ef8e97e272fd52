//! Endpoints that find each other by name: over shared memory, over UDP, over a UDP that loses, doubles and reorders.

use std::time::{Duration, Instant};

use endpoint::{Completion, Direction, Endpoint, Label, Name, Paths, Settings, Source, Space, Status, TagSelector};
use machine::PeerIndex;

type Joined = Endpoint<Paths, Vec<u8>>;

const PATIENCE: Duration = Duration::from_secs(30);

/// An engine of a node, in a thread of this process; a core an engine.
fn engine_on(core: u32) {
    static STARTED: std::sync::Mutex<Vec<u32>> = std::sync::Mutex::new(Vec::new());
    let mut started = STARTED.lock().unwrap();
    if !started.contains(&core) {
        started.push(core);
        std::thread::spawn(move || endpoint::node::serve(machine::CoreId(core)).unwrap());
    }
}

fn settings(text: &'static str) -> Settings {
    if text.contains("core:0") {
        engine_on(0);
        let deadline = Instant::now() + PATIENCE;
        while linux::rendezvous::names("plimsoll/engine/").unwrap().is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Settings::read(|key| {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once(':'));
        pairs.into_iter().find(|(k, _)| *k == key).map(|(_, value)| value.to_string())
    })
    .unwrap()
}

const SHM: &str = "ADDRESS:127.0.0.1";
const UDP: &str = "ADDRESS:127.0.0.1 SHM:no";
const NODE: &str = "ADDRESS:127.0.0.1 PLACEMENT:core:0";
const NODE_UDP: &str = "ADDRESS:127.0.0.1 PLACEMENT:core:0 SHM:no";
const BAD_UDP: &str = "ADDRESS:127.0.0.1 SHM:no WIRE:loss=3%,duplicate=3%,reorder=3%,seed=11";

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

/// Polls all ends until `wanted` requests have ended at the first.
fn until(ends: &mut [&mut Joined], wanted: usize) -> Vec<Completion<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut ended = Vec::new();
    while ended.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} requests ended", ended.len());
        for (i, end) in ends.iter_mut().enumerate() {
            while let Some(done) = end.poll().unwrap() {
                if i == 0 {
                    ended.push(done);
                }
            }
        }
        std::thread::yield_now();
    }
    ended
}

fn talk(text: &'static str) {
    let mut a = Joined::join(&settings(text)).unwrap();
    let mut b = Joined::join(&settings(text)).unwrap();
    // Only `a` knows the other at first, as a rank does that was not told of all others.
    let to_b = a.insert(&Name::from_bytes(b.name().as_bytes()).unwrap()).unwrap();
    assert_eq!(a.insert(&b.name()).unwrap(), to_b);
    let sizes = [0, 1, 8, 57, 4096, 8192, 8193, 100_000, 3_000_001];
    for (i, &size) in sizes.iter().enumerate() {
        let label = Label::new(Space::Tagged, i as u64, i.is_multiple_of(2).then_some(99 + i as u64));
        a.send(to_b, label, pattern(size, i), i as u64).unwrap();
    }
    for (i, &size) in sizes.iter().enumerate() {
        b.receive(Source::Any, TagSelector::exactly(i as u64), vec![0; size], i as u64).unwrap();
    }
    let got = until(&mut [&mut b, &mut a], sizes.len());
    for done in got {
        let i = done.context as usize;
        assert_eq!((done.status, done.direction), (Status::Done, Direction::Receive));
        assert_eq!(done.envelope.data, i.is_multiple_of(2).then_some(99 + i as u64));
        assert!(done.buffer == pattern(sizes[i], i), "message {i} of {} bytes", sizes[i]);
    }
    // The answer goes to the peer that called, by the index that it got; inserting its name gives the same.
    let to_a = b.insert(&a.name()).unwrap();
    assert_eq!(to_a, PeerIndex(0));
    b.send_confirmed(to_a, Label::new(Space::Message, 0, None), b"back".to_vec(), 7).unwrap();
    a.receive(Source::Peer(to_b), TagSelector::any().within(Space::Message), vec![0; 4], 8).unwrap();
    let got = until(&mut [&mut b, &mut a], 1);
    assert_eq!((got[0].context, got[0].direction, got[0].status), (7, Direction::Send, Status::Done));
    let report = b.report().unwrap();
    let carried: Vec<_> = report.ports.iter().map(|port| port.carried.packets_received > 0).collect();
    assert_eq!(carried, [!text.contains("SHM:no"), text.contains("SHM:no")], "{report:?}");
}

#[test]
fn messages_of_all_sizes_over_shared_memory() {
    talk(SHM);
}

#[test]
fn messages_of_all_sizes_over_udp() {
    talk(UDP);
}

#[test]
fn messages_of_all_sizes_over_a_bad_wire() {
    talk(BAD_UDP);
}

#[test]
fn messages_of_all_sizes_by_a_nodes_engine() {
    talk(NODE);
    talk(NODE_UDP);
}

#[test]
fn an_endpoint_writes_to_itself() {
    for text in [SHM, UDP, NODE, NODE_UDP] {
        let mut me = Joined::join(&settings(text)).unwrap();
        let name = me.name();
        let peer = me.insert(&name).unwrap();
        me.send(peer, 3, b"note".to_vec(), 1).unwrap();
        me.receive(Source::Peer(peer), TagSelector::exactly(3), vec![0; 4], 2).unwrap();
        let got = until(&mut [&mut me], 2);
        assert!(got.iter().any(|done| done.context == 2 && done.buffer == b"note"));
    }
}

#[test]
fn both_call_at_once() {
    for text in [SHM, UDP, NODE, NODE_UDP] {
        let mut a = Joined::join(&settings(text)).unwrap();
        let mut b = Joined::join(&settings(text)).unwrap();
        let (to_b, to_a) = (a.insert(&b.name()).unwrap(), b.insert(&a.name()).unwrap());
        for i in 0..100 {
            a.send(to_b, i, vec![1; 8], 0).unwrap();
            b.send(to_a, i, vec![2; 8], 0).unwrap();
            a.receive(Source::Peer(to_b), TagSelector::exactly(i), vec![0; 8], 1).unwrap();
            b.receive(Source::Peer(to_a), TagSelector::exactly(i), vec![0; 8], 1).unwrap();
        }
        let got = until(&mut [&mut a, &mut b], 200);
        assert!(got.iter().filter(|done| done.context == 1).all(|done| done.buffer == [2; 8]));
        let got = until(&mut [&mut b, &mut a], 0);
        drop(got);
    }
}

#[test]
fn a_peer_that_is_gone_is_told_of() {
    for text in [SHM, UDP, NODE, NODE_UDP] {
        let mut a = Joined::join(&settings(text)).unwrap();
        let gone = Joined::join(&settings(text)).unwrap().name();
        let peer = a.insert(&gone).unwrap();
        a.send_confirmed(peer, 1, vec![0; 100_000], 5).unwrap();
        let got = until(&mut [&mut a], 1);
        assert_eq!((got[0].context, got[0].status), (5, Status::PeerDead), "{text}");
    }
}

#[test]
fn a_message_is_claimed_received_or_discarded() {
    for text in [SHM, UDP, NODE, NODE_UDP] {
        let mut a = Joined::join(&settings(text)).unwrap();
        let mut b = Joined::join(&settings(text)).unwrap();
        let to_b = a.insert(&b.name()).unwrap();
        for size in [10, 500_000] {
            for tag in [1, 2, 3] {
                a.send(to_b, tag, pattern(size, tag as usize), tag).unwrap();
            }
            let mut claims = Vec::new();
            let deadline = Instant::now() + PATIENCE;
            while claims.len() < 2 {
                assert!(Instant::now() < deadline);
                assert!(a.poll().unwrap().is_none_or(|done| done.status == Status::Done));
                claims.extend(b.claim(Source::Any, TagSelector::masked(0, 0)).unwrap());
            }
            assert_eq!((claims[0].0.tag, claims[1].0.tag), (1, 2));
            b.discard(claims[0].1).unwrap();
            b.receive(Source::Any, TagSelector::any(), vec![0; size], 33).unwrap();
            b.receive_claimed(claims[1].1, vec![0; size], 22).unwrap();
            let again = b.receive_claimed(claims[0].1, vec![], 0);
            let told = usize::from(again.is_ok());
            let got = until(&mut [&mut b, &mut a], 2 + told);
            let (twice, got): (Vec<_>, _) = got.into_iter().partition(|done| done.context == 0);
            assert!(twice.len() == told && twice.iter().all(|done| done.status == Status::Cancelled), "used once");
            for done in got {
                let tag = done.context / 11;
                assert_eq!((done.envelope.tag, done.status), (tag, Status::Done));
                assert!(done.buffer == pattern(size, tag as usize));
            }
        }
        a.settle(PATIENCE).unwrap_or_else(|_| panic!("the sender of a discarded message waits for ever"));
    }
}

#[test]
fn what_was_sent_before_an_end_closes_arrives() {
    for text in [SHM, UDP, NODE] {
        for written_to in [false, true] {
            let mut b = Joined::join(&settings(text)).unwrap();
            let mut a = Joined::join(&settings(text)).unwrap();
            let (to_b, to_a) = (a.insert(&b.name()).unwrap(), b.insert(&a.name()).unwrap());
            if written_to {
                b.send(to_a, 1, b"first".to_vec(), 9).unwrap();
                a.receive(Source::Any, TagSelector::any(), vec![0; 5], 9).unwrap();
                until(&mut [&mut a, &mut b], 1);
            }
            a.send(to_b, 7, b"last words".to_vec(), 1).unwrap();
            // Over a network somebody must stay to repeat what is lost; shared memory keeps it.
            if text == UDP {
                until(&mut [&mut a, &mut b], 1);
            }
            drop(a);
            b.receive(Source::Peer(to_a), TagSelector::exactly(7), vec![0; 10], 2).unwrap();
            let last = loop {
                let got = until(&mut [&mut b], 1);
                if let Some(last) = got.into_iter().find(|done| done.context == 2) {
                    break last;
                }
            };
            assert_eq!((last.status, &last.buffer[..]), (Status::Done, &b"last words"[..]), "{text} {written_to}");
        }
    }
}
