//! Remote memory and atomic operations at their target: peers' requests, and the parts of regions that the engine reads and
//! writes for them.

use endpoint::{Label, Source, Space, Status, TagSelector};
use machine::{PeerIndex, Result};
use slotmap::Key;

use crate::abi::completion::Entry;
use crate::abi::constants::*;
use crate::arithmetic::{Datatype, Operator, apply};
use crate::endpoint::State;
use crate::memory::{Memory, own, role, wish};
use crate::offer::{LONGEST, OPERATIONS};
use crate::remote::{Landing, Lease, LeaseKey};
use crate::wire::{APART, FETCH, Header, INLINE, Kind, WITH_DATA, answered, given};

/// Most engine requests in progress for one peer's operations; beyond it the peer is not served. An operation needs fewer than
/// four, and no initiator has more than [`OPERATIONS`].
pub const MOST_SERVED: usize = 4 * OPERATIONS;

impl State {
    /// Serves a peer's request. Whatever the bytes are, only memory registered for such access is touched.
    pub fn serve(&mut self, peer: PeerIndex, request: &Memory, length: usize) -> Result<()> {
        let Some((header, operands)) = request.bytes().get(..length).and_then(Header::read) else { return Ok(()) };
        if header.kind == Kind::Failed {
            return self.failed_there(peer, &header);
        }
        if !self.serves(peer) {
            return Ok(());
        }
        if self.remote.as_mut().is_none_or(|remote| remote.load(peer).served >= MOST_SERVED) {
            return Ok(());
        }
        match self.carry_out(peer, &header, operands) {
            Ok(outcome) => outcome,
            Err(error) => self.refuse(peer, &header, error),
        }
    }

    /// Carries out a request; the outer error is told to the initiator.
    fn carry_out(&mut self, peer: PeerIndex, header: &Header, operands: &[u8]) -> Result<Result<()>, i32> {
        let length = usize::try_from(header.length).ok().filter(|&length| length <= LONGEST).ok_or(FI_EINVAL)?;
        let needs = header.needs().ok_or(FI_EINVAL)?;
        let capability = needs | if header.kind == Kind::Atomic { FI_ATOMIC } else { FI_RMA };
        if self.caps & capability != capability {
            return Err(FI_EOPNOTSUPP);
        }
        let target = self.domain.region(header.key, header.address, length, needs).ok_or(FI_ENOKEY)?;
        let tells = header.kind == Kind::Write && header.flags & WITH_DATA != 0;
        // SAFETY: progress is made with the domain entered.
        if tells && self.receives.as_ref().is_some_and(|queue| unsafe { !queue.has_room() }) {
            return Err(FI_EOVERRUN);
        }
        match header.kind {
            Kind::Write if header.flags & APART != 0 => Ok(self.lend(peer, header, target, length)),
            Kind::Write => {
                if operands.len() != length {
                    return Err(FI_EINVAL);
                }
                // SAFETY: inside a region, which is registered for this until it is closed. The request is memory of the
                // provider's own; an application that registered that too gets what it asked for, hence no `nonoverlapping`.
                unsafe { std::ptr::copy(operands.as_ptr(), target, length) };
                if header.flags & WITH_DATA != 0 {
                    self.written_with_data(peer, header.data, length);
                }
                self.accessed(Some(header.key), FI_REMOTE_WRITE);
                Ok(self.answer(peer, header.ticket, &[]))
            }
            Kind::Read => {
                if length > INLINE {
                    return Ok(self.lend(peer, header, target, length));
                }
                self.accessed(Some(header.key), FI_REMOTE_READ);
                // SAFETY: inside a region, as above; the slice is gone before anybody can close it.
                let bytes = unsafe { std::slice::from_raw_parts(target, length) };
                Ok(self.answer(peer, header.ticket, bytes))
            }
            Kind::Atomic => {
                let datatype = Datatype::of(i32::from(header.datatype)).ok_or(FI_EOPNOTSUPP)?;
                let operator = Operator::of(i32::from(header.operator)).ok_or(FI_EOPNOTSUPP)?;
                let parts = match (operator, operator.compares()) {
                    (Operator::Read, _) => 0,
                    (_, false) => 1,
                    (_, true) => 2,
                };
                if !operator.serves(datatype)
                    || length > INLINE
                    || !length.is_multiple_of(datatype.size())
                    || operands.len() != parts * length
                {
                    return Err(FI_EINVAL);
                }
                let fetches = header.flags & FETCH != 0;
                let before = if fetches {
                    // SAFETY: inside a region, as above.
                    unsafe { std::slice::from_raw_parts(target, length) }.to_vec()
                } else {
                    Vec::new()
                };
                // Memory that is only read may be read-only.
                if operator != Operator::Read {
                    let (operands, comparands) =
                        if parts == 2 { operands.split_at(length) } else { (operands, &[][..]) };
                    // SAFETY: inside a region that is registered for writing; all operations through this domain are
                    // carried out under its lock, and nobody else may expect to be atomic with them.
                    let target = unsafe { std::slice::from_raw_parts_mut(target, length) };
                    apply(datatype, operator, target, operands, comparands);
                }
                self.accessed(Some(header.key), if fetches { FI_REMOTE_READ } else { FI_REMOTE_WRITE });
                Ok(self.answer(peer, header.ticket, &before))
            }
            Kind::Failed => Ok(Ok(())),
        }
    }

