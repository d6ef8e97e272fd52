//! Controls: what can be set on this machine to place and pace message processing.

use crate::availability::{Availability, Feature};
use crate::count;
use crate::cpuset::CpuSet;
use crate::frequency::{CPUFREQ, Clock};
use crate::interface::Interface;
use crate::privileges::{Capability, Limit, Privileges};
use crate::quota::Quota;
use crate::source::Source;
use crate::topology::Topology;

const CPU: &str = "/sys/devices/system/cpu";

/// The facts that a control is judged by.
pub(crate) struct Ground<'a> {
    pub source: &'a Source,
    pub topology: &'a Topology,
    pub clock: &'a Clock,
    pub interfaces: &'a [Interface],
    /// Whether sysfs shows the interfaces of another network namespace.
    pub interfaces_hidden: bool,
    pub privileges: &'a Privileges,
    pub virtual_machine: bool,
}

pub(crate) fn read(ground: &Ground) -> Vec<Feature> {
    let mut controls = vec![
        Feature::new("clock", clock(ground)),
        Feature::new("idle", idle(ground)),
        Feature::new("smt", smt(ground)),
        Feature::new("affinity", affinity(ground)),
        Feature::new("isolation", isolation(ground)),
        Feature::new("cpuset", cpuset(ground)),
        Feature::new("realtime", realtime(ground)),
        Feature::new("irq-default", irq_default(ground)),
    ];
    let counted: Vec<&Interface> = ground.interfaces.iter().filter(|interface| interface.counts()).collect();
    let mut of_interfaces = |kind: &str, judge: fn(&Ground, &Interface) -> Availability, on: fn(&Interface) -> bool| {
        for interface in counted.iter().filter(|interface| on(interface)) {
            controls.push(Feature::new(format!("{kind}:{}", interface.name), judge(ground, interface)));
        }
    };
    of_interfaces("irq", irq, |interface| interface.device.is_some());
    of_interfaces("irq-deferral", irq_deferral, |interface| !interface.loopback);
    of_interfaces("napi-threaded", threaded, |interface| !interface.loopback);
    of_interfaces("rps", rps, |_| true);
    of_interfaces("xps", xps, |interface| !interface.loopback);
    controls
}

/// Present with `detail` if the file may be written; else why not.
fn settable(ground: &Ground, path: &str, detail: String) -> Availability {
    match ground.source.writable(path) {
        Ok(()) => Availability::present(detail),
        Err(refusal) if refusal.name() == "EROFS" => Availability::not_permitted(
            format!("{detail}; mounted read-only"),
            "run outside the container, or mount /sys writable",
        ),
        Err(refusal) if refusal.not_permitted() => Availability::not_permitted(
            format!("{detail}; closed to this user ({refusal})"),
            "run as root to change it",
        ),
        Err(refusal) => Availability::absent(format!("{path}: {refusal}"), "update the kernel to one that has it"),
    }
}

fn clock(ground: &Ground) -> Availability {
    let Some(summary) = ground.clock.summary() else {
        return match ground.virtual_machine {
            true => Availability::absent(
                "no cpufreq policy: the hypervisor sets the clock",
                "set the governor on the host, or measure on bare metal",
            ),
            false => Availability::absent(
                "no cpufreq policy",
                "enable frequency scaling in the firmware, or load a cpufreq driver",
            ),
        };
    };
    let first = Clock::each(ground.source).first().map_or(0, |(number, _)| *number);
    settable(ground, &format!("{CPUFREQ}/policy{first}/scaling_governor"), summary)
}

fn idle(ground: &Ground) -> Availability {
    let word = |name: &str| ground.source.word(&format!("{CPU}/cpuidle/{name}"));
    match (word("current_driver"), word("current_governor").or_else(|| word("current_governor_ro"))) {
        (None, _) => Availability::absent("no cpuidle", "boot with a cpuidle driver, or pass `idle=` to the kernel"),
        (Some(driver), _) if driver == "none" => {
            Availability::absent("cpuidle has no driver: idle cores halt", "boot with a cpuidle driver")
        }
        (Some(driver), governor) => {
            let governor = governor.unwrap_or_else(|| "unnamed".into());
            settable(
                ground,
                &format!("{CPU}/cpuidle/current_governor"),
                format!("driver {driver}, governor {governor}"),
            )
        }
    }
}

