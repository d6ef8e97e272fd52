//! The verdict against machines whose truth is known.

use experiment::analysis::findings;
use experiment::conduct::conduct;
use experiment::design::Design;
use experiment::designs::Beginning;
use experiment::findings::{Choice, Findings, Question};
use experiment::store::Store;
use rounds::point::{Contender, Path, Pattern, PointSpec, Receiver, Stack};
use rounds::sample::Runner;

use crate::simulated;
use crate::simulated::{Notes, Simulated, duel, grounds, plausible};
use machine::{Bytes, Nanoseconds, Site};

fn run(design: &Design, runner: &mut dyn Runner, seed: u64) -> Findings {
    let (study, contents) = simulated::run(design, runner, seed);
    findings(&study, &contents)
}

fn choice_of(findings: &Findings, question: Question, pattern: Pattern, size: u64) -> &Choice {
    let holds = |r: &&experiment::findings::SizeRange| {
        r.question == question && r.pattern == pattern && r.from.0 <= size && size <= r.to.0
    };
    &findings.verdict.ranges.iter().find(holds).expect("every measured size has a row").choice
}

/// Verdicts of duels in which TCP takes `ratio` times as long as the engine and as much CPU: the choice and its line.
fn duels(truth: simulated::Truth, noise: f64, seeds: u64) -> Vec<(Choice, String)> {
    let duel_of = |seed| {
        let mut runner = Simulated { noise, drift: 0.02, ..Simulated::new(truth, seed) };
        let findings = run(&duel(), &mut runner, seed);
        let choice = choice_of(&findings, Question::BetweenHosts, Pattern::PingPong, 8).clone();
        (choice, findings.verdict.lines[0].to_string())
    };
    (0..seeds).map(duel_of).collect()
}

fn engine() -> Choice {
    Choice::Place(Contender { stack: Stack::EngineUdp, placement: Site::App })
}

