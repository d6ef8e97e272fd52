//! A recorded program as a problem, with its replay as the judge.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use machine::{CoreCapability, CoreId, Fault, Reading, Result};
use profile::summary::{Outside, RankSummary, Summary};
use whatif::answer::{Mapper, Program};
use whatif::graph::{Graph, Message};
use whatif::lever::Mapping;
use whatif::lever::mapping::SAMPLED;
use whatif::sockets::Softirqs;

use crate::problem::{ALIKE, LEAST, Load, Problem, Spot, Talk};
use crate::search::Judge;

/// Most calls and pieces of messages that a search replays, over all mappings.
const REPLAYED: usize = 10_000_000;

/// Calls and pieces of messages on which mappings of a longer recording are decided, and the least number of calls of a thread.
const DECIDE: usize = 40_000;
const OF_THREAD: usize = 64;

/// Bytes of a piece, and the most pieces of a message that count.
const PIECE: u64 = 16 << 10;
const PIECES: u64 = 64;

/// The least and the most mappings that a search judges.
const JUDGED: std::ops::RangeInclusive<usize> = 8..=4096;

/// The most mappings where there are more exchanges of two ranks than can be judged, so that estimates have to find the way.
const FEW: usize = 24;

/// Busy share of its sibling thread from which on a free core is left out, as it is no core of its own.
const SHARED: f64 = 0.5;

/// One MPI_COMM_WORLD of a profile.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// Its timeline as a graph.
    pub graph: &'a Graph,
    /// Its figures, cores among them.
    pub summary: &'a Summary,
    /// The number of the MPI_COMM_WORLD.
    pub world: usize,
    /// The shares of the cores that ranks can have.
    pub capability: &'a [CoreCapability],
    /// Whether ranks may change their hosts.
    pub across: bool,
}

