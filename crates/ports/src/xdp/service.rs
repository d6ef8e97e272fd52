//! Lanes for other processes: the process that attached the program lends them over a named socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use machine::bounds::LANE_CALLERS;
use machine::{Fault, Result, XdpMode};
use rustix::event::{PollFd, PollFlags, poll};

use super::hook::{Hook, LentLane};
use linux::passing::{fault, hear, patiently, say, speaks};
use linux::rendezvous::{self, Meeting};

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimlane");
/// Raised with every change of `lanes.h` or of these messages.
const VERSION: u64 = 2;
/// Pause of a service that cannot accept a caller for lack of a descriptor.
const PAUSE: Duration = Duration::from_millis(50);
const MOST_CALLERS: usize = LANE_CALLERS.total.count();

/// The name of the process that serves the lanes of `interface`, in its network namespace.
pub(super) fn name(interface: &str) -> String {
    format!("plimsoll/xdp/{interface}")
}

/// Serves a hook's lanes to processes of this user until dropped. A lane is freed when its process ends.
#[derive(Debug)]
pub struct Service {
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a thread that serves; it sleeps until a process comes or goes. `meeting` is held in the interface's namespace.
    pub fn start(hook: Arc<Hook>, meeting: Meeting) -> Result<Service> {
        let broken = |e: std::io::Error| Fault::because("serving lanes", e, "raise the limits of files and threads");
        let (wake, woken) = UnixStream::pair().map_err(broken)?;
        let thread = thread::Builder::new().name("lanes".into()).spawn(move || serve(&hook, &meeting, &woken));
        Ok(Service { wake: Some(wake), thread: Some(thread.map_err(broken)?) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(hook: &Arc<Hook>, meeting: &Meeting, woken: &UnixStream) {
    // Callers, each with its lane once it has shown its socket.
    let mut guests: Vec<(UnixStream, Option<LentLane>)> = Vec::new();
    loop {
        let mut polled = vec![PollFd::new(woken, PollFlags::RDHUP), PollFd::new(meeting, PollFlags::IN)];
        let awaited = |lent: &Option<LentLane>| if lent.is_some() { PollFlags::RDHUP } else { PollFlags::IN };
        polled.extend(guests.iter().map(|(stream, lent)| PollFd::new(stream, awaited(lent))));
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let happened: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        if happened[0] {
            return;
        }
        let mut happened = happened[2..].iter();
        guests.retain_mut(|(stream, lent)| {
            if !*happened.next().expect("one for each") {
                return true;
            }
            // An event of a caller with a lane is its end, of one without a lane its socket.
            if lent.is_some() {
                return false;
            }
            *lent = lend(hook, stream).ok();
            lent.is_some()
        });
        // One at a time, so that messages of earlier callers are handled before there are too many.
        match meeting.try_accept() {
            Ok(Some(stream)) => {
                let mut silent = guests.iter().enumerate().filter(|(_, (_, lent))| lent.is_none()).map(|(at, _)| at);
                if let Some(oldest) = silent.next()
                    && silent.count() + 1 >= MOST_CALLERS
                {
                    guests.remove(oldest);
                }
                guests.push((stream, None));
            }
            Ok(None) => {}
            // The caller stays pending, and the next poll returns at once.
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Lends the process at the other end a lane for the socket that it shows.
fn lend(hook: &Arc<Hook>, stream: &UnixStream) -> Result<LentLane> {
    patiently(stream, || {
        let mut asked = hear(stream)?;
        speaks(&asked, PROTOCOL, VERSION)?;
        let socket = asked.fd.take().ok_or_else(|| fault("it shows no socket"))?;
        let lent = hook.admit(socket.as_fd());
        let answer = [PROTOCOL, VERSION, mode_word(hook.mode()), u64::from(hook.id()), 0, 0, 0, 0];
        say(stream, &answer, lent.as_ref().ok().map(|(_, memory)| memory.as_fd()))?;
        lent.map(|(lent, _)| lent)
    })
}

/// A lane that another process lends.
#[derive(Debug)]
pub(super) struct Lent {
    pub memory: OwnedFd,
    /// The connection, which ends when that process does.
    pub stream: UnixStream,
    pub mode: XdpMode,
    /// The program's number.
    pub id: u32,
}

/// Asks the process that serves the lanes of `interface` for one. To be called in its namespace.
pub(super) fn borrow(interface: &str, socket: BorrowedFd<'_>) -> Result<Lent> {
    let stream = rendezvous::call(&name(interface))?;
    let (memory, mode, id) = patiently(&stream, || {
        say(&stream, &[PROTOCOL, VERSION, 0, 0, 0, 0, 0, 0], Some(socket))?;
        let mut answer = hear(&stream)?;
        speaks(&answer, PROTOCOL, VERSION)?;
        let [_, _, mode, id, ..] = answer.words;
        let memory = answer.fd.take().ok_or_else(|| {
            Fault::new(
                format!("a lane at interface {interface}"),
                "the process that attached the receiving program refuses one: all 64 are taken, or the socket is not \
                 of that interface's namespace",
                "run fewer ranks on this interface, at one of its addresses",
            )
        })?;
        let mode = if mode == mode_word(XdpMode::Native) { XdpMode::Native } else { XdpMode::Generic };
        Ok((memory, mode, id as u32))
    })?;
    Ok(Lent { memory, stream, mode, id })
}

fn mode_word(mode: XdpMode) -> u64 {
    match mode {
        XdpMode::Native => 1,
        _ => 2,
    }
}

/// Whether the process at the other end has ended, or has hung up.
pub(super) fn has_hung_up(stream: &UnixStream) -> bool {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&now)).is_ok_and(|ready| ready > 0)
}
