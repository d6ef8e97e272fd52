//! Hostile peers: messages to an endpoint that no provider sends. They go over UDP, where only messages reach memory.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use endpoint::{
    Completion, Direction, Endpoint as Engine, Label, Name, Paths, Settings, Source, Space, Status, TagSelector,
};
use machine::PeerIndex;

use crate::abi::Address;
use crate::abi::completion::{Entry, ErrorEntry};
use crate::abi::constants::*;
use crate::abi::fid::Fid;
use crate::abi::info::{AddressVectorAttr, Info};
use crate::abi::object::*;
use crate::endpoint::Endpoint;
use crate::fabric::Fabric;
use crate::object::Used;
use crate::wire::{APART, FETCH, HEADER, Header, INLINE, Kind, WITH_DATA, answered, given};
use crate::{address_vector, completion_queue, domain, endpoint_calls, region, tables};

/// Limit for hangs only.
const TIMEOUT: Duration = Duration::from_secs(600);

pub fn settings() -> Settings {
    Settings { address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), shm: false, ..Settings::default() }
}

/// An application's endpoint, used through applications' calls.
pub struct Victim {
    fabric: *mut FidFabric,
    pub domain: *mut FidDomain,
    pub vector: *mut FidAddressVector,
    pub queue: *mut FidCompletionQueue,
    pub endpoint: *mut FidEndpoint,
}

/// Memory that is never freed, whoever still writes to it.
#[derive(Clone, Copy)]
pub struct Bytes(*mut u8, usize);

impl Bytes {
    pub fn new(length: usize) -> Bytes {
        Bytes(Box::leak(vec![0; length].into_boxed_slice()).as_mut_ptr(), length)
    }

    pub fn fill(self, byte: u8) {
        // SAFETY: leaked, and nobody uses it meanwhile.
        unsafe { std::ptr::write_bytes(self.0, byte, self.1) };
    }

    pub fn look(self) -> Vec<u8> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

pub type End = Result<Entry, ErrorEntry>;

/// # Safety
/// The endpoint is open.
pub unsafe fn name_of(endpoint: *mut FidEndpoint) -> Name {
    let mut bytes = [0u8; Name::LENGTH];
    let mut length = bytes.len();
    // SAFETY: the caller's promise, and room for a name.
    unsafe {
        let getname = (*(*endpoint).cm).getname;
        assert_eq!(getname(endpoint.cast(), bytes.as_mut_ptr().cast(), &mut length), 0);
    }
    Name::from_bytes(&bytes).unwrap()
}

impl Victim {
    pub fn open(caps: u64) -> Victim {
        Victim::with(settings(), caps)
    }

    pub fn with(settings: Settings, caps: u64) -> Victim {
        let (mut fabric, mut domain, mut vector, mut queue, mut endpoint) =
            (null_mut::<FidFabric>(), null_mut(), null_mut(), null_mut(), null_mut::<FidEndpoint>());
        // SAFETY: zeroed attributes are what applications pass for the usual; all objects are open when they are used.
        unsafe {
            let (mut attr, mut info) = (std::mem::zeroed::<AddressVectorAttr>(), std::mem::zeroed::<Info>());
            info.caps = caps;
            assert_eq!(tables::open_fabric(1 << 16 | 15, &mut fabric, null_mut()), 0);
            let used = Used::new(fabric.cast::<Fabric>());
            assert_eq!(
                domain::make(
                    tables::domain_fid(null_mut()),
                    used,
                    domain::DomainMode::default(),
                    settings,
                    &mut domain
                ),
                0
            );
            assert_eq!(address_vector::open(domain, &mut attr, &mut vector, null_mut()), 0);
            assert_eq!(completion_queue::open(domain, null_mut(), &mut queue, null_mut()), 0);
            assert_eq!(endpoint_calls::open(domain, &mut info, &mut endpoint, null_mut()), 0);
            let ops = &*(*endpoint).fid.ops;
            assert_eq!((ops.bind)(endpoint.cast(), vector.cast(), 0), 0);
            assert_eq!((ops.bind)(endpoint.cast(), queue.cast(), FI_SEND | FI_RECV), 0);
            assert_eq!((ops.control)(endpoint.cast(), FI_ENABLE, null_mut()), 0);
        }
        Victim { fabric, domain, vector, queue, endpoint }
    }

