//! The life of a profiled process: the first call of each thread, freed handles, phases, forks and ends.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use record::folder::variable;
use record::layout::{Region, THREADS as MOST, Thread, kind};

use crate::call::{Handle, language};
use crate::clock;
use crate::communicators::Kind;
use crate::contained::{self, contained};
use crate::here::{Here, depth};
use crate::past;
use crate::rank::{Rank, host};
use crate::real;
use crate::recorder;
use crate::state::{self, STATE};

#[derive(Debug, Default)]
struct Threads {
    known: u16,
    /// Records of threads that ended, for the next threads.
    free: Vec<Spare>,
}

/// A record that belongs to no thread. Records are never freed.
#[derive(Debug)]
struct Spare(*mut Here);

// SAFETY: the record passes from a thread that ended to one that begins.
unsafe impl Send for Spare {}

static RANK: OnceLock<Rank> = OnceLock::new();
static THREADS: Mutex<Threads> = Mutex::new(Threads { known: 0, free: Vec::new() });

/// The rank, while it records; `None` in the child of a fork too, where a lock may be held for ever.
fn recording() -> Option<&'static Rank> {
    RANK.get().filter(|_| STATE.load(Ordering::Relaxed) == state::RECORDING)
}

/// Sets and returns the record of this thread at its first call; a stand-in where nothing is recorded.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_arrive() -> *mut Here {
    contained::tell_in_one_line();
    let here = contained(state::passing().cast(), arrive);
    // SAFETY: the record stays as long as the process runs.
    unsafe { state::set_here(here.cast()) };
    here
}

fn arrive() -> *mut Here {
    static START: Once = Once::new();
    START.call_once(|| {
        let next = match std::env::var_os(variable::FOLDER) {
            Some(folder) if !folder.is_empty() => match Rank::start(PathBuf::from(folder)) {
                Ok(rank) => {
                    // SAFETY: the handler stays in memory, since this library is never unloaded before the process ends.
                    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
                    real::UNSUPPORTED.store(rank.abi.unsupported as usize, Ordering::Relaxed);
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
        (state::RECORDING, Some(rank)) => thread(rank),
        _ => state::passing().cast(),
    }
}

/// Whether a call comes from the program although the thread's record has the thread inside a call.
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
        // Stacks grow downwards: a caller above the record of the outer wrapper has left that wrapper by longjmp or by an
        // exception.
        depth::INSIDE => c_int::from(frame > outer),
        _ => 0,
    }
}

/// Makes caches stale before a datatype, communicator or window is freed, since its handle may be reused.
///
/// # Safety
/// Called by the generated wrappers with the address of a handle of the kind `what`.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_forget(what: c_int, of: u32, address: usize) {
    state::GENERATION.fetch_add(2, Ordering::Relaxed);
    let Some(rank) = recording() else { return };
    // SAFETY: by this function's contract.
    contained((), || unsafe { forget(rank, what, of, address) });
}

/// # Safety
/// The contract of [`plimsoll_forget`].
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
        // SAFETY: the program passes the handle to the MPI as a valid one.
        unsafe { rank.communicators.forget(handle, kind, &rank.mpi, &rank.abi) };
    }
}

/// MPI_Pcontrol: level 0 pauses recording, level 1 resumes it, every level marks a phase.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_phase(level: c_int) {
    contained((), || phase(level));
}

fn phase(level: c_int) {
    let here = match state::here().cast::<Here>() {
        // MPI_Pcontrol as the first call: recording may begin paused.
        here if here.is_null() => plimsoll_arrive(),
        here => here,
    };
    let Some(rank) = recording() else { return };
    match level {
        0 => state::GENERATION.fetch_or(1, Ordering::Relaxed),
        1 => state::GENERATION.fetch_and(!1, Ordering::Relaxed),
        _ => 0,
    };
    // SAFETY: a thread's record stays; stand-ins have no index.
    let thread = unsafe { if (*here).depth > depth::INSIDE { 0 } else { (*here).index } };
    rank.mark(level, thread);
}

