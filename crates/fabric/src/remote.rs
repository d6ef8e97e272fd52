//! Remote memory and atomic operations, as messages that the target's own calls carry out (active messages).
//!
//! A request travels in the space [`Space::Remote`], small operands with it. What it moves else travels in
//! [`Space::RemoteData`], matched by the initiator's ticket, so that the bytes land where they belong without a copy:
//! operands that the initiator gives, and the answer that the target gives (for a write, an empty one). The operation ends
//! at the initiator with the answer, when the target's memory has been written or read.

use endpoint::{Completion, Direction, Label, Request, Source, Space, Status, TagSelector};
use machine::{PeerIndex, Result};
use slotmap::{Key, KeyData, SlotMap};

use crate::abi::Signed;
use crate::abi::completion::{Entry, ErrorEntry};
use crate::abi::constants::*;
use crate::arithmetic::{Datatype, Operator, apply};
use crate::endpoint::State;
use crate::memory::{Memory, wish};
use crate::object::Context;
use crate::offer::LONGEST;
use crate::refuse::signed;

/// Operands that travel with their request.
pub const INLINE: usize = 4096;

/// Requests that find a buffer waiting; more wait in the engine.
const BUFFERS: usize = 16;

slotmap::new_key_type! {
    struct Ticket;
    struct LandingKey;
}

/// Why the provider made a request of its own; in [`Memory::source`].
mod role {
    /// Takes the next request of anybody.
    pub const REQUEST: u32 = 0;
    /// Takes an operation's answer.
    pub const ANSWER: u32 = 1;
    /// A part of an operation on its way to the target.
    pub const PART: u32 = 2;
    /// Takes a write's bytes.
    pub const LANDING: u32 = 3;
    /// Nobody waits for its end.
    pub const OBLIVION: u32 = 4;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Write = 1,
    Read = 2,
    Atomic = 3,
    /// The target could not do it.
    Failed = 4,
}

/// The operands come in a message of their own.
const APART: u8 = 1;
/// `data` is for the target's completion queue.
const WITH_DATA: u8 = 2;
/// An atomic's answer is what was there before.
const FETCH: u8 = 4;

/// 48 bytes, little endian: kind, datatype, operator, flags (1 each), error (4), ticket, key, address, length, data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    kind: Kind,
    datatype: u8,
    operator: u8,
    flags: u8,
    error: u32,
    ticket: u64,
    key: u64,
    address: u64,
    length: u64,
    data: u64,
}

const HEADER: usize = 48;

impl Header {
    fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&[self.kind as u8, self.datatype, self.operator, self.flags]);
        bytes[4..8].copy_from_slice(&self.error.to_le_bytes());
        for (at, word) in [self.ticket, self.key, self.address, self.length, self.data].into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// And what follows it.
    fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEADER)?;
        let kind = match head[0] {
            1 => Kind::Write,
            2 => Kind::Read,
            3 => Kind::Atomic,
            4 => Kind::Failed,
            _ => return None,
        };
        let word = |at: usize| u64::from_le_bytes(head[8 + 8 * at..16 + 8 * at].try_into().expect("eight bytes"));
        let header = Header {
            kind,
            datatype: head[1],
            operator: head[2],
            flags: head[3],
            error: u32::from_le_bytes(head[4..8].try_into().expect("four bytes")),
            ticket: word(0),
            key: word(1),
            address: word(2),
            length: word(3),
            data: word(4),
        };
        Some((header, rest))
    }
}

/// Two tags a ticket: for what the initiator gives, and for the answer. The low half of a ticket is its slot, of which the
/// highest bit is never reached.
fn given(ticket: u64) -> u64 {
    ticket
}

fn answered(ticket: u64) -> u64 {
    ticket | 1 << 31
}

fn ticket_of(bits: u64) -> Ticket {
    Ticket::from(KeyData::from_ffi(bits))
}

/// An operation that this endpoint has begun.
struct Operation {
    context: Context,
    peer: PeerIndex,
    wishes: u8,
    /// The flags of its completion.
    flags: u64,
    length: usize,
    answer: Option<Request>,
    /// Requests of the engine that belong to it and have not ended.
    pending: u8,
    error: i32,
}

/// Bytes of a peer's write on their way into this process's memory.
struct Landing {
    peer: PeerIndex,
    ticket: u64,
    data: Option<u64>,
}

#[derive(Default)]
pub struct Remote {
    operations: SlotMap<Ticket, Operation>,
    landings: SlotMap<LandingKey, Landing>,
}

/// What an initiator asks for.
pub struct Wanted {
    pub key: u64,
    pub address: u64,
    pub length: usize,
    pub action: Action,
    pub data: Option<u64>,
}

