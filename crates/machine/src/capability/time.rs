//! From how the time of a core passed to what is taken of it.

use crate::reading::Reading;

/// How the time of one core passed, as shares of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreTime {
    /// It was not idle; what a hypervisor gave to others counts.
    pub busy: f64,
    /// The job's threads had it, by the kernel's account of these threads.
    pub own: f64,
    /// What comes on top of whatever thread is there and is in the kernel's account of that thread: softirqs, except on kernels that
    /// account interrupts apart, and what a hypervisor took.
    pub interrupted: Reading<f64>,
}

impl CoreTime {
    /// [`taken`](super::CoreCapability::taken). What the account of the job's threads has, and the job did not do, is taken to strike the
    /// job as often as the job had the core.
    pub fn taken(&self) -> Reading<f64> {
        let own = self.own.clamp(0.0, 1.0);
        let beside = (self.busy - own).clamp(0.0, 1.0);
        let interrupted = self.interrupted.value().copied().unwrap_or(0.0).clamp(0.0, 1.0);
        let taken = (beside + interrupted * own).max(interrupted).min(1.0);
        match self.interrupted {
            Reading::Measured(0.0) => Reading::Measured(taken),
            _ if own == 0.0 => Reading::Measured(taken),
            _ => Reading::Modelled(taken),
        }
    }
}

/// Of one core with several siblings: the share of the time that one of them at least was busy, as if each were by itself.
pub fn sibling(busy: impl IntoIterator<Item = f64>) -> Reading<f64> {
    let all: Vec<f64> = busy.into_iter().map(|busy| busy.clamp(0.0, 1.0)).collect();
    match all[..] {
        [] => Reading::Measured(0.0),
        [one] => Reading::Measured(one),
        _ => Reading::Modelled(1.0 - all.iter().map(|busy| 1.0 - busy).product::<f64>()),
    }
}
