//! The search for a cheap assignment: greedy starts, annealing by shifts and swaps with capacities as a penalty that
//! adapts, then descent. All costs are differences read from [`State::marginal`].

use crate::dual::Dual;
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
/// The annealings: share of the steps, and first temperature in mean changes.
const RUNS: [(f64, f64); 2] = [(0.6, 0.05), (0.25, 0.03)];
/// The last temperature of each annealing.
const COOLED: f64 = 5e-4;
/// Steps that a shift counts which is carried out; one that is only looked at counts 1.
const SHIFT_STEPS: u64 = 3;
/// The part of a site's opening cost that goes to the groups that chose it, in each pass.
pub(crate) const SHARED: f64 = 0.1;
/// Number of groups that move together, at most one more.
const FLOCK: usize = 6;

pub(crate) fn search(model: &Model, effort: &Effort) -> Found {
    let packing = &model.packing;
    if (0..packing.groups).any(|g| packing.domain(g).next().is_none()) {
        return Found::Nothing;
    }
    if packing.groups == 0 {
        return Found::Assignment(Vec::new());
    }
    // Costs no effort where a contradiction shows at once.
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
    /// Groups that may be at more than one site.
    free: Vec<u32>,
    logs: Vec<f64>,
    flock: Vec<usize>,
}

impl<'m, 'e> Search<'m, 'e> {
    fn new(model: &'m Model, effort: &'e Effort<'e>) -> Self {
        let packing = &model.packing;
        let domains: Vec<Vec<u32>> =
            (0..packing.groups).map(|g| packing.domain(g).map(|s| s as u32).collect()).collect();
        let free = (0..packing.groups as u32).filter(|&g| domains[g as usize].len() > 1).collect();
        let logs = (0..LOGS).map(|i| -((i as f64 + 0.5) / LOGS as f64).ln()).collect();
        let state = State::new(model, greedy(model));
        Search { state, random: Random::new(effort.seed), effort, best: None, domains, free, logs, flock: Vec::new() }
    }

    fn run(&mut self) {
        self.descend();
        self.keep();
        if self.free.is_empty() || self.guide() {
            return;
        }
        for (share, heat) in RUNS {
            if self.effort.stopped() {
                return;
            }
            if let Some((_, at)) = &self.best {
                let at = at.clone();
                self.state.restore(&at);
            }
            self.anneal((self.proposals() * share) as u64, heat);
            if let Some((_, at)) = &self.best {
                let at = at.clone();
                self.state.restore(&at);
            }
            self.descend();
            self.keep();
        }
    }

    /// Starts from the sites that the lower bound points at, and leaves out those that it rules out. True: the
    /// assignment kept is optimal.
    fn guide(&mut self) -> bool {
        let model = self.state.model;
        let (groups, sites) = (model.packing.groups, model.packing.sites);
        // A pass costs about as much as this many steps.
        let work = 1 + (groups * sites) as u64 / 8 + (model.edges.len() * sites * sites) as u64 / 40;
        let passes = (self.effort.steps / 6 / work).clamp(2, 60);
        let mut dual = Dual::new(model);
        let mut regrets = vec![0.0; groups * sites];
        let mut best = 0.0f64;
        let mut pace = 1.0;
        for pass in 0..passes {
            if self.effort.stopped() {
                return false;
            }
            let upper = self.best.as_ref().map_or(f64::INFINITY, |(cost, _)| *cost);
            let limit = upper - 1e-9 * upper.abs();
            if !dual.pass(pass % 2 == 0, limit, Some(&mut regrets)) {
                return self.best.is_some();
            }
            if pass % 20 == 19 || pass + 1 == passes {
                self.state.restore(&dual.choice);
                self.mend();
                self.descend();
                self.keep();
            }
            let bound = dual.bound();
            if bound <= best {
                pace *= 0.9;
            }
            best = best.max(bound);
            let upper = self.best.as_ref().map_or(2.0 * best.max(1e-6), |(cost, _)| *cost);
            if bound >= upper - 1e-9 * upper.abs() {
                return self.best.is_some();
            }
            dual.reprice(upper - bound, pace);
            dual.share(SHARED * pace);
        }
        for group in 0..groups {
            self.domains[group].retain(|&site| dual.is_open(group, site as usize));
            if self.domains[group].is_empty() {
                return self.best.is_some();
            }
        }
        self.free = (0..groups as u32).filter(|&g| self.domains[g as usize].len() > 1).collect();
        self.free.is_empty()
    }

