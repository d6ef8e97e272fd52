//! Moves processes with every thread, also threads that begin meanwhile.

use std::collections::BTreeSet;
use std::io;

use linux::mask;
use machine::{CpuSet, Fault, FaultKind, Result};
use mapping::decision::Process;
use rustix::io::Errno;

use crate::process;

fn subject(process: Process) -> String {
    format!("process {}", process.pid)
}

fn ended(process: Process) -> Fault {
    Fault::new(subject(process), "it has ended", "nothing is to be done").of_kind(FaultKind::Closed)
}

/// `None` for the error of a thread that has ended meanwhile.
fn of_living<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The most listings of a process's threads, each with a new thread, before the program is left alone.
const ATTEMPTS: usize = 100;

/// Calls `each` for every thread, until a listing shows no new thread: a thread inherits its mask from the thread that
/// creates it.
fn with_each_thread(process: Process, mut each: impl FnMut(i32) -> Result<()>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for _ in 0..ATTEMPTS {
        let new: Vec<i32> = process::threads(process).into_iter().filter(|thread| seen.insert(*thread)).collect();
        if !process::is_there(process) {
            return Err(ended(process));
        }
        if new.is_empty() {
            return Ok(());
        }
        new.into_iter().try_for_each(&mut each)?;
    }
    let cause = "it makes threads faster than they can be moved";
    Err(Fault::new(subject(process), cause, "leave a program alone that does so").of_kind(FaultKind::Limit))
}

/// The mask of all threads of a process; `None` where their masks differ, which only the program itself can cause.
pub fn seat(process: Process) -> Result<Option<CpuSet>> {
    let mut seats = BTreeSet::new();
    with_each_thread(process, |thread| {
        let mask = of_living(mask::get(thread)).map_err(|e| refused(process, e))?;
        seats.extend(mask);
        Ok(())
    })?;
    let one = seats.pop_first();
    Ok(one.filter(|_| seats.is_empty()))
}

fn refused(process: Process, error: io::Error) -> Fault {
    Fault::because(subject(process), error, "run the daemon as the job's user, or with CAP_SYS_NICE")
}

/// Changes the mask of all threads of a process from `from` to `to`. Where one change fails, all masks are restored.
///
/// # Errors
/// The process has ended; a thread has another mask than `from`; the kernel refuses, or gives less than `to`.
pub fn settle(process: Process, from: &CpuSet, to: &CpuSet) -> Result<()> {
    let mut given = BTreeSet::from([to.clone()]);
    let settled = with_each_thread(process, |thread| {
        match of_living(mask::get(thread)).map_err(|e| refused(process, e))? {
            Some(mask) if mask == *from => {}
            // A thread that was created by a thread already moved.
            Some(mask) if mask == *to => return Ok(()),
            None => return Ok(()),
            Some(mask) => {
                let cause = format!("its thread {thread} may run on {mask}, and was left on {from}");
                return Err(Fault::new(subject(process), cause, "leave a program alone that pins its own threads"));
            }
        }
        let changed = of_living(mask::set(thread, to).and_then(|()| mask::get(thread)));
        match changed.map_err(|e| refused(process, e))? {
            Some(mask) if mask != *to => {
                given.insert(mask.clone());
                let cause = format!("the kernel gave {mask} instead of {to}");
                Err(Fault::new(subject(process), cause, "choose cores that its control group has"))
            }
            _ => Ok(()),
        }
    });
    if settled.is_err() {
        let _ = put_back(process, |mask| given.contains(mask), from);
    }
    settled
}

/// Restores `before` for each thread whose mask is `ours`, as far as possible. Other masks are not the daemon's and stay.
/// Returns the number of threads restored and the number left alone.
pub fn put_back(process: Process, ours: impl Fn(&CpuSet) -> bool, before: &CpuSet) -> Result<(usize, usize)> {
    let (mut back, mut left, mut failed) = (0, 0, None);
    with_each_thread(process, |thread| {
        match of_living(mask::get(thread)) {
            Ok(Some(mask)) if mask == *before => {}
            // The kernel gives what is left of a cpuset that shrank meanwhile.
            Ok(Some(mask)) if ours(&mask) => match of_living(mask::set(thread, before)) {
                Ok(put) => back += usize::from(put.is_some()),
                Err(error) => failed = Some(error),
            },
            Ok(Some(_)) => left += 1,
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
        Ok(())
    })?;
    failed.map_or(Ok((back, left)), |error| Err(refused(process, error)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_process_that_makes_threads_without_end_is_given_up() {
        let own = process::identify(std::process::id()).unwrap();
        let (mut held, mut newest) = (vec![], None);
        // A process that has a new thread at every listing.
        let given_up = with_each_thread(own, |thread| {
            if newest.is_none_or(|newest| newest == thread) {
                let (tell, told) = mpsc::channel();
                let (release, released) = mpsc::channel::<()>();
                std::thread::spawn(move || (tell.send(linux::accounting::current_thread()), released.recv()));
                newest = told.recv().ok();
                held.push(release);
            }
            Ok(())
        });
        assert_eq!(given_up.unwrap_err().kind(), FaultKind::Limit);
    }
}
