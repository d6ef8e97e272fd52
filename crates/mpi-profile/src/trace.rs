//! The event of a call in its thread's timeline.

mod status;

use record::functions::FunctionId;
use record::trace::{self, peer};

use crate::amount;
use crate::call::{Call, Facts};
use crate::communicators::Communicator;
use crate::here::Here;
use crate::requests::{Begun, Operation};
use crate::rules::{NONE, Rule, Special};
use crate::state;
use crate::timeline::Tracing;
use crate::timeline::arguments::Arguments;

/// The timeline's number of an operation that the call begins or prepares.
///
/// # Safety
/// The call succeeded.
#[inline]
pub unsafe fn begin(here: &mut Here, call: &Call) -> Begun {
    if here.tracing.is_none() || state::paused(here.generation) {
        return Begun::NOT;
    }
    // SAFETY: by this function's contract.
    let any = unsafe { is_from_anywhere(here, call) };
    here.tracing.as_mut().map_or(Begun::NOT, |tracing| tracing.begin(any))
}

/// The timeline's number of a persistent operation that the call starts; `prepared` is that of its preparation.
pub fn start(here: &mut Here, prepared: Begun) -> Begun {
    let paused = state::paused(here.generation);
    let Some(tracing) = here.tracing.as_mut().filter(|_| !paused) else { return Begun::NOT };
    let Some(reference) = prepared.reference() else { return Begun::NOT };
    let begun = tracing.begin(prepared.any);
    if begun != Begun::NOT {
        tracing.references.push(reference);
    }
    begun
}

/// Notes that the call completed an operation. `status` is the address of its status; 0: none.
///
/// # Safety
/// The MPI wrote a status at `status`, unless that is 0.
pub unsafe fn completed(here: &mut Here, operation: &Operation, status: usize) {
    let abi = here.abi();
    let Some(tracing) = here.tracing.as_mut() else { return };
    let begun = if operation.persistent { operation.started } else { operation.traced };
    let Some(reference) = begun.reference() else { return };
    let place = tracing.references.len() as u32;
    tracing.references.push(reference);
    if begun.any && status != 0 {
        if tracing.last.as_ref().is_none_or(|last| last.number != operation.communicator) {
            tracing.last = here.rank.timeline.as_ref().and_then(|timeline| timeline.known(operation.communicator));
        }
        let group = tracing.last.as_deref();
        // SAFETY: by this function's contract.
        let got = unsafe { status::read(status, abi) };
        tracing.matched.extend(got.map(|got| got.matched(place, abi, |rank| world_rank(group, rank))));
    }
}

/// The rank in MPI_COMM_WORLD of a communicator's rank.
fn world_rank(group: Option<&Communicator>, rank: i32) -> i32 {
    group.and_then(|group| group.world_rank(rank)).map_or(peer::UNKNOWN, |rank| rank as i32)
}

/// # Safety
/// The call's arguments are those of its function.
unsafe fn is_from_anywhere(here: &Here, call: &Call) -> bool {
    let Some(tracing) = &here.tracing else { return false };
    let Some(arguments) = tracing.arguments.get(call.function as usize) else { return false };
    let abi = here.abi();
    // SAFETY: by this function's contract.
    let is = |argument: u8, value: i32| argument != NONE && unsafe { call.integer(argument) } == value;
    is(arguments.source, abi.any_source) || is(arguments.source_tag, abi.any_tag)
}

/// Before the call: directs a status that the program ignores to a buffer of this thread, for source, tag and bytes.
///
/// # Safety
/// The call's arguments are those of its function; `here.handles` has the requests that the call may complete.
#[cold]
pub unsafe fn before(here: &mut Here, call: &mut Call) {
    let Some(tracing) = &here.tracing else { return };
    let Some(arguments) = tracing.arguments.get(call.function as usize) else { return };
    let (argument, abi) = (arguments.status, here.abi());
    if argument == NONE || !status::is_ignored(call.arguments[usize::from(argument) & 15], call.language, abi) {
        return;
    }
    let statuses = if arguments.many { here.handles.len() } else { 1 };
    // SAFETY: by this function's contract.
    let wanted = arguments.completes && statuses > 0 || unsafe { is_from_anywhere(here, call) };
    if !wanted {
        return;
    }
    let words = (statuses * abi.status_bytes).div_ceil(8);
    if let Some(tracing) = &mut here.tracing {
        tracing.statuses.resize(words.max(tracing.statuses.len()), 0);
        call.arguments[usize::from(argument) & 15] = tracing.statuses.as_mut_ptr() as usize;
    }
}

/// The address of the `place`th status that the call wrote; 0 where there is none.
pub fn status_of(here: &Here, call: &Call, place: usize) -> usize {
    let Some(tracing) = &here.tracing else { return 0 };
    let argument = tracing.arguments.get(call.function as usize).map_or(NONE, |arguments| arguments.status);
    if argument == NONE {
        return 0;
    }
    let address = call.arguments[usize::from(argument) & 15];
    if status::is_ignored(address, call.language, here.abi()) { 0 } else { address + place * here.abi().status_bytes }
}

