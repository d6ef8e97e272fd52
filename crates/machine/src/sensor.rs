//! Sensors: what can be observed while messages are processed.

use crate::availability::{Availability, Feature};
use crate::control::Ground;
use crate::privileges::Capability;
use crate::refusal::Refusal;

const POWERCAP: &str = "/sys/class/powercap";
const HWMON: &str = "/sys/class/hwmon";
const PMU: &str = "/sys/bus/event_source/devices";

pub(crate) fn read(ground: &Ground) -> Vec<Feature> {
    vec![
        Feature::new("softirq-count", file(ground, "/proc/softirqs", "NET_RX and NET_TX by core, /proc/softirqs")),
        Feature::new("softirq-time", softirq_time(ground)),
        Feature::new("interrupts", file(ground, "/proc/interrupts", "by line and core, /proc/interrupts")),
        Feature::new("thread-time", file(ground, "/proc/self/schedstat", "nanoseconds on and waiting for a core")),
        Feature::new("counters", counters(ground)),
        Feature::new("energy", energy(ground)),
        Feature::new("hwmon", hwmon(ground)),
        Feature::new("pressure", file(ground, "/proc/pressure/cpu", "stalls for want of a core, /proc/pressure/cpu")),
        Feature::new("bpf", bpf(ground)),
    ]
}

fn file(ground: &Ground, path: &str, detail: &str) -> Availability {
    match ground.source.text(path) {
        Ok(_) => Availability::present(detail),
        Err(refusal) if refusal.not_permitted() => {
            Availability::not_permitted(format!("{path}: {refusal}"), "run as root")
        }
        Err(refusal) if refusal.missing() => {
            Availability::absent(format!("{path} is not there"), "mount /proc, or use a kernel built with it")
        }
        Err(refusal) => Availability::absent(format!("{path}: {refusal}"), "use a kernel built with it"),
    }
}

fn paranoid(ground: &Ground) -> Option<i32> {
    ground.source.number("/proc/sys/kernel/perf_event_paranoid")
}

fn may_trace(ground: &Ground) -> bool {
    let capable = [Capability::Perfmon, Capability::SysAdmin].iter().any(|c| ground.privileges.has_on_host(*c));
    capable || paranoid(ground).is_some_and(|level| level < 0)
}

/// Time in softirqs comes from a BPF program at the raw tracepoints softirq_entry and softirq_exit, which needs no
/// tracefs: without IRQ_TIME_ACCOUNTING the kernel's own /proc/stat charges whole ticks.
fn softirq_time(ground: &Ground) -> Availability {
    match bpf(ground) {
        Availability::Present { .. } => {
            Availability::present("a BPF program at the raw tracepoints softirq_entry and softirq_exit")
        }
        refused => refused,
    }
}

/// Hardware counters: `cpu` on x86, `cpu_core` and `cpu_atom` on hybrids, `armv8_*` on Arm.
fn counters(ground: &Ground) -> Availability {
    let is_core_pmu = |name: &str| {
        matches!(name, "cpu" | "cpu_core" | "cpu_atom" | "cpu_lowpower")
            || name.starts_with("armv8_")
            || name.starts_with("armv9_")
    };
    let names = match ground.source.names(PMU, is_core_pmu) {
        Ok(names) => names,
        Err(refusal) => {
            return Availability::absent(
                format!("{PMU}: {refusal}"),
                "use a kernel with CONFIG_PERF_EVENTS and mount /sys",
            );
        }
    };
    if names.is_empty() {
        return match ground.virtual_machine {
            true => Availability::absent(
                "the hypervisor shows no core PMU",
                "enable the virtual PMU, or measure on bare metal",
            ),
            false => {
                Availability::absent("no core PMU is registered", "use a kernel that supports this processor's PMU")
            }
        };
    }
    let pmu = |name: &String| match ground.source.word(&format!("{PMU}/{name}/cpus")) {
        Some(cpus) => format!("{name} (cores {cpus})"),
        None => name.clone(),
    };
    let pmus = names.iter().map(pmu).collect::<Vec<_>>().join(", ");
    match paranoid(ground) {
        _ if may_trace(ground) => Availability::present(format!("{pmus}; user and kernel")),
        Some(level) if level <= 1 => Availability::present(format!("{pmus}; own threads, user and kernel")),
        Some(2) => Availability::present(format!("{pmus}; own threads in user mode only, perf_event_paranoid is 2")),
        Some(level) => Availability::not_permitted(
            format!("{pmus}, but perf_event_paranoid is {level}"),
            "run as root, or `sysctl kernel.perf_event_paranoid=2`",
        ),
        None => Availability::absent("the kernel has no perf events", "use a kernel with CONFIG_PERF_EVENTS"),
    }
}

