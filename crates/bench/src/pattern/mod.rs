//! Patterns: how messages follow one another between the two ends.
//!
//! One file a pattern, each with an `initiate` and a `respond`; both name the source of their shape.

use std::time::Instant;

use machine::{Bytes, Result};
use study::point::Pattern;

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

/// Called once, when every receive that the initiator may count on is posted.
type Ready<'a> = &'a mut dyn FnMut() -> Result<()>;

/// The buffers of one end, kept from block to block.
#[derive(Debug)]
pub struct Pools {
    outgoing: Pool,
    incoming: Pool,
    last_level_cache: usize,
}

impl Pools {
    /// `last_level_cache` in bytes: buffers of [`Pattern::StreamNoCache`] rotate over twice as much.
    pub fn new(last_level_cache: usize) -> Self {
        let empty = || Pool::new(0, 0, Reuse::Warm);
        Pools { outgoing: empty(), incoming: empty(), last_level_cache }
    }

    /// Makes room for messages of up to `size` bytes of `pattern`, outside the measured time.
    pub fn provide(&mut self, pattern: Pattern, size: usize, role: Role) {
        let (forward, back) = shapes(pattern, size, self.last_level_cache);
        let (outgoing, incoming) = if role == Role::Initiator { (forward, back) } else { (back, forward) };
        for (pool, (count, capacity, reuse)) in [(&mut self.outgoing, outgoing), (&mut self.incoming, incoming)] {
            if !pool.suits(count, capacity, reuse) {
                *pool = Pool::new(0, 0, reuse); // frees the old one before the new one is made
                *pool = Pool::new(count, capacity, reuse);
            }
        }
    }
}

/// Count, capacity in bytes and use of one direction's buffers.
type Shape = (usize, usize, Reuse);

const ACKNOWLEDGES: Shape = (2, 64, Reuse::Warm);

/// Buffers for the initiator's messages, and for those that come back.
fn shapes(pattern: Pattern, size: usize, last_level_cache: usize) -> (Shape, Shape) {
    // Whole cache lines, so that two messages never share one.
    let capacity = size.max(ACKNOWLEDGEMENT).next_multiple_of(64);
    match pattern {
        Pattern::PingPong | Pattern::Bidirectional => ((3, capacity, Reuse::Warm), (3, capacity, Reuse::Warm)),
        Pattern::Stream => ((2, capacity, Reuse::Warm), ACKNOWLEDGES),
        Pattern::StreamNoCache => {
            let count = (2 * last_level_cache).div_ceil(capacity).max(2);
            ((count, capacity, Reuse::Rotate), ACKNOWLEDGES)
        }
        Pattern::Window | Pattern::MessageRate => ((WINDOW as usize, capacity, Reuse::Warm), ACKNOWLEDGES),
    }
}

/// What one end's buffers for `pattern` take.
pub fn footprint(pattern: Pattern, size: usize, last_level_cache: usize) -> Bytes {
    let ((count, capacity, _), _) = shapes(pattern, size, last_level_cache);
    Bytes(count as u64 * capacity as u64)
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
    let mut end = Endpoint::new(stack, (&mut pools.outgoing, &mut pools.incoming), watch, (job, role), polite);
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
