//! Cores chosen on archived machines, by what they share and what a job may use, not by number.

use std::fmt::Write as _;
use std::path::Path;

use machine::archive::Archive;
use machine::choice::{Choice, Distance};
use machine::topology::Topology;
use machine::{CoreId, CpuSet, Machine, Source};

fn read(name: &str) -> Machine {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name);
    Machine::read(&Source::open(&directory).unwrap()).unwrap()
}

fn numbers(cores: Vec<CoreId>) -> Vec<u32> {
    cores.into_iter().map(|core| core.0).collect()
}

/// `nodes` nodes of `cores` cores with two threads each, `n` and `n + all cores`, in the kernel's format.
fn wide(nodes: u32, cores: u32) -> Source {
    let all = nodes * cores;
    let mask = |numbers: &[u32]| {
        let mut words = vec![0u32; (2 * all as usize).div_ceil(32)];
        numbers.iter().for_each(|n| words[*n as usize / 32] |= 1 << (n % 32));
        words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
    };
    let mut text = format!("# plimsoll machine archive 1\n/sys/devices/system/cpu/online = 0-{}\n", 2 * all - 1);
    let _ = writeln!(text, "/sys/devices/system/node/online = 0-{}", nodes - 1);
    for node in 0..nodes {
        let of_node: Vec<u32> = (node * cores..(node + 1) * cores).flat_map(|core| [core, core + all]).collect();
        let folder = format!("/sys/devices/system/node/node{node}");
        let distances: Vec<_> = (0..nodes).map(|other| if other == node { "10" } else { "20" }).collect();
        let _ = writeln!(text, "{folder}/cpumap = {}\n{folder}/distance = {}", mask(&of_node), distances.join(" "));
        for thread in &of_node {
            let folder = format!("/sys/devices/system/cpu/cpu{thread}/topology");
            let core = thread % all;
            let _ = writeln!(text, "{folder}/core_cpus = {}", mask(&[core, core + all]));
        }
    }
    Source::from_archive(Archive::from_text(&text).unwrap())
}

#[test]
fn what_two_cores_share_is_told() {
    let job = read("eight-node-job");
    let distance = |one, other| job.topology.distance(CoreId(one), CoreId(other));
    assert_eq!(distance(128, 128), Distance::Same);
    assert_eq!(distance(128, 1152), Distance::Core);
    assert_eq!(distance(128, 129), Distance::Cache(3));
    assert_eq!(distance(128, 130), Distance::Node);
    assert_eq!(distance(128, 256), Distance::Package);
    assert_eq!(distance(128, 640), Distance::Machine(32));
    assert_eq!(distance(128, 9999), Distance::Machine(0));
    assert!(Distance::Core < Distance::Cache(2) && Distance::Cache(3) < Distance::Node);
    assert!(Distance::Package < Distance::Machine(0));
}

#[test]
fn cores_outside_the_jobs_cpuset_are_not_offered() {
    let job = read("eight-node-job");
    assert_eq!(job.topology.online.len(), 48);
    assert_eq!(job.usable_cores().to_string(), "128-130,640-642,1152-1154,1664,1666");
    assert_eq!(job.choice().whole().to_string(), "128-130,640-642");
    assert!(job.choice().free_cores_first(CoreId(0)).iter().all(|core| job.usable_cores().contains(*core)));
}

#[test]
fn cores_for_polling_begin_at_the_network_and_stay_near() {
    let job = read("eight-node-job");
    assert_eq!(job.network_node(), Some(5));
    assert_eq!(numbers(job.choice().for_polling(job.network_node())), [640, 641, 642, 128, 129, 130]);
    assert_eq!(numbers(job.choice().for_polling(None)), [128, 129, 130, 640, 641, 642]);
    // The job has no core on node 0.
    assert_eq!(job.choice().first(Some(0)), Some(CoreId(128)));
}

#[test]
fn a_core_whose_other_thread_is_taken_is_not_free() {
    let job = read("eight-node-job");
    let choice = job.choice().without([CoreId(1664)]);
    assert!(!choice.is_free(CoreId(640)) && choice.is_free(CoreId(641)));
    assert_eq!(choice.nearest(CoreId(1664)), Some(CoreId(641)), "not 640, though it is the nearest");
    // Siblings are chosen where nothing else is left.
    let most = job.choice().without([128, 129, 130, 641, 642, 1664].map(CoreId));
    assert!(most.whole().is_empty());
    assert_eq!(most.nearest(CoreId(1664)), Some(CoreId(640)));
    let all = job.choice().without(job.usable_cores().iter());
    assert_eq!((all.nearest(CoreId(640)), all.first(None)), (None, None));
}

#[test]
fn threads_are_told_by_their_core_not_by_their_numbers() {
    // Siblings are n and n + 32 here, and never neighbours in number.
    let xeon = read("xeon-two-socket");
    let first = numbers(xeon.choice().for_polling(None));
    assert_eq!(&first[..3], [0, 1, 2]);
    assert!(first.iter().all(|core| *core < 32));
    // Two threads of one core are better than one.
    let pair = Choice::among(&xeon.topology, [CoreId(3), CoreId(35)]);
    assert_eq!(numbers(pair.for_polling(None)), [3, 35]);
    // The first thread of the core belongs to another job.
    let second = Choice::among(&xeon.topology, [CoreId(33), CoreId(34)]);
    assert_eq!(second.whole().to_string(), "33-34");
}

#[test]
fn two_thousand_threads_of_eight_nodes() {
    let topology = Topology::read(&wide(8, 128)).unwrap();
    assert_eq!((topology.cpus.len(), topology.core_count(), topology.nodes.len()), (2048, 1024, 8));
    let job: CpuSet = "1020-1023,2044-2047,256-259,1280".parse().unwrap();
    let choice = Choice::among(&topology, job.iter());
    assert_eq!(choice.whole().to_string(), "256-259,1020-1023");
    assert_eq!(numbers(choice.for_polling(Some(7))), [1020, 1021, 1022, 1023, 256, 257, 258, 259]);
    assert_eq!(choice.clone().without([CoreId(1021)]).nearest(CoreId(1021)), Some(CoreId(1020)));
    assert_eq!(choice.without([CoreId(2044)]).nearest(CoreId(2044)), Some(CoreId(1021)));
}
