//! The timeline of a thread: each of its calls, in order, in about five bytes.
//!
//! ```text
//! 0                    Header
//! size_of::<Header>()  blocks, one after the other: a word with length and seal ([`block`]), then calls
//! ```
//! The last block may be open: its calls go on until a byte 0 or the end, and are not sealed.
//!
//! The shape of a call (function, call site, communicator, peer, tag, bytes, the requests it completes as distances back) recurs
//! in nearly every program, so writer and reader both keep the recent shapes, and the successor of each. A call is then
//! ```text
//! 1 byte       how its shape is given (2 bits), the lengths of gap and duration (3 bits each)
//! 0, 2, 5..    nothing for the shape that followed last time; its index among those kept; or its difference (exclusive
//!              or) from the last shape of the same function
//! 0..8         the gap since the last call, in units of `1 << shift` ticks
//! 0..8         the duration, in the same units
//! ..           requests that do not follow each other, and messages that receives with a wildcard got
//! ```
//! Every call can be decoded once it is written: the file of a killed process is good up to its last whole call.

pub mod block;
mod decoder;
mod encoder;

pub use decoder::{Decoder, Event};
pub use encoder::Encoder;

use std::mem::offset_of;

use crate::functions::FunctionId;
use crate::seal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAGIC: [u8; 8] = *b"PLIMTRAC";
/// Raised when the format changes.
pub const VERSION: u32 = 3;
/// The version without call sites, which can still be read.
const WITHOUT_SITES: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    /// Unit of times: `1 << shift` ticks.
    pub shift: u32,
    /// Value of [`crate::functions::digest`].
    pub functions: u64,
    /// Ticks from which the first gap counts; [`crate::layout::Header`] gives their clock.
    pub started: u64,
    pub pid: u32,
    /// The thread's index in the tables of the rank.
    pub thread: u32,
    /// Seal of all before it.
    pub seal: u64,
    pub reserved: [u64; 2],
}

impl Header {
    pub fn new(shift: u32, started: u64, pid: u32, thread: u16) -> Header {
        let (functions, thread) = (crate::functions::digest(), u32::from(thread));
        let (seal, reserved) = (0, [0; 2]);
        Header { magic: MAGIC, version: VERSION, shift, functions, started, pid, thread, seal, reserved }.sealed()
    }

    pub fn sealed(self) -> Header {
        Header { seal: seal::of(&self.as_bytes()[..offset_of!(Header, seal)]), ..self }
    }
}

/// Values of [`Call::peer`] and [`Call::source`] that are no ranks of MPI_COMM_WORLD.
pub mod peer {
    /// MPI_ANY_SOURCE
    pub const ANY: i32 = -1;
    /// MPI_PROC_NULL
    pub const NULL: i32 = -2;
    /// The function has no peer.
    pub const NONE: i32 = -3;
    /// A process outside of MPI_COMM_WORLD, or of a communicator with unknown members.
    pub const UNKNOWN: i32 = -4;
}

pub mod tag {
    /// MPI_ANY_TAG
    pub const ANY: i32 = -1;
    /// The function has no tag.
    pub const NONE: i32 = -2;
}

pub mod communicator {
    /// The function has no communicator, or it is not known.
    pub const NONE: u32 = u32::MAX;
}

pub mod site {
    /// The call site is not known.
    pub const ABSENT: u16 = 0;
}

/// One call, as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub function: FunctionId,
    /// [`crate::layout::Site::number`] of the call site.
    pub site: u16,
    /// Number of operations that it begins: 1 for MPI_Isend and for the `_init` functions, for MPI_Startall as many as
    /// it references. A thread's operations are numbered from 0 in the order in which they are begun.
    pub begun: u16,
    /// Number of its communicator ([`crate::layout::kind::MEMBERS`]), or of its window's.
    pub communicator: u32,
    /// Destination, source, root or target: a rank of MPI_COMM_WORLD, or a value of [`peer`].
    pub peer: i32,
    pub tag: i32,
    /// Bytes of the call, by the rule of the function.
    pub bytes: u64,
    /// Source of the receiving half of an exchange; for other calls `NONE`, with tag `NONE` and 0 bytes.
    pub source: i32,
    pub source_tag: i32,
    pub source_bytes: u64,
    /// Time of entry in ticks. An entry before the end of the thread's last call, by the counter, is moved to that end.
    pub entered: u64,
    pub left: u64,
}

