//! Launch lines, proven by the places that their ranks report, under every MPI of this machine. A script stands in for
//! `srun`, and binds ranks by taskset; Slurm itself is no part of these tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use launch::family::Family;
use launch::seats::{self, SeatedCommand};
use machine::seat::{Seat, Seats};
use machine::{CoreId, CpuSet, Result};
use tempfile::TempDir;
use testbed::Mpi;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Two cores; with one, the test is left out.
fn two_cores() -> Option<[u32; 2]> {
    let all: Vec<u32> = linux::affinity::reachable().unwrap().iter().map(|core| core.0).collect();
    if let [one, other, ..] = all[..] {
        return Some([one, other]);
    }
    skip::test("one core only");
    None
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Of this host.
fn seats(cores: &[&[u32]]) -> Seats {
    let seat = |cores: &&[u32]| Seat { host: host(), cores: cores.iter().map(|core| CoreId(*core)).collect() };
    Seats(cores.iter().map(seat).collect())
}

fn verify(words: &[String], seats: &Seats) -> Result<Seats> {
    let folder = tempfile::tempdir().unwrap();
    let line = SeatedCommand::new(words, seats, folder.path())?;
    seats::verify(&line, seats, Path::new(PLIMSOLL), seats::TIMEOUT)
}

/// The command as a user of this MPI types it, with an option that the seats override.
fn recorded(mpi: &Mpi, ranks: usize) -> Vec<String> {
    let variables = mpi.environment().into_iter();
    let mut words = vec!["env".to_owned()];
    words.extend(variables.map(|(name, value)| format!("{name}={}", value.to_str().unwrap())));
    let ranks = mpi.words(ranks, "true");
    words.extend(ranks.iter().map(|word| word.to_str().unwrap().to_owned()));
    let program = words.len() - 1;
    let void = if mpi.is_open_mpi() { ["--bind-to", "none"] } else { ["-bind-to", "none"] };
    words.splice(program..program, void.map(str::to_owned));
    words
}

#[test]
fn ranks_are_where_the_line_has_them_under_every_mpi() {
    let Some([one, other]) = two_cores() else { return };
    for mpi in Mpi::all().into_iter().filter(|mpi| !mpi.standard) {
        for cores in [
            &[&[other][..], &[one]][..],
            // Several ranks on a core, and one that may run on either.
            &[&[other], &[one], &[other], &[one, other]],
        ] {
            let seats = seats(cores);
            let found = verify(&recorded(&mpi, cores.len()), &seats).unwrap_or_else(|fault| panic!("{mpi}: {fault}"));
            assert_eq!(found, seats, "{mpi}");
        }
    }
}

#[test]
fn parts_of_a_command_share_the_seats() {
    let Some([one, other]) = two_cores() else { return };
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let mut words = recorded(&mpi, 2);
    words.extend([":", "-n", "1", "true"].map(str::to_owned));
    let seats = seats(&[&[other], &[one], &[other]]);
    assert_eq!(verify(&words, &seats).unwrap(), seats);
}

#[test]
fn a_core_that_hwloc_counts_otherwise_is_the_kernels() {
    let Some([one, other]) = two_cores() else { return };
    if [one, other] != [0, 1] {
        return skip::test("cores 0 and 1 are not both given");
    }
    let Some(lstopo) = skip::tool("lstopo-no-graphics") else { return };
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("topology.xml").to_str().unwrap().to_owned();
    // Cores 2 and 3 are missing; the second core that hwloc counts is core 2.
    let mut export = Command::new(lstopo);
    export.env("HWLOC_SYNTHETIC", "package:2 core:2 pu:1(indexes=0,2,1,3)").args(["--of", "xml", &file]);
    assert!(export.output().unwrap().status.success());
    let mut words = recorded(&mpi, 2);
    words.splice(1..1, [format!("HWLOC_XMLFILE={file}"), "HWLOC_THISSYSTEM=1".to_owned()]);
    let seats = seats(&[&[1], &[0]]);
    assert_eq!(verify(&words, &seats).unwrap(), seats);
}

#[test]
fn plimsoll_mpirun_takes_seats_too() {
    let Some([one, other]) = two_cores() else { return };
    for family in [Family::OpenMpi, Family::Mpich] {
        let Some(mpi) = Mpi::system(family) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let program = mpi.compile_text(PROGRAM, &folder.path().join("program"));
        let words = [PLIMSOLL, "mpirun", "-n", "3", "--quiet", program.to_str().unwrap(), "said"].map(str::to_owned);
        let seats = seats(&[&[other], &[one], &[one, other]]);
        let line = SeatedCommand::new(&words, &seats, folder.path()).unwrap();
        assert_eq!(seats::verify(&line, &seats, Path::new(PLIMSOLL), seats::TIMEOUT).unwrap(), seats, "{mpi}");
        // The program itself, which the trial did not start.
        let output = line.command().output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{mpi}: {out}{errors}");
        let said: Vec<&str> = out.lines().filter(|line| line.starts_with("said ")).collect();
        for (rank, cores) in [other.to_string(), one.to_string(), format!("{}", seats.0[2].cores)].iter().enumerate() {
            assert!(said.contains(&format!("said {rank} {cores}").as_str()), "{mpi}: {out}{errors}");
        }
    }
}

#[test]
#[ignore = "make check"]
fn seats_on_both_hosts_of_a_lab_are_taken() {
    let Some([one, other]) = two_cores() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip::test("a lab needs root");
    }
    for family in [Family::OpenMpi, Family::Mpich] {
        let Some(mpi) = Mpi::system(family) else { continue };
        let folder = tempfile::tempdir().unwrap();
        let program = mpi.compile_text(PROGRAM, &folder.path().join("program"));
        // hydra fills one host after the other.
        let hosts = if mpi.is_open_mpi() { ["b", "a", "b"] } else { ["b", "b", "a"] };
        let [first, second, third] = hosts.map(|host| format!("plimsoll-{host}"));
        let seats: Seats = format!("0 {first} {other}\n1 {second} {one}\n2 {third} {one}\n").parse().unwrap();
        let words = [PLIMSOLL, "mpirun", "-n", "3", "--lab", program.to_str().unwrap(), "said"].map(str::to_owned);
        let line = SeatedCommand::new(&words, &seats, folder.path()).unwrap();
        let found = seats::verify(&line, &seats, Path::new(PLIMSOLL), seats::TIMEOUT);
        assert_eq!(found.unwrap_or_else(|fault| panic!("{mpi}: {fault}")), seats, "{mpi}");
    }
}

