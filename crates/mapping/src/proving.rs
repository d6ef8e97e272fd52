//! The mapper held to simulated programs whose best mapping is known: it sees what a profile would tell, and its advice is simulated.

use machine::Result;
use machine::costs::Interval;
use whatif::answer::Program;
use whatif::lever::Lever;
use whatif::simulate::cluster::costs::measure;
use whatif::simulate::cluster::random::Case;
use whatif::simulate::programs::Lazy;

use crate::advice::Advice;
use crate::recorded::Replays;
use crate::search::search;
use crate::simulated::Simulated;

/// How an advice came out. Times are over that of the mapping that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// What was mapped.
    pub name: String,
    /// Nothing takes part of a core, and all ranks compute alike.
    pub balanced: bool,
    /// What was advised.
    pub advice: Advice,
    /// What was expected of the mapping that was found.
    pub expected: Interval,
    /// What that mapping takes.
    pub found: f64,
    /// What the best of all takes.
    pub best: f64,
}

impl Proof {
    /// What who follows the advice gets.
    pub fn followed(&self) -> f64 {
        if self.advice == Advice::Move { self.found } else { 1.0 }
    }
}

/// That of the program of a seed. `across`: ranks may change their hosts.
///
/// # Errors
/// A defect of the simulator.
pub fn prove(seed: u64, across: bool) -> Result<Proof> {
    let case = Case::of(seed)?;
    let recording = case.record()?;
    let simulated = Simulated::of(case.cluster.clone(), || Lazy::of(&case.program))?;
    let problem = simulated.problem(across);
    let carried = measure(&case.cluster)?;
    let program = Program::over(&recording.graph, &carried.costs, carried.ways.clone(), carried.buffer)?;
    let now = recording.finished.total() as f64;
    let replays = Replays::of(&problem, &recording.graph, &program, now / 1e12)?;
    let found = search(&problem, &replays)?;
    let lever = Lever { mapping: Some(replays.mapping(&found.seats)), ..Lever::default() };
    let expected = match found.seats == problem.seats {
        true => Interval::exactly(1.0),
        false => program.ask(&[&lever])?[0].time,
    };
    let time = |seats: &[u32]| Ok::<f64, machine::Fault>(case.time(&simulated.cluster(seats).seats)? as f64 / now);
    let best = if across { case.best()?.1 as f64 / now } else { search(&problem, &simulated)?.time };
    Ok(Proof {
        balanced: case.balanced,
        advice: Advice::of(&found, &problem, &expected),
        found: time(&found.seats)?,
        name: case.name,
        expected,
        best,
    })
}
