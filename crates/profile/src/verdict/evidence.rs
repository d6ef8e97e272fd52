//! The figures of a profile that the verdict needs.

use std::collections::{BTreeMap, BTreeSet};

use machine::{Reading, count};

use super::{Bounds, NOISE, amount, share};
use crate::profile::ranges;
use crate::split::RENDEZVOUS;
use crate::summary::{FunctionSize, FunctionSummary, Matrix, RankSummary, SiteSummary, Stall, Summary, ratio};
use crate::terminal::place;

/// One rank, in seconds of its run. A missing figure is not 0: it has wide bounds or a reason.
#[derive(Debug, Clone)]
pub struct RankEvidence {
    /// Its rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Index into [`Evidence::hosts`].
    pub host: usize,
    /// The core on which the rank was seen most.
    pub core: Option<u32>,
    /// Whether the rank was seen on other cores too.
    pub moved: bool,
    pub runtime: f64,
    pub mpi: f64,
    /// Time outside MPI and, as far as that is known, on a core: neither stopped nor runnable nor blocked.
    pub compute: f64,
    pub calls: u64,
    /// Messages that the rank began.
    pub messages: u64,
    pub bytes: u64,
    /// Least time in calls that only begin messages or hand them over: work of the host, not waiting.
    pub posting: f64,
    /// Time of its calls when nobody is late: protocol, copies and wire.
    pub transfer: Bounds,
    pub wait: Bounds,
    /// The part of the wait for partners that had begun their half of a message and were outside of MPI.
    pub away: Bounds,
    /// The kernel's network work (softirqs) on the rank's core while it was there.
    pub protocol: Bounds,
    /// Time for which the rank was blocked outside MPI, and the cause; `None` if unknown.
    pub stall: Option<(f64, Stall)>,
    pub stopped: Reading<f64>,
    /// Time in which the rank was runnable while others had its core.
    pub run_delay: Reading<f64>,
    /// The part of `run_delay` after the rank gave up its core itself, inside MPI: it waited.
    pub yielded: Reading<f64>,
    /// Time that a hypervisor took from its core while it was there.
    pub stolen: Reading<f64>,
    /// Time that others waited for it.
    pub caused: Reading<f64>,
}

impl RankEvidence {
    /// The kernel's network work that interrupts this rank's own computing, at least, taken as evenly spread over the run.
    pub fn interrupting(&self) -> f64 {
        if self.runtime > 0.0 { self.protocol.least * self.compute / self.runtime } else { 0.0 }
    }

    /// Time outside MPI, computing or blocked.
    pub fn outside(&self) -> f64 {
        self.compute + self.stall.map_or(0.0, |(seconds, _)| seconds)
    }

    /// Time in which the rank was runnable while others had a core that it had not given up.
    pub fn denied(&self) -> Reading<f64> {
        let yielded = self.yielded.value().copied().unwrap_or(0.0);
        self.run_delay.clone().map(|delay| (delay - yielded).max(0.0))
    }

    /// Most seconds of transfer and of waits for data that a device or another core would have moved.
    pub fn moving(&self) -> f64 {
        (self.transfer.most + self.away.most).min(self.mpi)
    }
}

#[derive(Debug, Clone)]
pub struct HostEvidence {
    pub name: String,
    /// Online cores.
    pub cores: Reading<u32>,
}

/// Calls of one function with sizes of one class.
#[derive(Debug, Clone)]
pub struct SizeEvidence {
    pub class: String,
    /// The smallest size.
    pub floor: u64,
    pub calls: u64,
    pub bytes: u64,
    /// Of the ranks' time.
    pub share: f64,
    /// The part of `share` that the calls take when nobody is late; 0 where that is not known.
    pub work: f64,
}

/// A place in the source that calls MPI.
#[derive(Debug, Clone)]
pub struct SiteEvidence {
    /// `MPI_Recv at stage.c:40 stage`.
    pub words: String,
    pub class: String,
    pub calls: u64,
    pub bytes: u64,
    /// Of the ranks' time.
    pub share: f64,
    /// Mean seconds of a call.
    pub mean: f64,
}

