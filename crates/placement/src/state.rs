//! An assignment under change: what each group would cost at each site given the others, kept up to date by rows.

use crate::model::Model;
use crate::packing::{Amounts, RESOURCES, add, fits, take};

#[derive(Clone)]
pub(crate) struct State<'m> {
    pub model: &'m Model,
    pub at: Vec<usize>,
    /// Cost of a group at a site with its channels, `groups x sites`; infinite where it may not be.
    pub marginal: Vec<f64>,
    pub used: Vec<Amounts>,
    /// Number of groups at each site.
    pub held: Vec<usize>,
    /// Excess of each site, in average groups.
    pub over: Vec<f64>,
    pub cost: f64,
    /// Sum of `over`; exactly 0 when everything fits.
    pub excess: f64,
    scale: [f64; RESOURCES],
    row: Vec<f64>,
    column: Vec<f64>,
}

impl<'m> State<'m> {
    pub fn new(model: &'m Model, at: Vec<usize>) -> Self {
        let packing = &model.packing;
        let (groups, sites) = (packing.groups, packing.sites);
        let mut scale = [0.0; RESOURCES];
        for group in 0..groups {
            for site in packing.domain(group) {
                for (sum, need) in scale.iter_mut().zip(packing.need[group * sites + site]) {
                    *sum += need as f64;
                }
            }
        }
        let allowed = packing.allowed.iter().filter(|a| **a).count() as f64;
        let scale = scale.map(|sum| if sum > 0.0 { allowed / sum } else { 0.0 });
        let mut state = State {
            model,
            at,
            marginal: model.unary.clone(),
            used: vec![[0; RESOURCES]; sites],
            held: vec![0; sites],
            over: vec![0.0; sites],
            cost: 0.0,
            excess: 0.0,
            scale,
            row: vec![0.0; sites],
            column: vec![0.0; sites],
        };
        state.refresh();
        state
    }

    /// Computes everything from `at`, without the rounding that many changes leave.
    pub fn refresh(&mut self) {
        let model = self.model;
        let sites = model.packing.sites;
        self.marginal.copy_from_slice(&model.unary);
        self.used.fill([0; RESOURCES]);
        self.held.fill(0);
        for group in 0..model.packing.groups {
            let site = self.at[group];
            add(&mut self.used[site], &model.packing.need[group * sites + site]);
            self.held[site] += 1;
            for arc in model.arcs(group) {
                let there = self.at[arc.other as usize];
                for here in 0..sites {
                    self.marginal[group * sites + here] += model.pair(arc, here, there);
                }
            }
        }
        for site in 0..sites {
            self.over[site] = self.overfull(site, &self.used[site]);
        }
        self.excess = self.over.iter().sum();
        self.cost = model.cost(&self.at);
    }

    pub fn restore(&mut self, at: &[usize]) {
        self.at.copy_from_slice(at);
        self.refresh();
    }

    #[inline]
    pub fn overfull(&self, site: usize, used: &Amounts) -> f64 {
        let room = &self.model.packing.room[site];
        if fits(used, room) {
            return 0.0;
        }
        (0..RESOURCES).map(|r| (used[r] - room[r]).max(0) as f64 * self.scale[r]).sum()
    }

    #[inline]
    pub fn need(&self, group: usize, site: usize) -> &Amounts {
        &self.model.packing.need[group * self.model.packing.sites + site]
    }

    /// Change of cost by a shift, without the opening of sites.
    #[inline]
    pub fn marginal_change(&self, group: usize, to: usize) -> f64 {
        let row = group * self.model.packing.sites;
        self.marginal[row + to] - self.marginal[row + self.at[group]]
    }

    #[inline]
    pub fn shift_cost(&self, group: usize, to: usize) -> f64 {
        let change = self.marginal_change(group, to);
        if self.model.opening.is_empty() { change } else { change + self.opening_change(self.at[group], to) }
    }

