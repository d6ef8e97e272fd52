//! Shortages of resources of a process, above all of descriptors.
//!
//! A process that calls others holds a descriptor for each until it is answered. If both ends use all of theirs for
//! calls, nobody can answer. A reserve that is never spent on calls prevents this: one descriptor for a caller, one for
//! the memory that it passes.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use machine::{Fault, Reading, Result};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether a retry may succeed: the kernel lacked a resource that this or another process will free.
pub fn may_pass(fault: &Fault) -> bool {
    let Some(source) = fault.source() else { return false };
    let number = source
        .downcast_ref::<io::Error>()
        .and_then(io::Error::raw_os_error)
        .or_else(|| source.downcast_ref::<Errno>().map(|errno| errno.raw_os_error()));
    let short = [
        Errno::MFILE,
        Errno::NFILE,
        // Descriptors in flight in sockets of this user.
        Errno::TOOMANYREFS,
        Errno::NOMEM,
        Errno::NOBUFS,
        // A listener has no room for more callers.
        Errno::AGAIN,
        Errno::INTR,
    ];
    number.is_some_and(|number| short.contains(&Errno::from_raw_os_error(number)))
}

/// Whether this process has reached its limit of descriptors.
pub(crate) fn is_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

static RESERVE: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Uses of the reserve; the value is what must be left after it.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    Memory = 0,
    Caller = 1,
    Nothing = 2,
}

fn reserve() -> MutexGuard<'static, Vec<OwnedFd>> {
    RESERVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Refills the reserve of this process.
///
/// # Errors
/// A fault that may pass: other descriptors must be closed first.
pub fn keep_reserve() -> Result<()> {
    let mut reserve = reserve();
    while reserve.len() < Need::Nothing as usize {
        let next = "raise the limit on open files (ulimit -n)";
        let filler = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        reserve.push(filler.map_err(|e| Fault::because("reserve of descriptors", io::Error::from(e), next))?);
    }
    Ok(())
}

/// Frees a descriptor for `need`. False where the reserve has none to spare for it.
pub fn spend_reserve(need: Need) -> bool {
    let mut reserve = reserve();
    reserve.len() > need as usize && reserve.pop().is_some()
}

/// Raises this process's limit of descriptors as far as it may. If that is refused, later calls that exceed the limit fail with a
/// message. Not for processes of others: programs that call `select` write beyond its sets with descriptors of 1024 or more.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Number of open descriptors of this process.
pub fn descriptors() -> Reading<u64> {
    match std::fs::read_dir("/proc/self/fd") {
        // One is the folder's own.
        Ok(open) => Reading::Measured(open.count() as u64 - 1),
        Err(e) => Reading::absent(format!("/proc/self/fd: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_give_back_may_pass() {
        let short = |number: Errno| Fault::because("x", io::Error::from(number), "");
        assert!(may_pass(&short(Errno::MFILE)) && may_pass(&short(Errno::MFILE).within("outer")));
        assert!(may_pass(&Fault::because("x", Errno::TOOMANYREFS, "")));
        assert!(!may_pass(&short(Errno::CONNREFUSED)) && !may_pass(&Fault::new("x", "too many open files", "")));
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        raise_descriptor_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn descriptors_are_counted() {
        let before = *descriptors().value().unwrap();
        let open: Vec<_> = (0..200).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        // Other tests open and close some meanwhile.
        assert!(*descriptors().value().unwrap() >= before + 100);
        drop(open);
    }
}
