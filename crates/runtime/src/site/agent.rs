//! The sites `agent:HOST`, `agent:HOST/core:N` and `agent:HOST/xdp:IFACE`, seen from the runtime: each method is a request to the agent there, and
//! all sites of one agent share a connection.

mod driver;

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linux::interface_usage::InterfaceUsage;
use machine::bounds::{SITE_BACKLOG, SITE_FRAME};
use machine::{Bytes, Fault, Result, Site, XdpMode};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::agent::engine_end::Link;
use crate::agent::journal::Reason;
use crate::agent::keys;
use crate::agent::out_of_band::Channels;
use crate::agent::protocol::{Answer, DEFAULT_PORT, Frame, Hash, Request, Survey, Trouble, VERSION};
use crate::agent::wire::{Ended, Handler, Outbox, Wire, shake};

const CONNECT: Duration = Duration::from_secs(3);
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A crowded agent may close a connection before it looks at it.
const ATTEMPTS: u32 = 5;
/// Pause between attempts, longer each time.
const PAUSE: Duration = Duration::from_millis(20);
/// Time limit of an agent's answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Silence after which the agent counts as gone. It answers every ping.
const SILENCE: Duration = Duration::from_secs(5);
const PING: Duration = Duration::from_secs(2);
/// Bytes of a body or a state in one request.
const PART: usize = 64 << 10;
/// Bytes of requests and messages that may wait to be sent.
const BACKLOG: usize = SITE_BACKLOG.each.bytes().0 as usize;
/// Bytes of the buffers of one channel, the same on both hosts.
const BUFFERS: Bytes = SITE_FRAME.each.bytes();

type Outcome = Result<Answer, Trouble>;

/// State shared by the connection's thread and the sites.
struct Shared {
    outbox: Arc<Outbox>,
    waiting: Mutex<HashMap<u32, SyncSender<Outcome>>>,
    channels: Channels,
    link: Arc<Link>,
    /// The reason why the connection ended.
    lost: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent's greeting.
#[derive(Clone, Copy)]
struct Welcome {
    process: u32,
    frame: u64,
    code: u64,
}

/// The connection's thread: hands answers and messages to their receivers.
struct Reader {
    shared: Arc<Shared>,
    greeting: Option<SyncSender<Result<Welcome, Trouble>>>,
}

impl Handler for Reader {
    fn frame(&mut self, frame: Frame<'_>, _: usize) -> Result<(), (Reason, String)> {
        let broken = |why| (Reason::Protocol, why);
        match frame {
            Frame::Welcome { process, frame, code, .. } if self.greeting.is_some() => {
                if let Some(greeting) = self.greeting.take() {
                    let _ = greeting.send(Ok(Welcome { process, frame, code }));
                }
            }
            Frame::Refused(trouble) if self.greeting.is_some() => {
                if let Some(greeting) = self.greeting.take() {
                    let _ = greeting.send(Err(trouble));
                }
            }
            Frame::Answer { id, outcome } => {
                // The receiver may have given up.
                if let Some(waiting) = lock(&self.shared.waiting).remove(&id) {
                    let _ = waiting.send(outcome);
                }
            }
            Frame::Message { channel, payload } => self.shared.channels.message(channel, payload).map_err(broken)?,
            Frame::Credit { channel, read } => self.shared.channels.credit(channel, read).map_err(broken)?,
            Frame::Close { channel } => self.shared.channels.close(channel),
            Frame::Pong => {}
            _ => return Err(broken("a frame that only clients send, or at the wrong moment".into())),
        }
        Ok(())
    }

    fn tick_every(&self) -> Option<Duration> {
        Some(PING)
    }

    fn tick(&mut self) -> Result<(), (Reason, String)> {
        self.shared.outbox.push(&Frame::Ping);
        Ok(())
    }
}

/// A failed attempt to join an agent.
struct Failed {
    fault: Fault,
    /// Whether the agent may have been too crowded to look at the attempt.
    transient: bool,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Failed { fault, transient: false }
    }
}

