//! The port between the hosts of an owned lab.

use machine::port::conformance::{self, Bench, Leaf, Star};

use super::*;
use crate::lab::tests::possible;
use crate::lab::{Host, Lab};

struct Hosts {
    lab: Lab,
    v6: bool,
}

impl Hosts {
    fn new(options: &crate::lab::Options) -> Option<Hosts> {
        possible().then(|| Hosts { lab: Lab::owned(options).unwrap(), v6: false })
    }

    fn address(&self, host: Host) -> SocketAddr {
        let ip = if self.v6 { self.lab.address_v6(host).unwrap() } else { self.lab.address(host) };
        SocketAddr::new(ip, 0)
    }

    fn port(&self, host: Host) -> AfxdpPort {
        let open = || AfxdpPort::open(self.lab.interface(host), self.address(host));
        self.lab.inside(host, open).unwrap().unwrap()
    }
}

impl Bench for Hosts {
    type Port = AfxdpPort;

    fn star(&mut self, count: usize) -> Star<AfxdpPort> {
        let mut hub = self.port(Host::A);
        let mut join = || {
            let mut port = self.port(Host::B);
            let index = hub.add_peer(port.local_address()).unwrap();
            Leaf { hub: port.add_peer(hub.local_address()).unwrap(), port, index }
        };
        let leaves = (0..count).map(|_| join()).collect();
        Star { hub, leaves }
    }

    fn end(&mut self, leaf: AfxdpPort) {
        drop(leaf);
    }

    /// Only a packet that is refused tells that nobody listens any more.
    fn notices_ends(&self) -> bool {
        false
    }
}

#[test]
fn the_port_conforms_over_ipv4() {
    let Some(mut hosts) = Hosts::new(&crate::lab::Options::default()) else { return };
    conformance::all(&mut hosts);
}
