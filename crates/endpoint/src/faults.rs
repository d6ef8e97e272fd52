//! A port that wraps another and loses, duplicates and reorders sent packets, by a seed.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use machine::{Capabilities, Fault, Notice, PeerIndex, Port, Result, Sent};

/// Faults as shares of packets, 0 to 1, and their seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WireFaults {
    pub loss: f64,
    pub duplicate: f64,
    /// Packets that are held back until some later ones have left.
    pub reorder: f64,
    pub seed: u64,
}

impl FromStr for WireFaults {
    type Err = Fault;

    /// `loss=1%,duplicate=0.5%,reorder=2%,seed=7`; faults left out are 0, a seed left out is 1.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |cause: String| {
            Fault::new(format!("wire faults '{text}'"), cause, "write such as loss=1%,duplicate=1%,reorder=1%,seed=7")
        };
        let mut faults = WireFaults { loss: 0.0, duplicate: 0.0, reorder: 0.0, seed: 1 };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| bad(format!("'{part}' has no =")))?;
            if name == "seed" {
                faults.seed = value.parse().map_err(|_| bad(format!("the seed '{value}' is not a number")))?;
                continue;
            }
            let percent: f64 = value
                .strip_suffix('%')
                .and_then(|number| number.parse().ok())
                .filter(|percent| (0.0..=50.0).contains(percent))
                .ok_or_else(|| bad(format!("'{value}' is not a share from 0% to 50%")))?;
            match name {
                "loss" => faults.loss = percent / 100.0,
                "duplicate" => faults.duplicate = percent / 100.0,
                "reorder" => faults.reorder = percent / 100.0,
                _ => return Err(bad(format!("'{name}' is no fault"))),
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for WireFaults {
    /// In the form that is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WireFaults { loss, duplicate, reorder, seed } = self;
        let [loss, duplicate, reorder] = [loss, duplicate, reorder].map(|share| share * 100.0);
        write!(f, "loss={loss}%,duplicate={duplicate}%,reorder={reorder}%,seed={seed}")
    }
}

/// Later packets after which a held one leaves.
const HELD_FOR: u64 = 3;

struct Held {
    peer: PeerIndex,
    packet: Vec<u8>,
    /// Count of sent packets at which it leaves.
    until: u64,
}

/// Counts of faults made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Injected {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
}

pub struct FaultyPort<P> {
    port: P,
    faults: WireFaults,
    random: u64,
    sent: u64,
    held: VecDeque<Held>,
    injected: Injected,
}

impl<P: Port> FaultyPort<P> {
    /// # Panics
    /// Where the port promises reliability: its users would not send lost packets again.
    pub fn new(port: P, faults: WireFaults) -> Self {
        assert!(!port.capabilities().reliable, "faults are for unreliable ports");
        FaultyPort {
            port,
            faults,
            random: faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            sent: 0,
            held: VecDeque::new(),
            injected: Injected::default(),
        }
    }

    pub fn injected(&self) -> Injected {
        self.injected
    }

    pub fn inner(&self) -> &P {
        &self.port
    }

    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// A random number from 0 to 1 (xorshift).
    fn roll(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Sends held packets that are due; all of them if no other packets are sent.
    fn release(&mut self, all: bool) -> Result<()> {
        while let Some(held) = self.held.front() {
            if !all && held.until > self.sent {
                break;
            }
            let held = self.held.pop_front().expect("looked at");
            // A full port loses the packet, as a wire would.
            self.port.send(held.peer, held.packet.len(), |into| into.copy_from_slice(&held.packet))?;
        }
        Ok(())
    }
}

impl<P: Port> Port for FaultyPort<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { ordered: false, reliable: false, ..self.port.capabilities() }
    }

    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let roll = self.roll();
        let WireFaults { loss, duplicate, reorder, .. } = self.faults;
        self.sent += 1;
        if roll >= loss + duplicate + reorder {
            let sent = self.port.send(peer, length, fill)?;
            self.release(false)?;
            return Ok(sent);
        }
        let mut packet = vec![0; length];
        fill(&mut packet);
        if roll < loss {
            self.injected.lost += 1;
        } else if roll < loss + duplicate {
            self.injected.duplicated += 1;
            for _ in 0..2 {
                self.port.send(peer, length, |into| into.copy_from_slice(&packet))?;
            }
        } else {
            self.injected.reordered += 1;
            self.held.push_back(Held { peer, packet, until: self.sent + HELD_FOR });
        }
        Ok(Sent::Taken)
    }

    fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        let came = self.port.receive(budget, deliver)?;
        if came == 0 {
            self.release(true)?;
        }
        Ok(came)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.port.notices(report)
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.port.read_remote(peer, address, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_text() {
        let faults: WireFaults = "loss=1%,duplicate=0.5%,seed=7".parse().unwrap();
        assert_eq!(faults, WireFaults { loss: 0.01, duplicate: 0.005, reorder: 0.0, seed: 7 });
        assert_eq!(faults.to_string().parse::<WireFaults>().unwrap(), faults);
        for bad in ["", "loss", "loss=1", "loss=60%", "loss=-1%", "delay=1%", "seed=x"] {
            assert!(bad.parse::<WireFaults>().is_err(), "{bad}");
        }
    }
}
