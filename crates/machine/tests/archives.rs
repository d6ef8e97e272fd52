//! The facts that archived machines must give; no archive, however broken, makes the reader panic.

use std::path::{Path, PathBuf};

use machine::archive::Archive;
use machine::choice::Distance;
use machine::cpuset::CpuSet;
use machine::description::Machine;
use machine::frequency::Clock;
use machine::topology::{CoreKind, Topology};
use machine::{Bytes, CoreId, Source};
use proptest::prelude::*;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name)
}

fn read(name: &str) -> Machine {
    Machine::read(&Source::open(&directory(name)).unwrap()).unwrap()
}

fn word<'a>(machine: &'a Machine, name: &str) -> &'a str {
    let all = machine.sites.iter().chain(&machine.ports).chain(&machine.controls).chain(&machine.sensors);
    all.filter(|feature| feature.name == name).map(|feature| feature.availability.word()).next().unwrap_or("unlisted")
}

#[test]
fn two_sockets() {
    let xeon = read("xeon-two-socket");
    assert_eq!((xeon.topology.packages.len(), xeon.topology.core_count(), xeon.topology.cpus.len()), (2, 32, 64));
    assert_eq!(xeon.last_level_cache().value(), Some(&Bytes(45 << 20)));
    assert_eq!(word(&xeon, "energy"), "present");
    assert_eq!(word(&xeon, "clock"), "present");
    assert_eq!(xeon.topology.isolated.to_string(), "14-15,46-47");
}

#[test]
fn an_ordinary_user_is_told_what_is_not_permitted() {
    let epyc = read("epyc-one-socket");
    for name in ["clock", "energy", "counters", "softirq-time", "rps:lo", "afxdp:lo"] {
        assert_eq!(word(&epyc, name), "not permitted", "{name}");
    }
    assert_eq!(epyc.topology.nodes.len(), 2);
    assert_eq!(epyc.clock.mode.as_deref(), Some("active"));
}

#[test]
fn a_dpu_knows_that_it_is_one() {
    let dpu = read("bluefield-dpu");
    let agent = dpu.sites.iter().find(|site| site.name == "agent").unwrap();
    assert!(agent.availability.explanation().contains("BlueField-2"));
    assert_eq!(dpu.processor.architecture.as_deref(), Some("aarch64"));
    assert_eq!(word(&dpu, "energy"), "absent");
}

#[test]
fn kinds_of_cores() {
    let laptop = read("laptop-hybrid");
    let of = |kind| -> CpuSet {
        laptop.topology.cpus.iter().filter(|cpu| cpu.kind == Some(kind)).map(|cpu| cpu.id).collect()
    };
    assert_eq!(of(CoreKind::Performance).to_string(), "0-3");
    assert_eq!(of(CoreKind::Efficient).to_string(), "4-11");
    assert!(read("vm-two-core").topology.cpus.iter().all(|cpu| cpu.kind.is_none()));
}

/// A machine with only the files that a case needs; `C` and `N` stand for the folders of CPUs and nodes.
fn tiny(entries: &str) -> Topology {
    let entries = entries.replace("C/", "/sys/devices/system/cpu/").replace("N/", "/sys/devices/system/node/");
    let text = format!("# plimsoll machine archive 1\n{entries}");
    Topology::read(&Source::from_archive(Archive::from_text(&text).unwrap())).unwrap()
}

fn sets(sets: &[CpuSet]) -> Vec<String> {
    sets.iter().map(CpuSet::to_string).collect()
}

#[test]
fn favoured_cores_are_of_the_kind_of_their_neighbours() {
    let kinds = |capacities: &[u32]| {
        let files =
            capacities.iter().enumerate().map(|(at, capacity)| format!("C/cpu{at}/cpu_capacity = {capacity}\n"));
        let all = format!("C/online = 0-{}\n", capacities.len() - 1) + &files.collect::<String>();
        let topology = tiny(&all);
        let of = |kind| topology.cpus.iter().filter(|cpu| cpu.kind == Some(kind)).map(|cpu| cpu.id).collect::<CpuSet>();
        [CoreKind::Performance, CoreKind::Efficient, CoreKind::LowPower].map(of).map(|set| set.to_string())
    };
    assert_eq!(kinds(&[1024, 1017, 1017, 718, 718]), ["0-2", "3-4", ""]);
    assert_eq!(kinds(&[718, 997, 731, 1017, 718, 1024]), ["1,3,5", "0,2,4", ""], "two clusters of each kind");
    assert_eq!(kinds(&[381, 381, 762, 770, 1024]), ["4", "2-3", "0-1"]);
    assert_eq!(kinds(&[1024, 1017, 1017]), ["", "", ""], "one kind is none");
    assert_eq!(kinds(&[0, 4_294_967_295]), ["1", "0", ""]);
}

