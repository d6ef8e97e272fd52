//! docs/tutorial.md, run line by line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use experiment::ledger::{Kind, Ledger};
use launch::family::Family;
use testbed::Mpi;

const TUTORIAL: &str = include_str!("../../../docs/tutorial.md");

/// The lines of the tutorial's command boxes.
fn commands() -> Vec<&'static str> {
    let boxes = TUTORIAL.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    boxes.flat_map(str::lines).collect()
}

/// A shell for `line` in a folder and with a state of its own; the commands are those of this build.
pub(crate) fn shell(line: &str, place: &Path) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let path = std::env::join_paths(
        [bin.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(place).env("PATH", path.unwrap()).env("XDG_STATE_HOME", place.join("state"));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

/// The exit status and the output of `line`.
pub(crate) fn run(line: &str, place: &Path) -> (i32, String) {
    let Output { status, stdout, stderr } = shell(line, place).output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (status.code().unwrap_or(-1), text)
}

#[test]
#[ignore = "make check"]
fn every_line_works_and_the_story_ends_in_the_ledger() {
    if Mpi::system(Family::OpenMpi).is_none() {
        return skip::test("no Open MPI");
    }
    if !bench::reference::netpipe::is_installed() {
        return skip::test("NetPIPE is not installed");
    }
    let place = tempfile::tempdir().unwrap();
    let _turn = skip::turn().before_all();
    let commands = commands();
    assert_eq!(commands.len(), 8, "{commands:?}");
    let mut expects = true;
    for line in commands {
        let (code, said) = run(line, place.path());
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        let expected: &[&str] = match words[..] {
            ["plimsoll", "profile"] => &["now: plimsoll report np.profile"],
            ["plimsoll", "report"] => &["Report: np.profile/report.html"],
            ["plimsoll", "calibrate"] => &[
                "kept in ",
                "a cache line to another core",
                "a call of a wasm body",
                "half a round trip: plimsoll at app, one host",
            ],
            ["plimsoll", "mpirun"] => &["messages a second of", "plimsoll carried it: 2 ranks", "messages: ", ": held"],
            ["plimsoll", "whatif"] => {
                &["Critical path", "carried by app", "plimsoll mpirun -n 2 --placement app NPopenmpi"]
            }
            ["plimsoll", "try"] if line.contains("--placement app") && !expects => &["Page: "],
            ["plimsoll", "try"] if line.contains("--placement app") => {
                &["time of `plimsoll mpirun -n 2 --placement app"]
            }
            ["plimsoll", "try"] => &["carrier plimsoll", "carrier vader"],
            ["plimsoll", "ledger"] if !expects => &["messages of a run: "],
            ["plimsoll", "ledger"] => &["messages of a run: ", "what if: "],
            _ => panic!("a command that this test does not know: {line}"),
        };
        // A trial may end undecided in the time that it has.
        assert!(code == 0 || (words[1] == "try" && code == 3), "{line} ended with {code}:\n{said}");
        // A machine whose clocks moved in its rounds has none, or too few, to compare.
        let undecided = said.contains("no round to compare") || said.contains(" of 6 rounds");
        for expected in expected.iter().filter(|_| !undecided) {
            assert!(said.contains(expected), "{line} did not say '{expected}':\n{said}");
        }
        // No prediction is made for a job that is mostly its start and end.
        expects &= !said.contains("Nothing is kept in the ledger");
    }
    let state = place.path().join("state/plimsoll");
    let ledger = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let ledger = ledger.filter(|path| path.extension().is_some_and(|of| of == "jsonl")).collect::<Vec<_>>();
    let ledger = Ledger::at(&ledger[0]).unwrap();
    let of_messages = ledger.predictions.iter().find(|of| of.kind == Kind::Messages).unwrap();
    let outcome = ledger.outcomes.iter().find(|outcome| outcome.id == of_messages.id).unwrap();
    assert!(outcome.came > of_messages.made, "the outcome came after the prediction");
}

/// What `--placement auto` needs, missing or wrong, is said with the next step.
#[test]
fn auto_refuses_what_it_cannot_use() {
    let Some(program) = Mpi::system(Family::OpenMpi).map(|_| "NPopenmpi") else {
        return skip::test("no Open MPI");
    };
    if !bench::reference::netpipe::is_installed() {
        return skip::test("NetPIPE is not installed");
    }
    let place = tempfile::tempdir().unwrap();
    let refused = |line: String, words: &[&str]| {
        let (code, said) = run(&line, place.path());
        assert!(code != 0 && words.iter().all(|word| said.contains(word)), "{line}: {code}\n{said}");
    };
    refused(format!("plimsoll mpirun --profile x -n 2 -- {program}"), &["only --placement auto reads a profile"]);
    refused(format!("plimsoll mpirun --placement auto --profile nowhere -n 2 -- {program}"), &["nowhere", "Next:"]);
    // Damaged costs are reported, not treated as missing.
    let state = place.path().join("state/plimsoll");
    fs::create_dir_all(&state).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::write(state.join(format!("costs-{}.json", host.trim())), "{").unwrap();
    refused(
        format!("plimsoll mpirun --placement auto -n 2 -- {program}"),
        &["costs-", "it is damaged", "plimsoll calibrate"],
    );
    refused("plimsoll calibrate --show".to_owned(), &["it is damaged"]);
}

#[test]
fn without_costs_or_counts_the_default_runs_and_says_so() {
    if Mpi::system(Family::OpenMpi).is_none() || !bench::reference::netpipe::is_installed() {
        return skip::test("no Open MPI with NetPIPE");
    }
    let place = tempfile::tempdir().unwrap();
    let line = "plimsoll mpirun --placement auto -n 2 -- NPopenmpi -u 64 -n 50";
    let (code, said) = run(line, place.path());
    assert!(code == 0 && said.contains("app: nothing is known of this program yet"), "{said}");
    let (code, said) = run(line, place.path());
    assert!(code == 0 && said.contains("plimsoll: app (") && said.contains("run plimsoll calibrate"), "{said}");
    // A run that cannot be recorded still runs, with a report of that.
    let (code, said) = run(&format!("XDG_STATE_HOME=/proc/none {line}"), place.path());
    assert!(code == 0 && said.contains("set XDG_STATE_HOME to a folder that can be written"), "{said}");
    let (code, said) = run(&format!("env -u HOME -u XDG_STATE_HOME {line}"), place.path());
    assert!(
        code == 0 && said.contains("note: not in the ledger: folder of plimsoll's state: HOME is not set"),
        "{said}"
    );
}
