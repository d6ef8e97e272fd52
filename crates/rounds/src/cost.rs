//! The CPU time that a message cost, from the accounting beside a block.

use std::collections::BTreeMap;

use machine::accounting::{CoreCost, Softirq, ThreadCost};
use machine::{CoreId, Reading};

use crate::sample::Sample;

/// CPU nanoseconds per message of one block: the threads of application and engine at both ends, and the network
/// softirqs of both ends' cores.
///
/// A kernel without IRQ_TIME_ACCOUNTING charges a softirq to the thread that it interrupts, so on a participating thread's core
/// softirq time may be counted twice. The sum on one core is therefore capped at the block's length: an upper bound, exact where
/// the thread spins undisturbed, as those of the bench do, and on cores without such threads. Softirqs are counted for whole
/// cores: traffic of other programs during the block is in the figure, as is the time that the engine spins idly.
pub fn cpu_per_message(sample: &Sample) -> Reading<f64> {
    let Some(accounting) = &sample.accounting else {
        return Reading::absent("no accounting was taken beside the block");
    };
    if sample.messages == 0 {
        return Reading::absent("the block moved no message");
    }
    if accounting.threads.is_empty() {
        return Reading::absent("the participating threads belong to another program");
    }
    // Cores of the peer's host with equal numbers are other cores.
    let away = |thread: &ThreadCost| accounting.remote_cores.is_some() && thread.end == "remote";
    let mut on_core: BTreeMap<(bool, CoreId), u64> = BTreeMap::new();
    let mut total = 0;
    for thread in &accounting.threads {
        let cpu = match &thread.cpu {
            Reading::Measured(cpu) | Reading::Modelled(cpu) => cpu.0,
            Reading::Absent { reason } => return Reading::absent(reason.clone()),
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason.clone(), next.clone()),
        };
        match thread.core.value() {
            Some(core) => *on_core.entry((away(thread), *core)).or_default() += cpu,
            None => total += cpu,
        }
    }
    let here = accounting.cores.iter().map(|core| (false, core));
    let there = accounting.remote_cores.iter().flatten().map(|core| (true, core));
    for (away, core) in here.chain(there) {
        let softirq = softirq_time(core);
        let threads = on_core.remove(&(away, core.core)).unwrap_or(0);
        total += threads.max((threads + softirq).min(sample.elapsed.0));
    }
    total += on_core.values().sum::<u64>();
    Reading::Measured(total as f64 / sample.messages as f64)
}

/// Why softirq time is missing from the cost of a block, if it is.
pub fn softirqs_missing(sample: &Sample) -> Option<String> {
    let core = sample.accounting.as_ref()?.cores.first()?;
    match &core.net_rx {
        Reading::Absent { reason } => Some(reason.clone()),
        Reading::NotPermitted { reason, next } => Some(format!("{reason}. Next: {next}")),
        Reading::Measured(_) | Reading::Modelled(_) => None,
    }
}

/// NET_RX softirqs per message, of all cores of both ends; not known where no core's could be counted.
pub fn receive_softirqs_per_message(sample: &Sample) -> Reading<f64> {
    let Some(accounting) = sample.accounting.as_ref().filter(|a| !a.cores.is_empty() && sample.messages > 0) else {
        return Reading::absent("no accounting was taken beside the block");
    };
    let mut count = 0;
    for core in accounting.cores.iter().chain(accounting.remote_cores.iter().flatten()) {
        match &core.net_rx {
            Reading::Measured(s) | Reading::Modelled(s) => count += s.count,
            Reading::Absent { reason } => return Reading::absent(reason.clone()),
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason.clone(), next.clone()),
        }
    }
    Reading::Measured(count as f64 / sample.messages as f64)
}

/// Interrupts from devices and other cores per message, on all cores of both ends (paper 002 Fig. 4a); not known where
/// one core's are missing, since a sum over the rest would be too small.
pub fn interrupts_per_message(sample: &Sample) -> Reading<f64> {
    let Some(accounting) = sample.accounting.as_ref().filter(|a| !a.cores.is_empty() && sample.messages > 0) else {
        return Reading::absent("no accounting was taken beside the block");
    };
    let mut count = 0;
    for core in accounting.cores.iter().chain(accounting.remote_cores.iter().flatten()) {
        match &core.interrupts {
            Reading::Measured(n) | Reading::Modelled(n) => count += n,
            Reading::Absent { reason } => return Reading::absent(reason.clone()),
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason.clone(), next.clone()),
        }
    }
    Reading::Measured(count as f64 / sample.messages as f64)
}

