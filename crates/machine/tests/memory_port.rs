//! The port inside one process keeps the contract of ports.
#![cfg(feature = "conformance")]

use machine::PeerIndex;
use machine::port::conformance::{self, Bench, Leaf, Star};
use machine::port::memory::{Geometry, MemoryPort, star};

struct InMemory(Geometry);

impl Bench for InMemory {
    type Port = MemoryPort;

    fn star(&mut self, count: usize) -> Star<MemoryPort> {
        let (hub, leaves) = star(count, self.0);
        let leaf = |(index, port)| Leaf { port, hub: PeerIndex(0), index: PeerIndex(index as u32) };
        Star { hub, leaves: leaves.into_iter().enumerate().map(leaf).collect() }
    }

    fn end(&mut self, leaf: MemoryPort) {
        drop(leaf);
    }
}

#[test]
fn it_keeps_the_contract_of_ports() {
    conformance::all(&mut InMemory(Geometry::default()));
}

#[test]
fn it_keeps_the_contract_with_the_smallest_queues() {
    conformance::all(&mut InMemory(Geometry { mtu: 1024, hub: 8192, leaf: 8192 }));
}