impl Recorded<'_> {
    /// The mapping problem of the job. `distance` of two cores of a host: 0 the same core, 1 the farthest; `None`: not known.
    ///
    /// # Errors
    /// The cores of ranks, or the shares that others take of them, are not known, or two ranks share a core.
    pub fn problem(&self, distance: impl Fn(&str, CoreId, CoreId) -> Option<f32>) -> Result<Problem> {
        let ranks = self.ranks()?;
        let hosts = self.hosts(&ranks)?;
        let mut problem = Problem { hosts, across: self.across, ..Problem::default() };
        let mut on: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for (rank, of) in (0u32..).zip(&ranks) {
            let at = (self.graph.hosts[rank as usize], core(of)?);
            if let Some(other) = on.insert(at, rank) {
                let next = "start each rank on a core of its own, and profile it again";
                return Err(Fault::new(
                    format!("ranks {other} and {rank}"),
                    format!("both were on core {} of {} most of the time", at.1, of.host),
                    next,
                ));
            }
        }
        problem.seats = vec![0; ranks.len()];
        for (host, name) in (0u32..).zip(&problem.hosts) {
            for of in self.capability.iter().filter(|of| of.host == *name) {
                let rank = on.get(&(host, of.core.0));
                let spot = match (spot(host, of), rank) {
                    (Ok(spot), _) => spot,
                    (Err(_), None) => continue,
                    (Err(reason), Some(_)) => return Err(unknown(name, of.core, &reason)),
                };
                if rank.is_none() && of.sibling.value().is_some_and(|busy| *busy > SHARED) {
                    continue;
                }
                if let Some(rank) = rank {
                    problem.seats[*rank as usize] = problem.spots.len() as u32;
                }
                problem.spots.push(spot);
            }
        }
        problem.sampled = self.capability.iter().all(|of| of.softirq.value().is_some());
        let there = |(host, core): &&(u32, u32)| problem.spots.iter().any(|at| (at.host, at.core.0) == (*host, *core));
        if let Some((host, core)) = on.keys().find(|at| !there(at)) {
            let reason = "nothing was sampled there";
            return Err(unknown(&problem.hosts[*host as usize], CoreId(*core), reason));
        }
        let run = self.summary.totals.seconds.max(f64::MIN_POSITIVE);
        problem.ranks = ranks
            .iter()
            .zip(&problem.seats)
            .map(|(rank, seat)| load(rank, run, problem.spots[*seat as usize].dilation()))
            .collect();
        problem.blocked = ranks.iter().map(|rank| blocked(&rank.outside, rank.compute)).collect();
        problem.talks = self.talks();
        far(&mut problem, &distance);
        problem.distances = distances(&problem, distance);
        Ok(problem)
    }

    /// The summaries of the world's ranks, by rank.
    fn ranks(&self) -> Result<Vec<&RankSummary>> {
        let of = |rank: u32| self.summary.ranks.iter().find(|of| of.world == self.world && of.rank == rank);
        let all = (0..self.graph.hosts.len() as u32).map(|rank| {
            of(rank).ok_or_else(|| {
                Fault::new(
                    format!("rank {rank}"),
                    "there are no tables of it",
                    "copy the tables of all ranks into the profile",
                )
            })
        });
        all.collect()
    }

    /// The names of the graph's hosts.
    fn hosts(&self, ranks: &[&RankSummary]) -> Result<Vec<String>> {
        let number = self.graph.hosts.iter().max().map_or(0, |last| last + 1);
        let mut names = vec![String::new(); number as usize];
        self.graph.hosts.iter().zip(ranks).for_each(|(host, rank)| names[*host as usize].clone_from(&rank.host));
        let differ = names.iter().collect::<BTreeSet<_>>().len() == names.len();
        differ.then_some(names).ok_or_else(|| {
            Fault::new(
                "the hosts",
                "two of them have one name",
                "give each host a name of its own, and profile it again",
            )
        })
    }

    fn talks(&self) -> Vec<Talk> {
        let mut pairs: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let ranks = self.graph.hosts.len() as u64;
        for [from, to, messages, bytes, ..] in
            self.summary.matrices.get(self.world).map_or(&[][..], |matrix| &matrix.cells)
        {
            if from != to && *from < ranks && *to < ranks {
                let pair = pairs.entry(((*from).min(*to) as u32, (*from).max(*to) as u32)).or_default();
                *pair = (pair.0.saturating_add(*messages), pair.1.saturating_add(*bytes));
            }
        }
        let all = pairs.values().map(|(_, bytes)| *bytes as f64).sum::<f64>().max(1.0);
        let talk = |((one, other), (messages, bytes))| Talk {
            one,
            other,
            share: bytes as f64 / all,
            mean: bytes as f64 / f64::max(messages as f64, 1.0),
        };
        pairs.into_iter().map(talk).collect()
    }
}

fn core(rank: &RankSummary) -> Result<u32> {
    let next = "profile the program with plimsoll profile, and keep its samples";
    let fault = |cause: String| Fault::new(format!("rank {}", rank.rank), cause, next);
    match &rank.cores {
        Reading::Measured(cores) | Reading::Modelled(cores) => {
            cores.first().copied().ok_or_else(|| fault("no core was seen under it".into()))
        }
        Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => {
            Err(fault(format!("its core is not known: {reason}")))
        }
    }
}

fn unknown(host: &str, core: CoreId, reason: &str) -> Fault {
    let next = format!("profile again where cores can be sampled, or say it: --capability {host}:{}=SHARE", core.0);
    Fault::new(format!("core {} of {host}", core.0), format!("what others take of it is not known: {reason}"), next)
}

fn spot(host: u32, of: &CoreCapability) -> std::result::Result<Spot, String> {
    let taken = match &of.taken {
        Reading::Measured(taken) | Reading::Modelled(taken) => *taken,
        Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => return Err(reason.clone()),
    };
    // Softirqs that were not counted apart are in `taken`.
    let softirq = of.softirq.value().copied().unwrap_or(0.0).clamp(0.0, taken);
    let clock = of.clock.value().copied().unwrap_or(1.0);
    // (1 - taken) x clock = free x (1 - softirq)
    let free = (1.0 - taken).max(0.0) / (1.0 - softirq).max(LEAST) * clock;
    Ok(Spot { host, core: of.core, softirq, free: free.max(LEAST), far: false })
}

