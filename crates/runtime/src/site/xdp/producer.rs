//! The thread that has the kernel run a producer on live frames.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::xdp::{Interface, LiveFrames, LiveRun};
use machine::{Fault, Result};

use super::Inner;

/// Words of `struct offcode_frame`.
const LENGTH: usize = 0;
const BATCH: usize = 1;
const FINISHED: usize = 2;
const BYTES: usize = 8;
const LONGEST: usize = 1536;

/// Runs a call asks for: many, since setting up a call costs as much as thousands of runs; fewer where each may wait.
const RUNS: u32 = 1 << 18;
const RUNS_ONE_BY_ONE: u32 = 1 << 10;
/// Between looks whether a finished producer has more to send.
const REST: Duration = Duration::from_millis(1);

pub(super) struct Producer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    end: AtomicBool,
    thread: AtomicU32,
}

impl Producer {
    pub fn start(inner: Arc<Inner>, program: &str, interface: Arc<Interface>) -> Result<Producer> {
        let shared = Arc::new(Shared::default());
        let (of_thread, program) = (shared.clone(), program.to_owned());
        let subject = format!("offcode {}", inner.name);
        let body = move || -> Result<()> {
            interface.enter()?;
            of_thread.thread.store(linux::accounting::current_thread() as u32, Ordering::Relaxed);
            let frame = inner.object.shared("FRAME")?;
            while !of_thread.end.load(Ordering::Acquire) {
                let words = frame.value(0);
                if words[FINISHED].load(Ordering::Acquire) != 0 {
                    std::thread::sleep(REST);
                    continue;
                }
                let length = (words[LENGTH].load(Ordering::Relaxed) as usize).clamp(60, LONGEST);
                let bytes: Vec<u8> = words[BYTES..]
                    .iter()
                    .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
                    .take(length)
                    .collect();
                let live = LiveFrames::new(inner.object.program(&program)?, &interface, &bytes)?;
                let batch = words[BATCH].load(Ordering::Relaxed).clamp(1, 256) as u32;
                let frames = if batch == 1 { RUNS_ONE_BY_ONE } else { RUNS };
                match live.run(LiveRun { frames, batch }) {
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
            .map_err(|error| Fault::because(subject, error, "raise the limit of threads"))?;
        Ok(Producer { shared, thread: Some(thread) })
    }

    /// A fault where it has ended, which it does only when the kernel refuses.
    pub fn whereabouts(&self) -> Result<String> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(Fault::new("producer", "its thread has ended: the kernel refused to run it", "see the log"));
        }
        Ok(format!("by thread {}", self.shared.thread.load(Ordering::Relaxed)))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
