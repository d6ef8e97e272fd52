use proptest::prelude::*;

use super::*;
use crate::archive::Archive;

/// A host with three interfaces: a device with interrupts, loopback, and a device whose queues have RPS.
fn host(changes: &[(&str, &str)]) -> Steering {
    let mut text = String::from(
        "# plimsoll machine archive 1\n\
         /proc/interrupts <<\n\
         |           CPU0       CPU1       CPU2       CPU3\n\
         | 40:   0   0   0   0 PCI-MSIX-0000:03:00.0 0-edge mlx5_async0@pci:0000:03:00.0\n\
         | 41:   9   0   0   0 PCI-MSIX-0000:03:00.0 1-edge mlx5_comp1@pci:0000:03:00.0\n\
         | 42:   0   9   0   0 PCI-MSIX-0000:03:00.0 2-edge mlx5_comp0@pci:0000:03:00.0\n\
         /sys/class/net [] eth0/lo\n",
    );
    let fixed = [
        ("/sys/class/net/eth0", "-> ../../devices/pci0000:00/0000:03:00.0/net/eth0"),
        ("/sys/class/net/lo", "-> ../../devices/virtual/net/lo"),
        ("/sys/class/net/lo/type", "= 772"),
        ("/sys/class/net/lo/queues", "[] rx-0/tx-0"),
        ("/sys/class/net/lo/queues/rx-0/rps_cpus", "= 0"),
        ("/sys/devices/pci0000:00/0000:03:00.0/msi_irqs", "[] 40/41/42"),
        ("/proc/irq/41/smp_affinity_list", "= 0-3"),
        ("/proc/irq/41/effective_affinity_list", "= 2"),
        ("/proc/irq/42/smp_affinity_list", "= 1"),
        ("/sys/class/net/eth0/queues", "[] rx-0/rx-1/tx-0/tx-1"),
        ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "= 0"),
        ("/sys/class/net/eth0/queues/rx-1/rps_cpus", "= 0"),
        ("/sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "= 0"),
        ("/sys/class/net/eth0/queues/rx-1/rps_flow_cnt", "! EACCES"),
        ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "= 3"),
        ("/sys/class/net/eth0/queues/tx-1/xps_cpus", "= c"),
    ];
    for (path, answer) in
        fixed.iter().filter(|(path, _)| !changes.iter().any(|(changed, _)| changed == path)).chain(changes)
    {
        text += &format!("{path} {answer}\n");
    }
    Steering::read(&Source::from_archive(Archive::from_text(&text).unwrap()))
}

fn cores(text: &str) -> Reading<CpuSet> {
    Reading::Measured(text.parse().unwrap())
}

#[test]
fn without_rps_the_work_is_where_the_receive_lines_go() {
    let host = host(&[]);
    let eth0 = host.of("eth0").unwrap();
    assert_eq!(eth0.work, Work { by: By::Interrupts, cores: cores("1-2") });
    let lines: Vec<_> = eth0.receive_lines().iter().map(|line| line.number).collect();
    assert_eq!(lines, [42, 41], "in the order of the queues, without the line of the device's own events");
    assert_eq!(eth0.transmit[1].xps, cores("2-3"));
    assert!(eth0.undone_by.is_empty(), "{:?}", eth0.undone_by);
    assert!(matches!(&eth0.receive[1].flows, Reading::NotPermitted { reason, .. } if reason.contains("EACCES")));
    assert!(matches!(eth0.lines[1].effective, Reading::Measured(_)) && eth0.lines[0].effective.value().is_none());
    let lo = host.of("lo").unwrap();
    assert_eq!((lo.work.by, lo.work.cores.value()), (By::Handover, None));
    assert!(host.of("eth1").is_none());
}

#[test]
fn rps_goes_before_interrupts_and_a_queue_without_it_stays_where_they_come() {
    let masks = |zero, one| {
        let queue = |n: u32| format!("/sys/class/net/eth0/queues/rx-{n}/rps_cpus");
        host(&[(&queue(0), zero), (&queue(1), one)]).of("eth0").unwrap().work.clone()
    };
    assert_eq!(masks("= 8", "= 8"), Work { by: By::Rps, cores: cores("3") });
    assert_eq!(masks("= 8", "= 0"), Work { by: By::Rps, cores: cores("1-3") });
    let threads = host(&[("/sys/class/net/eth0/threaded", "= 1")]).of("eth0").unwrap().work.clone();
    assert_eq!((threads.by, threads.cores.value()), (By::Threads, None));
}

