//! An onload adapter behind PSM: matching and transport on the rank's own core (papers 000 and 004).

use super::{Place, Progress, Row, Waiting};

pub const NAME: &str = "psm";

pub const SHAPE: (Place, Progress, Waiting, bool) = (Place::Rank, Progress::Calls, Waiting::Spin, false);

const SCALE: &str = "assumed: 1 us a message on a core; paper 004 fixes the ratio to the rival's engine alone";
const STREAM: &str =
    "paper 000, IV.A: -2.5 % at 2.9 and -35.1 % at 1.9 GHz, s + k x of a byte's time, which is taken as 0.25 ns";

pub const ROWS: [Row; 10] = [
    ("unit", 8192.0, "B", "assumed: what is handed on while the rest comes"),
    ("eager", 8192.0, "B", "paper 000, IV.A: the step after 8 KiB"),
    ("send.message", 500.0, "ns", SCALE),
    ("receive.message", 500.0, "ns", SCALE),
    // k = 0.747 and s = 0.047 of 0.25 ns.
    ("receive.byte", 0.18675, "ns/B", STREAM),
    ("receive.fixed", 0.01175, "ns/B", STREAM),
    ("send.byte", 0.05, "ns/B", "assumed: the sender is not the bottleneck"),
    ("inside.message", 100.0, "ns", "assumed: a queue in shared memory"),
    ("inside.byte", 0.1, "ns/B", "assumed: 10 GB/s of memory"),
    ("inside.latency", 100.0, "ns", "assumed: a cache line to another core"),
];
