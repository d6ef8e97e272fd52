//! `plimsoll profile`, and its samples in a lab. Needs Debian's Open MPI, and root for the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use launch::carriers::{self, Reach};
use launch::family::Family;
use launch::installation::Installation;
use launch::job::{Job, Place};
use launch::preload;
use launch::profiled::{Sampler, Settings};
use launch::running::{Running, Scratch, Streams};
use linux::lab::{Lab, Options};
use machine::{CoreId, Nanoseconds, Reading};
use profile::profile::Profile;
use profile::summary::{State, Summary};
use record::folder;
use testbed::Mpi;

/// Ranks swap 64 KiB in a ring a given number of times; with an option rank r stays on core r, or one ends by a signal.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BYTES = 65536 };
int main(int argc, char **argv)
{
    static char out[BYTES], in[BYTES];
    int rank, ranks, rounds = atoi(argv[1]);
    if (strcmp(argv[2], "pin") == 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(atoi(getenv("OMPI_COMM_WORLD_RANK")), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < rounds; i++)
        MPI_Sendrecv(out, BYTES, MPI_CHAR, (rank + 1) % ranks, 5, in, BYTES, MPI_CHAR, (rank + ranks - 1) % ranks, 5,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (strcmp(argv[2], "kill") == 0 && rank == 1)
        raise(SIGKILL);
    if (strcmp(argv[2], "sleep") == 0)
        sleep(600);
    MPI_Finalize();
    return strcmp(argv[2], "fail") == 0 ? 7 : 0;
}
"#;

fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mpi = Mpi::system(Family::OpenMpi)?;
    Some(BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile");
        mpi.compile_text(PROGRAM, &folder.join("swap"))
    }))
}

/// `plimsoll profile` in `place`, killed when the test ends.
fn profile(place: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", &skip::LIMIT.as_secs().to_string(), env!("CARGO_BIN_EXE_plimsoll"), "profile"]);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.args(words).current_dir(place).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_commands_streams_and_status_are_its_own() {
    let place = tempfile::tempdir().unwrap();
    let output = profile(place.path(), &["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(7), "out\n"));
    assert!(said(&output).starts_with("err\n") && said(&output).contains("no rank recorded anything"), "{output:?}");
    assert!(place.path().join("plimsoll-profile-1/job.json").exists());
    let output = profile(place.path(), &["-o", "plimsoll-profile-1", "--", "true"]);
    assert!(output.status.success(), "what holds no ranks does not stand in the way of the next try: {output:?}");
    let output = profile(place.path(), &["--", "no-such-command-at-all"]);
    assert!(said(&output).contains("Next: "), "{output:?}");
    assert!(!place.path().join("plimsoll-profile-2").exists(), "nothing was profiled in it");
}

#[test]
fn ranks_are_recorded_and_the_cores_sampled() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let words = ["--", "mpirun.openmpi", "--oversubscribe", "-n", "2", program, "30000", "fail"];
    let output = profile(place.path(), &words);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(said(&output).contains("plimsoll: 2 ranks, ") && said(&output).contains("cores sampled"), "{output:?}");
    let summary = Summary::of(&Profile::open(&place.path().join("plimsoll-profile-1")).unwrap());
    assert_eq!((summary.job.exit_code, summary.ranks.len()), (Some(7), 2));
    for rank in &summary.ranks {
        assert!(rank.cores.value().is_some_and(|cores| !cores.is_empty()), "{:?}", rank.cores);
        assert!(rank.involuntary.value().is_some() && rank.calls >= 30000, "{rank:?}");
    }
    assert!(summary.cores.iter().all(|core| core.busy.value().is_some()) && !summary.cores.is_empty());
    assert!(summary.series.is_some());
}

#[test]
fn a_rank_that_is_killed_leaves_its_profile() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let program = program.to_str().unwrap();
    let output = profile(place.path(), &["--", "mpirun.openmpi", "--oversubscribe", "-n", "2", program, "10", "kill"]);
    assert!(!output.status.success() && said(&output).contains("did not finalize"), "{output:?}");
    let summary = Summary::of(&Profile::open(&place.path().join("plimsoll-profile-1")).unwrap());
    assert_eq!(summary.ranks.len(), 2);
    assert_eq!(summary.ranks[1].state, State::Killed);
    assert!(summary.ranks.iter().all(|rank| rank.messages == 10), "{:?}", summary.ranks);
}