    /// Counts a peer's access to a part of a region.
    fn accessed(&self, region: Option<u64>, how: u64) {
        self.count(how, false);
        if let Some(region) = region {
            self.domain.accessed(region, how);
        }
    }

    fn answer(&mut self, peer: PeerIndex, ticket: u64, bytes: &[u8]) -> Result<()> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let label = Label { space: Space::RemoteData, tag: answered(ticket), data: None };
        if engine.inject(peer, label, bytes)? {
            return Ok(());
        }
        self.say(peer, label, bytes.to_vec())
    }

    /// Sends bytes whose arrival nobody awaits.
    fn say(&mut self, peer: PeerIndex, label: Label, bytes: Vec<u8>) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        remote.load(peer).served += 1;
        let mut memory = Memory::owned(bytes, wish::REMOTE);
        memory.source = role::IGNORED;
        engine.send(peer, label, memory, own(0)).map(drop)
    }

    /// Has the engine answer a read from a region, or receive a write's bytes into it.
    fn lend(&mut self, peer: PeerIndex, header: &Header, target: *mut u8, length: usize) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        let ticket = header.ticket;
        let data = (header.flags & WITH_DATA != 0).then_some(header.data);
        let landing = (header.kind == Kind::Write).then_some(Landing { length, data });
        let region = Some(header.key);
        let key = remote.leases.insert(Lease { peer, ticket, region, request: None, landing, revoked: false });
        remote.load(peer).served += 1;
        // SAFETY: inside a region, which is not closed before `revoke` has taken this back.
        let mut memory = unsafe { Memory::flat(target.cast(), length, wish::REMOTE) };
        memory.source = role::LEASE;
        let context = own(key.data().as_ffi());
        let request = if landing.is_some() {
            let selector = TagSelector::exactly(given(ticket)).within(Space::RemoteData);
            engine.receive(Source::Peer(peer), selector, memory, context)?
        } else {
            let label = Label { space: Space::RemoteData, tag: answered(ticket), data: None };
            engine.send(peer, label, memory, context)?
        };
        remote.leases[key].request = Some(request);
        Ok(())
    }

    /// Handles the end of the engine's use of a part of a region; a message of `got` bytes came or went.
    pub fn lease_ended(&mut self, key: LeaseKey, status: Status, got: u64) -> Result<()> {
        let Some(remote) = &mut self.remote else { return Ok(()) };
        let Some(Lease { peer, ticket, region, landing, revoked, .. }) = remote.leases.remove(key) else {
            return Ok(());
        };
        remote.load(peer).served -= 1;
        if revoked {
            return Ok(());
        }
        let Some(Landing { length, data }) = landing else {
            if status == Status::Done {
                self.accessed(region, FI_REMOTE_READ);
            }
            return Ok(());
        };
        match status {
            Status::Done if got == length as u64 => {
                if let Some(data) = data {
                    self.written_with_data(peer, data, length);
                }
                self.accessed(region, FI_REMOTE_WRITE);
                self.answer(peer, ticket, &[])
            }
            // The length differs from that announced.
            Status::Done | Status::Truncated => self.tell_failure(peer, ticket, FI_EINVAL),
            Status::Cancelled | Status::PeerDead | Status::Withdrawn => Ok(()),
        }
    }

    /// Ends the use of a region that is about to be closed: after a return without a fault nothing touches its memory.
    /// Initiators with operations in progress there are told of their failure.
    pub fn revoke(&mut self, region: u64) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        let (mut affected, mut outcome) = (Vec::new(), Ok(()));
        for lease in remote.leases.values_mut().filter(|lease| lease.region == Some(region)) {
            let asked = lease.request.map(|request| engine.take_back(request, Memory::stand_in)).transpose();
            // A request that has ended unnoticed counts as in progress.
            let in_progress = match asked {
                Ok(in_progress) => in_progress.unwrap_or(false),
                Err(fault) => {
                    outcome = Err(fault);
                    break;
                }
            };
            lease.region = None;
            if in_progress {
                lease.revoked = true;
                affected.push((lease.peer, lease.ticket));
            }
        }
        for (peer, ticket) in affected {
            self.tell_failure(peer, ticket, FI_ENOKEY)?;
        }
        self.hand_over();
        outcome
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

    /// Tells the initiator of the failure, and discards its bytes.
    fn refuse(&mut self, peer: PeerIndex, header: &Header, error: i32) -> Result<()> {
        let (Some(remote), Some(engine)) = (&mut self.remote, &mut self.engine) else { return Ok(()) };
        if header.flags & APART != 0 {
            remote.load(peer).served += 1;
            let selector = TagSelector::exactly(given(header.ticket)).within(Space::RemoteData);
            let mut nothing = Memory::owned(Vec::new(), wish::REMOTE);
            nothing.source = role::IGNORED;
            engine.receive(Source::Peer(peer), selector, nothing, own(0))?;
        }
        self.tell_failure(peer, header.ticket, error)
    }

    fn tell_failure(&mut self, peer: PeerIndex, ticket: u64, error: i32) -> Result<()> {
        let (kind, error) = (Kind::Failed, error as u32);
        let told =
            Header { kind, datatype: 0, operator: 0, flags: 0, error, ticket, key: 0, address: 0, length: 0, data: 0 };
        self.say(peer, Label { space: Space::Remote, tag: 0, data: None }, told.write().to_vec())
    }
}
