//! Receive work requests of one queue pair, or shared.

use machine::{Fault, Result};

use crate::memory::{MemoryKey, Segment};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceiveWork {
    pub id: u64,
    pub into: Segment,
}

/// A ring of fixed size.
pub(crate) struct ReceiveQueue {
    work: Box<[ReceiveWork]>,
    head: usize,
    posted: usize,
}

const BLANK: ReceiveWork = ReceiveWork { id: 0, into: Segment { key: MemoryKey(0), offset: 0, length: 0 } };

impl ReceiveQueue {
    pub fn new(depth: u32) -> Self {
        ReceiveQueue { work: vec![BLANK; depth as usize].into_boxed_slice(), head: 0, posted: 0 }
    }

    #[inline]
    fn at(&self, place: usize) -> usize {
        if place >= self.work.len() { place - self.work.len() } else { place }
    }

    #[inline]
    pub fn post(&mut self, work: ReceiveWork) -> Result<()> {
        if self.posted == self.work.len() {
            return Err(Fault::new(
                "receive queue",
                format!("all its {} work requests are posted", self.work.len()),
                "wait for a completion, or make it deeper",
            ));
        }
        let at = self.at(self.head + self.posted);
        self.work[at] = work;
        self.posted += 1;
        Ok(())
    }

    #[inline]
    pub fn take(&mut self) -> Option<ReceiveWork> {
        if self.posted == 0 {
            return None;
        }
        let work = self.work[self.head];
        self.head = self.at(self.head + 1);
        self.posted -= 1;
        Some(work)
    }

    pub fn bytes(&self) -> usize {
        self.work.len() * size_of::<ReceiveWork>()
    }
}
