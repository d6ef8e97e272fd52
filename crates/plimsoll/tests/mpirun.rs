//! MPI programs under `plimsoll mpirun`. Needs Debian's Open MPI, and root for the lab.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use launch::family::Family;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testbed::Mpi;

/// Ranks that swap messages in a ring and then act by their argument.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, ranks, length;
    char host[MPI_MAX_PROCESSOR_NAME], out[1000], in[1000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    for (int i = 0; i < 100; i++) {
        memset(out, rank + i, sizeof out);
        int before = (rank + ranks - 1) % ranks;
        MPI_Sendrecv(out, 1000, MPI_CHAR, (rank + 1) % ranks, 5, in, 1000, MPI_CHAR, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (in[0] != (char)(before + i) || in[999] != (char)(before + i))
            MPI_Abort(MPI_COMM_WORLD, 9);
    }
    printf("rank %d of %d on %s\n", rank, ranks, host);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "sleep") == 0)
        sleep(600);
    MPI_Finalize();
    return argc > 1 ? atoi(argv[1]) : 0;
}
"#;

/// The program, compiled once for all tests of this file by Debian's Open MPI.
fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mpi = Mpi::system(Family::OpenMpi)?;
    Some(BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpirun");
        mpi.compile_text(PROGRAM, &folder.join("ring"))
    }))
}

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("mpirun").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A command that is killed when the test ends.
struct Started(Child);

impl Started {
    fn finish(mut self) -> Output {
        let until = Instant::now() + skip::LIMIT;
        let drain = |stream: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                stream.map(|mut stream| stream.read_to_end(&mut text));
                text
            })
        };
        let stdout = drain(self.0.stdout.take().map(|s| Box::new(s) as _));
        let stderr = drain(self.0.stderr.take().map(|s| Box::new(s) as _));
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "plimsoll mpirun did not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = Started(command.spawn().unwrap()).finish();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Packets that arrived over ports with this prefix, from the file of `--json`.
fn packets(report: &Path, port: &str) -> u64 {
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let endpoints = report["endpoints"].as_array().unwrap();
    let ports = endpoints.iter().flat_map(|endpoint| endpoint["ports"].as_array().unwrap());
    let named = ports.filter(|found| found["port"].as_str().unwrap().starts_with(port));
    named.map(|found| found["packets_received"].as_u64().unwrap()).sum()
}

/// A carrier of a user's file, which sets a variable that the ranks see.
#[test]
fn a_carrier_of_a_file_is_used_and_its_mistakes_are_named() {
    let Some(program) = program() else { return };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.toml");
    let with = |set: &str| {
        let text =
            format!("[[carrier]]\nname = \"mine\"\nwords = \"ours\"\nfor = [{{ mpi = \"openmpi\", set = {set} }}]\n");
        fs::write(&file, text).unwrap();
        let mut command = plimsoll(&["--carrier", "mine", "-n", "2", "--"]);
        run(command.env("PLIMSOLL_CARRIERS", &file).arg(program))
    };
    let (code, said, errors) = with("{ OMPI_MCA_pml = \"ob1\", OMPI_MCA_btl = \"self,tcp\" }");
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{errors}");
    assert!(errors.contains("plimsoll left the messages to mine (ours), as asked"), "{errors}");
    let (code, _, errors) = with("{ OMPI_MCA_btl = \"self,no-such-transport\", OMPI_MCA_pml = \"ob1\" }");
    assert!(code != Some(0), "what the file sets reaches the ranks: {errors}");
    let (code, said, errors) = with("{ LD_PRELOAD = \"x\" }");
    assert!(code == Some(2) && said.is_empty(), "{code:?} {said}");
    assert!(errors.contains("mine.toml:4:35: LD_PRELOAD decides what is loaded"), "{errors}");
}

/// By what Open MPI says itself; also where the file asks for one thing and promises another.
#[test]
fn a_carrier_is_proven_by_what_the_mpi_says() {
    let Some(program) = program() else { return };
    let (code, said, errors) = run(plimsoll(&["--carrier", "tcp", "--prove", "-n", "2", "--"]).arg(program));
    assert_eq!((code, said.as_str()), (Some(0), ""), "{errors}");
    assert!(errors.contains("plimsoll: tcp carried the messages: 'Using tcp btl for send'"), "{errors}");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.toml");
    let with = |proof: &str, status: &str| {
        let set = "set = { OMPI_MCA_pml = \"ob1\", OMPI_MCA_btl = \"self,tcp\" }";
        let way = format!("for = [{{ mpi = \"openmpi\", {set}{proof} }}]\n");
        fs::write(&file, format!("[[carrier]]\nname = \"mine\"\nwords = \"ours\"\n{way}")).unwrap();
        let mut command = plimsoll(&["--carrier", "mine", "--prove", "-n", "2", "--"]);
        run(command.env("PLIMSOLL_CARRIERS", &file).arg(program).arg(status))
    };
    let verbose = "set = { OMPI_MCA_btl_base_verbose = \"10\" }";
    let other = format!(", proof = {{ {verbose}, says = 'Using (sm|vader) btl for send' }}");
    let (code, _, errors) = with(&other, "0");
    assert!(code == Some(1) && errors.contains("something else carried the messages"), "{code:?} {errors}");
    let (code, _, errors) = with(&other, "7");
    assert!(code == Some(7) && errors.contains("carried the messages is NOT known"), "{code:?} {errors}");
    let (code, _, errors) = with("", "0");
    assert!(code == Some(1) && errors.contains("its file does not tell how Open MPI"), "{code:?} {errors}");
}

