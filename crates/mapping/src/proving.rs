//! Test of the mapper on simulated programs of known best mapping: the mapper gets a profile, and its advice is simulated.

use machine::Result;
use machine::costs::Interval;
use simulate::cluster::costs::measure;
use simulate::cluster::random::Case;
use simulate::programs::Lazy;
use whatif::answer::Program;

use crate::advice::Advice;
use crate::recorded::{Replays, softirqs};
use crate::replay_error::{self, ReplayError};
use crate::search::search;
use crate::simulated::Simulated;

/// The outcome of an advice. Times are over that of the given mapping, which the profile records.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The name of the program.
    pub name: String,
    /// Whether ranks have whole cores and compute alike.
    pub balanced: bool,
    /// The advice.
    pub advice: Advice,
    /// The interval expected of the mapping that was found.
    pub expected: Interval,
    /// The interval by the draws alone, and the advice that would follow from it.
    pub drawn: (Advice, Interval),
    /// The scale of the draws' error.
    pub scale: f64,
    /// The expected error; `None`: no other mapping was found, or only computing changes.
    pub error: Option<ReplayError>,
    /// The simulated time of the mapping that was found.
    pub found: f64,
    /// The simulated time of the best of all mappings.
    pub best: f64,
}

impl Proof {
    /// The simulated time with the advice followed.
    pub fn followed(&self) -> f64 {
        if self.advice == Advice::Move { self.found } else { 1.0 }
    }
}

/// Proves the advice for the program of a seed. `across`: ranks may change their hosts.
///
/// # Errors
/// A defect of the simulator.
pub fn prove(seed: u64, across: bool) -> Result<Proof> {
    let case = Case::of(seed)?;
    let recording = case.record()?;
    let simulated = Simulated::of(case.cluster.clone(), || Box::new(Lazy::of(&case.program)))?;
    let problem = simulated.problem(across);
    let carried = measure(&case.cluster)?;
    let now = recording.finished.total() as f64;
    let (ways, softirqs) = (carried.ways.clone(), softirqs(&problem, now / 1e3));
    let program = Program::beside(&recording.graph, &carried.costs, ways, carried.buffer, softirqs)?;
    let replays = Replays::of(&problem, &recording.graph, &program, now / 1e12)?;
    let found = search(&problem, &replays)?;
    let stays = found.seats == problem.seats;
    let drawn = if stays { Interval::exactly(1.0) } else { program.mapped(&[replays.mapping(&found.seats)])?[0] };
    let of = ReplayError::of(&problem, &found.seats);
    let expected = of.map_or(drawn, |missed| missed.with(drawn, &program));
    let time = |seats: &[u32]| Ok::<f64, machine::Fault>(case.time(&simulated.cluster(seats).seats)? as f64 / now);
    let best = if across { case.best()?.1 as f64 / now } else { search(&problem, &simulated)?.time };
    let came = time(&found.seats)?;
    Ok(Proof {
        balanced: case.balanced,
        advice: Advice::of(&found, &problem, &expected),
        drawn: (Advice::of(&found, &problem, &drawn), drawn),
        scale: replay_error::scale(&drawn, &program),
        error: of,
        found: came,
        name: case.name,
        expected,
        best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_gains_where_the_start_is_not_the_best() {
        let proofs: Vec<Proof> = (0..24).map(|seed| prove(seed, false).unwrap()).collect();
        assert!(proofs.iter().filter(|proof| proof.balanced).all(|proof| proof.advice != Advice::Move));
        let near = |figure: &dyn Fn(&Proof) -> f64| proofs.iter().filter(|of| figure(of) <= 1.05 * of.best).count();
        let (start, followed) = (near(&|_| 1.0), near(&Proof::followed));
        assert!(followed > start, "{followed} against {start}");
        let worse: Vec<&Proof> = proofs.iter().filter(|proof| proof.followed() > 1.02).collect();
        assert!(worse.is_empty(), "{worse:?}");
    }
}
