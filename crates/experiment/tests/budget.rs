//! What a study asks within its budget, on machines whose blocks cost what a formula says.

use std::collections::BTreeSet;

use experiment::analysis::findings;
use experiment::design::{Design, Grounds, MINIMUM_ROUNDS, REFERENCE_ROUNDS};
use experiment::findings::Findings;
use experiment::store::{Contents, Study};
use rounds::comparison::even_rounds;
use rounds::point::{PointSpec, Stack};

use crate::simulated::{Simulated, duel, grounds, plausible, run};
use machine::{Nanoseconds, Site};

fn milliseconds(n: u64) -> Nanoseconds {
    Nanoseconds(n * 1_000_000)
}

/// An engine that shares its core takes seconds.
fn slow_where_shared(spec: &PointSpec) -> Nanoseconds {
    milliseconds(if spec.placement == Site::App { 45 } else { 2_000 })
}

fn left_out(findings: &Findings) -> Option<&String> {
    findings.notes.iter().find(|note| note.starts_with("left out to fit"))
}

/// Groups of the design whose candidates have fewer comparable rounds than the first look wants.
fn short(study: &Study, contents: &Contents) -> usize {
    let candidates = |points: &[PointSpec]| {
        let specs = points.iter().filter(|spec| study.design.is_candidate(spec));
        specs.map(|spec| contents.samples.get(&spec.key()).cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    let rounds = study.design.groups.iter().map(|group| {
        let samples = candidates(&group.points);
        even_rounds(&samples.iter().map(Vec::as_slice).collect::<Vec<_>>()).len()
    });
    rounds.filter(|&rounds| rounds < MINIMUM_ROUNDS as usize).count()
}

#[test]
fn a_placement_that_nobody_would_choose_starves_no_question() {
    let design = Design::of(grounds()).unwrap();
    let mut runner = Simulated { cost: slow_where_shared, ..Simulated::new(plausible, 1) };
    let (study, contents) = run(&design, &mut runner, 1);
    assert_eq!(short(&study, &contents), 0);
    assert!(study.spent.0 <= design.grounds.budget.0 * 9 / 8, "{}", study.spent);
    assert_eq!(left_out(&findings(&study, &contents)), None);
}

#[test]
fn what_stands_beside_is_left_out_before_any_question() {
    let tight = Grounds { budget: Nanoseconds(60_000_000_000), ..grounds() };
    let design = Design::of(tight).unwrap();
    let mut runner = Simulated { cost: slow_where_shared, ..Simulated::new(plausible, 5) };
    let (study, contents) = run(&design, &mut runner, 5);
    assert_eq!(short(&study, &contents), 0);
    let findings = findings(&study, &contents);
    let beside = findings.points.iter().filter(|p| !p.candidate);
    assert!(beside.clone().all(|p| p.samples.len() >= REFERENCE_ROUNDS as usize), "nothing beside is half asked");
    assert!(beside.clone().any(|p| p.spec.placement == Site::App), "what costs little is kept");
    let named = |note: &String| note.contains(" at core:1, ping-pong at ") && note.contains(": left out, since");
    assert!(findings.notes.iter().any(named), "{:?}", findings.notes);
}

#[test]
fn a_machine_that_flips_starves_no_question() {
    let design = Design::of(grounds()).unwrap();
    let near = |clock: Nanoseconds| (clock.0 / 700_000_000).is_multiple_of(2);
    let mut runner = Simulated { near, ..Simulated::new(plausible, 2) };
    let (study, contents) = run(&design, &mut runner, 2);
    assert_eq!(short(&study, &contents), 0);
    let lost = contents.samples.values().filter(|samples| samples.len() > MINIMUM_ROUNDS as usize).count();
    assert!(lost > 0, "rounds were lost and asked again");
}

#[test]
fn what_a_budget_does_not_hold_is_left_out_whole_and_the_one_that_is_named_holds_it() {
    let with = |budget| {
        let design = Design::of(Grounds { budget: Nanoseconds(budget), ..grounds() }).unwrap();
        let mut runner = Simulated { cost: |_| milliseconds(120), ..Simulated::new(plausible, 3) };
        let (study, contents) = run(&design, &mut runner, 3);
        (findings(&study, &contents), study)
    };
    let (short, study) = with(60_000_000_000);
    assert!(study.spent.0 <= 67_500_000_000, "{}", study.spent);
    let judged: BTreeSet<_> = short.points.iter().map(|p| &p.key).collect();
    for row in &short.verdict.ranges {
        assert!(row.evidence.iter().all(|key| judged.contains(key)));
    }
    for point in short.points.iter().filter(|p| p.candidate) {
        assert!(point.samples.len() >= MINIMUM_ROUNDS as usize, "{:?} is half asked", point.spec);
    }
    let note = left_out(&short).expect("it is named");
    let enough: u64 = note.split("--budget ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let (whole, _) = with(enough * 1_000_000_000);
    assert_eq!(left_out(&whole), None);
    assert!(whole.points.len() > short.points.len());
}

#[test]
#[ignore = "make check"]
fn a_study_of_every_network_answers_all_its_questions_within_the_default_budget() {
    let networks = vec![Stack::EngineAfxdp.into(), Stack::EngineXdp.into()];
    let design = Design::of(Grounds { networks, ..grounds() }).unwrap();
    let mut runner = Simulated { cost: |_| milliseconds(60), ..Simulated::new(plausible, 7) };
    let (study, contents) = run(&design, &mut runner, 7);
    assert!(study.spent.0 <= design.grounds.budget.0 * 9 / 8, "{}", study.spent);
    let findings = findings(&study, &contents);
    assert_eq!(findings.verdict.answered, findings.verdict.asked, "{:#?}", findings.verdict.lines);
    assert_eq!(findings.verdict.decisions.len(), 2);
}

#[test]
fn who_is_beaten_gets_no_more_rounds() {
    fn close(spec: &PointSpec) -> machine::Result<(f64, f64)> {
        let value = if spec.stack == Stack::Tcp { 9_000.0 } else { 5_000.0 };
        Ok((value, 5_000.0))
    }
    let mut design = duel();
    let third = PointSpec { stack: Stack::EngineAfxdp, ..design.groups[0].points[0].clone() };
    design.groups[0].points.push(third);
    // Noise in which equals take many rounds to tell.
    let mut runner = Simulated { noise: 0.05, ..Simulated::new(close, 6) };
    let (_, contents) = run(&design, &mut runner, 6);
    let rounds = |stack: Stack| {
        let spec = design.groups[0].points.iter().find(|spec| spec.stack == stack).unwrap();
        contents.samples[&spec.key()].len()
    };
    assert_eq!(rounds(Stack::Tcp), MINIMUM_ROUNDS as usize);
    assert!(rounds(Stack::EngineUdp) > 2 * MINIMUM_ROUNDS as usize);
    assert_eq!(rounds(Stack::EngineUdp), rounds(Stack::EngineAfxdp));
}

#[test]
fn rounds_go_where_a_question_is_open() {
    let design = Design::of(grounds()).unwrap();
    // Noise that hides what separates some contenders.
    let mut runner = Simulated { noise: 0.10, ..Simulated::new(plausible, 4) };
    let (study, contents) = run(&design, &mut runner, 4);
    let rounds: BTreeSet<usize> =
        (study.design.groups.iter()).map(|group| contents.samples[&group.points[0].key()].len()).collect();
    assert_eq!(rounds.first(), Some(&(MINIMUM_ROUNDS as usize)), "what the first look decides gets no more");
    assert!(rounds.last() > rounds.first(), "{rounds:?}");
}
