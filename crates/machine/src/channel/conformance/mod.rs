//! The suite that every kind of channel passes (feature `conformance`).
//!
//! A check panics with what was broken. Each kind of channel implements [`Bench`], which makes its channels and says
//! what the kind cannot do; `all` then runs what applies.

mod message;
mod multicast;
mod unicast;

use std::time::Duration;

use crate::Bytes;

use super::{Buffers, Cast, Channel, Content, Delivery, Policy, Specification, Synchronization};

/// One end of a channel of the kind that is tested.
pub type Endpoint = Box<dyn Channel>;

/// Makes channels of one kind.
pub trait Bench {
    /// The two ends of a unicast channel; the first is the creator's. `None` where this kind has no such channel: then
    /// its checks are left out.
    fn unicast(&mut self, specification: &Specification) -> Option<(Endpoint, Endpoint)>;

    /// The writer and the readers of a multicast channel. `None` where this kind has no such channel.
    fn multicast(&mut self, _specification: &Specification, _readers: usize) -> Option<(Endpoint, Vec<Endpoint>)> {
        None
    }

    /// Whether the second end of a unicast channel may write and the first read.
    fn both_ways(&self) -> bool {
        true
    }

    /// Most messages that a channel takes before any is read: more than its buffers where a kernel or a network adds its own.
    fn most_in_flight(&self, specification: &Specification) -> u64 {
        u64::from(specification.buffers.count)
    }

    /// Whether an end notices that the others are gone.
    fn notices_ends(&self) -> bool {
        true
    }

    /// Whether every message that an unreliable channel loses is counted at one of its ends.
    fn counts_each_drop(&self) -> bool {
        true
    }
}

/// How long an expected message or notice is looked for before a check fails; long, because hosts may be busy.
const TIMEOUT: Duration = Duration::from_secs(20);

const SIZE: usize = 1024;

/// Runs every check, with both kinds of delivery and of synchronization where they matter.
///
/// # Panics
/// With what was broken, or where `bench` makes no channel at all.
pub fn all(bench: &mut impl Bench) {
    let mut made = false;
    for delivery in [Delivery::Reliable, Delivery::Unreliable] {
        for synchronization in [Synchronization::Poll, Synchronization::Blocking] {
            let specification = specification(Cast::Unicast, delivery, synchronization);
            if bench.unicast(&specification).is_some() {
                made = true;
                unicast(bench, &specification);
            }
            let specification = Specification { cast: Cast::Multicast, ..specification };
            if bench.multicast(&specification, 1).is_some() {
                made = true;
                multicast(bench, &specification);
            }
        }
    }
    assert!(made, "this kind makes none of the channels that the suite asks for");
}

/// The specification of the suite's channels: 16 buffers of 1 KiB.
pub fn specification(cast: Cast, delivery: Delivery, synchronization: Synchronization) -> Specification {
    let buffers = Buffers { count: 16, size: Bytes(SIZE as u64), policy: Policy::Any };
    Specification { cast, delivery, synchronization, content: Content::Messages, buffers }
}

/// The checks of one unicast specification.
pub fn unicast(bench: &mut impl Bench, specification: &Specification) {
    let (most, exact) = (bench.most_in_flight(specification), bench.counts_each_drop());
    let mut pair = || bench.unicast(specification).expect("made before");
    unicast::states_what_was_asked(&mut pair(), specification);
    unicast::sizes(&mut pair());
    unicast::over_size(&mut pair());
    unicast::polls(&mut pair());
    unicast::waits(&mut pair(), specification.synchronization);
    unicast::mixed_sizes_in_order(&mut pair());
    unicast::two_threads(pair(), specification.delivery, exact);
    match specification.delivery {
        Delivery::Reliable => unicast::full_and_recovery(&mut pair(), most),
        Delivery::Unreliable => unicast::drops(&mut pair(), most, exact),
    }
    if bench.both_ways() {
        let (first, second) = bench.unicast(specification).expect("made before");
        let mut turned = (second, first);
        unicast::sizes(&mut turned);
        unicast::mixed_sizes_in_order(&mut turned);
        unicast::both_directions(&mut bench.unicast(specification).expect("made before"));
    }
    if bench.notices_ends() {
        unicast::abandoned(bench.unicast(specification).expect("made before"));
        if bench.both_ways() {
            let (first, second) = bench.unicast(specification).expect("made before");
            unicast::abandoned((second, first));
        }
        if specification.synchronization == Synchronization::Blocking {
            unicast::a_sleeper_learns_of_the_end(bench.unicast(specification).expect("made before"));
        }
    }
}

/// The checks of one multicast specification.
pub fn multicast(bench: &mut impl Bench, specification: &Specification) {
    let most = bench.most_in_flight(specification);
    let mut star = |readers| bench.multicast(specification, readers).expect("made before");
    multicast::each_reader_gets_each(star(3));
    multicast::roles(star(2));
    multicast::readers_in_threads(star(3), specification.delivery);
    match specification.delivery {
        Delivery::Reliable => multicast::the_slowest_reader_decides(star(3), most),
        Delivery::Unreliable => multicast::a_reader_may_be_lapped(star(2), most),
    }
    if bench.notices_ends() {
        multicast::readers_leave(bench.multicast(specification, 2).expect("made before"), most);
        multicast::the_writer_leaves(bench.multicast(specification, 2).expect("made before"));
    }
}
