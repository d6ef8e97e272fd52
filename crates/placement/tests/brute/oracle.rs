//! What the words of the model mean, written as plainly as possible and sharing nothing with the solver.

use std::collections::BTreeSet;

use machine::Site;
use placement::layout::{Demand, Layout, Place, Resource, SiteIndex, Tie};

/// All demands of a layout.
pub fn demands(layout: &Layout) -> Vec<Demand> {
    let mut all: Vec<Demand> = (0..layout.constraints.len()).map(Demand::Tie).collect();
    for (u, unit) in layout.units.iter().enumerate() {
        for (s, place) in unit.places.iter().enumerate() {
            if matches!(place, Place::Impossible(_)) {
                all.push(Demand::Impossible(placement::layout::UnitIndex(u), SiteIndex(s)));
            }
        }
    }
    for s in 0..layout.sites.len() {
        all.extend(Resource::ALL.map(|r| Demand::Capacity(SiteIndex(s), r)));
    }
    all
}

pub fn meets(layout: &Layout, at: &[SiteIndex], demand: Demand) -> bool {
    let app = |unit: usize| layout.sites[at[unit].0].site == Site::App;
    match demand {
        Demand::Tie(i) => match layout.constraints[i] {
            Tie::Pull(a, b) => at[a.0] == at[b.0],
            Tie::Gang(a, b) => !app(a.0) && !app(b.0),
            Tie::Pin(a, site) => at[a.0] == site,
        },
        Demand::Impossible(unit, site) => at[unit.0] != site,
        Demand::Capacity(site, resource) => {
            let here = layout.units.iter().zip(at).filter(|(_, s)| **s == site).map(|(unit, _)| unit);
            let candidate = &layout.sites[site.0];
            match resource {
                Resource::Load => {
                    let load: f64 = here
                        .map(|unit| match unit.places[site.0] {
                            Place::Possible(load) => load.0,
                            Place::Impossible(_) => 0.0,
                        })
                        .sum();
                    load <= candidate.capacity.0 + 1e-7
                }
                Resource::Memory => here.map(|unit| unit.memory.0).sum::<u64>() <= candidate.memory.0,
                Resource::Slots => here.count() <= candidate.slots,
            }
        }
    }
}

/// All assignments.
pub fn assignments(units: usize, sites: usize) -> impl Iterator<Item = Vec<SiteIndex>> {
    (0..sites.pow(units as u32)).map(move |mut code| {
        (0..units)
            .map(|_| {
                let site = code % sites;
                code /= sites;
                SiteIndex(site)
            })
            .collect()
    })
}

/// Cost of the best valid assignment.
pub fn cheapest(layout: &Layout) -> Option<f64> {
    let all = demands(layout);
    assignments(layout.units.len(), layout.sites.len())
        .filter(|at| all.iter().all(|&demand| meets(layout, at, demand)))
        .map(|at| cost(layout, &at))
        .min_by(f64::total_cmp)
}

pub fn cost(layout: &Layout, at: &[SiteIndex]) -> f64 {
    let mut cost = 0.0;
    for (unit, site) in layout.units.iter().zip(at) {
        if let Place::Possible(load) = unit.places[site.0] {
            cost += f64::from(unit.priority) / 100.0 * layout.sites[site.0].price * load.0;
        }
    }
    for channel in &layout.channels {
        let (from, to) = (channel.from.0, channel.to.0);
        let weight = f64::from(layout.units[from].priority.max(layout.units[to].priority)) / 100.0;
        cost += weight * channel.rate * layout.crossing_ns[at[from].0][at[to].0] * 1e-9;
    }
    for (site, candidate) in layout.sites.iter().enumerate() {
        if at.iter().any(|here| here.0 == site) {
            cost += candidate.opening;
        }
    }
    cost
}

/// The size of the smallest set of demands that cannot all be met: a smallest set that hits, for every assignment, the
/// demands that it breaks.
pub fn smallest_clash(layout: &Layout) -> Option<usize> {
    let all = demands(layout);
    let mut broken: BTreeSet<Vec<usize>> = BTreeSet::new();
    for at in assignments(layout.units.len(), layout.sites.len()) {
        let set: Vec<usize> = (0..all.len()).filter(|&i| !meets(layout, &at, all[i])).collect();
        if set.is_empty() {
            return None;
        }
        broken.insert(set);
    }
    let broken: Vec<Vec<usize>> = broken.into_iter().collect();
    (1..).find(|&size| hit(&broken, &mut Vec::new(), size))
}

fn hit(sets: &[Vec<usize>], chosen: &mut Vec<usize>, size: usize) -> bool {
    let Some(missed) = sets.iter().find(|set| !set.iter().any(|i| chosen.contains(i))) else { return true };
    if chosen.len() == size {
        return false;
    }
    missed.iter().any(|&i| {
        chosen.push(i);
        let found = hit(sets, chosen, size);
        chosen.pop();
        found
    })
}
