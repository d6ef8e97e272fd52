//! `plimsoll campaign plan
//! run
//! show
//! merge` with real commands, kills, signals and a full disk.

use crate::{rehearsal, started};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use experiment::campaign::results::Results;
use experiment::campaign::store::Store;
use rounds::random::Random;
use rustix::process::{Pid, Signal, kill_process};

fn command(place: &Path, arguments: &[&str]) -> Command {
    started::command("campaign", place, arguments)
}

fn attempt(place: &Path, arguments: &[&str]) -> (i32, String, String) {
    started::ended(&mut command(place, arguments))
}

fn results(store: &Path) -> Results {
    Store::read(store).unwrap().results().unwrap()
}

/// Whether the machine's clock truly changed under a run, which is then done again.
fn is_of_clock(why: &str) -> bool {
    why.starts_with("clock changed: ")
}

/// The runs of a store by name, with their results.
fn named(results: &Results) -> BTreeSet<String> {
    let name = |run: &experiment::campaign::results::Run| {
        format!("{:?} {} {:?}", results.points[run.point as usize], run.started.0, run.values)
    };
    results.runs.iter().map(name).collect()
}

const TWO: &str = "repetitions = 3\n[axes]\nlength = [0.01, 0.05]\n\"env.WHO\" = [\"x\", \"y\"]\n\
    [[figure]]\nname = \"time\"\n[[figure]]\nname = \"answer\"\npattern = 'answer (\\d+)'\n\
    [[program]]\nname = \"sleeper\"\ncommand = \"sh -c 'sleep {length}; echo said $WHO; echo answer 42'\"\n\
    setup = \"sh -c 'echo {WHO} >> begun'\"\ncleanup = \"sh -c 'echo {WHO} >> ended'\"\n\
    check = ['sh', '-c', 'grep -q \"said $WHO\" \"$PLIMSOLL_OUTPUT\"']\n";

#[test]
fn a_file_is_planned_run_shown_and_then_done() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("two.toml"), TWO).unwrap();
    let (code, said, errors) = attempt(place.path(), &["plan", "two.toml"]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        said.starts_with("two: 4 points\n3 runs of each, in an order by chance\n0 runs done, 12 runs to come"),
        "{said}"
    );
    assert!(said.contains("not known until the first round") && said.contains("WHO x, length 0.01"), "{said}");
    assert!(!place.path().join(".plimsoll").exists(), "a plan leaves nothing behind");
    let (_, said, errors) = attempt(place.path(), &["plan", "two.toml", "--calibrate"]);
    assert!(said.contains("12 runs to come at most: about ") && errors.contains("calibrating: "), "{said}{errors}");
    let (code, said, errors) = attempt(place.path(), &["run", "two.toml"]);
    assert_eq!(code, 0, "{said}{errors}");
    let (_, shown, _) = attempt(place.path(), &["show", "two.toml"]);
    assert_eq!(shown, said);
    assert!(said.contains("12 runs of 4 points") && said.contains("WHO y, length 0.05      3"), "{said}");
    let found = results(&place.path().join(".plimsoll/two.runs.sqlite"));
    assert!(found.runs.iter().all(|run| run.values[1] == Some(42.0) && run.values[0].unwrap() > 0.01));
    let lines = |name: &str| fs::read_to_string(place.path().join(name)).unwrap().lines().count();
    // One more run each calibrated, and so did runs in which a core's clock changed.
    let begun = lines("begun");
    assert!(begun >= 13 && begun == lines("ended"));
    let (code, _, errors) = attempt(place.path(), &["run", "two.toml"]);
    assert!(
        code == 0 && errors.contains("Going on with the study in .plimsoll/two.runs.sqlite (12 finished runs)"),
        "{errors}"
    );
    assert_eq!(lines("begun"), begun, "nothing ran again");
    let (_, said, _) = attempt(place.path(), &["plan", "two.toml"]);
    assert!(said.contains("12 runs done, nothing is left to run"), "{said}");
}

#[test]
fn a_plan_runs_nothing_of_the_file() {
    let place = tempfile::tempdir().unwrap();
    let text = "[power]\nsources = [\"command: touch read; echo 5 W\"]\n\
        [[program]]\nname = \"p\"\ncommand = \"touch ran\"\nsetup = \"touch begun\"\ncheck = \"touch checked\"\n";
    fs::write(place.path().join("other.toml"), text).unwrap();
    let (code, said, errors) = attempt(place.path(), &["plan", "other.toml"]);
    assert_eq!((code, said.contains("other: 1 point\n")), (0, true), "{said}{errors}");
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other.toml"]);
}

