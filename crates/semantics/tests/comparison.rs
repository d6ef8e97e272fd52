//! The comparison of semantics, small: it ends, measures what was asked, and its figures are plausible.

use std::cell::Cell;

use linux::affinity;
use machine::{Bytes, CoreId};
use semantics::{Carrier, Order, Quantity, Request, Semantics, measure};

fn request(carrier: Carrier, peers: &[u32]) -> Request {
    let cores = affinity::allowed().unwrap();
    let (hub, leaves) = (cores[0], *cores.last().unwrap());
    Request {
        semantics: Semantics::ALL.to_vec(),
        peers: peers.to_vec(),
        carrier,
        orders: Order::ALL.to_vec(),
        size: 8,
        rounds: 1,
        cores: (hub, leaves),
    }
}

fn measures_all(carrier: Carrier, peers: &[u32]) {
    let request = request(carrier, peers);
    let outcome = measure(&request, 200, &|| false).unwrap();
    for semantics in Semantics::ALL {
        for &peers in peers {
            for order in Order::ALL {
                for quantity in Quantity::ALL {
                    let values = outcome.values(semantics, (peers, order), quantity);
                    assert_eq!(values.len(), 1, "{semantics} {peers} {order} {quantity}");
                    assert!(values[0] > 0.0, "{semantics} {peers} {order} {quantity}");
                }
            }
        }
        assert_eq!(outcome.footprints.iter().filter(|f| f.semantics == semantics).count(), peers.len());
        let flood = outcome.floods.iter().find(|flood| flood.semantics == semantics).unwrap();
        match semantics {
            // 16 Ki messages and 1 MiB are the engine's credit.
            Semantics::Matched => assert!(flood.held <= 16 << 10 && flood.held_bytes <= Bytes(1 << 20), "{flood:?}"),
            _ => assert_eq!((flood.held, flood.held_bytes), (40_000, Bytes(40_000_000)), "{flood:?}"),
        }
    }
    assert_eq!(outcome.used.iter().map(|used| used.peers).collect::<Vec<_>>(), peers, "{:?}", outcome.notes);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["cells"][0]["measured"][0]["blocks"][0]["round"], 0);
}

#[test]
fn over_memory() {
    measures_all(Carrier::Memory, &[2, 40]);
}

#[test]
#[ignore = "make check"]
fn over_shared_memory() {
    measures_all(Carrier::Shm, &[1, 12]);
}

#[test]
#[ignore = "make check"]
fn over_udp() {
    measures_all(Carrier::Udp, &[2, 9]);
}

#[test]
#[ignore = "make check"]
fn an_idle_peer_of_the_engine_is_small_and_one_of_a_queue_pair_is_not() {
    if !skip::alone() {
        return;
    }
    let request = Request { rounds: 0, ..request(Carrier::Memory, &[1000]) };
    let outcome = measure(&request, 1, &|| false).unwrap();
    let of = |semantics| outcome.footprints.iter().find(|f| f.semantics == semantics).unwrap();
    assert!(of(Semantics::Matched).computed < Bytes(4 << 10));
    // 64 buffers of 2 KiB are posted for each.
    assert!(of(Semantics::QueuePair).computed > Bytes(128 << 10));
    assert!(of(Semantics::QueuePairShared).computed < of(Semantics::QueuePair).computed);
    if let Some(idle) = of(Semantics::QueuePair).idle.value() {
        assert!(*idle > Bytes(64 << 10), "{idle:?}");
    }
}

#[test]
fn it_ends_when_it_is_told_to() {
    let asked = Cell::new(0);
    let enough = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let outcome = measure(&request(Carrier::Memory, &[2]), 200, &enough).unwrap();
    assert_eq!(outcome.blocks(), 3);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (peers, size, core) in [(0, 8, 0), (5000, 8, 0), (2, 0, 0), (2, 8, 9999)] {
        let mut request = request(Carrier::Memory, &[peers]);
        request.size = size;
        if core > 0 {
            request.cores.1 = CoreId(core);
        }
        assert!(!measure(&request, 10, &|| false).unwrap_err().next().is_empty());
    }
}
