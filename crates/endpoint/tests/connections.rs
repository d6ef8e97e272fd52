//! Endpoints that join, exchange a message and close, thousands of times: what they take is back at the end.
//! `PLIMSOLL_CONNECTIONS=n` makes n connections; `make soak` makes a million. The default takes about 10 s in a debug build.

use std::time::Instant;

use endpoint::{Endpoint, Paths, Settings, Source, Status, TagSelector};
use linux::accounting::{heap, shared};
use linux::shortage::descriptors;

type Joined = Endpoint<Paths, Vec<u8>>;

const DEFAULT: usize = 10_000;
/// Lengths of messages that go at once, that make a link grow, and that are read from the sender's memory.
const LENGTHS: [usize; 3] = [8, 3_000, 200_000];
/// Memory that the process may keep in the end beyond that after the first connections, however many there were.
const SLACK: u64 = 256 << 10;

/// Resources that this process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: u64,
    heap: u64,
    shared: u64,
    mappings: u64,
}

impl Held {
    fn now() -> Option<Held> {
        Some(Held {
            descriptors: *descriptors().value()?,
            heap: heap().value()?.0,
            shared: shared().value()?.0,
            mappings: std::fs::read_to_string("/proc/self/maps").ok()?.lines().count() as u64,
        })
    }

    fn is_within(&self, first: &Held) -> bool {
        self.descriptors == first.descriptors
            && self.heap <= first.heap + SLACK
            && self.shared <= first.shared + SLACK
            && self.mappings <= first.mappings + 16
    }
}

fn connect(shm: bool, number: usize) {
    let settings = Settings { address: Some([127, 0, 0, 1].into()), shm, ..Settings::default() };
    let [mut one, mut other] = [(); 2].map(|()| Joined::join(&settings).unwrap());
    let length = LENGTHS[number % LENGTHS.len()];
    let peer = one.insert(&other.name()).unwrap();
    other.receive(Source::Any, TagSelector::any(), vec![0; length], 1).unwrap();
    one.send(peer, 5, vec![number as u8; length], 2).unwrap();
    let deadline = Instant::now() + skip::LIMIT;
    let (mut sent, mut received) = (false, false);
    while !(sent && received) {
        for end in [&mut one, &mut other] {
            while let Some(done) = end.poll().unwrap() {
                assert_eq!(done.status, Status::Done);
                sent |= done.context == 2;
                received |= done.context == 1;
                assert!(done.buffer == vec![number as u8; length], "connection {number}: another message came");
            }
        }
        assert!(Instant::now() < deadline, "connection {number}, shm {shm}: sent {sent}, received {received}");
    }
    // The ends alternate in closing first.
    if (number / LENGTHS.len()).is_multiple_of(2) {
        drop(one);
    }
}

#[test]
#[ignore = "make check"]
fn what_connections_take_is_back_when_they_are_closed() {
    if !skip::alone() {
        return;
    }
    let wanted = std::env::var("PLIMSOLL_CONNECTIONS").map_or(DEFAULT, |text| text.parse().expect("a number"));
    let start = Instant::now();
    let mut first = None;
    for number in 0..wanted {
        connect(number % 2 == 0, number / 2);
        if number + 1 == wanted.min(1_000) {
            let Some(held) = Held::now() else {
                return skip::test("this kernel or its C library does not tell what a process holds");
            };
            first = Some(held);
        }
        if (number + 1) % 100_000 == 0 {
            let rate = (number + 1) as f64 / start.elapsed().as_secs_f64();
            eprintln!(
                "connections: {} of {wanted}, {rate:.0}/s, {:.0} min left, {:?}",
                number + 1,
                (wanted - number - 1) as f64 / rate / 60.0,
                Held::now()
            );
        }
    }
    let (first, last) = (first.expect("one connection at least"), Held::now().unwrap());
    assert!(last.is_within(&first), "after the first {first:?}, after {wanted} {last:?}");
    eprintln!("totals: {wanted} connections, {last:?}, {:.0} s", start.elapsed().as_secs_f64());
}
