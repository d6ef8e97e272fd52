//! One TLS connection that carries frames, both ways, on a thread of its own: the same at the agent and at its client.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustls::{AlertDescription, CertificateError, Connection, Error};

use super::frame::{Cut, Decoder, encode};
use super::journal::Reason;
use super::protocol::Frame;

/// Time added to a moment that is waited for, so that it has come.
const MOMENT: Duration = Duration::from_micros(100);

/// Reads from the socket in one go before other work.
const READS: usize = 16;

/// Bytes encrypted before the socket gets them.
const BATCH: usize = 256 << 10;

/// Frames that wait to be sent, and the bell that wakes the thread that sends them.
pub(crate) struct Outbox {
    state: Mutex<Waiting>,
    bell: OwnedFd,
    limit: usize,
}

struct Waiting {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The connection ends once the waiting frames have left.
    Closing,
    /// More bytes than the limit waited: the other side does not read.
    Overflown,
    Ended,
}

impl Outbox {
    /// An outbox in which at most `limit` bytes wait; beyond them the connection ends.
    pub fn new(limit: usize) -> Result<Outbox> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Fault::because("event descriptor", e, "raise the limit on open files (ulimit -n)"))?;
        let state = Waiting { frames: VecDeque::new(), bytes: 0, state: State::Open };
        Ok(Outbox { state: Mutex::new(state), bell, limit })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A full counter has rung already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Adds a frame. False: the connection is no more.
    pub fn push(&self, frame: &Frame<'_>) -> bool {
        let frame = encode(frame);
        let mut waiting = self.lock();
        if waiting.state != State::Open {
            return false;
        }
        waiting.bytes += frame.len();
        if waiting.bytes > self.limit {
            waiting.state = State::Overflown;
        } else {
            waiting.frames.push_back(frame);
        }
        drop(waiting);
        self.ring();
        true
    }

    pub fn close(&self) {
        let mut waiting = self.lock();
        if waiting.state == State::Open {
            waiting.state = State::Closing;
        }
        drop(waiting);
        self.ring();
    }

    fn take(&self) -> (Option<Vec<u8>>, State) {
        let mut waiting = self.lock();
        let frame = waiting.frames.pop_front();
        waiting.bytes -= frame.as_ref().map_or(0, Vec::len);
        (frame, waiting.state)
    }

    fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.frames.is_empty() && waiting.state == State::Open
    }

    fn end(&self) {
        let mut waiting = self.lock();
        waiting.state = State::Ended;
        waiting.frames = VecDeque::new();
    }
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By [`Outbox::close`].
    Here,
    /// The other side said that it closes.
    There,
    /// The connection broke.
    Lost(String),
    /// The other side broke the protocol.
    Broken(Reason, String),
}

impl Ended {
    pub fn sentence(&self) -> String {
        match self {
            Ended::Here => "this side closed the connection".into(),
            Ended::There => "the other side closed the connection".into(),
            Ended::Lost(why) => {
                format!("the connection ended without a word ({why}): the other process or host is gone")
            }
            Ended::Broken(Reason::Idle, why) => why.clone(),
            Ended::Broken(reason, why) => format!("{reason}: {why}"),
        }
    }
}

/// Takes the events of a connection. An error ends it.
pub(crate) trait Handler {
    /// Takes a frame that was `length` bytes long.
    fn frame(&mut self, frame: Frame<'_>, length: usize) -> Result<(), (Reason, String)>;

    /// Interval of ticks; `None`: no ticks.
    fn tick_every(&self) -> Option<Duration>;

    /// Called once in each interval.
    fn tick(&mut self) -> Result<(), (Reason, String)>;
}

pub(crate) struct Wire {
    pub tls: Connection,
    pub stream: TcpStream,
}

impl Wire {
    /// A connection over `stream`, which must not block.
    pub fn new(tls: impl Into<Connection>, stream: TcpStream) -> Wire {
        let mut tls = tls.into();
        tls.set_buffer_limit(None);
        // Small answers must not wait for the peer's acknowledgement of earlier ones.
        let _ = stream.set_nodelay(true);
        Wire { tls, stream }
    }

