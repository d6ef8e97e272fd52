//! The file of a rank's tables.
//!
//! ```text
//! 0             Header
//! COPY          its sealed part again
//! DIRECTORY     REGIONS entries of Region: the first `header.regions` are in use
//! FIRST_REGION  the regions, in any order, each at a multiple of PAGE
//! ```
//! Little endian. The rank keeps the file mapped and writes with plain stores of whole words; who reads while it runs sees
//! each word as it was at some moment. A region's entry is complete before `header.regions` counts it, and `used` of a
//! region grows after the records that it counts. All that was never written is zero, so that an absent value is 0.
//!
//! How a reader tells damage from what is being written:
//! - What is written once (entries, sites' places, modules, phases, members) has a seal of its own, and is counted after it.
//!   What a thread is in, and since when, alone has no second word: of a rank that was killed it is as it is found.
//! - The header changes seldom. Its two copies are written one after the other: one of them is whole at any moment.
//! - Counters change with every call, and a seal would cost each call. They are counted several times over, though (by
//!   class of size, of duration, by call site, by peer, by thread), in an order that tells which call is half counted
//!   ([`crate::rank`] has the sums that must agree).
//! - When the process ends in order it closes the file: from then on every region is sealed ([`contents_seal`]).

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::scale::{SIZE_CLASSES, TIME_CLASSES};
use crate::seal;

pub const MAGIC: [u8; 8] = *b"PLIMRANK";
/// Raised when the layout changes.
pub const VERSION: u32 = 4;
pub const PAGE: usize = 4096;
/// Where the sealed part of the header is once more.
pub const COPY: usize = PAGE / 2;
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

/// What became of delays that were asked for.
pub mod perturbed {
    /// The program was delayed on purpose.
    pub const ASKED: u32 = 1;
    /// A thread had its share of delays, and got no more.
    pub const STOPPED: u32 = 2;
    /// More came together at one moment than a delay may be, and was left out.
    pub const CUT: u32 = 4;
    /// The library could not read what is asked for: nothing was delayed.
    pub const UNREAD: u32 = 8;
    /// The hosts of the ranks are not those that it was told: nothing was delayed.
    pub const MISPLACED: u32 = 16;
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
    /// Of `peers`, those to processes outside this MPI_COMM_WORLD, which the matrix has no place for.
    pub outside: u64,
    /// Times that a file could not grow because its file system was full, or a quota: no limit of the profile's.
    pub storage: u64,
    pub reserved: [u64; 5],
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    /// Of [`perturbed`]; 0: the program ran as it is.
    pub perturbed: u32,
    /// [`crate::functions::digest`].
    pub functions: u64,
    pub pid: u32,
    pub family: u32,
    /// 1 once [`Header::rank`] and [`Header::size`] are known.
    pub placed: u32,
    /// In MPI_COMM_WORLD; of a process that has sessions alone, in the process set `mpi://WORLD`.
    pub rank: u32,
    pub size: u32,
    pub clock: u32,
    /// The level of threads that MPI provides: 0 single .. 3 multiple.
    pub thread_level: u32,
    /// Threads that called MPI.
    pub threads: u32,
    /// When the library first recorded.
    pub started: Moment,
    /// The last moment noted; with `started` it tells the rate of ticks.
    pub latest: Moment,
    /// Ticks after MPI_Init, or the first MPI_Session_init, returned; 0: none did.
    pub initialized: u64,
    /// Ticks when MPI_Finalize, or the MPI_Session_finalize after which nothing is open, was called; 0: it was not.
    pub finalized: u64,
    /// Ticks when the process ended in order; 0: it did not.
    pub ended: u64,
    /// Ticks when MPI_Abort was called; 0: it was not.
    pub aborted: u64,
    /// Ticks when a defect of the library ended recording; 0: none did.
    pub failed: u64,
    /// Bytes that the file may grow to.
    pub limit: u64,
    /// Ticks that recording a call costs beyond the call, measured at the start.
    pub cost: u64,
    /// Seal of `regions` and `dropped` once nothing more is written, and every region is sealed; 0: not yet.
    pub closed: u64,
    /// 1 where a timeline is written.
    pub traced: u32,
    /// What tells the PID namespace in which [`Header::pid`] counts from others of the host; 0 where it is not known.
    pub pid_namespace: u32,
    /// Texts end at the first 0.
    pub host: [u8; 64],
    /// Of the host's present start, as the kernel gives it: ranks with the same share clocks and cores.
    pub boot: [u8; 40],
    /// What tells this MPI_COMM_WORLD from others of the job.
    pub world: [u8; 128],
    pub program: [u8; 256],
    pub library: [u8; 256],
    /// Of all before it. What follows changes at any time, and is in the first copy alone.
    pub seal: u64,
    /// Entries of the directory in use.
    pub regions: u64,
    pub dropped: Dropped,
    /// The same, counted after it.
    pub dropped_again: Dropped,
}

impl Header {
    /// Bytes that are sealed, and in both copies.
    pub const SEALED: usize = offset_of!(Header, seal);

    /// The seal that belongs to what is there.
    pub fn own_seal(&self) -> u64 {
        seal::of(&self.as_bytes()[..Header::SEALED])
    }

