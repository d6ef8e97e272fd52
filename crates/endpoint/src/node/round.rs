//! The loop of an engine's core, in a process of its own or a thread: polls the seats, and yields between polls.

use std::thread;
use std::time::Duration;

use linux::affinity::{self, Pinned};
use machine::{CoreId, Port, Result};
use rustix::process::Pid;

use super::seat::{End, Seat};

/// Empty polls before an engine that knows of no rival yields.
const TURNS_BEFORE_LOOKING_AWAY: u32 = 2048;
/// Empty polls before an engine that shares its core yields, yields before it sleeps instead, and the length of a sleep:
/// yields keep latency low for a message on its way, sleep leaves the core to those who compute on it.
const TURNS_BEFORE_YIELD: u32 = 4;
const YIELDS_BEFORE_NAP: u32 = 32;
const NAP: Duration = Duration::from_micros(50);

/// Binds the calling thread to the engine's core.
pub(super) fn occupy(core: CoreId) -> Result<Pinned> {
    let pinned = affinity::pin(core)?;
    // Sleeps are to last as long as asked, not 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(pinned)
}

pub(super) struct Round<P> {
    pub seats: Vec<Seat<P>>,
    /// Whether others need the core.
    pub yields: bool,
    pub turns: u64,
    idle: u32,
    yielded: u32,
}

impl<P: Port> Round<P> {
    pub fn new(seats: Vec<Seat<P>>, yields: bool) -> Self {
        Round { seats, yields, turns: 0, idle: 0, yielded: 0 }
    }

    /// Polls each seat once, and gives up those that have ended; `left` is told of their ranks. Whether there was anything to
    /// do.
    #[inline]
    pub fn turn(&mut self, mut left: impl FnMut(Pid)) -> bool {
        let mut busy = false;
        for at in (0..self.seats.len()).rev() {
            match self.seats[at].turn(self.turns) {
                Ok(worked) => busy |= worked,
                Err(end) => {
                    let mut seat = self.seats.swap_remove(at);
                    if let End::Failed(fault) = end {
                        seat.fail(&fault);
                    }
                    left(seat.process());
                }
            }
        }
        self.turns += 1;
        self.idle = if busy { 0 } else { self.idle + 1 };
        if busy {
            self.yielded = 0;
        }
        busy
    }

    /// Yields, or after many yields sleeps, once polls have been empty for a while.
    #[inline]
    pub fn give_way(&mut self) {
        if self.idle <= if self.yields { TURNS_BEFORE_YIELD } else { TURNS_BEFORE_LOOKING_AWAY } {
            return;
        }
        self.idle = 0;
        self.yielded += u32::from(self.yields);
        if self.yielded > YIELDS_BEFORE_NAP {
            thread::sleep(NAP);
        } else {
            thread::yield_now();
        }
    }
}
