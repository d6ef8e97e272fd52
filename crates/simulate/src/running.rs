//! A schedule while it runs.

use whatif::goal::{Operation, Schedule};

use super::Program;

/// The progress of a schedule.
pub struct Running<'s> {
    schedule: &'s Schedule,
    /// By operation: the number of requirements that are not met.
    requires: Vec<u32>,
}

impl<'s> Running<'s> {
    pub fn of(schedule: &'s Schedule) -> Self {
        Running { schedule, requires: schedule.requirements().to_vec() }
    }

    fn satisfy(&mut self, waiting: &[u32], free: &mut Vec<Operation>) {
        for number in waiting {
            let left = &mut self.requires[*number as usize];
            *left -= 1;
            if *left == 0 {
                free.push(self.schedule.operation(*number));
            }
        }
    }
}

impl Program for Running<'_> {
    fn ranks(&self) -> u32 {
        self.schedule.ranks()
    }

    fn places(&self) -> (usize, usize) {
        self.schedule.places()
    }

    fn begin(&mut self, rank: u32, free: &mut Vec<Operation>) {
        free.extend(self.schedule.of(rank).filter(|one| self.schedule.requirements()[one.number as usize] == 0));
    }

    fn started(&mut self, _: u32, number: u32, free: &mut Vec<Operation>) {
        self.satisfy(self.schedule.after_start(number), free);
    }

    fn over(&mut self, _: u32, number: u32, free: &mut Vec<Operation>) {
        self.satisfy(self.schedule.after_end(number), free);
    }

    fn stuck(&self) -> Option<u32> {
        let waiting = self.requires.iter().position(|left| *left > 0)?;
        Some(self.schedule.rank_of(waiting as u32))
    }
}
