//! What a rank did outside MPI.

use machine::Reading;
use serde::{Deserialize, Serialize};

/// Time outside MPI; known parts of `on_core`, `runnable`, `stopped`, `blocked` add up to `compute`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    /// Only this depends on the core.
    pub on_core: Reading<f64>,
    /// Others had its core.
    pub runnable: Reading<f64>,
    /// By a signal or a debugger.
    pub stopped: Reading<f64>,
    /// Asleep, or waiting for a lock, for storage or for another process.
    pub blocked: Reading<f64>,
    /// Of `blocked`: until a time that it had set.
    pub sleep: Reading<f64>,
    /// Of `blocked`: for a lock that another held.
    pub lock: Reading<f64>,
    /// Of `blocked`: for a disk, a file system, paged memory.
    pub storage: Reading<f64>,
}

/// The main cause of a rank's blocked time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    Sleep,
    Lock,
    Storage,
    /// A cause that the kernel does not state, or several causes.
    Unknown,
}

impl Stall {
    /// As in 'rank 1 was ... for 97 % of its time'.
    pub fn words(self) -> &'static str {
        match self {
            Stall::Sleep => "asleep outside MPI",
            Stall::Lock => "waiting for a lock outside MPI",
            Stall::Storage => "waiting for storage outside MPI",
            Stall::Unknown => "blocked outside MPI",
        }
    }

    /// The cause of more than half of `blocked`.
    pub fn most(blocked: f64, [sleep, lock, storage]: [f64; 3]) -> Stall {
        let known = [(Stall::Sleep, sleep), (Stall::Lock, lock), (Stall::Storage, storage)];
        known.into_iter().find(|(_, seconds)| *seconds > 0.5 * blocked).map_or(Stall::Unknown, |(stall, _)| stall)
    }
}

impl Outside {
    /// All parts absent for one reason.
    pub fn absent(reason: &str) -> Outside {
        let absent = || Reading::absent(reason);
        Outside {
            on_core: absent(),
            runnable: absent(),
            stopped: absent(),
            blocked: absent(),
            sleep: absent(),
            lock: absent(),
            storage: absent(),
        }
    }

    /// Seconds blocked, and their main cause; `None` where unknown.
    pub fn stall(&self) -> Option<(f64, Stall)> {
        let blocked = *self.blocked.value()?;
        let part = |reading: &Reading<f64>| reading.value().copied().unwrap_or(0.0);
        Some((blocked, Stall::most(blocked, [&self.sleep, &self.lock, &self.storage].map(part))))
    }
}

impl Default for Outside {
    fn default() -> Self {
        Outside::absent("nothing was sampled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_named_by_what_most_of_it_was_for() {
        let of = |parts: [f64; 3]| {
            let [sleep, lock, storage] = parts.map(Reading::Measured);
            Outside { blocked: Reading::Measured(1.0), sleep, lock, storage, ..Outside::default() }
        };
        let stall = |parts| of(parts).stall().map(|(_, stall)| stall);
        assert_eq!(stall([0.9, 0.1, 0.0]), Some(Stall::Sleep));
        assert_eq!(stall([0.1, 0.8, 0.1]), Some(Stall::Lock));
        assert_eq!(stall([0.0, 0.0, 0.6]), Some(Stall::Storage));
        assert_eq!(stall([0.4, 0.4, 0.2]), Some(Stall::Unknown));
        assert_eq!(Outside::default().stall(), None);
    }
}
