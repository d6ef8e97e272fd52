//! A port inside one process: a hub and any number of leaves, in order and without loss.
//!
//! All peers of an end arrive in one queue, as at a network card, so that receiving costs the same whatever the number
//! of peers. Runs repeat exactly where one thread drives all ends; ends may also be driven by threads of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Capabilities, Notice, PeerIndex, Port, Sent};
use crate::fault::{Fault, Result};
use crate::quantity::Bytes;

/// Size of the header of a packet in a queue: the receiver's number for the sender, and the length.
const FRAME: usize = 8;

/// Capacities of the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Largest packet.
    pub mtu: usize,
    /// Bytes that may wait at the hub, each packet with its header of 8 bytes.
    pub hub: usize,
    /// Bytes that may wait at each leaf, likewise.
    pub leaf: usize,
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry { mtu: 4 << 10, hub: 1 << 20, leaf: 32 << 10 }
    }
}

/// One end: packets that have arrived and that its port has not yet taken over.
struct End {
    arriving: Mutex<Vec<u8>>,
    capacity: usize,
    open: AtomicBool,
}

impl End {
    fn new(capacity: usize) -> Arc<End> {
        Arc::new(End { arriving: Mutex::new(Vec::with_capacity(capacity)), capacity, open: AtomicBool::new(true) })
    }

    /// Poisoning is ignored: only a caller's `fill` can panic under the lock, and it leaves initialised bytes.
    fn arriving(&self) -> MutexGuard<'_, Vec<u8>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Peer {
    end: Arc<End>,
    /// This port as the peer numbers it.
    known_as: u32,
    reported: bool,
}

/// A hub or a leaf; see the module.
pub struct MemoryPort {
    mtu: usize,
    own: Arc<End>,
    peers: Vec<Peer>,
    /// Packets taken over and not yet delivered, from `at` on.
    reading: Vec<u8>,
    at: usize,
}

/// A hub whose peer `i` is leaf `i`, and the leaves, to each of which the hub is peer 0.
pub fn star(leaves: usize, geometry: Geometry) -> (MemoryPort, Vec<MemoryPort>) {
    let hub = End::new(geometry.hub);
    let ends: Vec<Arc<End>> = (0..leaves).map(|_| End::new(geometry.leaf)).collect();
    let port = |own: &Arc<End>, peers: Vec<Peer>| MemoryPort {
        mtu: geometry.mtu,
        own: own.clone(),
        peers,
        reading: Vec::with_capacity(own.capacity),
        at: 0,
    };
    let peer = |end: &Arc<End>, known_as: usize| Peer { end: end.clone(), known_as: known_as as u32, reported: false };
    let around = ends.iter().map(|end| peer(end, 0)).collect();
    let leaves = ends.iter().enumerate().map(|(number, end)| port(end, vec![peer(&hub, number)])).collect();
    (port(&hub, around), leaves)
}

#[cold]
fn no_such_peer(peer: PeerIndex) -> Fault {
    Fault::new(format!("peer {}", peer.0), "this port has no such peer", "use an index below the number of its peers")
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

impl Port for MemoryPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: true, reliable: true, mtu: Bytes(self.mtu as u64), remote_read: false }
    }

    #[inline]
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let Some(to) = self.peers.get(peer.0 as usize) else { return Err(no_such_peer(peer)) };
        if length > self.mtu {
            let cause = format!("the port's packets hold {}", Bytes(self.mtu as u64));
            return Err(Fault::new(format!("packet of {length} B"), cause, "send it in pieces of at most the mtu"));
        }
        if !to.end.open.load(Ordering::Relaxed) {
            return Ok(Sent::Gone);
        }
        let mut arriving = to.end.arriving();
        let from = arriving.len();
        if from + FRAME + length > to.end.capacity {
            return Ok(Sent::Full);
        }
        arriving.extend_from_slice(&to.known_as.to_le_bytes());
        arriving.extend_from_slice(&(length as u32).to_le_bytes());
        arriving.resize(from + FRAME + length, 0);
        fill(&mut arriving[from + FRAME..]);
        Ok(Sent::Taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        for delivered in 0..budget {
            if self.at == self.reading.len() {
                self.reading.clear();
                self.at = 0;
                std::mem::swap(&mut self.reading, &mut *self.own.arriving());
                if self.reading.is_empty() {
                    return Ok(delivered);
                }
            }
            let (frame, rest) = self.reading[self.at..].split_at(FRAME);
            let length = word(&frame[4..]) as usize;
            deliver(PeerIndex(word(&frame[..4])), &rest[..length]);
            self.at += FRAME + length;
        }
        Ok(budget)
    }

    fn notices(&mut self, mut report: impl FnMut(Notice)) -> Result<()> {
        // Read before the queue, so that everything that a peer sent before it closed is seen there.
        let closed = |peer: &Peer| !peer.reported && !peer.end.open.load(Ordering::Acquire);
        let ended: Vec<usize> = (0..self.peers.len()).filter(|&i| closed(&self.peers[i])).collect();
        if ended.is_empty() || self.at < self.reading.len() || !self.own.arriving().is_empty() {
            return Ok(());
        }
        for index in ended {
            self.peers[index].reported = true;
            report(Notice::Closed(PeerIndex(index as u32)));
        }
        Ok(())
    }

    fn read_remote(&mut self, peer: PeerIndex, _address: u64, _into: &mut [u8]) -> Result<()> {
        let subject = format!("memory of peer {}", peer.0);
        Err(Fault::new(subject, "this port does not read remote memory", "move the bytes in packets"))
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        self.own.open.store(false, Ordering::Release);
    }
}
