//! Hostile peers of passive and of connected endpoints: malformed handshakes, too many requests, and unknown senders at an
//! endpoint that has a peer already.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use endpoint::{Endpoint as Engine, Label, Name, Paths, Space};
use machine::PeerIndex;

use crate::abi::completion::{ConnectionEntry, Entry, EventErrorEntry};
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::info::{EndpointAttr, Info};
use crate::abi::object::*;
use crate::fabric::Fabric;
use crate::handshake::{ConnectionMessage, DATA, LABEL, LONGEST};
use crate::hostile::{name_of, settings};
use crate::listener::{ConnectionRequest, Listener};
use crate::object::Used;
use crate::offer::{Progress, settle};
use crate::service::Service;
use crate::wire::{Header, Kind};
use crate::{completion_queue, domain, endpoint_calls, event_queue, region, tables};

/// Limit for hangs only.
const TIMEOUT: Duration = Duration::from_secs(600);

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for: {what}");
    }
}

struct UnknownSender {
    engine: Engine<Paths, Vec<u8>>,
    victim: PeerIndex,
}

impl UnknownSender {
    fn of(victim: &Name) -> UnknownSender {
        let mut engine = Engine::join(&settings()).unwrap();
        let victim = engine.insert(victim).unwrap();
        UnknownSender { engine, victim }
    }

    fn name(&mut self) -> Name {
        self.engine.name()
    }

    fn say(&mut self, label: Label, bytes: &[u8]) {
        self.engine.send(self.victim, label, bytes.to_vec(), 0).unwrap();
    }

    /// Waits until all messages have come.
    fn has_incoming(&mut self, mut victim: impl FnMut()) {
        let deadline = Instant::now() + TIMEOUT;
        while self.engine.settle(Duration::from_millis(1)).is_err() {
            victim();
            assert!(Instant::now() < deadline);
        }
        (0..100).for_each(|_| victim());
    }

    /// Posts a receive for the answer to its request.
    fn awaits(&mut self) {
        self.engine
            .receive(endpoint::Source::Peer(self.victim), crate::handshake::selector(), vec![0; LONGEST], 1)
            .unwrap();
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        while let Some(mut done) = self.engine.poll().unwrap() {
            if done.context == 1 {
                done.buffer.truncate(done.envelope.length as usize);
                return Some(done.buffer);
            }
        }
        None
    }
}

fn listener() -> std::sync::Arc<Listener> {
    // SAFETY: there are no hints.
    let settled = unsafe { settle(1 << 16 | 15, None, Progress::Manual) }.unwrap();
    let listener = Listener::new(settings(), settled, Service::ANY);
    listener.listen().unwrap();
    listener
}

type Requests = Vec<(Box<ConnectionRequest>, Vec<u8>)>;

#[test]
fn garbage_is_no_request_and_one_peer_has_one() {
    let listener = listener();
    let mut unknown = UnknownSender::of(&listener.name().unwrap());
    let name = unknown.name();
    let good = ConnectionMessage::Ask(name, b"hello").write();
    for cut in 0..=Name::LENGTH {
        unknown.say(LABEL, &good[..cut]);
    }
    for kind in 0..=u8::MAX {
        unknown.say(LABEL, &[kind; 80]);
    }
    for length in [DATA + 1, 5000, 200_000] {
        unknown.say(LABEL, &[&good[..1 + Name::LENGTH], &vec![1; length]].concat());
    }
    for word in [
        ConnectionMessage::Accept(name, &[]),
        ConnectionMessage::Refuse(&[]),
        ConnectionMessage::Ready,
        ConnectionMessage::Over,
    ] {
        unknown.say(LABEL, &word.write());
    }
    for space in [Space::Tagged, Space::Message, Space::Remote, Space::RemoteData] {
        unknown.say(Label { space, tag: 1, data: None }, &good);
    }
    let mut found = Requests::new();
    (0..20).for_each(|_| unknown.say(LABEL, &good));
    unknown.has_incoming(|| {
        listener.progress();
        found.extend(listener.requests());
    });
    assert_eq!(found.len(), 1);
    assert!(found[0].0.name == name);
    assert_eq!(found[0].1, b"hello");
    unknown.awaits();
    found.clear();
    let answer = until("what nobody answers is refused", || {
        listener.progress();
        unknown.heard()
    });
    assert_eq!(ConnectionMessage::read(&answer), Some(ConnectionMessage::Refuse(&[])));
    // It has had its answer.
    unknown.say(LABEL, &good);
    unknown.has_incoming(|| {
        listener.progress();
        assert!(listener.requests().is_empty());
    });
}

