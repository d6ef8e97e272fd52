//! `plimsoll bench congestion`: streams on a slow link that loses packets.

use std::process::ExitCode;
use std::time::Duration;

use bench::congestion::{self, Request};
use linux::lab::Wire;
use machine::{BitsPerSecond, Fault, Nanoseconds, Result};

use super::measuring::{Measuring, ended};

/// Measures streams of engine-udp beside kernel TCP on a slow link of a lab (root): alone, by the share of packets that the link
/// loses, and two at once, by how they share it
#[derive(clap::Args)]
pub struct Arguments {
    /// Rate of the link, from 1Mbit to 10Gbit. Above some 500Mbit two cores may be slower than it
    #[arg(long, value_name = "RATE", default_value = "200Mbit", value_parser = link)]
    link: BitsPerSecond,
    /// How long a packet may wait for the link: one that would wait longer is dropped
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = queue)]
    queue: Nanoseconds,
    /// Shares of packets that it loses each way: a list
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',', default_value = "0%,0.1%,1%,5%", value_parser = share)]
    losses: Vec<f64>,
    #[command(flatten)]
    measuring: Measuring,
}

fn share(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number.filter(|percent| (0.0..=50.0).contains(percent)).map(|percent| percent / 100.0).ok_or_else(|| {
        Fault::new(format!("losses '{text}'"), "it is no share from 0% to 50%", "write a list such as 0%,0.1%,1%")
    })
}

fn link(text: &str) -> Result<BitsPerSecond> {
    let rate: BitsPerSecond = text.parse()?;
    let bad = || Fault::new(format!("rate '{text}'"), "it is not from 1Mbit to 10Gbit", "write such as 200Mbit");
    Some(rate).filter(|rate| (1e6..=10e9).contains(&rate.0)).ok_or_else(bad)
}

fn queue(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(100_000), Nanoseconds::of_seconds(1))
}

/// The time in which each stream is counted.
const COUNTED: Duration = Duration::from_millis(1000);

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::signal::watch()?;
    let Arguments { link, queue, losses, measuring } = arguments;
    let rounds = measuring.rounds;
    let request = Request { wire: Wire { rate: link.bytes(), queue }, losses, counted: COUNTED, rounds };
    let begin = |takes: Duration| eprintln!("plimsoll: {rounds} rounds take {} s", takes.as_secs());
    let findings = congestion::measure(&request, begin)?;
    measuring.print(&findings, || Ok(findings.page(linux::output::width())))?;
    Ok(ended(findings.whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_rate_within_bounds() {
        assert_eq!([link("200Mbit").unwrap(), link("1Gbit").unwrap()], [BitsPerSecond(200e6), BitsPerSecond(1e9)]);
        for text in ["", "200", "0Mbit", "20Gbit", "xMbit"] {
            assert!(link(text).unwrap_err().to_string().contains("write"), "{text}");
        }
    }

    #[test]
    fn a_queue_is_a_time_within_bounds() {
        assert_eq!((queue("1ms").unwrap(), queue("0.5ms").unwrap()), (Nanoseconds(1_000_000), Nanoseconds(500_000)));
        for text in ["10", "99us", "1.1s", "-1ms", "long"] {
            assert!(queue(text).unwrap_err().to_string().contains(&format!("'{text}'")), "{text}");
        }
    }
}
