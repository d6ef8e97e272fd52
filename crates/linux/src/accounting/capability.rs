//! The share of each core that ranks can have, from two looks. Every user may.

use std::collections::BTreeMap;
use std::path::Path;

use machine::capability::{CapabilityMap, CoreTime, sibling};
use machine::topology::Topology;
use machine::{CoreCapability, CoreId, Hertz, Nanoseconds, Reading, Result, Source};

use super::charge::Charges;
use super::cores::{CoreLoad, CoreTotals, CoresSensor, Origins};
use super::job::{JobProcess, JobThreads, processes};
use super::process::process_time;
use super::{core_clock, job};
use crate::clock::monotonic;

/// Busy share below which a core's clock may have been lowered for lack of load.
const UNDER_LOAD: f64 = 0.5;

const PROC: &str = "/proc";

/// Time between two searches for processes of the job.
const SURVEY: Nanoseconds = Nanoseconds(200_000_000);

/// Watches the cores of this host and a job on them.
pub struct CapabilityProbe {
    host: String,
    sensor: CoresSensor,
    job: JobThreads,
    /// The kernel's softirq threads by core, which no other account includes.
    ksoftirqd: BTreeMap<CoreId, u32>,
    clocks: BTreeMap<CoreId, Reading<Hertz>>,
    surveyed: Nanoseconds,
    last: Look,
}

/// Totals of each core at a moment.
struct Look {
    at: Nanoseconds,
    cores: BTreeMap<CoreId, Totals>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    work: CoreTotals,
    load: CoreLoad,
    /// Processor time of the core's ksoftirqd, ns.
    deferred: u64,
}

impl CapabilityProbe {
    /// Opens the sensors, which takes some hundred milliseconds where softirqs may be traced, times the clocks and
    /// takes the first look. `of` names the job's processes; empty: there is no job.
    ///
    /// # Errors
    /// One of the processes is not there, or procfs is not mounted.
    pub fn begin(of: &[JobProcess]) -> Result<CapabilityProbe> {
        CapabilityProbe::with(CoresSensor::open()?, of)
    }

    fn with(sensor: CoresSensor, of: &[JobProcess]) -> Result<CapabilityProbe> {
        let clocks = sensor.online().iter().map(|core| (*core, core_clock::under_load(*core, None))).collect();
        let mut probe = CapabilityProbe {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            sensor,
            job: JobThreads::begin(Path::new(PROC), of)?,
            ksoftirqd: ksoftirqd(),
            clocks,
            surveyed: monotonic(),
            last: Look { at: Nanoseconds(0), cores: BTreeMap::new() },
        };
        probe.last = probe.look()?;
        Ok(probe)
    }

    /// Updates where the job's threads run. Frequent calls, such as every 20 ms, count moving threads better.
    pub fn glance(&mut self) {
        let now = monotonic();
        if now - self.surveyed >= SURVEY {
            self.job.survey();
            self.surveyed = now;
        }
        self.job.look();
    }

    /// The capability of the cores since the last call or since the begin. A second or more gives useful precision: the
    /// kernel knows idle time to 10 ms.
    ///
    /// # Errors
    /// The kernel's files cannot be read any more.
    pub fn end(&mut self) -> Result<CapabilityMap> {
        self.job.survey();
        let now = self.look()?;
        let own = self.job.spent();
        let last = std::mem::replace(&mut self.last, now);
        let elapsed = (self.last.at - last.at).0.max(1) as f64;
        let of_core = |(core, now): (&CoreId, &Totals)| {
            let own = own.get(core).map_or(0.0, |own| own.0 as f64 / elapsed);
            Some((*core, Shares::between(last.cores.get(core)?, now, elapsed, own)))
        };
        let shares: BTreeMap<CoreId, Shares> = self.last.cores.iter().filter_map(of_core).collect();
        let (origins, charges, source) = (self.sensor.origins(), Charges::here(), Source::live());
        let topology = Topology::live()?;
        let cores = shares.iter().map(|(core, of)| {
            let time = of.time(charges, &origins);
            let beside = topology.cpu(*core).map(|cpu| cpu.threads.iter().filter(|thread| thread != core));
            let sibling = match beside {
                Some(threads) => sibling(threads.filter_map(|thread| Some(shares.get(&thread)?.busy))),
                None => Reading::absent("the kernel does not tell which threads share the core"),
            };
            let capability = CoreCapability {
                host: self.host.clone(),
                core: *core,
                taken: time.taken(),
                softirq: of.softirq(&origins),
                clock: Reading::absent(""),
                sibling,
            };
            (capability, self.clock(*core, of.busy, &source))
        });
        Ok(CapabilityMap::of(cores))
    }

