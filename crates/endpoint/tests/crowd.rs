//! Many endpoints of one host that write to each other: resources of their links, and the order of messages while the links
//! grow.

use std::time::Instant;

use endpoint::{Endpoint, Paths, Settings, Source, Status, TagSelector};
use linux::accounting::shared;
use linux::shortage::{descriptors, raise_descriptor_limit};
use machine::PeerIndex;

type Joined = Endpoint<Paths, Vec<u8>>;

const RANKS: usize = 32;
/// Polls in which each end looks for news about its peers at least twice.
const POLLS: usize = 40_000;

fn join() -> Joined {
    Joined::join(&Settings { address: Some([127, 0, 0, 1].into()), ..Settings::default() }).unwrap()
}

/// Polls until `left` requests have ended, and some more.
fn drive(ends: &mut [Joined], mut left: usize) {
    let deadline = Instant::now() + skip::LIMIT;
    let mut rest = POLLS;
    while rest > 0 {
        for end in ends.iter_mut() {
            while let Some(done) = end.poll().unwrap() {
                assert_eq!(done.status, Status::Done);
                left -= 1;
            }
        }
        assert!(Instant::now() < deadline, "{left} requests did not end");
        rest -= usize::from(left == 0);
    }
}

fn exchange(ends: &mut [Joined], peers: &[Vec<PeerIndex>], size: usize) {
    for (end, peers) in ends.iter_mut().zip(peers) {
        for &peer in peers {
            end.receive(Source::Peer(peer), TagSelector::any(), vec![0; size], 0).unwrap();
            end.send(peer, 1, vec![1; size], 0).unwrap();
        }
    }
    drive(ends, 2 * RANKS * (RANKS - 1));
}

#[test]
fn links_take_what_their_messages_need_and_no_descriptors() {
    if !skip::alone() {
        return;
    }
    // Descriptors of new links are closed at once or at the next look.
    raise_descriptor_limit();
    let mut ends: Vec<Joined> = (0..RANKS).map(|_| join()).collect();
    let names: Vec<_> = ends.iter_mut().map(Joined::name).collect();
    let others = |of: usize| names.iter().enumerate().filter(move |(rank, _)| *rank != of).map(|(_, name)| name);
    let insert = |(rank, end): (usize, &mut Joined)| others(rank).map(|name| end.insert(name).unwrap()).collect();
    let peers: Vec<Vec<PeerIndex>> = ends.iter_mut().enumerate().map(insert).collect();
    let (Some(&memory), Some(&open)) = (shared().value(), descriptors().value()) else {
        return skip::test("this kernel does not tell what memory a process shares");
    };
    let links = RANKS * (RANKS - 1);
    let taken = || (shared().value().unwrap().0 - memory.0) as usize / links;

    exchange(&mut ends, &peers, 8);
    let short = taken();
    assert!(short <= 16 << 10, "a link over which a short message went takes {short} B");
    assert!(short * 128 * 127 < 512 << 20, "128 ranks, all to all");
    assert_eq!(descriptors().value(), Some(&open), "descriptors of links stay open");

    exchange(&mut ends, &peers, 3000);
    let longer = taken();
    assert!(longer <= 48 << 10, "a link over which a message of 3000 B went takes {longer} B");
    assert_eq!(descriptors().value(), Some(&open), "growth takes descriptors");

    // A receiver that does not poll: the link grows, and its messages keep their order.
    let [sender, receiver, ..] = &mut ends[..] else { unreachable!("many ranks") };
    let (there, back) = (peers[0][0], peers[1][0]);
    let length = |number: usize| [8, 60, 500, 3000, 8000][number % 5];
    let content = |number: usize| vec![number as u8; length(number)];
    let count = 1000;
    for number in 0..count {
        sender.send(there, number as u64, content(number), 0).unwrap();
    }
    for number in 0..count {
        receiver.receive(Source::Peer(back), TagSelector::any(), vec![0; length(number)], number as u64).unwrap();
    }
    let (mut sent, mut received) = (0, 0);
    let deadline = Instant::now() + skip::LIMIT;
    while sent < count || received < count {
        assert!(Instant::now() < deadline, "{sent} sent, {received} received of {count}");
        sent += usize::from(sender.poll().unwrap().is_some());
        while let Some(done) = receiver.poll().unwrap() {
            assert_eq!((done.context, done.envelope.tag), (received as u64, received as u64), "in order");
            assert!(done.buffer == content(received), "message {received}");
            received += 1;
        }
    }
}
