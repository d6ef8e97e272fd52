//! Two programs of paper 002 under its mappings (Tables 1 and 2), replayed over finite buffers ([`super::buffered`]).
//!
//! What the papers do not print is swept. Costs a byte are those of B1, in both its solutions; messages inside a node go through
//! the loopback, as the socket channel of that MPICH2 sends them.
//!
//! *LAMMPS-like* (6.2): each step computes, then exchanges 256 KB with each of three peers in turn, both ways of each dimension:
//! receive posted, `MPI_Send`, `MPI_Wait`. Ranks are at the corners of a cube, so that the peer in the first dimension is on the
//! other node. All ranks compute alike.
//!
//! *GROMACS-like* (6.1): each step computes and passes data round a ring in pulses, `MPI_Isend` and waits; ranks 6 and 7, which
//! the paper finds idle, compute less by a share that is swept: that they do is what the experiment was made for.

use machine::Result;

use super::buffered::{Op, Place, Progress, Split, Stack, Stay, replay, split};
use super::cores::CoreCosts;
use super::draws::{Draw, Sweep, Unknown, interval, swept};
use super::model::Model;
use super::rows::Calibration;
use super::statement::{Parameter, Prediction, Statement};

/// Ranks by core, of the first host and of the second.
type Mapping = [[usize; 4]; 2];

const GROMACS: [Mapping; 2] = [[[0, 4, 2, 6], [7, 3, 5, 1]], [[6, 4, 2, 0], [7, 3, 5, 1]]];
const LAMMPS: [Mapping; 4] = [
    [[2, 0, 4, 6], [1, 3, 5, 7]],
    [[0, 2, 4, 6], [1, 3, 5, 7]],
    [[0, 4, 2, 6], [7, 3, 5, 1]],
    // Garbled in print; by the rule of pairs, as A' of Table 1.
    [[6, 4, 2, 0], [7, 3, 5, 1]],
];

const RANKS: usize = 8;
const STEPS: usize = 12;
/// Steps before times are counted.
const SKIPPED: usize = 4;

const fn unknown(name: &'static str, low: f64, high: f64, unit: &'static str, why: &'static str) -> Unknown {
    Unknown { name, low, high, log: true, unit, why }
}

const SEND: Unknown = unknown("sender's work over the receiver's", 0.3, 1.0, "times", "B1's bottleneck is one end");
const ACKNOWLEDGE: Unknown = unknown("softirq work of an acknowledgement", 0.02, 0.3, "of s", "fewer than packets");
const LOOPBACK: Unknown = unknown("softirq work inside a host", 0.3, 1.0, "of s", "no driver, no interrupt");
const LIBRARY: Unknown = unknown("M, library's send buffer", 65536.0, 1048576.0, "B", "6.2 names it and gives no size");
const SOCKET: Unknown = unknown("B, socket buffers of both ends", 32768.0, 524288.0, "B", "TCP tunes them by itself");
const LAMMPS_COMPUTE: Unknown = unknown("LAMMPS's computing a step", 0.002, 0.1, "s", "no row has it");
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

/// Bytes: 6.2.
const MESSAGE: u64 = 256 * 1024;
/// Pulses of a ring of eight, for coordinates and for forces.
const PULSES: usize = 4;

fn places(mapping: &Mapping) -> Vec<Place> {
    let mut places = vec![Place { host: 0, core: 0 }; RANKS];
    for (host, cores) in mapping.iter().enumerate() {
        for (core, rank) in cores.iter().enumerate() {
            places[*rank] = Place { host, core };
        }
    }
    places
}

/// Each coordinate of a stack in a fixed order.
fn stack(rows: &Calibration, draw: &mut Draw) -> Result<Stack> {
    let costs = CoreCosts::fit(rows, draw)?;
    let (send, acknowledge, loopback) = (draw.of(&SEND), draw.of(&ACKNOWLEDGE), draw.of(&LOOPBACK));
    let (library, socket) = (draw.of(&LIBRARY) as u64, draw.of(&SOCKET) as u64);
    let byte = |bit: f64| 8.0 * bit;
    Ok(Stack {
        chunk: 16 * 1024,
        copy: 0.25,
        hand: [byte(send * costs.near), byte(send * costs.far)],
        drain: [byte(costs.near), byte(costs.far)],
        softirq: byte(costs.softirq),
        acknowledge: byte(acknowledge * costs.softirq),
        loopback: byte(loopback * costs.softirq),
        wire: 0.8,
        latency: 10e-6,
        library,
        socket,
        progress: Progress::InCalls,
    })
}

/// Peers in the three dimensions of a cube; the first is on the other node, where nodes hold even and odd ranks.
fn lammps(compute: f64) -> Vec<Vec<Op>> {
    let exchange = |rank: usize, dimension: usize| {
        let peer = rank ^ (1 << dimension);
        [Op::Send { to: peer, bytes: MESSAGE, bounded: true }, Op::Receive { from: peer, bytes: MESSAGE }]
    };
    let of = |rank| {
        let exchanges = (0..3).flat_map(|dimension| [exchange(rank, dimension), exchange(rank, dimension)].concat());
        std::iter::once(Op::Compute(compute)).chain(exchanges).collect()
    };
    (0..RANKS).map(of).collect()
}

