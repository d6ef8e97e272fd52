//! Cores, from the samples of each host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use machine::Result;
use machine::budget::{Budget, Share};
use record::folder::{HOSTS, SAMPLES_SUFFIX};
use record::samples::{CoreLoad, CoreWork, Tail, ThreadBlocked, ThreadLoad, ThreadWork};
use record::untrusted::Folder;

use super::{CoreNow, LEAST, RankNow, open_new, used_up};

/// One host's samples, with their state at the previous look.
pub struct Host {
    tail: Tail,
    share: Share,
    work: BTreeMap<u32, CoreWork>,
    load: BTreeMap<u32, CoreLoad>,
    time: u64,
    pub threads: BTreeMap<(u32, u16), ThreadWork>,
    pub switches: BTreeMap<(u32, u16), ThreadLoad>,
    /// Involuntary context switches of each process a second, since the previous look.
    pub involuntary: BTreeMap<u32, f64>,
    pub halts: BTreeMap<(u32, u16), ThreadBlocked>,
    /// Share of each process's thread time blocked outside MPI since the previous look, and its
    /// parts by sleep, locks and storage.
    pub blocked: BTreeMap<u32, (f64, [f64; 3])>,
    /// The reason why the samples are no longer read.
    broken: Option<String>,
}

/// Opens new files of samples and reads new samples.
pub fn follow(profile: &Folder, hosts: &mut BTreeMap<PathBuf, Host>, memory: &Arc<Budget>, notes: &mut Vec<String>) {
    open_new(profile, (HOSTS, SAMPLES_SUFFIX), hosts, notes, |file| {
        Ok(Some(Host::new(Tail::of(file), memory.draw(LEAST).map_err(|_| used_up())?)))
    });
    for (path, host) in hosts.iter_mut() {
        if let Err(fault) = host.advance().and_then(|()| host.weigh()) {
            host.broken = Some(fault.within(path.display().to_string()).to_string());
        }
        notes.extend(host.broken.clone());
    }
}

/// Blocked shares by process, over threads that both looks have; the looks are `ns` apart.
fn blocked(
    before: &BTreeMap<(u32, u16), ThreadBlocked>,
    now: &BTreeMap<(u32, u16), ThreadBlocked>,
    passed: f64,
) -> BTreeMap<u32, (f64, [f64; 3])> {
    let mut all: BTreeMap<u32, (f64, [f64; 3], f64)> = BTreeMap::new();
    let both = now.iter().filter_map(|(thread, now)| Some((thread.0, now, before.get(thread)?)));
    for (process, now, before) in both.filter(|_| passed > 0.0) {
        let share = |of: fn(&ThreadBlocked) -> u64| (of(now).saturating_sub(of(before)) as f64 / passed).min(1.0);
        let (sum, parts, threads) = all.entry(process).or_default();
        *sum += share(|of| of.outside);
        let grown = [share(|of| of.sleep), share(|of| of.lock), share(|of| of.storage)];
        parts.iter_mut().zip(grown).for_each(|(sum, grown)| *sum += grown);
        *threads += 1.0;
    }
    all.into_iter().map(|(process, (sum, parts, n))| (process, (sum / n, parts.map(|part| part / n)))).collect()
}

impl Host {
    fn new(tail: Tail, share: Share) -> Host {
        Host {
            tail,
            share,
            work: BTreeMap::new(),
            load: BTreeMap::new(),
            time: 0,
            threads: BTreeMap::new(),
            switches: BTreeMap::new(),
            involuntary: BTreeMap::new(),
            halts: BTreeMap::new(),
            blocked: BTreeMap::new(),
            broken: None,
        }
    }

    /// Draws the memory that the host takes; where the budget is used up, the host is left out.
    fn weigh(&mut self) -> Result<()> {
        // The totals exist as read, as shown, and as of the previous look.
        self.share.resize(LEAST + 4 * self.tail.weight() as u64).map_err(|_| {
            self.tail.forget();
            (self.work, self.load, self.threads, self.switches, self.halts) = Default::default();
            used_up()
        })
    }

    fn advance(&mut self) -> Result<()> {
        if self.broken.is_some() {
            return Ok(());
        }
        self.tail.advance()?;
        let switches = self.tail.thread_load();
        let seconds = self.tail.time().saturating_sub(self.time) as f64 / 1e9;
        self.involuntary.clear();
        if self.time > 0 && seconds > 0.0 {
            for (thread, load) in &switches {
                // A thread that is new since the previous look has all of its switches in this time.
                let before = self.switches.get(thread).map_or(0, |before| before.involuntary);
                let times = load.involuntary.saturating_sub(before) as f64 / seconds;
                *self.involuntary.entry(thread.0).or_default() += times;
            }
        }
        self.switches = switches;
        self.threads = self.tail.thread_work();
        let halts = self.tail.thread_blocked();
        self.blocked = if self.time > 0 { blocked(&self.halts, &halts, seconds * 1e9) } else { BTreeMap::new() };
        self.halts = halts;
        Ok(())
    }

    pub fn is_of(&self, boot: &str) -> bool {
        self.tail.head().is_some_and(|head| head.boot == boot)
    }

    /// CLOCK_MONOTONIC of that host when it was last sampled, ns.
    pub fn time(&self) -> u64 {
        self.tail.time()
    }

    /// The core on which the first thread of a process was last seen.
    pub fn core(&self, pid: u32) -> Option<u32> {
        self.threads.range((pid, 0)..=(pid, u16::MAX)).find_map(|(_, work)| work.on())
    }

    /// The cores' rates since the previous look, which need two looks.
    pub fn cores(&mut self, ranks: &[RankNow]) -> Vec<CoreNow> {
        let Some(head) = self.tail.head() else { return vec![] };
        let (work, load, time) = (self.tail.core_work(), self.tail.core_load(), self.tail.time());
        let passed = (self.time > 0 && time > self.time).then(|| (time - self.time) as f64);
        let timed = head.origins.softirq_times.value().is_some();
        let counted = head.origins.softirq_counts.value().is_some();
        let loaded = head.origins.load.value().is_some();
        let cores = head.cores.iter().map(|(core, _)| {
            let (was, is) = (self.work.get(core).copied().unwrap_or_default(), work.get(core).copied());
            let is = is.unwrap_or_default();
            let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
            let in_softirqs = grown(is.net_rx_time, was.net_rx_time) + grown(is.net_tx_time, was.net_tx_time);
            let softirqs = grown(is.net_rx, was.net_rx) + grown(is.net_tx, was.net_tx);
            let idle =
                grown(load.get(core).map_or(0, |load| load.idle), self.load.get(core).map_or(0, |load| load.idle));
            let on = |rank: &RankNow| rank.host == head.host && rank.core == Some(*core);
            CoreNow {
                host: head.host.clone(),
                core: *core,
                softirq: passed.filter(|_| timed).map(|passed| (in_softirqs / passed).min(1.0)),
                softirqs: passed.filter(|_| counted).map(|passed| softirqs * 1e9 / passed),
                busy: passed.filter(|_| loaded).map(|passed| (1.0 - idle / passed).clamp(0.0, 1.0)),
                ranks: ranks.iter().enumerate().filter(|(_, rank)| on(rank)).map(|(place, _)| place).collect(),
            }
        });
        let has_something = |core: &CoreNow| !core.ranks.is_empty() || core.softirqs.is_some_and(|n| n > 0.0);
        let cores = cores.filter(has_something).collect();
        (self.work, self.load, self.time) = (work, load, time);
        cores
    }
}
