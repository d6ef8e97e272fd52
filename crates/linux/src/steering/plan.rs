//! Plans the settings for a request.

use machine::steering::{InterfaceSteering, Line, ReceiveQueue};
use machine::{CoreId, CpuSet, Fault, Reading, Result};

use super::Means;
use super::kernel_setting::{KernelSetting, Value, value_of};
use crate::ethtool;

type Plan = Vec<(KernelSetting, Value)>;

/// The settings that move the receive work of an interface to `cores`.
pub(super) fn receive(of: &InterfaceSteering, cores: &CpuSet, means: Means) -> Result<Plan> {
    let subject = || format!("{}: --by {means}", of.interface);
    match means {
        Means::Rps if of.receive.is_empty() => {
            Err(Fault::new(subject(), "no receive queue has rps_cpus", "use a kernel with CONFIG_RPS"))
        }
        Means::Rps => Ok(of.receive.iter().map(|queue| (rps(of, queue), value_of(cores))).collect()),
        Means::Irq => {
            let lines = of.receive_lines();
            if lines.is_empty() {
                return Err(Fault::new(subject(), "it has no interrupt lines of its own", "steer --by rps"));
            }
            Ok(lines
                .iter()
                .zip(deal(cores, lines.len()))
                .map(|(line, cores)| (KernelSetting::Irq(line.number), cores))
                .collect())
        }
        Means::Rss => {
            let table = ethtool::indirection(&of.interface).map_err(|error| {
                Fault::because(subject(), error, "steer --by irq or rps: this device has no table that can be read")
            })?;
            Ok(vec![(KernelSetting::Rss(of.interface.clone()), spread(of, cores, table.len())?)])
        }
    }
}

fn rps(of: &InterfaceSteering, queue: &ReceiveQueue) -> KernelSetting {
    KernelSetting::Rps(of.interface.clone(), queue.number)
}

/// A table of `entries` receive queues: those whose lines go to `cores` alone, in turn.
fn spread(of: &InterfaceSteering, cores: &CpuSet, entries: usize) -> Result<Value> {
    let subject = || format!("{}: --by rss", of.interface);
    let lines = of.receive_lines();
    if lines.len() != of.receive.len() || entries == 0 {
        let cause = format!("it has {} receive queues and {} lines for them", of.receive.len(), lines.len());
        return Err(Fault::new(subject(), cause, "steer --by irq or rps"));
    }
    let there = |line: &Line| {
        let at = line.effective.value().or(line.asked.value());
        at.is_some_and(|at| !at.is_empty() && at.difference(cores).is_empty())
    };
    let queues: Vec<u32> =
        lines.iter().zip(&of.receive).filter(|(line, _)| there(line)).map(|(_, queue)| queue.number).collect();
    if queues.is_empty() {
        let at = of.work.cores.value().map_or("none that can be told".into(), CpuSet::to_string);
        return Err(Fault::new(
            subject(),
            format!("its lines go to cores {at}"),
            "name some of these, or steer --by irq",
        ));
    }
    Ok(queues.into_iter().cycle().take(entries).collect())
}

/// The settings that distribute the transmit queues of an interface to `cores`.
pub(super) fn xps(of: &InterfaceSteering, cores: &CpuSet) -> Result<Plan> {
    if of.transmit.len() < 2 {
        let cause = "one transmit queue leaves nothing to choose";
        return Err(Fault::new(format!("{}: --xps", of.interface), cause, "leave --xps out"));
    }
    let setting = |number| KernelSetting::Xps(of.interface.clone(), number);
    Ok(of
        .transmit
        .iter()
        .zip(deal(cores, of.transmit.len()))
        .map(|(queue, cores)| (setting(queue.number), cores))
        .collect())
}

/// The settings that switch RFS of an interface.
pub(super) fn flows(of: &InterfaceSteering, on: bool, entries: &Reading<u32>) -> Result<Plan> {
    let queues: Vec<u32> =
        of.receive.iter().filter(|queue| queue.flows.value().is_some()).map(|queue| queue.number).collect();
    let subject = || format!("{}: --rfs", of.interface);
    if queues.is_empty() {
        return Err(Fault::new(subject(), "no receive queue has rps_flow_cnt", "use a kernel with CONFIG_RPS"));
    }
    let entries = match (on, entries.value()) {
        (false, _) => 0,
        (true, Some(entries)) if *entries > 0 => *entries,
        (true, _) => {
            let next = "set it for the whole machine: `sysctl -w net.core.rps_sock_flow_entries=32768`";
            return Err(Fault::new(subject(), "this machine has no table of flows, or does not show it here", next));
        }
    };
    // The kernel's documentation divides the table among the queues.
    let flows = entries / queues.len() as u32;
    Ok(queues.into_iter().map(|queue| (KernelSetting::Flows(of.interface.clone(), queue), vec![flows])).collect())
}

/// `cores` distributed to `hands` in turn: every core to one hand, or every hand one core, whichever are fewer.
fn deal(cores: &CpuSet, hands: usize) -> Vec<Value> {
    let cores: Vec<u32> = cores.iter().map(|CoreId(core)| core).collect();
    let hand = |at: usize| match cores.len() < hands {
        true => vec![cores[at % cores.len()]],
        false => cores.iter().copied().skip(at).step_by(hands).collect(),
    };
    (0..hands).map(hand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_dealt_so_that_none_is_left_out() {
        let dealt = |cores: &str, hands| deal(&cores.parse().unwrap(), hands);
        assert_eq!(dealt("1,3", 3), [vec![1], vec![3], vec![1]]);
        assert_eq!(dealt("1-5", 2), [vec![1, 3, 5], vec![2, 4]]);
        assert_eq!(dealt("7", 1), [vec![7]]);
    }

    #[test]
    fn a_table_has_the_queues_whose_lines_go_to_the_cores() {
        let machine = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/xeon-two-socket");
        let host = machine::Steering::read(&machine::Source::open(&machine).unwrap());
        let of = host.of("eno12399").unwrap();
        let table = |cores: &str| spread(of, &cores.parse().unwrap(), 5);
        assert_eq!(table("17,20,40").unwrap(), [1, 4, 1, 4, 1]);
        assert_eq!(table("16").unwrap(), [0; 5]);
        let fault = table("0-15").unwrap_err();
        assert_eq!(fault.cause(), "its lines go to cores 16-23");
        assert!(spread(host.of("lo").unwrap(), &"0".parse().unwrap(), 5).is_err());
    }
}