    /// Carries frames of up to `largest` bytes until the connection ends; a peer from which no whole frame came for
    /// `silence` is given up.
    pub fn run(mut self, outbox: &Outbox, largest: usize, silence: Duration, handler: &mut dyn Handler) -> Ended {
        let mut decoder = Decoder::new(largest);
        let ended = self.carry(outbox, &mut decoder, silence, handler);
        outbox.end();
        // The peer learns why, if it still listens.
        self.tls.send_close_notify();
        let _ = self.tls.write_tls(&mut self.stream);
        ended
    }

    fn carry(&mut self, outbox: &Outbox, decoder: &mut Decoder, silence: Duration, handler: &mut dyn Handler) -> Ended {
        let lost = |e: io::Error| Ended::Lost(e.to_string());
        let mut heard = Instant::now();
        let mut ticked = Instant::now();
        loop {
            // Frames that came with the end of the handshake are already here.
            match self.deliver(decoder, handler) {
                Ok(true) => heard = Instant::now(),
                Ok(false) => {}
                Err(ended) => return ended,
            }
            match self.fill(outbox) {
                State::Closing if !self.tls.wants_write() => return Ended::Here,
                State::Overflown => {
                    let why = format!("more than {} bytes waited for it", outbox.limit);
                    return Ended::Broken(Reason::Backlog, why);
                }
                _ => {}
            }
            if self.tls.wants_write() {
                match self.tls.write_tls(&mut self.stream) {
                    Ok(_) => {}
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    Err(e) => return self.last_words().unwrap_or_else(|| lost(e)),
                }
            }
            if heard.elapsed() > silence {
                let why = format!("nothing was heard for {} s", heard.elapsed().as_secs());
                return Ended::Broken(Reason::Idle, why);
            }
            let every = handler.tick_every();
            if every.is_some_and(|every| ticked.elapsed() >= every) {
                ticked = Instant::now();
                if let Err((reason, why)) = handler.tick() {
                    return Ended::Broken(reason, why);
                }
                continue;
            }
            let left = silence.saturating_sub(heard.elapsed());
            let left = every.map_or(left, |every| left.min(every.saturating_sub(ticked.elapsed())));
            match self.rest(outbox, left + MOMENT) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(e) => return lost(e),
            }
            for _ in 0..READS {
                match self.tls.read_tls(&mut self.stream) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return lost(e),
                }
                if let Err(error) = self.tls.process_new_packets() {
                    let (reason, why) = classify(&error);
                    return Ended::Broken(reason, why);
                }
                match self.deliver(decoder, handler) {
                    Ok(true) => heard = Instant::now(),
                    Ok(false) => {}
                    Err(ended) => return ended,
                }
            }
        }
    }

    /// The reason why the peer closed, if it sent one before.
    fn last_words(&mut self) -> Option<Ended> {
        while self.tls.read_tls(&mut self.stream).is_ok_and(|n| n > 0) {
            if let Err(error) = self.tls.process_new_packets() {
                let (reason, why) = classify(&error);
                return Some(Ended::Broken(reason, why));
            }
        }
        None
    }

    /// Waits for something to do, at most `limit`; true if the socket may have something.
    fn rest(&self, outbox: &Outbox, limit: Duration) -> io::Result<bool> {
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, self.tls.wants_write());
        let mut polled = [PollFd::new(&self.stream, events), PollFd::new(&outbox.bell, PollFlags::IN)];
        // The bell may have been heard while only a part of what waits was taken.
        let more = !self.tls.wants_write() && !outbox.is_empty();
        let limit = if more { Duration::ZERO } else { limit };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if !polled[1].revents().is_empty() {
            let _ = rustix::io::read(&outbox.bell, &mut [0; 8]);
        }
        Ok(polled[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }

    /// Gives TLS the next frames, once the ones before are with the kernel.
    fn fill(&mut self, outbox: &Outbox) -> State {
        if self.tls.wants_write() {
            // A wish to close is carried out once all is written.
            return if outbox.lock().state == State::Overflown { State::Overflown } else { State::Open };
        }
        let mut given = 0;
        loop {
            match outbox.take() {
                (Some(frame), _) if given < BATCH => {
                    given += frame.len();
                    // Writes to memory without a limit cannot fail.
                    let _ = self.tls.writer().write_all(&frame);
                }
                (Some(frame), state) => {
                    let _ = self.tls.writer().write_all(&frame);
                    return state;
                }
                (None, state) => return state,
            }
        }
    }

    /// Hands on the whole frames; true if there was one.
    fn deliver(&mut self, decoder: &mut Decoder, handler: &mut dyn Handler) -> Result<bool, Ended> {
        let mut any = false;
        loop {
            match decoder.next(&mut self.tls.reader()) {
                Ok(Cut::Frame(bytes)) => {
                    any = true;
                    let frame = postcard::from_bytes(bytes)
                        .map_err(|e| Ended::Broken(Reason::Protocol, format!("a frame does not decode: {e}")))?;
                    handler.frame(frame, bytes.len()).map_err(|(reason, why)| Ended::Broken(reason, why))?;
                }
                Ok(Cut::Nothing) => return Ok(any),
                Ok(Cut::Oversized { length }) => {
                    let why = format!("a frame of {length} bytes was announced");
                    return Err(Ended::Broken(Reason::Oversized, why));
                }
                Ok(Cut::End { within }) => {
                    let said = self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed());
                    return Err(if said && !within { Ended::There } else { Ended::Lost("end of stream".into()) });
                }
                Err(e) => return Err(Ended::Lost(e.to_string())),
            }
        }
    }
}

