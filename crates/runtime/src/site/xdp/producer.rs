//! The thread that has the kernel run a producer on live frames.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::doorbell::Doorbell;
use linux::shield::{Shield, Wanted};
use linux::xdp::{Interface, LiveFrames, LiveRun};
use machine::channel::Bell;
use machine::{CoreId, Fault, Result};
use offcode::Attributes;

use super::{Inner, number};

/// Words of `struct offcode_frame`.
const LENGTH: usize = 0;
const BATCH: usize = 1;
const FINISHED: usize = 2;
const RUNS_A_CALL: usize = 3;
const CALLING: usize = 4;
const BYTES: usize = 8;
const LONGEST: usize = 1536;

/// Attributes of a producer: the core that runs it, and what keeps other work off that.
pub const CORE: &str = "CORE";
pub const SHIELD: &str = "SHIELD";
/// Separates, in a producer's whereabouts, what keeps other work off its core.
pub const KEPT_BY: &str = ", its core kept by ";

/// Runs a call asks for where the producer does not say: many, since setting up a call costs as much as thousands of runs; fewer where each may wait.
const RUNS: u32 = 1 << 18;
const RUNS_ONE_BY_ONE: u32 = 1 << 10;
/// Runs of a call that only a signal ends.
const MOST_RUNS: u64 = 1 << 26;
/// Between looks whether a finished producer has more to send, where what gave it that is no call, message or attribute:
/// at first, and where nothing comes.
const REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// The core of a producer, and its protection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protected {
    core: Option<CoreId>,
    by: Wanted,
}

impl Protected {
    pub fn of(attributes: &Attributes) -> Result<Protected> {
        let core = attributes.get(CORE).map(|core| number(CORE, core)).transpose()?;
        let by = attributes.get(SHIELD).map_or(Ok(Wanted::Nothing), str::parse)?;
        if core.is_none() && by != Wanted::Nothing {
            let cause = "it says what is to keep other work off a core, and not which core";
            return Err(Fault::new(format!("attribute {SHIELD}"), cause, format!("set {CORE} too")));
        }
        Ok(Protected { core: core.map(|core| CoreId(core as u32)), by })
    }

    /// For the calling thread, as long as what is returned lives.
    fn raise(self) -> Result<Option<Shield>> {
        self.core.map(|core| Shield::raise(core, self.by)).transpose()
    }
}

pub(super) struct Producer {
    shared: Arc<Shared>,
    /// Bell that ends its sleep.
    bell: Arc<Doorbell>,
    /// The core and its protection, in words.
    place: String,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    thread: AtomicU32,
}

impl Producer {
    /// Its core is kept before the first call: raising a shield takes tens of milliseconds.
    pub fn start(
        inner: Arc<Inner>,
        program: &str,
        interface: Arc<Interface>,
        protected: Protected,
    ) -> Result<Producer> {
        let shared = Arc::new(Shared::default());
        let (of_thread, program) = (shared.clone(), program.to_owned());
        let subject = format!("offcode {}", inner.name);
        let none = || Fault::new(&*subject, "it was not taken in as a producer", "report this");
        let bell = inner.stirred.clone().ok_or_else(none)?;
        let rung = bell.clone();
        let (tell, told) = mpsc::channel();
        let body = move || -> Result<()> {
            let ready = interface.enter().and_then(|()| protected.raise());
            let _shield = match ready {
                Ok(shield) => {
                    drop(tell.send(Ok(shield.as_ref().map(|shield| shield.by().to_string()))));
                    shield
                }
                Err(fault) => {
                    drop(tell.send(Err(fault)));
                    return Ok(());
                }
            };
            of_thread.thread.store(linux::accounting::current_thread() as u32, Ordering::Relaxed);
            let frame = inner.object.shared("FRAME")?;
            let mut rest = REST.0;
            while !of_thread.end.load(Ordering::Acquire) {
                let words = frame.value(0);
                if words[FINISHED].load(Ordering::Acquire) != 0 {
                    let mut sleep = rung.sleep();
                    sleep.at_most(rest);
                    sleep.begin();
                    rest = (2 * rest).min(REST.1);
                    continue;
                }
                rest = REST.0;
                let length = (words[LENGTH].load(Ordering::Relaxed) as usize).clamp(60, LONGEST);
                let bytes: Vec<u8> = words[BYTES..]
                    .iter()
                    .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
                    .take(length)
                    .collect();
                let live = LiveFrames::new(inner.object.program(&program)?, &interface, &bytes)?;
                let batch = words[BATCH].load(Ordering::Relaxed).clamp(1, 256) as u32;
                let frames = match words[RUNS_A_CALL].load(Ordering::Relaxed) {
                    0 if batch == 1 => RUNS_ONE_BY_ONE,
                    0 => RUNS,
                    asked => asked.min(MOST_RUNS) as u32,
                };
                words[CALLING].store(1, Ordering::SeqCst);
                let ran = live.run(LiveRun { frames, batch });
                words[CALLING].store(0, Ordering::Release);
                match ran {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        let subject = format!("offcode {}: live frames at {}", inner.name, interface.name());
                        return Err(Fault::because(subject, error, "use Linux 5.18 or newer, as root"));
                    }
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("producer".into())
            .spawn(body)
            .map_err(|error| Fault::because(&*subject, error, "raise the limit of threads"))?;
        let ended = || Fault::new(subject, "the producer's thread ended before it began", "see the log");
        let kept = told.recv().map_err(|_| ended())??;
        let place = kept.zip(protected.core).map(|(by, core)| format!(" on {core}{KEPT_BY}{by}"));
        Ok(Producer { shared, bell, place: place.unwrap_or_default(), thread: Some(thread) })
    }

    /// A fault where it has ended, which it does only when the kernel refuses.
    pub fn whereabouts(&self) -> Result<String> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(Fault::new("producer", "its thread has ended: the kernel refused to run it", "see the log"));
        }
        Ok(format!("by thread {}{}", self.shared.thread.load(Ordering::Relaxed), self.place))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