/// Energy counters under powercap: RAPL on Intel and, by the same driver, on AMD.
fn energy(ground: &Ground) -> Availability {
    // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it; the mmio twins count the same energy again.
    let is_zone = |name: &str| name.contains(':') && !name.starts_with("intel-rapl-mmio");
    let zones = ground.source.names(POWERCAP, is_zone).unwrap_or_default();
    let mut readable = Vec::new();
    let mut refused: Option<(String, Refusal)> = None;
    for zone in &zones {
        let directory = format!("{POWERCAP}/{zone}");
        let name = ground.source.word(&format!("{directory}/name")).unwrap_or_else(|| zone.clone());
        match ground.source.text(&format!("{directory}/energy_uj")) {
            Ok(text) if text.trim().parse::<u64>().is_ok() => readable.push(name),
            Err(refusal) if refusal.not_permitted() => {
                refused = refused.or_else(|| Some((format!("{directory}/energy_uj"), refusal)))
            }
            _ => {}
        }
    }
    match refused {
        Some((path, refusal)) => Availability::not_permitted(
            format!("{path}: {refusal}"),
            "run as root, or grant read access to energy_uj (closed since CVE-2020-8694)",
        ),
        None if !readable.is_empty() => Availability::present(format!("RAPL: {}", readable.join(", "))),
        None if ground.virtual_machine => {
            Availability::absent("the hypervisor shows no energy counter", "measure energy on the host or at the plug")
        }
        None => Availability::absent("no powercap zone", "load intel_rapl_msr, or measure at the plug or the BMC"),
    }
}

fn hwmon(ground: &Ground) -> Availability {
    let is_device = |name: &str| name.starts_with("hwmon");
    let is_power = |name: &str| {
        (name.starts_with("power") || name.starts_with("energy")) && name.ends_with("_input")
            || name.starts_with("power") && name.ends_with("_average")
    };
    let mut chips = Vec::new();
    for device in ground.source.names(HWMON, is_device).unwrap_or_default() {
        let directory = format!("{HWMON}/{device}");
        let name = ground.source.word(&format!("{directory}/name")).unwrap_or(device);
        let power = ground.source.names(&directory, is_power).unwrap_or_default();
        chips.push(if power.is_empty() { name } else { format!("{name} ({})", power.join(", ")) });
    }
    chips.dedup();
    match chips.is_empty() {
        false => Availability::present(chips.join(", ")),
        true if ground.virtual_machine => {
            Availability::absent("the hypervisor shows no monitoring chip", "read temperatures on the host")
        }
        true => Availability::absent("no monitoring chip", "load its driver (`sensors-detect` finds it)"),
    }
}

fn bpf(ground: &Ground) -> Availability {
    let policy = ground.source.word("/proc/sys/kernel/unprivileged_bpf_disabled");
    let types = ground.source.names("/sys/kernel/btf", |name| name == "vmlinux").is_ok_and(|names| !names.is_empty());
    let types = if types { "with type information (BTF)" } else { "without type information (no BTF)" };
    match policy {
        None => Availability::absent("the kernel has no bpf system call", "use a kernel with CONFIG_BPF_SYSCALL"),
        Some(_) if ground.privileges.may_attach_bpf() => {
            Availability::present(format!("programs can be loaded, {types}"))
        }
        Some(_) => Availability::not_permitted(
            format!("the kernel takes programs, {types}, but not from this user"),
            "run as root, or grant CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        ),
    }
}