    pub fn name(&self) -> Name {
        // SAFETY: an open endpoint.
        unsafe { name_of(self.endpoint) }
    }

    pub fn insert(&self, name: &Name) -> Address {
        let mut address = 0;
        // SAFETY: an open vector, one name and room for one address.
        unsafe {
            let insert = (*(*self.vector).ops).insert;
            assert_eq!(insert(self.vector, name.as_bytes().as_ptr().cast(), 1, &mut address, 0, null_mut()), 1);
        }
        address
    }

    pub fn register(&self, bytes: Bytes, access: u64, key: u64) -> *mut Fid {
        let mut region = null_mut();
        // SAFETY: an open domain, memory that stays.
        let code = unsafe {
            let Bytes(start, length) = bytes;
            region::register(self.domain.cast(), start.cast(), length, access, 0, key, 0, &mut region, null_mut())
        };
        assert_eq!(code, 0);
        region.cast()
    }

    pub fn read(&self, into: Bytes, from: Address, key: u64) {
        // SAFETY: an open endpoint, memory that stays.
        let code = unsafe {
            let read = (*(*self.endpoint).rma).read;
            read(self.endpoint, into.0.cast(), into.1, null_mut(), from, 0, key, null_mut())
        };
        assert_eq!(code, 0);
    }

    pub fn receive(&self, into: Bytes) {
        // SAFETY: as above.
        let code = unsafe {
            let receive = (*(*self.endpoint).msg).recv;
            receive(self.endpoint, into.0.cast(), into.1, null_mut(), FI_ADDR_UNSPEC, null_mut())
        };
        assert_eq!(code, 0);
    }

