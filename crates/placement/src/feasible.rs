//! Whether anything fits at all: an exact depth-first search over groups, for layouts too tight for the annealer and
//! for clashes. Bin packing with several resources and forbidden bins.
//!
//! A branch is cut when a group has no site left, when one resource cannot be shared out even if groups could be split
//! (a transport problem, solved by augmenting paths; for slots alone it is exact), or when the same remains were found
//! hopeless before: sites with equal columns and equal room, and groups with equal rows, are interchangeable.

use std::collections::HashSet;

use crate::packing::{Amounts, Packing, RESOURCES, add, fits, take};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A site for each group.
    Fits(Vec<usize>),
    Nothing,
    /// The budget ended before a decision.
    Unknown,
}

/// `budget` counts visited nodes and is left with what was not used.
pub(crate) fn decide(packing: &Packing, budget: &mut u64) -> Verdict {
    if let Some(at) = independent(packing) {
        return at;
    }
    let mut search = Search::new(packing);
    match search.descend(budget) {
        Some(true) => Verdict::Fits(search.at),
        Some(false) => Verdict::Nothing,
        None => Verdict::Unknown,
    }
}

/// The verdict where no site can be overfull whatever goes there, so that groups are independent.
fn independent(packing: &Packing) -> Option<Verdict> {
    let mut all = vec![[0; RESOURCES]; packing.sites];
    let mut at = Vec::with_capacity(packing.groups);
    for group in 0..packing.groups {
        let Some(site) = packing.domain(group).next() else { return Some(Verdict::Nothing) };
        at.push(site);
        for site in packing.domain(group) {
            add(&mut all[site], &packing.need[group * packing.sites + site]);
        }
    }
    all.iter().zip(&packing.room).all(|(all, room)| fits(all, room)).then_some(Verdict::Fits(at))
}

struct Search<'a> {
    packing: &'a Packing,
    at: Vec<usize>,
    left: Vec<Amounts>,
    open: Vec<bool>,
    /// Equivalence classes: interchangeable groups and sites have the same number.
    group_class: Vec<usize>,
    site_class: Vec<usize>,
    size: Vec<f64>,
    hopeless: HashSet<u128>,
}

const NOWHERE: usize = usize::MAX;

impl<'a> Search<'a> {
    fn new(packing: &'a Packing) -> Self {
        let (groups, sites) = (packing.groups, packing.sites);
        let row = |g: usize| (&packing.allowed[g * sites..(g + 1) * sites], &packing.need[g * sites..(g + 1) * sites]);
        let same_column = |s: usize, t: usize| {
            packing.room[s] == packing.room[t]
                && (0..groups).all(|g| {
                    let (s, t) = (g * sites + s, g * sites + t);
                    packing.allowed[s] == packing.allowed[t]
                        && (!packing.allowed[s] || packing.need[s] == packing.need[t])
                })
        };
        let mut first_of = std::collections::HashMap::new();
        let group_class = (0..groups).map(|g| *first_of.entry(row(g)).or_insert(g)).collect();
        let site_class = (0..sites).map(|t| (0..t).find(|&s| same_column(s, t)).unwrap_or(t)).collect();
        let mut total = [1.0; RESOURCES];
        for room in &packing.room {
            for r in (0..RESOURCES).filter(|&r| room[r] < i64::MAX) {
                total[r] += room[r] as f64;
            }
        }
        let size = (0..groups)
            .map(|g| {
                let need = packing.domain(g).next().map_or([0; RESOURCES], |s| packing.need[g * sites + s]);
                (0..RESOURCES).map(|r| need[r] as f64 / total[r]).sum()
            })
            .collect();
        Search {
            packing,
            at: vec![NOWHERE; groups],
            left: packing.room.clone(),
            open: vec![true; groups],
            group_class,
            site_class,
            size,
            hopeless: HashSet::new(),
        }
    }

    fn can(&self, group: usize, site: usize) -> bool {
        let at = group * self.packing.sites + site;
        self.packing.allowed[at] && fits(&self.packing.need[at], &self.left[site])
    }

    /// The open group with the fewest sites left, the largest of those; none when all are placed.
    fn next(&self) -> Option<(usize, usize)> {
        let mut chosen: Option<(usize, usize)> = None;
        for group in (0..self.packing.groups).filter(|&g| self.open[g]) {
            let sites = (0..self.packing.sites).filter(|&s| self.can(group, s)).count();
            let better = match chosen {
                None => true,
                Some((other, fewest)) => sites < fewest || sites == fewest && self.size[group] > self.size[other],
            };
            if better {
                chosen = Some((group, sites));
            }
        }
        chosen
    }

