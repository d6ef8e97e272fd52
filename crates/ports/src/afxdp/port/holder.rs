//! The holder of a queue, so that a second process can be told: a name in the network namespace that ends with its holder.
//!
//! The name only says which process to ask; exclusion is the kernel's, which refuses a second socket. So taking the
//! name gains nothing.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use linux::credentials;

/// The name of one queue, held while this lives.
#[derive(Debug)]
pub(super) struct Holder(Option<OwnedFd>);

/// Backlog of callers between two calls of [`Holder::tend`].
const ASKERS: i32 = 64;

impl Holder {
    /// Takes the name in the network namespace of the calling thread; holds nothing where another has it.
    pub fn take(interface: u32, queue: u32) -> Holder {
        let take = || -> io::Result<OwnedFd> {
            let socket = open()?;
            rustix::net::bind(&socket, &name(interface, queue)?)?;
            rustix::net::listen(&socket, ASKERS)?;
            Ok(socket)
        };
        Holder(take().ok())
    }

    /// Accepts and closes the connections of callers.
    pub fn tend(&self) {
        if let Some(socket) = &self.0 {
            while rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).is_ok() {}
        }
    }
}

/// The process that has a queue.
pub(super) struct Found {
    pub words: String,
    /// Whether it is this process.
    pub is_ours: bool,
}

/// The holder of a queue; `None` where no process has its name.
pub(super) fn of(interface: u32, queue: u32) -> Option<Found> {
    let socket = open().ok()?;
    rustix::net::connect(&socket, &name(interface, queue).ok()?).ok()?;
    let Some(process) = credentials::of_peer(&socket).ok()?.process else {
        return Some(Found { words: "a process of another PID namespace (another container)".into(), is_ours: false });
    };
    let is_ours = process == rustix::process::getpid();
    let process = process.as_raw_nonzero();
    let command = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    let command = machine::printable(String::from_utf8_lossy(&command).trim());
    let ours = if is_ours { ", which is this one," } else { "" };
    Some(Found { words: format!("process {process}{ours} ({command})"), is_ours })
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn name(interface: u32, queue: u32) -> io::Result<SocketAddrUnix> {
    let name = format!("plimsoll-afxdp/{interface}/{queue}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}
