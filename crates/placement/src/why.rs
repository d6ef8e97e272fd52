//! Why each unit is not at each other site. A site that only costs and capacities speak against is tried: the unit goes
//! there, others give way, and what that costs is the reason. Where that is cheaper, the plan was not the best.

use std::collections::VecDeque;

use machine::Site;

use crate::layout::{Demand, Layout, Place, Resource, SiteIndex, Tie, UnitIndex};
use crate::model::Model;
use crate::packing::{LOAD, RESOURCES, add, fits};
use crate::plan::{Reason, Rejection};
use crate::state::State;

/// Most other groups that give way to one.
const GIVE_WAY: usize = 4;

/// Improves `at` where a reason would have been 'costs less', and returns the reasons.
pub(crate) fn reasons(layout: &Layout, model: &Model, at: &mut [usize]) -> Vec<Vec<Rejection>> {
    let mut state = State::new(model, at.to_vec());
    // The loop ends, as every round but the last lowers the cost by more than rounding.
    let tried = loop {
        let cost = state.cost;
        let tried = trials(&mut state);
        if state.cost >= cost {
            break tried;
        }
    };
    at.copy_from_slice(&state.at);
    let sites = model.packing.sites;
    let mut blocked = Blocked::new(layout);
    (0..layout.units.len())
        .map(|unit| {
            let group = model.packing.group_of[unit];
            let others = (0..sites).filter(|&site| site != at[group]);
            let rejection = |site: usize| {
                let reason = match &tried[group * sites + site] {
                    Some(reason) => reason.clone(),
                    None => blocked.reason(model, unit, site),
                };
                Rejection { site: SiteIndex(site), reason }
            };
            others.map(rejection).collect()
        })
        .collect()
}

/// A reason for each group and site that only costs and capacities speak against. What is cheaper is kept, and makes
/// the reasons given before untrue.
fn trials(state: &mut State) -> Vec<Option<Reason>> {
    let model = state.model;
    let packing = &model.packing;
    let (groups, sites) = (packing.groups, packing.sites);
    let mut reasons = vec![None; groups * sites];
    let tiny = 1e-9 * (1.0 + state.cost.abs());
    for group in 0..groups {
        for site in 0..sites {
            if site == state.at[group] || !packing.allowed[group * sites + site] {
                continue;
            }
            let before = state.cost;
            let overflow = overflow(state, group, site);
            let mut journal = vec![(group, state.at[group])];
            state.shift(group, site);
            let repaired = repair(state, group, site, &mut journal);
            let more = state.cost - before;
            if repaired && more < -tiny {
                continue;
            }
            reasons[group * sites + site] = Some(if repaired {
                let moved = journal[1..].iter().flat_map(|&(g, _)| {
                    let there = SiteIndex(state.at[g]);
                    packing.members[g].iter().map(move |&unit| (UnitIndex(unit), there))
                });
                let mut moves: Vec<(UnitIndex, SiteIndex)> = moved.collect();
                moves.sort();
                moves.dedup();
                Reason::Costlier { more: more.max(0.0), moves }
            } else {
                overflow.expect("what fits needs no repair")
            });
            for &(g, from) in journal.iter().rev() {
                state.shift(g, from);
            }
        }
    }
    // Removes the rounding that undone moves leave.
    state.refresh();
    reasons
}

/// The first resource that `group` would overflow at `site`.
fn overflow(state: &State, group: usize, site: usize) -> Option<Reason> {
    let mut used = state.used[site];
    let need = *state.need(group, site);
    let room = state.model.packing.room[site];
    add(&mut used, &need);
    let resource = (0..RESOURCES).find(|&r| used[r] > room[r])?;
    let unit = if resource == LOAD { 1e-9 } else { 1.0 };
    Some(Reason::Overflow {
        resource: Resource::ALL[resource],
        needs: need[resource] as f64 * unit,
        left: (room[resource] - (used[resource] - need[resource])) as f64 * unit,
        alone: false,
    })
}

/// Lets others leave `site` until it holds `group`, then lets its neighbours follow it where that is cheaper.
fn repair(state: &mut State, group: usize, site: usize, journal: &mut Vec<(usize, usize)>) -> bool {
    let model = state.model;
    let packing = &model.packing;
    let left = journal[0].1;
    for _ in 0..GIVE_WAY {
        if state.over[site] == 0.0 {
            break;
        }
        // The cheapest move that makes enough room, else the one that makes most.
        let mut best: Option<((f64, f64), usize, usize)> = None;
        for other in (0..packing.groups).filter(|&g| g != group && state.at[g] == site) {
            for to in packing.domain(other).filter(|&to| to != site) {
                if state.shift_fits(other, to) {
                    let rest = state.over[site] + state.shift_excess(other, to);
                    let key = (rest.max(0.0), state.shift_cost(other, to));
                    if best.is_none_or(|(b, ..)| key.0 < b.0 || key.0 == b.0 && key.1 < b.1) {
                        best = Some((key, other, to));
                    }
                }
            }
        }
        match best {
            Some((_, other, to)) => {
                journal.push((other, site));
                state.shift(other, to);
            }
            None => break,
        }
    }
    if state.over[site] > 0.0 && !exchange(state, group, site, left, journal) {
        return false;
    }
    for arc in model.arcs(group) {
        let other = arc.other as usize;
        let better = packing
            .domain(other)
            .map(|to| (state.shift_cost(other, to), to))
            .filter(|&(cost, to)| cost < -1e-12 && state.shift_fits(other, to))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, to)) = better {
            journal.push((other, state.at[other]));
            state.shift(other, to);
        }
    }
    true
}

