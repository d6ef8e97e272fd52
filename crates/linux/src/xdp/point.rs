//! The two kinds of hook that an interface has for programs.

use std::fmt;

use machine::XdpMode;
use machine::site::Direction;

use super::program::ProgramKind;

/// Where the programs of a [`super::Chain`] run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The driver hook. One link has it alone.
    Xdp(XdpMode),
    /// The tc hook, which programs of others share.
    Tc(Direction),
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Xdp(mode) => write!(f, "{} mode", mode),
            Point::Tc(direction) => write!(f, "tc {direction}"),
        }
    }
}

impl From<XdpMode> for Point {
    fn from(mode: XdpMode) -> Point {
        Point::Xdp(mode)
    }
}

impl From<Direction> for Point {
    fn from(direction: Direction) -> Point {
        Point::Tc(direction)
    }
}

/// The most programs at one hook: `STAGES` of `dispatcher.h`.
pub const MOST_STAGES: usize = 10;
/// The most verdicts of any hook.
pub(super) const MOST_VERDICTS: usize = 5;

impl Point {
    /// How many programs it takes: a NIC gets one, as it is.
    pub fn most(self) -> usize {
        if self == Point::Xdp(XdpMode::Hardware) { 1 } else { MOST_STAGES }
    }

    /// What a program there may return. At the driver hook they are numbered from 0, at the tc hook as the kernel has them.
    pub fn verdicts(self) -> &'static [&'static str] {
        match self {
            Point::Xdp(_) => &["ABORTED", "DROP", "PASS", "TX", "REDIRECT"],
            Point::Tc(_) => &["NEXT", "PASS", "DROP", "REDIRECT"],
        }
    }

    /// Those after which the next program sees the packet unless it is said otherwise, a bit each.
    pub fn usual_chains(self) -> u32 {
        match self {
            Point::Xdp(_) => 1 << 2,
            Point::Tc(_) => 1 << 0 | 1 << 1,
        }
    }

    pub fn kind(self) -> ProgramKind {
        match self {
            Point::Xdp(_) => ProgramKind::Xdp,
            Point::Tc(_) => ProgramKind::Tc,
        }
    }
}