impl Failed {
    fn to_join(address: SocketAddr, ended: &Ended) -> Failed {
        let next = "check that both hosts have keys of the same authority that are still valid (`plimsoll agent keys`), \
                    and that the agent's are for this name";
        let cause = match ended {
            Ended::Lost(why) => format!("the connection ended before the agent's greeting ({why})"),
            other => other.sentence(),
        };
        let transient = matches!(ended, Ended::Lost(_) | Ended::There);
        Failed { fault: Fault::new(format!("joining {address}"), cause, next), transient }
    }
}

/// An agent on another host. Dropping the last that holds it ends the connection; the agent then removes what was
/// deployed.
pub struct Connection {
    /// `agent:HOST`.
    site: Site,
    address: SocketAddr,
    here: SocketAddr,
    welcome: Welcome,
    shared: Arc<Shared>,
    /// Names of the deployed offcodes by slot, for the fault that the agent is gone.
    names: Mutex<BTreeMap<u32, String>>,
    next: AtomicU32,
    reader: Option<JoinHandle<Ended>>,
}

/// One of an agent's sites.
pub struct AgentSite {
    site: Site,
    /// The site's number at the agent.
    number: u32,
    /// The mode of a driver hook.
    mode: Option<XdpMode>,
    connection: Arc<Connection>,
    /// Bytes of code sent, and bodies that the agent had already.
    sent: u64,
    spared: u64,
}

impl Connection {
    /// Connects to the agent of `host`, which is reached at `address`: both a name or address with or without a port.
    /// Wherever that is, the agent has to show a certificate for `host`. `keys` is the folder that [`keys::make`] made, or
    /// its part for clients; without it the user's own are taken.
    pub fn open(host: &str, address: &str, keys: Option<&Path>) -> Result<Arc<Connection>> {
        let site = Site::Agent(host.to_owned());
        Self::reach(site.clone(), host, address, keys).map(Arc::new).map_err(|fault| fault.within(&site))
    }

    /// The agent's offer.
    pub fn survey(&self) -> Result<Survey> {
        match self.ask(Request::Survey)? {
            Answer::Survey(survey) => Ok(survey),
            _ => Err(self.unexpected("the agent answered a request for what it offers with something else")),
        }
    }

    /// The agent's site of this name, such as `core:3`; without a name its first.
    pub fn site(self: &Arc<Self>, part: Option<&str>) -> Result<AgentSite> {
        self.part(part, None)
    }

    /// The driver hook of an interface of the agent's host, in the mode in which the agent has it.
    pub fn hook(self: &Arc<Self>, interface: &str, mode: XdpMode) -> Result<AgentSite> {
        self.part(Some(&format!("xdp:{interface}")), Some(mode))
    }

    fn part(self: &Arc<Self>, part: Option<&str>, mode: Option<XdpMode>) -> Result<AgentSite> {
        let (mut site, mut number) = (self.site.clone(), 0);
        if let Some(part) = part {
            site = format!("{}/{part}", self.site).parse()?;
            let found = self.survey()?.number(Some(part), mode);
            number = found.map_err(|fault| Fault::new(site.to_string(), fault.cause(), fault.next()))? as u32;
        }
        Ok(AgentSite { site, number, mode, connection: self.clone(), sent: 0, spared: 0 })
    }

