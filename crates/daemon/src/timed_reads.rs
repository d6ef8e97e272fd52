//! Reads that may never end. A user chooses the place of a profile, and a file system need not answer: each read has a
//! thread of its own, with a time limit on the daemon's wait.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linux::accounting::own_thread_time;
use machine::Nanoseconds;

/// Time for which no file of a user is read after a read that took too long.
const BACKOFF: Duration = Duration::from_secs(600);

pub struct TimedReads {
    patience: Duration,
    /// By user: the thread of a read that took too long, and the time at which it was given up.
    late: BTreeMap<u32, (JoinHandle<()>, Instant)>,
    /// Processor time of the threads that ended.
    pub used: Nanoseconds,
}

impl TimedReads {
    pub fn new(patience: Duration) -> TimedReads {
        TimedReads { patience, late: BTreeMap::new(), used: Nanoseconds(0) }
    }

    /// The result of `read`. `None`: this read takes too long, or an earlier read for this user did.
    pub fn read<T: Send + 'static>(&mut self, user: u32, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.late.retain(|_, (thread, since)| !thread.is_finished() || since.elapsed() < BACKOFF);
        if self.late.contains_key(&user) {
            return None;
        }
        let (tell, told) = mpsc::channel();
        let work = move || {
            let read = read();
            let _ = tell.send((read, own_thread_time()));
        };
        let thread = thread::Builder::new().spawn(work).ok()?;
        let Ok((read, used)) = told.recv_timeout(self.patience) else {
            self.late.insert(user, (thread, Instant::now()));
            return None;
        };
        self.used = self.used + used;
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_does_not_end_is_left_and_so_is_its_user_alone() {
        let mut reads = TimedReads::new(Duration::ZERO);
        let (release, released) = mpsc::channel::<()>();
        assert_eq!(reads.read(1, move || released.recv().is_ok()), None);
        reads.patience = Duration::from_secs(60);
        assert_eq!((reads.read(1, || 1), reads.read(2, || 2)), (None, Some(2)));
        drop(release);
    }
}
