//! The kernel's UDP through sockets: messages cut into numbered datagrams, never sent again; losses are counted.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg, sockopt};

use super::tcp::token;
use super::{Completion, MEETING_TIME, Offer, Stack};
use crate::buffer::Buffer;

/// Silence after which an awaited message counts as lost. Longer than a busy machine keeps a peer off its core.
const SILENCE: Duration = Duration::from_millis(200);

/// Empty polls between two looks at the clock.
const POLLS_BETWEEN_CLOCKS: u32 = 256;

/// Socket buffers asked for, in bytes: a window of most sizes fits.
const SOCKET_BUFFER: usize = 8 << 20;

/// Largest payload of a datagram over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;

const MAGIC: u32 = u32::from_le_bytes(*b"plU1");
const HEADER: usize = 20;

/// Header before each datagram's share of a message; five little-endian words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    job: u32,
    message: u32,
    /// Offset of the share in its message.
    offset: u32,
    /// Length of the whole message.
    length: u32,
}

impl Header {
    fn write(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        for (to, word) in bytes.chunks_exact_mut(4).zip([MAGIC, self.job, self.message, self.offset, self.length]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8; HEADER]) -> Option<Header> {
        let (words, _) = bytes.as_chunks::<4>();
        let [magic, job, message, offset, length] = std::array::from_fn(|i| u32::from_le_bytes(words[i]));
        (magic == MAGIC).then_some(Header { job, message, offset, length })
    }
}

/// One end of a pair of connected UDP sockets.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    /// Bytes of a message in one datagram.
    share: usize,
    job: u32,
    sends: VecDeque<Buffer>,
    /// Number of the oldest posted send, and its bytes that have left.
    sending: u32,
    written: usize,
    receives: VecDeque<Buffer>,
    /// Number of the message that the oldest posted receive awaits, and its bytes that have arrived.
    receiving: u32,
    filled: usize,
    /// Whether a share of that message is missing.
    broken: bool,
    /// A datagram of a message that no receive is posted for yet.
    held: Option<(Header, Vec<u8>)>,
    /// Receives a datagram that is not the awaited share.
    spill: Vec<u8>,
    /// Whether the peer has gone on to a later job, so that outstanding messages will not come.
    left_behind: bool,
    /// Whether the silence has lasted; further waits are skipped until something moves.
    silent: bool,
    last_event: Instant,
    empty_polls: u32,
    notes: Vec<String>,
}

/// A socket that expects one peer.
#[derive(Debug)]
pub struct Waiting {
    socket: UdpSocket,
    token: String,
}

impl Waiting {
    pub fn new(address: IpAddr) -> Result<(Waiting, Offer)> {
        let open = || {
            let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
            let port = socket.local_addr()?.port();
            Ok::<_, io::Error>((socket, port))
        };
        let (socket, port) = open()
            .map_err(|e| Fault::because(format!("udp socket on {address}"), e, "give an address of this host"))?;
        let token = token();
        Ok((Waiting { socket, token: token.clone() }, Offer { port, token }))
    }

