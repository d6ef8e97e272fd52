//! From the engine's completions to entries in completion queues.

use endpoint::{Completion, Direction, Endpoint as Engine, Envelope, Source, Status, Take};
use machine::{Fault, FaultKind, PeerIndex, Result};

use crate::abi::completion::{Entry, ErrorEntry};
use crate::abi::constants::*;
use crate::abi::{Address, Signed};
use crate::account::Account;
use crate::completion_queue::{CompletionQueue, Reader};
use crate::counter::{Counter, count};
use crate::endpoint::{NOBODY, State, address_of};
use crate::memory::{Memory, wish};
use crate::object::{Context, Used};
use crate::record::Record;
use crate::refuse::signed;

/// Most completions handled in one go without a reader, so that a counter's read returns.
const UNREAD_AT_ONCE: usize = 256;

/// Flags of an entry by the kind of its request.
#[inline]
fn kind(wishes: u8) -> u64 {
    if wishes & wish::TAGGED != 0 { FI_TAGGED } else { FI_MSG }
}

#[inline]
fn carried(envelope: &Envelope) -> (u64, u64) {
    match envelope.data {
        Some(data) => (FI_REMOTE_CQ_DATA, data),
        None => (0, 0),
    }
}

/// Puts an entry into the array of the present reader of that queue, else into the queue.
#[inline]
fn deliver(queue: Option<&Used<CompletionQueue>>, reader: Option<&mut Reader>, entry: Entry, source: Address) {
    let Some(queue) = queue else { return };
    match reader {
        Some(reader) if reader.is_of(queue.as_ptr()) && !reader.is_full() => reader.put(&entry, || source),
        // SAFETY: progress is made with the domain entered.
        _ => unsafe { queue.push(entry, source) },
    }
}

/// Where short messages go: into the array of the reader of the endpoint's queue of receives, if it is present.
struct Arrivals<'a> {
    reader: Option<&'a mut Reader>,
    counters: &'a Vec<(Used<Counter>, u64)>,
    addresses: &'a Vec<Address>,
    found: usize,
}

impl Take<Memory> for Arrivals<'_> {
    #[inline(always)]
    fn take(&mut self, context: u64, envelope: &Envelope, buffer: &Memory) -> bool {
        let wishes = buffer.wishes;
        let Some(reader) = &mut self.reader else { return false };
        if wishes & (wish::REMOTE | wish::MULTIPLE | wish::DEFERRED) != 0 || reader.is_full() {
            return false;
        }
        self.found += 1;
        if wishes & wish::COMPLETION != 0 {
            let entry = received(context, wishes, envelope, buffer.start());
            reader.put(&entry, || address_of(self.addresses, envelope.peer));
        }
        count(self.counters, FI_RECV, false);
        true
    }
}

impl State {
    /// Makes progress and delivers completions, as far as `reader` has room.
    #[inline(always)]
    pub fn progress(&mut self, reader: Option<&mut Reader>) {
        if let Some(engine) = &mut self.engine
            && engine.can_skip_poll()
        {
            return engine.relax();
        }
        self.make_progress(reader);
    }

    #[inline(never)]
    fn make_progress(&mut self, mut reader: Option<&mut Reader>) {
        if self.engine.is_none() {
            return self.share_out();
        }
        if self.failed {
            if let Some(reader) = reader {
                reader.failed = true;
            }
            return;
        }
        if self.record.as_mut().is_some_and(Record::is_due) {
            self.write_record();
        }
        let found = match self.has_ended() {
            true => Ok(0),
            false => self.turn(reader.as_deref_mut()),
        };
        match found {
            Ok(found) if self.has_ended() => self.finish_ended(found, reader),
            Ok(0) => self.engine.iter_mut().for_each(Engine::relax),
            Ok(_) => self.hand_over_found(),
            Err(fault) => drop(self.fail(&fault)),
        }
    }