    fn reach(site: Site, host: &str, address: &str, keys: Option<&Path>) -> Result<Connection> {
        let (host, _) = split(host)?;
        let (name, port) = split(address)?;
        let config = keys::client(&keys::of_client(keys)?)?;
        let server = ServerName::try_from(host.to_owned())
            .map_err(|_| Fault::new(format!("host '{host}'"), "it is no DNS name and no address", "write one"))?;
        let addresses = (name, port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = addresses
            .map_err(|e| Fault::because(format!("host '{name}'"), e, "check the name, or write its address"))?
            .collect();
        let mut refusal = Fault::new(format!("host '{name}'"), "it has no address", "write its address");
        for attempt in 1..=ATTEMPTS {
            let mut transient = false;
            for &address in &addresses {
                match Self::attempt(&site, address, &config, &server) {
                    Ok(made) => return Ok(made),
                    Err(failed) => (refusal, transient) = (failed.fault, transient | failed.transient),
                }
            }
            if !transient {
                break;
            }
            thread::sleep(PAUSE * attempt);
        }
        Err(refusal)
    }

    fn attempt(
        site: &Site,
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        server: &ServerName<'static>,
    ) -> Result<Connection, Failed> {
        let stream = TcpStream::connect_timeout(&address, CONNECT).map_err(|e| {
            let next = format!("start `plimsoll agent` there, listening on port {}; check firewalls", address.port());
            Fault::because(format!("address {address}"), e, next)
        })?;
        let socket = |e| Fault::because("socket", e, "try again");
        stream.set_nonblocking(true).map_err(socket)?;
        let here = stream.local_addr().map_err(socket)?;
        let tls = ClientConnection::new(config.clone(), server.clone())
            .map_err(|e| Fault::because("TLS", e, "check the keys"))?;
        let mut wire = Wire::new(tls, stream);
        shake(&mut wire, HANDSHAKE).map_err(|ended| Failed::to_join(address, &ended))?;
        Self::greet(site.clone(), (address, here), wire)
    }

    fn greet(site: Site, (address, here): (SocketAddr, SocketAddr), wire: Wire) -> Result<Connection, Failed> {
        let shared = Arc::new(Shared {
            outbox: Arc::new(Outbox::new(BACKLOG)?),
            waiting: Mutex::new(HashMap::new()),
            channels: Channels::default(),
            link: Arc::new(Link::default()),
            lost: Mutex::new(None),
        });
        shared.outbox.push(&Frame::Hello { version: VERSION });
        let (greeting, greeted) = mpsc::sync_channel(1);
        let mut handler = Reader { shared: shared.clone(), greeting: Some(greeting) };
        let read = move || {
            let shared = handler.shared.clone();
            let ended = wire.run(&shared.outbox, (BUFFERS.0 + 4096) as usize, SILENCE, &mut handler);
            *lock(&shared.lost) = Some(ended.sentence());
            shared.link.lose();
            shared.channels.close_all();
            lock(&shared.waiting).clear();
            ended
        };
        let reader = thread::Builder::new()
            .name("agent connection".into())
            .spawn(read)
            .map_err(|e| Fault::because("thread", e, "raise the limit on processes (ulimit -u)"))?;
        let mut made = Connection {
            site,
            address,
            here,
            welcome: Welcome { process: 0, frame: 0, code: 0 },
            shared,
            names: Mutex::default(),
            next: AtomicU32::new(1),
            reader: Some(reader),
        };
        match greeted.recv_timeout(HANDSHAKE) {
            Ok(Ok(welcome)) => made.welcome = welcome,
            Ok(Err(trouble)) => return Err(Fault::from(trouble).into()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failed::to_join(address, &Ended::Lost("no greeting came".into())));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let ended = made.reader.take().and_then(|reader| reader.join().ok());
                return Err(Failed::to_join(address, &ended.unwrap_or(Ended::There)));
            }
        }
        Ok(made)
    }

    /// The fault of an agent that is gone, with what is lost by it; `None` while it is there.
    pub fn lost(&self) -> Option<Fault> {
        let why = lock(&self.shared.lost).clone()?;
        let names = lock(&self.names);
        let what: Vec<&str> = names.values().map(String::as_str).collect();
        let what = match what.as_slice() {
            [] => "no offcode was there".to_owned(),
            names => format!("lost with it: {}", names.join(", ")),
        };
        let next = "look at what the agent wrote, start it again, then create the offcodes again";
        Some(Fault::new(self.site.to_string(), format!("{why}; {what}"), next))
    }

    fn ask(&self, request: Request<'_>) -> Result<Answer> {
        let gone = || self.lost().unwrap_or_else(|| self.unexpected("the connection is closing"));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::sync_channel(1);
        lock(&self.shared.waiting).insert(id, sender);
        let pushed = self.shared.outbox.push(&Frame::Request { id, request });
        if !pushed || lock(&self.shared.lost).is_some() {
            lock(&self.shared.waiting).remove(&id);
            // The reader records the reason before it drops the senders of answers.
            return Err(gone());
        }
        match answer.recv_timeout(ANSWER) {
            Ok(outcome) => outcome.map_err(|trouble| Fault::from(trouble).within(&self.site)),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => {
                lock(&self.shared.waiting).remove(&id);
                let cause = format!("no answer came within {} s, though the agent lives", ANSWER.as_secs());
                let next = "an offcode there may not return from a call: look at the agent's processor time";
                Err(Fault::new(self.site.to_string(), cause, next))
            }
        }
    }

