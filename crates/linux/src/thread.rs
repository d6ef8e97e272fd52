//! The calling thread as the kernel numbers it.

/// The id under which `/proc/self/task` lists this thread.
pub fn id() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}
