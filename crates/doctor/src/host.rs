//! Checks of this machine's cores, interfaces and sensors.

use machine::availability::{Availability, Feature};
use machine::quota::Quota;
use machine::{Machine, Reading, Source, Steering, interface};

use crate::check::{Check, Worth};

const DEDICATED: Worth = Worth {
    name: "dedicated core",
    gives: "placement core:N",
    cost: "an engine at core:N takes the application's time",
};
const QUOTA: Worth = Worth {
    name: "CPU time",
    gives: "times of programs",
    cost: "processes that spin are stopped for a part of each period: times are those of the quota",
};
const HOOK: Worth = Worth { name: "driver hook", gives: "sites xdp:IFACE", cost: "no site xdp:IFACE" };
const AF_XDP: Worth = Worth { name: "AF_XDP", gives: "ports afxdp:IFACE", cost: "no port afxdp:IFACE" };
const COUNTERS: Worth =
    Worth { name: "counters", gives: "cycles and cache misses of a message", cost: "absent in results" };
const ENERGY: Worth = Worth { name: "energy", gives: "joules of each measurement", cost: "absent in results" };

const CLOCK: Worth = Worth {
    name: "clock",
    gives: "plimsoll clock FREQUENCY -- COMMAND, axis `clock` of study files",
    cost: "no study over clocks; protocol work alone can be stretched (plimsoll bench dilate)",
};

const STEERING: Worth = Worth {
    name: "steering",
    gives: "receive work stays on the cores it is sent to (plimsoll steer)",
    cost: "receive work moves to other cores by itself",
};

pub fn checks(source: &Source, machine: &Machine) -> Vec<Check> {
    let foreign = interface::foreign(source);
    let hidden = |worth: &Worth| {
        let fault = foreign.as_ref()?;
        Some(worth.unknown(format!("{}: {}", fault.subject(), fault.cause()), fault.next()))
    };
    let mut checks = vec![dedicated_core(machine)];
    checks.extend(quota(source, machine.usable_cores().len()));
    checks.extend([
        hidden(&HOOK).unwrap_or_else(|| at_interfaces(&HOOK, "xdp", &machine.sites)),
        hidden(&AF_XDP).unwrap_or_else(|| at_interfaces(&AF_XDP, "afxdp", &machine.ports)),
        hidden(&STEERING).unwrap_or_else(|| steering(&Steering::read(source), &machine.controls)),
        feature(&CLOCK, &machine.controls),
        feature(&COUNTERS, &machine.sensors),
        feature(&ENERGY, &machine.sensors),
    ]);
    checks
}

/// Whether a control group limits this process to less CPU time than its cores have.
fn quota(source: &Source, cores: usize) -> Option<Check> {
    let quota = Quota::tightest(source).filter(|quota| quota.is_short_of(cores, cores))?;
    let next = "measure without the quota (docker run without --cpus, cpu.max of the group), or on as few cores as it is worth";
    Some(QUOTA.no(quota.to_string(), next))
}

fn dedicated_core(machine: &Machine) -> Check {
    let usable = machine.usable_cores();
    let (threads, cores) = (usable.len(), machine.choice().whole().len());
    let next = "use a machine with more cores, or widen the affinity (taskset) or cpuset of this process";
    match cores {
        0 | 1 if threads > 1 => DEDICATED.no(format!("threads {usable} are one core"), next),
        0 | 1 => DEDICATED.no(format!("this process has one core, {usable}"), next),
        _ => {
            let threads = if threads > cores { format!(" of {threads} threads") } else { String::new() };
            // An application's core and an engine's, at each of two ends.
            let few = if cores < 4 { "; a study needs 4 to judge it" } else { "" };
            DEDICATED.yes(format!(
                "{cores} cores{threads}, {} of them for ranks{few}{}",
                cores - 1,
                near_network(machine)
            ))
        }
    }
}

/// The NUMA node where an engine should be that serves ranks on other hosts too.
fn near_network(machine: &Machine) -> String {
    let nodes = machine.topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    let node = machine.network_node().filter(|_| nodes > 1);
    let best = node.and_then(|node| machine.choice().first(Some(node)).and_then(|core| machine.topology.cpu(core)));
    match best.filter(|cpu| cpu.node == node) {
        Some(cpu) => format!("; core:{} is on the NUMA node of the fastest interface", cpu.id.0),
        None => String::new(),
    }
}

