//! Times when a rank was outside of MPI, where most libraries move no data.

/// Shortest absence that is kept, ns; shorter ones do not matter, and are many.
pub const SHORTEST: i64 = 2_000;

/// Stretches of a rank's time in which none of its threads was in MPI, in ns, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Absences {
    stretches: Vec<(i64, i64)>,
    /// The end of the latest call so far.
    inside_until: Option<i64>,
}

impl Absences {
    /// Adds a call; calls come in the order in which they were entered.
    pub fn call(&mut self, entered: i64, left: i64) {
        if let Some(until) = self.inside_until
            && entered - until >= SHORTEST
        {
            self.stretches.push((until, entered));
        }
        self.inside_until = Some(self.inside_until.map_or(left, |until| until.max(left)));
    }

    /// The absence between two moments, ns, without a stretch that lasts beyond `to`, and less the time in each stretch
    /// in which, by `off`, the rank could not run.
    pub fn within(&self, from: i64, to: i64, off: impl Fn(i64, i64) -> i64) -> i64 {
        let first = self.stretches.partition_point(|(_, end)| *end <= from);
        let over = self.stretches[first..].iter().take_while(|(_, end)| *end <= to);
        let parts = over.map(|(start, end)| ((*start).max(from), *end));
        parts.map(|(start, end)| (end - start - off(start, end)).max(0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_over_counts_and_only_from_then_on() {
        let mut away = Absences::default();
        for (entered, left) in [(0, 1_000), (2_000, 3_000), (13_000, 14_000), (13_500, 20_000), (50_000, 51_000)] {
            away.call(entered, left);
        }
        assert_eq!(away.stretches, [(3_000, 13_000), (20_000, 50_000)]);
        let never = |_, _| 0;
        assert_eq!(away.within(0, 60_000, never), 40_000);
        assert_eq!(away.within(8_000, 40_000, never), 5_000);
        assert_eq!(away.within(14_000, 19_000, never), 0);
        assert_eq!(away.within(0, 60_000, |start, end| (end - start) / 2), 20_000);
    }
}
