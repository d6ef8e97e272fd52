//! Matching against a naive model: lists searched from the front, as MPI words it.

use std::collections::VecDeque;

use engine::{Completion, Direction, Engine, LinkConfig, Request, Source, Status, TagSelector};
use machine::{Bytes, Capabilities, Nanoseconds, PeerIndex};
use proptest::prelude::*;

const NOW: Nanoseconds = Nanoseconds(0);
const EAGER_LIMIT: u64 = 100;
/// More masks than the engine lists classes for.
const MASKS: [u64; 12] = [u64::MAX, 0, 1, 2, 3, 4, 5, 6, 7, !1, !2, 1 << 63];
/// Few tags, so that keys collide; some alike in the low bits.
const TAGS: [u64; 6] = [0, 1, 2, 3, 1 << 63, (1 << 63) | 1];
const LENGTHS: [usize; 6] = [0, 1, 8, 40, 100, 130];

#[derive(Debug, Clone)]
enum Step {
    Send { from: usize, tag: u64, length: usize },
    Receive { source: Option<usize>, tag: u64, mask: u64, capacity: usize },
    Probe { source: Option<usize>, tag: u64, mask: u64 },
    Cancel { which: usize },
    Die { peer: usize },
}

fn steps(peers: usize) -> impl Strategy<Value = Vec<Step>> {
    let source = || prop_oneof![1 => Just(None), 2 => (0..peers).prop_map(Some)];
    let tag = || prop::sample::select(&TAGS[..]);
    let mask = || prop_oneof![2 => Just(u64::MAX), 3 => prop::sample::select(&MASKS[..])];
    let length = || prop::sample::select(&LENGTHS[..]);
    let step = prop_oneof![
        40 => (0..peers, tag(), length()).prop_map(|(from, tag, length)| Step::Send { from, tag, length }),
        40 => (source(), tag(), mask(), length()).prop_map(|(source, tag, mask, capacity)| Step::Receive {
            source, tag, mask, capacity
        }),
        10 => (source(), tag(), mask()).prop_map(|(source, tag, mask)| Step::Probe { source, tag, mask }),
        10 => any::<prop::sample::Index>().prop_map(|index| Step::Cancel { which: index.index(1 << 20) }),
        1 => (0..peers).prop_map(|peer| Step::Die { peer }),
    ];
    prop::collection::vec(step, 1..250)
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    from: usize,
    tag: u64,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Posted {
    context: u64,
    source: Option<usize>,
    tag: u64,
    mask: u64,
    capacity: usize,
}

fn fits(source: Option<usize>, tag: u64, mask: u64, message: &Message) -> bool {
    source.is_none_or(|source| source == message.from) && (message.tag ^ tag) & mask == 0
}

/// How a receive ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    With { context: u64, from: usize, tag: u64, length: usize, bytes: Vec<u8>, truncated: bool },
    Cancelled { context: u64 },
    PeerDead { context: u64 },
}

#[derive(Default)]
struct Model {
    posted: Vec<Posted>,
    unexpected: Vec<Message>,
    dead: Vec<usize>,
    ended: Vec<Ended>,
}

impl Model {
    fn matched(&mut self, posted: &Posted, message: &Message) {
        let length = message.bytes.len();
        self.ended.push(Ended::With {
            context: posted.context,
            from: message.from,
            tag: message.tag,
            length,
            bytes: message.bytes[..length.min(posted.capacity)].to_vec(),
            truncated: length > posted.capacity,
        });
    }

    fn arrive(&mut self, message: Message) {
        match self.posted.iter().position(|posted| fits(posted.source, posted.tag, posted.mask, &message)) {
            Some(place) => {
                let posted = self.posted.remove(place);
                self.matched(&posted, &message);
            }
            None => self.unexpected.push(message),
        }
    }

    fn seek(&self, source: Option<usize>, tag: u64, mask: u64) -> Option<usize> {
        self.unexpected.iter().position(|message| fits(source, tag, mask, message))
    }

    fn receive(&mut self, posted: Posted) {
        match self.seek(posted.source, posted.tag, posted.mask) {
            Some(place) => {
                let message = self.unexpected.remove(place);
                self.matched(&posted, &message);
            }
            None if posted.source.is_some_and(|source| self.dead.contains(&source)) => {
                self.ended.push(Ended::PeerDead { context: posted.context });
            }
            None => self.posted.push(posted),
        }
    }

    fn cancel(&mut self, context: u64) -> bool {
        let place = self.posted.iter().position(|posted| posted.context == context);
        if let Some(place) = place {
            self.posted.remove(place);
            self.ended.push(Ended::Cancelled { context });
        }
        place.is_some()
    }

    fn die(&mut self, peer: usize) {
        if self.dead.contains(&peer) {
            return;
        }
        self.dead.push(peer);
        let (gone, kept): (Vec<_>, Vec<_>) = self.posted.drain(..).partition(|posted| posted.source == Some(peer));
        self.posted = kept;
        self.ended.extend(gone.into_iter().map(|posted| Ended::PeerDead { context: posted.context }));
        // Rendezvous messages, which had not arrived whole.
        self.unexpected.retain(|message| message.from != peer || message.bytes.len() as u64 <= EAGER_LIMIT);
    }
}

/// One receiving engine and a sending engine per peer, on perfect wires.
struct Star {
    receiver: Engine<Vec<u8>>,
    senders: Vec<Engine<Vec<u8>>>,
}

fn link() -> LinkConfig {
    let capabilities = Capabilities { ordered: true, reliable: true, mtu: Bytes(90), remote_read: false };
    LinkConfig { eager_limit: Bytes(EAGER_LIMIT), ..LinkConfig::for_port(&capabilities, 0) }
}

