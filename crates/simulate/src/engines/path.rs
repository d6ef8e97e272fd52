//! The costs of a carrier's packets and of the work on them, checked and in picoseconds.

use engine::{LARGEST_HEADER, LinkConfig, RELIABILITY_HEADER};
use machine::Reading;
use machine::fault::{Fault, Result};

use super::Carrier;

/// A carrier's costs, ps.
pub struct Path {
    pub link: LinkConfig,
    pub reliable: bool,
    pub slots: u32,
    pub loss: f64,
    pub latency: u64,
    pub wire: f64,
    pub message: u64,
    pub packet: u64,
    pub byte: f64,
    pub read: u64,
    pub fetched: f64,
}

pub fn known(what: &str, reading: &Reading<f64>) -> Result<f64> {
    let next = "run plimsoll calibrate";
    match reading {
        Reading::Measured(value) | Reading::Modelled(value) if *value >= 0.0 && value.is_finite() => Ok(*value),
        Reading::Measured(value) | Reading::Modelled(value) => {
            Err(Fault::new(what, format!("{value} is no cost"), next))
        }
        Reading::Absent { reason } => Err(Fault::new(what, reason.as_str(), next)),
        Reading::NotPermitted { reason, next } => Err(Fault::new(what, reason.as_str(), next.as_str())),
    }
}

impl Path {
    pub fn of(carrier: &Carrier) -> Result<Path> {
        let Carrier { link, slots, loss, latency, wire, work } = carrier;
        let whole = |what: &str, reading| known(what, reading).map(|cost| cost.round() as u64);
        let reliable = link.reliability.is_none();
        let refuse = |cause: &str, next: &str| Err(Fault::new("settings of a carrier", cause, next));
        let window = link.reliability.as_ref().map_or(1, |reliability| reliability.window);
        if !(0.0..1.0).contains(loss) || *loss > 0.0 && reliable {
            return refuse(
                "only a carrier that need not be reliable loses packets, and not all",
                "choose a loss below 1",
            );
        }
        if link.mtu.0 <= (LARGEST_HEADER + RELIABILITY_HEADER) as u64 || link.mtu.0 > 1 << 30 {
            return refuse("the engine's headers do not fit its packets, or these not memory", "choose another mtu");
        }
        if link.credit_messages == 0 || *slots == 0 || !(1..=1 << 16).contains(&window) {
            return refuse("without credit, slots or a window nothing is ever sent", "choose at least 1 of each");
        }
        Ok(Path {
            link: link.clone(),
            reliable,
            slots: *slots,
            loss: *loss,
            latency: whole("latency", latency)?,
            wire: known("rate of the wire", wire)?,
            message: whole("work for a message", &work.message)?,
            packet: whole("work for a packet", &work.packet)?,
            byte: known("work for a byte", &work.byte)?,
            read: whole("work for a read of a peer's memory", &work.read)?,
            fetched: known("work for a byte of a peer's memory", &work.fetched)?,
        })
    }

    pub fn handled(&self, length: usize) -> u64 {
        self.packet + times(length as u64, self.byte)
    }
}

pub fn times(bytes: u64, each: f64) -> u64 {
    (bytes as f64 * each).round() as u64
}
