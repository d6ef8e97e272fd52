//! A clash clashes, none of its parts is idle, and where it says 'smallest' brute force agrees.

use placement::{Minimality, Unsolved, solve};
use proptest::prelude::*;

use super::answers::effort;
use super::layouts::small;
use super::oracle;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clashes_are_smallest(seed: u64, units in 1usize..6, sites in 1usize..5, tightness in 6usize..14) {
        let layout = small(seed, units, sites, tightness);
        let Err(unsolved) = solve(&layout, &effort()) else { return Ok(()) };
        let Unsolved::Clash(clash) = unsolved else {
            return Err(TestCaseError::fail(unsolved.to_string()));
        };
        let all: Vec<Vec<placement::layout::SiteIndex>> = oracle::assignments(units, sites).collect();
        let solvable = |without: usize| {
            all.iter().any(|at| {
                let mut rest = clash.parts.iter().enumerate().filter(|(i, _)| *i != without);
                rest.all(|(_, part)| oracle::meets(&layout, at, part.demand))
            })
        };
        prop_assert!(!solvable(usize::MAX), "they do not clash: {clash}");
        for part in 0..clash.parts.len() {
            prop_assert!(solvable(part), "part {part} is idle: {clash}");
        }
        prop_assert_eq!(clash.minimality, Minimality::Smallest);
        prop_assert_eq!(Some(clash.parts.len()), oracle::smallest_clash(&layout), "{}", clash);
    }
}
