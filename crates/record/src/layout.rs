//! The file of a rank's tables.
//!
//! ```text
//! 0             Header
//! COPY          its sealed part again
//! DIRECTORY     REGIONS entries of Region: the first `header.regions` are in use
//! FIRST_REGION  the regions, in any order, each at a multiple of PAGE
//! ```
//! Little endian. The rank keeps the file mapped and writes whole words with plain stores; a reader meanwhile loads each
//! word as of some moment. A region's entry is complete before `header.regions` counts it, and `used` of a region grows
//! after the records that it counts. Bytes that were never written are zero, so that an absent value is 0.
//!
//! Distinction of damage from unfinished writes:
//! - Entries, sites' places, modules, phases, marks and members are written once; each has a seal and is counted after it.
//!   Only a thread's present function and its begin are stored once: those of a killed rank are taken as found.
//! - The header changes seldom. Its two copies are written one after the other: one of them is whole at any moment.
//! - Counters change with every call, and a seal would cost time in each. Instead each call is counted several times (by
//!   class of size, of duration, by call site, by peer, by thread), in an order that shows which call is half counted
//!   ([`crate::rank`] has the sums that must agree).
//! - A process that ends in order closes the file: from then on every region is sealed ([`contents_seal`]).

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::scale::{SIZE_CLASSES, TIME_CLASSES};
use crate::seal;

pub const MAGIC: [u8; 8] = *b"PLIMRANK";
/// Raised when the layout changes.
pub const VERSION: u32 = 7;
pub const PAGE: usize = 4096;
/// Offset of the second copy of the header's sealed part.
pub const COPY: usize = PAGE / 2;
pub const DIRECTORY: usize = PAGE;
pub const REGIONS: usize = 8192;
pub const FIRST_REGION: usize = DIRECTORY + REGIONS * size_of::<Region>();
/// Threads that get tables of their own; calls of further threads are only counted.
pub const THREADS: usize = 256;
/// Sites of one region; a thread takes further regions as it needs them.
pub const SITES_AT_ONCE: usize = 1024;
/// Value of [`Region::thread`] in regions of the whole rank.
pub const WHOLE_RANK: u16 = u16::MAX;

/// One moment on the clocks of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Moment {
    /// Ticks of [`Header::clock`].
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: u64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime: u64,
}

/// CPU time in ns from MPI_Init's return to MPI_Finalize's call, or to the end of a process that makes none; 0: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cpu {
    /// Of the thread that initialized MPI.
    pub thread: u64,
    /// Of the process, and of its children that it waited for.
    pub process: u64,
    /// Time, plus 1, for which that thread was runnable without a core.
    pub runnable: u64,
}

/// The clocks that ticks may be of.
pub mod clock {
    /// The processor's invariant time stamp counter. Its rate follows from two moments.
    pub const COUNTER: u32 = 1;
    /// CLOCK_MONOTONIC, ns.
    pub const MONOTONIC: u32 = 2;
}

/// The binary interface of the MPI library.
pub mod family {
    pub const UNKNOWN: u32 = 0;
    pub const OPEN_MPI: u32 = 1;
    pub const MPICH: u32 = 2;
    /// The interface that MPI 5 standardises.
    pub const STANDARD: u32 = 3;
}

/// Flags about injected delays.
pub mod perturbed {
    /// The program was delayed on purpose.
    pub const ASKED: u32 = 1;
    /// A thread had used up its share of delays.
    pub const STOPPED: u32 = 2;
    /// Delays due at one moment exceeded the longest delay, and the excess was left out.
    pub const CUT: u32 = 4;
    /// The library could not read the perturbation: nothing was delayed.
    pub const UNREAD: u32 = 8;
    /// The ranks are on other hosts than the placement has: nothing was delayed.
    pub const MISPLACED: u32 = 16;
    /// There were more blocks than there is room for.
    pub const FULL: u32 = 32;
}

