//! The search for a mapping: an estimate proposes mappings, and a judge compares them.
//!
//! Cores of one class are equal for a rank, so that a mapping is first a class for each rank. The judge evaluates all such
//! mappings if it can afford to, else those that the estimate proposes and exchanges around the best of them. Ranks of one
//! class then get their spots by distance.

use std::collections::{BTreeMap, BTreeSet};

use machine::Result;
use whatif::answer::in_parallel;

use crate::problem::{Aim, Problem, Talk};

/// A judge of mappings.
pub trait Judge: Sync {
    /// The time under a mapping (by rank, its spot) over the recorded one.
    ///
    /// # Errors
    /// The time cannot be determined.
    fn time(&self, seats: &[u32]) -> Result<f64>;

    /// The number of mappings that the judge can evaluate.
    fn affordable(&self) -> usize;
}

/// The best mapping that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// By rank: its spot.
    pub seats: Vec<u32>,
    /// The judge's time of the mapping over the recorded one.
    pub time: f64,
    /// Mappings that were judged.
    pub judged: usize,
    /// Whether all mappings that differ were judged.
    pub all: bool,
}

/// Weights of the estimates by which mappings are proposed: the slowest rank alone, also rule (b) or (d), and one of these first.
const AIMS: [Aim; 5] = [
    Aim { mean: 0.01, unequal: 0.0, apart: 0.0 },
    Aim { mean: 0.01, unequal: 0.3, apart: 0.0 },
    Aim { mean: 0.01, unequal: 10.0, apart: 0.0 },
    Aim { mean: 0.01, unequal: 0.0, apart: 0.3 },
    Aim { mean: 0.01, unequal: 0.0, apart: 10.0 },
];

/// The least gain that counts, as a share.
const LEAST: f64 = 1e-3;

/// The most passes of exchanges by estimate.
const PASSES: usize = 8;

/// Exchanges that are judged at a time.
const BATCH: usize = 8;

/// Most ranks that are exchanged with all others, the slowest first.
const SLOWEST: usize = 128;

/// Searches `problem`.
///
/// # Errors
/// The errors of the judge.
pub fn search(problem: &Problem, judge: &dyn Judge) -> Result<Found> {
    let classes = problem.classes();
    // The time of the recorded mapping over itself.
    let known = BTreeMap::from([(problem.seats.clone(), 1.0)]);
    let (climbed, left) = (BTreeSet::new(), judge.affordable().saturating_sub(1));
    let mut judged = JudgedMappings { problem, judge, classes: &classes, known, climbed, left };
    let all = judged.all(judged.left);
    let exhausted = all.is_some();
    match all {
        Some(all) => judged.judge(all)?,
        None => {
            let proposed = AIMS.map(|aim| judged.proposed(aim)).to_vec();
            judged.judge(proposed.clone())?;
            judged.climb(judged.best())?;
            for start in proposed {
                judged.climb(start)?;
            }
        }
    }
    let kept = judged.without_needless()?;
    let seats = placed_by_distance(problem, &classes, kept.clone());
    Ok(Found { time: judged.known[&kept], seats, judged: judged.known.len(), all: exhausted })
}

struct JudgedMappings<'p> {
    problem: &'p Problem,
    judge: &'p dyn Judge,
    classes: &'p [u32],
    known: BTreeMap<Vec<u32>, f64>,
    /// Mappings around which exchanges were judged.
    climbed: BTreeSet<Vec<u32>>,
    left: usize,
}

