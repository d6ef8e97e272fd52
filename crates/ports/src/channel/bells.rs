//! Whom the writers of a channel ring for: threads that sleep on several channels at once, and on more than channels.
//!
//! The bell of a reader is here before its mark is in the word, and who finds the mark rings. A reader in another process
//! is not here: it sleeps on the word alone. For one in this process, a writer in another process rings over the socket
//! by which it got its end.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use machine::channel::{Bell, Sleeper, Specification, Synchronization};
use machine::{Fault, Result};
use rustix::net::SendFlags;

use super::seat::Seat;
use super::word::{self, WRITING, Word};

/// Those who read what one end, or the writer of a multicast channel, writes.
#[derive(Default)]
pub(super) struct Bells {
    /// Rung once.
    armed: Mutex<Vec<Arc<dyn Bell>>>,
    /// To the process that the reader is in.
    outside: Option<UnixStream>,
}

/// By the seat that writes: of a unicast channel 0 and 1, of a multicast channel 0.
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
            // One that takes no more has been rung, and one that has left needs no bell.
            let _ = rustix::net::send(stream, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// What a reader keeps for its sleeps.
pub(super) struct Armed {
    admitted: bool,
    /// Departures that it was told of.
    heard: u64,
}

impl Armed {
    pub fn new(specification: &Specification) -> Armed {
        // Where it may sleep from the first, nobody ever published without a look.
        Armed { admitted: specification.synchronization == Synchronization::Blocking, heard: 0 }
    }

    /// Makes a message, which changes `word`, and a departure from here on ring the sleeper's bell. `false`: there is one.
    pub fn arm(
        &mut self,
        seat: &Seat,
        bells: &Bells,
        word: &Word,
        sleeper: &mut dyn Sleeper,
        is_ready: impl Fn() -> bool,
    ) -> bool {
        // The writer of an end that came from another process knows nothing of this process's bells.
        if bells.outside.is_some() {
            return false;
        }
        bells.put(sleeper.bell());
        self.admitted = self.admitted || word::admit(seat.sleepers());
        let seen = word.load();
        if !self.admitted || is_ready() || seen & WRITING != 0 || !word.mark(seen) {
            return false;
        }
        // After the mark: whoever leaves later rings.
        let departures = seat.departures();
        std::mem::replace(&mut self.heard, departures) == departures
    }
}
