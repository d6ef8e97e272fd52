//! Proposals of moves: the rank that sets the pace goes to a less burdened free core, else into the place of the rank with
//! the most slack; partners go to cores of equal capability.

use std::collections::BTreeSet;

use machine::{CoreId, CpuSet};
use serde::{Deserialize, Serialize};

use super::observation::{Observation, Process, RankSeen};
use super::seating::{MATCH, Seating, Waiting};

/// Steps of one proposal at most.
const STEPS: usize = 8;
/// Least share by which a step lowers the potential, and a longer proposal the time: as much as the relief of one of twenty
/// equally slow ranks lowers the potential.
const LEAST_FALL: f64 = 0.003;

/// One rank's new seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: Process,
    /// Its present seat.
    pub from: CpuSet,
    /// Its new seat.
    pub to: CpuSet,
}

impl Change {
    /// The change that undoes this one.
    pub fn reverse(&self) -> Change {
        Change { from: self.to.clone(), to: self.from.clone(), ..self.clone() }
    }
}

/// Changes that are carried out together: a rank that goes to free cores, or two that change places.
pub type Step = Vec<Change>;

/// Steps that belong together, one a host and window.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub steps: Vec<Step>,
    /// The seats after all steps, by place of rank.
    pub seats: Vec<CpuSet>,
}

/// A rank on cores where it is not to come.
pub type Barred = BTreeSet<(u32, CpuSet)>;

struct Search<'a> {
    seen: &'a Observation,
    seating: Seating<'a>,
    movable: Vec<bool>,
    barred: &'a Barred,
}

/// The best steps by the window `seen`; `None` where nothing helps.
pub fn propose(seen: &Observation, waiting: Waiting, most: usize, barred: &Barred) -> Option<Proposal> {
    let search = Search { seen, seating: Seating::of(seen, waiting), movable: movable(seen), barred };
    let mut seats: Vec<CpuSet> = seen.ranks.iter().map(|rank| rank.cores.clone()).collect();
    let mut best: Option<(f64, Proposal)> = None;
    let mut steps: Vec<Step> = Vec::new();
    while steps.len() < most.min(STEPS)
        && let Some((step, next)) = search.step(&seats)
    {
        steps.push(step);
        seats = next;
        if let Some(time) = search.seating.time(&seats)
            && best.as_ref().is_none_or(|(least, _)| time < least * (1.0 - LEAST_FALL))
        {
            best = Some((time, Proposal { steps: steps.clone(), seats: seats.clone() }));
        }
    }
    best.map(|(_, proposal)| proposal)
}

/// By rank: whether it may be moved: it is not held, and shares no core with another rank.
fn movable(seen: &Observation) -> Vec<bool> {
    let shares = |a: &RankSeen| {
        let meets = |b: &&RankSeen| a.host == b.host && !a.cores.intersection(&b.cores).is_empty();
        seen.ranks.iter().filter(meets).count() > 1
    };
    seen.ranks.iter().map(|rank| rank.held.is_none() && !rank.cores.is_empty() && !shares(rank)).collect()
}

impl Search<'_> {
    /// The step by which the potential falls most, with the seats after it.
    fn step(&self, seats: &[CpuSet]) -> Option<(Step, Vec<CpuSet>)> {
        let present = self.seating.potential(seats)?;
        let mut best: Option<(f64, Step, Vec<CpuSet>)> = None;
        for place in self.candidates(seats) {
            let free = self.free(place, seats).map(|to| vec![(place, to)]);
            let swaps = (0..seats.len()).filter(|other| self.may_swap(place, *other, seats));
            let swaps = swaps.map(|other| vec![(place, seats[other].clone()), (other, seats[place].clone())]);
            // A move to a free core displaces no rank: it comes first, and a swap must be better.
            for moves in free.into_iter().chain(swaps) {
                let mut next = seats.to_vec();
                moves.iter().for_each(|(place, to)| next[*place] = to.clone());
                let step: Step = moves.into_iter().map(|(place, to)| self.change(place, &seats[place], to)).collect();
                let is_barred = step.iter().any(|change| self.barred.contains(&(change.rank, change.to.clone())));
                let potential = self.seating.potential(&next).filter(|_| !is_barred);
                let least = best.as_ref().map_or(present, |(least, ..)| *least) * (1.0 - LEAST_FALL);
                if let Some(potential) = potential.filter(|potential| *potential < least) {
                    best = Some((potential, step, next));
                }
            }
        }
        best.map(|(_, step, next)| (step, next))
    }

    /// The rank that sets the pace, the one that others hold up most, and the ranks whose partners' cores are unlike theirs.
    fn candidates(&self, seats: &[CpuSet]) -> BTreeSet<usize> {
        let busy = |place: &usize| self.seating.busy(*place, &seats[*place]).unwrap_or(0.0);
        let slowest = (0..seats.len()).max_by(|a, b| busy(a).total_cmp(&busy(b)));
        let unlike = |place: &usize| self.seating.mismatch(*place, seats).is_some_and(|unlike| unlike > MATCH);
        let unlike = (0..seats.len()).filter(unlike);
        slowest
            .into_iter()
            .chain(self.seating.most_delayed(seats))
            .chain(unlike)
            .filter(|place| self.movable[*place])
            .collect()
    }

    fn may_swap(&self, a: usize, b: usize, seats: &[CpuSet]) -> bool {
        a != b
            && self.movable[b]
            && self.seen.ranks[a].host == self.seen.ranks[b].host
            && seats[a].len() == seats[b].len()
            && self.seen.ranks[a].wait.is_some()
            && self.seen.ranks[b].wait.is_some()
            && self.may_have(a, &seats[b])
            && self.may_have(b, &seats[a])
    }

    /// Whether the rank's control group and memory allow the seat.
    fn may_have(&self, place: usize, seat: &CpuSet) -> bool {
        let rank = &self.seen.ranks[place];
        let near = |core: CoreId| rank.node.is_none() || self.node(&rank.host, core) == rank.node;
        seat.iter().all(|core| rank.allowed.contains(core) && near(core))
    }

    fn node(&self, host: &str, core: CoreId) -> Option<u32> {
        self.seen.cores.iter().find(|seen| seen.host == host && seen.core == core)?.node
    }

    /// The least burdened cores without a rank, as many as the rank has.
    fn free(&self, place: usize, seats: &[CpuSet]) -> Option<CpuSet> {
        let rank = &self.seen.ranks[place];
        let is_free = |core: CoreId| {
            let ranks = self.seen.ranks.iter().zip(seats);
            ranks.filter(|(other, _)| other.host == rank.host).all(|(_, seat)| !seat.contains(core))
        };
        let mut free: Vec<(f64, CoreId)> = self
            .seen
            .cores
            .iter()
            .filter(|core| core.host == rank.host && !core.occupied && is_free(core.core))
            .filter(|core| self.may_have(place, &[core.core].into_iter().collect()))
            .filter_map(|core| Some((core.taken?, core.core)))
            .collect();
        free.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let wanted = seats[place].len();
        (free.len() >= wanted).then(|| free.into_iter().take(wanted).map(|(_, core)| core).collect())
    }

    fn change(&self, place: usize, from: &CpuSet, to: CpuSet) -> Change {
        let RankSeen { rank, host, process, .. } = &self.seen.ranks[place];
        Change { rank: *rank, host: host.clone(), process: *process, from: from.clone(), to }
    }
}