fn smt(ground: &Ground) -> Availability {
    let path = format!("{CPU}/smt/control");
    match ground.source.word(&path).as_deref() {
        Some(state @ ("on" | "off")) => settable(ground, &path, state.into()),
        Some("forceoff") => Availability::absent("switched off until the next boot", "boot without `nosmt=force`"),
        Some("notsupported") => Availability::absent("the cores have one thread each", "nothing to do"),
        Some("notimplemented") | None => Availability::absent("the kernel cannot switch it here", "use the firmware"),
        Some(other) => Availability::present(format!("{other} threads a core")),
    }
}

fn affinity(ground: &Ground) -> Availability {
    match &ground.privileges.allowed {
        Some(allowed) => {
            let usable = allowed.intersection(&ground.topology.online);
            let rest = ground.topology.online.difference(&usable);
            let kept =
                if rest.is_empty() { String::new() } else { format!("; cores {rest} are kept from this process") };
            Availability::present(format!("threads can be pinned to cores {usable}{kept}"))
        }
        None => Availability::absent("/proc/self/status does not say which cores are allowed", "mount /proc"),
    }
}

fn isolation(ground: &Ground) -> Availability {
    let isolated = &ground.topology.isolated;
    let tickless = ground.source.cpu_list(&format!("{CPU}/nohz_full")).unwrap_or_default();
    if isolated.is_empty() && tickless.is_empty() {
        return Availability::absent(
            "the scheduler balances over every core",
            "boot with isolcpus=LIST nohz_full=LIST, or make an isolated cpuset partition",
        );
    }
    let part = |what: &str, set: &CpuSet| (!set.is_empty()).then(|| format!("cores {set} {what}"));
    let parts: Vec<String> = [part("isolated", isolated), part("tickless", &tickless)].into_iter().flatten().collect();
    Availability::present(format!("{} (boot parameters)", parts.join(", ")))
}

/// The cpuset that this process lives in: cgroup v2 if mounted, else v1.
fn cpuset(ground: &Ground) -> Availability {
    let group = ground.source.word("/proc/self/cpuset").unwrap_or_else(|| "/".into());
    let group = group.trim_end_matches('/');
    let next = "mount cgroup2 with the cpuset controller";
    let files = [
        format!("/sys/fs/cgroup{group}/cpuset.cpus.effective"),
        format!("/sys/fs/cgroup/cpuset{group}/cpuset.effective_cpus"),
    ];
    let found = files.iter().find_map(|path| Some((path, ground.source.cpu_list(path)?)));
    let Some((path, cores)) = found else { return Availability::absent("no cpuset controller is mounted", next) };
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let quota = ground.source.word(&format!("{directory}/cpu.max")).filter(|max| !max.starts_with("max"));
    let quota = quota.map(|max| format!("; CPU time limited to {} us", max.replacen(' ', " of every ", 1)));
    // A quota may also lie on a parent group, or in a hierarchy of its own.
    let quota = quota.or_else(|| Quota::tightest(ground.source).map(|quota| format!("; {quota}")));
    let shown = if group.is_empty() { "/" } else { group };
    let detail = format!("group {shown}, cores {cores}{}", quota.unwrap_or_default());
    settable(ground, &format!("{directory}/cgroup.procs"), detail)
}

fn realtime(ground: &Ground) -> Availability {
    let runtime = ground.source.word("/proc/sys/kernel/sched_rt_runtime_us");
    let period = ground.source.word("/proc/sys/kernel/sched_rt_period_us");
    let budget = match (runtime.as_deref(), period) {
        (Some("-1"), _) => "; real-time tasks may take a core whole".into(),
        (Some(runtime), Some(period)) => format!("; real-time tasks get {runtime} of every {period} us"),
        _ => String::new(),
    };
    let by_limit = match ground.privileges.realtime_priority {
        Some(Limit::Unlimited) => Some("any".into()),
        Some(Limit::At(priority)) if priority > 0 => Some(priority.to_string()),
        _ => None,
    };
    if ground.privileges.has_on_host(Capability::SysNice) {
        Availability::present(format!("SCHED_FIFO and SCHED_DEADLINE{budget}"))
    } else if let Some(priority) = by_limit {
        Availability::present(format!("SCHED_FIFO up to priority {priority}{budget}"))
    } else {
        Availability::not_permitted(
            "RLIMIT_RTPRIO is 0 and CAP_SYS_NICE is missing",
            "run as root, or raise `ulimit -r`",
        )
    }
}

