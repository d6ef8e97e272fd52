//! A lower bound on the cost of every assignment, and which sites it speaks for.
//!
//! Capacities are priced (Lagrangian relaxation: a price a site and resource, by subgradient); what remains is a
//! pairwise problem, bounded by moving cost between groups and pairs without changing any assignment's sum, one group
//! after the other, forwards and backwards (sequential reweighted message passing: Kolmogorov, TPAMI 2006 and 2015; as
//! soft arc consistency: Cooper et al., Artificial Intelligence 2010). What opening a site costs is shared out among groups,
//! which bounds it from below (Erlenkotter, Operations Research 1978). The bound is valid at the end of each pass.

use crate::model::Model;
use crate::packing::{Amounts, RESOURCES, fits};

#[derive(Clone)]
pub(crate) struct Dual<'m> {
    pub model: &'m Model,
    /// What every assignment costs at least, before capacities give their prices back.
    constant: f64,
    /// Remaining cost of each group at each site; infinite where the group cannot be. `groups x sites`.
    pub own: Vec<f64>,
    /// Cost moved to each pair, by the site of its first and of its second group. `edges x sites`.
    near: Vec<f64>,
    far: Vec<f64>,
    prices: Vec<[f64; RESOURCES]>,
    /// Share of each site's opening cost that each group pays, `groups x sites`; empty where all sites are free. The
    /// shares of a site add up to its opening cost, so that no assignment pays more.
    shares: Vec<f64>,
    /// The site of each group after the last pass.
    pub choice: Vec<usize>,
    /// Use of each site by the choices of the last passes, exponentially smoothed: the subgradient.
    usage: Vec<[f64; RESOURCES]>,
    /// What rounding in all passes may have added to the bound.
    rounding: f64,
}

/// Rounding errors of a pass, over the largest sum in it.
const ROUNDING: f64 = 8.0 * f64::EPSILON;
/// Most that a step of the prices moves the rent of a site and resource, in gaps: where use hardly exceeds the room, a step has no
/// other bound, and sums that large round off all costs.
const LONGEST_STEP: f64 = 100.0;

/// Cheapest site last seen and what the others cost beyond it, `groups x sites`; made by [`Dual::pass`] on request.
pub(crate) type Regrets = Vec<f64>;

impl<'m> Dual<'m> {
    pub fn new(model: &'m Model) -> Self {
        let (groups, sites) = (model.packing.groups, model.packing.sites);
        let mut own = model.unary.clone();
        let mut shares = vec![0.0; if model.opening.is_empty() { 0 } else { groups * sites }];
        for (site, opening) in model.opening.iter().enumerate() {
            let may = |group: &usize| model.packing.allowed[group * sites + site];
            let part = opening / (0..groups).filter(may).count().max(1) as f64;
            for group in (0..groups).filter(may) {
                shares[group * sites + site] = part;
                own[group * sites + site] += part;
            }
        }
        Dual {
            model,
            constant: 0.0,
            own,
            near: vec![0.0; model.edges.len() * sites],
            far: vec![0.0; model.edges.len() * sites],
            prices: vec![[0.0; RESOURCES]; sites],
            shares,
            choice: vec![usize::MAX; groups],
            usage: vec![[0.0; RESOURCES]; sites],
            rounding: 0.0,
        }
    }

    /// The lower bound, valid after a pass.
    pub fn bound(&self) -> f64 {
        self.constant - self.rent() - self.rounding
    }

    /// What the capacities give back of the prices.
    fn rent(&self) -> f64 {
        let mut rent = 0.0;
        for (price, room) in self.prices.iter().zip(&self.model.packing.room) {
            for r in (0..RESOURCES).filter(|&r| price[r] > 0.0) {
                rent += price[r] * room[r] as f64;
            }
        }
        rent
    }

