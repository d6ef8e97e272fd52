//! The life of a profiled process: the first call of each thread, what becomes known on the way, forks and ends.

use std::ffi::{c_int, c_void};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use record::folder::{self, variable};
use record::layout::{self, Dropped, Region, THREADS, Thread, kind, perturbed};

use crate::abi::Abi;
use crate::call::{Handle, language};
use crate::clock;
use crate::communicators::{self, Communicator, Communicators, Kind};
use crate::complaint::Complaint;
use crate::contained::{self, contained};
use crate::fortran::Fortran;
use crate::heading::Heading;
use crate::here::{Here, depth};
use crate::models::{Model, Models};
use crate::past;
use crate::perturb::Asked;
use crate::phases::Phases;
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

/// Everything of the process that is recorded.
#[derive(Debug)]
pub struct Rank {
    pub mpi: Mpi,
    pub abi: Abi,
    pub clock: u32,
    pub rules: Vec<Rule>,
    pub communicators: Communicators,
    pub models: Models,
    pub requests: Shared,
    /// `None` where no timeline is asked for.
    pub timeline: Option<Timeline>,
    /// `None` where none are asked for.
    pub delays: Option<Asked>,
    fortran: OnceLock<Fortran>,
    /// Of the profile.
    folder: PathBuf,
    pid: u32,
    /// What of [`record::layout::perturbed`] is noted already.
    told: AtomicU32,
    heading: Heading,
    /// Ranks of MPI_COMM_WORLD, once they are known.
    size: AtomicU32,
    /// The process seemed to end, and the tables are sealed.
    closed: AtomicBool,
    tables: Mutex<Tables>,
    modules: Mutex<Modules>,
    phases: Mutex<Phases>,
    threads: Mutex<Threads>,
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
    /// A defect of ours ended it; what was recorded until then stays.
    pub const FAILED: u32 = 3;
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

/// The binary interface of this process's MPI, once it is known.
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
    contained::tell_in_one_line();
    let here = contained(passing(), arrive);
    // SAFETY: the record stays as long as the process runs.
    unsafe { plimsoll_set_here(here) };
    here
}

/// A panic of the library: this thread records no more, and the others learn of it by their stale caches.
#[cold]
pub fn failed() {
    let was = STATE.compare_exchange(state::RECORDING, state::FAILED, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: the stand-in stays as long as the process runs.
    unsafe { plimsoll_set_here(passing()) };
    GENERATION.fetch_add(2, Ordering::Release);
    if let Some(rank) = RANK.get().filter(|_| was.is_ok()) {
        rank.heading.change(|header| header.failed = clock::ticks(rank.clock));
    }
}

/// Asked by a thread whose caches are stale: whether it still records. Where it does not it is let through from now on.
#[cold]
pub fn goes_on(rank: &Rank) -> bool {
    if STATE.load(Ordering::Acquire) != state::RECORDING {
        // SAFETY: the stand-in stays as long as the process runs.
        unsafe { plimsoll_set_here(passing()) };
        return false;
    }
    // The process seemed to end, and calls MPI nevertheless.
    if rank.closed.swap(false, Ordering::AcqRel) {
        rank.heading.change(|header| header.closed = 0);
    }
    true
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
/// `here` is this thread's, or a stand-in; `frame` is where the frame of the wrapper's caller ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_outermost(here: *mut Here, frame: *const c_void) -> c_int {
    // SAFETY: by this function's contract; stand-ins have the first four fields too.
    let (depth, outer) = unsafe { ((*here).depth, (*here).frame) };
    match depth {
        depth::COUNTING => {
            if let Some(rank) = recording() {
                contained((), || rank.dropped(|dropped| &raw mut dropped.calls));
            }
            0
        }
        // Frames grow downwards: who calls from above an outer wrapper's record has left that wrapper by longjmp or by an
        // exception.
        depth::INSIDE => c_int::from(frame > outer),
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
    // SAFETY: by this function's contract.
    contained((), || unsafe { forget(rank, what, of, address) });
}

/// # Safety
/// As of [`plimsoll_forget`].
unsafe fn forget(rank: &Rank, what: c_int, of: u32, address: usize) {
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
    if !handle.is_fortran() || rank.world_size() > 0 {
        // SAFETY: the program passes it as one that the MPI knows.
        unsafe { rank.communicators.forget(handle, kind, &rank.mpi, &rank.abi) };
    }
}

/// MPI_Pcontrol: 0 pauses recording, 1 goes on, every level marks a phase.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_phase(level: c_int) {
    contained((), || phase(level));
}

fn phase(level: c_int) {
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
    rank.phases.lock().unwrap_or_else(PoisonError::into_inner).mark(rank, level, thread);
}

/// The process ends in order.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_ended() {
    if STATE.load(Ordering::Relaxed) == state::FRESH {
        return contained((), past::note_silent);
    }
    let Some(rank) = RANK.get().filter(|_| STATE.load(Ordering::Relaxed) != state::OFF) else { return };
    // A child that was made without fork's handlers has the same memory.
    if rank.pid == std::process::id() {
        contained((), || rank.ended());
    }
}

