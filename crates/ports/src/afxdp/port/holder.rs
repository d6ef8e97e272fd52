//! Who has a queue, so that a second process can be told: a name in the network namespace that ends with its holder.
//!
//! The name decides nothing, the kernel's own exclusion of a second socket does; it only says whom to ask. So nobody wins
//! anything by taking it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use linux::credentials;

/// The name of one queue, held while this lives.
#[derive(Debug)]
pub(super) struct Holder(Option<OwnedFd>);

/// Askers that wait between two calls of [`Holder::tend`].
const ASKERS: i32 = 64;

impl Holder {
    /// In the network namespace of the calling thread. Where another has the name, this holds nothing.
    pub fn take(interface: u32, queue: u32) -> Holder {
        let take = || -> io::Result<OwnedFd> {
            let socket = open()?;
            rustix::net::bind(&socket, &name(interface, queue)?)?;
            rustix::net::listen(&socket, ASKERS)?;
            Ok(socket)
        };
        Holder(take().ok())
    }

    /// Lets those go that asked.
    pub fn tend(&self) {
        if let Some(socket) = &self.0 {
            while rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).is_ok() {}
        }
    }
}

/// The process that has a queue.
pub(super) struct Found {
    pub words: String,
    /// It is this one.
    pub is_ours: bool,
}

/// `None` where nobody says that the queue is theirs.
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
