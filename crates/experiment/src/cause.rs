//! Causes for which a run does not count.

use std::fmt;

/// A run that failed, was cut short, or ran under other conditions than requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    pub words: String,
}

machine::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause ("cause") {
        SetupFailed = "set-up failed",
        ProgramFailed = "program failed",
        /// The run did not end in time.
        TimedOut = "out of time",
        CheckFailed = "check failed",
        /// The output lacks a figure.
        FigureMissing = "figure missing",
        NodeLost = "node lost",
        SensorStopped = "sensor stopped",
        DiskFull = "disk full",
        ClockChanged = "clock changed",
        /// The clock cannot be set, or cores do not run at it.
        ClockNotSet = "clock not set",
        /// This process was told to end.
        Preempted = "preempted",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.words)
    }
}

impl Failure {
    pub fn new(cause: Cause, words: impl Into<String>) -> Failure {
        Failure { cause, words: words.into() }
    }

    /// The failure of a run by its messages: a lost node and a full disk are not the point's fault.
    pub fn of_program(words: impl Into<String>, said: &str) -> Failure {
        let words = words.into();
        let says = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign) || words.contains(sign));
        let cause = if says(&NODE_LOST) {
            Cause::NodeLost
        } else if says(&DISK_FULL) {
            Cause::DiskFull
        } else if says(&[CLOCK_NOT_HELD]) {
            Cause::ClockNotSet
        } else {
            Cause::ProgramFailed
        };
        Failure::new(cause, words)
    }
}

/// Messages of Slurm, PBS, Open MPI, PRRTE and Hydra about a lost node.
const NODE_LOST: [&str; 9] = [
    "NODE FAIL",
    "Node failure",
    "node failure",
    "NodeFail",
    "lost communication with a remote daemon",
    "lost connection to a daemon",
    "Communication connection failure",
    "Lost connection to PBS",
    "HYD_pmcd_pmi_serv exited unexpectedly",
];

/// Message of `plimsoll clock --held` when cores do not run at the clock.
pub const CLOCK_NOT_HELD: &str = "its cores do not hold it";

/// Messages of the C library about a full disk.
const DISK_FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

impl Cause {
    /// Whether the point itself may be at fault, and another run of it is likely to fail too.
    pub fn is_of_point(self) -> bool {
        use Cause::{CheckFailed, FigureMissing, ProgramFailed, SetupFailed, TimedOut};
        matches!(self, SetupFailed | ProgramFailed | TimedOut | CheckFailed | FigureMissing)
    }

    /// Whether all further runs here are expected to fail too.
    pub fn ends_all(self) -> bool {
        matches!(self, Cause::NodeLost | Cause::DiskFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for cause in Cause::ALL {
            assert_eq!(cause.to_string().parse().ok(), Some(cause));
        }
        assert!("".parse::<Cause>().is_err());
    }

    #[test]
    fn a_lost_node_and_a_full_disk_are_told_from_a_program_that_fails() {
        let of = |said: &str| Failure::of_program("exit code 1", said).cause;
        assert_eq!(of("srun: error: Node failure on n2"), Cause::NodeLost);
        assert_eq!(of("ORTE has lost communication with a remote daemon."), Cause::NodeLost);
        assert_eq!(of("write: No space left on device"), Cause::DiskFull);
        assert_eq!(of("segmentation fault"), Cause::ProgramFailed);
    }
}
