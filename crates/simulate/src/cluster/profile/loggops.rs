//! The simplest protocol: a message takes `o` of either rank's core and as much a byte, and nothing else is short.
//!
//! By the rules of `simulate::loggops` where its interfaces are never the bottleneck: `g <= o` and `G <= O`.

use super::{Place, Progress, Row, Waiting};

pub const NAME: &str = "loggops";

pub const SHAPE: (Place, Progress, Waiting, bool) = (Place::Rank, Progress::Between, Waiting::Sleep, false);

const LOGGOPSIM: &str = "LogGOPSim's default";

pub const ROWS: [Row; 5] = [
    ("eager", 65535.0, "B", LOGGOPSIM),
    ("hand.message", 1500.0, "ns", LOGGOPSIM),
    ("take.message", 1500.0, "ns", LOGGOPSIM),
    ("hand.byte", 0.0, "ns/B", LOGGOPSIM),
    ("take.byte", 6.0, "ns/B", "LogGOPSim's default: G"),
];
