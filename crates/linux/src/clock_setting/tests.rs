use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::journal::Entry;

const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

/// A host's files as plain ones: four cores in two policies. They show what is written, read back and restored, but
/// enforce nothing.
struct Tree(tempfile::TempDir);

/// Drivers with the files of their policies: limits of the hardware and of the policy, base, steps.
const DRIVERS: [(&str, &str, &str); 3] = [
    ("acpi-cpufreq", "ondemand", "2900000 2400000 1900000 1200000 "),
    ("intel_pstate", "powersave", ""),
    ("amd-pstate-epp", "powersave", ""),
];

impl Tree {
    fn new(driver: &str) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        let (_, governor, steps) = DRIVERS.iter().find(|(name, ..)| *name == driver).unwrap();
        tree.write("sys/devices/system/cpu/online", "0-3");
        for (policy, cores) in [(0, "0 1"), (2, "2 3")] {
            let file = |name: &str, text: &str| tree.write(&format!("{CPUFREQ}/policy{policy}/{name}"), text);
            file("affected_cpus", cores);
            file("scaling_driver", driver);
            file("scaling_governor", governor);
            file("cpuinfo_min_freq", "1200000");
            file("cpuinfo_max_freq", "2900000");
            file("scaling_min_freq", "1200000");
            file("scaling_max_freq", "2900000");
            if !steps.is_empty() {
                file("scaling_available_frequencies", steps);
            }
            if driver == "intel_pstate" {
                file("base_frequency", "2400000");
            }
        }
        match driver {
            "intel_pstate" => {
                tree.write("sys/devices/system/cpu/intel_pstate/status", "active");
                tree.write("sys/devices/system/cpu/intel_pstate/no_turbo", "1");
            }
            "amd-pstate-epp" => tree.write("sys/devices/system/cpu/amd_pstate/status", "active"),
            _ => tree.write(&format!("{CPUFREQ}/boost"), "1"),
        }
        tree
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn write(&self, file: &str, text: &str) {
        fs::create_dir_all(self.path(file).parent().unwrap()).unwrap();
        fs::write(self.path(file), text).unwrap();
    }

    fn begin(&self, mhz: u64, cores: Option<&str>, effective: Reading<Hertz>) -> Result<ClockSet> {
        let request = Request { clock: Hertz(mhz * 1_000_000), cores: cores.map(|cores| cores.parse().unwrap()) };
        let verify = |cores: Vec<CoreId>, asked| {
            let of = |core| Verified { core, asked, effective: effective.clone() };
            cores.into_iter().map(of).collect()
        };
        ClockSet::at(self.0.path(), &Source::open(self.0.path()).unwrap(), &request, verify, None)
    }

    /// Limits of both policies, kHz.
    fn all(&self) -> String {
        let limit =
            |(policy, file)| fs::read_to_string(self.path(&format!("{CPUFREQ}/policy{policy}/{file}"))).unwrap();
        [(0, "scaling_min_freq"), (0, "scaling_max_freq"), (2, "scaling_min_freq"), (2, "scaling_max_freq")]
            .map(limit)
            .join(" ")
    }
}

const BEFORE: &str = "1200000 2900000 1200000 2900000";

fn mhz(mhz: u64) -> Reading<Hertz> {
    Reading::Measured(Hertz(mhz * 1_000_000))
}