    fn descend(&mut self, budget: &mut u64) -> Option<bool> {
        let Some((group, sites)) = self.next() else { return Some(true) };
        if sites == 0 {
            return Some(false);
        }
        *budget = budget.checked_sub(1)?;
        if (0..RESOURCES).any(|r| !self.shareable(r)) {
            return Some(false);
        }
        let key = self.key();
        if self.hopeless.contains(&key) {
            return Some(false);
        }
        let mut tried: Vec<(usize, Amounts)> = Vec::new();
        let mut order: Vec<usize> = (0..self.packing.sites).filter(|&s| self.can(group, s)).collect();
        let tightness = |s: usize| {
            let need = &self.packing.need[group * self.packing.sites + s];
            let left = &self.left[s];
            (0..RESOURCES)
                .filter(|&r| self.packing.room[s][r] < i64::MAX && self.packing.room[s][r] > 0)
                .map(|r| (left[r] - need[r]) as f64 / self.packing.room[s][r] as f64)
                .fold(1.0, f64::min)
        };
        order.sort_by(|&a, &b| tightness(a).total_cmp(&tightness(b)).then(a.cmp(&b)));
        for site in order {
            let twin = (self.site_class[site], self.left[site]);
            if tried.contains(&twin) {
                continue;
            }
            tried.push(twin);
            let need = self.packing.need[group * self.packing.sites + site];
            take(&mut self.left[site], &need);
            self.open[group] = false;
            self.at[group] = site;
            let found = self.descend(budget);
            if found == Some(true) {
                return found;
            }
            add(&mut self.left[site], &need);
            self.open[group] = true;
            self.at[group] = NOWHERE;
            found?;
        }
        self.hopeless.insert(key);
        Some(false)
    }

    /// Hash of what is left to place, up to renaming of twins: two hashes of 64 bits with different seeds.
    fn key(&self) -> u128 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut open: Vec<usize> =
            (0..self.packing.groups).filter(|&g| self.open[g]).map(|g| self.group_class[g]).collect();
        open.sort_unstable();
        let mut left: Vec<(usize, Amounts)> = self.site_class.iter().copied().zip(self.left.iter().copied()).collect();
        left.sort_unstable();
        let hash = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, &open, &left).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        hash(0) << 64 | hash(0x9e37_79b9_7f4a_7c15)
    }

    /// Whether the least that each open group takes of one resource could be shared out if groups could be split.
    fn shareable(&self, resource: usize) -> bool {
        let (groups, sites) = (self.packing.groups, self.packing.sites);
        let mut least: Vec<(usize, i64)> = Vec::new();
        for group in (0..groups).filter(|&g| self.open[g]) {
            let sizes = (0..sites).filter(|&s| self.can(group, s)).map(|s| self.packing.need[group * sites + s]);
            let size = sizes.map(|need| need[resource]).min().unwrap_or(0);
            if size > 0 {
                least.push((group, size));
            }
        }
        let mut left: Vec<i64> = self.left.iter().map(|left| left[resource]).collect();
        let mut sent = vec![0i64; groups * sites];
        for &(group, size) in &least {
            let mut missing = size;
            for site in (0..sites).filter(|&s| self.can(group, s)) {
                let part = missing.min(left[site]);
                sent[group * sites + site] += part;
                left[site] -= part;
                missing -= part;
            }
            while missing > 0 {
                let Some(moved) = self.augment(group, missing, &least, &mut left, &mut sent) else { return false };
                missing -= moved;
            }
        }
        true
    }

    /// One path from `group` over full sites and the groups in them to a site with room.
    fn augment(
        &self,
        group: usize,
        wanted: i64,
        least: &[(usize, i64)],
        left: &mut [i64],
        sent: &mut [i64],
    ) -> Option<i64> {
        let sites = self.packing.sites;
        // (group that moves in, site it leaves or NOWHERE)
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; sites];
        let mut queue: Vec<usize> = Vec::new();
        for site in (0..sites).filter(|&s| self.can(group, s)) {
            reached[site] = Some((group, NOWHERE));
            queue.push(site);
        }
        let mut next = 0;
        while next < queue.len() {
            let site = queue[next];
            next += 1;
            if left[site] > 0 {
                let mut amount = wanted.min(left[site]);
                let mut here = site;
                while let Some((mover, from)) = reached[here]
                    && from != NOWHERE
                {
                    amount = amount.min(sent[mover * sites + from]);
                    here = from;
                }
                left[site] -= amount;
                here = site;
                while let Some((mover, from)) = reached[here] {
                    sent[mover * sites + here] += amount;
                    if from == NOWHERE {
                        break;
                    }
                    sent[mover * sites + from] -= amount;
                    here = from;
                }
                return Some(amount);
            }
            for &(mover, _) in least.iter().filter(|(mover, _)| sent[mover * sites + site] > 0) {
                for (to, way) in reached.iter_mut().enumerate() {
                    if way.is_none() && self.can(mover, to) {
                        *way = Some((mover, site));
                        queue.push(to);
                    }
                }
            }
        }
        None
    }
}
