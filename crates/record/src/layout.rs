//! The file of a rank's tables.
//!
//! ```text
//! 0             Header, padded to DIRECTORY
//! DIRECTORY     REGIONS entries of Region: the first `header.regions` are in use
//! FIRST_REGION  the regions, in any order, each at a multiple of PAGE
//! ```
//! Little endian. The rank keeps the file mapped and writes with plain stores of whole words; who reads while it runs sees
//! each word as it was at some moment. A region's entry is complete before `header.regions` counts it, and `used` of a
//! region grows after the records that it counts. All that was never written is zero, so that an absent value is 0.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::scale::{SIZE_CLASSES, TIME_CLASSES};

pub const MAGIC: [u8; 8] = *b"PLIMRANK";
/// Raised when the layout changes.
pub const VERSION: u32 = 1;
pub const PAGE: usize = 4096;
pub const DIRECTORY: usize = PAGE;
pub const REGIONS: usize = 8192;
pub const FIRST_REGION: usize = DIRECTORY + REGIONS * size_of::<Region>();
/// Threads that get tables of their own. Calls of any beyond are only counted.
pub const THREADS: usize = 256;
/// Sites of one region; a thread takes further regions as it needs them.
pub const SITES_AT_ONCE: usize = 1024;
/// In [`Region::thread`]: of the rank, not of one of its threads.
pub const WHOLE_RANK: u16 = u16::MAX;

/// One moment on the clocks of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Moment {
    /// Of [`Header::clock`].
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: u64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime: u64,
}

/// What ticks are.
pub mod clock {
    /// The processor's invariant time stamp counter. Its rate follows from two moments.
    pub const COUNTER: u32 = 1;
    /// CLOCK_MONOTONIC, ns.
    pub const MONOTONIC: u32 = 2;
}

/// Whose binary interface the MPI library has.
pub mod family {
    pub const UNKNOWN: u32 = 0;
    pub const OPEN_MPI: u32 = 1;
    pub const MPICH: u32 = 2;
    /// The interface that MPI 5 standardises.
    pub const STANDARD: u32 = 3;
}

/// What could not be recorded, counted. All 0 in a complete profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dropped {
    /// Calls of threads beyond [`THREADS`].
    pub calls: u64,
    /// Calls whose function and group size found no row.
    pub rows: u64,
    /// Calls whose site found no place.
    pub sites: u64,
    /// Messages that are not in the matrix.
    pub peers: u64,
    /// Operations begun that were not followed to their completion.
    pub requests: u64,
    /// Calls that are not in the timeline.
    pub events: u64,
    /// Communicators whose members are not known.
    pub communicators: u64,
    pub modules: u64,
    pub phases: u64,
    pub reserved: [u64; 7],
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    /// Entries of the directory in use.
    pub regions: u32,
    /// [`crate::functions::digest`].
    pub functions: u64,
    pub pid: u32,
    pub family: u32,
    /// 1 once [`Header::rank`] and [`Header::size`] are known.
    pub placed: u32,
    /// In MPI_COMM_WORLD.
    pub rank: u32,
    pub size: u32,
    pub clock: u32,
    /// That MPI provides: 0 single .. 3 multiple.
    pub thread_level: u32,
    /// Threads that called MPI.
    pub threads: u32,
    /// When the library first recorded.
    pub started: Moment,
    /// The last moment noted; with `started` it tells the rate of ticks.
    pub latest: Moment,
    /// Ticks after MPI_Init returned; 0: it did not.
    pub initialized: u64,
    /// Ticks when MPI_Finalize was called; 0: it was not.
    pub finalized: u64,
    /// Ticks when the process ended in order; 0: it did not.
    pub ended: u64,
    /// Ticks when MPI_Abort was called; 0: it was not.
    pub aborted: u64,
    /// Bytes that the file may grow to.
    pub limit: u64,
    /// Ticks that recording a call costs beyond the call, measured at the start.
    pub cost: u64,
    /// 1 where a timeline is written.
    pub traced: u32,
    pub reserved: u32,
    pub dropped: Dropped,
    /// Texts end at the first 0.
    pub host: [u8; 64],
    /// Of the host's present start, as the kernel gives it: ranks with the same share clocks and cores.
    pub boot: [u8; 40],
    /// What tells this MPI_COMM_WORLD from others of the job.
    pub world: [u8; 128],
    pub program: [u8; 256],
    pub library: [u8; 256],
}

