//! Operations, from the call that begins one to the call that completes it.

use crate::call::{Call, Facts, Handle};
use crate::communicators::{Communicator, NO_RANK};
use crate::fortran;
use crate::here::{Here, extra};
use crate::perturb;
use crate::requests::{Begun, Operation};
use crate::rules::{Completes, NONE, Partitions, Requests, Rule};
use crate::trace;

/// Saves the handles of requests that the call may overwrite.
///
/// # Safety
/// The call has the arguments of its function; arrays of requests have as many as its count.
#[inline]
pub unsafe fn keep(here: &mut Here, call: &mut Call, rule: &Rule) {
    let abi = here.abi();
    // SAFETY: by this function's contract.
    unsafe {
        let (count, requests) = match rule.requests {
            Requests::Completes(Completes::One { request, .. }) | Requests::Frees(request) => {
                if call.arguments[usize::from(request) & 15] != 0 {
                    call.kept = call.handle_at(request, 0, abi).0;
                }
                return;
            }
            Requests::Completes(
                Completes::All { count, requests, .. }
                | Completes::Any { count, requests, .. }
                | Completes::Some { count, requests, .. },
            ) => (count, requests),
            _ => return,
        };
        let count = call.integer(count).max(0) as usize;
        here.handles.clear();
        if call.arguments[usize::from(requests) & 15] == 0 {
            return;
        }
        here.handles.extend((0..count).map(|index| call.handle_at(requests, index, abi)));
    }
}

/// After a call that succeeded: notes operations that it began, marks those that it started, completes those that ended.
///
/// # Safety
/// The call succeeded.
pub unsafe fn follow(
    here: &mut Here,
    call: &Call,
    rule: &Rule,
    comm: Option<&Communicator>,
    dest: u32,
    facts: &mut Facts,
) {
    // SAFETY: by this function's contract, throughout.
    unsafe {
        match rule.requests {
            Requests::No => {}
            Requests::Begins(_) | Requests::Prepares(_) => begin(here, call, rule, comm, dest, facts.bytes),
            Requests::Starts { count, requests } => {
                let count = if count == NONE { 1 } else { call.integer(count).max(0) as usize };
                for index in 0..count {
                    start(here, call.handle_at(requests, index, here.abi()), facts);
                }
            }
            Requests::Completes(completes) => facts.bytes = complete(here, call, completes),
            Requests::Frees(_) => {
                here.rank.requests.with(|requests| requests.remove(Handle(call.kept)));
            }
            Requests::Readies { request, partitions } => {
                let handle = call.handle(request, here.abi());
                let ready = match partitions {
                    Partitions::One => 1,
                    Partitions::Range { low, high } => {
                        (i64::from(call.integer(high)) - i64::from(call.integer(low)) + 1).max(0) as u64
                    }
                    Partitions::List { length } => call.integer(length).max(0) as u64,
                };
                let part = here.rank.requests.with(|requests| {
                    requests.get(handle).map_or(0, |operation| operation.bytes / u64::from(operation.partitions))
                });
                facts.bytes = part * ready;
            }
        }
    }
}

/// Notes the operation that the call began, or that its request begins at each start.
///
/// # Safety
/// The call succeeded.
#[inline]
pub unsafe fn begin(here: &mut Here, call: &Call, rule: &Rule, comm: Option<&Communicator>, dest: u32, bytes: u64) {
    let (request, persistent) = match rule.requests {
        Requests::Begins(request) => (request, false),
        Requests::Prepares(request) => (request, true),
        _ => return,
    };
    let abi = here.abi();
    // SAFETY: by this function's contract.
    let (handle, operation) = unsafe {
        let place = if rule.dest != NONE { rule.dest } else { rule.source };
        let peer = if place == NONE { 0 } else { call.integer(place) };
        let in_world = |comm: &Communicator| comm.world_rank(peer).unwrap_or(NO_RANK);
        let operation = Operation {
            function: call.function as u16,
            persistent,
            active: !persistent,
            partitions: if rule.partitions == NONE { 1 } else { call.integer(rule.partitions).max(1) as u32 },
            bytes,
            dest,
            sends: rule.dest != NONE && peer != abi.proc_null,
            peer_in_world: comm.filter(|_| here.extra & extra::DELAY != 0).map_or(NO_RANK, in_world),
            peer,
            tag: if rule.tag == NONE { 0 } else { call.integer(rule.tag) },
            communicator: comm.map_or(0, |comm| comm.number),
            serial: 0,
            traced: trace::begin(here, call),
            started: Begun::NOT,
        };
        (call.handle_at(request, 0, abi), operation)
    };
    if !here.rank.requests.with(|requests| requests.insert(handle, operation)) {
        here.rank.dropped(|dropped| &raw mut dropped.requests);
    }
}

