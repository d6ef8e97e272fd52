//! Memory that a process lends to another, which works on it and tells third ones of it.
//!
//! The lender vouches for that by a connection of its own: it listens at a name that says to whom it lends, and who calls
//! there has the kernel's word for who listens. So nobody names memory that was not lent to it.

use std::io;
use std::sync::Arc;

use machine::{Fault, Result};

use crate::identity::Identity;
use crate::ownership::start_of;
use crate::rendezvous::{self, Meeting};

/// Callers let go at a time.
const CALLERS: usize = 64;

/// Memory of this process is lent while this lives.
pub struct Loan(Meeting);

impl Loan {
    /// Lends to `worker`. `word` tells this loan from others.
    pub fn to(worker: &Identity, word: u64) -> Result<Loan> {
        let name = name(worker, word).map_err(|e| Fault::because("loan of memory", e, "mount /proc"))?;
        Meeting::open(&name).map(Loan)
    }

    /// Lets those go that asked; beyond as many as the kernel lets wait, later ones ask in vain.
    pub fn tend(&self) {
        for _ in 0..CALLERS {
            if !matches!(self.0.try_accept(), Ok(Some(_))) {
                return;
            }
        }
    }
}

/// Who lends memory to `worker`, by the kernel's word. `None` where nobody says so, or this process itself: no other names
/// its memory to it.
pub fn lender(worker: &Identity, word: u64) -> Option<Arc<Identity>> {
    let stream = rendezvous::call_at_once(&name(worker, word).ok()?).ok()?;
    Identity::of_peer(&stream).ok()?.filter(|lender| !lender.is_own())
}

/// The number of a process alone may be another's later.
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