    /// One sweep over all groups. Sites of a group that alone would lift the bound to `limit` are closed to it. `false`
    /// when a group has none left: then nothing below `limit` is left. `regrets`, of any length, gets the min-marginals.
    pub fn pass(&mut self, forwards: bool, limit: f64, mut regrets: Option<&mut Regrets>) -> bool {
        let model = self.model;
        let (groups, sites) = (model.packing.groups, model.packing.sites);
        let mut toll = vec![0.0; sites];
        let mut value = vec![0.0; sites];
        // The bound is known only where every group has been made non-negative since the last change of prices.
        let settled = self.own.iter().all(|&own| own >= 0.0);
        let rent = self.rent();
        self.rounding += ROUNDING * (self.constant.abs() + rent);
        let rent = rent + self.rounding;
        for step in 0..groups {
            let group = if forwards { step } else { groups - 1 - step };
            let row = group * sites;
            let (mut later, mut earlier) = (0usize, 0usize);
            for (arc, &edge) in model.arcs(group).iter().zip(model.edge_indices(group)) {
                let other = arc.other as usize;
                *(if (other > group) == forwards { &mut later } else { &mut earlier }) += 1;
                let edge = edge as usize * sites;
                let (here, there) = if group < other {
                    (&mut self.near[edge..edge + sites], &mut self.far[edge..edge + sites])
                } else {
                    (&mut self.far[edge..edge + sites], &mut self.near[edge..edge + sites])
                };
                for t in 0..sites {
                    value[t] = if self.own[other * sites + t] < f64::INFINITY { there[t] } else { f64::INFINITY };
                }
                cheapest(model, arc.forward, arc.backward, &value, &mut toll);
                for s in 0..sites {
                    let all = toll[s] + here[s];
                    self.own[row + s] += all;
                    here[s] = -toll[s];
                }
            }
            let own = &mut self.own[row..row + sites];
            let (mut least, mut choice) = (f64::INFINITY, usize::MAX);
            for (s, &cost) in own.iter().enumerate() {
                if cost < least {
                    (least, choice) = (cost, s);
                }
            }
            if choice == usize::MAX {
                return false;
            }
            self.choice[group] = choice;
            self.constant += least;
            let slack = if settled { limit - (self.constant - rent) } else { f64::INFINITY };
            for cost in own.iter_mut() {
                *cost -= least;
                if *cost > slack {
                    *cost = f64::INFINITY;
                }
            }
            if slack < 0.0 {
                return false;
            }
            if let Some(regrets) = &mut regrets {
                regrets[row..row + sites].copy_from_slice(own);
            }
            if later == 0 {
                continue;
            }
            let part = 1.0 / later.max(earlier) as f64;
            let kept = 1.0 - part * later as f64;
            for (arc, &edge) in model.arcs(group).iter().zip(model.edge_indices(group)) {
                let other = arc.other as usize;
                if (other > group) != forwards {
                    continue;
                }
                let edge = edge as usize * sites;
                let here = if group < other { &mut self.near } else { &mut self.far };
                for (here, &own) in here[edge..edge + sites].iter_mut().zip(own.iter()) {
                    *here += if own < f64::INFINITY { own * part } else { 0.0 };
                }
            }
            for own in own.iter_mut() {
                *own = if *own < f64::INFINITY { *own * kept.max(0.0) } else { f64::INFINITY };
            }
        }
        true
    }

    /// Moves the prices towards where the choices of the last pass fit. `gap`: how far the bound may be from the best.
    pub fn reprice(&mut self, gap: f64, pace: f64) {
        let model = self.model;
        let packing = &model.packing;
        let sites = packing.sites;
        let mut used = vec![[0.0; RESOURCES]; sites];
        for (group, &site) in self.choice.iter().enumerate() {
            for (used, need) in used[site].iter_mut().zip(packing.need[group * sites + site]) {
                *used += need as f64;
            }
        }
        let fresh = self.usage.iter().flatten().all(|&u| u == 0.0);
        let keep = if fresh { 0.0 } else { 0.6 };
        let mut slope = vec![[0.0; RESOURCES]; sites];
        let (mut steepness, mut steepest) = (0.0, 0.0f64);
        for site in 0..sites {
            for r in 0..RESOURCES {
                let usage = &mut self.usage[site][r];
                *usage = keep * *usage + (1.0 - keep) * used[site][r];
                let room = packing.room[site][r];
                if room == i64::MAX || room == 0 {
                    continue;
                }
                // Relative to the room, so that bytes and nanoseconds weigh alike.
                let excess = (*usage - room as f64) / room as f64;
                if excess > 0.0 || self.prices[site][r] > 0.0 {
                    slope[site][r] = excess;
                    steepness += excess * excess;
                    steepest = steepest.max(excess.abs());
                }
            }
        }
        if steepness == 0.0 {
            return;
        }
        let stride = (pace * gap.max(0.0) / steepness).min(LONGEST_STEP * gap.max(0.0) / steepest);
        let mut change = vec![[0.0; RESOURCES]; sites];
        for site in 0..sites {
            for r in (0..RESOURCES).filter(|&r| slope[site][r] != 0.0) {
                let price = &mut self.prices[site][r];
                let new = (*price + stride * slope[site][r] / packing.room[site][r] as f64).max(0.0);
                change[site][r] = new - *price;
                *price = new;
            }
        }
        for (own, need) in self.own.chunks_mut(sites).zip(packing.need.chunks(sites)) {
            for ((own, need), change) in own.iter_mut().zip(need).zip(&change).filter(|((own, _), _)| own.is_finite()) {
                *own += (0..RESOURCES).map(|r| change[r] * need[r] as f64).sum::<f64>();
            }
        }
    }

