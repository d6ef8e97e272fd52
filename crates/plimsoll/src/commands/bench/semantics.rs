//! `plimsoll bench semantics`: the engine's semantics and those of queue pairs, side by side.

use std::process::ExitCode;

use claims::{Calibration, Sweep, open};
use machine::{Fault, Result, count};
use semantics::{Carrier, Order, Request, Semantics, measure};

use super::measuring::{Measuring, TwoCores};
use crate::commands::exit_code;
use crate::semantics_page;

/// Compares semantics over the same port: matching by the engine, and Verbs' queue pairs
#[derive(clap::Args)]
pub struct Arguments {
    /// Semantics to compare: matched, queue-pair, queue-pair-shared; docs/claims.md explains them
    #[arg(value_delimiter = ',', default_value = "matched,queue-pair,queue-pair-shared")]
    semantics: Vec<Semantics>,
    /// Numbers of peers: a list (2,64) or from..to
    #[arg(long, default_value = "2..1000", value_parser = peers)]
    peers: Peers,
    /// What carries the packets: memory, shm or udp
    #[arg(long = "port", value_name = "PORT", default_value = "memory")]
    carrier: Carrier,
    /// The order of peers: round-robin, random or both
    #[arg(long, default_value = "both", value_parser = orders)]
    order: Orders,
    #[command(flatten)]
    cores: TwoCores,
    #[command(flatten)]
    measuring: Measuring,
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

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { semantics, peers, carrier, order, cores, measuring } = arguments;
    let request = Request {
        semantics,
        peers: peers.0,
        carrier,
        orders: order.0,
        size: SIZE,
        rounds: measuring.rounds,
        cores: cores.chosen()?,
    };
    linux::signal::watch()?;
    let outcome = measure(&request, request.carrier.messages_of_block(), &linux::signal::interrupted)?;
    measuring.print(&outcome, || {
        let asked = open::scaling(&Calibration::of_papers(), Sweep::default())?.ratio;
        let width = linux::output::width();
        let explained = semantics_page::explained(&outcome, asked, width);
        Ok(semantics_page::page(&outcome, &request.semantics, width) + &explained)
    })?;
    if linux::signal::interrupted() {
        eprintln!("plimsoll: a signal ended it after {}", count::of(outcome.blocks() as u64, "block"));
    }
    Ok(exit_code())
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
