//! The search for a cheap assignment: greedy starts, annealing by shifts and swaps with capacities as a penalty that
//! adapts, then descent. All costs are differences read from [`State::marginal`].

use crate::effort::{Effort, Random};
use crate::feasible::{self, Verdict};
use crate::model::Model;
use crate::packing::{RESOURCES, add, fits};
use crate::state::State;

pub(crate) enum Found {
    /// A site for each group.
    Assignment(Vec<usize>),
    Nothing,
    Unknown,
}

/// Nodes that the exact search for anything that fits may visit when annealing found nothing, a step of effort each 20.
const STEPS_A_NODE: u64 = 20;
const BATCH: u64 = 256;
const LOGS: usize = 4096;

pub(crate) fn search(model: &Model, effort: &Effort) -> Found {
    let packing = &model.packing;
    if (0..packing.groups).any(|g| packing.domain(g).next().is_none()) {
        return Found::Nothing;
    }
    if packing.groups == 0 {
        return Found::Assignment(Vec::new());
    }
    // Free when there is a quick contradiction.
    if let Verdict::Nothing = feasible::decide(packing, &mut 1) {
        return Found::Nothing;
    }
    let mut search = Search::new(model, effort);
    search.run();
    if search.best.is_none() {
        let mut nodes = (effort.steps / STEPS_A_NODE).max(10_000);
        match feasible::decide(packing, &mut nodes) {
            Verdict::Nothing => return Found::Nothing,
            Verdict::Unknown => return Found::Unknown,
            Verdict::Fits(at) => {
                search.state.restore(&at);
                search.descend();
                search.keep();
            }
        }
    }
    match search.best {
        Some((_, at)) => Found::Assignment(at),
        None => Found::Unknown,
    }
}

pub(crate) struct Search<'m, 'e> {
    state: State<'m>,
    random: Random,
    effort: &'e Effort<'e>,
    best: Option<(f64, Vec<usize>)>,
    /// Sites that each group may be at.
    domains: Vec<Vec<u32>>,
    /// Groups with a choice.
    free: Vec<u32>,
    logs: Vec<f64>,
}

impl<'m, 'e> Search<'m, 'e> {
    fn new(model: &'m Model, effort: &'e Effort<'e>) -> Self {
        let packing = &model.packing;
        let domains: Vec<Vec<u32>> =
            (0..packing.groups).map(|g| packing.domain(g).map(|s| s as u32).collect()).collect();
        let free = (0..packing.groups as u32).filter(|&g| domains[g as usize].len() > 1).collect();
        let logs = (0..LOGS).map(|i| -((i as f64 + 0.5) / LOGS as f64).ln()).collect();
        let state = State::new(model, greedy(model));
        Search { state, random: Random::new(effort.seed), effort, best: None, domains, free, logs }
    }

    fn run(&mut self) {
        self.descend();
        self.keep();
        if self.free.is_empty() {
            return;
        }
        let runs = 2;
        for run in 0..runs {
            if self.effort.stopped() {
                return;
            }
            if run > 0
                && let Some((_, at)) = &self.best
            {
                let at = at.clone();
                self.state.restore(&at);
            }
            self.anneal(self.effort.steps / runs, if run == 0 { 1.0 } else { 0.2 });
            if let Some((_, at)) = &self.best {
                let at = at.clone();
                self.state.restore(&at);
            }
            self.descend();
            self.keep();
        }
    }

    fn keep(&mut self) {
        if self.state.excess == 0.0 && self.best.as_ref().is_none_or(|(cost, _)| self.state.cost < *cost) {
            match &mut self.best {
                Some((cost, at)) => {
                    *cost = self.state.cost;
                    at.copy_from_slice(&self.state.at);
                }
                None => self.best = Some((self.state.cost, self.state.at.clone())),
            }
        }
    }