    /// Bytes of a body or a state in one request; the rest of the frame needs headroom.
    fn largest_part(&self) -> usize {
        PART.min(self.welcome.frame as usize / 2).max(1)
    }

    fn unexpected(&self, what: &str) -> Fault {
        Fault::new(self.site.to_string(), what, "install the same plimsoll on both hosts")
    }
}

impl AgentSite {
    /// The first site of the agent on `host`, as [`Connection::open`] finds it.
    pub fn connect(host: &str, keys: &Path) -> Result<AgentSite> {
        Self::join(host, host, Some(keys))
    }

    /// The first site of the agent of `host`, which is reached at `address`.
    pub fn join(host: &str, address: &str, keys: Option<&Path>) -> Result<AgentSite> {
        Connection::open(host, address, keys)?.site(None)
    }

    /// The agent's address.
    pub fn address(&self) -> SocketAddr {
        self.connection.address
    }

    /// Bytes of bodies that were sent, and bodies that need not be since the agent had them.
    pub fn code_sent(&self) -> (u64, u64) {
        (self.sent, self.spared)
    }

    /// The fault of an agent that is gone, with what is lost by it; `None` while it is there.
    pub fn lost(&self) -> Option<Fault> {
        self.connection.lost()
    }

    /// What the interface of this driver hook is to the agent's host now.
    pub fn interface_usage(&self) -> Result<InterfaceUsage> {
        match self.ask(Request::InterfaceUsage { site: self.number })? {
            Answer::InterfaceUsage(usage) => Ok(usage),
            _ => Err(self.connection.unexpected("the agent answered a request about an interface with something else")),
        }
    }

    fn ask(&self, request: Request<'_>) -> Result<Answer> {
        self.connection.ask(request)
    }

    fn done(&self, request: Request<'_>) -> Result<()> {
        self.ask(request).map(drop)
    }

    fn upload(&mut self, hash: Hash, code: &[u8]) -> Result<()> {
        let welcome = &self.connection.welcome;
        if code.len() as u64 > welcome.code {
            let cause = format!("a body of {} bytes is beyond the {} that the agent takes", code.len(), welcome.code);
            let next = "make it smaller, or start the agent with --limit code=BYTES";
            return Err(Fault::new(self.site.to_string(), cause, next));
        }
        let part = self.connection.largest_part();
        let (length, mut offset) = (code.len() as u64, 0);
        loop {
            let end = (offset + part).min(code.len());
            self.done(Request::Upload { hash, length, offset: offset as u64, bytes: &code[offset..end] })?;
            self.sent += (end - offset) as u64;
            offset = end;
            if offset == code.len() {
                return Ok(());
            }
        }
    }
}

/// Name and port of `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
fn split(host: &str) -> Result<(&str, u16)> {
    let bad =
        || Fault::new(format!("host '{host}'"), "it is no name or address with a port", "write host or host:port");
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok((host, DEFAULT_PORT));
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (name, port) = rest.split_once(']').ok_or_else(bad)?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| bad())?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return Err(bad()),
        };
        return Ok((name, port));
    }
    match host.split_once(':') {
        Some((name, port)) => Ok((name, port.parse().map_err(|_| bad())?)),
        None => Ok((host, DEFAULT_PORT)),
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Fault::new("random numbers", "the kernel gave none", "check seccomp filters on getrandom"))?;
    Ok(bytes)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.outbox.close();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_a_port() {
        assert_eq!(split("dpu-1").unwrap(), ("dpu-1", DEFAULT_PORT));
        assert_eq!(split("dpu-1:99").unwrap(), ("dpu-1", 99));
        assert_eq!(split("10.0.0.1").unwrap(), ("10.0.0.1", DEFAULT_PORT));
        assert_eq!(split("::1").unwrap(), ("::1", DEFAULT_PORT));
        assert_eq!(split("[::1]:5").unwrap(), ("::1", 5));
        assert_eq!(split("[::1]").unwrap(), ("::1", DEFAULT_PORT));
        for bad in ["h:", "h:99999", "[::1", "[::1]x"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
