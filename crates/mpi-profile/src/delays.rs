//! The delays that are requested of a rank, and the ticks that a thread has spent on them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use record::blocks::Schedule;
use record::folder::{self, variable};
use record::layout::{Injected, Thread, injected, perturbed};
use record::perturbation::{LONGEST, Peers, Perturbation, SHARE};

use crate::clock;
use crate::heading::Heading;
use crate::progress::Passes;
use crate::timeline::arguments::{self, Arguments};

/// By how much a spin may end late, ns, and still be a delay of that length.
const LATE: f64 = 1000.0;

/// The least delay of computing, ns: a shorter one takes no less, since it ends with a reading of the clock; and the longest.
const COMPUTING: [f64; 2] = [100.0, 10.0 * LONGEST];

/// The delays that are requested of a rank.
#[derive(Debug)]
pub struct Asked {
    pub schedule: Schedule,
    /// The columns that are on now, a bit each; and those that count in this rank.
    on: AtomicU64,
    ours: AtomicU64,
    /// Ticks that threads were delayed, by column.
    doses: Vec<AtomicU64>,
    /// Whether some column delays sends, receives, computing, or by bytes.
    pub sends: bool,
    pub receives: bool,
    pub computes: bool,
    pub weighs: bool,
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
        let read = text.to_str().and_then(|text| text.parse::<Schedule>().ok());
        let hosts = match &read {
            Some(schedule) if !schedule.by_host() => Some(Vec::new()),
            _ => fs::read_to_string(folder::placed_file(folder)).ok().and_then(|text| placed(&text)),
        };
        let (Some(schedule), Some(hosts)) = (read, hosts) else { return (None, perturbed::ASKED | perturbed::UNREAD) };
        let any = |is: &dyn Fn(&Perturbation) -> bool| schedule.columns.iter().any(is);
        let asked = Asked {
            on: AtomicU64::new(schedule.on(0)),
            ours: AtomicU64::new(ours(&schedule, None)),
            doses: schedule.columns.iter().map(|_| AtomicU64::new(0)).collect(),
            sends: any(&|column| column.at_send(0).is_some()),
            receives: any(&|column| column.receive.is_some()),
            computes: any(&|column| column.compute > 0.0),
            weighs: any(&|column| column.byte > 0.0),
            schedule,
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

    /// Finds the columns that count in this rank, and compares its host with the list of hosts: where they differ, nothing is
    /// delayed.
    pub fn place(&self, rank: u32, size: u32) {
        let is_there = self.hosts.len() == size as usize && self.hosts[rank as usize] == self.host;
        self.ours.store(ours(&self.schedule, Some(rank)), Ordering::Relaxed);
        let is_right = !self.schedule.by_host() || is_there;
        self.misplaced.store(!is_right, Ordering::Relaxed);
        if !is_right {
            self.note(perturbed::MISPLACED);
        }
    }

    /// Notes an outcome of the delays in the header: one of [`perturbed`].
    #[cold]
    pub fn note(&self, what: u32) {
        if self.told.fetch_or(what, Ordering::Relaxed) & what == 0 {
            self.heading.change(|header| header.perturbed |= what);
        }
    }

    fn ticks(&self, nanoseconds: f64) -> u64 {
        (nanoseconds * self.rate) as u64
    }

    /// The columns that are on, a bit each.
    pub fn on(&self) -> u64 {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins a block.
    pub fn switch(&self, block: u64) {
        self.on.store(self.schedule.on(block), Ordering::Relaxed);
    }

    /// Ticks that threads were delayed so far, by column.
    pub fn doses(&self) -> Vec<u64> {
        self.doses.iter().map(|dose| dose.load(Ordering::Relaxed)).collect()
    }

    /// The columns that count in this rank: the place, the delays, and 1 where the column is on, else 0. One that is off costs
    /// what one that is on costs, but for the delay.
    fn columns(&self) -> impl Iterator<Item = (usize, &Perturbation, f64)> {
        let (on, mut ours) = (self.on(), self.ours.load(Ordering::Relaxed));
        let places = std::iter::from_fn(move || {
            let place = ours.trailing_zeros() as usize;
            ours &= ours.wrapping_sub(1);
            (place < 64).then_some(place)
        });
        let columns = places.filter_map(move |place| {
            let is_on = if on >> place & 1 == 1 { 1.0 } else { 0.0 };
            Some((place, self.schedule.columns.get(place)?, is_on))
        });
        columns.filter(|(_, column, _)| column.core.is_none_or(is_on))
    }

    /// Whether messages with this rank of MPI_COMM_WORLD are delayed.
    fn means(&self, peers: Peers, peer: u32) -> bool {
        let is_here = || self.hosts.get(peer as usize).map(|host| *host == self.host);
        match peers {
            Peers::All => true,
            Peers::SameHost => is_here() == Some(true),
            Peers::OtherHost => is_here() == Some(false),
        }
    }
}

/// The columns that count in a rank, a bit each.
fn ours(schedule: &Schedule, rank: Option<u32>) -> u64 {
    let columns = schedule.columns.iter().enumerate();
    let ours = columns.filter(|(_, column)| column.rank.is_none() || column.rank == rank);
    ours.fold(0, |ours, (place, _)| ours | 1 << place)
}

/// Whether this thread runs on the core, or it is not known where it runs.
fn is_on(core: u32) -> bool {
    // SAFETY: the call takes no arguments.
    u32::try_from(unsafe { libc::sched_getcpu() }).map_or(true, |now| now == core)
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
    wanted: [Injected; 3],
    /// The same ticks by column.
    of_columns: Vec<u64>,
    room: u64,
    /// The bytes that the present call sends are known only once the call succeeds.
    pub send_unknown: bool,
    /// Ticks when the thread resumed after its last call; 0: no call yet.
    pub resumed: u64,
    /// Ticks of delay that are still due for computing, by column.
    owed: Vec<f64>,
    /// `None`: in threads beyond the main one, and where delays are on for the whole run.
    pub passes: Option<Passes>,
}

impl Delays {
    pub fn new(asked: &'static Asked, thread: *mut Thread, index: u16) -> Delays {
        let columns = asked.schedule.columns.len();
        Delays {
            asked,
            thread,
            spent: 0,
            stopped: false,
            wanted: Default::default(),
            of_columns: vec![0; columns],
            room: asked.ticks(LONGEST),
            send_unknown: false,
            resumed: 0,
            owed: vec![0.0; columns],
            passes: asked.schedule.blocks.filter(|_| index == 0).map(Passes::new),
        }
    }

    /// Forgets the last call and the ticks due, for the next thread with this record.
    pub fn hand_on(&mut self) {
        self.resumed = 0;
        self.owed.fill(0.0);
    }

    /// Adds a delay to those due at the present call. `false`: no room for it.
    fn want(&mut self, kind: usize, column: usize, nanoseconds: f64) -> bool {
        let ticks = self.asked.ticks(nanoseconds.min(LONGEST));
        let fits = ticks <= self.room;
        if fits {
            self.room -= ticks;
            self.wanted[kind].count += 1;
            self.wanted[kind].ticks += ticks;
            self.of_columns[column] += ticks;
        }
        fits
    }

    pub fn send(&mut self, bytes: u64, peer: u32) {
        for (place, column, is_on) in self.asked.columns() {
            if let Some(delay) = column.at_send(bytes).filter(|_| self.asked.means(column.peers, peer))
                && !self.want(injected::SEND, place, is_on * delay)
            {
                self.asked.note(perturbed::CUT);
            }
        }
    }

    pub fn receive(&mut self, bytes: u64, peer: u32) {
        for (place, column, is_on) in self.asked.columns() {
            if let Some(delay) = column.at_receive(bytes).filter(|_| self.asked.means(column.peers, peer))
                && !self.want(injected::RECEIVE, place, is_on * delay)
            {
                self.asked.note(perturbed::CUT);
            }
        }
    }

    /// Adds the delay of computing for so many ticks; what is beyond the longest stays due while the column is on.
    pub fn compute(&mut self, gap: u64) {
        let [least, most] = COMPUTING.map(|nanoseconds| nanoseconds * self.asked.rate);
        for (place, column, is_on) in self.asked.columns().filter(|(_, column, _)| column.compute > 0.0) {
            self.owed[place] = is_on * (self.owed[place] + gap as f64 * column.compute);
            let now = if self.owed[place] < least { 0.0 } else { self.owed[place].min(most) };
            self.owed[place] -= now;
            self.of_columns[place] += now as u64;
            let Injected { ticks, .. } = self.wanted[injected::COMPUTE];
            self.wanted[injected::COMPUTE] = Injected { count: 1, ticks: ticks + now as u64 };
        }
    }

    /// Spins for the delays that are due, unless they exceed the thread's share of time.
    pub fn spend(&mut self) {
        if self.wanted.iter().all(|delays| delays.count == 0) {
            return;
        }
        let wanted = std::mem::take(&mut self.wanted);
        if self.stopped || self.asked.misplaced.load(Ordering::Relaxed) {
            self.room = self.asked.ticks(LONGEST);
            return self.of_columns.fill(0);
        }
        let all: u64 = wanted.iter().map(|delays| delays.ticks).sum();
        self.room = self.asked.ticks(LONGEST);
        let now = clock::ticks(self.asked.clock);
        if (self.spent + all) as f64 > SHARE * now.saturating_sub(self.asked.began) as f64 {
            self.stopped = true;
            self.of_columns.fill(0);
            return self.asked.note(perturbed::STOPPED);
        }
        let mut spun = 0;
        for (kind, delays) in wanted.into_iter().enumerate().filter(|(_, delays)| delays.count > 0) {
            // Work of this loop that a block without delays has too is no part of the spin.
            let from = clock::settled(self.asked.clock);
            let mut now = from;
            while now.saturating_sub(from) < delays.ticks {
                now = clock::ticks(self.asked.clock);
            }
            let more = now.saturating_sub(from);
            // A spin that takes much longer has lost its core, as the program would have elsewhere.
            let own = more.min(delays.ticks + self.asked.ticks(LATE));
            spun += own;
            let ticks = if delays.ticks > 0 { more + self.asked.reading } else { 0 };
            // Blocks without delays make up for a lost core; where there are none, all counts.
            self.spent += if self.asked.schedule.blocks.is_some() { own } else { ticks };
            self.count(kind, Injected { count: delays.count, ticks });
        }
        let longer = spun as f64 / all.max(1) as f64;
        for (place, ..) in self.asked.columns() {
            let ticks = std::mem::take(&mut self.of_columns[place]) as f64 * longer;
            self.asked.doses[place].fetch_add(ticks as u64, Ordering::Relaxed);
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
        if self.asked.computes { clock::ticks(self.asked.clock) } else { 0 }
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