    /// Accepts the first peer that shows the token, and shows it back.
    pub fn accept(self) -> Result<Udp> {
        let failed = |e: io::Error| Fault::because("udp socket", e, "run again");
        let until = Instant::now() + MEETING_TIME;
        let mut shown = [0; 64];
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.socket.set_read_timeout(Some(left)).map_err(failed)?;
            match self.socket.recv_from(&mut shown) {
                Ok((count, from)) if &shown[..count] == self.token.as_bytes() => {
                    self.socket.connect(from).map_err(failed)?;
                    for _ in 0..3 {
                        self.socket.send(self.token.as_bytes()).map_err(failed)?;
                    }
                    return Udp::new(self.socket);
                }
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Err(Fault::new(
            "udp peer",
            format!("nothing came from it within {} s", MEETING_TIME.as_secs()),
            "let UDP datagrams pass between the hosts (firewall)",
        ))
    }
}

impl Udp {
    pub fn connect(address: IpAddr, offer: &Offer) -> Result<Udp> {
        let to = SocketAddr::new(address, offer.port);
        let failed = |e: io::Error| Fault::because(format!("udp path to {to}"), e, "check the route and firewall");
        let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).map_err(failed)?;
        socket.connect(to).map_err(failed)?;
        socket.set_read_timeout(Some(Duration::from_millis(20))).map_err(failed)?;
        let until = Instant::now() + MEETING_TIME;
        let mut answer = [0; 64];
        while Instant::now() < until {
            socket.send(offer.token.as_bytes()).map_err(failed)?;
            match socket.recv(&mut answer) {
                Ok(count) if &answer[..count] == offer.token.as_bytes() => return Udp::new(socket),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Err(Fault::new(format!("udp path to {to}"), "no answer came", "let UDP datagrams pass (firewall)"))
    }

    fn new(socket: UdpSocket) -> Result<Udp> {
        let failed = |e: io::Error| Fault::because("udp socket", e, "run again");
        socket.set_nonblocking(true).map_err(failed)?;
        let mut notes = Vec::new();
        // A size beyond net.core.rmem_max needs the right to administer the network.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER).map_err(|e| failed(e.into()))?;
            let got = sockopt::socket_recv_buffer_size(&socket).map_err(|e| failed(e.into()))?;
            if got < SOCKET_BUFFER {
                notes.push(format!("udp: receive buffer of {} KiB only (net.core.rmem_max)", got >> 10));
            }
        }
        let peer = socket.peer_addr().map_err(failed)?;
        let (mtu, headers) = match peer {
            SocketAddr::V4(_) => (sockopt::ip_mtu(&socket), 28),
            SocketAddr::V6(_) => (sockopt::ipv6_mtu(&socket), 48),
        };
        let mtu = mtu.map_err(|e| failed(e.into()))? as usize;
        let share = mtu.saturating_sub(headers).clamp(HEADER + 1, LARGEST_DATAGRAM) - HEADER;
        Ok(Udp {
            socket,
            share,
            job: 0,
            sends: VecDeque::new(),
            sending: 0,
            written: 0,
            receives: VecDeque::new(),
            receiving: 0,
            filled: 0,
            broken: false,
            held: None,
            spill: vec![0; share],
            left_behind: false,
            silent: false,
            last_event: Instant::now(),
            empty_polls: 0,
            notes,
        })
    }

    fn stir(&mut self) {
        self.silent = false;
        self.last_event = Instant::now();
        self.empty_polls = 0;
    }

    /// Hands as much of the oldest posted send to the kernel as it takes; whether all of it has left.
    fn write_oldest(&mut self) -> Result<bool> {
        let Some(message) = self.sends.front() else { return Ok(false) };
        while self.written < message.len() {
            let end = message.len().min(self.written + self.share);
            let header = Header {
                job: self.job,
                message: self.sending,
                offset: self.written as u32,
                length: message.len() as u32,
            };
            let header = header.write();
            let parts = [IoSlice::new(&header), IoSlice::new(&message[self.written..end])];
            match sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::DONTWAIT) {
                Ok(_) => self.written = end,
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(gone(e)),
            }
        }
        Ok(true)
    }

