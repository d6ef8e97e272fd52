//! The process behind a link: whether it lives, and its memory, read where the kernel permits it.
//!
//! No descriptor is kept for a process whose memory may be read: a word in it tells the process from a later one of the same
//! number, and is gone with it. Others are watched by a process descriptor, one for all links to that process; those in PID
//! namespaces that are not seen from here by a socket.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Weak};
use std::{io, process};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

use linux::remote::{self, Token};

/// The memory of a process that addresses in requests point into, and a word of it that stays there while the endpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub pid: u32,
    pub address: u64,
    pub word: u64,
}

impl Memory {
    /// Of this process. The word must stay where it is.
    pub(super) fn here(word: &u64) -> Memory {
        Memory { pid: process::id(), address: &raw const *word as u64, word: *word }
    }

    /// False where it is that process's memory no more.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::from(Errno::SRCH))?;
        remote::read_from(pid, &Token { address: self.address, word: self.word }, address, into)
    }
}

pub(super) struct Process {
    /// `None` where it is in a PID namespace that is not seen from here.
    pid: Option<Pid>,
    memory: Memory,
    readable: bool,
    watch: Watch,
}

/// What shows that a process lives.
enum Watch {
    /// It is this one.
    Own,
    /// The word in its memory.
    Word,
    Descriptor(Arc<OwnedFd>),
    /// A descriptor that is still to be opened.
    Unopened,
    /// A socket that it holds as long as it lives. A child that it forks and that never execs holds it too, and hides its end.
    Socket(Arc<UnixStream>),
}

impl Process {
    /// The process `pid`, whose requests point into `memory`, its own or that of a process for which it works.
    pub fn new(pid: Pid, memory: Memory) -> Process {
        let readable = matches!(memory.read(0, &mut []), Ok(true));
        let watch = if pid == rustix::process::getpid() {
            Watch::Own
        } else if readable && memory.pid == pid.as_raw_nonzero().get() as u32 {
            Watch::Word
        } else {
            Watch::Unopened
        };
        Process { pid: Some(pid), memory, readable, watch }
    }

    /// A process that has no number here, at the other end of `socket`. Its memory cannot be read.
    pub fn unseen(socket: Arc<UnixStream>) -> Process {
        let memory = Memory { pid: 0, address: 0, word: 0 };
        Process { pid: None, memory, readable: false, watch: Watch::Socket(socket) }
    }

    pub fn is_seen(&self) -> bool {
        self.pid.is_some()
    }

    pub fn number(&self) -> Option<u32> {
        Some(self.pid?.as_raw_nonzero().get() as u32)
    }

    /// Whether this process may read the memory: tried, not assumed.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Fills `into` from the memory. After a failure it counts as unreadable; `None` where its process is gone.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Option<io::Error>> {
        let failed = match self.memory.read(address, into) {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => None,
            Err(e) => Some(e),
        };
        self.readable = false;
        Err(failed)
    }

    /// Asks the kernel whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        if matches!(self.watch, Watch::Word) {
            match self.memory.read(0, &mut []) {
                Ok(found) => return !found,
                // It may be ending, or its first thread have left the others, or its memory be closed to us from now on.
                Err(_) => self.watch = Watch::Unopened,
            }
        }
        if let (Watch::Unopened, Some(pid)) = (&self.watch, self.pid) {
            match descriptor(pid) {
                Ok(descriptor) => self.watch = Watch::Descriptor(descriptor),
                // For want of a descriptor nothing is known; the next look tries again.
                Err(error) => return error == Errno::SRCH,
            }
        }
        match &self.watch {
            Watch::Descriptor(descriptor) => is_over(descriptor),
            Watch::Socket(socket) => shows(socket, PollFlags::RDHUP),
            _ => false,
        }
    }
}

/// The descriptor of a process, the same for all who watch it.
fn descriptor(pid: Pid) -> Result<Arc<OwnedFd>, Errno> {
    static OPEN: Mutex<BTreeMap<i32, Weak<OwnedFd>>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    open.retain(|_, known| known.strong_count() > 0);
    let number = pid.as_raw_nonzero().get();
    // The process that a descriptor was opened for may have ended, and its number be another's.
    if let Some(known) = open.get(&number).and_then(Weak::upgrade).filter(|known| !is_over(known)) {
        return Ok(known);
    }
    let descriptor = Arc::new(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
    open.insert(number, Arc::downgrade(&descriptor));
    Ok(descriptor)
}

fn is_over(descriptor: &OwnedFd) -> bool {
    shows(descriptor, PollFlags::IN)
}

fn shows(descriptor: &impl AsFd, what: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut [PollFd::new(descriptor, what)], Some(&now)), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_watched_by_one_descriptor_each_and_told_ended() {
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // A word that is not there: memory that may not be read.
        let nothing = Memory { pid: child.id(), address: 8, word: 1 };
        let mut watched = [Process::new(pid, nothing), Process::new(pid, nothing)];
        for one in &mut watched {
            assert!(!one.is_readable() && !one.has_ended());
        }
        let [Watch::Descriptor(one), Watch::Descriptor(other)] = watched.each_ref().map(|process| &process.watch)
        else {
            panic!("watched by descriptors");
        };
        assert!(Arc::ptr_eq(one, other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(watched.iter_mut().all(Process::has_ended));
        assert!(Process::new(pid, nothing).has_ended(), "its descriptor is not taken for that of a later process");
    }
}
