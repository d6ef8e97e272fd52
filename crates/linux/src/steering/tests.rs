use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use proptest::prelude::*;
use skip::disk::Disk;

use super::*;
use crate::journal::Entry;

/// A host's files as plain ones: an interface with two queues and a line for each. They show what is written, read back
/// and restored, but enforce nothing.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        let device = "sys/devices/pci0000:00/0000:03:00.0";
        tree.write("sys/devices/system/cpu/online", "0-3");
        tree.write(
            "proc/interrupts",
            " CPU0\n 40: 0 chip 0-edge nic-rx-0\n 41: 0 chip 1-edge nic-rx-1\n 42: 0 chip 2-edge nic-misc\n",
        );
        for line in 40..43 {
            tree.write(&format!("{device}/msi_irqs/{line}"), "msix");
            tree.write(&format!("proc/irq/{line}/smp_affinity_list"), "0-3");
            tree.write(&format!("proc/irq/{line}/effective_affinity_list"), "2");
        }
        for queue in 0..2 {
            tree.write(&format!("{device}/net/nic/queues/rx-{queue}/rps_cpus"), "0");
            tree.write(&format!("{device}/net/nic/queues/rx-{queue}/rps_flow_cnt"), "64");
            tree.write(&format!("{device}/net/nic/queues/tx-{queue}/xps_cpus"), "0");
        }
        fs::create_dir_all(tree.path("sys/class/net")).unwrap();
        symlink(format!("../../../{device}/net/nic"), tree.path("sys/class/net/nic")).unwrap();
        tree
    }

    /// A tree with its journals on a disk of their own.
    fn on(disk: &Disk) -> Tree {
        let tree = Tree::new();
        symlink(disk.path(), tree.path("run")).unwrap();
        tree
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn journal(&self) -> PathBuf {
        fs::read_dir(self.path("run/plimsoll-steering")).unwrap().next().unwrap().unwrap().path()
    }

    fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), text).unwrap();
    }

    fn begin(&self, request: &Request) -> Result<Steered> {
        Steered::begin_below(self.0.path(), &Source::open(self.0.path()).unwrap(), request, None)
    }

    /// Affinities of the three lines, then RPS, RFS and XPS of both queues.
    fn all(&self) -> String {
        let read = |file: String| fs::read_to_string(self.path(&file)).unwrap_or_else(|_| "?".into());
        let lines = (40..43).map(|line| read(format!("proc/irq/{line}/smp_affinity_list")));
        let queue = |which: &str| {
            let file = |queue| read(format!("sys/class/net/nic/queues/{which}",).replace('N', queue));
            [file("0"), file("1")].join(" ")
        };
        let queues = ["rx-N/rps_cpus", "rx-N/rps_flow_cnt", "tx-N/xps_cpus"].map(queue);
        format!("{} | {}", lines.collect::<Vec<_>>().join(" "), queues.join(" | "))
    }
}

const BEFORE: &str = "0-3 0-3 0-3 | 0 0 | 64 64 | 0 0";

fn request(receive: &str) -> Request {
    Request { interface: "nic".into(), receive: Some(receive.parse().unwrap()), ..Request::default() }
}

fn everything() -> Request {
    Request { xps: Some("2-3".parse().unwrap()), flows: Some(false), ..request("1,3") }
}

#[test]
fn interrupts_queues_and_flows_are_set_and_come_back() {
    let tree = Tree::new();
    assert_eq!(tree.all(), BEFORE);
    let steered = tree.begin(&everything()).unwrap();
    assert_eq!(tree.all(), "1 3 0-3 | 0 0 | 0 0 | 4 8");
    assert_eq!((steered.means(), steered.settings().len()), (Some(Means::Irq), 6));
    assert_eq!(steered.settings()[1].to_string(), "irq 41: cores 3, was cores 0-3");
    assert_eq!(steered.end(), Vec::<String>::new());
    assert_eq!(tree.all(), BEFORE);
    assert!(!tree.path("run/plimsoll-steering").exists());

    drop(tree.begin(&Request { by: Some(Means::Rps), ..request("1,3") }).inspect(|_| {
        assert_eq!(tree.all(), "0-3 0-3 0-3 | a a | 64 64 | 0 0");
    }));
    assert_eq!(tree.all(), BEFORE);
}

#[test]
fn a_line_is_sent_back_to_its_core_before_it_may_go_elsewhere() {
    let tree = Tree::new();
    assert_eq!(KernelSetting::Irq(40).restoring_writes(tree.0.path(), vec![0, 1, 2, 3]), [vec![2], vec![0, 1, 2, 3]]);
    assert_eq!(KernelSetting::Irq(40).restoring_writes(tree.0.path(), vec![2]), [vec![2]]);
    assert_eq!(KernelSetting::Rps("nic".into(), 0).restoring_writes(tree.0.path(), vec![]), [Value::new()]);
}