    /// Reads one completion, and thereby makes progress.
    pub fn poll(&self) -> Option<End> {
        // SAFETY: an open queue; entries are plain data.
        unsafe {
            let ops = &*(*self.queue).ops;
            let (mut entry, mut error) = (std::mem::zeroed::<Entry>(), std::mem::zeroed::<ErrorEntry>());
            match (ops.read)(self.queue, (&raw mut entry).cast(), 1) as i32 {
                1 => Some(Ok(entry)),
                code if code == -FI_EAGAIN => None,
                code if code == -FI_EAVAIL => {
                    assert_eq!((ops.readerr)(self.queue, &mut error, 0), 1);
                    Some(Err(error))
                }
                code => panic!("the read of the queue gave {code}"),
            }
        }
    }
}

pub fn close(fid: *mut Fid) {
    // SAFETY: an open object that is used no more.
    assert_eq!(unsafe { ((*(*fid).ops).close)(fid) }, 0);
}

impl Drop for Victim {
    fn drop(&mut self) {
        let all: [*mut c_void; 5] =
            [self.endpoint.cast(), self.queue.cast(), self.vector.cast(), self.domain.cast(), self.fabric.cast()];
        if !std::thread::panicking() {
            all.into_iter().for_each(|object| close(object.cast()));
        }
    }
}

/// A peer without a provider.
pub struct Peer {
    pub engine: Engine<Paths, Vec<u8>>,
    victim: PeerIndex,
    got: Vec<Completion<Vec<u8>>>,
}

/// A write of 8 bytes to the start of region 1, with data.
pub const WRITE: Header = Header {
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

impl Peer {
    pub fn of(victim: &Victim) -> Peer {
        let mut engine = Engine::join(&settings()).unwrap();
        let victim = engine.insert(&victim.name()).unwrap();
        let mut peer = Peer { engine, victim, got: Vec::new() };
        for _ in 0..4 {
            peer.hear();
        }
        peer
    }

    /// Receives one of the victim's messages about requests.
    fn hear(&mut self) {
        let any = TagSelector::any().within(Space::Remote);
        self.engine.receive(Source::Any, any, vec![0; HEADER + INLINE], 0).unwrap();
    }

    /// Posts a receive for the answer to a request.
    pub fn await_answer(&mut self, ticket: u64, length: usize) {
        let tag = TagSelector::exactly(answered(ticket)).within(Space::RemoteData);
        self.engine.receive(Source::Any, tag, vec![0; length], ticket).unwrap();
    }

    pub fn say(&mut self, space: Space, tag: u64, bytes: Vec<u8>) {
        self.engine.send(self.victim, Label::new(space, tag, None), bytes, 0).unwrap();
    }

    pub fn ask(&mut self, header: Header, operands: &[u8]) {
        self.say(Space::Remote, 0, [&header.write(), operands].concat());
    }

    pub fn poll(&mut self) {
        while let Some(done) = self.engine.poll().unwrap() {
            if done.direction == Direction::Receive {
                self.got.push(done);
            }
        }
    }

    fn take(&mut self, wanted: impl Fn(&Completion<Vec<u8>>) -> bool) -> Option<Completion<Vec<u8>>> {
        self.poll();
        let at = self.got.iter().position(wanted)?;
        Some(self.got.remove(at))
    }

    /// The next message about requests.
    pub fn told(&mut self) -> Option<Header> {
        let done = self.take(|done| done.envelope.space == Space::Remote)?;
        self.hear();
        Header::read(&done.buffer[..done.envelope.length as usize]).map(|(header, _)| header)
    }

    /// The answer to a request; `None` before it has come.
    pub fn answer(&mut self, ticket: u64) -> Option<Completion<Vec<u8>>> {
        self.take(|done| done.context == ticket && done.envelope.space == Space::RemoteData)
    }

    /// Sends a request, and waits for the answer's bytes or the error.
    pub fn carry_out(&mut self, victim: &Victim, header: Header, operands: &[u8]) -> Result<Vec<u8>, i32> {
        self.await_answer(header.ticket, INLINE);
        self.ask(header, operands);
        until("the request is carried out or refused", || {
            assert!(victim.poll().is_none(), "nothing ends at the victim");
            if let Some(mut done) = self.answer(header.ticket) {
                assert_eq!(done.status, Status::Done);
                done.buffer.truncate(done.envelope.length as usize);
                return Some(Ok(done.buffer));
            }
            let told = self.told()?;
            assert_eq!((told.kind, told.ticket), (Kind::Failed, header.ticket));
            Some(Err(told.error as i32))
        })
    }

    /// Waits until all requests so far have come to the victim, and were served as far as they ever will be.
    pub fn is_served(&mut self, victim: &Victim) {
        const MARK: u64 = 0x77;
        let bytes = Bytes::new(8);
        let region = victim.register(bytes, FI_REMOTE_WRITE, MARK);
        self.ask(Header { flags: WITH_DATA, key: MARK, data: MARK, ticket: MARK, ..WRITE }, &[0; 8]);
        until("a mark is written", || {
            self.poll();
            let entry = victim.poll()?.unwrap_or_else(|error| panic!("error {}", error.error));
            assert_eq!((entry.data, entry.length), (MARK, 8));
            Some(())
        });
        close(region);
    }
}

pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for: {what}");
    }
}

