//! `plimsoll bench --congestion`: streams on a slow link that loses packets.

use std::process::ExitCode;
use std::time::Duration;

use bench::congestion::{self, Request};
use linux::lab::Wire;
use linux::output;
use machine::{BytesPerSecond, Fault, Nanoseconds, Result};

#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "A slow link that loses packets")]
pub struct Arguments {
    /// Measure streams of engine-udp beside kernel TCP on a link of a lab (root): alone, by the share of packets that the link
    /// loses, and two at once, by how they share it
    #[arg(
        long,
        conflicts_with_all = ["stacks", "placement", "pattern", "sizes", "perturbation", "path", "receiver", "protocol_core", "mpi", "semantics", "profiler", "mapping"]
    )]
    pub congestion: bool,
    /// The link's rate, from 1Mbit to 10Gbit. Above some 500Mbit two cores may be slower than it
    #[arg(long, requires = "congestion", default_value = "200Mbit", value_parser = congestion::rate)]
    rate: BytesPerSecond,
    /// How long a packet may wait for the link: one that would wait longer is dropped
    #[arg(long, requires = "congestion", default_value = "10ms", value_parser = queue)]
    queue: Nanoseconds,
    /// Shares of packets that it loses each way: a list
    #[arg(long, requires = "congestion", value_delimiter = ',', default_value = "0%,0.1%,1%,5%", value_parser = share)]
    losses: Vec<f64>,
}

fn share(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number.filter(|percent| (0.0..=50.0).contains(percent)).map(|percent| percent / 100.0).ok_or_else(|| {
        Fault::new(format!("losses '{text}'"), "it is no share from 0% to 50%", "write a list such as 0%,0.1%,1%")
    })
}

fn queue(text: &str) -> Result<Nanoseconds> {
    let queue: Nanoseconds = text.parse()?;
    Some(queue)
        .filter(|queue| (100_000..=1_000_000_000).contains(&queue.0))
        .ok_or_else(|| Fault::new(format!("queue '{text}'"), "it is not from 100us to 1s", "write such as 1ms or 10ms"))
}

/// How long each stream is counted.
const COUNTED: Duration = Duration::from_millis(1000);

pub fn run(arguments: &Arguments, rounds: u32, json: bool) -> Result<ExitCode> {
    linux::signal::watch()?;
    let wire = Wire { rate: arguments.rate, queue: arguments.queue };
    let request = Request { wire, losses: arguments.losses.clone(), counted: COUNTED, rounds };
    let begin = |takes: Duration| eprintln!("plimsoll: {rounds} rounds take {} s", takes.as_secs());
    let findings = congestion::measure(&request, begin)?;
    let page = if json {
        let text = serde_json::to_string_pretty(&findings).map_err(|e| Fault::because("output", e, "report it"))?;
        format!("{text}\n")
    } else {
        findings.page(output::width())
    };
    match json {
        true => output::print(&page)?,
        false => output::page(&page)?,
    }
    if !findings.whole {
        eprintln!("plimsoll: a signal ended it before all rounds were measured");
    }
    Ok(super::exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_a_time_within_bounds() {
        assert_eq!((queue("1ms").unwrap(), queue("0.5ms").unwrap()), (Nanoseconds(1_000_000), Nanoseconds(500_000)));
        for text in ["10", "99us", "1.1s", "-1ms", "long"] {
            assert!(queue(text).unwrap_err().to_string().contains(&format!("'{text}'")), "{text}");
        }
    }
}
