//! Costs of Open MPI's carriers within a host, as `plimsoll calibrate` keeps them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use machine::costs::{Interval, Item, Row, Way, store};
use machine::{Bytes, Nanoseconds, Reading, SiteKind};
use testbed::Mpi;

/// Writes the costs into the folder of a user's state.
pub fn keep(state: &Path, mpi: &Mpi) {
    let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let of = |(carrier, least): (&str, f64)| {
        let mpi = mpi.installation.to_string();
        let way = Way { carrier: carrier.into(), mpi, placement: SiteKind::App, network: None };
        let row = |item, size, ns: f64| Row {
            item,
            size: Some(Bytes(size)),
            cost: Reading::Measured(Interval::between(ns * 0.9, ns * 1.1)),
            source: "test".into(),
            taken: Nanoseconds(taken),
        };
        let rows = [8, 65_536, 1 << 20].map(|size| {
            let trip = least + size as f64 * 0.2;
            [row(Item::HalfTrip(way.clone()), size, trip), row(Item::Message(way.clone()), size, trip / 3.0)]
        });
        rows.concat()
    };
    let rows = [("vader", 400.0), ("tcp", 12_000.0)].into_iter().flat_map(of);
    store::keep_below(&state.join("plimsoll"), rows.collect()).unwrap();
}