#[test]
fn where_interrupts_cannot_be_set_rps_steers_and_says_so() {
    let tree = Tree::new();
    // A line that accepts no write.
    fs::remove_file(tree.path("proc/irq/41/smp_affinity_list")).unwrap();
    let steered = tree.begin(&request("1")).unwrap();
    assert_eq!((steered.means(), tree.all()), (Some(Means::Rps), "0-3 ? 0-3 | 2 2 | 64 64 | 0 0".into()));
    assert!(steered.notes()[0].starts_with("by rps, since irq is refused: irq 41: "), "{:?}", steered.notes());
    drop(steered);
    let fault = tree.begin(&Request { by: Some(Means::Irq), ..request("1") }).err().unwrap();
    assert_eq!(fault.subject(), "irq 41");
    assert_eq!(tree.all(), BEFORE.replacen("0-3 0-3", "0-3 ?", 1));
}

#[test]
fn what_somebody_else_sets_meanwhile_stays_and_is_said() {
    let tree = Tree::new();
    let steered = tree.begin(&request("1")).unwrap();
    // Another core than the one that it is sent back by.
    tree.write("proc/irq/41/smp_affinity_list", "3");
    let said = steered.end();
    assert!(said.len() == 1 && said[0].starts_with("irq 41: set to cores 1, found at cores 3"), "{said:?}");
    assert_eq!(tree.all(), BEFORE.replacen("0-3 0-3", "0-3 3", 1));
}

#[test]
fn what_would_undo_it_is_said_and_the_daemon_only_where_it_would() {
    let tree = Tree::new();
    tree.write("proc/812/comm", "irqbalance");
    let notes = |request: &Request| tree.begin(request).unwrap().notes().join("\n");
    let by_lines = notes(&request("1"));
    assert!(
        by_lines.contains("irqbalance (process 812)") && by_lines.contains("RFS is on for receive queues 0-1"),
        "{by_lines}"
    );
    let by_rps = notes(&Request { by: Some(Means::Rps), flows: Some(false), ..request("1") });
    assert_eq!(by_rps, "");
}

#[test]
fn what_a_killed_run_left_is_restored_and_what_a_living_one_holds_is_not() {
    let tree = Tree::new();
    let living = tree.begin(&request("1")).unwrap();
    assert_eq!(restore_remains_below(tree.0.path()).unwrap(), Vec::<String>::new());
    let busy = tree.begin(&request("2")).err().unwrap();
    assert!(busy.cause().contains(&format!("process {} ", std::process::id())), "{busy}");
    // The state after a kill: the lock is gone, the journal stays.
    let name = tree.journal();
    let kept = fs::read(&name).unwrap();
    drop(living);
    fs::create_dir(tree.path("run/plimsoll-steering")).unwrap();
    fs::write(&name, &kept).unwrap();
    for line in [40, 41] {
        tree.write(&format!("proc/irq/{line}/smp_affinity_list"), "1");
    }
    // Journals of another network namespace, and one that cannot be read.
    let other = tree.path("run/plimsoll-steering/1-nic");
    fs::write(&other, &kept).unwrap();
    fs::create_dir(tree.path(&format!("run/plimsoll-steering/{}odd", namespace().unwrap()))).unwrap();
    let mut said = restore_remains_below(tree.0.path()).unwrap();
    said.sort();
    assert!(said[0].starts_with("steering odd: its journal in /run/plimsoll-steering: "), "{said:?}");
    assert_eq!(said[1..], ["what a killed run had set on nic is restored"]);
    assert_eq!(tree.all(), BEFORE);
    assert!(other.exists() && !name.exists());
}

#[test]
fn killed_at_any_write_everything_comes_back_though_the_disk_is_full() {
    let Some(disk) = Disk::small() else { return };
    let tree = Tree::on(&disk);
    let steered = tree.begin(&everything()).unwrap();
    let (path, entries) = (tree.journal(), steered.journal.entries.clone());
    let whole = fs::read(&path).unwrap();
    drop(steered);
    let set = |entries: &[Entry<KernelSetting>]| {
        entries.iter().for_each(|entry| entry.setting.write(tree.0.path(), &entry.set).unwrap());
    };
    let restored = |left: &[u8]| {
        disk.free();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, left).unwrap();
        disk.fill(0);
        let said = restore_remains_below(tree.0.path()).unwrap();
        assert_eq!((tree.all().as_str(), path.exists()), (BEFORE, false), "{}", String::from_utf8_lossy(left));
        said
    };
    for cut in 0..=whole.len() {
        set(&entries[..whole[..cut].iter().filter(|byte| **byte == b'\n').count()]);
        restored(&whole[..cut]);
    }
    let back = entries.iter().rev().flat_map(|entry| entry.back.iter().map(move |value| (&entry.setting, value)));
    for steps in 0..=back.clone().count() {
        set(&entries);
        back.clone().take(steps).for_each(|(setting, value)| setting.write(tree.0.path(), value).unwrap());
        assert_eq!(restored(&whole), ["what a killed run had set on nic is restored"], "{steps} steps back");
    }
}