/// Swaps a group at `site` with one elsewhere.
fn exchange(state: &mut State, group: usize, site: usize, left: usize, journal: &mut Vec<(usize, usize)>) -> bool {
    let packing = &state.model.packing;
    let sites = packing.sites;
    let mut best: Option<(f64, usize, usize)> = None;
    for out in (0..packing.groups).filter(|&g| g != group && state.at[g] == site) {
        for into in 0..packing.groups {
            let there = state.at[into];
            // Where the group came from, room was made; anywhere else only a few are worth a look.
            if there == site
                || !packing.allowed[out * sites + there]
                || !packing.allowed[into * sites + site]
                || there != left && state.need(into, site)[LOAD] >= state.need(out, site)[LOAD]
            {
                continue;
            }
            let cost = state.swap_cost(out, into);
            if best.is_none_or(|(b, ..)| cost < b) && state.swap_fits(out, into) {
                best = Some((cost, out, into));
            }
        }
    }
    let Some((_, out, into)) = best else { return false };
    let there = state.at[into];
    journal.push((out, site));
    journal.push((into, there));
    state.swap(out, into);
    debug_assert!(fits(&state.used[site], &packing.room[site]));
    true
}

/// Why a site is closed to a unit whatever the others do.
struct Blocked<'a> {
    layout: &'a Layout,
    /// The Pulls of each unit, with the unit at their other end.
    pulls: Vec<Vec<(usize, usize)>>,
    /// The Gangs and Pins of each unit.
    own: Vec<Vec<usize>>,
}

impl<'a> Blocked<'a> {
    fn new(layout: &'a Layout) -> Self {
        let mut pulls = vec![Vec::new(); layout.units.len()];
        let mut own = vec![Vec::new(); layout.units.len()];
        for (i, tie) in layout.constraints.iter().enumerate() {
            match *tie {
                Tie::Pull(a, b) => {
                    pulls[a.0].push((i, b.0));
                    pulls[b.0].push((i, a.0));
                }
                Tie::Gang(a, b) => {
                    own[a.0].push(i);
                    own[b.0].push(i);
                }
                Tie::Pin(a, _) => own[a.0].push(i),
            }
        }
        Blocked { layout, pulls, own }
    }

    /// The demand that closes `site` to this very unit.
    fn demand(&self, unit: usize, site: usize) -> Option<Demand> {
        if let Place::Impossible(_) = self.layout.units[unit].places[site] {
            return Some(Demand::Impossible(UnitIndex(unit), SiteIndex(site)));
        }
        let closes = |i: &&usize| match self.layout.constraints[**i] {
            Tie::Pull(..) => false,
            Tie::Gang(..) => self.layout.sites[site].site == Site::App,
            Tie::Pin(_, there) => there.0 != site,
        };
        self.own[unit].iter().find(closes).map(|&i| Demand::Tie(i))
    }

    /// The nearest demand over Pulls, by breadth; without one the group is too large for the site.
    fn reason(&mut self, model: &Model, unit: usize, site: usize) -> Reason {
        if let Place::Impossible(why) = &self.layout.units[unit].places[site] {
            return Reason::Impossible(why.clone());
        }
        let mut came: std::collections::BTreeMap<usize, Option<(usize, usize)>> = [(unit, None)].into();
        let mut queue = VecDeque::from([unit]);
        while let Some(here) = queue.pop_front() {
            if let Some(by) = self.demand(here, site) {
                let mut chain = Vec::new();
                let mut at = here;
                while let Some((tie, from)) = came[&at] {
                    chain.push(tie);
                    at = from;
                }
                chain.reverse();
                return Reason::Forbidden { by, chain };
            }
            for &(tie, to) in &self.pulls[here] {
                if let std::collections::btree_map::Entry::Vacant(entry) = came.entry(to) {
                    entry.insert(Some((tie, here)));
                    queue.push_back(to);
                }
            }
        }
        let packing = &model.packing;
        let need = packing.need[packing.group_of[unit] * packing.sites + site];
        let room = packing.room[site];
        let resource = (0..RESOURCES).find(|&r| need[r] > room[r]).unwrap_or(LOAD);
        let scale = if resource == LOAD { 1e-9 } else { 1.0 };
        Reason::Overflow {
            resource: Resource::ALL[resource],
            needs: need[resource] as f64 * scale,
            left: room[resource] as f64 * scale,
            alone: true,
        }
    }
}
