//! Order of receives round buffers for several messages (FI_MULTI_RECV).
//!
//! A buffer takes messages until it is full, and only then receives that were posted later take theirs. The engine has one
//! message's receive at a time: its next one is posted once that has ended. Later receives of the same messages wait here
//! meanwhile, as messages without a receive do in the engine.

use std::collections::VecDeque;

use endpoint::{Source, Space, TagSelector};
use machine::Result;

use crate::abi::completion::ErrorEntry;
use crate::abi::constants::*;
use crate::endpoint::State;
use crate::memory::{Memory, wish};
use crate::object::Context;

/// Alignment of the next message in a buffer for several: its header is then aligned whatever its type.
const ALIGNMENT: usize = 16;

/// A receive that the engine does not have yet.
struct Waiting {
    source: Source,
    memory: Memory,
    context: u64,
}

/// Receives of untagged messages at and behind buffers for several messages.
#[derive(Default)]
pub struct ReceiveOrder {
    /// Sources of the buffers for several messages of which the engine has a receive.
    open: Vec<Source>,
    /// Receives that wait for such buffers to fill, as posted.
    waiting: VecDeque<Waiting>,
}

/// Whether there are messages that receives of both sources take.
fn meet(one: Source, other: Source) -> bool {
    one == other || one == Source::Any || other == Source::Any
}

fn untagged() -> TagSelector {
    TagSelector::any().within(Space::Message)
}

impl State {
    /// Posts a receive, behind all that were posted earlier.
    #[inline(always)]
    pub fn post(&mut self, source: Source, selector: TagSelector, memory: Memory, context: u64) -> Result<()> {
        if (memory.wishes & wish::MULTIPLE != 0 || !self.order.open.is_empty()) && selector.space() == Space::Message {
            return self.post_in_order(Waiting { source, memory, context });
        }
        match &mut self.engine {
            Some(engine) => engine.receive(source, selector, memory, context).map(drop),
            None => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn post_in_order(&mut self, receive: Waiting) -> Result<()> {
        self.order.waiting.push_back(receive);
        // Nothing that waited before can go now.
        let last = self.order.waiting.len() - 1;
        let earlier = self.order.waiting.iter().take(last).map(|earlier| earlier.source);
        let source = self.order.waiting[last].source;
        match self.order.open.iter().copied().chain(earlier).any(|earlier| meet(earlier, source)) {
            true => Ok(()),
            false => self.post_waiting(last),
        }
    }

    /// Gives the engine the waiting receive at that place.
    fn post_waiting(&mut self, at: usize) -> Result<()> {
        let (Some(engine), Some(Waiting { source, memory, context })) =
            (&mut self.engine, self.order.waiting.remove(at))
        else {
            return Ok(());
        };
        if memory.wishes & wish::MULTIPLE != 0 {
            self.order.open.push(source);
        }
        engine.receive(source, untagged(), memory, context).map(drop)
    }

    /// Posts the rest of a buffer for several messages in its place; false if that is too small, and the buffer ends.
    pub fn receive_more(&mut self, source: Source, context: u64, buffer: &Memory, got: usize) -> Result<bool> {
        let start = buffer.start();
        // The address, not the offset, is aligned.
        let next = got + (start as usize + got).next_multiple_of(ALIGNMENT) - (start as usize + got);
        let left = buffer.length().saturating_sub(next);
        if left < self.min_multi_recv.max(1) {
            self.close_buffer(source)?;
            return Ok(false);
        }
        let Some(engine) = &mut self.engine else { return Ok(false) };
        // SAFETY: a part of what the application has given up, and only this part is left in use.
        let mut rest = unsafe { Memory::flat(start.add(next).cast(), left, buffer.wishes) };
        rest.source = buffer.source;
        engine.receive(source, untagged(), rest, context).map(|_| true)
    }

    /// Posts what waited for a buffer for several messages that takes no more.
    pub fn close_buffer(&mut self, source: Source) -> Result<()> {
        if let Some(at) = self.order.open.iter().position(|open| *open == source) {
            self.order.open.swap_remove(at);
        }
        self.post_what_may_go()
    }

    fn post_what_may_go(&mut self) -> Result<()> {
        let mut earlier = Vec::new();
        let mut at = 0;
        while let Some(Waiting { source, .. }) = self.order.waiting.get(at) {
            let source = *source;
            if !self.order.open.iter().chain(&earlier).any(|earlier| meet(*earlier, source)) {
                self.post_waiting(at)?;
                continue;
            }
            if source == Source::Any {
                break;
            }
            if !earlier.contains(&source) {
                earlier.push(source);
            }
            at += 1;
        }
        Ok(())
    }

    /// Cancels a receive that waits here; false if none has that context.
    pub fn cancel_waiting(&mut self, context: Context) -> Result<bool> {
        let waits = |receive: &Waiting| receive.context == context as u64;
        let Some(at) = self.order.waiting.iter().rposition(waits) else { return Ok(false) };
        if let Some(Waiting { memory, .. }) = self.order.waiting.remove(at) {
            self.cancelled(&memory, context);
        }
        self.post_what_may_go().map(|()| true)
    }

    /// Reports a receive as cancelled that the engine never had.
    pub fn cancelled(&mut self, memory: &Memory, context: Context) {
        if let Some(queue) = &self.receives {
            let kind = if memory.wishes & wish::TAGGED != 0 { FI_TAGGED } else { FI_MSG };
            let ended = if memory.wishes & wish::MULTIPLE != 0 { FI_MULTI_RECV } else { 0 };
            // SAFETY: the domain is entered.
            unsafe { queue.push_error(ErrorEntry::new(context, FI_RECV | kind | ended, FI_ECANCELED)) };
        }
        self.end(memory.ticket(), |state| state.count(FI_RECV, true));
    }
}
