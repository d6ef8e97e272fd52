//! Residuals after a change of what messages cost.

use std::borrow::Cow;

use crate::graph::Graph;
use crate::lever::Scale;

/// The least number of calls of a class from which a usual residual can be told.
const USUAL: usize = 8;

/// By class: the median of its residuals, ps; 0 where its calls are too few.
pub(super) fn typical(graph: &Graph, residuals: &[i64]) -> Vec<f64> {
    let mut of_class: Vec<Vec<i64>> = vec![Vec::new(); graph.classes.len()];
    for (class, residual) in graph.calls.class.iter().zip(residuals) {
        of_class[*class as usize].push(*residual);
    }
    let median = |mut all: Vec<i64>| {
        if all.len() < USUAL {
            return 0.0;
        }
        let middle = all.len() / 2;
        *all.select_nth_unstable(middle).1 as f64
    };
    of_class.into_iter().map(median).collect()
}

/// Residuals after a change, each by the scale of its class, whose usual residual is in `typical`.
pub(super) fn scaled<'r>(residuals: &'r [i64], typical: &[f64], graph: &Graph, scale: &[Scale]) -> Cow<'r, [i64]> {
    // Residuals scaled by many orders of magnitude must not exceed the range of instants.
    let most = i64::MAX / 8 / graph.len().max(1) as i64;
    let mut residuals = Cow::Borrowed(residuals);
    if !scale.iter().all(Scale::is_same) {
        for (residual, class) in residuals.to_mut().iter_mut().zip(&graph.calls.class) {
            let (scale, typical) = (scale[*class as usize], typical[*class as usize]);
            if !scale.is_same() {
                let most = most.max(residual.abs());
                *residual = (scale.of(*residual as f64, typical) as i64).clamp(-most, most);
            }
        }
    }
    residuals
}

#[cfg(test)]
mod tests {
    use record::functions::named;

    use super::*;
    use crate::graph::{Adding, Builder};

    #[test]
    fn noise_stays_whatever_messages_cost() {
        let scale = Scale { ratio: 10.0, beyond: 10.0, modelled: 300.0, follows: 1.0 };
        // A call that lost its core for a while, in a class that the model explains, and in one with a usual residual of 500.
        assert_eq!(scale.of(50_000.0, 0.0), 50_000.0 + 9.0 * 300.0);
        assert_eq!(scale.of(50_000.0, 500.0), 50_000.0 + 9.0 * 500.0);
        assert_eq!(scale.of(500.0, 500.0), 5_000.0);
        assert_eq!(scale.of(-200.0, 500.0), -2_000.0);
        // The wire is in the modelled cost alone.
        assert_eq!(Scale { beyond: 1.0, ..scale }.of(50_000.0, 500.0), 50_000.0 + 9.0 * 300.0);
        assert_eq!(Scale { follows: 0.0, ..scale }.of(700.0, 500.0), 700.0);
    }

    #[test]
    fn what_is_usual_is_told_of_classes_with_calls_enough() {
        let mut builder = Builder::new(vec![0], 0);
        builder.lane(0, 0);
        let of = |name| Adding { function: named(name).unwrap().id, gap: 0, inside: 0, opaque: false };
        (0..9).for_each(|_| builder.call(of("Send"), &[]));
        (0..2).for_each(|_| builder.call(of("Recv"), &[]));
        let graph = builder.finish();
        let residuals = [7, 7, 7, 7, 7, 9_000, 7, 8, 5, 1_000, 1_000];
        assert_eq!(typical(&graph, &residuals), [7.0, 0.0]);
    }
}
