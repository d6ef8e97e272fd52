//! Finding a process of this host by name: abstract Unix sockets, which have no file and end with their holder.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use machine::{Fault, FaultKind, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use rustix::time::Timespec;

use crate::credentials;
use crate::shortage::{self, Need};
use crate::user;

/// Pause between two attempts to accept a refused caller, or to call.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a holder may have no room for another caller.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A name under which this process can be called, in this network namespace.
#[derive(Debug)]
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
    /// Another process holds the name; or no descriptor is left for it or for the reserve ([`shortage::keep_reserve`]).
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

    /// Waits for the next caller of the same user, or of root. Others are turned away silently.
    ///
    /// Where no descriptor is left, the reserve's takes one caller, so that it can be told; later ones wait until
    /// descriptors are free. `None` after [`Meeting::end`].
    pub fn accept(&self) -> Option<UnixStream> {
        let mut pause = PAUSE;
        loop {
            let _ = shortage::keep_reserve();
            match self.take() {
                Ok(Some(stream)) => return Some(stream),
                Ok(None) => {}
                // The kernel's error for a listener that was shut down.
                Err(e) if e.kind() == ErrorKind::InvalidInput => return None,
                Err(_) => {
                    thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The next caller of the same user, or of root, if one waits.
    pub fn try_accept(&self) -> Result<Option<UnixStream>> {
        // An accept without a caller costs several times as much, since it makes a socket first.
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

    /// Whether there may be a caller.
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
        // The kernel names the caller, since every user of the host can connect to the name.
        match credentials::of_peer(&stream) {
            Ok(peer) if peer.user == 0 || user::is(geteuid(), &peer, &stream)? => Ok(Some(stream)),
            _ => Ok(None),
        }
    }

    /// Takes no more calls; ends a waiting [`Meeting::accept`] of another thread.
    pub fn end(&self) {
        // Shutting a listener down cannot fail.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }
}

/// The socket, to poll for callers.
impl AsFd for Meeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Connects to the holder of `name`, which must be this user or root; for root, root alone.
///
/// # Errors
/// No process holds the name ([`FaultKind::Closed`]); another user holds it ([`FaultKind::NotPermitted`]); the holder
/// has no room for another caller ([`FaultKind::Busy`]).
pub fn call(name: &str) -> Result<UnixStream> {
    let stream = connect(name, Instant::now() + TIMEOUT)?;
    check_holder(name, &stream)?;
    waiting(name, stream)
}

/// As [`call`], but lets root call a holder of any user, whose answers may be hostile.
///
/// # Errors
/// As for [`call`].
pub fn look_at(name: &str) -> Result<UnixStream> {
    let stream = connect(name, Instant::now() + TIMEOUT)?;
    if !geteuid().is_root() {
        check_holder(name, &stream)?;
    }
    waiting(name, stream)
}

/// As [`call`], without blocking, also in later use of the stream.
///
/// # Errors
/// As for [`call`]; a fault that may pass ([`crate::shortage::may_pass`]) where the holder has no room for another caller now.
pub fn call_at_once(name: &str) -> Result<UnixStream> {
    let stream = connect(name, Instant::now())?;
    check_holder(name, &stream)?;
    Ok(stream)
}

/// A nonblocking stream to the holder of `name`. Retries until `until` while there is no room for another caller; a
/// blocking call would wait for as long as the holder likes.
fn connect(name: &str, until: Instant) -> Result<UnixStream> {
    let refused = |e: Errno| unanswered(name, e.into());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(refused)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refused)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::AGAIN) if Instant::now() < until => thread::sleep(PAUSE),
            Err(e) => return Err(refused(e)),
        }
    }
}

/// Whether a name that could not be called cannot be taken either: another user holds it, or a process that accepts nobody.
pub fn is_in_the_way(fault: &Fault) -> bool {
    matches!(fault.kind(), FaultKind::NotPermitted | FaultKind::Busy)
}

fn waiting(name: &str, stream: UnixStream) -> Result<UnixStream> {
    stream.set_nonblocking(false).map_err(|e| unanswered(name, e))?;
    Ok(stream)
}

fn unanswered(name: &str, error: io::Error) -> Fault {
    let subject = format!("socket '{name}'");
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            let cause = "no process of this network namespace holds it";
            Fault::new(subject, cause, "look whether that process still runs").of_kind(FaultKind::Closed)
        }
        ErrorKind::WouldBlock => {
            let subject = format!("{subject}, whose holder has no room for another caller");
            Fault::because(subject, error, "look which process that is: ss -xlp").of_kind(FaultKind::Busy)
        }
        _ => {
            let next = "raise the limit on open files (ulimit -n); look whether that process still runs";
            Fault::because(subject, error, next)
        }
    }
}

/// The user that holds `name`, according to the kernel, and whether it is this one.
fn holder(name: &str, stream: &UnixStream) -> Result<(u32, bool)> {
    let peer = credentials::of_peer(stream).map_err(|e| unanswered(name, e))?;
    Ok((peer.user, user::is(geteuid(), &peer, stream).map_err(|e| unanswered(name, e))?))
}

fn check_holder(name: &str, stream: &UnixStream) -> Result<()> {
    let (user, is_own) = holder(name, stream)?;
    if is_own || user == 0 {
        return Ok(());
    }
    let cause = match user == geteuid().as_raw() {
        true => "users have no numbers in this user namespace, and the holder is in another one".to_owned(),
        false => format!("it is held by user {user}, not by you"),
    };
    let next = "have that user end the process that holds it: ss -xlp";
    Err(Fault::new(format!("socket '{name}'"), cause, next).of_kind(FaultKind::NotPermitted))
}

