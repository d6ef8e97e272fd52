//! `solve` finds the cheapest valid assignment of every small layout, and its reasons are true.

use placement::layout::{Layout, SiteIndex};
use placement::{Effort, Reason, Unsolved, solve};
use proptest::prelude::*;

use super::layouts::small;
use super::oracle;

pub fn effort() -> Effort<'static> {
    Effort { steps: 8_000, ..Effort::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn solve_is_brute_force(seed: u64, units in 0usize..7, sites in 1usize..5, tightness in 0usize..11) {
        let layout = small(seed, units, sites, tightness);
        let best = oracle::cheapest(&layout);
        match solve(&layout, &effort()) {
            Ok(plan) => {
                for demand in oracle::demands(&layout) {
                    prop_assert!(oracle::meets(&layout, &plan.assignment, demand), "{demand:?} is broken");
                }
                let cost = oracle::cost(&layout, &plan.assignment);
                prop_assert!((plan.cost.total - cost).abs() <= 1e-9 * (1.0 + cost));
                let best = best.expect("brute force finds what solve finds");
                prop_assert!(cost <= best + 1e-9 * (1.0 + best), "{cost} against {best}");
                reasons_hold(&layout, &plan)?;
            }
            Err(Unsolved::Clash(_)) => prop_assert_eq!(best, None),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    #[ignore = "make check"]
    fn the_same_question_gets_the_same_answer(seed: u64) {
        let layout = small(seed, 12, 5, 5);
        let first = solve(&layout, &effort()).map_err(|e| e.to_string());
        prop_assert_eq!(first, solve(&layout, &effort()).map_err(|e| e.to_string()));
    }
}

/// Each reason against the meaning of the model.
fn reasons_hold(layout: &Layout, plan: &placement::Plan) -> Result<(), TestCaseError> {
    for (unit, rejected) in plan.rejected.iter().enumerate() {
        prop_assert_eq!(rejected.len(), layout.sites.len() - 1);
        for rejection in rejected {
            prop_assert!(rejection.site != plan.assignment[unit]);
            prop_assert!(!rejection.sentence(layout).is_empty());
            match &rejection.reason {
                Reason::Impossible(_) => {
                    let place = &layout.units[unit].places[rejection.site.0];
                    prop_assert!(matches!(place, placement::layout::Place::Impossible(_)));
                }
                Reason::Forbidden { by, chain } => {
                    // All that the chain ties to the unit goes along; then the demand is broken.
                    let mut at = plan.assignment.clone();
                    at[unit] = rejection.site;
                    let mut reached = unit;
                    for &tie in chain {
                        let placement::layout::Tie::Pull(a, b) = layout.constraints[tie] else {
                            return Err(TestCaseError::fail("a chain of something else than Pulls"));
                        };
                        prop_assert!(a.0 == reached || b.0 == reached);
                        reached = if a.0 == reached { b.0 } else { a.0 };
                        at[reached] = rejection.site;
                    }
                    prop_assert!(!oracle::meets(layout, &at, *by));
                }
                Reason::Overflow { needs, left, .. } => prop_assert!(needs > left),
                Reason::Costlier { more, moves } => {
                    let mut at = plan.assignment.clone();
                    let moved = pulled_with(layout, unit);
                    moved.iter().for_each(|&u| at[u] = rejection.site);
                    moves.iter().for_each(|&(u, site): &(_, SiteIndex)| at[u.0] = site);
                    for demand in oracle::demands(layout) {
                        prop_assert!(oracle::meets(layout, &at, demand), "the repair breaks {demand:?}");
                    }
                    let cost = oracle::cost(layout, &at);
                    let more_now = cost - plan.cost.total;
                    prop_assert!((more_now - more).abs() <= 1e-8 * (1.0 + cost), "{more_now} against {more}");
                }
            }
        }
    }
    Ok(())
}

fn pulled_with(layout: &Layout, unit: usize) -> Vec<usize> {
    let mut group = vec![unit];
    let mut next = 0;
    while next < group.len() {
        for tie in &layout.constraints {
            if let placement::layout::Tie::Pull(a, b) = tie {
                for (here, there) in [(a.0, b.0), (b.0, a.0)] {
                    if here == group[next] && !group.contains(&there) {
                        group.push(there);
                    }
                }
            }
        }
        next += 1;
    }
    group
}