pub const BOTH: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Each operation on a region with each access.
#[test]
fn no_operation_goes_beyond_the_rights_of_the_region() {
    let victim = Victim::open(FI_RMA | FI_ATOMIC);
    let mut peer = Peer::of(&victim);
    let mut ticket = 0;
    for access in [FI_REMOTE_READ, FI_REMOTE_WRITE, BOTH] {
        let bytes = Bytes::new(64);
        let region = victim.register(bytes, access, 1);
        let mut check = |header: Header, operands: &[u8], needs: Option<u64>| {
            bytes.fill(1);
            ticket += 1;
            let done = peer.carry_out(&victim, Header { ticket, ..header }, operands);
            let what = format!("access {access:#x}, {header:?}");
            match needs {
                Some(needs) if needs & access == needs => {
                    let answer = done.unwrap_or_else(|error| panic!("{what}: error {error}"));
                    let reads = header.kind == Kind::Read || header.flags & FETCH != 0;
                    assert_eq!(answer, vec![1; if reads { 8 } else { 0 }], "{what}");
                }
                _ => {
                    assert_eq!(done, Err(if needs.is_none() { FI_EINVAL } else { FI_ENOKEY }), "{what}");
                    assert_eq!(bytes.look(), [1; 64], "{what}");
                }
            }
        };
        check(WRITE, &[2; 8], Some(FI_REMOTE_WRITE));
        check(Header { kind: Kind::Read, ..WRITE }, &[], Some(FI_REMOTE_READ));
        for operator in 0..=18 {
            const READ: u8 = 10;
            let operands = match operator {
                READ => &[][..],
                0..=11 => &[3; 8],
                _ => &[3; 16],
            };
            for flags in [0, FETCH] {
                let needs = match (operator == READ, flags == FETCH) {
                    (true, true) => Some(FI_REMOTE_READ),
                    (true, false) => None,
                    (false, true) => Some(BOTH),
                    (false, false) => Some(FI_REMOTE_WRITE),
                };
                check(Header { kind: Kind::Atomic, operator, flags, ..WRITE }, operands, needs);
            }
        }
        close(region);
    }
}

#[test]
fn no_operation_goes_beyond_the_bounds_of_the_region() {
    let victim = Victim::open(FI_RMA | FI_ATOMIC);
    let mut peer = Peer::of(&victim);
    let bytes = Bytes::new(64);
    let region = victim.register(Bytes(bytes.0.wrapping_add(16), 32), BOTH, 1);
    let read = Header { kind: Kind::Read, ..WRITE };
    let fetch = Header { kind: Kind::Atomic, operator: 2, flags: FETCH, ..WRITE };
    let mut ticket = 0;
    let mut carry_out = |header: Header, operands: &[u8]| {
        ticket += 1;
        peer.carry_out(&victim, Header { ticket, ..header }, operands)
    };
    for (address, length) in [
        (25, 8),
        (32, 1),
        (33, 0),
        (u64::MAX, 1),
        (u64::MAX - 7, 8),
        (8, u64::MAX - 7),
        (0, u64::MAX),
        (1 << 63, 8),
        (0, 33),
    ] {
        for header in [WRITE, read, fetch, Header { flags: APART, ..WRITE }] {
            let header = Header { address, length, ..header };
            let error = carry_out(header, &[9; 8]).unwrap_err();
            assert!(matches!(error, FI_ENOKEY | FI_EINVAL), "{header:?} gave {error}");
        }
    }
    // Operands of another length than announced, incomplete elements, more elements than allowed.
    for (length, operands) in [(8, 7), (8, 9), (0, 8), (7, 7), (12, 12), (8, 16)] {
        assert_eq!(carry_out(Header { length, ..fetch }, &vec![9; operands]), Err(FI_EINVAL), "{length}, {operands}");
    }
    assert_eq!(carry_out(Header { datatype: 99, ..fetch }, &[9; 8]), Err(FI_EOPNOTSUPP));
    assert_eq!(carry_out(Header { operator: 99, ..fetch }, &[9; 8]), Err(FI_EOPNOTSUPP));
    assert_eq!(carry_out(Header { key: 2, ..WRITE }, &[9; 8]), Err(FI_ENOKEY));
    assert_eq!(bytes.look(), [0; 64]);
    // An access of no bytes is inside everywhere, also at the end.
    for address in [0, 32] {
        assert_eq!(carry_out(Header { address, length: 0, ..WRITE }, &[]), Ok(vec![]));
        assert_eq!(carry_out(Header { address, length: 0, ..fetch }, &[]), Ok(vec![]));
    }
    close(region);
    // The same key with fewer rights: the region that has the key now decides.
    let region = victim.register(Bytes(bytes.0, 8), FI_REMOTE_READ, 1);
    assert_eq!(carry_out(Header { address: 8, ..read }, &[]), Err(FI_ENOKEY));
    assert_eq!(carry_out(WRITE, &[9; 8]), Err(FI_ENOKEY));
    assert_eq!(carry_out(read, &[]), Ok(vec![0; 8]));
    close(region);
    let region = victim.register(Bytes(null_mut(), 0), BOTH, 1);
    assert_eq!(carry_out(Header { length: 0, ..fetch }, &[]), Ok(vec![]));
    assert_eq!(carry_out(WRITE, &[9; 8]), Err(FI_ENOKEY));
    close(region);
    assert_eq!(carry_out(read, &[]), Err(FI_ENOKEY));
}

