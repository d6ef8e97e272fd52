//! Sensors: what can be measured while messages are processed.

use crate::availability::{Availability, Feature};
use crate::control::Ground;
use crate::power::found;
use crate::privileges::Capability;

const PMU: &str = "/sys/bus/event_source/devices";

pub(crate) fn read(ground: &Ground) -> Vec<Feature> {
    vec![
        Feature::new("softirq-count", file(ground, "/proc/softirqs", "NET_RX and NET_TX by core, /proc/softirqs")),
        Feature::new("softirq-time", softirq_time(ground)),
        Feature::new("interrupts", file(ground, "/proc/interrupts", "by line and core, /proc/interrupts")),
        Feature::new("thread-time", file(ground, "/proc/self/schedstat", "nanoseconds on and waiting for a core")),
        Feature::new("counters", counters(ground)),
        Feature::new("effective-clock", effective_clock(ground)),
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

/// Time in softirqs is measured by a BPF program at the raw tracepoints softirq_entry and softirq_exit, which needs no
/// tracefs: without IRQ_TIME_ACCOUNTING /proc/stat charges whole ticks.
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

/// The clock of a busy core, by APERF and MPERF where these may be read. Timed additions tell it anywhere, but only for
/// the moment at which they run.
fn effective_clock(ground: &Ground) -> Availability {
    let timed = "`plimsoll clock` times additions instead, which needs no right";
    let has = |event: &str| ground.source.text(&format!("{PMU}/msr/events/{event}")).is_ok();
    if has("aperf") && has("mperf") {
        return match may_trace(ground) || paranoid(ground).is_some_and(|level| level <= 0) {
            true => Availability::present("APERF and MPERF by perf's msr PMU"),
            false => Availability::not_permitted(
                "APERF and MPERF by perf's msr PMU, closed to this user",
                format!("run as root, or `sysctl kernel.perf_event_paranoid=0`; {timed}"),
            ),
        };
    }
    match ground.source.names("/dev/cpu/0", |name| name == "msr") {
        Ok(names) if !names.is_empty() => match ground.privileges.has_on_host(Capability::SysAdmin) {
            true => Availability::present("APERF and MPERF by /dev/cpu/N/msr"),
            false => Availability::not_permitted("APERF and MPERF by /dev/cpu/N/msr", format!("run as root; {timed}")),
        },
        _ if ground.virtual_machine => {
            Availability::absent("the hypervisor shows no APERF and MPERF", format!("read them on the host; {timed}"))
        }
        _ => {
            Availability::absent("no APERF and MPERF", format!("`modprobe msr` where the processor has them; {timed}"))
        }
    }
}

/// Energy counters under powercap: RAPL on Intel and, by the same driver, on AMD.
fn energy(ground: &Ground) -> Availability {
    let search = found::rapl(ground.source);
    let last = |name: &str| name.rsplit(['/', ':']).next().unwrap_or(name).to_owned();
    let names = search.found.iter().map(|found| last(&found.sensor.name)).collect::<Vec<_>>();
    match search.refused {
        Some(refused @ Availability::NotPermitted { .. }) => refused,
        _ if !names.is_empty() => Availability::present(format!("RAPL: {}", names.join(", "))),
        Some(refused) if !search.unread.is_empty() => refused,
        _ if ground.virtual_machine => {
            Availability::absent("the hypervisor shows no energy counter", "measure energy on the host or at the plug")
        }
        _ => Availability::absent("no powercap zone", "load intel_rapl_msr, or measure at the plug or the BMC"),
    }
}

/// Monitoring chips, with their files of power or energy.
fn hwmon(ground: &Ground) -> Availability {
    let chips = found::chips(ground.source);
    let told = |chip: &found::Chip| match chip.files.is_empty() {
        true => chip.name.clone(),
        false => format!("{} ({})", chip.name, chip.files.join(", ")),
    };
    let mut told: Vec<String> = chips.iter().map(told).collect();
    told.dedup();
    match told.is_empty() {
        false => Availability::present(told.join(", ")),
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
