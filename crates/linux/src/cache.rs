//! The processor's caches.

/// Whether a program may evict lines on this architecture.
pub const CAN_EVICT: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Writes `bytes` back to memory and drops them from the caches of all cores, so that the next access comes from memory.
/// Does nothing without [`CAN_EVICT`].
pub fn evict(bytes: &[u8]) {
    // No cache of these architectures has shorter lines.
    const LINE: usize = 64;
    let range = bytes.as_ptr_range();
    let mut line = range.start.map_addr(|address| address - address % LINE);
    while line < range.end {
        // SAFETY: the line holds bytes of the slice, which is mapped; eviction changes no byte.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_clflush(line)
        };
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags))
        };
        line = line.wrapping_add(LINE);
    }
    // SAFETY: a barrier: the lines are out before what follows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_mfence()
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dsb sy", options(nostack, preserves_flags))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_are() {
        let bytes: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
        for range in [0..0, 0..1, 63..65, 1..9_999, 0..10_000] {
            evict(&bytes[range]);
        }
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
}
