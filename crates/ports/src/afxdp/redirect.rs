//! The program that sends an interface's frames to AF_XDP sockets instead of the kernel's protocol stack.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use machine::{Fault, Result, XdpMode};

use super::Receiver;
use linux::xdp::{self, Attached, Attachment, Interface, Object, SharedWords};

/// Which frames go to the sockets. All others go on to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// UDP datagrams to this port, IPv4 or IPv6, that are no fragments.
    UdpPort(u16),
}

/// What the program counted since it was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Redirected {
    /// Frames sent the way of a socket; those that its ring had no room for among them.
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
    /// Attaches the program to `interface`, which must be of the calling thread's network namespace, in `mode` and no
    /// other.
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

    /// What the kernel says is attached now. A fault where it is not this program in this mode.
    pub fn prove(&self) -> Result<Attached> {
        self.attachment.prove(&self.interface)
    }

    /// Frames of the receiver's queue go to it from now on; a second receiver of one queue replaces the first.
    pub fn add(&mut self, receiver: &Receiver) -> Result<()> {
        let socket = receiver.as_fd().as_raw_fd();
        self.object.map("SOCKETS")?.put(receiver.queue(), &socket.to_ne_bytes()).map_err(|e| {
            let subject = format!("AF_XDP on {}, queue {}", self.interface.name(), receiver.queue());
            Fault::because(subject, e, "bind the receiver to a queue of this interface, below 64")
        })
    }

    /// A look at shared memory, no system call.
    pub fn counted(&self) -> Redirected {
        let queues = (0..self.counters.entries()).map(|queue| self.counters.value(queue));
        queues.fold(Redirected::default(), |sum, words| Redirected {
            redirected: sum.redirected + words[0].load(Ordering::Relaxed),
            passed: sum.passed + words[1].load(Ordering::Relaxed),
        })
    }
}