#[derive(Debug, Clone)]
pub struct Evidence {
    pub ranks: Vec<RankEvidence>,
    pub hosts: Vec<HostEvidence>,
    /// Number of ranks without tables.
    pub missing: usize,
    /// Share of sent data whose receiver is on another host.
    pub between_hosts: Bounds,
    /// Seconds of all threads of all ranks.
    pub spent: f64,
    pub sizes: Vec<SizeEvidence>,
    /// Call sites, the longest time first.
    pub sites: Vec<SiteEvidence>,
}

/// Classes of calls whose unhindered part is the host's work for messages: they begin them or hand them over.
const POSTING: [&str; 2] = ["post", "send"];

/// Classes of calls that may wait for a message of which both halves have begun.
const MAY_MISS: [&str; 4] = ["send", "receive", "exchange", "completion"];

impl Evidence {
    pub fn of(summary: &Summary) -> Evidence {
        let work: BTreeMap<&str, f64> = POSTING.map(|class| (class, unhindered(summary, class))).into();
        let hosts = summary.job.hosts.iter();
        let mut hosts: Vec<_> =
            hosts.map(|host| HostEvidence { name: host.name.clone(), cores: host.cores.clone() }).collect();
        let sum = |of: fn(&RankSummary) -> f64| summary.ranks.iter().map(of).sum::<f64>();
        // Of the threads that waited for a rank, their mean.
        let others = ratio(sum(|rank| rank.seconds), sum(|rank| rank.thread_seconds));
        let ranks = summary.ranks.iter().map(|rank| {
            let host = hosts.iter().position(|host| host.name == rank.host).unwrap_or_else(|| {
                let cores = Reading::absent("nothing is known of this host");
                hosts.push(HostEvidence { name: rank.host.clone(), cores });
                hosts.len() - 1
            });
            of_rank(rank, host, &work, others)
        });
        let mut ranks: Vec<RankEvidence> = ranks.collect();
        let missing = summary.job.expected.saturating_sub(summary.job.ranks);
        if missing == 0 {
            let outside = outside_of_partners(summary);
            ranks.iter_mut().zip(outside).for_each(|(rank, most)| rank.away.narrow(most));
        }
        let between_hosts = between_hosts(summary, missing);
        let spent = summary.totals.thread_seconds;
        Evidence { ranks, hosts, missing, between_hosts, spent, sizes: sizes(summary), sites: sites(summary) }
    }

    /// The share of the ranks' time in calls of these classes.
    pub(super) fn share_in(&self, classes: &[&str]) -> f64 {
        self.sizes.iter().filter(|size| classes.contains(&size.class.as_str())).map(|size| size.share).sum()
    }

    /// The place that calls functions of these classes for the longest time.
    pub(super) fn first_of(&self, classes: &[&str]) -> Option<&SiteEvidence> {
        self.sites.iter().find(|site| classes.contains(&site.class.as_str()))
    }

    /// The place that `first_of` finds as the end of a sentence; empty where unknown.
    pub(super) fn most_in(&self, classes: &[&str]) -> String {
        self.first_of(classes).map_or_else(String::new, |site| format!(", most in {}", site.words))
    }

    /// Whether no call of the program moves data or meets other ranks.
    pub fn is_silent(&self) -> bool {
        let is_local = |size: &SizeEvidence| ["management", "request", "probe"].contains(&size.class.as_str());
        self.missing == 0 && self.ranks.iter().all(|rank| rank.messages == 0) && self.sizes.iter().all(is_local)
    }

    pub fn is_empty(&self) -> bool {
        self.ranks.iter().all(|rank| rank.runtime <= 0.0)
    }