#[test]
fn a_program_is_carried_and_the_summary_proves_it() {
    let Some(program) = program() else { return };
    let folder = TempDir::new().unwrap();
    let report = folder.path().join("report.json");
    let mut command = plimsoll(&["-n", "2", &format!("--json={}", report.display()), "--"]);
    let (code, said, summary) = run(command.arg(program));
    assert_eq!(code, Some(0), "{summary}");
    let mut lines: Vec<&str> = said.lines().map(|line| line.split(" on ").next().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0 of 2", "rank 1 of 2"]);
    assert!(summary.contains("plimsoll carried it: 2 ranks under Open MPI"), "{summary}");
    assert!(!summary.contains("plimsoll-report "), "{summary}");
    // A hundred messages each way.
    assert!(packets(&report, "shm") >= 200, "{summary}");
    assert_eq!(packets(&report, "udp"), 0, "{summary}");
}

#[test]
fn the_semantics_are_changed_alone_and_the_cpu_time_is_divided() {
    let Some(program) = program() else { return };
    for (semantics, expected) in
        [("matched", &["polls in vain"][..]), ("queue-pair", &["queue-pair", "emulated adapter"])]
    {
        let mut command = plimsoll(&["-n", "2", "--account", "--semantics", semantics, "--"]);
        let (code, _, summary) = run(command.arg(program));
        assert_eq!(code, Some(0), "{summary}");
        assert!(
            summary.contains("plimsoll carried it: 2 ranks") && summary.contains("CPU time of the ranks"),
            "{summary}"
        );
        assert!(expected.iter().all(|words| summary.contains(words)), "{summary}");
        assert_eq!(summary.contains("emulated adapter"), semantics != "matched", "{summary}");
        assert!(!summary.contains("asked for"), "{summary}");
    }
}

#[test]
fn the_exit_code_is_the_programs_and_quiet_is_quiet() {
    let Some(program) = program() else { return };
    let (code, _, said) = run(plimsoll(&["-q", "-n", "1", "--"]).arg(program).arg("7"));
    assert_eq!(code, Some(7), "{said}");
    assert!(!said.contains("plimsoll carried it"), "{said}");
}

/// The reader of a pipe, as in `| head`, has ended before the summary is printed.
#[test]
fn the_exit_code_is_the_programs_where_nobody_reads_the_summary() {
    let Some(program) = program() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = plimsoll(&["-n", "2", "--"]);
    let (code, said, _) = run(command.arg(program).arg("0").stderr(writer));
    assert_eq!((code, said.lines().count()), (Some(0), 2));
}

#[test]
fn another_transport_is_noticed_loudly_even_when_quiet() {
    let Some(program) = program() else { return };
    let other = "--mca pml ob1 --mca btl self,tcp";
    let (code, said, warning) = run(plimsoll(&["-q", "-n", "2", "--mpirun-args", other, "--"]).arg(program));
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{warning}");
    assert!(warning.contains("plimsoll did NOT carry it: no rank of 2"), "{warning}");
    assert!(warning.contains("'--mca pml ob1' of --mpirun-args chooses another transport"), "{warning}");
}

#[test]
fn two_hosts_are_made_and_the_network_carries() {
    let Some(program) = program() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip::test("two hosts need root");
    }
    let folder = TempDir::new().unwrap();
    let report = folder.path().join("report.json");
    let mut command = plimsoll(&["-n", "3", "--lab", &format!("--json={}", report.display()), "--"]);
    let (code, said, summary) = run(command.arg(program));
    assert_eq!(code, Some(0), "{summary}");
    let on = |host: &str| said.lines().filter(|line| line.ends_with(&format!(" on {host}"))).count();
    assert_eq!((on("plimsoll-a"), on("plimsoll-b")), (2, 1), "{said}");
    // One of the ring's three links stays on host a.
    assert!(packets(&report, "udp") >= 200 && packets(&report, "shm") >= 100, "{summary}");
}

/// A job whose ranks sleep, and their processes.
fn sleeping(arguments: &[&str], program: &Path) -> (Started, Vec<PathBuf>) {
    let mut command = plimsoll(arguments);
    let mut started = Started(command.arg("--").arg(program).arg("sleep").spawn().unwrap());
    let stdout = started.0.stdout.take().unwrap();
    // Both ranks run once they have printed a line.
    let mut lines = BufReader::new(stdout).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("rank "), "{line}");
    }
    let mark = format!("PLIMSOLL_JOB={}-", started.0.id());
    let marked = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let processes: Vec<PathBuf> = processes.filter(|process| marked(process)).collect();
    assert!(processes.len() >= 3, "mpirun and two ranks bear the mark: {processes:?}");
    (started, processes)
}

