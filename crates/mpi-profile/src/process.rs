//! The life of a profiled process: the first call of each thread, what becomes known on the way, forks and ends.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use record::folder::{self, variable};
use record::layout::{self, Dropped, Header, Phase, Region, THREADS, Thread, WHOLE_RANK, kind};

use crate::abi::Abi;
use crate::call::{Handle, language};
use crate::clock;
use crate::communicators::{Communicator, Communicators, Kind};
use crate::complaint::Complaint;
use crate::fortran::Fortran;
use crate::here::{Here, depth};
use crate::real::Mpi;
use crate::recorder;
use crate::requests::Shared;
use crate::rules::{self, Rule};
use crate::sampler;
use crate::sites::{self, Modules, Where};
use crate::tables::{Room, Tables};
use crate::trace::Timeline;
use crate::world;

/// Bytes that a rank's tables may take where nothing else is asked for.
const MEMORY: u64 = 64 << 20;
const PHASES_AT_ONCE: u32 = 256;
/// Phases that are recorded; a program that marks more marks something else.
const PHASES: u32 = 1 << 16;

/// Everything of the process that is recorded.
#[derive(Debug)]
pub struct Rank {
    pub mpi: Mpi,
    pub abi: Abi,
    pub clock: u32,
    pub rules: Vec<Rule>,
    pub communicators: Communicators,
    pub requests: Shared,
    /// `None` where no timeline is asked for.
    pub timeline: Option<Timeline>,
    fortran: OnceLock<Fortran>,
    pid: u32,
    header: *mut Header,
    tables: Mutex<Tables>,
    modules: Mutex<Modules>,
    phases: Mutex<Phases>,
    threads: Mutex<Threads>,
}

// SAFETY: the header is mapped as long as the process runs. Its words are written by one thread at a time, or as atomics.
unsafe impl Send for Rank {}
// SAFETY: as above.
unsafe impl Sync for Rank {}

#[derive(Debug, Default)]
struct Phases {
    room: Option<Room>,
    used: u32,
    all: u32,
}

#[derive(Debug, Default)]
struct Threads {
    known: u16,
    /// Of threads that ended: the next ones go on with them.
    free: Vec<Spare>,
}

/// A record that no thread has. It is never freed.
#[derive(Debug)]
struct Spare(*mut Here);

// SAFETY: it is handed from a thread that ended to one that begins.
unsafe impl Send for Spare {}

mod state {
    pub const FRESH: u32 = 0;
    pub const RECORDING: u32 = 1;
    pub const OFF: u32 = 2;
}

static STATE: AtomicU32 = AtomicU32::new(state::FRESH);
static RANK: OnceLock<Rank> = OnceLock::new();
/// Raised by what makes caches stale: by 2 for each handle that is freed. Odd while recording is paused.
static GENERATION: AtomicU64 = AtomicU64::new(0);

#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

#[inline]
pub fn paused(generation: u64) -> bool {
    generation & 1 != 0
}

/// What is recorded of this process; `None` in the child of a fork too, whose locks nobody may ever release.
fn recording() -> Option<&'static Rank> {
    RANK.get().filter(|_| STATE.load(Ordering::Relaxed) == state::RECORDING)
}

/// Of the MPI of this process, once it is known.
pub fn abi() -> Option<&'static Abi> {
    RANK.get().map(|rank| &rank.abi)
}

// C looks only at the first fields.
#[allow(improper_ctypes)]
unsafe extern "C" {
    fn plimsoll_set_here(here: *mut Here);
    fn plimsoll_get_here() -> *mut Here;
    static plimsoll_passing: Here;
    static plimsoll_counting: Here;
}

/// The record of this thread, at its first call; a stand-in where nothing is recorded.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_arrive() -> *mut Here {
    // Here and not in a static: a panic must not leave C's frames.
    let here = std::panic::catch_unwind(arrive).unwrap_or_else(|_| passing());
    // SAFETY: the record stays as long as the process runs.
    unsafe { plimsoll_set_here(here) };
    here
}

/// A record with which calls pass straight through. Its first words are never written.
fn passing() -> *mut Here {
    (&raw const plimsoll_passing).cast_mut()
}

