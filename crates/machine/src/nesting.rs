//! Reads files of untrusted authors, whose values may be deeply nested.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use crate::fault::{Fault, Result};

/// Stack for the deepest TOML: 80 tables in one another, each at a key of 80 parts, at 20 KiB for each level.
const STACK: usize = 128 << 20;

/// Runs a reader that recurses as deeply as its text is nested, on a thread with a large stack. Its result must not be
/// nested so deeply.
///
/// # Errors
/// The reader fails, or no thread can be started.
pub fn read<T: Send>(reader: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    scope(|scope| {
        let failed = |e| Fault::because("thread of a reader", e, "raise the limits on processes and memory (ulimit)");
        let thread = Builder::new().stack_size(STACK).spawn_scoped(scope, reader).map_err(failed)?;
        match thread.join() {
            Ok(read) => read,
            Err(panic) => resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_may_go_deeper_than_a_test_and_its_faults_come_back() {
        fn deep(left: u32) -> u64 {
            let room = std::hint::black_box([u64::from(left); 128]);
            if left == 0 { 0 } else { deep(left - 1) + room[0] - u64::from(left) + 1 }
        }
        assert_eq!(read(|| Ok(deep(5000))).unwrap(), 5000);
        let fault = read(|| Err::<(), _>(Fault::new("a", "b", "c"))).unwrap_err();
        assert_eq!(fault.to_string(), "a: b. Next: c");
    }
}
