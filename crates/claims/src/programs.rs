//! Two programs of paper 002 under its mappings (Tables 1 and 2), simulated on two quad-core hosts with finite buffers
//! ([`simulate::cluster`]).
//!
//! What the papers do not print is swept. Costs a byte are those of B1, in both its solutions; messages inside a node go through
//! the loopback, as the socket channel of that MPICH2 sends them. Buffers of library and sockets hold less than a message, since
//! 6.2 has both fill up.
//!
//! *LAMMPS-like* (6.2): [`Lammps`], in the order of LAMMPS's source. Its Lennard-Jones benchmark scaled 64 times has 256,000 atoms
//! a rank, whose borders are messages of 256 KB: so size and computing of a step belong together. Ranks compute alike but for
//! noise.
//!
//! *GROMACS-like* (6.1): each step computes and passes data round a ring in pulses, `MPI_Isend` and waits; ranks 6 and 7, which
//! the paper finds idle, compute less by a share that is swept: that they do is what the experiment was made for.

use machine::costs::Interval;
use machine::{CoreId, Result};

use simulate::cluster::profile::{Cost, Place, Profile, Progress, Waiting};
use simulate::cluster::{Cluster, Core, Doing, Host, Link, Seat, Seen, Split, Stay, observe};
use simulate::programs::{Gromacs, Lammps, Lazy, Phases};

use super::cores::CoreCosts;
use super::draws::{Draw, Sweep, Unknown, interval, swept};
use super::model::Model;
use super::rows::Calibration;
use super::statement::{Parameter, Prediction, Statement};

pub mod figures;

/// Ranks by core, of the first host and of the second.
type Mapping = [[usize; 4]; 2];

/// A, A', B, B' of Tables 1 and 2.
const GROMACS: [Mapping; 4] = [
    [[0, 4, 2, 6], [7, 3, 5, 1]],
    [[6, 4, 2, 0], [7, 3, 5, 1]],
    [[0, 2, 4, 6], [5, 1, 3, 7]],
    [[2, 0, 4, 6], [5, 1, 3, 7]],
];
const LAMMPS: [Mapping; 4] = [
    [[2, 0, 4, 6], [1, 3, 5, 7]],
    [[0, 2, 4, 6], [1, 3, 5, 7]],
    [[0, 4, 2, 6], [7, 3, 5, 1]],
    // Misprinted; corrected by the rule of pairs, as A' of Table 1.
    [[6, 4, 2, 0], [7, 3, 5, 1]],
];

const RANKS: usize = 8;
const STEPS: u32 = 12;
/// Steps before times are counted.
const SKIPPED: usize = 4;
/// Bytes of a piece.
const UNIT: u64 = 16 * 1024;

const fn unknown(name: &'static str, low: f64, high: f64, unit: &'static str, why: &'static str) -> Unknown {
    Unknown { name, low, high, log: true, unit, why }
}

const SEND: Unknown = unknown("sender's work over the receiver's", 0.3, 1.0, "times", "B1's bottleneck is one end");
const ACKNOWLEDGE: Unknown = unknown("softirq work of an acknowledgement", 0.02, 0.3, "of s", "fewer than packets");
const LOOPBACK: Unknown = unknown("softirq work inside a host", 0.3, 1.0, "of s", "no driver, no interrupt");
const LIBRARY: Unknown = unknown(
    "M, library's send buffer",
    65536.0,
    MESSAGE as f64,
    "B",
    "below a message: MPI_Send waits for room (6.2, step 4)",
);
const SOCKET: Unknown = unknown(
    "B, socket buffers of both ends",
    32768.0,
    MESSAGE as f64,
    "B",
    "below a message: they fill up (6.2, step 2)",
);
const LAMMPS_COMPUTE: Unknown = unknown(
    "LAMMPS's computing a step",
    0.18,
    0.77,
    "s",
    "256,000 atoms a rank (6.2: 64 times the benchmark), 0.7 to 3 us each",
);
const UNEVEN: Unknown =
    unknown("the most that a rank computes longer in a step", 0.001, 0.1, "of it", "an even liquid on a noisy machine");
const GROMACS_COMPUTE: Unknown = unknown("GROMACS's computing a step", 0.002, 0.02, "s", "no row has it");
const PULSE: Unknown = unknown("GROMACS's message", 16384.0, 131072.0, "B", "no row has it");
const IDLE: Unknown = Unknown {
    name: "what ranks 6 and 7 compute less",
    low: 0.0,
    high: 0.6,
    log: false,
    unit: "of the others'",
    why: "the imbalance is printed nowhere but in what judges",
};