/// Wrong is a place that is more than 2 % worse than another, and a gain where there is none.
#[test]
#[ignore = "make check"]
fn at_most_five_studies_of_a_hundred_are_wrong() {
    fn slower(spec: &PointSpec, by: f64) -> machine::Result<(f64, f64)> {
        Ok((if spec.stack == Stack::Tcp { 5_000.0 * by } else { 5_000.0 }, 5_000.0))
    }
    type Case = (&'static str, simulated::Truth, fn(&Choice, &str) -> bool);
    let misplaced = |choice: &Choice, _: &str| choice.is_told() && *choice != engine();
    let cases: [Case; 3] = [
        ("equal", |spec| slower(spec, 1.0), |_, line| line.contains("faster") || line.contains("cheaper")),
        ("3 %", |spec| slower(spec, 1.03), misplaced),
        ("10 %", |spec| slower(spec, 1.10), misplaced),
    ];
    for (name, truth, is_wrong) in cases {
        for noise in [0.01, 0.03, 0.10] {
            let duels = duels(truth, noise, 40);
            let wrong = duels.iter().filter(|(choice, line)| is_wrong(choice, line)).count();
            let told = duels.iter().filter(|(choice, _)| choice.is_told()).count();
            println!("{name}, noise {noise}: {wrong} wrong, {told} told, of {}", duels.len());
            assert!(wrong * 20 <= duels.len(), "{name}, noise {noise}: {wrong} of {}", duels.len());
        }
    }
}

#[test]
fn equality_is_an_answer() {
    let duels = duels(|_| Ok((5_000.0, 5_000.0)), 0.01, 60);
    let either = duels.iter().filter(|(choice, _)| matches!(choice, Choice::Either(_))).count();
    assert!(either * 10 >= duels.len() * 9, "{either} of {}", duels.len());
    let no_slower = duels.iter().filter(|(_, line)| line.ends_with(", no slower")).count();
    assert_eq!(either + no_slower, duels.len(), "either, or a place that costs nothing");
}

/// Every comparison of the study is a chance to be wrong.
#[test]
#[ignore = "make check"]
fn a_whole_study_of_equals_finds_no_gain() {
    let design = Design::of(grounds()).unwrap();
    let studies = 3;
    let fooled = (0..studies)
        .filter(|&seed| {
            let mut runner = Simulated { noise: 0.03, ..Simulated::new(|_| Ok((5_000.0, 5_000.0)), seed) };
            let findings = run(&design, &mut runner, seed);
            findings.verdict.lines.iter().any(|line| line.answer.contains("faster") || line.answer.contains("cheaper"))
        })
        .count();
    assert_eq!(fooled, 0, "of {studies}");
}

/// As where a budget ends before the margin of 2 % is reached.
#[test]
fn those_that_differ_by_little_whatever_is_true_are_a_tie() {
    let choice_of_seed = |seed| {
        let mut runner = Simulated { noise: 0.04, ..Simulated::new(|_| Ok((5_000.0, 5_000.0)), seed) };
        let mut design = duel();
        design.grounds.budget = Nanoseconds(3_000_000_000);
        choice_of(&run(&design, &mut runner, seed), Question::BetweenHosts, Pattern::PingPong, 8).clone()
    };
    let choices: Vec<Choice> = (0..20).map(choice_of_seed).collect();
    assert!(choices.iter().all(Choice::is_told), "{choices:?}");
    let is_tie = |choice: &&Choice| matches!(choice, Choice::Alike { within, .. } if (0.02..0.1).contains(within));
    assert!(choices.iter().filter(is_tie).count() > 5, "{choices:?}");
}

#[test]
fn ten_percent_are_told_apart_through_noise_and_drift() {
    let truth = |spec: &PointSpec| Ok((if spec.stack == Stack::Tcp { 5_500.0 } else { 5_000.0 }, 5_000.0));
    let duels = duels(truth, 0.03, 60);
    let right = duels.iter().filter(|(choice, line)| *choice == engine() && line.ends_with("faster")).count();
    assert!(right * 100 >= duels.len() * 95, "{right} of {}", duels.len());
}

#[test]
fn cpu_cost_breaks_a_tie_and_says_so() {
    let truth = |spec: &PointSpec| Ok((5_000.0, if spec.stack == Stack::Tcp { 3_000.0 } else { 6_000.0 }));
    let mut runner = Simulated { noise: 0.01, ..Simulated::new(truth, 5) };
    let findings = run(&duel(), &mut runner, 5);
    let line = findings.verdict.lines[0].to_string();
    assert!(line.starts_with("Between hosts, latency at 8 B: TCP, ") && line.ends_with("x cheaper"), "{line}");
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
    let lines: Vec<String> = findings.verdict.lines.iter().map(ToString::to_string).collect();
    assert!(lines[0].starts_with("Same host, any size: shm, "), "{lines:#?}");
    let between: Vec<&String> = lines.iter().filter(|line| line.starts_with("Between hosts, latency")).collect();
    assert!(between[0].starts_with("Between hosts, latency, to ") && between[0].contains("KiB: UDP, "), "{lines:#?}");
    assert!(between.last().unwrap().contains("KiB: TCP, "), "{lines:#?}");
    let udp_kernel = |r: &experiment::findings::SizeRange| r.references.iter().any(|x| x.contender.stack == Stack::Udp);
    assert!(findings.verdict.ranges.iter().any(udp_kernel), "kernel UDP is shown as a reference");
    let own_core =
        |r: &experiment::findings::SizeRange| r.references.iter().any(|x| x.contender.placement != Site::App);
    assert!(findings.verdict.ranges.iter().any(own_core), "an engine that shares its core is shown beside");
    let shares = |w: &String| w.contains("had to share core 1 with the remote application");
    assert!(findings.verdict.warnings.iter().any(shares), "{:?}", findings.verdict.warnings);
}

#[test]
fn the_sweep_shows_the_working_receiver_losing_on_the_protocol_core() {
    let design = Design::of(grounds()).unwrap();
    let findings = run(&design, &mut Simulated::new(plausible, 2), 2);
    let row = |receiver, core| {
        let of = |r: &&experiment::findings::SweepRow| {
            r.receiver == receiver && r.core.0 == core && r.size == Bytes(64 << 10)
        };
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
fn a_point_that_fails_is_left_out_and_named_and_the_rest_is_judged() {
    let truth = |spec: &PointSpec| match spec.placement {
        _ if spec.stack == Stack::Udp => Err(machine::Fault::new("udp", "the ranks use it", "free it")),
        _ => plausible(spec),
    };
    let design = Design::of(grounds()).unwrap();
    let findings = run(&design, &mut Simulated::new(truth, 3), 3);
    let notes: Vec<&String> = findings.notes.iter().filter(|n| n.contains("the ranks use it")).collect();
    assert!(notes.len() == 1 && notes[0].contains("ping-pong at 2 B, 8 B, "), "one for all: {notes:?}");
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
    let fault =
        conduct(&mut store, &mut study, &mut Simulated::new(truth, 1), &mut Notes::default(), &|| false).unwrap_err();
    assert_eq!(fault.to_string(), "study: no block can be measured: lab: it is gone. Next: bring it up");
}
