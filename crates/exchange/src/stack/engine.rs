//! plimsoll's engine over a port, at the placement named.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use endpoint::{Dilated, Direction, Endpoint, Network, NetworkPath, Source, Status, TagSelector, shm_links};
use linux::rendezvous::{self, Meeting};
use machine::{Dilation, Fault, PeerIndex, Port, Result, Site};
use ports::shm::{Role, ShmPort};
use rounds::point::Stack as StackName;

use super::tcp::token;
use super::{Completion, MEETING_TIME, Offer, Stack};
use crate::buffer::Buffer;

/// The only peer of a session.
const PEER: PeerIndex = PeerIndex(0);
/// Completions taken in one call of `progress`.
const COMPLETIONS_A_POLL: usize = 64;
/// Time in which an end that goes idle waits for acknowledgements of its last packets.
const REST_WITHIN: Duration = Duration::from_millis(50);

/// The placement of an end's engine, and its dilation.
pub struct At {
    pub site: Site,
    pub dilation: Dilation,
}

/// The engine's end of one session.
pub struct EngineStack<P> {
    endpoint: Endpoint<P, Buffer>,
    /// Tag of the job in progress: a message of another job never matches.
    tag: u64,
    posted: u64,
    /// Receives that ended before an older one; slot i belongs to post `delivered + i`.
    early: VecDeque<Option<Buffer>>,
    delivered: u64,
    notes: Vec<String>,
}

impl<P: Port + Send + 'static> EngineStack<P> {
    fn new(endpoint: Endpoint<P, Buffer>) -> Self {
        let notes = endpoint.placed().notes.clone();
        EngineStack { endpoint, tag: 0, posted: 0, early: VecDeque::new(), delivered: 0, notes }
    }

    #[inline]
    fn ended(&mut self, ended: endpoint::Completion<Buffer>, done: &mut impl FnMut(Completion)) -> Result<()> {
        if ended.status != Status::Done || ended.envelope.length != ended.buffer.len() as u64 {
            return Err(broken(ended.status, ended.envelope.length, ended.buffer.len()));
        }
        match ended.direction {
            Direction::Send => done(Completion::Sent(ended.buffer)),
            Direction::Receive => self.received(ended.context, ended.buffer, done),
        }
        Ok(())
    }

    /// Reports receives in the order posted, whatever order they ended in.
    #[inline]
    fn received(&mut self, post: u64, buffer: Buffer, done: &mut impl FnMut(Completion)) {
        if post == self.delivered && self.early.is_empty() {
            self.delivered += 1;
            done(Completion::Received(buffer));
            return;
        }
        let place = (post - self.delivered) as usize;
        if self.early.len() <= place {
            self.early.resize_with(place + 1, || None);
        }
        self.early[place] = Some(buffer);
        while let Some(Some(_)) = self.early.front() {
            let buffer = self.early.pop_front().flatten().expect("just seen");
            self.delivered += 1;
            done(Completion::Received(buffer));
        }
    }
}