fn start(here: &mut Here, handle: Handle, facts: &mut Facts) {
    let started = here.rank.requests.with(|requests| {
        let serial = requests.next_serial();
        requests.get(handle).map(|operation| {
            (operation.active, operation.serial) = (true, serial);
            *operation
        })
    });
    let Some(operation) = started else { return };
    if here.tracing.is_some() {
        let begun = trace::start(here, operation.traced);
        here.rank.requests.with(|requests| requests.get(handle).map(|operation| operation.started = begun));
    }
    facts.bytes = facts.bytes.wrapping_add(operation.bytes);
    if operation.sends {
        let to = Some(operation.dest).filter(|dest| *dest != NO_RANK);
        here.message(to, operation.bytes);
        facts.messages += 1;
        facts.message_bytes = facts.message_bytes.wrapping_add(operation.bytes);
    }
}

/// After a call that failed: completes the operations whose handles the call has changed nevertheless.
///
/// # Safety
/// The arguments are those that [`keep`] read.
#[cold]
pub unsafe fn failed(here: &mut Here, call: &Call, rule: &Rule) {
    let Requests::Completes(completes) = rule.requests else { return };
    let abi = here.abi();
    let (kept, requests) = match completes {
        Completes::One { request, .. } => (vec![Handle(call.kept)], request),
        Completes::All { requests, .. } | Completes::Any { requests, .. } | Completes::Some { requests, .. } => {
            (std::mem::take(&mut here.handles), requests)
        }
    };
    if call.arguments[usize::from(requests) & 15] == 0 {
        return;
    }
    for (index, handle) in kept.into_iter().enumerate() {
        // SAFETY: by this function's contract.
        if unsafe { call.handle_at(requests, index, abi) } != handle {
            // SAFETY: no status is read.
            unsafe { finish(here, handle, 0) };
        }
    }
}

/// The bytes of the operations that the call found complete.
///
/// # Safety
/// The call succeeded.
unsafe fn complete(here: &mut Here, call: &Call, completes: Completes) -> u64 {
    let undefined = here.abi().undefined;
    // SAFETY: by this function's contract; the call wrote the word, or the argument is NONE.
    let flag = |flag: u8| flag == NONE || unsafe { *(call.arguments[usize::from(flag) & 15] as *const i32) } != 0;
    // SAFETY: as above.
    let at = |array: u8, index: usize| unsafe { *(call.arguments[usize::from(array) & 15] as *const i32).add(index) };
    if let Completes::One { flag: done, .. } = completes {
        let status = trace::status_of(here, call, 0);
        // SAFETY: by this function's contract.
        return if flag(done) { unsafe { finish(here, Handle(call.kept), status) } } else { 0 };
    }
    let handles = std::mem::take(&mut here.handles);
    let (count, abi) = (handles.len(), here.abi());
    // The index that stands for the first request.
    let first = |requests: u8, told: &[i32]| {
        if !call.is_fortran() {
            return 0;
        }
        // SAFETY: the array has as many requests as before the call.
        fortran::first_place(told, count, |at| unsafe { call.handle_at(requests, at, abi) } != handles[at])
    };
    let mut bytes = 0u64;
    let mut done = |handle: Handle, place: usize| {
        // SAFETY: by this function's contract.
        bytes = bytes.wrapping_add(unsafe { finish(here, handle, trace::status_of(here, call, place)) });
    };
    match completes {
        Completes::One { .. } => {}
        Completes::All { flag: done_flag, .. } => {
            if flag(done_flag) {
                handles.iter().enumerate().for_each(|(place, handle)| done(*handle, place));
            }
        }
        Completes::Any { requests, index, flag: done_flag, .. } => {
            let index = at(index, 0);
            if flag(done_flag) && index != undefined {
                let place = index - first(requests, &[index]);
                handles.get(place as usize).into_iter().for_each(|handle| done(*handle, 0));
            }
        }
        Completes::Some { requests, outcount, indices, .. } => {
            let outcount = at(outcount, 0);
            if outcount > 0 && outcount != undefined {
                // SAFETY: the call wrote `outcount` indices.
                let told = unsafe {
                    let places = call.arguments[usize::from(indices) & 15] as *const i32;
                    std::slice::from_raw_parts(places, outcount as usize)
                };
                let first = first(requests, told);
                for (place, told) in told.iter().enumerate() {
                    if let Some(handle) = handles.get((told - first) as usize) {
                        done(*handle, place);
                    }
                }
            }
        }
    }
    here.handles = handles;
    bytes
}

/// Completes one operation and returns its bytes. `status` is the address of its status; 0: none.
///
/// # Safety
/// The MPI wrote a status at `status`, unless that is 0.
#[inline]
unsafe fn finish(here: &mut Here, handle: Handle, status: usize) -> u64 {
    if here.extra == 0 {
        return here.rank.requests.with(|requests| requests.complete(handle).map_or(0, |operation| operation.bytes));
    }
    // SAFETY: by this function's contract.
    unsafe { finish_told(here, handle, status) }
}

/// # Safety
/// The contract of [`finish`].
#[inline(never)]
unsafe fn finish_told(here: &mut Here, handle: Handle, status: usize) -> u64 {
    let Some(operation) = here.rank.requests.with(|requests| requests.complete(handle)) else { return 0 };
    // SAFETY: by this function's contract.
    unsafe { trace::completed(here, &operation, status) };
    perturb::completed(here, &operation);
    operation.bytes
}
