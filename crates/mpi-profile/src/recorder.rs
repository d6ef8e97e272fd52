//! The counting of a call, with the path that short calls take.

use std::ptr;
use std::sync::Arc;

use record::functions;
use record::layout::{Cell, ROW_CELLS, Site, Thread};
use record::scale::{size_class, time_class};
use record::trace::site;

use crate::amount;
use crate::call::{Call, Facts, language};
use crate::clock;
use crate::communicators::NO_RANK;
use crate::contained::contained;
use crate::here::{Here, add, depth, extra};
use crate::models::Model;
use crate::operations;
use crate::perturb;
use crate::rank::Rank;
use crate::rules::{NONE, Requests, Rule, Special};
use crate::state;
use crate::trace;

/// Runs before a call that may overwrite its own arguments, such as requests, and before one that ends MPI.
///
/// # Safety
/// Called by the generated wrappers: `here` is this thread's, `call` has the function's arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_before(here: *mut Here, call: *mut Call) {
    // SAFETY: by this function's contract.
    contained((), || unsafe { before(&mut *here, &mut *call) });
}

/// # Safety
/// The contract of [`plimsoll_before`].
unsafe fn before(here: &mut Here, call: &mut Call) {
    // SAFETY: each function of the table has a rule.
    let rule = unsafe { &*here.rules.add(call.function as usize) };
    match rule.special {
        Special::Finalize => here.rank.closing(Model::World),
        Special::Closes(argument) => {
            // SAFETY: the program passes the address of its session.
            if let Some(session) = unsafe { session(here, call, argument) } {
                call.kept = session as u64;
                here.rank.closing(Model::Session(session));
            }
        }
        Special::Abort => here.rank.aborting(),
        _ => {}
    }
    // SAFETY: the program's arguments are those of the function.
    unsafe {
        operations::keep(here, call, rule);
        if here.tracing.is_some() {
            trace::before(here, call);
        }
    }
}

/// Runs before a call that begins messages, where there are delays, and before any other where computing is delayed.
///
/// # Safety
/// The contract of [`plimsoll_before`].
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_post(here: *mut Here, call: *const Call) {
    // SAFETY: by this function's contract.
    contained((), || unsafe { perturb::post(&mut *here, &*call) });
}

/// Runs after every recorded call.
///
/// # Safety
/// The contract of [`plimsoll_before`].
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_after(here: *mut Here, call: *const Call, elapsed: u64) {
    // SAFETY: by this function's contract.
    contained((), || unsafe { after(&mut *here, &*call, elapsed) });
}

/// # Safety
/// The contract of [`plimsoll_before`].
#[inline(always)]
unsafe fn after(here: &mut Here, call: &Call, elapsed: u64) {
    let generation = state::generation();
    if generation != here.generation && !here.forget(generation) {
        return;
    }
    // SAFETY: each function of the table has a rule, and rules are never moved or freed.
    let rule = unsafe { &*here.rules.add(call.function as usize) };
    // SAFETY: where the call succeeded its handles are known to the MPI.
    let facts = unsafe {
        match call.succeeded() {
            true if rule.simple && call.language == language::C => simple(here, call, rule),
            true => general(here, call, rule),
            false => {
                failed(here, call, rule);
                Facts::default()
            }
        }
    };
    let paused = state::paused(generation);
    let site = if paused { ptr::null() } else { count(here, call, rule, facts, elapsed) };
    if here.extra != 0 {
        // SAFETY: the arguments are as they were passed.
        unsafe { more(here, call, rule, facts, site) };
    }
    // SAFETY: the thread's record is mapped as long as the process runs.
    unsafe { (*here.thread).inside = 0 };
    here.depth = depth::OUTSIDE;
}

/// # Safety
/// The call failed; its arguments are as they were passed.
#[cold]
unsafe fn failed(here: &mut Here, call: &Call, rule: &Rule) {
    match rule.special {
        Special::Finalize => here.rank.reopened(Model::World),
        Special::Closes(_) if call.kept != 0 => here.rank.reopened(Model::Session(call.kept as usize)),
        // SAFETY: by this function's contract.
        _ => unsafe { operations::failed(here, call, rule) },
    }
}

/// The C handle of the session to which the argument points; `None` where the MPI cannot convert it from Fortran.
///
/// # Safety
/// The argument is the address of a session.
#[cold]
unsafe fn session(here: &Here, call: &Call, argument: u8) -> Option<usize> {
    // SAFETY: by this function's contract.
    let handle = unsafe { call.handle_at(argument, 0, here.abi()) };
    match here.mpi().session_of {
        _ if !handle.is_fortran() => Some(handle.0 as usize),
        // SAFETY: the program has the handle from the MPI.
        Some(of) if here.abi().handle_bytes == 8 => Some(unsafe { of(handle.integer()) }),
        None if here.abi().handle_bytes == 8 => None,
        _ => Some(handle.integer() as u32 as usize),
    }
}

