//! The source of a port's lane: a hook of this process, or that of another process which was first.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use machine::{Fault, Result, XdpMode};

use super::hook::{Hook, LentLane};
use super::lane::Lane;
use super::layout;
use super::service::{self, Lent, Service, has_hung_up};
use linux::rendezvous::{Meeting, is_in_the_way};
use linux::xdp::SharedWords;
use linux::xdp::{Attached, Interface};

/// Attempts to join, in case the process that was first is just ending.
const ATTEMPTS: u32 = 50;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) enum Membership {
    /// A lane of this process's own hook.
    Own {
        lent: LentLane,
        /// Service to processes that come later.
        _service: Option<Service>,
    },
    Guest(Box<Lent>),
}

/// The way in which the program is attached.
#[derive(Debug, Clone)]
pub(super) struct Joined {
    /// Why it does not run in the driver, where it does not.
    pub note: Option<String>,
}

/// Gets a lane for the packets to `socket`. Attaches the program, in native mode where the driver has it, else in
/// generic mode; if another process of this user has attached it, that lends a lane. To be called in the interface's
/// namespace.
pub(super) fn join(interface: &str, socket: BorrowedFd<'_>) -> Result<(Membership, Lane, Joined)> {
    let mut attempt = 1;
    loop {
        let taken = match Meeting::open(&service::name(interface)) {
            Ok(meeting) => {
                let (hook, note) = attach(interface)?;
                let hook = Arc::new(hook);
                let (lent, lane) = admitted(&hook, socket)?;
                let service = Service::start(hook, meeting)?;
                return Ok((Membership::Own { lent, _service: Some(service) }, lane, Joined { note }));
            }
            Err(taken) => taken,
        };
        match service::borrow(interface, socket) {
            Ok(lent) => {
                let generic = (lent.mode != XdpMode::Native).then(|| "another process attached it so".into());
                let words = SharedWords::of(lent.memory.as_fd(), layout::WORDS as u32 * 8, 1).map_err(unmapped)?;
                return Ok((Membership::Guest(Box::new(lent)), Lane::over(words), Joined { note: generic }));
            }
            // That process may be about to end, or to find that it must not attach; an unrelated process may hold the
            // name for ever.
            Err(fault) if attempt < ATTEMPTS && !is_in_the_way(&fault) => thread::sleep(BETWEEN_ATTEMPTS),
            Err(fault) => return Err(Fault::new(taken.subject(), format!("{}; {fault}", taken.cause()), fault.next())),
        }
        attempt += 1;
    }
}

fn attach(interface: &str) -> Result<(Hook, Option<String>)> {
    let native = match Hook::attach(interface, XdpMode::Native) {
        Ok(hook) => return Ok((hook, None)),
        Err(fault) => fault,
    };
    match Hook::attach(interface, XdpMode::Generic) {
        Ok(hook) => Ok((hook, Some(format!("{}: {}", native.subject(), native.cause())))),
        Err(_) => Err(native),
    }
}

fn unmapped(error: std::io::Error) -> Fault {
    Fault::because("memory of a lane", error, "run as root, or with CAP_BPF")
}

pub(super) fn admitted(hook: &Arc<Hook>, socket: BorrowedFd<'_>) -> Result<(LentLane, Lane)> {
    let (lent, memory) = hook.admit(socket)?;
    Ok((lent, Lane::over(memory.words().map_err(unmapped)?)))
}

impl Membership {
    pub fn mode(&self) -> XdpMode {
        match self {
            Membership::Own { lent, .. } => lent.hook().mode(),
            Membership::Guest(lent) => lent.mode,
        }
    }

    pub fn id(&self) -> u32 {
        match self {
            Membership::Own { lent, .. } => lent.hook().id(),
            Membership::Guest(lent) => lent.id,
        }
    }

    /// Whether the process that lent the lane has gone, and the program with it.
    pub fn has_ended(&self) -> bool {
        matches!(self, Membership::Guest(lent) if has_hung_up(&lent.stream))
    }

    /// The attachment to `interface` by the kernel's account. A fault where it is not the program of this lane.
    pub fn prove(&self, interface: &Interface) -> Result<Attached> {
        let (id, mode) = (self.id(), self.mode());
        let found = interface.attached()?.into_iter().find(|found| (found.id, found.mode) == (id, mode));
        found.ok_or_else(|| {
            Fault::new(
                format!("receiving program {id} at interface {}", interface.name()),
                "the kernel says that it is not attached any more",
                "see who else attaches programs there: `ip link show`",
            )
        })
    }
}
