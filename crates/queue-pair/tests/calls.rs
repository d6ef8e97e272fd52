//! Calls of an endpoint over queue pairs beside plain sends and receives: spaces and data, confirmed sends, injects, claimed
//! messages, withdrawal by context, and the adapter's time.

use std::time::Instant;

use crate::layers::{Pairs, admitted};
use engine::{Completion, Direction, Label, Source, Space, Status, TagSelector};
use machine::PeerIndex;
use machine::port::memory::{Geometry, MemoryPort, star};
use queue_pair::Settings;

type End = Pairs<MemoryPort>;
const PEER: PeerIndex = PeerIndex(0);
/// Length beyond any eager message.
const LONG: usize = 10_000;

fn two() -> (End, End) {
    let (hub, leaves) = star(1, Geometry::default());
    let (hub, mut leaves) = admitted(hub, leaves, &Settings::default());
    (hub, leaves.remove(0))
}

/// Polls both until `count` requests of `of` have ended.
fn ended(of: &mut End, other: &mut End, count: usize) -> Vec<Completion<Vec<u8>>> {
    let until = Instant::now() + skip::LIMIT;
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < until, "{} of {count} have ended", all.len());
        other.turn().unwrap();
        all.extend(of.poll().unwrap());
    }
    all
}

fn some(end: &mut End, space: Space) -> TagSelector {
    end.turn().unwrap();
    TagSelector::any().within(space)
}

#[test]
fn spaces_are_matched_apart_and_data_arrives() {
    for length in [0, 100, LONG] {
        let (mut one, mut other) = two();
        one.send(PEER, Label::new(Space::Message, 7, Some(11)), vec![1; length], 0).unwrap();
        one.send(PEER, Label::new(Space::Tagged, 7, None), vec![2; length], 0).unwrap();
        for (space, data, byte) in [(Space::Tagged, None, 2), (Space::Message, Some(11), 1)] {
            let selector = some(&mut other, space);
            other.receive(Source::Any, selector, vec![0; LONG], 5).unwrap();
            let done = ended(&mut other, &mut one, 1).remove(0);
            assert_eq!((done.envelope.space, done.envelope.data, done.envelope.tag), (space, data, 7));
            assert!(done.buffer[..length].iter().all(|&b| b == byte));
            assert_eq!(done.envelope.length, length as u64);
        }
    }
}

#[test]
fn a_confirmed_send_ends_once_it_is_matched() {
    for length in [0, 8, LONG] {
        let (mut one, mut other) = two();
        one.send_confirmed(PEER, Label::from(3), vec![9; length], 1).unwrap();
        for _ in 0..100_000 {
            other.turn().unwrap();
            one.turn().unwrap();
        }
        assert!(one.next_completion().is_none(), "nobody has received it");
        other.receive(Source::Any, TagSelector::any(), vec![0; LONG], 2).unwrap();
        let done = ended(&mut one, &mut other, 1).remove(0);
        assert_eq!((done.context, done.status), (1, Status::Done));
        let got = ended(&mut other, &mut one, 1).remove(0);
        assert_eq!(got.buffer[..length], vec![9; length]);
    }
}

#[test]
fn an_inject_leaves_at_once_or_not_at_all() {
    let (mut one, mut other) = two();
    assert!(!one.inject(PEER, &Label::from(1), b"early").unwrap(), "the peer is not connected yet");
    one.send(PEER, 1, b"first".to_vec(), 0).unwrap();
    ended(&mut one, &mut other, 1);
    assert!(one.inject(PEER, &Label::from(1), b"second").unwrap());
    assert!(!one.inject(PEER, &Label::from(1), &[0; LONG]).unwrap(), "too long to be eager");
    for expected in [&b"first"[..], b"second"] {
        other.receive(Source::Any, TagSelector::any(), vec![0; expected.len()], 0).unwrap();
        assert_eq!(ended(&mut other, &mut one, 1)[0].buffer, expected);
    }
}

#[test]
fn claimed_messages_are_received_once_or_dropped() {
    for length in [100, LONG] {
        let (mut one, mut other) = two();
        for number in 0..3 {
            one.send(PEER, number, vec![number as u8; length], number).unwrap();
        }
        let until = Instant::now() + skip::LIMIT;
        let mut claims = Vec::new();
        while claims.len() < 2 {
            assert!(Instant::now() < until);
            one.turn().unwrap();
            other.turn().unwrap();
            claims.extend(other.claim(Source::Any, TagSelector::any()));
        }
        assert_eq!(claims[1].0.tag, 1);
        other.discard(claims[0].1).unwrap();
        other.receive(Source::Any, TagSelector::any(), vec![0; length], 9).unwrap();
        let third = ended(&mut other, &mut one, 1).remove(0);
        assert_eq!((third.envelope.tag, third.buffer), (2, vec![2; length]));
        other.receive_claimed(claims[1].1, vec![0; length], 4).unwrap();
        let second = ended(&mut other, &mut one, 1).remove(0);
        assert_eq!((second.context, second.envelope.tag, second.buffer), (4, 1, vec![1; length]));
        for (_, claim) in claims {
            let again = other.receive_claimed(claim, Vec::new(), 0).unwrap_err();
            assert!(again.to_string().contains("already"), "{again}");
        }
        let sends = ended(&mut one, &mut other, 3);
        assert!(sends.iter().all(|send| send.status == Status::Done), "the sender takes it for received");
    }
}

#[test]
fn a_request_is_withdrawn_by_its_context() {
    let (mut one, mut other) = two();
    one.receive(Source::Any, TagSelector::any(), vec![0; 8], 77).unwrap();
    let request = one.find(77).unwrap();
    assert!(one.find(78).is_none());
    assert!(one.cancel(request));
    let done = ended(&mut one, &mut other, 1).remove(0);
    assert_eq!((done.context, done.direction, done.status), (77, Direction::Receive, Status::Cancelled));
}

#[test]
fn the_adapters_time_is_counted_apart() {
    fn ticks() -> u64 {
        std::thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        NOW.with(|now| {
            now.set(now.get() + 1);
            now.get()
        })
    }
    let (mut one, mut other) = two();
    assert!(one.metered().is_none());
    one.meter(ticks);
    one.turn().unwrap();
    let idle = one.metered().unwrap();
    assert_eq!((idle.adapter, idle.idle), (0, 1), "a poll that found nothing");
    one.send(PEER, 1, b"first".to_vec(), 0).unwrap();
    ended(&mut one, &mut other, 1);
    let before = one.metered().unwrap();
    assert!(one.inject(PEER, &Label::from(1), b"second").unwrap());
    assert_eq!(one.metered().unwrap().adapter, before.adapter + 1, "one work request was posted");
}

#[test]
fn requests_to_a_dead_peer_end_also_before_it_was_connected() {
    let (mut one, other) = two();
    one.send(PEER, 1, vec![1; 8], 1).unwrap();
    one.receive(Source::Peer(PEER), TagSelector::any(), vec![0; 8], 2).unwrap();
    drop(other);
    let until = Instant::now() + skip::LIMIT;
    let mut contexts = Vec::new();
    while contexts.len() < 2 {
        assert!(Instant::now() < until);
        one.notices().unwrap();
        if let Some(done) = one.poll().unwrap() {
            assert_eq!(done.status, Status::PeerDead);
            contexts.push(done.context);
        }
    }
}
