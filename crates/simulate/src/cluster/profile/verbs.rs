//! An offload adapter behind verbs: queue pairs, and one engine a host (papers 000 and 004).

use super::{Place, Progress, Row, Waiting};

pub const NAME: &str = "verbs";

pub const SHAPE: (Place, Progress, Waiting, bool) = (Place::Device, Progress::Device, Waiting::Spin, false);

const SERVER: &str =
    "paper 004, Figures 4 and 6: u = 75,400 cells' worth a step for 12 cores, against PSM's 15,300 on each";
const STREAM: &str = "paper 000, IV.A: -0.5 % at 2.9 GHz, a = 0.016 of a byte's time, which is taken as 0.25 ns";

pub const ROWS: [Row; 10] = [
    ("unit", 8192.0, "B", "assumed: what is handed on while the rest comes"),
    ("eager", 8192.0, "B", "paper 000, IV.A: the step after 8 KiB"),
    ("hand.message", 100.0, "ns", "assumed: a descriptor and a doorbell"),
    ("take.message", 100.0, "ns", "assumed: polling a completion, and matching"),
    ("send.message", 205.0, "ns", SERVER),
    ("receive.message", 205.0, "ns", SERVER),
    ("take.byte", 0.004, "ns/B", STREAM),
    ("inside.message", 100.0, "ns", "assumed: a queue in shared memory"),
    ("inside.byte", 0.1, "ns/B", "assumed: 10 GB/s of memory"),
    ("inside.latency", 100.0, "ns", "assumed: a cache line to another core"),
];