    /// Reads one datagram: the awaited share goes to its place, any other is set aside.
    fn read_one(&mut self) -> Result<Option<(Header, Arrived)>> {
        let Some(message) = self.receives.front_mut() else { return Ok(None) };
        let filled = self.filled;
        let mut head = [0; HEADER];
        let room = &mut message[filled..];
        let whole = room.len();
        let received = {
            let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(room), IoSliceMut::new(&mut self.spill)];
            recvmsg(&self.socket, &mut parts, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)
        };
        let count = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(e) => return Err(gone(e)),
        };
        let Some(header) = Header::read(&head).filter(|_| count > HEADER) else {
            return Ok(Some((NOT_OURS, Arrived::Nothing))); // a late greeting
        };
        let bytes = (count - HEADER).min(whole);
        let awaited = header.job == self.job && header.message == self.receiving && header.offset as usize == filled;
        if awaited {
            return Ok(Some((header, Arrived::InPlace(bytes))));
        }
        let mut share = message[filled..filled + bytes].to_vec();
        share.extend_from_slice(&self.spill[..count - HEADER - bytes]);
        Ok(Some((header, Arrived::Apart(share))))
    }

    fn lose_oldest(&mut self, waited: Duration, done: &mut impl FnMut(Completion)) {
        if let Some(buffer) = self.receives.pop_front() {
            self.next_message();
            done(Completion::Lost { buffer, waited });
        }
    }

    fn next_message(&mut self) {
        self.receiving += 1;
        self.filled = 0;
        self.broken = false;
    }

    /// Puts a share in its place, now that its message may be awaited.
    fn place(&mut self, header: Header, arrived: Arrived, done: &mut impl FnMut(Completion)) -> Result<()> {
        if header == NOT_OURS || header.job < self.job || (header.job == self.job && header.message < self.receiving) {
            return Ok(()); // late: counted as lost already
        }
        if header.job > self.job {
            self.left_behind = true;
            return Ok(());
        }
        while header.message > self.receiving && !self.receives.is_empty() {
            self.lose_oldest(Duration::ZERO, done);
        }
        let Some(message) = self.receives.front_mut() else {
            if let Arrived::Apart(bytes) = arrived {
                self.held = Some((header, bytes));
            }
            return Ok(());
        };
        if header.length as usize != message.len() {
            return Err(Fault::new(
                format!("udp message {}", header.message),
                format!("it has {} bytes where {} were expected", header.length, message.len()),
                "use the same version of plimsoll on both ends",
            ));
        }
        let bytes = match &arrived {
            Arrived::InPlace(bytes) => *bytes,
            Arrived::Apart(share) => share.len(),
            Arrived::Nothing => 0,
        };
        if header.offset as usize != self.filled {
            self.broken = true;
        } else if let Arrived::Apart(share) = &arrived {
            message[self.filled..self.filled + bytes].copy_from_slice(share);
        }
        if !self.broken {
            self.filled += bytes;
            if self.filled == message.len() {
                let buffer = self.receives.pop_front().expect("its front was just filled");
                self.next_message();
                done(Completion::Received(buffer));
            }
        } else if header.offset as usize + bytes >= header.length as usize {
            self.lose_oldest(Duration::ZERO, done);
        }
        Ok(())
    }
}

/// The destination of a datagram's share.
#[derive(Debug)]
enum Arrived {
    /// Bytes of the awaited share, already in place.
    InPlace(usize),
    Apart(Vec<u8>),
    Nothing,
}

/// Header that stands for a datagram of another program.
const NOT_OURS: Header = Header { job: 0, message: 0, offset: 0, length: 0 };

impl Stack for Udp {
    fn post_receive(&mut self, buffer: Buffer) -> Result<()> {
        self.receives.push_back(buffer);
        Ok(())
    }

    fn post_send(&mut self, buffer: Buffer) -> Result<()> {
        // An answer may now be expected again.
        if self.silent {
            self.stir();
        }
        self.sends.push_back(buffer);
        if self.sends.len() == 1 {
            self.write_oldest()?;
        }
        Ok(())
    }

    fn progress(&mut self, done: &mut impl FnMut(Completion)) -> Result<()> {
        while self.write_oldest()? {
            self.written = 0;
            self.sending += 1;
            done(Completion::Sent(self.sends.pop_front().expect("it was just written")));
        }
        if self.receives.is_empty() {
            return Ok(());
        }
        if let Some((header, share)) = self.held.take() {
            self.stir();
            self.place(header, Arrived::Apart(share), done)?;
        } else if let Some((header, arrived)) = self.read_one()? {
            self.silent = false;
            self.empty_polls = 0;
            self.place(header, arrived, done)?;
            return Ok(());
        }
        if self.left_behind || self.silent {
            self.lose_oldest(Duration::ZERO, done);
            return Ok(());
        }
        self.empty_polls += 1;
        if self.empty_polls == 1 {
            self.last_event = Instant::now();
        } else if self.empty_polls.is_multiple_of(POLLS_BETWEEN_CLOCKS) {
            let waited = self.last_event.elapsed();
            if waited > SILENCE {
                self.silent = true;
                self.lose_oldest(waited, done);
            }
        }
        Ok(())
    }

