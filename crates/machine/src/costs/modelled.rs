//! Modelled costs, from papers and other machines, for what was not measured here.

use super::{Cost, Interval, Item};
use crate::body::BodyKind;
use crate::reading::Reading;
use crate::site::SiteKind;

/// The model of `item`; `None` where it must be measured.
pub(super) fn cost(item: &Item) -> Option<Cost> {
    let (low, high, source) = match item {
        Item::Handover => (20.0, 200.0, "two cores of one die to two sockets"),
        Item::Call => (15.0, 60.0, "a message within one thread"),
        Item::Crossing(SiteKind::Agent, _) | Item::Crossing(_, SiteKind::Agent) => {
            (3_000.0, 30_000.0, "the message engine over UDP, both hosts together")
        }
        Item::Crossing(_, SiteKind::Xdp) | Item::Crossing(SiteKind::Xdp, _) => {
            (150.0, 1_000.0, "an array that both map, and a program that polls it")
        }
        Item::Crossing(..) => (50.0, 400.0, "a cache line between two cores"),
        Item::Transit => (5_000.0, 100_000.0, "a network, and threads that wake at both ends"),
        Item::Work => (100.0, 2_500.0, "an assumption: the manifest does not say"),
        Item::Entry(BodyKind::Native) => (5.0, 80.0, "a call through a table, and the loop around it"),
        Item::Entry(BodyKind::Wasm) => (40.0, 350.0, "a call into a sandbox of wasmtime, arguments copied in"),
        Item::Entry(BodyKind::Bpf) => (30.0, 250.0, "a call from a driver, with the kernel's run counter"),
        Item::DevicePost => (50.0, 500.0, "an assumption: a descriptor and a doorbell"),
        Item::HalfTrip(_) | Item::Message(_) | Item::Softirq(_) => return None,
    };
    Some(Cost { reading: Reading::Modelled(Interval::between(low, high)), source: source.to_owned() })
}