#[test]
fn seats_that_do_not_fit_a_run_are_refused() {
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let core = linux::affinity::reachable().unwrap().first().unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    let program = mpi.compile_text(PROGRAM, &folder.path().join("program"));
    let file = folder.path().join("seats");
    let refused = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut command = Command::new(PLIMSOLL);
        command.args(["mpirun", "-n", "2", "--seats", file.to_str().unwrap()]).args(more).arg(&program);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let host = host();
    for (text, more, expected) in [
        (format!("0 {host} {core}\n"), vec![], "there are 1 seat for 2 ranks. Next: choose -n 1"),
        (format!("0 {host} {core}\n1 {host}\n"), vec![], "seats, line 2: '1"),
        (format!("0 {host} {core}\n1 {host} 60000\n"), vec![], "core 60000 is not among"),
        (
            format!("0 {host} {core}\n1 {host} {core}\n"),
            vec![format!("--placement=core:{core}")],
            "has a seat on the engine's",
        ),
    ] {
        let said = refused(&text, &more.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(said.contains(expected), "{text}{said}");
    }
}

/// Prints its rank and its cores.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, first = -1, last = -1;
    cpu_set_t set;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    sched_getaffinity(0, sizeof set, &set);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set)) {
            first = first < 0 ? core : first;
            last = core;
        }
    if (first == last)
        printf("%s %d %d\n", argv[1], rank, first);
    else
        printf("%s %d %d-%d\n", argv[1], rank, first, last);
    MPI_Finalize();
    return 0;
}
"#;

/// `srun` for one or two nodes: starts the ranks here, each with the name of its node.
const SRUN: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --cpu-bind=*) bind=${1#--cpu-bind=} ;;
    --distribution=arbitrary) nodes=$SLURM_HOSTFILE ;;
    --overcommit | --nodes=* | --mpi=none) ;;
    -n) ranks=$2 && shift ;;
    -*) echo "srun: unrecognized option '$1'" >&2 && exit 1 ;;
    *) break ;;
    esac
    shift
done
rank=0
while [ $rank -lt "$ranks" ]; do
    node=$(hostname) local=$rank
    if [ -n "$nodes" ]; then
        node=$(sed -n "$((rank + 1))p" "$nodes")
        local=$(head -n $rank "$nodes" | grep -cx "$node")
    fi
    word=$(echo "${bind#*:}" | cut -d, -f$((local + 1)))
    case $BINDS$bind in
    yesmap_cpu:*) pin="taskset -c $word" ;;
    yesmask_cpu:*) pin="taskset $word" ;;
    *) pin= ;;
    esac
    if [ "$node" = "$(hostname)" ]; then
        SLURM_PROCID=$rank $pin "$@" &
    else
        SLURM_PROCID=$rank unshare --uts sh -c 'hostname "$0" && exec "$@"' "$node" $pin "$@" &
    fi
    rank=$((rank + 1))
done
wait
"#;

fn srun() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("srun");
    skip::program(&path, SRUN);
    (folder, path)
}

fn through_srun(srun: &Path, binds: &str, seats: &Seats) -> Result<Seats> {
    let ranks = seats.0.len().to_string();
    let srun = srun.to_str().unwrap();
    let words =
        ["env", &format!("BINDS={binds}"), srun, "-n", &ranks, "-N", "1", "--cpu-bind=cores", "--mpi=none", "true"];
    verify(&words.map(str::to_owned), seats)
}

#[test]
fn srun_is_told_cores_and_hosts_and_found_out_where_it_ignores_them() {
    let Some([one, other]) = two_cores() else { return };
    if skip::tool("taskset").is_none() {
        return;
    }
    let (_folder, srun) = srun();
    let both: CpuSet = [CoreId(one), CoreId(other)].into_iter().collect();
    for cores in [&[&[other][..], &[one]][..], &[&[other], &[one, other], &[other]]] {
        let seats = seats(cores);
        assert_eq!(through_srun(&srun, "yes", &seats).unwrap(), seats);
    }
    let ignored = through_srun(&srun, "", &seats(&[&[other], &[one]])).unwrap_err().to_string();
    let expected = format!("rank 0: asked {0}:{other}, got {0}:{both}", host());
    assert!(ignored.contains(&expected) && ignored.contains("TaskPlugin=task/affinity"), "{ignored}");
}

#[test]
fn srun_has_ranks_on_the_hosts_of_their_seats() {
    let Some([one, other]) = two_cores() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip::test("another host's name needs root");
    }
    let (_folder, srun) = srun();
    // Where the hosts' cores differ, ranks bind themselves.
    for cores in [[other, other, one], [other, one, one]] {
        let text = format!("0 node2 {}\n1 node1 {}\n2 node2 {}\n", cores[0], cores[1], cores[2]);
        let found = through_srun(&srun, "yes", &text.parse().unwrap()).unwrap();
        assert_eq!(found.to_string(), text);
    }
}