/// A function of its own, so that `facts` stay in registers where there is neither a timeline nor a delay.
///
/// # Safety
/// The contract of [`trace::note`].
#[inline(never)]
unsafe fn more(here: &mut Here, call: &Call, rule: &Rule, facts: Facts, site: *const Site) {
    // SAFETY: by this function's contract; sites and the thread's record are mapped as long as the process runs.
    unsafe {
        let number = if site.is_null() { site::ABSENT } else { (*site).number };
        trace::note(here, call, rule, &facts, number);
        // A delay is no part of the call.
        (*here.thread).inside = 0;
        if here.extra & extra::DELAY != 0 {
            perturb::after(here, call, rule, &facts, site);
        }
    }
}

/// # Safety
/// The call succeeded.
#[inline]
unsafe fn simple(here: &mut Here, call: &Call, rule: &Rule) -> Facts {
    let abi = here.abi();
    let sends = rule.dest != NONE;
    // SAFETY: by this function's contract.
    unsafe {
        let peer = call.integer(if sends { rule.dest } else { rule.source });
        // A message with MPI_PROC_NULL has no bytes.
        let somebody = peer != abi.proc_null;
        let bytes = if somebody { amount::elements(here, call, rule, rule.count, rule.datatype) } else { 0 };
        let mut to = None;
        let message_begins = sends && somebody;
        if message_begins {
            let comm = call.handle(rule.comm, abi);
            to = here.communicator(comm).and_then(|comm| comm.world_rank(peer));
            here.message(to, bytes);
        }
        if let Requests::Begins(_) = rule.requests {
            begin(here, call, rule, to, bytes);
        }
        let messages = u64::from(message_begins);
        Facts { bytes, group: 0, messages, message_bytes: if message_begins { bytes } else { 0 } }
    }
}

/// # Safety
/// The call succeeded.
#[inline(never)]
unsafe fn begin(here: &mut Here, call: &Call, rule: &Rule, to: Option<u32>, bytes: u64) {
    // SAFETY: by this function's contract. The cache keeps a communicator until the next call.
    unsafe {
        let comm = here.communicator(call.handle(rule.comm, here.abi())).map(|comm| &*Arc::as_ptr(comm));
        operations::begin(here, call, rule, comm, to.unwrap_or(NO_RANK), bytes);
    }
}

/// # Safety
/// The contract of [`add`].
#[inline]
unsafe fn raise(counter: *mut u64, to: u64) {
    // SAFETY: by this function's contract.
    unsafe {
        if to > counter.read_volatile() {
            counter.write_volatile(to);
        }
    }
}

/// Counts the call. Returns the counters of its call site; null where the tables have no room for them.
#[inline]
fn count(here: &mut Here, call: &Call, rule: &Rule, facts: Facts, elapsed: u64) -> *const Site {
    let row = here.row(call.function, facts.group);
    if !row.is_null() {
        // SAFETY: a row has a cell for every class of sizes, and a cell has a counter for every class of times.
        unsafe {
            let cell = row.add(size_class(facts.bytes));
            add(&raw mut (*cell).calls, 1);
            add(&raw mut (*cell).ticks, elapsed);
            add(&raw mut (*cell).bytes, facts.bytes);
            raise(&raw mut (*cell).most, elapsed);
            raise(&raw mut (*cell).least_from_top, !elapsed);
            add((&raw mut (*cell).histogram).cast::<u64>().add(time_class(elapsed)), 1);
        }
    }
    let site = here.site(call.site, call.function);
    if !site.is_null() {
        // SAFETY: the record is mapped and this thread's.
        unsafe {
            add(&raw mut (*site).calls, 1);
            add(&raw mut (*site).ticks, elapsed);
            raise(&raw mut (*site).most, elapsed);
            add(&raw mut (*site).bytes, facts.bytes);
        }
    }
    let thread = here.thread;
    // SAFETY: the thread's record is mapped as long as the process runs; classes are fewer than its counters.
    let calls = unsafe {
        if facts.messages > 0 {
            add(&raw mut (*thread).messages, facts.messages);
            add(&raw mut (*thread).bytes, facts.message_bytes);
        }
        add((&raw mut (*thread).ticks).cast::<u64>().add(rule.class as usize), elapsed);
        add(&raw mut (*thread).calls, 1);
        (*thread).calls
    };
    if elapsed >= here.long || calls & 0xffff == 0 {
        here.rank.refresh();
    }
    site
}