    #[inline(always)]
    fn has_ended(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::has_ended)
    }

    #[cold]
    #[inline(never)]
    fn write_record(&mut self) {
        if let (Some(record), Some(engine)) = (&mut self.record, &mut self.engine)
            && !record.write(
                engine,
                self.domain.account.as_ref().map(Account::sums),
                self.remote.as_ref().map_or_else(Default::default, |remote| remote.begun),
            )
        {
            self.record = None;
        }
    }

    /// Finishes requests that have ended, at least one: a reader without room still drives peers' requests. `found` have been
    /// before.
    // Out of line: most short messages pass by it.
    #[inline(never)]
    fn finish_ended(&mut self, mut found: usize, mut reader: Option<&mut Reader>) {
        while (found == 0 || reader.as_ref().map_or(found < UNREAD_AT_ONCE, |reader| !reader.is_full()))
            && let Some(done) = self.engine.as_mut().and_then(Engine::take_ended)
        {
            self.finish(done, reader.as_deref_mut());
            found += 1;
        }
        self.hand_over_found();
    }

    /// Ends a poll that has found something.
    #[inline]
    fn hand_over_found(&mut self) {
        self.engine.iter_mut().for_each(Engine::relieved);
        self.hand_over();
    }

    /// Polls the engine; returns how many short messages went into the reader's array.
    #[inline(always)]
    fn turn(&mut self, reader: Option<&mut Reader>) -> Result<usize> {
        let State { engine: Some(engine), receives, counters, addresses, .. } = self else { return Ok(0) };
        let reader = reader.filter(|reader| receives.as_ref().is_some_and(|queue| reader.is_of(queue.as_ptr())));
        let mut arrivals = Arrivals { reader, counters, addresses, found: 0 };
        engine.turn_with(&mut arrivals)?;
        Ok(arrivals.found)
    }

    /// Flushes, since a caller that has its completion may not come back, while a peer may wait for an acknowledgement.
    #[inline]
    pub fn hand_over(&mut self) {
        if let Some(engine) = &mut self.engine
            && let Err(fault) = engine.flush()
        {
            self.fail(&fault);
        }
    }

    #[inline]
    pub fn finish(&mut self, done: Completion<Memory>, reader: Option<&mut Reader>) {
        if done.buffer.wishes & (wish::REMOTE | wish::DEFERRED) != 0 {
            return if done.buffer.wishes & wish::REMOTE != 0 {
                self.finish_remote(done)
            } else {
                self.finish_deferred(done)
            };
        }
        let Completion { context, direction, envelope, status, buffer, .. } = done;
        if status != Status::Done {
            if buffer.wishes & wish::MULTIPLE != 0 {
                self.goes_on(context, &buffer, None);
            }
            return self.finish_badly(context as Context, direction, envelope, status, buffer);
        }
        let wishes = buffer.wishes;
        match direction {
            Direction::Receive => {
                let mut entry = received(context, wishes, &envelope, buffer.start());
                let source = self.address(envelope.peer);
                if wishes & wish::MULTIPLE != 0 && !self.goes_on(context, &buffer, Some(envelope.length as usize)) {
                    entry.flags |= FI_MULTI_RECV;
                }
                if wishes & wish::COMPLETION != 0 {
                    deliver(self.receives.as_ref(), reader, entry, source);
                }
                self.count(FI_RECV, false);
            }
            Direction::Send => {
                if wishes & wish::COMPLETION != 0 {
                    let entry = sent(context as Context, wishes, envelope.length as usize, envelope.tag);
                    deliver(self.sends.as_ref(), reader, entry, FI_ADDR_NOTAVAIL);
                }
                self.count(FI_SEND, false);
            }
        }
    }

    /// Goes on with a buffer for several messages, of which the last took `got` bytes; false if that ends it.
    fn goes_on(&mut self, context: u64, buffer: &Memory, got: Option<usize>) -> bool {
        let source = match buffer.source {
            NOBODY => Source::Any,
            peer => Source::Peer(PeerIndex(peer)),
        };
        let goes_on = match got {
            Some(got) => self.receive_more(source, context, buffer, got),
            None => self.close_buffer(source).map(|()| false),
        };
        goes_on.unwrap_or_else(|fault| {
            self.fail(&fault);
            false
        })
    }

    #[cold]
    fn finish_badly(
        &mut self,
        context: Context,
        direction: Direction,
        envelope: Envelope,
        status: Status,
        buffer: Memory,
    ) {
        if status == Status::PeerDead
            && let Some(engine) = &mut self.engine
        {
            while let Some((_, fault)) = engine.next_lost() {
                eprintln!("plimsoll: {fault}");
            }
        }
        let wishes = buffer.wishes;
        let (error, lost) = match status {
            Status::Truncated => (FI_ETRUNC, (envelope.length as usize).saturating_sub(buffer.length())),
            Status::Cancelled => (FI_ECANCELED, 0),
            Status::PeerDead | Status::Withdrawn | Status::Done => (FI_ECONNRESET, 0),
        };
        let (data_flag, data) = carried(&envelope);
        let (way, queue) = match direction {
            Direction::Send => (FI_SEND, &self.sends),
            Direction::Receive => (FI_RECV, &self.receives),
        };
        let ended = if wishes & wish::MULTIPLE != 0 { FI_MULTI_RECV } else { 0 };
        let entry = ErrorEntry {
            length: if status == Status::Truncated { buffer.length() } else { 0 },
            buffer: buffer.start().cast(),
            data,
            tag: envelope.tag,
            lost,
            ..ErrorEntry::new(context, way | kind(wishes) | data_flag | ended, error)
        };
        if wishes & wish::NAMELESS != 0 {
            // No context to report: applications would take any for one of theirs. The next operation fails instead.
            if !self.lost.contains(&envelope.peer) {
                eprintln!(
                    "plimsoll: peer {}: a message could not be delivered, its process has ended",
                    envelope.peer.0
                );
                self.lost.push(envelope.peer);
            }
        } else if let Some(queue) = queue {
            // SAFETY: progress is made with the domain entered.
            unsafe { queue.push_error(entry) };
        }
        self.count(way, true);
    }

    /// Reports a failed call of the engine.
    #[cold]
    pub fn fail(&mut self, fault: &Fault) -> Signed {
        if !std::mem::replace(&mut self.failed, true) {
            eprintln!("plimsoll: {fault}");
        }
        signed(FI_EIO)
    }

    /// Reports a failed call that can be repeated: an engine's process that does not answer may do so later.
    #[cold]
    pub fn fail_for_now(&mut self, fault: &Fault) -> Signed {
        if fault.kind() != FaultKind::Busy {
            return self.fail(fault);
        }
        eprintln!("plimsoll: {fault}");
        signed(FI_EBUSY)
    }

    #[inline]
    pub fn count(&self, what: u64, failed: bool) {
        count(&self.counters, what, failed);
    }
}

/// The entry of a receive that has its message.
#[inline(always)]
fn received(context: u64, wishes: u8, envelope: &Envelope, start: *mut u8) -> Entry {
    let (data_flag, data) = carried(envelope);
    Entry {
        op_context: context as Context,
        flags: FI_RECV | kind(wishes) | data_flag,
        length: envelope.length as usize,
        buffer: start.cast(),
        data,
        tag: envelope.tag,
    }
}

/// The entry of a send that has ended.
#[inline(always)]
pub fn sent(context: Context, wishes: u8, length: usize, tag: u64) -> Entry {
    Entry { op_context: context, flags: FI_SEND | kind(wishes), length, buffer: std::ptr::null_mut(), data: 0, tag }
}