/// Runs at an orderly exit of the process.
#[unsafe(no_mangle)]
extern "C" fn plimsoll_ended() {
    if STATE.load(Ordering::Relaxed) == state::FRESH {
        return contained((), || past::note_silent(&host()));
    }
    let Some(rank) = RANK.get().filter(|_| STATE.load(Ordering::Relaxed) != state::OFF) else { return };
    // A child made without fork's handlers has a copy of this memory, but another pid.
    if rank.pid == std::process::id() {
        contained((), || ended(rank));
    }
}

/// Ends recording in the child of a fork: the file is the parent's.
extern "C" fn forked() {
    STATE.store(state::OFF, Ordering::Relaxed);
    state::pass();
}

extern "C" fn left(here: *mut c_void) {
    if let Some(rank) = recording() {
        contained((), || leave(rank, here));
    }
}

fn leave(rank: &Rank, here: *mut c_void) {
    // SAFETY: the value of the key is this thread's record, which is never freed and has no other user.
    unsafe {
        let here = here.cast::<Here>();
        state::set_here(ptr::null_mut());
        (*here).depth = depth::OUTSIDE;
        (*here).close();
        seal_thread((*here).thread, (*(*here).thread).tid, clock::ticks(rank.clock));
        (*(*here).thread).inside = 0;
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).free.push(Spare(here));
    }
}

/// Closes this thread's timeline and the rank's tables.
fn ended(rank: &Rank) {
    let here = state::here().cast::<Here>();
    // SAFETY: the thread's own record, a stand-in, or none; stand-ins are of greater depth.
    if !here.is_null() && unsafe { (*here).depth } <= depth::INSIDE {
        // SAFETY: the record is whole, and this thread's.
        unsafe { (*here).close() };
    }
    rank.ended();
}

/// The record of a thread at its first call.
fn thread(rank: &'static Rank) -> *mut Here {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the call takes no arguments.
    let tid = unsafe { libc::gettid() } as u32;
    let spare = threads.free.pop().or_else(|| new_thread(rank, &mut threads));
    let Some(Spare(here)) = spare else { return state::counting().cast() };
    // SAFETY: the record belongs to this thread; its entry in the tables is mapped as long as the process runs.
    unsafe {
        seal_thread((*here).thread, tid, 0);
        libc::pthread_setspecific(key(), here.cast());
    }
    here
}

fn new_thread(rank: &'static Rank, threads: &mut Threads) -> Option<Spare> {
    if usize::from(threads.known) == MOST {
        return None;
    }
    let room = rank.region(Region {
        kind: kind::THREAD,
        thread: threads.known,
        record_bytes: size_of::<Thread>() as u16,
        capacity: 1,
        used: 1,
        ..Region::default()
    })?;
    let mut here = Here::new(rank, threads.known, room.start.as_ptr().cast());
    let cost = if threads.known == 0 { recorder::cost(rank) } else { 0 };
    here.begin();
    threads.known += 1;
    if threads.known > 1 {
        // A program may call MPI beyond the thread level that it requested.
        rank.requests.set_locking();
    }
    rank.heading.change(|header| {
        header.cost = header.cost.max(cost);
        header.threads = u32::from(threads.known);
    });
    Some(Spare(Box::into_raw(Box::new(here))))
}

/// Writes the thread to which the totals belong, and the ticks of its end; 0: it runs.
///
/// # Safety
/// The record is mapped, and belongs to the caller.
unsafe fn seal_thread(thread: *mut Thread, tid: u32, ended: u64) {
    let seal = Thread { tid, ended, ..Thread::default() }.sealed().seal;
    // SAFETY: by this function's contract.
    unsafe {
        (&raw mut (*thread).tid).write_volatile(tid);
        (&raw mut (*thread).ended).write_volatile(ended);
        (&raw mut (*thread).seal).write_volatile(seal);
    }
}

/// The key whose destructor runs at the end of a thread.
fn key() -> libc::pthread_key_t {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor stays in memory.
        unsafe { libc::pthread_key_create(&mut key, Some(left)) };
        key
    })
}