#[test]
fn cpus_that_are_off_line_are_none_also_without_a_list() {
    let listed =
        tiny("C/online = 1-3\nC/offline = 0\nC/cpu1/topology/package_cpus = e\nN/online = 1\nN/node1/cpumap = d\n");
    assert_eq!((listed.cpus.len(), listed.offline.to_string()), (3, "0".into()));
    assert_eq!(
        listed.cpus.iter().map(|cpu| cpu.node).collect::<Vec<_>>(),
        [None, Some(1), Some(1)],
        "one without a node"
    );
    assert_eq!(listed.nodes[0].cpus.to_string(), "2-3");
    assert_eq!(listed.distance(CoreId(1), CoreId(2)), Distance::Package);

    let unlisted = tiny("/sys/devices/system/cpu [] cpu0/cpu1/cpu2\nC/cpu0/online = 0\nC/cpu2/online = 1\n");
    assert_eq!(unlisted.online.to_string(), "1-2");
}

#[test]
fn policies_of_cores_that_are_off_line_are_none() {
    let folder = "/sys/devices/system/cpu/cpufreq";
    let text = format!(
        "# plimsoll machine archive 1\n{folder} [] policy0/policy1/policy2\n{folder}/policy0/affected_cpus ! EBUSY\n\
         {folder}/policy1/affected_cpus = 1\n{folder}/policy2/affected_cpus =\n"
    );
    let source = Source::from_archive(Archive::from_text(&text).unwrap());
    assert_eq!(Clock::each(&source).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1]);
}

#[test]
fn cores_that_a_process_runs_on_are_there_whatever_the_list_says() {
    let container = tiny(
        "C/online = 0-1\nC/cpu2/online = 0\nC/cpu6/online = 1\nC/cpu7/online = 1\n\
         /proc/self/status <<\n|Name:\tx\n|Cpus_allowed_list:\t2,6-9\n",
    );
    assert_eq!(container.online.to_string(), "0-1,6-7", "neither what is off nor what is not there");
}

#[test]
fn nodes_may_have_any_numbers_and_no_cores() {
    let sparse = tiny(
        "C/online = 8-9,40-41\nC/cpu8/topology/package_cpus = 300\nC/cpu9/topology/package_cpus = 300\n\
         C/cpu40/topology/package_cpus = 300,00000000\nC/cpu41/topology/package_cpus = 300,00000000\n\
         N/online = 0,2,250\nN/node0/cpumap = 300\nN/node2/cpumap = 300,00000000\nN/node250/cpumap = 0\n\
         N/node0/distance = 10 21 80\nN/node2/distance = 21 10 80\nN/node250/distance = 80 80 10\n",
    );
    assert_eq!(sets(&sparse.packages), ["8-9", "40-41"]);
    assert_eq!(
        sparse.nodes.iter().map(|node| (node.id, node.cpus.len())).collect::<Vec<_>>(),
        [(0, 2), (2, 2), (250, 0)]
    );
    assert_eq!(sparse.distance(CoreId(8), CoreId(41)), Distance::Machine(21));
    assert_eq!(sparse.in_hwloc_order(), [8, 9, 40, 41].map(CoreId));
}

#[test]
fn a_nul_at_the_end_of_a_file_is_no_part_of_it() {
    let nul = tiny(
        "C/online == \"0-1\\n\\u0000\"\nC/cpu0/topology/package_cpus == \"1\\n\\u0000\"\n\
         C/cpu1/topology/package_cpus == \"2\\n\\u0000\"\nC/cpu1/topology/core_id == \"7\\n\\u0000\"\n",
    );
    assert_eq!(sets(&nul.packages), ["0", "1"]);
    assert_eq!(nul.cpus[1].core_number, Some(7));
}

