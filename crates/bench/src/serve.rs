//! `plimsoll serve`: answers benches of other hosts, as iperf3's server does, and trusts none of them.

use machine::Bytes;

/// Largest message of any bench.
pub const LARGEST: Bytes = Bytes(64 << 20);
