//! Packets of addresses that are no peers, kept for a caller that decides whether those become peers.

use std::net::SocketAddr;

use machine::bounds::{UNKNOWN_PACKET, UNKNOWN_SENDERS};

use super::address::RawAddress;

/// Most packets kept between two calls, and most bytes of each; a flood costs no more.
const MOST: usize = UNKNOWN_SENDERS.total.count();
const LONGEST: usize = UNKNOWN_PACKET.each.bytes().0 as usize;

/// A store of packets, which keeps none until it is opened.
#[derive(Default)]
pub(super) struct UnknownSenders {
    open: bool,
    packets: Vec<(SocketAddr, Vec<u8>)>,
}

impl UnknownSenders {
    pub fn open(&mut self) {
        self.open = true;
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn keep(&mut self, from: &RawAddress, packet: &[u8]) {
        if self.open && self.packets.len() < MOST && packet.len() <= LONGEST {
            self.packets.push(((*from).into(), packet.to_vec()));
        }
    }

    pub fn hand_over(&mut self, mut each: impl FnMut(SocketAddr, &[u8])) {
        for (from, packet) in self.packets.drain(..) {
            each(from, &packet);
        }
    }
}
