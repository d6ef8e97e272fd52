//! Test of the mapper on simulated programs of known best mapping: the mapper gets a profile, and its advice is simulated.

use machine::Result;
use machine::costs::Interval;
use simulate::cluster::costs::measure;
use simulate::cluster::random::Case;
use simulate::programs::Lazy;
use whatif::answer::Program;

use crate::advice::Advice;
use crate::recorded::{Replays, deciding, softirqs};
use crate::replay_error::{self, ReplayError};
use crate::search::{Judge, search};
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
    /// What the replays foresaw of that mapping.
    pub foreseen: f64,
    /// The simulated time of the best of all mappings.
    pub best: f64,
    /// What the replays foresee of the best.
    pub best_foreseen: f64,
    /// Mappings that were judged, and whether these were all that differ.
    pub judged: (usize, bool),
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
    let (graph, seconds) = deciding(&recording.graph, now / 1e12);
    let (ways, softirqs) = (carried.ways.clone(), softirqs(&problem, seconds * 1e9));
    let program = Program::beside(&graph, &carried.costs, ways, carried.buffer, softirqs)?;
    let replays = Replays::of(&problem, &graph, &program, seconds)?;
    let found = search(&problem, &replays)?;
    let stays = found.seats == problem.seats;
    let drawn = if stays { Interval::exactly(1.0) } else { program.mapped(&[replays.mapping(&found.seats)])?[0] };
    let of = ReplayError::of(&problem, &found.seats);
    let expected = of.map_or(drawn, |missed| missed.with(drawn, &program));
    let time = |seats: &[u32]| Ok::<f64, machine::Fault>(case.time(&simulated.cluster(seats).seats)? as f64 / now);
    let (best_seats, best) = match across {
        true => case.best().map(|(seats, time)| (simulated.spots(&seats), time as f64 / now))?,
        false => search(&problem, &simulated).map(|best| (best.seats, best.time))?,
    };
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
        foreseen: found.time,
        best,
        best_foreseen: replays.time(&best_seats)?,
        judged: (found.judged, found.all),
    })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use whatif::graph::Graph;

    use super::*;
    use crate::recorded::stretch;

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

    /// A stretch of a recording foresees what comes of a mapping as well as the whole.
    #[test]
    #[ignore = "make check"]
    fn a_stretch_foresees_as_well_as_the_whole() {
        let of_four = |case: &Case| case.program.phases.len() == 4 && !case.balanced;
        for mut case in (0..).map_while(|seed| Case::of(seed).ok()).filter(of_four).take(6) {
            case.program.steps = 200;
            let recording = case.record().unwrap();
            let simulated = Simulated::of(case.cluster.clone(), || Box::new(Lazy::of(&case.program))).unwrap();
            let problem = simulated.problem(true);
            let carried = measure(&case.cluster).unwrap();
            let mut rotated = problem.seats.clone();
            rotated.rotate_left(1);
            let foreseen = |(graph, seconds): (Cow<'_, Graph>, f64)| {
                let softirqs = softirqs(&problem, seconds * 1e9);
                let ways = carried.ways.clone();
                let program = Program::beside(&graph, &carried.costs, ways, carried.buffer, softirqs).unwrap();
                let replays = Replays::of(&problem, &graph, &program, seconds).unwrap();
                (graph.len(), replays.time(&rotated).unwrap())
            };
            let seconds = recording.finished.total() as f64 / 1e12;
            let (whole, part) = (
                foreseen((Cow::Borrowed(&recording.graph), seconds)),
                foreseen(stretch(&recording.graph, seconds, recording.graph.len() / 4)),
            );
            let came =
                case.time(&simulated.cluster(&rotated).seats).unwrap() as f64 / recording.finished.total() as f64;
            assert!(part.0 < whole.0, "{}: {part:?} of {whole:?}", case.name);
            let missed = |(_, foreseen): (usize, f64)| (foreseen / came - 1.0).abs();
            assert!(missed(part) < missed(whole) + 0.02, "{}: {part:?}, {whole:?}, {came}", case.name);
        }
    }
}
