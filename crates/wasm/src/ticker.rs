//! The thread that makes time pass for guests. One serves the process, and ends with the last that uses it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use machine::{Fault, Result};

use crate::engine::engine;

pub const TICK: Duration = Duration::from_millis(4);

pub struct Ticker {
    /// Dropped to end the thread.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub fn shared() -> Result<Arc<Ticker>> {
        static SHARED: Mutex<Weak<Ticker>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ticker) = shared.upgrade() {
            return Ok(ticker);
        }
        let ticker = Arc::new(Ticker::start()?);
        *shared = Arc::downgrade(&ticker);
        Ok(ticker)
    }

    fn start() -> Result<Ticker> {
        let engine = engine()?;
        let (alive, ended) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("wasm ticker".into())
            .spawn(move || {
                leave_the_creators_core();
                while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    engine.increment_epoch();
                }
            })
            .map_err(|error| Fault::because("wasm ticker", error, "end some threads, or raise the limit on them"))?;
        Ok(Ticker { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A thread inherits the affinity of the one that started it. Where that is a dedicated core, whose thread never
/// sleeps, no tick would come when it is needed: so it runs where the process's first thread may.
fn leave_the_creators_core() {
    if let Ok(cores) = linux::affinity::of_process(std::process::id()) {
        // Failing leaves it where it is, where ticks come late but come.
        let _ = linux::mask::set(0, &cores);
    }
}
