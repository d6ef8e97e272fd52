//! MPICH2's socket channel over the kernel's TCP (paper 002).

use super::{Place, Progress, Row, Waiting};

pub const NAME: &str = "mpich-tcp";

pub const SHAPE: (Place, Progress, Waiting, bool) = (Place::Softirq, Progress::Calls, Waiting::Spin, true);

const B1: &str =
    "paper 002, 5.1, Figure 2: 1/2, 1/3 and 1/2.2 ns a bit, of both solutions that with the larger softirq work";
const SIZE: &str = "paper 002, 6.2, names the buffer and gives no size: within what claims sweep";
const SHARE: &str = "assumed: no paper has it; a middle of what claims sweep";

pub const ROWS: [Row; 11] = [
    ("unit", 16384.0, "B", "assumed: what a call moves at once"),
    ("library", 262144.0, "B", SIZE),
    ("socket", 131072.0, "B", SIZE),
    ("copy.byte", 0.25, "ns/B", "assumed: 4 GB/s of memory, paper 002's 667 MHz DDR2"),
    ("hand.byte", 0.73, "ns/B", SHARE),
    ("take.byte", 8.0 / 6.0, "ns/B", B1),
    ("receive.byte", 8.0 / 3.0, "ns/B", B1),
    ("acknowledge.byte", 0.2, "ns/B", SHARE),
    ("inside.byte", 1.46, "ns/B", SHARE),
    ("far.hand", 30.0 / 11.0, "times", B1),
    ("far.take", 30.0 / 11.0, "times", B1),
];