pub enum Action {
    Write,
    Read,
    Atomic { datatype: Datatype, operator: Operator, fetch: bool },
}

impl Action {
    /// The flags of the completion.
    fn flags(&self) -> u64 {
        match self {
            Action::Write => FI_RMA | FI_WRITE,
            Action::Read => FI_RMA | FI_READ,
            Action::Atomic { fetch: true, .. } => FI_ATOMIC | FI_READ,
            Action::Atomic { fetch: false, .. } => FI_ATOMIC | FI_WRITE,
        }
    }
}

impl State {
    /// Makes the endpoint a target.
    pub fn open_remote(&mut self) -> Result<()> {
        self.remote = Some(Box::default());
        for _ in 0..BUFFERS {
            self.await_request(Memory::owned(vec![0; HEADER + INLINE], wish::REMOTE))?;
        }
        Ok(())
    }

    fn await_request(&mut self, mut buffer: Memory) -> Result<()> {
        buffer.source = role::REQUEST;
        let Some(engine) = &mut self.engine else { return Ok(()) };
        engine.receive(Source::Any, TagSelector::any().within(Space::Remote), buffer, 0).map(drop)
    }

    /// Begins an operation. `operands` are sent, `result` takes the answer.
    pub fn begin(
        &mut self,
        to: PeerIndex,
        wanted: &Wanted,
        operands: Memory,
        mut result: Memory,
        context: Context,
        wishes: u8,
    ) -> Signed {
        let Some(remote) = &mut self.remote else { return signed(FI_EOPNOTSUPP) };
        let Some(engine) = &mut self.engine else { return signed(FI_EOPBADSTATE) };
        let operation = Operation {
            context,
            peer: to,
            wishes,
            flags: wanted.action.flags(),
            length: wanted.length,
            answer: None,
            pending: 1,
            error: 0,
        };
        let key = remote.operations.insert(operation);
        let ticket = key.data().as_ffi();
        let (kind, datatype, operator, fetch) = match wanted.action {
            Action::Write => (Kind::Write, 0, 0, 0),
            Action::Read => (Kind::Read, 0, 0, 0),
            Action::Atomic { datatype, operator, fetch } => {
                (Kind::Atomic, datatype.number(), operator.number(), if fetch { FETCH } else { 0 })
            }
        };
        let apart = operands.length() > INLINE;
        let flags = fetch | if apart { APART } else { 0 } | if wanted.data.is_some() { WITH_DATA } else { 0 };
        let header = Header {
            kind,
            datatype,
            operator,
            flags,
            error: 0,
            ticket,
            key: wanted.key,
            address: wanted.address,
            length: wanted.length as u64,
            data: wanted.data.unwrap_or_default(),
        };
        let mut request = Vec::with_capacity(HEADER + if apart { 0 } else { operands.length() });
        request.extend_from_slice(&header.write());
        if !apart {
            request.resize(HEADER + operands.length(), 0);
            engine::Buffer::read(&operands, 0, &mut request[HEADER..]);
        }
        result.source = role::ANSWER;
        let selector = TagSelector::exactly(answered(ticket)).within(Space::RemoteData);
        let begun = engine.receive(Source::Peer(to), selector, result, ticket).and_then(|answer| {
            let operation = &mut remote.operations[key];
            operation.answer = Some(answer);
            let label = Label { space: Space::Remote, tag: 0, data: None };
            if !engine.inject(to, label, &request)? {
                operation.pending += 1;
                let mut memory = Memory::owned(request, wish::REMOTE);
                memory.source = role::PART;
                engine.send(to, label, memory, ticket)?;
            }
            if apart {
                operation.pending += 1;
                let label = Label { space: Space::RemoteData, tag: given(ticket), data: None };
                let mut memory = operands;
                memory.wishes = wish::REMOTE;
                memory.source = role::PART;
                engine.send(to, label, memory, ticket)?;
            }
            engine.start_off()
        });
        match begun {
            Ok(()) => 0,
            Err(fault) => self.fail(&fault),
        }
    }

    /// One of the provider's own requests has ended.
    #[cold]
    pub fn finish_remote(&mut self, done: Completion<Memory>) {
        let Completion { context, direction, envelope, status, buffer, .. } = done;
        let outcome = match buffer.source {
            role::REQUEST => match status {
                Status::Done => {
                    let length = envelope.length as usize;
                    let served = self.serve(envelope.peer, &buffer, length);
                    served.and_then(|()| self.await_request(buffer))
                }
                Status::Truncated => self.await_request(buffer),
                Status::Cancelled | Status::PeerDead => Ok(()),
            },
            role::ANSWER | role::PART => {
                let error = match status {
                    Status::Done => 0,
                    Status::Truncated => FI_ETRUNC,
                    Status::Cancelled => FI_ECANCELED,
                    Status::PeerDead => FI_ECONNRESET,
                };
                debug_assert!((direction == Direction::Receive) == (buffer.source == role::ANSWER));
                self.part_ended(ticket_of(context), error);
                Ok(())
            }
            role::LANDING => self.landed(LandingKey::from(KeyData::from_ffi(context)), status),
            _ => Ok(()),
        };
        if let Err(fault) = outcome {
            self.fail(&fault);
        }
    }

