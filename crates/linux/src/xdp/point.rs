//! The two kinds of hook of an interface.

use std::fmt;

use machine::XdpMode;
use machine::site::Direction;

use super::program::ProgramKind;

/// The hook of a [`super::Chain`]'s programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The driver hook, which one link has alone.
    Xdp(XdpMode),
    /// The tc hook, which is shared with programs of others.
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

/// Most programs at one hook: `STAGES` of `dispatcher.h`.
pub const MOST_STAGES: usize = 10;
/// Most verdicts of any hook.
pub(super) const MOST_VERDICTS: usize = 5;

impl Point {
    /// Most programs that it takes: a NIC gets one, unchanged.
    pub fn most(self) -> usize {
        if self == Point::Xdp(XdpMode::Hardware) { 1 } else { MOST_STAGES }
    }

    /// The verdicts of programs there: at the driver hook numbered from 0, at the tc hook as in the kernel.
    pub fn verdicts(self) -> &'static [&'static str] {
        match self {
            Point::Xdp(_) => &["ABORTED", "DROP", "PASS", "TX", "REDIRECT"],
            Point::Tc(_) => &["NEXT", "PASS", "DROP", "REDIRECT"],
        }
    }

    /// Verdicts after which, by default, the next program sees the packet, one bit each.
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
