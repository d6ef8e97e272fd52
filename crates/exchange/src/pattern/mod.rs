//! Patterns: how messages follow one another between the two ends.
//!
//! One file a pattern, each with an `initiate` and a `respond`; both name the source of their shape.

use std::time::Instant;

use machine::{Bytes, Result};
use rounds::point::Pattern;

use crate::buffer::{Pool, Reuse};
use crate::endpoint::{Endpoint, Job, Outcome, Role, Watch};
use crate::stack::Stack;

mod bidirectional;
mod ping_pong;
mod stream;
mod window;

pub use window::WINDOW;

/// Bytes of the message that acknowledges a stream or a window.
pub const ACKNOWLEDGEMENT: usize = 4;

/// Called once, when every receive that the initiator relies on is posted.
type Ready<'a> = &'a mut dyn FnMut() -> Result<()>;

/// The buffers of one end, kept from block to block.
#[derive(Debug)]
pub struct Pools {
    warm: Pair,
    /// [`COLD`] bytes; kept beside the warm ones, since paging them in takes longer than a block.
    cold: Pair,
}

#[derive(Debug)]
struct Pair {
    outgoing: Pool,
    incoming: Pool,
}

/// Bytes over which buffers of [`Pattern::StreamNoCache`] rotate, evicted from all caches before a block: about what a block
/// sends at most.
const COLD: usize = 64 << 20;

impl Default for Pools {
    fn default() -> Self {
        let empty = || Pool::new(0, 0, Reuse::Warm);
        let pair = || Pair { outgoing: empty(), incoming: empty() };
        Pools { warm: pair(), cold: pair() }
    }
}

impl Pools {
    /// Memory of all buffers after [`Pools::provide`] with the same arguments.
    pub fn need(&self, pattern: Pattern, size: usize, role: Role) -> Bytes {
        let renewed = if pattern == Pattern::StreamNoCache { &self.cold } else { &self.warm };
        let held = [&self.warm, &self.cold].into_iter().flat_map(|pair| [&pair.outgoing, &pair.incoming]);
        let [outgoing, incoming] = shapes(pattern, size, role);
        let after = [(&renewed.outgoing, outgoing), (&renewed.incoming, incoming)].map(|(pool, shape)| {
            let (count, capacity, reuse) = shape;
            let then = if pool.suits(count, capacity, reuse) { pool.bytes() } else { count as u64 * capacity as u64 };
            (pool.bytes(), then)
        });
        let kept = held.map(Pool::bytes).sum::<u64>() - after.iter().map(|(now, _)| now).sum::<u64>();
        Bytes(kept + after.iter().map(|(_, then)| then).sum::<u64>())
    }

    /// Makes room for messages of up to `size` bytes of `pattern`, outside the measured time.
    pub fn provide(&mut self, pattern: Pattern, size: usize, role: Role) {
        let [outgoing, incoming] = shapes(pattern, size, role);
        let Pair { outgoing: sent, incoming: received } = self.of(pattern);
        for (pool, (count, capacity, reuse)) in [(sent, outgoing), (received, incoming)] {
            if !pool.suits(count, capacity, reuse) {
                *pool = Pool::new(0, 0, reuse); // frees the old one before the new one is made
                *pool = Pool::new(count, capacity, reuse);
            }
            if reuse == Reuse::Rotate {
                pool.evict();
            }
        }
    }

    fn of(&mut self, pattern: Pattern) -> &mut Pair {
        if pattern == Pattern::StreamNoCache { &mut self.cold } else { &mut self.warm }
    }
}

/// Count, capacity in bytes and order of use of one direction's buffers.
type Shape = (usize, usize, Reuse);

const ACKNOWLEDGES: Shape = (2, 64, Reuse::Warm);

/// Shapes of the pools for sends and for receives.
fn shapes(pattern: Pattern, size: usize, role: Role) -> [Shape; 2] {
    let (forward, back) = ways(pattern, size);
    if role == Role::Initiator { [forward, back] } else { [back, forward] }
}

/// Shapes for the initiator's messages, and for those that come back.
fn ways(pattern: Pattern, size: usize) -> (Shape, Shape) {
    // Whole cache lines, so that two messages never share one.
    let capacity = size.max(ACKNOWLEDGEMENT).next_multiple_of(64);
    match pattern {
        Pattern::PingPong | Pattern::Bidirectional => ((3, capacity, Reuse::Warm), (3, capacity, Reuse::Warm)),
        Pattern::Stream => ((2, capacity, Reuse::Warm), ACKNOWLEDGES),
        Pattern::StreamNoCache => {
            let count = COLD.div_ceil(capacity).max(2);
            ((count, capacity, Reuse::Rotate), ACKNOWLEDGES)
        }
        Pattern::Window | Pattern::MessageRate => ((WINDOW as usize, capacity, Reuse::Warm), ACKNOWLEDGES),
    }
}

/// Runs one job at one end of `stack`.
#[allow(clippy::too_many_arguments)]
pub fn perform<S: Stack>(
    stack: &mut S,
    job: &Job,
    role: Role,
    number: u64,
    pools: &mut Pools,
    polite: bool,
    watch: Watch<'_>,
    ready: Ready<'_>,
) -> Result<Outcome> {
    stack.begin(number)?;
    let Pair { outgoing, incoming } = pools.of(job.pattern);
    let mut end = Endpoint::new(stack, (outgoing, incoming), watch, (job, role), polite);
    let started = Instant::now();
    let run = match (job.pattern, role) {
        (Pattern::PingPong, Role::Initiator) => ping_pong::initiate(&mut end),
        (Pattern::PingPong, Role::Responder) => ping_pong::respond(&mut end, ready),
        (Pattern::Stream | Pattern::StreamNoCache, Role::Initiator) => stream::initiate(&mut end),
        (Pattern::Stream | Pattern::StreamNoCache, Role::Responder) => stream::respond(&mut end, ready),
        (Pattern::Bidirectional, Role::Initiator) => bidirectional::run(&mut end, &mut || Ok(())),
        (Pattern::Bidirectional, Role::Responder) => bidirectional::run(&mut end, ready),
        (Pattern::Window | Pattern::MessageRate, Role::Initiator) => window::initiate(&mut end),
        (Pattern::Window | Pattern::MessageRate, Role::Responder) => window::respond(&mut end, ready),
    };
    run?;
    end.finish(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_buffers_will_take_is_what_they_take() {
        let mut pools = Pools::default();
        let held = |pools: &Pools| -> u64 {
            let pairs = [&pools.warm, &pools.cold];
            pairs.iter().map(|pair| pair.outgoing.bytes() + pair.incoming.bytes()).sum()
        };
        for role in [Role::Initiator, Role::Responder] {
            for pattern in [Pattern::Window, Pattern::StreamNoCache, Pattern::PingPong, Pattern::Bidirectional] {
                for size in [1, 100, 70_000, 64] {
                    let need = pools.need(pattern, size, role);
                    pools.provide(pattern, size, role);
                    assert_eq!(need.0, held(&pools), "{pattern} of {size} bytes as {role:?}");
                }
            }
        }
    }
}