fn gromacs(compute: f64, bytes: u64, idle: f64) -> Vec<Vec<Op>> {
    let of = |rank: usize| {
        let load = if rank >= 6 { 1.0 - idle } else { 1.0 };
        let (to, from) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
        let pulse = [Op::Send { to, bytes, bounded: false }, Op::Receive { from, bytes }, Op::Flush { to }];
        let half = || std::iter::once(Op::Compute(compute * load / 2.0)).chain(pulse.repeat(PULSES));
        half().chain(half()).collect()
    };
    (0..RANKS).map(of).collect()
}

fn run(mapping: &Mapping, program: &[Vec<Op>], stack: &Stack) -> Result<Vec<Stay>> {
    replay(&places(mapping), program, STEPS, stack)
}

fn splits(mapping: &Mapping, program: &[Vec<Op>], stack: &Stack) -> Result<Vec<Split>> {
    Ok(split(&run(mapping, program, stack)?, RANKS, SKIPPED * program[0].len()))
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
fn lammps_figures(program: &[Vec<Op>], stack: &Stack) -> Result<[f64; 4]> {
    let [a, a_paired, b, b_paired] = LAMMPS.map(|mapping| splits(&mapping, program, stack));
    let (a, communication) = (a?, |splits: &[Split]| mean(splits.iter().map(Split::communication)));
    let share = |of: fn(&Split) -> f64, ranks: &[usize]| {
        100.0 * mean(ranks.iter().map(|rank| of(&a[*rank]) / a[*rank].communication()))
    };
    Ok([
        communication(&a) / communication(&a_paired?),
        communication(&b?) / communication(&b_paired?),
        share(|split| split.wait, &[1, 2]),
        share(|split| split.send, &[0, 3, 4, 5, 6, 7]),
    ])
}

pub fn predict_lammps(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let draws = swept(sweep.replays, |draw| {
        let stack = stack(rows, draw)?;
        let program = lammps(draw.of(&LAMMPS_COMPUTE));
        let infinite = Stack { library: u64::MAX, socket: u64::MAX, ..stack };
        Ok([lammps_figures(&program, &stack)?, lammps_figures(&program, &infinite)?])
    });
    let draws = draws.into_iter().collect::<Result<Vec<_>>>()?;
    let of = |buffers: usize, at: usize| interval(draws.iter().map(|draw| draw[buffers][at]).collect());
    let model = model(
        "event replay: copied, handed, delivered, drained over M and B; ranks move messages in calls only",
        &[&LAMMPS_COMPUTE],
    );
    let names = ["lammps/ratio/A", "lammps/ratio/B", "lammps/wait/1,2", "lammps/send/others"];
    let predicted = names.iter().enumerate();
    Ok(predicted
        .map(|(at, name)| model.predicts(name, of(0, at), vec![("infinite buffers", of(1, at).into())]))
        .collect())
}

pub fn predict_gromacs(rows: &Calibration, sweep: Sweep) -> Result<Vec<Prediction>> {
    let draws = swept(sweep.replays, |draw| {
        let stack = stack(rows, draw)?;
        let program = gromacs(draw.of(&GROMACS_COMPUTE), draw.of(&PULSE) as u64, draw.of(&IDLE));
        let [a, swapped] = GROMACS.map(|mapping| splits(&mapping, &program, &stack));
        let (a, swapped) = (a?, swapped?);
        let total = |splits: &[Split]| mean(splits.iter().map(Split::total));
        let share = |of: fn(&Split) -> f64, ranks: &[usize]| {
            100.0 * mean(ranks.iter().map(|rank| of(&a[*rank]) / a[*rank].total()))
        };
        let all: Vec<usize> = (0..RANKS).collect();
        Ok([
            100.0 * (total(&a) / total(&swapped) - 1.0),
            share(|split| split.compute, &[0]),
            share(|split| split.wait, &[0]),
            share(|split| split.wait, &[6, 7]),
            share(|split| split.compute, &all),
            share(|split| split.wait, &all),
        ])
    });
    let draws = draws.into_iter().collect::<Result<Vec<_>>>()?;
    let of = |at: usize| interval(draws.iter().map(|draw| draw[at]).collect());
    let model = model(
        "event replay of a ring: softirq work stops the rank on core 0, the others wait for it",
        &[&GROMACS_COMPUTE, &PULSE, &IDLE],
    );
    let mean_rank = |at| vec![("the mean rank", of(at).into())];
    Ok(vec![
        model.predicts("gromacs/gain", of(0), vec![("the mapping is irrelevant", Statement::exactly(0.0))]),
        model.predicts("gromacs/compute/0", of(1), mean_rank(4)),
        model.predicts("gromacs/wait/0", of(2), mean_rank(5)),
        model.predicts("gromacs/wait/6,7", of(3), mean_rank(5)),
    ])
}

#[cfg(test)]
mod tests;
