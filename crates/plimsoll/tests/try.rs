//! `plimsoll try` with real commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use experiment::ledger::{self, Kind, Ledger, Prediction};
use experiment::trial::store::Store;
use launch::family::Family;
use launch::trial::{carriers_quantity, subject};
use machine::Nanoseconds;
use machine::costs::Interval;
use testbed::Mpi;

use crate::started;

fn command(place: &Path, arguments: &[&str]) -> Command {
    started::command("try", place, arguments)
}

fn attempt(place: &Path, arguments: &[&str]) -> (i32, String, String) {
    started::ended(&mut command(place, arguments))
}

#[test]
fn the_slower_of_two_is_told_and_fails_where_it_is_to() {
    let place = tempfile::tempdir().unwrap();
    let (code, said, errors) =
        attempt(place.path(), &["--fail-if", "slower", "--", "sleep", "0.05", "--", "sleep", "0.2"]);
    assert_eq!(code, 5, "{said}{errors}");
    assert!(said.contains("Keep A: it is the best.") && said.contains("x slower ("), "{said}");
    assert!(fs::read_to_string(place.path().join("try.html")).unwrap().contains("Keep A"));
    let (code, said, _) = attempt(place.path(), &["--", "sleep", "0.2", "--", "sleep", "0.05"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\n  sleep 0.05\n"), "the line to run: {said}");
    // A trial that was settled is not continued.
    let (_, _, errors) = attempt(place.path(), &["--", "sleep", "0.2", "--", "sleep", "0.05"]);
    assert!(!errors.contains("Going on"), "{errors}");
}

#[test]
fn without_a_home_the_verdict_stands_and_nothing_is_kept_in_the_ledger() {
    let place = tempfile::tempdir().unwrap();
    let mut attempt = command(place.path(), &["--fail-if", "slower", "--", "true", "--", "sleep", "0.03"]);
    let (code, said, errors) = started::ended(attempt.env_remove("HOME").env_remove("XDG_STATE_HOME"));
    assert_eq!(code, 5, "{said}{errors}");
    assert!(errors.contains("note: not in the ledger: folder of plimsoll's state: HOME is not set"), "{errors}");
}

#[test]
fn each_run_reads_the_file_that_is_standard_input_and_what_a_pipe_has_is_noted() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("in");
    fs::write(&file, "1234567\n").unwrap();
    let arguments = ["--metric", "([0-9]+)", "--", "head", "-c", "4", "--", "head", "-c", "2"];
    let read = |stdin: Stdio| started::ended(command(place.path(), &arguments).stdin(stdin));
    let (code, said, errors) = read(fs::File::open(&file).unwrap().into());
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("  today\n     mean 1234 ± 0, min 1234, max 1234, median 1234\n"), "{said}");
    assert!(said.contains("x less (the same in all ") && said.contains("B is better: "), "{said}");
    assert!(errors.contains("in from its start."), "{errors}");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&writer, b"1234567\n").unwrap();
    let (code, _, errors) = read(fs::File::from(reader).into());
    assert_eq!(code, 1, "nothing was read: {errors}");
    assert!(errors.contains("note: no run reads what comes by the pipe"), "{errors}");
}

#[test]
fn a_named_file_is_the_input_of_each_run() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("in"), "1234567\n").unwrap();
    let arguments = ["--input", "in", "--metric", "([0-9]+)", "--", "head", "-c", "4", "--", "head", "-c", "2"];
    let (code, said, errors) = attempt(place.path(), &arguments);
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("mean 1234 ± 0,") && errors.contains("/in from its start."), "{said}{errors}");
    assert!(fs::read_to_string(place.path().join("try.html")).unwrap().contains("<dt>Standard input</dt>"));
}

/// The metric is a figure that a run reports, the same each time: no comparison takes more than the fewest rounds.
const REPORTED: [&str; 2] = ["--metric", "took ([0-9]+)"];

