//! A barrier that one thread puts into all threads of this process, so that these need none of their own.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

/// Whatever a thread of this process does before some point of its program is seen by what follows this call, or that
/// thread sees from that point on what went before this call. `false`: the kernel has no such barrier (`CONFIG_MEMBARRIER`),
/// or a filter keeps it from this process.
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