/// Carries a handshake through, as the client.
pub(crate) fn shake(wire: &mut Wire, limit: Duration) -> Result<(), Ended> {
    let lost = |e: io::Error| Ended::Lost(e.to_string());
    let deadline = Instant::now() + limit;
    loop {
        while wire.tls.wants_write() {
            match wire.tls.write_tls(&mut wire.stream) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(wire.last_words().unwrap_or_else(|| lost(e))),
            }
        }
        if !wire.tls.is_handshaking() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Ended::Broken(Reason::Handshake, format!("it was not done within {} s", limit.as_secs())));
        }
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, wire.tls.wants_write());
        let pause = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&wire.stream, events)], Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(lost(e.into())),
        }
        match wire.tls.read_tls(&mut wire.stream) {
            Ok(0) => return Err(Ended::Lost("closed during the handshake".into())),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            Err(e) => return Err(lost(e)),
        }
        if let Err(error) = wire.tls.process_new_packets() {
            // The alert tells our reason to the peer.
            let _ = wire.tls.write_tls(&mut wire.stream);
            let (reason, why) = classify(&error);
            return Err(Ended::Broken(reason, why));
        }
    }
}

/// The meaning of a TLS error here.
pub(crate) fn classify(error: &Error) -> (Reason, String) {
    let reason = match error {
        Error::NoCertificatesPresented => Reason::NoCertificate,
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Reason::Expired,
        Error::InvalidCertificate(_) => Reason::WrongCertificate,
        Error::AlertReceived(alert) => {
            let why = match alert {
                AlertDescription::CertificateRequired => "it wants a certificate and got none",
                AlertDescription::CertificateExpired => "it says that our certificate has expired",
                AlertDescription::UnknownCA => "it says that our certificate is of an authority that it does not know",
                AlertDescription::CertificateUnknown
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::DecryptError => "it does not take our certificate",
                AlertDescription::ProtocolVersion => "it does not speak TLS 1.3",
                other => return (Reason::Handshake, format!("the other side ended TLS: {other:?}")),
            };
            return (Reason::Handshake, why.into());
        }
        _ => Reason::NotTls,
    };
    (reason, error.to_string())
}
