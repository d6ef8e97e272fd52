//! `plimsoll machine` as its users run it.

use crate::golden;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("machine").args(arguments).output().expect("plimsoll starts")
}

fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

fn fault(output: &Output) -> &str {
    assert!(!output.status.success());
    std::str::from_utf8(&output.stderr).expect("UTF-8")
}

fn machines() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let entries = fs::read_dir(directory).expect("machines/").map(|entry| entry.expect("machines/").path());
    let mut machines: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    machines.sort();
    machines
}

#[test]
fn archived_machines_print_their_golden_outputs() {
    assert!(machines().len() >= 5);
    for machine in machines() {
        let root = machine.to_str().expect("UTF-8");
        golden::check(&machine.join("page.txt"), printed(&plimsoll(&["--root", root])));
        golden::check(&machine.join("page.json"), printed(&plimsoll(&["--root", root, "--json"])));
    }
}

#[test]
fn a_capture_of_this_host_replays() {
    let scratch = tempfile::tempdir().unwrap();
    let (first, second) = (scratch.path().join("first"), scratch.path().join("second"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    printed(&plimsoll(&["--capture", first]));
    // Capturing the replay reads the same answers: nothing was read past the archive, nothing was kept unread.
    printed(&plimsoll(&["--root", first, "--capture", second]));
    let archive = |directory: &str| fs::read_to_string(Path::new(directory).join("machine.txt")).unwrap();
    assert_eq!(archive(first), archive(second));
    let page = plimsoll(&["--root", first]);
    for section in ["interfaces", "sites", "ports", "controls", "sensors"] {
        assert!(printed(&page).lines().any(|line| line == section), "{section}");
    }
}

#[test]
fn this_host_is_described_as_json() {
    let output = plimsoll(&["--json"]);
    let machine: machine::Machine = serde_json::from_str(printed(&output)).unwrap();
    assert!(machine.sites.iter().any(|site| site.name == "app"));
    assert!(!machine.usable_cores().is_empty());
}

#[test]
fn a_root_that_is_no_archive_is_a_fault() {
    let empty = tempfile::tempdir().unwrap();
    let output = plimsoll(&["--root", empty.path().to_str().unwrap()]);
    assert!(fault(&output).contains("machine.txt") && fault(&output).contains("Next:"), "{}", fault(&output));

    fs::write(empty.path().join("machine.txt"), "# plimsoll machine archive 1\n/proc/x ? y\n").unwrap();
    let output = plimsoll(&["--root", empty.path().to_str().unwrap()]);
    assert!(fault(&output).contains("line 2") && fault(&output).contains("Next:"), "{}", fault(&output));

    fs::write(empty.path().join("machine.txt"), "# plimsoll machine archive 1\n").unwrap();
    let output = plimsoll(&["--root", empty.path().to_str().unwrap()]);
    assert!(fault(&output).contains("shows no CPU"), "{}", fault(&output));
}

#[test]
fn a_capture_never_overwrites() {
    let full = tempfile::tempdir().unwrap();
    fs::write(full.path().join("mine"), "precious").unwrap();
    let root = machines().swap_remove(0);
    let output = plimsoll(&["--root", root.to_str().unwrap(), "--capture", full.path().to_str().unwrap()]);
    assert!(fault(&output).contains("not empty") && fault(&output).contains("Next:"), "{}", fault(&output));
    assert_eq!(fs::read_dir(full.path()).unwrap().count(), 1);

    let under_a_file = full.path().join("mine/below");
    let output = plimsoll(&["--root", root.to_str().unwrap(), "--capture", under_a_file.to_str().unwrap()]);
    assert!(fault(&output).contains("capture to"), "{}", fault(&output));
}

#[test]
fn a_full_disk_is_a_fault() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        skip::test("there is no /dev/full");
        return;
    };
    let root = machines().swap_remove(0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.args(["machine", "--root"]).arg(root).stdout(full).output().unwrap();
    assert!(fault(&output).contains("standard output") && fault(&output).contains("Next:"), "{}", fault(&output));
}

#[test]
fn the_capability_of_cores_is_of_this_host_and_of_a_time_that_passes() {
    let mut spinner = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let number = spinner.id().to_string();
    let of = |arguments: &[&str]| {
        let output = plimsoll(&[&["capability", "--here", "--for", "0.5", "--json"], arguments].concat());
        let map: machine::capability::CapabilityMap = serde_json::from_str(printed(&output)).unwrap();
        map
    };
    let (all, job) = (of(&[]), of(&["--of", &number]));
    let page = plimsoll(&["capability", "--here", "--for", "0.2"]);
    spinner.kill().unwrap();
    spinner.wait().unwrap();
    for core in all.cores.iter().chain(&job.cores) {
        let (low, high) = core.range();
        assert!(core.taken.value().is_some() && 0.0 <= low && low <= high && high <= 1.0, "{core:?}");
    }
    assert_eq!(all.cores.len(), job.cores.len());
    // Another process spins all the while.
    assert!(all.cores.iter().any(|core| *core.taken.value().unwrap() > 0.25), "{all:?}");
    let printed = printed(&page);
    assert!(printed.lines().any(|line| line.contains("for ranks")) && printed.contains("over 0.2 s"), "{printed}");

    for (arguments, wanted) in [
        (&["capability", "--here", "--of", "plimsoll no such"][..], "it does not run here"),
        (&["capability", "--here", "--for", "0"], "it is not from 100ms to 24h"),
        (&["capability", "--nodes", "n1"], "no job of a batch system"),
        (&["--of", "1"], "did you mean `plimsoll machine capability --of`?"),
        (&["--capability"], "did you mean `plimsoll machine capability`?"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("machine")
            .args(arguments)
            .env_remove("SLURM_JOB_ID")
            .env_remove("PBS_JOBID")
            .output()
            .unwrap();
        assert!(fault(&output).contains(wanted), "{arguments:?}: {}", fault(&output));
    }
}
