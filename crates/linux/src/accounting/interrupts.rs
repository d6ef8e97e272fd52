//! `/proc/interrupts`: the interrupts of each core, by kind.

use std::ops::{Add, Sub};

use machine::CoreId;
use serde::{Deserialize, Serialize};

use super::table;

/// Interrupts that one core took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCounts {
    /// Interrupts from devices.
    pub device: u64,
    /// Interrupts from other cores: wake-ups, function calls (which carry RPS's hand-over).
    pub interprocessor: u64,
    /// The core's own timer.
    pub timer: u64,
    /// Performance counters, thermal, hypervisor and the like.
    pub other: u64,
}

impl Sub for InterruptCounts {
    type Output = Self;

    /// The counters advance modulo 2^32.
    fn sub(self, from: Self) -> Self {
        InterruptCounts {
            device: table::advance(from.device, self.device),
            interprocessor: table::advance(from.interprocessor, self.interprocessor),
            timer: table::advance(from.timer, self.timer),
            other: table::advance(from.other, self.other),
        }
    }
}

impl Add for InterruptCounts {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        InterruptCounts {
            device: self.device.wrapping_add(more.device),
            interprocessor: self.interprocessor.wrapping_add(more.interprocessor),
            timer: self.timer.wrapping_add(more.timer),
            other: self.other.wrapping_add(more.other),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device,
    Interprocessor,
    Timer,
    Other,
    /// A row that another one includes, or that is not of one core.
    Skipped,
}

/// The counts of every online core, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterruptTable {
    pub cores: Vec<(CoreId, InterruptCounts)>,
}

impl InterruptTable {
    /// `None` if the text is not of this format.
    pub fn parse(text: &str) -> Option<Self> {
        let ids = table::cores(text)?;
        let mut cores: Vec<_> = ids.into_iter().map(|id| (id, InterruptCounts::default())).collect();
        for row in table::rows(text) {
            let kind = classify(row.label, || row.description(cores.len()).any(|word| word.contains("arch_timer")));
            for (count, (_, core)) in row.counts(cores.len()).zip(&mut cores) {
                let field = match kind {
                    Kind::Device => &mut core.device,
                    Kind::Interprocessor => &mut core.interprocessor,
                    Kind::Timer => &mut core.timer,
                    Kind::Other => &mut core.other,
                    Kind::Skipped => continue,
                };
                *field = field.wrapping_add(count);
            }
        }
        Some(InterruptTable { cores })
    }

    pub fn of(&self, core: CoreId) -> Option<InterruptCounts> {
        self.cores.iter().find(|(id, _)| *id == core).map(|(_, counts)| *counts)
    }
}

fn classify(label: &str, timer: impl FnOnce() -> bool) -> Kind {
    match label {
        // x86: rescheduling and function calls. TLB shootdowns are function calls and counted there too (Linux 4.8).
        "RES" | "CAL" => Kind::Interprocessor,
        "LOC" => Kind::Timer,
        "TLB" | "ERR" | "MIS" | "Err" => Kind::Skipped,
        // Arm: IPI0, IPI1...; its timers are numbered like devices.
        _ if label.strip_prefix("IPI").is_some_and(|n| n.parse::<u32>().is_ok()) => Kind::Interprocessor,
        _ if label.parse::<u32>().is_ok() => {
            if timer() {
                Kind::Timer
            } else {
                Kind::Device
            }
        }
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const X86: &str = "\
           CPU0       CPU2
  0:          5          0   IO-APIC   2-edge      timer
 36:          1        700  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
NMI:          1          2   Non-maskable interrupts
LOC:       1000       2000   Local timer interrupts
RES:         30         40   Rescheduling interrupts
CAL:        300        400   Function call interrupts
TLB:        100        100   TLB shootdowns
ERR:          9
";

    const ARM: &str = "\
           CPU0       CPU1       CPU2       CPU3
 11:        100        200        300        400     GICv3  27 Level     arch_timer
 47:          7          0          0          1     ITS-MSI 524288 Edge      mlx5_async0@pci:0000:03:00.0
IPI0:        10         20         30         40       Rescheduling interrupts
IPI1:         1          1          1          1       Function call interrupts
Err:          0
";

    #[test]
    fn rows_fall_into_kinds() {
        let x86 = InterruptTable::parse(X86).unwrap();
        let two = InterruptCounts { device: 700, interprocessor: 440, timer: 2000, other: 2 };
        assert_eq!(x86.of(CoreId(2)), Some(two));
        assert_eq!(x86.of(CoreId(1)), None);
        let arm = InterruptTable::parse(ARM).unwrap();
        assert_eq!(arm.of(CoreId(3)).unwrap(), InterruptCounts { device: 1, interprocessor: 41, timer: 400, other: 0 });
    }

    #[test]
    fn this_host_reads() {
        let text = std::fs::read_to_string("/proc/interrupts").unwrap();
        let table = InterruptTable::parse(&text).unwrap();
        assert!(!table.cores.is_empty());
        assert!(table.cores.iter().any(|(_, c)| c.timer > 0), "no core's timer ever ticked: {table:?}");
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(body in "[ -~\n]{0,300}", header in proptest::bool::ANY) {
            let text = if header { format!(" CPU0 CPU1\n{body}") } else { body };
            let read = InterruptTable::parse(&text);
            prop_assert!(!header || read.is_some_and(|table| table.cores.len() == 2));
        }

        #[test]
        fn device_rows_add_up(rows in proptest::collection::vec((0u32..9999, any::<u32>(), any::<u32>()), 0..20)) {
            let body: String = rows.iter().map(|(n, a, b)| format!("{n:4}: {a:10} {b:10}  chip  name\n")).collect();
            let table = InterruptTable::parse(&format!("   CPU0   CPU1\n{body}")).unwrap();
            let sum = |f: fn(&(u32, u32, u32)) -> u32| rows.iter().map(|r| u64::from(f(r))).sum::<u64>();
            prop_assert_eq!(table.of(CoreId(0)).unwrap().device, sum(|r| r.1));
            prop_assert_eq!(table.of(CoreId(1)).unwrap().device, sum(|r| r.2));
        }
    }
}