    /// The run, as long as its longest rank.
    pub fn runtime(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.runtime).fold(0.0, f64::max)
    }

    /// A share of the run, as the mean over ranks of seconds.
    pub fn mean(&self, seconds: impl Fn(&RankEvidence) -> f64) -> f64 {
        let run = self.runtime() * self.ranks.len() as f64;
        if run > 0.0 { self.ranks.iter().map(seconds).sum::<f64>() / run } else { 0.0 }
    }

    /// Bounds of the mean share of the run, with the reasons of all ranks for unknown parts.
    pub fn bounds(&self, of: impl Fn(&RankEvidence) -> &Bounds) -> Bounds {
        let mut reasons: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for rank in &self.ranks {
            if let Some(reason) = &of(rank).unknown {
                reasons.entry(reason).or_default().push(rank.rank);
            }
        }
        let all = |ranks: &Vec<u32>| ranks.len() == self.ranks.len();
        let said = reasons.iter().map(|(reason, ranks)| match all(ranks) {
            true => (*reason).to_owned(),
            false => {
                let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
                format!("{reason} ({noun} {})", ranges(ranks.iter().copied()))
            }
        });
        let said: Vec<String> = said.collect();
        Bounds {
            least: self.mean(|rank| of(rank).least),
            most: self.mean(|rank| of(rank).most),
            unknown: (!said.is_empty()).then(|| said.join("; ")),
        }
    }

    pub fn messages_per_second(&self) -> f64 {
        let run = self.runtime();
        if run > 0.0 { self.ranks.iter().map(|rank| rank.messages as f64).sum::<f64>() / run } else { 0.0 }
    }

    pub fn ranks_on(&self, host: usize) -> impl Iterator<Item = (usize, &RankEvidence)> {
        self.ranks.iter().enumerate().filter(move |(_, rank)| rank.host == host)
    }

    /// Whether a host has a core that no rank needs.
    pub fn has_free_core(&self, host: usize) -> Reading<bool> {
        let ranks = self.ranks_on(host).count();
        match self.hosts[host].cores.clone().map(|cores| ranks < cores as usize) {
            Reading::Measured(true) | Reading::Modelled(true) if self.missing > 0 => {
                let ranks = count::of(self.missing as u64, "rank");
                Reading::absent(format!("there are no tables of {ranks}, which may have run there"))
            }
            known => known,
        }
    }

    pub(super) fn words(&self) -> Vec<String> {
        let run = self.runtime();
        if run <= 0.0 {
            return Vec::new();
        }
        let sum = |of: fn(&RankEvidence) -> u64| self.ranks.iter().map(of).fold(0, u64::saturating_add);
        let (calls, messages, bytes) = (sum(|rank| rank.calls), sum(|rank| rank.messages), sum(|rank| rank.bytes));
        let mut words = vec![
            format!(
                "{} ranks call MPI {} times a second, all together, and spend {} of the run in it",
                self.ranks.len(),
                amount(calls as f64 / run),
                share(self.mean(|rank| rank.mpi))
            ),
            format!(
                "{} messages a second, {} bytes each in the mean",
                amount(self.messages_per_second()),
                if messages > 0 { amount(bytes as f64 / messages as f64) } else { "0".into() }
            ),
        ];
        let (transfer, wait) = (self.bounds(|rank| &rank.transfer), self.bounds(|rank| &rank.wait));
        if transfer.unknown().is_none() && wait.unknown().is_none() {
            words.push(format!(
                "{} of the run is transfer, {} waiting for other ranks",
                share(transfer.least),
                share(wait.least)
            ));
        }
        let off_core = self.ranks.iter().flat_map(|rank| [&rank.stopped, &rank.run_delay]);
        if let Some(Reading::Absent { reason } | Reading::NotPermitted { reason, .. }) =
            off_core.into_iter().find(|seconds| seconds.value().is_none())
        {
            words.push(format!("whether every rank had a core all the time is not known: {reason}"));
        }
        words
    }

    pub(super) fn where_time_goes(&self) -> String {
        let compute = self.mean(|rank| rank.compute);
        let wait = self.bounds(|rank| &rank.wait);
        match wait.unknown().is_none() && wait.least > NOISE {
            true => {
                format!("{} of the run is computing and {} waiting for other ranks", share(compute), share(wait.least))
            }
            false => format!("{} of the run is computing", share(compute)),
        }
    }
}

