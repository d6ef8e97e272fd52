//! Identity of a process that was met over a Unix socket, never confused with a later one of the same number.
//!
//! It is held by a descriptor, shared by all holders, which the kernel gives with the socket (Linux 6.5). Older kernels
//! give it for the number, which is valid as long as the process's end of the socket is open.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::credentials::{self, Credentials, has_hung_up};

/// A process that was met.
#[derive(Debug)]
pub struct Identity {
    number: Pid,
    hold: Hold,
}

#[derive(Debug)]
enum Hold {
    /// This process itself.
    Own,
    By(OwnedFd),
    /// The process had ended when it was met.
    Ended,
}

impl Identity {
    /// This process.
    pub fn own() -> Arc<Identity> {
        Arc::new(Identity { number: getpid(), hold: Hold::Own })
    }

    /// The process of `descriptor`, with the number that it has while it lives.
    pub fn new(number: Pid, descriptor: OwnedFd) -> Identity {
        Identity { number, hold: Hold::By(descriptor) }
    }

    /// The process that connected `socket`, or listened at it; `None` where it has no number here (another PID namespace).
    ///
    /// # Errors
    /// There is no descriptor left for it, or this kernel gives none.
    pub fn of_peer(socket: impl AsFd) -> io::Result<Option<Arc<Identity>>> {
        Identity::of(&credentials::of_peer(&socket)?, socket)
    }

    /// The process at the other end of `socket` that the kernel has named with a message, which need not be the socket's maker.
    ///
    /// # Errors
    /// As [`Identity::of_peer`].
    pub fn of(named: &Credentials, socket: impl AsFd) -> io::Result<Option<Arc<Identity>>> {
        static MET: Mutex<BTreeMap<i32, Weak<Identity>>> = Mutex::new(BTreeMap::new());
        let Some(number) = named.process else { return Ok(None) };
        if number == getpid() {
            return Ok(Some(Identity::own()));
        }
        let hold = open(number, socket.as_fd())?.map_or(Hold::Ended, Hold::By);
        let fresh = Identity { number, hold };
        let mut met = MET.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        met.retain(|_, known| known.strong_count() > 0);
        if fresh.has_ended() {
            return Ok(Some(Arc::new(fresh)));
        }
        let key = number.as_raw_nonzero().get();
        // No two living processes have one number.
        if let Some(known) = met.get(&key).and_then(Weak::upgrade).filter(|known| !known.has_ended()) {
            return Ok(Some(known));
        }
        let fresh = Arc::new(fresh);
        met.insert(key, Arc::downgrade(&fresh));
        Ok(Some(fresh))
    }

    /// Its number, which another process may have once it has ended.
    #[inline]
    pub fn number(&self) -> Pid {
        self.number
    }

    /// Its number, for system calls right after this one.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    #[inline]
    pub fn living(&self) -> io::Result<Pid> {
        if self.has_ended() { Err(Errno::SRCH.into()) } else { Ok(self.number) }
    }

    /// Whether the process has ended; does not wait.
    #[inline]
    pub fn has_ended(&self) -> bool {
        match &self.hold {
            Hold::Own => false,
            Hold::By(descriptor) => {
                let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
                matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1))
            }
            Hold::Ended => true,
        }
    }

    /// Whether it is this process.
    pub fn is_own(&self) -> bool {
        matches!(self.hold, Hold::Own)
    }
}

/// A descriptor of the process; `None` where it has ended.
fn open(number: Pid, socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    if credentials::of_peer(socket)?.process == Some(number) {
        match credentials::descriptor_of_peer(socket) {
            Err(e) => match Errno::from_io_error(&e) {
                Some(Errno::SRCH | Errno::INVAL | Errno::NOENT | Errno::NODATA) => return Ok(None),
                Some(Errno::NOPROTOOPT) => {}
                _ => return Err(e),
            },
            descriptor => return descriptor.map(Some),
        }
    }
    by_number(number, socket)
}

fn by_number(number: Pid, socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match pidfd_open(number, PidfdFlags::empty()) {
        // If its end is closed, it may have ended, and the descriptor may be of another process.
        Ok(descriptor) => Ok((!has_hung_up(socket)).then_some(descriptor)),
        // The number is a thread's now, and was the process's before.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command};

    use super::*;

    /// A child, as the kernel names it with a message.
    fn child() -> (Child, Credentials) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let named = Credentials { process: Some(Pid::from_child(&child)), user: 0 };
        (child, named)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn this_process_is_known_without_a_descriptor() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = Identity::of_peer(&one).unwrap().unwrap();
        assert!(own.is_own() && !own.has_ended());
        assert_eq!(own.living().unwrap(), getpid());
        assert!(Identity::of(&Credentials { process: None, user: 0 }, &one).unwrap().is_none());
    }

    #[test]
    fn a_process_has_one_descriptor_for_all_who_know_it_and_is_told_ended() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let (child, named) = child();
        let [one, other] = [(); 2].map(|()| Identity::of(&named, &stream).unwrap().unwrap());
        assert!(Arc::ptr_eq(&one, &other) && !one.is_own() && !one.has_ended());
        end(child);
        assert!(one.has_ended());
        let late = Identity::of(&named, &stream).unwrap().unwrap();
        assert!(late.has_ended(), "its descriptor is not taken for that of a later process");
    }

    #[test]
    fn who_has_ended_is_not_taken_for_who_has_its_number() {
        let (child, named) = child();
        let descriptor = pidfd_open(named.process.unwrap(), PidfdFlags::empty()).unwrap();
        end(child);
        // A reused number: that of this process, which lives.
        let taken = Identity::new(getpid(), descriptor);
        assert!(taken.has_ended() && !taken.is_own());
        assert_eq!(taken.living().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_number_is_nobodys_once_its_end_of_the_socket_is_closed() {
        let (stream, other) = UnixStream::pair().unwrap();
        let (child, named) = child();
        let number = named.process.unwrap();
        assert!(by_number(number, stream.as_fd()).unwrap().is_some());
        drop(other);
        // A child of another test has the socket until its exec.
        while !has_hung_up(&stream) {
            std::thread::yield_now();
        }
        assert!(by_number(number, stream.as_fd()).unwrap().is_none());
        end(child);
    }
}
