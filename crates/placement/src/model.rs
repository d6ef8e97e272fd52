//! A layout as the search wants it: Pull groups merged, costs in flat tables, channels between groups added up.

use crate::layout::{Layout, Place};
use crate::packing::Packing;

/// Channels between two groups: `a` at site s and `b` at site t cost `forward * X[s][t] + backward * X[t][s]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub a: u32,
    pub b: u32,
    pub forward: f64,
    pub backward: f64,
}

/// An edge seen from one end: the group itself at s, `other` at t.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arc {
    pub other: u32,
    pub forward: f64,
    pub backward: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub packing: Packing,
    /// Cost of each group at each site, `groups x sites`; infinite where the group may not be.
    pub unary: Vec<f64>,
    pub edges: Vec<Edge>,
    first: Vec<u32>,
    arcs: Vec<Arc>,
    edge_of: Vec<u32>,
    /// Bit matrix of the pairs of groups that have an arc, `groups x groups`: most pairs have none.
    joined: Vec<u64>,
    /// Seconds a message, `sites x sites`, and transposed.
    pub cross: Vec<f64>,
    pub cross_t: Vec<f64>,
    /// Opening cost of each site; empty where all are free.
    pub opening: Vec<f64>,
}

/// The weight of a unit's work: 1 at priority 100.
pub(crate) fn weight(priority: u32) -> f64 {
    f64::from(priority) / 100.0
}

/// The weight of a channel: that of its weightier end, since a wait there delays that end.
pub(crate) fn channel_weight(layout: &Layout, channel: &crate::layout::Crossing) -> f64 {
    weight(layout.units[channel.from.0].priority.max(layout.units[channel.to.0].priority))
}

impl Model {
    /// The model of a checked layout.
    pub fn of(layout: &Layout) -> Self {
        let packing = Packing::of(layout, |_| true);
        let (groups, sites) = (packing.groups, packing.sites);
        let mut unary = vec![0.0; groups * sites];
        for (unit, &group) in packing.group_of.iter().enumerate() {
            let unit = &layout.units[unit];
            for (site, place) in unit.places.iter().enumerate() {
                if let Place::Possible(load) = place {
                    unary[group * sites + site] += weight(unit.priority) * layout.sites[site].price * load.0;
                }
            }
        }
        let cross: Vec<f64> = layout.crossing_ns.iter().flatten().map(|ns| ns * 1e-9).collect();
        let cross_t = (0..sites * sites).map(|i| cross[i % sites * sites + i / sites]).collect();
        let mut between = std::collections::BTreeMap::<(u32, u32), (f64, f64)>::new();
        for channel in &layout.channels {
            let weight = channel_weight(layout, channel) * channel.rate;
            let (a, b) = (packing.group_of[channel.from.0], packing.group_of[channel.to.0]);
            if a == b {
                for site in 0..sites {
                    unary[a * sites + site] += weight * cross[site * sites + site];
                }
            } else if weight > 0.0 {
                let sum = between.entry((a.min(b) as u32, a.max(b) as u32)).or_default();
                *(if a < b { &mut sum.0 } else { &mut sum.1 }) += weight;
            }
        }
        for (cost, &allowed) in unary.iter_mut().zip(&packing.allowed) {
            if !allowed {
                *cost = f64::INFINITY;
            }
        }
        let edges: Vec<Edge> =
            between.into_iter().map(|((a, b), (forward, backward))| Edge { a, b, forward, backward }).collect();
        let mut of_group: Vec<Vec<(Arc, u32)>> = vec![Vec::new(); groups];
        for (index, e) in edges.iter().enumerate() {
            let index = index as u32;
            of_group[e.a as usize].push((Arc { other: e.b, forward: e.forward, backward: e.backward }, index));
            of_group[e.b as usize].push((Arc { other: e.a, forward: e.backward, backward: e.forward }, index));
        }
        let mut joined = vec![0; (groups * groups).div_ceil(64)];
        for (a, b) in edges.iter().flat_map(|e| [(e.a, e.b), (e.b, e.a)]) {
            let bit = a as usize * groups + b as usize;
            joined[bit / 64] |= 1 << (bit % 64);
        }
        let mut first = vec![0];
        let (mut arcs, mut edge_of) = (Vec::new(), Vec::new());
        for list in of_group {
            arcs.extend(list.iter().map(|(arc, _)| *arc));
            edge_of.extend(list.iter().map(|(_, edge)| *edge));
            first.push(arcs.len() as u32);
        }
        let free = layout.sites.iter().all(|candidate| candidate.opening == 0.0);
        let opening = if free { Vec::new() } else { layout.sites.iter().map(|candidate| candidate.opening).collect() };
        Model { packing, unary, edges, first, arcs, edge_of, joined, cross, cross_t, opening }
    }

    #[inline]
    pub fn arcs(&self, group: usize) -> &[Arc] {
        &self.arcs[self.first[group] as usize..self.first[group + 1] as usize]
    }

    /// The arc from one group to another.
    #[inline]
    pub fn arc(&self, group: usize, other: usize) -> Option<&Arc> {
        let bit = group * self.packing.groups + other;
        if self.joined[bit / 64] >> (bit % 64) & 1 == 0 {
            return None;
        }
        // Edges are sorted, and so are each group's arcs.
        let arcs = self.arcs(group);
        arcs.binary_search_by_key(&(other as u32), |arc| arc.other).ok().map(|at| &arcs[at])
    }

    /// The index in `edges` of each arc of the group.
    #[inline]
    pub fn edge_indices(&self, group: usize) -> &[u32] {
        &self.edge_of[self.first[group] as usize..self.first[group + 1] as usize]
    }

    #[inline]
    pub fn pair(&self, arc: &Arc, here: usize, there: usize) -> f64 {
        let sites = self.packing.sites;
        arc.forward * self.cross[here * sites + there] + arc.backward * self.cross[there * sites + here]
    }

    /// Cost of a whole assignment of groups, summed afresh.
    pub fn cost(&self, at: &[usize]) -> f64 {
        let sites = self.packing.sites;
        let work: f64 = at.iter().enumerate().map(|(group, site)| self.unary[group * sites + site]).sum();
        let crossings: f64 = self
            .edges
            .iter()
            .map(|e| {
                let (s, t) = (at[e.a as usize], at[e.b as usize]);
                e.forward * self.cross[s * sites + t] + e.backward * self.cross[t * sites + s]
            })
            .sum();
        let opened = self.opening.iter().enumerate().filter(|(site, _)| at.contains(site));
        work + crossings + opened.map(|(_, opening)| opening).sum::<f64>()
    }
}
