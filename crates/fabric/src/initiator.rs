//! Remote memory and atomic operations, as messages that the target's own calls carry out (active messages). This file has the
//! initiator's side, `target` the target's.
//!
//! A request travels in the space [`Space::Remote`], with small operands. Other bytes travel in [`Space::RemoteData`], matched
//! by the initiator's ticket, so that they land in place without a copy: operands from the initiator, and the target's answer
//! (empty for a write). The operation ends at the initiator with the answer, when the target's memory has been written or read.

use endpoint::{Completion, Direction, Label, Source, Space, Status, TagSelector};
use machine::{PeerIndex, Result};
use slotmap::{Key, KeyData};

use crate::abi::Signed;
use crate::abi::completion::{Entry, ErrorEntry};
use crate::abi::constants::*;
use crate::arithmetic::{Datatype, Operator};
use crate::endpoint::State;
use crate::memory::{Memory, own, role, wish};
use crate::object::Context;
use crate::offer::OPERATIONS;
use crate::refuse::signed;
use crate::remote::{LeaseKey, Operation, Ticket};
use crate::wire::{APART, FETCH, HEADER, Header, INLINE, Kind, WITH_DATA, answered, given};

/// Posted receives for requests; more requests wait in the engine.
const BUFFERS: usize = 16;

/// An operation that an initiator asks for.
pub struct Wanted {
    pub key: u64,
    pub address: u64,
    pub length: usize,
    pub action: Action,
    pub data: Option<u64>,
}

#[derive(Clone, Copy)]
pub enum Action {
    Write,
    Read,
    Atomic { datatype: Datatype, operator: Operator, fetch: bool },
}

impl Action {
    /// The flags of the completion.
    pub fn flags(&self) -> u64 {
        match self {
            Action::Write => FI_RMA | FI_WRITE,
            Action::Read => FI_RMA | FI_READ,
            Action::Atomic { fetch: true, .. } => FI_ATOMIC | FI_READ,
            Action::Atomic { fetch: false, .. } => FI_ATOMIC | FI_WRITE,
        }
    }
}

impl State {
    /// Opens the endpoint for remote operations as a target.
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
        engine.receive(Source::Any, TagSelector::any().within(Space::Remote), buffer, own(0)).map(drop)
    }

    /// Begins an operation. `operands` are sent, `result` receives the answer.
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
        let load = remote.load(to);
        if load.begun >= OPERATIONS {
            return signed(FI_EAGAIN);
        }
        load.begun += 1;
        remote.begun.bytes += wanted.length as u64;
        *match wanted.action {
            Action::Write => &mut remote.begun.writes,
            Action::Read => &mut remote.begun.reads,
            Action::Atomic { .. } => &mut remote.begun.atomics,
        } += 1;
        let operation = Operation {
            context,
            peer: to,
            wishes,
            flags: wanted.action.flags(),
            length: wanted.length,
            answer: None,
            answers: result.length() as u64,
            pending: 1,
            error: 0,
            deferred: std::mem::take(&mut self.deferred.posted),
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
        let begun = engine.receive(Source::Peer(to), selector, result, own(ticket)).and_then(|answer| {
            let operation = &mut remote.operations[key];
            operation.answer = Some(answer);
            let label = Label { space: Space::Remote, tag: 0, data: None };
            if !engine.inject(to, label, &request)? {
                operation.pending += 1;
                let mut memory = Memory::owned(request, wish::REMOTE);
                memory.source = role::PART;
                engine.send(to, label, memory, own(ticket))?;
            }
            if apart {
                operation.pending += 1;
                let label = Label { space: Space::RemoteData, tag: given(ticket), data: None };
                let mut memory = operands;
                memory.wishes = wish::REMOTE;
                memory.source = role::PART;
                engine.send(to, label, memory, own(ticket))?;
            }
            engine.flush_first()
        });
        match begun {
            Ok(()) => 0,
            Err(fault) => self.fail(&fault),
        }
    }

    /// Handles the end of one of the provider's own requests.
    #[cold]
    pub fn finish_remote(&mut self, done: Completion<Memory>) {
        let Completion { context, direction, envelope, status, buffer, .. } = done;
        let key = KeyData::from_ffi(own(context));
        let outcome = match buffer.source {
            role::REQUEST => {
                let served = match status {
                    Status::Done => self.serve(envelope.peer, &buffer, envelope.length as usize),
                    // The endpoint goes on for other peers, whatever this one did.
                    Status::Truncated | Status::PeerDead | Status::Withdrawn => Ok(()),
                    Status::Cancelled => return,
                };
                served.and_then(|()| self.await_request(buffer))
            }
            role::ANSWER | role::PART => {
                debug_assert!((direction == Direction::Receive) == (buffer.source == role::ANSWER));
                let got = (direction == Direction::Receive).then_some(envelope.length);
                self.part_ended(Ticket::from(key), status, got);
                Ok(())
            }
            role::WORD => self.handshake_ended(direction, &envelope, status, &buffer),
            role::LEASE => self.lease_ended(LeaseKey::from(key), status, envelope.length),
            role::DATAGRAM => {
                self.waiting[envelope.peer.0 as usize] -= 1;
                Ok(())
            }
            _ => {
                if let Some(remote) = &mut self.remote {
                    remote.load(envelope.peer).served -= 1;
                }
                Ok(())
            }
        };
        if let Err(fault) = outcome {
            self.fail(&fault);
        }
    }

    /// Handles the end of a part of an operation, or its answer of `got` bytes.
    fn part_ended(&mut self, ticket: Ticket, status: Status, got: Option<u64>) {
        let Some(remote) = &mut self.remote else { return };
        let Some(operation) = remote.operations.get_mut(ticket) else { return };
        let error = match status {
            // The target may claim anything: bytes that it did not send are not there.
            Status::Done if got.is_some_and(|got| got != operation.answers) => FI_EIO,
            Status::Done => 0,
            Status::Truncated => FI_ETRUNC,
            Status::Cancelled => FI_ECANCELED,
            Status::PeerDead => FI_ECONNRESET,
            // The region was closed during the read.
            Status::Withdrawn => FI_ENOKEY,
        };
        operation.pending -= 1;
        if operation.error == 0 {
            operation.error = error;
        }
        if operation.pending > 0 {
            return;
        }
        let Some(Operation { context, peer, wishes, flags, length, error, deferred, .. }) =
            remote.operations.remove(ticket)
        else {
            return;
        };
        remote.load(peer).begun -= 1;
        self.end(deferred, |state| {
            if let Some(queue) = &state.sends {
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
            state.count(flags & (FI_READ | FI_WRITE), error != 0);
        });
    }

    /// Handles a failure at the target: there will be no answer.
    pub fn failed_there(&mut self, peer: PeerIndex, header: &Header) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        let operation = remote.operations.get_mut(Ticket::from(KeyData::from_ffi(header.ticket)));
        let Some(operation) = operation.filter(|operation| operation.peer == peer) else { return Ok(()) };
        if operation.error == 0 {
            // An error number that a peer made up is not handed on.
            operation.error = match header.error as i32 {
                error @ (FI_EINVAL | FI_EOPNOTSUPP | FI_ENOKEY | FI_EOVERRUN) => error,
                _ => FI_EIO,
            };
        }
        if let Some(answer) = operation.answer.take() {
            engine.cancel(answer)?;
        }
        Ok(())
    }
}
