//! `plimsoll bench --semantics`: the engine's semantics and those of queue pairs, side by side.

use std::process::ExitCode;

use linux::output;
use machine::{CoreId, Fault, Result, count};
use semantics::{Carrier, Order, Request, Semantics, measure};

use whatif::claims::{Calibration, Sweep, open};

use crate::semantics_page;

#[derive(clap::Args)]
pub struct Comparison {
    /// Compare semantics over the same port instead of stacks: matched, queue-pair, queue-pair-shared;
    /// docs/semantics.md explains them
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with_all = ["stacks", "placement", "pattern", "sizes", "path", "protocol_core", "receiver", "sweep_cores", "mpi"]
    )]
    semantics: Vec<Semantics>,
    /// With --semantics: numbers of peers, a list (2,64) or from..to (2..1000)
    #[arg(long, requires = "semantics", default_value = "2..1000", value_parser = peers)]
    peers: Peers,
    /// With --semantics: what carries the packets: memory, shm or udp
    #[arg(long = "port", requires = "semantics", default_value = "memory")]
    carrier: Carrier,
    /// With --semantics: the order of peers: round-robin, random or both
    #[arg(long, requires = "semantics", default_value = "both", value_parser = orders)]
    order: Orders,
}

#[derive(Clone)]
struct Peers(Vec<u32>);

/// Steps of a range, and its ends.
const STEPS: [u32; 6] = [2, 8, 32, 128, 512, 1000];

fn peers(text: &str) -> Result<Peers> {
    let bad = || Fault::new(format!("peers '{text}'"), "not numbers of peers", "write them like 2..1000 or 2,64");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
    let Some((from, to)) = text.split_once("..") else {
        return text.split(',').map(number).collect::<Result<_>>().map(Peers);
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(bad());
    }
    let within = STEPS.into_iter().filter(|step| (from + 1..to).contains(step));
    let mut all: Vec<u32> = [from].into_iter().chain(within).chain([to]).collect();
    all.dedup();
    Ok(Peers(all))
}

#[derive(Clone)]
struct Orders(Vec<Order>);

fn orders(text: &str) -> Result<Orders> {
    if text == "both" { Ok(Orders(Order::ALL.to_vec())) } else { text.parse().map(|one| Orders(vec![one])) }
}

/// Bytes of a message: what fits a cache line together with its headers.
const SIZE: usize = 8;

impl Comparison {
    /// Semantics were asked for.
    pub fn asked(&self) -> bool {
        !self.semantics.is_empty()
    }

    pub fn run(self, cores: (CoreId, CoreId), rounds: u32, json: bool) -> Result<ExitCode> {
        let request = Request {
            semantics: self.semantics,
            peers: self.peers.0,
            carrier: self.carrier,
            orders: self.order.0,
            size: SIZE,
            rounds,
            cores,
        };
        linux::signal::watch()?;
        let outcome = measure(&request, request.carrier.messages_of_block(), &linux::signal::interrupted)?;
        let page = if json {
            let text = serde_json::to_string_pretty(&outcome).map_err(|e| Fault::because("output", e, "report it"))?;
            format!("{text}\n")
        } else {
            let asked = open::scaling(&Calibration::of_papers(), Sweep::default())?.ratio;
            let width = output::width();
            let explained = semantics_page::explained(&outcome, asked, width);
            semantics_page::page(&outcome, &request.semantics, width) + &explained
        };
        match json {
            true => output::print(&page)?,
            false => output::page(&page)?,
        }
        if linux::signal::interrupted() {
            eprintln!("plimsoll: a signal ended it after {}", count::of(outcome.blocks() as u64, "block"));
        }
        Ok(super::exit_code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_lists_or_ranges() {
        assert_eq!(peers("2..1000").unwrap().0, STEPS);
        assert_eq!(peers("5..40").unwrap().0, [5, 8, 32, 40]);
        assert_eq!(peers("3..3").unwrap().0, [3]);
        assert_eq!(peers("7, 9").unwrap().0, [7, 9]);
        for text in ["", "9..3", "x", "1..", "-1"] {
            assert!(peers(text).is_err(), "{text}");
        }
    }
}
