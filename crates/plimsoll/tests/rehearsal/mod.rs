//! A copy of /sys with clocks, which no core obeys: its files show what was set and restored.

use std::fs;
use std::path::Path;

pub const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";
pub const BEFORE: [&str; 2] = ["1200000", "2900000"];

/// Four cores with one policy.
pub fn tree(driver: &str) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/cpu/online", "0-3");
    for (file, text) in [
        ("affected_cpus", "0 1 2 3"),
        ("scaling_driver", driver),
        ("scaling_governor", "powersave"),
        ("cpuinfo_min_freq", BEFORE[0]),
        ("cpuinfo_max_freq", BEFORE[1]),
        ("scaling_min_freq", BEFORE[0]),
        ("scaling_max_freq", BEFORE[1]),
    ] {
        write(&format!("{POLICY}/{file}"), text);
    }
    tree
}

pub fn limits(tree: &Path) -> [String; 2] {
    ["scaling_min_freq", "scaling_max_freq"].map(|file| fs::read_to_string(tree.join(POLICY).join(file)).unwrap())
}