/// The best state that any interface offers; loopback, which has no driver, comes last.
fn at_interfaces(worth: &Worth, kind: &str, features: &[Feature]) -> Check {
    let mut candidates: Vec<(&str, &Availability)> = features
        .iter()
        .filter_map(|feature| Some((feature.name.strip_prefix(kind)?.strip_prefix(':')?, &feature.availability)))
        .collect();
    candidates.sort_by_key(|(name, availability)| {
        let rank = match availability {
            Availability::Present { .. } => 0,
            Availability::NotPermitted { .. } => 1,
            Availability::Absent { .. } => 2,
        };
        (*name == "lo", rank)
    });
    let Some((name, availability)) = candidates.first() else {
        return worth.no("there is no interface", "`ip link set dev IFACE up`");
    };
    let mut check = worth.of(availability);
    check.found = format!("{name}: {}", check.found);
    check
}

fn steering(host: &Steering, controls: &[Feature]) -> Check {
    let undone = host.interfaces.iter().filter(|of| of.up).find_map(|of| Some((&of.interface, of.undone_by.first()?)));
    match (undone, &host.irqbalance) {
        (Some((interface, undoing)), _) => STEERING.no(format!("{interface}: {undoing}"), undoing.next()),
        (None, Reading::Measured(_)) => match closed(controls) {
            Some(availability) => STEERING.of(availability),
            None => STEERING.yes("neither irqbalance nor RFS moves it"),
        },
        (None, _) => STEERING.unknown("processes are not archived", "run it there"),
    }
}

/// The reason why nothing can be steered, where this user may set neither RPS nor interrupts of any interface.
fn closed(controls: &[Feature]) -> Option<&Availability> {
    let steers = |feature: &&Feature| feature.name.starts_with("rps:") || feature.name.starts_with("irq:");
    let all = || controls.iter().filter(steers).map(|feature| &feature.availability);
    let is_open = all().any(|availability| matches!(availability, Availability::Present { .. }));
    all().find(|availability| matches!(availability, Availability::NotPermitted { .. })).filter(|_| !is_open)
}

fn feature(worth: &Worth, among: &[Feature]) -> Check {
    match among.iter().find(|feature| feature.name == worth.name) {
        Some(feature) => worth.of(&feature.availability),
        None => worth.unknown("not archived", "capture it again"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::check::State;

    #[test]
    fn a_quota_is_told_where_the_cores_have_more() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("sys/fs/cgroup/q");
        fs::create_dir_all(&group).unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "0::/q\n").unwrap();
        fs::write(group.join("cpu.max"), "100000 100000\n").unwrap();
        let source = Source::open(root.path()).unwrap();
        let check = quota(&source, 2).unwrap();
        assert!(check.found.starts_with("group /q may use the time of 1 core (") && check.next.is_some(), "{check:?}");
        assert_eq!(quota(&source, 1), None);
        fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota(&Source::open(root.path()).unwrap(), 2), None);
    }

    #[test]
    fn who_may_set_nothing_cannot_steer() {
        let host = Steering {
            irqbalance: Reading::Measured(None),
            flow_entries: Reading::Measured(0),
            interfaces: Vec::new(),
        };
        let closed = || Availability::not_permitted("closed to this user (EACCES)", "run as root to change it");
        let of = |name: &str, availability| Feature::new(name, availability);
        let mut controls = vec![of("clock", Availability::present("set")), of("irq:eth0", closed())];
        controls.push(of("rps:eth0", closed()));
        let check = steering(&host, &controls);
        assert_eq!((check.state, check.next.as_deref()), (State::NotPermitted, Some("run as root to change it")));
        controls.push(of("rps:eth1", Availability::present("off, 1 receive queue")));
        assert_eq!(steering(&host, &controls).state, State::Yes);
        assert_eq!(steering(&host, &[]).state, State::Yes, "there is nothing to steer");
    }
}