#[test]
fn what_fails_is_told_with_its_cause_and_is_in_no_mean() {
    let place = tempfile::tempdir().unwrap();
    let text = "[axes]\nwhat = [\"exit 3\", \"echo wrong\", \"echo right\", \"sleep 9\"]\n[[program]]\nname = \"p\"\nlimit = \"1s\"\n\
        command = [\"sh\", \"-c\", \"{what}\"]\ncheck = ['sh', '-c', '! grep -q wrong \"$PLIMSOLL_OUTPUT\"']\n\
        [[program]]\nname = \"q\"\ncommand = \"no-such-program {what}\"\n[[only]]\nprogram = \"p\"\n[[only]]\nprogram = \"q\"\nwhat = \"exit 3\"\n";
    fs::write(place.path().join("f.toml"), text).unwrap();
    let (_, said, _) = attempt(place.path(), &["plan", "f.toml"]);
    assert!(
        said.contains("Cannot run here\n       q, what exit 3: program no-such-program: no folder of PATH has it"),
        "{said}"
    );
    let (code, said, errors) = attempt(place.path(), &["run", "f.toml"]);
    assert_eq!(code, 4, "{said}{errors}");
    for told in [
        "what exit 3: program failed: exit code 3: it said nothing, 2 times",
        "what echo wrong: check failed: ",
        "what sleep 9: out of time: it did not end within 1 s, 2 times",
    ] {
        assert!(said.contains(told), "{told}\n{said}");
    }
    assert!(errors.contains("q, what exit 3 cannot run here: program no-such-program"), "{errors}");
    assert_eq!(results(&place.path().join(".plimsoll/f.runs.sqlite")).runs.len(), 5);
}

/// Clocks are set around each run and restored after it; a clock that cannot be set is reported before any run.
#[test]
fn an_axis_of_clocks_is_set_around_each_run_and_restored() {
    let (place, tree) = (tempfile::tempdir().unwrap(), rehearsal::tree("intel_pstate"));
    let root = tree.path().to_str().unwrap();
    let text = format!(
        "repetitions = 2\n[axes]\nclock = [\"1.9GHz\", \"1200MHz\", \"5GHz\", \"fast\"]\n\
         [[figure]]\nname = \"limit\"\npattern = 'limit ([0-9]+)'\n[[program]]\nname = \"p\"\n\
         command = ['sh', '-c', 'echo limit $(cat {root}/{policy}/scaling_max_freq)']\n\
         cleanup = ['sh', '-c', 'cat {root}/{policy}/scaling_max_freq >> after']\n",
        policy = rehearsal::POLICY
    );
    fs::write(place.path().join("c.toml"), text).unwrap();
    let (_, said, errors) = attempt(place.path(), &["plan", "c.toml", "--root", root]);
    assert!(said.contains("clock 5GHz: clock 5 GHz of cores 0-3: they run at 1.2 GHz to 2.9 GHz"), "{said}{errors}");
    assert!(said.contains("clock fast: clock 'fast': it is no frequency"), "{said}{errors}");
    let none = tempfile::tempdir().unwrap();
    fs::create_dir_all(none.path().join("sys/devices/system/cpu")).unwrap();
    let (_, said, errors) = attempt(place.path(), &["plan", "c.toml", "--root", none.path().to_str().unwrap()]);
    assert!(said.contains("clocks: this machine has no cpufreq"), "{said}{errors}");
    let (code, said, errors) = attempt(place.path(), &["run", "c.toml", "--root", root]);
    // Where others load the machine its true clock may change, which costs runs; what ran, ran as it was asked.
    assert!(code == 4 && errors.contains("not verified under load: these files are a copy"), "{said}{errors}");
    let found = results(&place.path().join(".plimsoll/c.runs.rehearsal.sqlite"));
    assert!(!found.runs.is_empty());
    for run in &found.runs {
        let clock = found.points[run.point as usize].get("clock").unwrap().magnitude().unwrap();
        assert_eq!(run.values[0], Some(clock / 1e3), "{said}{errors}");
    }
    let after = fs::read_to_string(place.path().join("after")).unwrap();
    assert!(after.as_bytes().chunks(7).all(|limit| limit == rehearsal::BEFORE[1].as_bytes()), "{after}");
    assert_eq!(rehearsal::limits(tree.path()), rehearsal::BEFORE);
    assert!(!tree.path().join("run/plimsoll-clock").exists());
}

