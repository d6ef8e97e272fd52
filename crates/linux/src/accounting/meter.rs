//! The host's meter: opened once a session, started and ended around each block.

use std::collections::BTreeMap;
use std::time::Instant;

use machine::accounting::{CoreCost, Softirq};
use machine::{CoreId, CpuSet, Fault, Nanoseconds, Reading, Result};
use serde::{Deserialize, Serialize};

use super::interrupts::{InterruptCounts, InterruptTable};
use super::procfile::ProcFile;
use super::softirq::{CoreWork, SoftirqCounts, SoftirqSensor, softirq_counts};
use super::table::advance;

/// Counts of one core for a block, which every user may read, without times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreCounts {
    pub core: CoreId,
    pub softirqs: SoftirqCounts,
    /// Interrupts by kind; `None` where the sensor counted them, which is cheaper and does not distinguish kinds.
    pub interrupts: Option<InterruptCounts>,
}

/// Counts the activity of this host's cores between `begin` and `end`, whatever caused it.
///
/// Opening takes a few hundred milliseconds (the kernel verifies the programs), a block 10 to 70 us on two cores.
pub struct HostMeter {
    sensor: Reading<SoftirqSensor>,
    softirqs: ProcFile,
    interrupts: ProcFile,
    /// Whether the sensor counts interrupts; `/proc/interrupts` then need not be read.
    interrupts_sensed: bool,
    /// Cores that were online when it was opened.
    online: CpuSet,
    begun: Option<Snapshot>,
    counts: Vec<CoreCounts>,
    overhead: Nanoseconds,
}

#[derive(Default)]
struct Snapshot {
    work: BTreeMap<CoreId, CoreWork>,
    softirqs: Vec<(CoreId, SoftirqCounts)>,
    interrupts: Option<InterruptTable>,
}

impl HostMeter {
    pub fn open() -> Result<Self> {
        Self::with_sensor(SoftirqSensor::open())
    }

    fn with_sensor(sensor: Reading<SoftirqSensor>) -> Result<Self> {
        let mut meter = HostMeter {
            sensor,
            softirqs: ProcFile::open("/proc/softirqs")?,
            interrupts: ProcFile::open("/proc/interrupts")?,
            interrupts_sensed: false,
            online: CpuSet::default(),
            begun: None,
            counts: Vec::new(),
            overhead: Nanoseconds(0),
        };
        let first = meter.snapshot()?;
        meter.interrupts_sensed = first.work.values().next().is_some_and(|core| core.interrupts.is_some());
        meter.online = first.interrupts.iter().flat_map(|table| &table.cores).map(|(core, _)| *core).collect();
        Ok(meter)
    }

    /// Whether softirq time can be measured here, and if not, why.
    pub fn sensor(&self) -> Reading<()> {
        match &self.sensor {
            Reading::Measured(_) | Reading::Modelled(_) => Reading::Measured(()),
            Reading::Absent { reason } => Reading::absent(reason),
            Reading::NotPermitted { reason, next } => Reading::not_permitted(reason, next),
        }
    }

    pub fn begin(&mut self) -> Result<()> {
        let start = Instant::now();
        self.begun = Some(self.snapshot()?);
        self.overhead = since(start);
        Ok(())
    }

    /// The cost of every core since the last `begin`.
    pub fn end(&mut self) -> Result<Vec<CoreCost>> {
        let start = Instant::now();
        let now = self.snapshot()?;
        let from = self
            .begun
            .take()
            .ok_or_else(|| Fault::new("host meter", "it was ended before it was begun", "call begin first"))?;
        self.counts = counts_between(&from, &now, &self.online);
        let costs = self.counts.iter().map(|counts| self.cost(counts, &from, &now)).collect();
        self.overhead = self.overhead + since(start);
        Ok(costs)
    }

    /// Counts of the last block by core, also where times are absent or not permitted.
    pub fn counts(&self) -> &[CoreCounts] {
        &self.counts
    }

    /// Cost of the last `begin` and `end` together.
    pub fn overhead(&self) -> Nanoseconds {
        self.overhead
    }