    /// Moves what opening a site costs to the groups that chose it in the last pass, by this part; all of it to one that
    /// has no other site left.
    pub fn share(&mut self, part: f64) {
        let model = self.model;
        let (groups, sites) = (model.packing.groups, model.packing.sites);
        for (site, &opening) in model.opening.iter().enumerate().filter(|(_, opening)| **opening > 0.0) {
            let bound = (0..groups).find(|&group| self.only(group) == Some(site));
            let chosen = (0..groups).filter(|&group| self.choice[group] == site).count();
            if bound.is_none() && chosen == 0 {
                continue;
            }
            for group in 0..groups {
                let at = group * sites + site;
                let new = match bound {
                    Some(bound) => {
                        if bound == group {
                            opening
                        } else {
                            0.0
                        }
                    }
                    None => {
                        let due = if self.choice[group] == site { opening / chosen as f64 } else { 0.0 };
                        self.shares[at] + part * (due - self.shares[at])
                    }
                };
                if self.own[at].is_finite() {
                    self.own[at] += new - self.shares[at];
                }
                self.shares[at] = new;
            }
        }
    }

    /// The only site that is left to the group, if it is one.
    pub fn only(&self, group: usize) -> Option<usize> {
        let sites = self.model.packing.sites;
        let mut open = (0..sites).filter(|s| self.own[group * sites + s] < f64::INFINITY);
        let site = open.next()?;
        open.next().is_none().then_some(site)
    }

    pub fn close(&mut self, group: usize, site: usize) {
        self.own[group * self.model.packing.sites + site] = f64::INFINITY;
    }

    pub fn is_open(&self, group: usize, site: usize) -> bool {
        self.own[group * self.model.packing.sites + site] < f64::INFINITY
    }

    /// Closes sites that would be overfull beside the groups that have only them; until nothing changes. `false` when
    /// those alone are too many, or a group has no site left.
    pub fn propagate(&mut self) -> bool {
        let packing = &self.model.packing;
        let sites = packing.sites;
        loop {
            let only: Vec<Option<usize>> = (0..packing.groups).map(|g| self.only(g)).collect();
            let mut used: Vec<Amounts> = vec![[0; RESOURCES]; sites];
            for (group, site) in only.iter().enumerate() {
                if let Some(site) = *site {
                    crate::packing::add(&mut used[site], &packing.need[group * sites + site]);
                }
            }
            if !used.iter().zip(&packing.room).all(|(used, room)| fits(used, room)) {
                return false;
            }
            let mut closed = false;
            for group in (0..packing.groups).filter(|&g| only[g].is_none()) {
                let mut open = 0;
                for (site, used) in used.iter().enumerate() {
                    if !self.is_open(group, site) {
                        continue;
                    }
                    let mut there = *used;
                    crate::packing::add(&mut there, &packing.need[group * sites + site]);
                    if fits(&there, &packing.room[site]) {
                        open += 1;
                    } else {
                        self.close(group, site);
                        closed = true;
                    }
                }
                if open == 0 {
                    return false;
                }
            }
            if !closed {
                return true;
            }
        }
    }
}

/// `into[s]`: the least over t of what the pair costs with this end at s and the other at t, plus `value[t]`.
fn cheapest(model: &Model, forward: f64, backward: f64, value: &[f64], into: &mut [f64]) {
    let sites = value.len();
    into.fill(f64::INFINITY);
    for (t, &value) in value.iter().enumerate().filter(|(_, v)| **v < f64::INFINITY) {
        let to = &model.cross_t[t * sites..(t + 1) * sites];
        let back = &model.cross[t * sites..(t + 1) * sites];
        for ((into, to), back) in into.iter_mut().zip(to).zip(back) {
            let cost = forward * to + backward * back + value;
            *into = if cost < *into { cost } else { *into };
        }
    }
}
