//! Intervals from residuals of earlier predictions: conformal quantiles over groups.
//!
//! A group is what its residuals share beyond chance, such as the program that was run, so that all its residuals together
//! weigh as much as those of any other group (Dunn, Wasserman and Ramdas, JASA 118, 2023). The intervals are symmetric: with
//! few groups, an end of its own for each side would be infinite.

use std::collections::BTreeMap;

use crate::statistics::median;

/// The fewest groups of which a quantile is told.
const GROUPS: usize = 9;

/// The residual of one prediction: outcome less prediction, on a scale on which all are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    pub group: u32,
    pub residual: f64,
}

/// The interval that the next residual is expected in: `bias - half` to `bias + half`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    pub bias: f64,
    pub half: f64,
    pub groups: usize,
}

impl Quantile {
    pub fn holds(&self, residual: f64) -> bool {
        (residual - self.bias).abs() <= self.half
    }
}

/// The interval that holds the next group's residual at this level, 0 to 1; `None` of fewer than nine groups.
///
/// Half a group is added to the level. Adding a whole one would guarantee the level, and make the interval infinite below 20
/// groups at 95 %; so it is capped at the largest residual, and [`leave_one_out`] shows what it covers.
pub fn quantile(of: &[Scored], level: f64) -> Option<Quantile> {
    let mut by_group: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for scored in of {
        by_group.entry(scored.group).or_default().push(scored.residual);
    }
    let groups = by_group.len();
    if groups < GROUPS {
        return None;
    }
    let bias = shared_bias(&by_group.values().filter_map(|residuals| median(residuals)).collect::<Vec<f64>>());
    let weigh = |residuals: &Vec<f64>| {
        let weight = 1.0 / residuals.len() as f64;
        residuals.iter().map(|residual| ((residual - bias).abs(), weight)).collect::<Vec<_>>()
    };
    let mut distances: Vec<(f64, f64)> = by_group.values().flat_map(weigh).collect();
    distances.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    // Sums of weights are rounded.
    let asked = level * groups as f64 + 0.5 - 1e-9;
    let mut below = 0.0;
    let reaches = |(_, weight): &&(f64, f64)| {
        below += weight;
        below >= asked
    };
    let (half, _) = distances.iter().find(reaches).or(distances.last())?;
    Some(Quantile { bias, half: *half, groups })
}

/// The median of groups' medians where at least three of four have its sign, else 0.
fn shared_bias(medians: &[f64]) -> f64 {
    let above = medians.iter().filter(|median| **median > 0.0).count();
    let below = medians.iter().filter(|median| **median < 0.0).count();
    if 4 * above.max(below) >= 3 * medians.len() { median(medians).unwrap_or(0.0) } else { 0.0 }
}

/// Whether each residual lies in the interval of all groups but its own; `false` where those are too few.
pub fn leave_one_out(of: &[Scored], level: f64) -> Vec<bool> {
    let mut without: BTreeMap<u32, Option<Quantile>> = BTreeMap::new();
    let mut of_others = |group: u32| {
        *without.entry(group).or_insert_with(|| {
            let others: Vec<Scored> = of.iter().filter(|other| other.group != group).copied().collect();
            quantile(&others, level)
        })
    };
    of.iter().map(|scored| of_others(scored.group).is_some_and(|others| others.holds(scored.residual))).collect()
}

