//! What a message cost in CPU time, from the accounting beside a block.

use std::collections::BTreeMap;

use machine::Reading;
use machine::accounting::{CoreCost, Softirq};

use crate::sample::Sample;

/// CPU nanoseconds per message of one block: all participating threads of both ends and the network softirqs.
///
/// A kernel without IRQ_TIME_ACCOUNTING charges a softirq to whichever thread it interrupts, so on a core that a
/// participating thread uses, softirq time may already be in the thread's. The sum on one core is therefore held to
/// the block's length: an upper bound that is exact where the thread spins.
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
    let mut on_core: BTreeMap<u32, u64> = BTreeMap::new();
    let mut elsewhere = 0;
    for thread in &accounting.threads {
        let cpu = match &thread.cpu {
            Reading::Measured(cpu) | Reading::Modelled(cpu) => cpu.0,
            Reading::Absent { reason } => return Reading::absent(reason.clone()),
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason.clone(), next.clone()),
        };
        match thread.core.value() {
            Some(core) => *on_core.entry(core.0).or_default() += cpu,
            None => elsewhere += cpu,
        }
    }
    let mut total = elsewhere;
    for core in &accounting.cores {
        let softirq = softirq_time(core);
        let threads = on_core.remove(&core.core.0).unwrap_or(0);
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

/// NET_RX softirqs of all cores for one message; not known where no core's could be counted.
pub fn receive_softirqs_per_message(sample: &Sample) -> Reading<f64> {
    let Some(accounting) = sample.accounting.as_ref().filter(|a| !a.cores.is_empty() && sample.messages > 0) else {
        return Reading::absent("no accounting was taken beside the block");
    };
    let mut count = 0;
    for core in &accounting.cores {
        match &core.net_rx {
            Reading::Measured(s) | Reading::Modelled(s) => count += s.count,
            Reading::Absent { reason } => return Reading::absent(reason.clone()),
            Reading::NotPermitted { reason, next } => return Reading::not_permitted(reason.clone(), next.clone()),
        }
    }
    Reading::Measured(count as f64 / sample.messages as f64)
}

/// Network softirq time of a core in nanoseconds; what could not be counted adds nothing.
pub fn softirq_time(core: &CoreCost) -> u64 {
    let time = |reading: &Reading<Softirq>| reading.value().map_or(0, |s| s.time.0);
    time(&core.net_rx) + time(&core.net_tx)
}

#[cfg(test)]
mod tests {
    use machine::accounting::{Accounting, ThreadCost};
    use machine::{CoreId, Nanoseconds};

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
            accounting: Some(Accounting { cores, threads, overhead: Nanoseconds(0) }),
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