/// Kinds of regions, and what their records are.
pub mod kind {
    /// One [`super::Thread`].
    pub const THREAD: u16 = 1;
    /// [`super::Cell`] by class of size: the calls of `function` at groups of `group` ranks (0 where not collective).
    pub const ROW: u16 = 2;
    /// [`super::Site`].
    pub const SITES: u16 = 3;
    /// [`super::Peer`] by rank of MPI_COMM_WORLD.
    pub const PEERS: u16 = 4;
    /// [`super::Module`], of the rank.
    pub const MODULES: u16 = 5;
    /// [`super::Phase`], of the rank.
    pub const PHASES: u16 = 6;
    /// u32 by rank of the communicator: its members' ranks in MPI_COMM_WORLD. `group` is the communicator's number.
    pub const MEMBERS: u16 = 7;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    pub kind: u16,
    pub thread: u16,
    pub function: u16,
    pub reserved: u16,
    pub group: u32,
    pub record_bytes: u32,
    /// Records that it has room for.
    pub capacity: u32,
    /// Records in use.
    pub used: u32,
    /// From the start of the file.
    pub offset: u64,
}

/// A thread's running totals, and what it does now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Thread {
    pub tid: u32,
    /// The function that the thread is in, plus 1; 0: in none.
    pub inside: u32,
    /// Ticks when it entered that.
    pub since: u64,
    pub calls: u64,
    /// Messages begun to other ranks, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// Ticks inside calls, by [`crate::functions::Class`].
    pub ticks: [u64; 16],
    /// Ticks when it ended or its place was handed on; 0: not yet.
    pub ended: u64,
    /// Bytes of its timeline that are complete.
    pub traced: u64,
    pub reserved: [u64; 2],
}

/// The calls of one function with sizes of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cell {
    pub calls: u64,
    pub ticks: u64,
    pub bytes: u64,
    /// The longest, in ticks.
    pub most: u64,
    /// `u64::MAX` less the shortest, so that it grows from 0.
    pub least_from_top: u64,
    pub reserved: [u64; 3],
    pub histogram: [u32; TIME_CLASSES],
}

impl Cell {
    pub const EMPTY: Cell = Cell {
        calls: 0,
        ticks: 0,
        bytes: 0,
        most: 0,
        least_from_top: 0,
        reserved: [0; 3],
        histogram: [0; TIME_CLASSES],
    };

    /// The shortest, in ticks; `None` where there was no call.
    pub fn least(&self) -> Option<u64> {
        (self.calls > 0).then_some(!self.least_from_top)
    }
}

pub const ROW_CELLS: usize = SIZE_CLASSES;

/// A place in the program that calls one function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Site {
    /// Where the call returns to, in this process.
    pub address: u64,
    /// The same in the module's file: an address as its symbols have it.
    pub offset: u64,
    /// Its place in the modules, plus 1; 0: not known.
    pub module: u32,
    pub function: u16,
    pub reserved: u16,
    pub calls: u64,
    pub ticks: u64,
    pub most: u64,
    pub bytes: u64,
    pub reserved_too: u64,
}

/// What was sent to one rank: as messages, and moved by one-sided operations (both ways).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Peer {
    pub messages: u64,
    pub bytes: u64,
    pub operations: u64,
    pub operation_bytes: u64,
}

/// A file of code in the process.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Module {
    /// What is added to an address of its file.
    pub base: u64,
    pub build_id_bytes: u32,
    pub reserved: u32,
    pub build_id: [u8; 32],
    pub path: [u8; 464],
}

/// MPI_Pcontrol(level) was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Phase {
    pub ticks: u64,
    pub level: i32,
    pub thread: u32,
}

const _: () = assert!(size_of::<Header>() <= DIRECTORY && size_of::<Region>() == 32);
const _: () = assert!(FIRST_REGION.is_multiple_of(PAGE) && size_of::<Cell>() == 640 && size_of::<Site>() == 64);

/// A text as the files have it, cut where it does not fit.
pub fn text<const N: usize>(words: &str) -> [u8; N] {
    let mut field = [0; N];
    let bytes = &words.as_bytes()[..words.len().min(N)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

/// The text of a field.
pub fn words(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
