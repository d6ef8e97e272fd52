//! A total that several parties draw from and never exceed together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An amount that may be drawn, possibly as a part of a larger budget.
#[derive(Debug)]
pub struct Budget {
    total: u64,
    drawn: AtomicU64,
    whole: Option<Arc<Budget>>,
}

/// Which budget has not enough left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The budget that was drawn from.
    Own,
    /// The larger budget that it is a part of: other parts have drawn the rest.
    Whole,
}

impl Budget {
    /// A budget that is part of no other.
    pub fn new(total: u64) -> Arc<Budget> {
        Arc::new(Budget { total, drawn: AtomicU64::new(0), whole: None })
    }

    /// A part of this budget: what is drawn from the part is drawn from this budget too.
    pub fn part(self: &Arc<Self>, total: u64) -> Arc<Budget> {
        Arc::new(Budget { total, drawn: AtomicU64::new(0), whole: Some(self.clone()) })
    }

    /// The most that may be drawn from this budget at one time.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The total of the larger budget that this is a part of, or its own where it is none.
    pub fn total_of_all(&self) -> u64 {
        self.whole.as_ref().map_or(self.total, |whole| whole.total)
    }

    /// The amount drawn from this budget at present.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Draws `amount`, until the share is dropped.
    pub fn draw(self: &Arc<Self>, amount: u64) -> Result<Share, Exhausted> {
        self.take(amount)?;
        Ok(Share { of: self.clone(), amount })
    }

    fn take(&self, amount: u64) -> Result<(), Exhausted> {
        let fits = |drawn: u64| drawn.checked_add(amount).filter(|sum| *sum <= self.total);
        self.drawn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| Exhausted::Own)?;
        if let Some(whole) = &self.whole
            && whole.take(amount).is_err()
        {
            self.drawn.fetch_sub(amount, Ordering::Relaxed);
            return Err(Exhausted::Whole);
        }
        Ok(())
    }

    fn give_back(&self, amount: u64) {
        self.drawn.fetch_sub(amount, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(amount);
        }
    }
}

/// An amount drawn from a budget; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    of: Arc<Budget>,
    amount: u64,
}

impl Share {
    /// Draws more, or gives some back. Where the budget has not enough, nothing changes.
    pub fn resize(&mut self, amount: u64) -> Result<(), Exhausted> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.of.take(more)?,
            None => self.of.give_back(self.amount - amount),
        }
        self.amount = amount;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_within_themselves_and_within_the_whole() {
        let all = Budget::new(10);
        let (one, two) = (all.part(6), all.part(6));
        let mut share = one.draw(6).unwrap();
        assert_eq!(one.draw(1).unwrap_err(), Exhausted::Own);
        assert_eq!(two.draw(5).unwrap_err(), Exhausted::Whole);
        assert_eq!((two.drawn(), all.drawn()), (0, 6), "what is refused is not drawn");
        let _rest = two.draw(4).unwrap();
        assert_eq!(share.resize(7).unwrap_err(), Exhausted::Own);
        share.resize(2).unwrap();
        assert_eq!((one.drawn(), all.drawn()), (2, 6));
        assert_eq!(one.draw(u64::MAX).unwrap_err(), Exhausted::Own);
        drop(share);
        assert_eq!((one.drawn(), all.drawn()), (0, 4));
    }

    #[test]
    fn threads_that_draw_at_once_do_not_pass_the_total() {
        let all = Budget::new(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let part = all.part(60);
                    for round in 0..10_000 {
                        let shares = [part.draw(40), part.draw(round % 50)];
                        assert!(all.drawn() <= all.total());
                        drop(shares);
                    }
                });
            }
        });
        assert_eq!(all.drawn(), 0);
    }
}