/// Of seconds that several threads of a rank spent at the same time, their mean: a rank waits for no more than its time.
fn of_rank(rank: &RankSummary, host: usize, work: &BTreeMap<&str, f64>, others: f64) -> RankEvidence {
    let split = &rank.split;
    let each = ratio(rank.seconds, rank.thread_seconds);
    // A lower bound: an unknown time of a class of calls adds nothing.
    let working = |class: &str| {
        let known = rank.classes.get(class)?;
        Some(known.split.transfer.value()?.min(known.seconds * work.get(class)?))
    };
    // Undivided time may belong entirely to either part.
    let part = |reading: &Reading<f64>| {
        let least = each * reading.value().copied().unwrap_or(0.0);
        Bounds::between(least, least + each * split.undivided, "too few calls of a kind to tell")
    };
    let classes = MAY_MISS.iter().filter_map(|class| rank.classes.get(*class));
    let may_miss = classes.map(|class| part_of(&class.split.wait) + class.split.undivided).sum::<f64>();
    let of_run = |reading: &Reading<f64>| reading.clone().map(|seconds| seconds * each);
    // A core's time counts once for all threads on the core.
    let of_cores = |reading: &Reading<f64>| reading.clone().map(|seconds| seconds.min(rank.seconds));
    RankEvidence {
        rank: rank.rank,
        host,
        core: rank.cores.value().and_then(|cores| cores.first().copied()),
        moved: rank.cores.value().is_some_and(|cores| cores.len() > 1),
        runtime: rank.seconds,
        mpi: each * rank.mpi,
        compute: each * rank.computing(),
        calls: rank.calls,
        messages: rank.messages,
        bytes: rank.bytes,
        posting: each * POSTING.into_iter().filter_map(working).sum::<f64>(),
        transfer: part(&split.transfer),
        wait: part(&split.wait),
        away: Bounds::of(&of_run(&rank.away), each * may_miss),
        protocol: Bounds::of(&of_cores(&rank.softirq), rank.seconds),
        stall: rank
            .outside
            .stall()
            .or(Some((rank.asleep(), Stall::Unknown)))
            .map(|(seconds, stall)| (each * seconds, stall)),
        stopped: of_run(&rank.stopped),
        run_delay: of_run(&rank.run_delay),
        // Where it is not known, all of the delay that MPI has room for.
        yielded: match (rank.yielded.value(), rank.run_delay.value()) {
            (None, Some(delay)) => Reading::Modelled(each * delay.min(rank.mpi)),
            _ => of_run(&rank.yielded),
        },
        stolen: of_cores(&rank.stolen),
        caused: rank.caused.clone().map(|seconds| seconds * others),
    }
}

/// Seconds of a part; 0 where unknown, since the undivided part then contains them.
fn part_of(reading: &Reading<f64>) -> f64 {
    reading.value().copied().unwrap_or(0.0)
}

/// Which part of the time in calls of a class they would have taken had nothing come between, at least: what a timeline leaves
/// as transfer also has the time in which others had the wire.
fn unhindered(summary: &Summary, class: &str) -> f64 {
    let sizes =
        || summary.functions.iter().filter(|function| function.class == class).flat_map(|function| &function.sizes);
    let seconds: f64 = sizes().map(|size| size.seconds).sum();
    // Even the shortest of sends from this size on may wait for their receiver.
    let is_own = |size: &&FunctionSize| class != "send" || size.floor < RENDEZVOUS;
    if seconds > 0.0 { sizes().filter(is_own).filter_map(work).sum::<f64>() / seconds } else { 0.0 }
}

/// Seconds of the calls when nobody is late, where known.
fn work(size: &FunctionSize) -> Option<f64> {
    Some((size.unhindered.value()? * size.calls as f64).min(size.seconds))
}

fn sizes(summary: &Summary) -> Vec<SizeEvidence> {
    let share = |seconds: f64| ratio(seconds, summary.totals.thread_seconds);
    let counted = summary.functions.iter().filter(|function| function.counted);
    let of = |function: &FunctionSummary| {
        let class = function.class.clone();
        // Where a timeline measures the transfer, all sizes together take no more.
        let all: f64 = function.sizes.iter().filter_map(work).sum();
        let measured = match function.split.transfer {
            Reading::Measured(transfer) if all > transfer => transfer / all,
            _ => 1.0,
        };
        let of_size = move |size: &FunctionSize| SizeEvidence {
            class: class.clone(),
            floor: size.floor,
            calls: size.calls,
            bytes: size.bytes,
            share: share(size.seconds),
            work: share(measured * work(size).unwrap_or(0.0)),
        };
        function.sizes.iter().map(of_size).collect::<Vec<_>>()
    };
    counted.flat_map(of).collect()
}

