//! The program that redirects an interface's frames to AF_XDP sockets, past the kernel's protocol stack.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use machine::{Fault, Result, XdpMode};

use super::Receiver;
use linux::xdp::{self, Attached, Attachment, Interface, Object, SharedWords};

/// The frames that go to the sockets; all others go to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// UDP datagrams to this port over IPv4 or IPv6, without fragments.
    UdpPort(u16),
}

/// The program's counters since it was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redirected {
    /// Frames redirected to a socket, including those that its ring had no room for.
    pub redirected: u64,
    /// Frames left to the kernel.
    pub passed: u64,
}

/// The program, attached while this lives; the kernel detaches it also when this process is killed.
#[derive(Debug)]
pub struct Redirect {
    attachment: Attachment,
    interface: Interface,
    object: Object,
    counters: SharedWords,
}

impl Redirect {
    /// Attaches the program to `interface`, which must be of the calling thread's network namespace, in `mode` without fallback.
    pub fn attach(interface: &str, mode: XdpMode, which: Which) -> Result<Redirect> {
        let name = "redirecting program";
        let interface = Interface::named(interface)?;
        let code = xdp::built(name, bpf::REDIRECT)?;
        let port: u32 = match which {
            Which::All => 0,
            Which::UdpPort(0) => return Err(Fault::new(name, "UDP has no port 0", "choose 1 to 65535")),
            Which::UdpPort(port) => port.into(),
        };
        let loader = xdp::loader_for("redirect", code, &interface, mode);
        let object = loader.variable("UDP_PORT", &port.to_ne_bytes()).load()?;
        let counters = object.shared("COUNTERS")?;
        let attachment = Attachment::new(object.program("redirect")?, &interface, mode)?;
        Ok(Redirect { attachment, interface, object, counters })
    }

    /// The attachment by the kernel's account. A fault where it is not this program in this mode.
    pub fn prove(&self) -> Result<Attached> {
        self.attachment.prove(&self.interface)
    }

    /// Redirects frames of the receiver's queue to it; a second receiver of one queue replaces the first.
    pub fn add(&mut self, receiver: &Receiver) -> Result<()> {
        let socket = receiver.as_fd().as_raw_fd();
        self.object.map("SOCKETS")?.put(receiver.queue(), &socket.to_ne_bytes()).map_err(|e| {
            let subject = format!("AF_XDP on {}, queue {}", self.interface.name(), receiver.queue());
            Fault::because(subject, e, "bind the receiver to a queue of this interface, below 64")
        })
    }

    /// The counters, read from shared memory.
    pub fn counted(&self) -> Redirected {
        let queues = (0..self.counters.entries()).map(|queue| self.counters.value(queue));
        queues.fold(Redirected::default(), |sum, words| Redirected {
            redirected: sum.redirected + words[0].load(Ordering::Relaxed),
            passed: sum.passed + words[1].load(Ordering::Relaxed),
        })
    }
}