#[test]
fn on_a_full_disk_nothing_is_changed_and_what_was_comes_back() {
    let Some(disk) = Disk::small() else { return };
    let tree = Tree::on(&disk);
    disk.fill(0);
    let fault = tree.begin(&everything()).err().unwrap();
    assert!(fault.next().starts_with("free space there"), "{fault}");
    assert_eq!(tree.all(), BEFORE);

    // A page holds one such line.
    disk.fill(4096);
    let mut journal = open(tree.0.path(), "nic").unwrap();
    let cores: Value = (0..1000).collect();
    journal.change(KernelSetting::Xps("nic".into(), 0), cores.clone()).unwrap();
    let whole = fs::read(tree.journal()).unwrap();
    let (changed, fault) = (tree.all(), journal.change(KernelSetting::Xps("nic".into(), 1), cores).unwrap_err());
    assert!(fault.next().starts_with("free space there"), "{fault}");
    assert!(changed != BEFORE && tree.all() == changed && fs::read(tree.journal()).unwrap() == whole);
    assert_eq!(journal.restore(), Vec::<String>::new());
    assert_eq!(tree.all(), BEFORE);
}

#[test]
fn what_cannot_be_restored_is_said_and_left_for_later_and_the_rest_comes_back() {
    let tree = Tree::new();
    let mut steered = tree.begin(&everything()).unwrap();
    let path = tree.journal();
    let whole = fs::read_to_string(&path).unwrap();
    // A folder takes its place for a while.
    let file = tree.path("proc/irq/41/smp_affinity_list");
    fs::rename(&file, file.with_extension("aside")).unwrap();
    fs::create_dir(&file).unwrap();
    let said = steered.journal.restore();
    assert!(said.len() == 1 && said[0].starts_with("irq 41: not restored: "), "{said:?}");
    assert_eq!(tree.all(), BEFORE.replacen("0-3 0-3", "0-3 ?", 1));
    drop(steered);
    fs::remove_dir(&file).unwrap();
    fs::rename(file.with_extension("aside"), &file).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    fs::write(&path, format!("nonsense\n{whole}")).unwrap();
    let damage = format!("{} is damaged: 1 line left out", path.display());
    let expected = ["what a killed run had set on nic is restored".to_owned(), damage];
    assert_eq!(restore_remains_below(tree.0.path()).unwrap(), expected);
    assert_eq!((tree.all().as_str(), path.exists()), (BEFORE, false));
}

#[test]
fn interfaces_and_cores_that_are_not_there_are_refused() {
    let tree = Tree::new();
    let refused = |request: &Request| tree.begin(request).err().unwrap().to_string();
    assert!(
        refused(&Request { interface: "eth9".into(), ..request("1") })
            .starts_with("interface eth9: this network namespace has nic")
    );
    assert!(refused(&request("1,9")).starts_with("core 9: the cores of this machine that are on line are 0-3"));
    assert!(refused(&request("")).starts_with("cores: none are named"));
    let on = Request { flows: Some(true), ..request("1") };
    assert!(refused(&on).contains("sysctl -w"), "without a table of flows");
    tree.write("proc/sys/net/core/rps_sock_flow_entries", "4096");
    let steered = tree.begin(&on).unwrap();
    assert_eq!(tree.all(), "1 1 0-3 | 0 0 | 2048 2048 | 0 0");
    drop(steered);
    assert_eq!(tree.all(), BEFORE);
}

fn settings() -> impl Strategy<Value = KernelSetting> {
    let name = "[a-z][a-z0-9.-]{0,14}";
    prop_oneof![
        any::<u32>().prop_map(KernelSetting::Irq),
        (name, any::<u32>()).prop_map(|(interface, queue)| KernelSetting::Rps(interface, queue)),
        (name, any::<u32>()).prop_map(|(interface, queue)| KernelSetting::Flows(interface, queue)),
        (name, any::<u32>()).prop_map(|(interface, queue)| KernelSetting::Xps(interface, queue)),
        name.prop_map(KernelSetting::Rss),
    ]
}

proptest! {
    #[test]
    fn entries_read_back(
        setting in settings(),
        back in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..5), 1..3),
        set in prop::collection::vec(any::<u32>(), 0..5),
    ) {
        let entry = Entry { setting, back, set };
        prop_assert_eq!(Entry::<KernelSetting>::parse(entry.line().trim_end_matches('\n')), Some(entry));
    }

    #[test]
    fn any_text_reads_without_panic_and_leads_nowhere_else(text in "[a-z0-9/.,;\t\n -]{0,80}") {
        for entry in text.lines().filter_map(Entry::<KernelSetting>::parse) {
            prop_assert!(!entry.setting.to_string().contains('/') && !entry.setting.to_string().contains(".."));
        }
    }
}