    fn clock(&self, core: CoreId, busy: f64, source: &Source) -> Reading<Hertz> {
        let timed = || self.clocks.get(&core).cloned().unwrap_or_else(|| Reading::absent("it came on line meanwhile"));
        match core_clock::told(source, core) {
            told @ Reading::Measured(_) if busy >= UNDER_LOAD => told,
            _ => timed(),
        }
    }

    fn look(&mut self) -> Result<Look> {
        self.job.look();
        // Softirqs by ticks are updated with the load, so that is read first.
        let load: BTreeMap<_, _> = self.sensor.load()?.into_iter().collect();
        let at = monotonic();
        let work = self.sensor.work()?;
        let deferred =
            |core: &CoreId| self.ksoftirqd.get(core).and_then(|thread| process_time(*thread)).unwrap_or_default().0;
        let totals = |(core, work)| Some((core, Totals { work, load: *load.get(&core)?, deferred: deferred(&core) }));
        Ok(Look { at, cores: work.into_iter().filter_map(totals).collect() })
    }
}

/// One core's use between two looks, as shares of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    busy: f64,
    own: f64,
    stolen: f64,
    /// Network softirqs, where they are traced.
    network: f64,
    /// Softirqs of all kinds, and the part of them in a kernel thread.
    softirqs: f64,
    deferred: f64,
}

impl Shares {
    fn between(from: &Totals, to: &Totals, elapsed: f64, own: f64) -> Shares {
        let share =
            |total: fn(&Totals) -> u64| (total(to).saturating_sub(total(from)) as f64 / elapsed).clamp(0.0, 1.0);
        Shares {
            busy: 1.0 - share(|of| of.load.idle),
            own,
            stolen: share(|of| of.load.stolen),
            network: share(|of| of.work.net_rx_time + of.work.net_tx_time),
            softirqs: share(|of| of.work.softirq_time),
            deferred: share(|of| of.deferred),
        }
    }

    fn time(&self, charges: Charges, origins: &Origins) -> CoreTime {
        // Unknown accounting counts as charging the thread.
        let softirqs = if charges.softirqs == Some(false) { 0.0 } else { (self.softirqs - self.deferred).max(0.0) };
        let stolen = if charges.stolen == Some(false) { 0.0 } else { self.stolen };
        let is_measured = charges.softirqs == Some(false) || matches!(origins.softirq_all, Reading::Measured(_));
        let interrupted = match is_measured {
            true => Reading::Measured(softirqs + stolen),
            false => Reading::Modelled(softirqs + stolen),
        };
        CoreTime { busy: self.busy, own: self.own, interrupted }
    }

    fn softirq(&self, origins: &Origins) -> Reading<f64> {
        match (&origins.softirq_times, &origins.softirq_all) {
            (Reading::Measured(_), _) => Reading::Measured(self.network),
            (_, Reading::Modelled(_) | Reading::Measured(_)) => Reading::Modelled(self.softirqs),
            (missing, _) => missing.clone().map(|_| 0.0),
        }
    }
}

/// The kernel's softirq threads, the processes `ksoftirqd/N`, by core; none where this PID namespace does not show them.
pub fn ksoftirqd() -> BTreeMap<CoreId, u32> {
    let of = |(number, stat): (u32, job::Stat)| Some((of_ksoftirqd(&stat.name)?, number));
    processes(Path::new(PROC)).into_iter().filter_map(of).collect()
}

