//! Network softirqs by core: counts from `/proc/softirqs`, time from the kernel's tracepoints.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use machine::accounting::Softirq;
use machine::{CoreId, Fault, FaultKind, Nanoseconds, Reading, Result};
use serde::{Deserialize, Serialize};

use super::table;
use crate::xdp::{Loader, Object};

/// How often each network softirq ran on one core. Every user may read this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftirqCounts {
    pub net_rx: u64,
    pub net_tx: u64,
}

/// Reads the text of `/proc/softirqs`; `None` if it has another format. It lists all possible cores, not only online ones.
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

/// Counts of the sensor's programs on one core since they were attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreWork {
    pub net_rx: Softirq,
    pub net_tx: Softirq,
    /// Softirqs of all kinds, the network's among them.
    pub all: Softirq,
    /// Interrupts from devices and other cores; `None` where the kernel does not trace all of them.
    pub interrupts: Option<u64>,
}

/// Words of `struct core_work` of the programs: a count and a time for each vector, then two counts of interrupts.
const WORDS: usize = 2 * VECTORS + 2;
const VECTORS: usize = 10;
const NET_TX: usize = 2;
const NET_RX: usize = 3;

/// The x86 kernel's tracepoints of inter-processor interrupts. On other architectures `/proc/interrupts` counts them.
const INTERPROCESSOR: [&str; 3] = ["reschedule_entry", "call_function_entry", "call_function_single_entry"];

/// BPF programs on the tracepoints irq:softirq_entry and irq:softirq_exit, attached while this lives.
///
/// They cost every softirq of the host about a tenth of a microsecond, so open them once, not once a thread.
pub struct SoftirqSensor {
    programs: Object,
    interrupts_traced: bool,
    _attached: Vec<OwnedFd>,
}

impl SoftirqSensor {
    pub fn open() -> Reading<Self> {
        let Some(object) = bpf::SOFTIRQ else {
            let why = bpf::MISSING.unwrap_or("built without BPF programs");
            return Reading::absent(format!("softirq time: {why}; install clang and rebuild"));
        };
        match Self::load(object) {
            Ok(sensor) => Reading::Measured(sensor),
            Err(fault) if fault.kind() == FaultKind::NotPermitted => Reading::not_permitted(
                "softirq time: the kernel lets only privileged users trace it",
                "run as root, or with CAP_BPF and CAP_PERFMON",
            ),
            Err(fault) => Reading::absent(format!("softirq time: {}", fault.cause())),
        }
    }

    fn load(object: &[u8]) -> Result<Self> {
        let programs = Loader::new("softirq", object).traces().load()?;
        let attach = |name, tracepoints: &[&str]| -> Result<Vec<OwnedFd>> {
            let program = programs.program(name)?;
            tracepoints.iter().map(|tracepoint| program.trace(tracepoint)).collect()
        };
        let mut attached = attach("on_softirq_exit", &["softirq_exit"])?;
        attached.extend(attach("on_softirq_entry", &["softirq_entry"])?);
        let interrupts = attach("on_interprocessor_interrupt", &INTERPROCESSOR)
            .and_then(|between| Ok((between, attach("on_device_interrupt", &["irq_handler_entry"])?)));
        let interrupts_traced = interrupts.is_ok();
        attached.extend(interrupts.into_iter().flat_map(|(between, devices)| between.into_iter().chain(devices)));
        let sensor = SoftirqSensor { programs, interrupts_traced, _attached: attached };
        sensor.read()?;
        Ok(sensor)
    }

    /// The work of every possible core since `open`. One system call.
    pub fn read(&self) -> Result<BTreeMap<CoreId, CoreWork>> {
        let failed =
            |cause: String| Fault::new("softirq sensor", cause, "run again; without this sensor time is not known");
        let cores = self.programs.map("WORK")?.of_all_cores(0).map_err(|error| failed(error.to_string()))?;
        let whole = |raw: &[u64]| (raw.len() >= WORDS).then(|| self.core_work(raw));
        let shape = || failed("its map has another shape".into());
        cores.iter().map(|(core, raw)| Ok((*core, whole(raw).ok_or_else(shape)?))).collect()
    }

    fn core_work(&self, raw: &[u64]) -> CoreWork {
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

    proptest! {
        #[test]
        fn any_text_reads_without_panic(body in "[ -~\n]{0,300}") {
            prop_assert_eq!(softirq_counts(&format!(" CPU0 CPU7\n{body}")).unwrap().len(), 2);
            let _ = softirq_counts(&body);
        }
    }
}
