//! Channels between hosts pass the suite of all channels.

use std::sync::mpsc::{Receiver, channel};

use machine::Bytes;
use offcode::channel::Policy;
use offcode::channel::Synchronization;
use offcode::channel::conformance::{self, Bench, Endpoint};
use offcode::{Cast, Channel, Delivery, Specification};
use runtime::agent::Limits;
use runtime::site::agent::AgentSite;
use runtime::site::{SiteDriver, Slot};

use super::rig::*;
use super::site::Handing;

/// A client and an agent that hands its ends to the test.
struct Between {
    site: AgentSite,
    slot: Slot,
    far: Receiver<Box<dyn Channel>>,
    /// Of the channels: empty for out of band.
    name: &'static str,
    _agent: Running,
}

impl Between {
    fn new(name: &'static str) -> Between {
        let (sender, far) = channel();
        // A channel that was closed is there until its last words have arrived: the next ones have to find room beside it.
        let (total, each) = (Bytes(4 << 30), Bytes(4 << 30));
        let limits =
            Limits { channels: 10_000, channel_memory: total, channel_memory_per_client: each, ..Limits::default() };
        let agent = Running::with(limits, Box::new(Handing(sender)));
        let mut site = agent.client();
        let slot = site.deploy(deployment("ends", native())).unwrap();
        Between { site, slot, far, name, _agent: agent }
    }
}

impl Bench for Between {
    fn unicast(&mut self, specification: &Specification) -> Option<(Endpoint, Endpoint)> {
        let near = self.site.connect(self.slot, self.name, *specification).unwrap();
        Some((near, self.far.recv_timeout(skip::LIMIT).unwrap()))
    }

    fn most_in_flight(&self, specification: &Specification) -> u64 {
        // As many again may be on the way.
        u64::from(specification.buffers.count) * 2
    }
}

fn all(name: &'static str) {
    let mut between = Between::new(name);
    for delivery in [Delivery::Reliable, Delivery::Unreliable] {
        for synchronization in [Synchronization::Poll, Synchronization::Blocking] {
            let mut specification = conformance::specification(Cast::Unicast, delivery, synchronization);
            specification.buffers.policy = Policy::Copy;
            conformance::unicast(&mut between, &specification);
        }
    }
}

#[test]
fn the_engine_channel_conforms() {
    all("fast");
}

#[test]
fn the_out_of_band_channel_conforms() {
    all("");
}

#[test]
fn large_messages_travel_whole() {
    let mut between = Between::new("large");
    let mut wish = specification();
    wish.buffers.size = machine::Bytes(1 << 20);
    let (mut near, mut far) = between.unicast(&wish).unwrap();
    let message: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..20 {
        comes("room", || near.write(&message).unwrap() == offcode::Written::Taken);
        let mut came = false;
        comes("the message", || far.read_with(&mut |bytes| came = bytes == message).unwrap());
        assert!(came, "it arrives changed");
    }
}

#[test]
fn the_far_end_of_a_multicast_channel_reads_only() {
    let mut between = Between::new("cast");
    let wish = Specification { cast: Cast::Multicast, ..specification() };
    let (mut near, mut far) = between.unicast(&wish).unwrap();
    assert!(far.write(b"no").is_err());
    assert_eq!(near.write(b"yes").unwrap(), offcode::Written::Taken);
    comes("the message", || far.read_with(&mut |bytes| assert_eq!(bytes, b"yes")).unwrap());
}