#[test]
fn an_endpoint_is_the_target_of_what_it_was_opened_for() {
    let fetch = Header { kind: Kind::Atomic, operator: 2, flags: FETCH, ..WRITE };
    let read = Header { kind: Kind::Read, ..WRITE };
    for (caps, served) in [
        (FI_RMA, [true, true, false]),
        (FI_ATOMIC, [false, false, true]),
        (FI_RMA | FI_READ | FI_WRITE, [false, false, false]),
        (FI_RMA | FI_ATOMIC | FI_REMOTE_READ, [false, true, false]),
        (FI_RMA | FI_ATOMIC | FI_REMOTE_WRITE, [true, false, false]),
    ] {
        let victim = Victim::open(caps);
        let mut peer = Peer::of(&victim);
        let bytes = Bytes::new(8);
        let region = victim.register(bytes, BOTH, 1);
        for (at, header) in [WRITE, read, fetch].into_iter().enumerate() {
            let operands = if header.kind == Kind::Read { &[][..] } else { &[9; 8] };
            let done = peer.carry_out(&victim, Header { ticket: at as u64, ..header }, operands);
            let expected = if served[at] { None } else { Some(FI_EOPNOTSUPP) };
            assert_eq!(done.err(), expected, "caps {caps:#x}, {header:?}");
        }
        close(region);
    }
}

#[test]
fn bytes_of_a_write_that_come_after_the_region_was_closed_go_nowhere() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    for length in [5000, 1_000_000] {
        let bytes = Bytes::new(length);
        let region = victim.register(bytes, FI_REMOTE_WRITE, 1);
        peer.await_answer(9, 8);
        peer.ask(Header { ticket: 9, flags: APART | WITH_DATA, length: length as u64, ..WRITE }, &[]);
        peer.is_served(&victim);
        close(region);
        bytes.fill(0x5a);
        // Another region has the key now.
        let other = Bytes::new(length);
        let region = victim.register(other, FI_REMOTE_WRITE, 1);
        peer.say(Space::RemoteData, given(9), vec![7; length]);
        let told = until("the write has ended", || {
            assert!(victim.poll().is_none(), "nothing was written");
            assert!(peer.answer(9).is_none(), "{length} bytes were written after the close");
            peer.told()
        });
        assert_eq!((told.kind, told.ticket, told.error as i32), (Kind::Failed, 9, FI_ENOKEY));
        peer.is_served(&victim);
        assert!(bytes.look().iter().all(|&byte| byte == 0x5a), "{length}");
        assert!(other.look().iter().all(|&byte| byte == 0), "{length}");
        close(region);
        let answer = peer.engine.cancel_context(9).unwrap();
        assert!(answer, "there was no answer");
        until("the receive is cancelled", || peer.take(|done| done.context == 9));
    }
}

