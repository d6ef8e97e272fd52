//! Figures 7, 8, 11 and 12 of paper 002: the split of ranks' time under each mapping, and the gain of a mapping.

use machine::Result;
use machine::costs::Interval;
use serde::Serialize;
use simulate::cluster::Split;
use simulate::cluster::profile::{Cost, Place, Profile};
use simulate::programs::Phases;

use super::{GROMACS, LAMMPS, Mapping, RANKS, SKIPPED, communication, gromacs, lammps, mean, profile, splits, total};
use crate::draws::{Sweep, interval, swept};
use crate::rows::Calibration;

const NAMES: [&str; 4] = ["A", "A'", "B", "B'"];

/// The slowdown above which partners run out of phase; a core that is taken in part does not cause as much.
pub const FAR: f64 = 1.5;

/// Shares of a rank's time, per cent, the mean of all draws.
#[derive(Debug, Clone, Serialize)]
pub struct Shares {
    pub computing: f64,
    pub sending: f64,
    pub waiting: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Mapped {
    pub name: &'static str,
    /// Ranks by core, of the first host and of the second. Core 0 takes the interrupts.
    pub cores: Mapping,
    /// By rank.
    pub ranks: Vec<Shares>,
}

/// The time before a mapping changes over the time after it.
#[derive(Debug, Clone, Serialize)]
pub struct Gain {
    pub from: &'static str,
    pub to: &'static str,
    pub times: Interval,
    /// Draws in which the gain is more than [`FAR`].
    pub far: usize,
}

/// The figures under one protocol.
#[derive(Debug, Clone, Serialize)]
pub struct Under {
    pub mappings: Vec<Mapped>,
    pub gains: Vec<Gain>,
    /// Those of the whole run's time.
    pub runs: Vec<Gain>,
    /// Deviation of the time over the four mappings, per cent of its mean.
    pub deviation: Interval,
}

/// The figures of one of the two programs.
#[derive(Debug, Clone, Serialize)]
pub struct Application {
    pub name: &'static str,
    pub figures: &'static str,
    /// The time that is compared between mappings.
    pub compared: &'static str,
    pub draws: usize,
    pub tcp: Under,
    /// Like TCP, but a device does the work of the interrupt core, and memory is equally near to all cores, as with iWARP.
    pub device: Under,
}

/// The split of each rank's time, by mapping.
type Run = Vec<Vec<Split>>;

/// # Errors
/// A figure that a model reads and no row has.
pub fn figures(rows: &Calibration, sweep: Sweep) -> Result<Vec<Application>> {
    let of_gromacs = swept(sweep.replays, |draw| both(&GROMACS, &profile(rows, draw)?, gromacs(draw), 2 * SKIPPED))?;
    let of_lammps = swept(sweep.replays, |draw| both(&LAMMPS, &profile(rows, draw)?, lammps(draw), SKIPPED))?;
    let draws = sweep.replays;
    let application =
        |name, figures, compared, mappings: &[Mapping; 4], time: fn(&Split) -> f64, runs: Vec<(Run, Run)>| {
            let (tcp, device): (Vec<Run>, Vec<Run>) = runs.into_iter().unzip();
            let [tcp, device] = [tcp, device].map(|runs| Under::of(mappings, time, &runs));
            Application { name, figures, compared, draws, tcp, device }
        };
    Ok(vec![
        application("GROMACS", "7 and 8", "time", &GROMACS, total, of_gromacs),
        application("LAMMPS", "11 and 12", "communication time", &LAMMPS, communication, of_lammps),
    ])
}

/// The figures over TCP, and over a device.
fn both(mappings: &[Mapping], tcp: &Profile, program: impl Phases + Copy, skipped: usize) -> Result<(Run, Run)> {
    let device = Profile { place: Place::Device, acknowledge: Cost::default(), far: [1.0; 2], ..tcp.clone() };
    let run =
        |profile| mappings.iter().map(|mapping| splits(mapping, program, profile, skipped)).collect::<Result<Run>>();
    Ok((run(tcp)?, run(&device)?))
}

impl Under {
    fn of(mappings: &[Mapping; 4], time: fn(&Split) -> f64, runs: &[Run]) -> Under {
        let share = |mapping: usize, rank: usize, of: fn(&Split) -> u64| {
            let splits = runs.iter().map(|run| &run[mapping][rank]);
            mean(splits.map(|split| 100.0 * of(split) as f64 / total(split)))
        };
        let shares = |mapping: usize, rank: usize| Shares {
            computing: share(mapping, rank, |split| split.computing),
            sending: share(mapping, rank, |split| split.sending),
            waiting: share(mapping, rank, |split| split.waiting),
        };
        let mapped = |at: usize| Mapped {
            name: NAMES[at],
            cores: mappings[at],
            ranks: (0..RANKS).map(|rank| shares(at, rank)).collect(),
        };
        let gains = |time: fn(&Split) -> f64| {
            let gain = |from: usize| {
                let of = |run: &Run, mapping: usize| mean(run[mapping].iter().map(time));
                let ratios: Vec<f64> = runs.iter().map(|run| of(run, from) / of(run, from + 1)).collect();
                let far = ratios.iter().filter(|ratio| **ratio > FAR).count();
                Gain { from: NAMES[from], to: NAMES[from + 1], times: interval(ratios), far }
            };
            vec![gain(0), gain(2)]
        };
        let deviation = |run: &Run| {
            let times = [0, 1, 2, 3].map(|mapping: usize| mean(run[mapping].iter().map(time)));
            let middle = mean(times.into_iter());
            100.0 * mean(times.into_iter().map(|time| (time - middle).powi(2))).sqrt() / middle
        };
        Under {
            mappings: (0..NAMES.len()).map(mapped).collect(),
            gains: gains(time),
            runs: gains(total),
            deviation: interval(runs.iter().map(deviation).collect()),
        }
    }
}