fn sites(summary: &Summary) -> Vec<SiteEvidence> {
    let classes: BTreeMap<&str, &str> =
        summary.functions.iter().map(|function| (function.name.as_str(), function.class.as_str())).collect();
    let of = |site: &SiteSummary| SiteEvidence {
        words: format!("{} at {}", site.function, place(site)),
        class: classes.get(site.function.as_str()).copied().unwrap_or_default().to_owned(),
        calls: site.calls,
        bytes: site.bytes,
        share: ratio(site.seconds, summary.totals.thread_seconds),
        mean: ratio(site.seconds, site.calls as f64),
    };
    summary.sites.iter().filter(|site| site.counted).map(of).collect()
}

/// Of each rank, the time that its partners were outside of MPI, added up: no wait for them there is longer. Where a message is in
/// no matrix, anybody may be a partner.
fn outside_of_partners(summary: &Summary) -> Vec<f64> {
    let listed = |matrix: &Matrix| matrix.cells.iter().fold(0, |sum: u64, cell| sum.saturating_add(cell[2]));
    let is_listed = summary.totals.messages <= summary.matrices.iter().map(listed).fold(0, u64::saturating_add);
    // Their messages are in no matrix, and others complete them.
    let begins = |function: &FunctionSummary| {
        ["collective", "neighbour"].contains(&function.class.as_str()) && function.name.starts_with("MPI_I")
    };
    if !is_listed || summary.functions.iter().any(begins) {
        let all: f64 = summary.ranks.iter().map(|rank| rank.compute).sum();
        return summary.ranks.iter().map(|rank| all - rank.compute).collect();
    }
    let places: BTreeMap<(usize, u64), usize> =
        summary.ranks.iter().enumerate().map(|(place, rank)| ((rank.world, rank.rank.into()), place)).collect();
    let mut pairs = BTreeSet::new();
    for (world, matrix) in summary.matrices.iter().enumerate() {
        for [from, to, ..] in &matrix.cells {
            if let (Some(from), Some(to)) = (places.get(&(world, *from)), places.get(&(world, *to))) {
                pairs.extend([(*from, *to), (*to, *from)]);
            }
        }
    }
    let mut outside = vec![0.0; summary.ranks.len()];
    pairs.into_iter().filter(|(of, partner)| of != partner).for_each(|(of, partner)| {
        outside[of] += summary.ranks[partner].compute;
    });
    outside
}

fn between_hosts(summary: &Summary, missing: usize) -> Bounds {
    let (mut all, mut crossing, mut listed, mut known) = (0u64, 0u64, 0u64, 0u64);
    for (world, matrix) in summary.matrices.iter().enumerate() {
        let ranks = summary.ranks.iter().filter(|rank| rank.world == world);
        let hosts: BTreeMap<u64, &str> = ranks.map(|rank| (rank.rank.into(), rank.host.as_str())).collect();
        for [from, to, messages, _, operations, _] in &matrix.cells {
            let count = messages.saturating_add(*operations);
            all = all.saturating_add(count);
            listed = listed.saturating_add(*messages);
            if let (Some(from), Some(to)) = (hosts.get(from), hosts.get(to)) {
                known = known.saturating_add(count);
                crossing = crossing.saturating_add(if from == to { 0 } else { count });
            }
        }
    }
    let unlisted = summary.totals.messages.saturating_sub(listed);
    let all = all.saturating_add(unlisted);
    let unknown = all - known;
    let collectives = ["collective", "neighbour"]
        .iter()
        .any(|class| summary.ranks.iter().any(|rank| rank.classes.contains_key(*class)));
    let mut why = Vec::new();
    if missing > 0 {
        why.push(format!(
            "there are no tables of {missing} of {} ranks, which say where they ran",
            summary.job.expected
        ));
    } else if unknown > 0 {
        why.push(format!("whom {unknown} messages went to is not known"));
    }
    if summary.job.hosts.len() > 1 && collectives {
        why.push("collective calls, which are in no matrix, go between the hosts too".into());
    }
    let part = |count: u64| if all > 0 { count as f64 / all as f64 } else { 0.0 };
    let certain = missing == 0 && (summary.job.hosts.len() < 2 || !collectives);
    let most = if certain { part(crossing + unknown) } else { 1.0 };
    Bounds::between(part(crossing), most, why.join("; "))
}