#[test]
fn what_cpus_say_of_each_other_may_disagree() {
    let packages = ["5", "a", "5", "f"].iter().enumerate();
    let files: String = packages.map(|(at, mask)| format!("C/cpu{at}/topology/package_cpus = {mask}\n")).collect();
    let topology = tiny(&format!("C/online = 0-3\n{files}"));
    assert_eq!(sets(&topology.packages), ["0,2", "1,3"]);
    assert_eq!(topology.cpus.iter().map(|cpu| cpu.package).collect::<Vec<_>>(), [0, 1, 0, 1]);

    // Siblings with core numbers of their own share a compute unit, but are not threads of one core.
    let unit = |second| {
        let file = |at, core| format!("C/cpu{at}/topology/thread_siblings = 3\nC/cpu{at}/topology/core_id = {core}\n");
        tiny(&format!("C/online = 0-1\n{}{}", file(0, 0), file(1, second))).core_count()
    };
    assert_eq!((unit(0), unit(1)), (1, 2));
}

#[test]
fn a_core_that_does_not_exist_is_a_fault_that_names_those_that_do() {
    let machine = read("vm-two-core");
    assert_eq!(machine.core(CoreId(1)).unwrap().id, CoreId(1));
    let fault = machine.core(CoreId(7)).unwrap_err().to_string();
    assert_eq!(fault, "core 7: this machine has cores 0-1. Next: choose one of 0-1");
}

#[test]
fn facts_are_short_and_complete() {
    for name in
        ["xeon-two-socket", "epyc-one-socket", "eight-node-job", "bluefield-dpu", "laptop-hybrid", "vm-two-core"]
    {
        let facts = read(name).facts();
        assert!((8..=12).contains(&facts.len()), "{name}: {facts:?}");
        assert!(facts.iter().all(|(label, value)| !label.is_empty() && !value.is_empty()), "{name}: {facts:?}");
    }
}

fn answer() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>().prop_map(|text| format!("== {}", serde_json::Value::from(text))),
        "[0-9a-fA-F,:/ KMGx-]{0,24}".prop_map(|text| format!("= {text}")),
        prop::sample::select(vec!["65535", "4294967295", "18446744073709551615", "-1", "0-4095", "99999K"])
            .prop_map(|text| format!("= {text}")),
        "(\\.\\./){0,4}[a-z/]{0,12}".prop_map(|target| format!("-> {target}")),
        "([a-z]{1,6}[0-9]{0,11}/){0,4}".prop_map(|names| format!("[] {names}")),
        prop::sample::select(vec!["EACCES", "EIO", "EINVAL"]).prop_map(|name| format!("! {name}")),
    ]
}

/// All possible CPU numbers: comparing each with each would take longer than a test program may run.
#[test]
#[ignore = "make check"]
fn tens_of_thousands_of_cpus_are_read() {
    let good = std::fs::read_to_string(directory("laptop-hybrid").join("machine.txt")).unwrap();
    let lists = good.lines().filter_map(|line| line.split(' ').next());
    let lists = lists.filter(|path| path.ends_with("cpu/online") || path.ends_with("effective"));
    let damaged = lists.fold(good.clone() + "/proc/self/status ! EACCES\n", |text, path| text + path + " = 0-65535\n");
    let source = Source::from_archive(Archive::from_text(&damaged).unwrap());
    assert!(Machine::read(&source).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_never_panics(damage in prop::collection::vec((any::<prop::sample::Index>(), answer()), 1..80)) {
        let good = std::fs::read_to_string(directory("laptop-hybrid").join("machine.txt")).unwrap();
        let paths: Vec<&str> = good.lines().filter(|l| l.starts_with('/')).filter_map(|l| l.split(' ').next()).collect();
        // A later entry of a path replaces an earlier one.
        let damaged = damage.iter().fold(good.clone(), |text, (at, answer)| text + *at.get(&paths[..]) + " " + answer + "\n");
        let source = Source::from_archive(Archive::from_text(&damaged).unwrap());
        if let Ok(machine) = Machine::read(&source) {
            machine.facts();
            let json = serde_json::to_string(&machine).unwrap();
            prop_assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
        }
    }
}
