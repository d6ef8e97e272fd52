//! The program that sends an interface's frames to AF_XDP sockets instead of the kernel's protocol stack.

use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{MapData, PerCpuArray, XskMap};
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use machine::{Fault, Result};

use super::Receiver;

/// Where the kernel runs the program. Asked for and never replaced by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// In the driver. What zero copy needs.
    Native,
    /// In the kernel's receive path, after it has made buffers of its own.
    Generic,
    /// On the NIC.
    Hardware,
}

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

/// The program, attached while this lives.
pub struct Redirect {
    subject: String,
    sockets: XskMap<MapData>,
    counters: PerCpuArray<MapData, [u64; 2]>,
    // The link ends with its descriptor, so also when this process is killed.
    _program: Ebpf,
}

impl Redirect {
    /// Attaches the program to `interface`, which must be of the calling thread's network namespace.
    pub fn attach(interface: &str, hook: Hook, which: Which) -> Result<Redirect> {
        let subject = format!("redirecting program on {interface}");
        let Some(object) = bpf::REDIRECT else {
            let why = bpf::MISSING.unwrap_or("built without BPF programs");
            return Err(Fault::new(subject, why, "install clang and build again"));
        };
        let broken =
            |e: String| Fault::new(&subject, e, "run as root (CAP_NET_ADMIN and CAP_BPF) on Linux 5.9 or newer");
        let port: u32 = match which {
            Which::All => 0,
            Which::UdpPort(0) => return Err(Fault::new(subject, "UDP has no port 0", "choose 1 to 65535")),
            Which::UdpPort(port) => port.into(),
        };
        let mut program =
            EbpfLoader::new().override_global("UDP_PORT", &port, true).load(object).map_err(|e| broken(chain(&e)))?;
        let sockets = program.take_map("SOCKETS").ok_or_else(|| broken("it has no map SOCKETS".into()))?;
        let counters = program.take_map("COUNTERS").ok_or_else(|| broken("it has no map COUNTERS".into()))?;
        let sockets = XskMap::try_from(sockets).map_err(|e| broken(chain(&e)))?;
        let counters = PerCpuArray::try_from(counters).map_err(|e| broken(chain(&e)))?;
        let redirect: &mut Xdp = program
            .program_mut("redirect")
            .ok_or_else(|| broken("it has no program".into()))?
            .try_into()
            .map_err(|e| broken(chain(&e)))?;
        redirect.load().map_err(|e| broken(chain(&e)))?;
        let flags = match hook {
            Hook::Native => XdpMode::Driver,
            Hook::Generic => XdpMode::Skb,
            Hook::Hardware => XdpMode::Hardware,
        };
        redirect.attach(interface, flags).map_err(|e| {
            let next = "ask for another mode, or detach the program that is there (`ip link show`)";
            Fault::new(&subject, chain(&e), next)
        })?;
        Ok(Redirect { subject, sockets, counters, _program: program })
    }

    /// Frames of the receiver's queue go to it from now on; a second receiver of one queue replaces the first.
    pub fn add(&mut self, receiver: &Receiver) -> Result<()> {
        self.sockets.set(receiver.queue(), receiver.as_fd().as_raw_fd(), 0).map_err(|e| {
            Fault::new(&self.subject, chain(&e), "bind the receiver to a queue of this interface, below 64")
        })
    }

    pub fn counted(&self) -> Result<Redirected> {
        let cores = self
            .counters
            .get(&0, 0)
            .map_err(|e| Fault::because(&self.subject, e, "run again; the counters prove that it works"))?;
        Ok(cores.iter().fold(Redirected::default(), |sum, core| Redirected {
            redirected: sum.redirected + core[0],
            passed: sum.passed + core[1],
        }))
    }
}

/// The whole of an error: aya keeps the kernel's answer in the sources.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    said.dedup();
    said.join(": ")
}