#[test]
fn commands_beside_the_runs_are_run_as_often_as_they_are_to() {
    let place = tempfile::tempdir().unwrap();
    let noted = |what: &str| format!("sh -c 'echo {what} {{x}} >> log'");
    let [setup, prepare, conclude, cleanup] = ["setup", "prepare", "conclude", "cleanup"].map(noted);
    let beside = ["--setup", &setup, "--prepare", &prepare, "--conclude", &conclude, "--cleanup", &cleanup];
    let command = ["--vary", "x=1,2", "--json=runs.json", "--", "sh", "-c", "echo run {x} >> log; echo took {x}"];
    let (code, said, errors) = attempt(place.path(), &[&REPORTED[..], &beside, &command].concat());
    assert_eq!(code, 0, "{said}{errors}");
    let log = fs::read_to_string(place.path().join("log")).unwrap();
    let count = |what: &str| log.lines().filter(|line| *line == what).count();
    let json = fs::read_to_string(place.path().join("runs.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (arm, value) in [("A", "1"), ("B", "2")] {
        let of = |what: &str| count(&format!("{what} {value}"));
        let runs = json["runs"].as_array().unwrap().iter().filter(|run| run["arm"] == arm).count();
        assert!(runs >= 7, "{json}");
        assert_eq!(["prepare", "run", "conclude"].map(of), [runs; 3], "{log}");
        assert_eq!(["setup", "cleanup"].map(of), [1, 1], "{log}");
    }
    assert!(log.starts_with("setup 1\nprepare 1\nrun 1\nconclude 1\n"), "{log}");
    assert!(json["runs"][0]["exit_status"] == 0 && json["runs"][0]["value"] == 1.0, "{json}");
    assert!(json["finished_ns"].is_u64() && json["answer"] == "Keep A: it is the best.", "{json}");
}

#[test]
fn a_command_beside_the_runs_that_fails_is_named_with_its_last_line() {
    let place = tempfile::tempdir().unwrap();
    let beside = ["--prepare", "sh -c 'echo no room >&2; exit 9'", "--cleanup", "touch cleaned"];
    let (code, said, errors) = attempt(place.path(), &[&beside[..], &["--", "true", "--", "true"]].concat());
    assert!(code == 1 && said.is_empty(), "{said}{errors}");
    assert!(errors.contains("A, true: --prepare sh -c 'echo no room >&2; exit 9': exit code 9: no room."), "{errors}");
    assert!(place.path().join("cleaned").exists() && !place.path().join("try.html").exists());
}

#[test]
fn values_are_put_into_the_words_of_a_command() {
    let place = tempfile::tempdir().unwrap();
    let agrees = ["--check", "took [0-9]+ (.*)"];
    let words = ["echo", "took", "{threads}", "{other}"];
    let vary = [&REPORTED[..], &agrees, &["--vary", "threads=1,3", "--"], &words].concat();
    let (code, said, errors) = attempt(place.path(), &vary);
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("  A  threads 1  today\n     mean 1.000 ± 0,") && said.contains("results agree"), "{said}");
    let listed = [&REPORTED[..], &agrees, &["-L", "threads", "1,3", "--json", "--"], &words].concat();
    let (code, json, errors) = attempt(place.path(), &listed);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("Keep A: it is the best."), "standard output is a program's: {errors}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["arms"][1]["command"], serde_json::json!(["echo", "took", "3", "{other}"]));
    assert_eq!(json["arms"][1]["variables"], serde_json::json!([]));
    assert_eq!(json["arms"][1]["name"], "threads 3");
}

#[test]
fn values_go_with_each_of_several_commands_that_asks_for_them() {
    let place = tempfile::tempdir().unwrap();
    let commands = ["--vary", "n=1,2", "--csv", "--", "echo", "took", "{n}", "--", "echo", "took", "3"];
    let (code, csv, errors) = attempt(place.path(), &[&REPORTED[..], &commands].concat());
    assert_eq!(code, 0, "{csv}{errors}");
    let mut names: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["echo took 1", "echo took 2", "echo took 3"]);
}

#[test]
fn failures_that_are_named_are_ignored() {
    let place = tempfile::tempdir().unwrap();
    let commands = ["--", "sh", "-c", "echo took 1; exit 3", "--", "sh", "-c", "echo took 2; exit 4"];
    let with = |ignored: &str| attempt(place.path(), &[&REPORTED[..], &[ignored, "--markdown"], &commands].concat());
    for ignored in ["--ignore-failure=3,4", "--ignore-failure"] {
        let (code, markdown, errors) = with(ignored);
        assert_eq!(code, 0, "{markdown}{errors}");
        let rows: Vec<&str> = markdown.lines().filter(|line| line.contains(" | A | ")).collect();
        assert!(rows.len() >= 7 && rows.iter().all(|row| row.contains(" | 3 | ")), "{markdown}");
        assert!(errors.contains("ended with another exit status than 0; they count"), "{errors}");
    }
    let (code, _, errors) = with("--ignore-failure=3");
    assert!(code == 1 && errors.contains("exit code 4") && errors.contains("--ignore-failure"), "{errors}");
}

