//! A port that wraps another and harms incoming packets by a seed.

use machine::{Capabilities, Notice, PeerIndex, Port, Result, Sent};

use super::Random;

/// Out of 1000 packets, how many are lost, duplicated, held back behind the next, and changed in one byte.
#[derive(Clone, Copy, Default)]
pub struct Rates {
    pub lost: usize,
    pub duplicated: usize,
    pub held: usize,
    pub changed: usize,
}

pub struct Faulty<P> {
    inner: P,
    rates: Rates,
    random: Random,
    held: Vec<(PeerIndex, Vec<u8>)>,
    only: Option<PeerIndex>,
}

impl<P> Faulty<P> {
    pub fn new(inner: P, rates: Rates, seed: u64) -> Self {
        Faulty { inner, rates, random: Random(seed), held: Vec::new(), only: None }
    }

    pub fn with(self, rates: Rates) -> Self {
        Faulty { rates, ..self }
    }

    /// Spares the packets of all other peers.
    pub fn only(self, peer: PeerIndex) -> Self {
        Faulty { only: Some(peer), ..self }
    }
}

impl<P: Port> Port for Faulty<P> {
    fn capabilities(&self) -> Capabilities {
        // A port that only changes packets is tried as reliable.
        let reliable = self.rates.lost + self.rates.duplicated + self.rates.held == 0;
        Capabilities { reliable, ordered: reliable, ..self.inner.capabilities() }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        self.inner.send(peer, length, fill)
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn receive(&mut self, budget: usize, mut deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        // Room for duplicated and held packets.
        let Faulty { inner, rates, random, held, only } = self;
        let mut delivered = 0;
        inner.receive(budget / 4, |peer, packet| {
            let spared = only.is_some_and(|only| only != peer);
            let mut hit = |rate| random.below(1000) < rate && !spared;
            let (lost, duplicated, hold, change) =
                (hit(rates.lost), hit(rates.duplicated), hit(rates.held), hit(rates.changed));
            let mut packet = packet.to_vec();
            if change && !packet.is_empty() {
                let (at, to) = (random.below(packet.len().min(64)), random.draw() as u8);
                packet[at] = to;
                if random.below(8) == 0 {
                    packet.truncate(at);
                }
            }
            if lost {
                return;
            }
            if hold {
                return held.push((peer, packet));
            }
            for _ in 0..1 + usize::from(duplicated) {
                deliver(peer, &packet);
                delivered += 1;
            }
            if let Some((peer, packet)) = held.pop() {
                deliver(peer, &packet);
                delivered += 1;
            }
        })?;
        Ok(delivered)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.inner.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_remote(peer, address, into)
    }
}
