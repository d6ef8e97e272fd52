//! The comparison of semantics without the command: `cargo bench -p semantics --bench compare -- [PORT [PEERS]]`
//! prints, for each quantity, the medians and how much better matched messages do than queue pairs.

use machine::{Fault, Result};
use rounds::statistics::median;
use semantics::{Carrier, Order, Quantity, Request, Semantics, measure};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let carrier: Carrier = arguments.next().map_or(Ok(Carrier::Memory), |text| text.parse())?;
    let bad = |_| Fault::new("peers", "not a list of numbers", "write them like 2,128");
    let peers = arguments.next().unwrap_or("2,128,1000".into());
    let peers: Vec<u32> = peers.split(',').map(|text| text.parse().map_err(bad)).collect::<Result<_>>()?;
    let cores = machine::choice::for_polling_here(&linux::affinity::allowed()?)?;
    let request = Request {
        semantics: Semantics::ALL.to_vec(),
        peers: peers.clone(),
        carrier,
        orders: Order::ALL.to_vec(),
        size: 8,
        rounds: arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5),
        cores: (cores[0], *cores.get(1).unwrap_or(&cores[0])),
    };
    let outcome = measure(&request, carrier.messages_of_block(), &|| false)?;
    for quantity in Quantity::ALL {
        for &peers in &peers {
            for order in Order::ALL {
                let of = |semantics| median(&outcome.values(semantics, (peers, order), quantity)).unwrap_or(f64::NAN);
                let over = |other| {
                    let over = outcome.over(Semantics::Matched, other, (peers, order), quantity);
                    over.and_then(|over| median(&over.ratios)).unwrap_or(f64::NAN)
                };
                println!(
                    "{quantity:16} {peers:5} {order:12} matched {:12.1}  queue pair {:12.1} {:5.2}x  shared {:12.1} {:5.2}x",
                    of(Semantics::Matched),
                    of(Semantics::QueuePair),
                    over(Semantics::QueuePair),
                    of(Semantics::QueuePairShared),
                    over(Semantics::QueuePairShared),
                );
            }
        }
    }
    for footprint in &outcome.footprints {
        println!("{footprint:?}");
    }
    for used in &outcome.used {
        println!("{used:?}");
    }
    for flood in &outcome.floods {
        println!("{flood:?}");
    }
    for note in &outcome.notes {
        println!("{note}");
    }
    Ok(())
}