/// The distance beyond which two cores are in different packages.
const PACKAGE: f32 = 0.9;

/// Marks the spots that are in another package than the core that does most of the host's softirqs.
fn far(problem: &mut Problem, distance: impl Fn(&str, CoreId, CoreId) -> Option<f32>) {
    for host in 0..problem.hosts.len() as u32 {
        let of_host = problem.spots.iter().filter(|spot| spot.host == host && spot.softirq > ALIKE);
        let Some(receives) = of_host.max_by(|a, b| a.softirq.total_cmp(&b.softirq)).map(|spot| spot.core) else {
            continue;
        };
        let name = &problem.hosts[host as usize];
        for spot in problem.spots.iter_mut().filter(|spot| spot.host == host) {
            spot.far = distance(name, receives, spot.core).is_some_and(|distance| distance > PACKAGE);
        }
    }
}

fn load(rank: &RankSummary, run: f64, dilation: f64) -> Load {
    let threads = f64::from(rank.threads.max(1));
    let share = |seconds: f64| (seconds / threads / run).clamp(0.0, 1.0);
    // A rank whose waiting time is not known has no slack.
    let waits = rank.split.wait.value().copied().unwrap_or(0.0);
    let still = blocked(&rank.outside, rank.compute) * rank.compute;
    Load { computing: share(rank.computing()) / dilation, fixed: share((rank.mpi - waits).max(0.0) + still) }
}

/// The share of a rank's time outside MPI, `compute` seconds, in which it was blocked or stopped.
fn blocked(outside: &Outside, compute: f64) -> f64 {
    let part = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
    ratio(part(&outside.blocked) + part(&outside.stopped), compute).clamp(0.0, 1.0)
}

/// Least share of a stall in a rank's time that is reported.
const WORTH_SAYING: f64 = 0.05;

/// Sentences on ranks that were stalled for much of the run, which no core changes.
pub fn stalls(summary: &Summary) -> Vec<String> {
    let of = |rank: &RankSummary| {
        let (seconds, stall) = rank.outside.stall()?;
        let share = ratio(seconds, rank.thread_seconds);
        (share >= WORTH_SAYING).then(|| {
            let words = stall.words();
            format!("rank {} was {words} for {:.1} % of its time, which no core changes", rank.rank, 100.0 * share)
        })
    };
    summary.ranks.iter().filter(|rank| rank.world == 0).filter_map(of).collect()
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn distances(problem: &Problem, distance: impl Fn(&str, CoreId, CoreId) -> Option<f32>) -> Vec<f32> {
    let spots = &problem.spots;
    let of = |one: &Spot, other: &Spot| match one.host == other.host {
        true => distance(&problem.hosts[one.host as usize], one.core, other.core),
        false => Some(1.0),
    };
    let all: Option<Vec<f32>> = spots.iter().flat_map(|one| spots.iter().map(move |other| of(one, other))).collect();
    // Equal distances between all cores carry no information.
    all.filter(|all| {
        let apart = all.iter().enumerate().filter(|(at, _)| at / spots.len() != at % spots.len());
        let apart: BTreeSet<u32> = apart.map(|(_, distance)| distance.to_bits()).collect();
        apart.len() > 1
    })
    .unwrap_or_default()
}

/// The softirqs of a run of `run` ns, for its replay; `None`: there were none, no core is far from where they are done, and
/// ranks stay on their hosts or nobody sampled.
pub fn softirqs(problem: &Problem, run: f64) -> Option<Softirqs> {
    let softirq = |spot: u32| problem.spots[spot as usize].softirq;
    let hosts = of_hosts(problem, softirq).into_iter().map(|share| share * run).collect();
    let far = is_far(problem, &problem.seats);
    Some(Softirqs { hosts, shares: shares(problem, &problem.seats, softirq), far })
        .filter(|of| of.hosts.iter().any(|ns| *ns > 0.0) || !of.far.is_empty() || problem.across && problem.sampled)
}

/// By rank: whether its spot is far; empty: no spot is.
fn is_far(problem: &Problem, seats: &[u32]) -> Vec<bool> {
    let none = problem.spots.iter().all(|spot| !spot.far);
    if none { Vec::new() } else { seats.iter().map(|spot| problem.spots[*spot as usize].far).collect() }
}

/// By host: the sum over its spots.
fn of_hosts(problem: &Problem, softirq: impl Fn(u32) -> f64) -> Vec<f64> {
    let mut hosts = vec![0.0; problem.hosts.len()];
    (0u32..).zip(&problem.spots).for_each(|(spot, at)| hosts[at.host as usize] += softirq(spot));
    hosts
}

/// By rank: the share of its host's softirqs that its spot does.
fn shares(problem: &Problem, seats: &[u32], softirq: impl Fn(u32) -> f64) -> Vec<f64> {
    let hosts = of_hosts(problem, &softirq);
    let share = |spot: &u32| {
        let all = hosts[problem.spots[*spot as usize].host as usize];
        if all > 0.0 { softirq(*spot) / all } else { 0.0 }
    };
    seats.iter().map(share).collect()
}

/// Replays of the recorded program.
#[derive(Debug)]
pub struct Replays<'p> {
    problem: &'p Problem,
    graph: &'p Graph,
    mapper: Mapper<'p>,
    /// Time of the run, ns.
    run: f64,
    /// By host: bytes between hosts that come to its ranks.
    incoming: Vec<f64>,
}

