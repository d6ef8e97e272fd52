//! Packets of addresses that are no peers, kept for whoever decides whether those become peers.

use std::net::SocketAddr;

use machine::bounds::{UNKNOWN_PACKET, UNKNOWN_SENDERS};

use super::address::RawAddress;

/// Packets kept between two looks, and bytes of each; a flood costs this much and no more.
const MOST: usize = UNKNOWN_SENDERS.total.count();
const LONGEST: usize = UNKNOWN_PACKET.each.bytes().0 as usize;

/// Keeps nothing until it is opened.
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
