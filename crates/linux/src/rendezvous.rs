//! Finding a process of this host by name: abstract Unix sockets, which have no file and end with their holder.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;

use crate::credentials;
use crate::shortage::{self, Need};

/// Between two tries to take a caller where the kernel refuses: at first, and at most.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A name on which this process is found, in this network namespace.
pub struct Meeting {
    listener: UnixListener,
    name: String,
}

fn address(name: &str) -> Result<SocketAddr> {
    let bad = |e| Fault::because(format!("socket name '{name}'"), e, "choose a shorter one");
    SocketAddr::from_abstract_name(name.as_bytes()).map_err(bad)
}

impl Meeting {
    /// # Errors
    /// The name is taken: another process holds it now. No descriptor is left, or none for the reserve
    /// ([`shortage::keep_reserve`]).
    pub fn open(name: &str) -> Result<Meeting> {
        let listener = UnixListener::bind_addr(&address(name)?).map_err(|e| {
            let next = if e.kind() == ErrorKind::AddrInUse { "end the process that holds it" } else { "see ulimit -n" };
            Fault::because(format!("socket name '{name}'"), e, next)
        })?;
        shortage::keep_reserve()?;
        Ok(Meeting { listener, name: name.into() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next caller of the same user, or of root. Others are turned away and not told of.
    ///
    /// Where no descriptor is left, the reserve's takes a caller all the same, so that it can be told; the next ones wait
    /// until descriptors are free.
    pub fn accept(&self) -> UnixStream {
        let mut pause = PAUSE;
        loop {
            let _ = shortage::keep_reserve();
            match self.take() {
                Ok(Some(stream)) => return stream,
                Ok(None) => {}
                Err(_) => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The next caller of the same user, or of root, if one waits.
    pub fn try_accept(&self) -> Result<Option<UnixStream>> {
        // An accept that finds nobody costs several times as much: it makes a socket first.
        if !self.is_called() {
            return Ok(None);
        }
        let broken = |e: io::Error| Fault::because(format!("socket '{}'", self.name), e, "see ulimit -n");
        self.listener.set_nonblocking(true).map_err(broken)?;
        loop {
            match self.take() {
                Ok(None) => {}
                Ok(caller) => return Ok(caller),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Whether somebody may have called.
    fn is_called(&self) -> bool {
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
        !matches!(rustix::event::poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    /// The next caller; `None` where it was turned away, or has left.
    fn take(&self) -> io::Result<Option<UnixStream>> {
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => {
                    return Ok(None);
                }
                Err(e) if shortage::is_of_descriptors(&e) && shortage::spend_reserve(Need::Caller) => {}
                Err(e) => return Err(e),
            }
        };
        // The kernel's word for who connected: the name alone is open to every user of the host.
        let us = rustix::process::geteuid().as_raw();
        let known = matches!(credentials::of_peer(&stream), Ok(peer) if peer.user == us || peer.user == 0);
        Ok(known.then_some(stream))
    }

    /// Ends a waiting [`Meeting::accept`] of another thread, which then gets this call's own connection.
    pub fn nudge(&self) {
        drop(call(&self.name));
    }
}

/// The socket, to sleep on until somebody calls.
impl AsFd for Meeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Connects to who holds `name`.
///
/// # Errors
/// Nobody does, or it belongs to another user.
pub fn call(name: &str) -> Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(name)?).map_err(|e| unanswered(name, e))?;
    check_holder(name, &stream)?;
    Ok(stream)
}

/// As [`call`], and waits for nothing, also later: the stream does not block.
///
/// # Errors
/// As for [`call`]; one that may pass ([`crate::shortage::may_pass`]) where the holder has no room for another caller now.
pub fn call_at_once(name: &str) -> Result<UnixStream> {
    let refused = |e: rustix::io::Errno| unanswered(name, e.into());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(refused)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refused)?;
    rustix::net::connect(&socket, &address).map_err(refused)?;
    let stream = UnixStream::from(socket);
    check_holder(name, &stream)?;
    Ok(stream)
}

fn unanswered(name: &str, error: io::Error) -> Fault {
    let subject = format!("socket '{name}'");
    if error.kind() == ErrorKind::ConnectionRefused {
        let cause = "no process of this network namespace holds it";
        return Fault::new(subject, cause, "look whether that process still runs");
    }
    Fault::because(subject, error, "raise the limit on open files (ulimit -n); look whether that process still runs")
}

fn check_holder(name: &str, stream: &UnixStream) -> Result<()> {
    let peer = credentials::of_peer(stream).map_err(|e| unanswered(name, e))?;
    let us = rustix::process::geteuid().as_raw();
    if peer.user != us && us != 0 && peer.user != 0 {
        return Err(Fault::new(
            format!("socket '{name}'"),
            format!("it is held by user {}, not by you", peer.user),
            "run this as that user or as root",
        ));
    }
    Ok(())
}

/// The names that start with `prefix`, of processes in this network namespace that listen now.
pub fn names(prefix: &str) -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/thread-self/net/unix")
        .map_err(|e| Fault::because("/proc/thread-self/net/unix", e, "mount /proc"))?;
    let mut names: Vec<String> = table.lines().filter_map(|line| listening(line, prefix)).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// `Num RefCount Protocol Flags Type St Inode Path`; a listener has the flag 0x10000, an abstract name starts with '@'.
fn listening(line: &str, prefix: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
    let name = words.nth(3)?.strip_prefix('@')?;
    (flags & 0x10000 != 0 && name.starts_with(prefix)).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_name_is_listed_and_reached_and_goes_with_its_holder() {
        let name = format!("plimsoll-test/{}", std::process::id());
        let meeting = Meeting::open(&name).unwrap();
        assert_eq!(names(&name).unwrap(), std::slice::from_ref(&name));
        assert!(Meeting::open(&name).is_err(), "a name is held once");
        let _stream = call(&name).unwrap();
        meeting.accept();
        drop(meeting);
        // A child that another test starts has the socket until its exec.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !names(&name).unwrap().is_empty() {
            assert!(std::time::Instant::now() < deadline, "the name outlives its holder");
            std::thread::sleep(PAUSE);
        }
        assert!(call(&name).unwrap_err().to_string().contains("no process"));
    }

    #[test]
    fn lines_of_the_table_are_read() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 15937 @plimsoll/run/7";
        assert_eq!(listening(line, "plimsoll/").as_deref(), Some("plimsoll/run/7"));
        assert_eq!(listening(&line.replace("00010000", "00000000"), "plimsoll/"), None);
        assert_eq!(listening("Num RefCount Protocol Flags Type St Inode Path", ""), None);
        assert_eq!(listening("", ""), None);
    }
}
