//! An engine on a thread of the caller's own process, reached as ranks reach that of their node.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linux::identity::Identity;
use machine::{CoreId, Fault, Port, Result};
use ports::shm::{Role, ShmPort};

use super::memory::RankMemory;
use super::rings;
use super::round::{Round, occupy};
use super::seat::Seat;
use crate::dilated::DilatedPort;
use crate::driver::Driver;
use crate::settle::Placed;

/// State that both sides access outside the rings.
#[derive(Default)]
struct Shared {
    paused: AtomicBool,
    turns: AtomicU64,
    id: AtomicI32,
}

pub(crate) struct EngineThread {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Starts the engine on `core`; returns the caller's rings too. The thread ends when these are closed.
    pub fn start<P: Port + Send + 'static>(
        driver: Driver<DilatedPort<P>, RankMemory>,
        core: CoreId,
        placed: &Placed,
    ) -> Result<(EngineThread, ShmPort)> {
        linux::remote::check_allowed().map_err(|e| {
            Fault::because("placement core:N (process_vm_readv)", e, "permit it (seccomp filter), or run at app")
        })?;
        let streams = UnixStream::pair();
        let (ours, theirs) =
            streams.map_err(|e| Fault::because("engine thread", e, "raise the limit on open files"))?;
        let shared = Arc::new(Shared::default());
        let (started, start) = channel();
        let (words, placed) = (shared.clone(), placed.clone());
        let join = thread::Builder::new()
            .name(format!("engine-core-{}", core.0))
            .spawn(move || {
                let mut rings = rings();
                let ready = occupy(core).and_then(|pinned| rings.connect(&theirs, Role::Create).map(|_| pinned));
                words.id.store(linux::accounting::current_thread(), Ordering::Relaxed);
                let _pinned = match ready {
                    Ok(pinned) => {
                        let _ = started.send(Ok(()));
                        pinned
                    }
                    Err(fault) => return drop(started.send(Err(fault))),
                };
                let yields = placed.yields;
                let seat = Seat::new(driver, rings, Identity::own(), placed, None);
                run(Round::new(vec![seat], yields), &words);
            })
            .map_err(|e| Fault::because("engine thread", e, "raise the limit on processes (ulimit -u)"))?;
        let mut rings = rings();
        let met = rings.connect(&ours, Role::Join);
        // If the two did not meet, the thread's fault is the cause.
        start.recv().unwrap_or_else(|_| Err(ended()))?;
        met?;
        Ok((EngineThread { shared, join: Some(join) }, rings))
    }

    /// Polls that the engine has made: the proof that it runs.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    pub fn id(&self) -> i32 {
        self.shared.id.load(Ordering::Relaxed)
    }

    /// Has the engine sleep until [`EngineThread::resume`]; nothing moves meanwhile.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::Release);
    }

    pub fn resume(&self) {
        self.shared.paused.store(false, Ordering::Release);
        if let Some(join) = &self.join {
            join.thread().unpark();
        }
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.resume();
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

fn run<P: Port>(mut round: Round<P>, shared: &Shared) {
    while !round.seats.is_empty() {
        if shared.paused.load(Ordering::Acquire) {
            thread::park_timeout(Duration::from_millis(50));
            continue;
        }
        round.turn(|_| ());
        shared.turns.store(round.turns, Ordering::Relaxed);
        round.give_way();
    }
}

pub(super) fn ended() -> Fault {
    Fault::new("engine core", "the engine's thread has ended", "see the message it printed; open the endpoint again")
}