impl JudgedMappings<'_> {
    /// Judges the new mappings, as many as can be afforded.
    fn judge(&mut self, asked: Vec<Vec<u32>>) -> Result<()> {
        let new: BTreeSet<Vec<u32>> = asked.into_iter().filter(|seats| !self.known.contains_key(seats)).collect();
        let new: Vec<Vec<u32>> = new.into_iter().take(self.left).collect();
        self.left -= new.len();
        let times = in_parallel(&new, |seats| self.judge.time(seats))?;
        self.known.extend(new.into_iter().zip(times));
        Ok(())
    }

    fn time(&self, seats: &[u32]) -> f64 {
        self.known.get(seats).copied().unwrap_or(f64::INFINITY)
    }

    /// The mapping with the shortest time; the recorded mapping where no gain is above [`LEAST`].
    fn best(&self) -> Vec<u32> {
        let recorded = (&self.problem.seats, self.time(&self.problem.seats));
        let known = self.known.iter().map(|(seats, time)| (seats, *time));
        let best = known.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|best| best.1 < recorded.1 * (1.0 - LEAST));
        best.unwrap_or(recorded).0.clone()
    }

    /// One mapping for each assignment of classes to ranks; `None` where there are more than `most`.
    fn all(&self, most: usize) -> Option<Vec<Vec<u32>>> {
        let mut room: BTreeMap<u32, usize> = BTreeMap::new();
        self.classes.iter().for_each(|class| *room.entry(*class).or_default() += 1);
        let host = |class: u32| self.problem.spots[self.classes.iter().position(|of| *of == class).unwrap_or(0)].host;
        let hosts: BTreeMap<u32, u32> = room.keys().map(|class| (*class, host(*class))).collect();
        let mut of_rank = Vec::new();
        let mut found = Vec::new();
        self.extend(&mut room, &hosts, &mut of_rank, &mut found, most)
            .then(|| found.iter().map(|of_rank| spots_for_classes(self.problem, self.classes, of_rank)).collect())
    }

    fn extend(
        &self,
        room: &mut BTreeMap<u32, usize>,
        hosts: &BTreeMap<u32, u32>,
        of_rank: &mut Vec<u32>,
        found: &mut Vec<Vec<u32>>,
        most: usize,
    ) -> bool {
        if of_rank.len() == self.problem.seats.len() {
            found.push(of_rank.clone());
            return found.len() <= most;
        }
        let own = self.problem.spots[self.problem.seats[of_rank.len()] as usize].host;
        for (class, host) in hosts {
            if room[class] == 0 || !(self.problem.across || *host == own) {
                continue;
            }
            room.entry(*class).and_modify(|room| *room -= 1);
            of_rank.push(*class);
            let fits = self.extend(room, hosts, of_rank, found, most);
            of_rank.pop();
            room.entry(*class).and_modify(|room| *room += 1);
            if !fits {
                return false;
            }
        }
        true
    }

    /// The recorded mapping, improved by exchanges that lower the estimate.
    fn proposed(&self, aim: Aim) -> Vec<u32> {
        let mut trying = TrialMapping::of(self.problem, self.problem.seats.clone());
        for _ in 0..PASSES {
            if !trying.pass(aim, self.classes) {
                break;
            }
        }
        spots_for_classes(
            self.problem,
            self.classes,
            &trying.seats.iter().map(|spot| self.classes[*spot as usize]).collect::<Vec<_>>(),
        )
    }

    /// Exchanges ranks around a mapping, the slowest ranks first, until no exchange is better or none can be afforded.
    fn climb(&mut self, mut at: Vec<u32>) -> Result<()> {
        while self.left > 0 && self.climbed.insert(at.clone()) {
            let time = self.time(&at) * (1.0 - LEAST);
            let mut around = TrialMapping::of(self.problem, at.clone()).around(self.classes).into_iter();
            let better = loop {
                let next: Vec<Vec<u32>> = around.by_ref().take(BATCH).collect();
                self.judge(next.clone())?;
                let best = next.iter().min_by(|one, other| self.time(one).total_cmp(&self.time(other)));
                match best {
                    Some(best) if self.time(best) < time => break Some(best.clone()),
                    Some(_) if self.left > 0 => {}
                    _ => break None,
                }
            };
            match better {
                Some(better) => at = better,
                None => break,
            }
        }
        Ok(())
    }

    /// The best mapping without its needless moves.
    fn without_needless(&mut self) -> Result<Vec<u32>> {
        let mut best = self.best();
        let mut rank = 0;
        while rank < best.len() && self.left > 0 {
            let (has, had) = (best[rank], self.problem.seats[rank]);
            if has != had {
                let mut back = best.clone();
                if let Some(there) = best.iter().position(|spot| *spot == had) {
                    back[there] = has;
                }
                back[rank] = had;
                let allowed = (0..back.len()).all(|rank| self.problem.allows(self.problem.seats[rank], back[rank]));
                if allowed {
                    self.judge(vec![back.clone()])?;
                    if self.time(&back) <= self.time(&best) * (1.0 + LEAST / 4.0) {
                        best = back;
                    }
                }
            }
            rank += 1;
        }
        Ok(best)
    }
}

