//! The size of the last-level cache, which buffers without cache effects must exceed.

use machine::topology::Topology;
use machine::{Bytes, Reading};

/// Largest cache of all online cores.
pub fn last_level() -> Reading<Bytes> {
    match Topology::live().map(Topology::last_level_cache_size) {
        Ok(Some(size)) => Reading::Measured(size),
        Ok(None) => Reading::absent("sysfs names no cache size"),
        Err(fault) => Reading::absent(fault.to_string()),
    }
}

/// Bytes over which buffers rotate if the size is unknown: more than most caches have.
pub const WHERE_UNKNOWN: Bytes = Bytes(64 << 20);

/// The size that buffers without cache effects must exceed, in bytes.
pub fn to_exceed() -> usize {
    last_level().value().unwrap_or(&WHERE_UNKNOWN).0 as usize
}