/// The core of a thread `ksoftirqd/N`.
fn of_ksoftirqd(name: &str) -> Option<CoreId> {
    name.strip_prefix("ksoftirqd/")?.parse().ok().map(CoreId)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use proptest::prelude::*;

    use super::*;

    fn origins() -> Origins {
        let how = || Reading::Measured("so".to_owned());
        Origins { softirq_counts: how(), softirq_times: how(), softirq_all: how(), interrupts: how(), load: how() }
    }

    fn totals(idle: u64, stolen: u64, net_rx_time: u64, softirq_time: u64, deferred: u64) -> Totals {
        let work = CoreTotals { net_rx_time, softirq_time, ..CoreTotals::default() };
        Totals { work, load: CoreLoad { idle, stolen }, deferred }
    }

    const CHARGED: Charges = Charges { softirqs: Some(true), stolen: Some(false) };
    const APART: Charges = Charges { softirqs: Some(false), stolen: Some(false) };

    #[test]
    fn softirqs_that_interrupt_a_spinning_rank_are_taken_on_either_kernel() {
        let begun = Totals::default();
        let after = totals(0, 0, 200, 250, 0);
        let taken = |own, charges| Shares::between(&begun, &after, 1000.0, own).time(charges, &origins()).taken();
        assert_eq!(taken(1.0, CHARGED), Reading::Modelled(0.25));
        assert_eq!(taken(0.75, APART), Reading::Measured(0.25));
        // The core's ksoftirqd already counts as time beside the rank.
        let deferred = totals(0, 0, 200, 250, 250);
        let time = Shares::between(&begun, &deferred, 1000.0, 0.75).time(CHARGED, &origins());
        assert_eq!(time.taken(), Reading::Measured(0.25));
        assert_eq!(Shares::between(&begun, &after, 1000.0, 1.0).softirq(&origins()), Reading::Measured(0.2));
    }

    #[test]
    fn softirqs_by_ticks_are_modelled_and_where_nothing_tells_them_absent() {
        let refused = Reading::not_permitted("not you", "be root");
        let ticked =
            Origins { softirq_times: refused.clone(), softirq_all: Reading::Modelled("ticks".into()), ..origins() };
        let of = Shares::between(&Totals::default(), &totals(0, 0, 0, 250, 0), 1000.0, 1.0);
        assert_eq!(
            (of.softirq(&ticked), of.time(CHARGED, &ticked).taken()),
            (Reading::Modelled(0.25), Reading::Modelled(0.25))
        );
        let nothing = Origins { softirq_all: refused.clone(), ..ticked };
        assert_eq!(of.softirq(&nothing), Reading::not_permitted("not you", "be root"));
        assert_eq!(of_ksoftirqd("ksoftirqd/12"), Some(CoreId(12)));
        assert_eq!(of_ksoftirqd("kworker/1:0"), None);
    }

    /// A process that keeps one core busy; it ends with the value.
    struct Spinner(Child);

    impl Spinner {
        fn on(core: CoreId) -> Spinner {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            crate::affinity::pin_child(&mut command, core).unwrap();
            Spinner(command.spawn().unwrap())
        }
    }

    impl Drop for Spinner {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_spinning_process_takes_its_core_unless_it_is_the_job() {
        let core = *crate::affinity::allowed().unwrap().last().unwrap();
        let spinner = Spinner::on(core);
        let sensor = || CoresSensor::without_bpf("left out").unwrap();
        let mut all = CapabilityProbe::with(sensor(), &[]).unwrap();
        let mut job = CapabilityProbe::with(sensor(), &[JobProcess::Number(spinner.0.id())]).unwrap();
        for _ in 0..50 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            job.glance();
        }
        let of = |probe: &mut CapabilityProbe| {
            let map = probe.end().unwrap();
            assert!(map.silent.is_empty() && !map.cores.is_empty());
            map.cores.into_iter().find(|of| of.core == core).unwrap()
        };
        let (with, without) = (of(&mut all), of(&mut job));
        let taken = |of: &CoreCapability| *of.taken.value().unwrap();
        assert!(taken(&with) > 0.5, "{with:?}");
        // On a busy machine other processes use the core too: the spinner has at least its fair share.
        assert!(taken(&without) < taken(&with) - 0.02, "{without:?} {with:?}");
        assert!(without.range().1 >= with.range().1);
        assert_eq!(with.host, rustix::system::uname().nodename().to_string_lossy());
        assert!(with.clock.value().is_some_and(|clock| *clock > 0.0 && *clock <= 1.0), "{:?}", with.clock);
        // A second interval follows the first.
        assert_eq!(job.end().unwrap().cores.len(), all.end().unwrap().cores.len());
    }

    #[test]
    fn a_process_that_is_not_there_is_a_fault() {
        let none = JobProcess::Name("plimsoll no such".into());
        let fault = CapabilityProbe::with(CoresSensor::without_bpf("left out").unwrap(), &[none]).err().unwrap();
        assert!(fault.next().contains("name processes"), "{fault}");
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_other_work_gives_nothing(
            idle in 0u64..2000, stolen in 0u64..2000, softirq in 0u64..2000, deferred in 0u64..2000,
            own in 0.0f64..1.5, more in 0u64..2000, charged: bool,
        ) {
            let charges = Charges { softirqs: Some(charged), stolen: None };
            let taken = |idle| {
                let after = totals(idle, stolen, softirq / 2, softirq, deferred);
                let of = Shares::between(&Totals::default(), &after, 1000.0, own);
                *of.time(charges, &origins()).taken().value().unwrap()
            };
            let (one, other) = (taken(idle), taken(idle.saturating_sub(more)));
            prop_assert!((0.0..=1.0).contains(&one) && (0.0..=1.0).contains(&other));
            prop_assert!(other >= one, "{other} {one}");
        }
    }
}
