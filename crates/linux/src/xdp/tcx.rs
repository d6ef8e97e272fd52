//! A program at an interface's tc hook, among those of others. Attached by a link (tcx, Linux 6.6), which ends with its
//! holder and needs no queueing discipline.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use machine::site::Direction;
use machine::{Fault, FaultKind, Result};

use super::interface::{self, Interface};
use super::program::{Program, ProgramKind};
use super::syscall::{self, Command};

/// The kernel's limit of programs at one hook.
const MOST: usize = 64;

/// A program attached to a tc hook, which the kernel detaches with this value.
#[derive(Debug)]
pub struct Attachment {
    link: OwnedFd,
    direction: Direction,
    program: u32,
}

/// A program at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub id: u32,
    /// Its name; `None` where this user may not know it.
    pub name: Option<String>,
}

impl Attachment {
    /// Attaches before the present programs, since their verdicts may end the hook's run, and reads back the state.
    pub fn new(program: &Program, interface: &Interface, direction: Direction) -> Result<Attachment> {
        const BEFORE: u32 = 1 << 3;
        let subject = || at(program.name(), interface, direction);
        if program.kind() != ProgramKind::Tc {
            return Err(Fault::new(subject(), "it is no program for packets", "name one of SEC(\"classifier\")"));
        }
        let mut attributes = syscall::TcxLinkCreate {
            program: syscall::number(program.as_fd()),
            target: interface.index(),
            attach: number(direction),
            flags: BEFORE,
            ..Default::default()
        };
        let link = interface.inside(|| syscall::make(Command::LinkCreate, &mut attributes))?;
        let link = link.map_err(|error| refused(subject(), &error))?;
        let attachment = Attachment { link, direction, program: program.id() };
        attachment.prove(interface)?;
        Ok(attachment)
    }

    /// Replaces `before`, which this has attached, by `program`: each packet is seen by one of them. On a fault `before` stays.
    pub fn replace(&mut self, before: &Program, program: &Program, interface: &Interface) -> Result<()> {
        let updated = syscall::replace(self.link.as_fd(), before.as_fd(), program.as_fd());
        updated.map_err(|error| refused(at(program.name(), interface, self.direction), &error))?;
        self.program = program.id();
        let proven = self.prove(interface).map(drop);
        if proven.is_err() && syscall::replace(self.link.as_fd(), program.as_fd(), before.as_fd()).is_ok() {
            self.program = before.id();
        }
        proven
    }

    /// Its index among the programs at the hook by the kernel's account, and these. A fault where it is not there.
    pub fn prove(&self, interface: &Interface) -> Result<(usize, Vec<Attached>)> {
        let found = attached(interface, self.direction)?;
        match found.iter().position(|found| found.id == self.program) {
            Some(place) => Ok((place, found)),
            None => Err(Fault::new(
                at(&self.program.to_string(), interface, self.direction),
                "the kernel says that it is not attached",
                "see whether the interface is still there: `bpftool net show`",
            )),
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // Closing detaches too, but not while a forked child has the descriptor until its exec.
        let link = syscall::number(self.link.as_fd());
        let _ = syscall::run(Command::LinkDetach, &mut syscall::Descriptor { descriptor: link });
    }
}

/// The programs at a tc hook, in the order in which they run.
pub fn attached(interface: &Interface, direction: Direction) -> Result<Vec<Attached>> {
    let ask = || {
        let mut ids = [0u32; MOST];
        let mut attributes = syscall::ProgramQuery {
            target: interface.index(),
            attach: number(direction),
            ids: ids.as_mut_ptr() as u64,
            count: MOST as u32,
            ..Default::default()
        };
        syscall::run(Command::ProgramQuery, &mut attributes)?;
        Ok(ids[..(attributes.count as usize).min(MOST)].to_vec())
    };
    let subject = || format!("programs at tc {direction} of {}", interface.name());
    let ids = interface.inside(ask)?.map_err(|error| refused(subject(), &error))?;
    Ok(ids.into_iter().map(|id| Attached { id, name: interface::program_name(id) }).collect())
}

fn at(program: &str, interface: &Interface, direction: Direction) -> String {
    format!("program {program} at interface {}, tc {direction}", interface.name())
}

/// The attach type, from `enum bpf_attach_type`.
fn number(direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => 46,
        Direction::Egress => 47,
    }
}

fn refused(subject: String, error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            let cause = "this kernel attaches no programs to tc hooks by a link (tcx)";
            Fault::new(subject, cause, "use Linux 6.6 or newer, or the driver hook, xdp:IFACE")
                .of_kind(FaultKind::Missing)
        }
        Some(libc::ERANGE) => {
            Fault::new(subject, format!("the hook has the {MOST} programs that it can have"), "take one of them away")
        }
        _ => super::refused(
            subject,
            format!("the kernel refuses it: {error}"),
            error,
            "check that the interface is still there: `ip link`",
        ),
    }
}
