//! The hard half of a layout: which groups may be where, what they take and what there is. Costs are in `model`.

use machine::SiteKind;

use crate::layout::{Demand, Layout, Place, Resource, SiteIndex, Tie, UnitIndex};

pub(crate) const RESOURCES: usize = 3;
pub(crate) const LOAD: usize = 0;
pub(crate) const MEMORY: usize = 1;
pub(crate) const SLOTS: usize = 2;

/// In the order of [`Resource::ALL`]: load in nanoseconds of core time a second, memory in bytes, slots. Whole numbers, so that sums are exact in any order.
pub(crate) type Amounts = [i64; RESOURCES];

/// Units merged by Pull, and where each merged group fits.
#[derive(Debug, Clone)]
pub(crate) struct Packing {
    pub groups: usize,
    pub sites: usize,
    pub group_of: Vec<usize>,
    pub members: Vec<Vec<usize>>,
    /// Whether a group may be at a site, `groups x sites`.
    pub allowed: Vec<bool>,
    /// Amounts that a group takes at a site, `groups x sites`.
    pub need: Vec<Amounts>,
    pub room: Vec<Amounts>,
}

pub(crate) fn nanoseconds(load: f64) -> i64 {
    // Saturates: infinite capacity is i64::MAX.
    (load * 1e9).round() as i64
}

impl Packing {
    /// The packing of the kept demands. A unit takes no load where only a dropped demand forbids it.
    pub fn of(layout: &Layout, keep: impl Fn(Demand) -> bool) -> Self {
        let (units, sites) = (layout.units.len(), layout.sites.len());
        let mut root: Vec<usize> = (0..units).collect();
        for (i, tie) in layout.constraints.iter().enumerate() {
            if let Tie::Pull(a, b) = *tie
                && keep(Demand::Tie(i))
            {
                let (a, b) = (find(&mut root, a.0), find(&mut root, b.0));
                root[a.max(b)] = a.min(b);
            }
        }
        let mut group_of = vec![usize::MAX; units];
        let mut members: Vec<Vec<usize>> = Vec::new();
        for unit in 0..units {
            let head = find(&mut root, unit);
            if head == unit {
                group_of[unit] = members.len();
                members.push(Vec::new());
            }
            group_of[unit] = group_of[head];
            members[group_of[unit]].push(unit);
        }
        let groups = members.len();
        let mut allowed = vec![true; groups * sites];
        let mut need = vec![[0; RESOURCES]; groups * sites];
        for (unit, &group) in group_of.iter().enumerate() {
            for site in 0..sites {
                let at = group * sites + site;
                match &layout.units[unit].places[site] {
                    Place::Possible(load) => need[at][LOAD] += nanoseconds(load.0),
                    Place::Impossible(_) if keep(Demand::Impossible(UnitIndex(unit), SiteIndex(site))) => {
                        allowed[at] = false
                    }
                    Place::Impossible(_) => {}
                }
                need[at][MEMORY] += layout.units[unit].memory.0 as i64;
                need[at][SLOTS] += 1;
            }
        }
        for (i, tie) in layout.constraints.iter().enumerate() {
            if !keep(Demand::Tie(i)) {
                continue;
            }
            match *tie {
                Tie::Pull(..) => {}
                Tie::Gang(a, b) => {
                    for group in [group_of[a.0], group_of[b.0]] {
                        for site in 0..sites {
                            if layout.sites[site].site.kind() == SiteKind::App {
                                allowed[group * sites + site] = false;
                            }
                        }
                    }
                }
                Tie::Pin(unit, there) => {
                    let group = group_of[unit.0];
                    for site in (0..sites).filter(|&site| site != there.0) {
                        allowed[group * sites + site] = false;
                    }
                }
            }
        }
        let room: Vec<Amounts> = (0..sites)
            .map(|site| {
                let candidate = &layout.sites[site];
                let all = [
                    nanoseconds(candidate.capacity.0),
                    i64::try_from(candidate.memory.0).unwrap_or(i64::MAX),
                    i64::try_from(candidate.slots).unwrap_or(i64::MAX),
                ];
                std::array::from_fn(|r| {
                    if keep(Demand::Capacity(SiteIndex(site), Resource::ALL[r])) { all[r] } else { i64::MAX }
                })
            })
            .collect();
        for at in 0..groups * sites {
            allowed[at] &= fits(&need[at], &room[at % sites]);
        }
        Packing { groups, sites, group_of, members, allowed, need, room }
    }

    pub fn domain(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.sites).filter(move |site| self.allowed[group * self.sites + site])
    }

    /// Whether every group is where it may be and every site holds what it gets.
    pub fn holds(&self, at: &[usize]) -> bool {
        let mut used = vec![[0; RESOURCES]; self.sites];
        for (group, &site) in at.iter().enumerate() {
            if !self.allowed[group * self.sites + site] {
                return false;
            }
            add(&mut used[site], &self.need[group * self.sites + site]);
        }
        used.iter().zip(&self.room).all(|(used, room)| fits(used, room))
    }
}

#[inline]
pub(crate) fn fits(used: &Amounts, room: &Amounts) -> bool {
    used[0] <= room[0] && used[1] <= room[1] && used[2] <= room[2]
}

#[inline]
pub(crate) fn add(to: &mut Amounts, what: &Amounts) {
    for r in 0..RESOURCES {
        to[r] += what[r];
    }
}

#[inline]
pub(crate) fn take(from: &mut Amounts, what: &Amounts) {
    for r in 0..RESOURCES {
        from[r] -= what[r];
    }
}

fn find(root: &mut [usize], mut unit: usize) -> usize {
    while root[unit] != unit {
        root[unit] = root[root[unit]];
        unit = root[unit];
    }
    unit
}