#[test]
fn what_would_undo_a_change_is_noticed() {
    let of = |changes: &[(&str, &str)]| host(changes).of("eth0").unwrap().undone_by.clone();
    let daemon = [("/proc", "[] 1/812"), ("/proc/1/comm", "= init"), ("/proc/812/comm", "= irqbalance")];
    assert_eq!(of(&daemon), [Undoing::Irqbalance { process: 812 }]);
    assert!(host(&daemon).of("lo").unwrap().undone_by.is_empty(), "it has no interrupts");
    assert_eq!(of(&[("/proc", "[] 1"), ("/proc/1/comm", "= irqbalance-ui")]), []);

    let flows = ("/sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "= 4096");
    let table = |entries| [flows, (FLOW_ENTRIES, entries)];
    assert_eq!(of(&table("= 32768")), [Undoing::Flows { queues: vec![0] }]);
    assert_eq!(of(&table("= 0")), [], "without the table a queue's flows do nothing");
    assert_eq!(of(&[flows]), [Undoing::Flows { queues: vec![0] }], "other namespaces do not show the table");

    let state = ("/sys/kernel/debug/irq/irqs/41", "= dstate: IRQD_AFFINITY_SET IRQD_AFFINITY_MANAGED");
    assert_eq!(of(&[state]), [Undoing::Managed { lines: vec![41] }]);
}

#[test]
fn the_default_route_is_that_of_the_empty_mask() {
    let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\neth1\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\n";
    assert!(has_default_route(text, "eth0") && !has_default_route(text, "eth1") && !has_default_route(text, "eth"));
}

#[test]
fn every_archived_machine_reads() {
    let machines = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let folders = std::fs::read_dir(machines).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let mut with_lines = 0;
    for folder in folders {
        let host = Steering::read(&Source::open(&folder.path()).unwrap());
        for steered in &host.interfaces {
            with_lines += usize::from(steered.work.by == By::Interrupts && steered.work.cores.value().is_some());
            assert!(steered.lines.is_empty() || !steered.receive_lines().is_empty(), "{steered:?}");
        }
    }
    assert!(with_lines > 0);
}

proptest! {
    #[test]
    fn any_text_reads_without_panic(text in "[ -~\t]{0,60}", at in 0usize..9) {
        let path = ["/proc/interrupts", "/proc/irq/41/smp_affinity_list", "/proc/irq/41/effective_affinity_list",
            "/sys/class/net/eth0/queues/rx-0/rps_cpus", "/sys/class/net/eth0/queues/rx-0/rps_flow_cnt", FLOW_ENTRIES,
            "/sys/class/net/eth0/queues/tx-0/xps_cpus", "/proc/self/net/route", "/sys/kernel/debug/irq/irqs/41"][at];
        let mut archive = Archive::default();
        let known = host(&[]);
        prop_assert!(known.of("eth0").is_some());
        let names = |names: &[&str]| Ok(crate::archive::Content::Names(names.iter().map(|n| n.to_string()).collect()));
        archive.contents.insert("/sys/class/net".into(), names(&["eth0"]));
        archive.contents.insert("/sys/class/net/eth0/queues".into(), names(&["rx-0", "tx-0", &format!("rx-{}", text.replace(' ', ""))]));
        archive.contents.insert("/sys/devices/d/msi_irqs".into(), names(&["41"]));
        let link = crate::archive::Content::Link("../../devices/d/net/eth0".into());
        archive.contents.insert("/sys/class/net/eth0".into(), Ok(link));
        archive.contents.insert(path.into(), Ok(crate::archive::Content::File(text.clone())));
        let read = Steering::read(&Source::from_archive(archive));
        prop_assert_eq!(read.interfaces.len(), 1);
        let _ = (has_default_route(&text, "eth0"), queue_number(&text));
    }
}
