//! Hardware addresses of the next hops, as the kernel knows them.
//!
//! The kernel resolves and confirms them; here they are only looked up and watched. A packet by the kernel's own path
//! makes it resolve: the first ones to a peer, and later one whenever an entry has gone stale.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use machine::{Fault, Result};

use linux::netlink::{Neighbour, Netlink, Route};

/// Time between two reads of changes.
const LISTEN: Duration = Duration::from_millis(50);

pub(super) struct Neighbours {
    asking: Netlink,
    listening: Netlink,
    interface: u32,
    subject: String,
    known: HashMap<IpAddr, Neighbour>,
    listened: Instant,
}

impl Neighbours {
    pub fn open(interface: u32, name: &str) -> Result<Neighbours> {
        let subject = format!("neighbours on {name}");
        let fault = |e| Fault::because(&subject, e, "check that netlink is allowed");
        // Subscribes first, so that no change is missed between the two.
        let listening = Netlink::of_neighbours().map_err(fault)?;
        let asking = Netlink::open().map_err(fault)?;
        Ok(Neighbours { asking, listening, interface, known: HashMap::new(), listened: Instant::now(), subject })
    }

    pub fn route(&self, from: IpAddr, to: IpAddr) -> Result<Route> {
        let of_link = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
        self.asking
            .route(from, to, of_link.then_some(self.interface))
            .map_err(|e| Fault::because(format!("way to {to} from {from}"), e, format!("see `ip route get {to}`")))
    }

    /// Looks an address up in the kernel's table.
    pub fn look_up(&mut self, address: IpAddr) -> Option<Neighbour> {
        // A failed query counts as unknown: the packet then goes by the kernel.
        let found = self.asking.neighbour(self.interface, address).ok().flatten();
        match found {
            Some(neighbour) => self.known.insert(address, neighbour),
            None => self.known.remove(&address),
        };
        found
    }

    pub fn known(&self, address: IpAddr) -> Option<Neighbour> {
        self.known.get(&address).copied()
    }

    /// Applies changes of the table; says whether any known entry changed. No system call shortly after the last.
    pub fn listen(&mut self, now: Instant) -> Result<bool> {
        if now.saturating_duration_since(self.listened) < LISTEN {
            return Ok(false);
        }
        self.listened = now;
        let (interface, known) = (self.interface, &mut self.known);
        let mut changed = false;
        let complete = self.listening.changes(|news| {
            if news.interface == interface
                && let Some(old) = known.get_mut(&news.address)
            {
                changed |= *old != news;
                *old = news;
            }
        });
        match complete {
            Ok(true) => {}
            // The kernel has dropped changes: no entry is certain any more.
            Ok(false) => {
                known.clear();
                changed = true;
            }
            Err(e) => return Err(Fault::because(&self.subject, e, "open the port again")),
        }
        Ok(changed)
    }
}
