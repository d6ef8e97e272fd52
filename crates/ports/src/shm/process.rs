//! The process behind a link: whether it lives, and the memory that its requests point into, read where permitted.
//!
//! The kernel names the process at the other end of the socket, never the process itself. It is held by a descriptor,
//! one for all links to it; processes in invisible PID namespaces are watched by a socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;

use machine::{Fault, Result};
use rustix::io::Errno;

use linux::credentials::{Credentials, has_hung_up};
use linux::identity::Identity;
use linux::remote::{self, Token};
use linux::shortage;

/// The memory of a process that addresses in requests point into, and a word in it that is valid while the endpoint lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub pid: u32,
    pub address: u64,
    pub word: u64,
}

impl Memory {
    /// The memory of this process. The word must stay in place.
    pub(super) fn here(word: &u64) -> Memory {
        Memory { pid: process::id(), address: &raw const *word as u64, word: *word }
    }
}

/// The process that the kernel names at the other end of `stream`; `None` where it cannot be held.
///
/// # Errors
/// A fault that may pass: there is no descriptor left.
pub(super) fn identify(named: &Credentials, stream: &UnixStream) -> Result<Option<Arc<Identity>>> {
    Identity::of(named, stream).or_else(|e| {
        let fault = Fault::because("peer on this host", e, "raise the limit on open files (ulimit -n)");
        if shortage::may_pass(&fault) { Err(fault) } else { Ok(None) }
    })
}

pub(super) struct Process {
    watch: Watch,
    /// The memory; `None` where this process may not read it.
    memory: Option<Readable>,
}

/// The means to notice the end of a process.
enum Watch {
    Held(Arc<Identity>),
    /// A socket that it holds as long as it lives. A forked child without an exec holds it too, and hides the end.
    Socket(Arc<UnixStream>),
}

struct Readable {
    owner: Arc<Identity>,
    /// Missing once the owner has closed the endpoint, or runs another program.
    token: Token,
}

impl Readable {
    /// Reads from the owner only: before each read the kernel is asked whether it still lives.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<bool> {
        remote::read_from(self.owner.living()?, &self.token, address, into)
    }
}

impl Process {
    /// The process `held`, whose requests point into the memory of `owner`, itself or one for which it works.
    pub fn new(held: Arc<Identity>, owner: Option<Arc<Identity>>, token: Token) -> Process {
        let memory = owner.map(|owner| Readable { owner, token });
        let memory = memory.filter(|memory| matches!(memory.read(0, &mut []), Ok(true)));
        Process { watch: Watch::Held(held), memory }
    }

    /// A process without a descriptor, at the other end of `socket`. Its memory cannot be read.
    pub fn unseen(socket: Arc<UnixStream>) -> Process {
        Process { watch: Watch::Socket(socket), memory: None }
    }

    pub fn is_seen(&self) -> bool {
        matches!(self.watch, Watch::Held(_))
    }

    pub fn number(&self) -> Option<u32> {
        match &self.watch {
            Watch::Held(held) => Some(held.number().as_raw_nonzero().get() as u32),
            Watch::Socket(_) => None,
        }
    }

    /// Whether this process may read the memory, as tried.
    pub fn is_readable(&self) -> bool {
        self.memory.is_some()
    }

    /// Fills `into` from the memory. After a failure it counts as unreadable; the error is `None` where the process is gone.
    pub fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Option<io::Error>> {
        let failed = match self.memory.as_ref().map(|memory| memory.read(address, into)) {
            Some(Ok(true)) => return Ok(()),
            Some(Err(e)) if Errno::from_io_error(&e) != Some(Errno::SRCH) => Some(e),
            _ => None,
        };
        self.memory = None;
        Err(failed)
    }

    /// Asks the kernel whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        let held = match &self.watch {
            Watch::Held(held) => held,
            Watch::Socket(socket) => return has_hung_up(socket),
        };
        if held.is_own() {
            return false;
        }
        if held.has_ended() {
            return true;
        }
        // A process that runs another program lives on, but its endpoint does not.
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.owner.number() == held.number()) else {
            return false;
        };
        match remote::read_from(held.number(), &memory.token, 0, &mut []) {
            Ok(found) => !found,
            // Its first thread may have ended before the others, or its memory has become unreadable.
            Err(_) => {
                self.memory = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    use super::*;

    const WORD: u64 = 77;

    fn token(word: &u64) -> Token {
        Token { address: &raw const *word as u64, word: WORD }
    }

    fn child() -> (Child, Pid) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let number = Pid::from_child(&child);
        (child, number)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_may_not_be_read_is_watched_all_the_same() {
        let (child, number) = child();
        let held = Arc::new(Identity::new(number, pidfd_open(number, PidfdFlags::empty()).unwrap()));
        // The word is not at this address.
        let mut watched = Process::new(held.clone(), Some(held), Token { address: 8, word: 1 });
        assert!(watched.is_seen() && !watched.is_readable() && !watched.has_ended());
        end(child);
        assert!(watched.has_ended());
    }

    #[test]
    fn a_dead_peer_whose_number_another_has_is_told_dead_and_the_other_is_not_read() {
        let (child, number) = child();
        let descriptor = pidfd_open(number, PidfdFlags::empty()).unwrap();
        let word = Box::new(WORD);
        // A reused number: the process that has it now lives, has the word, and may be read.
        let peer = Arc::new(Identity::new(getpid(), descriptor));
        let mut process = Process::new(peer.clone(), Some(peer.clone()), token(&word));
        assert!(process.is_readable() && !process.has_ended());
        process.read(&raw const *word as u64, &mut [0; 8]).unwrap();
        end(child);
        assert!(process.has_ended());
        let refused = process.read(&raw const *word as u64, &mut [0; 8]).unwrap_err();
        assert!(refused.is_none(), "it has ended: {refused:?}");
        assert!(!process.is_readable() && !Process::new(peer.clone(), Some(peer), token(&word)).is_readable());
    }
}