    /// Shifts out of overfull sites, each time the one with the least cost for the excess that it takes away.
    fn mend(&mut self) {
        let groups = self.state.model.packing.groups;
        for _ in 0..2 * groups {
            if self.state.excess == 0.0 {
                return;
            }
            let mut best = (f64::INFINITY, 0, 0);
            for group in (0..groups).filter(|&g| self.state.over[self.state.at[g]] > 0.0) {
                for &to in &self.domains[group] {
                    let to = to as usize;
                    if to == self.state.at[group] {
                        continue;
                    }
                    let relief = -self.state.shift_excess(group, to);
                    if relief > 1e-12 {
                        let rate = self.state.shift_cost(group, to) / relief;
                        if rate < best.0 {
                            best = (rate, group, to);
                        }
                    }
                }
            }
            if best.0 == f64::INFINITY {
                return;
            }
            self.state.shift(best.1, best.2);
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
            let change = self.state.marginal_change(group, to).abs();
            if change > 0.0 {
                sum += change;
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 1e-9 }
    }

    /// Number of proposals that the effort pays for: each looks at every channel of what it moves.
    fn proposals(&self) -> f64 {
        let model = self.state.model;
        let channels = 2.0 * model.edges.len() as f64 / model.packing.groups as f64;
        self.effort.steps as f64 * (8.0 / (6.0 + channels)).min(1.0)
    }

    fn anneal(&mut self, steps: u64, heat: f64) {
        if self.free.is_empty() {
            return;
        }
        let hot = self.warmth() * heat;
        let cold = hot * COOLED / heat;
        let batches = (steps / BATCH).max(1);
        let cooling = (cold / hot).powf(1.0 / batches as f64);
        let mut temperature = hot;
        let mut penalty = hot * 2.0;
        for batch in 0..batches {
            let mut spent = 0;
            while spent < BATCH {
                spent += self.step(temperature, penalty);
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

    /// One proposal; returns what it cost in steps.
    #[inline]
    fn step(&mut self, temperature: f64, penalty: f64) -> u64 {
        let bits = self.random.next();
        let group = self.free[((bits >> 48) as usize * self.free.len()) >> 16] as usize;
        let limit = temperature * self.logs[(bits & (LOGS as u64 - 1)) as usize];
        let pick = (bits >> 32 & 0xffff) as usize;
        let kind = bits >> 12 & 15;
        let model = self.state.model;
        let sites = model.packing.sites;
        if kind < 8 {
            let arcs = model.arcs(group);
            let to = if kind < 3 && !arcs.is_empty() {
                self.state.at[arcs[(pick * arcs.len()) >> 16].other as usize]
            } else {
                let domain = &self.domains[group];
                domain[(pick * domain.len()) >> 16] as usize
            };
            if to == self.state.at[group] {
                return 1;
            }
            let change = self.state.shift_cost(group, to);
            if change > limit + penalty * self.state.excess {
                return 1;
            }
            if change + penalty * self.state.shift_excess(group, to) <= limit {
                self.state.shift(group, to);
                self.keep();
                return SHIFT_STEPS;
            }
            return 1;
        }
        if kind < 15 {
            let other = self.free[(pick * self.free.len()) >> 16] as usize;
            let (a, b) = (self.state.at[group], self.state.at[other]);
            if a == b || !model.packing.allowed[group * sites + b] || !model.packing.allowed[other * sites + a] {
                return 1;
            }
            let change = self.state.swap_cost(group, other);
            if change > limit + penalty * self.state.excess {
                return 1;
            }
            if change + penalty * self.state.swap_excess(group, other) <= limit {
                self.state.swap(group, other);
                self.keep();
                return 2 * SHIFT_STEPS;
            }
            return 1;
        }
        self.flock_step(group, pick, limit, penalty)
    }

    /// Groups that talk and are together move together: alone each would first have to part from the others.
    fn flock_step(&mut self, group: usize, pick: usize, limit: f64, penalty: f64) -> u64 {
        let model = self.state.model;
        let sites = model.packing.sites;
        let from = self.state.at[group];
        let domain = &self.domains[group];
        let mut to = domain[(pick * domain.len()) >> 16] as usize;
        let mut coins = self.random.next();
        self.flock.clear();
        self.flock.push(group);
        let most = 2 + (coins >> 60) as usize % FLOCK;
        let mut next = 0;
        while next < self.flock.len() && self.flock.len() < most {
            for arc in model.arcs(self.flock[next]) {
                let other = arc.other as usize;
                if self.state.at[other] != from {
                    if coins & 7 == 7 {
                        // The new site is that of a neighbour.
                        to = self.state.at[other];
                    }
                } else if coins & 3 != 0 && self.flock.len() < most && !self.flock.contains(&other) {
                    self.flock.push(other);
                }
                coins = coins.rotate_right(3);
            }
            next += 1;
        }
        if to == from || self.flock.iter().any(|&g| !model.packing.allowed[g * sites + to]) {
            return 4;
        }
        let (cost, excess) = (self.state.cost, self.state.excess);
        for i in 0..self.flock.len() {
            self.state.shift(self.flock[i], to);
        }
        let change = self.state.cost - cost + penalty * (self.state.excess - excess);
        if change <= limit {
            self.keep();
        } else {
            for i in 0..self.flock.len() {
                self.state.shift(self.flock[i], from);
            }
        }
        2 * SHIFT_STEPS * self.flock.len() as u64
    }

    /// Makes shifts and swaps that lower the cost and keep every site within its room, until none is left.
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
            if !moved && !self.resite() {
                self.state.refresh();
                return;
            }
        }
    }

    /// Opens or leaves a whole site where that is cheaper: one group after the other would first have to pay for it alone.
    fn resite(&mut self) -> bool {
        let model = self.state.model;
        let tiny = 1e-12 * (1.0 + self.state.cost.abs());
        for site in (0..model.opening.len()).filter(|&site| model.opening[site] > 0.0) {
            let before = (self.state.cost, self.state.excess);
            let mut journal: Vec<(usize, usize)> = Vec::new();
            let leaves = self.state.held[site] > 0;
            for i in 0..self.free.len() {
                let group = self.free[i] as usize;
                let here = self.state.at[group];
                let to = if leaves && here == site {
                    let others = self.domains[group].iter().map(|&to| to as usize);
                    let others = others.filter(|&to| to != site && self.state.shift_fits(group, to));
                    others.min_by(|&a, &b| self.state.shift_cost(group, a).total_cmp(&self.state.shift_cost(group, b)))
                } else {
                    let may = !leaves && self.domains[group].contains(&(site as u32));
                    let gains = may && self.state.marginal_change(group, site) < -tiny;
                    (gains && self.state.shift_fits(group, site)).then_some(site)
                };
                if let Some(to) = to {
                    journal.push((group, here));
                    self.state.shift(group, to);
                }
            }
            if self.state.cost < before.0 - tiny && self.state.excess <= before.1 {
                return true;
            }
            for (group, from) in journal.into_iter().rev() {
                self.state.shift(group, from);
            }
        }
        false
    }
}

/// Greedy start: the largest group first, to the cheapest site with room, else to the one that is overfull least.
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
                if !at.contains(&site) {
                    cost += model.opening.get(site).copied().unwrap_or(0.0);
                }
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