    /// Change of the opening cost by a group that goes from one site to another.
    fn opening_change(&self, from: usize, to: usize) -> f64 {
        if from == to {
            return 0.0;
        }
        let opened = if self.held[to] == 0 { self.model.opening[to] } else { 0.0 };
        let left = if self.held[from] == 1 { self.model.opening[from] } else { 0.0 };
        opened - left
    }

    #[inline]
    pub fn shift_fits(&self, group: usize, to: usize) -> bool {
        let mut used = self.used[to];
        add(&mut used, self.need(group, to));
        fits(&used, &self.model.packing.room[to])
    }

    #[inline]
    pub fn shift_excess(&self, group: usize, to: usize) -> f64 {
        let from = self.at[group];
        let mut there = self.used[to];
        add(&mut there, self.need(group, to));
        let mut change = self.overfull(to, &there) - self.over[to];
        if self.over[from] > 0.0 {
            let mut here = self.used[from];
            take(&mut here, self.need(group, from));
            change += self.overfull(from, &here) - self.over[from];
        }
        change
    }

    /// Change of cost by two groups at different sites that change places.
    #[inline]
    pub fn swap_cost(&self, g: usize, h: usize) -> f64 {
        let (a, b) = (self.at[g], self.at[h]);
        let mut cost = self.marginal_change(g, b) + self.marginal_change(h, a);
        if let Some(arc) = self.model.arc(g, h) {
            let model = self.model;
            cost += model.pair(arc, a, b) + model.pair(arc, b, a) - model.pair(arc, a, a) - model.pair(arc, b, b);
        }
        cost
    }

    #[inline]
    fn after_swap(&self, g: usize, h: usize) -> (Amounts, Amounts) {
        let (a, b) = (self.at[g], self.at[h]);
        let (mut here, mut there) = (self.used[a], self.used[b]);
        take(&mut here, self.need(g, a));
        add(&mut here, self.need(h, a));
        take(&mut there, self.need(h, b));
        add(&mut there, self.need(g, b));
        (here, there)
    }

    #[inline]
    pub fn swap_fits(&self, g: usize, h: usize) -> bool {
        let (here, there) = self.after_swap(g, h);
        let room = &self.model.packing.room;
        fits(&here, &room[self.at[g]]) && fits(&there, &room[self.at[h]])
    }

    #[inline]
    pub fn swap_excess(&self, g: usize, h: usize) -> f64 {
        let (here, there) = self.after_swap(g, h);
        let (a, b) = (self.at[g], self.at[h]);
        self.overfull(a, &here) + self.overfull(b, &there) - self.over[a] - self.over[b]
    }

    pub fn shift(&mut self, group: usize, to: usize) {
        let model = self.model;
        let sites = model.packing.sites;
        let from = self.at[group];
        self.cost += self.shift_cost(group, to);
        for s in 0..sites {
            self.row[s] = model.cross[to * sites + s] - model.cross[from * sites + s];
            self.column[s] = model.cross_t[to * sites + s] - model.cross_t[from * sites + s];
        }
        for arc in model.arcs(group) {
            let other = arc.other as usize * sites;
            let (f, b) = (arc.forward, arc.backward);
            // `group` is the near end: at `to` with the other end at s it costs f X[to][s] + b X[s][to].
            for ((cell, row), column) in self.marginal[other..other + sites].iter_mut().zip(&self.row).zip(&self.column)
            {
                *cell += f * row + b * column;
            }
        }
        let need = model.packing.need[group * sites + from];
        take(&mut self.used[from], &need);
        let need = model.packing.need[group * sites + to];
        add(&mut self.used[to], &need);
        self.held[from] -= 1;
        self.held[to] += 1;
        self.at[group] = to;
        for site in [from, to] {
            self.over[site] = self.overfull(site, &self.used[site]);
        }
        self.excess = if self.over.iter().all(|o| *o == 0.0) { 0.0 } else { self.over.iter().sum() };
    }

    pub fn swap(&mut self, g: usize, h: usize) {
        let (a, b) = (self.at[g], self.at[h]);
        self.shift(g, b);
        self.shift(h, a);
    }
}
