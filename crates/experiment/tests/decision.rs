//! One choice for all sizes: which it is, what it loses, and that costs that are swapped change the first line.

use experiment::analysis::findings;
use experiment::decision::{command, decisions};
use experiment::findings::{Decision, PointFindings, Question};
use experiment::report::terminal::{Screen, render};
use machine::{Bytes, CoreId, Nanoseconds, Reading, Result, Site};
use proptest::prelude::*;
use rounds::point::{Contender, Path, Pattern, PointSpec, Stack};
use rounds::sample::Sample;
use rounds::statistics::median_interval;

use crate::simulated::{Simulated, duel, run};

const STACKS: [Stack; 4] = [Stack::EngineUdp, Stack::EngineAfxdp, Stack::EngineXdp, Stack::Tcp];
const SIZES: [u64; 3] = [8, 4096, 1 << 20];
const ROUNDS: u32 = 8;

/// Half round trips of one stack at one size, which vary a little from round to round.
fn point(stack: Stack, size: u64, nanoseconds: f64) -> PointFindings {
    let spec =
        PointSpec { path: Path::Lab, ..PointSpec::plain(stack, Pattern::PingPong, size, (CoreId(0), CoreId(1))) };
    let step = STACKS.iter().position(|of| *of == stack).unwrap() as u32 + 1;
    let sample = |round: u32| Sample {
        round,
        order: 0,
        started: Nanoseconds(u64::from(round) * 1_000_000_000),
        messages: 1000,
        elapsed: Nanoseconds(1_000_000),
        value: nanoseconds * (1.0 + 5e-4 * f64::from(round * step % 5)),
        lost: 0,
        probe: None,
        clocks: Default::default(),
        accounting: None,
        notes: Vec::new(),
    };
    let samples: Vec<Sample> = (0..ROUNDS).map(sample).collect();
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    PointFindings {
        key: spec.key(),
        spec,
        questions: vec![Question::BetweenHosts],
        candidate: true,
        value: median_interval(&values).unwrap(),
        cpu_per_message: Reading::absent("not asked"),
        samples,
    }
}

/// A row of half round trips for each of the first stacks, a column for each size.
fn points(table: &[[f64; 3]]) -> Vec<PointFindings> {
    let of_stack = |(stack, row): (Stack, &[f64; 3])| {
        SIZES.into_iter().zip(*row).map(|(size, nanoseconds)| point(stack, size, nanoseconds)).collect::<Vec<_>>()
    };
    STACKS.into_iter().zip(table).flat_map(of_stack).collect()
}

fn decided(table: &[[f64; 3]]) -> Decision {
    let mut all = decisions(&points(table));
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn at_app(stack: Stack) -> Contender {
    Contender { stack, placement: Site::App }
}

#[test]
fn the_choice_loses_least_where_it_loses_most_however_often_another_is_best() {
    // UDP is best at two sizes, and takes three times as long at the third.
    let table = [[1000.0, 2000.0, 9000.0], [1200.0, 2200.0, 3000.0], [4000.0, 4000.0, 4000.0]];
    let found = decided(&table);
    assert_eq!((&found.choice, found.at.1), (&at_app(Stack::EngineAfxdp), Bytes(8)));
    assert!((found.loses.middle - 1.2).abs() < 0.01 && found.open.is_empty(), "{:?}", found.loses);
    assert_eq!(command(&found), "plimsoll mpirun --network afxdp:IFACE -n N -- PROGRAM");
    let swapped = decided(&[table[1], table[0], table[2]]);
    assert_eq!(swapped.choice, at_app(Stack::EngineUdp), "costs that are swapped");
}

#[test]
fn what_short_messages_gain_over_the_kernel_is_said_of_others_alone() {
    let row = |ns: f64| [ns, 10.0 * ns, 100.0 * ns];
    let gain = |table: &[[f64; 3]]| decided(table).gain.map(|gain| gain.middle.round());
    assert_eq!(gain(&[row(1000.0), row(1500.0), row(1500.0), row(3000.0)]), Some(3.0));
    assert_eq!(gain(&[row(3000.0), row(1500.0), row(1500.0), row(1000.0)]), None, "TCP is chosen");
}

#[test]
fn largest_losses_that_are_alike_leave_the_choice_open_or_are_a_tie() {
    // Each loses the same, at another size. AF_XDP's middle is the least, but it asks for an interface.
    let open = decided(&[[1000.0, 1000.0, 1301.0], [1300.0, 1000.0, 1000.0], [5000.0; 3]]);
    assert!(open.open == [at_app(Stack::EngineAfxdp)] && !open.tie, "{open:?}");
    assert_eq!(open.choice, at_app(Stack::EngineUdp));
    let tie = decided(&[[1000.0; 3], [1000.5; 3], [5000.0; 3]]);
    assert!(tie.open.len() == 1 && tie.tie, "{tie:?}");
}

#[test]
fn who_was_not_measured_everywhere_is_not_chosen() {
    let mut points = points(&[[1000.0; 3], [1100.0; 3], [2000.0; 3]]);
    points.remove(0);
    assert_eq!(decisions(&points)[0].choice, at_app(Stack::EngineAfxdp));
}

fn first_line(truth: fn(&PointSpec) -> Result<(f64, f64)>) -> String {
    let mut runner = Simulated::new(truth, 1);
    let (study, contents) = run(&duel(), &mut runner, 1);
    let text = render(&findings(&study, &contents), Screen { width: 200, colour: false, reasons: false }, None);
    text.lines().next().unwrap().to_owned()
}

#[test]
fn a_study_whose_costs_are_swapped_changes_its_first_line() {
    let one = first_line(|spec| Ok((if spec.stack == Stack::Tcp { 9_000.0 } else { 3_000.0 }, 5_000.0)));
    let other = first_line(|spec| Ok((if spec.stack == Stack::Tcp { 3_000.0 } else { 9_000.0 }, 5_000.0)));
    assert!(one.starts_with("Between hosts: UDP; nowhere behind the best; "), "{one}");
    assert!(one.ends_with("x faster than TCP for short messages"), "{one}");
    assert_eq!(other, "Between hosts: TCP; nowhere behind the best");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_stated_loss_is_the_largest_of_the_table_and_no_other_choice_has_a_smaller(
        table in prop::collection::vec(prop::array::uniform3(500.0..50_000.0f64), 2..=4)
    ) {
        let found = decided(&table);
        let largest = |of: &Contender| {
            found.losses.iter().filter(|loss| loss.contender == *of).map(|loss| loss.loss.middle).fold(1.0, f64::max)
        };
        prop_assert_eq!(found.losses.len(), table.len() * SIZES.len());
        prop_assert_eq!(found.loses.middle, largest(&found.choice));
        for other in STACKS.into_iter().take(table.len()).map(at_app).filter(|other| !found.open.contains(other)) {
            prop_assert!(largest(&other) >= found.loses.middle);
        }
        // The loss is what the costs say.
        for loss in &found.losses {
            let column = SIZES.iter().position(|size| *size == loss.size.0).unwrap();
            let row = STACKS.iter().position(|stack| *stack == loss.contender.stack).unwrap();
            let best = table.iter().map(|row| row[column]).fold(f64::INFINITY, f64::min);
            prop_assert!((loss.loss.middle / (table[row][column] / best) - 1.0).abs() < 0.01);
        }
    }
}