fn irq_default(ground: &Ground) -> Availability {
    let path = "/proc/irq/default_smp_affinity";
    match ground.source.cpu_mask(path) {
        Some(cores) => settable(ground, path, format!("new interrupts may go to cores {cores}")),
        None => Availability::absent(format!("{path} is not there"), "mount /proc"),
    }
}

fn irq(ground: &Ground, interface: &Interface) -> Availability {
    let Some(first) = interface.irqs.first() else {
        return Availability::absent(
            "sysfs lists no message-signalled interrupts for the device",
            "look for it in /proc/interrupts",
        );
    };
    let cores: CpuSet = interface.irqs.iter().filter_map(|irq| irq.cores.as_ref()).flat_map(CpuSet::iter).collect();
    let lines = match interface.irqs.len() {
        1 => "1 line".into(),
        n => format!("{n} lines"),
    };
    let path = format!("/proc/irq/{}/smp_affinity_list", first.number);
    settable(ground, &path, format!("{lines} on cores {cores}"))
}

fn rps(ground: &Ground, interface: &Interface) -> Availability {
    let steered: CpuSet = interface.rps.iter().flat_map(CpuSet::iter).collect();
    let queues = count::of(interface.rps.len() as u64, "receive queue");
    let detail = match steered.is_empty() {
        true => format!("off, {queues}"),
        false => format!("to cores {steered}, {queues}"),
    };
    queue_control(ground, interface, interface.rps.len(), "rx-0/rps_cpus", detail)
}

fn xps(ground: &Ground, interface: &Interface) -> Availability {
    if interface.xps.len() == 1 && interface.xps[0].is_none() {
        return Availability::absent("one transmit queue leaves nothing to choose", "nothing to do");
    }
    let chosen: CpuSet = interface.xps.iter().flatten().flat_map(CpuSet::iter).collect();
    let queues = count::of(interface.xps.len() as u64, "transmit queue");
    let detail = match chosen.is_empty() {
        true => format!("off, {queues}"),
        false => format!("cores {chosen} mapped, {queues}"),
    };
    queue_control(ground, interface, interface.xps.len(), "tx-0/xps_cpus", detail)
}

fn queue_control(ground: &Ground, interface: &Interface, queues: usize, file: &str, detail: String) -> Availability {
    match queues {
        0 => Availability::absent(
            "sysfs shows no such queues",
            "look from the network namespace that owns the interface",
        ),
        _ => settable(ground, &format!("/sys/class/net/{}/queues/{file}", interface.name), detail),
    }
}

fn threaded(ground: &Ground, interface: &Interface) -> Availability {
    let path = format!("/sys/class/net/{}/threaded", interface.name);
    match interface.threaded_napi {
        Some(true) => settable(ground, &path, "on: receive work in kernel threads that can be pinned".into()),
        Some(false) => settable(ground, &path, "off: receive work in softirqs".into()),
        None => Availability::absent("the kernel does not have it", "use Linux 5.12 or newer"),
    }
}

fn irq_deferral(ground: &Ground, interface: &Interface) -> Availability {
    let path = format!("/sys/class/net/{}/napi_defer_hard_irqs", interface.name);
    match interface.deferral {
        Some((0, _)) => settable(ground, &path, "off".into()),
        Some((polls, nanoseconds)) => {
            settable(ground, &path, format!("up to {polls} empty polls, {nanoseconds} ns apart, before an interrupt"))
        }
        None => Availability::absent("the kernel does not have it", "use Linux 5.8 or newer"),
    }
}
