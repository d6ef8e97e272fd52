//! The delays that are requested of a rank, and the ticks that a thread has spent on them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use record::folder::{self, variable};
use record::layout::{Injected, Thread, injected, perturbed};
use record::perturbation::{LONGEST, Peers, Perturbation, SHARE};

use crate::clock;
use crate::heading::Heading;
use crate::timeline::arguments::{self, Arguments};

/// The delays that are requested of a rank.
#[derive(Debug)]
pub struct Asked {
    pub what: Perturbation,
    clock: u32,
    /// Ticks per nanosecond.
    rate: f64,
    /// Ticks of one reading of the clock: each delay lasts that much longer than its first and last readings differ.
    reading: u64,
    /// Ticks when the rank began to record.
    began: u64,
    /// Host of each rank of MPI_COMM_WORLD, where delays depend on the peer's host.
    hosts: Vec<String>,
    host: String,
    pub arguments: Vec<Arguments>,
    /// The rank is not on the host that the list gives it.
    misplaced: AtomicBool,
    heading: &'static Heading,
    /// Bits of [`perturbed`] that the header has already.
    told: AtomicU32,
}

impl Asked {
    /// The delays that the environment requests, and the header's word about them.
    pub fn read(folder: &Path, host: &str, clock: u32, heading: &'static Heading) -> (Option<Asked>, u32) {
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
            arguments: arguments::all(),
            misplaced: AtomicBool::new(false),
            heading,
            told: AtomicU32::new(0),
        };
        (Some(asked), perturbed::ASKED)
    }

    /// Compares the rank's host with the list of hosts: where they differ, nothing is delayed.
    pub fn place(&self, rank: u32, size: u32) {
        let is_there = self.hosts.len() == size as usize && self.hosts[rank as usize] == self.host;
        let is_right = self.what.peers == Peers::All || is_there;
        self.misplaced.store(!is_right, Ordering::Relaxed);
        if !is_right {
            self.note(perturbed::MISPLACED);
        }
    }

    /// Notes an outcome of the delays in the header: one of [`perturbed`].
    #[cold]
    fn note(&self, what: u32) {
        if self.told.fetch_or(what, Ordering::Relaxed) & what == 0 {
            self.heading.change(|header| header.perturbed |= what);
        }
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
        // SAFETY: the call takes no arguments.
        let elsewhere = |core: u32| u32::try_from(unsafe { libc::sched_getcpu() }).is_ok_and(|now| now != core);
        self.misplaced.load(Ordering::Relaxed) || self.what.core.is_some_and(elsewhere)
    }
}

/// The hosts by rank. `None`: the text is no list of all ranks.
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

/// The delays of a thread.
#[derive(Debug)]
pub struct Delays {
    pub asked: &'static Asked,
    thread: *mut Thread,
    /// Ticks that all delays of the thread took.
    spent: u64,
    stopped: bool,
    /// Delays due at the present call, by [`injected`], and the ticks that further ones may take.
    pub wanted: [Injected; 3],
    pub room: u64,
    /// Ticks that [`crate::perturb::post`] took before the present call was entered.
    pub before: u64,
    /// The bytes that the present call sends are known only once the call succeeds.
    pub send_unknown: bool,
    /// Ticks when the thread resumed after its last call; 0: no call yet.
    pub resumed: u64,
    /// Ticks of delay that are still due for computing.
    pub owed: f64,
}

impl Delays {
    pub fn new(asked: &'static Asked, thread: *mut Thread) -> Delays {
        let (wanted, room) = (Default::default(), asked.ticks(LONGEST));
        let (spent, stopped, before, send_unknown, resumed, owed) = (0, false, 0, false, 0, 0.0);
        Delays { asked, thread, spent, stopped, wanted, room, before, send_unknown, resumed, owed }
    }

    /// Forgets the last call and the ticks due, for the next thread with this record.
    pub fn hand_on(&mut self) {
        (self.resumed, self.owed) = (0, 0.0);
    }

    /// Adds a delay to those due at the present call. `false`: no room for it.
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

    pub fn send(&mut self, bytes: u64, peer: u32) {
        if let Some(delay) = self.asked.what.at_send(bytes).filter(|_| self.asked.means(peer))
            && !self.want(injected::SEND, delay)
        {
            self.asked.note(perturbed::CUT);
        }
    }

    pub fn receive(&mut self, bytes: u64, peer: u32) {
        if let Some(delay) = self.asked.what.at_receive(bytes).filter(|_| self.asked.means(peer))
            && !self.want(injected::RECEIVE, delay)
        {
            self.asked.note(perturbed::CUT);
        }
    }

    /// Spins for the delays that are due, unless they exceed the thread's share of time.
    pub fn spend(&mut self) {
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
            return self.asked.note(perturbed::STOPPED);
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

    /// The ticks of the present moment, where computing is delayed; else 0.
    pub fn moment(&self) -> u64 {
        if self.asked.what.compute > 0.0 { clock::ticks(self.asked.clock) } else { 0 }
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