#[test]
fn requests_beyond_the_backlog_are_refused() {
    let listener = listener();
    listener.set_backlog(3);
    let name = listener.name().unwrap();
    let mut unknowns: Vec<UnknownSender> = (0..5).map(|_| UnknownSender::of(&name)).collect();
    let mut found = Requests::new();
    for (at, unknown) in unknowns.iter_mut().enumerate() {
        let me = unknown.name();
        unknown.awaits();
        unknown.say(LABEL, &ConnectionMessage::Ask(me, &[]).write());
        if at < 3 {
            until("a request", || {
                let _ = unknown.heard();
                listener.progress();
                found.extend(listener.requests());
                (found.len() == at + 1).then_some(())
            });
        } else {
            let answer = until("a refusal", || {
                listener.progress();
                unknown.heard()
            });
            assert_eq!(ConnectionMessage::read(&answer), Some(ConnectionMessage::Refuse(&[])));
        }
    }
    assert!(listener.requests().is_empty());
    // An answered request makes room.
    drop(found.pop());
    let mut late = UnknownSender::of(&name);
    let me = late.name();
    late.say(LABEL, &ConnectionMessage::Ask(me, &[]).write());
    until("a request", || {
        let _ = late.heard();
        listener.progress();
        (!listener.requests().is_empty()).then_some(())
    });
}

/// An application with a connected endpoint, whose peer the test plays.
struct Victim {
    all: Vec<*mut Fid>,
    domain: *mut FidDomain,
    queue: *mut FidCompletionQueue,
    events: *mut FidEventQueue,
    endpoint: *mut FidEndpoint,
}

impl Victim {
    fn open() -> Victim {
        let (mut fabric, mut domain, mut queue, mut events, mut endpoint) =
            (null_mut::<FidFabric>(), null_mut(), null_mut(), null_mut(), null_mut::<FidEndpoint>());
        // SAFETY: zeroed attributes are what applications pass for the usual; all objects are open when they are used.
        unsafe {
            let (mut info, mut attr) = (std::mem::zeroed::<Info>(), std::mem::zeroed::<EndpointAttr>());
            attr.kind = FI_EP_MSG;
            (info.caps, info.ep_attr) = (FI_MSG | FI_RMA, &mut attr);
            assert_eq!(tables::open_fabric(1 << 16 | 15, &mut fabric, null_mut()), 0);
            let used = Used::new(fabric.cast::<Fabric>());
            assert_eq!(
                domain::make(
                    tables::domain_fid(null_mut()),
                    used,
                    domain::DomainMode::default(),
                    settings(),
                    &mut domain
                ),
                0
            );
            assert_eq!(completion_queue::open(domain, null_mut(), &mut queue, null_mut()), 0);
            assert_eq!(event_queue::open(fabric, null_mut(), &mut events, null_mut()), 0);
            assert_eq!(endpoint_calls::open(domain, &mut info, &mut endpoint, null_mut()), 0);
            let ops = &*(*endpoint).fid.ops;
            assert_eq!((ops.bind)(endpoint.cast(), queue.cast(), FI_SEND | FI_RECV), 0);
            assert_eq!((ops.bind)(endpoint.cast(), events.cast(), 0), 0);
            assert_eq!((ops.control)(endpoint.cast(), FI_ENABLE, null_mut()), 0);
        }
        let all = vec![endpoint.cast(), queue.cast(), events.cast(), domain.cast(), fabric.cast()];
        Victim { all, domain, queue, events, endpoint }
    }

    fn name(&self) -> Name {
        // SAFETY: an open endpoint.
        unsafe { name_of(self.endpoint) }
    }

    /// The next event, or an error; makes progress.
    fn event(&self) -> Option<Result<u32, c_int>> {
        // SAFETY: an open queue; entries are plain data.
        unsafe {
            let ops = &*(*self.events).ops;
            let (mut kind, mut entry) = (0, std::mem::zeroed::<ConnectionEntry>());
            let mut error = std::mem::zeroed::<EventErrorEntry>();
            let room = size_of::<ConnectionEntry>();
            match (ops.read)(self.events, &mut kind, (&raw mut entry).cast(), room, 0) as c_int {
                code if code == -FI_EAGAIN => None,
                code if code == -FI_EAVAIL => {
                    assert!((ops.readerr)(self.events, &mut error, 0) > 0);
                    Some(Err(error.error))
                }
                code => {
                    assert_eq!(code, room as c_int);
                    Some(Ok(kind))
                }
            }
        }
    }

