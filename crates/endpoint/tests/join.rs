//! Endpoints that find each other by name: over shared memory, over UDP, over a UDP that loses, duplicates and
//! reorders.

use std::time::{Duration, Instant};

use endpoint::{
    Completion, Direction, Endpoint, Label, Name, Paths, Settings, Source, Space, Status, TagSelector, TakeNothing,
};
use machine::PeerIndex;

type Joined = Endpoint<Paths, Vec<u8>>;

/// The engine of a node, in a thread of this process, for tests that run alone. One rank stays, so that it does not end with
/// its last rank. A user has one engine per core, so that no other program's test has one meanwhile.
fn engine_of_node() {
    static STARTED: std::sync::Once = std::sync::Once::new();
    STARTED.call_once(|| {
        std::mem::forget(skip::turn());
        std::thread::spawn(|| endpoint::node::serve(machine::CoreId(0)).unwrap());
        let deadline = Instant::now() + skip::LIMIT;
        let rank = loop {
            match Joined::join(&read(NODE)) {
                Ok(rank) => break rank,
                Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        std::mem::forget(rank);
    });
}

fn settings(text: &'static str) -> Settings {
    if text.contains("core:0") {
        engine_of_node();
    }
    read(text)
}

fn read(text: &'static str) -> Settings {
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
const PAIRS: &str = "ADDRESS:127.0.0.1 SEMANTICS:queue-pair";
const PAIRS_UDP: &str = "ADDRESS:127.0.0.1 SHM:no SEMANTICS:queue-pair-shared";
const BAD_UDP: &str = "ADDRESS:127.0.0.1 SHM:no WIRE:loss=3%,duplicate=3%,reorder=3%,seed=11";

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

/// Polls all ends until `wanted` requests of the first have ended.
fn until(ends: &mut [&mut Joined], wanted: usize) -> Vec<Completion<Vec<u8>>> {
    let deadline = Instant::now() + skip::LIMIT;
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

/// The next receive of the first that ends.
fn received(ends: &mut [&mut Joined]) -> Completion<Vec<u8>> {
    let next = std::iter::repeat_with(|| until(ends, 1)).flatten().find(|done| done.direction == Direction::Receive);
    next.expect("an endless iterator")
}

fn talk(text: &'static str) {
    let mut a = Joined::join(&settings(text)).unwrap();
    let mut b = Joined::join(&settings(text)).unwrap();
    // Only `a` knows the other at first, like a rank that was not told of all others.
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
    // The answer goes to the caller by the index that it got; inserting its name gives the same.
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
    if !skip::alone() {
        return;
    }
    talk(NODE);
    talk(NODE_UDP);
}

#[test]
fn where_one_end_shares_no_memory_both_use_the_network() {
    for [one, other] in [[SHM, UDP], [UDP, SHM]] {
        let [mut a, mut b] = [one, other].map(|text| Joined::join(&settings(text)).unwrap());
        let (to_b, to_a) = (a.insert(&b.name()).unwrap(), b.insert(&a.name()).unwrap());
        for size in [8, 100_000] {
            a.send(to_b, 1, pattern(size, 1), 1).unwrap();
            b.receive(Source::Peer(to_a), TagSelector::exactly(1), vec![0; size], 2).unwrap();
            let got = received(&mut [&mut b, &mut a]);
            assert!(got.status == Status::Done && got.buffer == pattern(size, 1));
            b.send(to_a, 2, pattern(size, 2), 3).unwrap();
            a.receive(Source::Peer(to_b), TagSelector::exactly(2), vec![0; size], 4).unwrap();
            let got = received(&mut [&mut a, &mut b]);
            assert!(got.status == Status::Done && got.buffer == pattern(size, 2));
        }
        for end in [&mut a, &mut b] {
            let report = end.report().unwrap();
            let carried: Vec<_> = report.ports.iter().map(|port| port.carried.packets_received > 0).collect();
            assert_eq!(carried, [false, true], "{report:?}");
        }
    }
}

#[test]
fn a_peer_of_other_semantics_is_refused_with_the_cause() {
    for [one, other] in [[SHM, PAIRS], [PAIRS, SHM], [UDP, PAIRS_UDP]] {
        let [mut a, mut b] = [one, other].map(|text| Joined::join(&settings(text)).unwrap());
        let to_b = a.insert(&b.name()).unwrap();
        a.send_confirmed(to_b, 1, vec![1; 8], 5).unwrap();
        let got = until(&mut [&mut a, &mut b], 1);
        assert_eq!((got[0].context, got[0].status), (5, Status::PeerDead), "{one}, {other}");
        let (lost, fault) = a.next_lost().expect("it is told of");
        assert_eq!(lost, to_b);
        assert!(fault.subject().contains("semantics") && fault.next().contains("same semantics"), "{fault}");
    }
}

#[test]
fn an_endpoint_writes_to_itself() {
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, NODE_UDP, PAIRS, PAIRS_UDP] {
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
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, NODE_UDP, PAIRS, PAIRS_UDP] {
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
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, NODE_UDP, PAIRS, PAIRS_UDP] {
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
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, NODE_UDP, PAIRS, PAIRS_UDP] {
        let mut a = Joined::join(&settings(text)).unwrap();
        let mut b = Joined::join(&settings(text)).unwrap();
        let to_b = a.insert(&b.name()).unwrap();
        for size in [10, 500_000] {
            for tag in [1, 2, 3] {
                a.send(to_b, tag, pattern(size, tag as usize), tag).unwrap();
            }
            let mut claims = Vec::new();
            let deadline = Instant::now() + skip::LIMIT;
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
        a.settle(skip::LIMIT).unwrap_or_else(|_| panic!("the sender of a discarded message waits for ever"));
    }
}

#[test]
fn what_was_sent_before_an_end_closes_arrives() {
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, PAIRS, PAIRS_UDP] {
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
            // Over a network somebody must stay to send lost packets again; shared memory keeps them. A queue pair has to be
            // connected first.
            if text == UDP || text == PAIRS_UDP || (text == PAIRS && !written_to) {
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

/// Memory that is never freed, so that it can be checked after its endpoint has given it up.
struct Lasting(&'static mut [u8]);

impl Lasting {
    fn new(length: usize) -> (Lasting, impl Fn() -> Vec<u8>) {
        let bytes = Box::leak(vec![0; length].into_boxed_slice());
        let address = bytes.as_ptr() as u64;
        let look = move || {
            let mut now = vec![0; length];
            linux::remote::read(rustix::process::getpid(), address, &mut now).unwrap();
            now
        };
        (Lasting(bytes), look)
    }

    fn stand_in(&self, needed: bool) -> Lasting {
        let other = Lasting::new(self.0.len()).0;
        if needed {
            other.0.copy_from_slice(self.0);
        }
        other
    }
}

impl AsRef<[u8]> for Lasting {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl AsMut<[u8]> for Lasting {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0
    }
}

/// A peer that knows a rank, and that the rank has heard from.
fn acquainted(rank: &mut Endpoint<Paths, Lasting>, text: &'static str) -> (Joined, PeerIndex) {
    let mut other = Joined::join(&settings(text)).unwrap();
    let to = other.insert(&rank.name()).unwrap();
    other.send(to, 1, vec![1; 8], 0).unwrap();
    rank.receive(Source::Any, TagSelector::exactly(1), Lasting::new(8).0, 0).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    while rank.poll().unwrap().is_none() {
        assert!(Instant::now() < deadline);
        other.poll().unwrap();
    }
    (other, to)
}

/// Length of a message that is announced, however fast copies are.
const LONG: usize = 300_000;

#[test]
fn nothing_is_written_for_an_endpoint_that_has_gone() {
    if !skip::alone() {
        return;
    }
    for text in [SHM, NODE] {
        let mut rank = Endpoint::join(&settings(text)).unwrap();
        let (mut other, to) = acquainted(&mut rank, SHM);
        let (memory, look) = Lasting::new(LONG);
        rank.receive(Source::Any, TagSelector::exactly(2), memory, 0).unwrap();
        // The node's engine has taken the receive once it answers.
        assert!(rank.probe(Source::Any, TagSelector::exactly(3)).unwrap().is_none());
        drop(rank);
        other.send(to, 2, vec![7; LONG], 5).unwrap();
        let ended = std::iter::repeat_with(|| until(&mut [&mut other], 1).remove(0)).find(|done| done.context == 5);
        assert_eq!(ended.map(|done| done.status), Some(Status::PeerDead), "{text}");
        assert!(look().iter().all(|&byte| byte == 0), "{text}: written after the end");
    }
}

#[test]
fn memory_that_was_taken_back_is_left_alone() {
    if !skip::alone() {
        return;
    }
    for text in [SHM, UDP, NODE, NODE_UDP, PAIRS, PAIRS_UDP] {
        let mut rank = Endpoint::join(&settings(text)).unwrap();
        let (mut other, to) = acquainted(&mut rank, text);
        for length in [100, 20_000, 3_000_000] {
            let (memory, look) = Lasting::new(length);
            let receive = rank.receive(Source::Any, TagSelector::exactly(2), memory, 2).unwrap();
            assert!(rank.take_back(receive, Lasting::stand_in).unwrap());
            other.send(to, 2, vec![7; length], 2).unwrap();
            let deadline = Instant::now() + skip::LIMIT;
            let done = loop {
                assert!(Instant::now() < deadline, "{text}");
                other.poll().unwrap();
                if let Some(done) = rank.poll().unwrap() {
                    break done;
                }
            };
            assert_eq!((done.context, done.status, done.envelope.length), (2, Status::Done, length as u64), "{text}");
            assert!(look().iter().all(|&byte| byte == 0), "{text}: {length} bytes written to what was taken back");
            assert!(!rank.take_back(receive, Lasting::stand_in).unwrap(), "it has ended");
        }
    }
}

#[test]
fn a_message_that_its_sender_takes_back_ends_at_the_receiver() {
    if !skip::alone() {
        return;
    }
    for text in [UDP, NODE_UDP] {
        let mut rank = Endpoint::join(&settings(text)).unwrap();
        let (mut other, _) = acquainted(&mut rank, text);
        let to_other = rank.insert(&other.name()).unwrap();
        let send = rank.send(to_other, 4, Lasting::new(3_000_000).0, 4).unwrap();
        // The message is announced, and its receiver has not asked for it yet.
        let deadline = Instant::now() + skip::LIMIT;
        while other.probe(Source::Any, TagSelector::exactly(4)).unwrap().is_none() {
            assert!(Instant::now() < deadline, "{text}");
            rank.poll().unwrap();
        }
        assert!(rank.take_back(send, Lasting::stand_in).unwrap());
        other.receive(Source::Any, TagSelector::exactly(4), vec![0; 3_000_000], 4).unwrap();
        let done = loop {
            assert!(Instant::now() < deadline, "{text}");
            rank.poll().unwrap();
            if let Some(done) = other.poll().unwrap().filter(|done| done.direction == Direction::Receive) {
                break done;
            }
        };
        assert_eq!((done.context, done.status), (4, Status::Withdrawn), "{text}");
    }
}

/// Polls as a provider does; whether a request ended meanwhile.
fn waits(end: &mut Joined, polls: u32) -> bool {
    (0..polls).any(|_| {
        if !end.can_skip_poll() {
            end.turn_with(&mut TakeNothing).unwrap();
        }
        let ended = end.take_ended().is_some();
        end.relax();
        ended
    })
}

#[test]
fn a_caller_is_heard_by_who_waits_for_another() {
    let [mut a, mut b, mut c] = [(); 3].map(|()| Joined::join(&settings(SHM)).unwrap());
    for caller in [&mut a, &mut c] {
        let to_b = caller.insert(&b.name()).unwrap();
        b.receive(Source::Any, TagSelector::any(), vec![0; 8], 0).unwrap();
        caller.send(to_b, 1, vec![1; 8], 0).unwrap();
        assert!(waits(&mut b, 5000), "a turn that is left out must count for the next look");
    }
}

#[test]
fn ranks_that_are_more_than_the_cores_yield() {
    let cores = linux::affinity::reachable().unwrap().iter().count();
    let mut rank = Joined::join(&settings(SHM)).unwrap();
    let own = rank.name();
    rank.insert(&own).unwrap();
    for others in 1..=cores {
        let name = Joined::join(&settings(SHM)).unwrap().name();
        rank.insert(&name).unwrap();
        assert_eq!(rank.placed().yields, others == cores, "{others} others on {cores} cores");
    }
}