/// Counts of what could not be recorded. All 0 in a complete profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dropped {
    /// Calls of threads beyond [`THREADS`].
    pub calls: u64,
    /// Calls for whose function and group size there was no row left.
    pub rows: u64,
    /// Calls for whose site there was no place left.
    pub sites: u64,
    /// Messages missing in the matrix.
    pub peers: u64,
    /// Operations begun that were not followed to their completion.
    pub requests: u64,
    /// Calls missing in the timeline.
    pub events: u64,
    /// Communicators with unknown members.
    pub communicators: u64,
    pub modules: u64,
    pub phases: u64,
    /// Messages of `peers` to processes outside of this MPI_COMM_WORLD, for which the matrix has no place.
    pub outside: u64,
    /// Times that a file could not grow because of a full file system or a quota, not because of the profile's limit.
    pub storage: u64,
    pub reserved: [u64; 5],
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub version: u32,
    /// Flags of [`perturbed`]; 0: no delay was injected.
    pub perturbed: u32,
    /// Value of [`crate::functions::digest`].
    pub functions: u64,
    pub pid: u32,
    pub family: u32,
    /// 1 once [`Header::rank`] and [`Header::size`] are known.
    pub placed: u32,
    /// Rank in MPI_COMM_WORLD; for a process with sessions alone, rank in the process set `mpi://WORLD`.
    pub rank: u32,
    pub size: u32,
    pub clock: u32,
    /// The level of threads that MPI provides: 0 single .. 3 multiple.
    pub thread_level: u32,
    /// Threads that called MPI.
    pub threads: u32,
    /// When the library first recorded.
    pub started: Moment,
    /// The latest moment noted; with `started` it gives the rate of ticks.
    pub latest: Moment,
    /// Ticks when MPI_Init, or the first MPI_Session_init, returned; 0: not yet.
    pub initialized: u64,
    /// Ticks when MPI_Finalize, or the last MPI_Session_finalize, was called; 0: not yet.
    pub finalized: u64,
    /// Ticks when the process ended in order; 0: not yet.
    pub ended: u64,
    /// Ticks when MPI_Abort was called; 0: never.
    pub aborted: u64,
    /// Ticks when a defect of the library ended recording; 0: never.
    pub failed: u64,
    /// Most bytes of the file.
    pub limit: u64,
    /// Overhead of recording a call, in ticks, measured at the start.
    pub cost: u64,
    /// Seal of `regions` and `dropped`, once every region is sealed and nothing more is written; 0: not yet.
    pub closed: u64,
    /// 1 if a timeline is written.
    pub traced: u32,
    /// Identifier of the PID namespace of [`Header::pid`] on the host; 0: not known.
    pub pid_namespace: u32,
    /// The only core, plus 1, on which the thread that initialized MPI may run; 0: several, or another one at the end.
    pub bound: u32,
    /// The first core, plus 1, on which that thread may run; 0: not known.
    pub first: u32,
    pub cpu: Cpu,
    /// Host name. Texts end at the first 0.
    pub host: [u8; 64],
    /// Identifier of the host's present boot, as the kernel gives it: ranks with the same one share clocks and cores.
    pub boot: [u8; 40],
    /// Identifier of this MPI_COMM_WORLD in the job.
    pub world: [u8; 128],
    pub program: [u8; 256],
    pub library: [u8; 256],
    /// Seal of all before it. What follows changes at any time, and is in the first copy alone.
    pub seal: u64,
    /// Number of entries of the directory in use.
    pub regions: u64,
    pub dropped: Dropped,
    /// A second copy of `dropped`, updated after it.
    pub dropped_again: Dropped,
}

impl Header {
    /// Number of bytes that are sealed, and in both copies.
    pub const SEALED: usize = offset_of!(Header, seal);

    /// The seal of the present contents.
    pub fn own_seal(&self) -> u64 {
        seal::of(&self.as_bytes()[..Header::SEALED])
    }

    /// The value of [`Header::closed`] for the present contents.
    pub fn own_close(&self) -> u64 {
        seal::of(&self.as_bytes()[offset_of!(Header, regions)..offset_of!(Header, dropped_again)])
    }
}

/// Kinds of regions, and the type of their records.
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
    /// u32 by rank of the communicator: its members' ranks in MPI_COMM_WORLD, then a seal of them. `group` is the
    /// communicator's number.
    pub const MEMBERS: u16 = 7;
    /// u32 as for MEMBERS, of an intercommunicator: both groups, separated by [`super::BETWEEN_SIDES`]. The group with
    /// the lower first rank comes first, so that both sides write the same.
    pub const SIDES: u16 = 8;
    /// [`crate::blocks::Mark`], of the rank; the length of a record follows from the number of columns.
    pub const MARKS: u16 = 9;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    pub kind: u16,
    pub thread: u16,
    pub function: u16,
    pub record_bytes: u16,
    pub group: u32,
    /// Number of records that there is room for.
    pub capacity: u32,
    /// Number of records in use.
    pub used: u32,
    /// Seal of this entry without `used` and `contents`.
    pub seal: u32,
    /// Offset from the start of the file.
    pub offset: u64,
    /// [`contents_seal`], once the file is closed.
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

/// Seal of a region and its number of used records. A thread's present function and its begin are left out, since
/// threads of a process that ends may go on.
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