/// Bytes of a message (6.2).
const MESSAGE: u64 = 256 * 1024;
/// Pulses of a ring of eight, for coordinates and for forces.
const PULSES: u32 = 4;

/// Hosts of two sockets: cores 0 and 2 on the one, 1 and 3 on the other (section 4, setup A). Core 0 takes the interrupts.
fn hosts() -> Vec<Host> {
    let core = |id: u32| Core { id: CoreId(id), package: id % 2, dilation: 1.0 };
    let host =
        |name: &str| Host { name: name.into(), cores: (0..4).map(core).collect(), interrupts: 0, engines: vec![] };
    vec![host("machine 1"), host("machine 2")]
}

fn seats(mapping: &Mapping) -> Vec<Seat> {
    let mut seats = vec![Seat { host: 0, core: 0 }; RANKS];
    for (host, cores) in mapping.iter().enumerate() {
        for (core, rank) in cores.iter().enumerate() {
            seats[*rank] = Seat { host, core };
        }
    }
    seats
}

fn cluster(seats: Vec<Seat>, profile: &Profile) -> Cluster {
    let link = Link { latency: 10_000_000, byte: 0.8 };
    Cluster { hosts: hosts(), link, profile: profile.clone(), seats, slice: u64::MAX, clocked: 1.0 }
}

