//! The choice whose worst loss over several cases is least (Savage's minimax regret).

use crate::costs::Interval;

/// The choice, and the worst loss of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimax {
    /// Index of the choice.
    pub choice: usize,
    /// The worst loss of each choice: the largest low end, middle and high end over its cases, and the case of the
    /// largest middle.
    pub worst: Vec<(Interval, usize)>,
    /// Other choices whose worst loss cannot be told from that of the choice.
    pub open: Vec<usize>,
}

/// Chooses by `losses`: for each choice, its loss in each case over the best choice there. The first of equals wins;
/// `None` where there is no choice, or one without a case.
pub fn minimax(losses: &[Vec<Interval>]) -> Option<Minimax> {
    let worst: Vec<(Interval, usize)> = losses.iter().map(|losses| largest(losses)).collect::<Option<_>>()?;
    let middle = |at: usize| worst[at].0.middle;
    let choice = (0..worst.len()).min_by(|one, other| middle(*one).total_cmp(&middle(*other)))?;
    let open = (0..worst.len()).filter(|at| *at != choice && worst[*at].0.low <= worst[choice].0.high).collect();
    Some(Minimax { choice, worst, open })
}

fn largest(losses: &[Interval]) -> Option<(Interval, usize)> {
    let case = (0..losses.len()).max_by(|one, other| losses[*one].middle.total_cmp(&losses[*other].middle))?;
    let most = |end: fn(&Interval) -> f64| losses.iter().map(end).fold(f64::NEG_INFINITY, f64::max);
    let whole = Interval { low: most(|of| of.low), middle: losses[case].middle, high: most(|of| of.high) };
    Some((whole, case))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exactly(losses: &[&[f64]]) -> Vec<Vec<Interval>> {
        losses.iter().map(|losses| losses.iter().map(|loss| Interval::exactly(*loss)).collect()).collect()
    }

    #[test]
    fn the_least_largest_loss_is_chosen_not_the_most_wins() {
        // The first is best in two of three cases, and loses 3x in the third.
        let found = minimax(&exactly(&[&[1.0, 1.0, 3.0], &[1.2, 1.3, 1.0], &[2.0, 2.0, 2.0]])).unwrap();
        assert_eq!((found.choice, found.worst[1], found.open), (1, (Interval::exactly(1.3), 1), vec![]));
        assert_eq!(minimax(&[]), None);
        assert_eq!(minimax(&[vec![], vec![Interval::exactly(1.0)]]), None);
    }

    #[test]
    fn largest_losses_whose_intervals_meet_are_open() {
        let of = |low, middle, high| vec![Interval { low, middle, high }];
        let found = minimax(&[of(1.1, 1.2, 1.3), of(1.25, 1.4, 1.6), of(1.31, 1.5, 1.7)]).unwrap();
        assert_eq!((found.choice, found.open), (0, vec![1]));
    }

    proptest! {
        #[test]
        fn no_other_choice_has_a_smaller_largest_loss(
            losses in prop::collection::vec(prop::collection::vec(1.0..9.0f64, 5), 1..6)
        ) {
            let table: Vec<Vec<Interval>> =
                losses.iter().map(|losses| losses.iter().copied().map(Interval::exactly).collect()).collect();
            let found = minimax(&table).unwrap();
            let most = |losses: &Vec<f64>| losses.iter().copied().fold(1.0, f64::max);
            prop_assert_eq!(found.worst[found.choice].0.middle, most(&losses[found.choice]));
            prop_assert!(losses.iter().all(|other| most(other) >= most(&losses[found.choice])));
        }
    }
}
