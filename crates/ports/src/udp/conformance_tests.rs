//! The checks that every port passes, over loopback in both families.

use machine::port::conformance::{self, Bench, Leaf, Star};

use super::*;

struct Loopback(&'static str);

impl Loopback {
    fn open(&self) -> UdpPort {
        UdpPort::open(self.0.parse().unwrap()).unwrap()
    }
}

impl Bench for Loopback {
    type Port = UdpPort;

    fn star(&mut self, count: usize) -> Star<UdpPort> {
        let mut hub = self.open();
        let mut join = || {
            let mut port = self.open();
            let index = hub.add_peer(port.local_address()).unwrap();
            Leaf { hub: port.add_peer(hub.local_address()).unwrap(), port, index }
        };
        let leaves = (0..count).map(|_| join()).collect();
        Star { hub, leaves }
    }

    fn end(&mut self, leaf: UdpPort) {
        drop(leaf);
    }

    /// Only a packet that is refused tells that nobody listens any more.
    fn notices_ends(&self) -> bool {
        false
    }
}

#[test]
fn the_port_conforms() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        conformance::all(&mut Loopback(at));
    }
}