/// Writes the call to the timeline, after the call. `site` is the number of its call site in the thread.
///
/// # Safety
/// `call` has the function's arguments as they were passed.
#[cold]
#[inline(never)]
pub unsafe fn note(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts, site: u16) {
    // Taken out of `here`, which is borrowed to find communicators.
    let Some(mut tracing) = here.tracing.take() else { return };
    if !state::paused(here.generation) {
        // SAFETY: by this function's contract.
        unsafe { write(here, call, rule, facts, site, &mut tracing) };
    }
    tracing.begun = 0;
    tracing.references.clear();
    tracing.matched.clear();
    here.tracing = Some(tracing);
}

/// # Safety
/// The contract of [`note`].
#[inline]
unsafe fn write(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts, site: u16, tracing: &mut Tracing) {
    let mut made = trace::Call::new(FunctionId(call.function as u16), call.entered, call.left);
    (made.site, made.bytes) = (site, facts.bytes);
    made.begun = tracing.begun;
    if call.succeeded() && rule.special == Special::No {
        let arguments = &tracing.arguments[call.function as usize];
        // SAFETY: the call succeeded.
        unsafe { describe(here, call, rule, arguments, &mut made, tracing) };
    }
    let Tracing { file, encoder, references, matched, .. } = tracing;
    file.put(references.len(), matched.len(), |out| encoder.encode(&made, references, matched, out));
    if file.full {
        here.rank.dropped(|dropped| &raw mut dropped.events);
        if std::mem::take(&mut file.unstored) {
            here.rank.dropped(|dropped| &raw mut dropped.storage);
        }
    }
}

/// # Safety
/// The call succeeded.
#[inline]
unsafe fn describe(
    here: &mut Here,
    call: &Call,
    rule: &Rule,
    arguments: &Arguments,
    made: &mut trace::Call,
    tracing: &mut Tracing,
) {
    let abi = here.abi();
    let peer = |argument: u8, comm: Option<&Communicator>| -> i32 {
        // SAFETY: by this function's contract.
        match unsafe { call.integer(argument) } {
            rank if rank >= 0 => world_rank(comm, rank),
            rank if rank == abi.proc_null => peer::NULL,
            rank if rank == abi.any_source && argument == arguments.source => peer::ANY,
            _ => peer::UNKNOWN,
        }
    };
    let tag = |argument: u8| {
        // SAFETY: by this function's contract.
        let tag = unsafe { call.integer(argument) };
        if tag == abi.any_tag && argument == arguments.source_tag { trace::tag::ANY } else { tag }
    };
    // SAFETY: by this function's contract, throughout.
    unsafe {
        let group = if rule.comm != NONE {
            here.communicator(call.handle(rule.comm, abi)).map(|comm| &**comm)
        } else if rule.win != NONE {
            here.window(call.handle(rule.win, abi)).map(|win| &**win)
        } else {
            None
        };
        if let Some(group) = group {
            made.communicator = group.number;
        }
        if arguments.peer != NONE {
            made.peer = peer(arguments.peer, group);
        }
        if arguments.tag != NONE {
            made.tag = tag(arguments.tag);
        }
        let from_anywhere = arguments.receives
            && (call.integer(arguments.source) == abi.any_source || call.integer(arguments.source_tag) == abi.any_tag);
        let status = call.arguments[usize::from(arguments.status) & 15];
        if from_anywhere
            && arguments.status != NONE
            && (arguments.flag == NONE || *(call.arguments[usize::from(arguments.flag) & 15] as *const i32) != 0)
            && !status::is_ignored(status, call.language, abi)
            && let Some(got) = status::read(status, abi)
        {
            tracing.matched.push(got.matched(0, abi, |rank| world_rank(group, rank)));
        }
        if arguments.exchanges {
            made.source = peer(arguments.source, group);
            made.source_tag = tag(arguments.source_tag);
            if made.source != peer::NULL {
                let (count, datatype) = (arguments.source_count, arguments.source_datatype);
                made.source_bytes = amount::elements(here, call, rule, count, datatype);
            }
        }
        if arguments.new_communicator != NONE {
            let handle = call.handle_at(arguments.new_communicator, 0, abi);
            // The number is given at creation, since all members create communicators in the same order.
            if handle.0 as usize != abi.comm_null && !handle.is_fortran() {
                here.communicator(handle);
            }
        }
        if arguments.new_window != NONE && !call.is_fortran() {
            here.window(call.handle_at(arguments.new_window, 0, abi));
        }
        if arguments.cancels {
            let handle = call.handle_at(0, 0, abi);
            let known = here.rank.requests.with(|requests| requests.get(handle).map(|operation| operation.traced));
            tracing.references.extend(known.and_then(Begun::reference));
        }
    }
}
