//! The body for `app`: an ordinary UDP socket, as applications send today.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use linux::{clock, datagrams};
use machine::{Nanoseconds, Result};
use offcode::{Activity, Context, Guid, Incoming, Interface, Offcode, Refusal};

use super::{FRAMES_A_TURN, NEAR, addresses, fault};
use crate::control::{ControlBlock, Sender, State, Step};
use crate::offcodes;
use crate::stamp::{self, Layout};

/// How the sender waits for a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeps for the gap after each send, as a first program would: what paper 003 compares with. Each sleep is late,
    /// and the lateness adds up.
    RelativeSleep,
    /// Sleeps until the deadline, with the least timer slack that the kernel has.
    AbsoluteSleep,
    /// Looks at the clock again and again. Burns the caller's core.
    Spin,
}

/// How frames get to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transmit {
    /// One system call a frame: the baseline.
    SendTo,
    /// `sendmmsg`, up to 64 frames a call. For rate only.
    SendMany,
    /// UDP segmentation (GSO): one buffer that the kernel cuts into up to 64 frames of one length. For rate only.
    Segments,
}

/// Opens the socket, bound to the first address, in the network namespace that the traffic is to leave from.
pub type OpenSocket = Arc<dyn Fn(SocketAddr) -> Result<UdpSocket> + Send + Sync>;

/// Most bytes of a datagram.
const MOST_BYTES: usize = 65_000;

pub struct SocketSender {
    block: ControlBlock,
    waiting: Waiting,
    transmit: Transmit,
    open: OpenSocket,
    ready: Option<Ready>,
    /// Time still to be slept before the next frame, for relative sleep.
    owed: Nanoseconds,
    begun: bool,
}

/// State that belongs to one template.
struct Ready {
    socket: UdpSocket,
    to: SocketAddr,
    /// Bytes of the headers that the kernel writes.
    headers: usize,
    tag: u16,
    clock_every: u64,
    payload: Vec<u8>,
    batch: Batch,
}

/// Payloads that the sender has counted and the kernel has not taken yet.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// How many the kernel has taken, and their bytes.
    taken: usize,
    taken_bytes: usize,
    /// Segment length set on the socket now.
    cut: usize,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.taken == self.lengths.len()
    }

    /// Whether one more of `length` bytes may join those that wait.
    fn takes(&self, length: usize, transmit: Transmit) -> bool {
        self.lengths.len() < datagrams::AT_ONCE
            && self.bytes.len() + length <= MOST_BYTES
            && (transmit == Transmit::SendMany || self.lengths.first().is_none_or(|&first| first == length))
    }

    fn push(&mut self, length: usize, start: [u8; stamp::PAYLOAD_BYTES]) {
        let at = self.bytes.len();
        self.bytes.resize(at + length, 0);
        self.bytes[at..at + start.len()].copy_from_slice(&start);
        self.lengths.push(length);
    }

    /// Hands the waiting payloads over; false where some are left.
    fn send(&mut self, socket: &UdpSocket, transmit: Transmit) -> io::Result<bool> {
        while !self.is_empty() {
            let count = match transmit {
                Transmit::Segments => {
                    let length = self.lengths[0];
                    if self.cut != length {
                        datagrams::cut_into(socket, length as u16)?;
                        self.cut = length;
                    }
                    // All or nothing: a datagram is not taken in part.
                    socket.send(&self.bytes).map(|_| self.lengths.len())
                }
                _ => {
                    let mut rest = &self.bytes[self.taken_bytes..];
                    let waiting = self.lengths[self.taken..].iter().map(|&length| {
                        let (one, others) = rest.split_at(length);
                        rest = others;
                        one
                    });
                    datagrams::send_many(socket, waiting)
                }
            };
            match count {
                Ok(count) => {
                    self.taken_bytes += self.lengths[self.taken..self.taken + count].iter().sum::<usize>();
                    self.taken += count;
                }
                Err(e) if may_pass(&e) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        self.bytes.clear();
        self.lengths.clear();
        (self.taken, self.taken_bytes) = (0, 0);
        Ok(true)
    }
}

/// Whether the next try may succeed: full buffers, or a peer that refused an earlier datagram.
fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), WouldBlock | ConnectionRefused | Interrupted | OutOfMemory)
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

impl SocketSender {
    /// A sender that follows `block`, which must have been asked by the time it is initialized.
    pub fn new(block: ControlBlock, waiting: Waiting, transmit: Transmit, open: OpenSocket) -> SocketSender {
        SocketSender { block, waiting, transmit, open, ready: None, owed: Nanoseconds(0), begun: false }
    }

    /// Opens a socket in the network namespace of the thread that calls it: the one that initializes the offcode.
    pub fn opener() -> OpenSocket {
        Arc::new(|from| {
            UdpSocket::bind(from).map_err(|e| {
                fault(
                    format!("the socket cannot have the address {from}: {e}"),
                    "take an address of this host as source",
                )
            })
        })
    }

    fn prepare(&mut self) -> Result<()> {
        let template = self.block.template();
        let (from, to) = addresses::of(&template)?;
        if self.block.is_paced() && self.transmit != Transmit::SendTo {
            return Err(fault("frames that leave in batches have no gaps", "pace with sendto, or ask for a rate"));
        }
        // The socket of an earlier run still has the address.
        self.ready = None;
        let socket = (self.open)(from)?;
        let odd = |e: io::Error| fault(format!("the socket refuses {to}: {e}"), "check the route with `ip route get`");
        socket.set_nonblocking(true).map_err(odd)?;
        if self.transmit != Transmit::SendTo {
            socket.connect(to).map_err(odd)?;
        }
        let headers = Layout::of(&template)?.payload();
        self.ready = Some(Ready {
            socket,
            to,
            headers,
            tag: self.block.tag(),
            clock_every: self.block.clock_every(),
            payload: vec![0; template.len() - headers],
            batch: Batch::default(),
        });
        self.owed = Nanoseconds(0);
        Ok(())
    }

