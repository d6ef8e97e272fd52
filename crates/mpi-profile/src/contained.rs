//! Panics of the library, each of which is a defect: a panic ends recording and prints one line, and the program goes on.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::complaint;
use crate::state;

/// The body of every entry from C: a panic must not reach C's frames. `otherwise` is the result after a panic.
#[inline(always)]
pub fn contained<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(answer) => answer,
        Err(panic) => {
            // The drop of the panic's payload might panic again.
            std::mem::forget(panic);
            state::failed();
            otherwise
        }
    }
}

/// Makes panics print one line. The hook is this library's own: a program in Rust has another.
pub fn tell_in_one_line() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_hook(Box::new(tell)));
}

fn tell(panic: &PanicHookInfo) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let payload = panic.payload();
    let words =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
    let words = words.unwrap_or("a panic").replace('\n', " ");
    let pid = std::process::id();
    complaint::line(&format!(
        "plimsoll: process {pid}: the profiler failed and records no more of it: {words}{place}. Next: report this as a \
         defect; the program goes on\n"
    ));
}