    /// The mean size of a change, which is where annealing starts.
    fn warmth(&mut self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for _ in 0..1000 {
            let group = self.free[self.random.below(self.free.len())] as usize;
            let domain = &self.domains[group];
            let to = domain[self.random.below(domain.len())] as usize;
            let change = self.state.shift_cost(group, to).abs();
            if change > 0.0 {
                sum += change;
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 1e-9 }
    }

    fn anneal(&mut self, steps: u64, heat: f64) {
        let hot = self.warmth() * 0.5 * heat;
        let cold = hot * 2e-3 / heat;
        let batches = (steps / BATCH).max(1);
        let cooling = (cold / hot).powf(1.0 / batches as f64);
        let mut temperature = hot;
        let mut penalty = hot * 2.0;
        for batch in 0..batches {
            for _ in 0..BATCH {
                let bits = self.random.next();
                let group = self.free[((bits >> 48) as usize * self.free.len()) >> 16] as usize;
                let limit = temperature * self.logs[(bits & (LOGS as u64 - 1)) as usize];
                if bits & (1 << 12) == 0 {
                    let domain = &self.domains[group];
                    let to = domain[((bits >> 32 & 0xffff) as usize * domain.len()) >> 16] as usize;
                    if to == self.state.at[group] {
                        continue;
                    }
                    let change = self.state.shift_cost(group, to);
                    if change > limit + penalty * self.state.excess {
                        continue;
                    }
                    if change + penalty * self.state.shift_excess(group, to) <= limit {
                        self.state.shift(group, to);
                        self.keep();
                    }
                } else {
                    let other = self.free[((bits >> 32 & 0xffff) as usize * self.free.len()) >> 16] as usize;
                    let sites = self.state.model.packing.sites;
                    let (a, b) = (self.state.at[group], self.state.at[other]);
                    if a == b
                        || !self.state.model.packing.allowed[group * sites + b]
                        || !self.state.model.packing.allowed[other * sites + a]
                    {
                        continue;
                    }
                    let change = self.state.swap_cost(group, other);
                    if change > limit + penalty * self.state.excess {
                        continue;
                    }
                    if change + penalty * self.state.swap_excess(group, other) <= limit {
                        self.state.swap(group, other);
                        self.keep();
                    }
                }
            }
            temperature *= cooling;
            if self.state.excess > 0.0 {
                penalty *= 1.1;
            } else {
                penalty = (penalty / 1.05).max(temperature);
            }
            if batch % 64 == 63 && self.effort.stopped() {
                break;
            }
        }
    }

    /// Shifts and swaps that make it cheaper and keep what fits fitting, until there is none.
    fn descend(&mut self) {
        let sites = self.state.model.packing.sites;
        let tiny = 1e-12 * (1.0 + self.state.cost.abs());
        loop {
            let mut moved = false;
            for i in 0..self.free.len() {
                let group = self.free[i] as usize;
                let mut best = (-tiny, usize::MAX);
                for &to in &self.domains[group] {
                    let change = self.state.shift_cost(group, to as usize);
                    if change < best.0 && self.state.shift_excess(group, to as usize) <= 0.0 {
                        best = (change, to as usize);
                    }
                }
                if best.1 != usize::MAX {
                    self.state.shift(group, best.1);
                    moved = true;
                }
                for &other in &self.free[i + 1..] {
                    let other = other as usize;
                    let (a, b) = (self.state.at[group], self.state.at[other]);
                    if a != b
                        && self.state.model.packing.allowed[group * sites + b]
                        && self.state.model.packing.allowed[other * sites + a]
                        && self.state.swap_cost(group, other) < -tiny
                        && self.state.swap_excess(group, other) <= 0.0
                    {
                        self.state.swap(group, other);
                        moved = true;
                    }
                }
            }
            if !moved {
                self.state.refresh();
                return;
            }
        }
    }
}

/// Largest first, each where it is cheapest among the sites that hold it; where none does, where least is too much.
fn greedy(model: &Model) -> Vec<usize> {
    let packing = &model.packing;
    let sites = packing.sites;
    let mut order: Vec<usize> = (0..packing.groups).collect();
    let share = |g: usize| -> f64 {
        packing
            .domain(g)
            .map(|s| {
                let (need, room) = (&packing.need[g * sites + s], &packing.room[s]);
                (0..RESOURCES).map(|r| need[r] as f64 / room[r].max(1) as f64).fold(0.0, f64::max)
            })
            .fold(0.0, f64::max)
    };
    let shares: Vec<f64> = (0..packing.groups).map(share).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
    let mut at = vec![usize::MAX; packing.groups];
    let mut used = vec![[0; RESOURCES]; sites];
    for group in order {
        let mut best: Option<((bool, f64), usize)> = None;
        for site in packing.domain(group) {
            let mut there = used[site];
            add(&mut there, &packing.need[group * sites + site]);
            let overfull = !fits(&there, &packing.room[site]);
            let measure = if overfull {
                let room = &packing.room[site];
                (0..RESOURCES).map(|r| (there[r] - room[r]).max(0) as f64 / room[r].max(1) as f64).sum()
            } else {
                let mut cost = model.unary[group * sites + site];
                for arc in model.arcs(group) {
                    if at[arc.other as usize] != usize::MAX {
                        cost += model.pair(arc, site, at[arc.other as usize]);
                    }
                }
                cost
            };
            let key = (overfull, measure);
            if best.is_none_or(|(other, _)| (!key.0 && other.0) || key.0 == other.0 && key.1 < other.1) {
                best = Some((key, site));
            }
        }
        let site = best.expect("a domain that is not empty").1;
        at[group] = site;
        add(&mut used[site], &packing.need[group * sites + site]);
    }
    at
}