#[test]
fn delays_are_announced_told_and_refused_before_a_rank_starts() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let command = ["--", "mpirun.openmpi", "--oversubscribe", "-n", "2", program.to_str().unwrap(), "100", "run"];
    let run = |words: &[&str]| profile(place.path(), &[words, &command].concat());
    for (what, why) in [("send=1s", "ns or us"), ("send=1us,peers=other-host", "not known before they run")] {
        let output = run(&["-o", "refused", "--perturb", what]);
        assert!(!output.status.success() && said(&output).contains(why), "{output:?}");
        assert!(!place.path().join("refused").exists());
    }
    let output = run(&["-o", "p", "--perturb", "send=1us"]);
    assert!(output.status.success(), "{output:?}");
    let said = said(&output);
    assert!(said.starts_with("plimsoll: the program is delayed on purpose (send=1us)"), "{said}");
    assert!(said.contains("delayed on purpose: 200 delays at sends; "), "{said}");
    let summary = Summary::of(&Profile::open(&place.path().join("p")).unwrap());
    let perturbed = summary.job.perturbed.clone().unwrap();
    let page = profile::terminal::render(&summary, profile::terminal::Screen { width: 200, colour: false, sites: 3 });
    assert!(page.starts_with(&perturbed) && perturbed.contains("(send=1us)"), "{page}");
}

