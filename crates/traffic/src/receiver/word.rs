//! Where each word of a queue's result is; the same in C: `crates/bpf/src/programs/traffic.h`.

pub const RECEIVED: usize = 0;
pub const BYTES: usize = 1;
pub const FOREIGN: usize = 2;
pub const FIRST_NS: usize = 3;
pub const LAST_NS: usize = 4;
pub const NEXT: usize = 5;
pub const LOWEST: usize = 6;
pub const DUPLICATED: usize = 7;
pub const REORDERED: usize = 8;
pub const STALE: usize = 9;
pub const GAPS: usize = 10;
pub const GAP_MAX_NS: usize = 11;
pub const GAP_MIN_NS: usize = 12;
pub const SQUARES_LOW: usize = 13;
pub const SQUARES_HIGH: usize = 14;
pub const BURSTS: usize = 15;
pub const WITHIN_64: usize = 16;
pub const WITHIN_128: usize = 17;
pub const WITHIN_256: usize = 18;
pub const WITHIN_512: usize = 19;
pub const WITHIN_1000: usize = 20;
pub const WINDOW: usize = 32;
pub const HISTOGRAM: usize = 64;
pub const WORDS: usize = 1088;

/// Queues that are counted apart; further ones share the last.
pub const QUEUES: usize = 8;