    fn part_ended(&mut self, ticket: Ticket, error: i32) {
        let Some(remote) = &mut self.remote else { return };
        let Some(operation) = remote.operations.get_mut(ticket) else { return };
        operation.pending -= 1;
        if operation.error == 0 {
            operation.error = error;
        }
        if operation.pending > 0 {
            return;
        }
        let Some(Operation { context, wishes, flags, length, error, .. }) = remote.operations.remove(ticket) else {
            return;
        };
        if let Some(queue) = &self.sends {
            // SAFETY: progress is made with the domain entered.
            unsafe {
                if error != 0 {
                    queue.push_error(ErrorEntry::new(context, flags, error));
                } else if wishes & wish::COMPLETION != 0 {
                    let entry =
                        Entry { op_context: context, flags, length, buffer: std::ptr::null_mut(), data: 0, tag: 0 };
                    queue.push(entry, FI_ADDR_NOTAVAIL);
                }
            }
        }
        self.count(flags & (FI_READ | FI_WRITE), error != 0);
    }

    /// A peer asks for something. Whatever the bytes are, only memory that was registered for it is touched.
    fn serve(&mut self, peer: PeerIndex, request: &Memory, length: usize) -> Result<()> {
        let Some((header, operands)) = request.bytes().get(..length).and_then(Header::read) else { return Ok(()) };
        if header.kind == Kind::Failed {
            return self.failed_there(peer, &header);
        }
        match self.carry_out(peer, &header, operands) {
            Ok(outcome) => outcome,
            Err(error) => self.refuse(peer, &header, error),
        }
    }

    /// The outer error is told to the initiator.
    fn carry_out(&mut self, peer: PeerIndex, header: &Header, operands: &[u8]) -> Result<Result<()>, i32> {
        let length = usize::try_from(header.length).ok().filter(|&length| length <= LONGEST).ok_or(FI_EINVAL)?;
        let needs = match header.kind {
            Kind::Write => FI_REMOTE_WRITE,
            Kind::Read => FI_REMOTE_READ,
            Kind::Atomic if header.flags & FETCH == 0 => FI_REMOTE_WRITE,
            _ => FI_REMOTE_READ,
        };
        let target = self.domain.region(header.key, header.address, length, needs).ok_or(FI_ENOKEY)?;
        match header.kind {
            Kind::Write if header.flags & APART != 0 => {
                let data = (header.flags & WITH_DATA != 0).then_some(header.data);
                Ok(self.land(peer, header.ticket, target, length, data))
            }
            Kind::Write => {
                if operands.len() != length {
                    return Err(FI_EINVAL);
                }
                // SAFETY: a registered region, which the application keeps until it is closed; the request is a copy.
                unsafe { std::ptr::copy_nonoverlapping(operands.as_ptr(), target, length) };
                if header.flags & WITH_DATA != 0 {
                    self.written_with_data(peer, header.data, length);
                }
                self.count(FI_REMOTE_WRITE, false);
                Ok(self.answer(peer, header.ticket, &[]))
            }
            Kind::Read => {
                // SAFETY: as above; the answer only reads.
                let mut memory = unsafe { Memory::flat(target.cast(), length, wish::REMOTE) };
                memory.source = role::OBLIVION;
                self.count(FI_REMOTE_READ, false);
                Ok(self.answer_from(peer, header.ticket, memory))
            }
            Kind::Atomic => {
                let datatype = Datatype::of(i32::from(header.datatype)).ok_or(FI_EOPNOTSUPP)?;
                let operator = Operator::of(i32::from(header.operator)).ok_or(FI_EOPNOTSUPP)?;
                let parts = match (operator, operator.compares()) {
                    (Operator::Read, _) => 0,
                    (_, false) => 1,
                    (_, true) => 2,
                };
                if !operator.serves(datatype) || length > INLINE || operands.len() != parts * length {
                    return Err(FI_EINVAL);
                }
                let (operands, comparands) = if parts == 0 { (operands, operands) } else { operands.split_at(length) };
                // SAFETY: a registered region; nobody else works on it through this domain.
                let target = unsafe { std::slice::from_raw_parts_mut(target, length) };
                let before = if header.flags & FETCH != 0 { target.to_vec() } else { Vec::new() };
                apply(datatype, operator, target, operands, comparands);
                self.count(needs, false);
                Ok(self.answer(peer, header.ticket, &before))
            }
            Kind::Failed => Ok(Ok(())),
        }
    }