/// Network softirq time of a core in nanoseconds; uncounted kinds add nothing.
pub fn softirq_time(core: &CoreCost) -> u64 {
    let time = |reading: &Reading<Softirq>| reading.value().map_or(0, |s| s.time.0);
    time(&core.net_rx) + time(&core.net_tx)
}

#[cfg(test)]
mod tests {
    use machine::Nanoseconds;
    use machine::accounting::Accounting;

    use super::*;

    fn thread(core: u32, cpu: u64) -> ThreadCost {
        ThreadCost {
            end: "local".into(),
            role: "app".into(),
            core: Reading::Measured(CoreId(core)),
            cpu: Reading::Measured(Nanoseconds(cpu)),
            voluntary_switches: Reading::Measured(0),
            involuntary_switches: Reading::Measured(0),
            cycles: Reading::absent("virtual machine"),
            instructions: Reading::absent("virtual machine"),
            cache_misses: Reading::absent("virtual machine"),
        }
    }

    fn core(core: u32, rx: u64) -> CoreCost {
        let softirq = |time| Reading::Measured(Softirq { count: time / 10, time: Nanoseconds(time) });
        CoreCost { core: CoreId(core), net_rx: softirq(rx), net_tx: softirq(0), interrupts: Reading::Measured(0) }
    }

    fn sample(threads: Vec<ThreadCost>, cores: Vec<CoreCost>) -> Sample {
        Sample {
            round: 0,
            order: 0,
            started: Nanoseconds(0),
            messages: 10,
            elapsed: Nanoseconds(1000),
            value: 1.0,
            lost: 0,
            probe: None,
            clocks: Default::default(),
            accounting: Some(Accounting { cores, remote_cores: None, threads, overhead: Nanoseconds(0) }),
            notes: Vec::new(),
        }
    }

    #[test]
    fn softirqs_on_a_spinning_threads_core_are_not_counted_twice() {
        assert_eq!(cpu_per_message(&sample(vec![thread(0, 1000)], vec![core(0, 400)])), Reading::Measured(100.0));
    }

    #[test]
    fn softirqs_on_another_core_are_added() {
        let cost = cpu_per_message(&sample(vec![thread(0, 1000)], vec![core(0, 0), core(1, 400)]));
        assert_eq!(cost, Reading::Measured(140.0));
    }

    #[test]
    fn the_engine_and_the_application_of_both_ends_count() {
        let role = |core, role: &str, end: &str| ThreadCost { role: role.into(), end: end.into(), ..thread(core, 900) };
        let threads = vec![role(0, "app", "local"), role(2, "engine", "local"), role(1, "app", "remote")];
        let cost = cpu_per_message(&sample(threads, vec![core(0, 50), core(1, 500), core(2, 0), core(3, 70)]));
        assert_eq!(cost, Reading::Measured((950 + 900 + 1000 + 70) as f64 / 10.0));
    }

    #[test]
    fn cores_of_two_hosts_with_one_number_are_two() {
        let remote = ThreadCost { end: "remote".into(), ..thread(1, 600) };
        let mut between = sample(vec![thread(1, 1000), remote], vec![core(1, 400)]);
        between.accounting.as_mut().unwrap().remote_cores = Some(vec![core(1, 300), core(2, 20)]);
        assert_eq!(cpu_per_message(&between), Reading::Measured((1000 + 900 + 20) as f64 / 10.0));
        assert_eq!(receive_softirqs_per_message(&between), Reading::Measured(7.2));
    }

    #[test]
    fn threads_of_a_core_without_counters_count() {
        assert_eq!(cpu_per_message(&sample(vec![thread(3, 700)], vec![])), Reading::Measured(70.0));
    }

    #[test]
    fn an_unread_thread_is_not_a_cost_of_zero() {
        let mut blind = thread(0, 0);
        blind.cpu = Reading::not_permitted("another user's process", "run as root");
        assert!(cpu_per_message(&sample(vec![blind], vec![])).value().is_none());
        let mut without = sample(vec![], vec![]);
        without.accounting = None;
        assert!(cpu_per_message(&without).value().is_none());
        assert!(cpu_per_message(&sample(vec![], vec![core(0, 10)])).value().is_none());
    }

    #[test]
    fn receive_softirqs_are_counted_per_message() {
        let counted = receive_softirqs_per_message(&sample(vec![], vec![core(0, 400), core(1, 100)]));
        assert_eq!(counted, Reading::Measured(5.0));
    }
}
