//! Network softirqs by core: counts from `/proc/softirqs`, time from the kernel's tracepoints.

use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray};
use aya::programs::{ProgramError, RawTracePoint};
use machine::accounting::Softirq;
use machine::{CoreId, Fault, Nanoseconds, Reading, Result};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::table;

/// How often each network softirq ran on one core. Every user may read this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftirqCounts {
    pub net_rx: u64,
    pub net_tx: u64,
}

/// Reads the text of `/proc/softirqs`; `None` if it is not of this format. Possible cores are listed, not only online.
pub fn softirq_counts(text: &str) -> Option<Vec<(CoreId, SoftirqCounts)>> {
    let ids = table::cores(text)?;
    let mut cores: Vec<_> = ids.into_iter().map(|id| (id, SoftirqCounts::default())).collect();
    for row in table::rows(text) {
        for (count, (_, core)) in row.counts(cores.len()).zip(&mut cores) {
            match row.label {
                "NET_RX" => core.net_rx = count,
                "NET_TX" => core.net_tx = count,
                _ => {}
            }
        }
    }
    Some(cores)
}

/// What the sensor's programs counted on one core since they were attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreWork {
    pub net_rx: Softirq,
    pub net_tx: Softirq,
    /// Of all kinds, the network's among them.
    pub all: Softirq,
    /// From devices and other cores; `None` where the kernel does not trace all of them.
    pub interrupts: Option<u64>,
}

/// `struct core_work` of the programs, field by field.
type RawWork = [u64; 23];
const VECTORS: usize = 10;
const NET_TX: usize = 2;
const NET_RX: usize = 3;

/// The x86 kernel's tracepoints of inter-processor interrupts. Elsewhere `/proc/interrupts` counts them.
const INTERPROCESSOR: [&str; 3] = ["reschedule_entry", "call_function_entry", "call_function_single_entry"];

/// BPF programs on the tracepoints irq:softirq_entry and irq:softirq_exit, attached while this lives.
///
/// Costs every softirq of the host about a tenth of a microsecond, so open it once, not once a thread.
pub struct SoftirqSensor {
    work: PerCpuArray<MapData, RawWork>,
    interrupts_traced: bool,
    _attached: Ebpf,
}

impl SoftirqSensor {
    pub fn open() -> Reading<Self> {
        let Some(object) = bpf::SOFTIRQ else {
            let why = bpf::MISSING.unwrap_or("built without BPF programs");
            return Reading::absent(format!("softirq time: {why}; install clang and rebuild"));
        };
        match Self::load(object) {
            Ok(sensor) => Reading::Measured(sensor),
            Err(Refused::NotPermitted) => Reading::not_permitted(
                "softirq time: the kernel lets only privileged users trace it",
                "run as root, or with CAP_BPF and CAP_PERFMON",
            ),
            Err(Refused::Absent(reason)) => Reading::absent(format!("softirq time: {reason}")),
        }
    }

    fn load(object: &[u8]) -> Result<Self, Refused> {
        let mut programs = Ebpf::load(object)?;
        attach(&mut programs, "on_softirq_exit", &["softirq_exit"])?;
        attach(&mut programs, "on_softirq_entry", &["softirq_entry"])?;
        let interrupts_traced = attach(&mut programs, "on_interprocessor_interrupt", &INTERPROCESSOR).is_ok()
            && attach(&mut programs, "on_device_interrupt", &["irq_handler_entry"]).is_ok();
        let map = programs.take_map("WORK").ok_or_else(|| Refused::Absent("the programs have no map WORK".into()))?;
        let work = PerCpuArray::try_from(map).map_err(|e| Refused::Absent(e.to_string()))?;
        Ok(SoftirqSensor { work, interrupts_traced, _attached: programs })
    }

    /// The work of every possible core since `open`, by core number. One system call.
    pub fn read(&self) -> Result<Vec<CoreWork>> {
        let cores = self
            .work
            .get(&0, 0)
            .map_err(|e| Fault::because("softirq sensor", e, "run again; without this sensor time is not known"))?;
        Ok(cores.iter().map(|raw| self.core_work(raw)).collect())
    }

    fn core_work(&self, raw: &RawWork) -> CoreWork {
        let vector = |v: usize| Softirq { count: raw[v], time: Nanoseconds(raw[VECTORS + v]) };
        let interrupts = raw[2 * VECTORS] + raw[2 * VECTORS + 1];
        CoreWork {
            net_rx: vector(NET_RX),
            net_tx: vector(NET_TX),
            all: Softirq {
                count: raw[..VECTORS].iter().sum(),
                time: Nanoseconds(raw[VECTORS..2 * VECTORS].iter().sum()),
            },
            interrupts: self.interrupts_traced.then_some(interrupts),
        }
    }
}

enum Refused {
    NotPermitted,
    Absent(String),
}

fn attach(programs: &mut Ebpf, name: &str, tracepoints: &[&str]) -> Result<(), Refused> {
    let program = programs.program_mut(name).ok_or_else(|| Refused::Absent(format!("no program {name}")))?;
    let program: &mut RawTracePoint = program.try_into()?;
    program.load()?;
    for tracepoint in tracepoints {
        program.attach(tracepoint)?;
    }
    Ok(())
}

impl From<aya::EbpfError> for Refused {
    fn from(e: aya::EbpfError) -> Self {
        Self::because(&e)
    }
}

impl From<ProgramError> for Refused {
    fn from(e: ProgramError) -> Self {
        Self::because(&e)
    }
}

impl Refused {
    fn because(e: &(dyn std::error::Error + 'static)) -> Self {
        let mut chain = vec![e.to_string()];
        let mut cause = Some(e);
        while let Some(e) = cause {
            if let Some(os) = e.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error)
                && (os == Errno::PERM || os == Errno::ACCESS)
            {
                return Refused::NotPermitted;
            }
            cause = e.source();
            chain.extend(cause.map(ToString::to_string));
        }
        chain.dedup();
        Refused::Absent(chain.join(": "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_network_rows() {
        let text =
            "         CPU0       CPU1\n    NET_TX:      3    1\n    NET_RX:   2757   3801\n   BLOCK:  0  69359\n";
        let counts = softirq_counts(text).unwrap();
        assert_eq!(counts[1], (CoreId(1), SoftirqCounts { net_rx: 3801, net_tx: 1 }));
        assert_eq!(softirq_counts("nothing of the kind"), None);
    }

    #[test]
    fn refusal_by_the_kernel_is_not_absence() {
        let denied = std::io::Error::from_raw_os_error(libc::EPERM);
        assert!(matches!(Refused::because(&denied), Refused::NotPermitted));
        let odd = std::io::Error::from_raw_os_error(libc::ENOENT);
        assert!(matches!(Refused::because(&odd), Refused::Absent(_)));
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(body in "[ -~\n]{0,300}") {
            prop_assert_eq!(softirq_counts(&format!(" CPU0 CPU7\n{body}")).unwrap().len(), 2);
            let _ = softirq_counts(&body);
        }
    }
}
