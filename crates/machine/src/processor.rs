//! The processor: model, architecture, hypervisor and time-stamp counter.

use serde::{Deserialize, Serialize};

use crate::source::Source;

/// The names of the processor, its kernel and its makers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// The processor's model name.
    pub model: Option<String>,
    /// The architecture, as `uname -m` gives it.
    pub architecture: Option<String>,
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: Option<String>,
    /// The maker and the product, from the firmware.
    pub product: Option<String>,
    /// The hypervisor of a virtual machine, or `unnamed`; `None` where nothing tells of one.
    pub hypervisor: Option<String>,
}

/// Core types of Arm by implementer and part number (`MIDR_EL1`), as the vendor's manuals name them.
const ARM_PARTS: [(&str, &str, &str); 9] = [
    ("0x41", "0xd08", "Cortex-A72"),
    ("0x41", "0xd0c", "Neoverse-N1"),
    ("0x41", "0xd40", "Neoverse-V1"),
    ("0x41", "0xd41", "Cortex-A78"),
    ("0x41", "0xd42", "Cortex-A78AE"),
    ("0x41", "0xd49", "Neoverse-N2"),
    ("0x41", "0xd4b", "Cortex-A78C"),
    ("0x41", "0xd4f", "Neoverse-V2"),
    ("0x48", "0xd01", "Kunpeng-920"),
];

impl Processor {
    /// Reads the processor's facts; what the source lacks stays empty.
    pub fn read(source: &Source) -> Processor {
        let cpuinfo = source.text("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let architecture = source.word("/proc/sys/kernel/arch").or_else(|| {
            let guess = if field("vendor_id").is_some() { "x86_64" } else { "aarch64" };
            (field("vendor_id").is_some() || field("CPU implementer").is_some()).then(|| guess.into())
        });
        let arm = || {
            let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
            let known = ARM_PARTS.iter().find(|(i, p, _)| *i == implementer && *p == part);
            Some(known.map_or_else(|| format!("Arm {implementer}/{part}"), |(_, _, name)| format!("Arm {name}")))
        };
        let firmware = |name: &str| source.word(&format!("/sys/class/dmi/id/{name}"));
        let product = [firmware("sys_vendor"), firmware("product_name")].into_iter().flatten().collect::<Vec<_>>();
        let hypervisor_bit = field("flags").is_some_and(|flags| flags.split_whitespace().any(|f| f == "hypervisor"));
        let named = source
            .word("/sys/hypervisor/type")
            .or_else(|| source.word("/proc/device-tree/hypervisor/compatible"))
            .map(|name| name.trim_matches('\0').to_owned());
        let by_vendor = || {
            let vendor = product.first()?;
            let virtual_vendors = ["QEMU", "VMware", "Amazon EC2", "innotek", "Google", "Xen", "Parallels"];
            let arm = architecture.as_deref() != Some("x86_64");
            let told = virtual_vendors.iter().any(|name| vendor.starts_with(name));
            (told && (hypervisor_bit || arm)).then(|| vendor.clone())
        };
        Processor {
            model: field("model name").or_else(arm),
            hypervisor: named.or_else(by_vendor).or_else(|| hypervisor_bit.then(|| "unnamed".into())),
            architecture,
            kernel: source.word("/proc/sys/kernel/osrelease"),
            product: (!product.is_empty()).then(|| product.join(" ")),
        }
    }
}

/// Clock sources that the kernel trusts.
const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
const X86_COUNTER: &str = "tsc";
const ARM_COUNTER: &str = "arch_sys_counter";

/// Whether the kernel trusts the processor's time-stamp counter, whether it keeps time by it or, as a guest, by another
/// source. The kernel watches the counter, and drops it when it is found wrong.
pub fn counter_is_kept(source: &Source) -> bool {
    trusted(source).is_some()
}

fn trusted(source: &Source) -> Option<&'static str> {
    let clocks = source.text(CLOCKS).ok()?;
    [X86_COUNTER, ARM_COUNTER].into_iter().find(|counter| clocks.split_whitespace().any(|clock| clock == *counter))
}

/// Whether the counter is fit to measure time by: trusted, and of constant rate, as Arm's always is.
pub fn counter_is_fit(source: &Source) -> bool {
    let is_steady = |flags: &str| {
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        has("constant_tsc") && has("nonstop_tsc")
    };
    let cpuinfo = || source.text("/proc/cpuinfo").unwrap_or_default();
    match trusted(source) {
        Some(ARM_COUNTER) => true,
        Some(_) => cpuinfo().lines().find(|line| line.starts_with("flags")).is_some_and(is_steady),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_counter_that_the_kernel_has_given_up_is_not_fit() {
        let root = tempfile::tempdir().unwrap();
        let fit = |clock: &str, cpuinfo: &str| {
            for (path, text) in [(CLOCKS, clock), ("/proc/cpuinfo", cpuinfo)] {
                let file = root.path().join(&path[1..]);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            counter_is_fit(&Source::open(root.path()).unwrap())
        };
        let steady = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n";
        assert!(fit("tsc hpet acpi_pm \n", steady) && fit("kvm-clock tsc \n", steady));
        assert!(fit("arch_sys_counter\n", "CPU implementer\t: 0x41\n"));
        for given_up in ["hpet acpi_pm \n", "kvm-clock \n", ""] {
            assert!(!fit(given_up, steady), "{given_up}");
        }
        assert!(!fit("tsc\n", "flags\t\t: fpu tsc constant_tsc\n"), "it stops where a core sleeps");
    }
}
