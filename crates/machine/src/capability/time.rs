//! The taken share of a core, computed from how its time passed.

use crate::reading::Reading;

/// How the time of one core passed, as shares of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreTime {
    /// Share in which the core was not idle; time that a hypervisor gave to others counts as busy.
    pub busy: f64,
    /// Share in which the job's threads ran, by the kernel's account of these threads.
    pub own: f64,
    /// Share that the kernel charges to whatever thread was interrupted: softirqs, except on kernels that account
    /// interrupts apart, and time that a hypervisor took.
    pub interrupted: Reading<f64>,
}

impl CoreTime {
    /// [`taken`](super::CoreCapability::taken). Interruptions are assumed to strike the job's threads in proportion to
    /// the time that these had the core.
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

/// The share of the time in which at least one of a core's siblings was busy; several are assumed to be independent.
pub fn sibling(busy: impl IntoIterator<Item = f64>) -> Reading<f64> {
    let all: Vec<f64> = busy.into_iter().map(|busy| busy.clamp(0.0, 1.0)).collect();
    match all[..] {
        [] => Reading::Measured(0.0),
        [one] => Reading::Measured(one),
        _ => Reading::Modelled(1.0 - all.iter().map(|busy| 1.0 - busy).product::<f64>()),
    }
}