/// The costs of a draw. Coordinates of the draw are taken in a fixed order.
fn profile(rows: &Calibration, draw: &mut Draw) -> Result<Profile> {
    let costs = CoreCosts::fit(rows, draw)?;
    let (send, acknowledge, loopback) = (draw.of(&SEND), draw.of(&ACKNOWLEDGE), draw.of(&LOOPBACK));
    let (library, socket) = (draw.of(&LIBRARY) as u64, draw.of(&SOCKET) as u64);
    let of = |bit: f64| Cost { byte: 8.0 * bit, ..Cost::default() };
    Ok(Profile {
        name: "mpich-tcp".into(),
        progress: Progress::Calls,
        place: Place::Softirq,
        waiting: Waiting::Spin,
        unit: UNIT,
        eager: u64::MAX,
        library,
        socket,
        copy: Cost { byte: 0.25, ..Cost::default() },
        hand: of(send * costs.near),
        take: of(costs.near),
        send: Cost::default(),
        receive: of(costs.softirq),
        acknowledge: of(acknowledge * costs.softirq),
        inside: of(loopback * costs.softirq),
        far: [costs.far / costs.near; 2],
        inside_latency: 0.0,
        by_peer: true,
        constants: Vec::new(),
    })
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn lammps(draw: &mut Draw) -> Lammps {
    let compute = draw.of(&LAMMPS_COMPUTE);
    let uneven = nanoseconds(compute * draw.of(&UNEVEN));
    Lammps { steps: STEPS, computing: nanoseconds(compute), uneven, bytes: MESSAGE }
}

/// The program, with a message rounded up to whole pieces.
fn gromacs(draw: &mut Draw) -> Gromacs {
    let (computing, bytes) = (nanoseconds(draw.of(&GROMACS_COMPUTE)), draw.of(&PULSE) as u64);
    Gromacs { steps: STEPS, computing, bytes: bytes.next_multiple_of(UNIT), pulses: PULSES, idle: draw.of(&IDLE) }
}

fn stays(program: impl Phases, cluster: &Cluster) -> Result<Vec<Stay>> {
    let mut stays = Vec::new();
    observe(&mut Lazy::of(program), cluster, &mut |seen| {
        if let Seen::Stay(stay) = seen {
            stays.push(stay);
        }
    })?;
    Ok(stays)
}

/// The split of each rank's time, from its computing number `skipped` on.
fn splits(mapping: &Mapping, program: impl Phases, profile: &Profile, skipped: usize) -> Result<Vec<Split>> {
    let (mut splits, mut computed) = (vec![Split::default(); RANKS], [0; RANKS]);
    for Stay { rank, doing, from, to } in stays(program, &cluster(seats(mapping), profile))? {
        let rank = rank as usize;
        computed[rank] += usize::from(doing == Doing::Computing);
        if computed[rank] > skipped {
            splits[rank].add(doing, to - from);
        }
    }
    Ok(splits)
}

fn communication(split: &Split) -> f64 {
    (split.sending + split.waiting) as f64
}

fn total(split: &Split) -> f64 {
    split.computing as f64 + communication(split)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

fn model(equation: &'static str, of_program: &[&Unknown]) -> Model {
    let common = [&SEND, &ACKNOWLEDGE, &LOOPBACK, &LIBRARY, &SOCKET];
    let parameters = common.iter().chain(of_program).map(|unknown| Parameter::from(*unknown)).collect();
    Model { equation, parameters, rows: &["B1"] }
}

/// Communication under A over A', under B over B', and under A the share of it in waits of ranks 1 and 2 and in sends of the
/// others, in per cent.
fn lammps_figures(program: Lammps, profile: &Profile) -> Result<[f64; 4]> {
    let [a, a_paired, b, b_paired] = LAMMPS.map(|mapping| splits(&mapping, program, profile, SKIPPED));
    let (a, all) = (a?, |splits: &[Split]| mean(splits.iter().map(communication)));
    let share = |of: fn(&Split) -> u64, ranks: &[usize]| {
        100.0 * mean(ranks.iter().map(|rank| of(&a[*rank]) as f64 / communication(&a[*rank])))
    };
    Ok([
        all(&a) / all(&a_paired?),
        all(&b?) / all(&b_paired?),
        share(|split| split.waiting, &[1, 2]),
        share(|split| split.sending, &[0, 3, 4, 5, 6, 7]),
    ])
}

/// The intervals of `N` figures.
fn intervals<const N: usize>(draws: &[[f64; N]]) -> [Interval; N] {
    std::array::from_fn(|at| interval(draws.iter().map(|draw| draw[at]).collect()))
}

pub fn predict_lammps(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let of = |finite: bool| {
        let draws = swept(sweep.replays, |draw| {
            let profile = profile(rows, draw)?;
            let infinite = Profile { library: u64::MAX, socket: u64::MAX, ..profile.clone() };
            lammps_figures(lammps(draw), if finite { &profile } else { &infinite })
        });
        draws.map(|draws| intervals(&draws))
    };
    let model = model(
        "event replay: copied, handed, delivered, drained over M and B; ranks move messages in calls only",
        &[&LAMMPS_COMPUTE, &UNEVEN],
    );
    let names = ["lammps/ratio/A", "lammps/ratio/B", "lammps/wait/1,2", "lammps/send/others"];
    let predicted = names.into_iter().zip(of(true)?.into_iter().zip(of(false)?));
    Ok(predicted
        .map(|(name, (says, infinite))| model.predicts(name, says, vec![("infinite buffers", infinite.into())]))
        .collect())
}

pub fn predict_gromacs(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let draws = swept(sweep.replays, |draw| {
        let (profile, program) = (profile(rows, draw)?, gromacs(draw));
        let [a, swapped] = [0, 1].map(|which| splits(&GROMACS[which], program, &profile, 2 * SKIPPED));
        let (a, swapped) = (a?, swapped?);
        let all_of = |splits: &[Split]| mean(splits.iter().map(total));
        let share = |of: fn(&Split) -> u64, ranks: &[usize]| {
            100.0 * mean(ranks.iter().map(|rank| of(&a[*rank]) as f64 / total(&a[*rank])))
        };
        let all: Vec<usize> = (0..RANKS).collect();
        Ok([
            100.0 * (all_of(&a) / all_of(&swapped) - 1.0),
            share(|split| split.computing, &[0]),
            share(|split| split.waiting, &[0]),
            share(|split| split.waiting, &[6, 7]),
            share(|split| split.computing, &all),
            share(|split| split.waiting, &all),
        ])
    })?;
    let [gain, computing, waiting, idle, computing_of_all, waiting_of_all] = intervals(&draws);
    let model = model(
        "event replay of a ring: softirq work stops the rank on core 0, the others wait for it",
        &[&GROMACS_COMPUTE, &PULSE, &IDLE],
    );
    let mean_rank = |of: Interval| vec![("the mean rank", of.into())];
    Ok(vec![
        model.predicts("gromacs/gain", gain, vec![("the mapping is irrelevant", Statement::exactly(0.0))]),
        model.predicts("gromacs/compute/0", computing, mean_rank(computing_of_all)),
        model.predicts("gromacs/wait/0", waiting, mean_rank(waiting_of_all)),
        model.predicts("gromacs/wait/6,7", idle, mean_rank(waiting_of_all)),
    ])
}

#[cfg(test)]
mod tests;
