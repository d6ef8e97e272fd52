//! Meters of the threads that take part in a block at one end.

use linux::accounting::{ThreadMeter, current_thread};
use machine::Result;
use machine::accounting::ThreadCost;

use exchange::path::Path;

/// Meters of the application's thread, which is the caller, and of its stack's threads.
pub struct Meters(Vec<ThreadMeter>);

impl Meters {
    /// `end` is `local` or `remote`.
    pub fn open(end: &str, path: &Path) -> Result<Meters> {
        let mut meters = vec![ThreadMeter::open(end, "app", current_thread())?];
        for (role, thread) in path.threads() {
            meters.push(ThreadMeter::open(end, role, thread)?);
        }
        Ok(Meters(meters))
    }

    pub fn begin(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(ThreadMeter::begin)
    }

    pub fn end(&mut self) -> Result<Vec<ThreadCost>> {
        self.0.iter_mut().map(ThreadMeter::end).collect()
    }
}
