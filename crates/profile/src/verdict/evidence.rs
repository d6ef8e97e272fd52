//! What a profile says of the program, as far as the verdict needs it.

use std::collections::BTreeMap;

use machine::Reading;

use super::{amount, share};
use crate::summary::{FunctionSize, Summary};

/// One rank, in seconds of its run.
#[derive(Debug, Clone)]
pub struct RankEvidence {
    /// In MPI_COMM_WORLD.
    pub rank: u32,
    /// Index into [`Evidence::hosts`].
    pub host: usize,
    /// Where it was seen most.
    pub core: Option<u32>,
    pub runtime: f64,
    pub mpi: f64,
    pub calls: u64,
    /// Messages it began.
    pub messages: u64,
    pub bytes: u64,
    /// In calls that only begin messages or hand them over: work of the host, not waiting.
    pub posting: f64,
    /// What its calls take when nobody is late: protocol, copies and wire. Absent where only sums are known.
    pub transfer: Reading<f64>,
    pub wait: Reading<f64>,
    /// Of the wait: for partners that had begun their half of a message and were outside of MPI.
    pub away: Reading<f64>,
    /// The kernel's network work (softirqs) on the rank's core while it was there.
    pub protocol: Reading<f64>,
}

impl RankEvidence {
    pub fn compute(&self) -> f64 {
        (self.runtime - self.mpi).max(0.0)
    }

    /// The kernel's network work that interrupts this rank's own computing, taken as evenly spread over the run.
    pub fn interrupting(&self) -> f64 {
        let protocol = self.protocol.value().copied().unwrap_or(0.0);
        if self.runtime > 0.0 { protocol * self.compute() / self.runtime } else { 0.0 }
    }
}

#[derive(Debug, Clone)]
pub struct HostEvidence {
    pub name: String,
    /// Cores that ranks could use.
    pub cores: Option<u32>,
}

#[derive(Debug, Clone)]
pub struct Evidence {
    pub ranks: Vec<RankEvidence>,
    pub hosts: Vec<HostEvidence>,
    /// Share of the messages whose receiver is on another host.
    pub between_hosts: Reading<f64>,
}

/// Classes of calls whose unhindered part is the host's work for messages: they begin them or hand them over.
const POSTING: [&str; 2] = ["post", "send"];

impl Evidence {
    pub fn of(summary: &Summary) -> Evidence {
        let host = |name: &str| summary.job.hosts.iter().position(|host| host.name == name).unwrap_or(0);
        let work: BTreeMap<&str, f64> = POSTING.map(|class| (class, unhindered(summary, class))).into();
        let ranks = summary.ranks.iter().map(|rank| {
            let working = |class: &str| {
                let known = rank.classes.get(class)?;
                let transfer = known.split.transfer.value().copied()?;
                Some(transfer.min(known.seconds * work.get(class).copied().unwrap_or(0.0)))
            };
            // Calls that are too few to tell how long they take unhindered may all have waited, or not at all.
            let part = |reading: &Reading<f64>| match rank.split.undivided <= rank.seconds * super::NOISE / 2.0 {
                true => reading.clone(),
                false => Reading::absent("too few calls of a kind to tell"),
            };
            RankEvidence {
                rank: rank.rank,
                host: host(&rank.host),
                core: rank.cores.value().and_then(|cores| cores.first().copied()),
                runtime: rank.seconds,
                mpi: rank.mpi,
                calls: rank.calls,
                messages: rank.messages,
                bytes: rank.bytes,
                posting: POSTING.into_iter().filter_map(working).sum(),
                transfer: part(&rank.split.transfer),
                wait: part(&rank.split.wait),
                away: rank.away.clone(),
                protocol: rank.softirq.clone(),
            }
        });
        let hosts = summary.job.hosts.iter();
        let hosts = hosts.map(|host| HostEvidence { name: host.name.clone(), cores: host.cores.value().copied() });
        Evidence { ranks: ranks.collect(), hosts: hosts.collect(), between_hosts: between_hosts(summary) }
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

    /// The same, where every rank knows.
    pub fn mean_of(&self, seconds: impl Fn(&RankEvidence) -> Option<f64>) -> Option<f64> {
        self.ranks.iter().all(|rank| seconds(rank).is_some()).then(|| self.mean(|rank| seconds(rank).unwrap_or(0.0)))
    }

    pub fn messages_per_second(&self) -> f64 {
        let run = self.runtime();
        if run > 0.0 { self.ranks.iter().map(|rank| rank.messages as f64).sum::<f64>() / run } else { 0.0 }
    }

    pub(super) fn words(&self) -> Vec<String> {
        let run = self.runtime();
        if run <= 0.0 {
            return Vec::new();
        }
        let calls: u64 = self.ranks.iter().map(|rank| rank.calls).sum();
        let messages: u64 = self.ranks.iter().map(|rank| rank.messages).sum();
        let bytes: u64 = self.ranks.iter().map(|rank| rank.bytes).sum();
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
        if let (Some(transfer), Some(wait)) =
            (self.mean_of(|rank| rank.transfer.value().copied()), self.mean_of(|rank| rank.wait.value().copied()))
        {
            words.push(format!("{} of the run is transfer, {} waiting for other ranks", share(transfer), share(wait)));
        }
        words
    }

    pub(super) fn where_time_goes(&self) -> String {
        let compute = self.mean(RankEvidence::compute);
        let wait = self.mean_of(|rank| rank.wait.value().copied());
        match wait {
            Some(wait) if wait > super::NOISE => {
                format!("{} of the run is computing and {} waiting for other ranks", share(compute), share(wait))
            }
            _ => format!("{} of the run is computing", share(compute)),
        }
    }
}

/// Which part of the time in calls of a class they would have taken had nothing come between: what a timeline leaves as
/// transfer also has the time in which a rank was off its core.
fn unhindered(summary: &Summary, class: &str) -> f64 {
    let sizes =
        || summary.functions.iter().filter(|function| function.class == class).flat_map(|function| &function.sizes);
    let seconds: f64 = sizes().map(|size| size.seconds).sum();
    let work =
        |size: &FunctionSize| size.unhindered.value().map_or(0.0, |each| each * size.calls as f64).min(size.seconds);
    if seconds > 0.0 { sizes().map(work).sum::<f64>() / seconds } else { 0.0 }
}

fn between_hosts(summary: &Summary) -> Reading<f64> {
    let (mut all, mut crossing) = (0, 0);
    for (world, matrix) in summary.matrices.iter().enumerate() {
        let ranks = summary.ranks.iter().filter(|rank| rank.world == world);
        let hosts: BTreeMap<u64, &str> = ranks.map(|rank| (rank.rank.into(), rank.host.as_str())).collect();
        for [from, to, messages, _, operations, _] in &matrix.cells {
            let count = messages + operations;
            all += count;
            if let (Some(from), Some(to)) = (hosts.get(from), hosts.get(to)) {
                crossing += if from == to { 0 } else { count };
            }
        }
    }
    match all {
        // Collective calls alone cross hosts as well.
        0 if summary.job.hosts.len() > 1 => Reading::absent("no message from rank to rank"),
        0 => Reading::Measured(0.0),
        all => Reading::Measured(crossing as f64 / all as f64),
    }
}