    fn answer(&mut self, peer: PeerIndex, ticket: u64, bytes: &[u8]) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let label = Label { space: Space::RemoteData, tag: answered(ticket), data: None };
        if engine.inject(peer, label, bytes)? {
            return Ok(());
        }
        let mut memory = Memory::owned(bytes.to_vec(), wish::REMOTE);
        memory.source = role::OBLIVION;
        engine.send(peer, label, memory, 0).map(drop)
    }

    fn answer_from(&mut self, peer: PeerIndex, ticket: u64, memory: Memory) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let label = Label { space: Space::RemoteData, tag: answered(ticket), data: None };
        engine.send(peer, label, memory, 0).map(drop)
    }

    /// Takes a write's bytes where they belong.
    fn land(&mut self, peer: PeerIndex, ticket: u64, target: *mut u8, length: usize, data: Option<u64>) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        let key = remote.landings.insert(Landing { peer, ticket, data });
        // SAFETY: a registered region, which the application keeps until it is closed.
        let mut memory = unsafe { Memory::flat(target.cast(), length, wish::REMOTE) };
        memory.source = role::LANDING;
        let selector = TagSelector::exactly(given(ticket)).within(Space::RemoteData);
        engine.receive(Source::Peer(peer), selector, memory, key.data().as_ffi()).map(drop)
    }

    fn landed(&mut self, key: LandingKey, status: Status) -> Result<()> {
        let Some(Landing { peer, ticket, data }) = self.remote.as_mut().and_then(|remote| remote.landings.remove(key))
        else {
            return Ok(());
        };
        if status != Status::Done {
            return Ok(());
        }
        if let Some(data) = data {
            self.written_with_data(peer, data, 0);
        }
        self.count(FI_REMOTE_WRITE, false);
        self.answer(peer, ticket, &[])
    }

    fn written_with_data(&mut self, peer: PeerIndex, data: u64, length: usize) {
        let Some(queue) = &self.receives else { return };
        let entry = Entry {
            op_context: std::ptr::null_mut(),
            flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
            length,
            buffer: std::ptr::null_mut(),
            data,
            tag: 0,
        };
        // SAFETY: progress is made with the domain entered.
        unsafe { queue.push(entry, self.address(peer)) };
    }

    /// Tells the initiator that it cannot be done, and lets its bytes go nowhere.
    fn refuse(&mut self, peer: PeerIndex, header: &Header, error: i32) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let oblivion = |bytes: Vec<u8>| {
            let mut memory = Memory::owned(bytes, wish::REMOTE);
            memory.source = role::OBLIVION;
            memory
        };
        if header.flags & APART != 0 {
            let selector = TagSelector::exactly(given(header.ticket)).within(Space::RemoteData);
            engine.receive(Source::Peer(peer), selector, oblivion(Vec::new()), 0)?;
        }
        let label = Label { space: Space::Remote, tag: 0, data: None };
        let told = Header { kind: Kind::Failed, flags: 0, error: error as u32, ..*header }.write();
        engine.send(peer, label, oblivion(told.to_vec()), 0).map(drop)
    }

    /// The target could not do it: there will be no answer.
    fn failed_there(&mut self, peer: PeerIndex, header: &Header) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        let operation = remote.operations.get_mut(ticket_of(header.ticket));
        let Some(operation) = operation.filter(|operation| operation.peer == peer) else { return Ok(()) };
        if operation.error == 0 {
            // An error number that a peer made up is none to hand on.
            operation.error = match header.error as i32 {
                error @ (FI_EINVAL | FI_EOPNOTSUPP | FI_ENOKEY) => error,
                _ => FI_EIO,
            };
        }
        if let Some(answer) = operation.answer.take() {
            engine.cancel(answer)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_as_written() {
        let header = Header {
            kind: Kind::Atomic,
            datatype: 7,
            operator: 12,
            flags: FETCH | WITH_DATA,
            error: 5,
            ticket: u64::MAX >> 1,
            key: 42,
            address: 1 << 50,
            length: 4096,
            data: 99,
        };
        let mut bytes = header.write().to_vec();
        bytes.extend_from_slice(b"operands");
        assert_eq!(Header::read(&bytes), Some((header, &b"operands"[..])));
        assert_eq!(Header::read(&bytes[..HEADER - 1]), None);
        bytes[0] = 9;
        assert_eq!(Header::read(&bytes), None);
    }

    #[test]
    fn what_is_given_and_what_is_answered_never_match() {
        assert_ne!(given(7), answered(7));
        assert_ne!(answered(7), given(8));
    }
}
