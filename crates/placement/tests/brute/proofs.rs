//! A proof says 'optimal' of the cheapest alone, and its bounds are below everything.

use placement::{Effort, Proof, prove, solve, solve_and_prove};
use proptest::prelude::*;

use super::answers::effort;
use super::layouts::small;
use super::oracle;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_layouts_are_proven(seed: u64, units in 1usize..7, sites in 1usize..5, tightness in 0usize..9) {
        let layout = small(seed, units, sites, tightness);
        if let Ok(plan) = solve(&layout, &effort()) {
            prop_assert_eq!(prove(&layout, &plan, &Effort { steps: 1_000_000, ..effort() }), Proof::Optimal);
        }
    }

    /// Every valid assignment is taken for a plan in turn: the proof must tell the best from the others.
    #[test]
    fn worse_plans_are_found_out(seed: u64, units in 1usize..5, sites in 1usize..4, tightness in 0usize..9, steps in 0u64..3000) {
        let layout = small(seed, units, sites, tightness);
        let Some(best) = oracle::cheapest(&layout) else { return Ok(()) };
        let mut plan = solve(&layout, &effort()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let demands = oracle::demands(&layout);
        let valid = oracle::assignments(units, sites).filter(|at| demands.iter().all(|&d| oracle::meets(&layout, at, d)));
        for at in valid.take(20) {
            plan.cost = layout.cost(&at);
            plan.assignment = at;
            let tiny = 1e-8 * (1.0 + best);
            match prove(&layout, &plan, &Effort { steps, ..effort() }) {
                Proof::Optimal => prop_assert!(plan.cost.total <= best + tiny),
                Proof::Gap { lower_bound, gap } => {
                    prop_assert!(lower_bound <= best + tiny, "{lower_bound} above {best}");
                    prop_assert!(gap >= 0.0);
                }
                Proof::Cheaper { assignment, cost, lower_bound } => {
                    prop_assert!(lower_bound <= best + tiny, "{lower_bound} above {best}");
                    prop_assert!(cost.total < plan.cost.total);
                    prop_assert!((oracle::cost(&layout, &assignment) - cost.total).abs() <= tiny);
                    prop_assert!(demands.iter().all(|&d| oracle::meets(&layout, &assignment, d)));
                }
            }
        }
    }

    #[test]
    #[ignore = "make check"]
    fn bounds_hold_where_nobody_can_enumerate(seed: u64, tightness in 0usize..7) {
        let layout = small(seed, 14, 5, tightness);
        if let Ok((plan, proof)) = solve_and_prove(&layout, &effort(), &Effort { steps: 30_000, ..effort() }) {
            let long = solve(&layout, &Effort { steps: 200_000, seed: 7, ..effort() }).expect("it was solvable");
            match proof {
                Proof::Optimal => prop_assert!(long.cost.total >= plan.cost.total * (1.0 - 1e-8)),
                Proof::Gap { lower_bound, .. } => prop_assert!(long.cost.total >= lower_bound * (1.0 - 1e-8)),
                Proof::Cheaper { .. } => prop_assert!(false, "the cheaper one should be the plan"),
            }
        }
    }
}

/// Here use exceeds the room by so little that a price once grew to 1e14, beside which a bound of 12 was wrong by a tenth.
#[test]
fn a_price_that_hardly_helps_does_not_grow_beyond_what_sums_can_hold() {
    let layout = small(4859002622693660201, 14, 5, 3);
    let (plan, proof) = solve_and_prove(&layout, &effort(), &Effort { steps: 30_000, ..effort() }).unwrap();
    let long = solve(&layout, &Effort { steps: 200_000, seed: 7, ..effort() }).unwrap();
    assert_eq!(proof, Proof::Optimal);
    assert!(
        long.cost.total >= plan.cost.total * (1.0 - 1e-8),
        "{} is proven, {} exists",
        plan.cost.total,
        long.cost.total
    );
}
