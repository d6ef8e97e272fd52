//! Layouts that nothing satisfies: the smallest set of demands that cannot all be met.
//!
//! Smallest by implicit hitting sets (Ignatiev, Previti, Liffiton, Marques-Silva, CP 2015): every set of demands whose
//! removal makes the layout solvable must be hit by every clash, so a smallest set that hits those found so far is
//! either a clash, and then none is smaller, or solvable, and then it yields one more set to hit.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::feasible::{self, Verdict};
use crate::layout::{Demand, Layout, Place, Resource, SiteIndex, Tie, UnitIndex};
use crate::packing::Packing;

/// Demands that cannot all be met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clash {
    /// The demands, each in words.
    pub parts: Vec<Part>,
    /// Whether a smaller clash may exist.
    pub minimality: Minimality,
}

/// One demand of a clash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The demand, by indices into the layout.
    pub demand: Demand,
    /// The demand in words: 'core:1 holds a load of 1.000'.
    pub sentence: String,
}

/// What is known of a clash's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Minimality {
    /// No clash of this layout has fewer parts.
    Smallest,
    /// Without any one of its parts the rest can be met; another clash may have fewer.
    Irreducible,
    /// Some parts may not be needed for the clash: the search ended before that was known.
    Unreduced,
}

impl Minimality {
    /// The degree of minimality in words, for the user.
    pub fn sentence(self) -> &'static str {
        match self {
            Minimality::Smallest => "no clash of this layout has fewer parts",
            Minimality::Irreducible => "each part is needed for it; a clash with fewer parts may exist",
            Minimality::Unreduced => "some parts may not be needed for it; the search for a smaller one was cut short",
        }
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nothing satisfies the layout. These clash ({}):", self.minimality.sentence())?;
        for part in &self.parts {
            writeln!(f, "  - {}", part.sentence)?;
        }
        write!(f, "Give up one of them")
    }
}

/// Budgets of the exact search: nodes of one question and of all, questions, nodes of a hitting set.
const NODES_A_QUESTION: u64 = 2_000;
const NODES: u64 = 40_000;
const QUESTIONS: usize = 4_000;
const HITTING_NODES: u64 = 200_000;

/// A clash of a checked layout that has no assignment; `None` where the search here cannot confirm that it has none.
pub(crate) fn clash(layout: &Layout) -> Option<Clash> {
    let mut court = Court { layout, nodes: NODES, questions: QUESTIONS };
    let all = demands(layout);
    let (core, irreducible) = court.reduce(all.clone())?;
    let smaller = court.smallest(&all, core.len());
    let (core, minimality) = match smaller {
        Some(Some(smallest)) => (smallest, Minimality::Smallest),
        Some(None) => (core, Minimality::Smallest),
        None if irreducible => (core, Minimality::Irreducible),
        None => (core, Minimality::Unreduced),
    };
    let parts = core.into_iter().map(|demand| Part { demand, sentence: sentence(layout, demand) }).collect();
    Some(Clash { parts, minimality })
}

/// All demands of a layout that can bind.
pub(crate) fn demands(layout: &Layout) -> BTreeSet<Demand> {
    let ties = (0..layout.constraints.len()).map(Demand::Tie);
    let places = layout.units.iter().enumerate().flat_map(|(unit, u)| {
        let impossible = u.places.iter().enumerate().filter(|(_, place)| matches!(place, Place::Impossible(_)));
        impossible.map(move |(site, _)| Demand::Impossible(UnitIndex(unit), SiteIndex(site)))
    });
    let packing = Packing::of(layout, |demand| !matches!(demand, Demand::Tie(_)));
    let mut all = vec![[0i64; 3]; layout.sites.len()];
    for need in packing.need.chunks(layout.sites.len().max(1)) {
        for (sum, need) in all.iter_mut().zip(need) {
            crate::packing::add(sum, need);
        }
    }
    let rooms = (0..layout.sites.len()).flat_map(|site| {
        let (all, room) = (&all, &packing.room);
        Resource::ALL
            .into_iter()
            .enumerate()
            .filter(move |&(r, _)| all[site][r] > room[site][r])
            .map(move |(_, resource)| Demand::Capacity(SiteIndex(site), resource))
    });
    ties.chain(places).chain(rooms).collect()
}