/// Two hosts, TCP between them, all receive work of both on core 1: rank 1, which is there, meets it, rank 0 does not.
#[test]
fn protocol_work_is_met_by_the_rank_on_its_core() {
    let Some(program) = program() else { return };
    let cores = linux::affinity::allowed().unwrap();
    if ![0, 1].iter().all(|core| cores.contains(&CoreId(*core))) {
        return skip::test("cores 0 and 1 are needed");
    }
    let options = Options { protocol_core: Some(CoreId(1)), ..Options::default() };
    let lab = match Lab::owned(&options) {
        Ok(lab) => lab,
        Err(fault) => return skip::test(fault),
    };
    let place = tempfile::tempdir().unwrap();
    for part in [folder::RANKS, folder::HOSTS] {
        fs::create_dir(place.path().join(part)).unwrap();
    }
    let command = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let installation = Installation::in_path(Family::OpenMpi).unwrap();
    let library = preload::library(command).unwrap();
    let mut variables = preload::variables(&library, place.path(), 0, None);
    variables.extend(
        carriers::named("tcp")
            .unwrap()
            .variables(&installation, Reach::Between(lab.interface(linux::lab::Host::A)))
            .unwrap(),
    );
    let settings =
        Settings { folder: place.path().to_owned(), interval: Some(Nanoseconds(10_000_000)), power: Vec::new() };
    let sampler = Sampler::open(&settings).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let sampling = std::thread::spawn(move || {
        sampler.run(|patience, _| stopped.recv_timeout(patience) != Err(RecvTimeoutError::Timeout))
    });
    let job = Job {
        installation: &installation,
        ranks: 2,
        program: program.to_owned(),
        arguments: vec!["1500".into(), "pin".into()],
        options: Vec::new(),
        variables,
        place: Place::Lab { lab: &lab, agent: command },
        cores: None,
        seats: None,
        contained: true,
    };
    let mut running = Running::start(&job, Scratch::new().unwrap(), Streams::Kept, None).unwrap();
    let status = running.wait(skip::LIMIT, None::<&std::os::fd::OwnedFd>, |_| Ok(())).unwrap();
    assert!(status.success(), "{}", running.complained());
    drop(stop);
    let account = sampling.join().unwrap().unwrap();
    drop(running);

    let profile = Profile::open(place.path()).unwrap();
    let summary = Summary::of(&profile);
    let [zero, one] = &summary.ranks[..] else { panic!("there are two ranks: {:?}", summary.job) };
    assert_ne!(zero.host, one.host);
    let on = |rank: &profile::summary::RankSummary| rank.cores.value().map(|cores| cores[0]);
    assert_eq!((on(zero), on(one)), (Some(0), Some(1)));
    let core = |number| summary.cores.iter().find(|core| core.core == number).unwrap();
    let received = |number| *core(number).softirq_rx.value().unwrap();
    eprintln!(
        "receive softirqs: {} on core 0, {} on core 1; met by rank 0 {:?}, by rank 1 {:?}; waits on the cores {:?}, {:?}; \
         {} looks took {:.2} % of a core",
        received(0),
        received(1),
        zero.softirq,
        one.softirq,
        core(0).wait_share,
        core(1).wait_share,
        account.looks,
        100.0 * account.share()
    );
    // Traffic of other tests is on both cores; core 1 handled at least this lab's 3000 messages of 64 KiB.
    assert!(received(1) > 3000.0, "{}", received(1));
    assert!(core(0).wait_share.value().is_some() && core(1).wait_share.value().is_some());
    assert_eq!((&core(0).ranks[..], &core(1).ranks[..]), (&[0][..], &[1][..]));
    // Both hosts of the lab are this machine, and every core is in the samples once.
    let capability = |number| summary.capability.iter().find(|of| of.core == CoreId(number)).unwrap();
    for of in [capability(0), capability(1)] {
        let (low, high) = of.range();
        assert!(of.taken.value().is_some() && 0.0 <= low && low <= high && high <= 1.0, "{of:?}");
    }
    let softirq = |number| capability(number).softirq.value().copied();
    eprintln!("of core 0 {:?}, of core 1 {:?}", capability(0), capability(1));
    // A sender's core also sends from softirqs, and other tests use both cores: only the samples tell which core has more.
    let timed = |number| {
        let (rx, tx) = (&core(number).softirq_rx_seconds, &core(number).softirq_tx_seconds);
        rx.value().zip(tx.value()).map(|(rx, tx)| rx + tx)
    };
    if let (Some(zero), Some(one)) = (timed(0), timed(1)) {
        assert!(softirq(1) > Some(0.0) && (softirq(1) > softirq(0)) == (one > zero), "{zero} s, {one} s");
    }
    let (mut most, mut all) = (0f64, 0.0);
    for (rank, core) in [(zero, core(0)), (one, core(1))] {
        let time = |reading: &Reading<f64>| reading.value().copied();
        let (Some(met), Some(rx), Some(tx)) =
            (time(&rank.softirq), time(&core.softirq_rx_seconds), time(&core.softirq_tx_seconds))
        else {
            return skip::part(format_args!("the times of softirqs: {:?}", rank.softirq));
        };
        // The core's time is that of all samples; the rank's is that of samples in which it was there, or on the other core
        // before it pinned itself. Other tests use the cores before, after and meanwhile.
        let whole = rx + tx;
        all += whole;
        assert!(0.05 * whole < met, "met {met} s of the {whole} s of core {}", core.core);
        most = most.max(met);
    }
    assert!(most <= 1.01 * all, "met {most} s of the {all} s of both cores");
}

/// A second launch on a host counts as another host: its first rank starts a sampler, which ends with the ranks.
#[test]
fn the_first_rank_of_another_host_starts_its_sampler() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let boot = place.path().join("boot");
    fs::write(&boot, "00000000-0000-4000-8000-00000000000b\n").unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec mpirun.openmpi --oversubscribe -n 2 {} 30000 run",
        boot.display(),
        program.display()
    );
    let possible = Command::new("unshare").args(["-m", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        return skip::test("no mount namespace of its own: run as root");
    }
    let output = profile(place.path(), &["-o", "p", "--", "unshare", "-m", "sh", "-c", &script]);
    assert!(output.status.success(), "{output:?}");
    let until = Instant::now() + skip::LIMIT;
    let hosts = place.path().join("p").join(folder::HOSTS);
    let marked =
        || fs::read_dir(&hosts).unwrap().flatten().any(|e| e.file_name().to_string_lossy().starts_with("00000000"));
    // The sampler waits for further ranks, then removes its mark.
    while marked() {
        assert!(Instant::now() < until, "the sampler did not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let summary = Summary::of(&Profile::open(&place.path().join("p")).unwrap());
    assert_eq!(summary.ranks.len(), 2);
    assert!(summary.ranks.iter().all(|rank| rank.cores.value().is_some()), "{:?}", summary.job.notes);
}