#[test]
fn a_shell_is_between_where_it_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let commands = ["--", "echo took 1 | cat", "--", "echo took", "2 | cat"];
    let (code, said, errors) = attempt(place.path(), &[&REPORTED[..], &["--shell"], &commands].concat());
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("  B  echo took 2 | cat  100 % more"), "{said}");
    assert!(fs::read_to_string(place.path().join("try.html")).unwrap().contains("sh runs each command"));
}

#[test]
fn pages_are_numbered_and_earlier_trials_are_shown_again() {
    let place = tempfile::tempdir().unwrap();
    let arguments = [&REPORTED[..], &["--", "echo", "took", "1", "--", "echo", "took", "2"]].concat();
    let page = |said: &str| said.lines().find_map(|line| line.strip_prefix("Page: ")).unwrap_or("none").to_owned();
    let mut answers = Vec::new();
    for name in ["try.html", "try-2.html"] {
        let (code, said, errors) = attempt(place.path(), &arguments);
        assert_eq!(code, 0, "{said}{errors}");
        assert!(page(&said).ends_with(&format!("/{name}")) && place.path().join(name).exists(), "{said}");
        answers.push(said);
    }
    let (code, list, _) = attempt(place.path(), &["--list"]);
    let entries = list.lines().filter(|line| line.ends_with("Keep A: it is the best.")).count();
    assert!(code == 0 && entries == 2 && list.contains("\n   B  echo took 2\n"), "{list}");
    let answer = |said: &str| said.split("Page: ").next().unwrap_or_default().to_owned();
    for (number, given) in [(&["--show", "--trial", "1"][..], &answers[0]), (&["--show"], &answers[1])] {
        let (code, said, errors) = attempt(place.path(), number);
        assert_eq!((code, said), (0, answer(given)), "with no page, which none asks for: {errors}");
    }
    let (_, said, _) = attempt(place.path(), &["--show", "--trial", "1", "--html", "try.html"]);
    assert!(page(&said).ends_with("/try.html"), "the page of this trial: {said}");
    let (code, _, errors) = attempt(place.path(), &["--show", "--trial", "9"]);
    assert!(code == 1 && errors.contains("it holds no trial 9. Next: name one from 1 to 2"), "{errors}");
}

#[test]
fn an_exit_status_may_be_the_result() {
    let place = tempfile::tempdir().unwrap();
    let commands = ["--", "sh", "-c", "exit 1", "--", "sh", "-c", "sleep 0.03; exit 1"];
    let (code, _, errors) = attempt(place.path(), &commands);
    assert!(code == 1 && errors.contains("exit code 1") && errors.contains("--check status"), "{errors}");
    let (code, said, errors) = attempt(place.path(), &[&["--check", "status"][..], &commands].concat());
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.contains("Keep A") && said.contains("results agree"), "{said}");
}

#[test]
fn a_variable_is_varied_and_a_number_of_the_output_counts() {
    let place = tempfile::tempdir().unwrap();
    let script = ["sh", "-c", "echo speed: $LEVEL_of_it.0"];
    let arguments = ["--vary", "LEVEL_of_it=1,3,2", "--metric", "^speed: (.*)", "--more", "--"];
    let (code, said, errors) = attempt(place.path(), &[&arguments[..], &script].concat());
    assert_eq!(code, 0, "{said}{errors}");
    assert!(said.starts_with("speed, more is better\n") && said.contains(" rounds in "), "{said}");
    assert!(said.contains("B is better: 3.0x more.\n  LEVEL_of_it=3 sh -c 'echo speed: $LEVEL_of_it.0'\n"), "{said}");
}

#[test]
fn a_faster_wrong_answer_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let of = |answer: &str, time: &str| format!("echo Energy: {answer}; sleep {time}");
    let (right, wrong) = (of("-4.70", "0.1"), of("-4.61", "0"));
    let commands = ["--check", "Energy: (\\S+)~1e-6", "--", "sh", "-c", &right, "--", "sh", "-c", &wrong];
    let (code, said, errors) = attempt(place.path(), &commands);
    assert_eq!(code, 4, "{said}{errors}");
    assert!(said.contains("left out: wrong: -4.61, not -4.70") && said.contains("Keep A"), "{said}");
}

