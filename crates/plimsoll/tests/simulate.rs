//! `plimsoll whatif simulate`: every testbed of the papers, and the refusals.

use crate::golden;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn simulate(file: &Path, more: &[&str]) -> Output {
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let mut command = Command::new(plimsoll);
    // A folder of state without any calibration.
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).env_remove("PLIMSOLL_COSTS");
    command.args(["whatif", "simulate"]).arg(file).args(more).output().expect("plimsoll starts")
}

fn testbeds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../simulate/testbeds")
}

#[test]
fn testbeds_come_out_as_they_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate");
    let mut count = 0;
    for entry in std::fs::read_dir(testbeds()).unwrap().flatten() {
        let output = simulate(&entry.path(), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let name = entry.path().with_extension("txt");
        golden::check(&folder.join(name.file_name().unwrap()), &String::from_utf8(output.stdout).unwrap());
        count += 1;
    }
    assert_eq!(count, 15);
}

#[test]
fn a_testbed_is_found_by_its_name_and_a_file_goes_before_it() {
    // As installed: bin/plimsoll beside share/plimsoll/testbeds. A link, by which the program has that name.
    let prefix = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (bin, share) = (prefix.path().join("bin"), prefix.path().join("share/plimsoll/testbeds"));
    [&bin, &share].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    std::fs::hard_link(env!("CARGO_BIN_EXE_plimsoll"), bin.join("plimsoll")).unwrap();
    for file in std::fs::read_dir(testbeds()).unwrap().flatten() {
        std::fs::copy(file.path(), share.join(file.file_name())).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| {
        let mut command = Command::new(bin.join("plimsoll"));
        command.args(["whatif", "simulate", name]).current_dir(folder.path()).output().unwrap()
    };
    let found = named("lammps-a");
    assert_eq!(found.stdout, simulate(&testbeds().join("lammps-a.toml"), &[]).stdout);
    let missing = String::from_utf8(named("lammps-c").stderr).unwrap();
    assert!(
        missing.contains("no testbed has this name. Next: ") && missing.contains("one of eddy-psm, eddy-verbs, "),
        "{missing}"
    );
    std::fs::copy(testbeds().join("onload.toml"), folder.path().join("lammps-a")).unwrap();
    assert_ne!(named("lammps-a").stdout, found.stdout);
}

#[test]
fn json_has_a_unit_in_each_name_and_the_parts_add_up() {
    let output = simulate(&testbeds().join("lammps-a.toml"), &["--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for rank in all["ranks"].as_array().unwrap() {
        let of = |name: &str| rank[name].as_u64().unwrap();
        assert_eq!(of("computing_ps") + of("sending_ps") + of("waiting_ps"), of("end_ps"));
    }
    for host in all["hosts"].as_array().unwrap() {
        let of = |name: &str| host["energy"]["modelled"][name].as_f64().unwrap();
        let parts = ["static_j", "computing_j", "messages_j", "protocol_j", "spinning_j"].map(of);
        assert!((parts.iter().sum::<f64>() - of("total_j")).abs() < 1e-9);
    }
}

/// The reasons that keep the testbeds of paper 004 below its 366 %, as docs/whatif.md lists them.
#[test]
fn onload_gains_what_the_law_says_where_every_message_crosses_and_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let gain = |change: &dyn Fn(String) -> String| {
        let [psm, verbs] = ["eddy-psm.toml", "eddy-verbs.toml"].map(|name| {
            let file = folder.path().join(name);
            std::fs::write(&file, change(std::fs::read_to_string(testbeds().join(name)).unwrap())).unwrap();
            let all: serde_json::Value = serde_json::from_slice(&simulate(&file, &["--json"]).stdout).unwrap();
            all["total_ps"].as_f64().unwrap()
        });
        100.0 * (verbs / psm - 1.0)
    };
    // Rank r on host r mod 3: the distances of peers are powers of 2, and so no multiples of 3.
    let hosts: Vec<Vec<usize>> = (0..3).map(|host| (0..12).map(|nth| host + 3 * nth).collect()).collect();
    let table = format!("table = {hosts:?}");
    let apart = |text: String| text.replace("count = 2", "count = 3").replace("ranks_a_host = 12", &table);
    let unhindered = |text: String| {
        let text = apart(text).replace("latency_us = 1.0", "latency_us = 0.0");
        text.replace("gigabits_a_second = 32.0", "gigabits_a_second = 0.0")
    };
    let gains = [gain(&|text| text), gain(&apart), gain(&unhindered)];
    assert_eq!(gains.map(f64::round), [56.0, 137.0, 358.0]);
}

#[test]
fn a_machine_is_described_as_plimsoll_describes_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/xeon-two-socket/page.json");
    std::fs::copy(archive, folder.path().join("xeon.json")).unwrap();
    let text = std::fs::read_to_string(testbeds().join("onload.toml")).unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, text.replace("sockets = [[0, 1, 2, 3]]", "description = \"xeon.json\"")).unwrap();
    let output = simulate(&file, &["--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["hosts"][0]["cores"].as_array().unwrap().len(), 64);
}

/// The message for the testbed of that name after `changes`.
fn refused(testbed: &str, changes: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut text = std::fs::read_to_string(testbeds().join(testbed)).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = folder.path().join("a.toml");
    std::fs::write(&file, text).unwrap();
    let output = simulate(&file, &[]);
    assert!(!output.status.success(), "{changes:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Each key that plimsoll's engines cannot follow is named, with the reason and the next step.
#[test]
fn what_engines_cannot_follow_is_refused() {
    let engine = "place = \"engine\"";
    let table = "table = [[0, 1, 2, -1], [3, 4, 5, -1]]";
    let read = "\"within.read\" = { value = { modelled = 800.0 }, source = \"assumed: a system call\" }\n";
    for (changes, said) in [
        (&[(engine, "place = \"softirq\"")][..], "protocol.place: "),
        (&[(engine, "place = \"device\"")], "protocol.place: "),
        (&[(engine, "place = \"engine\"\nprogress = \"calls\"")], "protocol.progress: "),
        (&[(engine, "place = \"engine\"\nwaiting = \"sleep\"")], "protocol.waiting: "),
        (&[("\"udp\"", "\"tcp\"")], "protocol.network: plimsoll has no network tcp"),
        (&[("loss = 0.001", "loss = 1.0")], "link.loss: "),
        (&[("loss = 0.001\n", "")], "link.seed: "),
        (&[(table, "table = [[0, 1, 2, -1]]")], "protocol.network: all ranks are on one host"),
        (&[(table, "table = [[0, 1, 2, -1]]"), ("network = \"udp\"", "")], "link.loss: all ranks are on one host"),
        (&[("engines = [3]", "engines = [3]\ninterrupts = 0")], "machine node: interrupts: "),
        (&[("engines = [3]", "engines = [3, 2]")], "machine node: engines: plimsoll has one engine core"),
        (&[(engine, "place = \"rank\"")], "machine node: engines: at place rank"),
        (&[(engine, "place = \"rank\""), ("engines = [3]\n", "")], "constant handover.byte: the protocol has no such"),
        (&[("engines = [3]\n", "")], "no core is free for an engine"),
        (&[("engines = [3]", "engines = [4]")], "mapping, rank 0: core 0 of node-0 is on another socket than core 4"),
        (&[("[mapping]", "[mapping]\nslice_ms = 1.0")], "mapping.slice_ms: "),
        (
            &[("[4, 5, 6, 7]", "[]"), (table, "ranks_a_host = 4")],
            "mapping, rank 3: it shares core 0 of node-0 with rank 0",
        ),
        (&[("turn\"", "turns\"")], "constant turns: "),
        (&[("modelled = 800.0", "modelled = -1.0")], "constant within.read: it has no value of at least 0"),
        (&[(read, "")], "constant within.read: the engine's messages within a host were never measured here"),
    ] {
        let fault = refused("plimsoll.toml", changes);
        assert!(fault.contains(said) && fault.contains("Next: "), "{changes:?}: {fault}");
    }
    for (to, said) in [("loss = 0.1", "link.loss: "), ("seed = 1", "link.seed: ")] {
        let fault = refused("onload.toml", &[("[link]", &format!("[link]\n{to}"))]);
        assert!(fault.contains(said) && fault.contains("profile psm"), "{fault}");
    }
    let fault = refused("onload.toml", &[("\"psm\"", "\"psm\"\nnetwork = \"udp\"")]);
    assert!(fault.contains("protocol.network: profile psm"), "{fault}");
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    for (from, to, said) in [
        ("watts", "wats", "unknown field"),
        ("latency_us = 1.0", "", "missing field `latency_us`"),
        ("\"psm\"", "\"tcp\"", "there is no such profile"),
        ("ranks_a_host = 1", "ranks_a_host = 2", "the mapping 4"),
        ("ranks_a_host = 1", "table = [[0], [-1, -1, -1, -1, 1]]", "teller-1 has 4 cores"),
        ("profile = \"psm\"", "profile = \"psm\"\nplace = \"engine\"", "no core is free for an engine"),
        ("messages = 20", "message = 20", "unknown field"),
        ("\"stream\"", "\"streams\"", "unknown variant"),
        ("clock_ghz = 1.9", "interrupts = 7", "it has no core 7"),
        ("sockets", "cores", "unknown field"),
    ] {
        let fault = refused("onload.toml", &[(from, to)]);
        assert!(fault.contains(said) && fault.contains("Next: "), "{to}: {fault}");
    }
}