impl Call {
    pub fn new(function: FunctionId, entered: u64, left: u64) -> Call {
        Call {
            function,
            site: site::ABSENT,
            begun: 0,
            communicator: communicator::NONE,
            peer: peer::NONE,
            tag: tag::NONE,
            bytes: 0,
            source: peer::NONE,
            source_tag: tag::NONE,
            source_bytes: 0,
            entered,
            left,
        }
    }
}

/// An operation begun before, by any thread of the rank, that this call completes or starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Index of the thread that began it.
    pub thread: u16,
    /// Number of the operation among those of its thread.
    pub ordinal: u64,
}

/// The message that a receive with a wildcard got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matched {
    /// Index of the receive among the references of the call; 0 also where the call itself received.
    pub place: u32,
    pub source: i32,
    pub tag: i32,
    pub bytes: u64,
}

/// Number of shapes kept, a power of two.
const SLOTS: usize = 1024;
/// Most references that a shape holds as one run; more are written one by one.
const LONGEST_RUN: usize = 512;
/// Most bytes of a call without its references and matches.
const CALL_BYTES: usize = 104;
const REFERENCE_BYTES: usize = 16;
const MATCHED_BYTES: usize = 32;

/// Values of the first two bits of a call.
mod mode {
    pub const FOLLOWS: u8 = 1;
    pub const PLACE: u8 = 2;
    pub const DEFINED: u8 = 3;
}

/// Flags of a [`Shape`] for what follows the duration.
mod extra {
    /// The references after the first, each as its distance from the one before.
    pub const LIST: u64 = 1 << 16;
    /// All references, with their threads.
    pub const FOREIGN: u64 = 1 << 17;
    pub const MATCHED: u64 = 1 << 18;
    pub const ALL: u64 = LIST | FOREIGN | MATCHED;
}

/// The recurring part of a call, as words:
/// function (16 bits), extra (16), communicator (32) | peer, tag | bytes | references, distance back to the first |
/// begun, site | source, its tag | source's bytes. Signed numbers are folded so that small ones stay small.
type Shape = [u64; 7];

/// Bits of each length at the begin of a definition: of communicator, peer, tag, bytes and site.
const COMMON: [u32; 5] = [3, 3, 3, 4, 3];
const COMMON_WITHOUT_SITES: [u32; 5] = [4, 4, 4, 4, 0];
/// Bits of the lengths of rare fields: extras with operations begun, references, source with its tag, source's bytes.
const RARE: [u32; 4] = [4; 4];

/// A shape and the index of its last successor.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Slot {
    shape: Shape,
    next: u64,
}

/// The state that writer and reader keep equal.
#[derive(Debug, Clone)]
struct Shapes {
    slots: Box<[Slot; SLOTS]>,
    /// The last shape of each function.
    last: Box<[Shape; 256]>,
    /// Index of the last call's shape.
    previous: usize,
}

impl Shapes {
    fn new() -> Shapes {
        let slots: Vec<Slot> = vec![Slot::default(); SLOTS];
        let last: Vec<Shape> = (0..256).map(|function| [function, 0, 0, 0, 0, 0, 0]).collect();
        Shapes {
            slots: slots.into_boxed_slice().try_into().expect("as many"),
            last: last.into_boxed_slice().try_into().expect("as many"),
            previous: 0,
        }
    }

    #[inline]
    fn place(shape: &Shape) -> usize {
        let mut hash = 0u64;
        for word in shape {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % SLOTS
    }

    /// Records that the shape at `place` followed the last one.
    #[inline]
    fn came(&mut self, place: usize) {
        self.slots[self.previous % SLOTS].next = place as u64;
        self.previous = place;
    }

    #[inline]
    fn expected(&self) -> usize {
        self.slots[self.previous % SLOTS].next as usize % SLOTS
    }

    fn define(&mut self, shape: &Shape) -> usize {
        let place = Shapes::place(shape);
        self.slots[place].shape = *shape;
        self.last[shape[0] as usize % 256] = *shape;
        place
    }
}

#[inline]
fn fold(number: i32) -> u64 {
    u64::from(((number << 1) ^ (number >> 31)) as u32)
}

#[inline]
fn unfold(folded: u64) -> i32 {
    let folded = folded as u32;
    (folded >> 1) as i32 ^ -((folded & 1) as i32)
}

#[cfg(test)]
mod tests;
