//! Receive packet steering (RPS) of a lab: the core that does the protocol work for its hosts.

use std::path::Path;

use machine::{CoreId, CpuSet, Fault, Result, Source};

use super::{Host, INTERFACE};
use crate::journal::JournaledSetting as _;
use crate::steering::{KernelSetting, check_on_line};

/// The cores asked for in both hosts, and those in force by the kernel's account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// The core of each host. `None`: no steering, the sender's core does the work.
    pub asked: [Option<CoreId>; 2],
    /// The cores of host a's mask, then of host b's; empty without steering.
    pub in_force: [Vec<CoreId>; 2],
}

impl Steering {
    pub fn in_force(&self, host: Host) -> &[CoreId] {
        &self.in_force[host as usize]
    }

    /// Whether both hosts do as asked.
    pub fn holds(&self) -> bool {
        self.asked.iter().zip(&self.in_force).all(|(asked, cores)| cores.as_slice() == asked.as_slice())
    }
}

/// Refuses a core that this machine does not have, or that is offline.
pub(super) fn check(core: Option<CoreId>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    check_on_line(&Source::live(), &CpuSet::from_iter([core]), "choose one of these as --protocol-core")
}

/// The one receive queue of the calling thread's host.
fn queue() -> KernelSetting {
    KernelSetting::Rps(INTERFACE.into(), 0)
}

/// Steers the receive work of the calling thread's host.
pub(super) fn write(core: Option<CoreId>) -> Result<()> {
    let cores: Vec<u32> = core.iter().map(|core| core.0).collect();
    queue().write(Path::new("/"), &cores).map_err(refused)
}

/// The cores in force.
pub(super) fn read() -> Result<Vec<CoreId>> {
    let cores = queue().read(Path::new("/")).map_err(refused)?;
    Ok(cores.into_iter().map(CoreId).collect())
}

fn refused(error: std::io::Error) -> Fault {
    let next = "use a kernel with CONFIG_RPS, mount /sys for reading and writing, and run as root";
    Fault::because(queue().to_string(), error, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steering_holds_only_if_both_hosts_do_as_asked() {
        let (one, both) = (vec![CoreId(1)], [Some(CoreId(1)); 2]);
        assert!(Steering { asked: both, in_force: [one.clone(), one.clone()] }.holds());
        assert!(!Steering { asked: both, in_force: [one.clone(), vec![]] }.holds());
        assert!(!Steering { asked: [None; 2], in_force: [one.clone(), one.clone()] }.holds());
        let apart = [Some(CoreId(1)), Some(CoreId(0))];
        assert!(Steering { asked: apart, in_force: [one.clone(), vec![CoreId(0)]] }.holds());
        assert!(!Steering { asked: apart, in_force: [vec![CoreId(0)], one] }.holds());
    }

    #[test]
    fn a_core_off_line_or_missing_is_refused() {
        let fault = check(Some(CoreId(50_000))).unwrap_err();
        assert!(fault.cause().contains("on line are 0"), "{fault}");
    }
}
