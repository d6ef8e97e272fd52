//! What the archived machines must say, and that no archive, however broken, makes the reader panic.

use std::path::{Path, PathBuf};

use machine::archive::Archive;
use machine::cpuset::CpuSet;
use machine::description::Machine;
use machine::topology::CoreKind;
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

/// All numbers of CPUs that there can be. Comparing each with each takes longer than a test program may run.
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
        // A later entry of the same path replaces the earlier one.
        let damaged = damage.iter().fold(good.clone(), |text, (at, answer)| text + *at.get(&paths[..]) + " " + answer + "\n");
        let source = Source::from_archive(Archive::from_text(&damaged).unwrap());
        if let Ok(machine) = Machine::read(&source) {
            machine.facts();
            let json = serde_json::to_string(&machine).unwrap();
            prop_assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
        }
    }
}
