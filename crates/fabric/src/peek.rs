//! Peeks at arrived messages, claims, and discards (FI_PEEK, FI_CLAIM, FI_DISCARD).

use endpoint::Envelope;
use machine::Result;

use crate::abi::Signed;
use crate::abi::completion::{Entry, ErrorEntry};
use crate::abi::constants::*;
use crate::abi::transfer::TaggedMessage;
use crate::endpoint::State;
use crate::memory::{pieces, wish};
use crate::object::Context;
use crate::receive::tagged;
use crate::refuse::signed;

impl State {
    /// A receive with one of the three flags.
    ///
    /// # Safety
    /// The message's pieces are as for a receive.
    pub unsafe fn look(&mut self, message: &TaggedMessage, flags: u64) -> Signed {
        let looked = match (flags & FI_PEEK != 0, flags & FI_CLAIM != 0, flags & FI_DISCARD != 0) {
            (true, claim, discard) => self.peek(message, claim, discard),
            // SAFETY: the caller's promise.
            (false, true, false) => unsafe { self.retrieve(message, flags) },
            (false, true, true) => self.discard(message.context),
            // There is no message to discard.
            (false, false, _) => return signed(FI_EBADFLAGS),
        };
        match looked {
            Ok(outcome) => outcome,
            Err(fault) => self.fail(&fault),
        }
    }

    fn peek(&mut self, message: &TaggedMessage, claim: bool, discard: bool) -> Result<Signed> {
        let Some(source) = self.source(message.addr) else { return Ok(self.nobody()) };
        let selector = tagged(message.tag, message.ignore);
        let Some(engine) = &mut self.engine else { return Ok(signed(FI_EOPBADSTATE)) };
        let found = if claim || discard {
            match engine.claim(source, selector)? {
                Some((envelope, claimed)) if discard => {
                    engine.discard(claimed)?;
                    Some(envelope)
                }
                Some((envelope, claimed)) => {
                    self.claims.push((message.context, claimed, envelope));
                    Some(envelope)
                }
                None => None,
            }
        } else {
            engine.probe(source, selector)?
        };
        match found {
            Some(envelope) => self.found(message.context, &envelope),
            None => self.not_found(message.context, message.tag),
        }
        Ok(0)
    }

    /// Receives a message claimed before with the same context.
    ///
    /// # Safety
    /// As for a receive.
    unsafe fn retrieve(&mut self, message: &TaggedMessage, flags: u64) -> Result<Signed> {
        // SAFETY: the caller's promise.
        let memory = match unsafe { pieces(message.iov, message.iov_count) } {
            // SAFETY: as above.
            Some(pieces) => match unsafe { self.landing(pieces, wish::TAGGED, flags | self.always_received) } {
                Ok(memory) => memory,
                Err(error) => return Ok(error),
            },
            None => return Ok(signed(FI_EINVAL)),
        };
        let Some(at) = self.claims.iter().position(|(context, ..)| *context == message.context) else {
            return Ok(signed(FI_EINVAL));
        };
        let (context, claim, _) = self.claims.swap_remove(at);
        let Some(engine) = &mut self.engine else { return Ok(signed(FI_EOPBADSTATE)) };
        engine.receive_claimed(claim, memory, context as u64)?;
        Ok(0)
    }

    fn discard(&mut self, context: Context) -> Result<Signed> {
        let Some(at) = self.claims.iter().position(|(claimed, ..)| *claimed == context) else {
            return Ok(signed(FI_EINVAL));
        };
        let (context, claim, envelope) = self.claims.swap_remove(at);
        let Some(engine) = &mut self.engine else { return Ok(signed(FI_EOPBADSTATE)) };
        engine.discard(claim)?;
        self.found(context, &envelope);
        Ok(0)
    }

    fn found(&mut self, context: Context, envelope: &Envelope) {
        let Some(queue) = &self.receives else { return };
        let data = if envelope.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let entry = Entry {
            op_context: context,
            flags: FI_RECV | FI_TAGGED | data,
            length: envelope.length as usize,
            buffer: std::ptr::null_mut(),
            data: envelope.data.unwrap_or_default(),
            tag: envelope.tag,
        };
        // SAFETY: the domain is entered.
        unsafe { queue.push(entry, self.address(envelope.peer)) };
    }

    fn not_found(&mut self, context: Context, tag: u64) {
        let Some(queue) = &self.receives else { return };
        let entry = ErrorEntry { tag, ..ErrorEntry::new(context, FI_RECV | FI_TAGGED, FI_ENOMSG) };
        // SAFETY: as above.
        unsafe { queue.push_error(entry) };
    }
}
