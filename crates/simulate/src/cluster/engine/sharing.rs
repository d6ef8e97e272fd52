//! Cores that ranks share: the rank that runs, its time slice, and what stops it.

use super::super::profile::Waiting;
use super::super::{Doing, Seat, Seen, Stay, Time};
use super::{Engine, Event, Rank, Work};

impl Engine<'_> {
    pub(super) fn does(&mut self, rank: u32, doing: Option<Doing>) {
        let now = self.now;
        let of = &mut self.ranks[rank as usize];
        if of.doing == doing {
            return;
        }
        if let Some(doing) = of.doing {
            of.split.add(doing, now - of.since);
            (self.see)(Seen::Stay(Stay { rank, doing, from: of.since, to: now }));
        }
        (of.doing, of.since) = (doing, now);
    }

    /// Whether a rank has its core; otherwise it is queued for it.
    pub(super) fn seated(&mut self, rank: u32) -> bool {
        let Seat { host, core } = self.ranks[rank as usize].seat;
        let slice = self.cluster.slice;
        let seats = &self.hosts[host].cores[core];
        let gives = |other: u32| {
            let of = &self.ranks[other as usize];
            let spins = self.cluster.profile.waiting == Waiting::Spin && of.open > 0;
            of.job.is_none() && !(spins && self.now < seats.slice_ends)
        };
        let free = seats.on.is_none_or(gives) && seats.queue.is_empty();
        let on = seats.on == Some(rank);
        let seats = &mut self.hosts[host].cores[core];
        if on {
            return true;
        }
        if free {
            (seats.on, seats.slice_ends) = (Some(rank), self.now.saturating_add(slice));
            return true;
        }
        if !seats.queue.contains(&rank) {
            seats.queue.push_back(rank);
        }
        self.arm(host, core);
        false
    }

    pub(super) fn arm(&mut self, host: usize, core: usize) {
        let seats = &mut self.hosts[host].cores[core];
        if !std::mem::replace(&mut seats.slicing, true) {
            let time = seats.slice_ends.max(self.now);
            self.at(time, Event::Slice { host: host as u32, core: core as u32 });
        }
    }

    /// Takes the core from a rank that has no work, unless it spins.
    pub(super) fn idle(&mut self, rank: u32) {
        let of = &self.ranks[rank as usize];
        let Seat { host, core } = of.seat;
        let spins = self.cluster.profile.waiting == Waiting::Spin && of.open > 0;
        let seats = &self.hosts[host].cores[core];
        if seats.on == Some(rank) && !seats.queue.is_empty() && !spins {
            self.give(host, core);
        }
    }

    pub(super) fn give(&mut self, host: usize, core: usize) {
        let slice = self.cluster.slice;
        let seats = &mut self.hosts[host].cores[core];
        seats.on = seats.queue.pop_front();
        seats.slice_ends = self.now.saturating_add(slice);
        self.wakes.extend(seats.on);
        if !seats.queue.is_empty() {
            self.arm(host, core);
        }
    }

    /// Stops the work of the rank on a core, and returns the rest.
    pub(super) fn stop(&mut self, rank: u32) -> Time {
        let Rank { seat: Seat { host, core }, job, version, .. } = &mut self.ranks[rank as usize];
        let seats = &mut self.hosts[*host].cores[*core];
        let Some(job) = job.as_mut().filter(|job| job.running) else { return 0 };
        let stalled = seats.protocol.free().saturating_sub(self.now);
        let left = (job.ends - self.now).saturating_sub(stalled);
        let ran = job.left - left;
        match job.work {
            Work::Compute => seats.busy.computing += ran,
            _ => seats.busy.messages += ran,
        }
        (job.left, job.running) = (left, false);
        *version += 1;
        left
    }
}
