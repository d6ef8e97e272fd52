//! Delays on purpose: before messages begin, after receives complete, and in proportion to what the program computes.
//!
//! Each is a spin outside of what is recorded as the call, on the core of the calling thread, so that it stands for work of
//! that core and not for latency. All are bounded, each and together; what they took is counted with the thread's totals.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use record::folder::{self, variable};
use record::functions::Class;
use record::layout::{Injected, Thread, injected, perturbed};
use record::perturbation::{LONGEST, Peers, Perturbation, SHARE};

use crate::amount;
use crate::call::Call;
use crate::clock;
use crate::communicators::NO_RANK;
use crate::here::Here;
use crate::process;
use crate::recorder::Facts;
use crate::requests::Operation;
use crate::rules::{Amount, NONE, Requests, Rule, Special, Times};
use crate::trace::{self, Arguments};

/// What is asked of a rank.
#[derive(Debug)]
pub struct Asked {
    what: Perturbation,
    clock: u32,
    /// Ticks of a nanosecond.
    rate: f64,
    /// Ticks that one reading of the clock takes: a delay's first and last reading are a reading apart in themselves.
    reading: u64,
    /// Ticks when the rank began to record.
    began: u64,
    /// Of each rank of MPI_COMM_WORLD, where peers are told apart.
    hosts: Vec<String>,
    host: String,
    arguments: Vec<Arguments>,
    /// The hosts are not as was told.
    misplaced: AtomicBool,
}

impl Asked {
    /// What the environment asks for, and the header's word for it.
    pub fn read(folder: &Path, host: &str, clock: u32) -> (Option<Asked>, u32) {
        let Some(text) = std::env::var_os(variable::PERTURB).filter(|text| !text.is_empty()) else { return (None, 0) };
        let read = text.to_str().and_then(|text| text.parse::<Perturbation>().ok());
        let hosts = match read {
            Some(Perturbation { peers: Peers::All, .. }) => Some(Vec::new()),
            _ => fs::read_to_string(folder::placed_file(folder)).ok().and_then(|text| placed(&text)),
        };
        let (Some(what), Some(hosts)) = (read, hosts) else { return (None, perturbed::ASKED | perturbed::UNREAD) };
        let asked = Asked {
            what,
            clock,
            rate: clock::rate(clock),
            reading: clock::reading(clock),
            began: clock::ticks(clock),
            hosts,
            host: host.to_owned(),
            arguments: trace::arguments(),
            misplaced: AtomicBool::new(false),
        };
        (Some(asked), perturbed::ASKED)
    }

    /// Whether the rank is where it was said to be. Where it is not, nothing is delayed.
    pub fn is_placed(&self, rank: u32, size: u32) -> bool {
        let is_there = self.hosts.len() == size as usize && self.hosts[rank as usize] == self.host;
        let is_right = self.what.peers == Peers::All || is_there;
        self.misplaced.store(!is_right, Ordering::Relaxed);
        is_right
    }

    fn ticks(&self, nanoseconds: f64) -> u64 {
        (nanoseconds * self.rate) as u64
    }

    /// Whether messages with this rank of MPI_COMM_WORLD are delayed.
    fn means(&self, peer: u32) -> bool {
        let is_here = || self.hosts.get(peer as usize).map(|host| *host == self.host);
        match self.what.peers {
            Peers::All => true,
            Peers::SameHost => is_here() == Some(true),
            Peers::OtherHost => is_here() == Some(false),
        }
    }

    fn is_silent(&self) -> bool {
        // SAFETY: it takes no arguments.
        let elsewhere = |core: u32| u32::try_from(unsafe { libc::sched_getcpu() }).is_ok_and(|now| now != core);
        self.misplaced.load(Ordering::Relaxed) || self.what.core.is_some_and(elsewhere)
    }
}

/// The hosts by rank. `None`: the text does not say them, or not all.
fn placed(text: &str) -> Option<Vec<String>> {
    let mut ranks: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        let (rank, host) = line.split_once(' ')?;
        ranks.push((rank.parse().ok()?, host));
    }
    ranks.sort_unstable();
    let in_order = ranks.iter().enumerate().all(|(place, (rank, _))| place == *rank);
    in_order.then(|| ranks.into_iter().map(|(_, host)| host.to_owned()).collect())
}

/// What a thread has while it is delayed.
#[derive(Debug)]
pub struct Delays {
    asked: &'static Asked,
    thread: *mut Thread,
    /// Ticks that all of its delays took.
    spent: u64,
    stopped: bool,
    /// What is to be delayed at this moment, by [`injected`], and how much room is left in it.
    wanted: [Injected; 3],
    room: u64,
    /// Ticks that went by before the present call was entered.
    before: u64,
    /// How much the present call sends is not known before it succeeds.
    late: bool,
    /// Ticks when the thread was let go after its last call; 0: it had none.
    resumed: u64,
    /// Ticks that computing is still to be delayed.
    owed: f64,
}