fn arrive() -> *mut Here {
    static START: Once = Once::new();
    START.call_once(|| {
        let next = match std::env::var_os(variable::FOLDER) {
            Some(folder) if !folder.is_empty() => match Rank::start(PathBuf::from(folder)) {
                Ok(rank) => {
                    let _ = RANK.set(rank);
                    state::RECORDING
                }
                Err(complaint) => {
                    complaint.say();
                    state::OFF
                }
            },
            _ => state::OFF,
        };
        STATE.store(next, Ordering::Release);
    });
    match (STATE.load(Ordering::Acquire), RANK.get()) {
        (state::RECORDING, Some(rank)) => rank.thread(),
        _ => passing(),
    }
}

/// Whether a call is one of the program's own although the thread's record says that it is in one.
///
/// # Safety
/// `here` is this thread's, or a stand-in; `frame` is in the wrapper's frame.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_outermost(here: *mut Here, frame: *const c_void) -> c_int {
    // SAFETY: by this function's contract; stand-ins have the first four fields too.
    let (depth, outer) = unsafe { ((*here).depth, (*here).frame) };
    match depth {
        depth::COUNTING => {
            if let Some(rank) = RANK.get() {
                rank.dropped(|dropped| &raw mut dropped.calls);
            }
            0
        }
        // Frames grow downwards: a wrapper that is further up was left by longjmp or by an exception.
        depth::INSIDE => c_int::from(frame >= outer),
        _ => 0,
    }
}

/// A datatype, communicator or window is about to be freed: its handle may come to mean something else.
///
/// # Safety
/// Called by the generated wrappers with the address of a handle of the kind that `what` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_forget(what: c_int, of: u32, address: usize) {
    GENERATION.fetch_add(2, Ordering::Relaxed);
    let Some(rank) = recording() else { return };
    let kind = match what {
        1 => Kind::Communicator,
        2 => Kind::Window,
        _ => return,
    };
    if address == 0 {
        return;
    }
    // SAFETY: by this function's contract.
    let handle = unsafe {
        match of {
            language::FORTRAN | language::LARGE_FORTRAN => Handle::fortran(*(address as *const i32)),
            _ if rank.abi.handle_bytes == 4 => Handle::c(*(address as *const u32) as usize),
            _ => Handle::c(*(address as *const usize)),
        }
    };
    if !handle.is_fortran() || rank.placed() {
        // SAFETY: the program passes it as one that the MPI knows.
        unsafe { rank.communicators.forget(handle, kind, &rank.mpi, &rank.abi) };
    }
}

/// MPI_Pcontrol: 0 pauses recording, 1 goes on, every level marks a phase.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_phase(level: c_int) {
    // SAFETY: the thread's own record or none.
    let here = match unsafe { plimsoll_get_here() } {
        // The first call of all: recording may begin paused.
        here if here.is_null() => plimsoll_arrive(),
        here => here,
    };
    let Some(rank) = recording() else { return };
    match level {
        0 => GENERATION.fetch_or(1, Ordering::Relaxed),
        1 => GENERATION.fetch_and(!1, Ordering::Relaxed),
        _ => 0,
    };
    // SAFETY: a thread's record stays; stand-ins have no index.
    let thread = unsafe { if (*here).depth > depth::INSIDE { 0 } else { (*here).index } };
    rank.phase(level, thread);
}

/// The process ends in order.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_ended() {
    let Some(rank) = recording() else { return };
    // A child that was made without fork's handlers has the same memory.
    if rank.pid != std::process::id() {
        return;
    }
    rank.refresh();
    // SAFETY: the header is mapped as long as the process runs.
    unsafe { (*rank.header).ended = clock::ticks(rank.clock) };
}

/// In the child of a fork: the file is the parent's.
extern "C" fn forked() {
    STATE.store(state::OFF, Ordering::Relaxed);
    // SAFETY: the only thread that the child has.
    unsafe { plimsoll_set_here(passing()) };
}