/// Exponent of the norm in place of the maximum over ranks, so that a gain of one of several slowest ranks counts.
const NORM: i32 = 32;

/// The least step by estimate; smaller ones are rounding.
const STEP: f64 = 1e-6;

/// A mapping with the times of its ranks.
struct TrialMapping<'p> {
    problem: &'p Problem,
    seats: Vec<u32>,
    times: Vec<f64>,
    /// The sum of the times, and of their powers of [`NORM`].
    sum: f64,
    powers: f64,
    /// By rank: its pairs.
    talks: Vec<Vec<u32>>,
    free: Vec<u32>,
}

impl<'p> TrialMapping<'p> {
    fn of(problem: &'p Problem, seats: Vec<u32>) -> TrialMapping<'p> {
        let mut talks = vec![Vec::new(); seats.len()];
        for (place, talk) in (0u32..).zip(&problem.talks) {
            for rank in [talk.one, talk.other] {
                talks[rank as usize].push(place);
            }
        }
        let taken: BTreeSet<u32> = seats.iter().copied().collect();
        let free = (0..problem.spots.len() as u32).filter(|spot| !taken.contains(spot)).collect();
        let times: Vec<f64> = seats.iter().enumerate().map(|(rank, spot)| problem.time(rank, *spot)).collect();
        let (sum, powers) = (times.iter().sum(), times.iter().map(|time| time.powi(NORM)).sum());
        TrialMapping { problem, seats, times, sum, powers, talks, free }
    }

    /// Ranks by time, the slowest first.
    fn slowest(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> = (0..self.seats.len()).collect();
        ranks.sort_by(|a, b| self.times[*b].total_cmp(&self.times[*a]));
        ranks
    }

    /// Makes each exchange that is better, in one pass; returns whether there was one.
    fn pass(&mut self, aim: Aim, classes: &[u32]) -> bool {
        let mut better = false;
        let all = self.slowest();
        for rank in all.iter().copied().take(SLOWEST) {
            for other in all.iter().copied() {
                let (from, to) = (self.seats[rank], self.seats[other]);
                if classes[from as usize] != classes[to as usize] && self.problem.allows(from, to) {
                    better |= self.exchange(aim, &[(rank, to), (other, from)]);
                }
            }
            for place in 0..self.free.len() {
                let (from, to) = (self.seats[rank], self.free[place]);
                if classes[from as usize] != classes[to as usize]
                    && self.problem.allows(from, to)
                    && self.exchange(aim, &[(rank, to)])
                {
                    self.free[place] = from;
                    better = true;
                }
            }
        }
        better
    }

    /// Makes the moves if they better the mapping; returns whether they do.
    fn exchange(&mut self, aim: Aim, moves: &[(usize, u32)]) -> bool {
        let before = self.figure(aim, moves);
        let old: Vec<(usize, u32)> = moves.iter().map(|(rank, _)| (*rank, self.seats[*rank])).collect();
        self.seat(moves);
        let is_better = self.figure(aim, moves) < before * (1.0 - STEP);
        if !is_better {
            self.seat(&old);
        }
        is_better
    }

    fn seat(&mut self, moves: &[(usize, u32)]) {
        for (rank, spot) in moves {
            self.seats[*rank] = *spot;
            let time = self.problem.time(*rank, *spot);
            let before = std::mem::replace(&mut self.times[*rank], time);
            self.sum += time - before;
            self.powers += time.powi(NORM) - before.powi(NORM);
        }
    }

    /// The estimate, with the pairs of the moved ranks only.
    fn figure(&self, aim: Aim, moves: &[(usize, u32)]) -> f64 {
        let slowest = self.powers.max(0.0).powf(1.0 / f64::from(NORM));
        let mean = self.sum / self.times.len().max(1) as f64;
        let pairs = |weight: f64, of: fn(&Problem, &Talk, &[u32]) -> f64| match weight > 0.0 {
            true => {
                let talks = moves.iter().flat_map(|(rank, _)| &self.talks[*rank]);
                weight
                    * talks.map(|talk| of(self.problem, &self.problem.talks[*talk as usize], &self.seats)).sum::<f64>()
            }
            false => 0.0,
        };
        slowest + aim.mean * mean + pairs(aim.unequal, Problem::unequal) + pairs(aim.apart, Problem::apart)
    }

    /// The mappings that differ by one exchange from the best, those of the slowest ranks first.
    fn around(&self, classes: &[u32]) -> Vec<Vec<u32>> {
        let all = self.slowest();
        let mut around = Vec::new();
        for rank in all.iter().copied().take(SLOWEST) {
            let from = self.seats[rank];
            let differs = |to: u32| classes[from as usize] != classes[to as usize] && self.problem.allows(from, to);
            let others = all.iter().rev().copied().filter(|other| differs(self.seats[*other]));
            around.extend(others.map(|other| {
                let mut seats = self.seats.clone();
                seats.swap(rank, other);
                seats
            }));
            let mut seen = BTreeSet::new();
            around.extend(self.free.iter().filter(|to| differs(**to) && seen.insert(classes[**to as usize])).map(
                |to| {
                    let mut seats = self.seats.clone();
                    seats[rank] = *to;
                    seats
                },
            ));
        }
        around
    }
}

/// Spots of these classes by rank: a rank whose class has not changed keeps its spot.
fn spots_for_classes(problem: &Problem, classes: &[u32], of_rank: &[u32]) -> Vec<u32> {
    let keeps = |rank: usize| classes[problem.seats[rank] as usize] == of_rank[rank];
    let mut taken = vec![false; problem.spots.len()];
    (0..of_rank.len()).filter(|rank| keeps(*rank)).for_each(|rank| taken[problem.seats[rank] as usize] = true);
    // Spots that ranks leave come before spots without a recorded rank.
    let had: BTreeSet<u32> = problem.seats.iter().copied().collect();
    let mut free: Vec<u32> = (0..problem.spots.len() as u32).filter(|spot| !taken[*spot as usize]).collect();
    free.sort_by_key(|spot| !had.contains(spot));
    let mut of_class: BTreeMap<u32, std::vec::IntoIter<u32>> = BTreeMap::new();
    for class in classes.iter().copied().collect::<BTreeSet<u32>>() {
        let spots: Vec<u32> = free.iter().copied().filter(|spot| classes[*spot as usize] == class).collect();
        of_class.insert(class, spots.into_iter());
    }
    (0..of_rank.len())
        .map(|rank| match keeps(rank) {
            true => problem.seats[rank],
            false => of_class.get_mut(&of_rank[rank]).and_then(Iterator::next).unwrap_or(problem.seats[rank]),
        })
        .collect()
}

/// Least share by which distances of partners must shrink for ranks of one class to change places.
const NEARER: f64 = 0.1;

/// Exchanges ranks of one class so that talkative partners are near (c), if distances shrink by [`NEARER`].
fn placed_by_distance(problem: &Problem, classes: &[u32], seats: Vec<u32>) -> Vec<u32> {
    if problem.distances.is_empty() {
        return seats;
    }
    let far = |seats: &[u32]| problem.talks.iter().map(|talk| problem.far(talk, seats)).sum::<f64>();
    let before = far(&seats);
    let mut trying = TrialMapping::of(problem, seats.clone());
    let of_ranks = |trying: &TrialMapping, ranks: [usize; 2]| -> f64 {
        let pairs = |rank: usize| {
            let talks = trying.talks[rank].iter();
            talks.map(|talk| problem.far(&problem.talks[*talk as usize], &trying.seats)).sum::<f64>()
        };
        ranks.into_iter().map(pairs).sum()
    };
    for _ in 0..PASSES {
        let mut better = false;
        for one in 0..seats.len() {
            for other in one + 1..seats.len() {
                if classes[trying.seats[one] as usize] != classes[trying.seats[other] as usize] {
                    continue;
                }
                let now = of_ranks(&trying, [one, other]);
                trying.seats.swap(one, other);
                match of_ranks(&trying, [one, other]) < now * (1.0 - LEAST) {
                    true => better = true,
                    false => trying.seats.swap(one, other),
                }
            }
        }
        if !better {
            break;
        }
    }
    if far(&trying.seats) < before * (1.0 - NEARER) { trying.seats } else { seats }
}

#[cfg(test)]
mod tests;