impl Delays {
    pub fn new(asked: &'static Asked, thread: *mut Thread) -> Delays {
        let (wanted, room) = (Default::default(), asked.ticks(LONGEST));
        let (spent, stopped, before, late, resumed, owed) = (0, false, 0, false, 0, 0.0);
        Delays { asked, thread, spent, stopped, wanted, room, before, late, resumed, owed }
    }

    /// Another thread goes on with the record.
    pub fn hand_on(&mut self) {
        (self.resumed, self.owed) = (0, 0.0);
    }

    /// One delay more at this moment. `false`: there is no room for it.
    fn want(&mut self, kind: usize, nanoseconds: f64) -> bool {
        let ticks = self.asked.ticks(nanoseconds.min(LONGEST));
        let fits = ticks <= self.room;
        if fits {
            self.room -= ticks;
            self.wanted[kind].count += 1;
            self.wanted[kind].ticks += ticks;
        }
        fits
    }

    fn send(&mut self, here: &Here, bytes: u64, peer: u32) {
        if let Some(delay) = self.asked.what.at_send(bytes).filter(|_| self.asked.means(peer))
            && !self.want(injected::SEND, delay)
        {
            here.rank.perturbed(perturbed::CUT);
        }
    }

    fn receive(&mut self, here: &Here, bytes: u64, peer: u32) {
        if let Some(delay) = self.asked.what.at_receive(bytes).filter(|_| self.asked.means(peer))
            && !self.want(injected::RECEIVE, delay)
        {
            here.rank.perturbed(perturbed::CUT);
        }
    }

    /// Waits for what is wanted, as far as the thread's share goes.
    fn spend(&mut self, here: &Here) {
        if self.wanted.iter().all(|delays| delays.count == 0) {
            return;
        }
        let wanted = std::mem::take(&mut self.wanted);
        if self.stopped || self.asked.is_silent() {
            self.room = self.asked.ticks(LONGEST);
            return;
        }
        let all: u64 = wanted.iter().map(|delays| delays.ticks).sum();
        if all == 0 {
            return wanted.into_iter().enumerate().for_each(|(kind, delays)| self.count(kind, delays));
        }
        self.room = self.asked.ticks(LONGEST);
        let mut now = clock::ticks(self.asked.clock);
        if (self.spent + all) as f64 > SHARE * now.saturating_sub(self.asked.began) as f64 {
            self.stopped = true;
            return here.rank.perturbed(perturbed::STOPPED);
        }
        for (kind, delays) in wanted.into_iter().enumerate().filter(|(_, delays)| delays.count > 0) {
            let from = now;
            while now.saturating_sub(from) < delays.ticks {
                now = clock::ticks(self.asked.clock);
            }
            let took = now.saturating_sub(from) + self.asked.reading;
            self.spent += took;
            self.count(kind, Injected { count: delays.count, ticks: took });
        }
    }

    fn count(&mut self, kind: usize, more: Injected) {
        // SAFETY: the thread's record is mapped as long as the process runs, and only this thread writes to it.
        unsafe {
            let place = (&raw mut (*self.thread).injected).cast::<Injected>().add(kind);
            let Injected { count, ticks } = place.read_volatile();
            place.write_volatile(Injected { count: count + more.count, ticks: ticks + more.ticks });
        }
    }

    /// The present moment, where computing is delayed: else nobody asks for it.
    fn moment(&self) -> u64 {
        if self.asked.what.compute > 0.0 { clock::ticks(self.asked.clock) } else { 0 }
    }
}

/// Before a call that begins messages.
///
/// # Safety
/// The call has the arguments of its function.
#[cold]
pub unsafe fn post(here: &mut Here, call: &Call) {
    let Some(mut delays) = here.delays.take() else { return };
    let from = delays.moment();
    delays.late = false;
    let generation = process::generation();
    if delays.asked.what.at_send(0).is_some() && !process::paused(generation) {
        // SAFETY: functions of the table have a rule each; by this function's contract.
        unsafe {
            let rule = &*here.rules.add(call.function as usize);
            match rule.requests {
                Requests::Starts { count, requests } => started(here, call, count, requests, &mut delays),
                _ => match known(here, call, rule, &delays).filter(|_| generation == here.generation) {
                    Some((bytes, peer)) => delays.send(here, bytes, peer),
                    None => delays.late = call.integer(rule.dest) != here.abi().proc_null,
                },
            }
        }
        delays.spend(here);
    }
    delays.before = delays.moment().saturating_sub(from);
    here.delays = Some(delays);
}