fn packets(engine: &mut Engine<Vec<u8>>) -> VecDeque<(PeerIndex, Vec<u8>)> {
    let mut all = VecDeque::new();
    while let Some(peer) = engine.next_ready() {
        while let Some(length) = engine.plan(NOW, peer) {
            let mut packet = vec![0; length];
            engine.write(NOW, peer, &mut packet);
            all.push_back((peer, packet));
        }
    }
    all
}

impl Star {
    fn new(peers: usize) -> Star {
        let mut receiver = Engine::new();
        let mut senders = Vec::new();
        for _ in 0..peers {
            receiver.add_peer(link());
            let mut sender = Engine::new();
            sender.add_peer(link());
            senders.push(sender);
        }
        Star { receiver, senders }
    }

    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for (index, sender) in self.senders.iter_mut().enumerate() {
                for (_, packet) in packets(sender) {
                    moved = true;
                    self.receiver.handle_packet(NOW, PeerIndex(index as u32), &packet);
                }
                while sender.next_completion().is_some() {}
            }
            for (peer, packet) in packets(&mut self.receiver) {
                moved = true;
                self.senders[peer.0 as usize].handle_packet(NOW, PeerIndex(0), &packet);
            }
            if !moved {
                return;
            }
        }
    }

    fn ended(&mut self) -> Vec<Ended> {
        std::iter::from_fn(|| self.receiver.next_completion()).map(ended).collect()
    }
}

fn ended(completion: Completion<Vec<u8>>) -> Ended {
    let Completion { context, direction, envelope, status, mut buffer, .. } = completion;
    assert_eq!(direction, Direction::Receive);
    match status {
        Status::Cancelled => Ended::Cancelled { context },
        Status::PeerDead => Ended::PeerDead { context },
        Status::Withdrawn => unreachable!("nothing is taken back"),
        Status::Done | Status::Truncated => {
            let length = envelope.length as usize;
            buffer.truncate(length);
            Ended::With {
                context,
                from: envelope.peer.0 as usize,
                tag: envelope.tag,
                length,
                bytes: buffer,
                truncated: status == Status::Truncated,
            }
        }
    }
}

fn source_of(source: Option<usize>) -> Source {
    source.map_or(Source::Any, |peer| Source::Peer(PeerIndex(peer as u32)))
}

fn play(peers: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut star = Star::new(peers);
    let mut model = Model::default();
    let mut asked: Vec<(u64, Request)> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Send { from, tag, length } => {
                if model.dead.contains(&from) {
                    continue;
                }
                let bytes: Vec<u8> = (0..length).map(|i| (number * 7 + i) as u8).collect();
                star.senders[from].send(PeerIndex(0), tag, bytes.clone(), 0).unwrap();
                model.arrive(Message { from, tag, bytes });
            }
            Step::Receive { source, tag, mask, capacity } => {
                let context = number as u64;
                let selector = TagSelector::masked(tag, mask);
                let id = star.receiver.receive(source_of(source), selector, vec![0; capacity], context).unwrap();
                asked.push((context, id));
                model.receive(Posted { context, source, tag, mask, capacity });
            }
            Step::Probe { source, tag, mask } => {
                let seen = star.receiver.probe(source_of(source), TagSelector::masked(tag, mask));
                let seen = seen.map(|seen| (seen.peer.0 as usize, seen.tag, seen.length as usize));
                let expected = model.seek(source, tag, mask).map(|place| &model.unexpected[place]);
                prop_assert_eq!(seen, expected.map(|message| (message.from, message.tag, message.bytes.len())));
            }
            Step::Cancel { which } => {
                if let Some(&(context, id)) = asked.get(which % asked.len().max(1)) {
                    prop_assert_eq!(star.receiver.cancel(id), model.cancel(context));
                }
            }
            Step::Die { peer } => {
                model.die(peer);
                star.receiver.peer_dead(PeerIndex(peer as u32));
            }
        }
        star.settle();
        prop_assert_eq!(star.receiver.queue_lengths(), (model.posted.len(), model.unexpected.len()));
        // Requests with the dead peer end together, in no promised order.
        let by_context = |ended: &Ended| match *ended {
            Ended::With { context, .. } | Ended::Cancelled { context } | Ended::PeerDead { context } => context,
        };
        let (mut got, mut expected) = (star.ended(), std::mem::take(&mut model.ended));
        got.sort_by_key(by_context);
        expected.sort_by_key(by_context);
        prop_assert_eq!(got, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_peers_match_as_in_the_model(steps in steps(2)) {
        play(2, steps)?;
    }

    #[test]
    fn many_peers_match_as_in_the_model(steps in steps(24)) {
        play(24, steps)?;
    }
}

/// Chains are swept and tables shrunk after a burst; nothing may get lost on the way.
#[test]
fn bursts_of_distinct_tags_leave_matching_whole() {
    let mut star = Star::new(1);
    for round in 0..3u64 {
        for order in [false, true] {
            let count = 5000;
            for i in 0..count {
                let tag = round << 32 | if order { count - 1 - i } else { i };
                star.receiver.receive(Source::Peer(PeerIndex(0)), TagSelector::exactly(tag), vec![0; 8], tag).unwrap();
            }
            for i in 0..count {
                let tag = round << 32 | i;
                star.senders[0].send(PeerIndex(0), tag, tag.to_le_bytes().to_vec(), 0).unwrap();
                star.settle();
                let got = star.receiver.next_completion().expect("its receive was posted");
                assert_eq!((got.context, got.buffer), (tag, tag.to_le_bytes().to_vec()));
            }
            assert_eq!(star.receiver.queue_lengths(), (0, 0));
        }
    }
}