/// The facts of a successful call that is not `simple`.
///
/// # Safety
/// The call succeeded.
#[inline(never)]
unsafe fn general(here: &mut Here, call: &Call, rule: &Rule) -> Facts {
    let mut facts = Facts::default();
    let abi = here.abi();
    // SAFETY: by this function's contract, throughout. The cache keeps a communicator until the next call.
    unsafe {
        match rule.special {
            Special::Init => here.rank.opened(Model::World, call.left),
            Special::Opens(argument) => {
                if let Some(session) = session(here, call, argument) {
                    here.rank.opened(Model::Session(session), call.left);
                }
            }
            _ => {}
        }
        let comm = match rule.comm {
            NONE => None,
            _ if rule.special != Special::No => None,
            comm => here.communicator(call.handle(comm, abi)).map(|comm| &*Arc::as_ptr(comm)),
        };
        if rule.makes_window {
            made_window(here, call, rule);
        }
        if rule.grouped {
            facts.group = comm.map_or(0, |comm| comm.size);
        }
        facts.bytes = amount::of(here, call, rule, comm);
        let mut dest = NO_RANK;
        if rule.dest != NONE {
            let peer = call.integer(rule.dest);
            if peer == abi.proc_null {
                facts.bytes = 0;
            } else {
                let to = comm.and_then(|comm| comm.world_rank(peer));
                dest = to.unwrap_or(NO_RANK);
                if !matches!(rule.requests, Requests::Prepares(_)) {
                    here.message(to, facts.bytes);
                    (facts.messages, facts.message_bytes) = (1, facts.bytes);
                }
            }
        } else if rule.source != NONE && call.integer(rule.source) == abi.proc_null {
            facts.bytes = 0;
        }
        if rule.target != NONE {
            operation(here, call, rule, &mut facts);
        }
        operations::follow(here, call, rule, comm, dest, &mut facts);
    }
    facts
}

/// # Safety
/// The call succeeded.
#[cold]
unsafe fn made_window(here: &mut Here, call: &Call, rule: &Rule) {
    let abi = here.abi();
    // SAFETY: by this function's contract.
    unsafe {
        let win = call.handle_at(rule.win, 0, abi);
        if let Some(comm) = here.communicator(call.handle(rule.comm, abi)).cloned() {
            here.rank.communicators.note_window(win, comm, &here.rank.mpi, abi);
        }
    }
}

/// Counts a one-sided operation for its target.
///
/// # Safety
/// The call succeeded.
unsafe fn operation(here: &mut Here, call: &Call, rule: &Rule, facts: &mut Facts) {
    let abi = here.abi();
    // SAFETY: by this function's contract.
    unsafe {
        let target = call.integer(rule.target);
        if target == abi.proc_null {
            facts.bytes = 0;
            return;
        }
        let win = call.handle(rule.win, abi);
        let to = here.window(win).and_then(|win| win.world_rank(target)).unwrap_or(NO_RANK);
        if state::paused(here.generation) {
            return;
        }
        let peer = here.peer(to);
        if !peer.is_null() {
            add(&raw mut (*peer).operations, 1);
            add(&raw mut (*peer).operation_bytes, facts.bytes);
        }
    }
}

/// The least ticks that recording adds to a call, measured with a call that does nothing and tables that are discarded.
/// The measurement takes a few microseconds.
pub fn cost(rank: &'static Rank) -> u64 {
    let Some(send) = functions::named("Send").map(|function| u32::from(function.id.0)) else { return 0 };
    let mut thread = Thread::default();
    let mut row = [Cell::EMPTY; ROW_CELLS];
    let mut site = Site::default();
    let mut here = Here::new(rank, 0, &mut thread);
    here.rows[send as usize] = row.as_mut_ptr();
    here.know_site(1, send, &mut site);
    let mut call = Call::of(send, 1);
    call.arguments[3] = rank.abi.proc_null as usize;
    let turns = 16;
    let round = |_| {
        let from = clock::ticks(rank.clock);
        for _ in 0..turns {
            call.entered = clock::ticks(rank.clock);
            call.left = clock::ticks(rank.clock);
            // SAFETY: the record has its own row, site and thread, and a send to MPI_PROC_NULL leads to no query of the MPI.
            unsafe { plimsoll_after(&mut here, &call, call.left.saturating_sub(call.entered)) };
        }
        clock::ticks(rank.clock).saturating_sub(from) / turns
    };
    (0..8).map(round).min().unwrap_or(0)
}