/// In the child of a fork: the file is the parent's.
extern "C" fn forked() {
    STATE.store(state::OFF, Ordering::Relaxed);
    // SAFETY: the only thread that the child has.
    unsafe { plimsoll_set_here(passing()) };
}

extern "C" fn left(here: *mut c_void) {
    if let Some(rank) = recording() {
        contained((), || leave(rank, here));
    }
}

fn leave(rank: &Rank, here: *mut c_void) {
    // SAFETY: the value of the key is this thread's record, which stays and which nobody else has.
    unsafe {
        let here = here.cast::<Here>();
        plimsoll_set_here(ptr::null_mut());
        (*here).depth = depth::OUTSIDE;
        (*here).close();
        seal_thread((*here).thread, (*(*here).thread).tid, clock::ticks(rank.clock));
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
        let (tables, heading) = Tables::create(&folder::rank_file(&folder, &host, pid), limit)?;
        let clock = clock::kind();
        let (delays, perturbed) = Asked::read(&folder, &host, clock);
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino() as u32);
        heading.change(|header| {
            header.pid = pid;
            header.pid_namespace = namespace;
            header.family = abi.family;
            header.clock = clock;
            header.perturbed = perturbed;
            header.traced = u32::from(timeline.is_some());
            header.started = clock::moment(clock);
            header.latest = header.started;
            header.host = layout::text(&host);
            header.boot = layout::text(boot.trim());
            header.program = layout::text(&program.to_string_lossy());
            header.library = layout::text(&mpi.version());
            header.world = layout::text(&world::name());
        });
        // SAFETY: the handler stays in memory, since this library is never unloaded before the process ends.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        sampler::start(&folder, boot.trim());
        Ok(Rank {
            mpi,
            abi,
            clock,
            rules: rules::rules(),
            communicators: Communicators::default(),
            models: Models::default(),
            requests: Shared::new(),
            timeline,
            delays,
            fortran: OnceLock::new(),
            folder,
            pid,
            told: AtomicU32::new(0),
            heading,
            size: AtomicU32::new(0),
            closed: AtomicBool::new(false),
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
            seal_thread((*here).thread, tid, 0);
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
            record_bytes: size_of::<Thread>() as u16,
            capacity: 1,
            used: 1,
            ..Region::default()
        })?;
        let mut here = Here::new(self, threads.known, room.start.as_ptr().cast());
        let cost = if threads.known == 0 { recorder::cost(self) } else { 0 };
        here.begin();
        threads.known += 1;
        if threads.known > 1 {
            // Whatever the program promised the MPI.
            self.requests.set_locking();
        }
        self.heading.change(|header| {
            header.cost = header.cost.max(cost);
            header.threads = u32::from(threads.known);
        });
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
        self.heading.dropped(which);
    }

    /// Notes what became of delays: one of [`record::layout::perturbed`].
    #[cold]
    pub fn perturbed(&self, what: u32) {
        if self.told.fetch_or(what, Ordering::Relaxed) & what == 0 {
            self.heading.change(|header| header.perturbed |= what);
        }
    }

    /// Ranks of MPI_COMM_WORLD; 0 where that is not known yet.
    pub fn world_size(&self) -> u32 {
        self.size.load(Ordering::Relaxed)
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
        let latest = clock::moment(self.clock);
        self.heading.change(|header| header.latest = latest);
    }

    /// MPI_Init or MPI_Session_init has returned. Threads may open both at once.
    #[cold]
    pub fn opened(&self, model: Model, ticks: u64) {
        self.models.opened(model);
        self.heading.change(|header| {
            // Of several the first.
            header.initialized = if header.initialized == 0 { ticks } else { header.initialized };
            header.finalized = 0;
        });
        let mut level = 0;
        // SAFETY: MPI is initialized.
        if model == Model::World && unsafe { (self.mpi.query_thread)(&mut level) } == 0 {
            let level = self.abi.thread_level(level);
            self.heading.change(|header| header.thread_level = level);
            if level == 3 {
                self.requests.set_locking();
            }
        }
        // SAFETY: the model is open as long as this is asked.
        let place = unsafe {
            let asking = self.models.ask();
            asking.model.and_then(|model| communicators::place(model, &self.mpi, &self.abi))
        };
        if let Some((rank, size)) = place {
            self.size.store(size, Ordering::Relaxed);
            if self.delays.as_ref().is_some_and(|asked| !asked.is_placed(rank, size)) {
                self.perturbed(perturbed::MISPLACED);
            }
            self.heading.change(|header| {
                (header.rank, header.size, header.placed) = (rank, size, 1);
                if size == 1 && header.world[0] == 0 {
                    header.world = layout::text(&format!("alone={}", self.pid));
                }
            });
        }
        // What could not be told before may be told now.
        GENERATION.fetch_add(2, Ordering::Relaxed);
        self.refresh();
    }

    /// MPI_Finalize or MPI_Session_finalize is about to be called.
    #[cold]
    pub fn closing(&self, model: Model) {
        let ticks = clock::ticks(self.clock);
        self.refresh();
        if self.models.closing(model) {
            self.heading.change(|header| header.finalized = ticks);
            past::note_bound(&self.folder, &host());
        }
    }

    /// It failed.
    #[cold]
    pub fn reopened(&self, model: Model) {
        self.models.opened(model);
        self.heading.change(|header| header.finalized = 0);
    }

    #[cold]
    pub fn aborting(&self) {
        self.refresh();
        self.heading.change(|header| header.aborted = clock::ticks(self.clock));
    }

    /// The process ends in order. Should it go on nevertheless, its next call takes this back ([`goes_on`]).
    fn ended(&self) {
        // SAFETY: the thread's own record, a stand-in, or none.
        let here = unsafe { plimsoll_get_here() };
        // SAFETY: as above; stand-ins are of greater depth.
        if !here.is_null() && unsafe { (*here).depth } <= depth::INSIDE {
            // SAFETY: it is a whole record, and this thread's.
            unsafe { (*here).close() };
        }
        self.refresh();
        let ticks = clock::ticks(self.clock);
        if clock::is_given_up(self.clock) {
            let cause = "the kernel has given up the processor's counter meanwhile, so that times may be wrong";
            Complaint::new(cause, "profile it again").say_lost();
        }
        // Sessions that were left open are no reason to call the end another.
        let is_over = self.models.world_is_over();
        self.heading.change(|header| {
            header.ended = ticks;
            header.finalized = if header.finalized == 0 && is_over { ticks } else { header.finalized };
        });
        // Whoever holds them was interrupted by what ended the process.
        let Ok(mut tables) = self.tables.try_lock() else { return };
        self.closed.store(true, Ordering::Release);
        GENERATION.fetch_add(2, Ordering::Release);
        tables.close();
        self.heading.close(ticks);
    }
}

/// Whose a thread's totals are, and when it ended.
///
/// # Safety
/// The record is mapped, and the caller's.
unsafe fn seal_thread(thread: *mut Thread, tid: u32, ended: u64) {
    let seal = Thread { tid, ended, ..Thread::default() }.sealed().seal;
    // SAFETY: by this function's contract.
    unsafe {
        (&raw mut (*thread).tid).write_volatile(tid);
        (&raw mut (*thread).ended).write_volatile(ended);
        (&raw mut (*thread).seal).write_volatile(seal);
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

pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as said, less the 0 that ends the text.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    layout::words(&name)
}