extern "C" fn left(here: *mut c_void) {
    let Some(rank) = recording() else { return };
    // SAFETY: the value of the key is this thread's record, which stays and which nobody else has.
    unsafe {
        let here = here.cast::<Here>();
        plimsoll_set_here(ptr::null_mut());
        (*here).depth = depth::OUTSIDE;
        (*(*here).thread).ended = clock::ticks(rank.clock);
        (*(*here).thread).inside = 0;
        rank.threads.lock().unwrap_or_else(PoisonError::into_inner).free.push(Spare(here));
    }
}

impl Rank {
    fn start(folder: PathBuf) -> Result<Rank, Complaint> {
        let (mpi, abi) = Mpi::find()?;
        let limit = match std::env::var(variable::MEMORY) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let cause = format!("{} is no number of bytes: {text}", variable::MEMORY);
                Complaint::new(cause, "set it to the bytes that a rank's tables may take, or leave it out")
            })?,
            Err(_) => MEMORY,
        };
        let host = host();
        let timeline = Timeline::wanted(&folder, &host)?;
        let pid = std::process::id();
        let tables = Tables::create(&folder::rank_file(&folder, &host, pid), limit)?;
        let clock = clock::kind();
        let header = tables.header();
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // SAFETY: the header is mapped, and nobody else writes to it yet.
        unsafe {
            (*header).pid = pid;
            (*header).family = abi.family;
            (*header).clock = clock;
            (*header).traced = u32::from(timeline.is_some());
            (*header).started = clock::moment(clock);
            (*header).latest = (*header).started;
            (*header).host = layout::text(&host);
            (*header).boot = layout::text(boot.trim());
            (*header).program = layout::text(&program.to_string_lossy());
            (*header).library = layout::text(&mpi.version());
            (*header).world = layout::text(&world::name());
        }
        // SAFETY: the handler stays in memory, since this library is never unloaded before the process ends.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        sampler::start(&folder, boot.trim());
        Ok(Rank {
            mpi,
            abi,
            clock,
            rules: rules::rules(),
            communicators: Communicators::default(),
            requests: Shared::new(),
            timeline,
            fortran: OnceLock::new(),
            pid,
            header,
            tables: Mutex::new(tables),
            modules: Mutex::default(),
            phases: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// The record of a thread that calls for the first time.
    fn thread(&'static self) -> *mut Here {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it takes no arguments.
        let tid = unsafe { libc::gettid() } as u32;
        let spare = threads.free.pop().or_else(|| self.new_thread(&mut threads));
        let Some(Spare(here)) = spare else { return (&raw const plimsoll_counting).cast_mut() };
        // SAFETY: the record is this thread's now; its thread's entry is mapped as long as the process runs.
        unsafe {
            (*(*here).thread).tid = tid;
            (*(*here).thread).ended = 0;
            libc::pthread_setspecific(key(), here.cast());
        }
        here
    }

    fn new_thread(&'static self, threads: &mut Threads) -> Option<Spare> {
        if usize::from(threads.known) == THREADS {
            return None;
        }
        let room = self.region(Region {
            kind: kind::THREAD,
            thread: threads.known,
            record_bytes: size_of::<Thread>() as u32,
            capacity: 1,
            used: 1,
            ..Region::default()
        })?;
        let mut here = Here::new(self, threads.known, room.start.as_ptr().cast());
        if threads.known == 0 {
            // SAFETY: the header is mapped, and this is the first thread.
            unsafe { (*self.header).cost = recorder::cost(self) };
        }
        here.trace();
        threads.known += 1;
        if threads.known > 1 {
            // Whatever the program promised the MPI.
            self.requests.set_locking();
        }
        // SAFETY: the header is mapped, and this word is written under the lock of the threads.
        unsafe { (*self.header).threads = u32::from(threads.known) };
        Some(Spare(Box::into_raw(Box::new(here))))
    }

    pub fn region(&self, entry: Region) -> Option<Room> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).region(entry)
    }

    /// A communicator or a window is used by a thread for the first time.
    pub fn met(&self, group: &Arc<Communicator>) {
        if let Some(timeline) = &self.timeline {
            timeline.met(self, group);
        }
    }

    pub fn locate(&self, address: usize) -> Where {
        let modules = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = modules().known(address) {
            return known;
        }
        let Some(found) = sites::find(address) else { return sites::nowhere(address) };
        modules().meet(address, found, &mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts something that is not recorded.
    #[cold]
    pub fn dropped(&self, which: impl FnOnce(&mut Dropped) -> *mut u64) {
        // SAFETY: the header is mapped; the counters are only touched here, as atomics.
        unsafe {
            let counter = which(&mut (*self.header).dropped);
            AtomicU64::from_ptr(counter).fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn world_size(&self) -> u32 {
        // SAFETY: the header is mapped.
        unsafe { (*self.header).size }
    }

    fn placed(&self) -> bool {
        // SAFETY: the header is mapped.
        unsafe { (*self.header).placed != 0 }
    }

    pub fn is_in_place(&self, word: usize, of: u32) -> bool {
        if of < language::FORTRAN { word == self.abi.in_place } else { self.fortran().is_in_place(word) }
    }

    fn fortran(&self) -> &Fortran {
        self.fortran.get_or_init(Fortran::find)
    }

    /// Notes the present moment, from which the rate of ticks follows.
    #[cold]
    pub fn refresh(&self) {
        static TURN: Mutex<()> = Mutex::new(());
        if let Ok(_turn) = TURN.try_lock() {
            // SAFETY: the header is mapped, and this record is written under the lock.
            unsafe { (*self.header).latest = clock::moment(self.clock) };
        }
    }

    /// MPI_Init has returned.
    #[cold]
    pub fn initialized(&self, ticks: u64) {
        let world = Handle::c(self.abi.comm_world);
        // SAFETY: MPI is initialized; the header is mapped.
        unsafe {
            (*self.header).initialized = ticks;
            let mut level = 0;
            if (self.mpi.query_thread)(&mut level) == 0 {
                (*self.header).thread_level = self.abi.thread_level(level);
                if (*self.header).thread_level == 3 {
                    self.requests.set_locking();
                }
            }
            // In this order: they are numbers 0 and 1.
            let world = self.communicators.get(world, Kind::Communicator, &self.mpi, &self.abi);
            self.communicators.get(Handle::c(self.abi.comm_self), Kind::Communicator, &self.mpi, &self.abi);
            if let Some(world) = world {
                (*self.header).rank = world.rank as u32;
                (*self.header).size = world.size;
                if world.size == 1 && (*self.header).world[0] == 0 {
                    (*self.header).world = layout::text(&format!("alone={}", self.pid));
                }
                (&raw mut (*self.header).placed).write_volatile(1);
            }
        }
        self.refresh();
    }

    pub fn finalizing(&self) {
        self.refresh();
        // SAFETY: the header is mapped.
        unsafe { (*self.header).finalized = clock::ticks(self.clock) };
    }

    pub fn aborting(&self) {
        self.refresh();
        // SAFETY: the header is mapped.
        unsafe { (*self.header).aborted = clock::ticks(self.clock) };
    }

    fn phase(&self, level: i32, thread: u16) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        if phases.room.is_none() || phases.used == PHASES_AT_ONCE {
            let room = (phases.all < PHASES).then(|| {
                self.region(Region {
                    kind: kind::PHASES,
                    thread: WHOLE_RANK,
                    record_bytes: size_of::<Phase>() as u32,
                    capacity: PHASES_AT_ONCE,
                    ..Region::default()
                })
            });
            let Some(room) = room.flatten() else { return self.dropped(|dropped| &raw mut dropped.phases) };
            (phases.room, phases.used) = (Some(room), 0);
        }
        let Some(room) = phases.room else { return };
        let phase = Phase { ticks: clock::ticks(self.clock), level, thread: u32::from(thread) };
        // SAFETY: the region has room for PHASES_AT_ONCE records, of which `used` are taken.
        unsafe {
            room.start.as_ptr().cast::<Phase>().add(phases.used as usize).write(phase);
            phases.used += 1;
            phases.all += 1;
            (&raw mut (*room.entry.as_ptr()).used).write_volatile(phases.used);
        }
    }
}

/// The key whose destructor tells that a thread ends.
fn key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor stays in memory.
        unsafe { libc::pthread_key_create(&mut key, Some(left)) };
        key
    })
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as said, less the 0 that ends the text.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    layout::words(&name)
}
