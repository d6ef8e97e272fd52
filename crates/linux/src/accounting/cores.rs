//! Activity of every core of this host, as running totals, for a sampler.

use std::collections::BTreeMap;

use machine::{CoreId, Reading, Result};

use super::interrupts::InterruptTable;
use super::procfile::ProcFile;
use super::softirq::{SoftirqSensor, softirq_counts};
use super::table::advance;

/// Totals of one core since the sensor was opened. Values that [`Origins`] calls missing are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreTotals {
    /// Receive and send softirqs of the network, and their time, ns.
    pub net_rx: u64,
    pub net_rx_time: u64,
    pub net_tx: u64,
    pub net_tx_time: u64,
    /// Time in softirqs of all kinds, ns.
    pub softirq_time: u64,
    /// Interrupts from devices and other cores.
    pub interrupts: u64,
}

/// Use of a core's time since it came online, ns, known to a tick of USER_HZ (10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreLoad {
    pub idle: u64,
    /// Time that a hypervisor gave to others.
    pub stolen: u64,
}

/// The source of each kind of value, or why it is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Origins {
    pub softirq_counts: Reading<String>,
    pub softirq_times: Reading<String>,
    pub softirq_all: Reading<String>,
    pub interrupts: Reading<String>,
    pub load: Reading<String>,
}

const TRACED: &str = "BPF programs at the kernel's softirq tracepoints";

const RECEIVED: usize = 0;
const SENT: usize = 1;
const INTERRUPTED: usize = 2;

/// Sensors of the cores. A look at the work takes one system call with BPF, and reads two files of /proc without.
pub struct CoresSensor {
    sensor: Reading<SoftirqSensor>,
    /// Whether the sensor counts interrupts too.
    interrupts_sensed: bool,
    softirqs: ProcFile,
    interrupts: ProcFile,
    stat: ProcFile,
    online: Vec<CoreId>,
    /// Last value and total advance of each 32-bit counter.
    counted: BTreeMap<(CoreId, usize), (u64, u64)>,
    /// Time in softirqs by the kernel's ticks, ns, as of the last look at the load.
    ticked: BTreeMap<CoreId, u64>,
}

impl CoresSensor {
    pub fn open() -> Result<CoresSensor> {
        CoresSensor::with_sensor(SoftirqSensor::open())
    }

    /// Opens the counters without BPF, as any user may.
    pub fn without_bpf(reason: impl Into<String>) -> Result<CoresSensor> {
        CoresSensor::with_sensor(Reading::absent(reason))
    }

    fn with_sensor(sensor: Reading<SoftirqSensor>) -> Result<CoresSensor> {
        let interrupts_sensed = match &sensor {
            Reading::Measured(sensor) => sensor.read()?.values().next().is_some_and(|core| core.interrupts.is_some()),
            _ => false,
        };
        let mut sensor = CoresSensor {
            sensor,
            interrupts_sensed,
            softirqs: ProcFile::open("/proc/softirqs")?,
            interrupts: ProcFile::open("/proc/interrupts")?,
            stat: ProcFile::open("/proc/stat")?,
            online: Vec::new(),
            counted: BTreeMap::new(),
            ticked: BTreeMap::new(),
        };
        sensor.online = sensor.load()?.into_iter().map(|(core, _)| core).collect();
        sensor.work()?;
        Ok(sensor)
    }

    /// Cores that were online when it was opened.
    pub fn online(&self) -> &[CoreId] {
        &self.online
    }

    pub fn origins(&self) -> Origins {
        let traced = |fallback: &str| match &self.sensor {
            Reading::Measured(_) => Reading::Measured(TRACED.to_owned()),
            _ => Reading::Measured(fallback.to_owned()),
        };
        let missing = match &self.sensor {
            Reading::NotPermitted { reason, next } => Reading::not_permitted(reason, next),
            Reading::Absent { reason } => Reading::absent(reason),
            _ => Reading::Measured(TRACED.to_owned()),
        };
        let ticked = "/proc/stat: whole ticks of the kernel, charged to whatever a tick hit";
        Origins {
            softirq_counts: traced("/proc/softirqs"),
            softirq_all: match missing {
                Reading::Measured(_) => missing.clone(),
                _ => Reading::Modelled(ticked.to_owned()),
            },
            softirq_times: missing,
            interrupts: match self.interrupts_sensed {
                true => Reading::Measured("BPF programs at the kernel's interrupt tracepoints".to_owned()),
                false => Reading::Measured("/proc/interrupts".to_owned()),
            },
            load: Reading::Measured("/proc/stat, known to 10 ms".to_owned()),
        }
    }