struct Court<'a> {
    layout: &'a Layout,
    nodes: u64,
    questions: usize,
}

enum Answer {
    Met(Packing, Vec<usize>),
    Clash,
    Unknown,
}

impl Court<'_> {
    fn ask(&mut self, demands: &BTreeSet<Demand>) -> Answer {
        if self.questions == 0 || self.nodes == 0 {
            return Answer::Unknown;
        }
        self.questions -= 1;
        let packing = Packing::of(self.layout, |demand| demands.contains(&demand));
        let given = self.nodes.min(NODES_A_QUESTION);
        let mut budget = given;
        let verdict = feasible::decide(&packing, &mut budget);
        self.nodes -= given - budget;
        match verdict {
            Verdict::Fits(at) => Answer::Met(packing, at),
            Verdict::Nothing => Answer::Clash,
            Verdict::Unknown => Answer::Unknown,
        }
    }

    /// Removes demands that are not needed, in chunks that halve. The flag: whether every single one was tried.
    fn reduce(&mut self, all: BTreeSet<Demand>) -> Option<(Vec<Demand>, bool)> {
        if !matches!(self.ask(&all), Answer::Clash) {
            return None;
        }
        let mut core: Vec<Demand> = all.into_iter().collect();
        let mut chunk = core.len().next_power_of_two() / 2;
        let mut sure = true;
        while chunk > 0 {
            sure = true;
            let mut start = 0;
            while start < core.len() {
                let end = (start + chunk).min(core.len());
                let rest: BTreeSet<Demand> = core[..start].iter().chain(&core[end..]).copied().collect();
                match self.ask(&rest) {
                    Answer::Clash => core = rest.into_iter().collect(),
                    Answer::Met(..) => start = end,
                    Answer::Unknown => (sure, start) = (false, end),
                }
            }
            chunk /= 2;
        }
        Some((core, sure))
    }

    /// A clash smaller than `known`; `Some(None)` if there is none, `None` if the budget ended.
    fn smallest(&mut self, all: &BTreeSet<Demand>, known: usize) -> Option<Option<Vec<Demand>>> {
        let mut to_hit: Vec<Vec<Demand>> = Vec::new();
        loop {
            let hitting = hitting_set(&to_hit, known)?;
            let Some(hitting) = hitting else { return Some(None) };
            let mut met: BTreeSet<Demand> = hitting.iter().copied().collect();
            match self.ask(&met) {
                Answer::Clash => return Some(Some(hitting)),
                Answer::Unknown => return None,
                Answer::Met(packing, at) => {
                    self.absorb(all, &mut met, &packing, &at);
                    let rest: Vec<Demand> = all.difference(&met).copied().collect();
                    self.grow(all, &mut met, &rest);
                    to_hit.push(all.difference(&met).copied().collect());
                }
            }
        }
    }

    /// Adds to `met` all demands that the assignment meets too.
    fn absorb(&self, all: &BTreeSet<Demand>, met: &mut BTreeSet<Demand>, packing: &Packing, at: &[usize]) {
        let site = |unit: UnitIndex| at[packing.group_of[unit.0]];
        let app = |unit: UnitIndex| self.layout.sites[site(unit)].site == machine::Site::App;
        let mut ties_and_places: Vec<Demand> = Vec::new();
        for &demand in all {
            let holds = match demand {
                Demand::Tie(i) => match self.layout.constraints[i] {
                    Tie::Pull(a, b) => site(a) == site(b),
                    Tie::Gang(a, b) => !app(a) && !app(b),
                    Tie::Pin(unit, there) => site(unit) == there.0,
                },
                Demand::Impossible(unit, there) => site(unit) != there.0,
                Demand::Capacity(..) => false,
            };
            if holds {
                ties_and_places.push(demand);
            }
        }
        met.extend(ties_and_places);
        let strict = Packing::of(self.layout, |demand| met.contains(&demand) || matches!(demand, Demand::Capacity(..)));
        let mut used = vec![[0i64; 3]; packing.sites];
        for (unit, &group) in packing.group_of.iter().enumerate() {
            // Added up a unit at a time: `strict` may have merged groups that happen to be together.
            let there = at[group];
            if let Place::Possible(load) = &self.layout.units[unit].places[there] {
                used[there][0] += crate::packing::nanoseconds(load.0);
            }
            used[there][1] += self.layout.units[unit].memory.0 as i64;
            used[there][2] += 1;
        }
        for &demand in all {
            if let Demand::Capacity(site, resource) = demand
                && used[site.0][resource as usize] <= strict.room[site.0][resource as usize]
            {
                met.insert(demand);
            }
        }
    }

    /// Adds as much of `rest` as can be met besides.
    fn grow(&mut self, all: &BTreeSet<Demand>, met: &mut BTreeSet<Demand>, rest: &[Demand]) {
        let rest: Vec<Demand> = rest.iter().filter(|demand| !met.contains(demand)).copied().collect();
        if rest.is_empty() {
            return;
        }
        let mut more = met.clone();
        more.extend(&rest);
        if more.len() < all.len()
            && let Answer::Met(packing, at) = self.ask(&more)
        {
            *met = more;
            self.absorb(all, met, &packing, &at);
            return;
        }
        if rest.len() > 1 {
            let (left, right) = rest.split_at(rest.len() / 2);
            self.grow(all, met, left);
            self.grow(all, met, right);
        }
    }
}

