//! The verdict against machines whose truth is known.

mod simulated;

use machine::{Bytes, Nanoseconds, Site};
use simulated::{Silent, Simulated, duel, grounds, plausible};
use study::analysis::findings;
use study::conduct::{Outcome, conduct};
use study::design::Design;
use study::findings::{Choice, Findings, Question};
use study::point::{Contender, Path, Pattern, PointSpec, Receiver, Stack};
use study::store::{Beginning, Store};

fn run(design: &Design, runner: &mut Simulated, seed: u64) -> Findings {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let beginning =
        Beginning { design, seed, host: "simulated", version: "0", facts: &[], now: Nanoseconds(1_700_000_000) };
    let mut study = store.begin(&beginning).unwrap();
    let outcome = conduct(&mut store, &mut study, runner, &mut Silent, &|| false).unwrap();
    assert_eq!(outcome, Outcome::Finished);
    store.finish(&mut study, Nanoseconds(1_700_000_001)).unwrap();
    findings(&study, &store.contents(&study).unwrap())
}

fn choice_of(findings: &Findings, question: Question, pattern: Pattern, size: u64) -> &Choice {
    let holds = |r: &&study::findings::SizeRange| {
        r.question == question && r.pattern == pattern && r.from.0 <= size && size <= r.to.0
    };
    &findings.verdict.ranges.iter().find(holds).expect("every measured size has a row").choice
}

#[test]
fn the_same_distribution_is_not_told_apart() {
    let same = |_: &PointSpec| Ok((5_000.0, 5_000.0));
    let seeds = 60;
    for noise in [0.03, 0.10] {
        let undecided = (0..seeds)
            .filter(|&seed| {
                let mut runner = Simulated { noise, drift: 0.02, ..Simulated::new(same, seed) };
                let findings = run(&duel(), &mut runner, seed);
                matches!(choice_of(&findings, Question::BetweenHosts, Pattern::PingPong, 8), Choice::CannotTell { .. })
            })
            .count();
        assert!(undecided * 100 >= seeds as usize * 95, "noise {noise}: {undecided} of {seeds}");
    }
}

#[test]
fn ten_percent_are_told_apart_through_noise_and_drift() {
    let truth = |spec: &PointSpec| Ok((if spec.stack == Stack::Tcp { 5_500.0 } else { 5_000.0 }, 5_000.0));
    let engine = Contender { stack: Stack::EngineUdp, placement: Site::App };
    let seeds = 60;
    let right = (0..seeds)
        .filter(|&seed| {
            let mut runner = Simulated { noise: 0.03, drift: 0.05, ..Simulated::new(truth, seed) };
            let findings = run(&duel(), &mut runner, seed);
            *choice_of(&findings, Question::BetweenHosts, Pattern::PingPong, 8) == Choice::Place(engine.clone())
        })
        .count();
    assert!(right * 100 >= seeds as usize * 95, "{right} of {seeds}");
}

#[test]
fn cpu_cost_breaks_a_tie_and_says_so() {
    let truth = |spec: &PointSpec| Ok((5_000.0, if spec.stack == Stack::Tcp { 3_000.0 } else { 6_000.0 }));
    let mut runner = Simulated { noise: 0.01, ..Simulated::new(truth, 5) };
    let findings = run(&duel(), &mut runner, 5);
    let row = &findings.verdict.ranges[0];
    assert_eq!(row.choice, Choice::Place(Contender { stack: Stack::Tcp, placement: Site::App }));
    let why = &row.rejected[0].why;
    assert!(why.contains("cannot be told from the choice's") && why.contains("its CPU time per message"), "{why}");
}

#[test]
fn a_whole_study_answers_both_questions_and_never_mixes_them() {
    let design = Design::of(grounds()).unwrap();
    let findings = run(&design, &mut Simulated::new(plausible, 1), 1);
    let shm = Contender { stack: Stack::EngineShm, placement: Site::App };
    let udp = Contender { stack: Stack::EngineUdp, placement: Site::App };
    let tcp = Contender { stack: Stack::Tcp, placement: Site::App };
    for size in [2, 8, 64 << 10, 1 << 20] {
        let here = choice_of(&findings, Question::SameHost, Pattern::PingPong, size);
        assert_eq!(*here, Choice::Place(shm.clone()), "{size}");
    }
    assert_eq!(*choice_of(&findings, Question::BetweenHosts, Pattern::PingPong, 8), Choice::Place(udp));
    assert_eq!(*choice_of(&findings, Question::BetweenHosts, Pattern::PingPong, 1 << 20), Choice::Place(tcp));
    for row in &findings.verdict.ranges {
        let path = if row.question == Question::SameHost { Path::Loopback } else { Path::Lab };
        assert_eq!(row.path, path);
        for key in &row.evidence {
            let point = findings.points.iter().find(|p| p.key == *key).expect("evidence is a point of the study");
            assert_eq!(point.spec.path, path);
        }
    }
    assert_eq!(
        findings.verdict.sentence,
        "Within this host, run message processing in the application (engine-shm at app) at every size; between hosts, \
         run message processing in the application (engine-udp at app) up to 16 KiB and in the kernel (tcp) above; a \
         core of its own does not pay on this machine: its engine shares core 1 with the remote application."
    );
    let udp_kernel = |r: &study::findings::SizeRange| r.references.iter().any(|x| x.contender.stack == Stack::Udp);
    assert!(findings.verdict.ranges.iter().any(udp_kernel), "kernel UDP is shown as a reference");
    let shares = |w: &String| w.contains("shared core 1 with the remote application");
    assert!(findings.verdict.warnings.iter().any(shares), "{:?}", findings.verdict.warnings);
}