    /// Totals of every core that was online at the start.
    pub fn work(&mut self) -> Result<Vec<(CoreId, CoreTotals)>> {
        let mut all: Vec<_> = self.online.iter().map(|core| (*core, CoreTotals::default())).collect();
        match &self.sensor {
            Reading::Measured(sensor) => {
                let work = sensor.read()?;
                for (core, totals) in &mut all {
                    let Some(work) = work.get(&*core) else { continue };
                    totals.net_rx = work.net_rx.count;
                    totals.net_rx_time = work.net_rx.time.0;
                    totals.net_tx = work.net_tx.count;
                    totals.net_tx_time = work.net_tx.time.0;
                    totals.softirq_time = work.all.time.0;
                    totals.interrupts = work.interrupts.unwrap_or(0);
                }
            }
            _ => {
                let counts = softirq_counts(self.softirqs.read()?).ok_or_else(|| self.softirqs.misread())?;
                for (core, counts) in counts {
                    self.count(core, RECEIVED, counts.net_rx);
                    self.count(core, SENT, counts.net_tx);
                }
            }
        }
        if !self.interrupts_sensed {
            let table = InterruptTable::parse(self.interrupts.read()?).ok_or_else(|| self.interrupts.misread())?;
            for (core, counts) in table.cores {
                self.count(core, INTERRUPTED, counts.device.wrapping_add(counts.interprocessor));
            }
        }
        let is_traced = self.sensor.value().is_some();
        for (core, totals) in &mut all {
            if !is_traced {
                (totals.net_rx, totals.net_tx) = (self.went(*core, RECEIVED), self.went(*core, SENT));
                totals.softirq_time = self.ticked.get(core).copied().unwrap_or(0);
            }
            if !self.interrupts_sensed {
                totals.interrupts = self.went(*core, INTERRUPTED);
            }
        }
        Ok(all)
    }

    /// Updates a counter's total; its first value counts as 0.
    fn count(&mut self, core: CoreId, which: usize, now: u64) {
        let (last, went) = self.counted.entry((core, which)).or_insert((now, 0));
        *went += advance(*last, now);
        *last = now;
    }

    fn went(&self, core: CoreId, which: usize) -> u64 {
        self.counted.get(&(core, which)).map_or(0, |(_, went)| *went)
    }

    /// Use of the time of every core that is online.
    pub fn load(&mut self) -> Result<Vec<(CoreId, CoreLoad)>> {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let (mut loads, mut ticked) = (Vec::new(), Vec::new());
        for line in self.stat.read()?.lines() {
            let Some((core, ticks)) = core_ticks(line) else { continue };
            loads.push((core, CoreLoad { idle: ticks.idle * tick, stolen: ticks.stolen * tick }));
            ticked.push((core, ticks.softirq * tick));
        }
        self.ticked.extend(ticked);
        Ok(loads)
    }
}

struct Ticks {
    idle: u64,
    stolen: u64,
    softirq: u64,
}

/// `cpuN user nice system idle iowait irq softirq steal ...`
fn core_ticks(line: &str) -> Option<(CoreId, Ticks)> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    // The line of the sum has no number.
    let core = CoreId(words.next()?.parse().ok()?);
    let mut numbers = [0u64; 8];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    let idle = numbers[3].checked_add(numbers[4])?;
    Some((core, Ticks { idle, stolen: numbers[7], softirq: numbers[6] }))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use proptest::prelude::*;

    use super::*;

    const DATAGRAMS: u64 = 500;

    fn send_over_loopback() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..DATAGRAMS {
            from.send_to(&[1; 64], to.local_addr().unwrap()).unwrap();
            to.recv(&mut [0; 64]).unwrap();
        }
    }

    fn grown(sensor: &mut CoresSensor) -> CoreTotals {
        let sum = |sensor: &mut CoresSensor| {
            sensor.work().unwrap().into_iter().fold(CoreTotals::default(), |sum, (_, core)| CoreTotals {
                net_rx: sum.net_rx + core.net_rx,
                net_rx_time: sum.net_rx_time + core.net_rx_time,
                softirq_time: sum.softirq_time + core.softirq_time,
                ..sum
            })
        };
        let before = sum(sensor);
        send_over_loopback();
        let after = sum(sensor);
        CoreTotals {
            net_rx: after.net_rx - before.net_rx,
            net_rx_time: after.net_rx_time - before.net_rx_time,
            softirq_time: after.softirq_time - before.softirq_time,
            ..CoreTotals::default()
        }
    }

    #[test]
    fn receive_work_grows_with_its_time() {
        let mut sensor = CoresSensor::open().unwrap();
        let grown = grown(&mut sensor);
        assert!(grown.net_rx >= DATAGRAMS, "{grown:?}");
        match sensor.origins().softirq_times {
            Reading::Measured(_) => assert!(grown.net_rx_time > 0 && grown.softirq_time >= grown.net_rx_time),
            other => {
                skip::part(format_args!("{other:?}"));
                assert_eq!(grown.net_rx_time, 0);
            }
        }
        let idle = sensor.load().unwrap();
        assert_eq!(idle.len(), sensor.online().len());
    }

    #[test]
    fn without_privilege_counts_remain_and_the_origins_say_so() {
        let mut sensor = CoresSensor::without_bpf("left out").unwrap();
        let grown = grown(&mut sensor);
        assert!(grown.net_rx >= DATAGRAMS && grown.net_rx_time == 0, "{grown:?}");
        let origins = sensor.origins();
        assert_eq!(origins.softirq_times, Reading::absent("left out"));
        assert!(matches!(origins.softirq_all, Reading::Modelled(_)));
        assert_eq!(origins.softirq_counts, Reading::Measured("/proc/softirqs".into()));
    }

    #[test]
    fn lines_of_cores_and_no_others() {
        assert!(core_ticks("cpu  9 9 9 9 9 9 9 9 0 0").is_none());
        let (core, ticks) = core_ticks("cpu12 1 2 3 40 5 6 7 8 0 0").unwrap();
        assert_eq!((core, ticks.idle, ticks.stolen, ticks.softirq), (CoreId(12), 45, 8, 7));
    }

    proptest! {
        #[test]
        fn any_line_reads_without_panic(line in "(cpu)?[ -~]{0,60}") {
            let _ = core_ticks(&line);
        }
    }
}