#[test]
fn what_a_read_has_not_taken_when_the_region_is_closed_is_not_read() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    const LENGTH: usize = 32 << 20;
    for started in [false, true] {
        let bytes = Bytes::new(LENGTH);
        bytes.fill(1);
        let region = victim.register(bytes, FI_REMOTE_READ, 1);
        peer.ask(Header { kind: Kind::Read, ticket: 9, length: LENGTH as u64, ..WRITE }, &[]);
        peer.is_served(&victim);
        if started {
            peer.await_answer(9, LENGTH);
            // The bytes are on their way once the answer was asked for.
            for _ in 0..2 {
                peer.poll();
                assert!(victim.poll().is_none());
            }
        }
        close(region);
        bytes.fill(0x5a);
        if !started {
            peer.await_answer(9, LENGTH);
        }
        let done = until("the read has ended", || {
            assert!(victim.poll().is_none());
            peer.answer(9)
        });
        assert!(done.buffer.iter().all(|&byte| byte != 0x5a), "started {started}");
        // Bytes that were not read must not pass for the region's.
        assert_eq!(done.status, Status::Withdrawn, "started {started}");
        let told = until("the reader is told", || {
            victim.poll();
            peer.told()
        });
        assert_eq!((told.kind, told.ticket, told.error as i32), (Kind::Failed, 9, FI_ENOKEY));
    }
}

/// A target that answers with other bytes than were asked for.
#[test]
fn an_answer_of_another_length_is_an_error() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    let address = victim.insert(&peer.engine.name());
    let into = Bytes::new(100);
    for (length, expected) in [(100, None), (0, Some(FI_EIO)), (99, Some(FI_EIO)), (101, Some(FI_ETRUNC))] {
        victim.read(into, address, 1);
        let asked = until("the read is asked for", || {
            victim.poll();
            peer.told()
        });
        assert_eq!((asked.kind, asked.length), (Kind::Read, 100));
        peer.say(Space::RemoteData, answered(asked.ticket), vec![7; length]);
        let end = until("the read has ended", || {
            peer.poll();
            victim.poll()
        });
        assert_eq!(end.err().map(|error| error.error), expected, "an answer of {length} bytes");
    }
}

#[test]
fn an_endpoint_outlives_peers_that_die_in_the_middle_of_a_request() {
    let victim = Victim::open(FI_RMA);
    let bytes = Bytes::new(8);
    let region = victim.register(bytes, FI_REMOTE_WRITE, 1);
    let mut dying = Peer::of(&victim);
    dying.is_served(&victim);
    for _ in 0..100 {
        // Announced, but never sent.
        let request = [&WRITE.write()[..], &[0; 8]].concat();
        dying.engine.send_confirmed(dying.victim, Label::new(Space::Remote, 0, None), request, 0).unwrap();
    }
    dying.engine.flush().unwrap();
    drop(dying);
    let mut honest = Peer::of(&victim);
    honest.await_answer(1, 8);
    honest.ask(WRITE, &[6; 8]);
    until("the write of another peer", || {
        victim.poll();
        honest.answer(1)
    });
    assert_eq!(bytes.look(), [6; 8]);
    close(region);
}

/// Answers that nobody receives pile up.
#[test]
fn a_peer_with_too_much_in_progress_is_not_served_and_others_are() {
    let victim = Victim::open(FI_RMA | FI_MSG);
    let bytes = Bytes::new(8);
    let region = victim.register(bytes, FI_REMOTE_WRITE, 1);
    let (mut hostile, mut honest) = (Peer::of(&victim), Peer::of(&victim));
    hostile.is_served(&victim);
    let load = |served: usize| {
        // SAFETY: one thread, and no reference to the state is in use.
        let state = unsafe { Endpoint::of(victim.endpoint).state() };
        state.remote.as_mut().unwrap().load(PeerIndex(0)).served = served;
    };
    load(crate::target::MOST_SERVED);
    hostile.ask(WRITE, &[6; 8]);
    // A message follows the request.
    victim.receive(Bytes::new(8));
    hostile.say(Space::Message, 0, vec![0; 8]);
    let came = until("a message", || {
        hostile.poll();
        victim.poll()
    });
    assert!(came.is_ok());
    honest.is_served(&victim);
    assert_eq!(bytes.look(), [0; 8]);
    load(0);
    assert_eq!(hostile.carry_out(&victim, WRITE, &[6; 8]), Ok(vec![]));
    assert_eq!(bytes.look(), [6; 8]);
    close(region);
}
