//! One start of both ranks under a mapping.

use std::fs::File;
use std::time::Duration;

use launch::carriers::{Carrier, Reach, named};
use launch::exit::exit_code;
use launch::job::{Job, Place};
use launch::running::{Running, Scratch, Streams};
use linux::accounting::HostMeter;
use linux::lab::{Host, Lab};
use machine::{Bytes, Fault, Result};

use super::{Block, COMPUTING, EXCHANGED, Exchange, Mapping, Pattern, Request, SIZES, Task, Times};
use crate::mpi::program::Program;

/// Time of each timed part.
const TIMED: Duration = Duration::from_millis(60);
const LIMIT: Duration = Duration::from_secs(120);

/// Greatest size sent at once, as the paper's MPICH2 did: the library keeps bytes that the sockets do not take.
const EAGER: Bytes = Bytes(1 << 20);

/// Starts ranks in a lab.
pub struct Starts<'a> {
    pub request: &'a Request,
    lab: &'a Lab,
    program: Program,
    carrier: Carrier,
    meter: Option<HostMeter>,
    pub notes: Vec<String>,
}

impl<'a> Starts<'a> {
    pub fn new(request: &'a Request, lab: &'a Lab) -> Result<Starts<'a>> {
        let program =
            Program::compile(&request.installation, "partners", include_str!("partners.c"), &std::env::temp_dir())?;
        let mut notes = Vec::new();
        let meter = HostMeter::open().map_err(|fault| notes.push(format!("no softirqs counted: {fault}"))).ok();
        Ok(Starts { request, lab, program, carrier: named("tcp")?, meter, notes })
    }

    pub fn run(&mut self, mapping: Mapping) -> Result<Block> {
        let Request { installation, cores, imbalances, command, .. } = self.request;
        let failed = |cause: String| {
            let next = "see what it says with `plimsoll mpirun --lab --carrier tcp -- PROGRAM`";
            Fault::new(format!("ranks under {installation}, {}", mapping.name()), cause, next)
        };
        if !self.lab.steer_each(mapping.steering(*cores).map(Some))?.holds() {
            return Err(failed("the kernel did not keep the mask of receive processing".into()));
        }
        let variables = self.carrier.variables(installation, Reach::Between(self.lab.interface(Host::A)));
        let mut variables = variables.ok_or_else(|| failed("it has no TCP of its own: take Open MPI".into()))?;
        for limit in ["OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_max_send_size"] {
            variables.push((limit.into(), EAGER.0.to_string().into()));
        }
        let proof = self.carrier.proof(installation);
        variables.extend(proof.iter().flat_map(|proof| proof.variables()));
        let list = |words: &mut dyn Iterator<Item = String>| words.collect::<Vec<_>>().join(",");
        let arguments = [
            format!("{},{}", cores.0.0, cores.1.0),
            TIMED.as_millis().to_string(),
            COMPUTING.to_string(),
            EXCHANGED.0.to_string(),
            list(&mut SIZES.iter().map(|size| size.0.to_string())),
            list(&mut imbalances.iter().map(f64::to_string)),
        ];
        let job = Job {
            seats: None,
            installation,
            ranks: 2,
            program: self.program.path(),
            arguments: arguments.map(Into::into).into(),
            options: Vec::new(),
            variables,
            place: Place::Lab { lab: self.lab, agent: command },
            // Ranks bind themselves.
            cores: Some(linux::affinity::allowed()?),
            contained: true,
        };
        let counting = self.meter.as_mut().is_some_and(|meter| meter.begin().is_ok());
        let mut running = Running::start(&job, Scratch::new()?, Streams::Kept, None)?;
        let status = running.wait(LIMIT, None::<&File>, |_| Ok(()))?;
        let counted = self.meter.as_mut().filter(|_| counting).and_then(|meter| meter.end().ok());
        let (said, complained) = (running.said(), running.complained());
        if !status.success() {
            let line =
                complained.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or("it said nothing");
            return Err(failed(format!("exit code {}: {}", exit_code(status), line.trim())));
        }
        if let Some(proof) = proof {
            proof.among(&self.carrier, &format!("{said}{complained}"))?;
        }
        let block = read(&said).filter(|block| {
            block.values.len() == 4 * SIZES.len() && block.exchanges.len() == self.request.imbalances.len()
        });
        let block = block.ok_or_else(|| failed("its output is not what it prints".into()))?;
        Ok(Block { cores: counted.unwrap_or_default(), ..block })
    }
}

/// Reads the ranks' lines among those of their launcher.
fn read(text: &str) -> Option<Block> {
    let mut block = Block { values: Vec::new(), exchanges: Vec::new(), cores: Vec::new() };
    let none = Times { computing: 0.0, sending: 0.0, waiting: 0.0 };
    for line in text.lines() {
        let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [pattern @ ("stream" | "ping-pong"), receiver, size, value] => {
                let pattern = if pattern == "stream" { Pattern::Stream } else { Pattern::PingPong };
                let task = Task { pattern, works: receiver == "works", size: Bytes(size.parse().ok()?) };
                block.values.push((task, number(value)?));
            }
            ["exchange", imbalance, rank @ ("0" | "1"), computing, sending, waiting] => {
                let imbalance = number(imbalance)?;
                if rank == "0" {
                    block.exchanges.push(Exchange { imbalance, ranks: [none; 2] });
                }
                let of = block.exchanges.last_mut().filter(|of| of.imbalance == imbalance)?;
                let [computing, sending, waiting] = [number(computing)?, number(sending)?, number(waiting)?];
                of.ranks[usize::from(rank == "1")] = Times { computing, sending, waiting };
            }
            _ => {}
        }
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_print_is_read_among_other_lines() {
        let text = "[host] btl: tcp\nstream works 8 1.5\nping-pong reads 4096 800.25\n\
                    exchange 0.3 0 1300.0 20.0 3.5\nexchange 0.3 1 1000.0 10.0 330.0\n";
        let block = read(text).unwrap();
        let task = |pattern, works, size| Task { pattern, works, size: Bytes(size) };
        assert_eq!(block.of(&task(Pattern::Stream, true, 8)), Some(1.5));
        assert_eq!(block.of(&task(Pattern::PingPong, false, 4096)), Some(800.25));
        let exchange = block.exchange(0.3).unwrap();
        assert_eq!((exchange.ranks[0].total(), exchange.ranks[1].communication()), (1323.5, 340.0));
        assert!(read("exchange 0.3 1 1 1 1\n").is_none() && read("stream reads 8 x\n").is_none());
    }
}
