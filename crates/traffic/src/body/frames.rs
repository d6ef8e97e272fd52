//! The body for `core:N`: whole frames over AF_XDP, from a core that does nothing else.

use std::sync::Arc;

use linux::clock;
use machine::Result;
use offcode::{Activity, Context, Guid, Incoming, Interface, Offcode, Refusal};
use ports::afxdp;

use super::{FRAMES_A_TURN, NEAR, fault};
use crate::control::{ControlBlock, Sender, State, Step};
use crate::offcodes;
use crate::stamp::Stamp;

/// Opens the AF_XDP sender: on the interface, and in the network namespace, that the traffic is to leave from.
pub type OpenFrames = Arc<dyn Fn() -> Result<afxdp::Sender> + Send + Sync>;

pub struct FrameSender {
    block: ControlBlock,
    open: OpenFrames,
    socket: Option<afxdp::Sender>,
    run: Option<Run>,
    begun: bool,
}

/// State that belongs to one template.
struct Run {
    template: Vec<u8>,
    stamp: Stamp,
    clock_every: u64,
}

impl FrameSender {
    /// A sender that follows `block`, which must have been asked by the time it is initialized.
    pub fn new(block: ControlBlock, open: OpenFrames) -> FrameSender {
        FrameSender { block, open, socket: None, run: None, begun: false }
    }

    /// Opens `interface` of the network namespace of the thread that calls it: the one that initializes the offcode.
    pub fn opener(interface: &str, options: &afxdp::Options) -> OpenFrames {
        let (interface, options) = (interface.to_owned(), options.clone());
        Arc::new(move || afxdp::Sender::open(&interface, &options))
    }

    fn prepare(&mut self) -> Result<()> {
        let template = self.block.template();
        let stamp = Stamp::new(&template, self.block.tag(), self.block.has_udp_checksum())?;
        if let Some(socket) = &self.socket
            && template.len() as u64 > socket.frame_size().0
        {
            let cause = format!("frames of {} bytes; the socket's are {}", template.len(), socket.frame_size());
            return Err(fault(cause, "open it with larger frames"));
        }
        self.run = Some(Run { template, stamp, clock_every: self.block.clock_every() });
        Ok(())
    }
}

impl Run {
    /// Sends one frame at its deadline.
    fn paced(&self, socket: &mut afxdp::Sender, sender: &mut Sender<'_>) -> Result<Activity> {
        let mut now = clock::monotonic();
        let mut step = sender.step(now);
        if let Step::Wait { due } = step {
            if due > now + NEAR {
                return Ok(Activity::Idle);
            }
            // Reaps earlier frames while there is time.
            socket.reap();
            now = clock::spin_until(due);
            step = sender.step(now);
        }
        let Step::Send { length, sequence } = step else { return Ok(Activity::Idle) };
        match self.place(socket, length, sequence, now)? {
            true => _ = sender.sent(now),
            false => sender.failed(),
        }
        socket.flush()?;
        Ok(Activity::Worked)
    }

    /// Sends as many frames as a poll may, by as few system calls as they need.
    fn fast(&self, socket: &mut afxdp::Sender, sender: &mut Sender<'_>) -> Result<Activity> {
        let mut now = clock::monotonic();
        let mut activity = Activity::Worked;
        for frame in 0..FRAMES_A_TURN {
            if frame > 0 && (frame as u64).is_multiple_of(self.clock_every) {
                now = clock::monotonic();
            }
            let Step::Send { length, sequence } = sender.step(now) else {
                activity = Activity::Idle;
                break;
            };
            if !self.place(socket, length, sequence, now)? {
                sender.failed();
                break;
            }
            sender.sent(now);
        }
        socket.flush()?;
        Ok(activity)
    }

    #[inline]
    fn place(
        &self,
        socket: &mut afxdp::Sender,
        length: usize,
        sequence: u64,
        now: machine::Nanoseconds,
    ) -> Result<bool> {
        socket.place(length, |bytes| {
            bytes.copy_from_slice(&self.template[..length]);
            self.stamp.write(bytes, sequence, now);
        })
    }
}

impl offcodes::Sender for FrameSender {
    fn begin(&mut self) -> Result<u64, Refusal> {
        self.prepare().map_err(|fault| Refusal(fault.to_string()))?;
        self.begun = true;
        Ok(self.block.progress().sent)
    }

    fn end(&mut self) -> u64 {
        self.block.stop();
        self.block.progress().sent
    }
}

impl Offcode for FrameSender {
    fn interfaces(&self) -> &[Guid] {
        &offcodes::INTERFACES
    }

    fn initialize(&mut self, _: &mut dyn Context) -> Result<()> {
        self.socket = Some((self.open)()?);
        Ok(())
    }

    fn call(&mut self, call: Incoming<'_>, reply: &mut Vec<u8>, context: &mut dyn Context) -> Result<(), Refusal> {
        <dyn offcodes::Sender>::dispatch(self, call, reply, context)
    }

    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        if !self.begun {
            return Activity::Idle;
        }
        match self.block.state() {
            State::Finished => {
                // Frames that the kernel did not take at once. The next run has a template of its own.
                if let Some(socket) = &mut self.socket
                    && self.run.is_some()
                    && !matches!(socket.kick(), Ok(1..))
                {
                    self.run = None;
                }
                return Activity::Idle;
            }
            State::Idle if self.run.is_none() => {
                if let Err(fault) = self.prepare() {
                    context.log(&fault.to_string());
                    self.block.sender().finish();
                }
            }
            _ => {}
        }
        let (Some(run), Some(socket)) = (&self.run, &mut self.socket) else { return Activity::Idle };
        let mut sender = self.block.resume();
        let outcome =
            if self.block.is_paced() { run.paced(socket, &mut sender) } else { run.fast(socket, &mut sender) };
        outcome.unwrap_or_else(|fault| {
            sender.failed();
            sender.finish();
            context.log(&fault.to_string());
            Activity::Worked
        })
    }

    fn stop(&mut self, _: &mut dyn Context) {
        if let Some(mut socket) = self.socket.take() {
            let _ = socket.flush();
        }
        self.run = None;
    }
}
