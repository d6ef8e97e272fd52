//! The sampler of one host: reads the host's cores and its ranks' tables, and writes the changes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::accounting::{Charges, CoresSensor, EnergySensor, core_clock, ksoftirqd, own_thread_time, process_time};
use linux::clock::monotonic;
use linux::power::{self, Look, Meter};
use machine::choice::Choice;
use machine::topology::Topology;
use machine::{CoreId, CpuSet, Fault, Nanoseconds, Reading, Result, Source};
use record::folder;
use record::samples::{
    Accounting, CoreClock, CoreDeferred, CoreLoad, CoreWork, Energy, Head, Origins, SamplerCost, ThreadWork, Writer,
};

use super::clocks::Clocks;
use super::watched::{Halts, Watched};

/// The next step where samples cannot be written.
const WITHOUT: &str = "profile with --no-cores";

/// Default interval.
const USUAL: Nanoseconds = Nanoseconds(20_000_000);

/// Largest share of one core for sampling at the default interval.
const SHARE: f64 = 0.005;

/// Interval of load samples: the kernel's load has a grain of 10 ms, and its text is long.
const LOAD: Nanoseconds = Nanoseconds(100_000_000);

/// Approximate time of one sample.
const SLICE: Nanoseconds = Nanoseconds(100_000);

/// Interval of clock samples: some kernels interrupt a core to read its clock.
const CLOCKS: Nanoseconds = Nanoseconds(1_000_000_000);

/// Interval between searches for new ranks, and between checks of the cost.
const SURVEY: Nanoseconds = Nanoseconds(200_000_000);

/// Growth of the file after which the interval doubles, so that the samples of a long job stay readable.
const STRETCH: u64 = 8 << 20;

/// Settings of a sampler.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of the profile.
    pub folder: PathBuf,
    /// `None`: as short as the cost allows.
    pub interval: Option<Nanoseconds>,
    /// Sources of power to read, ten times a second.
    pub power: Vec<power::Source>,
}

/// Cost of sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Account {
    pub cpu: Nanoseconds,
    pub elapsed: Nanoseconds,
    pub looks: u64,
}

impl Account {
    /// The share of one core that sampling took.
    pub fn share(&self) -> f64 {
        self.cpu.0 as f64 / (self.elapsed.0 as f64).max(1.0)
    }
}

pub struct Sampler {
    writer: Writer<fs::File>,
    cores: CoresSensor,
    /// The kernel's softirq threads, by core.
    ksoftirqd: BTreeMap<CoreId, u32>,
    energy: Reading<EnergySensor>,
    /// Meter of the requested sources of power.
    meter: Option<Meter>,
    watched: Watched,
    interval: Nanoseconds,
    is_fixed: bool,
    begun: Nanoseconds,
    looks: u64,
    /// Length of the file at which the interval doubles.
    stretch_at: u64,
    /// Time of the last clock sample.
    clocked: Nanoseconds,
    /// Probes clocks where the kernel gives none.
    clocks: Option<Clocks>,
    /// Time and CPU time of the last check of the cost.
    judged: (Nanoseconds, Nanoseconds),
}

impl Sampler {
    /// Opens the sensors, which takes some hundred milliseconds, and the file of this host.
    pub fn open(settings: &Settings) -> Result<Sampler> {
        let mut cores = CoresSensor::open()?;
        let energy = EnergySensor::open();
        let boot = machine::here::boot().unwrap_or_default();
        let host = crate::this_host();
        let (now, realtime) = (monotonic(), machine::here::now().0);
        let interval = settings.interval.unwrap_or(USUAL);
        let of = cores.origins();
        let head = Head {
            host: host.clone(),
            boot: boot.clone(),
            pid: std::process::id(),
            monotonic: now.0,
            realtime,
            interval: interval.0,
            for_ranks: for_ranks(),
            cores: cores.online().iter().map(|core| (core.0, package(*core))).collect(),
            origins: Origins {
                softirq_counts: of.softirq_counts,
                softirq_times: of.softirq_times,
                softirq_all: of.softirq_all,
                interrupts: of.interrupts,
                load: of.load,
                energy: match &energy {
                    Reading::Measured(_) | Reading::Modelled(_) => Reading::Measured("RAPL, by powercap".to_owned()),
                    Reading::Absent { reason } => Reading::absent(reason),
                    Reading::NotPermitted { reason, next } => Reading::not_permitted(reason, next),
                },
                ranks: Reading::Measured(
                    "the ranks' tables, /proc/PID/task/TID/stat, status, schedstat and wchan".to_owned(),
                ),
            },
        };
        cores.work()?;
        let (path, file) = new_file(&settings.folder, &host)?;
        let mut writer = Writer::begin(file, &head).map_err(|e| unwritten(&path, e))?;
        writer.accounting(&accounting()).map_err(|e| unwritten(&path, e))?;
        let meter = meter(&settings.power, &mut writer).map_err(|e| unwritten(&path, e))?;
        Ok(Sampler {
            writer,
            cores,
            ksoftirqd: ksoftirqd(),
            energy,
            meter,
            watched: Watched::new(&settings.folder, &boot),
            interval,
            is_fixed: settings.interval.is_some(),
            begun: now,
            looks: 0,
            stretch_at: STRETCH,
            clocked: Nanoseconds(0),
            clocks: None,
            judged: (now, own_thread_time()),
        })
    }

