//! Sleeping until any of several events: one poll over a bell that other threads ring and over descriptors. An event
//! between the thread's last check and its sleep has rung the bell already, and the sleep ends at once.

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

    /// Prepares a sleep of the thread, to which its events are added.
    pub fn sleep(self: &Arc<Self>) -> Sleep {
        Sleep { bell: self.clone(), watched: Vec::new(), until: None, interrupted: false }
    }

    /// Clears the ring, for a caller that polls the bell itself.
    pub fn heard(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// The bell is readable from a ring until [`Doorbell::heard`].
impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell for Doorbell {
    fn ring(&self) {
        // A full counter has rung already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A sleep in preparation.
pub struct Sleep {
    bell: Arc<Doorbell>,
    watched: Vec<OwnedFd>,
    until: Option<Instant>,
    interrupted: bool,
}

impl Sleep {
    /// Limits the sleep to this time; the shortest of several limits counts.
    pub fn at_most(&mut self, limit: Duration) {
        // A limit beyond the clock's range never comes.
        let Some(until) = Instant::now().checked_add(limit) else { return };
        self.until = Some(self.until.map_or(until, |other| other.min(until)));
    }

    /// Ends the sleep when a signal asks this process to end ([`signal::watch`]).
    pub fn until_interrupted(&mut self) {
        self.interrupted = true;
    }

    /// Sleeps until one of its events.
    pub fn begin(self) {
        let asked = self.interrupted.then(signal::asked).flatten();
        let mut polled = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
        polled.extend(
            self.watched.iter().map(AsFd::as_fd).chain(asked).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up, since a wake-up just before the time would mean a second sleep.
        let left = left.map(|left| left + Duration::from_nanos(1));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        // On a signal, or without kernel memory, the thread checks again.
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

    // These sleeps have no limit: a lost ring hangs the test.

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
