//! Injected delays: before messages begin, after receives complete, and in proportion to the program's computing.
//!
//! Each delay is a spin on the core of the calling thread, outside the recorded time of the call: it stands for work of
//! that core, not for latency. That of computing comes before the call that ends the computing, whose wait would hide it. Each delay and their sum are bounded; their ticks are counted in the thread's totals.

use record::functions::Class;
use record::layout::Site;

use crate::amount;
use crate::call::{Call, Facts};
use crate::communicators::NO_RANK;
use crate::delays::Delays;
use crate::here::Here;
use crate::requests::Operation;
use crate::rules::{Amount, NONE, Requests, Rule, Special, Times};
use crate::state;

/// Delays the thread before the entry of a call: for its computing since the last one, and for the messages that the call begins.
///
/// # Safety
/// The call has the arguments of its function.
#[cold]
pub unsafe fn post(here: &mut Here, call: &Call) {
    let Some(mut delays) = here.delays.take() else { return };
    let now = delays.moment();
    let generation = state::generation();
    if !state::paused(generation) {
        // SAFETY: by this function's contract; each function of the table has a rule.
        unsafe {
            let rule = &*here.rules.add(call.function as usize);
            if delays.resumed != 0 && rule.special == Special::No {
                delays.compute(now.saturating_sub(delays.resumed));
            }
            match rule.requests {
                _ if !delays.asked.sends => {}
                Requests::Starts { count, requests } => started(here, call, count, requests, &mut delays),
                Requests::Prepares(_) => {}
                _ if rule.dest == NONE => {}
                _ => match known(here, call, rule, &delays).filter(|_| generation == here.generation) {
                    Some((bytes, peer)) => delays.send(bytes, peer),
                    None => delays.send_unknown = call.integer(rule.dest) != here.abi().proc_null,
                },
            }
        }
        delays.spend();
    }
    here.delays = Some(delays);
}

/// # Safety
/// The contract of [`post`].
unsafe fn started(here: &Here, call: &Call, count: u8, requests: u8, delays: &mut Delays) {
    // SAFETY: by this function's contract.
    unsafe {
        if call.arguments[usize::from(requests) & 15] == 0 {
            return;
        }
        let count = if count == NONE { 1 } else { call.integer(count).max(0) as usize };
        for index in 0..count {
            let handle = call.handle_at(requests, index, here.abi());
            let known = here.rank.requests.with(|requests| requests.get(handle).copied());
            if let Some(operation) = known.filter(|operation| operation.sends) {
                delays.send(operation.bytes, operation.peer_in_world);
            }
        }
    }
}

/// Bytes and peer of the message that the call begins, from caches alone: before the call succeeds, its handles may be
/// invalid. `None` where bytes or communicator are not cached, or no message begins.
///
/// # Safety
/// The contract of [`post`].
unsafe fn known(here: &Here, call: &Call, rule: &Rule, delays: &Delays) -> Option<(u64, u32)> {
    let (abi, asked) = (here.abi(), delays.asked);
    // SAFETY: by this function's contract.
    unsafe {
        let dest = call.integer(rule.dest);
        if dest == abi.proc_null {
            return None;
        }
        let bytes = match rule.amount {
            _ if !asked.weighs => 0,
            Amount::Elements { count, datatype, times: Times::Once } => {
                let count = call.count(count, rule.wide).max(0) as u64;
                if count == 0 { 0 } else { count.wrapping_mul(here.datatypes.known(call.handle(datatype, abi))?) }
            }
            _ => return None,
        };
        let peer = match asked.schedule.by_host() {
            false => NO_RANK,
            true => here.known_communicator(call.handle(rule.comm, abi))?.world_rank(dest).unwrap_or(NO_RANK),
        };
        Some((bytes, peer))
    }
}

/// Adds the delay of a receive whose operation is complete.
pub fn completed(here: &mut Here, operation: &Operation) {
    let Some(mut delays) = here.delays.take() else { return };
    let receives = delays.asked.arguments.get(usize::from(operation.function)).is_some_and(|of| of.receives_by_request);
    if receives && operation.peer != here.abi().proc_null && !state::paused(here.generation) {
        delays.receive(operation.bytes, operation.peer_in_world);
    }
    here.delays = Some(delays);
}

/// Delays the thread after a call, once the call is recorded.
///
/// # Safety
/// The call has the arguments of its function; its site is mapped or null.
#[cold]
pub unsafe fn after(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts, site: *const Site) {
    let Some(mut delays) = here.delays.take() else { return };
    let asked = delays.asked;
    if let Some(passes) = &mut delays.passes {
        // SAFETY: the thread's record and sites are mapped as long as the process runs.
        unsafe { passes.after(rule, facts, site, here.rank, asked, here.thread) };
    }
    if !state::paused(here.generation) && call.succeeded() {
        // SAFETY: by this function's contract, and the call succeeded.
        unsafe { want_after(here, call, rule, facts, &mut delays) };
    }
    delays.spend();
    delays.send_unknown = false;
    delays.resumed = delays.moment();
    here.delays = Some(delays);
}

/// Adds the delay of the message that the call received, and that of the message it sent where [`post`] did not know the
/// bytes.
///
/// # Safety
/// The call succeeded.
unsafe fn want_after(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts, delays: &mut Delays) {
    let abi = here.abi();
    // SAFETY: by this function's contract, throughout.
    unsafe {
        let in_world = |here: &mut Here, argument: u8| {
            if !delays.asked.schedule.by_host() || rule.comm == NONE {
                // All peers are delayed alike, or the call has no communicator.
                return NO_RANK;
            }
            let peer = call.integer(argument);
            let comm = here.communicator(call.handle(rule.comm, abi));
            comm.and_then(|comm| comm.world_rank(peer)).unwrap_or(NO_RANK)
        };
        if delays.send_unknown && facts.messages > 0 {
            let peer = in_world(here, rule.dest);
            delays.send(facts.message_bytes, peer);
        }
        let blocks = matches!(rule.class, Class::Receive | Class::Exchange) && rule.requests == Requests::No;
        let from_somebody = rule.source == NONE || call.integer(rule.source) != abi.proc_null;
        if blocks && from_somebody && delays.asked.receives {
            let arguments = &delays.asked.arguments[call.function as usize];
            let (count, datatype) = (arguments.source_count, arguments.source_datatype);
            let bytes = match delays.asked.weighs {
                true => amount::elements(here, call, rule, count, datatype),
                false => 0,
            };
            let peer = if rule.source == NONE { NO_RANK } else { in_world(here, rule.source) };
            delays.receive(bytes, peer);
        }
    }
}
