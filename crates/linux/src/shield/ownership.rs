//! One owner a core.

use std::fs::File;

use machine::{CoreId, Fault, FaultKind, Result};

use super::subject;
use crate::ownership::{Lock, described, lock};

/// The lock on the core's folder in sysfs, which is there for every user and leaves no file behind.
pub(super) struct Ownership {
    _lock: File,
}

impl Ownership {
    /// A fault that names the owner where there is one.
    pub fn take(core: CoreId) -> Result<Ownership> {
        let path = format!("/sys/devices/system/cpu/cpu{}", core.0);
        let fault = |e: std::io::Error| Fault::because(subject(core), e, "mount sysfs: `mount -t sysfs sysfs /sys`");
        let folder = File::open(path).map_err(fault)?;
        match lock(&folder).map_err(fault)? {
            Lock::Taken => Ok(Ownership { _lock: folder }),
            Lock::Held(owner) => {
                let next = "choose another core, or wait until it ends";
                let owner = described(owner, "another shield has it");
                Err(Fault::new(subject(core), owner, next).of_kind(FaultKind::Busy))
            }
        }
    }
}