    fn cost(&self, counts: &CoreCounts, from: &Snapshot, now: &Snapshot) -> CoreCost {
        let work = from.work.get(&counts.core).zip(now.work.get(&counts.core));
        let softirq = |of: fn(&CoreWork) -> Softirq, seen: u64| match (&self.sensor, work) {
            (Reading::NotPermitted { reason, next }, _) => {
                Reading::not_permitted(format!("{reason} (it ran {seen} times)"), next)
            }
            (Reading::Absent { reason }, _) => Reading::absent(format!("{reason} (it ran {seen} times)")),
            (_, None) => Reading::absent(format!("the sensor does not know {}", counts.core)),
            (_, Some((from, now))) => {
                Reading::Measured(Softirq { count: of(now).count - of(from).count, time: of(now).time - of(from).time })
            }
        };
        let sensed = work.and_then(|(from, now)| Some(now.interrupts? - from.interrupts?));
        let interrupts = match (sensed, counts.interrupts) {
            (Some(taken), _) => Reading::Measured(taken),
            (None, Some(kinds)) => Reading::Measured(kinds.device + kinds.interprocessor),
            (None, None) => Reading::absent(format!("/proc/interrupts does not list {}", counts.core)),
        };
        CoreCost {
            core: counts.core,
            net_rx: softirq(|w| w.net_rx, counts.softirqs.net_rx),
            net_tx: softirq(|w| w.net_tx, counts.softirqs.net_tx),
            interrupts,
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let work = match &self.sensor {
            Reading::Measured(sensor) => sensor.read()?,
            _ => BTreeMap::new(),
        };
        let softirqs = softirq_counts(self.softirqs.read()?).ok_or_else(|| self.softirqs.misread())?;
        let interrupts = if self.interrupts_sensed {
            None
        } else {
            Some(InterruptTable::parse(self.interrupts.read()?).ok_or_else(|| self.interrupts.misread())?)
        };
        Ok(Snapshot { work, softirqs, interrupts })
    }
}

/// The counts of the cores `online`: `/proc/softirqs` has a column for every possible one, which may be thousands.
fn counts_between(from: &Snapshot, now: &Snapshot, online: &CpuSet) -> Vec<CoreCounts> {
    let pairs = now.softirqs.iter().zip(&from.softirqs).filter(|((now, _), (from, _))| now == from);
    let counts = pairs.filter(|((core, now), (_, from))| online.contains(*core) || now != from);
    counts
        .map(|(&(core, now_counts), (_, from_counts))| CoreCounts {
            core,
            softirqs: SoftirqCounts {
                net_rx: advance(from_counts.net_rx, now_counts.net_rx),
                net_tx: advance(from_counts.net_tx, now_counts.net_tx),
            },
            interrupts: interrupts_between(from, now, core),
        })
        .collect()
}

fn interrupts_between(from: &Snapshot, now: &Snapshot, core: CoreId) -> Option<InterruptCounts> {
    Some(now.interrupts.as_ref()?.of(core)? - from.interrupts.as_ref()?.of(core)?)
}

fn since(start: Instant) -> Nanoseconds {
    Nanoseconds(start.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::affinity;
    use crate::lab::{Host, Lab, Options};

    fn send_over_loopback(datagrams: usize) {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer = [0; 64];
        for _ in 0..datagrams {
            from.send_to(&[1; 64], to.local_addr().unwrap()).unwrap();
            to.recv(&mut buffer).unwrap();
        }
    }

    fn softirq_ticks() -> u64 {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        stat.lines().next().unwrap().split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// What `/proc/stat` misses: every datagram over loopback is a receive softirq, and takes time.
    #[test]
    fn datagrams_over_loopback_are_seen_with_their_time() {
        let mut meter = HostMeter::open().unwrap();
        match meter.sensor() {
            Reading::NotPermitted { reason, next } => return skip::test(format_args!("{reason}; {next}")),
            Reading::Absent { reason } if bpf::SOFTIRQ.is_none() => return skip::test(reason),
            sensor => assert_eq!(sensor, Reading::Measured(())),
        }
        const DATAGRAMS: u64 = 2000;
        let ticks = softirq_ticks();
        meter.begin().unwrap();
        let start = Instant::now();
        send_over_loopback(DATAGRAMS as usize);
        let elapsed = since(start);
        let costs = meter.end().unwrap();
        let ticks = softirq_ticks() - ticks;
        let rx = costs.iter().filter_map(|c| c.net_rx.value());
        let (count, time) = rx.fold((0, 0), |(count, time), s| (count + s.count, time + s.time.0));
        eprintln!(
            "{DATAGRAMS} datagrams in {elapsed}: {count} receive softirqs, {} inside; /proc/stat: {ticks} ticks of \
             softirq; the meter took {}",
            Nanoseconds(time),
            meter.overhead()
        );
        assert!(count >= DATAGRAMS && time > 0);
        assert!(time < elapsed.0 * costs.len() as u64, "more softirq time than there was time");
        let listed: u64 = meter.counts().iter().map(|c| c.softirqs.net_rx).sum();
        assert!(listed >= DATAGRAMS, "/proc/softirqs saw {listed}");
        assert!(meter.overhead() > Nanoseconds(0));
    }

    /// The sensor counts the interrupts that the kernel lists.
    #[test]
    fn the_sensor_and_the_kernel_agree_on_interrupts() {
        let mut sensed = HostMeter::open().unwrap();
        if !sensed.interrupts_sensed {
            return skip::test(format_args!("no interrupt tracepoints here: {:?}", sensed.sensor()));
        }
        let mut listed = HostMeter::with_sensor(Reading::absent("left out to compare")).unwrap();
        let total = |costs: Vec<CoreCost>| costs.iter().filter_map(|c| c.interrupts.value()).sum::<u64>();
        // A line shared by devices counts once for the kernel and once a handler for the sensor.
        let near = |n: u64| n + n / 4 + 64;
        // Each measurement encloses the other once, so that interrupts between two snapshots cannot reverse the comparison.
        listed.begin().unwrap();
        sensed.begin().unwrap();
        ping_pong_between_threads();
        let inner = total(sensed.end().unwrap());
        let outer = total(listed.end().unwrap());
        assert!(inner <= near(outer), "the sensor saw {inner}, the kernel {outer}");
        sensed.begin().unwrap();
        listed.begin().unwrap();
        ping_pong_between_threads();
        let inner = total(listed.end().unwrap());
        let outer = total(sensed.end().unwrap());
        assert!(inner <= near(outer), "the kernel saw {inner}, the sensor {outer}");
        eprintln!("500 wake-ups: {inner} interrupts listed, {outer} sensed");
    }

    /// The first and the last core that this process may use.
    fn two_cores() -> (CoreId, CoreId) {
        let cores = affinity::current().unwrap();
        (cores[0], cores[cores.len() - 1])
    }

    /// On two cores where possible, so that most wake-ups are interrupts.
    fn ping_pong_between_threads() {
        let (first, last) = two_cores();
        let (ping, pinged) = std::sync::mpsc::channel();
        let (pong, ponged) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _pinned = affinity::pin(first).unwrap();
                pinged.into_iter().for_each(|n: u32| pong.send(n).unwrap());
            });
            scope.spawn(move || {
                let _pinned = affinity::pin(last).unwrap();
                for n in 0..500 {
                    ping.send(n).unwrap();
                    assert_eq!(ponged.recv(), Ok(n));
                }
            });
        });
    }

    /// Without privilege all counts are there, and the time's reading says what it would take.
    #[test]
    fn counts_remain_where_the_sensor_is_not_permitted() {
        let denied = Reading::not_permitted("softirq time: not you", "ask root");
        let mut meter = HostMeter::with_sensor(denied).unwrap();
        meter.begin().unwrap();
        send_over_loopback(300);
        let costs = meter.end().unwrap();
        let Reading::NotPermitted { reason, next } = &costs[0].net_rx else { panic!("{costs:?}") };
        assert!(reason.starts_with("softirq time: not you (it ran ") && next == "ask root", "{reason}");
        assert!(meter.counts().iter().map(|c| c.softirqs.net_rx).sum::<u64>() >= 300);
        assert!(meter.counts().iter().all(|c| c.interrupts.is_some()));
        assert!(costs.iter().all(|c| c.interrupts.value().is_some()));
    }

    #[test]
    fn possible_cores_that_are_not_on_line_count_nothing() {
        let at = |net_rx| {
            let softirqs = |core| SoftirqCounts { net_rx: if core % 1000 == 1 { net_rx } else { 0 }, net_tx: 0 };
            let all = (0..2048).map(|core| (CoreId(core), softirqs(core))).collect();
            Snapshot { softirqs: all, ..Snapshot::default() }
        };
        let online: CpuSet = [0, 1].map(CoreId).into_iter().collect();
        let counts = counts_between(&at(3), &at(10), &online);
        // Cores 1001 and 2001 came online since.
        let received: Vec<_> = counts.iter().map(|counts| (counts.core.0, counts.softirqs.net_rx)).collect();
        assert_eq!(received, [(0, 0), (1, 7), (1001, 7), (2001, 7)]);
    }

    #[test]
    fn an_end_without_a_begin_is_a_fault() {
        let mut meter = HostMeter::with_sensor(Reading::absent("left out")).unwrap();
        assert!(meter.end().unwrap_err().next().contains("begin"));
    }
    /// Receive work that RPS steers shows on the core that it was steered to, not on the sender's.
    #[test]
    fn steered_receive_work_shows_on_its_core() {
        const DATAGRAMS: u64 = 1000;
        let (first, last) = two_cores();
        if first == last {
            return skip::test("one core only");
        }
        if !crate::lab::testing::possible() {
            return;
        }
        let lab = Lab::owned(&Options::default()).unwrap();
        let open = |host| {
            let socket = lab.inside(host, || UdpSocket::bind(SocketAddr::new(lab.address(host), 0))).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        let (from, to) = (open(Host::A), open(Host::B));
        let mut meter = HostMeter::open().unwrap();
        for (sender, receiver) in [(first, last), (last, first)] {
            lab.steer(Some(receiver)).unwrap();
            let costs = std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    let _pinned = affinity::pin(sender).unwrap();
                    meter.begin().unwrap();
                    for _ in 0..DATAGRAMS {
                        from.send_to(&[1; 64], to.local_addr().unwrap()).unwrap();
                        to.recv(&mut [0; 64]).unwrap();
                    }
                    meter.end().unwrap()
                });
                sending.join().unwrap()
            });
            let counts = |core| meter.counts().iter().find(|c| c.core == core).unwrap().softirqs;
            // A softirq may handle two datagrams, and the last may still run.
            assert!(counts(receiver).net_rx >= DATAGRAMS / 2, "steered to {receiver}: {:?}", meter.counts());
            for cost in costs {
                if let Some(rx) = cost.net_rx.value() {
                    eprintln!("steered to {receiver}: {} {} times, {} inside", cost.core, rx.count, rx.time);
                    assert!(cost.core != receiver || rx.time > Nanoseconds(0));
                }
            }
        }
    }
}
