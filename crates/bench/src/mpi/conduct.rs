//! Starts of `mpirun` in rounds.

use std::ops::Range;

use machine::{Fault, Probe, Result, count};
use rounds::blocks::{self, Blocks, Series};
use rounds::bound::Verdict;
use rounds::clocks::Clocks;

use super::bench::Bench;
use super::block::{Block, Measured};
use super::contender::{Contender, Hosts, Seats};
use super::pattern::Task;
use super::targets;

const SEED: u64 = 0x0051_1A11_0000_0004;

/// Contenders at their places, with tasks and rounds.
#[derive(Debug, Clone)]
pub struct Plan {
    pub places: Vec<(Seats, Vec<Contender>)>,
    pub tasks: Vec<Task>,
    /// Number of blocks of each contender at each place.
    pub rounds: u32,
    /// Number of blocks with timed MPI calls of each contender, place and task.
    pub accounted_rounds: u32,
    /// Whether to measure only tasks that are targets of their place, and to end a place once its targets are decided.
    pub targets: bool,
}

impl Plan {
    /// Most starts of `mpirun`.
    pub fn starts(&self) -> usize {
        let contenders: usize = self.places.iter().map(|(_, contenders)| contenders.len()).sum();
        let timed =
            self.places.iter().flat_map(|(seats, all)| all.iter().map(|one| self.timed_tasks_of(*seats, one).count()));
        contenders * self.rounds as usize + timed.sum::<usize>() * self.accounted_rounds as usize
    }

    fn tasks_of(&self, seats: Seats, contender: &Contender) -> impl Iterator<Item = Task> {
        let wanted = move |task: &Task| !self.targets || targets::has(seats.hosts, task);
        self.tasks.iter().copied().filter(move |task| contender.can(&seats, task) && wanted(task))
    }

    /// Those whose MPI calls are timed.
    fn timed_tasks_of(&self, seats: Seats, contender: &Contender) -> impl Iterator<Item = Task> {
        self.tasks_of(seats, contender).filter(|task| task.pattern.is_divisible())
    }
}

/// Starts of `mpirun`, each with some of the tasks.
struct Starts<'a> {
    bench: &'a mut Bench,
    starts: Vec<(Seats, &'a Contender, Vec<Task>)>,
    accounted: bool,
}

impl Blocks for Starts<'_> {
    type Block = Block;

    fn block(&mut self, start: usize, _: u32) -> Result<Block> {
        let (seats, contender, tasks) = &self.starts[start];
        self.bench.run(contender, seats, tasks, self.accounted)
    }

    fn probe(&mut self, start: usize) -> Option<Probe> {
        let Seats { hosts, cores: (one, other), .. } = self.starts[start].0;
        // Cores of two nodes share no cache line.
        if hosts == Hosts::Nodes { None } else { crate::probe(one, other) }
    }

    fn clocks(&mut self, start: usize) -> Clocks {
        let Seats { hosts, cores: (one, other), .. } = self.starts[start].0;
        let here = [one, other].into_iter().take(if hosts == Hosts::Nodes { 1 } else { 2 });
        crate::clocks(here)
    }

    fn stopped(&self) -> bool {
        linux::signal::interrupted()
    }
}

/// Measures all of `plan`. A signal ends it early; results so far come back.
pub fn conduct(bench: &mut Bench, plan: &Plan) -> (Vec<Measured>, Result<()>) {
    let of_places = || plan.places.iter().flat_map(|(seats, all)| all.iter().map(move |one| (*seats, one)));
    let is_open = |group: Range<usize>, series: &[Series<Block>]| {
        let here = named(of_places().skip(group.start), series.to_vec());
        !plan.targets || targets::judge(&here).iter().any(|target| target.verdict == Verdict::CannotTell)
    };
    // One place after the other: repeated steering of the lab's receive processing would be part of the measurement.
    let groups: Vec<usize> = plan.places.iter().map(|(_, contenders)| contenders.len()).collect();
    let starts = of_places().map(|(seats, one)| (seats, one, plan.tasks_of(seats, one).collect())).collect();
    let whole = blocks::Plan { groups: groups.clone(), rounds: plan.rounds, seed: SEED };
    let mut runner = Starts { bench, starts, accounted: false };
    let (series, mut ended) = blocks::conduct(&mut runner, &whole, is_open);
    let mut all = named(of_places(), series);
    if ended && plan.accounted_rounds > 0 {
        // A contender without blocks gives none with timed calls either.
        let able: Vec<usize> = (0..all.len()).filter(|&nth| !all[nth].series.blocks.is_empty()).collect();
        let of_able = of_places().enumerate().filter(|(nth, _)| able.contains(nth)).map(|(_, start)| start);
        runner.starts = of_able
            .flat_map(|(seats, one)| plan.timed_tasks_of(seats, one).map(move |task| (seats, one, vec![task])))
            .collect();
        let tasks = |of: &Measured| plan.timed_tasks_of(of.seats, &of.contender).count();
        let of: Vec<usize> = able.iter().flat_map(|&nth| vec![nth; tasks(&all[nth])]).collect();
        runner.accounted = true;
        let mut first = 0;
        let groups = groups.iter().map(|contenders| {
            let here = first..first + contenders;
            first = here.end;
            of.iter().filter(|nth| here.contains(nth)).count()
        });
        let groups = groups.collect();
        let timed = blocks::Plan { groups, rounds: plan.accounted_rounds, seed: SEED + 1 };
        let (series, rest) = blocks::conduct(&mut runner, &timed, |_, _| true);
        ended = rest;
        for (nth, series) in series.into_iter().enumerate() {
            let of = &mut all[of[nth]];
            of.accounted.extend(series.blocks);
            of.series.failures.extend(series.failures);
        }
    }
    let done: usize = all.iter().map(|of| of.series.blocks.len() + of.accounted.len()).sum();
    let end = || {
        let cause = format!("a signal ended it after {done} of {}", count::of(plan.starts() as u64, "start"));
        Err(Fault::new("plimsoll bench mpi", cause, "run it again"))
    };
    (all, if ended { Ok(()) } else { end() })
}

fn named<'a>(of: impl Iterator<Item = (Seats, &'a Contender)>, series: Vec<Series<Block>>) -> Vec<Measured> {
    of.zip(series)
        .map(|((seats, contender), series)| Measured {
            seats,
            contender: contender.clone(),
            series,
            accounted: Vec::new(),
        })
        .collect()
}
