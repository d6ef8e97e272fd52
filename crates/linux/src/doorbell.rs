//! How a thread sleeps until something happens, of whatever kind: one poll over a bell that other threads ring and over
//! descriptors. What happens between the thread's last look and its sleep has rung already, and the sleep ends at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::channel::{Bell, Sleeper};
use machine::{Fault, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::signal;

/// The bell of one thread.
pub struct Doorbell(OwnedFd);

impl Doorbell {
    pub fn new() -> Result<Arc<Doorbell>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event =
            event.map_err(|e| Fault::because("event descriptor", e, "raise the limit on open files (ulimit -n)"));
        Ok(Arc::new(Doorbell(event?)))
    }

    /// A sleep of the thread. What is to end it is told of it first.
    pub fn sleep(self: &Arc<Self>) -> Sleep {
        Sleep { bell: self.clone(), watched: Vec::new(), until: None, interrupted: false }
    }

    /// Whoever polls the bell by itself has heard it.
    pub fn heard(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// Readable from a ring until it is [`Doorbell::heard`].
impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell for Doorbell {
    fn ring(&self) {
        // A counter that is full has rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// One sleep that is being prepared.
pub struct Sleep {
    bell: Arc<Doorbell>,
    watched: Vec<OwnedFd>,
    until: Option<Instant>,
    interrupted: bool,
}

impl Sleep {
    /// It ends after this time at the latest; the shortest of several counts.
    pub fn at_most(&mut self, limit: Duration) {
        // A time that is out of the clock's reach never comes.
        let Some(until) = Instant::now().checked_add(limit) else { return };
        self.until = Some(self.until.map_or(until, |other| other.min(until)));
    }

    /// It ends where a signal asks this process to end ([`signal::watch`]).
    pub fn until_interrupted(&mut self) {
        self.interrupted = true;
    }

    /// Sleeps until one of those that it was told of ends it.
    pub fn begin(self) {
        let asked = self.interrupted.then(signal::asked).flatten();
        let mut polled = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
        polled.extend(
            self.watched.iter().map(AsFd::as_fd).chain(asked).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, so that nobody wakes a moment before the time has come, and again.
        let left = left.map(|left| left + Duration::from_nanos(1));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        // A signal, or no memory for the kernel: the thread looks again.
        let _ = poll(&mut polled, left.as_ref());
        self.bell.heard();
    }
}

impl Sleeper for Sleep {
    fn bell(&self) -> Arc<dyn Bell> {
        self.bell.clone()
    }

    fn watch(&mut self, descriptor: BorrowedFd<'_>) -> bool {
        let own = descriptor.try_clone_to_owned();
        own.map(|own| self.watched.push(own)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    // Sleeps without a limit: a ring that is lost is a test that does not end.

    #[test]
    fn a_ring_before_the_sleep_ends_it() {
        let bell = Doorbell::new().unwrap();
        let sleep = bell.sleep();
        sleep.bell().ring();
        sleep.begin();
    }

    #[test]
    fn it_ends_by_another_thread_and_by_a_descriptor() {
        let bell = Doorbell::new().unwrap();
        let (mut one, other) = UnixStream::pair().unwrap();
        let theirs = bell.clone();
        let ringer = std::thread::spawn(move || theirs.ring());
        bell.sleep().begin();
        ringer.join().unwrap();
        let mut sleep = bell.sleep();
        assert!(sleep.watch(other.as_fd()));
        let writer = std::thread::spawn(move || one.write_all(b"!").unwrap());
        sleep.begin();
        writer.join().unwrap();
    }

    #[test]
    fn the_shortest_limit_counts() {
        let bell = Doorbell::new().unwrap();
        let mut sleep = bell.sleep();
        sleep.at_most(Duration::MAX);
        sleep.at_most(Duration::from_millis(1));
        sleep.at_most(Duration::from_secs(1 << 40));
        sleep.begin();
    }
}