#[test]
fn clocks_of_every_driver_are_set_verified_and_come_back() {
    for (driver, ..) in DRIVERS {
        let tree = Tree::new(driver);
        let set = tree.begin(1900, None, mhz(1901)).unwrap();
        assert_eq!(tree.all(), "1900000 1900000 1900000 1900000", "{driver}");
        assert_eq!((set.holds(), set.notes()), (Some(true), &[][..]));
        assert_eq!(set.settings()[1].to_string(), "highest policy0: 1.9 GHz, was 2.9 GHz");
        assert_eq!(set.verified().iter().map(|of| of.core.0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(set.end(), Vec::<String>::new());
        assert_eq!(tree.all(), BEFORE);
        assert!(!tree.path("run/plimsoll-clock").exists());
    }
}

#[test]
fn cores_that_share_a_policy_are_set_with_those_that_are_asked_for() {
    let tree = Tree::new("intel_pstate");
    let set = tree.begin(1900, Some("3"), mhz(1900)).unwrap();
    assert_eq!(tree.all(), "1200000 2900000 1900000 1900000");
    assert_eq!(set.notes(), ["cores 2 share a policy with cores 3: their clock is set too"]);
    assert_eq!(set.verified()[0].core, CoreId(3));
    drop(set);
    assert_eq!(tree.all(), BEFORE);
}

#[test]
fn limits_never_cross_on_the_way_up_and_back() {
    let tree = Tree::new("amd-pstate-epp");
    for policy in [0, 2] {
        tree.write(&format!("{CPUFREQ}/policy{policy}/scaling_max_freq"), "1500000");
    }
    let before = tree.all();
    let set = tree.begin(2900, None, mhz(2900)).unwrap();
    let limits: Vec<String> = set.settings().iter().map(|setting| setting.limit.to_string()).collect();
    assert_eq!(limits[..2], ["highest policy0", "lowest policy0"]);
    drop(set);
    assert_eq!(tree.all(), before);
}

#[test]
fn a_clock_that_reads_back_and_does_not_run_is_said() {
    let tree = Tree::new("acpi-cpufreq");
    let set = tree.begin(1900, Some("0-1"), mhz(2900)).unwrap();
    assert_eq!(set.holds(), Some(false));
    assert!(
        set.notes()[0].starts_with("core 0: asked for 1.9 GHz, its effective clock is 2.9 GHz"),
        "{:?}",
        set.notes()
    );
    drop(set);
    let set = tree.begin(1900, Some("0-1"), Reading::absent("no reason")).unwrap();
    assert_eq!((set.holds(), set.notes()), (None, &["core 0: not verified under load: no reason".to_owned()][..]));
}

#[test]
fn clocks_that_there_are_not_are_refused_with_those_that_there_are() {
    let refused = |driver: &str, asked, cores| {
        let tree = Tree::new(driver);
        let fault = tree.begin(asked, cores, mhz(asked)).err().unwrap().to_string();
        assert_eq!(tree.all(), BEFORE);
        fault
    };
    let far = refused("amd-pstate-epp", 5000, None);
    assert!(far.starts_with("clock 5 GHz of cores 0-1: they run at 1.2 GHz to 2.9 GHz"), "{far}");
    let step = refused("acpi-cpufreq", 2000, None);
    assert!(step.contains("Next: ask for 1.9 GHz or 2.4 GHz"), "{step}");
    let boost = refused("intel_pstate", 2800, None);
    assert!(boost.contains("boost is off, so that they run at 2.4 GHz at most"), "{boost}");
    assert!(refused("intel_pstate", 1900, Some("9")).starts_with("core 9: the cores of this machine"));
    let bare = tempfile::tempdir().unwrap();
    fs::create_dir_all(bare.path().join("sys")).unwrap();
    let request = Request { clock: Hertz(1_900_000_000), cores: None };
    let none = ClockSet::at(bare.path(), &Source::open(bare.path()).unwrap(), &request, not_here, None).err().unwrap();
    assert!(none.to_string().contains("--dilate"), "{none}");
}

#[test]
fn a_kernel_that_takes_another_clock_is_found_out_and_all_is_as_it_was() {
    let tree = Tree::new("amd-pstate-epp");
    // A file that accepts no write, as where the kernel has a floor of its own.
    let floor = tree.path(&format!("{CPUFREQ}/policy2/scaling_min_freq"));
    fs::remove_file(&floor).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/ostype", &floor).unwrap();
    assert!(tree.begin(1900, None, mhz(1900)).is_err());
    fs::remove_file(&floor).unwrap();
    fs::write(&floor, "1200000").unwrap();
    assert_eq!(tree.all(), BEFORE);
}

#[test]
fn what_a_killed_run_left_is_restored_and_what_a_living_one_holds_is_not() {
    let tree = Tree::new("intel_pstate");
    let living = RefCell::new(Some(tree.begin(1900, None, mhz(1900)).unwrap()));
    assert_eq!(restore_remains(tree.0.path()).unwrap(), Vec::<String>::new());
    let busy = tree.begin(1200, None, mhz(1200)).err().unwrap();
    assert!(busy.cause().contains(&format!("process {} ", std::process::id())), "{busy}");
    // The state after a kill: the lock is gone, journal and limits stay.
    let journal = tree.path("run/plimsoll-clock/machine");
    let (kept, set) = (fs::read(&journal).unwrap(), tree.all());
    drop(living.take());
    fs::create_dir_all(journal.parent().unwrap()).unwrap();
    fs::write(&journal, &kept).unwrap();
    for policy in [0, 2] {
        for file in ["scaling_min_freq", "scaling_max_freq"] {
            tree.write(&format!("{CPUFREQ}/policy{policy}/{file}"), "1900000");
        }
    }
    assert_eq!(tree.all(), set);
    assert_eq!(restore_remains(tree.0.path()).unwrap(), ["what a killed run had set on clocks is restored"]);
    assert_eq!(tree.all(), BEFORE);
    assert!(!journal.exists());
}

#[test]
fn a_limit_that_a_killed_writer_left_empty_is_restored() {
    let tree = Tree::new("amd-pstate-epp");
    let set = tree.begin(1900, None, mhz(1900)).unwrap();
    tree.write(&format!("{CPUFREQ}/policy0/scaling_max_freq"), "");
    assert_eq!(set.end(), Vec::<String>::new());
    assert_eq!(tree.all(), BEFORE);
}

proptest! {
    #[test]
    fn entries_read_back(policy in any::<u32>(), high in any::<bool>(), back in any::<u32>(), set in any::<u32>()) {
        let setting = if high { Limit::Highest(policy) } else { Limit::Lowest(policy) };
        let entry = Entry { setting, back: vec![vec![back]], set: vec![set] };
        prop_assert_eq!(Entry::<Limit>::parse(entry.line().trim_end()), Some(entry));
    }
}
