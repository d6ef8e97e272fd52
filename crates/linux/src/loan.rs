//! Memory that a process lends to another, which works on it and names it to third processes.
//!
//! The lender listens at a name that states the borrower, and a third process that connects there learns from the
//! kernel who listens. So no process can name memory that was not lent to it.

use std::io;
use std::sync::Arc;

use machine::{Fault, Result};

use crate::identity::Identity;
use crate::ownership::start_of;
use crate::rendezvous::{self, Meeting};

/// Most callers dismissed at a time.
const CALLERS: usize = 64;

/// A loan of this process's memory, valid while this lives.
pub struct Loan(Meeting);

impl Loan {
    /// Lends to `worker`. `word` distinguishes this loan from others.
    pub fn to(worker: &Identity, word: u64) -> Result<Loan> {
        let name = name(worker, word).map_err(|e| Fault::because("loan of memory", e, "mount /proc"))?;
        Meeting::open(&name).map(Loan)
    }

    /// Accepts and closes waiting calls, since the kernel's backlog is limited.
    pub fn tend(&self) {
        for _ in 0..CALLERS {
            if !matches!(self.0.try_accept(), Ok(Some(_))) {
                return;
            }
        }
    }
}

/// The process that lends memory to `worker`, as the kernel names it. `None` where there is none, or it is this
/// process, to which no other may name its own memory.
pub fn lender(worker: &Identity, word: u64) -> Option<Arc<Identity>> {
    let stream = rendezvous::call_at_once(&name(worker, word).ok()?).ok()?;
    Identity::of_peer(&stream).ok()?.filter(|lender| !lender.is_own())
}

/// The name of a loan. It has the borrower's start time, since the process number may be reused.
fn name(worker: &Identity, word: u64) -> io::Result<String> {
    let number = worker.living()?.as_raw_nonzero().get();
    Ok(format!("plimsoll/loan/{number}/{}/{word:016x}", start_of(number as u32)?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_loan_is_to_one_process_and_its_own_memory_is_named_to_nobody() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let number = Pid::from_child(&child);
        let worker = Identity::new(number, pidfd_open(number, PidfdFlags::empty()).unwrap());
        let (word, own) = (u64::from(std::process::id()), Identity::own());
        assert_ne!(name(&worker, word).unwrap(), name(&own, word).unwrap());
        let loan = Loan::to(&worker, word).unwrap();
        assert!(rendezvous::call_at_once(&name(&worker, word).unwrap()).is_ok());
        assert!(rendezvous::call_at_once(&name(&own, word).unwrap()).is_err(), "lent to another");
        assert!(rendezvous::call_at_once(&name(&worker, word + 1).unwrap()).is_err(), "another loan");
        assert!(lender(&worker, word).is_none(), "this process is not read for others");
        loan.tend();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(name(&worker, word).is_err(), "who has ended has no loan");
    }
}