/// Names that are held.
#[derive(Debug, Default)]
pub struct Holders {
    /// Names of this user.
    pub own: Vec<String>,
    /// Names of other users, with their users; only for root.
    pub others: Vec<(String, u32)>,
    /// Number of holders that accept no callers, so that their users are not known.
    pub busy: usize,
}

/// The names that start with `prefix`. Holders that accept no callers are waited for together.
pub fn holders(prefix: &str) -> Result<Holders> {
    let (us, until) = (geteuid(), Instant::now() + TIMEOUT);
    let mut found = Holders::default();
    for name in names(prefix)? {
        match connect(&name, until).and_then(|stream| holder(&name, &stream)) {
            Ok((_, true)) => found.own.push(name),
            Ok((user, false)) if us.is_root() => found.others.push((name, user)),
            Ok(_) => {}
            Err(fault) if fault.kind() == FaultKind::Busy => found.busy += 1,
            // The holder has just gone.
            Err(fault) if fault.kind() == FaultKind::Closed => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

/// The names that start with `prefix`, of processes of any user that listen in this network namespace.
pub fn names(prefix: &str) -> Result<Vec<String>> {
    let table = std::fs::read("/proc/thread-self/net/unix")
        .map_err(|e| Fault::because("/proc/thread-self/net/unix", e, "mount /proc"))?;
    let mut names = listed(&table, prefix);
    names.sort();
    names.dedup();
    Ok(names)
}

/// Names may hold any bytes, but ours are text.
fn listed(table: &[u8], prefix: &str) -> Vec<String> {
    let lines = table.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    lines.filter_map(|line| listening(line, prefix)).collect()
}

/// A line `Num RefCount Protocol Flags Type St Inode Path`; a listener has the flag 0x10000, an abstract name starts with '@'.
fn listening(line: &str, prefix: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
    let name = words.nth(3)?.strip_prefix('@')?;
    (flags & 0x10000 != 0 && name.starts_with(prefix)).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;

    use super::*;

    /// A listener that accepts nobody, and as many callers as it has room for.
    fn full(name: &str) -> (OwnedFd, Vec<UnixStream>) {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let callers = std::iter::from_fn(|| connect(name, Instant::now()).ok()).collect();
        (socket, callers)
    }

    #[test]
    fn a_holder_without_room_for_callers_holds_nobody_up() {
        let prefix = format!("plimsoll-full/{}/", std::process::id());
        let [busy, well] = ["busy", "well"].map(|of| format!("{prefix}{of}"));
        let _full = full(&busy);
        let _meeting = Meeting::open(&well).unwrap();
        let (send, receive) = mpsc::channel();
        let name = busy.clone();
        thread::spawn(move || send.send((call(&name), holders(&prefix))).is_ok());
        let (called, found) = receive.recv_timeout(Duration::from_secs(60)).expect("nobody waits for it");
        assert_eq!(called.unwrap_err().kind(), FaultKind::Busy);
        let Holders { own, others, busy: full } = found.unwrap();
        assert_eq!((own, others, full), (vec![well], vec![], 1));
        assert!(shortage::may_pass(&call_at_once(&busy).unwrap_err()));
    }

    #[test]
    fn another_users_name_is_a_fault_and_root_alone_looks_at_it() {
        let name = format!("plimsoll-others/{}", std::process::id());
        let Some(_theirs) = skip::another_user(|| Meeting::open(&name).unwrap()) else { return };
        for called in [call(&name), call_at_once(&name)] {
            let fault = called.unwrap_err();
            assert_eq!(fault.kind(), FaultKind::NotPermitted);
            assert!(fault.cause().contains(&format!("user {}", skip::OTHER_USER)), "{fault}");
        }
        look_at(&name).unwrap();
        let found = holders(&name).unwrap();
        assert_eq!((found.own, found.others), (vec![], vec![(name.clone(), skip::OTHER_USER)]));
        let roots = Meeting::open(&format!("{name}/root")).unwrap();
        let (called, found) = skip::another_user(|| (look_at(roots.name()), holders(&name).unwrap())).unwrap();
        called.expect("root is everybody's");
        assert_eq!((found.own, found.others), (vec![name], vec![]));
    }

    #[test]
    fn a_meeting_that_has_ended_takes_nobody() {
        let meeting = Meeting::open(&format!("plimsoll-ended/{}", std::process::id())).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting.accept().is_none());
            meeting.end();
            assert!(waiting.join().unwrap());
        });
        assert_eq!(call(meeting.name()).unwrap_err().kind(), FaultKind::Closed);
    }

    #[test]
    fn a_held_name_is_listed_and_reached_and_goes_with_its_holder() {
        let name = format!("plimsoll-test/{}", std::process::id());
        let meeting = Meeting::open(&name).unwrap();
        assert_eq!(names(&name).unwrap(), std::slice::from_ref(&name));
        assert!(Meeting::open(&name).is_err(), "a name is held once");
        let _stream = call(&name).unwrap();
        assert!(meeting.accept().is_some());
        drop(meeting);
        // A child of another test has the socket until its exec.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !names(&name).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "the name outlives its holder");
            thread::sleep(PAUSE);
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
        // A socket with such a name must not hide the others.
        let table = [line.as_bytes(), b"\xff\n", line.as_bytes(), b"\n"].concat();
        assert_eq!(listed(&table, "plimsoll/"), ["plimsoll/run/7"]);
    }
}
