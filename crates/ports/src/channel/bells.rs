//! Bells that writers of a channel ring, for threads that sleep on several channels or on other things as well.
//!
//! A reader registers its bell before it marks the word, and a writer that finds the mark rings. Readers in other
//! processes have no bell: they sleep on the word alone. A writer in another process rings a reader of this one over
//! the socket by which it got its end.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use machine::channel::{Bell, Sleeper, Specification, Synchronization};
use machine::{Fault, Result};
use rustix::net::SendFlags;

use super::held_end::HeldEnd;
use super::word::{self, WRITING, Word};

/// Bells of the readers of one end, or of the writer of a multicast channel.
#[derive(Default)]
pub(super) struct Bells {
    /// Registered bells, each rung once.
    armed: Mutex<Vec<Arc<dyn Bell>>>,
    /// The socket to the reader's process.
    outside: Option<UnixStream>,
}

/// Bells by the end that writes: 0 and 1 of a unicast channel, 0 of a multicast channel.
pub(super) type Both = Arc<[Bells; 2]>;

impl Bells {
    /// The bells of an end that came over `stream`.
    pub fn over(stream: &UnixStream) -> Result<Both> {
        let own = || {
            let outside = stream.try_clone().map(Some);
            outside.map_err(|e| Fault::because("end of a channel", e, "raise the limit on open files (ulimit -n)"))
        };
        Ok(Arc::new([Bells { outside: own()?, ..Bells::default() }, Bells { outside: own()?, ..Bells::default() }]))
    }

    fn put(&self, bell: Arc<dyn Bell>) {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        if !armed.iter().any(|one| Arc::ptr_eq(one, &bell)) {
            armed.push(bell);
        }
    }

    #[cold]
    pub fn ring(&self) {
        let armed = std::mem::take(&mut *self.armed.lock().unwrap_or_else(PoisonError::into_inner));
        armed.iter().for_each(|bell| bell.ring());
        if let Some(stream) = &self.outside {
            // A full socket has been rung already, and a closed one needs no bell.
            let _ = rustix::net::send(stream, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// The state of a reader's sleeps.
pub(super) struct Armed {
    admitted: bool,
    /// Number of departures that it was told of.
    heard: u64,
}

impl Armed {
    pub fn new(specification: &Specification) -> Armed {
        // Blocking channels admit sleepers from the start.
        Armed { admitted: specification.synchronization == Synchronization::Blocking, heard: 0 }
    }

    /// Lets the next message, which changes `word`, or the next departure ring the sleeper's bell. `false`: there is one already.
    pub fn arm(
        &mut self,
        end: &HeldEnd,
        bells: &Bells,
        word: &Word,
        sleeper: &mut dyn Sleeper,
        is_ready: impl Fn() -> bool,
    ) -> bool {
        // The writer of an end that came from another process does not see this process's bells.
        if bells.outside.is_some() {
            return false;
        }
        bells.put(sleeper.bell());
        self.admitted = self.admitted || word::admit(end.sleepers());
        let seen = word.load();
        if !self.admitted || is_ready() || seen & WRITING != 0 || !word.mark(seen) {
            return false;
        }
        // Read after the mark: an end that leaves later rings.
        let departures = end.departures();
        std::mem::replace(&mut self.heard, departures) == departures
    }
}