    fn begin(&mut self, job: u64) -> Result<()> {
        self.job = job as u32;
        self.sends.clear();
        self.receives.clear();
        self.held = None;
        (self.sending, self.written, self.receiving, self.filled) = (0, 0, 0, 0);
        (self.broken, self.left_behind) = (false, false);
        self.stir();
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

fn gone(error: Errno) -> Fault {
    let error = io::Error::from(error);
    Fault::because("udp path to the peer", error, "look at the peer's own message, then run again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn pair() -> (Udp, Udp) {
        let (waiting, offer) = Waiting::new(LOCAL).unwrap();
        let near = std::thread::spawn(move || Udp::connect(LOCAL, &offer).unwrap());
        let mut far = waiting.accept().unwrap();
        let mut near = near.join().unwrap();
        near.begin(1).unwrap();
        far.begin(1).unwrap();
        (near, far)
    }

    /// Lengths of the next `count` receives that complete, 0 for lost.
    fn receipts(stack: &mut Udp, count: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        let until = Instant::now() + Duration::from_secs(10);
        while seen.len() < count {
            assert!(Instant::now() < until, "only {seen:?}");
            stack
                .progress(&mut |completion| match completion {
                    Completion::Received(buffer) => seen.push(buffer.len()),
                    Completion::Lost { .. } => seen.push(0),
                    Completion::Sent(_) => {}
                })
                .unwrap();
        }
        seen
    }

    fn datagram(job: u32, message: u32, offset: u32, length: u32, bytes: usize) -> Vec<u8> {
        let mut datagram = Header { job, message, offset, length }.write().to_vec();
        datagram.resize(HEADER + bytes, 7);
        datagram
    }

    #[test]
    fn a_message_of_many_datagrams_arrives_whole() {
        let (mut near, mut far) = pair();
        far.post_receive(Buffer::new(300_000)).unwrap();
        let mut message = Buffer::new(300_000);
        crate::buffer::fill(&mut message, 3);
        near.post_send(message).unwrap();
        let mut arrived = None;
        let until = Instant::now() + Duration::from_secs(10);
        while arrived.is_none() && Instant::now() < until {
            near.progress(&mut |_| {}).unwrap();
            far.progress(&mut |completion| arrived = Some(completion)).unwrap();
        }
        let Some(Completion::Received(buffer)) = arrived else { panic!("{arrived:?}") };
        assert_eq!(crate::buffer::first_difference(&buffer, 3), None);
    }

    #[test]
    fn gaps_unknown_senders_and_late_datagrams_are_told_apart() {
        let (near, mut far) = pair();
        let say = |bytes: &[u8]| near.socket.send(bytes).map(drop).unwrap();
        far.post_receive(Buffer::new(8)).unwrap();
        say(b"not ours at all, whatever it says");
        say(&datagram(0, 0, 0, 8, 8)); // an earlier job
        say(&datagram(1, 2, 0, 8, 8)); // messages 0 and 1 never come
        assert_eq!(receipts(&mut far, 1), [0]);
        far.post_receive(Buffer::new(8)).unwrap();
        far.post_receive(Buffer::new(8)).unwrap();
        assert_eq!(receipts(&mut far, 2), [0, 8]);
        far.post_receive(Buffer::new(16)).unwrap();
        far.post_receive(Buffer::new(16)).unwrap();
        say(&datagram(1, 3, 8, 16, 8)); // its first half is missing
        say(&datagram(1, 4, 0, 16, 16));
        assert_eq!(receipts(&mut far, 2), [0, 16]);
        far.post_receive(Buffer::new(8)).unwrap();
        say(&datagram(2, 0, 0, 8, 8)); // the peer has gone on
        assert_eq!(receipts(&mut far, 1), [0]);
    }

    #[test]
    fn silence_ends_the_wait_once_for_all_that_is_posted() {
        let (_near, mut far) = pair();
        let started = Instant::now();
        for _ in 0..64 {
            far.post_receive(Buffer::new(8)).unwrap();
        }
        assert_eq!(receipts(&mut far, 64), vec![0; 64]);
        assert!(started.elapsed() >= SILENCE);
    }

    #[test]
    fn another_length_than_expected_is_a_fault() {
        let (near, mut far) = pair();
        far.post_receive(Buffer::new(8)).unwrap();
        near.socket.send(&datagram(1, 0, 0, 9, 9)).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let fault = loop {
            assert!(Instant::now() < until);
            if let Err(fault) = far.progress(&mut |_| {}) {
                break fault;
            }
        };
        assert!(fault.cause().contains("9 bytes where 8"));
    }
}
