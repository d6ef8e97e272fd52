//! How much work a question may cost, counted and not timed, so that the same question gets the same answer.

/// What the solver may spend.
///
/// Without [`Effort::stop`] the answer depends on the layout, the seed and the steps alone, on every machine.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// Seed of the random moves; another one may find another plan.
    pub seed: u64,
    /// What may be spent. [`crate::solve`] counts one step for each move that it tries; [`crate::prove`] counts, for
    /// each node of its tree, the merged groups plus an eighth of the product of channels and sites. With the default,
    /// [`crate::solve`] answers in less than 50 ms at 200 units and 16 sites.
    pub steps: u64,
    /// Called now and then; `true` ends the search with the best answer so far. A caller that wants a time limit reads
    /// its clock here.
    pub stop: Option<&'a dyn Fn() -> bool>,
}

impl Default for Effort<'_> {
    fn default() -> Self {
        Effort { seed: 1, steps: 700_000, stop: None }
    }
}

impl Effort<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }
}

impl std::fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effort").field("seed", &self.seed).field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Wyrand's cousin splitmix64: one multiplication chain a number, no state but a counter.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, from 32 random bits.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }
}
