//! BPF at the driver hook: objects, maps as memory, programs that are attached, called, or run on live frames.
//!
//! Objects are parsed and linked by `aya-obj`; the system calls are made here, because the `aya` crate knows no `syscall`
//! programs, maps no array memory, and falls back from a link to an attachment that outlives its holder.
//!
//! Nothing here is pinned to a file: programs, maps and attachments end with the process that holds them.

mod attachment;
mod driver;
mod elf;
mod interface;
mod live;
mod map;
mod object;
mod program;
pub mod receive;
mod ring;
mod shared;
mod syscall;
#[cfg(test)]
mod tests;

use std::io;

pub use attachment::{Attachment, word};
pub use interface::{Attached, Interface};
pub use live::{LiveFrames, LiveRun};
use machine::{Result, XdpMode};
pub use map::{Kind, Map};
pub use object::{Loader, Object};
pub use program::{Program, ProgramKind, RunStatistics, Runs};
pub use ring::RingReader;
pub use shared::SharedWords;

/// A loader for programs that are to be attached to `interface` in `mode`: hardware mode needs them made for its NIC.
pub fn loader_for<'a>(name: &'a str, code: &'a [u8], interface: &'a Interface, mode: XdpMode) -> Loader<'a> {
    match mode {
        XdpMode::Hardware => Loader::new(name, code).for_device(interface),
        _ => Loader::new(name, code),
    }
}

/// A fault, naming them, where programs are attached to the interface.
pub fn check_vacant(interface: &Interface) -> Result<()> {
    attachment::vacant(interface)
}

/// Whether the kernel still holds a program of this number.
pub fn exists(id: u32) -> bool {
    interface::program_name(id).is_some()
}

/// The next step of whoever lacks a right, in the faults of this module.
pub(crate) const PRIVILEGED: &str = "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

fn next_step(error: &io::Error, otherwise: &str) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => PRIVILEGED.into(),
        Some(libc::ENOSYS) => "use a kernel with BPF (CONFIG_BPF_SYSCALL)".into(),
        _ => otherwise.into(),
    }
}
