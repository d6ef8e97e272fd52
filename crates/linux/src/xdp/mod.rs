//! BPF at the driver hook and at tc hooks: objects, maps as memory, and programs that are attached, called, or run on
//! live frames.
//!
//! Objects are parsed and linked by `aya-obj`; the system calls are made here, because the `aya` crate has no `syscall`
//! programs, does not map array memory, and falls back from a link to an attachment that outlives its holder.
//!
//! Nothing is pinned to a file: programs, maps and attachments end with their process.

mod attachment;
mod chain;
mod debug;
mod driver;
mod dump;
mod elf;
mod interface;
mod live;
mod map;
mod object;
mod outline;
mod point;
mod program;
mod ring;
mod shared;
mod syscall;
mod tcx;
#[cfg(test)]
mod tests;
mod typed;

use std::io;

pub use attachment::Attachment;
pub use chain::{Chain, Counts, Proof, Stage, TIMED_OF, counted, link};
pub use dump::Dump;
pub use interface::{Attached, Interface};
pub use live::{LiveFrames, LiveRun};
use machine::{Fault, FaultKind, Result, XdpMode};
pub use map::{Kind, Map};
pub use object::{Loader, Object};
pub use outline::{MapOutline, Outline, Reach};
pub use point::{MOST_STAGES, Point};
pub use program::{Program, ProgramKind, RunStatistics, Runs};
pub use ring::RingReader;
pub use shared::SharedWords;

/// A loader for programs for `interface`; hardware mode needs them made for its NIC.
pub fn loader_for<'a>(name: &'a str, code: &'a [u8], interface: &'a Interface, point: impl Into<Point>) -> Loader<'a> {
    match point.into() {
        Point::Xdp(XdpMode::Hardware) => Loader::new(name, code).for_device(interface),
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

/// Waits until every run of a program that had begun has ended: a program detached before no longer runs.
pub fn grace() -> Result<()> {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the call has no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } {
        0 => Ok(()),
        _ => Err(refused(
            "runs of BPF programs",
            "their end cannot be waited for".into(),
            &io::Error::last_os_error(),
            "start the kernel without nohz_full, under which membarrier is not offered",
        )),
    }
}

/// The object of a program that this build may include.
///
/// # Errors
/// The build has none, since clang was missing.
pub fn built(what: &str, object: Option<&'static [u8]>) -> Result<&'static [u8]> {
    object.ok_or_else(|| {
        let why = bpf::MISSING.unwrap_or("built without BPF programs");
        Fault::new(what, why, "install clang and build again").of_kind(FaultKind::Missing)
    })
}

/// The fault of a refused call; `otherwise` is the next step where neither privilege nor BPF itself is missing.
fn refused(subject: impl Into<String>, cause: String, error: &io::Error, otherwise: &str) -> Fault {
    let (kind, next) = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            (FaultKind::NotPermitted, "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
        }
        Some(libc::ENOSYS) => (FaultKind::Missing, "use a kernel with BPF (CONFIG_BPF_SYSCALL)"),
        _ => (FaultKind::Other, otherwise),
    };
    Fault::new(subject, cause, next).of_kind(kind)
}
