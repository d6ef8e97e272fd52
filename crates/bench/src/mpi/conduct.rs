//! Rounds: each contender once in each, in an order drawn anew, so that drift of the machine meets all alike.

use experiment::random::Random;
use machine::{Fault, Result, count};
use serde::Serialize;

use super::block::{Bench, Block};
use super::contender::{Contender, Seats};
use super::pattern::Task;

/// The order of a run is the same every time.
const SEED: u64 = 0x0051_1A11_0000_0004;

/// Starts that may fail before a contender is left out of the rest.
const PATIENCE: usize = 2;

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub places: Vec<(Seats, Vec<Contender>)>,
    pub tasks: Vec<Task>,
    /// Blocks of each contender at each place.
    pub rounds: u32,
    /// Blocks with timed MPI calls, of each contender at each place and each task.
    pub accounted_rounds: u32,
}

impl Plan {
    /// Starts of `mpirun` that it takes.
    pub fn starts(&self) -> usize {
        let contenders: usize = self.places.iter().map(|(_, contenders)| contenders.len()).sum();
        contenders * (self.rounds as usize + self.accounted_rounds as usize * self.tasks.len())
    }
}

/// A contender at a place, with all its blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    pub seats: Seats,
    pub contender: Contender,
    pub blocks: Vec<Block>,
    /// Blocks with timed MPI calls: one for each task, slower by the timing.
    pub accounted: Vec<Block>,
    /// Why starts failed; what was measured before is kept.
    pub failures: Vec<String>,
}

/// Measures all of `plan`; `progress` is told of each start. What was measured comes back also where a signal ends it.
pub fn conduct(bench: &mut Bench, plan: &Plan, mut progress: impl FnMut(usize)) -> (Vec<Measured>, Result<()>) {
    let mut all: Vec<Measured> = Vec::new();
    for (seats, contenders) in &plan.places {
        all.extend(contenders.iter().map(|contender| Measured {
            seats: *seats,
            contender: contender.clone(),
            blocks: Vec::new(),
            accounted: Vec::new(),
            failures: Vec::new(),
        }));
    }
    let tasks: Vec<&[Task]> = plan.tasks.chunks(1).collect();
    let (mut done, starts) = (0, plan.starts());
    for round in 0..plan.rounds + plan.accounted_rounds {
        let accounted = round >= plan.rounds;
        let mut order: Vec<usize> = (0..all.len()).collect();
        Random::stream(SEED, round.into()).shuffle(&mut order);
        // Places in turn: steering the lab's receive processing again and again would be part of the measurement.
        order.sort_by_key(|&nth| plan.places.iter().position(|(seats, _)| *seats == all[nth].seats));
        for measured in order {
            let measured = &mut all[measured];
            let parts: &[&[Task]] = if accounted { &tasks } else { &[&plan.tasks[..]] };
            for part in parts {
                done += 1;
                progress(done);
                if measured.failures.len() >= PATIENCE {
                    continue;
                }
                let block = bench.run(&measured.contender, &measured.seats, part, round, accounted);
                if linux::signal::interrupted() {
                    let starts = count::of(starts as u64, "start");
                    let cause = format!("a signal ended it after {} of {starts}", done - 1);
                    return (all, Err(Fault::new("plimsoll bench --mpi", cause, "run it again")));
                }
                match block {
                    Ok(block) if accounted => measured.accounted.push(block),
                    Ok(block) => measured.blocks.push(block),
                    Err(fault) => measured.failures.push(fault.to_string()),
                }
            }
        }
    }
    (all, Ok(()))
}