/// # Safety
/// As of [`post`].
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
                delays.send(here, operation.bytes, operation.peer_in_world);
            }
        }
    }
}

/// The bytes and the peer of the message that the call begins, by what earlier calls told: the MPI is asked about nothing
/// that it may not know. `None` where they are not known, or there is none.
///
/// # Safety
/// As of [`post`].
unsafe fn known(here: &Here, call: &Call, rule: &Rule, delays: &Delays) -> Option<(u64, u32)> {
    let (abi, what) = (here.abi(), &delays.asked.what);
    // SAFETY: by this function's contract.
    unsafe {
        let dest = call.integer(rule.dest);
        if dest == abi.proc_null {
            return None;
        }
        let bytes = match rule.amount {
            _ if what.byte == 0.0 => 0,
            Amount::Elements { count, datatype, times: Times::Once } => {
                let count = call.count(count, rule.wide).max(0) as u64;
                if count == 0 { 0 } else { count.wrapping_mul(here.datatypes.known(call.handle(datatype, abi))?) }
            }
            _ => return None,
        };
        let peer = match what.peers {
            Peers::All => NO_RANK,
            _ => here.known_communicator(call.handle(rule.comm, abi))?.world_rank(dest).unwrap_or(NO_RANK),
        };
        Some((bytes, peer))
    }
}

/// An operation is complete.
pub fn completed(here: &mut Here, operation: &Operation) {
    let Some(mut delays) = here.delays.take() else { return };
    let receives = delays.asked.arguments.get(usize::from(operation.function)).is_some_and(|of| of.receives_by_request);
    if receives && operation.peer != here.abi().proc_null && !process::paused(here.generation) {
        delays.receive(here, operation.bytes, operation.peer_in_world);
    }
    here.delays = Some(delays);
}

/// After a call, when all of it is recorded.
///
/// # Safety
/// The call has the arguments of its function.
#[cold]
pub unsafe fn after(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts) {
    let Some(mut delays) = here.delays.take() else { return };
    if !process::paused(here.generation) {
        if call.succeeded() {
            // SAFETY: by this function's contract, and the call succeeded.
            unsafe { told(here, call, rule, facts, &mut delays) };
        }
        let gap = call.entered.saturating_sub(delays.before).saturating_sub(delays.resumed);
        if delays.resumed != 0 && rule.special == Special::No && delays.asked.what.compute > 0.0 {
            delays.owed += gap as f64 * delays.asked.what.compute;
            let now = delays.owed.min(delays.room as f64);
            delays.owed -= now;
            delays.room -= now as u64;
            delays.wanted[injected::COMPUTE] = Injected { count: 1, ticks: now as u64 };
        }
    }
    delays.spend(here);
    (delays.before, delays.late) = (0, false);
    delays.resumed = delays.moment();
    here.delays = Some(delays);
}

/// The message that the call received, and the one that it sent where that was not known before.
///
/// # Safety
/// The call succeeded.
unsafe fn told(here: &mut Here, call: &Call, rule: &Rule, facts: &Facts, delays: &mut Delays) {
    let abi = here.abi();
    // SAFETY: by this function's contract, throughout.
    unsafe {
        let in_world = |here: &mut Here, argument: u8| {
            if delays.asked.what.peers == Peers::All || rule.comm == NONE {
                return NO_RANK;
            }
            let peer = call.integer(argument);
            let comm = here.communicator(call.handle(rule.comm, abi));
            comm.and_then(|comm| comm.world_rank(peer)).unwrap_or(NO_RANK)
        };
        if delays.late && facts.messages > 0 {
            let peer = in_world(here, rule.dest);
            delays.send(here, facts.message_bytes, peer);
        }
        let blocks = matches!(rule.class, Class::Receive | Class::Exchange) && rule.requests == Requests::No;
        let from_somebody = rule.source == NONE || call.integer(rule.source) != abi.proc_null;
        if blocks && from_somebody && delays.asked.what.receive.is_some() {
            let arguments = &delays.asked.arguments[call.function as usize];
            let (count, datatype) = (arguments.source_count, arguments.source_datatype);
            let bytes = match delays.asked.what.byte > 0.0 {
                true => amount::elements(here, call, rule, count, datatype),
                false => 0,
            };
            let peer = if rule.source == NONE { NO_RANK } else { in_world(here, rule.source) };
            delays.receive(here, bytes, peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_by_rank_and_all_of_them() {
        assert_eq!(placed("1 b\n0 a c\n").unwrap(), ["a c", "b"]);
        for text in ["0 a\n2 b\n", "0 a\n0 b\n", "a 0\n", "0\n"] {
            assert_eq!(placed(text), None, "{text}");
        }
    }
}