    fn completion(&self) -> Option<Entry> {
        // SAFETY: as above.
        unsafe {
            let mut entry = std::mem::zeroed::<Entry>();
            match ((*(*self.queue).ops).read)(self.queue, (&raw mut entry).cast(), 1) as c_int {
                1 => Some(entry),
                code => {
                    assert_eq!(code, -FI_EAGAIN);
                    None
                }
            }
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for &fid in &self.all {
            // SAFETY: open objects that are used no more.
            assert_eq!(unsafe { ((*(*fid).ops).close)(fid) }, 0);
        }
    }
}

#[test]
fn unknowns_do_not_reach_a_connected_endpoint() {
    let victim = Victim::open();
    let name = victim.name();
    // The test is the listener and the other end in one.
    let mut peer = UnknownSender::of(&name);
    let me = peer.name();
    let (into, memory) = (Box::leak(Box::new(0u64)), Box::leak(Box::new(7u64)));
    let memory: *mut u64 = memory;
    let into: *mut u64 = into;
    let mut region = null_mut();
    // SAFETY: open objects; memory that stays.
    unsafe {
        let start = memory.cast::<c_void>();
        let access = FI_REMOTE_WRITE | FI_REMOTE_READ;
        assert_eq!(region::register(victim.domain.cast(), start, 8, access, 0, 1, 0, &mut region, null_mut()), 0);
        let receive = (*(*victim.endpoint).msg).recv;
        assert_eq!(receive(victim.endpoint, into.cast(), 8, null_mut(), 0, null_mut()), 0);
        let connect = (*(*victim.endpoint).cm).connect;
        assert_eq!(connect(victim.endpoint, me.as_bytes().as_ptr().cast(), null_mut(), 0), 0);
    }
    let write = Header {
        kind: Kind::Write,
        datatype: 7,
        operator: 0,
        flags: 0,
        error: 0,
        ticket: 1,
        key: 1,
        address: 0,
        length: 8,
        data: 0,
    };
    let everything = |unknown: &mut UnknownSender| {
        let own = unknown.name();
        for word in [
            ConnectionMessage::Accept(own, &[]),
            ConnectionMessage::Refuse(&[]),
            ConnectionMessage::Ready,
            ConnectionMessage::Over,
            ConnectionMessage::Ask(own, &[]),
        ] {
            unknown.say(LABEL, &word.write());
        }
        unknown.say(Label { space: Space::Message, tag: 0, data: None }, &[1; 8]);
        unknown.say(Label { space: Space::Remote, tag: 0, data: None }, &[&write.write()[..], &[9; 8]].concat());
    };
    let nothing_happens = |unknown: &mut UnknownSender| {
        everything(unknown);
        unknown.has_incoming(|| {
            assert_eq!(victim.event(), None);
            assert!(victim.completion().is_none());
        });
        // SAFETY: memory that stays, and that nobody writes meanwhile.
        assert_eq!(unsafe { memory.read_volatile() }, 7);
    };
    let mut unknown = UnknownSender::of(&name);
    nothing_happens(&mut unknown);
    peer.awaits();
    peer.say(LABEL, &ConnectionMessage::Accept(me, b"data").write());
    let event = until("it is connected", || {
        let _ = peer.heard();
        victim.event()
    });
    assert_eq!(event, Ok(FI_CONNECTED as u32));
    nothing_happens(&mut unknown);
    nothing_happens(&mut UnknownSender::of(&name));
    peer.say(Label { space: Space::Message, tag: 0, data: None }, &[2; 8]);
    peer.say(Label { space: Space::Remote, tag: 0, data: None }, &[&write.write()[..], &[9; 8]].concat());
    until("the peer's message", || {
        let _ = peer.engine.poll().unwrap();
        victim.completion()
    });
    // SAFETY: as above; the receive has ended.
    assert_eq!(unsafe { into.read_volatile() }, 0x0202_0202_0202_0202);
    until("the peer's write", || {
        let _ = (peer.engine.poll().unwrap(), victim.event());
        // SAFETY: as above.
        (unsafe { memory.read_volatile() } == 0x0909_0909_0909_0909).then_some(())
    });
    // Any other message than the end ends the connection too: its peer is no provider.
    peer.say(LABEL, &[77; LONGEST + 50]);
    let event = until("it is over", || {
        let _ = peer.engine.poll().unwrap();
        victim.event()
    });
    assert_eq!(event, Ok(FI_SHUTDOWN as u32));
    // SAFETY: an open region.
    assert_eq!(unsafe { ((*(*region).fid.ops).close)(region.cast()) }, 0);
}