#[test]
fn the_sweep_shows_the_working_receiver_losing_on_the_protocol_core() {
    let design = Design::of(grounds()).unwrap();
    let findings = run(&design, &mut Simulated::new(plausible, 2), 2);
    let row = |receiver, core| {
        let of =
            |r: &&study::findings::SweepRow| r.receiver == receiver && r.core.0 == core && r.size == Bytes(64 << 10);
        findings.verdict.sweep.iter().find(of).unwrap()
    };
    assert!(row(Receiver::Works, 0).gain.is_none(), "the protocol core is the base");
    assert!(row(Receiver::Works, 1).gain.unwrap().low > 1.3);
    let reads = row(Receiver::Reads, 1).gain.unwrap();
    assert!(reads.low < 1.02 && reads.high > 0.98);
    assert_eq!(row(Receiver::Works, 1).softirqs_per_message.value(), Some(&1.0));
    assert_eq!(row(Receiver::Works, 1).softirq_share, [(machine::CoreId(63), 1.0)]);
}

#[test]
fn overhead_larger_than_the_difference_decides_nothing() {
    let truth = |spec: &PointSpec| Ok((if spec.stack == Stack::Tcp { 5_500.0 } else { 5_000.0 }, 5_000.0));
    struct Costly(Simulated);
    impl study::sample::Runner for Costly {
        fn run_block(&mut self, spec: &PointSpec, round: u32, order: u32) -> machine::Result<study::sample::Sample> {
            let mut sample = self.0.run_block(spec, round, order)?;
            sample.accounting.as_mut().unwrap().overhead = Nanoseconds(sample.elapsed.0 / 5);
            Ok(sample)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let design = duel();
    let beginning = Beginning { design: &design, seed: 1, host: "h", version: "0", facts: &[], now: Nanoseconds(1) };
    let mut study = store.begin(&beginning).unwrap();
    let mut runner = Costly(Simulated { noise: 0.005, ..Simulated::new(truth, 1) });
    conduct(&mut store, &mut study, &mut runner, &mut Silent, &|| false).unwrap();
    let findings = findings(&study, &store.contents(&study).unwrap());
    assert!(matches!(findings.verdict.ranges[0].choice, Choice::CannotTell { .. }));
    assert!(findings.verdict.warnings.iter().any(|w| w.contains("20.0 %")), "{:?}", findings.verdict.warnings);
}

#[test]
fn a_point_that_fails_is_left_out_and_named_and_the_rest_is_judged() {
    let truth = |spec: &PointSpec| match spec.placement {
        Site::Core(_) => Err(machine::Fault::new("core 1", "the ranks use it", "free a core")),
        _ => plausible(spec),
    };
    let design = Design::of(grounds()).unwrap();
    let findings = run(&design, &mut Simulated::new(truth, 3), 3);
    assert!(findings.notes.iter().any(|n| n.contains("core 1: the ranks use it")), "{:?}", findings.notes);
    let place = choice_of(&findings, Question::SameHost, Pattern::PingPong, 8);
    assert_eq!(*place, Choice::Place(Contender { stack: Stack::EngineShm, placement: Site::App }));
}

#[test]
fn a_study_in_which_nothing_runs_is_a_fault() {
    let truth = |_: &PointSpec| Err(machine::Fault::new("lab", "it is gone", "bring it up"));
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("study.sqlite")).unwrap();
    let design = Design::of(grounds()).unwrap();
    let beginning = Beginning { design: &design, seed: 1, host: "h", version: "0", facts: &[], now: Nanoseconds(1) };
    let mut study = store.begin(&beginning).unwrap();
    let fault = conduct(&mut store, &mut study, &mut Simulated::new(truth, 1), &mut Silent, &|| false).unwrap_err();
    assert_eq!(fault.to_string(), "study: no block can be measured: lab: it is gone. Next: bring it up");
}
