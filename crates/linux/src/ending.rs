//! The end of a child as an event.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

/// A descriptor that becomes readable when `child` has ended; its status stays for [`Child::wait`]. Where system call filters of
/// containers refuse descriptors of processes (`pidfd_open`), or kernels before 5.3 lack them, a thread waits instead.
///
/// # Errors
/// No descriptor or thread is left.
pub fn of(child: &Child) -> io::Result<OwnedFd> {
    let process = Pid::from_child(child);
    match pidfd_open(process, PidfdFlags::empty()) {
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => by_thread(process),
        descriptor => Ok(descriptor?),
    }
}

/// The read end of a pipe that a thread closes when the process has ended.
fn by_thread(process: Pid) -> io::Result<OwnedFd> {
    let (ended, held) = io::pipe()?;
    thread::Builder::new().name("ending".to_owned()).spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(process), options).err() == Some(Errno::INTR) {}
        drop(held);
    })?;
    Ok(ended.into())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn an_end_is_seen_with_and_without_a_descriptor_of_the_process() {
        for by in [of as fn(&Child) -> io::Result<OwnedFd>, |child: &Child| by_thread(Pid::from_child(child))] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let ended = by(&child).unwrap();
            let ready = |seconds| {
                poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&Timespec { tv_sec: seconds, tv_nsec: 0 }))
                    .unwrap()
            };
            assert_eq!(ready(0), 0);
            drop(child.stdin.take());
            assert_eq!(ready(60), 1);
            assert!(child.wait().unwrap().success(), "its status was taken");
        }
    }
}
