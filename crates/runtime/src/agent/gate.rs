//! The gate of the agent: connections that have not authenticated yet, all on one thread, each with a deadline and none
//! with a thread of its own.
//!
//! Two pools of bounded size keep a flood from crowding out a client: connections that have said nothing sensible, and
//! those that have begun a handshake. Each pool gives up its own oldest member when it is full, and a real client stays
//! in either for about one round trip.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::doorbell::Doorbell;
use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};

use super::journal::Reason;
use super::state::AgentState;
use super::wire::{Wire, classify};

/// How often the gate looks at the time where that matters: somebody has not authenticated yet, or lines were left out.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Connections accepted before those that wait are served.
const ACCEPTS: usize = 32;

/// A connection that has not authenticated.
struct Pending {
    tls: ServerConnection,
    stream: TcpStream,
    from: SocketAddr,
    since: Instant,
}

/// The result of a look at a pending connection.
enum Step {
    Waits,
    /// Its greeting was understood and answered.
    Answered,
    Authenticated,
    Refused(Reason, String),
}

impl Pending {
    fn step(&mut self) -> Step {
        let mut answered = false;
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Step::Refused(Reason::Handshake, "it went away".into()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Step::Refused(Reason::Handshake, format!("it went away: {e}")),
            }
            let processed = self.tls.process_new_packets();
            answered |= self.tls.wants_write();
            // Flushes the alert or the answer. A peer that does not take it is slow, and has a deadline.
            let _ = self.flush();
            if let Err(error) = processed {
                let (reason, why) = classify(&error);
                return Step::Refused(reason, why);
            }
            if !self.tls.is_handshaking() {
                return Step::Authenticated;
            }
        }
        let _ = self.flush();
        if answered { Step::Answered } else { Step::Waits }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}

pub(crate) struct Gate {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    common: Arc<AgentState>,
    /// Connections that have sent nothing sensible yet, the oldest first.
    silent: VecDeque<Pending>,
    /// Connections in their handshake.
    begun: VecDeque<Pending>,
}

impl Gate {
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, common: Arc<AgentState>) -> Gate {
        Gate { listener, config, common, silent: VecDeque::new(), begun: VecDeque::new() }
    }

    /// Waits for news, or until `bell` rings or a signal asks the process to end, and hands each client that has
    /// authenticated to `admit`.
    pub fn turn(&mut self, bell: &Doorbell, mut admit: impl FnMut(Wire, SocketAddr)) -> Result<()> {
        let look = !self.silent.is_empty() || !self.begun.is_empty() || self.common.journal.left_out();
        let pause = look.then_some(Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.as_nanos() as i64 });
        let mut polled = Vec::with_capacity(3 + self.silent.len() + self.begun.len());
        polled.push(PollFd::new(&self.listener, PollFlags::IN));
        for pending in self.silent.iter().chain(&self.begun) {
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, pending.tls.wants_write());
            polled.push(PollFd::new(&pending.stream, events));
        }
        polled.push(PollFd::new(bell, PollFlags::IN));
        polled.extend(linux::signal::asked().map(|asked| PollFd::from_borrowed_fd(asked, PollFlags::IN)));
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Fault::because("listener", io::Error::from(e), "start the agent again")),
        }
        let news: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(polled);
        bell.heard();
        let (silent, begun) = (std::mem::take(&mut self.silent), std::mem::take(&mut self.begun));
        let split = silent.len();
        for (i, mut pending) in silent.into_iter().chain(begun).enumerate() {
            let step = if news[1 + i] { pending.step() } else { Step::Waits };
            match step {
                Step::Authenticated => {
                    let from = pending.from;
                    admit(Wire::new(pending.tls, pending.stream), from);
                }
                Step::Refused(reason, why) => self.common.journal.refused(pending.from, reason, &why),
                Step::Waits | Step::Answered if pending.since.elapsed() > self.common.limits.handshake => {
                    let why = format!("it did not authenticate within {:?}", self.common.limits.handshake);
                    self.common.journal.refused(pending.from, Reason::Handshake, &why);
                }
                Step::Waits if i < split => self.silent.push_back(pending),
                Step::Waits | Step::Answered => self.begun.push_back(pending),
            }
        }
        if news[0] {
            self.take_in();
        }
        let room = (self.common.limits.pending / 2).max(1);
        for pool in [&mut self.silent, &mut self.begun] {
            while pool.len() > room {
                let Some(oldest) = pool.pop_front() else { break };
                let why = format!("{room} others like it are waiting");
                self.common.journal.refused(oldest.from, Reason::Crowded, &why);
            }
        }
        self.common.journal.turn();
        Ok(())
    }

    fn take_in(&mut self) {
        for _ in 0..ACCEPTS {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    // Descriptors are short: the oldest connection gives one back. Or the peer has gone again.
                    if let Some(oldest) = self.silent.pop_front().or_else(|| self.begun.pop_front()) {
                        self.common.journal.refused(oldest.from, Reason::Crowded, &e.to_string());
                    } else {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return;
                }
            };
            let made = stream
                .set_nonblocking(true)
                .map_err(|e| e.to_string())
                .and_then(|()| ServerConnection::new(self.config.clone()).map_err(|e| e.to_string()));
            match made {
                Ok(tls) => self.silent.push_back(Pending { tls, stream, from, since: Instant::now() }),
                Err(why) => self.common.journal.refused(from, Reason::Handshake, &why),
            }
        }
    }
}