    /// Samples until `stop` returns true; `stop` waits for at most the time that it gets.
    pub fn run(mut self, mut stop: impl FnMut(Duration, &Watched) -> bool) -> Result<Account> {
        let origin = own_thread_time();
        self.judged.1 = origin;
        // A refusal here does no harm.
        let _ = linux::scheduling::take_short_turns(SLICE);
        let (mut next, mut next_load, mut next_survey) = (self.begun, self.begun, self.begun);
        let unwritten = |e| Fault::unwritable("the samples of this host", e, WITHOUT);
        loop {
            let now = monotonic();
            if now >= next_survey {
                self.watched.survey();
                if let Some(news) = self.watched.news() {
                    self.writer.note(&news).map_err(unwritten)?;
                }
                keep_off(&self.watched.bound());
                self.watch_clocks();
                self.judge(now).map_err(unwritten)?;
                next_survey = now + SURVEY;
            }
            let is_load = now >= next_load;
            self.look(is_load).map_err(|fault| fault.within("sampling"))?;
            if is_load {
                next_load = now + LOAD;
            }
            next = next + self.interval;
            let now = monotonic();
            // Missed samples are skipped.
            if next < now {
                next = now + self.interval;
            }
            if stop(Duration::from_nanos(next.0 - now.0), &self.watched) {
                break;
            }
        }
        self.watched.survey();
        if let Some(meter) = &self.meter {
            meter.settle(monotonic());
        }
        self.look(true)?;
        let account = Account { cpu: self.cpu() - origin, elapsed: monotonic() - self.begun, looks: self.looks };
        self.writer.finish(monotonic().0).map_err(unwritten)?;
        Ok(account)
    }

    fn look(&mut self, is_load: bool) -> Result<()> {
        let unwritten = |e| Fault::unwritable("the samples of this host", e, WITHOUT);
        let moment = monotonic();
        let now = moment.0;
        for (core, totals) in self.cores.work()? {
            let work = CoreWork {
                net_rx: totals.net_rx,
                net_rx_time: totals.net_rx_time,
                net_tx: totals.net_tx,
                net_tx_time: totals.net_tx_time,
                softirq_time: totals.softirq_time,
                interrupts: totals.interrupts,
            };
            self.writer.core_work(core.0, &work).map_err(unwritten)?;
        }
        let writer = &mut self.writer;
        let give = |pid, index, tid, work: &ThreadWork, halts: Option<Halts>| {
            writer.thread_work(pid, index, tid, work)?;
            let Some(Halts { stop, blocked }) = halts else { return Ok(()) };
            writer.thread_stop(pid, index, tid, &stop)?;
            writer.thread_blocked(pid, index, tid, &blocked)
        };
        self.watched.work(moment, give).map_err(unwritten)?;
        self.writer.end_work(now).map_err(unwritten)?;
        self.looks += 1;
        if is_load {
            self.look_at_load(now).map_err(unwritten)?;
        }
        Ok(())
    }

    fn look_at_load(&mut self, now: u64) -> std::io::Result<()> {
        for (core, load) in self.cores.load().unwrap_or_default() {
            self.writer.core_load(core.0, &CoreLoad { idle: load.idle, stolen: load.stolen })?;
        }
        for (core, thread) in &self.ksoftirqd {
            if let Some(used) = process_time(*thread) {
                self.writer.core_deferred(core.0, &CoreDeferred { cpu: used.0 })?;
            }
        }
        if Nanoseconds(now) >= self.clocked + CLOCKS {
            self.clocked = Nanoseconds(now);
            let mut clocks = self.clocks.as_ref().map(Clocks::found).unwrap_or_default();
            for core in self.cores.online() {
                if let Reading::Measured(clock) = core_clock(&Source::live(), *core) {
                    clocks.insert(*core, clock);
                }
            }
            for (core, clock) in clocks {
                self.writer.core_clock(core.0, &CoreClock { hertz: clock.0 })?;
            }
        }
        self.watched.load(&mut self.writer)?;
        if let Reading::Measured(sensor) = &mut self.energy {
            for (nth, zone) in sensor.read().into_iter().enumerate() {
                self.writer.energy(nth as u32, &zone.name, &Energy { microjoules: zone.microjoules })?;
            }
        }
        if let Some(meter) = &mut self.meter {
            let mut samples = Vec::new();
            for (place, look) in meter.drain() {
                match look {
                    Look::Value { at, micro } => samples.push((place, at, micro)),
                    Look::Stopped { at, cause } => {
                        // Earlier samples are written before the stop.
                        self.writer.power(&std::mem::take(&mut samples))?;
                        self.writer.power_stopped(place, at, &cause)?;
                    }
                }
            }
            self.writer.power(&samples)?;
            meter.forget(Nanoseconds(now));
        }
        let cost = SamplerCost {
            cpu: self.cpu().0,
            looks: self.looks,
            core: rustix::thread::sched_getcpu() as u64 + 1,
            interval: self.interval.0,
        };
        self.writer.cost(&cost)?;
        self.writer.end_load(now)
    }

