//! The topology compared with hwloc's, on this host and on the archived machines.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use machine::cpuset::CpuSet;
use machine::topology::{CacheKind, Topology};
use machine::{CoreId, Source};

/// The common form of both: kind of object, size where it has one, CPUs.
type Objects = BTreeSet<(String, u64, String)>;

/// hwloc writes masks as `0x0000ffff,0x00000001`, with empty words for zero.
fn cpus(mask: &str) -> String {
    let words = mask.split(',').map(|word| word.trim_start_matches("0x"));
    let words: Vec<&str> = words.map(|word| if word.is_empty() { "0" } else { word }).collect();
    CpuSet::from_mask(&words.join(",")).unwrap_or_else(|| panic!("mask {mask}")).to_string()
}

/// Reads hwloc's XML, one object a line; returns the CPUs apart, in hwloc's order.
fn parse(xml: &str) -> (Objects, Vec<CoreId>) {
    let object = |line: &str| {
        let line = line.trim().strip_prefix("<object ")?;
        let attribute = |name: &str| line.split_once(&format!(" {name}=\""))?.1.split('"').next();
        let kind = line.strip_prefix("type=\"")?.split('"').next()?;
        let counted = ["Package", "Core", "PU", "NUMANode"].contains(&kind) || kind.ends_with("Cache");
        let size = attribute("cache_size").map_or(0, |size| size.parse().expect("cache_size"));
        counted.then(|| (kind.to_owned(), size, cpus(attribute("cpuset").expect("cpuset"))))
    };
    let objects: Vec<_> = xml.lines().filter_map(object).collect();
    let counted =
        objects.iter().filter(|(kind, ..)| kind == "PU").map(|(.., cpu)| CoreId(cpu.parse().unwrap())).collect();
    (objects.into_iter().collect(), counted)
}

fn ours(topology: &Topology) -> (Objects, Vec<CoreId>) {
    let mut objects = Objects::new();
    let mut add = |kind: &str, size: u64, cpus: &CpuSet| {
        objects.insert((kind.to_owned(), size, cpus.to_string()));
    };
    topology.packages.iter().for_each(|package| add("Package", 0, package));
    for cpu in &topology.cpus {
        add("PU", 0, &[cpu.id].into_iter().collect());
        add("Core", 0, &cpu.threads);
    }
    for cache in &topology.caches {
        let suffix = if cache.kind == CacheKind::Instruction { "i" } else { "" };
        add(&format!("L{}{suffix}Cache", cache.level), cache.size.map_or(0, |size| size.0), &cache.shared_by);
    }
    topology.nodes.iter().for_each(|node| add("NUMANode", 0, &node.cpus));
    (objects, topology.in_hwloc_order())
}

fn lstopo(root: Option<&Path>) -> Option<(Objects, Vec<CoreId>)> {
    let mut command = Command::new(skip::tool("lstopo-no-graphics")?);
    command.args(["--disallowed", "--no-io", "--of", "xml"]);
    if let Some(root) = root {
        command.env("HWLOC_FSROOT", root).env("HWLOC_COMPONENTS", "linux,stop");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(parse(&String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn this_host_agrees_with_lstopo() {
    let Some(theirs) = lstopo(None) else { return };
    assert_eq!(ours(&Topology::read(&Source::live()).unwrap()), theirs);
}

#[test]
fn archived_machines_agree_with_lstopo() {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut counted_otherwise = 0;
    for entry in fs::read_dir(machines).unwrap() {
        let directory = entry.unwrap().path();
        if !directory.is_dir() {
            continue;
        }
        let source = Source::open(&directory).unwrap();
        let topology = Topology::read(&source).unwrap();
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in source.captured().files() {
            let file = tree.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let Some(theirs) = lstopo(Some(tree.path())) else { return };
        assert_eq!(ours(&topology), theirs, "{}", directory.display());
        counted_otherwise += usize::from(!theirs.1.is_sorted());
    }
    assert!(counted_otherwise > 0, "hwloc's numbers are the kernel's on every machine here");
}
