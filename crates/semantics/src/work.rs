//! Runs of fixed work: one thread drives the hub and the leaves in turn, and only the hub's time is taken. Nobody waits, so
//! that the time is work.

use std::time::{Duration, Instant};

use machine::{Bytes, Fault, Reading, Result};

use super::footprint::{ACTIVE_MESSAGES, ACTIVE_SIZE, Footprint};
use super::layer::{Layer, Message};
use super::wiring::World;

/// Time after which a pass counts as failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A pool of buffers.
pub struct Buffers {
    spare: Vec<Message>,
}

impl Buffers {
    pub fn new(count: usize, size: usize) -> Self {
        // Written once, so that their pages are resident.
        Buffers { spare: (0..count).map(|_| vec![1; size]).collect() }
    }

    #[inline]
    pub fn take(&mut self) -> Option<Message> {
        self.spare.pop()
    }

    #[inline]
    pub fn give(&mut self, message: Message) {
        self.spare.push(message);
    }
}

pub fn stuck(what: &str) -> Fault {
    Fault::new(what, format!("no end within {TIMEOUT:?}"), "run it again on a calmer machine; report it if it stays")
}

/// Takes ended requests; returns how many messages came.
#[inline]
fn drain(end: &mut impl Layer, buffers: &mut Buffers) -> Result<usize> {
    let mut received = 0;
    while let Some(ended) = end.ended()? {
        received += usize::from(ended.received);
        buffers.give(ended.message);
    }
    Ok(received)
}

/// Takes a buffer; a fault where none is left.
fn needed(buffers: &mut Buffers) -> Result<Message> {
    buffers.take().ok_or_else(|| Fault::new("buffers of the measurement", "none is left", "report this"))
}

impl<L: Layer> World<L> {
    /// The hub sends a message to each peer of `sequence`; returns the time it spent.
    pub fn send_pass(&mut self, sequence: &[u32], at_hub: &mut Buffers, at_leaves: &mut Buffers) -> Result<Duration> {
        let World { hub, leaves } = self;
        for &peer in sequence {
            leaves[peer as usize].receive(0, needed(at_leaves)?)?;
        }
        let began = Instant::now();
        for &peer in sequence {
            hub.send(peer, needed(at_hub)?)?;
            drain(hub, at_hub)?;
        }
        hub.flush()?;
        let mut spent = began.elapsed();
        let mut received = 0;
        while received < sequence.len() {
            let mut came = 0;
            for leaf in leaves.iter_mut() {
                leaf.turn()?;
                came += drain(leaf, at_leaves)?;
            }
            received += came;
            if came == 0 {
                // Sends of the hub wait for room or for an acknowledgement of the peer.
                let turned = Instant::now();
                hub.turn()?;
                drain(hub, at_hub)?;
                spent += turned.elapsed();
                if began.elapsed() > TIMEOUT {
                    return Err(stuck("messages to the leaves"));
                }
            }
        }
        let ending = Instant::now();
        while hub.turn()? {}
        drain(hub, at_hub)?;
        Ok(spent + ending.elapsed())
    }

    /// The hub receives a message from each peer of `sequence`, for each of which it has posted a receive before.
    pub fn receive_pass(
        &mut self,
        sequence: &[u32],
        at_hub: &mut Buffers,
        at_leaves: &mut Buffers,
    ) -> Result<Duration> {
        let World { hub, leaves } = self;
        let began = Instant::now();
        for &peer in sequence {
            hub.receive(peer, needed(at_hub)?)?;
        }
        let mut spent = began.elapsed();
        for &peer in sequence {
            let leaf = &mut leaves[peer as usize];
            leaf.send(0, needed(at_leaves)?)?;
            drain(leaf, at_leaves)?;
        }
        for leaf in leaves.iter_mut() {
            leaf.flush()?;
        }
        let mut received = 0;
        while received < sequence.len() {
            let turned = Instant::now();
            let mut came = 0;
            while hub.turn()? {
                came += drain(hub, at_hub)?;
            }
            came += drain(hub, at_hub)?;
            spent += turned.elapsed();
            received += came;
            if came == 0 {
                for leaf in leaves.iter_mut() {
                    leaf.turn()?;
                    drain(leaf, at_leaves)?;
                }
                if began.elapsed() > TIMEOUT {
                    return Err(stuck("messages from the leaves"));
                }
            }
        }
        for leaf in leaves.iter_mut() {
            leaf.turn()?;
            drain(leaf, at_leaves)?;
        }
        Ok(spent)
    }

    /// Growth of the heap per peer, with messages on their way to every peer.
    pub fn in_flight(&mut self) -> Result<Reading<Bytes>> {
        let peers = self.leaves.len() as u32;
        let count = (peers * ACTIVE_MESSAGES) as usize;
        let mut at_leaves = Buffers::new(count, ACTIVE_SIZE);
        let mut at_hub = Buffers::new(count, ACTIVE_SIZE);
        let World { hub, leaves } = self;
        for leaf in leaves.iter_mut() {
            for _ in 0..ACTIVE_MESSAGES {
                leaf.receive(0, needed(&mut at_leaves)?)?;
            }
        }
        let before = Footprint::look();
        for _ in 0..ACTIVE_MESSAGES {
            for peer in 0..peers {
                hub.send(peer, needed(&mut at_hub)?)?;
                drain(hub, &mut at_hub)?;
            }
        }
        let grown = before.heap_growth(peers);
        let until = Instant::now() + TIMEOUT;
        let mut received = 0;
        while received < count {
            for leaf in leaves.iter_mut() {
                leaf.turn()?;
                received += drain(leaf, &mut at_leaves)?;
            }
            hub.turn()?;
            drain(hub, &mut at_hub)?;
            if Instant::now() > until {
                return Err(stuck("messages on their way"));
            }
        }
        Ok(grown)
    }
}