    /// Sends one frame at its deadline, waiting as chosen.
    fn paced(&mut self, sender: &mut Sender<'_>) -> io::Result<Activity> {
        // Longest sleep at a time, so that a stop is seen within it.
        const LONGEST: Nanoseconds = Nanoseconds(10_000_000);
        if self.owed.0 > 0 {
            let part = self.owed.min(LONGEST);
            clock::sleep_for(part);
            self.owed = self.owed - part;
        }
        let mut now = clock::monotonic();
        let mut step = sender.step(now);
        if let Step::Wait { due } = step {
            now = match self.waiting {
                Waiting::Spin if due > now + NEAR => return Ok(Activity::Idle),
                Waiting::Spin => clock::spin_until(due),
                Waiting::AbsoluteSleep => {
                    clock::sleep_until(due.min(now + LONGEST));
                    clock::monotonic()
                }
                Waiting::RelativeSleep => {
                    clock::sleep_for((due - now).min(LONGEST));
                    clock::monotonic()
                }
            };
            step = sender.step(now);
        }
        let Step::Send { length, sequence } = step else { return Ok(Activity::Idle) };
        if self.owed.0 > 0 {
            return Ok(Activity::Worked);
        }
        let ready = self.ready.as_mut().expect("prepared");
        if ready.send_to(length, sequence, now)? {
            let gap = sender.sent(now);
            if self.waiting == Waiting::RelativeSleep {
                self.owed = gap;
            }
        } else {
            sender.failed();
        }
        Ok(Activity::Worked)
    }

    /// Sends as many frames as a poll may, as fast as they go.
    fn fast(&mut self, sender: &mut Sender<'_>) -> io::Result<Activity> {
        let transmit = self.transmit;
        let ready = self.ready.as_mut().expect("prepared");
        if !ready.batch.send(&ready.socket, transmit)? {
            sender.failed();
            return Ok(Activity::Worked);
        }
        let mut now = clock::monotonic();
        for frame in 0..FRAMES_A_TURN {
            if frame > 0 && (frame as u64).is_multiple_of(ready.clock_every) {
                now = clock::monotonic();
            }
            let Step::Send { length, sequence } = sender.step(now) else {
                ready.batch.send(&ready.socket, transmit)?;
                return Ok(Activity::Idle);
            };
            if transmit == Transmit::SendTo {
                if !ready.send_to(length, sequence, now)? {
                    sender.failed();
                    break;
                }
            } else {
                let length = length - ready.headers;
                if !ready.batch.takes(length, transmit) && !ready.batch.send(&ready.socket, transmit)? {
                    sender.failed();
                    break;
                }
                ready.batch.push(length, stamp::payload(ready.tag, sequence, now));
            }
            sender.sent(now);
        }
        ready.batch.send(&ready.socket, transmit)?;
        Ok(Activity::Worked)
    }
}

impl Ready {
    fn send_to(&mut self, length: usize, sequence: u64, now: Nanoseconds) -> io::Result<bool> {
        let payload = &mut self.payload[..length - self.headers];
        payload[..stamp::PAYLOAD_BYTES].copy_from_slice(&stamp::payload(self.tag, sequence, now));
        match self.socket.send_to(payload, self.to) {
            Ok(_) => Ok(true),
            Err(e) if may_pass(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl offcodes::Sender for SocketSender {
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

impl Offcode for SocketSender {
    fn interfaces(&self) -> &[Guid] {
        &offcodes::INTERFACES
    }

    fn start(&mut self, _: &mut dyn Context) -> Result<()> {
        match self.waiting {
            Waiting::AbsoluteSleep => clock::set_timer_slack(Some(Nanoseconds(1))),
            Waiting::RelativeSleep | Waiting::Spin => Ok(()),
        }
    }

    fn call(&mut self, call: Incoming<'_>, reply: &mut Vec<u8>, context: &mut dyn Context) -> Result<(), Refusal> {
        <dyn offcodes::Sender>::dispatch(self, call, reply, context)
    }

    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        if !self.begun {
            return Activity::Idle;
        }
        match (self.block.state(), &mut self.ready) {
            (State::Finished, None) => return Activity::Idle,
            (State::Finished, Some(ready)) => {
                // The last frames of a batch may still wait. Then the next run starts afresh, with other addresses perhaps.
                if !matches!(ready.batch.send(&ready.socket, self.transmit), Ok(false)) {
                    self.ready = None;
                }
                return Activity::Idle;
            }
            (State::Idle, None) => {
                if let Err(fault) = self.prepare() {
                    context.log(&fault.to_string());
                    self.block.sender().finish();
                    return Activity::Idle;
                }
            }
            (State::Running, None) => return Activity::Idle,
            _ => {}
        }
        let block = self.block.clone();
        let mut sender = block.resume();
        let outcome = if block.is_paced() { self.paced(&mut sender) } else { self.fast(&mut sender) };
        outcome.unwrap_or_else(|e| {
            sender.failed();
            sender.finish();
            context.log(&format!("sending ends: {e}"));
            Activity::Worked
        })
    }

    fn stop(&mut self, _: &mut dyn Context) {
        if self.waiting == Waiting::AbsoluteSleep {
            let _ = clock::set_timer_slack(None);
        }
        self.ready = None;
    }
}