/// The interval score of positive values, on natural logarithms: the width, and for a miss its distance times 2 / (1 - level).
/// Lower is better (Gneiting and Raftery, JASA 102, 2007, equation 43).
pub fn interval_score(low: f64, high: f64, outcome: f64, level: f64) -> f64 {
    let outside = (low / outcome).ln().max(0.0) + (outcome / high).ln().max(0.0);
    (high / low).ln() + 2.0 / (1.0 - level) * outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn normal(random: &mut Random) -> f64 {
        let (u, v) = (1.0 - random.unit(), random.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Residuals with an effect of the group, unequal numbers a group, and tails of Student's t with three degrees.
    fn residuals(random: &mut Random, groups: u32, bias: f64) -> Vec<Scored> {
        let mut all = Vec::new();
        for group in 0..groups {
            let effect = bias + normal(random);
            for _ in 0..=random.below(6) {
                let squares: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                all.push(Scored { group, residual: effect + normal(random) / (squares / 3.0).sqrt() });
            }
        }
        all
    }

    #[test]
    fn nine_of_ten_residuals_of_a_new_group_lie_in_the_interval() {
        for (groups, bias) in [(10, 0.0), (17, 0.0), (17, 2.0), (40, -1.0)] {
            let mut random = Random::new(u64::from(groups));
            // A group weighs the same, whatever its number of residuals.
            let (mut held, mut all) = (0.0, 0.0);
            for _ in 0..60 {
                let scored = residuals(&mut random, groups, bias);
                for (judged, of) in leave_one_out(&scored, 0.9).into_iter().zip(&scored) {
                    let weight = 1.0 / scored.iter().filter(|other| other.group == of.group).count() as f64;
                    all += weight;
                    held += if judged { weight } else { 0.0 };
                }
            }
            let share: f64 = held / all;
            assert!((0.87..0.95).contains(&share), "{groups} groups, bias {bias}: {share}");
        }
    }

    #[test]
    fn a_group_weighs_the_same_whatever_its_number_and_never_judges_itself() {
        let scored = residuals(&mut Random::new(1), 12, 0.5);
        let judged = leave_one_out(&scored, 0.9);
        let repeated: Vec<Scored> = scored.iter().chain(scored.iter().filter(|of| of.group == 3)).copied().collect();
        assert_eq!(quantile(&repeated, 0.9), quantile(&scored, 0.9));
        assert_eq!(leave_one_out(&repeated, 0.9)[..scored.len()], judged);
        let mut far = scored.clone();
        far.iter_mut().filter(|of| of.group == 3).for_each(|of| of.residual = 100.0);
        let of_others: Vec<Scored> = scored.iter().filter(|of| of.group != 3).copied().collect();
        assert!(quantile(&far, 0.9).unwrap().half > quantile(&of_others, 0.9).unwrap().half);
        let held_far = leave_one_out(&far, 0.9);
        for (of, held) in far.iter().zip(held_far) {
            assert!(of.group != 3 || !held, "{of:?}");
        }
    }

    #[test]
    fn intervals_widen_with_the_level_up_to_the_largest_residual() {
        let scored = residuals(&mut Random::new(2), 20, 0.0);
        let halves: Vec<f64> = (0..=20).map(|level| quantile(&scored, f64::from(level) / 20.0).unwrap().half).collect();
        assert!(halves.is_sorted() && halves[0] < halves[18], "{halves:?}");
        let bias = quantile(&scored, 0.5).unwrap().bias;
        let largest = scored.iter().map(|of| (of.residual - bias).abs()).fold(0.0, f64::max);
        assert_eq!(halves[20], largest);
    }

    #[test]
    fn a_bias_is_taken_off_where_three_of_four_groups_share_it() {
        let of = |above: u32| {
            let residual = |group| if group < above { 1.0 + f64::from(group) / 100.0 } else { -1.0 };
            (0..12).map(|group| Scored { group, residual: residual(group) }).collect::<Vec<_>>()
        };
        assert_eq!(quantile(&of(8), 0.9).map(|of| of.bias), Some(0.0));
        let shared = quantile(&of(9), 0.5).unwrap();
        assert!((1.0..1.1).contains(&shared.bias) && shared.half < 0.1 && shared.groups == 12, "{shared:?}");
    }

    #[test]
    fn fewer_than_nine_groups_give_no_interval() {
        let scored = residuals(&mut Random::new(3), 9, 0.0);
        assert!(quantile(&scored, 0.9).is_some());
        assert!(leave_one_out(&scored, 0.9).iter().all(|held| !held), "each has eight others");
        assert_eq!(quantile(&[], 0.9), None);
    }

    #[test]
    fn a_miss_costs_its_distance_over_half_the_error() {
        let e = std::f64::consts::E;
        let score = |outcome| interval_score(1.0, e, outcome, 0.9);
        for (outcome, expected) in [(1.5, 1.0), (e * e, 21.0), (1.0 / e, 21.0)] {
            assert!((score(outcome) - expected).abs() < 1e-9, "{outcome}: {}", score(outcome));
        }
    }
}
