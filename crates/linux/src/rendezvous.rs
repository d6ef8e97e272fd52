//! Finding a process of this host by name: abstract Unix sockets, which have no file and end with their holder.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use machine::{Fault, Result};
use rustix::net::sockopt::socket_peercred;

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
    /// The name is taken: another process holds it now.
    pub fn open(name: &str) -> Result<Meeting> {
        let listener = UnixListener::bind_addr(&address(name)?).map_err(|e| {
            let next = if e.kind() == ErrorKind::AddrInUse { "end the process that holds it" } else { "see ulimit -n" };
            Fault::because(format!("socket name '{name}'"), e, next)
        })?;
        Ok(Meeting { listener, name: name.into() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the next caller of the same user, or of root. Others are turned away and not told of.
    pub fn accept(&self) -> Result<UnixStream> {
        let us = rustix::process::geteuid();
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(Fault::because(format!("socket '{}'", self.name), e, "see ulimit -n")),
            };
            // The kernel's word for who connected: the name alone is open to every user of the host.
            match socket_peercred(&stream) {
                Ok(peer) if peer.uid == us || peer.uid.is_root() => return Ok(stream),
                _ => drop(stream),
            }
        }
    }

    /// The next caller of the same user, or of root, if one waits.
    pub fn try_accept(&self) -> Result<Option<UnixStream>> {
        let us = rustix::process::geteuid();
        let broken = |e: io::Error| Fault::because(format!("socket '{}'", self.name), e, "see ulimit -n");
        self.listener.set_nonblocking(true).map_err(broken)?;
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(broken(e)),
            };
            match socket_peercred(&stream) {
                Ok(peer) if peer.uid == us || peer.uid.is_root() => return Ok(Some(stream)),
                _ => drop(stream),
            }
        }
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
    let fail = |e: io::Error| {
        let cause = match e.kind() {
            ErrorKind::ConnectionRefused => "no process of this network namespace holds it".to_string(),
            _ => e.to_string(),
        };
        Fault::new(format!("socket '{name}'"), cause, "look whether that process still runs")
    };
    let stream = UnixStream::connect_addr(&address(name)?).map_err(fail)?;
    let peer = socket_peercred(&stream).map_err(|e| fail(e.into()))?;
    let us = rustix::process::geteuid();
    if peer.uid != us && !us.is_root() && !peer.uid.is_root() {
        return Err(Fault::new(
            format!("socket '{name}'"),
            format!("it is held by user {}, not by you", peer.uid.as_raw()),
            "run this as that user or as root",
        ));
    }
    Ok(stream)
}

/// The names that start with `prefix`, of processes in this network namespace that listen now.
pub fn names(prefix: &str) -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/net/unix")
        .map_err(|e| Fault::because("/proc/self/net/unix", e, "mount /proc"))?;
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
        meeting.accept().unwrap();
        drop(meeting);
        assert_eq!(names(&name).unwrap(), [""; 0]);
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
