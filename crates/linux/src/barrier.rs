//! A memory barrier in all threads of this process at once, so that the others need none.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

/// Makes every thread of this process pass a memory barrier: its accesses before the barrier are visible after this
/// call, and those behind the barrier see everything before this call. `false`: the kernel has no such barrier
/// (`CONFIG_MEMBARRIER`), or a filter forbids it.
pub fn in_all_threads() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
        && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_has_it() {
        assert!(super::in_all_threads());
    }
}