/// A smallest set with fewer than `limit` members that meets every set; `Some(None)`: there is none, `None`: unknown.
#[allow(clippy::option_option)]
fn hitting_set(sets: &[Vec<Demand>], limit: usize) -> Option<Option<Vec<Demand>>> {
    struct Hitting<'a> {
        sets: &'a [Vec<Demand>],
        chosen: Vec<Demand>,
        best: Option<Vec<Demand>>,
        limit: usize,
        nodes: u64,
    }
    impl Hitting<'_> {
        fn descend(&mut self) -> Option<()> {
            self.nodes = self.nodes.checked_sub(1)?;
            let missed = self.sets.iter().filter(|set| !set.iter().any(|d| self.chosen.contains(d)));
            let mut missed: Vec<&Vec<Demand>> = missed.collect();
            missed.sort_by_key(|set| set.len());
            // Disjoint missed sets need a member each.
            let mut bound = self.chosen.len();
            let mut seen: BTreeSet<Demand> = BTreeSet::new();
            for set in &missed {
                if set.iter().all(|d| !seen.contains(d)) {
                    seen.extend(set.iter());
                    bound += 1;
                }
            }
            if bound >= self.limit {
                return Some(());
            }
            let Some(set) = missed.first() else {
                self.limit = self.chosen.len();
                self.best = Some(self.chosen.clone());
                return Some(());
            };
            let mut members: Vec<(usize, Demand)> =
                set.iter().map(|d| (missed.iter().filter(|set| set.contains(d)).count(), *d)).collect();
            members.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            for (_, demand) in members {
                self.chosen.push(demand);
                self.descend()?;
                self.chosen.pop();
            }
            Some(())
        }
    }
    let mut hitting = Hitting { sets, chosen: Vec::new(), best: None, limit, nodes: HITTING_NODES };
    hitting.descend()?;
    Some(hitting.best)
}

/// A demand in words, for the user.
pub(crate) fn sentence(layout: &Layout, demand: Demand) -> String {
    let unit = |unit: UnitIndex| &layout.units[unit.0].name;
    let site = |site: SiteIndex| &layout.sites[site.0].site;
    match demand {
        Demand::Tie(i) => match layout.constraints[i] {
            Tie::Pull(a, b) => format!("{} and {} must be at the same site (Pull)", unit(a), unit(b)),
            Tie::Gang(a, b) => format!("{} and {} must both be offloaded, not at app (Gang)", unit(a), unit(b)),
            Tie::Pin(a, there) => format!("{} must be at {} (Pin)", unit(a), site(there)),
        },
        Demand::Impossible(a, there) => match &layout.units[a.0].places[there.0] {
            Place::Impossible(why) => format!("{} cannot be at {}: {why}", unit(a), site(there)),
            Place::Possible(_) => format!("{} cannot be at {}", unit(a), site(there)),
        },
        Demand::Capacity(there, resource) => {
            let candidate = &layout.sites[there.0];
            match resource {
                Resource::Load => format!("{} holds a load of {:.3} cores", site(there), candidate.capacity.0),
                Resource::Memory => format!("{} holds {} of memory", site(there), candidate.memory),
                Resource::Slots => format!("{} holds {} offcodes", site(there), candidate.slots),
            }
        }
    }
}