    /// [`Header::closed`] of what is there.
    pub fn own_close(&self) -> u64 {
        seal::of(&self.as_bytes()[offset_of!(Header, regions)..offset_of!(Header, dropped_again)])
    }
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
    /// u32 by rank of the communicator: its members' ranks in MPI_COMM_WORLD, and after the last a seal of them. `group` is
    /// the communicator's number.
    pub const MEMBERS: u16 = 7;
    /// The same of an intercommunicator: both groups, as either side writes them, that with the first rank before the other,
    /// with [`super::BETWEEN_SIDES`] between them.
    pub const SIDES: u16 = 8;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    pub kind: u16,
    pub thread: u16,
    pub function: u16,
    pub record_bytes: u16,
    pub group: u32,
    /// Records that it has room for.
    pub capacity: u32,
    /// Records in use.
    pub used: u32,
    /// Of this entry but for `used` and `contents`.
    pub seal: u32,
    /// Offset from the start of the file.
    pub offset: u64,
    /// [`contents_seal`] once the file is closed.
    pub contents: u64,
}

impl Region {
    pub fn sealed(self) -> Region {
        let bare = Region { used: 0, seal: 0, contents: 0, ..self };
        Region { seal: seal::short(seal::of(bare.as_bytes())), ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.record_bytes) * u64::from(self.capacity)
    }
}

/// Of a region, and of how much of it is in use. What a thread is in, and since when, is left out: threads of a process
/// that ends may go on.
pub fn contents_seal(region: &Region, mut word: impl FnMut(usize) -> u64) -> u64 {
    let is_thread = region.kind == kind::THREAD;
    let kept = |place: usize, word: u64| match place {
        0 if is_thread => word & 0xffff_ffff,
        1 if is_thread => 0,
        _ => word,
    };
    let sum = seal::of_words(region.bytes() as usize, |place| kept(place, word(place)));
    seal::of_words(16, |place| [sum, u64::from(region.used), 0, 0][place])
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
    /// Of `tid` and `ended`, which change with the thread.
    pub seal: u64,
    /// By what was delayed: [`injected`].
    pub injected: [Injected; 3],
}

/// Places in [`Thread::injected`].
pub mod injected {
    pub const SEND: usize = 0;
    pub const RECEIVE: usize = 1;
    pub const COMPUTE: usize = 2;
}

/// Delays that a thread was given on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Injected {
    /// Delays, those of no length too.
    pub count: u64,
    /// As long as they took.
    pub ticks: u64,
}

impl Thread {
    pub fn sealed(self) -> Thread {
        Thread { seal: seal::of([u64::from(self.tid), self.ended].as_bytes()), ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
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
    /// Calls by class of duration.
    pub histogram: [u64; TIME_CLASSES],
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
    /// The module's place in the list of modules, plus 1; 0: not known.
    pub module: u32,
    pub function: u16,
    /// Among those of its thread, from 1, by which its timeline names it; 0: it has none.
    pub number: u16,
    pub calls: u64,
    pub ticks: u64,
    pub most: u64,
    pub bytes: u64,
    /// Of the place: what is before the counters.
    pub seal: u64,
}

impl Site {
    pub fn sealed(self) -> Site {
        let place = &self.as_bytes()[..offset_of!(Site, calls)];
        // Profiles in which sites had no number have the same seals.
        Site { seal: seal::of_words(offset_of!(Site, number), |at| seal::word(place, at)), ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
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

impl Peer {
    pub fn add(&mut self, more: &Peer) {
        self.messages = self.messages.saturating_add(more.messages);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.operations = self.operations.saturating_add(more.operations);
        self.operation_bytes = self.operation_bytes.saturating_add(more.operation_bytes);
    }
}

/// A file of code in the process.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Module {
    /// What is added to an address of its file.
    pub base: u64,
    pub build_id_bytes: u32,
    /// Of all else.
    pub seal: u32,
    pub build_id: [u8; 32],
    pub path: [u8; 464],
}

impl Module {
    pub fn sealed(self) -> Module {
        let seal = seal::short(seal::of(Module { seal: 0, ..self }.as_bytes()));
        Module { seal, ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
}

/// MPI_Pcontrol(level) was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Phase {
    pub ticks: u64,
    pub level: i32,
    pub thread: u32,
    /// Of all before it.
    pub seal: u64,
}

impl Phase {
    pub fn sealed(self) -> Phase {
        Phase { seal: seal::of(&self.as_bytes()[..offset_of!(Phase, seal)]), ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
}

/// No rank: what stands between the two groups of an intercommunicator.
pub const BETWEEN_SIDES: u32 = u32::MAX;

/// The record after the last member of a communicator.
pub fn members_seal(members: &[u32]) -> u32 {
    seal::short(seal::of(members.as_bytes()))
}

const _: () =
    assert!(size_of::<Header>() <= COPY && COPY + Header::SEALED + 8 <= DIRECTORY && Header::SEALED.is_multiple_of(8));
const _: () = assert!(FIRST_REGION.is_multiple_of(PAGE) && size_of::<Cell>() == 1216 && size_of::<Site>() == 64);
const _: () =
    assert!(size_of::<Region>() == 40 && size_of::<Thread>().is_multiple_of(8) && offset_of!(Thread, since) == 8);

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
