//! Handing over an end of a channel to another process: over a connected Unix socket, as the descriptor that holds the
//! lock of its end. The same descriptor gives access to the memory.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::channel::{Buffers, Cast, Content, Delivery, Policy, Specification, Synchronization};
use machine::{Bytes, Result};

use super::held_end::{HeldEnd, reopen};
use super::layout::Layout;
use linux::passing::{Words, fault, hear, patiently, say, speaks};
use linux::region::Region;

const PROTOCOL: u64 = u64::from_le_bytes(*b"plimchan");
/// Raised with every change of the layout or of these messages.
const VERSION: u64 = 2;

/// The state of an end that is not in the region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    pub written: u64,
    pub read: u64,
    /// The first message meant for this reader.
    pub first: u64,
    pub dropped: u64,
    pub full: u64,
}

/// Policies in the order of their codes.
const POLICIES: [Policy; 3] = [Policy::ZeroCopy, Policy::Copy, Policy::Any];

fn traits(specification: &Specification) -> u64 {
    let Specification { cast, delivery, synchronization, content, buffers } = specification;
    u64::from(*cast == Cast::Multicast)
        | u64::from(*delivery == Delivery::Unreliable) << 1
        | u64::from(*synchronization == Synchronization::Blocking) << 2
        | u64::from(*content == Content::Messages) << 3
        | (match buffers.policy {
            Policy::ZeroCopy => 0,
            Policy::Copy => 1,
            Policy::Any => 2,
        }) << 4
}

fn specification(traits: u64, count: u64, size: u64) -> Result<Specification> {
    let is = |bit: u32| traits >> bit & 1 == 1;
    let policy = POLICIES.get((traits >> 4) as usize);
    let (Ok(count), Some(&policy)) = (u32::try_from(count), policy) else {
        return Err(fault("it passes a channel of a kind that this end does not know"));
    };
    Ok(Specification {
        cast: if is(0) { Cast::Multicast } else { Cast::Unicast },
        delivery: if is(1) { Delivery::Unreliable } else { Delivery::Reliable },
        synchronization: if is(2) { Synchronization::Blocking } else { Synchronization::Poll },
        content: if is(3) { Content::Messages } else { Content::Calls },
        buffers: Buffers { count, size: Bytes(size), policy },
    })
}

pub(super) fn hand_over(
    end: &mut HeldEnd,
    specification: &Specification,
    state: &State,
    stream: &UnixStream,
) -> Result<()> {
    let buffers = &specification.buffers;
    let what = [traits(specification), u64::from(buffers.count), buffers.size.0, end.index() as u64, 0, 0];
    let State { written, read, first, dropped, full } = *state;
    patiently(stream, || {
        say(stream, &message(what), Some(end.lock()))?;
        say(stream, &message([written, read, first, dropped, full, 0]), None)
    })?;
    end.left();
    Ok(())
}

fn message(words: [u64; 6]) -> Words {
    let mut message = [PROTOCOL, VERSION, 0, 0, 0, 0, 0, 0];
    message[2..].copy_from_slice(&words);
    message
}

/// The end, the channel's specification and the state that the process at the other side of `stream` passes.
pub(super) fn accept(stream: &UnixStream) -> Result<(HeldEnd, Specification, State)> {
    patiently(stream, || {
        let mut what = hear(stream)?;
        speaks(&what, PROTOCOL, VERSION)?;
        let [_, _, traits, count, size, index, ..] = what.words;
        let specification = specification(traits, count, size)?;
        let layout = Layout::of(&specification)?;
        let index = usize::try_from(index).ok().filter(|index| *index < layout.seats);
        let index = index.ok_or_else(|| fault("it passes an end that the channel does not have"))?;
        let lock = what.fd.take().ok_or_else(|| fault("it passed no shared memory"))?;
        let state = hear(stream)?;
        speaks(&state, PROTOCOL, VERSION)?;
        let [_, _, written, read, first, dropped, full, _] = state.words;
        // Positions of 2^60 and more are invalid, and would let this end's arithmetic overflow.
        if [written, read, first, dropped, full].iter().any(|n| n >> 60 != 0) {
            return Err(fault("it passes a position that cannot be"));
        }
        let region = Region::adopt(reopen(lock.as_fd())?, layout.length())?;
        let state = State { written, read, first, dropped, full };
        Ok((HeldEnd::sit(Arc::new(region), layout, index, lock), specification, state))
    })
}