impl<P: Port + Send + 'static> Stack for EngineStack<P> {
    #[inline]
    fn post_receive(&mut self, buffer: Buffer) -> Result<()> {
        let post = self.posted;
        self.posted += 1;
        self.endpoint.receive(Source::Peer(PEER), TagSelector::exactly(self.tag), buffer, post)?;
        Ok(())
    }

    #[inline]
    fn post_send(&mut self, buffer: Buffer) -> Result<()> {
        self.endpoint.send(PEER, self.tag, buffer, 0)?;
        Ok(())
    }

    #[inline]
    fn progress(&mut self, done: &mut impl FnMut(Completion)) -> Result<()> {
        let Some(first) = self.endpoint.poll()? else {
            self.endpoint.relax();
            return Ok(());
        };
        self.ended(first, done)?;
        for _ in 1..COMPLETIONS_A_POLL {
            let Some(next) = self.endpoint.take_ended() else { break };
            self.ended(next, done)?;
        }
        Ok(())
    }

    fn begin(&mut self, job: u64) -> Result<()> {
        self.tag = job;
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        // The peer may have gone idle before its last acknowledgement left; it follows when both resume.
        let _ = self.endpoint.settle(REST_WITHIN);
        self.endpoint.pause();
        Ok(())
    }

    fn resume(&mut self) -> Result<()> {
        let before = self.endpoint.engine_turns();
        self.endpoint.resume();
        let until = Instant::now() + MEETING_TIME;
        while before.is_some() && self.endpoint.engine_turns() == before {
            if Instant::now() > until {
                return Err(Fault::new("engine core", "its thread does not run", "free that core, then run again"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn threads(&self) -> Vec<(String, i32)> {
        self.endpoint.engine_thread().map(|thread| ("engine".to_owned(), thread)).into_iter().collect()
    }

    fn dilated(&mut self) -> Result<Option<Dilated>> {
        self.endpoint.dilated()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

#[cold]
fn broken(status: Status, sent: u64, posted: usize) -> Fault {
    match status {
        Status::PeerDead => {
            Fault::new("the peer", "it died or broke the protocol in the middle of a block", "run again")
        }
        _ => Fault::new(
            "a message",
            format!("{sent} bytes came where {posted} were expected ({status:?})"),
            "use the same version of plimsoll on both ends",
        ),
    }
}

/// The responder's end over shared memory before the initiator has come.
pub struct ShmWaiting {
    meeting: Meeting,
    at: At,
}

fn meeting_place(token: &str) -> String {
    format!("plimsoll-{token}")
}

impl ShmWaiting {
    pub fn new(at: At) -> Result<(ShmWaiting, Offer)> {
        let token = token();
        let meeting = Meeting::open(&meeting_place(&token))?;
        Ok((ShmWaiting { meeting, at }, Offer { port: 0, token }))
    }

    pub fn accept(self) -> Result<EngineStack<ShmPort>> {
        let until = Instant::now() + MEETING_TIME;
        while Instant::now() < until {
            match self.meeting.try_accept()? {
                Some(stream) => return over_shm(&stream, Role::Create, &self.at),
                None => sleep(Duration::from_millis(1)),
            }
        }
        Err(Fault::new(
            "peer over shared memory",
            format!("it did not come within {} s", MEETING_TIME.as_secs()),
            "run both ends on one host and in one network namespace",
        ))
    }
}

fn over_shm(stream: &UnixStream, role: Role, at: &At) -> Result<EngineStack<ShmPort>> {
    let mut port = ShmPort::default();
    port.connect(stream, role)?;
    let links = shm_links(&port, 1);
    Endpoint::open_dilated(port, &links, &at.site, &[], at.dilation).map(EngineStack::new)
}

/// The initiator's step over shared memory.
pub fn connect_shm(at: &At, offer: &Offer) -> Result<EngineStack<ShmPort>> {
    // The cause without the socket's name, which the other end has chosen.
    let next = "run both ends on one host and in one network namespace, as the same user";
    let stream = rendezvous::call(&meeting_place(&offer.token))
        .map_err(|fault| Fault::new("peer over shared memory", fault.cause(), next))?;
    over_shm(&stream, Role::Join, at)
}

/// The responder's end over a network before it knows the initiator's address, which the first packets tell.
pub struct NetworkWaiting {
    port: NetworkPath,
    at: At,
    session: u32,
}

/// The session number of both ends' packets.
fn session(token: &str) -> u32 {
    token.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A port to other hosts, as ranks of an MPI have it, at `address`.
fn open(stack: StackName, address: IpAddr) -> Result<NetworkPath> {
    let network = match stack.network() {
        Some(kind) if stack.attaches() => Network::of(kind, &linux::addresses::interface_of(address)?),
        _ => Network::Udp,
    };
    NetworkPath::open(&network, SocketAddr::new(address, 0), None)
}

fn over_network(mut port: NetworkPath, peer: SocketAddr, session: u32, at: &At) -> Result<EngineStack<NetworkPath>> {
    port.add_peer(peer, session)?;
    let link = port.link(session);
    Endpoint::open_dilated(port, &[link], &at.site, &[], at.dilation).map(EngineStack::new)
}

impl NetworkWaiting {
    pub fn new(stack: StackName, address: IpAddr, at: At) -> Result<(NetworkWaiting, Offer)> {
        let port = open(stack, address)?;
        let token = token();
        let offer = Offer { port: port.local_address().port(), token: token.clone() };
        Ok((NetworkWaiting { port, at, session: session(&token) }, offer))
    }

    pub fn accept(self, initiator: SocketAddr) -> Result<EngineStack<NetworkPath>> {
        over_network(self.port, initiator, self.session, &self.at)
    }
}

/// The initiator's port over a network, opened before it tells its address.
pub struct NetworkCaller {
    port: NetworkPath,
}

impl NetworkCaller {
    /// A port towards `responder`.
    ///
    /// # Errors
    /// No port can be opened there; `interface` is named and packets to the responder pass another.
    pub fn new(stack: StackName, responder: IpAddr, interface: Option<&str>) -> Result<NetworkCaller> {
        let address = linux::addresses::towards(responder)?;
        interface.map_or(Ok(()), |interface| linux::addresses::check(interface, address))?;
        Ok(NetworkCaller { port: open(stack, address)? })
    }

    pub fn address(&self) -> SocketAddr {
        self.port.local_address()
    }

    pub fn connect(self, responder: SocketAddr, at: &At, offer: &Offer) -> Result<EngineStack<NetworkPath>> {
        over_network(self.port, responder, session(&offer.token), at)
    }
}