fn gone(processes: &[PathBuf]) {
    let until = Instant::now() + skip::LIMIT;
    let alive = |process: &&PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    while let Some(left) = processes.iter().find(alive) {
        assert!(Instant::now() < until, "{} is left", left.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_killed_plimsoll_leaves_no_rank() {
    let Some(program) = program() else { return };
    let mut places: Vec<&[&str]> = vec![&[]];
    match rustix::process::geteuid().is_root() {
        true => places.push(&["--lab"]),
        false => skip::part("two hosts need root"),
    }
    for place in places {
        let (mut started, processes) = sleeping(place, program);
        started.0.kill().unwrap();
        started.0.wait().unwrap();
        gone(&processes);
    }
}

#[test]
fn a_signal_is_passed_on() {
    let Some(program) = program() else { return };
    let (started, processes) = sleeping(&["-n", "2"], program);
    kill_process(Pid::from_child(&started.0), Signal::TERM).unwrap();
    let output = started.finish();
    assert_eq!(output.status.code(), Some(143), "whatever the launcher makes of it");
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(summary.contains("signal 15 ended it: ranks 0, 1 did not reach MPI_Finalize"), "{summary}");
    gone(&processes);
}

fn refused(arguments: &[&str], why: &str) {
    let (code, said, fault) = run(&mut plimsoll(arguments));
    assert!(code != Some(0) && said.is_empty() && fault.contains(why), "{arguments:?}: {code:?} {fault}");
}

#[test]
fn what_cannot_run_is_refused_with_the_next_step() {
    refused(&["--", "/bin/sh"], "it is not linked with an MPI that is known");
    refused(&["--", "./no-such-program"], "there is no such file");
    refused(&["-bind-to", "core", "true"], "options of the MPI's own launcher go into --mpirun-args");
    refused(&["--", "no-such-program-at-all"], "no folder of PATH has it");
    refused(&["--placement", "xdp:lab0", "--", "x"], "write app or core:N");
    refused(&["--placement", "moon", "--", "x"], "write app or core:N");
    refused(&["--semantics", "verbs", "--", "x"], "choose matched, queue-pair or queue-pair-shared");
    refused(&["--network", "tcp", "--", "x"], "choose udp, afxdp:IFACE or xdp:IFACE");
    refused(&["--mpi", "/no/such/prefix", "--", "x"], "write openmpi, mpich or the PREFIX");
    refused(&["--mpirun-args", "--map-by 'core", "--", "x"], "a quote or a backslash is not finished");
}

#[test]
fn a_program_that_cannot_run_as_asked_is_refused_with_the_next_step() {
    let Some(program) = program() else { return };
    let program = program.to_str().unwrap();
    refused(&["--placement", "core:9999", "--", program], "this machine has no such core");
    refused(
        &["--semantics", "queue-pair", "--dilate", "2", "--", program],
        "it is the engine's work that is stretched",
    );
    let at_core = ["--semantics", "queue-pair", "--placement", "core:0", "--oversubscribe", "--", program];
    refused(&at_core, "queue pairs run in the ranks' own calls");
    refused(&["--mpi", "mpich", "--", program], "it is linked with Open MPI");
    refused(
        &["-n", "4096", "--placement", "core:0", "--", program],
        "4,096 ranks and the engine on core 0 need 4,097 cores",
    );
}

#[test]
fn a_bench_of_mpi_has_all_contenders_and_their_evidence() {
    if program().is_none() {
        return;
    }
    if linux::affinity::allowed().unwrap().len() < 2 {
        return skip::test("one core only");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["bench", "mpi", "--hosts", "one", "--tasks", "latency:8,exchange:1KiB", "--rounds", "1", "--json"]);
    let (code, text, said) = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(code, Some(0), "{said}");
    let all: Value = serde_json::from_str(&text).unwrap();
    let measured = all["findings"]["measured"].as_array().unwrap();
    let of = |name: &str| {
        measured.iter().find(|one| one["contender"] == name).unwrap_or_else(|| panic!("no {name}: {measured:?}"))
    };
    for name in ["plimsoll at app", "vader", "tcp"] {
        let one = of(name);
        assert_eq!(one["failures"].as_array().unwrap().len(), 0, "{one}");
        let blocks = one["blocks"].as_array().unwrap();
        assert_eq!((blocks.len(), blocks[0]["outcomes"].as_array().unwrap().len()), (1, 2), "{one}");
        assert!(blocks[0]["outcomes"][0]["value"].as_f64().unwrap() > 0.0, "{one}");
        // One start for each task, with its calls timed.
        let accounted = one["accounted"].as_array().unwrap();
        assert_eq!(accounted.len(), 2, "{one}");
        let inside = |rank: usize| accounted[0]["outcomes"][0]["ranks"][rank]["in_calls"].as_u64().unwrap();
        assert!(inside(0) > 0 && inside(1) > 0, "{one}");
    }
    let ranks = of("plimsoll at app")["blocks"][0]["reports"]["endpoints"].as_array().unwrap();
    assert_eq!(ranks.len(), 2, "both ranks reported what carried them");
}
