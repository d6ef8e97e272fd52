//! The sender's body at the driver hook: frames made in the kernel, by live frames of BPF_PROG_RUN.
//!
//! The kernel runs the program in the thread that asks for it, so the body is a thread of its own. Its core does all the
//! work, softirqs of the receiving side included where these are not steered elsewhere: charge it to the device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use linux::affinity;
use linux::xdp::{self, Interface, LiveFrames, LiveRun, Loader, Object, SharedWords};
use machine::{CoreId, Fault, Nanoseconds, Result};

use crate::control::{ControlBlock, State, Words};

/// Frames that go through the program before any leaves: what the kernel takes as its default, and the best found.
pub const BATCH: u32 = 64;

/// One call asks for so many: setting up a call costs as much as thousands of frames.
const FRAMES_A_CALL: u32 = 1 << 22;
/// The same where it is paced and nobody said how much is to be sent. Between two calls nothing leaves for 25 to 40 ms:
/// the kernel waits for the last readers of the old call's pages.
const PACED_RUNS_A_CALL: u32 = 1 << 22;
/// The longest that one run waits; as in the program.
const LONGEST_WAIT: Nanoseconds = Nanoseconds(200_000);

impl Words for SharedWords {
    fn words(&self) -> &[AtomicU64] {
        SharedWords::words(self)
    }
}

/// The program, loaded and not running: ask its block, then start it.
pub struct KernelSender {
    object: Object,
    interface: Arc<Interface>,
    block: ControlBlock,
    batch: u32,
    paced_runs: u32,
}

/// A sender that runs until it has finished or is stopped; dropping it stops it.
pub struct Running {
    block: ControlBlock,
    thread: Option<JoinHandle<Result<()>>>,
}

impl KernelSender {
    /// Opens the sender for an interface of the calling thread's network namespace.
    pub fn open(interface: &str) -> Result<KernelSender> {
        let code = xdp::built("traffic at the driver hook", bpf::TRAFFIC_SEND)?;
        let interface = Arc::new(Interface::named(interface)?);
        let object = Loader::new("traffic_send", code).load()?;
        let block = ControlBlock::over(Arc::new(object.shared("CONTROL")?))?;
        Ok(KernelSender { object, interface, block, batch: BATCH, paced_runs: PACED_RUNS_A_CALL })
    }

    /// The block that it follows. Ask before [`KernelSender::start`].
    pub fn block(&self) -> &ControlBlock {
        &self.block
    }

    /// Frames in a batch, 1 to 256; paced, it is 1 whatever is set here, because a batch leaves together.
    pub fn batch(&mut self, frames: u32) -> &mut Self {
        self.batch = frames.clamp(1, 256);
        self
    }

    /// What is to be sent when paced, so that one call does it all and has few runs left over.
    pub fn expect(&mut self, frames: u64, gap: Nanoseconds) -> &mut Self {
        let runs = frames.saturating_mul(1 + gap.0 / LONGEST_WAIT.0);
        self.paced_runs = (runs + runs / 8 + 4096).min(1 << 26) as u32;
        self
    }

    /// Starts the thread, on `core` where one is given; `prepare` runs in it first, to shield it.
    pub fn start(
        self,
        core: Option<CoreId>,
        prepare: impl FnOnce() -> Result<Box<dyn std::any::Any>> + Send + 'static,
    ) -> Result<Running> {
        let KernelSender { object, interface, block, batch, paced_runs } = self;
        let control = block.clone();
        let body = move || -> Result<()> {
            interface.enter()?;
            let _pinned = core.map(affinity::pin).transpose()?;
            let _prepared = prepare()?;
            let template = control.template();
            let frames = LiveFrames::new(object.program("send")?, &interface, &template)?;
            let run = match control.is_paced() {
                true => LiveRun { frames: paced_runs, batch: 1 },
                false => LiveRun { frames: FRAMES_A_CALL, batch },
            };
            while control.progress().state != State::Finished {
                match frames.run(run) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        let subject = format!("live frames at {}", interface.name());
                        return Err(Fault::because(subject, error, "use Linux 5.18 or newer, as root"));
                    }
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("traffic".into())
            .spawn(body)
            .map_err(|error| Fault::because("thread of the traffic sender", error, "raise the limit of threads"))?;
        Ok(Running { block, thread: Some(thread) })
    }
}

impl Running {
    pub fn block(&self) -> &ControlBlock {
        &self.block
    }

    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until it has finished.
    pub fn join(mut self) -> Result<()> {
        self.thread
            .take()
            .map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Ends it now.
    pub fn stop(self) -> Result<()> {
        self.block.stop();
        self.join()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.block.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
