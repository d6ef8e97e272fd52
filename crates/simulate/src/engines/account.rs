//! The split of a rank's time.

use crate::cluster::Split;

/// The split of a rank's time until now, and its present activity.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    pub split: Split,
    until: u64,
    computes_until: u64,
    sends: u32,
}

impl Account {
    fn pass(&mut self, now: u64) {
        let passed = now.saturating_sub(self.until);
        let computing = self.computes_until.saturating_sub(self.until).min(passed);
        let other = if self.sends > 0 { &mut self.split.sending } else { &mut self.split.waiting };
        *other += passed - computing;
        self.split.computing += computing;
        self.until = self.until.max(now);
    }

    pub fn computes(&mut self, from: u64, to: u64) {
        self.pass(from);
        self.computes_until = self.computes_until.max(to);
    }

    pub fn sends(&mut self, from: u64) {
        self.pass(from);
        self.sends += 1;
    }

    /// Notes that an operation of the rank is over.
    pub fn ends(&mut self, now: u64, is_send: bool) {
        self.pass(now);
        self.sends -= u32::from(is_send);
    }
}