impl<'p> Replays<'p> {
    /// Replays of `program`, which is of `graph` and took `seconds`.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn of(problem: &'p Problem, graph: &'p Graph, program: &'p Program<'p>, seconds: f64) -> Result<Replays<'p>> {
        let mut replays =
            Replays { problem, graph, mapper: program.mapper()?, run: seconds * 1e9, incoming: Vec::new() };
        replays.incoming = replays.incoming(&problem.seats);
        Ok(replays)
    }

    fn incoming(&self, seats: &[u32]) -> Vec<f64> {
        let host = |rank: u32| self.problem.spots[seats[rank as usize] as usize].host as usize;
        let mut incoming = vec![0.0; self.problem.hosts.len()];
        for talk in &self.problem.talks {
            let (one, other) = (host(talk.one), host(talk.other));
            if one != other {
                incoming[one] += talk.share;
                incoming[other] += talk.share;
            }
        }
        incoming
    }

    /// The lever of a mapping. Softirqs of a host grow and shrink with the bytes that come from other hosts.
    pub fn mapping(&self, seats: &[u32]) -> Mapping {
        let incoming = self.incoming(seats);
        let grown = |host: u32| {
            let (before, after) = (self.incoming[host as usize], incoming[host as usize]);
            if before > 0.0 { after / before } else { 1.0 }
        };
        self.lever(seats, |spot| {
            let of = &self.problem.spots[spot as usize];
            of.softirq * grown(of.host)
        })
    }

    /// The lever of softirqs that move to other cores while the ranks stay. `softirq`: by spot, the share for softirqs.
    pub fn steering(&self, softirq: &[f64]) -> Mapping {
        self.lever(&self.problem.seats, |spot| softirq[spot as usize])
    }

    fn lever(&self, seats: &[u32], softirq: impl Fn(u32) -> f64) -> Mapping {
        let Problem { spots, seats: before, .. } = self.problem;
        let ns = |share: f64| Some(share * self.run);
        let at = |spot: u32| &spots[spot as usize];
        Mapping {
            hosts: seats.iter().map(|spot| at(*spot).host).collect(),
            cores: seats.iter().map(|spot| before.iter().position(|of| of == spot).map(|rank| rank as u32)).collect(),
            capability: (0..)
                .zip(seats.iter().zip(before))
                .map(|(rank, (to, from))| self.problem.faster(rank, *from, *to))
                .collect(),
            softirqs: before.iter().map(|spot| ns(at(*spot).softirq)).collect(),
            steered: seats.iter().map(|spot| ns(softirq(*spot))).collect(),
            shares: shares(self.problem, seats, &softirq),
            far: is_far(self.problem, seats),
            stays: SAMPLED,
        }
    }

    /// The time under a lever of [`Replays::mapping`] or [`Replays::steering`] over that of the run.
    ///
    /// # Errors
    /// A cost was never measured here.
    pub fn under(&self, mapping: Mapping) -> Result<f64> {
        self.mapper.time(mapping)
    }
}