    /// CPU time of sampling, including the probes of clocks.
    fn cpu(&self) -> Nanoseconds {
        own_thread_time() + self.clocks.as_ref().map_or(Nanoseconds(0), Clocks::cpu)
    }

    /// Probes the clocks of the ranks' cores for which the kernel gives none.
    fn watch_clocks(&mut self) {
        let untold = |core: &CoreId| core_clock(&Source::live(), *core).value().is_none();
        let cores: CpuSet = self.watched.cores().iter().filter(untold).collect();
        if self.clocks.is_none() && !cores.is_empty() {
            self.clocks = Clocks::begin();
        }
        if let Some(clocks) = &self.clocks {
            clocks.watch(cores);
        }
    }

    /// Samples less often where the cost is above its limit or the file grows too large.
    fn judge(&mut self, now: Nanoseconds) -> std::io::Result<()> {
        let (then, before) = self.judged;
        let elapsed = now - then;
        if elapsed >= Nanoseconds(1_000_000_000) {
            let cpu = self.cpu();
            let share = (cpu - before).0 as f64 / elapsed.0 as f64;
            self.judged = (now, cpu);
            if share > SHARE && !self.is_fixed && self.interval < Nanoseconds(1_000_000_000) {
                let why = format!("sampling took {:.1} % of a core", 100.0 * share);
                self.stretch(&why)?;
            }
        }
        if self.writer.written() >= self.stretch_at {
            self.stretch_at += STRETCH;
            self.stretch("the samples are many")?;
        }
        Ok(())
    }

    fn stretch(&mut self, why: &str) -> std::io::Result<()> {
        self.interval = Nanoseconds(2 * self.interval.0);
        self.writer.note(&format!("{why}: from here on every {}", self.interval))
    }
}

/// A meter of `sources`, with its sensors written to `writer`. `None`, with a note, where the sources cannot be read.
fn meter(sources: &[power::Source], writer: &mut Writer<fs::File>) -> std::io::Result<Option<Meter>> {
    if sources.is_empty() {
        return Ok(None);
    }
    let settings = power::Settings { keeps_looks: true, ..power::Settings::default() };
    match Meter::with(sources, &settings) {
        Ok(meter) => {
            for (sensor, bridge) in meter.bridges() {
                writer.sensor(&sensor, bridge)?;
            }
            for fault in meter.refused() {
                writer.note(&format!("power: {}: {}", fault.subject(), fault.cause()))?;
            }
            Ok(Some(meter))
        }
        Err(fault) => {
            writer.note(&format!("power was not read: {fault}"))?;
            Ok(None)
        }
    }
}

/// Number of cores for ranks that start with this process's affinity: threads of one core count once.
fn for_ranks() -> Option<u32> {
    let choice = Choice::among(Topology::live().ok()?, linux::affinity::allowed().ok()?);
    Some(choice.whole().len() as u32)
}

/// The kernel's accounting, and the threads that share a core.
fn accounting() -> Accounting {
    let charges = Charges::here();
    let cpus = Topology::live().map(|topology| &topology.cpus[..]).unwrap_or_default();
    let several = cpus.iter().filter(|cpu| cpu.threads.len() > 1);
    let threads = several.filter_map(|cpu| Some((cpu.id.0, cpu.threads.first()?.0))).collect();
    Accounting { softirqs_charged: charges.softirqs, stolen_charged: charges.stolen, threads }
}

/// The package of a core; 0 where the kernel does not give it.
fn package(core: CoreId) -> u32 {
    let path = format!("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", core.0);
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The host's file; where an earlier sampler of the host left one, the next free name.
fn new_file(profile: &Path, host: &str) -> Result<(PathBuf, fs::File)> {
    for nth in 1u32.. {
        let path = match nth {
            1 => folder::samples_file(profile, host),
            nth => folder::samples_file(profile, &format!("{}-{nth}", folder::host_word(host))),
        };
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(unwritten(&path, e)),
        }
    }
    unreachable!("there are more names than files")
}

fn unwritten(path: &Path, error: std::io::Error) -> Fault {
    Fault::unwritable(path.display().to_string(), error, WITHOUT)
}

/// Leaves the cores that ranks are bound to, and their sibling threads, as long as other cores are allowed.
fn keep_off(bound: &CpuSet) {
    let (Ok(allowed), Ok(topology)) = (linux::affinity::allowed(), Topology::live()) else { return };
    let choice = Choice::among(topology, allowed.iter().copied()).without(bound.iter());
    let free: Vec<CoreId> = allowed.iter().copied().filter(|core| choice.is_free(*core)).collect();
    let beside: Vec<CoreId> = allowed.iter().copied().filter(|core| !bound.contains(*core)).collect();
    let better = [free, beside].into_iter().find(|cores| !cores.is_empty());
    let _ = linux::affinity::settle(&better.unwrap_or(allowed));
}