#[test]
fn an_axis_of_dilations_becomes_an_option_of_the_launcher() {
    let place = tempfile::tempdir().unwrap();
    let text = "block = [\"dilate\"]\n[axes]\ndilate = [1, 1.5, 0.5]\ncarrier = [\"plimsoll\", \"tcp\"]\n\
        [[program]]\nname = \"p\"\nranks = 2\ncommand = \"true\"\n";
    fs::write(place.path().join("d.toml"), text).unwrap();
    let (_, said, errors) = attempt(place.path(), &["plan", "d.toml"]);
    assert!(said.contains("carrier tcp has none"), "{said}{errors}");
    assert!(said.contains("dilation '0.5': it is not of 1 to 100"), "{said}{errors}");
    assert!(said.contains("15 runs to come"), "{said}{errors}");
    fs::write(place.path().join("d.toml"), text.replace("ranks = 2\n", "")).unwrap();
    let (code, said, errors) = attempt(place.path(), &["plan", "d.toml"]);
    assert!(code != 0 && errors.contains("plimsoll does not start the ranks of program p"), "{said}{errors}");
}

/// Kills at random moments: no clock is left changed, what was stored stays as it was, nothing is stored twice, and no more than the run under way is
/// done again.
#[test]
#[ignore = "make check"]
fn two_hundred_kills_lose_no_finished_run_and_store_none_twice() {
    let place = tempfile::tempdir().unwrap();
    let tree = rehearsal::tree("amd-pstate-epp");
    let start = ["run", "k.toml", "--root", tree.path().to_str().unwrap(), "--store", ".plimsoll/k.runs.sqlite"];
    let text = "repetitions = 40\n[axes]\npoint = [1, 2, 3, 4, 5]\nclock = [\"1.9GHz\", \"2.1GHz\"]\n\
        [[program]]\nname = \"p\"\ncommand = ['sh', '-c', 'echo {point} >> runs']\n";
    fs::write(place.path().join("k.toml"), text).unwrap();
    let store = place.path().join(".plimsoll/k.runs.sqlite");
    let mut random = Random::new(16);
    let (mut before, mut disturbed, mut kills, since) = (BTreeSet::new(), 0, 0, Instant::now());
    while kills < 200 {
        let mut child = command(place.path(), &start);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(500) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let killed = Instant::now();
        while rehearsal::limits(tree.path()) != rehearsal::BEFORE {
            assert!(
                killed.elapsed() < skip::LIMIT,
                "after {kills} kills clocks are {:?}",
                rehearsal::limits(tree.path())
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        if !store.exists() || fs::metadata(&store).unwrap().len() == 0 {
            continue;
        }
        // A process killed during a commit leaves a log that the next one reads.
        let Ok(opened) = Store::read(&store) else { continue };
        let found = opened.results().unwrap();
        disturbed = found.failures.iter().filter(|(_, why)| is_of_clock(why)).count();
        let now = named(&found);
        assert!(before.is_subset(&now), "after {kills} kills: {:?} are gone", before.difference(&now));
        before = now;
    }
    let stored = before.len();
    let executed = fs::read_to_string(place.path().join("runs")).unwrap_or_default().lines().count();
    assert!(
        stored > 0 && executed >= stored && executed - stored <= kills + disturbed,
        "{executed} ran, {stored} are stored, the clock changed under {disturbed}, {kills} kills"
    );
    let (mut code, mut said, mut errors) = attempt(place.path(), &start);
    // Where other work changes the clock under nearly all runs, only those points are left.
    let since_last = Instant::now();
    while code == 4 && since_last.elapsed() < skip::LIMIT {
        let again: Vec<&str> = start.iter().copied().chain(["--retry"]).collect();
        (code, said, errors) = attempt(place.path(), &again);
    }
    assert_eq!(code, 0, "{said}{errors}");
    let all = results(&store);
    let name = |run: &experiment::campaign::results::Run| (run.point, run.started.0);
    let runs: BTreeSet<_> = all.runs.iter().map(name).collect();
    let failures: Vec<_> = all.failures.iter().filter(|(_, why)| !is_of_clock(why)).collect();
    assert_eq!((all.runs.len(), runs.len(), failures), (400, 400, vec![]));
    let of = |point| all.runs.iter().filter(|run| run.point == point).count();
    assert!((0..10).all(|point| of(point) == 40), "each point has its 40 runs, none twice");
    assert!(before.is_subset(&named(&all)));
    println!("200 kills in {:.0} s: {stored} runs stored meanwhile", since.elapsed().as_secs_f64());
}

#[test]
fn sigterm_marks_the_run_under_way_and_the_next_start_does_it_again() {
    let place = tempfile::tempdir().unwrap();
    let text = "repetitions = 1\n[[program]]\nname = \"p\"\ncommand = ['sh', '-c', 'echo x >> runs; test -e fast || sleep 60']\n";
    fs::write(place.path().join("t.toml"), text).unwrap();
    let mut child =
        command(place.path(), &["run", "t.toml"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    while !place.path().join("runs").exists() {
        assert!(since.elapsed() < skip::LIMIT && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let store = place.path().join(".plimsoll/t.runs.sqlite");
    let found = results(&store);
    assert!(found.runs.is_empty() && found.failures[0].1.starts_with("preempted: "), "{:?}", found.failures);
    fs::write(place.path().join("fast"), "").unwrap();
    let (code, said, errors) = attempt(place.path(), &["run", "t.toml"]);
    assert_eq!(code, 0, "{said}{errors}");
    assert_eq!(results(&store).runs.len(), 1);
}

#[test]
fn a_full_disk_ends_the_study_and_keeps_what_was_finished() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a file system of its own needs root");
    }
    let place = tempfile::tempdir().unwrap();
    // Several points: one is left where the cores' clock changes in three runs.
    let text = "repetitions = 1000\n[axes]\nn = [1, 2, 3, 4, 5, 6, 7, 8]\n[[program]]\nname = \"p\"\n\
        command = \"true {n}\"\n";
    fs::write(place.path().join("d.toml"), text).unwrap();
    fs::create_dir(place.path().join("small")).unwrap();
    // The mount goes with its namespace.
    let script = "mount -t tmpfs -o size=256k none small || exit 77; \"$0\" campaign run d.toml --store small/d.sqlite; \
        code=$?; cp -r small saved; exit $code";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_plimsoll")]).current_dir(place.path());
    let output = shell.env_remove("SLURM_JOB_ID").env_remove("PBS_JOBID").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        return skip::test("no file system can be mounted");
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the disk is full; everything finished is kept"), "{errors}");
    let store = place.path().join("saved/d.sqlite");
    let before = named(&results(&store));
    assert!(!before.is_empty() && before.len() < 8000, "{}", before.len());
    fs::write(place.path().join("d.toml"), text.replace("1000", &(before.len() / 8 + 2).to_string())).unwrap();
    let (_, said, errors) = attempt(place.path(), &["run", "d.toml", "--store", "saved/d.sqlite"]);
    let after = named(&results(&store));
    assert!(before.is_subset(&after) && after.len() > before.len(), "{said}{errors}");
}

#[test]
fn a_program_that_was_built_anew_is_not_mixed_with_the_one_before() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program");
    let build = |text: &str| skip::program(&program, text);
    build("#!/bin/sh\nexit 0\n");
    fs::write(place.path().join("b.toml"), "repetitions = 1\n[[program]]\nname = \"p\"\ncommand = \"./program\"\n")
        .unwrap();
    assert_eq!(attempt(place.path(), &["run", "b.toml"]).0, 0);
    build("#!/bin/sh\nexit 1\n");
    let (code, _, errors) = attempt(place.path(), &["run", "b.toml"]);
    assert!(code == 1 && errors.contains("./program is another than it was in earlier runs"), "{errors}");
}

/// A command stands in for a meter of the host: any that prints watts will do.
#[test]
#[ignore = "make check"]
fn watts_and_joules_are_of_each_run_and_a_sensor_that_stops_costs_it() {
    let place = tempfile::tempdir().unwrap();
    let text = |command: &str| {
        format!(
            "repetitions = 2\n[power]\nsources = ['command,every=0.05,covers=node: {command}']\n\
         [[program]]\nname = \"p\"\ncommand = \"sleep 0.4\"\n"
        )
    };
    fs::write(place.path().join("w.toml"), text("echo 75")).unwrap();
    let (code, said, errors) = attempt(place.path(), &["run", "w.toml"]);
    assert_eq!(code, 0, "{said}{errors}");
    let found = results(&place.path().join(".plimsoll/w.runs.sqlite"));
    let names: Vec<&str> = found.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["time", "watts", "joules"]);
    for run in &found.runs {
        let [Some(time), Some(watts), Some(joules)] = run.values[..] else { panic!("{run:?}") };
        assert!((watts - 75.0).abs() < 1e-6 && joules >= 75.0 * 0.4 && joules < 75.0 * (time + 5.0), "{run:?}");
    }
    // The command exists when the study starts, and stops a moment later.
    let stops = "echo x >> n; test $(wc -l < n) -lt 12 && echo 75";
    fs::write(place.path().join("s.toml"), text(stops)).unwrap();
    let (code, said, errors) = attempt(place.path(), &["run", "s.toml"]);
    assert!(code == 4 && said.contains("sensor stopped: "), "{said}{errors}");
    fs::write(place.path().join("n.toml"), text("false")).unwrap();
    let (code, _, errors) = attempt(place.path(), &["run", "n.toml"]);
    assert!(code == 4 && errors.contains("p cannot run here: power"), "{errors}");
}

const TESTBEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/testbeds");

const SIMULATED: &str = "[set]\ntestbeds = \"\"\n[axes]\nclock = [1.4, 1.9, 3.8]\ncard = [\"onload\", \"offload\"]\n\"program.bytes\" = [1024, 65536]\n\
    [[figure]]\nname = \"time\"\n[[figure]]\nname = \"watts\"\n[[figure]]\nname = \"bytes\"\n\
    [[program]]\nname = \"stream\"\nkind = \"simulate\"\nfile = \"{testbeds}/{card}.toml\"\nreplace = { \"machine.clock_ghz\" = \"{clock}\" }\n";

#[test]
fn shards_of_simulated_points_joined_are_the_whole() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("s.toml"), SIMULATED).unwrap();
    let testbeds = format!("testbeds={TESTBEDS}");
    let (code, whole, errors) = attempt(place.path(), &["run", "s.toml", "--jobs", "2", "--set", &testbeds]);
    assert_eq!(code, 0, "{errors}");
    for shard in ["1/3", "2/3", "3/3"] {
        assert_eq!(attempt(place.path(), &["run", "s.toml", "--set", &testbeds, "--shard", shard]).0, 0);
    }
    let stores = [1, 2, 3].map(|part| format!(".plimsoll/s.{part}-of-3.runs.sqlite"));
    let [one, two, three] = stores.each_ref().map(String::as_str);
    let (code, said, errors) = attempt(place.path(), &["merge", "all.sqlite", one, two, three]);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(said, "all.sqlite: 12 runs of 12 points on 1 host\n");
    let (_, merged, _) = attempt(place.path(), &["show", "all.sqlite"]);
    assert_eq!(merged, whole);
    let (_, again, errors) = attempt(place.path(), &["merge", "all.sqlite", three, one]);
    assert!(again == said && errors.contains(" 0 runs, "), "{again}{errors}");
    // The simulation is the one of `plimsoll whatif`.
    let onload = format!("{TESTBEDS}/onload.toml");
    let alone = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["whatif", "simulate", &onload, "--json"]).output();
    let alone = String::from_utf8(alone.unwrap().stdout).unwrap();
    let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
    let total = alone["total_ps"].as_u64().unwrap();
    let one = format!("[[program]]\nname = \"s\"\nkind = \"simulate\"\nfile = \"{onload}\"\n");
    fs::write(place.path().join("one.toml"), one).unwrap();
    attempt(place.path(), &["run", "one.toml"]);
    let value = results(&place.path().join(".plimsoll/one.runs.sqlite")).runs[0].values[0].unwrap();
    assert_eq!(value, total as f64 * 1e-12);
    let (code, _, errors) = attempt(place.path(), &["merge", "all.sqlite", ".plimsoll/one.runs.sqlite"]);
    assert!(code == 1 && errors.contains("it holds another study: it is of study 'one', not 's'"), "{errors}");
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.toml"), "[axes]\nsize = [1]\n[[program]]\nname = \"p\"\ncommnd = \"true {size}\"\n")
        .unwrap();
    for (arguments, said) in [
        (&["plan", "a.toml"][..], "a.toml:5:1: there is no key 'commnd' here. Next: did you mean 'command'?"),
        (&["run", "none.toml"], "ready stud"),
        (&["run", "a.toml", "--shard", "3/2"], "shard '3/2'"),
        (&["run", "a.toml", "--set", "x"], "--set x: it gives no value"),
        (&["show", "a.toml"], "run `plimsoll campaign run` first"),
        (&["merge", "out.sqlite", "none.sqlite"], "store none.sqlite"),
    ] {
        let (code, _, errors) = attempt(place.path(), arguments);
        assert!(code != 0 && errors.contains(said) && errors.contains("Next: "), "{arguments:?}: {errors}");
    }
}