impl Judge for Replays<'_> {
    fn time(&self, seats: &[u32]) -> Result<f64> {
        self.under(self.mapping(seats))
    }

    fn affordable(&self) -> usize {
        let affordable = (REPLAYED / replayed(self.graph).max(1)).clamp(*JUDGED.start(), *JUDGED.end());
        let ranks = self.problem.seats.len();
        if ranks * (ranks - 1) / 2 > affordable { affordable.min(FEW) } else { affordable }
    }
}

/// Calls, and pieces of messages.
fn replayed(graph: &Graph) -> usize {
    let pieces = |of: &Message| graph.kinds[of.kind as usize].bytes.div_ceil(PIECE).min(PIECES) as usize;
    graph.len() + graph.messages.iter().map(pieces).sum::<usize>()
}

/// What mappings of a recording of `seconds` are decided on, with the time that it took: a stretch from the middle of a long
/// one, as the replays that decide are many.
pub fn deciding(graph: &Graph, seconds: f64) -> (Cow<'_, Graph>, f64) {
    let calls = DECIDE * graph.len() / replayed(graph).max(1);
    stretch(graph, seconds, calls.max(OF_THREAD * graph.lanes.len()))
}

/// As [`deciding`], of `most` calls.
pub(crate) fn stretch(graph: &Graph, seconds: f64, most: usize) -> (Cow<'_, Graph>, f64) {
    let time = |(begun, end): (i64, i64)| (end - begun) as f64;
    match graph.excerpt(most) {
        Some(part) => {
            let share = ratio(time(part.span()), time(graph.span()));
            (Cow::Owned(part), seconds * share)
        }
        None => (Cow::Borrowed(graph), seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleep of a rank outside MPI does not depend on its core; computing does.
    #[test]
    fn only_what_is_on_a_core_depends_on_it() {
        let at = |core, free| Spot { host: 0, core: CoreId(core), softirq: 0.0, free, far: false };
        let spots = vec![at(0, 0.5), at(1, 1.0)];
        let problem = Problem { spots, blocked: vec![0.0, 0.5, 1.0], ..Problem::default() };
        let faster = [0, 1, 2].map(|rank| problem.faster(rank, 0, 1));
        assert_eq!(faster.map(|of| (1000.0 * of).round()), [2000.0, 1333.0, 1000.0]);
        assert_eq!(Problem { blocked: Vec::new(), ..problem }.faster(2, 0, 1), 2.0);
    }

    #[test]
    fn a_rank_that_sleeps_is_blocked_as_far_as_is_known() {
        let told = Reading::Modelled;
        let outside = Outside { stopped: told(0.5), blocked: told(9.0), ..Outside::default() };
        assert!((blocked(&outside, 10.0) - 0.95).abs() < 1e-9);
        assert_eq!(
            (blocked(&outside, 5.0), blocked(&outside, 0.0), blocked(&Outside::default(), 10.0)),
            (1.0, 0.0, 0.0)
        );
    }

    #[test]
    fn a_core_that_others_take_whole_leaves_a_rank_its_turns() {
        let taken = |taken, softirq| CoreCapability {
            host: "h".into(),
            core: CoreId(0),
            taken: Reading::Measured(taken),
            softirq: Reading::Measured(softirq),
            clock: Reading::Measured(0.5),
            sibling: Reading::Measured(0.0),
        };
        let free = |taken_by, softirq| spot(0, &taken(taken_by, softirq)).unwrap().free;
        assert_eq!((free(0.0, 0.0), free(0.75, 0.5)), (0.5, 0.25));
        assert_eq!((free(1.0, 0.0), free(1.0, 1.0), free(0.999, 0.0)), (LEAST, LEAST, LEAST));
    }
}