/// A thread's running totals and its present call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Thread {
    pub tid: u32,
    /// The function that the thread is in, plus 1; 0: in none.
    pub inside: u32,
    /// Ticks when it entered that function.
    pub since: u64,
    pub calls: u64,
    /// Messages to other ranks, counted at their begin, and their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// Ticks inside calls, by [`crate::functions::Class`].
    pub ticks: [u64; 16],
    /// Ticks when the thread ended or its place was reused; 0: not yet.
    pub ended: u64,
    /// Number of complete bytes of its timeline.
    pub traced: u64,
    /// Seal of `tid` and `ended`, which change with the thread.
    pub seal: u64,
    /// Injected delays, by the indices of [`injected`].
    pub injected: [Injected; 3],
}

/// Indices of [`Thread::injected`].
pub mod injected {
    pub const SEND: usize = 0;
    pub const RECEIVE: usize = 1;
    pub const COMPUTE: usize = 2;
}

/// Delays injected into a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Injected {
    /// Number of delays, those of length 0 included.
    pub count: u64,
    /// Measured length of the delays, ticks.
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
    /// The longest call, in ticks.
    pub most: u64,
    /// `u64::MAX` less the shortest call in ticks, so that it grows from 0.
    pub least_from_top: u64,
    pub reserved: [u64; 3],
    /// Number of calls by class of duration.
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

    /// The shortest call, in ticks; `None` where there was none.
    pub fn least(&self) -> Option<u64> {
        (self.calls > 0).then_some(!self.least_from_top)
    }
}

pub const ROW_CELLS: usize = SIZE_CLASSES;

/// A place in the program that calls one function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Site {
    /// The call's return address in this process.
    pub address: u64,
    /// The return address in the module's file, as its symbols have it.
    pub offset: u64,
    /// The module's index in the list of modules, plus 1; 0: not known.
    pub module: u32,
    pub function: u16,
    /// Number among the sites of its thread, from 1, which the timeline uses; 0: it has none.
    pub number: u16,
    pub calls: u64,
    pub ticks: u64,
    pub most: u64,
    pub bytes: u64,
    /// Seal of all before the counters.
    pub seal: u64,
}

impl Site {
    pub fn sealed(self) -> Site {
        let place = &self.as_bytes()[..offset_of!(Site, calls)];
        // `number` is not sealed, so that the seals of profiles without numbers hold.
        Site { seal: seal::of_words(offset_of!(Site, number), |at| seal::word(place, at)), ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
}

/// Messages sent to one rank, and one-sided operations with it in both directions.
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
    /// Offset added to an address of its file.
    pub base: u64,
    pub build_id_bytes: u32,
    /// Seal of all other fields.
    pub seal: u32,
    pub build_id: [u8; 32],
    pub path: [u8; 464],
}

impl Module {
    /// A number that is equal in all processes with this file: of the build identifier, else of the path.
    pub fn identity(&self) -> u64 {
        match self.build_id_bytes as usize {
            0 => seal::of(&self.path),
            bytes => seal::of(&self.build_id[..bytes.min(self.build_id.len())]),
        }
    }

    pub fn sealed(self) -> Module {
        let seal = seal::short(seal::of(Module { seal: 0, ..self }.as_bytes()));
        Module { seal, ..self }
    }

    pub fn is_whole(&self) -> bool {
        self.sealed().seal == self.seal
    }
}

/// A call of MPI_Pcontrol(level).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Phase {
    pub ticks: u64,
    pub level: i32,
    pub thread: u32,
    /// Seal of all before it.
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

/// Separator between the two groups of an intercommunicator; no rank has this value.
pub const BETWEEN_SIDES: u32 = u32::MAX;

/// The seal after the last member of a communicator.
pub fn members_seal(members: &[u32]) -> u32 {
    seal::short(seal::of(members.as_bytes()))
}

const _: () =
    assert!(size_of::<Header>() <= COPY && COPY + Header::SEALED + 8 <= DIRECTORY && Header::SEALED.is_multiple_of(8));
const _: () = assert!(FIRST_REGION.is_multiple_of(PAGE) && size_of::<Cell>() == 1216 && size_of::<Site>() == 64);
const _: () =
    assert!(size_of::<Region>() == 40 && size_of::<Thread>().is_multiple_of(8) && offset_of!(Thread, since) == 8);

/// A text as a field of the file, cut where it does not fit.
pub fn text<const N: usize>(words: &str) -> [u8; N] {
    let mut field = [0; N];
    let bytes = &words.as_bytes()[..words.len().min(N)];
    field[..bytes.len()].copy_from_slice(bytes);
    field
}

pub fn words(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}