#[test]
#[ignore = "make check"]
fn a_daemon_that_cleared_its_environment_ends_with_its_run() {
    let place = tempfile::tempdir().unwrap();
    // The length of the sleep tells these processes from all others.
    let length = format!("600.5{}", std::process::id());
    let script = format!("env -i sleep {length} >/dev/null 2>&1 & sleep 0.05");
    let (_, said, errors) =
        attempt(place.path(), &["--margin", "50", "--", "sh", "-c", &script, "--", "sleep", "0.05"]);
    assert!(said.contains(" rounds in "), "{said}{errors}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let words = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let left = words.filter(|words| String::from_utf8_lossy(words).contains(&length)).count();
    assert_eq!(left, 0);
}

#[test]
#[ignore = "make check"]
fn a_killed_trial_leaves_nothing_running_and_goes_on() {
    let place = tempfile::tempdir().unwrap();
    // The length of the sleep tells these processes from all others.
    let length = format!("0.3{}", std::process::id());
    let (a, b) = (format!("echo a >> runs; sleep {length}"), format!("echo b >> runs; sleep {length}1"));
    let arguments = ["--margin", "50", "--", "sh", "-c", &a, "--", "sh", "-c", &b];
    let runs = || fs::read_to_string(place.path().join("runs")).unwrap_or_default().lines().count();
    let mut killed = command(place.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while runs() < 6 {
        assert!(since.elapsed() < skip::LIMIT && killed.try_wait().unwrap().is_none(), "{} runs", runs());
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = || {
        let name = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names = fs::read_dir("/proc").unwrap().flatten().map(name);
        names.filter(|name| String::from_utf8_lossy(name).contains(&length)).count()
    };
    while left() > 0 {
        assert!(since.elapsed() < skip::LIMIT, "{} processes are left", left());
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = runs();
    let (code, said, errors) = attempt(place.path(), &arguments);
    assert!(errors.contains("Going on with the trial in .plimsoll/try.sqlite (--fresh begins anew)."), "{errors}");
    assert_eq!(code, 0, "{said}{errors}");
    let store = Store::read(&place.path().join(".plimsoll/try.sqlite")).unwrap();
    let stored: usize = store.runs(&store.trial(None).unwrap()).unwrap().done.iter().map(Vec::len).sum();
    assert!(before >= 6 && runs() - stored <= 1, "{stored} of {} runs are stored: one was cut short", runs());
}

#[test]
fn what_cannot_be_tried_is_refused_with_the_next_step() {
    let place = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (&["--", "true"][..], "one command alone has nothing to be held against. Next: write two commands"),
        (&["--", "true", "--", "no-such-program"], "program no-such-program: no folder of PATH has it"),
        (
            &["--", "true", "--", "false"],
            "B, false: the run: exit code 1: it said nothing. Next: run the command alone",
        ),
        (&["--vary", "placement=app,core:1", "--", "true"], "Next: name the ranks with -n"),
        (&["-n", "2", "--vary", "placement=app,core:x", "--", "true"], "placement 'core:x'"),
        (&["-n", "2", "--vary", "carrier=verbs,ucx", "--", "true"], "carrier 'verbs': there is no such carrier"),
        (
            &["--vary", "colour=1,2", "--", "true"],
            "there is no such setting. Next: choose placement, network, carrier, semantics or dilate",
        ),
        (&["--vary", "X", "--", "true"], "it names no values"),
        (&["--prepare", "'", "--", "true", "--", "true"], "--prepare ''': it has no words, or a quote"),
        (&["--setup", "no-such-program", "--", "true", "--", "true"], "A, true: --setup: command no-such-program: "),
        (&["--input", ".", "--", "true", "--", "true"], "it is no file that each run can read from its start"),
        (&["--ignore-failure=0", "--", "true", "--", "true"], "these are no exit statuses from 1 to 125"),
        (&["--json", "--csv", "--", "true", "--", "true"], "only one of --json, --csv and --markdown"),
        (&["--shell", "-n", "2", "--", "true", "--", "true"], "cannot be used with"),
        (&["--show", "--store", "none", "--", "true"], "cannot be used with"),
        (&["--show", "--store", "none"], "run `plimsoll try` first"),
        (&["--vary", "X=1,2,3,4,5,6,7,8,9,10,11,12,13", "--", "true"], "13 are more than the 12"),
        (&["--metric", "time", "--", "true", "--", "true"], "0 groups in parentheses, not one"),
        (&["--metric", "t ([0-9]+)", "--", "true", "--", "true"], "nothing that the run printed matches it"),
        (&["--more", "--", "true", "--", "true"], "a run that takes longer is not better"),
        (&["--check", "no-file", "--", "true", "--", "true"], "file "),
        (
            &["--budget", "1s", "--", "sleep", "0.3", "--", "sleep", "0.3"],
            "more than the budget of 1.0 s. Next: give it more",
        ),
        (&["--budget", "soon", "--", "true", "--", "true"], "time 'soon'"),
        (&["--margin", "200", "--", "true", "--", "true"], "it is no share in percent"),
    ] {
        let (code, out, errors) = attempt(place.path(), arguments);
        assert!((code == 1 || code == 2) && out.is_empty(), "{arguments:?}: {code} {out}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
    assert!(!place.path().join("try.html").exists());
}

/// Ranks that swap messages, and print the time of that.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank;
    char data[8] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double began = MPI_Wtime();
    for (int i = 0; i < 2000; i++)
        MPI_Sendrecv_replace(data, 8, MPI_CHAR, 1 - rank, 1, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        printf("swaps took %.9f s\n", MPI_Wtime() - began);
    MPI_Finalize();
    return 0;
}
"#;

/// Shared memory against TCP through the kernel: no machine is so noisy that they cannot be told apart, but the 12 runs may
/// take long on a busy one.
#[test]
#[ignore = "make check"]
fn carriers_of_an_mpi_program_are_varied_and_proven() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let place = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("try");
    let program = mpi.compile_text(PROGRAM, &folder.join("swap"));
    let arguments = [
        "-n",
        "2",
        "--vary",
        "carrier=tcp,plimsoll",
        "--metric",
        "swaps took ([0-9.]+)",
        "--margin",
        "10",
        "--budget",
        "3m",
        "--",
    ];
    let (code, said, errors) = attempt(place.path(), &[&arguments[..], &[program.to_str().unwrap()]].concat());
    assert!(code == 0 || code == 3, "{said}{errors}");
    assert!(said.contains("  B  carrier plimsoll  "), "{said}");
    assert!(code == 3 || said.contains("B is better: ") && said.contains("\n  plimsoll mpirun -n 2 -- "), "{said}");
    assert!(!said.contains("left out"), "{said}");
}

/// Predictions by delays of a program that prints no time are settled by the time between MPI_Init and MPI_Finalize.
#[test]
#[ignore = "make check"]
fn time_between_init_and_finalize_settles_what_delays_predicted() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let place = tempfile::tempdir().unwrap();
    let silent = PROGRAM.lines().filter(|line| !line.contains("printf") && !line.contains("rank == 0"));
    let silent = silent.collect::<Vec<_>>().join("\n");
    let program = mpi.compile_text(&silent, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("try").join("silent"));
    let program = program.to_str().unwrap();
    let state = place.path().join("state");
    let predicted = Prediction {
        made: Nanoseconds(1),
        ..Prediction::new(
            Kind::Causal,
            subject(&["mpirun", "-n", "2", program].map(str::to_owned)).unwrap(),
            carriers_quantity("vader", "tcp"),
            Interval { low: 1.0, middle: 3.0, high: 1_000.0 },
            "a test",
        )
    };
    fs::create_dir_all(state.join("plimsoll")).unwrap();
    let ledger = ledger::file(&state.join("plimsoll"));
    Ledger::at(&ledger).unwrap().predict(predicted).unwrap();
    let varied = ["-n", "2", "--vary", "carrier=vader,tcp", "--metric", "mpi", "--margin", "10", "--budget", "3m"];
    let mut attempt = command(place.path(), &[&varied[..], &["--", program]].concat());
    let (code, said, errors) = started::ended(attempt.env("XDG_STATE_HOME", &state));
    assert!(matches!(code, 0 | 3), "{said}{errors}");
    assert!(said.starts_with("time between MPI_Init and MPI_Finalize [s], less is better\n"), "{said}");
    assert!(said.contains("time over tcp against vader: "), "{said}{errors}");
    assert_eq!(Ledger::at(&ledger).unwrap().outcomes.len(), 1);
}
