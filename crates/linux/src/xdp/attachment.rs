//! A program at an interface's driver hook, verified to run in the mode asked for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use machine::{Fault, Result, XdpMode};

use super::interface::{Attached, Interface};
use super::object::ATTACH_XDP;
use super::program::{Program, ProgramKind};
use super::syscall::{self, Command};

/// The name of libxdp's dispatcher, which holds programs of others.
const OF_LIBXDP: &str = "xdp_dispatcher";

/// An attached program, which the kernel holds by this descriptor alone and detaches with it.
#[derive(Debug)]
pub struct Attachment {
    link: OwnedFd,
    mode: XdpMode,
    program: u32,
}

impl Attachment {
    /// Attaches, reads back the state, and compares. A fault where another program is there, where the driver lacks
    /// `mode`, or where the state differs from the request.
    pub fn new(program: &Program, interface: &Interface, mode: XdpMode) -> Result<Attachment> {
        let subject = || format!("program {} at interface {}, {} mode", program.name(), interface.name(), mode);
        if program.kind() != ProgramKind::Xdp {
            return Err(Fault::new(subject(), "it is no program for frames", "name one of SEC(\"xdp\")"));
        }
        vacant(interface)?;
        let mut attributes = syscall::LinkCreate {
            program: syscall::number(program.as_fd()),
            target: interface.index(),
            attach: ATTACH_XDP,
            flags: match mode {
                XdpMode::Generic => 1 << 1,
                XdpMode::Native => 1 << 2,
                XdpMode::Hardware => 1 << 3,
            },
        };
        let link = interface.inside(|| syscall::make(Command::LinkCreate, &mut attributes))?;
        let link = link.map_err(|error| {
            // Another process may have been quicker.
            vacant(interface).err().unwrap_or_else(|| refused(subject(), interface, mode, &error))
        })?;
        let attachment = Attachment { link, mode, program: program.id() };
        attachment.prove(interface)?;
        Ok(attachment)
    }

    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Replaces `before`, which this has attached, by `program`: each frame is seen by one of them. On a fault `before` stays.
    pub fn replace(&mut self, before: &Program, program: &Program, interface: &Interface) -> Result<()> {
        syscall::replace(self.link.as_fd(), before.as_fd(), program.as_fd()).map_err(|error| {
            let subject = format!("program {} at interface {}", program.name(), interface.name());
            refused(subject, interface, self.mode, &error)
        })?;
        self.program = program.id();
        let proven = self.prove(interface).map(drop);
        if proven.is_err() && syscall::replace(self.link.as_fd(), program.as_fd(), before.as_fd()).is_ok() {
            self.program = before.id();
        }
        proven
    }

    /// The attachment by the kernel's account. A fault where it is not this program in this mode.
    pub fn prove(&self, interface: &Interface) -> Result<Attached> {
        let found = interface.attached()?;
        if let Some(own) = found.iter().find(|found| found.id == self.program && found.mode == self.mode) {
            return Ok(own.clone());
        }
        let cause = match &found[..] {
            [] => "the kernel says that none is attached".into(),
            found => format!(
                "the kernel says that {} is attached",
                found.iter().map(in_words).collect::<Vec<_>>().join(" and ")
            ),
        };
        let subject = format!("program {} at interface {}, {} mode", self.program, interface.name(), self.mode);
        Err(Fault::new(subject, cause, "see who else attaches programs there: `ip link show`"))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Closing detaches too, but not while a forked child has the descriptor until its exec.
        let _ = syscall::run(
            Command::LinkDetach,
            &mut syscall::Descriptor { descriptor: syscall::number(self.link.as_fd()) },
        );
    }
}

fn in_words(attached: &Attached) -> String {
    let name = attached.name.as_deref().unwrap_or("of unknown name");
    format!("program {} ({name}) in {} mode", attached.id, attached.mode)
}

/// A fault that names the attached program, where there is one.
pub(super) fn vacant(interface: &Interface) -> Result<()> {
    match &interface.attached()?[..] {
        [] => Ok(()),
        found => {
            let next = match found.iter().any(|found| found.name.as_deref() == Some(OF_LIBXDP)) {
                true => {
                    "take libxdp's programs off (`xdp-loader unload IFACE --all`), or use the tc hook, which is shared: tc:IFACE"
                }
                false => "stop what attached it, or use the tc hook, which is shared: tc:IFACE",
            };
            Err(Fault::new(
                format!("interface {}", interface.name()),
                format!("{} is attached already", found.iter().map(in_words).collect::<Vec<_>>().join(" and ")),
                next,
            ))
        }
    }
}

fn refused(subject: String, interface: &Interface, mode: XdpMode, error: &io::Error) -> Fault {
    let driver = interface.driver().map_or("its driver".into(), |driver| format!("its driver ({driver})"));
    let number = error.raw_os_error();
    let (cause, next): (_, &str) = match (mode, number) {
        (XdpMode::Hardware, Some(libc::EOPNOTSUPP | libc::EINVAL)) => (
            format!("{driver} hands no program to a NIC ({error})"),
            "ask for native mode, which drivers such as veth, virtio_net and mlx5 have, or for generic mode",
        ),
        (XdpMode::Native, Some(libc::EOPNOTSUPP)) => (
            format!("{driver} has no hook of its own; it offers generic mode only"),
            "ask for generic mode, which runs after the kernel has made its buffers",
        ),
        (XdpMode::Native, Some(libc::ERANGE | libc::EINVAL | libc::ENOSPC)) => (
            format!("{driver} refuses it with its present settings ({error})"),
            "lower the MTU of the interface and its peer below 3500, and give it a queue for each core",
        ),
        _ => {
            return super::refused(
                subject,
                format!("the kernel refuses it: {error}"),
                error,
                "see the kernel's log: `dmesg`",
            );
        }
    };
    Fault::new(subject, cause, next)
}
